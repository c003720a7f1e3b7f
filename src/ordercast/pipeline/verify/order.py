"""Properties 2, 3 and 4: the order of one sender's messages, of causes and effects, and of everything.

Order is a scan: on an ordered delivery `prev_position` names the one before it, so a fall is a row (SPARK.md section
3). The recorder's word is checked: what all rows call their end and what they call the one before are, but for the ends
of the chain, the same numbers. Content says the rest: a position has one message and a message one position in a view,
and the numbers of one sender rise with its positions. Then no member can have another order than another, and none
can have a sender's ordered messages out of order.

- Messages without a position (FIFO, CAUSAL) are looked at row by row, for senders that have such; and so is whatever a
  certificate does not vouch for.
- Causality follows from that for an ordered message that its sender delivered itself after it had submitted it: all
  that it had delivered before has a smaller position. What remains is walked with vector clocks (`causal.py`).

A delivery out of place is one fault: fifo if it fell behind its own sender's next, causal if behind an answer to it,
else total order.
"""

from __future__ import annotations

import itertools
from typing import Final

from ordercast.pipeline.verify import causal
from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.facts import AGREED, FIFO, MAJORITY, ORDERED_CLASS, SAFE, UNORDERED_CLASS, Cell, Facts
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, Violation, span_text
from ordercast.pipeline.verify.history import FOREVER, Life, Line, Segment
from ordercast.pipeline.verify.integrity import OVERLAPPING
from ordercast.pipeline.verify.ranges import Range, merged, minus

LIMIT: Final = 10_000

CLASHES: Final = f"""
SELECT v, pos, sid, a, b, c FROM (
  SELECT *, max(pos + b - a) OVER (PARTITION BY v ORDER BY pos, b - a, sid, a, c
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS high FROM {{blocks}} WHERE cls = 3)
WHERE pos < high ORDER BY v, pos LIMIT {LIMIT}
"""
AGAINST_NUMBERS: Final = f"SELECT DISTINCT sid FROM {{odd}} WHERE is_fall = 1 LIMIT {LIMIT}"
# Rows behind one that they should precede; `top_n` is where that one stands.
LATE: Final = f"""
SELECT m, n, sid, a, b, vw, tgt, pos, top FROM (
  SELECT d.m, d.n, d.sid, d.a, d.b, d.vw, d.tgt, d.pos, max(d.pos) OVER (PARTITION BY d.m, t.ru, t.stay ORDER BY d.n
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS top
  FROM {{dlv_some}} d JOIN {{suspects}} t ON d.m = t.m AND d.r = t.r AND d.u = t.u AND d.n > t.n AND d.n < t.stop_n
  WHERE d.cls = 3 AND d.sid IS NOT NULL) WHERE pos < top ORDER BY m, n LIMIT {LIMIT}
"""
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


def check(facts: Facts, findings: Findings) -> None:
    """Judge fifo, causal and total order."""
    for cell in facts.cells:
        if cell.cls >= UNORDERED_CLASS:
            findings.checked["fifo"] += cell.rows
        if cell.cls == ORDERED_CLASS:
            findings.checked["total_order"] += cell.rows
    _check_recorder(facts, findings)
    late = _late_rows(facts, findings)
    _check_rise(facts, findings, late)
    _check_holes(facts, findings)
    causal.check(facts, findings, late)
    _check_late(facts, findings, late)
    _check_positions(facts, findings)
    _check_strong(facts, findings)


# The recorder ---------------------------------------------------------------------------------------------------------


def _check_recorder(facts: Facts, findings: Findings) -> None:
    """What rows call the position before them is the end of the row before them."""
    for line in facts.lines:
        for life in line.lives.values():
            stays: dict[int, list[Cell]] = {}
            for cell in facts.cells_of.get(life.m, ()):
                if cell.ru == line.ru and cell.cls == ORDERED_CLASS:
                    segment = life.at(cell.first_n)
                    stays.setdefault(segment.stay if segment is not None else 0, []).append(cell)
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
        f"(ORDER BY n) AS was FROM {facts.of_lives({life.m})} WHERE u = '{_quoted(line.underlay)}' AND cls = 3) "
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
            Violation(
                *(facts.run_of(life.m), "total_order", ROOT, row["tgt"] or None, row["vw"], life.name),
                *(span_text(sender, (row["a"], row["b"])), None, None, text, row["n"]),
            )
        )
        return


def _quoted(text: str) -> str:
    return text.replace("'", "''").replace("{", "{{").replace("}", "}}")


# Out of place ---------------------------------------------------------------------------------------------------------


