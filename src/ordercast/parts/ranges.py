"""Sets of numbers as runs: union, intersection and difference that stay bounded (QSM section 2.3.3).

"Nodes are only allowed to report a limited number of NAK ranges, which requires additional handling when calculating
NAKs, pull and push requests." The handling is the *limit* of a set: below it the set is exact, beyond it nothing is
said. A set with too many runs keeps the lowest ones, since what is missing longest is repaired first, and gets a limit.
Every operation is exact below the lower limit of its operands and says nothing beyond. (To keep all that an operation
can still prove beyond a limit was rejected: what a set does not say would then depend on how it was made.)

Segments are numbered `block * 256 + segment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ordercast.errors import InvariantViolation
from ordercast.wire.header import MAX_SEGMENTS
from ordercast.wire.ranges import EMPTY, MAX_RUN, MAX_RUNS, NO_LIMIT, NumberSet, Run

__all__ = [
    "EMPTY",
    "NumberSet",
    "blocks_of",
    "contains",
    "difference",
    "from_numbers",
    "from_runs",
    "intersection",
    "members_of",
    "pieces_of",
    "segments_of_blocks",
    "size_of",
    "truncated",
    "union",
]

NO_MORE: Final = 1 << 62  # beyond every number


# Making sets. --------------------------------------------------------------------------------------------------------


def from_numbers(numbers: Iterable[int], most: int = MAX_RUNS) -> NumberSet:
    """Rising numbers, in any multiplicity. It reads no more of them than it takes to know that they are too many."""
    runs: list[Run] = []
    for number in numbers:
        if runs and number < runs[-1][1]:
            if number < runs[-1][1] - 1:
                raise InvariantViolation(f"{number} follows {runs[-1][1] - 1} in a list of rising numbers")
            continue
        if runs and number == runs[-1][1]:
            runs[-1] = (runs[-1][0], number + 1)
        elif len(runs) > most:
            break  # one more than may stay tells where the limit is
        else:
            runs.append((number, number + 1))
    return truncated(NumberSet(tuple(runs)), most)


def from_runs(runs: Iterable[Run], limit: int = NO_LIMIT, most: int = MAX_RUNS) -> NumberSet:
    """Runs in any order, which may touch or overlap; empty ones are left out, and what is not below the limit."""
    joined: list[Run] = []
    for first, stop in sorted(runs):
        stop = min(stop, limit)
        if first >= stop:
            continue
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((first, stop))
    return truncated(NumberSet(tuple(joined), limit), most)


def segments_of_blocks(blocks: NumberSet) -> NumberSet:
    """All segments that blocks may have: of a block that has not come at all, nobody knows how many there are."""
    runs = tuple([(first * MAX_SEGMENTS, stop * MAX_SEGMENTS) for first, stop in blocks.runs])
    return truncated(NumberSet(runs, min(blocks.limit * MAX_SEGMENTS, NO_LIMIT)), MAX_RUNS)


# Operations. ---------------------------------------------------------------------------------------------------------


def union(one: NumberSet, other: NumberSet, most: int = MAX_RUNS) -> NumberSet:
    return from_runs(one.runs + other.runs, min(one.limit, other.limit), most)


def intersection(one: NumberSet, other: NumberSet, most: int = MAX_RUNS) -> NumberSet:
    return _swept(one, other, lambda is_in_one, is_in_other: is_in_one and is_in_other, most)


def difference(one: NumberSet, other: NumberSet, most: int = MAX_RUNS) -> NumberSet:
    """What is in the first and not in the second."""
    return _swept(one, other, lambda is_in_one, is_in_other: is_in_one and not is_in_other, most)


def truncated(numbers: NumberSet, most: int) -> NumberSet:
    """The lowest runs of a set, with a limit where the first run that is left out begins; the set itself if it is short
    enough. A run that is too long for the wire ends the set as well."""
    runs, limit = numbers
    for index, (first, stop) in enumerate(runs):
        if index == most:
            return NumberSet(runs[:most], first)
        if stop - first > MAX_RUN:
            cut = first + MAX_RUN
            return NumberSet((*runs[:index], (first, cut)), cut)
    return NumberSet(runs, limit)


def _swept(one: NumberSet, other: NumberSet, keeps: Callable[[bool, bool], bool], most: int) -> NumberSet:
    """Goes through the edges of both sets, in order: each edge enters or leaves one of them."""
    limit = min(one.limit, other.limit)
    left = [edge for run in one.runs for edge in run]
    right = [edge for run in other.runs for edge in run]
    runs: list[Run] = []
    begin = -1  # of the run that is open
    i = j = 0
    while i < len(left) or j < len(right):
        at = min(left[i] if i < len(left) else NO_MORE, right[j] if j < len(right) else NO_MORE)
        if at >= limit:
            break
        i += i < len(left) and left[i] == at
        j += j < len(right) and right[j] == at
        is_in = keeps(i % 2 == 1, j % 2 == 1)
        if is_in and begin < 0:
            begin = at
        elif not is_in and begin >= 0:
            runs.append((begin, at))
            begin = -1
    if begin >= 0:
        runs.append((begin, limit))
    return truncated(NumberSet(tuple(runs), limit), most)


# Questions. ----------------------------------------------------------------------------------------------------------


def contains(numbers: NumberSet, number: int) -> bool:
    """Whether a number is known to be in the set."""
    low, high = 0, len(numbers.runs)
    while low < high:
        middle = (low + high) // 2
        first, stop = numbers.runs[middle]
        if number < first:
            high = middle
        elif number >= stop:
            low = middle + 1
        else:
            return True
    return False


def size_of(numbers: NumberSet) -> int:
    """How many numbers are known to be in it."""
    return sum([stop - first for first, stop in numbers.runs])


def members_of(numbers: NumberSet, most: int) -> Iterator[int]:
    """The lowest numbers of a set, at most so many: a run from the wire may name four billion."""
    for first, stop in numbers.runs:
        stop = min(stop, first + most)
        yield from range(first, stop)
        most -= stop - first
        if most <= 0:
            return


def blocks_of(segments: NumberSet) -> NumberSet:
    """The blocks of which a segment is in the set. Of a block that the limit cuts nothing is known."""
    limit = NO_LIMIT if not segments.is_truncated else segments.limit // MAX_SEGMENTS
    runs = [(first // MAX_SEGMENTS, -(-stop // MAX_SEGMENTS)) for first, stop in segments.runs]
    return from_runs(runs, limit)


def pieces_of(segments: NumberSet, block: int, count: int) -> tuple[Run, ...]:
    """Which segments of a block that has `count` of them are in the set, as runs of segment numbers."""
    first, stop = block * MAX_SEGMENTS, block * MAX_SEGMENTS + count
    low, high = 0, len(segments.runs)
    while low < high:
        middle = (low + high) // 2
        if segments.runs[middle][1] <= first:
            low = middle + 1
        else:
            high = middle
    found = []
    for begin, end in segments.runs[low:]:
        if begin >= stop:
            break
        found.append((max(begin, first) - first, min(end, stop) - first))
    return tuple(found)
