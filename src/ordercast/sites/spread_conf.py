"""Reads the `spread.conf` of Spread 4 and 5 into the configuration of sites: segments become sites.

Section 10 of the reference of Spread's client protocol has the file. What concerns Spread's own network protocol, and
keys that are not known, are warnings with file and line; errors name them, too. Not every setting may be passed over: a
file that demands passwords, or another access policy than PERMIT, is refused, because others would get in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ordercast.sites.config import (
    DEFAULT_PORT,
    MAX_NAME,
    MAX_WINDOW,
    DaemonSpec,
    LinkSpec,
    Site,
    SitesConfig,
    first_problem,
    is_literal,
    is_multicast,
)
from ordercast.sites.spread_words import PUNCTUATION, ConfWord, ConfWords
from ordercast.sites.tables import read_text
from ordercast.view import Address

SEGMENT: Final = "spread_segment"
METHODS: Final = ("NULL", "IP")
MAX_SESSION_MESSAGES: Final = 1_000_000
USUAL_SESSION_MESSAGES: Final = 1_000

# Keys of Spread that have no meaning here, in lower case, and what has it instead.
WITHOUT_EFFECT: Final = {
    "debugflags": "use --log of the daemon",
    "eventpriority": "use --log of the daemon",
    "eventlogfile": "redirect the daemon's output",
    "eventtimestamp": "log lines have the time already",
    "eventprecisetimestamp": "log lines have the time already",
    "dangerousmonitor": "there is no monitor; see ordercast status",
    "socketportreuse": "sockets are reused where that is safe",
    "runtimedir": "the daemon changes no folder; use the service manager",
    "daemonuser": "the daemon changes no user; use the service manager",
    "daemongroup": "the daemon changes no group; use the service manager",
    "acceleratedring": "it belongs to Spread's own ring",
    "acceleratedwindow": "it belongs to Spread's own ring",
    "wideareanetwork": "each segment is a site already",
    "excludesegaddrsfromhash": "all daemons need the same file",
    "ignoremulticastjoinerrors": "a segment without multicast gets copies",
    "hop": "it belongs to Spread's own network",
    "tcphop": "it belongs to Spread's own network",
    "linkprotocol": "it belongs to Spread's own network",
    "routematrix": "weights of links are in the TOML form only",
    **dict.fromkeys(
        (
            "tokentimeout",
            "hurrytimeout",
            "alivetimeout",
            "jointimeout",
            "reptimeout",
            "segtimeout",
            "gathertimeout",
            "formtimeout",
            "lookuptimeout",
        ),
        "failures are detected by measured round trips",
    ),
}

_ADDRESS: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3}){3})(?::(\d{1,5}))?\Z", re.ASCII)
_LETTERS: Final = re.compile(r"[DCM]{1,3}\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SpreadConf:
    """What a `spread.conf` says."""

    sites: SitesConfig
    allowed_methods: tuple[str, ...] = ("NULL",)
    """Authentication methods that clients may choose."""
    required_methods: tuple[str, ...] = ()
    """Those that run in any case."""
    max_session_messages: int = USUAL_SESSION_MESSAGES
    """Messages that may wait for one client before it is disconnected."""
    client_hosts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Daemon -> the addresses on which clients connect, where the file says that; 0.0.0.0 is any."""
    warnings: tuple[str, ...] = ()
    """What was passed over, each with file and line."""


def load_spread_conf(path: str | Path) -> SpreadConf:
    """Read a file; `UsageError` names it, the line, and what to do."""
    return parse_spread_conf(read_text(path), str(path))


def parse_spread_conf(text: str, name: str) -> SpreadConf:
    """Read a text. `name` stands for it in errors and warnings."""
    return _Reading(ConfWords(text, name)).read()


