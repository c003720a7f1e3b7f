"""What a sites underlay is told before it starts: its daemons, their sites, and the links between sites.

Spread section 3.2: every site is a node of a complete graph whose weights are configured, and the trees for
dissemination are shortest paths over them. A link that is not listed has the default terms. Routing is the orderer's
business; here are only the numbers, which must be the same at all daemons (`fingerprint`).

A *site* is a set of daemons that reach each other with one transmission. A *link* is one direction between two sites,
so that two directions may differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from hashlib import blake2b
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.view import Address

MAX_SITES: Final = 64  # a position has 8 bits for a site, and destination masks have 64
MAX_DAEMONS: Final = 1_024  # of all sites; the paper speaks of tens of sites with tens of daemons
MAX_NAME: Final = 19  # of a daemon or site: what Spread's clients have room for
MAX_HOST: Final = 253
MAX_WEIGHT: Final = 1_000_000
MAX_WINDOW: Final = 65_535  # packets
MIN_RATE: Final = 1_000  # bits per second
MAX_RATE: Final = 1_000_000_000_000
MIN_BURST: Final = 1_500  # bytes; a bucket that never holds a packet lets none pass
MAX_BURST: Final = 1 << 30
DEFAULT_PORT: Final = 4_803  # Spread's

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z", re.ASCII)
_HOST: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Site:
    """Daemons that reach each other with one transmission. `index` is its number in the configuration: 0, 1, 2, …"""

    name: str
    index: int
    multicast: Address | None = None
    """Where the site multicasts; None: a daemon sends each of the others a copy."""
    ring_window: int = 240
    """Packets that all daemons together may send in one rotation of the token (section 3.2)."""
    personal_window: int = 60
    """Packets that one daemon may send in one rotation."""


@dataclass(frozen=True, slots=True)
class DaemonSpec:
    """One daemon. Its name stays the same over restarts."""

    name: str
    site: str
    host: str
    port: int = DEFAULT_PORT

    @property
    def address(self) -> Address:
        """Where it receives; `host` may be a name that is still to be looked up."""
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One direction between two sites, as the hop protocol uses it (section 3.2)."""

    source: str = ""
    target: str = ""
    weight: int = 1
    """The length of the link for the shortest paths; at least 1."""
    bits_per_s: int = 10_000_000
    """What the token bucket lets pass over time."""
    burst_bytes: int = 65_536
    """What it lets pass at once. The default holds the largest datagram."""
    window_packets: int = 256
    """Packets that may be under way without an acknowledgement."""


class Problem(NamedTuple):
    """What is wrong, and where: the key of a table of the TOML form, as in ("daemon", 3, "site")."""

    where: tuple[str | int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class SitesConfig:
    """All of it; `UsageError` where it cannot be. The order of `sites` and `daemons` is that of the file."""

    sites: tuple[Site, ...]
    daemons: tuple[DaemonSpec, ...]
    links: tuple[LinkSpec, ...] = ()
    """Those that were listed. `link` has all."""
    default_link: LinkSpec = field(default_factory=LinkSpec)
    """The terms of every other link; its source and target are empty."""

    def __post_init__(self) -> None:
        problem = first_problem(self.sites, self.daemons, self.links, self.default_link)
        if problem is not None:
            raise UsageError(problem.text)

    def site(self, name: str) -> Site:
        """The site of this name."""
        for each in self.sites:
            if each.name == name:
                return each
        raise UsageError(f"there is no site {name!r}; the sites are {', '.join(each.name for each in self.sites)}")

    def daemon(self, name: str) -> DaemonSpec:
        for each in self.daemons:
            if each.name == name:
                return each
        raise UsageError(f"there is no daemon {name!r} in the configuration; add a [[daemon]] with this name")

    def site_of(self, daemon_name: str) -> Site:
        """The site that a daemon is in."""
        return self.site(self.daemon(daemon_name).site)

    def daemons_of(self, site: str) -> tuple[DaemonSpec, ...]:
        """The daemons of a site, in the order of the configuration."""
        name = self.site(site).name
        return tuple(each for each in self.daemons if each.site == name)

    def far_daemons(self, site: str) -> dict[Address, str]:
        """The site of each daemon of another site than this, by the daemon's address."""
        return {each.address: each.site for each in self.daemons if each.site != site}

    def link(self, source: str, target: str) -> LinkSpec:
        """The terms of one direction between two sites, listed or by default."""
        if self.site(source) is self.site(target):
            raise UsageError(f"there is no link from {source} to itself: name two sites")
        for each in self.links:
            if (each.source, each.target) == (source, target):
                return each
        return replace(self.default_link, source=source, target=target)

    def weight(self, source: str, target: str) -> int:
        """The length of one direction between two sites; 0 from a site to itself."""
        return 0 if self.site(source) is self.site(target) else self.link(source, target).weight

    def weights(self) -> tuple[tuple[int, ...], ...]:
        """All of them at once, by the indexes of source and target: what routes are computed from."""
        rows = [[self.default_link.weight] * len(self.sites) for _ in self.sites]
        indexes = {each.name: each.index for each in self.sites}
        for each in self.links:
            rows[indexes[each.source]][indexes[each.target]] = each.weight
        for index, row in enumerate(rows):
            row[index] = 0
        return tuple(map(tuple, rows))

    def fingerprint(self) -> int:
        """64 bits that differ where two configurations do. Daemons that disagree about sites must not meet."""
        links = [astuple(self.default_link), *sorted(astuple(each) for each in self.links)]
        parts = (links, [astuple(each) for each in self.sites], [astuple(each) for each in self.daemons])
        return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8, person=b"oc-sites").digest(), "big")


