"""Property 8: what was promised was kept: confirmations, locks, and one answer to a call.

It is judged before liveness: a lost message that was confirmed is the worse fault.
"""

from __future__ import annotations

from typing import Final

from ordercast.pipeline.verify import attendance
from ordercast.pipeline.verify.engine import Record, SqlEngine
from ordercast.pipeline.verify.evidence import quoted
from ordercast.pipeline.verify.facts import MAJORITY, RELIABLE, RESILIENT, SAFE, Facts, TracedSender
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.history import FOREVER, Ancestry, Life, Line, ViewPeriod
from ordercast.pipeline.verify.liveness import Lost, Settled
from ordercast.pipeline.verify.ranges import Range, minus

PROMISES: Final = "promises"
LIMIT: Final = 10_000


def check(facts: Facts, findings: Findings, settled: Settled, lost: list[Lost]) -> None:
    """Judge promises."""
    _check_confirms(facts, findings, settled, lost)
    _check_delivered(facts, findings)
    _check_locks(facts, findings)
    _check_replies(facts, findings)
    attendance.check(facts, findings)


def _check_confirms(facts: Facts, findings: Findings, settled: Settled, lost: list[Lost]) -> None:
    """Confirmed RESILIENT(k)-or-stronger: members of the view that went on have it, if few enough failed at once.

    The messages of a sender that stayed in are owed anyway (liveness), so only the lost ones are looked up here.
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
            f"'{quoted(line.underlay)}' "
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
    sender: TracedSender,
    row: Record,
    submit: Record,
    span: Range,
    settled: dict[int, Life],
) -> None:
    view = _view_of(facts, line, sender, row["n"], span)
    told: set[Range] = set()
    for m, life in sorted(settled.items()):
        there = life.by_view.get(view) if view is not None else None
        if there is None or there.stay != life.periods[-1].stay or there.next is None:
            continue
        if not line.is_owed(life, submit["tgt"], there.n, there.stop_n) or not _few_failed(there, submit["svc"]):
            continue
        if facts.has_components(line.r) and line.host(sender.name) not in there.next.came_with:
            continue  # what it owes is safe delivery
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
                ViolationRow(
                    *(facts.run_of(m), PROMISES, severity, submit["tgt"] or None, view, life.name),
                    *(span_text(sender.name, gone), sender.name, None, text, there.n),
                )
            )


def _view_of(facts: Facts, line: Line, sender: TracedSender, n: int, span: Range) -> str | None:
    """The view whose members were there when the message was confirmed."""
    source = line.lives[sender.m]
    for row in facts.delivered(sender.m, sender.sid):
        if row["a"] <= span[0] < row["b"]:
            period = source.at(row["n"])
            return period.view if period is not None else None
    period = source.at(n)
    if period is not None:
        return period.view
    views = set()
    for m, life in line.lives.items():
        for row in facts.delivered(m, sender.sid):
            if row["a"] <= span[0] < row["b"] and (where := life.at(row["n"])) is not None:
                views.add(where.view)
    place = Ancestry([life.periods for life in line.lives.values()]).place
    return min(views, key=lambda view: (place.get(view, 0), view), default=None)


def _few_failed(period: ViewPeriod, svc: int) -> bool:
    while period.next is not None:
        members = len(period.members)
        gone = members - sum(name in period.next.came_with for name in period.members)
        tolerated = members - 1 if svc >= SAFE else members // 2 if svc >= MAJORITY else svc - RESILIENT
        if gone > tolerated:
            return False
        period = period.next
    return True


def _check_delivered(facts: Facts, findings: Findings) -> None:
    """A confirmed message has been delivered by a member; a call before its confirmation, if clocks can be compared.

    Lightweight groups may have no members: of messages to them this is said where the sender was in one all the time.
    """
    engine = facts.engine
    outside = [
        (one.sid,)
        for one in facts.senders
        if not facts.lines[one.ru].lives[one.m].periods and not facts.lines[one.ru].lives[one.m].group_periods
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
            if one["svc"] >= RELIABLE and line.is_owed(line.lives[sender.m], one["tgt"], one["n"], row["n"])
        ]
        for gone in minus(asked, have):
            text = f"it was confirmed at {sender.name} (n={row['n']}), and nobody had delivered it"
            findings.add(
                ViolationRow(
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
        groups = life.group_periods.get(row["tgt"], ())
        ends += [one.end_ns for one in groups if one.cut is not None and one.stop_n > row["n"]]
        key = line.ru, row["tgt"], row["detail"]
        held.setdefault(key, []).append((row["at_ns"], min(ends, default=FOREVER), life, row))
    for (ru, _, name), times in sorted(held.items(), key=lambda one: str(one[0])):
        if facts.clock(facts.lines[ru].r) == "many":
            times = [(0, end, life, row) for _, end, life, row in times if end == FOREVER]
        _check_lock(facts, findings, facts.lines[ru], name, sorted(times, key=lambda one: one[:2]))


def _check_lock(
    facts: Facts, findings: Findings, line: Line, name: str | None, times: list[tuple[int, int, Life, Record]]
) -> None:
    running: list[tuple[int, int, Life, Record]] = []
    for begin, end, life, row in times:
        running = [one for one in running if one[1] > begin]
        at_ns = begin or FOREVER - 1
        for _, other_end, other, _ in running:
            if (
                other is life
                or min(end, other_end) <= begin
                or not (_sees(line, life, other, at_ns) and _sees(line, other, life, at_ns))
            ):
                continue
            text = f"lock {name!r} was granted to {life.name} (n={row['n']}) while {other.name} held it"
            findings.add(
                ViolationRow(
                    *(facts.run_of(life.m), PROMISES, ROOT, row["tgt"] or None, row["vw"], life.name),
                    *(None, other.name, None, text, row["n"]),
                )
            )
            break
        running.append((begin, end, life, row))


def _sees(line: Line, life: Life, other: Life, at_ns: int) -> bool:
    if not life.periods:
        return True
    here = [period for period in life.periods if period.at_ns <= at_ns]
    return bool(here) and line.host(other.name) in here[-1].members


def _count(engine: SqlEngine, findings: Findings, table: str) -> int:
    """How many rows a table has, each of which is a promise that is examined."""
    count: int = engine.rows(f"SELECT count(*) AS c FROM {{{table}}}")[0]["c"]
    findings.checked[PROMISES] += count
    return count


def _check_replies(facts: Facts, findings: Findings) -> None:
    """A call has one answer, from a member that has delivered it; two if two parts may both have gone on."""
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
    given: dict[tuple[int, str, int], list[tuple[Life, Record, ViewPeriod | None]]] = {}
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
            ancestries[line.ru] = Ancestry([one.periods for one in line.lives.values()])
        for other, other_row, there in before:
            if not _were_parted(facts, line, ancestries[line.ru], there, here):
                text = f"it was answered by {life.name} (n={row['n']}) and by {other.name} (n={other_row['n']})"
                _report_reply(facts, findings, row, call, other.name, text)
                break
        before.append((life, row, here))


def _report_reply(facts: Facts, findings: Findings, row: Record, call: str, other: str | None, text: str) -> None:
    who = facts.members[row["m"]].name
    findings.add(
        ViolationRow(
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


def _were_parted(
    facts: Facts, line: Line, ancestry: Ancestry, one: ViewPeriod | None, other: ViewPeriod | None
) -> bool:
    if one is None or other is None or one.m == other.m or one.view == other.view:
        return False
    if _went_on(one, other.view) or _went_on(other, one.view):
        return False
    return ancestry.may_part(one.view, other.view, facts.rules[line.r])


def _went_on(period: ViewPeriod, view: str) -> bool:
    while period.next is not None:
        period = period.next
        if period.view == view:
            return True
    return False
