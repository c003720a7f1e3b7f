"""Half-open ranges of message numbers: a row stands for many messages, and rows cut the same messages differently."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Range = tuple[int, int]


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Sorted, disjoint, touching ranges made one."""
    found: list[Range] = []
    for first, stop in sorted(ranges):
        if stop <= first:
            continue
        if found and first <= found[-1][1]:
            if stop > found[-1][1]:
                found[-1] = found[-1][0], stop
        else:
            found.append((first, stop))
    return found


def minus(whole: Iterable[Range], part: Iterable[Range]) -> list[Range]:
    """What of `whole` is not in `part`."""
    taken = merged(part)
    found: list[Range] = []
    at = 0
    for first, stop in merged(whole):
        while at < len(taken) and taken[at][1] <= first:
            at += 1
        here = at
        while here < len(taken) and taken[here][0] < stop:
            if taken[here][0] > first:
                found.append((first, taken[here][0]))
            first = max(first, taken[here][1])
            here += 1
        if first < stop:
            found.append((first, stop))
    return found


def size(ranges: Iterable[Range]) -> int:
    """How many numbers these disjoint ranges hold."""
    return sum(stop - first for first, stop in ranges)


def common_of(one: Range, spans: list[Range]) -> list[Range]:
    """What it has in common with these, which are merged."""
    at = max(bisect_right(spans, one[0], key=lambda span: span[0]) - 1, 0)
    found: list[Range] = []
    while at < len(spans) and spans[at][0] < one[1]:
        low, high = max(one[0], spans[at][0]), min(one[1], spans[at][1])
        if low < high:
            found.append((low, high))
        at += 1
    return found
