"""Property 3: no member delivers a message before one that caused it, if it delivers both (CAUSAL and stronger).

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
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.facts import CAUSAL, ORDERED_CLASS, Facts
from ordercast.pipeline.verify.findings import CONSEQUENCE, ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.history import Line
from ordercast.pipeline.verify.ranges import Range, merged

_Events = tuple[Any, Any, Any, Any, Any]  # columns: kind, n, sender, and the range of numbers

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
ORDERED: Final = "SELECT sid, a, b FROM {blocks} WHERE cls = 3"
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
    ordered = ORDERED if not facts.has_overlaps else f"SELECT DISTINCT * FROM ({ORDERED})"
    for row in engine.rows(f"SELECT sid, sum(b - a) AS messages FROM ({ordered}) GROUP BY sid"):
        sender = facts.senders[row["sid"]]
        own = [cell for cell in facts.cells_at.get((sender.m, sender.sid), ()) if cell.cls == ORDERED_CLASS]
        is_sure = sum(cell.messages for cell in own) == row["messages"] and not any(cell.is_doubtful for cell in own)
        is_back = facts.life_of(sender.ru, sender.m).stays > 1
        if facts.cells_of.get(sender.m) and (is_back or not is_sure):
            unsure.append(sender.sid)
    if not unsure:
        return []
    cuts = [(sid, n) for sid in unsure for n, _ in facts.life_of(facts.senders[sid].ru, facts.senders[sid].m).cuts]
    engine.load("unsure", [("sid", "int")], [(sid,) for sid in unsure])
    engine.load("cuts", [("sid", "int"), ("n", "bigint")], cuts)
    facts.define_numbers("num_own", {facts.senders[sid].m for sid in unsure})
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
            period = life.at(cell.first_n)
            if cell.ru == line.ru and cell.cls == ORDERED_CLASS and period is not None:
                span = spans.setdefault(period.stay, [cell.low_position or 0, cell.high_position or 0])
                span[0] = min(span[0], cell.low_position or 0)
                span[1] = max(span[1], cell.high_position or 0)
        order = [span for _, span in sorted(spans.items())]
        if any(right[0] < left[1] for left, right in itertools.pairwise(order)):
            return False
    return True


SUBMIT, DELIVER, VIEW, CUT = range(4)
CHUNK: Final = 4096  # events that are made Python's at a time: arrays hold them in a tenth of the memory
FETCHED: Final = 2_000_000  # rows that are brought here at once
MOST_REPORTED: Final = 1_000


class _ClockWalker:
    """One life on its way through its events, which are columns."""

    __slots__ = (
        *("at", "chunk", "chunk_at", "direct", "kinds", "m", "need", "numbers", "own", "saved", "senders", "starts"),
        "stops",
    )

    def __init__(self, m: int, own: int, events: _Events, size: int) -> None:
        self.m = m
        self.own = own  # its entry in the clocks, -1 if it never submits
        self.kinds, self.numbers, self.senders, self.starts, self.stops = events
        self.at = 0
        self.chunk: list[tuple[int, int, int, int, int]] = []  # events from `chunk_at` on; it waits often within one
        self.chunk_at = 0
        self.need = [-1] * size  # what the messages delivered here had in their past
        self.direct = [-1] * size  # what it submitted or delivered itself
        self.saved = (self.need, list(self.direct))

    def next_ones(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Events from here on: kind, n, sender, and the range of numbers."""
        if not self.chunk_at <= self.at < self.chunk_at + len(self.chunk):
            span = slice(self.at, self.at + CHUNK)
            columns = (self.kinds, self.numbers, self.senders, self.starts, self.stops)
            self.chunk = list(zip(*(column[span].tolist() for column in columns), strict=True))
            self.chunk_at = self.at
        begin = self.at - self.chunk_at
        return map(self.chunk.__getitem__, range(begin, len(self.chunk)))  # `islice` would pass over all before it


class _Submits:
    """What one sender submitted, with the past of each submit once it has been walked."""

    __slots__ = ("clocks", "starts", "stops")

    def __init__(self, starts: list[int], stops: list[int]) -> None:
        self.starts = starts
        self.stops = stops
        self.clocks: list[list[int]] = []

    def of(self, number: int) -> int:
        """The place of the submit that has this message; -1 if none has."""
        at = bisect_right(self.starts, number) - 1
        return at if at >= 0 and number < self.stops[at] else -1


