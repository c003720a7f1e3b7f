"""Sets of group numbers as half-open runs, without a bound: what the membership service and its nodes compute with.

A node in 100,000 groups has one run, or a few. (`parts/ranges.py` has sets that stay bounded, and are cut off for that:
a set of groups must not be.) A `Runs` is *normal*: its runs rise and do not touch each other, so that equal sets are
equal tuples. A *sequence* of runs is in any order: numbers in the order of the names that they stand for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Run = tuple[int, int]
Runs = tuple[Run, ...]

NOTHING: Runs = ()


def normal(runs: Iterable[Run]) -> Runs:
    """Runs in any order, which may touch or overlap."""
    out: list[Run] = []
    for first, stop in sorted(runs):
        if out and first <= out[-1][1]:
            if stop > out[-1][1]:
                out[-1] = (out[-1][0], stop)
        elif first < stop:
            out.append((first, stop))
    return tuple(out)


def sequence_of(numbers: Iterable[int]) -> Runs:
    """Numbers in their order, consecutive ones as one run."""
    out: list[Run] = []
    first = stop = -1
    for number in numbers:
        if number == stop:
            stop += 1
            continue
        if stop > first:
            out.append((first, stop))
        first, stop = number, number + 1
    if stop > first:
        out.append((first, stop))
    return tuple(out)


def numbers_of(runs: Runs) -> list[int]:
    return [number for first, stop in runs for number in range(first, stop)]


def size_of(runs: Runs) -> int:
    return sum([stop - first for first, stop in runs])


def union(one: Runs, other: Runs) -> Runs:
    if not other or one is other:
        return one
    return normal((*one, *other)) if one else other


def difference(one: Runs, other: Runs) -> Runs:
    """What is in `one` and not in `other`."""
    if not one or not other:
        return one
    if one is other:
        return NOTHING
    out: list[Run] = []
    at = 0
    for first, stop in one:
        while at < len(other) and other[at][1] <= first:
            at += 1
        index = at
        while index < len(other) and other[index][0] < stop:
            if other[index][0] > first:
                out.append((first, other[index][0]))
            first = max(first, other[index][1])
            index += 1
        if first < stop:
            out.append((first, stop))
    return tuple(out)


def intersection(one: Runs, other: Runs) -> Runs:
    if one is other:
        return one
    out: list[Run] = []
    at = index = 0
    while at < len(one) and index < len(other):
        first, stop = max(one[at][0], other[index][0]), min(one[at][1], other[index][1])
        if first < stop:
            out.append((first, stop))
        if one[at][1] < other[index][1]:
            at += 1
        else:
            index += 1
    found = tuple(out)
    return one if found == one else other if found == other else found  # sets that are equal share their memory


def touches(one: Runs, other: Runs) -> bool:
    """Whether two sets have a number in common."""
    if not one or not other:
        return False
    if one is other:
        return True
    at = index = 0
    while at < len(one) and index < len(other):
        if one[at][1] <= other[index][0]:
            at += 1
        elif other[index][1] <= one[at][0]:
            index += 1
        else:
            return True
    return False


def contains(runs: Runs, number: int) -> bool:
    at = bisect_right(runs, (number, 1 << 62)) - 1
    return at >= 0 and number < runs[at][1]
