"""Properties 7 and 8: what had to arrive has arrived, and what was promised was kept.

Who *stayed in* is in its last view at the end, with enough others to go on. What such a sender submitted since it came
in is owed by all who went the same way to the end, from the view of its first delivery on. Counts say whether a member
has all of it; for who came later, that it delivered the same as the sender did in every view since. Where neither says
so the numbers are compared.
"""

from __future__ import annotations

from typing import Final

from ordercast.pipeline.verify.engine import Engine, Record
from ordercast.pipeline.verify.facts import MAJORITY, RELIABLE, RESILIENT, SAFE, Cell, Facts, Sender
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, Violation, span_text
from ordercast.pipeline.verify.history import FOREVER, Ancestry, Life, Line, Segment, may_go_on, stay_of
from ordercast.pipeline.verify.ranges import Range, merged, minus, size

LIVENESS: Final = "liveness"
PROMISES: Final = "promises"
LIMIT: Final = 10_000

Lost = tuple[int, int, Range]  # life, sender, numbers


def check(facts: Facts, findings: Findings) -> None:
    """Judge promises, then liveness: a lost message that was confirmed is the worse fault."""
    settled: dict[int, dict[int, Life]] = {}
    for line in facts.lines:
        settled[line.ru] = settled_members(facts, line) if facts.quiet[line.r] else {}
    if not all(facts.quiet):
        findings.not_judged[LIVENESS] = "a run that did not end quietly owes nothing yet"
    lost = _lost(facts, findings, settled)
    _check_confirms(facts, findings, settled, lost)
    _check_delivered(facts, findings)
    _check_locks(facts, findings)
    _check_replies(facts, findings)
    _report_lost(facts, findings, lost)
    _check_gaps(facts, findings, settled)


def settled_members(facts: Facts, line: Line) -> dict[int, Life]:
    """The members that stayed in: in a last view that still has enough of its members to go on."""
    busy_ns = FOREVER
    if facts.clock(line.r) != "many":
        times = [one.last_ns for one in facts.senders if one.ru == line.ru]
        times += [one.last_ns for one in facts.cells_in.get(line.ru, ())]
        busy_ns = max(times, default=-1)
    present: dict[str, list[Segment]] = {}
    for life in line.lives.values():
        last = life.segments[-1] if life.segments else None
        if last is not None and (last.is_open or (last.cut == "stop" and last.end_ns > busy_ns)):
            present.setdefault(last.view, []).append(last)
    return {
        one.m: line.lives[one.m]
        for ones in present.values()
        if may_go_on(ones[0].members, [one.name for one in ones], facts.rules[line.r])
        for one in ones
    }


# What is owed ---------------------------------------------------------------------------------------------------------


def _lost(facts: Facts, findings: Findings, settled: dict[int, dict[int, Life]]) -> list[Lost]:
    starts = []
    for sender in facts.senders:
        life = settled[sender.ru].get(sender.m)
        if life is not None:
            starts.append((sender.sid, stay_of(life.segments[-1])[0].n))
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
        path = stay_of(line.lives[sender.m].segments[-1])
        for m, life in sorted(settled[sender.ru].items()):
            theirs = stay_of(life.segments[-1])
            if theirs[-1].view != path[-1].view:
                continue
            since = _common(path, theirs)
            findings.checked[LIVENESS] += sum(row["messages"] for row in targets.values())
            if not _has_all(facts, line, life, sender, targets, path, since):
                lost += [(m, sid, span) for span in _missing(facts, line, life, sender, path, since)]
    for sender in facts.senders:
        life = facts.lines[sender.ru].lives[sender.m]
        if facts.quiet[facts.lines[sender.ru].r] and not life.segments and not life.group_segments:
            lost += _lost_of_caller(facts, findings, sender, settled[sender.ru])
    return lost


