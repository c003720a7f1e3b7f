"""Views of lightweight groups within the stream of their underlay: one place each, one order of all, none left out.

Reading (docs/trace.md properties 4, 5 and 7). The roster of a shared underlay is read from the ordered stream
(docs/design/roster.md), so in one view of the underlay:

- A group view stands at one place of the order. All positions that any member delivered before it lie below all that
  any member delivered after it, whatever groups these messages go to. So a message is delivered in the same group view
  everywhere. Periods with a delivery that an earlier property reported are left out.
- All views of an underlay, its own and those of its groups, come in one order that suits every member.
- Members that go together to the next view of the underlay have installed the same views of the groups that both are
  in: a member has installed a group view that names it, if it was in the group during the whole view of the underlay,
  or went into it together with the other member before and did not leave it. In the last view of the underlay this is
  owed when the run ends quietly, by the members that stayed in (property 7).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ordercast.sim.checkers.components import classes_of
from ordercast.sim.checkers.records import FOREVER, Local, MemberPeriod, UnderlayTrace, is_ordered
from ordercast.sim.checkers.verdict import Explained, PropertyResult
from ordercast.sim.checkers.views import ranked

GroupView = tuple[str, str, str]  # underlay's view, group, view


class _Place:
    """Between which positions a group view stands, over all members."""

    __slots__ = ("above", "above_at", "below", "below_at")

    def __init__(self) -> None:
        self.below = -1
        self.below_at = ""
        self.above = FOREVER
        self.above_at = ""


class MissedView(NamedTuple):
    """A group view that names members which never installed it."""

    group: str
    view: str
    underlay_view: str
    holder: str
    members: tuple[str, ...]


def check_places(underlay: UnderlayTrace, result: PropertyResult, explained: Explained, told: set[str]) -> None:
    """A group view stands at one place of the order. Groups that are in `told` are explained, and more come to it."""
    places: dict[GroupView, _Place] = {}
    for local in underlay.locals.values():
        if not local.group_periods or not local.periods:
            continue
        lines: dict[float, tuple[list[int], list[tuple[int, int]]] | None] = {}
        for group, periods in local.group_periods.items():
            for period in periods:
                here = local.period_at(period.n)
                if here is None:
                    continue
                if here.n not in lines:
                    lines[here.n] = _positions(here, explained)
                line = lines[here.n]
                if line is None:
                    continue
                result.checked += 1
                place = places.setdefault((here.view, group, period.view), _Place())
                at = bisect_left(line[0], period.n)
                if at > 0 and line[1][at - 1][1] > place.below:
                    place.below, place.below_at = line[1][at - 1][1], local.member
                if at < len(line[1]) and line[1][at][0] < place.above:
                    place.above, place.above_at = line[1][at][0], local.member
    for (_, group, view), place in sorted(places.items()):
        if place.below >= place.above and group not in told:
            told.add(group)
            result.report(
                f"{place.below_at} delivered position {place.below} before view {view} of {group}, and "
                f"{place.above_at} position {place.above} after it",
                member=place.above_at,
                other=place.below_at,
                view=view,
            )


def _positions(period: MemberPeriod, explained: Explained) -> tuple[list[int], list[tuple[int, int]]] | None:
    """What was delivered in a period: events, and first and last position of each; None if some of it was reported."""
    numbers: list[int] = []
    positions: list[tuple[int, int]] = []
    for delivery in period.deliveries:
        if delivery.tainted or id(delivery) in explained.misordered:
            return None
        if is_ordered(delivery) and delivery.position is not None:
            numbers.append(delivery.n)
            positions.append((delivery.position, delivery.position + delivery.stop - delivery.first - 1))
    return numbers, positions


def check_order(underlay: UnderlayTrace, result: PropertyResult) -> None:
    """One order of all views, those of different groups too, that suits every member."""
    before: dict[tuple[tuple[str, str], tuple[str, str]], str] = {}
    paths = [(local, _path(local)) for local in underlay.locals.values() if local.group_periods]
    rank = ranked(path for _, path in paths)
    stuck = {one for _, path in paths for one in path if one not in rank}
    for local, path in paths if stuck else ():
        ones = [one for one in path if one in stuck]
        for at, left in enumerate(ones):
            for right in ones[at + 1 :]:
                other = before.get((right, left))
                if other is not None and other != local.member:
                    result.report(
                        f"{local.member} installed {_told(left)} before {_told(right)}, {other} the other way round",
                        member=local.member,
                        other=other,
                        view=right[1],
                    )
                    return
                before.setdefault((left, right), local.member)


def _path(local: Local) -> list[tuple[str, str]]:
    """All views of a life, as group (none: the underlay) and id, in its order."""
    # Of a session it is not known where exactly the views of its daemon stand between those of its groups.
    own = local.periods if local.host is None else []
    periods = [*own, *(period for ones in local.group_periods.values() for period in ones)]
    periods.sort(key=lambda period: period.n)
    return [(period.group or "", period.view) for period in periods]


def _told(one: tuple[str, str]) -> str:
    return f"view {one[1]} of {one[0]}" if one[0] else f"view {one[1]}"


def check_missed(underlay: UnderlayTrace, result: PropertyResult, told: set[str], has_components: bool) -> None:
    """Members that go on together have installed the same views of their groups. `told` as above."""
    for one in missed_views(_went_together(underlay, has_components)):
        if one.group in told:
            continue
        told.add(one.group)
        result.report(
            f"{', '.join(one.members)} went with {one.holder} from view {one.underlay_view} on without view {one.view} "
            f"of {one.group}, which names them and {one.holder} installed",
            member=one.members[0],
            other=one.holder,
            view=one.view,
        )


def missed_views(parts: Iterable[list[tuple[Local, MemberPeriod]]]) -> Iterator[MissedView]:
    """Of lives that were in one view of the underlay to its end, which lack a group view that another of them has."""
    lines: dict[str, list[MemberPeriod]] = {}
    for part in parts:
        inside = {local.member: (local, period) for local, period in part}
        told: set[tuple[str, str]] = set()
        for local, here in part:
            for period in _installed(local, here, lines):
                group = period.group or ""
                if (group, period.view) in told:
                    continue
                lacking = [
                    name
                    for name in period.members
                    if name in inside and _lacks(*inside[name], period, group) and name != local.member
                ]
                if lacking:
                    told.add((group, period.view))
                    yield MissedView(group, period.view, here.view, local.member, tuple(lacking))


def _installed(local: Local, here: MemberPeriod, lines: dict[str, list[MemberPeriod]]) -> list[MemberPeriod]:
    """The group views that a life installed in a view of the underlay; `lines` has those of all its views."""
    line = lines.get(local.member)
    if line is None:
        line = [period for periods in local.group_periods.values() for period in periods]
        line.sort(key=lambda period: period.n)
        lines[local.member] = line
    first = bisect_left(line, here.n, key=lambda period: period.n)
    return line[first : bisect_left(line, here.stop_n, key=lambda period: period.n)]


def _lacks(local: Local, here: MemberPeriod, period: MemberPeriod, group: str) -> bool:
    """Whether the member certainly was in the group at this view of it, and did not install it."""
    mine = local.group_periods.get(group, ())
    if any(one.view == period.view for one in mine):
        return False
    if local.in_group(group, here.n, here.stop_n):
        return True
    before = period.prev
    if before is None:
        return False
    old = next((one for one in mine if one.view == before.view), None)
    return old is not None and local.in_group(group, old.n, here.stop_n)


def _went_together(underlay: UnderlayTrace, has_components: bool) -> Iterator[list[tuple[Local, MemberPeriod]]]:
    """Members that went from one view of the underlay to the same next one, each with its period of the first."""
    lines = [(local, local.periods) for local in underlay.locals.values() if local.group_periods]
    for _, part in classes_of(lines, has_components):
        if len(part) > 1:
            yield [(local, period.prev) for local, period in part if period.prev is not None]
