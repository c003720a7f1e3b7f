"""Components that go on side by side and merge: extended virtual synchrony, where a run has `partitions: continue`.

- A *class* goes together: from one view to the same next one, with one `came_with`, which all of them name alike.
- The transitional signal stands at one place for a class: nothing is before it at one member and after it at another.
  Where a failure took a member away, all have it. Sessions have it by group, others that of the underlay. A group whose
  signal a session had gets its view before anything of it is delivered in a later view of the underlay.
- The views of groups in which something is delivered name members of the underlay's view only.
- Safe delivery: what one member delivered as SAFE before the signal, every member of that group view delivers in that
  view of the underlay; after the signal, every member whose node was to come along. Those that ended are excused.
- Self delivery: what anybody delivered in a view, its sender delivers before it goes on.
- At a quiet end nobody waits between the signal and the view.

`sim.checkers.components` reads the same sentences by code of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from ordercast.pipeline.verify.facts import RELIABLE, SAFE, Facts
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.history import FOREVER, Life, Line, ViewPeriod
from ordercast.pipeline.verify.ranges import Range, common_of, merged, minus
from ordercast.pipeline.verify.shared import SharedRow, SharedRows, shared_rows

SYNCHRONY: Final = "virtual_synchrony"
RESILIENCE: Final = "resilience"
LIVENESS: Final = "liveness"

# Classes --------------------------------------------------------------------------------------------------------------


def classes_of(paths: Iterable[list[ViewPeriod]], has_components: bool) -> list[list[ViewPeriod]]:
    """What goes together, each as the periods of the view that it comes from. Otherwise than with components all that
    come from one view to the same next one go together."""
    found: dict[tuple[str, str, frozenset[str]], list[ViewPeriod]] = {}
    for path in paths:
        for period in path:
            if period.next is not None:
                came = frozenset(period.next.came_with if has_components else ())
                found.setdefault((period.view, period.next.view, came), []).append(period)
    return list(found.values())


def check_classes(facts: Facts, findings: Findings, view: str, arrivals: list[ViewPeriod]) -> None:
    """Who is named in a `came_with` came from the same view and names the same list. One fault is told for a view."""
    there = {period.name: period for period in arrivals}
    votes = Counter(frozenset(period.came_with) for period in arrivals)
    foreign: list[tuple[ViewPeriod, str | None, str]] = []
    unlike: list[tuple[ViewPeriod, str | None, str]] = []
    for period in sorted(arrivals, key=lambda one: one.name):
        mine = period.prev.view if period.prev is not None else None
        for other in [there[name] for name in period.came_with if name in there and name != period.name]:
            theirs = other.prev.view if other.prev is not None else None
            if mine is None or mine != theirs:
                text = (
                    f"came_with of view {view} at {period.name} (n={period.n}, from {mine or 'outside'}) names "
                    f"{other.name}, which came from {theirs or 'outside'}"
                )
                foreign.append((period, other.name, text))
            elif set(period.came_with) != set(other.came_with):
                odd, even = sorted(
                    (period, other), key=lambda one: (votes[frozenset(one.came_with)], len(one.came_with), one.name)
                )
                text = (
                    f"came_with of view {view} is {_names(odd.came_with)} at {odd.name} (n={odd.n}), but "
                    f"{_names(even.came_with)} at {even.name}"
                )
                unlike.append((odd, even.name, text))
    alone = [
        (
            one,
            None,
            f"{one.name} came into view {view} (n={one.n}) from outside, but not alone: {_names(one.came_with)}",
        )
        for one in arrivals
        if one.prev is None and set(one.came_with) != {one.name}
    ]
    for period, who, text in [*foreign, *unlike, *alone][:1]:
        _add(facts, findings, SYNCHRONY, period, text, other=who, n=period.n)


def _names(names: Iterable[str]) -> str:
    return "[" + " ".join(names) + "]"


# The signal -----------------------------------------------------------------------------------------------------------


def _is_lost(line: Line, here: ViewPeriod, members: Iterable[str]) -> bool:
    """Whether the underlay goes on from `here` without the node of one of these members, which had not left."""
    if here.next is None:
        return False
    gone = {line.host(name) for name in members} & set(here.members)
    for node in gone - set(here.next.came_with):
        there = next((life.by_view.get(here.view) for life in line.nodes if life.name == node), None)
        if there is None or there.cut not in ("leave", "stop") or there.transitional_n < FOREVER:
            return True
    return False


def _signal(line: Line, life: Life, period: ViewPeriod) -> float:
    """The event at which a period has its signal: its own, or, of a group at a node, that of the underlay."""
    if period.group is not None and period.transitional_n == FOREVER and life.host is None:
        for here in life.periods:
            if period.n < here.transitional_n < period.stop_n and _is_lost(line, here, period.members):
                return here.transitional_n
    return period.transitional_n


def _is_due(line: Line, life: Life, period: ViewPeriod) -> bool:
    """Whether a failure took a member of the period away while it lasted."""
    if period.group is None:
        return _is_lost(line, period, period.members)
    return any(
        here.next is not None and period.n < here.next.n < period.stop_n and _is_lost(line, here, period.members)
        for here in life.periods
    )


def check_signals(facts: Facts, findings: Findings, line: Line) -> None:
    """Judge where signals stand, of the underlay and of each group."""
    rows = shared_rows(facts, findings, line)
    for part in classes_of([life.periods for life in line.nodes], True):
        _check_class(facts, findings, line, rows, part)
    by_group: dict[str, list[list[ViewPeriod]]] = {}
    for life in line.lives.values():
        for group, periods in life.group_periods.items():
            by_group.setdefault(group, []).append(periods)
    for _, paths in sorted(by_group.items()):
        for part in classes_of(paths, True):
            if any(line.lives[one.m].host is not None for one in part):
                _check_class(facts, findings, line, rows, part)
    for life in line.lives.values():
        if life.periods:
            _check_ghosts(facts, findings, line, rows, life)
            _check_endings(facts, findings, line, rows, life)


def _check_class(facts: Facts, findings: Findings, line: Line, rows: SharedRows, part: list[ViewPeriod]) -> None:
    findings.checked[SYNCHRONY] += 1
    places = {one.m: _signal(line, line.lives[one.m], one) for one in part}
    group, view = part[0].group, part[0].next.view if part[0].next is not None else ""
    of = group or line.underlay
    without = [
        one for one in part if places[one.m] == FOREVER and (group is None or line.lives[one.m].host is not None)
    ]
    if without and any(_is_due(line, line.lives[one.m], one) for one in part):
        who = min(without, key=lambda one: one.name)
        having = min((one.name for one in part if places[one.m] < FOREVER), default=None)
        text = (
            f"{', '.join(sorted(one.name for one in without))} went from view {part[0].view} of {of} to {view} without "
            "the transitional signal, though a failure took a member away"
        )
        _add(facts, findings, SYNCHRONY, who, text, other=having, n=who.next.n if who.next is not None else who.n)
        return
    early: dict[int, dict[int, list[Range]]] = {}  # sender -> life -> numbers
    late: dict[int, dict[int, list[Range]]] = {}
    for one in part:
        for row in rows.ordered(one.m, one.n, one.stop_n) if places[one.m] < FOREVER else ():
            if group is None or group in (line.targets(row.target) or ()):
                side = early if row.n < places[one.m] else late
                side.setdefault(row.sid, {}).setdefault(one.m, []).append((row.a, row.b))
    for sid in sorted(early.keys() & late.keys(), key=lambda sid: facts.senders[sid].name):
        after = merged(span for ones in late[sid].values() for span in ones)
        both = [span for ones in early[sid].values() for one in merged(ones) for span in common_of(one, after)]
        if both:
            span = merged(both)[0]
            first = span[0], span[0] + 1
            lives = [
                sorted(facts.members[m].name for m, ones in side[sid].items() if common_of(first, merged(ones)))
                for side in (early, late)
            ]
            odd, others = lives if len(lives[0]) < len(lives[1]) else lives[::-1]
            who = next(one for one in part if one.name == odd[0])
            text = (
                f"{odd[0]} delivered it on another side of the transitional signal of {of} than {others[0]}, with "
                f"which it went from view {part[0].view} to {view}"
            )
            message = span_text(facts.senders[sid].name, span)
            _add(facts, findings, SYNCHRONY, who, text, message=message, other=others[0], n=int(places[who.m]))
            return


def _check_ghosts(facts: Facts, findings: Findings, line: Line, rows: SharedRows, life: Life) -> None:
    """Views of groups name members whose nodes are in the view of the underlay, where something is delivered."""
    seen: set[tuple[str, str]] = set()
    for row in rows.of(life.m):
        here = life.at(row.n)
        for group in line.targets(row.target) or () if here is not None else ():
            period = life.group_at(group, row.n)
            if here is None or period is None or (here.view, period.view) in seen:
                continue
            seen.add((here.view, period.view))
            gone = [name for name in period.members if line.host(name) not in here.members]
            if gone:
                text = (
                    f"{life.name} delivered it (n={row.n}) in view {period.view}, which names {gone[0]}: its node is "
                    f"not in view {here.view}"
                )
                message = span_text(facts.senders[row.sid].name, (row.a, row.b))
                _add(facts, findings, SYNCHRONY, period, text, message=message, other=gone[0], n=row.n)
                return


def _check_endings(facts: Facts, findings: Findings, line: Line, rows: SharedRows, life: Life) -> None:
    """A group whose signal a session had has its view before anything of it comes in a later view of the underlay."""
    for group, periods in life.group_periods.items() if life.host is not None else ():
        for period in periods:
            there = life.at(period.transitional_n)
            for row in rows.of(life.m) if period.transitional_n < FOREVER else ():
                if not period.transitional_n < row.n < period.stop_n or life.at(row.n) is there:
                    continue
                if group in (line.targets(row.target) or ()):
                    text = (
                        f"{life.name} delivered it (n={row.n}) after the transitional signal of view {period.view}, in "
                        "a later view of the underlay and before the group's next view"
                    )
                    message = span_text(facts.senders[row.sid].name, (row.a, row.b))
                    _add(facts, findings, SYNCHRONY, period, text, message=message, n=row.n)
                    break


# Safe delivery and self delivery --------------------------------------------------------------------------------------


def check_deliveries(facts: Facts, findings: Findings, line: Line) -> None:
    """What members owe because another delivered it, or because it is their own."""
    rows = shared_rows(facts, findings, line)
    have: dict[tuple[int, str], dict[int, list[Range]]] = {}  # life and view -> sender -> numbers
    for life in line.lives.values():
        for row in rows.everything(life.m) if life.periods else ():
            here = life.at(row.n)
            if here is not None:
                have.setdefault((life.m, here.view), {}).setdefault(row.sid, []).append((row.a, row.b))
    names = {life.name: life for life in line.lives.values()}
    lost: dict[tuple[str, int, Range], list[Life]] = {}
    holder: dict[tuple[str, int, Range], str] = {}
    for source, row, period, members in _promised(line, rows):
        findings.checked[RESILIENCE] += 1
        here = source.at(row.n)
        for life in [names[name] for name in sorted(members) if name in names and name != source.name]:
            if here is None or not _owes(facts, line, life, period, here.view):
                continue
            mine = have.get((life.m, here.view), {}).get(row.sid, [])
            for span in minus([(row.a, row.b)], mine):
                lost.setdefault((here.view, row.sid, span), []).append(life)
                holder.setdefault((here.view, row.sid, span), source.name)
    for (view, sid, span), lives in sorted(lost.items(), key=lambda one: one[0]):
        unique = {life.m: life for life in lives}
        fresh = [life for life in unique.values() if findings.miss(life.m, sid, span)]
        lacking = sorted(life.name for life in fresh or unique.values())
        who = names[lacking[0]].by_view[view]
        had = holder[view, sid, span]
        text = f"{', '.join(lacking)} did not deliver it in view {view}, where {had} delivered it as SAFE"
        message = span_text(facts.senders[sid].name, span)
        _add(facts, findings, RESILIENCE, who, text, ROOT if fresh else CONSEQUENCE, message=message, other=had)
    _check_own(facts, findings, line, have)


def _promised(line: Line, rows: SharedRows) -> Iterator[tuple[Life, SharedRow, ViewPeriod, set[str]]]:
    """SAFE deliveries, with the view in which they were made and the members to which that promises them."""
    seen: set[tuple[int, int, int, str, str, frozenset[str]]] = set()
    signals: dict[int, float] = {}  # by id() of a period
    for life in line.lives.values():
        for row in rows.of(life.m) if life.periods else ():
            here = life.at(row.n)
            groups = line.targets(row.target)
            if row.svc < SAFE or here is None or groups is None:
                continue
            periods = [one for group in groups if (one := life.group_at(group, row.n)) is not None]
            if not groups and life.host is None:
                periods = [here]
            for period in periods:
                if id(period) not in signals:
                    signals[id(period)] = _signal(line, life, period)
                is_late = signals[id(period)] < row.n
                if is_late and here.next is None:
                    continue
                came = set(here.next.came_with) if is_late and here.next is not None else None
                members = frozenset(name for name in period.members if came is None or line.host(name) in came)
                key = row.sid, row.a, row.b, here.view, period.view, members
                if key not in seen:
                    seen.add(key)
                    yield life, row, period, set(members)


def _owes(facts: Facts, line: Line, life: Life, period: ViewPeriod, view: str) -> bool:
    if period.group is not None:
        mine = next((one for one in life.group_periods.get(period.group, ()) if one.view == period.view), None)
        if mine is None or mine.cut is not None:
            return False
    return _is_done(facts, line, life, view)


def _is_done(facts: Facts, line: Line, life: Life, view: str) -> bool:
    """Whether it has delivered all that it will in a view of the underlay, and did not end in it."""
    there = life.by_view.get(view)
    return there is not None and (there.next is not None or (there.is_open and facts.quiet[line.r]))


def _check_own(
    facts: Facts, findings: Findings, line: Line, have: dict[tuple[int, str], dict[int, list[Range]]]
) -> None:
    rows = shared_rows(facts, findings, line)
    anyone: dict[tuple[int, str], list[Range]] = {}  # sender and view -> numbers
    for life in line.lives.values():
        for row in rows.of(life.m) if life.periods else ():
            here = life.at(row.n)
            if here is not None and row.svc >= RELIABLE:
                anyone.setdefault((row.sid, here.view), []).append((row.a, row.b))
    mine: dict[tuple[int, int], list[Range]] = {}  # life and sender -> numbers
    for (m, _), delivered in have.items():
        for sid, spans in delivered.items():
            mine.setdefault((m, sid), []).extend(spans)
    for (sid, view), spans in sorted(anyone.items()):
        sender = facts.senders[sid]
        life = line.lives[sender.m]
        findings.checked[RESILIENCE] += 1
        if not _is_done(facts, line, life, view):
            continue
        due = [
            (max(first, submit["a"]), min(stop, submit["b"]))
            for first, stop in minus(spans, mine.get((life.m, sid), []))
            for submit in facts.submitted(sid, first, stop)
            if submit["svc"] >= RELIABLE and line.is_owed(life, submit["tgt"], submit["n"], life.by_view[view].stop_n)
        ]
        for span in merged(due):
            others = [other for other in line.lives.values() if view in other.by_view and other is not life]
            is_new = findings.miss(life.m, sid, span)
            for other in others:  # what its sender lacks, others lack because of that
                findings.miss(other.m, sid, span)
            text = f"{life.name} went without its own message, which was delivered in view {view}"
            message = span_text(sender.name, span)
            severity = ROOT if is_new else CONSEQUENCE
            _add(facts, findings, RESILIENCE, life.by_view[view], text, severity, message=message)


# The end --------------------------------------------------------------------------------------------------------------


def check_rest(facts: Facts, findings: Findings, settled: dict[int, Life]) -> None:
    """At a quiet end nobody waits between the signal and the view."""
    for life in settled.values():
        for period in [life.periods[-1]] if life.host is None else life.group_current.values():
            findings.checked[LIVENESS] += 1
            if period.transitional_n < FOREVER:
                text = (
                    f"{life.name} is between the transitional signal of view {period.view} (n={period.transitional_n}) "
                    "and the next view, though the run ended quietly"
                )
                _add(facts, findings, LIVENESS, period, text, n=period.transitional_n)


def _add(
    facts: Facts,
    findings: Findings,
    name: str,
    period: ViewPeriod,
    text: str,
    severity: str = ROOT,
    *,
    message: str | None = None,
    other: str | None = None,
    n: float | None = None,
) -> None:
    findings.add(
        ViolationRow(
            *(facts.run_of(period.m), name, severity, period.group, period.view, period.name, message, other, None),
            text,
            n if n is not None else period.n,
        )
    )


__all__ = ["check_classes", "check_deliveries", "check_rest", "check_signals", "classes_of"]
