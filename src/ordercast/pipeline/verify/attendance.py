"""Part of property 8: members send, have messages confirmed and get locks in views that have enough members only.

What is enough stands in `run.json`: `min_members`, or `rules` for each node, as numbers, and `bootstrap`. A real run
has them where its harness writes them; of a trace without them nothing is asked. `sim.checkers.attendance` reads the
same sentence by code of its own.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ordercast.pipeline.verify.facts import ORDERED_CLASS, Facts
from ordercast.pipeline.verify.findings import ROOT, Findings, ViolationRow, span_text
from ordercast.pipeline.verify.history import Line, ViewPeriod, rule_of

PROMISES: Final = "promises"
CREATED: Final = "create"
LIMIT: Final = 1_000


class SmallView(NamedTuple):
    """A time of one life in a view with too few members, and why they are. `has_begun`: the group has."""

    period: ViewPeriod
    why: str
    has_begun: bool


def check(facts: Facts, findings: Findings) -> None:
    """Judge what members did in views that are too small."""
    small: dict[tuple[int, int], list[SmallView]] = {}
    for line in facts.lines:
        for found in _small_views(facts, line):
            findings.checked[PROMISES] += 1
            small.setdefault((line.ru, found.period.m), []).append(found)
    if not small:
        return
    spans = [
        (sender.sid, math.ceil(found.period.n), math.ceil(found.period.stop_n))
        for sender in facts.senders
        for found in small.get((sender.ru, sender.m), ())
    ]
    engine = facts.engine
    engine.load("small_views", [("sid", "int"), ("n0", "bigint"), ("n1", "bigint")], spans)
    for row in engine.rows(
        "SELECT s.sid, s.n, s.a, s.b FROM {sub} s JOIN {small_views} v ON s.sid = v.sid AND s.n >= v.n0 AND s.n < v.n1 "
        f"ORDER BY s.sid, s.n LIMIT {LIMIT}"
    ):
        sender = facts.senders[row["sid"]]
        messages = span_text(sender.name, (row["a"], row["b"]))
        _report(facts, findings, small[sender.ru, sender.m], row["n"], messages, "sent it")
    for (ru, m), views in small.items():
        early = {found.period.view for found in views if not found.has_begun}
        for cell in facts.cells_of.get(m, ()) if early else ():
            if cell.view in early and cell.ru == ru and cell.cls == ORDERED_CLASS:
                _report(facts, findings, views, cell.first_n, None, "delivered messages")
    lines = {(line.r, line.underlay): line.ru for line in facts.lines}
    for row in engine.rows(
        "SELECT m, r, u, n, kind, detail FROM {few} WHERE kind IN ('lock', 'confirm') ORDER BY m, n"
    ):
        views = small.get((lines.get((row["r"], row["u"]), -1), row["m"]), [])
        what = f"was granted lock {row['detail']!r}" if row["kind"] == "lock" else "had a message confirmed"
        _report(facts, findings, views, row["n"], None, what)


def _report(facts: Facts, findings: Findings, views: list[SmallView], n: int, messages: str | None, what: str) -> None:
    for period, why, _ in views:
        if period.n <= n < period.stop_n:
            text = f"{period.name} {what} (n={n}) in a view of {len(period.members)} members: {why}"
            findings.add(
                ViolationRow(
                    *(facts.run_of(period.m), PROMISES, ROOT, None, period.view, period.name),
                    *(messages, None, None, text, n),
                )
            )


def _small_views(facts: Facts, line: Line) -> list[SmallView]:
    rules, bootstrap = facts.rules[line.r], _bootstrap(facts, line)
    periods = [period for life in line.lives.values() for period in life.periods]
    waiting = _waiting(periods, bootstrap)
    found = []
    for period in periods:
        rule = rule_of(rules, line.host(period.name))
        if isinstance(rule, int) and len(period.members) < rule:
            found.append(SmallView(period, f"it asked for {rule}", period.view not in waiting))
        elif period.view in waiting:
            found.append(SmallView(period, f"the group had not had {bootstrap} yet", False))
    return found


def _bootstrap(facts: Facts, line: Line) -> int:
    given = facts.runs[line.r].info.parameters.get("bootstrap", 1)
    return given if isinstance(given, int) and not isinstance(given, bool) else 1


def _waiting(periods: list[ViewPeriod], bootstrap: int) -> set[str]:
    """Views that go back, over views that are too small, to the one that made the group. Where a member came to a view
    from one that is not such a view, neither is this: the group had begun. A few rounds settle all of them."""
    waiting = {one.view for one in periods if one.reason == CREATED and len(one.members) < bootstrap}
    if not waiting:
        return waiting
    begun = {one.view for one in periods if len(one.members) >= bootstrap}
    edges = {(one.prev.view, one.view) for one in periods if one.prev is not None}
    for known in (begun, waiting):
        is_new = True
        while is_new:
            more = {later for earlier, later in edges if earlier in known} - known
            known |= more
            is_new = bool(more)
    return waiting - begun
