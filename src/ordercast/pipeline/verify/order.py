"""Properties 2, 3 and 4: the order of one sender's messages, of causes and effects, and of everything.

Order is a scan: on an ordered delivery `prev_position` names the delivery before it, so one row shows a fall. The
recorder is checked, too: the ends of all rows and the previous positions of all rows are the same numbers, except for
the two ends of the chain. Content proves the rest (`positions.py`): in a view a position has one message and a message
one position, and the numbers of one sender rise with its positions. Then no two members have different orders, and no
member has a sender's ordered messages out of order.

- Messages without a position (FIFO, CAUSAL) are examined row by row, and so are rows without such a proof (`fifo.py`).
- Causality follows for an ordered message that its sender delivered after it had submitted it: everything that the
  sender had delivered before has a smaller position. The rest is walked with vector clocks (`causal.py`).

A delivery out of place is one fault: fifo if it comes behind a later message of its own sender, causal if it comes
behind an answer to it, and total order otherwise.
"""

from __future__ import annotations

import math
from typing import Final

from ordercast.pipeline.verify import causal, fifo, positions
from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.evidence import add_row, quoted
from ordercast.pipeline.verify.facts import ORDERED_CLASS, UNORDERED_CLASS, Cell, Facts
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.history import FOREVER, Life, Line

LIMIT: Final = 10_000

# Rows behind one that they should precede; `top_n` is where that one stands.
LATE: Final = f"""
SELECT m, n, sid, a, b, vw, tgt, pos, top FROM (
  SELECT d.m, d.n, d.sid, d.a, d.b, d.vw, d.tgt, d.pos, max(d.pos) OVER (PARTITION BY d.m, t.ru, t.stay ORDER BY d.n
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS top
  FROM {{dlv_some}} d JOIN {{suspects}} t ON d.m = t.m AND d.r = t.r AND d.u = t.u AND d.n > t.n AND d.n < t.stop_n
  WHERE d.cls = 3 AND d.sid IS NOT NULL) WHERE pos < top ORDER BY m, n LIMIT {LIMIT}
"""


def check(facts: Facts, findings: Findings) -> None:
    """Judge fifo, causal and total order."""
    for cell in facts.cells:
        if cell.cls >= UNORDERED_CLASS:
            findings.checked["fifo"] += cell.rows
        if cell.cls == ORDERED_CLASS:
            findings.checked["total_order"] += cell.rows
    _check_recorder(facts, findings)
    late = _late_rows(facts, findings)
    fifo.check_rise(facts, findings, late)
    fifo.check_holes(facts, findings)
    causal.check(facts, findings, late)
    _check_late(facts, findings, late)
    positions.check_positions(facts, findings)
    positions.check_strong(facts, findings)


# The recorder ---------------------------------------------------------------------------------------------------------


def _check_recorder(facts: Facts, findings: Findings) -> None:
    """What rows call the position before them is the end of the row before them."""
    for line in facts.lines:
        for life in line.lives.values():
            stays: dict[int, list[Cell]] = {}
            for cell in facts.cells_of.get(life.m, ()):
                if cell.ru == line.ru and cell.cls == ORDERED_CLASS:
                    period = life.at(cell.first_n)
                    stays.setdefault(period.stay if period is not None else 0, []).append(cell)
            if not _is_honest(stays):
                _report_liar(facts, findings, line, life)


def _is_honest(stays: dict[int, list[Cell]]) -> bool:
    ends = {-1}
    for _, cells in sorted(stays.items()):
        first = min(cells, key=lambda cell: cell.first_n)
        last = max(cells, key=lambda cell: cell.last_n)
        total = first.first_digest ^ last.last_digest
        for cell in cells:
            total ^= cell.guard
        if total or first.first_prev not in ends:
            return False
        ends = {-1, last.last_end or 0}
    return True


def _report_liar(facts: Facts, findings: Findings, line: Line, life: Life) -> None:
    found = facts.engine.rows(
        f"SELECT n, vw, tgt, sid, a, b, prev, was FROM (SELECT n, vw, tgt, sid, a, b, prev, lag(pos + b - a - 1) OVER "
        f"(ORDER BY n) AS was FROM {facts.of_lives({life.m})} WHERE u = '{quoted(line.underlay)}' AND cls = 3) "
        "WHERE prev <> coalesce(was, -1) ORDER BY n LIMIT 100"
    )
    cuts = [n for n, _ in life.cuts]
    for row in found:
        if row["prev"] == -1 and any(n < row["n"] for n in cuts):
            continue
        text = (
            f"{life.name} wrote prev_position {row['prev']} (n={row['n']}), but what it delivered before ended at "
            f"{row['was']}: the recorder contradicts itself"
        )
        sender = facts.senders[row["sid"]].name if row["sid"] is not None else "?"
        findings.add(
            ViolationRow(
                *(facts.run_of(life.m), "total_order", ROOT, row["tgt"] or None, row["vw"], life.name),
                *(span_text(sender, (row["a"], row["b"])), None, None, text, row["n"]),
            )
        )
        return


