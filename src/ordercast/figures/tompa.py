"""What anticipation saves: the one number of the TOMPA paper (section 4), on several networks.

The paper says 30 to 40 % and nothing of the network that it simulated. So the same comparison runs on networks that
differ in how late datagrams are. The first has rare, long delays, and was searched for: there the claim is reached. On
the others delays are drawn for all datagrams alike. `sim/compare.py` measures, and judges every trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ordercast.sim.compare import compare
from ordercast.sim.comparison import SATURATED, Comparison, ComparisonPlan, Point, Reduction, Variant

MESSAGES: Final = 400  # in each run, of all senders together
SIZE: Final = 100
FIRST_SEED: Final = 100  # seeds below it chose the first condition
LATE: Final = 0.05
LIGHT: Final = 200.0
MEDIUM: Final = 5_000.0
HEAVY: Final = 30_000.0
BOTH: Final = (Variant("timestamp"), Variant("timestamp", anticipate=False))

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Condition:
    """One network with its loads and group sizes."""

    name: str
    nodes: tuple[int, ...]
    loads: tuple[float, ...]
    seeds: int
    reorder: float = 0.0
    jitter_ms: float = -1.0  # -1: the lan's own
    spread_ms: float = 0.0

    def plan(self, first_seed: int) -> ComparisonPlan:
        return ComparisonPlan(
            BOTH,
            self.nodes,
            self.loads,
            messages=MESSAGES,
            size=SIZE,
            reorder=self.reorder,
            jitter_ms=self.jitter_ms,
            spread_ms=self.spread_ms,
            seed=first_seed,
            seeds=self.seeds,
        )


RARE: Final = "rare long delays: one datagram in 20 up to 2 ms late"
MORE_LOADS: Final = "the same network, other loads"
PLAIN_LAN: Final = "the plain lan: up to 10 us of jitter"


def exponential(mean_ms: float) -> str:
    return f"independent exponential delays, {mean_ms:g} ms on average"


def uniform(most_ms: float) -> str:
    return f"uniform delays up to {most_ms:g} ms, links keep their order"


@dataclass(frozen=True, slots=True)
class TompaPlan:
    """What is compared. The rows of a smaller plan are rows of a larger one, number for number."""

    conditions: tuple[Condition, ...] = (
        Condition(RARE, (3, 5, 8, 12, 20), (HEAVY,), 3, reorder=LATE),
        Condition(MORE_LOADS, (3, 8), (LIGHT, MEDIUM, SATURATED), 1, reorder=LATE),
        *(Condition(exponential(ms), (3, 8), (MEDIUM, HEAVY), 2, spread_ms=ms) for ms in (0.03, 0.1, 0.3, 1.0)),
        *(Condition(uniform(ms), (3, 8), (MEDIUM, HEAVY), 1, jitter_ms=ms) for ms in (0.1, 1.0)),
        Condition(PLAIN_LAN, (3, 8, 20), (LIGHT, MEDIUM, HEAVY), 1),
    )
    seed: int = FIRST_SEED


FULL: Final = TompaPlan()
QUICK: Final = TompaPlan(
    (
        Condition(RARE, (3,), (HEAVY,), 3, reorder=LATE),
        Condition(exponential(0.3), (3,), (MEDIUM,), 2, spread_ms=0.3),
        Condition(uniform(1.0), (3,), (MEDIUM,), 1, jitter_ms=1.0),
    )
)


@dataclass(slots=True)
class TompaFigures:
    """A comparison for each condition."""

    plan: TompaPlan
    found: list[tuple[Condition, Comparison]] = field(default_factory=list)

    @property
    def violations(self) -> int:
        return sum(point.violations for _, comparison in self.found for point in comparison.points)

    def rows(self, condition: Condition) -> list[tuple[Point, Point, Reduction]]:
        """With anticipation, without it, and what it saves; by group size and load."""
        comparison = next(found for each, found in self.found if each == condition)
        points = {(point.orderer, point.nodes, point.load_per_s): point for point in comparison.points}
        with_it, without = (str(variant) for variant in BOTH)
        return [
            (points[with_it, one.nodes, one.load_per_s], points[without, one.nodes, one.load_per_s], one)
            for one in comparison.reductions()
        ]


def tompa_figures(plan: TompaPlan = FULL, jobs: int = 1, progress: Progress | None = None) -> TompaFigures:
    """Compare on every network, `jobs` runs at a time."""
    figures = TompaFigures(plan)
    for condition in plan.conditions:

        def tell(done: int, runs: int, text: str, name: str = condition.name) -> None:
            if progress is not None:
                progress(f"{name}: {done} of {runs} runs, {text}")

        figures.found.append((condition, compare(condition.plan(plan.seed), jobs, tell)))
    return figures
