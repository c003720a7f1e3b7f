"""Scripts that read as transcripts: what happens to a small group, and what must come of it.

    nodes a b c d e; loss 5%
    a send 10 AGREED
    at 200ms crash a
    until view b of 4
    b send 5 SAFE
    expect b,c,d,e delivered 15

Statements end with the line or with `;`, and `#` begins a comment. Settings (`nodes`, `network`, `seed`, `loss`,
`datagram`, `recovery`, ...) come first; `loss` may also change later. `at TIME` plans a statement for a virtual time:
it happens while a later `run` or `until` lets time go by. Everything else happens at once.

`callers x y` names nodes that never join: `x call 2 AGREED` calls the group from outside. `a lock key 300ms` asks for a
lock and gives it back 300 ms after it was granted; the holder of lock 0 to 5 answers the calls that name this handler.
`lose token -> b` loses the next datagram of a kind on its way to b, `lose 3 token -> b` the next three, and `until
lost` waits until all of these are lost. `watch token nak` has the transcript show datagrams of these kinds: their
senders, and what a pass of the token orders. `until rest or stuck` is for cases in which the group comes to rest or may
stand still (`checkers/stuck.py`), depending on how far an exchange had come.

`crash a` takes the whole machine down; `kill a` ends only the process, and the kernel of its machine answers probes.
`forge a -> b` has somebody tell a, by forged ICMP, that the process of b is gone.

`site east a b` puts nodes into a site, and `pipe east <-> west latency 30ms rate 2Mbit` says what lies between two of
them; `cut site`, `mend site`, `partition site`, `split` and `pipe` change that (`sim/script_sites.py`). Orderers that
know nothing of sites need `multicast off`, because no multicast leaves a site. With `orderer sites` every node is a
daemon, and there are other groups beside that of all nodes: `x@a join news` (`sim/script_groups.py`). `show counters`
tells how often routes were computed and links opened.

Like the tests of etcd/raft, a script may end with a line of dashes and the transcript that it must give. The transcript
holds what each node saw between two statements, without times: those change whenever a timer does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ordercast.config import MS, SECOND
from ordercast.service import parse_service
from ordercast.sim.network import NETWORKS
from ordercast.sim.script_groups import SITES, SessionAct, session_act
from ordercast.sim.script_sites import SiteAct, SiteWords
from ordercast.sim.topology import Topology
from ordercast.wire.header import Kind

SEPARATOR: Final = "----"
MAX_NODES: Final = 64
UNITS: Final[dict[str, int]] = {"ns": 1, "us": 1_000, "ms": MS, "s": SECOND}

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s)\Z")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*\Z")


class ScriptError(ValueError):
    """The script does not parse, or names what is not there; the text begins with the line."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")
        self.line = line