# Out of place ---------------------------------------------------------------------------------------------------------


def _late_rows(facts: Facts, findings: Findings) -> list[Record]:
    """Ordered deliveries behind one of a greater position, in the same stay."""
    suspects: list[tuple[int, int, str, int, int, int, int]] = []
    for line in facts.lines:
        for life in line.lives.values():
            cells = [one for one in facts.cells_of.get(life.m, ()) if one.ru == line.ru and one.cls == ORDERED_CLASS]
            if not any(cell.falls for cell in cells) and _is_rising(life, cells):
                continue
            stays: dict[int, list[float]] = {}
            for period in life.periods:
                span = stays.setdefault(period.stay, [period.n, period.stop_n])
                span[1] = period.stop_n
            stays = stays or {0: [-1, FOREVER]}
            suspects += [
                (life.m, line.r, line.underlay, line.ru, stay, math.floor(span[0]), math.ceil(span[1]))
                for stay, span in stays.items()
            ]
    if not suspects:
        return []
    columns = [("m", "int"), ("r", "int"), ("u", "string"), ("ru", "int"), ("stay", "int"), ("n", "bigint")]
    facts.engine.load("suspects", [*columns, ("stop_n", "bigint")], suspects)
    facts.of_lives({one[0] for one in suspects})
    rows = [row for row in facts.engine.rows(LATE) if (row["m"], row["n"]) not in findings.tainted]
    tops = {(row["m"], row["top"]) for row in rows}
    if not tops:
        return []
    wanted = " OR ".join(f"(m = {m} AND pos = {pos})" for m, pos in sorted(tops)[:500])
    named = {
        (row["m"], row["pos"]): row
        for row in facts.engine.rows(
            f"SELECT m, n, sid, a, b, pos, vw, svc FROM {{dlv_some}} WHERE {wanted} ORDER BY n DESC"
        )
    }
    for row in rows:
        row["before"] = named.get((row["m"], row["top"]))
    # Behind a delivery that property 1 rejected nothing is late: it should not be there itself.
    return [row for row in rows if row["before"] is None or (row["m"], row["before"]["n"]) not in findings.tainted]


def _is_rising(life: Life, cells: list[Cell]) -> bool:
    """From view to view, by the least and greatest positions: within one the falls say it."""
    by_view: dict[str, list[int]] = {}
    for cell in cells:
        span = by_view.setdefault(cell.view, [FOREVER, -1])
        span[0] = min(span[0], cell.low_position if cell.low_position is not None else FOREVER)
        span[1] = max(span[1], cell.high_position or -1)
    top, stay = -1, -1
    for period in life.periods:
        if period.stay != stay:
            top, stay = -1, period.stay
        low, high = by_view.get(period.view, (FOREVER, -1))
        if low < top:
            return False
        top = max(top, high)
    return True


def _check_late(facts: Facts, findings: Findings, late: list[Record]) -> None:
    told: set[tuple[int, int]] = set()
    for row in late:
        key = row["m"], row["sid"], row["a"]
        severity = CONSEQUENCE if key in findings.misplaced or (row["m"], row["top"]) in told else ROOT
        told.add((row["m"], row["top"]))
        findings.misplaced.add(key)
        before = row["before"]
        other = _who_disagrees(facts, row)
        who = facts.members[row["m"]].name
        behind = (
            span_text(facts.senders[before["sid"]].name, (before["a"], before["b"])) if before is not None else None
        )
        text = f"{who} delivered it at position {row['pos']} (n={row['n']}) after {behind} at position {row['top']}"
        if other is not None:
            text += f"; {other} delivered them the other way round"
        add_row(facts, findings, "total_order", severity, row, text, other, behind)


def _who_disagrees(facts: Facts, row: Record) -> str | None:
    """Another member that delivered both, by content: it has no falls, so it has them in the order of positions."""
    before = row["before"]
    if before is None:
        return None
    places = f"((sid = {row['sid']} AND a <= {row['a']} AND b > {row['a']}) OR "
    places += f"(sid = {before['sid']} AND a <= {before['a']} AND b > {before['a']}))"
    found = facts.engine.rows(f"SELECT DISTINCT c, sid FROM {{pieces}} WHERE {places}")
    have: dict[int, set[int]] = {}
    for one in found:
        if facts.cells[one["c"]].view == row["vw"]:
            for m in facts.alike[one["c"]]:
                have.setdefault(m, set()).add(one["sid"])
    for m in sorted(have.keys() - {row["m"]}):
        is_straight = not any(cell.falls for cell in facts.cells_of[m] if cell.view == row["vw"])
        if is_straight and {row["sid"], before["sid"]} <= have[m]:
            return facts.members[m].name
    return None
