"""One run of QSM's evaluation: senders, a region or several, and their hiccups, in the bulk simulation.

The machines are `PENTIUM`. A message is a datagram, as in the paper: blocks of one message each, which leave as they
are. In a long run a datagram stands for twenty (docs/design/simulator.md, "Bulk"): rates, credits and buffers of the
engines are divided by that, and what is measured is given at full size. A hiccup then loses bursts of twenty.

Messages are RELIABLE: they are delivered on arrival, so that a receiver sees when a gap is filled. At the end the
senders stop, and every receiver must have got every message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Final

from ordercast.config import SECOND, GroupConfig, Timing
from ordercast.engine import Outbox, Run, Upcall
from ordercast.figures.own_underlays import OwnUnderlays
from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.orderers.regions.upcalls import LaneAcked, LaneRun, RegionUpcall
from ordercast.service import RELIABLE
from ordercast.sim.bulk import (
    BulkEngine,
    BulkNode,
    BulkWorld,
    Hiccups,
    HiccupSchedule,
    LoadProgram,
    ReadyBlocks,
    Samples,
)
from ordercast.sim.bulk.regional import GivenViews, RegionalNode
from ordercast.sim.bulk.tally import BLOCK_KINDS, KINDS, details
from ordercast.sim.network import PENTIUM
from ordercast.underlay.regions.engine import RegionsEngine
from ordercast.underlay.regions.node import RegionTerms
from ordercast.view import Address, Member, node_id
from ordercast.wire.block import pack_run

LONG: Final = 20  # datagrams that one stands for, where nothing else is said
HISTORY_BYTES: Final = 64 << 20  # at full size, so that tokens leave by time and not by bytes
HISTORY_BLOCKS: Final = 65_536
DATAGRAM: Final = 1_400
PAYLOAD: Final = 8  # bytes: "a few integers"
COURIER_BYTES: Final = 600_000  # a second of one node: "a fixed small value" (2.3.3), about 3,500 repairs
REPAIRS: Final = ("push", "pulled", "repair")  # words of the trace
WATCHED: Final = 5  # receivers that look at gaps
REST_NS: Final = 300 * SECOND  # in which everything must have come, after the senders have stopped


@dataclass(frozen=True, slots=True)
class RegionRun:
    """What is run. Rates are messages a second at full size."""

    nodes: int
    seconds: int  # that are measured,
    warm_s: int = 60  # after so many
    senders: int = 1
    regions: int = 1
    replicas: int = 5  # R: least members of a partition
    tokens_per_s: float = 1.0
    groups: int = 1
    underlays: int = 0  # as many as groups where each group has one of its own; 0: one for all
    stands_for: int = LONG
    first_rate: float = 1_000.0
    growth: float = 0.1  # lambda
    hiccups: float = 0.02
    pauses: bool = False  # a hiccup is a pause, and not a loss
    calms: bool = False  # hiccups end when the senders stop
    seed: int = 0


@dataclass(slots=True)
class RegionFound:
    """What came of it."""

    rates: list[float]  # messages a second that left all senders together, second by second
    packets: list[float]  # datagrams with blocks a second that left them
    control: dict[str, int]  # datagrams at the last sender, by the words of the trace, at full size
    control_share: float
    repaired_s: list[float] = field(default_factory=list)  # mean, share of datagrams that came late
    acknowledged_s: float = 0.0
    violations: int = 0
    receptions: int = 0
    lacking: str = ""

    @property
    def rate(self) -> float:
        return fmean(self.rates)

    @property
    def deviation(self) -> float:
        return pstdev(self.rates)

    def share(self, *words: str) -> float:
        """Of all control."""
        return sum([self.control.get(word, 0) for word in words]) / max(1, sum(self.control.values()))


class _Stamped(RegionalNode):
    """Remembers when each block was submitted to each lane."""

    __slots__ = ("stamps",)

    def __init__(self, engine: RegionsEngine, lanes: tuple[int, ...]) -> None:
        super().__init__(engine, lanes)
        self.stamps: dict[int, list[int]] = {lane: [] for lane in lanes}

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        first = self._lane
        taken = super().submit(now_ns, blocks, out)
        for index in range(taken):
            self.stamps[self.lanes[(first + index) % len(self.lanes)]].append(now_ns)
        return taken


class _Gaps:
    """What comes late at one receiver: its time, from the moment when a later block has come."""

    __slots__ = ("_expected", "_missing", "begin_ns", "blocks", "late", "late_ns")

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = begin_ns
        self._expected: dict[int, int] = {}
        self._missing: dict[tuple[int, int], int] = {}
        self.blocks = 0
        self.late = 0
        self.late_ns = 0

    def on_run(self, now_ns: int, run: Run | LaneRun) -> None:
        for delivery in run.deliveries:
            origin, number = delivery.origin, delivery.number
            expected = self._expected.get(origin, number)
            is_counted = now_ns >= self.begin_ns
            self.blocks += is_counted
            if number >= expected:
                for missing in range(expected, number):
                    self._missing[origin, missing] = now_ns
                self._expected[origin] = number + 1
            else:
                since_ns = self._missing.pop((origin, number), -1)
                if since_ns >= 0 and is_counted:
                    self.late += 1
                    self.late_ns += now_ns - since_ns


class _Acks:
    """How long acknowledgements take at one sender."""

    __slots__ = ("_acked", "_node", "begin_ns", "count", "sum_ns")

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = begin_ns
        self._node: _Stamped | None = None
        self._acked: dict[int, int] = {}
        self.count = 0
        self.sum_ns = 0

    def watch(self, node: _Stamped) -> None:
        self._node = node

    def on_other(self, now_ns: int, upcall: Upcall | RegionUpcall) -> None:
        if isinstance(upcall, LaneAcked) and self._node is not None:
            stamps = self._node.stamps[upcall.region]
            before = self._acked.get(upcall.region, 0)
            self._acked[upcall.region] = upcall.count
            if now_ns >= self.begin_ns:
                self.count += upcall.count - before
                self.sum_ns += sum([now_ns - stamp for stamp in stamps[before : upcall.count]])


class RegionLab:
    """The world of one run."""

    def __init__(self, run: RegionRun) -> None:
        self.run = run
        self.world = world = BulkWorld(f"qsm/{run.seed}/{run.nodes}", PENTIUM, stands_for=run.stands_for)
        begin_ns = run.warm_s * SECOND
        self._gaps: list[_Gaps] = []
        self._acks = _Acks(begin_ns)
        self.programs: list[LoadProgram] = []
        self._config = GroupConfig(
            datagram=DATAGRAM,
            history_bytes=HISTORY_BYTES // run.stands_for,
            history_blocks=HISTORY_BLOCKS // run.stands_for,
        )
        self._terms = RegionTerms(
            token_ns=round(SECOND / run.tokens_per_s),
            rate_policy="qsm",
            first_rate=run.first_rate / run.stands_for / run.senders / max(1, run.underlays),
            growth=run.growth,
            scale=run.stands_for,
            courier_bytes_per_s=COURIER_BYTES // run.stands_for,
        )
        self._views: tuple[GivenView, ...] = ()
        self._lanes = tuple(range(1, run.regions + 1))
        for index in range(run.nodes):
            name = f"n{index}"
            program = LoadProgram(world, name, self._blocks() if self._is_sender(index) else None)
            if index == run.nodes - 1:
                program.on_other = self._acks.on_other
            elif not run.underlays and not self._is_sender(index) and index >= run.nodes - run.senders - WATCHED:
                self._gaps.append(_Gaps(begin_ns))
                program.on_run = self._gaps[-1].on_run
            self.programs.append(program)
            world.add(name, self._boot, program=program)
        self._tile()
        self.samples = Samples(world, {"sent": self._sent})
        world.start_all()
        burst = max(1, LONG // run.stands_for)
        kind = Hiccups(run.hiccups, loses=not run.pauses, pauses=run.pauses, burst=burst)
        self._hiccups = HiccupSchedule(world, kind) if run.hiccups else None

    def measure(self) -> RegionFound:
        run, world = self.run, self.world
        world.run_until(run.warm_s * SECOND)
        before = _datagrams_of(world[f"n{run.nodes - 1}"], run.stands_for)
        world.run_until((run.warm_s + run.seconds) * SECOND)
        after = _datagrams_of(world[f"n{run.nodes - 1}"], run.stands_for)
        rates = [rate * run.stands_for for rate in self.samples.rates("sent")[run.warm_s :]]
        control = after - before
        data = control.pop("data", 0)
        found = RegionFound(
            rates,
            [rate * run.regions for rate in rates],
            dict(control),
            control.total() / max(1, control.total() + data),
            receptions=world.receptions,
        )
        late = sum(gaps.late for gaps in self._gaps)
        if late:
            blocks = sum(gaps.blocks for gaps in self._gaps)
            found.repaired_s = [sum(gaps.late_ns for gaps in self._gaps) / late / SECOND, late / blocks]
        if self._acks.count:
            found.acknowledged_s = self._acks.sum_ns / self._acks.count / SECOND
        self._rest(found)
        return found

    def _rest(self, found: RegionFound) -> None:
        """Everybody gets everything, or it is a violation."""
        world = self.world
        for program in self.programs:
            program.stop()
        if self.run.calms and self._hiccups is not None:
            self._hiccups.end()
        limit_ns = world.now_ns + REST_NS
        wanted = sum(program.submitted for program in self.programs)
        while world.now_ns < limit_ns and any(program.taken < wanted for program in self.programs):
            world.run_until(world.now_ns + SECOND)
        lacking = {program.name: wanted - program.taken for program in self.programs if program.taken != wanted}
        found.violations = len(lacking)
        found.lacking = str(lacking) if lacking else ""

    def _is_sender(self, index: int) -> bool:
        """The last ones: no leader of a partition has the largest address, unless it is alone."""
        return index >= self.run.nodes - self.run.senders

    def _sent(self) -> float:
        return sum([program.submitted for program in self.programs])

    def _blocks(self) -> ReadyBlocks:
        made = [pack_run(0, RELIABLE, [bytes(PAYLOAD)], group) for group in range(1, self.run.groups + 1)]
        return ReadyBlocks(*[[block] * self.run.regions for block in made])

    def _tile(self) -> None:
        nodes = list(self.world.nodes.values())
        views = []
        for lane in self._lanes:
            members = tuple([self._member(node) for node in nodes[lane - 1 :: self.run.regions]])
            address: Address = ("239.7.0.1", 7_000 + lane)
            views.append(GivenView(lane, 10 + lane, 1, "gms", address, members, partition_members=self.run.replicas))
        self._views = tuple(views)

    def _boot(self, node: BulkNode) -> BulkEngine:
        if self.run.underlays:
            return OwnUnderlays([self._own(node, number) for number in range(self.run.underlays)])
        mine = node.index % self.run.regions + 1
        is_sender = self._is_sender(node.index)
        views = self._views if is_sender else (self._views[mine - 1],)
        source = GivenViews(GivenEpoch(1, 1, 0, mine, views, is_whole=True))
        engine = RegionsEngine(self._member(node), self._config, Timing(), source, self._terms)
        if not is_sender:
            return RegionalNode(engine)
        made = _Stamped(engine, self._lanes)
        if node.index == self.run.nodes - 1:
            self._acks.watch(made)
        return made

    def _own(self, node: BulkNode, number: int) -> tuple[str, RegionalNode]:
        """One of many engines of this node."""
        name = f"own/{number}"
        members = self._views[0].members
        view = GivenView(1, 11, 1, "gms", ("239.7.1.1", 8_000 + number), members, partition_members=self.run.replicas)
        source = GivenViews(GivenEpoch(1, 1, 0, 1, (view,), is_whole=True))
        engine = RegionsEngine(self._member(node), self._config, Timing(), source, self._terms, underlay=name)
        return name, RegionalNode(engine, (1,) if self._is_sender(node.index) else ())

    def _member(self, node: BulkNode) -> Member:
        return Member(node_id(node.name, 0), node.name, 0, node.address)


def _datagrams_of(node: BulkNode, stands_for: int) -> Counter[str]:
    """What the node has sent and received, at full size: a datagram that carries a block counts for all that it stands
    for, and every other for one."""
    weights = [stands_for if kind in BLOCK_KINDS else 1 for kind in range(KINDS)]
    rows = (node.tally.sent, node.tally.received)
    return details([[weight * number for weight, number in zip(weights, row, strict=True)] for row in rows])


def measure(run: RegionRun) -> RegionFound:
    return RegionLab(run).measure()