class ExpectationFailed(AssertionError):
    """The run did not do what the script expects; the text has the line, what was expected and what there was."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a script may set before it begins."""

    nodes: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()  # nodes that never join: they call the group from outside
    seed: int = 1
    network: str = "ideal"
    orderer: str = "sequencer"
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    multicast: bool = True
    datagram: int = 1_400
    history: int = 4 << 20
    history_blocks: int = 4_096
    buffer: int = 4 << 20
    recovery: str = "automatic"
    min_members: int | str = "majority"
    bootstrap: int = 1
    slow: str = "evict"
    patience_ns: int = 10 * SECOND
    limit_ns: int = 60 * SECOND  # how long `until` waits
    topology: Topology | None = None  # None: all nodes are in one place


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing to do. `words` are what stands after the verb; what they mean, the verb knows."""

    line: int
    text: str
    verb: str
    nodes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    number: int = 0
    time_ns: int = 0
    ratio: float = 0.0
    word: str = ""
    size: int = 100
    is_confirmed: bool = False
    handler: int = -1  # of a call: the lock whose holder answers; -1: none
    at_ns: int | None = None  # planned for this time; None: now
    site_act: SiteAct | None = None  # what is done to sites, or inside one
    session_act: SessionAct | None = None  # what sessions do in other groups, or what is expected of them


@dataclass(slots=True)
class Script:
    settings: Settings
    statements: list[Statement]
    expected: list[str] | None  # the transcript after the dashes; None if there is none
    source: str = ""


def parse_script(text: str) -> Script:
    """Read a script; `ScriptError` says which line is wrong and what would be right."""
    body, dashes, transcript = _split(text)
    parser = _ScriptParser()
    for number, line in enumerate(body.splitlines(), start=1):
        for part in line.partition("#")[0].split(";"):
            if part.strip():
                parser.statement(number, part.strip())
    if not parser.nodes:
        raise ScriptError(1, "a script begins with its nodes, as in: nodes a b c")
    expected = [line.rstrip() for line in transcript.strip("\n").splitlines()] if dashes else None
    return Script(parser.settings(), parser.statements, expected, body)


def parse_time(line: int, word: str) -> int:
    match = _TIME.match(word)
    if match is None:
        raise ScriptError(line, f"{word!r} is no time; write 200ms, 1.5s, 10us or 5ns")
    return round(float(match[1]) * UNITS[match[2]])


def parse_ratio(line: int, word: str) -> float:
    """`5%` or `0.05`."""
    try:
        ratio = float(word[:-1]) / 100 if word.endswith("%") else float(word)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ScriptError(line, f"{word!r} is no share; write 5% or 0.05")
    return ratio


def _split(text: str) -> tuple[str, bool, str]:
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.rstrip() and set(line.rstrip()) == {"-"} and len(line.rstrip()) >= len(SEPARATOR):
            return "".join(lines[:index]), True, "".join(lines[index + 1 :])
    return text, False, ""


@dataclass(slots=True)
class _ScriptParser:
    """Line by line; knows the names so far, so that a wrong one is found where it stands."""

    nodes: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    values: dict[str, object] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    sites: SiteWords = field(default_factory=SiteWords)

    def settings(self) -> Settings:
        try:
            topology = self.sites.topology(self._known)
        except ValueError as error:
            raise ScriptError(1, str(error)) from None
        if self._is_shared and topology is None:
            raise ScriptError(1, "the orderer sites needs sites, as in: site east a b")
        return Settings(nodes=self.nodes, callers=self.callers, topology=topology, **self.values)  # type: ignore[arg-type]

    def statement(self, line: int, text: str) -> None:
        words = text.split()
        at_ns: int | None = None
        if words[0] == "at":
            if len(words) < 3:
                raise ScriptError(line, "`at` needs a time and a statement, as in: at 200ms crash a")
            at_ns = parse_time(line, words[1])
            words = words[2:]
        if not self.statements and at_ns is None and self._setting(line, words):
            return
        if not self.nodes:
            raise ScriptError(line, "name the nodes first, as in: nodes a b c")
        made = self._parse(line, text, words, at_ns)
        if at_ns is not None and made.verb in ("until", "run", "expect"):
            raise ScriptError(line, f"`{made.verb}` cannot be planned with `at`: it says what happens next")
        self.statements.append(made)

    # Settings. -------------------------------------------------------------------------------------------------------

    def _setting(self, line: int, words: list[str]) -> bool:
        """True if the words were a setting."""
        key, values = words[0], words[1:]
        if key == "nodes":
            if self.nodes:
                raise ScriptError(line, "the nodes were named already")
            self.nodes = self._new_names(line, values)
            return True
        if key == "callers":
            self.callers = self._new_names(line, values)
            return True
        readers: dict[str, tuple[str, Callable[[int, str], object]]] = {
            "seed": ("seed", _number),
            "network": ("network", _network),
            "orderer": ("orderer", _word),
            "loss": ("loss", parse_ratio),
            "duplicate": ("duplicate", parse_ratio),
            "reorder": ("reorder", parse_ratio),
            "multicast": ("multicast", _switch),
            "datagram": ("datagram", _number),
            "history": ("history", _number),
            "blocks": ("history_blocks", _number),
            "buffer": ("buffer", _number),
            "recovery": ("recovery", _recovery),
            "min": ("min_members", _min_members),
            "bootstrap": ("bootstrap", _number),
            "receivers": ("slow", _slow),
            "patience": ("patience_ns", parse_time),
            "limit": ("limit_ns", parse_time),
        }
        if key not in readers:
            try:
                return self.sites.setting(words, self._known)
            except ValueError as error:
                raise ScriptError(line, str(error)) from None
        if len(values) != 1:
            raise ScriptError(line, f"`{key}` takes one value")
        name, read = readers[key]
        self.values[name] = read(line, values[0])
        return True

    def _new_names(self, line: int, names: Sequence[str]) -> tuple[str, ...]:
        for name in names:
            if not _NAME.match(name):
                raise ScriptError(line, f"{name!r} is no name of a node; use small letters and digits, as in a or b2")
        known = {*self.nodes, *self.callers, *names}
        if not names or len(known) > MAX_NODES or len(known) < len(self.nodes) + len(self.callers) + len(names):
            raise ScriptError(line, f"name 1 to {MAX_NODES} different nodes, as in: nodes a b c")
        return tuple(names)

    # Statements. -----------------------------------------------------------------------------------------------------

    def _parse(self, line: int, text: str, words: list[str], at_ns: int | None) -> Statement:
        def make(verb: str, **rest: object) -> Statement:
            return Statement(line, text, verb, at_ns=at_ns, **rest)  # type: ignore[arg-type]

        verb, rest = words[0], words[1:]
        try:
            site_act = self.sites.act(words, self._known)
            asked = session_act(words, self.nodes, is_shared=self._is_shared)
        except ValueError as error:
            raise ScriptError(line, str(error)) from None
        if site_act is not None:
            return make(site_act.verb, site_act=site_act)
        if asked is not None:
            return make(verb if verb in ("until", "expect") else "groups", word="groups", session_act=asked)
        if self._is_nodes(verb):
            return self._of_nodes(line, self._nodes(line, verb, self._known), rest, make)
        match verb, rest:
            case "run", [time]:
                return make("run", time_ns=parse_time(line, time))
            case verb, [who] if verb in _OF_NODES:
                return make("start" if verb == "restart" else verb, nodes=self._nodes(line, who))
            case "slow", [who, factor] if re.fullmatch(r"x\d+", factor):
                return make("slow", nodes=self._nodes(line, who), number=int(factor[1:]))
            case (("cut" | "mend" | "forge"), [source, "->", targets]):
                return make(verb, nodes=self._nodes(line, source), others=self._nodes(line, targets))
            case "partition", [side, "|", other]:
                return make("partition", nodes=self._nodes(line, side), others=self._nodes(line, other))
            case "heal", []:
                return make("heal")
            case (("loss" | "duplicate" | "reorder"), [share]):
                return make("link", word=verb, ratio=parse_ratio(line, share))
            case (("until" | "expect"), ["rest"]):
                return make(verb, word="rest")
            case (("until" | "expect"), ["lost"]):
                return make(verb, word="lost")
            case "until", ["rest", "or", "stuck"]:
                return make(verb, word="over")
            case (("until" | "expect"), ["view", who, "of", size]):
                return make(verb, word="size", nodes=self._nodes(line, who), number=_number(line, size))
            case (("until" | "expect"), ["view", who, "is", names]):
                return make(verb, word="members", nodes=self._nodes(line, who), others=self._nodes(line, names))
            case (("until" | "expect"), [who, ("delivered" | "confirmed" | "granted" | "answered") as what, count]):
                known = self._known if what == "answered" else self.nodes
                return make(verb, word=what, nodes=self._nodes(line, who, known), number=_number(line, count))
            case (("until" | "expect"), [who, ("failed" | "out" | "same") as what]):
                return make(verb, word=what, nodes=self._nodes(line, who))
            case "lose", [*count, kind, "->", targets] if len(count) < 2:
                number = _number(line, count[0]) if count else 1
                others = self._nodes(line, targets, self._known)
                return make("lose", word=_kind(line, kind), others=others, number=number)
            case "watch", [_, *_]:
                return make("watch", others=tuple(_kind(line, kind) for kind in rest))
            case "show", ["datagrams"]:
                return make("show", word="datagrams")
            case "show", ["pipes"] if self.sites.crews:
                return make("show", word="pipes")
            case "show", ["counters"] if self._is_shared:
                return make("show", word="counters")
        raise ScriptError(line, f"cannot read {text!r}; {_HELP.get(verb, _VERBS)}")

    def _of_nodes(self, line: int, who: tuple[str, ...], rest: list[str], make: Callable[..., Statement]) -> Statement:
        is_outside = any(name in self.callers for name in who)
        match rest:
            case ["call", count, service, *more]:
                details = _details(line, more, "call")
                if not is_outside and "handler" not in details:
                    raise ScriptError(line, f"a member calls the holder of a handler; {_HELP['call']}")
                return make("call", nodes=who, number=_number(line, count), word=_service(line, service), **details)
            case _ if is_outside:
                raise ScriptError(line, f"a caller is no member: it can only call; {_HELP['call']}")
            case ["send", count, service, *more]:
                details = _details(line, more, "send")
                return make("send", nodes=who, number=_number(line, count), word=_service(line, service), **details)
            case ["lock", name, time]:
                return make("lock", nodes=who, word=name, time_ns=parse_time(line, time))
            case ["expel", targets]:
                return make("expel", nodes=who, others=self._nodes(line, targets))
            case ["reset"]:
                return make("reset", nodes=who)
            case ["reset", number]:
                return make("reset", nodes=who, number=_number(line, number))
        ways = "; ".join(_HELP[verb] for verb in ("send", "lock", "call"))
        raise ScriptError(line, f"a node can send, lock, call, expel or reset; {ways}; or: a expel b; or: a reset 2")

    @property
    def _is_shared(self) -> bool:
        """Whether the underlay has many groups."""
        return self.values.get("orderer") == SITES

    def _is_nodes(self, word: str) -> bool:
        return word == "all" or any(name in self._known for name in word.split(","))

    @property
    def _known(self) -> tuple[str, ...]:
        """Members and callers."""
        return (*self.nodes, *self.callers)

    def _nodes(self, line: int, word: str, known: Sequence[str] = ()) -> tuple[str, ...]:
        """Members, unless others are `known`, too."""
        if word == "all":
            return self.nodes
        names = tuple(word.split(","))
        for name in names:
            if name not in (known or self.nodes):
                raise ScriptError(line, f"there is no node {name!r}; the nodes are {', '.join(known or self.nodes)}")
        return names


def _details(line: int, words: list[str], verb: str) -> dict[str, object]:
    """What may follow the service: size N, and confirm of a send, handler N of a call."""
    found: dict[str, object] = {}
    while words:
        match words:
            case ["size", number, *words]:
                found["size"] = _number(line, number)
            case ["confirm", *words] if verb == "send":
                found["is_confirmed"] = True
            case ["handler", number, *words] if verb == "call":
                found["handler"] = _number(line, number)
            case _:
                raise ScriptError(line, f"cannot read {' '.join(words)!r}; {_HELP[verb]}")
    return found


_OF_NODES: Final = (
    "start",
    "crash",
    "kill",
    "restart",
    "pause",
    "resume",
    "stall",
    "unstall",
    "leave",
    "rejoin",
)
_VERBS: Final = (
    "a statement is: A send N SERVICE, A lock NAME TIME, A call N SERVICE, A expel B, A reset, run TIME, until ..., "
    "expect ..., start, crash, kill, restart, pause, resume, stall, unstall, leave, rejoin, slow, cut, mend, "
    "partition, heal, forge, loss, duplicate, reorder, lose, watch, show; of sites: cut site, mend site, "
    "partition site, split, pipe; of groups: x@a join news, leave, close, send N SERVICE to"
)
_WAITS: Final = (
    "write: {0} rest, until rest or stuck, {0} lost, {0} view A of N, {0} view A is A,B, {0} A,B delivered N, "
    "{0} A confirmed N, {0} A failed, {0} A out, {0} A,B same, {0} A granted N, {0} A answered N"
)
_HELP: Final[dict[str, str]] = {
    "send": "write: a send 10 AGREED, a,b send 5 RESILIENT(2) size 2000 confirm",
    "lock": "write: a lock key 300ms",
    "call": "write: x call 1 AGREED, a call 1 SAFE handler 2",
    "lose": "write: lose token -> b,c or lose 3 token -> b",
    "watch": "write: watch data token nak repair",
    "run": "write: run 300ms",
    "slow": "write: slow a x20",
    "cut": "write: cut a -> b,c",
    "mend": "write: mend a -> b,c",
    "forge": "write: forge a -> b,c",
    "partition": "write: partition a,b | c,d",
    "until": _WAITS.format("until"),
    "expect": _WAITS.format("expect"),
    "show": "write: show datagrams; with sites: show pipes; with orderer sites: show counters",
} | dict.fromkeys(_OF_NODES, "write: crash a,b")


def _number(line: int, word: str) -> int:
    if not word.isdigit():
        raise ScriptError(line, f"{word!r} is no number")
    return int(word)


def _word(_line: int, word: str) -> str:
    return word


def _service(line: int, word: str) -> str:
    try:
        return str(parse_service(word))
    except ValueError as error:
        raise ScriptError(line, str(error)) from None


def _kind(line: int, word: str) -> str:
    kinds = [kind.name.lower() for kind in Kind]
    if word not in kinds:
        raise ScriptError(line, f"there is no kind of datagram {word!r}; choose one of {', '.join(kinds)}")
    return word


def _network(line: int, word: str) -> str:
    if word not in NETWORKS:
        raise ScriptError(line, f"there is no network {word!r}; choose one of {', '.join(NETWORKS)}")
    return word


def _switch(line: int, word: str) -> bool:
    if word not in ("on", "off"):
        raise ScriptError(line, f"write on or off, not {word!r}")
    return word == "on"


def _recovery(line: int, word: str) -> str:
    if word not in ("automatic", "manual"):
        raise ScriptError(line, f"recovery is automatic or manual, not {word!r}")
    return word


def _slow(line: int, word: str) -> str:
    if word not in ("evict", "wait"):
        raise ScriptError(line, f"slow receivers: evict or wait, not {word!r}")
    return word


def _min_members(line: int, word: str) -> int | str:
    if word in ("majority", "all"):
        return word
    if not word.isdigit():
        raise ScriptError(line, f"min is a number, majority or all, not {word!r}")
    return int(word)