# Checks. -------------------------------------------------------------------------------------------------------------


def first_problem(
    sites: Sequence[Site], daemons: Sequence[DaemonSpec], links: Sequence[LinkSpec], default_link: LinkSpec
) -> Problem | None:
    """The first thing that keeps these from being a configuration."""
    for problem in _problems(sites, daemons, links, default_link):
        return problem
    return None


def _problems(
    sites: Sequence[Site], daemons: Sequence[DaemonSpec], links: Sequence[LinkSpec], default_link: LinkSpec
) -> Iterator[Problem]:
    yield from _of_sites(sites)
    yield from _of_daemons(daemons, [site.name for site in sites])
    crewed = {daemon.site for daemon in daemons}
    for index, site in enumerate(sites):
        if site.name not in crewed:
            text = f"site {site.name} has no daemons; add a [[daemon]] with site = {_quoted(site.name)}, or remove it"
            yield Problem(("site", index, "name"), text)
    yield from _of_links(links, [site.name for site in sites])
    for key, text in _of_terms(default_link):
        yield Problem(("defaults", key), text)


def _of_sites(sites: Sequence[Site]) -> Iterator[Problem]:
    if not sites:
        yield Problem((), "there are no sites; begin with a [[site]] that has a name")
    if len(sites) > MAX_SITES:
        yield Problem(("site", MAX_SITES), f"there are {len(sites)} sites, and at most {MAX_SITES}; join some of them")
    names: set[str] = set()
    channels: dict[Address, str] = {}
    for index, site in enumerate(sites):
        if bad := _bad_name(site.name, "site"):
            yield Problem(("site", index, "name"), bad)
        if site.name in names:
            yield Problem(("site", index, "name"), f"there are two sites {site.name!r}; give each a name of its own")
        names.add(site.name)
        if site.index != index:
            text = f"site {site.name} has the index {site.index}, and is number {index} in its order"
            yield Problem(("site", index), text)
        if site.multicast is not None:
            host, port = site.multicast
            if not is_multicast(host) or not _is_port(port):
                text = f"{host}:{port} is no multicast address; write one of 224.0.0.0/4 with a port from 1 to 65535"
                yield Problem(("site", index, "multicast"), text)
            if site.multicast in channels:
                other = channels[site.multicast]
                text = f"{host}:{port} is the multicast address of site {other}, too; give each site its own"
                yield Problem(("site", index, "multicast"), text)
            channels[site.multicast] = site.name
        for key, window in (("ring_window", site.ring_window), ("personal_window", site.personal_window)):
            if not _is_whole(window, 1, MAX_WINDOW):
                text = f"{key!r} is a number of packets from 1 to {MAX_WINDOW}, not {window!r}"
                yield Problem(("site", index, key), text)
        if site.personal_window > site.ring_window:
            text = f"personal_window is {site.personal_window}, more than the ring_window of {site.ring_window}"
            yield Problem(("site", index, "personal_window"), f"{text}; one daemon cannot send more than all")


