"""A laboratory of sites: daemons in places with pipes between them, formed and at rest, for the figures of Spread.

Where the machines are and what the engines are told are two things here. The world has the places and the pipes; the
engines get a configuration of sites. `hops` makes a site of each place. `one_ring` makes one site of all of them, with
a copy for each daemon: the ring with point-to-point dissemination that the paper compares with (section 4).

Each machine runs a `Host` and one program, which is in one group of a shared underlay. It sends what it is asked to as
fast as it may, and takes everything at once. Every trace is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ordercast.config import MS, SECOND, SITES_ORDERER, GroupConfig, Timing
from ordercast.groups.events import Batch
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.service import AGREED, Service
from ordercast.sim.application import HostStack, boot_host, is_intact, payload
from ordercast.sim.lab import DATAGRAM, EVENT_LIMIT, REST_NS, MeasurementFailed, component_violations
from ordercast.sim.network import NETWORKS
from ordercast.sim.pipes import Direction, PipeModel
from ordercast.sim.topology import SitePipe, Topology
from ordercast.sim.world import Machine, World
from ordercast.sites import DaemonSpec, LinkSpec, Site, SitesConfig
from ordercast.underlay.sites import sites_engines

UNDERLAY: Final = "sites"
GROUP: Final = "wide"
ONE_SITE: Final = "all"
FORM_NS: Final = 3 * SECOND  # by then daemons that start together have merged
LIMIT_NS: Final = 7_200 * SECOND
OFFERED: Final = 64  # messages that are made at a time
QUEUED: Final = 256  # messages that wait in a program's queue at most: more would only have to be waited for at the end
BUFFER_BYTES: Final = 1 << 20  # of a socket
BURST_BYTES: Final = 3_000  # that a link may send at once: two full packets, so that no router keeps more

Places = Mapping[str, Sequence[str]]
"""Place -> the daemons there."""


@dataclass(frozen=True, slots=True)
class WanLine:
    """What lies between two places, in both directions alike."""

    latency_ms: float  # one way
    bits_per_s: int
    loss: float = 0.0
    queue_bytes: int = 64 << 10

    def pipe(self) -> PipeModel:
        return PipeModel(int(self.latency_ms * MS), 0, self.bits_per_s, self.queue_bytes, self.loss)


Lines = Mapping[tuple[str, str], WanLine]
"""Between two places, in any order of their names."""


def line_of(lines: Lines, one: str, other: str) -> WanLine:
    return lines[one, other] if (one, other) in lines else lines[other, one]


def hops(
    places: Places, lines: Lines, *, window: int, detours: Iterable[tuple[str, str]] = (), use: float = 1.0
) -> SitesConfig:
    """A site of each place. Every link may send `use` of what its line carries. `detours`: links that no tree takes,
    as the others are shorter in sum."""
    avoided = {frozenset(each) for each in detours}
    links = [
        LinkSpec(
            source,
            target,
            weight=len(places) if {source, target} in avoided else 1,
            bits_per_s=int(line_of(lines, source, target).bits_per_s * use),
            burst_bytes=BURST_BYTES,
            window_packets=window,
        )
        for source, target in _directions(places)
    ]
    return SitesConfig(tuple(Site(name, at) for at, name in enumerate(places)), _daemons(places, ""), tuple(links))


def one_ring(places: Places, packets: int) -> SitesConfig:
    """One site of all daemons; each of them may send so many packets in one rotation of the token."""
    window = packets * sum(map(len, places.values()))
    return SitesConfig((Site(ONE_SITE, 0, ring_window=window, personal_window=packets),), _daemons(places, ONE_SITE))


def _daemons(places: Places, site: str) -> tuple[DaemonSpec, ...]:
    return tuple(
        DaemonSpec(name, site or place, f"10.{1 + at}.0.{1 + number}")
        for at, (place, names) in enumerate(places.items())
        for number, name in enumerate(names)
    )


def _directions(places: Iterable[str]) -> list[Direction]:
    names = list(places)
    return [(source, target) for source in names for target in names if source != target]


class Sending:
    """How fast messages leave: of the first and of the last pass in which any did, when, and how many had before."""

    __slots__ = ("_begin", "_last", "_sent")

    def __init__(self, sent: int = 0) -> None:
        self._sent = sent
        self._begin: tuple[int, int] | None = None
        self._last = (0, sent)

    def note(self, now_ns: int, sent: int) -> None:
        if sent > self._sent:
            self._last = (now_ns, self._sent)
            self._begin = self._begin or self._last
            self._sent = sent

    @property
    def per_s(self) -> float:
        """Messages. Those of the last pass do not count: nothing says how long they took. 0: there was one pass."""
        begin_ns, before = self._begin or self._last
        last_ns, sent = self._last
        return (sent - before) * SECOND / (last_ns - begin_ns) if last_ns > begin_ns else 0.0


class SiteProgram:
    """The program on one machine: it sends and takes as fast as it may."""

    __slots__ = (
        "_created",
        "_lab",
        "_left",
        "_service",
        "_size",
        "corrupt",
        "delivered",
        "first",
        "group",
        "host",
        "last_ns",
        "node",
        "port",
        "sending",
    )

    def __init__(self, lab: SiteLab, name: str, group: str) -> None:
        self._lab = lab
        self.group = group
        self.node: Machine = lab.world.add(name, self.boot, buffer_bytes=BUFFER_BYTES)
        self.host: Host | None = None
        self.port: Port | None = None
        self._created = 0
        self._left = 0  # messages that it still has to hand over
        self._service: Service = AGREED
        self._size = 0
        self.delivered = 0
        self.first: tuple[int, int] | None = None  # when it took something for the first time, and how much it had then
        self.last_ns = 0  # when it took something last
        self.sending = Sending()
        self.corrupt = 0

    def boot(self, node: Machine) -> HostStack:
        world = self._lab.world
        self.host = host = boot_host(world, node, self._lab.timing, sites_engines(self._lab.config))
        config = GroupConfig(orderer=SITES_ORDERER, datagram=DATAGRAM)
        self.port = host.open(world.clock(node), self.group, config=config, min_members=1, underlay=UNDERLAY)
        node.after_pass = self.turn
        world.listen(node, self.port.underlay)
        world.wake(node)
        return HostStack(host)

    def send(self, count: int, size: int, service: Service) -> None:
        """So many messages, as soon as the group takes them."""
        self._left, self._size, self._service = count, size, service
        self._lab.world.wake(self.node)

    def stop(self) -> None:
        """Send nothing more."""
        self._left = 0

    def turn(self, now_ns: int) -> None:
        """After every pass of its machine."""
        host, port = self.host, self.port
        if host is None or port is None:
            return
        host.take_news()
        self.sending.note(now_ns, port.messages_sent)
        before = self.delivered
        while (event := port.take()) is not None:
            if isinstance(event, Batch):
                self.delivered += event.count
                self.corrupt += not all(is_intact(data, event.sender) for data in event.messages)
        if self.delivered > before:
            self.last_ns = now_ns
            self.first = self.first or (now_ns, self.delivered)
        has_offered = False
        while self._left and port.view is not None and port.queue.count < QUEUED:
            made = range(self._created, self._created + min(self._left, OFFERED))
            taken = port.offer_many([payload(str(self.node), number, self._size) for number in made], self._service)
            self._created += taken
            self._left -= taken
            has_offered = has_offered or taken > 0
            if not taken:
                break
        if has_offered or port.has_consumed:
            host.touch(port)
            self._lab.world.wake(self.node)


@dataclass(frozen=True, slots=True)
class Moved:
    """What a transfer has shown."""

    bits_per_s: float  # from the first submit to the last delivery at the last member
    sent_bits_per_s: float  # what leaves the sender, from the first pass in which anything does to the last
    steady_bits_per_s: float  # from the first delivery to the last, at the slowest member: without the latency
    ns: int


class SiteLab:
    """Daemons that have merged and rest. `groups`: which group the program of a daemon is in, if not all in one."""

    __slots__ = ("config", "programs", "timing", "world")

    def __init__(
        self,
        places: Places,
        lines: Lines,
        config: SitesConfig,
        seed: str,
        *,
        network: str = "lan",
        has_multicast: bool = True,
        groups: Mapping[str, str] | None = None,
    ) -> None:
        own = SitesConfig(tuple(Site(name, at) for at, name in enumerate(places)), _daemons(places, ""))
        pipes = tuple(SitePipe(*each, line_of(lines, *each).pipe()) for each in _directions(places))
        model = replace(NETWORKS[network], has_multicast=has_multicast)
        self.config = config
        self.timing = Timing()
        self.world = World(seed, model, event_limit=EVENT_LIMIT, topology=Topology(own, pipes, network))
        given = groups or {}
        self.programs = {each.name: SiteProgram(self, each.name, given.get(each.name, GROUP)) for each in own.daemons}
        for name in self.programs:
            self.world.start(name)
        self.world.run_until(FORM_NS)
        self.rest()
        ports = [program.port for program in self.programs.values() if program.port is not None]
        views = {port.channel.view.id for port in ports if port.channel.view is not None}
        if len(views) != 1:
            raise MeasurementFailed(f"the daemons have not merged: {', '.join(sorted(views))}")

    def rest(self) -> None:
        unrest = self.world.run_to_rest(self.world.now_ns + REST_NS)
        if unrest:
            raise MeasurementFailed(f"the daemons do not come to rest: {'; '.join(unrest)}")

    def transfer(self, sender: str, count: int, size: int, service: Service = AGREED) -> Moved:
        """So many messages, as fast as the daemons take them."""
        source, world = self.programs[sender], self.world
        members = [program for program in self.programs.values() if program.group == source.group]
        goals = [program.delivered + count for program in members]
        for program in members:
            program.first = None
        begin_ns = world.now_ns
        source.sending = Sending(source.port.messages_sent if source.port is not None else 0)
        source.send(count, size, service)
        is_over = world.run_until(
            lambda: all(program.delivered >= goal for program, goal in zip(members, goals, strict=True)),
            begin_ns + LIMIT_NS,
        )
        if not is_over:
            raise MeasurementFailed(f"{count} messages of {sender} were not delivered in {LIMIT_NS // SECOND} s")
        rates = []
        for program in members:
            first_ns, had = program.first or (begin_ns, 0)
            rates.append((program.delivered - had) * size * 8 * SECOND / max(program.last_ns - first_ns, 1))
        took_ns = world.now_ns - begin_ns
        return Moved(count * size * 8 * SECOND / took_ns, source.sending.per_s * size * 8, min(rates), took_ns)

    def counted(self) -> dict[Direction, tuple[Counter[str], Counter[str]]]:
        """Datagrams and bytes that each pipe has carried so far, by kind."""
        pipes = self.world.pipes.all
        return {
            each: (Counter(pipe.counters.by_kind), Counter(pipe.counters.bytes_by_kind)) for each, pipe in pipes.items()
        }

    def violations(self) -> int:
        """What the checkers find in the whole trace, and what sockets dropped."""
        return component_violations(self.world) + sum(program.corrupt for program in self.programs.values())
