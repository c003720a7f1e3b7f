"""Property 1: nothing is delivered that was not submitted, nothing twice at one life, nothing weaker than asked for.

Content is judged on the representative rows. A range that comes twice in the content of a cell was delivered twice by
all lives that the cell stands for. Ranges that overlap in different cells (two views, say) are twice only where a life
is behind both. Time is judged on `seen`: the earliest delivery of a range must not come before its submit, by the run
clock where clocks can be compared, and at the sender itself by the numbers of events.

On a shared underlay a delivery names the groups of its submit, and the life is in a view of one of them.
"""

from __future__ import annotations

from typing import Final

from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.facts import RESILIENT, Facts
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.ranges import Range, merged, minus

NAME: Final = "integrity"
LIMIT: Final = 10_000  # rows of evidence that are brought here

# Distinct ranges of content; `twice` where a cell has one of them twice.
BLOCKS: Final = """
SELECT sid, a, b, v, cls, svc, pos, min(c) AS c, max(k) AS twice FROM (
  SELECT c, sid, a, b, v, cls, svc, pos, count(*) AS k FROM {pieces} GROUP BY c, sid, a, b, v, cls, svc, pos)
GROUP BY sid, a, b, v, cls, svc, pos
"""
# In the order of numbers: what overlaps with something before it, or has a smaller position than it.
ODD: Final = """
SELECT sid, a, b, CASE WHEN a < high OR twice > 1 THEN 1 ELSE 0 END AS is_overlap,
  CASE WHEN cls = 3 AND pos < top THEN 1 ELSE 0 END AS is_fall FROM (
  SELECT *, max(b) OVER w AS high, max(CASE WHEN cls = 3 THEN pos END) OVER w AS top FROM {blocks}
  WINDOW w AS (PARTITION BY sid ORDER BY a, b, v, cls, c ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
WHERE a < high OR twice > 1 OR (cls = 3 AND pos < top)
"""
OVERLAPS: Final = f"SELECT DISTINCT sid, a, b FROM {{odd}} WHERE is_overlap = 1 ORDER BY sid, a, b LIMIT {LIMIT}"
OVERLAPPING: Final = """
SELECT DISTINCT p.c, p.sid, p.n, p.v, p.cls, p.a, p.b, p.pos FROM {pieces} p JOIN {overlaps} o
ON p.sid = o.sid AND p.a < o.b AND p.b > o.a
"""
WEAKER: Final = f"""
SELECT c, n, sid, row_a AS a, row_b AS b, sub_n FROM {{pieces}}
WHERE CAST(svc / 256 AS INT) < CAST(sub_svc / 256 AS INT)
  OR (CAST(svc / 256 AS INT) = 5 AND CAST(sub_svc / 256 AS INT) = 5 AND svc < sub_svc) ORDER BY c, n LIMIT {LIMIT}
"""
MISNAMED: Final = f"""
SELECT c, n, sid, row_a AS a, row_b AS b, a AS first, b AS stop, sub_n FROM {{pieces}} WHERE is_same = 0
ORDER BY c, n, a LIMIT {LIMIT}
"""
UNKNOWN: Final = f"""
SELECT m, n, sender, a, b, vw, tgt FROM {{dlv_some}} WHERE sid IS NULL ORDER BY m, n LIMIT {LIMIT}
"""
EARLY: Final = f"""
SELECT s.sid, s.a, s.b, p.sub_n, p.sub_ns, s.first_ns, s.own_n FROM {{seen}} s JOIN (
  SELECT sid, row_a, row_b, max(sub_n) AS sub_n, max(sub_ns) AS sub_ns FROM {{pieces}} GROUP BY sid, row_a, row_b) p
ON s.sid = p.sid AND s.a = p.row_a AND s.b = p.row_b
WHERE s.own_n < p.sub_n OR s.first_ns < p.sub_ns LIMIT {LIMIT}
"""
REDELIVERED: Final = f"""
SELECT e.m, e.n, e.sender, e.a, e.b, e.vw, e.tgt FROM {{few}} e LEFT JOIN {{snd}} s
ON e.r = s.r AND e.u = s.u AND e.sender = s.name AND e.b <= s.total
WHERE e.kind = 'redeliver' AND (s.sid IS NULL OR e.a < 0) ORDER BY e.m, e.n LIMIT {LIMIT}
"""