def _walk(facts: Facts, findings: Findings, line: Line, places: list[Range] | None) -> None:
    submits, events = _events(facts, line, places)
    senders = sorted(submits)
    entry = {sid: at for at, sid in enumerate(senders)}
    own = {facts.senders[sid].m: at for sid, at in entry.items()}
    ready = [_ClockWalker(m, own.get(m, -1), ones, len(senders)) for m, ones in sorted(events.items())]
    waiting: dict[int, list[_ClockWalker]] = {}
    while ready:
        walker = ready.pop()
        blocker = _go(facts, findings, walker, entry, submits, waiting, ready)
        if blocker is not None:
            waiting.setdefault(blocker, []).append(walker)


def _go(
    facts: Facts,
    findings: Findings,
    walker: _ClockWalker,
    entry: dict[int, int],
    submits: dict[int, _Submits],
    waiting: dict[int, list[_ClockWalker]],
    ready: list[_ClockWalker],
) -> int | None:
    """Walk until the end, or until a delivery whose submit has not been walked; return its sender."""
    need, direct, m = walker.need, walker.direct, walker.m
    blocker: int | None = None
    while walker.at < len(walker.kinds) and blocker is None:
        for kind, n, sid, start, stop in walker.next_ones():
            if kind == DELIVER:
                sent = submits.get(sid)
                place = sent.of(stop - 1) if sent is not None and (m, n) not in findings.tainted else -1
                if sent is not None and place >= 0:
                    if place >= len(sent.clocks):
                        blocker = sid
                        break
                    at = entry[sid]
                    if start <= need[at]:
                        _report(facts, findings, walker, (n, sid, start, stop), entry, submits)
                    if stop > direct[at]:
                        direct[at] = stop - 1
                    need = list(map(max, need, sent.clocks[place]))
            elif kind == SUBMIT:
                past = list(map(max, need, direct))
                past[walker.own] = -1
                submits[sid].clocks.append(past)
                direct[walker.own] = stop - 1
                ready.extend(waiting.pop(sid, ()))
            elif kind == VIEW:
                walker.saved = need, list(direct)
            else:
                mine = direct[walker.own] if walker.own >= 0 else -1
                need, direct = walker.saved[0], list(walker.saved[1])
                if walker.own >= 0:
                    direct[walker.own] = mine
            walker.at += 1
    walker.need, walker.direct = need, direct
    return blocker


def _events(facts: Facts, line: Line, places: list[Range] | None) -> tuple[dict[int, _Submits], dict[int, _Events]]:
    """Submits by sender; and submits, deliveries, views and cuts of each life, in order. Only what is placed within
    `places`, if given."""
    import numpy as np

    engine = facts.engine
    near_submits = near = ""
    if places is not None:
        between = " OR ".join(f"(pos < {high} AND pos + b - a > {low})" for low, high in places[:200])
        engine.define(
            "near",
            f"SELECT DISTINCT k.sid, k.a, k.b FROM (SELECT * FROM {{blocks}} WHERE cls = 3 AND ({between})) k "
            f"JOIN {{snd}} s ON k.sid = s.sid WHERE s.ru = {line.ru}",
        )
        near_submits = "JOIN {near} k ON e.sid = k.sid AND e.a < k.b AND e.b > k.a"
        near = "JOIN {near} k ON d.sid = k.sid AND d.a < k.b AND d.b > k.a"
    taken = engine.columns(
        f"SELECT DISTINCT e.m, e.n, e.sid, e.a, e.b FROM {{sub}} e JOIN {{snd}} s ON e.sid = s.sid {near_submits} "
        f"WHERE s.ru = {line.ru} AND e.svc >= {CAUSAL}"
    )
    pieces: dict[int, list[tuple[Any, ...]]] = {}
    for m, ones in _by_life(taken):
        pieces.setdefault(m, []).append((np.full(len(ones[0]), SUBMIT, np.int8), *ones))
    for lives in _in_turns(facts, line):
        facts.define_numbers("num_few", lives)
        found = engine.columns(
            f"SELECT DISTINCT d.m, d.n, d.sid, d.a, d.b FROM {{num_few}} d JOIN {{snd}} s ON d.sid = s.sid {near} "
            f"WHERE s.ru = {line.ru} AND d.svc >= {CAUSAL}"
        )
        for m, ones in _by_life(found):
            pieces.setdefault(m, []).append((np.full(len(ones[0]), DELIVER, np.int8), *ones))
    for life in line.lives.values():
        own = life.periods if life.host is None else []  # a session keeps its past
        marks = [(VIEW, one.n) for one in own]
        marks += [(CUT, one.stop_n) for one in own if one.cut is not None]
        kinds, numbers = np.array([kind for kind, _ in marks], np.int8), np.array([n for _, n in marks], np.int64)
        nothing = np.full(len(marks), -1, np.int64)
        pieces.setdefault(life.m, []).append((kinds, numbers, nothing, nothing, nothing))
    submits: dict[int, _Submits] = {}
    order = np.lexsort((taken["a"], taken["sid"]))
    for sid, part in _runs_of(taken["sid"][order]):
        rows = order[part]
        submits[sid] = _Submits(taken["a"][rows].tolist(), taken["b"][rows].tolist())
    events: dict[int, _Events] = {}
    for m, parts in pieces.items():
        columns = [np.concatenate([part[at] for part in parts]) for at in range(5)]
        order = np.argsort(columns[1], kind="stable")
        kinds, numbers, sids, starts, stops = (column[order] for column in columns)
        events[m] = kinds, numbers, sids.astype(np.int32), starts, stops
    return submits, events