def _of_daemons(daemons: Sequence[DaemonSpec], sites: Sequence[str]) -> Iterator[Problem]:
    if len(daemons) > MAX_DAEMONS:
        text = f"there are {len(daemons)} daemons, and at most {MAX_DAEMONS}; let programs be clients of fewer daemons"
        yield Problem(("daemon", MAX_DAEMONS), text)
    names: set[str] = set()
    addresses: dict[Address, str] = {}
    for index, daemon in enumerate(daemons):
        if bad := _bad_name(daemon.name, "daemon"):
            yield Problem(("daemon", index, "name"), bad)
        if daemon.name in names:
            text = f"there are two daemons {daemon.name!r}; give each a name of its own"
            yield Problem(("daemon", index, "name"), text)
        names.add(daemon.name)
        if daemon.site not in sites:
            text = f"there is no site {daemon.site!r}; the sites are {', '.join(sites)}"
            yield Problem(("daemon", index, "site"), text)
        if bad := _bad_host(daemon.host):
            yield Problem(("daemon", index, "host"), bad)
        if not _is_port(daemon.port):
            yield Problem(("daemon", index, "port"), f"'port' is a whole number from 1 to 65535, not {daemon.port!r}")
        if daemon.address in addresses:
            other = addresses[daemon.address]
            text = f"{daemon.host}:{daemon.port} is the address of daemon {other}; daemons of one host need other ports"
            yield Problem(("daemon", index, "host"), text)
        addresses[daemon.address] = daemon.name


def _of_links(links: Sequence[LinkSpec], sites: Sequence[str]) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for index, link in enumerate(links):
        for key, name in (("from", link.source), ("to", link.target)):
            if name not in sites:
                yield Problem(("link", index, key), f"there is no site {name!r}; the sites are {', '.join(sites)}")
        if link.source == link.target:
            yield Problem(("link", index), f"a link from {link.source} to itself; a link joins two different sites")
        if (link.source, link.target) in seen:
            text = f"the link from {link.source} to {link.target} is listed twice; keep one of them"
            yield Problem(("link", index), text)
        seen.add((link.source, link.target))
        for key, text in _of_terms(link):
            yield Problem(("link", index, key), text)


def _of_terms(link: LinkSpec) -> Iterator[tuple[str, str]]:
    if not _is_whole(link.weight, 1, MAX_WEIGHT):
        yield "weight", f"'weight' is a whole number from 1 to {MAX_WEIGHT}, not {link.weight!r}"
    if not _is_whole(link.bits_per_s, MIN_RATE, MAX_RATE):
        yield "rate", f"'rate' lies between 1kbit and 1000Gbit, not at {link.bits_per_s} bits per second"
    if not _is_whole(link.burst_bytes, MIN_BURST, MAX_BURST):
        yield "burst", f"'burst' lies between {MIN_BURST} bytes and 1GiB, not at {link.burst_bytes}"
    if not _is_whole(link.window_packets, 1, MAX_WINDOW):
        yield "window", f"'window' is a number of packets from 1 to {MAX_WINDOW}, not {link.window_packets!r}"


def is_multicast(host: str) -> bool:
    """Whether this is an IPv4 multicast address."""
    address = _literal(host)
    return address is not None and address.is_multicast


def is_literal(host: str) -> bool:
    """Whether this is an IPv4 address, and no name."""
    return _literal(host) is not None


def _literal(host: str) -> IPv4Address | None:
    try:
        return IPv4Address(host)
    except ValueError:
        return None


def _bad_host(host: str) -> str:
    address = _literal(host)
    if address is not None:
        if address.is_multicast or address.is_unspecified:
            return f"{host!r} is no address of one host; write the address that other daemons send to"
        return ""
    looks_like_address = host.replace(".", "").isdigit()
    if looks_like_address or len(host) > MAX_HOST or not _HOST.match(host):
        return f'{host!r} is no IPv4 address and no host name; write "10.1.0.1" or "ann.example.org"'
    return ""


def _bad_name(name: str, what: str) -> str:
    if len(name) <= MAX_NAME and _NAME.match(name):
        return ""
    rule = f"use 1 to {MAX_NAME} letters, digits, dots, hyphens and underscores, and begin with a letter or digit"
    return f"{name!r} is no name of a {what}; {rule}"


def _is_port(port: object) -> bool:
    return _is_whole(port, 1, 65_535)


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _quoted(text: str) -> str:
    return f'"{text}"'
