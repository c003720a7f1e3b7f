"""Property 7: every message that had to arrive has arrived.

A member *stayed in* if it is in its last view at the end, with enough others to go on. Every member that went the same
way to the end, from the view of the first delivery on, owes what such a sender submitted since it came in. Counts say
whether a member has all of it. For a member that came later they say that it delivered the same as the sender did in
every view since. If neither is certain, the numbers are compared.
"""

from __future__ import annotations

import math
from typing import Final

from ordercast.pipeline.verify import components
from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.evidence import quoted
from ordercast.pipeline.verify.facts import RELIABLE, Cell, Facts, TracedSender
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.group_views import missed_views
from ordercast.pipeline.verify.history import FOREVER, Life, Line, ViewPeriod, may_go_on, stay_of
from ordercast.pipeline.verify.ranges import Range, merged, minus

LIVENESS: Final = "liveness"
LIMIT: Final = 10_000

Lost = tuple[int, int, Range]  # life, sender, numbers
Settled = dict[int, dict[int, Life]]  # underlay -> the lives that stayed in


def settle(facts: Facts, findings: Findings) -> Settled:
    """The members of each underlay that stayed in; none in a run that did not end quietly, which owes nothing yet."""
    if not all(facts.quiet):
        findings.not_judged[LIVENESS] = "a run that did not end quietly owes nothing yet"
    return {line.ru: settled_members(facts, line) if facts.quiet[line.r] else {} for line in facts.lines}


def check(facts: Facts, findings: Findings, settled: Settled, lost: list[Lost]) -> None:
    """Report what is lost and what is still missing."""
    _report_lost(facts, findings, lost)
    _check_gaps(facts, findings, settled)
    for line in facts.lines:
        if line.lightweight:
            _check_group_views(facts, findings, line, settled[line.ru])
        if facts.has_components(line.r):
            components.check_rest(facts, findings, settled[line.ru])


def _check_group_views(facts: Facts, findings: Findings, line: Line, settled: dict[int, Life]) -> None:
    """Members of the last view of the underlay have the views of their groups that others installed in it."""
    parts: dict[str, list[ViewPeriod]] = {}
    for life in settled.values():
        parts.setdefault(life.periods[-1].view, []).append(life.periods[-1])
    for one in missed_views(line, parts.values()):
        who = one.lives[0]
        text = (
            f"{', '.join(life.name for life in one.lives)} never installed view {one.period.view}, which names them "
            f"and {one.period.name} installed in view {one.underlay_view}, though the run ended quietly"
        )
        findings.add(
            ViolationRow(
                *(facts.run_of(who.m), LIVENESS, ROOT, one.period.group, one.period.view, who.name),
                *(None, one.period.name, None, text, who.periods[-1].n),
            )
        )


def settled_members(facts: Facts, line: Line) -> dict[int, Life]:
    """The members that stayed in: in a last view that still has enough of its members to go on."""
    busy_ns = FOREVER
    if facts.clock(line.r) != "many":
        times = [one.last_ns for one in facts.senders if one.ru == line.ru]
        times += [one.last_ns for one in facts.cells_in.get(line.ru, ())]
        busy_ns = max(times, default=-1)
    present: dict[str, list[ViewPeriod]] = {}
    sessions: list[Life] = []
    for life in line.lives.values():
        last = life.periods[-1] if life.periods else None
        if last is not None and (last.is_open or (last.cut == "stop" and last.end_ns > busy_ns)):
            if life.host is None:
                present.setdefault(last.view, []).append(last)
            else:
                sessions.append(life)
    settled = {
        one.m: line.lives[one.m]
        for ones in present.values()
        if may_go_on(ones[0].members, [one.name for one in ones], facts.rules[line.r])
        for one in ones
    }
    names = {life.name for life in settled.values()}
    return settled | {life.m: life for life in sessions if life.host in names}


