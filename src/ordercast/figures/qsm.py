"""Figures 1 and 9 to 20 of the QSM paper, measured again in the bulk simulation (`region_lab.py` has one run).

Each figure is a list of runs, and figures share them: what is sent in a region of 25 is in figures 9, 12, 13, 15, 17,
18, 19 and 20. A run is known by its parameters, so one that was measured need not be measured again: `kept` is a file
with a line for each.

Constants of rate control that the paper does not give are those of `parts/rate.py`. Runs begin at a high rate, and not
at the lowest one: the climb from there takes minutes of each run, and says nothing of any figure but 17.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from time import process_time
from typing import Any, Final

from ordercast.errors import UsageError
from ordercast.figures.region_lab import RegionFound, RegionRun, measure

FIGURES: Final = (1, *range(9, 21))
FIRST_RATE: Final = 9_000.0
QSM_GROWTH: Final = 0.085  # lambda: chosen for figure 9
SMALL: Final = 25  # the paper's second set of nodes
LARGE: Final = 71  # and its first
FIVE: Final = 5  # replicas
CALM: Final = 1_000  # nodes: what such a region lacks at the end is repaired without new hiccups
SHORT_S: Final = 8  # at full packet rate
FULL_RECEPTIONS: Final = 4_000_000  # of a run at full packet rate, about: some hiccups of the sender's neighbours

# What the paper prints.
PAPER_RATES: Final = {1: 9_850, 71: 6_500}  # figure 9; ours with 2 stands beside the paper's with 1
PAPER_JGROUPS: Final = {1: 0, 2: -6, 32: -20, 256: -60}  # per cent, figure 1: its baseline
PAPER_REPAIR: Final = 2.5  # rounds, figure 19
PAPER_ACKS: Final = {1: 1.0, 71: 3.5}  # rounds, figure 20: "slightly over 1", "up to 3.5"

Progress = Callable[[str], None]
Found = list[tuple[RegionRun, RegionFound]]


@dataclass(frozen=True, slots=True)
class QsmPlan:
    """What is measured. `length` divides the seconds of long runs; otherwise the runs of a plan with fewer points are
    runs of a plan with more, number for number."""

    middle: int = SMALL  # nodes of the figures about one size
    largest: int = LARGE
    sizes: tuple[int, ...] = (2, 5, 10, 25, 40, 71)  # alone, a member sends nothing at all
    shared: tuple[int, ...] = (1, 256, 8_192)  # groups of figure 1, on one underlay
    own: tuple[int, ...] = (1, 2, 32, 256)  # and with an underlay each
    captured: tuple[int, ...] = (2, 5, 10, 25)  # sizes of figures 10 and 11
    undivided: tuple[int, ...] = (10, 25, 40)  # sizes of figure 12 with one partition
    replicas: tuple[int, ...] = (1, 3, 5, 8, 25)  # figure 13
    regions: tuple[int, ...] = (1, 2, 4, 8)  # figure 14
    tokens: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # a second, figure 15
    senders: tuple[int, ...] = (1, 2, 5, 10)  # figure 16
    beyond: tuple[int, ...] = (200, 1_000)  # nodes that the paper has not measured, with so many groups:
    many: int = 8_192
    growth: float = QSM_GROWTH
    length: float = 1.0
    warm_s: int = 60
    seed: int = 0

    def scale(self, nodes: int) -> RegionRun:
        """Figures 9, 19 and 20."""
        return self._long(nodes, 300 if nodes in (SMALL, LARGE) else 150)

    def partitioned(self, nodes: int, replicas: int) -> RegionRun:
        """Figures 12 and 13."""
        if replicas == FIVE or nodes < 2 * FIVE:
            return self.scale(nodes)
        return replace(self._long(nodes, 120), replicas=replicas)

    def grouped(self, groups: int) -> RegionRun:
        """Figure 1, ours."""
        return replace(self._long(self.middle, 40), warm_s=20, groups=groups)

    def owned(self, groups: int) -> RegionRun:
        """Figure 1, its baseline. Many underlays share the rate of one: at a twentieth of it an engine would have one
        datagram or two in a second, and rates are whole numbers on the wire. So this is at full packet rate."""
        return replace(self._long(self.middle, 15), warm_s=10, groups=groups, underlays=groups, stands_for=1)

    def capture(self, nodes: int) -> RegionRun:
        """Figures 10 and 11."""
        seconds = max(SHORT_S, FULL_RECEPTIONS // (round(FIRST_RATE) * nodes))
        return replace(self._long(nodes, seconds), warm_s=2, stands_for=1)

    def divided(self, regions: int) -> RegionRun:
        """Figure 14."""
        return replace(self._long(self.middle, 60), regions=regions)

    def ticked(self, tokens_per_s: float) -> RegionRun:
        """Figure 15."""
        if tokens_per_s == 1.0:
            return self.scale(self.middle)
        return replace(self._long(self.middle, 120), tokens_per_s=tokens_per_s)

    def sent_by(self, senders: int) -> RegionRun:
        """Figure 16."""
        return replace(self._long(self.middle, 60), senders=senders)

    def large(self, nodes: int) -> RegionRun:
        """Beyond figure 9: the less the larger, since each second is as much more to simulate. A token that has to pass
        a thousand members meets twenty hiccups in each second, and what was lost would take minutes to be repaired
        among new ones: there, hiccups end with the sending."""
        run = replace(self._long(nodes, max(5, 6_000 // nodes)), warm_s=5, groups=self.many)
        return replace(run, calms=nodes >= CALM)

    def _long(self, nodes: int, seconds: int) -> RegionRun:
        seconds = max(1, round(seconds * self.length))
        return RegionRun(nodes, seconds, self.warm_s, first_rate=FIRST_RATE, growth=self.growth, seed=self.seed)

    def runs(self, figure: int) -> list[RegionRun]:
        match figure:
            case 1:
                return [*map(self.grouped, self.shared), *map(self.owned, self.own)]
            case 9:
                return [*map(self.scale, self.sizes), *map(self.large, self.beyond)]
            case 19 | 20:
                return list(map(self.scale, self.sizes))
            case 10 | 11:
                return list(map(self.capture, self.captured))
            case 12:
                return [*map(self.scale, self.sizes), *[self.partitioned(each, each) for each in self.undivided]]
            case 13:
                return [self.partitioned(self.middle, each) for each in self.replicas]
            case 14:
                return list(map(self.divided, self.regions))
            case 15:
                return list(map(self.ticked, self.tokens))
            case 16:
                return list(map(self.sent_by, self.senders))
            case 17 | 18:
                return [self.scale(each) for each in self.sizes if each > 1]
        raise UsageError(f"QSM's evaluation has no figure {figure}: it has {', '.join(map(str, FIGURES))}")


FULL: Final = QsmPlan()
QUICK: Final = QsmPlan(
    middle=10,
    largest=10,
    sizes=(2, 5, 10),
    shared=(1, 256),
    own=(1, 32),
    captured=(2,),
    undivided=(10,),
    replicas=(1, 5, 10),
    regions=(1, 2, 5),
    tokens=(0.2, 1.0, 5.0),
    senders=(1, 2, 5),
    beyond=(),
    length=0.25,
    warm_s=15,
)
POINTS: Final = QsmPlan(
    sizes=(2,),
    shared=(),
    own=(),
    captured=(),
    undivided=(),
    replicas=(),
    regions=(),
    tokens=(),
    senders=(),
    beyond=(),
)
"""A few runs of the full plan that take seconds."""


@dataclass(slots=True)
class QsmFigures:
    """All of it."""

    plan: QsmPlan
    figures: tuple[int, ...] = FIGURES
    found: dict[RegionRun, RegionFound] = field(default_factory=dict)

    @property
    def violations(self) -> int:
        return sum(each.violations for each in self.found.values())

    def is_whole(self, figure: int, runs: Iterable[RegionRun] | None = None) -> bool:
        """Whether all of a figure was measured, or these of its runs."""
        return figure in self.figures and all(run in self.found for run in runs or self.plan.runs(figure))

    def of(self, figure: int, runs: Iterable[RegionRun]) -> Found:
        """What was found, where the figure was asked for."""
        return [(run, self.found[run]) for run in runs if run in self.found] if figure in self.figures else []

    def shared(self) -> Found:
        """Figure 1: one underlay for all groups,"""
        return self.of(1, map(self.plan.grouped, self.plan.shared))

    def owned(self) -> Found:
        """and one for each."""
        return self.of(1, map(self.plan.owned, self.plan.own))

    def captured(self) -> Found:
        return self.of(10 if 10 in self.figures else 11, map(self.plan.capture, self.plan.captured))

    def by_size(self) -> Found:
        """Figures 9, 17 to 20, and the line of five replicas in figure 12."""
        runs = map(self.plan.scale, self.plan.sizes)
        return [(run, self.found[run]) for run in runs if run in self.found]

    def large(self) -> Found:
        return self.of(9, map(self.plan.large, self.plan.beyond))

    def undivided(self) -> Found:
        return self.of(12, [self.plan.partitioned(each, each) for each in self.plan.undivided])

    def by_replicas(self) -> Found:
        return self.of(13, [self.plan.partitioned(self.plan.middle, each) for each in self.plan.replicas])

    def by_regions(self) -> Found:
        return self.of(14, map(self.plan.divided, self.plan.regions))

    def by_tokens(self) -> Found:
        return self.of(15, map(self.plan.ticked, self.plan.tokens))

    def by_senders(self) -> Found:
        return self.of(16, map(self.plan.sent_by, self.plan.senders))


def qsm_figures(
    plan: QsmPlan = FULL,
    figures: Iterable[int] = FIGURES,
    jobs: int = 1,
    progress: Progress | None = None,
    kept: Path | None = None,
) -> QsmFigures:
    """Measure what the figures need, `jobs` runs side by side; the result does not depend on how many."""
    shown = tuple(sorted(set(figures)))
    wanted = dict.fromkeys([run for figure in shown for run in plan.runs(figure)])
    known = load(kept) if kept is not None else {}
    missing = [run for run in wanted if run not in known]
    done = len(wanted) - len(missing)
    # The longest first: with several processes the last one does not run alone for long. One process begins with what
    # takes least, so that a stop leaves most of it.
    missing.sort(key=_receptions, reverse=jobs > 1)
    for run, found, took_s in _measured(missing, jobs):
        known[run] = found
        done += 1
        if kept is not None:
            keep(kept, run, found)
        if progress is not None:
            what = f"{run.nodes} nodes, {run.seconds} s, {found.rate:,.0f} messages/s"
            progress(f"{done} of {len(wanted)} runs: {what}; took {took_s:.0f} s of a processor")
    return QsmFigures(plan, shown, {run: known[run] for run in wanted})


def _receptions(run: RegionRun) -> float:
    """About how many there are: what a run takes."""
    return (run.seconds + run.warm_s) * run.nodes * (run.first_rate / run.stands_for + 8 * max(1, run.underlays))


Timed = tuple[RegionRun, RegionFound, float]  # with the seconds of a processor that it took


def _measured(runs: list[RegionRun], jobs: int) -> Iterator[Timed]:
    if jobs == 1 or len(runs) < 2:
        yield from map(_timed, runs)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(runs))) as pool:
        yield from pool.imap_unordered(_timed, runs)


def _timed(run: RegionRun) -> Timed:
    begin_s = process_time()
    found = measure(run)
    return run, found, process_time() - begin_s


# What was measured before. --------------------------------------------------------------------------------------------


def keep(path: Path, run: RegionRun, found: RegionFound) -> None:
    """Append one run."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"run": asdict(run), "found": asdict(found)}) + "\n")


def load(path: Path) -> dict[RegionRun, RegionFound]:
    """All runs of a file; of none if it is not there. A line that was cut off is passed over."""
    known: dict[RegionRun, RegionFound] = {}
    if not path.exists():
        return known
    names = {each.name for each in fields(RegionRun)}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row["run"].keys() == names:
            known[RegionRun(**row["run"])] = RegionFound(**row["found"])
    return known
