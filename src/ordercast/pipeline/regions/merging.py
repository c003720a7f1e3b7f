"""Merging regions while that is a gain, on the driver (docs/design/planner.md, "Merging").

gain(A, B) = send * (rates of the groups in both) + token - recv * (|A| * rates of B without A + |B| * rates of A
without B). A *round* merges all pairs of which each is the other's best partner; rounds end when no pair is a gain. The
best pair of all is such a pair, so every round but the last merges something.

With a previous plan every unit begins in the region where it was. What breaks a limit there goes out, then rounds
follow. A node that ends elsewhere than it was is a *move*, and moves have a budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from ordercast.pipeline.regions.costs import PlanCosts, PlanLimits
from ordercast.pipeline.regions.tiling import EPSILON, NOTHING, Flags, Floats, Ints, Tiling, as_ints

UNLIMITED: Final = 1 << 62
MOST_TRIED: Final = 64  # units of a region of which the one that is best put out is chosen
SWEEP: Final = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Limits of waste for which the report shows how many regions would remain."""


class Units(NamedTuple):
    """Nodes that are planned together: those of one exact region (or a part of it) that were in one region before."""

    sizes: Ints
    sets: Sequence[Ints]  # numbers of groups, rising; no set is empty
    was: Ints  # region of the previous plan, or NOTHING
    rates: Floats  # of each group
    # Units that were merged before, on Spark: what their nodes want on average, and the one that wants least.
    wanted: Floats | None = None
    least: Floats | None = None


class Merged(NamedTuple):
    """A tiling. `regions` has, for each unit, the number of its region: 0, 1, 2, …"""

    regions: Ints
    keeps: list[int]  # for each region: the number that it had in the previous plan, or NOTHING
    moves: int
    steps: list[tuple[int, float]]  # after each round: regions, waste over all nodes
    over: int  # nodes that waste more than the limit, because the budget of moves was spent


