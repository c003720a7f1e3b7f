"""Sessions, the clients of daemons: which views of the underlay they are in.

A session `client@daemon` has the life of its daemon and is in its daemon's views, without writing them. Between which
of its events the daemon's view changed is said by the views that its deliveries name: cells have the first and the last
of each. Where they leave room, the clock says it, which is one for a daemon and its sessions: one query finds the last
event before each view of the daemon. At the very instant of a view, submits, leaves and signals stand before it.

From then on a session has periods, as a member that writes its views, and all checks treat it as one.
"""

from __future__ import annotations

from typing import Final

from ordercast.pipeline.verify.facts import Facts
from ordercast.pipeline.verify.history import FOREVER, Life, Line, ViewPeriod, leave

EARLY_KINDS: Final = "'submit', 'leave', 'transitional'"
# Of each session and instant the last event before it. Twice the time, so that a view stands between two events.
LAST_BEFORE: Final = f"""
SELECT x.ru, x.m, x.k, max(e.n) AS n FROM {{ev_sessions}} e JOIN {{instants}} x ON e.m = x.m
WHERE (e.u = x.u OR e.kind IN ('stop', 'crash'))
  AND 2 * e.at_ns - CASE WHEN e.kind IN ({EARLY_KINDS}) THEN 1 ELSE 0 END < x.twice_ns
GROUP BY x.ru, x.m, x.k
"""

Instants = dict[tuple[int, int, int], int]  # underlay, life, instant -> the last event before it


def seat_sessions(facts: Facts) -> None:
    """Give all sessions the views of their daemons."""
    found: list[tuple[Line, Life, Life]] = []
    for line in facts.lines:
        nodes = {life.name: life for life in line.lives.values() if life.periods}
        for life in line.lives.values():
            daemon = nodes.get(_daemon_of(life.name))
            if daemon is not None and not life.periods:
                found.append((line, life, daemon))
    if not found:
        return
    instants = [
        (line.ru, line.underlay, life.m, k, twice_ns)
        for line, life, daemon in found
        for k, twice_ns in enumerate(_instants(daemon))
    ]
    engine = facts.engine
    columns = [("ru", "int"), ("u", "string"), ("m", "int"), ("k", "int"), ("twice_ns", "bigint")]
    engine.load("instants", columns, instants)
    engine.only("ev_sessions", {life.m for _, life, _ in found})
    times: Instants = {(row["ru"], row["m"], row["k"]): row["n"] for row in engine.rows(LAST_BEFORE)}
    for line, life, daemon in found:
        _seat(facts, line, life, daemon, times)


def _daemon_of(name: str) -> str:
    """Of `client@daemon/life` the daemon as name/life, or nothing."""
    node, _, number = name.rpartition("/")
    client, _, daemon = node.rpartition("@")
    return f"{daemon}/{number}" if client else ""


def _instants(daemon: Life) -> list[int]:
    """When each of its views began, and when it went out of them."""
    begins = [2 * period.at_ns for period in daemon.periods]
    return begins + [2 * period.end_ns + 1 for period in daemon.periods if period.cut is not None]


def _seat(facts: Facts, line: Line, life: Life, daemon: Life, times: Instants) -> None:
    life.host, life.stays = daemon.name, daemon.stays
    line.hosts[life.name] = daemon.name
    views = [period.view for period in daemon.periods]
    first, last = dict.fromkeys(views, FOREVER), dict.fromkeys(views, -1)
    for cell in facts.cells_of.get(life.m, ()):
        if cell.ru == line.ru and cell.view in first:
            first[cell.view], last[cell.view] = min(first[cell.view], cell.first_n), max(last[cell.view], cell.last_n)
    begins: list[float] = []
    for k in range(len(views)):
        timed = times.get((line.ru, life.m, k), -1)
        earlier = max((last[view] for view in views[:k]), default=-1)
        later = min(first[view] for view in views[k:])
        begins.append(max(min(max(timed, earlier), later - 1) + 0.5, *begins[-1:], -0.5))
    end = life.end if life.end is not None and life.end[0] == facts.members[life.m].rows - 1 else None
    before: tuple[ViewPeriod, ViewPeriod] | None = None
    ends = len(views)
    for k, theirs in enumerate(daemon.periods):
        stop = begins[k + 1] if k + 1 < len(begins) else FOREVER
        if theirs.cut is not None:
            stop = min(stop, max(times.get((line.ru, life.m, ends), -1), last[theirs.view]) + 0.5)
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
