"""Property 3: nobody who delivers both delivers a message before one that caused it (CAUSAL and stronger).

m1 causes m2 if the submitter of m2 had delivered or submitted m1, transitively, all of them CAUSAL or stronger: between
services the weaker guarantee holds. When a life goes out and comes back as new, the deliveries of its last view leave
its past: the group cannot order by what it never heard of.

Where every message has one position and every life's positions rise, a cause can only have a greater position than its
effect if the effect's sender had delivered it before it submitted. If the sender delivered its own message, after its
submit, it had not: its own positions rise. What it did not deliver itself (it crashed) is looked up. Everything else is
walked with vector clocks, on the driver: underlays with CAUSAL messages, which have no position; and of the others the
positions between which something is out of order, since no chain of causes leaves these.
"""

from __future__ import annotations

import itertools
from typing import Final

from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.facts import CAUSAL, ORDERED_CLASS, Facts, numbers_sql
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, Violation, span_text
from ordercast.pipeline.verify.history import Line
from ordercast.pipeline.verify.ranges import Range, merged

NAME: Final = "causal"
FULL_WALK_ROWS: Final = 400_000  # an underlay with fewer ordered rows is walked whole: simpler evidence

# Ordered messages that their sender did not deliver itself after it submitted them, and in the same stay.
ORPHANS: Final = f"""
SELECT p.sid, o.m, p.a, p.sub_n, min(p.pos) AS pos FROM {{pieces}} p JOIN {{unsure}} x ON p.sid = x.sid
JOIN {{snd}} o ON p.sid = o.sid LEFT JOIN {{own}} s ON p.sid = s.sid AND p.row_a = s.a AND p.row_b = s.b
LEFT JOIN {{cuts}} t
ON p.sid = t.sid AND p.sub_n < t.n AND s.own_n > t.n
WHERE p.cls = 3 AND p.sub_svc >= {CAUSAL} AND (s.own_n IS NULL OR s.own_n < p.sub_n OR t.n IS NOT NULL)
GROUP BY p.sid, o.m, p.a, p.sub_n
"""
OWN: Final = "SELECT sid, a, b, min(own_n) AS own_n FROM {num_own} WHERE own_n IS NOT NULL GROUP BY sid, a, b"
ORDERED: Final = """
SELECT sid, sum(b - a) AS messages FROM (SELECT DISTINCT sid, a, b FROM {blocks} WHERE cls = 3) GROUP BY sid
"""
# Only what stands behind the first of them, and came before the last was submitted, is compared with each.
BOUNDS: Final = "SELECT m, min(pos) AS low, max(sub_n) AS stop_n FROM {orphans} GROUP BY m"
KNEW: Final = """
SELECT s.ru, o.pos AS low, max(d.pos) AS high FROM {orphans} o JOIN {snd} s ON o.sid = s.sid JOIN (
  SELECT d.m, d.n, d.pos, q.ru FROM {num_own} d JOIN {bounds} b ON d.m = b.m AND d.pos > b.low AND d.n < b.stop_n
  JOIN {snd} q ON d.sid = q.sid WHERE d.cls = 3) d ON d.m = o.m AND d.n < o.sub_n AND d.ru = s.ru
GROUP BY s.ru, o.sid, o.a, o.pos HAVING max(d.pos) > o.pos
"""
AMBIGUOUS: Final = """
SELECT s.ru, min(k.pos) AS low, max(k.pos) AS high FROM {blocks} k JOIN {snd} s ON k.sid = s.sid WHERE k.cls = 3
GROUP BY s.ru, k.sid, k.a HAVING min(k.pos) <> max(k.pos)
"""


def check(facts: Facts, findings: Findings, late: list[Record]) -> None:
    """Judge causal order; what the walk finds out of place is not a fault of total order as well."""
    for cell in facts.cells:
        if cell.strongest >= CAUSAL:
            findings.checked[NAME] += cell.rows
    engine = facts.engine
    doubts: dict[int, list[Range]] = {}
    for row in [*_known_orphans(facts), *(engine.rows(AMBIGUOUS) if facts.has_overlaps else [])]:
        doubts.setdefault(row["ru"], []).append((row["low"], row["high"] + 1))
    for row in late:
        doubts.setdefault(facts.senders[row["sid"]].ru, []).append((row["pos"], row["top"] + 1))
    for line in facts.lines:
        cells = facts.cells_in.get(line.ru, [])
        has_causal = any(cell.cls != ORDERED_CLASS and cell.strongest >= CAUSAL for cell in cells)
        if not has_causal and line.ru not in doubts and _rises_over_lives(facts, line):
            continue
        rows = sum(cell.rows for cell in cells if cell.strongest >= CAUSAL)
        is_whole = has_causal or rows <= FULL_WALK_ROWS or line.ru not in doubts
        _walk(facts, findings, line, None if is_whole else merged(doubts[line.ru]))


