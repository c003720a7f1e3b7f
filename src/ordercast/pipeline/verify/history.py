"""Which member was in which view when: the small part of a trace, read on the driver.

A *period* is the time of one life in one view, from its `view` row to the next one. It is cut off by `leave`, `stop`,
`crash` or a later life of the node; otherwise the last one is open. Periods without a cut between them are one *stay*:
a member that left comes back as a newcomer. A group that has views of its own, or another name than its underlay, is
*lightweight*: its members are those of its views.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ordercast.errors import UsageError
from ordercast.pipeline.verify.engine import Record

FOREVER: Final = 1 << 62
BETWEEN: Final = "\x1f"  # the names of groups in a target
_VIEW_ID: Final = re.compile(r"\d+@.+/\d+")

Rule = str | int
Rules = Mapping[str, Rule] | Rule


@dataclass(slots=True, eq=False)
class ViewPeriod:
    """The time of one life in one view."""

    m: int
    name: str
    group: str | None
    view: str
    members: tuple[str, ...]
    came_with: tuple[str, ...]
    n: float  # the views of a session's daemon stand between two of its events: n + 0.5
    at_ns: int
    stay: int
    prev: ViewPeriod | None = None
    next: ViewPeriod | None = None
    stop_n: float = FOREVER
    end_ns: int = FOREVER
    cut: str | None = None
    transitional_n: float = FOREVER
    signals: list[int] = field(default_factory=list)  # all of them: a group may keep its view over several recoveries
    reason: str = ""  # why the view was made, as its row says

    @property
    def is_open(self) -> bool:
        return self.next is None and self.cut is None

    def has_signal(self, since: float, before: float) -> bool:
        """Whether one of its signals lies between these events."""
        at = bisect_right(self.signals, since)
        return at < len(self.signals) and self.signals[at] < before


@dataclass(slots=True, eq=False)
class Life:
    """One life of one node in one underlay."""

    m: int
    name: str
    periods: list[ViewPeriod] = field(default_factory=list)
    by_view: dict[str, ViewPeriod] = field(default_factory=dict)
    current: ViewPeriod | None = None
    stays: int = 0
    cuts: list[tuple[int, int]] = field(default_factory=list)  # (n, at_ns) of going out
    group_periods: dict[str, list[ViewPeriod]] = field(default_factory=dict)
    group_current: dict[str, ViewPeriod] = field(default_factory=dict)
    group_spans: dict[str, list[list[int]]] = field(default_factory=dict)  # [from n, to n, at_ns of coming in]
    host: str | None = None  # of a session: its daemon, if the trace has it (`sessions.py`)
    signals: list[int] = field(default_factory=list)  # events at which a group had the transitional signal
    end: tuple[int, int, str] | None = None  # n, at_ns and kind of its last stop or crash

    @property
    def is_session(self) -> bool:
        """It writes views of groups, but none of the underlay: a client of a daemon."""
        return self.host is not None or (not self.periods and bool(self.group_periods))

    def at(self, n: float) -> ViewPeriod | None:
        """The period in which event `n` lies."""
        index = bisect_right(self.periods, n, key=lambda one: one.n) - 1
        return self.periods[index] if index >= 0 and n < self.periods[index].stop_n else None

    def group_at(self, group: str, n: float) -> ViewPeriod | None:
        """The period of a lightweight group in which event `n` lies."""
        periods = self.group_periods.get(group, [])
        index = bisect_right(periods, n, key=lambda one: one.n) - 1
        return periods[index] if index >= 0 and n < periods[index].stop_n else None

    def in_group(self, group: str, from_n: float, to_n: float) -> bool:
        return any(begin <= from_n and to_n <= end for begin, end, _ in self.group_spans.get(group, ()))


@dataclass(slots=True, eq=False)
class Line:
    """One underlay of one run, and all lives that have a row in it."""

    ru: int
    r: int
    underlay: str
    lives: dict[int, Life] = field(default_factory=dict)
    lightweight: set[str] = field(default_factory=set)
    hosts: dict[str, str] = field(default_factory=dict)  # of members that were asked for, and of all sessions

    @property
    def nodes(self) -> list[Life]:
        """The lives that are no sessions: those that write the views of the underlay."""
        return [life for life in self.lives.values() if life.host is None]

    def host(self, name: str) -> str:
        """The node that stands for a member in views of the underlay: itself, or the daemon of a session. Of a session
        that wrote nothing its name says it."""
        if name not in self.hosts:
            names = {life.name for life in self.lives.values()}
            daemon = daemon_of(name)
            self.hosts[name] = daemon if name not in names and daemon in names else name
        return self.hosts[name]

    def life(self, m: int, name: str) -> Life:
        found = self.lives.get(m)
        if found is None:
            found = self.lives[m] = Life(m, name)
        return found

    def targets(self, target: str) -> tuple[str, ...] | None:
        """The lightweight groups that a message is for; none: everybody; None: it is not known."""
        if not target:
            return None if self.lightweight else ()
        if target == self.underlay and target not in self.lightweight:
            return ()
        return tuple(target.split(BETWEEN))

    def is_owed(self, life: Life, target: str, from_n: float, to_n: float) -> bool:
        """Whether the life certainly was in a group that the message goes to, all the time."""
        groups = self.targets(target)
        if groups is None:
            return False
        return not groups or any(life.in_group(group, from_n, to_n) for group in groups)


def daemon_of(name: str) -> str:
    """Of `client@daemon/life` the daemon as name/life, or nothing."""
    node, _, number = name.rpartition("/")
    client, _, daemon = node.rpartition("@")
    return f"{daemon}/{number}" if client else ""


def read_history(rows: Iterable[Record], names: Mapping[int, Any], lines: dict[tuple[int, str], Line]) -> None:
    """Fill the lines from the control rows, sorted by life and n. `names[m]` has name, r and is_gone."""
    rows = list(rows)
    for row in rows:
        if row["grp"] and (row["kind"] == "view" or row["grp"] != row["u"]):
            _line(lines, names[row["m"]].r, row["u"]).lightweight.add(row["grp"])
    here: dict[str, tuple[Line, Life]] = {}
    last: Record | None = None
    for row in rows:
        if last is None or row["m"] != last["m"]:
            _end_of_rows(here, last, names)
            here = {}
        last = row
        _take(row, names[row["m"]], lines, here)
    _end_of_rows(here, last, names)


def _take(row: Record, member: Any, lines: dict[tuple[int, str], Line], here: dict[str, tuple[Line, Life]]) -> None:
    kind, n, at_ns = row["kind"], row["n"], row["at_ns"]
    if kind == "start":
        return
    if kind in ("stop", "crash"):
        for _, life in here.values():
            leave(life, n, at_ns, kind)
            life.end = n, at_ns, kind
        return
    underlay = row["u"]
    if underlay not in here:
        line = _line(lines, member.r, underlay)
        here[underlay] = line, line.life(row["m"], member.name)
    line, life = here[underlay]
    group = row["grp"] or None
    if kind == "view":
        if row["vw"] is None or not row["members"]:
            raise UsageError(f"the view row of {member.name} at n={row['n']} has no id or no members")
        _check_view(life, row)
        _install(life, row, group)
    elif kind == "transitional":
        current = life.group_current.get(str(group)) if group in line.lightweight else life.current
        if current is not None:
            current.transitional_n = min(current.transitional_n, n)
            current.signals.append(n)
        life.signals.append(n)
    elif kind == "join":
        if group in line.lightweight:
            _enter_group(life, str(group), n, at_ns)
    elif kind == "leave":
        if group in line.lightweight:
            _leave_group(life, str(group), n, at_ns, kind)
        else:
            leave(life, n, at_ns, kind)


def leave(life: Life, n: int, at_ns: int, cut: str) -> None:
    """The life leaves the underlay."""
    life.cuts.append((n, at_ns))
    for group in list(life.group_spans):
        _leave_group(life, group, n, at_ns, cut)
    if life.current is not None:
        life.current.stop_n, life.current.end_ns, life.current.cut = n, at_ns, cut
        life.current = None


def _end_of_rows(here: dict[str, tuple[Line, Life]], last: Record | None, names: Mapping[int, Any]) -> None:
    if last is None or not names[last["m"]].is_gone:
        return
    for _, life in here.values():
        leave(life, names[last["m"]].rows, names[last["m"]].last_ns, "gone")


def _check_view(life: Life, row: Record) -> None:
    """A malformed view says nothing about any member: the trace cannot be used."""
    members, came_with = row["members"], row["came_with"]
    where = f"the view row of {life.name} at n={row['n']}"
    if _VIEW_ID.fullmatch(row["vw"]) is None:
        raise UsageError(f"{where} has the id {row['vw']!r}, which is not counter@name/life")
    if len(set(members)) != len(members) or life.name not in members:
        raise UsageError(f"{where} names a member twice, or not the one that wrote it")
    if came_with and (life.name not in came_with or not set(came_with) <= set(members)):
        raise UsageError(f"{where}: came_with is not a part of the members with the writer in it")
    if not came_with and not row["grp"]:
        raise UsageError(f"{where} has no came_with")


def _install(life: Life, row: Record, group: str | None) -> None:
    before = life.current if group is None else life.group_current.get(group)
    if group is None and before is None:
        life.stays += 1
    members, came_with = tuple(row["members"]), tuple(row["came_with"] or ())
    period = ViewPeriod(life.m, life.name, group, row["vw"], members, came_with, row["n"], row["at_ns"], life.stays)
    period.prev = before
    period.reason = row["detail"] or ""
    if group is None:
        life.current = period
        life.periods.append(period)
        life.by_view.setdefault(period.view, period)
    else:
        _enter_group(life, group, row["n"], row["at_ns"])
        life.group_current[group] = period
        life.group_periods.setdefault(group, []).append(period)
    if before is not None:
        before.next, before.stop_n, before.end_ns = period, row["n"], row["at_ns"]


def _enter_group(life: Life, group: str, n: int, at_ns: int) -> None:
    spans = life.group_spans.setdefault(group, [])
    if not spans or spans[-1][1] != FOREVER:
        spans.append([n, FOREVER, at_ns])


def _leave_group(life: Life, group: str, n: int, at_ns: int, cut: str) -> None:
    spans = life.group_spans.get(group)
    if spans and spans[-1][1] == FOREVER:
        spans[-1][1] = n
    period = life.group_current.pop(group, None)
    if period is not None:
        period.stop_n, period.end_ns, period.cut = n, at_ns, cut


def _line(lines: dict[tuple[int, str], Line], r: int, underlay: str) -> Line:
    found = lines.get((r, underlay))
    if found is None:
        found = lines[r, underlay] = Line(len(lines), r, underlay)
    return found


def stay_of(period: ViewPeriod) -> list[ViewPeriod]:
    """The periods from coming in up to this one."""
    path = [period]
    while path[-1].prev is not None:
        path.append(path[-1].prev)
    return path[::-1]


def rule_of(rules: Rules, name: str) -> Rule:
    """What the member `name/life` asked for as `min_members`."""
    return rules.get(name.rpartition("/")[0], "majority") if isinstance(rules, Mapping) else rules


def may_go_on(members: tuple[str, ...], present: list[str], rules: Rules) -> bool:
    """Whether those present are enough of a view by what each of its members asked for (RMP section 4.4).

    A number that is larger than the view means all members of the view. The rule is written here once more, on purpose:
    a judge that used the code of `config.py` would repeat its errors.
    """
    for rule in {rule_of(rules, name) for name in members}:
        if rule == "all":
            enough = len(present) >= len(members)
        elif isinstance(rule, int):
            enough = len(present) >= min(rule, len(members))
        else:
            enough = 2 * len(present) > len(members) or (2 * len(present) == len(members) and members[0] in present)
        if not enough:
            return False
    return True


def is_strict(members: tuple[str, ...], rules: Rules) -> bool:
    """Whether of these members at most one part may go on."""
    return any(
        rule in ("majority", "all") or (isinstance(rule, int) and 2 * rule > len(members))
        for rule in (rule_of(rules, name) for name in members)
    )


def sort_views(paths: Iterable[list[ViewPeriod]]) -> dict[str, int]:
    """A place for each view that keeps every member's order; views that have none are left out."""
    return places([period.view for period in path] for path in paths)


