"""Names, numbers and regions of the groups that a node is in or sends to (`NumberedGroups`).

Two dictionaries for names and numbers. Regions are kept as runs of numbers, so that 100,000 groups of one region are
one run; which regions a group covers is looked up in the pieces that the runs of all regions cut the numbers into.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ordercast.orderers.regions.given import GivenEpoch
from ordercast.parts.runs import NOTHING, Runs, difference, union


class NumberTable:
    __slots__ = ("_groups", "_names", "_numbers", "_pieces", "_starts", "_views")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._views: dict[int, int] = {}  # region -> its view
        self._groups: dict[int, Runs] = {}  # region -> its groups, as far as this node has to know them
        # made of `_groups` when they are asked for: from each start on, up to the next
        self._starts: list[int] | None = None
        self._pieces: list[tuple[int, ...]] = []

    # NumberedGroups

    def number(self, name: str) -> int:
        return self._numbers.get(name, 0)

    def name(self, number: int) -> str:
        return self._names.get(number, "")

    def regions(self, number: int) -> tuple[int, ...]:
        if self._starts is None:
            self._cut()
        starts = self._starts or []
        at = bisect_right(starts, number) - 1
        return self._pieces[at] if at >= 0 else ()

    # What the service tells.

    def learn(self, names: Iterable[str], numbers: Iterable[int]) -> None:
        pairs = list(zip(names, numbers, strict=True))
        self._numbers.update(pairs)
        self._names.update([(number, name) for name, number in pairs])

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            number = self._numbers.pop(name, 0)
            self._names.pop(number, None)

    def install(self, epoch: GivenEpoch) -> None:
        """What an epoch changes. A region without a view that holds has no groups."""
        if epoch.is_whole:
            self._views.clear()
            self._groups.clear()
        ended = set(epoch.ended)
        for region in [region for region, view in self._views.items() if view in ended]:
            del self._views[region]
        for view in epoch.views:
            if view.view not in ended:
                self._views[view.region] = view.view
        for changed in epoch.groups:
            known = self._groups.get(changed.region, NOTHING)
            self._groups[changed.region] = difference(union(known, changed.added), changed.removed)
        for region in [region for region in self._groups if region not in self._views]:
            del self._groups[region]
        if epoch.groups or epoch.ended or epoch.is_whole:
            self._starts = None

    def clear(self) -> None:
        """Another service has other numbers."""
        self._numbers.clear()
        self._names.clear()
        self.clear_regions()

    def clear_regions(self) -> None:
        self._views.clear()
        self._groups.clear()
        self._starts = None

    def _cut(self) -> None:
        """One sweep over the ends of all runs."""
        changes: dict[int, list[tuple[int, bool]]] = {}
        for region, runs in self._groups.items():
            for first, stop in runs:
                changes.setdefault(first, []).append((region, True))
                changes.setdefault(stop, []).append((region, False))
        self._starts, self._pieces = sorted(changes), []
        inside: set[int] = set()
        shared: dict[tuple[int, ...], tuple[int, ...]] = {}
        for start in self._starts:
            for region, is_in in changes[start]:
                if not is_in:
                    inside.discard(region)
            inside.update([region for region, is_in in changes[start] if is_in])
            piece = tuple(sorted(inside))
            self._pieces.append(shared.setdefault(piece, piece))
