"""Section 5 of the Amoeba paper, measured again: delay, messages, interrupts, history, resilience, saturation.

The machines are `ETHERNET_10`. Its one free number, the processor time of a packet, is chosen so that a broadcast among
four members takes the paper's time; everything else follows from it. Nothing is lost. Every group must deliver the same
messages in the same order at all members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from ordercast.config import SECOND, Timing
from ordercast.figures.broadcasts import (
    PAPER_TIMING,
    BroadcastCost,
    described_cost,
    orderer_cost,
    station_config,
)
from ordercast.figures.described import CentralAcknowledged, Described, Recorded, RepliedTo, RotatingToken
from ordercast.figures.saturation import (
    Capacity,
    LoadPoint,
    described_capacity,
    sequencer_capacity,
    service_of,
    under_load,
)
from ordercast.figures.stations import StationGroup
from ordercast.sim.lab import MeasurementFailed
from ordercast.sim.network import ETHERNET_10, IDEAL, LAN, NetworkModel

Progress = Callable[[str], None]

TUNED_NS: Final = 230_000  # the processor time of a packet with which a broadcast takes the prototype's 1.4 ms
INTENSE_PER_S: Final = 2.3  # broadcasts of one member; with it the model saturates at the paper's 400 members
MODEST_PER_S: Final = 0.5
HISTORY_ROUNDS: Final = 10  # times that the history fills
CAPACITY_MEMBERS: Final = 16
DEGREES: Final = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class AmoebaPlan:
    """What is measured. The rows of a smaller plan are rows of a larger one, number for number."""

    sizes: tuple[int, ...] = (2, 4, 8, 16, 32)
    histories: tuple[tuple[int, int], ...] = (
        (4, 8),
        (8, 8),
        (16, 16),
        (4, 64),
        (8, 64),
        (16, 64),
        (64, 64),
        (16, 1_024),
    )
    loads: tuple[float, ...] = (100.0, 300.0, 500.0, 700.0, 900.0)
    degrees: tuple[int, ...] = DEGREES
    crowds: tuple[int, ...] = (50, 100, 200, 300, 390)
    modest: tuple[int, ...] = (1_000,)
    with_history: tuple[int, ...] = (100, 300)  # crowds again, with the default history
    default_sizes: tuple[int, ...] = (4, 16, 60)
    default_rates: tuple[float, ...] = (10.0, 100.0, 1_000.0)
    network: NetworkModel = ETHERNET_10
    seed: int = 0


FULL: Final = AmoebaPlan()
QUICK: Final = AmoebaPlan(
    sizes=(4, 16),
    histories=((4, 8), (8, 8), (4, 64)),
    loads=(300.0,),
    degrees=(0, 1, 2),
    crowds=(50,),
    modest=(),
    with_history=(),
    default_sizes=(4, 16),
    default_rates=(100.0,),
)


@dataclass(frozen=True, slots=True)
class HistoryCost:
    """Datagrams of a broadcast where one member sends without pause and the history holds so many messages."""

    members: int
    history: int
    datagrams: float
    violations: int

    @property
    def paper(self) -> float:
        return self.members / self.history + 2


@dataclass(frozen=True, slots=True)
class ProtocolRow:
    """One row of figure 5."""

    protocol: str
    paper: str  # delay and packets
    semantics: str  # reliable, ordered, crashes survived, hardware: as the paper has it
    how: str  # it was measured
    costs: tuple[BroadcastCost, ...]  # ideal network with 4 and 16 members, the paper's with 4; empty: not measured


@dataclass(slots=True)
class AmoebaFigures:
    """All of section 5."""

    plan: AmoebaPlan
    tuned: BroadcastCost  # 4 members of the sequencer, on faster machines
    busy_token: float  # datagrams of a broadcast, Chang and Maxemchuk under load
    protocols: list[ProtocolRow]  # figure 5
    # by group size
    singles: list[BroadcastCost] = field(default_factory=list)  # of the sequencer
    tokens: list[BroadcastCost] = field(default_factory=list)  # of the token orderer
    described_tokens: list[BroadcastCost] = field(default_factory=list)  # Chang and Maxemchuk
    described_central: list[BroadcastCost] = field(default_factory=list)  # Navaratnam et al.
    capacities: list[tuple[Capacity, float]] = field(default_factory=list)  # ours, and theirs in broadcasts a second
    # under load
    histories: list[HistoryCost] = field(default_factory=list)
    degrees: list[tuple[int, BroadcastCost, Capacity]] = field(default_factory=list)
    loads: list[LoadPoint] = field(default_factory=list)
    crowds: list[LoadPoint] = field(default_factory=list)
    defaults: list[LoadPoint] = field(default_factory=list)  # at default timing

    @property
    def violations(self) -> int:
        costs = [*self.singles, self.tuned, *self.tokens, *self.described_tokens, *self.described_central]
        costs += [cost for row in self.protocols for cost in row.costs]
        costs += [cost for _, cost, _ in self.degrees]
        capacities = [capacity for capacity, _ in self.capacities] + [capacity for _, _, capacity in self.degrees]
        points = [*self.loads, *self.crowds, *self.defaults]
        found = sum(cost.violations for cost in costs) + sum(capacity.violations for capacity in capacities)
        return found + sum(one.violations for one in self.histories) + sum(point.violations for point in points)


# Measuring. -----------------------------------------------------------------------------------------------------------


def amoeba_figures(plan: AmoebaPlan = FULL, progress: Progress | None = None) -> AmoebaFigures:
    """Run everything."""
    tell = progress if progress is not None else _say_nothing
    network, seed = plan.network, plan.seed
    tell("figure 5")
    tuned = replace(network, send_ns=TUNED_NS, receive_ns=TUNED_NS)
    _, busy = described_capacity(RotatingToken, CAPACITY_MEMBERS, network, seed=seed)
    found = AmoebaFigures(plan, orderer_cost("sequencer", 4, tuned, seed=seed), busy, _figure_5(network, seed))
    for members in plan.sizes:
        tell(f"one broadcast at a time: {members} members")
        found.singles.append(orderer_cost("sequencer", members, network, seed=seed))
        found.tokens.append(orderer_cost("token", members, network, seed=seed))
        found.described_tokens.append(described_cost(RotatingToken, members, network, seed=seed))
        found.described_central.append(described_cost(CentralAcknowledged, members, network, seed=seed))
        theirs, _ = described_capacity(CentralAcknowledged, members, network, seed=seed)
        found.capacities.append((sequencer_capacity(members, network, seed=seed), theirs))
    for members, history in plan.histories:
        tell(f"one member sends without pause: {members} members, a history of {history}")
        found.histories.append(history_cost(members, history, network, seed))
    for degree in plan.degrees:
        tell(f"resilience degree {degree}")
        cost = orderer_cost("sequencer", CAPACITY_MEMBERS, network, service=service_of(degree), seed=seed)
        found.degrees.append((degree, cost, sequencer_capacity(CAPACITY_MEMBERS, network, degree, seed)))
    for per_s in plan.loads:
        for degree in plan.degrees:
            tell(f"{per_s:g} broadcasts a second, resilience degree {degree}")
            found.loads.append(under_load(CAPACITY_MEMBERS, per_s, network, resilience=degree, seed=seed))
    for members, each in [(n, INTENSE_PER_S) for n in plan.crowds] + [(n, MODEST_PER_S) for n in plan.modest]:
        tell(f"{members} members, {each:g} broadcasts a second each")
        found.crowds.append(under_load(members, each * members, network, seconds=1.0, seed=seed))
    for members in plan.with_history:
        tell(f"{members} members, {INTENSE_PER_S:g} broadcasts a second each, default history")
        per_s = INTENSE_PER_S * members
        found.crowds.append(under_load(members, per_s, network, seconds=1.0, has_default_history=True, seed=seed))
    for members in plan.default_sizes:
        for per_s in plan.default_rates:
            tell(f"default timing: {members} members, {per_s:g} broadcasts a second")
            point = under_load(members, per_s, LAN, timing=Timing(), seconds=3.0, has_default_history=True, seed=seed)
            found.defaults.append(point)
    return found


def history_cost(members: int, history: int, network: NetworkModel, seed: int = 0) -> HistoryCost:
    """One member sends without pause: the paper's worst case, n/H + 2."""
    config = station_config(history_blocks=history)
    group = StationGroup(members, network, config, PAPER_TIMING, f"{seed}/history")
    broadcasts = max(HISTORY_ROUNDS * history, 320)
    warm = 3 * history
    group.keep_sending(members - 1, warm + broadcasts, service_of(0))
    mine = group.stations[-1].delivered

    def reach(count: int) -> None:
        if not group.world.run_until(lambda: len(mine) >= count, 600 * SECOND):
            raise MeasurementFailed(f"of {count} broadcasts {len(mine)} were delivered with a history of {history}")

    reach(warm)
    before = group.sent
    reach(warm + broadcasts)
    datagrams = (group.sent - before).total()
    group.finish(warm + broadcasts)
    return HistoryCost(members, history, datagrams / broadcasts, group.disorder())