def places(paths: Iterable[Sequence[Placed]]) -> dict[Placed, int]:
    """A place for each item that keeps the order of every path; items that have none are left out."""
    after: dict[Placed, set[Placed]] = {}
    waits: dict[Placed, int] = {}
    for path in paths:
        for one in path:
            waits.setdefault(one, 0)
        for left, right in itertools.pairwise(path):
            followers = after.setdefault(left, set())
            if right not in followers and left != right:
                followers.add(right)
                waits[right] += 1
    ready = sorted((one for one, count in waits.items() if not count), reverse=True)
    place: dict[Placed, int] = {}
    while ready:
        one = ready.pop()
        place[one] = len(place)
        for follower in sorted(after.get(one, ())):
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    return place


Placed = TypeVar("Placed", str, tuple[str, str])


class Ancestry:
    """Which views are behind which."""

    def __init__(self, paths: list[list[ViewPeriod]]) -> None:
        self.before: dict[str, set[str]] = {}
        self.members: dict[str, tuple[str, ...]] = {}
        for path in paths:
            for period in path:
                self.members.setdefault(period.view, period.members)
                known = self.before.setdefault(period.view, set())
                if period.prev is not None:
                    known.add(period.prev.view)
        self.place = sort_views(paths)
        self._lines: dict[str, set[str]] = {}

    def line(self, view: str) -> set[str]:
        """The view and all its ancestors."""
        known = self._lines.get(view)
        if known is None:
            known, left = {view}, [view]
            while left:
                for earlier in self.before.get(left.pop(), ()):
                    if earlier not in known:
                        known.add(earlier)
                        left.append(earlier)
            self._lines[view] = known
        return known

    def latest(self, views: set[str]) -> str:
        return max(views, key=lambda view: (self.place.get(view, -1), view))

    def may_part(self, left: str, right: str, rules: Rules) -> bool:
        """Whether the rules allow two views to have been there side by side."""
        shared = self.line(left) & self.line(right)
        return not shared or not is_strict(self.members.get(self.latest(shared), ()), rules)
