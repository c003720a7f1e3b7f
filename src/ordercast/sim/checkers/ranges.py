"""Half-open ranges of message numbers, the unit in which the checkers think.

A trace row stands for up to 500 messages (docs/trace.md), and different rows cut the same messages differently, so no
checker may look at single messages: each works on sorted, disjoint, merged lists of `(first, stop)`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Range = tuple[int, int]


class RangeSet:
    """A growing set of numbers as two sorted lists. Nearly every `add` continues the last range: that comes first."""

    __slots__ = ("firsts", "stops")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.stops: list[int] = []

    def add(self, first: int, stop: int) -> Range | None:
        """Add `[first, stop)`; return the first stretch that was there before, or None."""
        stops = self.stops
        if not stops or first > stops[-1]:
            self.firsts.append(first)
            stops.append(stop)
            return None
        if first == stops[-1]:
            stops[-1] = stop
            return None
        return self._insert(first, stop)

    def _insert(self, first: int, stop: int) -> Range | None:
        firsts, stops = self.firsts, self.stops
        low = bisect_left(stops, first)  # the first range that touches [first, stop)
        high = bisect_right(firsts, stop)  # one past the last that touches it
        seen: Range | None = None
        for index in range(low, high):
            begin, end = max(firsts[index], first), min(stops[index], stop)
            if begin < end:
                seen = (begin, end)
                break
        if low < high:
            first, stop = min(first, firsts[low]), max(stop, stops[high - 1])
        firsts[low:high] = [first]
        stops[low:high] = [stop]
        return seen

    def ranges(self) -> list[Range]:
        """The set as a list of disjoint ranges in rising order."""
        return list(zip(self.firsts, self.stops, strict=True))

    def missing(self, first: int, stop: int) -> list[Range]:
        """What of `[first, stop)` is not in the set."""
        firsts, stops = self.firsts, self.stops
        index = bisect_right(stops, first)
        gaps: list[Range] = []
        while first < stop and index < len(firsts):
            begin = firsts[index]
            if begin >= stop:
                break
            if begin > first:
                gaps.append((first, begin))
            first = stops[index]
            index += 1
        if first < stop:
            gaps.append((first, stop))
        return gaps


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Sorted, with touching and overlapping ranges made one."""
    result: list[Range] = []
    last_first, last_stop = -1, -1
    for first, stop in sorted(ranges):
        if result and first <= last_stop:
            if stop > last_stop:
                last_stop = stop
                result[-1] = (last_first, stop)
        else:
            last_first, last_stop = first, stop
            result.append((first, stop))
    return result


def subtract(whole: list[Range], part: list[Range]) -> list[Range]:
    """What of `whole` is not in `part`; both sorted and disjoint. Linear in both."""
    if whole == part:
        return []
    result: list[Range] = []
    index, size = 0, len(part)
    for first, stop in whole:
        while index < size and part[index][1] <= first:
            index += 1
        at = index
        while at < size and part[at][0] < stop:
            begin, end = part[at]
            if begin > first:
                result.append((first, begin))
            first = max(first, end)
            at += 1
        if first < stop:
            result.append((first, stop))
    return result


def size_of(ranges: Iterable[Range]) -> int:
    """How many numbers the ranges hold."""
    return sum(stop - first for first, stop in ranges)