def _by_life(columns: dict[str, Any]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The rows of each life: n, sid, a, b."""
    import numpy as np

    order = np.argsort(columns["m"], kind="stable")
    for m, part in _runs_of(columns["m"][order]):
        rows = order[part]
        yield m, tuple(columns[name][rows] for name in ("n", "sid", "a", "b"))


def _runs_of(sorted_values: Any) -> Iterator[tuple[int, slice]]:
    """The places of each value."""
    import numpy as np

    values, starts = np.unique(sorted_values, return_index=True)
    stops = [*starts[1:].tolist(), len(sorted_values)]
    for value, start, stop in zip(values.tolist(), starts.tolist(), stops, strict=True):
        yield value, slice(start, stop)


def _in_turns(facts: Facts, line: Line) -> Iterator[set[int]]:
    """The lives of an underlay, so many at a time that their rows are not too many."""
    lives: set[int] = set()
    rows = 0
    for m in sorted({cell.m for cell in facts.cells_in.get(line.ru, ())}):
        mine = sum(cell.rows for cell in facts.cells_of[m])
        if lives and rows + mine > FETCHED:
            yield lives
            lives, rows = set(), 0
        lives.add(m)
        rows += mine
    if lives:
        yield lives


def _report(
    facts: Facts,
    findings: Findings,
    walker: _ClockWalker,
    event: tuple[int, int, int, int],
    entry: dict[int, int],
    submits: dict[int, _Submits],
) -> None:
    n, sid, start, stop = event
    key = walker.m, sid, start
    if key in findings.misplaced or findings.totals[NAME] > MOST_REPORTED:
        return
    at = entry[sid]
    who = facts.members[walker.m].name
    columns = (walker.kinds, walker.numbers, walker.senders, walker.starts, walker.stops)
    for kind, effect_n, other, first, end in zip(*(column[: walker.at].tolist() for column in columns), strict=True):
        if kind != DELIVER or other == sid or other not in submits or (walker.m, effect_n) in findings.tainted:
            continue
        sent = submits[other]
        place = sent.of(end - 1)
        if not 0 <= place < len(sent.clocks) or sent.clocks[place][at] < start:
            continue
        findings.misplaced.add(key)
        told = (walker.m, other, first) in findings.misplaced
        sender = facts.senders[other].name
        behind = span_text(sender, (first, end))
        text = f"{who} delivered it (n={n}) after {behind} (n={effect_n}), whose sender knew it when it submitted"
        row = facts.engine.rows(f"SELECT vw, tgt FROM {facts.of_lives({walker.m})} WHERE n = {n}")[0]
        findings.add(
            ViolationRow(
                *(facts.run_of(walker.m), NAME, CONSEQUENCE if told else ROOT, row["tgt"] or None, row["vw"], who),
                *(span_text(facts.senders[sid].name, (start, stop)), sender, behind, text, n),
            )
        )
        return