def _common(path: list[Segment], theirs: list[Segment]) -> int:
    """The place on `path` from which both went the same way to the end."""
    length = 0
    while length < min(len(path), len(theirs)) and path[-1 - length].view == theirs[-1 - length].view:
        length += 1
    return len(path) - length


def _has_all(
    facts: Facts,
    line: Line,
    life: Life,
    sender: Sender,
    targets: dict[str, Record],
    path: list[Segment],
    since: int,
) -> bool:
    mine = [one for one in facts.cells_at.get((life.m, sender.sid), ()) if one.cls >= 1]
    low = min(row["low"] for row in targets.values())
    if any(cell.low < low < cell.high for cell in mine):
        return False
    for target, row in targets.items():
        groups = line.targets(target)
        if groups is None or (groups and not any(group in life.group_spans for group in groups)):
            continue  # nobody knows whom it is for, or it is not for this one
        have = sum(cell.messages for cell in mine if cell.low >= low and cell.target == target)
        if have != row["messages"] and not _is_alike(facts, life, sender, target, path[since:]):
            return False
    return True


def _is_alike(facts: Facts, life: Life, sender: Sender, target: str, path: list[Segment]) -> bool:
    """In every view of the path it delivered what the sender itself did, and that one lacks nothing."""
    if life.m == sender.m:
        return False

    def of(m: int) -> dict[tuple[str, int], int]:
        return {
            (cell.view, cell.cls): cell.rep
            for cell in facts.cells_at.get((m, sender.sid), ())
            if cell.target == target and cell.cls >= 1
        }

    views = {segment.view for segment in path}
    theirs, mine = of(sender.m), of(life.m)
    return {key: rep for key, rep in theirs.items() if key[0] in views} == {
        key: rep for key, rep in mine.items() if key[0] in views
    }


def _missing(facts: Facts, line: Line, life: Life, sender: Sender, path: list[Segment], since: int) -> list[Range]:
    owed = [row for row in facts.submitted(sender.sid) if row["n"] > path[0].n and row["svc"] >= RELIABLE]
    due = merged((row["a"], row["b"]) for row in owed if _is_for(facts, line, life, row))
    if since > 0 and due:
        early = {segment.view for segment in path[:since]}
        anyone = [row for m in line.lives for row in facts.ranges_of(m, sender.sid)]
        views = {m: {one.view: one for one in each.segments} for m, each in line.lives.items()}
        due = minus(due, [(row["a"], row["b"]) for row in anyone if _view_at(views, row) in early])
        before = [(row["a"], row["b"]) for row in owed if row["n"] < path[since].n]
        due = minus(due, minus(before, [(row["a"], row["b"]) for row in anyone]))
    return minus(due, [(row["a"], row["b"]) for row in facts.ranges_of(life.m, sender.sid)])


def _view_at(views: dict[int, dict[str, Segment]], row: Record) -> str | None:
    segment = views[row["m"]].get(row["vw"])
    if segment is not None and segment.n < row["n"] < segment.stop_n:
        return segment.view
    return next((one.view for one in views[row["m"]].values() if one.n < row["n"] < one.stop_n), None)


def _is_for(facts: Facts, line: Line, life: Life, row: Record) -> bool:
    groups = line.targets(row["tgt"])
    if groups is None:
        return False
    if not groups:
        return True
    spans = [life.group_spans[group][-1] for group in groups if group in life.group_spans]
    begins = [(at_ns, n) for n, stop_n, at_ns in spans if stop_n >= life.segments[-1].stop_n]
    if not begins:
        return False
    at_ns, n = min(begins)
    if facts.clock(line.r) != "many":
        return bool(row["at_ns"] > at_ns)
    return n < stay_of(life.segments[-1])[0].n


