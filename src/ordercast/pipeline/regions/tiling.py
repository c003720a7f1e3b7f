"""Regions of a tiling while they are merged, on the driver: sets of groups as sorted arrays, and what they share.

Groups are numbered from the rarest to the most common. So the array of a region begins with what few others have, and a
partner for it is looked for under its first groups only (prefix filtering of similarity joins): two regions that may be
merged at all, within the limit of waste, share enough that their rarest common group is among the first of both. A
limit of 10 % leaves about a ninth of the groups to look under, and the rare ones.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOTHING: Final = -1
MOST_PARTNERS: Final = 128
"""Under one group, a region is compared with so many others whose rates are nearest to its own on each side."""

LEAST_PARTNERS: Final = 8  # however many regions there are
MOST_COMPARED: Final = 200_000_000
"""Comparisons of a round. Where regions are many, or the limit of waste is loose, each has fewer partners."""

CHUNK: Final = 4_000_000  # groups that are looked up at a time
EPSILON: Final = 1e-9  # rates are sums of floats


class Tiling:
    """Regions by number. A merge makes a new one, with the next number, of two that are then gone."""

    __slots__ = (
        "counts",
        "groups",
        "is_live",
        "keeps",
        "keys",
        "least",
        "parents",
        "prefixes",
        "rates",
        "rates_of_groups",
        "settled",
        "sizes",
        "starts",
        "waste",
    )

    def __init__(self, rates_of_groups: Floats, waste: float) -> None:
        self.rates_of_groups = rates_of_groups
        self.waste = waste
        # Of each region:
        self.sizes = _ints()
        self.rates = _floats()  # of all its groups together
        self.least = _floats()  # of what the node that wants least of it wants
        self.keeps = _ints()  # the region of the previous plan whose number and address it has
        self.settled = _ints()  # nodes that were in that one
        self.parents = _ints()  # the region that it was merged into
        self.is_live: Flags = np.zeros(0, dtype=np.bool_)
        # Its groups: `groups[start : start + count]`. `keys` are (region, group) as one number, rising.
        self.starts, self.counts, self.prefixes = _ints(), _ints(), _ints()
        self.groups, self.keys = _ints(), _ints()

    def add(self, sets: list[Ints], sizes: list[int], least: list[float], keeps: list[int], settled: list[int]) -> Ints:
        """New regions with these groups (sorted); their numbers."""
        first, known = len(self.sizes), len(self.groups)
        numbers = np.arange(first, first + len(sets), dtype=np.int64)
        if not sets:
            return numbers
        counts = np.array([len(one) for one in sets], dtype=np.int64)
        flat = np.concatenate(sets).astype(np.int64)
        rates = np.array([float(self.rates_of_groups[one].sum()) for one in sets])
        self.sizes = np.concatenate([self.sizes, np.array(sizes, dtype=np.int64)])
        self.rates = np.concatenate([self.rates, rates])
        self.least = np.concatenate([self.least, np.array(least, dtype=np.float64)])
        self.keeps = np.concatenate([self.keeps, np.array(keeps, dtype=np.int64)])
        self.settled = np.concatenate([self.settled, np.array(settled, dtype=np.int64)])
        self.parents = np.concatenate([self.parents, np.full(len(sets), NOTHING, dtype=np.int64)])
        self.is_live = np.concatenate([self.is_live, np.ones(len(sets), dtype=np.bool_)])
        self.starts = np.concatenate([self.starts, known + np.cumsum(counts) - counts])
        self.counts = np.concatenate([self.counts, counts])
        lengths = [self._prefix(one, rate, low) for one, rate, low in zip(sets, rates, least, strict=True)]
        self.prefixes = np.concatenate([self.prefixes, np.array(lengths, dtype=np.int64)])
        self.groups = np.concatenate([self.groups, flat])
        self.keys = np.concatenate([self.keys, np.repeat(numbers, counts) * self._width + flat])
        return numbers

    def set_of(self, region: int) -> Ints:
        """Its groups."""
        start = self.starts[region]
        return self.groups[start : start + self.counts[region]]

    def merge(self, pairs: list[tuple[int, int]]) -> Ints:
        """Each pair becomes one region; their numbers."""
        sets, sizes, least, keeps, settled = [], [], [], [], []
        for one, other in pairs:
            sets.append(np.union1d(self.set_of(one), self.set_of(other)))
            sizes.append(int(self.sizes[one] + self.sizes[other]))
            least.append(float(min(self.least[one], self.least[other])))
            stays = one if self.settled[one] >= self.settled[other] else other
            keeps.append(int(self.keeps[stays]))
            settled.append(int(self.settled[stays]))
        made = self.add(sets, sizes, least, keeps, settled)
        for (one, other), new in zip(pairs, made, strict=True):
            self.parents[[one, other]] = new
            self.is_live[[one, other]] = False
        return made

    def roots(self) -> Ints:
        """The live region that each region has become part of."""
        found = np.where(self.parents == NOTHING, np.arange(len(self.parents)), self.parents)
        while True:
            further = found[found]
            if np.array_equal(further, found):
                return found
            found = further

    def candidates(self, fresh: Flags, is_open: Flags, most_size: int) -> tuple[Ints, Ints]:
        """Pairs of live regions that share a group, may be one within the limits, and of which one is fresh."""
        live = np.flatnonzero(self.is_live & is_open)
        owners = np.repeat(live, self.prefixes[live])
        places = _within(self.prefixes[live]) + np.repeat(self.starts[live], self.prefixes[live])
        groups = self.groups[places]
        is_touched = np.zeros(self._width, dtype=np.bool_)
        is_touched[groups[fresh[owners]]] = True
        chosen = is_touched[groups]
        groups, owners = groups[chosen], owners[chosen]
        order = np.lexsort((owners, self.rates[owners], groups))
        groups, owners = groups[order], owners[order]
        found: list[Ints] = [_ints()]
        partners = max(LEAST_PARTNERS, min(MOST_PARTNERS, MOST_COMPARED // max(1, len(owners))))
        for distance in range(1, partners + 1):
            same = groups[:-distance] == groups[distance:]
            if not same.any():
                break
            one, other = owners[:-distance][same], owners[distance:][same]
            fits = (fresh[one] | fresh[other]) & (self.sizes[one] + self.sizes[other] <= most_size)
            # The larger rate is that of the union at least: who wants least must want enough of it.
            most = np.maximum(self.rates[one], self.rates[other])
            fits &= most * (1 - self.waste) <= np.minimum(self.least[one], self.least[other]) * (1 + EPSILON)
            one, other = one[fits], other[fits]
            found.append(np.unique(np.minimum(one, other) * len(self.sizes) + np.maximum(one, other)))
        pairs = np.unique(np.concatenate(found))
        return pairs // max(1, len(self.sizes)), pairs % max(1, len(self.sizes))

    def shared(self, one: Ints, other: Ints) -> Floats:
        """The rate of the groups that both regions of each pair have."""
        swap = self.counts[one] > self.counts[other]
        few, many = np.where(swap, other, one), np.where(swap, one, other)
        total: Floats = np.zeros(len(one))
        ends = np.cumsum(self.counts[few])
        at = 0
        while at < len(few):
            before = ends[at - 1] if at else 0
            stop = max(at + 1, int(np.searchsorted(ends, before + CHUNK, side="right")))
            total[at:stop] = self._shared(few[at:stop], many[at:stop])
            at = stop
        return total

    def fits(self, one: Ints, other: Ints, shared: Floats) -> Flags:
        """Whether nobody would waste more than the limit."""
        union = self.rates[one] + self.rates[other] - shared
        least = np.minimum(self.least[one], self.least[other])
        fits: Flags = union * (1 - self.waste) <= least + EPSILON * union
        return fits

    @property
    def _width(self) -> int:
        return len(self.rates_of_groups)

    def _shared(self, few: Ints, many: Ints) -> Floats:
        counts = self.counts[few]
        groups = self.groups[_within(counts) + np.repeat(self.starts[few], counts)]
        wanted = np.repeat(many, counts) * self._width + groups
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        rates = np.where(self.keys[places] == wanted, self.rates_of_groups[groups], 0.0)
        sums: Floats = np.add.reduceat(rates, np.cumsum(counts) - counts)
        return sums

    def _prefix(self, groups: Ints, rate: float, least: float) -> int:
        """Under how many of its rarest groups it must be looked for: those from which on the rest is shared enough."""
        if self.waste >= 1:
            return len(groups)
        enough = (rate - self.waste * least / (1 - self.waste)) * (1 - EPSILON) - EPSILON
        rest = np.cumsum(self.rates_of_groups[groups][::-1])[::-1]
        return int(np.count_nonzero(rest >= enough))


def _within(counts: Ints) -> Ints:
    """0, 1, 2, … for each of these counts, one after the other."""
    ends = np.cumsum(counts)
    total: Ints = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) - np.repeat(ends - counts, counts)
    return total


def _ints() -> Ints:
    return np.zeros(0, dtype=np.int64)


def _floats() -> Floats:
    return np.zeros(0, dtype=np.float64)


def as_ints(values: Any) -> Ints:
    """An array of 64-bit numbers."""
    return np.asarray(values, dtype=np.int64)
