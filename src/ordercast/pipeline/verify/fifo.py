"""Property 2: the messages of one sender come in the order of their numbers, without holes.

The numbers of a sender rise with its positions, which content proves (`order.py`). Row by row are judged only messages
without a position (FIFO, CAUSAL), for senders that have such, and rows that no certificate vouches for.

On a shared underlay a hole may lie between messages to different groups, so there holes are looked for in what a life
delivered of a sender to all of its groups, row by row.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from typing import Final

from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.evidence import add_row
from ordercast.pipeline.verify.facts import AGREED, FIFO, UNORDERED_CLASS, Cell, Facts, TracedSender
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, span_text
from ordercast.pipeline.verify.history import FOREVER, Life, Line, ViewPeriod
from ordercast.pipeline.verify.ranges import common_of, merged, minus
from ordercast.pipeline.verify.shared import SharedRow, shared_rows

LIMIT: Final = 10_000

AGAINST_NUMBERS: Final = f"SELECT DISTINCT sid FROM {{odd}} WHERE is_fall = 1 LIMIT {LIMIT}"
RISE: Final = f"""
SELECT m, n, sid, a, high FROM (
  SELECT m, n, sid, a, max(b) OVER (PARTITION BY k ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS high
  FROM (SELECT d.m, d.n, d.sid, d.a, d.b, CAST(d.m AS BIGINT) * 4294967296 + d.sid AS k FROM {{num}} d
    JOIN {{doubtful}} s ON d.sid = s.sid WHERE d.svc >= {FIFO} AND (s.m = -1 OR s.m = d.m)))
WHERE a < high ORDER BY m, n LIMIT {LIMIT}
"""
RISE_ROWS: Final = """
SELECT d.m, d.n, d.sid, d.a, d.b, d.vw, d.tgt, f.high FROM {dlv} d JOIN {falling} f ON d.m = f.m AND d.n = f.n
"""
# Holes in what a sender sent to one target, within a cell; and the ends of each cell's stretch.
HOLES: Final = f"""
SELECT c, sid, low, a, g0, g FROM (
  SELECT c, sid, a, g, lag(b) OVER w AS low, lag(g + b - a) OVER w AS g0 FROM {{pieces}}
  WHERE sub_svc >= {FIFO} AND is_same = 1
  WINDOW w AS (PARTITION BY c, CASE WHEN sub_svc >= {AGREED} THEN 3 ELSE 2 END ORDER BY a, n))
WHERE g > g0 LIMIT {LIMIT}
"""
FIRSTS: Final = f"""
SELECT sid, t, CASE WHEN svc >= {AGREED} THEN 3 ELSE 2 END AS k, v, min(a) AS a, min(g) AS g FROM {{sub}}
WHERE svc >= {FIFO} GROUP BY sid, t, CASE WHEN svc >= {AGREED} THEN 3 ELSE 2 END, v
"""
STRETCHES: Final = f"""
SELECT c, CASE WHEN sub_svc >= {AGREED} THEN 3 ELSE 2 END AS k, min(g) AS g0, max(g + b - a) AS g1, min(a) AS a,
  max(b) AS b, sum(b - a) AS messages FROM {{pieces}} WHERE sub_svc >= {FIFO} AND is_same = 1
GROUP BY c, CASE WHEN sub_svc >= {AGREED} THEN 3 ELSE 2 END
"""


def check_rise(facts: Facts, findings: Findings, late: list[Record]) -> None:
    """Row by row, for senders and lives that no certificate vouches for."""
    doubtful: set[tuple[int, int]] = set()  # (sender, life), -1 for all lives
    for cell in facts.cells:
        if cell.cls == UNORDERED_CLASS and cell.sid >= 0:
            doubtful.add((cell.sid, -1))
    doubtful |= {(row["sid"], -1) for row in facts.engine.rows(AGAINST_NUMBERS)}
    doubtful |= {(row["sid"], row["m"]) for row in late}
    for m, cells in facts.cells_of.items():
        doubtful |= {(sid, m) for sid in _falling(facts, m, cells)}
    doubtful = {(sid, m) for sid, m in doubtful if m == -1 or (sid, -1) not in doubtful}
    if not doubtful:
        return
    facts.engine.load("doubtful", [("sid", "int"), ("m", "int")], sorted(doubtful))
    told: set[tuple[int, int, int]] = set()
    falling = facts.engine.rows(RISE)
    if not falling:
        return
    columns = [("m", "int"), ("n", "bigint"), ("high", "bigint")]
    facts.engine.load("falling", columns, [(row["m"], row["n"], row["high"]) for row in falling])
    found = sorted(facts.engine.rows(RISE_ROWS), key=lambda row: (row["m"], row["n"]))
    for row in _without_rejected(facts, findings, found):
        key = row["m"], row["sid"], row["a"]
        if key in findings.misplaced:
            continue
        top = row["m"], row["sid"], row["high"]
        severity = CONSEQUENCE if top in told else ROOT
        told.add(top)
        findings.misplaced.add(key)
        findings.miss(row["m"], row["sid"], (row["a"], row["b"]))
        sender = facts.senders[row["sid"]].name
        who = facts.members[row["m"]].name
        behind = span_text(sender, (row["high"] - 1, row["high"]))
        text = f"{who} delivered it (n={row['n']}) after {behind} of the same sender"
        add_row(facts, findings, "fifo", severity, row, text, sender, behind)


def _without_rejected(facts: Facts, findings: Findings, rows: list[Record]) -> list[Record]:
    """The same without the deliveries that property 1 rejected: nothing is late because of them."""
    rejected = {m for m, _ in findings.tainted}
    again = sorted({(row["m"], row["sid"]) for row in rows if row["m"] in rejected})
    kept = [row for row in rows if row["m"] not in rejected]
    for m, sid in again:
        high = -1
        for row in facts.delivered(m, sid):
            if row["svc"] < FIFO or (m, row["n"]) in findings.tainted:
                continue
            if row["a"] < high:
                kept.append({**row, "high": high})
            high = max(high, row["b"])
    return kept


def _falling(facts: Facts, m: int, cells: list[Cell]) -> set[int]:
    """Senders whose numbers at this life do not rise from view to view, by the least and greatest of each."""
    found: set[int] = set()
    spans: dict[int, dict[str, list[int]]] = {}
    for cell in cells:
        if cell.cls >= UNORDERED_CLASS and cell.sid >= 0:
            span = spans.setdefault(cell.sid, {}).setdefault(cell.view, [cell.low, cell.high])
            span[0], span[1] = min(span[0], cell.low), max(span[1], cell.high)
    for sid, by_view in spans.items():
        if len(by_view) < 2:
            continue
        life = facts.life_of(facts.senders[sid].ru, m)
        order = [by_view[one.view] for one in life.periods if one.view in by_view]
        if len(order) < len(by_view) or any(right[0] < left[1] for left, right in itertools.pairwise(order)):
            found.add(sid)
    return found


def check_holes(facts: Facts, findings: Findings) -> None:
    """Messages to groups of the member between two deliveries of a sender that it shares views with."""
    stretches: dict[int, list[Record]] = {}
    for row in facts.engine.rows(STRETCHES):
        stretches.setdefault(row["c"], []).append(row)
    holes: set[tuple[int, int, str, int, int]] = set()  # life, sender, view, from, to
    has_holes = any(row["messages"] != row["g1"] - row["g0"] for rows in stretches.values() for row in rows)
    for row in facts.engine.rows(HOLES) if has_holes or facts.has_overlaps else ():
        cell = facts.cells[row["c"]]
        if facts.lines[cell.ru].lightweight:
            continue
        holes |= {(m, row["sid"], cell.view, row["low"], row["a"]) for m in facts.alike[row["c"]]}
    firsts: dict[tuple[int, str, int], dict[str, Record]] = {}
    rows = facts.engine.rows(FIRSTS)
    facts.names.find_targets({row["t"] for row in rows})
    facts.names.find_views({row["v"] for row in rows if row["v"] is not None})
    for row in rows:
        view = facts.names.views[row["v"]][2] if row["v"] is not None else None
        firsts.setdefault((row["sid"], facts.names.targets[row["t"]], row["k"]), {})[view or ""] = row
    for m, cells in facts.cells_of.items():
        streams: dict[tuple[int, str, int], dict[str, Record]] = {}
        for cell in cells:
            for row in stretches.get(cell.rep, ()) if cell.sid >= 0 and not facts.lines[cell.ru].lightweight else ():
                known = streams.setdefault((cell.sid, cell.target, row["k"]), {})
                known[cell.view] = _joined(known.get(cell.view), row)
        for (sid, target, kind), by_view in streams.items():
            holes |= _holes_between(facts, m, sid, target, kind, by_view, firsts)
    for m, sid, view, low, high in sorted(holes):
        _check_hole(facts, findings, m, sid, view, low, high)
    for line in facts.lines:
        sent: dict[int, list[Record]] = {}
        for m, life in sorted(line.lives.items()) if line.lightweight else ():
            if life.periods and any(cell.ru == line.ru for cell in facts.cells_of.get(m, ())):
                _check_over_groups(facts, findings, line, life, sent)


def _check_over_groups(facts: Facts, findings: Findings, line: Line, life: Life, sent: dict[int, list[Record]]) -> None:
    """What a life of a shared underlay delivered of each sender: what lies between, and goes to it, is a hole."""
    by_sender: dict[int, list[SharedRow]] = {}
    for row in shared_rows(facts, findings, line).of(life.m):
        if row.svc >= FIFO:
            by_sender.setdefault(row.sid, []).append(row)
    for sid, rows in sorted(by_sender.items()):
        sender = facts.senders[sid]
        have = merged((row["a"], row["b"]) for row in facts.delivered(life.m, sid))
        submits = sent[sid] = sent.get(sid) or facts.submitted(sid)
        last: SharedRow | None = None
        for row in rows:
            if last is not None and row.a < last.b:
                continue  # it did not rise
            before, last = last, row
            if row.a == (before.b if before is not None else 0):
                continue
            low, since_n = _owed_since(line, life, sender, submits, row, before)
            if low >= row.a:
                continue
            begin = bisect_right(submits, low, key=lambda one: one["b"])
            owed = [
                (max(one["a"], low), min(one["b"], row.a))
                for one in submits[begin : bisect_left(submits, row.a, key=lambda one: one["a"])]
                if one["svc"] >= FIFO and line.is_owed(life, one["tgt"], since_n, row.n)
            ]
            for span in [gap for one in merged(owed) for gap in minus([one], common_of(one, have))]:
                severity = ROOT if findings.miss(life.m, sid, span) else CONSEQUENCE
                behind = span_text(sender.name, (row.a, row.b))
                text = f"{life.name} delivered {behind} (n={row.n}) without it, though it goes to it, too"
                period = life.at(row.n)
                found = {"m": life.m, "n": row.n, "sid": sid, "a": span[0], "b": span[1], "tgt": ""}
                found["vw"] = period.view if period is not None else None
                add_row(facts, findings, "fifo", severity, found, text, sender.name, behind)


def _owed_since(
    line: Line, life: Life, sender: TracedSender, submits: list[Record], row: SharedRow, last: SharedRow | None
) -> tuple[int, float]:
    """From which number, and event of the life, a sender's messages are owed that lie before this one; FOREVER: none
    are."""
    begin, name = life.at(row.n), line.host(sender.name)
    if begin is None or name not in begin.members:
        return FOREVER, FOREVER
    while begin.prev is not None and name in begin.came_with:
        begin = begin.prev
    if last is not None and last.n >= begin.n:
        return last.b, last.n
    source = line.lives[sender.m].by_view.get(begin.view)
    if source is None:
        return FOREVER, FOREVER
    at = bisect_right(submits, source.n, key=lambda one: one["n"])
    first = submits[at]["a"] if at < len(submits) else sender.total
    return max(first, last.b if last is not None else 0), begin.n


def _joined(one: Record | None, other: Record) -> Record:
    if one is None:
        return dict(other)
    pick = {"g0": min, "g1": max, "a": min, "b": max}
    return {**one, **{name: how(one[name], other[name]) for name, how in pick.items()}}


def _holes_between(
    facts: Facts,
    m: int,
    sid: int,
    target: str,
    kind: int,
    by_view: dict[str, Record],
    firsts: dict[tuple[int, str, int], dict[str, Record]],
) -> set[tuple[int, int, str, int, int]]:
    sender = facts.senders[sid]
    life = facts.life_of(sender.ru, m)
    found: set[tuple[int, int, str, int, int]] = set()
    last: Record | None = None
    start: ViewPeriod | None = None
    for period in life.periods:
        together = period.prev is not None and sender.name in period.came_with
        if not together:
            last, start = None, period
        if sender.name not in period.members:
            last, start = None, None
            continue
        row = by_view.get(period.view)
        if row is None:
            continue
        if last is not None:
            if row["g0"] > last["g1"]:
                found.add((m, sid, period.view, last["b"], row["a"]))
        elif start is not None and row["g0"] > 0:
            due = _first_in(facts, sid, start.view, target, kind, firsts)
            if due is not None and row["g0"] > due["g"]:
                found.add((m, sid, period.view, due["a"], row["a"]))
        last = row
    return found


def _first_in(
    facts: Facts, sid: int, view: str, target: str, kind: int, firsts: dict[tuple[int, str, int], dict[str, Record]]
) -> Record | None:
    """What the sender first submitted to the target after it installed the view; None if it never installed it."""
    sender = facts.senders[sid]
    life = facts.life_of(sender.ru, sender.m)
    period = life.by_view.get(view)
    by_view = firsts.get((sid, target, kind), {})
    later = [
        by_view[one.view] for one in life.periods if period is not None and one.n >= period.n and one.view in by_view
    ]
    return min(later, key=lambda row: row["g"], default=None)


def _check_hole(facts: Facts, findings: Findings, m: int, sid: int, view: str, low: int, high: int) -> None:
    """Report the numbers of `[low, high)` that the member certainly owed and never delivered."""
    sender = facts.senders[sid]
    line, life = facts.lines[sender.ru], facts.life_of(sender.ru, m)
    period = life.by_view.get(view)
    if period is None or sender.name not in period.members:
        return
    delivered = facts.delivered(m, sid)
    begin = period
    while begin.prev is not None and sender.name in begin.came_with:
        begin = begin.prev
    since_n = max((one["n"] for one in delivered if one["b"] <= low), default=begin.n)
    until_n = min((one["n"] for one in delivered if one["a"] >= high), default=period.stop_n)
    owed = [
        (max(one["a"], low), min(one["b"], high))
        for one in facts.submitted(sid, low, high)
        if one["svc"] >= FIFO and line.is_owed(life, one["tgt"], max(since_n, begin.n), until_n)
    ]
    for span in minus(merged(owed), [(one["a"], one["b"]) for one in delivered]):
        severity = ROOT if findings.miss(m, sid, span) else CONSEQUENCE
        behind = span_text(sender.name, (high, high + 1))
        text = f"{life.name} delivered {behind} (n={until_n}) without it, though it goes to it, too"
        row = {"m": m, "n": until_n, "sid": sid, "a": span[0], "b": span[1], "vw": view, "tgt": ""}
        add_row(facts, findings, "fifo", severity, row, text, sender.name, behind)