def check(facts: Facts, findings: Findings) -> None:
    """Judge integrity, and note which deliveries the other properties shall not look at."""
    engine = facts.engine
    findings.checked[NAME] = facts.deliveries
    _check_spurious(facts, findings)
    engine.define("blocks", BLOCKS, keep=True)
    engine.define("odd", ODD, keep=True)
    engine.define("overlaps", OVERLAPS)
    facts.has_overlaps = bool(engine.rows("SELECT sid FROM {odd} WHERE is_overlap = 1 LIMIT 1"))
    if facts.has_overlaps:
        _check_twice(facts, findings)
    for row in map(facts.located, engine.rows(WEAKER)):
        text = f"{{who}} delivered it (n={row['n']}) under a weaker service than was asked for at n={row['sub_n']}"
        _report(facts, findings, row, text, other=facts.senders[row["sid"]].name)
    _check_early(facts, findings)
    if any(line.lightweight for line in facts.lines):
        _check_named(facts, findings)
        _check_strays(facts, findings)


def _check_named(facts: Facts, findings: Findings) -> None:
    """A delivery names the same groups as its submit."""
    told: set[tuple[int, int]] = set()
    for row in map(facts.located, facts.engine.rows(MISNAMED)):
        line = facts.line_of(row["sid"])
        named = line.targets(row["tgt"]) if line.lightweight else None
        if named is None or (row["m"], row["n"]) in told:
            continue
        sent = next(iter(facts.submitted(row["sid"], row["first"], row["stop"])), None)
        asked = line.targets(sent["tgt"]) if sent is not None else None
        if sent is None or asked is None or set(named) == set(asked):
            continue
        told.add((row["m"], row["n"]))
        findings.renamed[row["sid"], row["a"]] = sent["tgt"]
        text = f"{{who}} delivered it (n={row['n']}) under other groups than its submit named: {', '.join(asked)}"
        _report(facts, findings, row, _plain(text), other=facts.senders[row["sid"]].name)


def _check_strays(facts: Facts, findings: Findings) -> None:
    """A life delivers what goes to a group in whose view it is. Cells say it; rows are looked at where they do not."""
    for cell in facts.cells:
        line = facts.lines[cell.ru]
        groups = line.targets(cell.target)
        if cell.sid < 0 or not groups:
            continue
        life = line.lives[cell.m]
        if any(
            life.group_at(group, cell.first_n) is not None and life.in_group(group, cell.first_n, cell.last_n)
            for group in groups
        ):
            continue
        for row in facts.delivered(cell.m, cell.sid):
            if (row["vw"], row["tgt"], row["cls"]) != (cell.view, cell.target, cell.cls):
                continue
            asked = line.targets(findings.renamed.get((row["sid"], row["a"])) or row["tgt"]) or ()
            if (cell.m, row["n"]) in findings.tainted or any(life.group_at(one, row["n"]) is not None for one in asked):
                continue
            findings.tainted.add((cell.m, row["n"]))
            text = f"{{who}} delivered it (n={row['n']}), though it was in no view of {', '.join(asked)}"
            _report(facts, findings, row, _plain(text))


def _plain(text: str) -> str:
    """A text with names in it, of which only `{who}` is filled in."""
    return text.replace("{", "{{").replace("}", "}}").replace("{{who}}", "{who}")


