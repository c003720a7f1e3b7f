"""Property 5 on a shared underlay: what its members owe one another, and where views of groups stand in its stream.

What lies between two views of the underlay is owed to a member that certainly was in a group of it: all the time; or by
positions between its first ordered delivery after coming in and the last one before going out; or in a view of the
group that both were in and that the member did not leave. A message to several groups is owed to the members of each.

A group view stands at one place of the order: all positions that any member delivered before it lie below all that any
member delivered after it, in the same view of the underlay. All views, those of different groups too, come in one order
at all members. Members that go together to the next view of the underlay have the same views of groups that both are
in.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ordercast.pipeline.verify.components import classes_of
from ordercast.pipeline.verify.facts import Facts
from ordercast.pipeline.verify.findings import ROOT, Findings, ViolationRow
from ordercast.pipeline.verify.history import FOREVER, Life, Line, ViewPeriod, places
from ordercast.pipeline.verify.ranges import Range, common_of, minus
from ordercast.pipeline.verify.shared import SharedRow, SharedRows, shared_rows

NAME = "virtual_synchrony"

Lacks = tuple[
    int, dict[Range, list[int]], dict[Range, int]
]  # of a sender: lives that lack a range, and one that has it
NamedView = tuple[str, str]  # group (none: the underlay) and id


class OmittedView(NamedTuple):
    """A view of a group that names members which did not install it."""

    period: ViewPeriod
    underlay_view: str
    lives: list[Life]


# What members owe one another ----------------------------------------------------------------------------------------


def lacking(rows: SharedRows, line: Line, part: list[ViewPeriod]) -> Iterator[Lacks]:
    """What lives that went together lack, by sender: each other one has it, and it goes to them, too."""
    delivered = {one.m: rows.ordered(one.m, one.n, one.stop_n) for one in part}
    have = {one.m: rows.sets(one, None) for one in part}
    found: dict[int, tuple[dict[Range, list[int]], dict[Range, int]]] = {}
    for source, ones in delivered.items():
        for row in ones:
            for period in part:
                if period.m == source:
                    continue
                span = row.a, row.b
                spans = minus([span], common_of(span, have[period.m].get(row.sid, [])))
                if not spans or not _is_owing(rows, line, line.lives[period.m], period, line.lives[source], row):
                    continue
                lacks, holder = found.setdefault(row.sid, ({}, {}))
                for span in spans:
                    holder.setdefault(span, source)
                    if period.m not in lacks.setdefault(span, []):
                        lacks[span].append(period.m)
    for sid, (lacks, holder) in sorted(found.items()):
        yield sid, lacks, holder


def _is_owing(rows: SharedRows, line: Line, owing: Life, period: ViewPeriod, source: Life, row: SharedRow) -> bool:
    groups = line.targets(row.target)
    if groups is None:
        return False
    for group in groups:
        if owing.in_group(group, period.n, period.stop_n):
            return True
        there = source.group_at(group, row.n)
        mine = owing.group_periods.get(group, ())
        if there is not None and any(one.view == there.view and one.cut is None for one in mine):
            return True
        if any(low <= row.pos < high for low, high in _windows(rows, owing, period, group)):
            return True
    return not groups


def _windows(rows: SharedRows, life: Life, period: ViewPeriod, group: str) -> Iterator[Range]:
    """Positions at which the member was certainly in the group during the period."""
    for begin, end, _ in life.group_spans.get(group, ()):
        if begin >= period.stop_n or end <= period.n:
            continue
        inside = rows.ordered(life.m, max(begin, period.n), min(end, period.stop_n))
        low = -1 if begin <= period.n else inside[0].pos if inside else FOREVER
        high = FOREVER if end >= period.stop_n else inside[-1].pos + 1 if inside else -1
        if low < high:
            yield low, high


# Where views of groups stand -----------------------------------------------------------------------------------------


class _ViewPlace:
    """Between which positions a view of a group stands, over all members."""

    __slots__ = ("above", "above_at", "below", "below_at")

    def __init__(self, period: ViewPeriod) -> None:
        self.below = -1
        self.above = FOREVER
        self.below_at = self.above_at = period


def check_places(facts: Facts, findings: Findings, line: Line, told: set[str]) -> None:
    """A view of a group stands at one place of the order. Groups in `told` are explained, and more come to it."""
    rows = shared_rows(facts, findings, line)
    places: dict[tuple[str, str, str], _ViewPlace] = {}
    odd = _reported(facts, findings, line)
    for life in line.lives.values():
        spans: dict[float, list[SharedRow]] = {}
        for group, periods in life.group_periods.items():
            for period in periods:
                here = life.at(period.n)
                if here is None or (life.m, here.view) in odd:
                    continue
                findings.checked[NAME] += 1
                if here.n not in spans:
                    spans[here.n] = rows.ordered(life.m, here.n, here.stop_n)
                place = places.setdefault((here.view, group, period.view), _ViewPlace(period))
                ones = spans[here.n]
                at = bisect_left(ones, period.n, key=lambda row: row.n)
                if at > 0 and ones[at - 1].last > place.below:
                    place.below, place.below_at = ones[at - 1].last, period
                if at < len(ones) and ones[at].pos < place.above:
                    place.above, place.above_at = ones[at].pos, period
    for (_, group, view), place in sorted(places.items()):
        if place.below >= place.above and group not in told:
            told.add(group)
            one, other = place.above_at, place.below_at
            text = (
                f"{other.name} delivered position {place.below} before view {view}, and {one.name} position "
                f"{place.above} after it (n={one.n})"
            )
            _add(facts, findings, one, text, other.name)


def _reported(facts: Facts, findings: Findings, line: Line) -> set[tuple[int, str]]:
    """Lives and views in which a delivery was rejected, or stands out of order."""
    found: set[tuple[int, str]] = set()
    for m, n in findings.tainted:
        period = line.lives[m].at(n) if m in line.lives else None
        if period is not None:
            found.add((m, period.view))
    for m, sid, number in findings.misplaced:
        if facts.senders[sid].ru == line.ru:
            found |= {(m, row["vw"]) for row in facts.delivered(m, sid) if row["a"] <= number < row["b"]}
    return found


def check_order(facts: Facts, findings: Findings, line: Line) -> None:
    """One order of all views, those of different groups too, that suits every member."""
    paths = [(life, _path(life)) for life in line.lives.values() if life.group_periods]
    named = [[_named(one) for one in path] for _, path in paths]
    place = places(named)
    stuck = {one for path in named for one in path if one not in place}
    before: dict[tuple[NamedView, NamedView], str] = {}
    for life, path in paths if stuck else ():
        ones = [one for one in path if _named(one) in stuck]
        for left, right in itertools.combinations(ones, 2):
            other = before.get((_named(right), _named(left)))
            if other is not None and other != life.name:
                text = (
                    f"{life.name} installed view {left.view} of {left.group or line.underlay} before {right.view} of "
                    f"{right.group or line.underlay} (n={right.n}), {other} the other way round"
                )
                _add(facts, findings, right, text, other)
                return
            before.setdefault((_named(left), _named(right)), life.name)


def _named(period: ViewPeriod) -> NamedView:
    return period.group or "", period.view


def _path(life: Life) -> list[ViewPeriod]:
    """All views that a life wrote, in its order."""
    own = life.periods if life.host is None else []
    return sorted(itertools.chain(own, *life.group_periods.values()), key=_event)


def _event(period: ViewPeriod) -> float:
    return period.n


# Views that were left out --------------------------------------------------------------------------------------------


def check_missed(facts: Facts, findings: Findings, line: Line, told: set[str]) -> None:
    """Members that go on together have the same views of their groups. `told` as above."""
    paths = [life.periods for life in line.lives.values() if life.group_periods]
    for one in missed_views(line, classes_of(paths, facts.has_components(line.r))):
        group = one.period.group or ""
        if group in told:
            continue
        told.add(group)
        names = ", ".join(life.name for life in one.lives)
        text = (
            f"{names} went with {one.period.name} from view {one.underlay_view} on without view {one.period.view}, "
            f"which names them and {one.period.name} installed"
        )
        here = one.lives[0].by_view.get(one.underlay_view)
        _add(facts, findings, one.period, text, one.period.name, life=one.lives[0], n=here.n if here is not None else 0)


def missed_views(line: Line, parts: Iterable[list[ViewPeriod]]) -> Iterator[OmittedView]:
    """Of lives that were in one view of the underlay to its end, which lack a view of a group that another has."""
    paths: dict[int, list[ViewPeriod]] = {}
    for part in parts:
        inside = {one.name: one for one in part}
        told: set[NamedView] = set()
        for here in part:
            if here.m not in paths:
                paths[here.m] = _path(line.lives[here.m])
            path = paths[here.m]
            for period in path[bisect_right(path, here.n, key=_event) : bisect_left(path, here.stop_n, key=_event)]:
                if period.group is None or _named(period) in told:
                    continue
                lives = [
                    line.lives[inside[name].m]
                    for name in period.members
                    if name in inside and _lacks(line.lives[inside[name].m], inside[name], period, period.group)
                ]
                if lives:
                    told.add(_named(period))
                    yield OmittedView(period, here.view, lives)


def _lacks(life: Life, here: ViewPeriod, period: ViewPeriod, group: str) -> bool:
    """Whether the member certainly was in the group at this view of it, and did not install it."""
    mine = life.group_periods.get(group, ())
    if any(one.view == period.view for one in mine):
        return False
    if life.in_group(group, here.n, here.stop_n):
        return True
    old = next((one for one in mine if period.prev is not None and one.view == period.prev.view), None)
    return old is not None and life.in_group(group, old.n, here.stop_n)


def _add(
    facts: Facts,
    findings: Findings,
    period: ViewPeriod,
    text: str,
    other: str,
    *,
    life: Life | None = None,
    n: float | None = None,
) -> None:
    name, m = (life.name, life.m) if life is not None else (period.name, period.m)
    findings.add(
        ViolationRow(
            *(facts.run_of(m), NAME, ROOT, period.group, period.view, name, None, other, None, text),
            n if n is not None else period.n,
        )
    )
