"""Views as a history: one order of all of them (docs/trace.md property 5), and whether it forked.

A group that only a majority may continue has one line of views. A *recovery* is a view that some member came to through
a `transitional`: what failures lead to. Of two recoveries with a common ancestor one must be an ancestor of the other,
or two parts of the group went on side by side. Views without a failure between prove nothing: a member that a failure
leaves behind may have delivered a join that the others never knew of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ordercast.config import MinMembers
from ordercast.sim.checkers.records import FOREVER, MemberPeriod

Rules = MinMembers | str | Mapping[str, MinMembers]
"""What members asked for when they joined: one rule for all, or one for each node by its name."""

Named = TypeVar("Named", str, tuple[str, str])


class Fork(NamedTuple):
    """Two recoveries, each with the view that it followed and the members that came with it from there."""

    ancestor: str  # the latest view that both have behind them
    left: MemberPeriod
    right: MemberPeriod


def rule_of(rules: Rules, member: str) -> MinMembers | str:
    """What the member `name/life` asked for; the default where the rules do not say."""
    if isinstance(rules, Mapping):
        return rules.get(member.rpartition("/")[0], "majority")
    return rules


def is_enough(rule: MinMembers | str, members: int, present: int, has_first: bool) -> bool:
    """Whether `present` of a view's `members` may continue it by one member's `min_members`.

    The judge's own reading of the definition, on purpose not the engine's code (`config.required_members`): a number
    asks for so many members, and for all of them where the view has fewer; a majority is more than half, or half with
    the view's first member.
    """
    missing = members - present
    if rule == "majority":
        return missing < present or (missing == present and has_first)
    return missing == 0 or (rule != "all" and present >= int(rule))


def may_go_on(members: tuple[str, ...], present: list[str], rules: Rules) -> bool:
    """Whether those present are enough of a view by what each of its members asked for (RMP section 4.4)."""
    has_first = members[0] in present
    return all(
        is_enough(rule, len(members), len(present), has_first) for rule in {rule_of(rules, name) for name in members}
    )


def sort_views(lines: Iterable[list[MemberPeriod]]) -> dict[str, int]:
    """The rank of each view in an order that keeps the order of every member; views that have none are left out."""
    return ranked([period.view for period in periods] for periods in lines)


def ranked(paths: Iterable[Sequence[Named]]) -> dict[Named, int]:
    """The rank of each item in an order that keeps that of every path; items that have none are left out."""
    after: dict[Named, list[Named]] = {}
    incoming: dict[Named, int] = {}
    known: set[tuple[Named, Named]] = set()
    for path in paths:
        for one in path:
            incoming.setdefault(one, 0)
        for left, right in pairwise(path):
            if (left, right) not in known and left != right:
                known.add((left, right))
                after.setdefault(left, []).append(right)
                incoming[right] += 1
    ready = [one for one, count in incoming.items() if count == 0]
    rank: dict[Named, int] = {}
    while ready:
        one = ready.pop()
        rank[one] = len(rank)
        for follower in after.get(one, ()):
            incoming[follower] -= 1
            if incoming[follower] == 0:
                ready.append(follower)
    return rank


def recoveries(lines: Iterable[list[MemberPeriod]]) -> list[MemberPeriod]:
    """One period for each view that followed a failure, in the order of the members."""
    found: dict[str, MemberPeriod] = {}
    for periods in lines:
        for period in periods:
            if period.prev is not None and period.prev.transitional_n < FOREVER:
                found.setdefault(period.view, period)
    return list(found.values())


def forks(lines: list[list[MemberPeriod]], rules: Rules) -> list[Fork]:
    """Pairs of recoveries that went on side by side where the rules leave room for one: the first of each branch.

    Where the rules of the last view that they have in common leave room for two parts, both may go on from there.
    """
    before = _before(lines)
    rank = sort_views(lines)
    members = {period.view: period.members for periods in lines for period in periods}
    ends = [
        (period, _line(before, period.view))
        for period in recoveries(lines)
        if period.prev is not None and is_strict(period.prev.members, rules)
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
            last = max(common, key=lambda view: (rank.get(view, -1), view))
            if is_strict(members.get(last, ()), rules):
                found.append(Fork(last, left, right))
    return found


def may_part(lines: list[list[MemberPeriod]], rules: Rules, left: str, right: str) -> bool:
    """Whether two views may have been installed side by side: they have no view in common behind them, or the rules of
    the last one that they have leave room for two parts."""
    before = _before(lines)
    common = _line(before, left) & _line(before, right)
    if not common:
        return True
    rank = sort_views(lines)
    last = max(common, key=lambda view: (rank.get(view, -1), view))
    members = next((period.members for periods in lines for period in periods if period.view == last), ())
    return not is_strict(members, rules)


def is_strict(members: tuple[str, ...], rules: Rules) -> bool:
    """Whether of these members at most one part may go on: one that asks for a majority is enough."""
    return any(
        rule in ("majority", "all") or (isinstance(rule, int) and 2 * rule > len(members))
        for rule in (rule_of(rules, member) for member in members)
    )


def _before(lines: list[list[MemberPeriod]]) -> dict[str, set[str]]:
    """Of each view those that it followed at some member."""
    before: dict[str, set[str]] = {}
    for periods in lines:
        for period in periods:
            known = before.setdefault(period.view, set())
            if period.prev is not None:
                known.add(period.prev.view)
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