def merge(units: Units, costs: PlanCosts, limits: PlanLimits, budget: int = UNLIMITED) -> Merged:
    """The plan for these units."""
    ranked = _ranked(units)
    wanted: Floats = np.array([float(ranked.rates[one].sum()) for one in ranked.sets])
    least = wanted if units.least is None else units.least
    wanted = wanted if units.wanted is None else units.wanted
    homes, keeps, moves = _first_homes(ranked, limits, budget)
    tiling = Tiling(ranked.rates, limits.waste)
    _fill(tiling, ranked, least, homes, keeps)
    rounds = _Rounds(tiling, costs, limits, budget - moves)
    merging = chain((0,), rounds.gains(), rounds.for_addresses())
    steps = [_state(ranked.sizes, wanted, tiling, homes) for _ in merging]
    roots = tiling.roots()[homes]
    live, numbers = np.unique(roots, return_inverse=True)
    # Numbers go by the first unit of a region, so that they do not depend on how it came together.
    firsts = np.full(len(live), len(roots), dtype=np.int64)
    np.minimum.at(firsts, numbers, np.arange(len(roots)))
    order = np.argsort(firsts, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    received = tiling.rates[roots]
    is_over = received * (1 - limits.waste) > least + EPSILON * received
    kept = [int(tiling.keeps[one]) for one in live[order]]
    return Merged(as_ints(place[numbers]), kept, budget - rounds.budget, steps, int(ranked.sizes[is_over].sum()))


def sweep(units: Units, costs: PlanCosts, limits: PlanLimits) -> list[tuple[float, int, float]]:
    """For each limit of waste: limit, regions, waste over all nodes. Without a previous plan, and without addresses."""
    fresh = units._replace(was=np.full(len(units.sizes), NOTHING, dtype=np.int64))
    found = []
    for waste in SWEEP:
        steps = merge(fresh, costs, PlanLimits(UNLIMITED, limits.size, waste)).steps
        found.append((waste, *steps[-1]))
    return found


def gain_of(costs: PlanCosts, sizes: tuple[Ints, Ints], rates: tuple[Floats, Floats], shared: Floats) -> Floats:
    """What each pair gains."""
    extra = sizes[0] * (rates[1] - shared) + sizes[1] * (rates[0] - shared)
    gain: Floats = costs.send * shared + costs.token - costs.recv * extra
    return gain


class _Rounds:
    """Rounds of mutual-best pairs over one tiling. Pairs that are a gain are kept from round to round."""

    __slots__ = ("budget", "costs", "limits", "tiling")

    def __init__(self, tiling: Tiling, costs: PlanCosts, limits: PlanLimits, budget: int) -> None:
        self.tiling, self.costs, self.limits, self.budget = tiling, costs, limits, budget

    def gains(self) -> Iterator[int]:
        """Merge while there is a gain; after each round, how many were merged."""
        everybody = np.ones_like(self.tiling.is_live)
        pairs = self._pairs(everybody, everybody, 0.0)
        while True:
            made = self._merge_best(pairs, UNLIMITED)
            if not len(made):
                return
            yield len(made)
            fresh = np.zeros_like(self.tiling.is_live)
            fresh[made] = True
            pairs = _Pairs.together(pairs.among(self.tiling.is_live), self._pairs(fresh, np.ones_like(fresh), 0.0))

    def for_addresses(self) -> Iterator[int]:
        """Merge regions of several nodes, as cheaply as can be, while there are more of them than addresses."""
        while True:
            several = self.tiling.is_live & (self.tiling.sizes > 1)
            missing = int(np.count_nonzero(several)) - self.limits.addresses
            if missing <= 0:
                return
            made = self._merge_best(self._pairs(several, several, -np.inf), missing)
            if not len(made):
                return
            yield len(made)

    def _pairs(self, fresh: Flags, is_open: Flags, floor: float) -> _Pairs:
        tiling = self.tiling
        one, other = tiling.candidates(fresh, is_open, self.limits.size)
        shared = tiling.shared(one, other)
        rates, sizes = (tiling.rates[one], tiling.rates[other]), (tiling.sizes[one], tiling.sizes[other])
        gains = gain_of(self.costs, sizes, rates, shared)
        chosen = tiling.fits(one, other, shared) & (gains > floor)
        return _Pairs(one[chosen], other[chosen], gains[chosen])

    def _merge_best(self, pairs: _Pairs, most: int) -> Ints:
        """Merge pairs that are best for both, the best first, within the budget; the new regions."""
        tiling = self.tiling
        moves = np.minimum(tiling.settled[pairs.one], tiling.settled[pairs.other])
        pairs = pairs.where(moves <= self.budget)
        order = np.lexsort((pairs.other, pairs.one, -pairs.gains))
        one, other = pairs.one[order], pairs.other[order]
        places = np.arange(len(order))
        best = np.full(len(tiling.sizes), len(order), dtype=np.int64)
        np.minimum.at(best, one, places)
        np.minimum.at(best, other, places)
        chosen: list[tuple[int, int]] = []
        for place in np.flatnonzero((best[one] == places) & (best[other] == places)):
            pair = (int(one[place]), int(other[place]))
            cost = int(min(tiling.settled[pair[0]], tiling.settled[pair[1]]))
            if cost <= self.budget and len(chosen) < most:
                chosen.append(pair)
                self.budget -= cost
        return tiling.merge(chosen)


class _Pairs(NamedTuple):
    """Pairs of regions with what merging them gains."""

    one: Ints
    other: Ints
    gains: Floats

    def where(self, chosen: Flags) -> _Pairs:
        return _Pairs(self.one[chosen], self.other[chosen], self.gains[chosen])

    def among(self, is_live: Flags) -> _Pairs:
        return self.where(is_live[self.one] & is_live[self.other])

    @classmethod
    def together(cls, some: _Pairs, others: _Pairs) -> _Pairs:
        return cls(*(np.concatenate(both) for both in zip(some, others, strict=True)))


def _ranked(units: Units) -> Units:
    """The same with groups numbered from the rarest on."""
    counts = np.zeros(len(units.rates), dtype=np.int64)
    for one in units.sets:
        counts[one] += 1
    order = np.argsort(counts, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return units._replace(sets=[np.sort(rank[one]) for one in units.sets], rates=units.rates[order])


def _first_homes(units: Units, limits: PlanLimits, budget: int) -> tuple[Ints, list[int], int]:
    """The region in which each unit begins, what each of these regions was, and how many nodes had to go out."""
    homes = np.full(len(units.sizes), NOTHING, dtype=np.int64)
    keeps: list[int] = []
    moves = 0
    for members in _split(units.was):
        if units.was[members[0]] == NOTHING:
            continue
        inside = [int(unit) for unit in members]
        for unit in _put_out(units, inside, limits, budget - moves):
            inside.remove(unit)
            moves += int(units.sizes[unit])
        homes[inside] = len(keeps)
        keeps.append(int(units.was[members[0]]))
    alone = np.flatnonzero(homes == NOTHING)
    homes[alone] = np.arange(len(keeps), len(keeps) + len(alone))
    return homes, keeps + [NOTHING] * len(alone), moves


def _put_out(units: Units, members: list[int], limits: PlanLimits, budget: int) -> list[int]:
    """Units that leave their region so that the rest keeps the limits. Fewest nodes for the most effect come first."""
    inside = list(members)
    gone: list[int] = []
    rates = {unit: float(units.rates[units.sets[unit]].sum()) for unit in members}

    def faults(of: list[int]) -> int:
        """Nodes that waste too much, or are too many."""
        if not of:
            return 0
        union = float(units.rates[np.unique(np.concatenate([units.sets[unit] for unit in of]))].sum())
        wasting = sum(int(units.sizes[unit]) for unit in of if is_waste(union, rates[unit], limits.waste))
        return wasting + max(0, sum(int(units.sizes[unit]) for unit in of) - limits.size)

    bad = faults(inside)
    while bad and len(inside) > 1:
        by_size = sorted(inside, key=lambda unit: (int(units.sizes[unit]), rates[unit], unit))
        tried = by_size if len(inside) <= MOST_TRIED else [*by_size[: MOST_TRIED // 2], *by_size[-MOST_TRIED // 2 :]]
        best: tuple[float, int] | None = None
        for unit in tried:
            size = int(units.sizes[unit])
            better = bad - faults([one for one in inside if one != unit])
            if size <= budget and better > 0 and (best is None or better / size > best[0]):
                best = (better / size, unit)
        if best is None:
            return gone
        inside.remove(best[1])
        gone.append(best[1])
        budget -= int(units.sizes[best[1]])
        bad = faults(inside)
    return gone


def is_waste(received: float, wanted: float, limit: float) -> bool:
    """Whether more than the limit of what is received is unwanted."""
    return received * (1 - limit) > wanted + EPSILON * received


def _fill(tiling: Tiling, units: Units, least: Floats, homes: Ints, keeps: list[int]) -> None:
    sets, sizes, lows = [], [], []
    for members in _split(homes):  # in the order of their numbers
        sets.append(np.unique(np.concatenate([units.sets[unit] for unit in members])))
        sizes.append(int(units.sizes[members].sum()))
        lows.append(float(least[members].min()))
    settled = [0 if was == NOTHING else size for was, size in zip(keeps, sizes, strict=True)]
    tiling.add(sets, sizes, lows, keeps, settled)


def _split(values: Ints) -> list[Ints]:
    """The places of each value, by rising values."""
    order = np.argsort(values, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1) if len(order) else []


def _state(sizes: Ints, wanted: Floats, tiling: Tiling, homes: Ints) -> tuple[int, float]:
    """How many regions there are, and the waste over all nodes."""
    roots = tiling.roots()[homes]
    received = float((sizes * tiling.rates[roots]).sum())
    waste = max(0.0, (received - float((sizes * wanted).sum())) / received) if received else 0.0
    return len(np.unique(roots)), waste