def _figure_5(network: NetworkModel, seed: int) -> list[ProtocolRow]:
    """All protocols of figure 5, by the names of their authors."""
    on = ((4, IDEAL), (16, IDEAL), (4, network))

    def ours(orderer: str) -> tuple[BroadcastCost, ...]:
        return tuple(orderer_cost(orderer, n, model, anticipate=False, seed=seed) for n, model in on)

    def theirs(make: Callable[[int, int], Described], extra: int = 0) -> tuple[BroadcastCost, ...]:
        return tuple(described_cost(make, n, model, extra=extra, seed=seed) for n, model in on)

    rotating = ("Chang, Maxemchuk", "2, 2 + e", "yes, yes, 0 to n, no")
    return [
        ProtocolRow(
            "Birman, Joseph", "2 rounds, 2n", "yes, yes, n, no", "orderer `timestamp`, ABCAST", ours("timestamp")
        ),
        ProtocolRow(*rotating, "as described", theirs(RotatingToken)),
        ProtocolRow(*rotating, "orderer `token`, RMP", ours("token")),
        ProtocolRow(
            "Cheriton, Zwaenepoel", "2, 2 to n", "no to yes, no, no, no", "as described, all reply", theirs(RepliedTo)
        ),
        ProtocolRow("Luan, Gligor", "3 phases, 1 to 4n", "yes, yes, yes, yes", "not described well enough", ()),
        ProtocolRow("Melliar-Smith et al.", "random, 1", "yes, yes, n/3, no", "not described well enough", ()),
        ProtocolRow(
            "Navaratnam et al.", "2, n + 1", "yes, no to yes, 0 to n, no", "as described", theirs(CentralAcknowledged)
        ),
        ProtocolRow(
            "Tseung", "2, 3", "yes, yes, no to yes, yes", "as described, two more machines", theirs(Recorded, 2)
        ),
        ProtocolRow("Amoeba", "2, 2", "yes, yes, 0 to n, no", "orderer `sequencer`", ours("sequencer")),
    ]


def _say_nothing(_text: str) -> None:
    """Nobody watches."""
