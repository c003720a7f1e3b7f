"""Views as a history: one order of all of them (TRACE.md property 5), and whether it forked.

A group that only a majority may continue has one line of views. A *recovery* is a view that some member came to through
a `transitional`: what failures lead to. Of two recoveries with a common ancestor one must be an ancestor of the other,
or two parts of the group went on side by side. Views without a failure between prove nothing: a member that a failure
leaves behind may have delivered a join that the others never knew of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from ordercast.config import MinMembers
from ordercast.sim.checkers.index import FOREVER, Segment

Rules = MinMembers | str | Mapping[str, MinMembers]
"""What members asked for when they joined: one rule for all, or one for each node by its name."""


class Fork(NamedTuple):
    """Two recoveries, each with the view that it followed and who came with it from there."""

    ancestor: str  # the latest view that both have behind them
    left: Segment
    right: Segment


def rule_of(rules: Rules, member: str) -> MinMembers | str:
    """What the member `name/life` asked for; the default where nobody says."""
    if isinstance(rules, Mapping):
        return rules.get(member.rpartition("/")[0], "majority")
    return rules


def may_go_on(members: tuple[str, ...], present: list[str], rules: Rules) -> bool:
    """Whether those present are enough of a view by what each of its members asked for (RMP section 4.4)."""
    for rule in {rule_of(rules, member) for member in members}:
        if rule == "all":
            enough = len(present) >= len(members)
        elif isinstance(rule, int):
            enough = len(present) >= min(rule, len(members))
        else:
            enough = 2 * len(present) > len(members) or (2 * len(present) == len(members) and members[0] in present)
        if not enough:
            return False
    return True


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


def recoveries(lines: Iterable[list[Segment]]) -> list[Segment]:
    """One segment for each view that followed a failure, in the order of the members."""
    found: dict[str, Segment] = {}
    for segments in lines:
        for segment in segments:
            if segment.prev is not None and segment.prev.transitional_n < FOREVER:
                found.setdefault(segment.view, segment)
    return list(found.values())


def forks(lines: list[list[Segment]], rules: Rules) -> list[Fork]:
    """Pairs of recoveries that went on side by side where the rules leave room for one: the first of each branch."""
    before = _before(lines)
    rank = sort_views(lines)
    ends = [
        (segment, _line(before, segment.view))
        for segment in recoveries(lines)
        if segment.prev is not None and _is_strict(segment.prev.members, rules)
    ]
    ends.sort(key=lambda end: (rank.get(end[0].view, -1), end[0].view))
    found: list[Fork] = []
    for at, (right, right_line) in enumerate(ends):
        for left, left_line in ends[:at]:
            common = left_line & right_line
            if not common or left.view in right_line or right.view in left_line:
                continue
            branches = left_line ^ right_line
            if any(fork.left.view in branches and fork.right.view in branches for fork in found):
                continue  # of a fork that was found before
            found.append(Fork(max(common, key=lambda view: (rank.get(view, -1), view)), left, right))
    return found


def may_part(lines: list[list[Segment]], rules: Rules, left: str, right: str) -> bool:
    """Whether two views may have been installed side by side: they have no view in common behind them, or the rules of
    the last one that they have leave room for two parts."""
    before = _before(lines)
    common = _line(before, left) & _line(before, right)
    if not common:
        return True
    rank = sort_views(lines)
    last = max(common, key=lambda view: (rank.get(view, -1), view))
    members = next((segment.members for segments in lines for segment in segments if segment.view == last), ())
    return not _is_strict(members, rules)


def _is_strict(members: tuple[str, ...], rules: Rules) -> bool:
    """Whether of these members at most one part may go on: one that asks for a majority is enough."""
    return any(
        rule in ("majority", "all") or (isinstance(rule, int) and 2 * rule > len(members))
        for rule in (rule_of(rules, member) for member in members)
    )


def _before(lines: list[list[Segment]]) -> dict[str, set[str]]:
    """Of each view those that it followed at somebody."""
    before: dict[str, set[str]] = {}
    for segments in lines:
        for segment in segments:
            known = before.setdefault(segment.view, set())
            if segment.prev is not None:
                known.add(segment.prev.view)
    return before


def _line(before: dict[str, set[str]], view: str) -> set[str]:
    """The view and all its ancestors."""
    found = {view}
    left = [view]
    while left:
        for earlier in before.get(left.pop(), ()):
            if earlier not in found:
                found.add(earlier)
                left.append(earlier)
    return found