def _late_rows(facts: Facts, findings: Findings) -> list[Record]:
    """Ordered deliveries behind one of a greater position, in the same stay."""
    suspects: list[tuple[int, int, str, int, int, int, int]] = []
    for line in facts.lines:
        for life in line.lives.values():
            cells = [one for one in facts.cells_of.get(life.m, ()) if one.ru == line.ru and one.cls == ORDERED_CLASS]
            if not any(cell.falls for cell in cells) and _is_rising(life, cells):
                continue
            stays: dict[int, list[int]] = {}
            for segment in life.segments:
                span = stays.setdefault(segment.stay, [segment.n, segment.stop_n])
                span[1] = segment.stop_n
            stays = stays or {0: [-1, FOREVER]}
            suspects += [
                (life.m, line.r, line.underlay, line.ru, stay, span[0], span[1]) for stay, span in stays.items()
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
    for segment in life.segments:
        if segment.stay != stay:
            top, stay = -1, segment.stay
        low, high = by_view.get(segment.view, (FOREVER, -1))
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
        _add(facts, findings, "total_order", severity, row, text, other, behind)


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


# One sender -----------------------------------------------------------------------------------------------------------


def _check_rise(facts: Facts, findings: Findings, late: list[Record]) -> None:
    """Row by row for those whom no certificate vouches for."""
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
        _add(facts, findings, "fifo", severity, row, text, sender, behind)


def _without_rejected(facts: Facts, findings: Findings, rows: list[Record]) -> list[Record]:
    """The same where property 1 rejected a delivery: what comes behind that one is not late for it."""
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
        order = [by_view[one.view] for one in life.segments if one.view in by_view]
        if len(order) < len(by_view) or any(right[0] < left[1] for left, right in itertools.pairwise(order)):
            found.add(sid)
    return found


def _check_holes(facts: Facts, findings: Findings) -> None:
    """What lies between two deliveries of a sender while both share views, and goes to groups of the member."""
    stretches: dict[int, list[Record]] = {}
    for row in facts.engine.rows(STRETCHES):
        stretches.setdefault(row["c"], []).append(row)
    holes: set[tuple[int, int, str, int, int]] = set()  # life, sender, view, from, to
    has_holes = any(row["messages"] != row["g1"] - row["g0"] for rows in stretches.values() for row in rows)
    for row in facts.engine.rows(HOLES) if has_holes or facts.has_overlaps else ():
        cell = facts.cells[row["c"]]
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
            for row in stretches.get(cell.rep, ()) if cell.sid >= 0 else ():
                known = streams.setdefault((cell.sid, cell.target, row["k"]), {})
                known[cell.view] = _joined(known.get(cell.view), row)
        for (sid, target, kind), by_view in streams.items():
            holes |= _holes_between(facts, m, sid, target, kind, by_view, firsts)
    for m, sid, view, low, high in sorted(holes):
        _check_hole(facts, findings, m, sid, view, low, high)


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
    start: Segment | None = None
    for segment in life.segments:
        together = segment.prev is not None and sender.name in segment.came_with
        if not together:
            last, start = None, segment
        if sender.name not in segment.members:
            last, start = None, None
            continue
        row = by_view.get(segment.view)
        if row is None:
            continue
        if last is not None:
            if row["g0"] > last["g1"]:
                found.add((m, sid, segment.view, last["b"], row["a"]))
        elif start is not None and row["g0"] > 0:
            due = _first_in(facts, sid, start.view, target, kind, firsts)
            if due is not None and row["g0"] > due["g"]:
                found.add((m, sid, segment.view, due["a"], row["a"]))
        last = row
    return found


def _first_in(
    facts: Facts, sid: int, view: str, target: str, kind: int, firsts: dict[tuple[int, str, int], dict[str, Record]]
) -> Record | None:
    """What the sender first submitted to the target after it installed the view; None if it never installed it."""
    sender = facts.senders[sid]
    life = facts.life_of(sender.ru, sender.m)
    segment = life.by_view.get(view)
    by_view = firsts.get((sid, target, kind), {})
    later = [
        by_view[one.view] for one in life.segments if segment is not None and one.n >= segment.n and one.view in by_view
    ]
    return min(later, key=lambda row: row["g"], default=None)


def _check_hole(facts: Facts, findings: Findings, m: int, sid: int, view: str, low: int, high: int) -> None:
    """Which of `[low, high)` the member certainly owed, and never delivered."""
    sender = facts.senders[sid]
    line, life = facts.lines[sender.ru], facts.life_of(sender.ru, m)
    segment = life.by_view.get(view)
    if segment is None or sender.name not in segment.members:
        return
    delivered = facts.delivered(m, sid)
    begin = segment
    while begin.prev is not None and sender.name in begin.came_with:
        begin = begin.prev
    since_n = max((one["n"] for one in delivered if one["b"] <= low), default=begin.n)
    until_n = min((one["n"] for one in delivered if one["a"] >= high), default=segment.stop_n)
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
        _add(facts, findings, "fifo", severity, row, text, sender.name, behind)


# Positions ------------------------------------------------------------------------------------------------------------


def _check_positions(facts: Facts, findings: Findings) -> None:
    """In a view a position names one message, and a message has one position; rows may be cut differently."""
    engine = facts.engine
    told: set[tuple[int, str, int, int]] = set()
    for clash in engine.rows(CLASHES):
        ru, view = facts.views[clash["v"]]
        near = engine.rows(
            f"SELECT n, c, sid, a, b, pos FROM {{pieces}} WHERE v = {clash['v']} AND cls = 3 "
            f"AND pos < {clash['pos'] + clash['b'] - clash['a']} AND pos + b - a > {clash['pos']} ORDER BY pos, c, n"
        )
        near = [row for row in map(facts.located, near) if (row["m"], row["n"]) not in findings.tainted]
        mine = next(
            (row for row in near if (row["sid"], row["a"], row["pos"]) == (clash["sid"], clash["a"], clash["pos"])),
            None,
        )
        if mine is None:
            continue
        others = [row for row in near if (row["sid"], row["a"] - row["pos"]) != (mine["sid"], mine["a"] - mine["pos"])]
        if not others:
            continue
        # The odd one is the one that fewer members have.
        one = min([mine, others[0]], key=lambda row: len(facts.alike[row["c"]]))
        other = others[0] if one is mine else mine
        if (ru, view, one["sid"], one["a"]) in told:
            continue
        told |= {(ru, view, row["sid"], row["a"]) for row in (one, other)}
        _report_clash(facts, findings, view, one, other)
    if not facts.has_overlaps:
        return
    overlapping = map(facts.located, engine.rows(f"{OVERLAPPING} WHERE p.cls = 3"))
    by_view: dict[tuple[int, str], list[Record]] = {}
    for row in overlapping:
        if (row["m"], row["n"]) not in findings.tainted:
            by_view.setdefault((row["sid"], row["vw"]), []).append(row)
    for (sid, view), rows in sorted(by_view.items()):
        ru = facts.senders[sid].ru
        rows.sort(key=lambda row: (row["a"], row["m"], row["n"]))
        for left, right in itertools.pairwise(rows):
            if right["a"] < left["b"] and right["a"] - right["pos"] != left["a"] - left["pos"]:
                one = min([left, right], key=lambda row: len(facts.alike[row["c"]]))
                if (ru, view, sid, one["a"]) not in told:
                    told.add((ru, view, sid, one["a"]))
                    _report_clash(facts, findings, view, one, right if one is left else left)


def _report_clash(facts: Facts, findings: Findings, view: str, one: Record, other: Record) -> None:
    names = [facts.members[row["m"]].name for row in (one, other)]
    messages = [span_text(facts.senders[row["sid"]].name, (row["a"], row["b"])) for row in (one, other)]
    is_same = one["sid"] == other["sid"] and one["a"] < other["b"] and other["a"] < one["b"]
    what = "a message has two positions" if is_same else "two messages have one position"
    text = (
        f"{what}: {messages[0]} at {one['pos']} at {names[0]} (n={one['n']}), {messages[1]} at {other['pos']} at "
        f"{names[1]}"
    )
    _add(facts, findings, "total_order", ROOT, {**one, "vw": view}, text, names[1], messages[1])


def _check_strong(facts: Facts, findings: Findings) -> None:
    """SAFE keeps one order at any two members whatever happens; MAJORITY, where only a majority goes on."""
    moved: set[tuple[int, int]] = set()  # underlays and services of messages with two positions
    if facts.has_overlaps:
        moved = {
            (row["ru"], row["svc"])
            for row in facts.engine.rows(
                f"SELECT s.ru, max(k.svc) AS svc FROM {{blocks}} k JOIN {{snd}} s ON k.sid = s.sid WHERE k.cls = 3 AND "
                f"k.svc >= {MAJORITY} GROUP BY s.ru, k.sid, k.a HAVING min(k.pos) <> max(k.pos)"
            )
        }
    for line in facts.lines:
        least = MAJORITY if only_majorities_go_on(line) else SAFE
        cells = [one for one in facts.cells_in.get(line.ru, ()) if one.cls == ORDERED_CLASS and one.strongest >= least]
        if not cells:
            continue
        is_certain = not any(ru == line.ru and svc >= least for ru, svc in moved)
        if is_certain and _rises_for_life(line, cells):
            continue
        _compare_strong(facts, findings, line, least)


def _rises_for_life(line: Line, cells: list[Cell]) -> bool:
    spans: dict[int, dict[int, list[int]]] = {}
    for cell in cells:
        segment = line.lives[cell.m].by_view.get(cell.view)
        span = spans.setdefault(cell.m, {}).setdefault(segment.stay if segment is not None else 0, [FOREVER, -1])
        span[0] = min(span[0], cell.low_position if cell.low_position is not None else FOREVER)
        span[1] = max(span[1], cell.high_position or -1)
        if cell.falls:
            return False
    for stays in spans.values():
        order = [span for _, span in sorted(stays.items())]
        if any(right[0] < left[1] for left, right in itertools.pairwise(order)):
            return False
    return True


def _compare_strong(facts: Facts, findings: Findings, line: Line, least: int) -> None:
    rows = facts.engine.rows(
        f"SELECT d.m, d.n, d.sid, d.a, d.b, d.vw, d.tgt FROM {{dlv}} d JOIN {{snd}} s ON d.sid = s.sid WHERE "
        f"s.ru = {line.ru} "
        f"AND d.svc >= {least} AND d.cls = 3 ORDER BY d.m, d.n"
    )
    cuts: dict[int, set[int]] = {}
    for row in rows:
        cuts.setdefault(row["sid"], set()).update((row["a"], row["b"]))
    points = {sid: sorted(numbers) for sid, numbers in cuts.items()}
    index = {sid: {number: at for at, number in enumerate(numbers)} for sid, numbers in points.items()}
    atoms: dict[int, list[tuple[int, int, Record]]] = {}
    for row in rows:
        key = row["m"], row["sid"], row["a"]
        if (row["m"], row["n"]) in findings.tainted or key in findings.misplaced:
            continue
        at = index[row["sid"]]
        atoms.setdefault(row["m"], []).extend((row["sid"], one, row) for one in range(at[row["a"]], at[row["b"]]))
    lives = sorted(atoms)
    for where, left in enumerate(lives):
        place = {(sid, one): rank for rank, (sid, one, _) in enumerate(atoms[left])}
        for right in lives[where + 1 :]:
            _compare_two(facts, findings, left, place, atoms[right])


def _compare_two(
    facts: Facts,
    findings: Findings,
    left: int,
    place: dict[tuple[int, int], int],
    pieces: list[tuple[int, int, Record]],
) -> None:
    top, before = -1, None
    for sid, one, row in pieces:
        rank = place.get((sid, one))
        if rank is None:
            continue
        if rank < top and before is not None:
            other = facts.members[left].name
            behind = span_text(facts.senders[before["sid"]].name, (before["a"], before["b"]))
            text = (
                f"{facts.members[row['m']].name} delivered it (n={row['n']}) after {behind}, {other} the other "
                "way round: strong messages keep one order whatever happens"
            )
            _add(facts, findings, "total_order", ROOT, row, text, other, behind)
            return
        top, before = rank, row


def only_majorities_go_on(line: Line) -> bool:
    """Did every change of view leave at most one part that could go on?"""
    for life in line.lives.values():
        for segment in life.segments:
            if segment.next is None:
                continue
            stayed = [name for name in segment.members if name in segment.next.came_with]
            if 2 * len(stayed) > len(segment.members):
                continue
            if 2 * len(stayed) == len(segment.members) and segment.members[0] in stayed:
                continue
            gone = [name for name in segment.members if name not in stayed]
            if segment.transitional_n < FOREVER or any(not _left_quietly(line, name, segment.view) for name in gone):
                return False
    return True


def _left_quietly(line: Line, name: str, view: str) -> bool:
    for life in line.lives.values():
        if life.name == name:
            segment = life.by_view.get(view)
            return segment is not None and segment.cut in ("leave", "stop") and segment.transitional_n == FOREVER
    return False


def _add(
    facts: Facts,
    findings: Findings,
    name: str,
    severity: str,
    row: Record,
    text: str,
    other: str | None,
    other_message: str | None,
) -> None:
    span: Range = row["a"], row["b"]
    member = facts.members[row["m"]]
    message = span_text(facts.senders[row["sid"]].name, span)
    findings.add(
        Violation(
            *(facts.run_of(member.m), name, severity, row["tgt"] or None, row["vw"], member.name),
            *(message, other, other_message, text, row["n"]),
        )
    )