# What is owed ---------------------------------------------------------------------------------------------------------


def find_lost(facts: Facts, findings: Findings, settled: Settled) -> list[Lost]:
    """What members that stayed in never delivered, though a sender that stayed in, or a caller, had sent it."""
    starts = []
    for sender in facts.senders:
        life = settled[sender.ru].get(sender.m)
        if life is not None:
            starts.append((sender.sid, math.floor(stay_of(life.periods[-1])[0].n)))
    facts.engine.load("stays", [("sid", "int"), ("n", "bigint")], starts)
    owed: dict[int, dict[str, Record]] = {}
    rows = facts.engine.rows(
        "SELECT s.sid, s.t, sum(s.b - s.a) AS messages, min(s.a) AS low FROM {sub} s JOIN {stays} x ON s.sid = x.sid "
        f"AND s.n > x.n WHERE s.svc >= {RELIABLE} GROUP BY s.sid, s.t"
    )
    facts.names.find_targets({row["t"] for row in rows})
    for row in rows:
        owed.setdefault(row["sid"], {})[facts.names.targets[row["t"]]] = row
    lost: list[Lost] = []
    for sid, targets in sorted(owed.items()):
        sender = facts.senders[sid]
        line = facts.lines[sender.ru]
        path = stay_of(line.lives[sender.m].periods[-1])
        for m, life in sorted(settled[sender.ru].items()):
            theirs = stay_of(life.periods[-1])
            if theirs[-1].view != path[-1].view:
                continue
            since = _common(path, theirs, facts.has_components(line.r))
            findings.checked[LIVENESS] += sum(row["messages"] for row in targets.values())
            if not _has_all(facts, line, life, sender, targets, path, since):
                lost += [(m, sid, span) for span in _missing(facts, line, life, sender, path, since)]
    for sender in facts.senders:
        life = facts.lines[sender.ru].lives[sender.m]
        if facts.quiet[facts.lines[sender.ru].r] and not life.periods and not life.group_periods:
            lost += _lost_of_caller(facts, findings, sender, settled[sender.ru])
    return lost


def _common(path: list[ViewPeriod], theirs: list[ViewPeriod], has_components: bool) -> int:
    """The place on `path` from which both went the same way to the end; with components in one class."""
    length = 0
    while length < min(len(path), len(theirs)) and path[-1 - length].view == theirs[-1 - length].view:
        length += 1
        if has_components and set(path[-length].came_with) != set(theirs[-length].came_with):
            break
    return len(path) - length


def _has_all(
    facts: Facts,
    line: Line,
    life: Life,
    sender: TracedSender,
    targets: dict[str, Record],
    path: list[ViewPeriod],
    since: int,
) -> bool:
    mine = [one for one in facts.cells_at.get((life.m, sender.sid), ()) if one.cls >= 1]
    low = min(row["low"] for row in targets.values())
    if any(cell.low < low < cell.high for cell in mine):
        return False
    for target, row in targets.items():
        groups = line.targets(target)
        if groups is None or (groups and not any(group in life.group_spans for group in groups)):
            continue  # its target is not known, or is not this member
        have = sum(cell.messages for cell in mine if cell.low >= low and cell.target == target)
        if have == row["messages"]:
            continue
        is_inside = line.is_owed(line.lives[sender.m], target, path[since].n, path[-1].stop_n)  # itself, all the time
        if not is_inside or not _is_alike(facts, life, sender, target, path[since:]):
            return False
    return True


def _is_alike(facts: Facts, life: Life, sender: TracedSender, target: str, path: list[ViewPeriod]) -> bool:
    """In every view of the path it delivered what the sender itself did, and that one lacks nothing."""
    if life.m == sender.m:
        return False

    def of(m: int) -> dict[tuple[str, int], int]:
        return {
            (cell.view, cell.cls): cell.rep
            for cell in facts.cells_at.get((m, sender.sid), ())
            if cell.target == target and cell.cls >= 1
        }

    views = {period.view for period in path}
    theirs, mine = of(sender.m), of(life.m)
    return {key: rep for key, rep in theirs.items() if key[0] in views} == {
        key: rep for key, rep in mine.items() if key[0] in views
    }