def _known_orphans(facts: Facts) -> list[Record]:
    """Messages that their sender did not deliver itself, and before whose submit it had delivered something placed
    behind them: between which positions. Counts say whose messages to look at; only their files are read."""
    engine = facts.engine
    unsure: list[int] = []
    for row in engine.rows(ORDERED.replace("DISTINCT ", "" if not facts.has_overlaps else "DISTINCT ")):
        sender = facts.senders[row["sid"]]
        own = [cell for cell in facts.cells_at.get((sender.m, sender.sid), ()) if cell.cls == ORDERED_CLASS]
        is_sure = sum(cell.messages for cell in own) == row["messages"] and not any(cell.is_doubtful for cell in own)
        is_back = facts.life_of(sender.ru, sender.m).stays > 1
        if facts.cells_of.get(sender.m) and (is_back or not is_sure):
            unsure.append(sender.sid)
    if not unsure:
        return []
    lives = {facts.senders[sid].m for sid in unsure}
    cuts = [(sid, n) for sid in unsure for n, _ in facts.life_of(facts.senders[sid].ru, facts.senders[sid].m).cuts]
    engine.load("unsure", [("sid", "int")], [(sid,) for sid in unsure])
    engine.load("cuts", [("sid", "int"), ("n", "bigint")], cuts)
    engine.only("ev_own", lives)
    engine.define("num_own", numbers_sql(engine, "ev_own"))
    engine.define("own", OWN)
    engine.define("orphans", ORPHANS, keep=True)
    bounds = engine.rows(BOUNDS)
    if not bounds:
        return []
    columns = [("m", "int"), ("low", "bigint"), ("stop_n", "bigint")]
    engine.load("bounds", columns, [(row["m"], row["low"], row["stop_n"]) for row in bounds])
    return engine.rows(KNEW)


def _rises_over_lives(facts: Facts, line: Line) -> bool:
    """Whether positions rise over stays, too, for those that came back."""
    for life in line.lives.values():
        if life.stays < 2:
            continue
        spans: dict[int, list[int]] = {}
        for cell in facts.cells_of.get(life.m, ()):
            segment = life.at(cell.first_n)
            if cell.ru == line.ru and cell.cls == ORDERED_CLASS and segment is not None:
                span = spans.setdefault(segment.stay, [cell.low_position or 0, cell.high_position or 0])
                span[0] = min(span[0], cell.low_position or 0)
                span[1] = max(span[1], cell.high_position or 0)
        order = [span for _, span in sorted(spans.items())]
        if any(right[0] < left[1] for left, right in itertools.pairwise(order)):
            return False
    return True


class _Walker:
    """One life on its way through its events."""

    __slots__ = ("at", "direct", "events", "m", "need", "own", "saved")

    def __init__(self, m: int, own: int, events: list[Record], size: int) -> None:
        self.m = m
        self.own = own  # its entry in the clocks, -1 if it never submits
        self.events = events
        self.at = 0
        self.need = [-1] * size  # what the messages delivered here had in their past
        self.direct = [-1] * size  # what it submitted or delivered itself
        self.saved = (self.need, list(self.direct))


def _walk(facts: Facts, findings: Findings, line: Line, places: list[Range] | None) -> None:
    events = _events(facts, line, places)
    senders = sorted({one["sid"] for ones in events.values() for one in ones if one["kind"] == "s"})
    entry = {sid: at for at, sid in enumerate(senders)}
    submits: dict[int, list[Record]] = {sid: [] for sid in senders}
    for ones in events.values():
        for one in ones:
            if one["kind"] == "s":
                submits[one["sid"]].append(one)
    own = {facts.senders[sid].m: at for sid, at in entry.items()}
    ready = [_Walker(m, own.get(m, -1), ones, len(senders)) for m, ones in sorted(events.items())]
    waiting: dict[int, list[_Walker]] = {}
    while ready:
        walker = ready.pop()
        blocker = _go(facts, findings, walker, entry, submits, waiting, ready)
        if blocker is not None:
            waiting.setdefault(blocker, []).append(walker)


def _go(
    facts: Facts,
    findings: Findings,
    walker: _Walker,
    entry: dict[int, int],
    submits: dict[int, list[Record]],
    waiting: dict[int, list[_Walker]],
    ready: list[_Walker],
) -> int | None:
    """Walk until the end, or until a delivery whose submit has not been walked; return its sender."""
    need, direct, events = walker.need, walker.direct, walker.events
    blocker: int | None = None
    while walker.at < len(events):
        event = events[walker.at]
        kind = event["kind"]
        if kind == "d" and event["sid"] in entry and (walker.m, event["n"]) not in findings.tainted:
            submit = _submit_of(submits[event["sid"]], event["b"] - 1)
            if submit is not None:
                if "clock" not in submit:
                    blocker = event["sid"]
                    break
                at = entry[event["sid"]]
                if event["a"] <= need[at]:
                    _report(facts, findings, walker, event, entry, submits)
                direct[at] = max(direct[at], event["b"] - 1)
                need = list(map(max, need, submit["clock"]))
        elif kind == "s":
            past = list(map(max, need, direct))
            past[walker.own] = -1
            event["clock"] = past
            direct[walker.own] = event["b"] - 1
            ready.extend(waiting.pop(event["sid"], ()))
        elif kind == "v":
            walker.saved = need, list(direct)
        elif kind == "c":
            mine = direct[walker.own] if walker.own >= 0 else -1
            need, direct = walker.saved[0], list(walker.saved[1])
            if walker.own >= 0:
                direct[walker.own] = mine
        walker.at += 1
    walker.need, walker.direct = need, direct
    return blocker