class _Reading:
    """One file as far as it has been read."""

    __slots__ = (
        "_allowed",
        "_client_hosts",
        "_daemon_lines",
        "_daemons",
        "_required",
        "_session_messages",
        "_site_lines",
        "_sites",
        "_warnings",
        "_windows",
        "_words",
    )

    def __init__(self, words: ConfWords) -> None:
        self._words = words
        self._sites: list[Site] = []
        self._site_lines: list[int] = []
        self._daemons: list[DaemonSpec] = []
        self._daemon_lines: list[int] = []
        self._client_hosts: dict[str, tuple[str, ...]] = {}
        self._windows: dict[str, tuple[int, int]] = {}  # key -> value and line
        self._allowed: tuple[str, ...] | None = None
        self._required: tuple[str, ...] = ()
        self._session_messages = USUAL_SESSION_MESSAGES
        self._warnings: list[str] = []

    def read(self) -> SpreadConf:
        words = self._words
        while not words.next.is_end:
            if words.skip(";"):
                continue
            word = words.take()
            if word.is_quoted or word.text in PUNCTUATION:
                words.wrong(word.line, f"{word.text!r} is no key; a key or Spread_Segment begins here")
            if word.text.lower() == SEGMENT:
                self._read_segment(word)
            else:
                self._read_key(word)
        sites = self._with_windows()
        problem = first_problem(sites, self._daemons, (), LinkSpec())
        if problem is not None:
            text = "there is no Spread_Segment with a daemon in it" if not sites else problem.text
            words.wrong(self._line_of(problem.where), text)
        allowed = self._allowed
        if allowed is None:
            allowed = () if self._required else ("NULL",)
        return SpreadConf(
            SitesConfig(tuple(sites), tuple(self._daemons)),
            allowed,
            self._required,
            self._session_messages,
            self._client_hosts,
            tuple(self._warnings),
        )

    # Segments.

    def _read_segment(self, segment: ConfWord) -> None:
        words = self._words
        addresses: list[Address] = []
        while not words.next.is_sign("{"):
            word = words.take()
            if word.is_end:
                words.wrong(segment.line, "a Spread_Segment needs an address and its daemons in braces")
            addresses.append(self._address(word))
        if not addresses:
            words.wrong(segment.line, "a Spread_Segment needs an address: Spread_Segment 10.1.255.255:4803 { ... }")
        if len(addresses) > 1:
            self._warn(segment.line, f"only {addresses[0][0]} of {len(addresses)} addresses of the segment is used")
        host, port = addresses[0]
        words.expect("{", "a Spread_Segment")
        index = len(self._sites)
        # Daemons of a segment receive unicasts at its port; multicasts have the next one, as Spread has it.
        multicast = (host, port + 1 if port < 65_535 else port - 1) if is_multicast(host) else None
        self._sites.append(Site(f"segment{index + 1}", index, multicast))
        self._site_lines.append(segment.line)
        while not words.skip("}"):
            if words.skip(";"):
                continue
            if words.next.is_end:
                words.wrong(segment.line, "the brace of this Spread_Segment is never closed")
            self._read_daemon(port)

    def _read_daemon(self, port: int) -> None:
        words = self._words
        first = words.take()
        if first.text in PUNCTUATION and not first.is_quoted:
            words.wrong(first.line, f"a daemon is written as its name and address, not {first.text!r}")
        name = host = first.text
        if not is_literal(name):
            following = words.next
            if not following.is_end and following.line == first.line and following.text not in PUNCTUATION:
                if _is_ipv6(following.text):
                    words.wrong(following.line, _no_ipv6(following.text))
                if is_literal(following.text):
                    host = words.take().text
        if _is_ipv6(name):
            words.wrong(first.line, _no_ipv6(name))
        if words.next.text.lower() == "virtualid":
            words.take()
            words.expect("=", "VirtualID")
            self._number("VirtualID", words.take(), 0, (1 << 32) - 1)
        if words.skip("{"):
            host = self._read_interfaces(name, host, first.line)
        if len(name) > MAX_NAME:
            self._warn(
                first.line, f"the daemon {name!r} is called {name[:MAX_NAME]!r}: names have {MAX_NAME} characters"
            )
            name = name[:MAX_NAME]
        self._daemons.append(DaemonSpec(name, self._sites[-1].name, host, port))
        self._daemon_lines.append(first.line)

    def _read_interfaces(self, name: str, host: str, line: int) -> str:
        """The interfaces of a daemon; the one at which other daemons reach it."""
        words = self._words
        daemons: list[str] = []
        clients: list[str] = []
        while not words.skip("}"):
            word = words.take()
            if word.is_end:
                words.wrong(line, f"the brace of the interfaces of {name} is never closed")
            uses = "DCM"
            if _LETTERS.match(word.text):
                uses = word.text.upper()
                word = words.take()
                while _LETTERS.match(word.text):  # the letters may stand apart: D C 10.1.0.1
                    uses += word.text.upper()
                    word = words.take()
            address = self._address(word)[0]
            if "D" in uses:
                daemons.append(address)
            if "C" in uses:
                clients.append(address)
        if clients:
            self._client_hosts[name[:MAX_NAME]] = tuple(clients)
        usable = [address for address in daemons if address != "0.0.0.0"]
        return host if host in usable or not usable else usable[0]

    def _address(self, word: ConfWord) -> Address:
        match = _ADDRESS.match(word.text)
        if match is None or not is_literal(match[1]):
            if _is_ipv6(word.text):
                self._words.wrong(word.line, _no_ipv6(word.text))
            found = repr(word.text) if not word.is_end else "the end of the file"
            self._words.wrong(word.line, f"an address is written as 10.1.255.255 or 10.1.255.255:4803, not {found}")
        port = int(match[2]) if match[2] else DEFAULT_PORT
        if not 0 < port < 65_536:
            self._words.wrong(word.line, f"a port is a whole number from 1 to 65535, not {port}")
        return match[1], port

    # Keys.

    def _read_key(self, key: ConfWord) -> None:
        words, name = self._words, key.text.lower()
        match name:
            case "allowedauthmethods":
                self._allowed = self._methods(key, is_required=False)
            case "requiredauthmethods":
                self._required = self._methods(key, is_required=True)
            case "accesscontrolpolicy":
                policy = self._value(key)
                if policy.text.upper() != "PERMIT":
                    words.wrong(policy.line, f"there is no access policy {policy.text!r}; PERMIT is the only one")
            case "maxsessionmessages":
                self._session_messages = self._number(key.text, self._value(key), 1, MAX_SESSION_MESSAGES)
            case "window" | "personalwindow":
                value = self._value(key)
                self._windows[name] = self._number(key.text, value, 1, MAX_WINDOW), value.line
            case "activeipversion":
                version = self._value(key)
                if version.text.upper() != "IPV4":
                    words.wrong(version.line, f"ActiveIPVersion is {version.text!r}; sites use IPv4 between daemons")
            case _ if name in WITHOUT_EFFECT:
                self._warn(key.line, f"{key.text} has no effect: {WITHOUT_EFFECT[name]}")
                words.skip_value(key.line)
            case _:
                self._warn(key.line, f"{key.text} is not known, and passed over")
                words.skip_value(key.line)

    def _methods(self, key: ConfWord, *, is_required: bool) -> tuple[str, ...]:
        words, names = self._words, []
        value = self._value(key)
        names = value.text.upper().split()
        while not value.is_quoted and words.next.line == value.line and words.next.text.upper() in (*METHODS, "PWORD"):
            names.append(words.take().text.upper())
        for method in names:
            if method not in METHODS:
                text = f"there is no authentication method {method!r}; there are {' and '.join(METHODS)}"
                if is_required:
                    words.wrong(value.line, text)
                self._warn(value.line, text)
        return tuple(dict.fromkeys([method for method in names if method in METHODS]))

    def _value(self, key: ConfWord) -> ConfWord:
        words = self._words
        words.expect("=", key.text)
        value = words.take()
        if value.is_end or (value.text in PUNCTUATION and not value.is_quoted):
            words.wrong(key.line, f"{key.text} has no value; write {key.text} = ...")
        return value

    def _number(self, key: str, word: ConfWord, least: int, most: int) -> int:
        text = word.text
        if not (text.isascii() and text.isdecimal()) or len(text) > 10 or not least <= int(text) <= most:
            self._words.wrong(word.line, f"{key} is a whole number from {least} to {most}, not {text!r}")
        return int(text)

    def _with_windows(self) -> list[Site]:
        """The sites, all with the windows of the file: Spread has one ring, and so one of each."""
        usual = Site("", 0)
        ring, line = self._windows.get("window", (usual.ring_window, 0))
        personal, line = self._windows.get("personalwindow", (min(usual.personal_window, ring), line))
        if personal > ring:
            self._words.wrong(line, f"PersonalWindow is {personal}, more than the Window of {ring}")
        return [Site(site.name, site.index, site.multicast, ring, personal) for site in self._sites]

    def _line_of(self, where: tuple[str | int, ...]) -> int:
        match where:
            case ("site", int(index), *_) if index < len(self._site_lines):
                return self._site_lines[index]
            case ("daemon", int(index), *_) if index < len(self._daemon_lines):
                return self._daemon_lines[index]
        return 1

    def _warn(self, line: int, text: str) -> None:
        self._warnings.append(f"{self._words.name}:{line}: {text}")


def _is_ipv6(text: str) -> bool:
    return text.startswith("[") or text.count(":") > 1


def _no_ipv6(text: str) -> str:
    return f"{text!r} is an IPv6 address; sites use IPv4 between daemons: give the IPv4 address"