def _missing(
    facts: Facts, line: Line, life: Life, sender: TracedSender, path: list[ViewPeriod], since: int
) -> list[Range]:
    owed = [row for row in facts.submitted(sender.sid) if row["n"] > path[0].n and row["svc"] >= RELIABLE]
    due = merged((row["a"], row["b"]) for row in owed if _is_for(facts, line, life, row))
    if since > 0 and due:
        early = {period.view for period in path[:since]}
        anyone = [row for m in line.lives for row in facts.ranges_of(m, sender.sid)]
        views = {m: {one.view: one for one in each.periods} for m, each in line.lives.items()}
        due = minus(due, [(row["a"], row["b"]) for row in anyone if _view_at(views, row) in early])
        before = [(row["a"], row["b"]) for row in owed if row["n"] < path[since].n]
        due = minus(due, minus(before, [(row["a"], row["b"]) for row in anyone]))
    return minus(due, [(row["a"], row["b"]) for row in facts.ranges_of(life.m, sender.sid)])


def _view_at(views: dict[int, dict[str, ViewPeriod]], row: Record) -> str | None:
    period = views[row["m"]].get(row["vw"])
    if period is not None and period.n < row["n"] < period.stop_n:
        return period.view
    return next((one.view for one in views[row["m"]].values() if one.n < row["n"] < one.stop_n), None)


def _is_for(facts: Facts, line: Line, life: Life, row: Record) -> bool:
    groups = line.targets(row["tgt"])
    if groups is None:
        return False
    if not groups:
        return True
    spans = [life.group_spans[group][-1] for group in groups if group in life.group_spans]
    begins = [(at_ns, n) for n, stop_n, at_ns in spans if stop_n >= life.periods[-1].stop_n]
    if not begins:
        return False
    at_ns, n = min(begins)
    if facts.clock(line.r) != "many":
        return bool(row["at_ns"] > at_ns)
    return n < stay_of(life.periods[-1])[0].n


def _lost_of_caller(facts: Facts, findings: Findings, sender: TracedSender, settled: dict[int, Life]) -> list[Lost]:
    """If a member that stayed in delivered a call, every member of that view that stayed in owes it."""
    line = facts.lines[sender.ru]
    views = {m: {one.view: one for one in stay_of(life.periods[-1])} for m, life in settled.items()}
    cells = [cell for m in settled for cell in facts.cells_at.get((m, sender.sid), ()) if cell.cls >= 1]
    by_view: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups = line.targets(cell.target)
        if cell.view in views[cell.m] and groups is not None:
            by_view.setdefault((cell.view, cell.target if groups else ""), []).append(cell)
    lost: list[Lost] = []
    for (view, target), ones in sorted(by_view.items()):
        there = [
            m
            for m in settled
            if view in views[m]
            and (not target or line.is_owed(settled[m], target, views[m][view].n, views[m][view].stop_n))
        ]
        if not there:
            continue
        contents: dict[int, set[int]] = {}
        for cell in ones:
            contents.setdefault(cell.m, set()).add(cell.rep)
        findings.checked[LIVENESS] += sum(cell.messages for cell in ones)
        if all(contents.get(m) == contents.get(there[0]) for m in there):
            continue
        due = merged(
            (row["a"], row["b"])
            for m in contents
            for row in facts.ranges_of(m, sender.sid)
            if row["vw"] == view and row["svc"] >= RELIABLE and (not target or row["tgt"] == target)
        )
        for m in there:
            lost += [
                (m, sender.sid, span)
                for span in minus(due, [(row["a"], row["b"]) for row in facts.ranges_of(m, sender.sid)])
            ]
    return lost