def _submit_of(submits: list[Record], number: int) -> Record | None:
    low, high = 0, len(submits)
    while low < high:
        middle = (low + high) // 2
        if submits[middle]["a"] <= number:
            low = middle + 1
        else:
            high = middle
    return submits[low - 1] if low and number < submits[low - 1]["b"] else None


def _events(facts: Facts, line: Line, places: list[Range] | None) -> dict[int, list[Record]]:
    """Submits, deliveries, views and cuts of each life, in order; only what is placed within `places`, if given."""
    engine = facts.engine
    where = f"s.ru = {line.ru} AND d.svc >= {CAUSAL}"
    if places is None:
        taken = (
            f"SELECT e.m, e.n, e.sid, e.a, e.b, 's' AS kind, NULL AS vw, '' AS tgt FROM {{sub}} e JOIN {{snd}} s "
            f"ON e.sid = s.sid WHERE s.ru = {line.ru} AND e.svc >= {CAUSAL}"
        )
        delivered = (
            f"SELECT d.m, d.n, d.sid, d.a, d.b, 'd' AS kind, d.vw, d.tgt FROM {{dlv}} d JOIN {{snd}} s ON d.sid = "
            f"s.sid WHERE {where}"
        )
    else:
        between = " OR ".join(f"(pos < {high} AND pos + b - a > {low})" for low, high in places[:200])
        engine.define(
            "near",
            f"SELECT DISTINCT k.sid, k.a, k.b FROM (SELECT * FROM {{blocks}} WHERE cls = 3 AND ({between})) k "
            f"JOIN {{snd}} s ON k.sid = s.sid WHERE s.ru = {line.ru}",
        )
        taken = (
            f"SELECT DISTINCT e.m, e.n, e.sid, e.a, e.b, 's' AS kind, NULL AS vw, '' AS tgt FROM {{sub}} e JOIN "
            f"{{near}} k ON e.sid = k.sid AND e.a < k.b AND e.b > k.a AND e.svc >= {CAUSAL}"
        )
        delivered = (
            f"SELECT DISTINCT d.m, d.n, d.sid, d.a, d.b, 'd' AS kind, d.vw, d.tgt FROM {{dlv}} d JOIN {{near}} k "
            f"ON d.sid = k.sid AND d.a < k.b AND d.b > k.a AND d.svc >= {CAUSAL}"
        )
    found: dict[int, list[Record]] = {}
    for row in [*engine.rows(taken), *engine.rows(delivered)]:
        found.setdefault(row["m"], []).append(row)
    for life in line.lives.values():
        for segment in life.segments:
            found.setdefault(life.m, []).append({"kind": "v", "n": segment.n})
            if segment.cut is not None:
                found[life.m].append({"kind": "c", "n": segment.stop_n})
    for ones in found.values():
        ones.sort(key=lambda one: one["n"])
    return found


def _report(
    facts: Facts,
    findings: Findings,
    walker: _Walker,
    event: Record,
    entry: dict[int, int],
    submits: dict[int, list[Record]],
) -> None:
    key = walker.m, event["sid"], event["a"]
    if key in findings.misplaced:
        return
    at = entry[event["sid"]]
    who = facts.members[walker.m].name
    for effect in walker.events:
        if effect["n"] >= event["n"]:
            return
        if effect["kind"] != "d" or effect["sid"] == event["sid"] or (walker.m, effect["n"]) in findings.tainted:
            continue
        submit = _submit_of(submits.get(effect["sid"], []), effect["b"] - 1)
        if submit is None or submit.get("clock", [-1] * len(entry))[at] < event["a"]:
            continue
        findings.misplaced.add(key)
        told = (walker.m, effect["sid"], effect["a"]) in findings.misplaced
        sender = facts.senders[effect["sid"]].name
        behind = span_text(sender, (effect["a"], effect["b"]))
        text = (
            f"{who} delivered it (n={event['n']}) after {behind} (n={effect['n']}), whose sender knew it when it "
            "submitted"
        )
        findings.add(
            Violation(
                *(facts.run_of(walker.m), NAME, CONSEQUENCE if told else ROOT, event["tgt"] or None, event["vw"], who),
                *(span_text(facts.senders[event["sid"]].name, (event["a"], event["b"])), sender, behind, text),
                event["n"],
            )
        )
        return