def _lost_of_caller(facts: Facts, findings: Findings, sender: Sender, settled: dict[int, Life]) -> list[Lost]:
    """What one of those who stayed in delivered of a caller, all who were there owe."""
    line = facts.lines[sender.ru]
    views = {m: {one.view: one for one in stay_of(life.segments[-1])} for m, life in settled.items()}
    cells = [cell for m in settled for cell in facts.cells_at.get((m, sender.sid), ()) if cell.cls >= 1]
    by_view: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.view in views[cell.m] and line.targets(cell.target) == ():
            by_view.setdefault(cell.view, []).append(cell)
    lost: list[Lost] = []
    for view, ones in sorted(by_view.items()):
        there = [m for m in settled if view in views[m]]
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
            if row["vw"] == view and row["svc"] >= RELIABLE
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
        last = facts.lines[sender.ru].lives[who[0]].segments[-1]
        text = f"{names} never delivered it, though they were there and the run ended quietly in view {last.view}"
        findings.add(
            Violation(
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


def _check_gaps(facts: Facts, findings: Findings, settled: dict[int, dict[int, Life]]) -> None:
    """No gap that was noticed is open at the end."""
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
        if line is None or life is None or row["n"] < stay_of(life.segments[-1])[0].n:
            continue
        findings.checked[LIVENESS] += 1
        noticed, sender = life.at(row["n"]), row["sender"]
        if noticed is not life.segments[-1] and (sender is None or not _came_along(noticed, sender)):
            continue
        span = row["a"], max(row["b"] or 0, row["a"] + 1)
        same = f"m = {row['m']} AND u = '{_quoted(row['u'])}' AND " + (
            f"sender = '{_quoted(sender)}'" if sender is not None else "sender IS NULL"
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
                Violation(
                    *(facts.run_of(row["m"]), LIVENESS, ROOT, None, life.segments[-1].view, life.name),
                    *(message, sender, None, text, row["n"]),
                )
            )


def _came_along(segment: Segment | None, name: str) -> bool:
    while segment is not None and segment.next is not None:
        segment = segment.next
        if name not in segment.came_with:
            return False
    return segment is not None and name in segment.members


# What was promised ----------------------------------------------------------------------------------------------------


def _check_confirms(facts: Facts, findings: Findings, settled: dict[int, dict[int, Life]], lost: list[Lost]) -> None:
    """Confirmed RESILIENT(k)-or-stronger: members of the view who went on have it, if few enough failed at once.

    What a sender that stayed in submitted is owed anyway (liveness), so only what is lost of it is looked up here.
    """
    doubtful = {sid for _, sid, _ in lost}
    doubtful |= {one.sid for one in facts.senders if one.strongest >= RESILIENT and one.m not in settled[one.ru]}
    for sid in sorted(doubtful):
        sender = facts.senders[sid]
        line = facts.lines[sender.ru]
        if not facts.quiet[line.r]:
            continue
        confirms = facts.engine.rows(
            f"SELECT n, a, b, vw FROM {{few}} WHERE kind = 'confirm' AND m = {sender.m} AND u = "
            f"'{_quoted(line.underlay)}' "
            "ORDER BY n"
        )
        for row in confirms:
            for submit in facts.submitted(sid, row["a"], row["b"]):
                if submit["svc"] >= RESILIENT:
                    span = max(submit["a"], row["a"]), min(submit["b"], row["b"])
                    _check_confirm(facts, findings, line, sender, row, submit, span, settled[line.ru])


def _check_confirm(
    facts: Facts,
    findings: Findings,
    line: Line,
    sender: Sender,
    row: Record,
    submit: Record,
    span: Range,
    settled: dict[int, Life],
) -> None:
    view = _view_of(facts, line, sender, row["n"], span)
    told: set[Range] = set()
    for m, life in sorted(settled.items()):
        there = life.by_view.get(view) if view is not None else None
        if there is None or there.stay != life.segments[-1].stay or there.next is None:
            continue
        if not line.is_owed(life, submit["tgt"], there.n, there.stop_n) or not _few_failed(there, submit["svc"]):
            continue
        have = [(one["a"], one["b"]) for one in facts.delivered(m, sender.sid)]
        for gone in minus([span], have):
            is_new = findings.miss(m, sender.sid, gone)
            severity = ROOT if is_new and gone not in told else CONSEQUENCE
            told.add(gone)
            text = (
                f"it was confirmed at {sender.name} (n={row['n']}); {life.name} went on from view {view} and "
                "never delivered it"
            )
            findings.add(
                Violation(
                    *(facts.run_of(m), PROMISES, severity, submit["tgt"] or None, view, life.name),
                    *(span_text(sender.name, gone), sender.name, None, text, there.n),
                )
            )


def _view_of(facts: Facts, line: Line, sender: Sender, n: int, span: Range) -> str | None:
    """The view whose members were there when the message was confirmed."""
    source = line.lives[sender.m]
    for row in facts.delivered(sender.m, sender.sid):
        if row["a"] <= span[0] < row["b"]:
            segment = source.at(row["n"])
            return segment.view if segment is not None else None
    segment = source.at(n)
    if segment is not None:
        return segment.view
    views = set()
    for m, life in line.lives.items():
        for row in facts.delivered(m, sender.sid):
            if row["a"] <= span[0] < row["b"] and (where := life.at(row["n"])) is not None:
                views.add(where.view)
    place = Ancestry([life.segments for life in line.lives.values()]).place
    return min(views, key=lambda view: (place.get(view, 0), view), default=None)


def _few_failed(segment: Segment, svc: int) -> bool:
    while segment.next is not None:
        members = len(segment.members)
        gone = members - sum(name in segment.next.came_with for name in segment.members)
        tolerated = members - 1 if svc >= SAFE else members // 2 if svc >= MAJORITY else svc - RESILIENT
        if gone > tolerated:
            return False
        segment = segment.next
    return True


def _check_delivered(facts: Facts, findings: Findings) -> None:
    """What was confirmed has been delivered by somebody; of a caller's, before that, as far as clocks tell."""
    engine = facts.engine
    outside = [
        (one.sid,)
        for one in facts.senders
        if not facts.lines[one.ru].lives[one.m].segments and not facts.lines[one.ru].lives[one.m].group_segments
    ]
    engine.load("outside", [("sid", "int")], outside)
    engine.define(
        "confirmed",
        "SELECT s.sid, e.m, e.n, e.at_ns, e.a, e.b, e.vw FROM {few} e JOIN {snd} s ON e.m = s.m AND e.u = s.u "
        "WHERE e.kind = 'confirm' AND e.a IS NOT NULL",
    )
    if not _count(engine, findings, "confirmed"):
        return
    suspects = engine.rows(
        "SELECT c.sid, c.m, c.n, c.at_ns, c.a, c.b, c.vw FROM (SELECT *, max(high) OVER (PARTITION BY sid "
        "ORDER BY a, k "
        "ROWS UNBOUNDED PRECEDING) AS top FROM (SELECT sid, m, n, at_ns, a, b, vw, CAST(NULL AS BIGINT) AS "
        "high, 1 AS k "
        "FROM {confirmed} UNION ALL SELECT sid, NULL, NULL, NULL, a, b, NULL, b, 0 FROM {blocks})) c "
        f"WHERE c.k = 1 AND (c.top IS NULL OR c.top < c.b) ORDER BY c.sid, c.n LIMIT {LIMIT}"
    )
    early = (
        []
        if not outside
        else engine.rows(
            "SELECT c.sid, c.m, c.n, c.at_ns, c.a, c.b, c.vw FROM {confirmed} c JOIN {outside} o ON c.sid = "
            "o.sid LEFT JOIN "
            "{seen} s ON c.sid = s.sid AND c.a = s.a AND c.b = s.b WHERE s.sid IS NULL OR s.first_ns > c.at_ns "
            f"ORDER BY c.sid, c.n LIMIT {LIMIT}"
        )
    )
    unique = {(row["sid"], row["n"]): row for row in [*suspects, *early]}
    callers = {sid for (sid,) in outside}
    for (sid, _), row in sorted(unique.items()):
        sender = facts.senders[sid]
        line = facts.lines[sender.ru]
        timed = sid in callers and facts.clock(line.r) != "many"
        have = [
            (one["a"], one["b"])
            for m in line.lives
            for one in facts.delivered(m, sid)
            if not timed or one["at_ns"] <= row["at_ns"]
        ]
        asked = [
            (max(one["a"], row["a"]), min(one["b"], row["b"]))
            for one in facts.submitted(sid, row["a"], row["b"])
            if one["svc"] >= RELIABLE
        ]
        for gone in minus(asked, have):
            text = f"it was confirmed at {sender.name} (n={row['n']}), and nobody had delivered it"
            findings.add(
                Violation(
                    *(facts.run_of(sender.m), PROMISES, ROOT, None, row["vw"], sender.name),
                    *(span_text(sender.name, gone), None, None, text, row["n"]),
                )
            )


def _check_locks(facts: Facts, findings: Findings) -> None:
    rows = facts.engine.rows(
        "SELECT m, r, u, n, at_ns, kind, tgt, detail, vw FROM {few} WHERE kind IN ('lock', 'unlock') ORDER BY m, n"
    )
    lines = {(line.r, line.underlay): line for line in facts.lines}
    frees: dict[tuple[int, str, str, str | None], list[tuple[int, int]]] = {}
    for row in rows:
        if row["kind"] == "unlock":
            frees.setdefault((row["m"], row["u"], row["tgt"], row["detail"]), []).append((row["n"], row["at_ns"]))
    held: dict[tuple[int, str, str | None], list[tuple[int, int, Life, Record]]] = {}
    for row in rows:
        if row["kind"] != "lock":
            continue
        findings.checked[PROMISES] += 1
        line = lines.get((row["r"], row["u"]))
        if line is None:
            continue
        life = line.life(row["m"], facts.members[row["m"]].name)
        ends = [at_ns for n, at_ns in frees.get((row["m"], row["u"], row["tgt"], row["detail"]), []) if n > row["n"]]
        ends += [at_ns for n, at_ns in life.cuts if n > row["n"]]
        key = line.ru, row["tgt"], row["detail"]
        held.setdefault(key, []).append((row["at_ns"], min(ends, default=FOREVER), life, row))
    for (ru, _, name), times in sorted(held.items(), key=lambda one: str(one[0])):
        if facts.clock(facts.lines[ru].r) == "many":
            times = [(0, end, life, row) for _, end, life, row in times if end == FOREVER]
        _check_lock(facts, findings, name, sorted(times, key=lambda one: one[:2]))


def _check_lock(facts: Facts, findings: Findings, name: str | None, times: list[tuple[int, int, Life, Record]]) -> None:
    running: list[tuple[int, int, Life, Record]] = []
    for begin, end, life, row in times:
        running = [one for one in running if one[1] > begin]
        at_ns = begin or FOREVER - 1
        for _, other_end, other, _ in running:
            if (
                other is life
                or min(end, other_end) <= begin
                or not (_sees(life, other, at_ns) and _sees(other, life, at_ns))
            ):
                continue
            text = f"lock {name!r} was granted to {life.name} (n={row['n']}) while {other.name} held it"
            findings.add(
                Violation(
                    *(facts.run_of(life.m), PROMISES, ROOT, row["tgt"] or None, row["vw"], life.name),
                    *(None, other.name, None, text, row["n"]),
                )
            )
            break
        running.append((begin, end, life, row))


def _sees(life: Life, other: Life, at_ns: int) -> bool:
    if not life.segments:
        return True
    here = [segment for segment in life.segments if segment.at_ns <= at_ns]
    return bool(here) and other.name in here[-1].members


def _count(engine: Engine, findings: Findings, table: str) -> int:
    """How many rows a table has, each of which is a promise that is examined."""
    count: int = engine.rows(f"SELECT count(*) AS c FROM {{{table}}}")[0]["c"]
    findings.checked[PROMISES] += count
    return count


def _check_replies(facts: Facts, findings: Findings) -> None:
    """A call has one answer, from one who has delivered it; two where two parts may both have gone on."""
    engine = facts.engine
    engine.define(
        "replies",
        "SELECT m, r, u, n, sender, a, vw, tgt FROM {few} WHERE kind = 'reply' AND sender IS NOT NULL AND a "
        "IS NOT NULL",
    )
    if not _count(engine, findings, "replies"):
        return
    engine.define(
        "heard",
        "SELECT e.m, e.u, e.sender, e.a, min(e.n) AS n FROM {ev} e JOIN (SELECT DISTINCT m, u, sender, a "
        "FROM {replies}) p "
        "ON e.m = p.m AND e.u = p.u AND e.sender = p.sender AND e.a = p.a WHERE e.kind IN ('deliver', 'redeliver') "
        "GROUP BY e.m, e.u, e.sender, e.a",
    )
    rows = engine.rows(
        "SELECT p.*, h.n AS heard_n FROM {replies} p LEFT JOIN {heard} h ON p.m = h.m AND p.u = h.u AND "
        "p.sender = h.sender "
        "AND p.a = h.a LEFT JOIN (SELECT r, u, sender, a, count(*) AS c FROM {replies} GROUP BY r, u, sender, a) k "
        "ON p.r = k.r AND p.u = k.u AND p.sender = k.sender AND p.a = k.a "
        f"WHERE h.n IS NULL OR h.n > p.n OR k.c > 1 ORDER BY p.m, p.n LIMIT {LIMIT}"
    )
    lines = {(line.r, line.underlay): line for line in facts.lines}
    ancestries: dict[int, Ancestry] = {}
    given: dict[tuple[int, str, int], list[tuple[Life, Record, Segment | None]]] = {}
    for row in rows:
        line = lines[row["r"], row["u"]]
        life = line.life(row["m"], facts.members[row["m"]].name)
        heard_n = FOREVER if row["heard_n"] is None else row["heard_n"]
        call = span_text(row["sender"], (row["a"], row["a"] + 1))
        if heard_n > row["n"]:
            _report_reply(
                facts, findings, row, call, None, f"{life.name} answered it (n={row['n']}) and had not delivered it"
            )
        here = life.at(min(heard_n, row["n"]))
        before = given.setdefault((line.ru, row["sender"], row["a"]), [])
        if line.ru not in ancestries:
            ancestries[line.ru] = Ancestry([one.segments for one in line.lives.values()])
        for other, other_row, there in before:
            if not _were_parted(facts, line, ancestries[line.ru], there, here):
                text = f"it was answered by {life.name} (n={row['n']}) and by {other.name} (n={other_row['n']})"
                _report_reply(facts, findings, row, call, other.name, text)
                break
        before.append((life, row, here))


def _report_reply(facts: Facts, findings: Findings, row: Record, call: str, other: str | None, text: str) -> None:
    who = facts.members[row["m"]].name
    findings.add(
        Violation(
            facts.run_of(row["m"]),
            PROMISES,
            ROOT,
            row["tgt"] or None,
            row["vw"],
            who,
            call,
            other,
            None,
            text,
            row["n"],
        )
    )


def _were_parted(facts: Facts, line: Line, ancestry: Ancestry, one: Segment | None, other: Segment | None) -> bool:
    if one is None or other is None or one.m == other.m or one.view == other.view:
        return False
    if _went_on(one, other.view) or _went_on(other, one.view):
        return False
    return ancestry.may_part(one.view, other.view, facts.rules[line.r])


def _went_on(segment: Segment, view: str) -> bool:
    while segment.next is not None:
        segment = segment.next
        if segment.view == view:
            return True
    return False


def _quoted(text: str) -> str:
    return text.replace("'", "''").replace("{", "{{").replace("}", "}}")


__all__ = ["check", "settled_members", "size"]
