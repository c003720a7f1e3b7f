"""Section 5 of the Amoeba paper, measured again: delay, messages, interrupts, history, resilience, saturation.

The machines are `ETHERNET_10`. Its one free number, the processor time of a packet, is chosen so that a broadcast among
four members takes the paper's time; everything else follows from it. Nothing is lost. Every group must deliver the same
messages in the same order at all members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ordercast.config import MS, SECOND, Timing
from ordercast.figures.broadcasts import (
    PAPER_TIMING,
    BroadcastCost,
    described_cost,
    orderer_cost,
    sequencer_config,
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
    loads: tuple[float, ...] = (100.0, 300.0, 500.0, 700.0, 800.0, 900.0)
    degrees: tuple[int, ...] = DEGREES
    crowds: tuple[int, ...] = (50, 100, 200, 300, 350, 390)
    modest: tuple[int, ...] = (1_000,)
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


@dataclass(slots=True)
class AmoebaFigures:
    """All of section 5."""

    plan: AmoebaPlan
    singles: list[BroadcastCost]  # of the sequencer, by size
    tuned: BroadcastCost
    tokens: list[BroadcastCost]  # of the token orderer
    described_tokens: list[BroadcastCost]  # Chang and Maxemchuk
    described_central: list[BroadcastCost]  # Navaratnam et al.
    central_capacity: list[tuple[int, float, float]]  # members, ours, theirs: broadcasts a second
    busy_token: float  # datagrams of a broadcast, Chang and Maxemchuk under load
    rows: list[tuple[str, str, str, str, str, str, str]]  # figure 5
    histories: list[HistoryCost]
    degrees: list[tuple[int, BroadcastCost, Capacity]]
    loads: list[LoadPoint]
    crowds: list[LoadPoint]
    defaults: list[tuple[int, float, float, float]]  # members, rate, datagrams per broadcast, mean ms

    @property
    def violations(self) -> int:
        costs = (*self.singles, self.tuned, *self.tokens, *self.described_tokens, *self.described_central)
        found = sum(cost.violations for cost in costs) + sum(one.violations for one in self.histories)
        found += sum(cost.violations + capacity.violations for _, cost, capacity in self.degrees)
        return found + sum(point.violations for point in (*self.loads, *self.crowds))


# Measuring. -----------------------------------------------------------------------------------------------------------


def amoeba_figures(plan: AmoebaPlan = FULL, progress: Progress | None = None) -> AmoebaFigures:
    """Run everything."""
    tell = progress if progress is not None else _say_nothing
    network, seed = plan.network, plan.seed
    tell("one broadcast at a time")
    tuned = replace(network, send_ns=TUNED_NS, receive_ns=TUNED_NS)
    tell("figure 5")
    fifth, busy = _figure_5(network, seed)
    found = AmoebaFigures(
        plan,
        [orderer_cost("sequencer", members, network, seed=seed) for members in plan.sizes],
        orderer_cost("sequencer", 4, tuned, seed=seed),
        [orderer_cost("token", members, network, seed=seed) for members in plan.sizes],
        [described_cost(RotatingToken, members, network, seed=seed) for members in plan.sizes],
        [described_cost(CentralAcknowledged, members, network, seed=seed) for members in plan.sizes],
        [
            (
                members,
                sequencer_capacity(members, network, seed=seed).per_s,
                described_capacity(CentralAcknowledged, members, network, seed=seed)[0],
            )
            for members in plan.sizes
        ],
        busy,
        fifth,
        [],
        [],
        [],
        [],
        [],
    )
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
    for members in plan.default_sizes:
        for per_s in plan.default_rates:
            tell(f"default timing: {members} members, {per_s:g} broadcasts a second")
            point = under_load(members, per_s, LAN, timing=Timing(), seconds=3.0, seed=seed)
            found.defaults.append((members, per_s, point.datagrams, point.mean_ms))
    return found


def history_cost(members: int, history: int, network: NetworkModel, seed: int = 0) -> HistoryCost:
    """One member sends without pause: the paper's worst case, n/H + 2."""
    config = sequencer_config(history_blocks=history)
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
    group.world.run_until(group.world.now_ns + 100 * MS)
    return HistoryCost(members, history, datagrams / broadcasts, group.disorder())


def _figure_5(network: NetworkModel, seed: int) -> tuple[list[tuple[str, str, str, str, str, str, str]], float]:
    """The rows of figure 5, and datagrams of a broadcast of Chang and Maxemchuk's protocol under load."""

    def ours(orderer: str) -> tuple[str, str, str, str]:
        small, large = (orderer_cost(orderer, n, IDEAL, anticipate=False, seed=seed) for n in (4, 16))
        real = orderer_cost(orderer, 4, network, anticipate=False, seed=seed)
        return _measured(small, large, real)

    def theirs(make: Callable[[int, int], Described], extra: int = 0) -> tuple[str, str, str, str]:
        small, large = (described_cost(make, n, IDEAL, extra=extra, seed=seed) for n in (4, 16))
        return _measured(small, large, described_cost(make, 4, network, extra=extra, seed=seed))

    _, busy = described_capacity(RotatingToken, 16, network, seed=seed)
    none = ("not described",) * 4
    return [
        ("Birman, Joseph", "2 rounds, 2n", "orderer `timestamp`, ABCAST", *ours("timestamp")),
        ("Chang, Maxemchuk", "2, 2 + e", "as described", *theirs(RotatingToken)),
        ("Chang, Maxemchuk", "2, 2 + e", "orderer `token`, RMP", *ours("token")),
        ("Cheriton, Zwaenepoel", "2, 2 to n", "as described, all reply", *theirs(RepliedTo)),
        ("Luan, Gligor", "3 phases, 1 to 4n", "not measured", *none),
        ("Melliar-Smith et al.", "random, 1", "not measured", *none),
        ("Navaratnam et al.", "2, n + 1", "as described", *theirs(CentralAcknowledged)),
        ("Tseung", "2, 3", "as described, two more machines", *theirs(Recorded, 2)),
        ("Amoeba", "2, 2", "orderer `sequencer`", *ours("sequencer")),
    ], busy


def _measured(small: BroadcastCost, large: BroadcastCost, real: BroadcastCost) -> tuple[str, str, str, str]:
    return (
        f"{max(large.all_ms, large.back_ms) * MS / IDEAL.latency_ns:.1f}",
        f"{small.datagrams:.1f} / {large.datagrams:.1f}",
        f"{small.interrupts:.1f} / {large.interrupts:.1f}",
        f"{max(real.all_ms, real.back_ms):.2f}",
    )


def _say_nothing(_text: str) -> None:
    """Nobody watches."""
