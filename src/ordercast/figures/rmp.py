"""Section 5 of the RMP paper, measured again: figures 5.1 to 5.3 and datagrams per data packet, on a 10 Mb/s segment.

All numbers come from the trace or from the network's counters, never from what an engine says about itself, and every
trace is judged by the checkers. How they are measured:

- A *transfer* begins at its first submit and ends with its last delivery at the last member that counts. Before it, a
  smaller one warms the group up and is discarded, as in the paper. Figures transfer `TRANSFER_BYTES`, where the paper
  took 5 MB: that would take a minute and a half to simulate, and the numbers would be one part in a hundred higher,
  since the first round trips after a pause count for less.
- *Aggregate throughput* (5.1) is what the applications get: bytes sent by all sources, times members, the sources
  included. In 5.2 the source is a member whose own deliveries are not counted: destinations are members less one.
- *Latency* is from submit to delivery. In 5.3 one small message goes back and forth between two members, the
  others listen, and only its delivery at the other end counts.
- *Datagrams per data packet*: all that were sent while the load ran, a multicast once, over those that the submitted
  blocks take at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.errors import UsageError
from ordercast.groups.events import Batch
from ordercast.service import AGREED, Service
from ordercast.sim.lab import DATAGRAM, LIMIT_NS, WARM_BYTES, Lab, MeasurementFailed
from ordercast.sim.ladder import LADDER, Rung, ladder
from ordercast.sim.member import SimMember
from ordercast.sim.network import ETHERNET, NetworkModel
from ordercast.sim.statistics import delivery_latencies, mean, quantile, who
from ordercast.wire.block import OVERHEAD
from ordercast.wire.header import HEADER_BYTES

PAPER_QUIET_NS: Final = SECOND  # "on the order of 1 second": when the paper's idle token site sends a NULL ACK
TRANSFER_BYTES: Final = 3_000_000
FILE_PIECE: Final = 4_000  # the file is handed over in messages of this size
PING_SIZE: Final = 100
PINGS: Final = 100
PACKET_SIZE: Final = 1_000  # of the messages whose datagrams are counted
LOAD_NS: Final = 2 * SECOND
SATURATING_BYTES: Final = 1_000_000

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RmpPlan:
    """What is measured. The points of a smaller plan are points of a larger one, number for number."""

    sources: tuple[tuple[int, int], ...] = tuple(
        (sources, members) for sources in (1, 2, 4, 8) for members in range(max(2, sources), 9)
    )
    destinations: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    pings: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)  # destinations
    shares: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.0)  # of the wire, as payload; 0: what it takes
    services: tuple[str, ...] = LADDER
    members: int = 8  # where datagrams are counted
    network: NetworkModel = ETHERNET
    orderer: str = "token"
    seed: int = 0


FULL: Final = RmpPlan()
QUICK: Final = RmpPlan(
    sources=((1, 2), (1, 3)),
    destinations=(1, 2),
    pings=(1, 2),
    shares=(0.05,),
    services=(),
)


@dataclass(frozen=True, slots=True)
class Transfer:
    """One point of figure 5.1 or 5.2."""

    members: int
    sources: int
    destinations: int
    aggregate_kb_s: float  # 1 KB is 1000 bytes, as in the paper: the wire has 1250 a second
    single_kb_s: float  # for each destination
    aggregate_of_wire: float
    single_of_wire: float
    violations: int


@dataclass(frozen=True, slots=True)
class PingPong:
    """One point of figure 5.3."""

    members: int
    destinations: int
    mean_ms: float
    p99_ms: float
    violations: int


@dataclass(frozen=True, slots=True)
class PacketCost:
    """What one data packet takes at one load."""

    members: int
    offered_of_wire: float  # 0: as much as the group takes
    delivered_kb_s: float  # at each member
    data: int
    datagrams: int
    per_data: float
    by_kind: dict[str, int]
    violations: int


@dataclass(slots=True)
class RmpFigures:
    """All of section 5, and the ladder of section 3.2."""

    plan: RmpPlan
    aggregate: list[Transfer] = field(default_factory=list)  # 5.1
    single: list[Transfer] = field(default_factory=list)  # 5.2
    latency: list[PingPong] = field(default_factory=list)  # 5.3
    costs: list[PacketCost] = field(default_factory=list)
    rungs: list[Rung] = field(default_factory=list)

    @property
    def wire_kb_s(self) -> float:
        return self.plan.network.bits_per_s / 8_000

    @property
    def violations(self) -> int:
        points: Iterable[Transfer | PingPong | PacketCost | Rung] = (
            *self.aggregate,
            *self.single,
            *self.latency,
            *self.costs,
            *self.rungs,
        )
        return sum(point.violations for point in points)


def rmp_figures(plan: RmpPlan = FULL, progress: Progress | None = None) -> RmpFigures:
    """Everything that section 5 of the paper shows."""
    network = plan.network
    if network.bits_per_s <= 0:
        raise UsageError(f"the network {network.name!r} has no bandwidth that throughput could be compared with")
    config = GroupConfig(orderer=plan.orderer, datagram=DATAGRAM)
    stream = f"{plan.orderer}/{plan.seed}/figures"
    tell = progress if progress is not None else _say_nothing
    found = RmpFigures(plan)
    for sources, members in plan.sources:
        tell(f"figure 5.1: {sources} of {members} members send")
        found.aggregate.append(_transfer(config, network, members, sources, stream, is_apart=False))
    for destinations in plan.destinations:
        tell(f"figure 5.2: one sender, {destinations} destinations")
        found.single.append(_transfer(config, network, destinations + 1, 1, stream, is_apart=True))
    for destinations in plan.pings:
        tell(f"figure 5.3: latency to {destinations} destinations")
        found.latency.append(_ping_pong(config, network, destinations + 1, stream))
    for share in plan.shares:
        tell(f"datagrams per data packet at {share:.0%} of the wire" if share else "datagrams, saturated")
        found.costs.append(_cost(config, network, plan.members, share, stream))
    found.rungs += ladder(
        plan.orderer, services=plan.services, seed=plan.seed, progress=lambda text: tell(f"the ladder: {text}")
    )
    return found


def _transfer(
    config: GroupConfig, network: NetworkModel, members: int, sources: int, seed: str, *, is_apart: bool
) -> Transfer:
    lab = Lab(config, network, members, seed)
    lab.warm(AGREED, WARM_BYTES)
    begin_ns = lab.world.now_ns
    speakers = lab.members[-sources:]  # not the first: for a sequencer that would be the best case
    lab.transfer(speakers, TRANSFER_BYTES, FILE_PIECE, AGREED)
    rows = lab.rows(begin_ns)
    destinations = members - 1 if is_apart else members
    apart = {str(member) for member in speakers} if is_apart else set()
    first_ns = min(row.at_ns for row in rows if row.kind == "submit")
    last_ns = max(row.at_ns for row in rows if row.kind == "deliver" and who(row) not in apart)
    moved = sum(row.bytes or 0 for row in rows if row.kind == "deliver" and who(row) not in apart)
    aggregate = moved * SECOND / (last_ns - first_ns)
    wire = network.bits_per_s / 8
    return Transfer(
        members,
        sources,
        destinations,
        aggregate / 1_000,
        aggregate / destinations / 1_000,
        aggregate / wire,
        aggregate / destinations / wire,
        lab.violations(),
    )


def _ping_pong(config: GroupConfig, network: NetworkModel, members: int, seed: str) -> PingPong:
    lab = Lab(config, network, members, seed)
    lab.warm(AGREED, WARM_BYTES)
    ends = lab.members[-2:]
    begin_ns = lab.world.now_ns
    rally = _Rally(ends, PINGS, PING_SIZE)
    if not lab.world.run_until(lambda: rally.is_over, begin_ns + LIMIT_NS):
        raise MeasurementFailed(f"the message that goes back and forth among {members} members got lost")
    rally.end()
    lab.rest()
    names = {str(member) for member in ends}
    latencies = sorted(
        ns for ns, is_own in delivery_latencies(row for row in lab.rows(begin_ns) if who(row) in names) if not is_own
    )
    return PingPong(members, members - 1, mean(latencies) / MS, quantile(latencies, 0.99) / MS, lab.violations())


def _cost(config: GroupConfig, network: NetworkModel, members: int, share: float, seed: str) -> PacketCost:
    lab = Lab(config, network, members, seed, Timing(token_quiet_ns=PAPER_QUIET_NS) if share else Timing())
    lab.warm(AGREED, WARM_BYTES)
    begin_ns = lab.world.now_ns
    before = dict(lab.world.network.counters.sent_by_kind)
    if share:
        interval_ns = int(members * PACKET_SIZE * SECOND / (share * network.bits_per_s / 8))
        count = max(10, LOAD_NS // interval_ns)
        for index, member in enumerate(lab.members):
            for number in range(count):
                at_ns = begin_ns + index * interval_ns // members + number * interval_ns
                lab.world.at(at_ns, _send_one, (member, AGREED, PACKET_SIZE))
        lab.world.run_until(begin_ns + count * interval_ns)
    else:
        lab.transfer(lab.members, SATURATING_BYTES, PACKET_SIZE, AGREED, is_rested=False)
    after = lab.world.network.counters.sent_by_kind
    by_kind = {kind: after[kind] - before.get(kind, 0) for kind in sorted(after) if after[kind] > before.get(kind, 0)}
    end_ns = lab.world.now_ns
    lab.rest()
    rows = lab.rows(begin_ns)
    moved = sum(row.bytes or 0 for row in rows if row.kind == "deliver" and row.at_ns <= end_ns)
    # What one block of each submit takes, whatever kind of datagram carries it, and however often.
    data = sum(data_packets(row.bytes or 0) for row in rows if row.kind == "submit" and row.at_ns <= end_ns)
    datagrams = sum(by_kind.values())
    kb_s = moved / members * SECOND / (end_ns - begin_ns) / 1_000
    return PacketCost(members, share, kb_s, data, datagrams, datagrams / max(data, 1), by_kind, lab.violations())


def data_packets(nbytes: int) -> int:
    """The datagrams that a block with so much payload takes at least."""
    return -(-(nbytes + OVERHEAD) // (DATAGRAM - HEADER_BYTES))


# What is done in it. --------------------------------------------------------------------------------------------------


class _Rally:
    """One message back and forth between two members."""

    __slots__ = ("_ends", "_left", "_size")

    def __init__(self, ends: Sequence[SimMember], strokes: int, size: int) -> None:
        self._ends = {str(member): member for member in ends}
        self._left = strokes
        self._size = size
        for member in ends:
            member.on_event = self._on_event
        ends[0].send(1, AGREED, size)

    @property
    def is_over(self) -> bool:
        return not self._left

    def end(self) -> None:
        for member in self._ends.values():
            member.on_event = None

    def _on_event(self, member: SimMember, event: object) -> None:
        if isinstance(event, Batch) and event.sender in self._ends and event.sender != str(member) and self._left:
            self._left -= 1
            if self._left:
                member.send(1, AGREED, self._size)


def _send_one(what: tuple[SimMember, Service, int]) -> None:
    member, service, size = what
    member.send(1, service, size)


def _say_nothing(_text: str) -> None:
    """Nobody watches."""
