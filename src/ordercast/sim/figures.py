"""The measurements of the RMP paper, again, in virtual time: the ladder of services and figures 5.1 to 5.3.

`ladder` runs one service after the other on a loss-free network (section 3.2: latency grows with the service,
throughput does not fall). `figures` is section 5 on a 10 Mb/s segment with machines such as theirs (`ETHERNET`).

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

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.errors import UsageError
from ordercast.groups.events import Batch
from ordercast.service import AGREED, Service, parse_service
from ordercast.sim.lab import BULK_SIZE, DATAGRAM, LIMIT_NS, WARM_BYTES, Lab, MeasurementFailed
from ordercast.sim.member import SimMember
from ordercast.sim.network import ETHERNET, LAN, NetworkModel
from ordercast.sim.scenario import SERVICES
from ordercast.sim.statistics import quantile
from ordercast.trace.schema import Row
from ordercast.wire.block import OVERHEAD
from ordercast.wire.header import HEADER_BYTES

PAPER_QUIET_NS: Final = SECOND  # "on the order of 1 second": when the paper's idle token site sends a NULL ACK

# the ladder
LADDER_MEMBERS: Final = 8
LADDER_SERVICES: Final = (
    "UNRELIABLE",
    "RELIABLE",
    "FIFO",
    "CAUSAL",
    "AGREED",
    "RESILIENT(1)",
    "RESILIENT(2)",
    "RESILIENT(3)",
    "MAJORITY",
    "SAFE",
)
LADDER_MESSAGES: Final = 50  # of each member, for the latency
LADDER_SIZE: Final = 100
LADDER_INTERVAL_NS: Final = 8_100_000  # of each member: one message in the group every millisecond or so
LADDER_BYTES: Final = 12_000_000  # of all members together, for the throughput

# the figures
MOST_MEMBERS: Final = 8
SOURCES: Final = (1, 2, 4, 8)
TRANSFER_BYTES: Final = 3_000_000
FILE_PIECE: Final = 4_000  # the file is handed over in messages of this size
PING_SIZE: Final = 100
PINGS: Final = 100
PACKET_SIZE: Final = 1_000  # of the messages whose datagrams are counted
LOAD_SHARES: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)  # of the wire, as payload; then as much as it takes
LOAD_NS: Final = 2 * SECOND
SATURATING_BYTES: Final = 1_000_000

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rung:
    """One service of the ladder."""

    service: str
    mean_us: float  # submit to delivery, at all members
    p50_us: float
    p99_us: float
    others_mean_us: float  # without the deliveries at the sender itself
    deliveries: int
    throughput_mb_s: float  # payload that each member gets, all members sending
    violations: int


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
class Latency:
    """One point of figure 5.3."""

    members: int
    destinations: int
    mean_ms: float
    p99_ms: float
    violations: int


@dataclass(frozen=True, slots=True)
class Cost:
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
class Figures:
    """All of section 5."""

    aggregate: list[Transfer]  # 5.1
    single: list[Transfer]  # 5.2
    latency: list[Latency]  # 5.3
    costs: list[Cost]
    wire_kb_s: float
    transfer_bytes: int

    @property
    def held(self) -> bool:
        points: Iterable[Transfer | Latency | Cost] = (*self.aggregate, *self.single, *self.latency, *self.costs)
        return not any(point.violations for point in points)

    def as_json(self) -> dict[str, Any]:
        return {
            "held": self.held,
            "wire_kb_s": self.wire_kb_s,
            "transfer_bytes": self.transfer_bytes,
            "figure_5_1": [asdict(point) for point in self.aggregate],
            "figure_5_2": [asdict(point) for point in self.single],
            "figure_5_3": [asdict(point) for point in self.latency],
            "datagrams_per_data_packet": [asdict(point) for point in self.costs],
        }


# The ladder. ----------------------------------------------------------------------------------------------------------


def ladder(
    orderer: str = "token",
    *,
    anticipate: bool = True,
    network: NetworkModel = LAN,
    members: int = LADDER_MEMBERS,
    services: Sequence[str] = LADDER_SERVICES,
    transfer_bytes: int = LADDER_BYTES,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Rung]:
    """Each service that the orderer gives, one after the other, in a group and a run of its own."""
    config = GroupConfig(orderer=orderer, datagram=DATAGRAM, anticipate=anticipate)
    stream = f"{orderer}/{seed}/figures"
    rungs = []
    for name in services:
        service = parse_service(name)
        if name.partition("(")[0] not in SERVICES[orderer]:
            continue
        if progress is not None:
            progress(name)
        rungs.append(_rung(service, config, network, members, transfer_bytes, stream))
    return rungs


def _rung(service: Service, config: GroupConfig, network: NetworkModel, members: int, nbytes: int, seed: str) -> Rung:
    quiet = Lab(config, network, members, seed)
    quiet.warm(service)
    begin_ns = quiet.world.now_ns
    for index, member in enumerate(quiet.members):
        for number in range(LADDER_MESSAGES):
            at_ns = begin_ns + index * LADDER_INTERVAL_NS // members + number * LADDER_INTERVAL_NS
            quiet.world.at(at_ns, _send_one, (member, service, LADDER_SIZE))
    quiet.world.run_until(begin_ns + LADDER_MESSAGES * LADDER_INTERVAL_NS)
    quiet.rest()
    rows = quiet.rows(begin_ns)
    latencies = delivery_latencies(rows)
    others = sorted(ns for ns, is_own in latencies if not is_own)
    everyone = sorted(ns for ns, _ in latencies)
    if not everyone:
        raise MeasurementFailed(f"of {LADDER_MESSAGES * members} {service} messages none was delivered")

    busy = Lab(config, network, members, seed)
    busy.warm(service)
    begin_ns = busy.world.now_ns
    busy.transfer(busy.members, nbytes, BULK_SIZE, service)
    return Rung(
        str(service),
        _mean(everyone) / 1_000,
        quantile(everyone, 0.5) / 1_000,
        quantile(everyone, 0.99) / 1_000,
        _mean(others) / 1_000,
        len(everyone),
        steady_bytes_per_s(busy.rows(begin_ns)) / 1e6,
        quiet.violations() + busy.violations(),
    )


# The figures. ---------------------------------------------------------------------------------------------------------


def figures(
    orderer: str = "token",
    *,
    anticipate: bool = True,
    network: NetworkModel = ETHERNET,
    transfer_bytes: int = TRANSFER_BYTES,
    most: int = MOST_MEMBERS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Figures:
    """Everything that section 5 of the paper shows, for up to `most` members or destinations."""
    if network.bits_per_s <= 0:
        raise UsageError(f"the network {network.name!r} has no bandwidth that throughput could be compared with")
    config = GroupConfig(orderer=orderer, datagram=DATAGRAM, anticipate=anticipate)
    stream = f"{orderer}/{seed}/figures"
    wire = network.bits_per_s / 8
    tell = progress if progress is not None else _say_nothing
    found = Figures([], [], [], [], wire / 1_000, transfer_bytes)
    for sources in SOURCES:
        for members in range(max(2, sources), most + 1):
            tell(f"figure 5.1: {sources} of {members} members send")
            found.aggregate.append(_transfer(config, network, members, sources, transfer_bytes, stream, is_apart=False))
    for destinations in range(1, most + 1):
        tell(f"figure 5.2: one sender, {destinations} destinations")
        found.single.append(_transfer(config, network, destinations + 1, 1, transfer_bytes, stream, is_apart=True))
    for destinations in range(1, most + 1):
        tell(f"figure 5.3: latency to {destinations} destinations")
        found.latency.append(_ping_pong(config, network, destinations + 1, stream))
    for share in (*LOAD_SHARES, 0.0):
        tell(
            f"datagrams per data packet at {share:.0%} of the wire" if share else "datagrams per data packet, saturated"
        )
        found.costs.append(_cost(config, network, max(2, most), share, stream))
    return found


def _transfer(
    config: GroupConfig, network: NetworkModel, members: int, sources: int, nbytes: int, seed: str, *, is_apart: bool
) -> Transfer:
    lab = Lab(config, network, members, seed)
    lab.warm(AGREED, WARM_BYTES)
    begin_ns = lab.world.now_ns
    speakers = lab.members[-sources:]  # not the first: for a sequencer that would be the best case
    lab.transfer(speakers, nbytes, FILE_PIECE, AGREED)
    rows = lab.rows(begin_ns)
    destinations = members - 1 if is_apart else members
    apart = {str(member) for member in speakers} if is_apart else set()
    first_ns = min(row.at_ns for row in rows if row.kind == "submit")
    last_ns = max(row.at_ns for row in rows if row.kind == "deliver" and _who(row) not in apart)
    moved = sum(row.bytes or 0 for row in rows if row.kind == "deliver" and _who(row) not in apart)
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


def _ping_pong(config: GroupConfig, network: NetworkModel, members: int, seed: str) -> Latency:
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
        ns for ns, is_own in delivery_latencies(row for row in lab.rows(begin_ns) if _who(row) in names) if not is_own
    )
    return Latency(members, members - 1, _mean(latencies) / MS, quantile(latencies, 0.99) / MS, lab.violations())


def _cost(config: GroupConfig, network: NetworkModel, members: int, share: float, seed: str) -> Cost:
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
    return Cost(members, share, kb_s, data, datagrams, datagrams / max(data, 1), by_kind, lab.violations())


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


# What a trace says. ---------------------------------------------------------------------------------------------------


def delivery_latencies(rows: Iterable[Row]) -> list[tuple[int, bool]]:
    """For each message and member: nanoseconds from submit to delivery, and whether it was the sender's own."""
    submits: dict[str, tuple[list[int], list[int]]] = {}
    deliveries: list[Row] = []
    for row in rows:
        if row.kind == "submit" and row.count:
            firsts, times = submits.setdefault(_who(row), ([], []))
            firsts.append(row.first or 0)
            times.append(row.at_ns)
        elif row.kind == "deliver" and row.count and row.sender is not None:
            deliveries.append(row)
    found: list[tuple[int, bool]] = []
    for row in deliveries:
        firsts, times = submits.get(row.sender or "", ([], []))
        at = bisect_right(firsts, row.first or 0) - 1
        if at >= 0:
            found += [(row.at_ns - times[at], row.sender == _who(row))] * (row.count or 0)
    return found


def steady_bytes_per_s(rows: Iterable[Row], skip: float = 0.1) -> float:
    """Payload a second at each member, without the first and the last part of what it got."""
    by_member: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if row.kind == "deliver" and row.bytes:
            by_member.setdefault(_who(row), []).append((row.at_ns, row.bytes))
    rates: list[float] = []
    for got in by_member.values():
        total = sum(size for _, size in got)
        so_far = 0
        inside: list[tuple[int, int]] = []
        for at_ns, size in got:
            so_far += size
            if skip * total <= so_far <= (1 - skip) * total:
                inside.append((at_ns, size))
        if len(inside) > 1 and inside[-1][0] > inside[0][0]:
            rates.append(sum(size for _, size in inside[1:]) * SECOND / (inside[-1][0] - inside[0][0]))
    return sum(rates) / len(rates) if rates else 0.0


def _who(row: Row) -> str:
    return f"{row.node}/{row.life}"


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
