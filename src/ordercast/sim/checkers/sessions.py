"""Sessions, which are clients of a daemon: which views of the underlay they are in.

Reading (docs/trace.md). A session `client@daemon` has the life of its daemon and is in the daemon's views, but it does
not write them. So this module gives it periods of its own, made of those of its daemon, and every checker judges a
session as it judges a member. Where between two events of the session the daemon's view changed is said by the run
clock, which a daemon and its sessions share: one process writes the rows of both. Of events at the very instant of a
view, those stand before it that name an earlier view of the underlay, or are behind one that does; the others stand
after it, except leaves, signals and submits that come before the first which names that view: so nothing is owed that
may not be. The view of a group names the underlay's by the end of its id.

A session whose daemon is in no view of the trace has no periods, and nothing is known of its views. Where there are no
lightweight groups there are no sessions: a caller may have any name.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Final

from ordercast.sim.checkers.records import FOREVER, Local, MemberPeriod, UnderlayTrace, daemon_of
from ordercast.trace.schema import Row

ENDS: Final = ("stop", "crash")
EARLY_KINDS: Final = ("submit", "leave", "transitional")  # at the very instant of a view before it, as far as is known
BETWEEN: Final = 0.5  # a daemon's view stands between two events of its session


def seat_session(underlay: UnderlayTrace, local: Local, rows: list[Row]) -> bool:
    """Give a session the views of its daemon; whether it is one. `rows` are those of its life, in order."""
    daemon = underlay.locals.get(daemon_of(local.member) or "")
    if not underlay.lightweight or local.periods or daemon is None or not daemon.periods or daemon.host is not None:
        return False
    local.host = daemon.member
    underlay.hosts[local.member] = daemon.member
    mine = [row for row in rows if row.underlay == underlay.name or row.kind in ENDS]
    end = mine[-1] if mine and mine[-1].kind in ENDS else None
    last_n = end.n if end is not None else FOREVER
    cuts = _cuts(daemon.periods, mine)
    before: tuple[MemberPeriod, MemberPeriod] | None = None  # the session's, the daemon's
    for at, theirs in enumerate(daemon.periods):
        stop = cuts[at + 1] if at + 1 < len(cuts) else FOREVER
        if theirs.cut is not None:
            stop = min(stop, _gone_by(theirs, mine))
        if stop < 0 or cuts[at] > last_n:
            continue  # it had not begun, or had ended
        period = MemberPeriod(
            local.member, None, theirs.view, theirs.members, theirs.came_with, cuts[at], theirs.at_ns, None, theirs.stay
        )
        period.stop_n, period.end_ns, period.cut = stop, theirs.end_ns, theirs.cut
        if end is not None and end.n < stop:
            period.stop_n, period.end_ns, period.cut = end.n, end.at_ns, end.kind
        if before is not None and theirs.prev is before[1]:
            period.prev, before[0].next = before[0], period
        local.periods.append(period)
        before = period, theirs
    _place(local, mine)
    return True


def _cuts(theirs: list[MemberPeriod], mine: list[Row]) -> list[float]:
    """For each view of the daemon where it stands among the session's events."""
    index = {period.view: at for at, period in enumerate(theirs)}
    # Times that never fall again: events before an instant are found by bisection.
    times = list(accumulate((row.at_ns for row in reversed(mine)), min))[::-1]
    cuts: list[float] = []
    for at, period in enumerate(theirs):
        begin = bisect_left(times, period.at_ns)
        before = mine[begin - 1].n if begin else -1
        for row in mine[begin : bisect_right(times, period.at_ns)]:
            named = index.get(_named(row))
            if named is not None and named >= at:
                break
            if named is not None or row.kind in EARLY_KINDS:
                before = row.n
        cuts.append(max(before + BETWEEN, *cuts[-1:], -BETWEEN))
    return cuts


def _named(row: Row) -> str:
    """The view of the underlay that a row of a session names, if any."""
    if row.kind == "view":
        return (row.view or "").partition("@")[2]
    return row.view or ""


def _gone_by(theirs: MemberPeriod, mine: list[Row]) -> float:
    """Where the daemon went out."""
    return max((row.n for row in mine if row.at_ns <= theirs.end_ns), default=-1) + BETWEEN


def _place(local: Local, mine: list[Row]) -> None:
    """Deliveries and signals into the periods."""
    for delivery in local.deliveries:
        delivery.period = local.period_at(delivery.n)
        if delivery.period is not None:
            delivery.period.deliveries.append(delivery)
    signals = [row.n for row in mine if row.kind == "transitional"]
    for period in local.periods:
        at = bisect_left(signals, period.n)
        if at < len(signals) and signals[at] < period.stop_n:
            period.transitional_n = signals[at]
