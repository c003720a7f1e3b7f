"""One order of all views that suits every member, if there is one (TRACE.md property 5: views come in order)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ordercast.sim.checkers.index import Segment


def sort_views(lines: Iterable[list[Segment]]) -> dict[str, int]:
    """The place of each view in an order that keeps the order of every member; views that have none are left out."""
    after: dict[str, list[str]] = {}
    incoming: dict[str, int] = {}
    known: set[tuple[str, str]] = set()
    for segments in lines:
        for segment in segments:
            incoming.setdefault(segment.view, 0)
        for left, right in pairwise(segments):
            if (left.view, right.view) not in known and left.view != right.view:
                known.add((left.view, right.view))
                after.setdefault(left.view, []).append(right.view)
                incoming[right.view] += 1
    ready = [view for view, count in incoming.items() if count == 0]
    rank: dict[str, int] = {}
    while ready:
        view = ready.pop()
        rank[view] = len(rank)
        for follower in after.get(view, ()):
            incoming[follower] -= 1
            if incoming[follower] == 0:
                ready.append(follower)
    return rank
