"""Positions by content: in a view a position names one message, and a message has one position.

Strong services keep one order at any two members beyond views, too: SAFE whatever happens, MAJORITY where only a
majority goes on.
"""

from __future__ import annotations

import itertools
from typing import Final

from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.evidence import add_row
from ordercast.pipeline.verify.facts import MAJORITY, ORDERED_CLASS, SAFE, Cell, Facts
from ordercast.pipeline.verify.findings import ROOT, Findings, span_text
from ordercast.pipeline.verify.history import FOREVER, Line
from ordercast.pipeline.verify.integrity import OVERLAPPING

LIMIT: Final = 10_000

CLASHES: Final = f"""
SELECT v, pos, sid, a, b, c FROM (
  SELECT *, max(pos + b - a) OVER (PARTITION BY v ORDER BY pos, b - a, sid, a, c
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS high FROM {{blocks}} WHERE cls = 3)
WHERE pos < high ORDER BY v, pos LIMIT {LIMIT}
"""


def check_positions(facts: Facts, findings: Findings) -> None:
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
    add_row(facts, findings, "total_order", ROOT, {**one, "vw": view}, text, names[1], messages[1])


def check_strong(facts: Facts, findings: Findings) -> None:
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
        period = line.lives[cell.m].by_view.get(cell.view)
        span = spans.setdefault(cell.m, {}).setdefault(period.stay if period is not None else 0, [FOREVER, -1])
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
            add_row(facts, findings, "total_order", ROOT, row, text, other, behind)
            return
        top, before = rank, row


def only_majorities_go_on(line: Line) -> bool:
    """Did every change of view leave at most one part that could go on?"""
    for life in line.nodes:
        for period in life.periods:
            if period.next is None:
                continue
            stayed = [name for name in period.members if name in period.next.came_with]
            if 2 * len(stayed) > len(period.members):
                continue
            if 2 * len(stayed) == len(period.members) and period.members[0] in stayed:
                continue
            gone = [name for name in period.members if name not in stayed]
            if period.transitional_n < FOREVER or any(not _left_quietly(line, name, period.view) for name in gone):
                return False
    return True


def _left_quietly(line: Line, name: str, view: str) -> bool:
    for life in line.lives.values():
        if life.name == name:
            period = life.by_view.get(view)
            return period is not None and period.cut in ("leave", "stop") and period.transitional_n == FOREVER
    return False
