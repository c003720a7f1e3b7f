"""Sessions, the clients of daemons: which views of the underlay they are in.

A session `client@daemon` has the life of its daemon and is in its daemon's views, without writing them. Between which
of its events the daemon's view changed is said by the clock, which is one for a daemon and its sessions. Two queries
find the last event before each view of the daemon, and the events at its very instant. These stand before the view if
they name an earlier one, or stand before one that does; a group's view names the underlay's by the end of its id.
Leaves, signals and submits count as before it, too, unless something before them names the view.

From then on a session has periods, as a member that writes its views, and all checks treat it as one.
"""

from __future__ import annotations

from typing import Final

from ordercast.pipeline.verify.engine import Record
from ordercast.pipeline.verify.facts import Facts
from ordercast.pipeline.verify.history import FOREVER, Life, Line, ViewPeriod, daemon_of, leave

EARLY_KINDS: Final = ("submit", "leave", "transitional")
# Of each session and instant the last event before it.
LAST_BEFORE: Final = """
SELECT x.ru, x.m, x.k, max(e.n) AS n FROM {ev_sessions} e JOIN {instants} x ON e.m = x.m
WHERE (e.u = x.u OR e.kind IN ('stop', 'crash')) AND e.at_ns < x.at_ns GROUP BY x.ru, x.m, x.k
"""
AT_ONCE: Final = """
SELECT x.ru, x.m, x.k, e.n, e.kind, e.vw FROM {ev_sessions} e JOIN {instants} x ON e.m = x.m AND e.at_ns = x.at_ns
WHERE (e.u = x.u OR e.kind IN ('stop', 'crash')) AND x.is_end = 0 ORDER BY x.ru, x.m, x.k, e.n
"""

Instant = tuple[int, int, int]  # underlay, life, number of the instant


class _Times:
    """What the session's events say of the instants at which its daemon's views changed."""

    __slots__ = ("before", "tied")

    def __init__(self, before: list[Record], tied: list[Record]) -> None:
        self.before: dict[Instant, int] = {(row["ru"], row["m"], row["k"]): row["n"] for row in before}
        self.tied: dict[Instant, list[Record]] = {}
        for row in tied:
            self.tied.setdefault((row["ru"], row["m"], row["k"]), []).append(row)

    def last(self, instant: Instant, index: dict[str, int]) -> int:
        """The last event that stands before the view which begins at this instant. `index` numbers the views."""
        found = self.before.get(instant, -1)
        for row in self.tied.get(instant, ()):
            if row["n"] < found:
                continue
            view = row["vw"] or ""
            named = index.get(view.partition("@")[2] if row["kind"] == "view" else view)
            if named is not None and named >= instant[2]:
                break
            if named is not None or row["kind"] in EARLY_KINDS:
                found = row["n"]
        return found


def seat_sessions(facts: Facts) -> None:
    """Give all sessions the views of their daemons."""
    found: list[tuple[Line, Life, Life]] = []
    for line in facts.lines:
        nodes = {life.name: life for life in line.lives.values() if life.periods and line.lightweight}
        for life in line.lives.values():
            daemon = nodes.get(daemon_of(life.name))
            if daemon is not None and not life.periods:
                found.append((line, life, daemon))
    if not found:
        return
    instants = [
        (line.ru, line.underlay, life.m, k, at_ns, int(k >= len(daemon.periods)))
        for line, life, daemon in found
        for k, at_ns in enumerate(_instants(daemon))
    ]
    engine = facts.engine
    columns = [("ru", "int"), ("u", "string"), ("m", "int"), ("k", "int"), ("at_ns", "bigint"), ("is_end", "int")]
    engine.load("instants", columns, instants)
    engine.only("ev_sessions", {life.m for _, life, _ in found})
    times = _Times(engine.rows(LAST_BEFORE), engine.rows(AT_ONCE))
    for line, life, daemon in found:
        _seat(facts, line, life, daemon, times)


def _instants(daemon: Life) -> list[int]:
    """When each of its views began, and when it went out of them."""
    begins = [period.at_ns for period in daemon.periods]
    return begins + [period.end_ns + 1 for period in daemon.periods if period.cut is not None]


def _seat(facts: Facts, line: Line, life: Life, daemon: Life, times: _Times) -> None:
    life.host, life.stays = daemon.name, daemon.stays
    line.hosts[life.name] = daemon.name
    index = {period.view: k for k, period in enumerate(daemon.periods)}
    begins: list[float] = []
    for k in range(len(daemon.periods)):
        begins.append(max(times.last((line.ru, life.m, k), index) + 0.5, *begins[-1:], -0.5))
    end = life.end if life.end is not None and life.end[0] == facts.members[life.m].rows - 1 else None
    before: tuple[ViewPeriod, ViewPeriod] | None = None
    ends = len(daemon.periods)
    for k, theirs in enumerate(daemon.periods):
        stop = begins[k + 1] if k + 1 < len(begins) else FOREVER
        if theirs.cut is not None:
            stop = min(stop, times.before.get((line.ru, life.m, ends), -1) + 0.5)
            ends += 1
        if stop < 0 or (end is not None and begins[k] > end[0]):
            continue  # the session had not begun, or had ended
        period = ViewPeriod(
            *(life.m, life.name, None, theirs.view, theirs.members, theirs.came_with),
            *(begins[k], theirs.at_ns, theirs.stay),
            stop_n=stop,
            end_ns=theirs.end_ns,
            cut=theirs.cut,
        )
        if end is not None and end[0] < stop:
            period.stop_n, period.end_ns, period.cut = end
        period.transitional_n = min((n for n in life.signals if begins[k] < n < period.stop_n), default=FOREVER)
        if before is not None and theirs.prev is before[1]:
            period.prev, before[0].next = before[0], period
        life.periods.append(period)
        life.by_view.setdefault(period.view, period)
        before = period, theirs
    if life.periods and life.periods[-1].cut is not None and end is None:
        leave(life, facts.members[life.m].rows, life.periods[-1].end_ns, life.periods[-1].cut)