def _check_spurious(facts: Facts, findings: Findings) -> None:
    engine = facts.engine
    strange = {cell.m for cell in facts.cells if cell.sid < 0}
    if strange:
        facts.of_lives(strange)
    for row in engine.rows(UNKNOWN) if strange else ():
        findings.tainted.add((row["m"], row["n"]))
        text = f"{{who}} delivered it (n={row['n']}), and nobody submitted it"
        _report(facts, findings, row, text, sender=row["sender"])
    for row in engine.rows(REDELIVERED):
        text = f"{{who}} delivered it again (n={row['n']}), and nobody submitted it"
        _report(facts, findings, row, text, sender=row["sender"])


def _check_twice(facts: Facts, findings: Findings) -> None:
    """Overlapping content, looked at life by life."""
    rows = map(facts.located, facts.engine.rows(OVERLAPPING))
    seen: dict[tuple[int, int], list[tuple[Range, Record]]] = {}
    unique = {(row["c"], row["n"], row["a"]): row for row in rows}  # a join may give a row for each overlap
    told: set[tuple[int, int, int]] = set()
    for row in sorted(unique.values(), key=lambda row: (row["sid"], row["c"], row["n"], row["a"])):
        for m in facts.alike[row["c"]]:
            seen.setdefault((m, row["sid"]), []).append(((row["a"], row["b"]), row))
    for (m, sid), spans in sorted(seen.items()):
        spans.sort(key=lambda one: (_when(facts, m, one[1]), one[1]["n"]))
        known: list[Range] = []
        for span, row in spans:
            fresh = minus([span], known)
            again = minus([span], fresh)
            known = merged([*known, span])
            if not again:
                continue
            if m == row["m"]:
                findings.tainted.add((m, row["n"]))
            findings.misplaced.add((m, sid, again[0][0]))
            key = sid, again[0][0], row["c"]
            severity = CONSEQUENCE if key in told else ROOT  # all others behind the cell did the same
            told.add(key)
            n = row["n"] if m == row["m"] else None
            text = f"{facts.members[m].name} delivered it again" + (f" (n={n})" if n is not None else "")
            findings.add(
                ViolationRow(
                    *(facts.run_of(m), NAME, severity, None, row["vw"], facts.members[m].name),
                    *(span_text(facts.senders[sid].name, again[0]), None, None, text, n),
                )
            )


def _when(facts: Facts, m: int, row: Record) -> float:
    """The place of the row's view at this life: a cell's own `n` is another life's."""
    period = facts.life_of(facts.senders[row["sid"]].ru, m).by_view.get(row["vw"])
    return period.n if period is not None else -1


def _check_early(facts: Facts, findings: Findings) -> None:
    if not any(cell.is_doubtful for cell in facts.cells):
        return
    for row in facts.engine.rows(EARLY):
        sender = facts.senders[row["sid"]]
        own = row["own_n"] is not None and row["own_n"] < row["sub_n"]
        if not own and facts.clock(facts.members[sender.m].r) == "many":
            continue
        where = f"m = {sender.m}" if own else f"at_ns < {row['sub_ns']}"
        for late in facts.engine.rows(
            f"SELECT m, n, at_ns, vw, tgt, sid, a, b FROM {{dlv}} WHERE sid = {row['sid']} AND a = {row['a']} "
            f"AND b = {row['b']} AND {where} ORDER BY m, n"
        ):
            findings.tainted.add((late["m"], late["n"]))
            findings.misplaced.add((late["m"], late["sid"], late["a"]))
            text = (
                f"{{who}} delivered it at {late['at_ns']} ns (n={late['n']}), before it was submitted at "
                f"{row['sub_ns']} ns"
            )
            _report(facts, findings, late, text, other=sender.name)


def _report(
    facts: Facts, findings: Findings, row: Record, text: str, *, sender: str | None = None, other: str | None = None
) -> None:
    who = facts.members[row["m"]].name
    sender = sender if sender is not None else facts.senders[row["sid"]].name
    findings.add(
        ViolationRow(
            *(facts.run_of(row["m"]), NAME, ROOT, row["tgt"] or None, row["vw"], who),
            *(span_text(sender, (row["a"], row["b"])), other, None, text.format(who=who), row["n"]),
        )
    )


__all__ = ["NAME", "RESILIENT", "check"]