def _report_lost(facts: Facts, findings: Findings, lost: list[Lost]) -> None:
    by_span: dict[tuple[int, Range], list[int]] = {}
    for m, sid, span in lost:
        by_span.setdefault((sid, span), []).append(m)
    for (sid, span), ones in sorted(by_span.items()):
        fresh = [m for m in ones if findings.miss(m, sid, span)]
        who = fresh or ones
        sender = facts.senders[sid]
        names = ", ".join(facts.members[m].name for m in who)
        last = facts.lines[sender.ru].lives[who[0]].periods[-1]
        text = f"{names} never delivered it, though they were there and the run ended quietly in view {last.view}"
        findings.add(
            ViolationRow(
                *(
                    facts.run_of(who[0]),
                    LIVENESS,
                    ROOT if fresh else CONSEQUENCE,
                    None,
                    last.view,
                    facts.members[who[0]].name,
                ),
                *(span_text(sender.name, span), sender.name, None, text, last.n),
            )
        )


def _check_gaps(facts: Facts, findings: Findings, settled: Settled) -> None:
    """A gap that a member noticed is closed at the end."""
    rows = facts.engine.rows(
        "SELECT g.m, g.r, g.u, g.n, g.sender, g.a, g.b, g.vw FROM {few} g LEFT JOIN (SELECT m, u, sender, a, "
        "b, max(n) AS n "
        "FROM {few} WHERE kind = 'repaired' GROUP BY m, u, sender, a, b) f ON g.m = f.m AND g.u = f.u "
        "AND coalesce(g.sender, '') = coalesce(f.sender, '') AND g.a = f.a AND g.b = f.b AND f.n > g.n "
        f"WHERE g.kind = 'gap' AND g.a IS NOT NULL AND f.n IS NULL ORDER BY g.m, g.n LIMIT {LIMIT}"
    )
    lines = {(line.r, line.underlay): line for line in facts.lines}
    for row in rows:
        line = lines.get((row["r"], row["u"]))
        life = settled[line.ru].get(row["m"]) if line is not None else None
        if line is None or life is None or row["n"] < stay_of(life.periods[-1])[0].n:
            continue
        findings.checked[LIVENESS] += 1
        noticed, sender = life.at(row["n"]), row["sender"]
        if noticed is not life.periods[-1] and (sender is None or not _came_along(noticed, line.host(sender))):
            continue
        span = row["a"], max(row["b"] or 0, row["a"] + 1)
        same = f"m = {row['m']} AND u = '{quoted(row['u'])}' AND " + (
            f"sender = '{quoted(sender)}'" if sender is not None else "sender IS NULL"
        )
        facts.engine.only("ev_some", {row["m"]})
        filled = [
            (one["a"], max(one["b"] or 0, one["a"] + 1))
            for one in facts.engine.rows(
                f"SELECT a, b FROM {{ev_some}} WHERE {same} AND a IS NOT NULL AND "
                f"(kind IN ('hold', 'deliver') OR (kind = 'repaired' AND n > {row['n']}))"
            )
        ]
        found = facts.sender_of(line.ru, sender) if sender is not None else None
        if found is not None:
            filled += [(one["a"], one["b"]) for one in facts.submitted(found.sid) if one["svc"] < RELIABLE]
        for open_span in minus([span], filled):
            text = f"{life.name} noticed a gap (n={row['n']}), and it is open at the end"
            message = span_text(sender or "position", open_span)
            findings.add(
                ViolationRow(
                    *(facts.run_of(row["m"]), LIVENESS, ROOT, None, life.periods[-1].view, life.name),
                    *(message, sender, None, text, row["n"]),
                )
            )


def _came_along(period: ViewPeriod | None, name: str) -> bool:
    while period is not None and period.next is not None:
        period = period.next
        if name not in period.came_with:
            return False
    return period is not None and name in period.members
