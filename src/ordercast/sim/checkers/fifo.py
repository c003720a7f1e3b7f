"""Property 2, fifo: numbers of FIFO-or-stronger messages of one sender rise at every member, without holes.

Reading.

- *Rise* is judged over a whole life and for every sender, members or not: a delivery whose number lies below one
  delivered before.
- *Holes* are judged while both share views. At a delivery of number j in view W, walk back over the views that the
  member came through together with the sender (`came_with`). What lies between the sender's last delivery here in
  that stretch and j is owed. If there was none, what the sender submitted after *it* installed the first view of the
  stretch is owed: earlier numbers may have been delivered before this member (or the sender) came in. A sender
  outside the view shares none, so nothing is owed from it: what a crashed sender's coordinator submits again may have
  holes.
- Owed is what certainly goes to groups that the member is in: in the group from the start of the hole to the delivery
  after it. Rows of unknown targets are not owed. UNRELIABLE and RELIABLE messages leave no holes.
- Sessions share the views that their daemons share.
- Regions: senders outside a view owe the same, see `lanes.py`.
- A message that came late is one fault (it did not rise), not also a hole.
"""

from __future__ import annotations

from bisect import bisect_right

from ordercast.service import FIFO_RANK
from ordercast.sim.checkers import lanes
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.ranges import Range
from ordercast.sim.checkers.records import DeliveryRow, Local, MemberPeriod, UnderlayTrace
from ordercast.sim.checkers.region_records import RegionalTrace
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text

NAME = "fifo"


def check(trace: Trace, explained: Explained | None = None, *, regional: RegionalTrace | None = None) -> PropertyResult:
    """Judge the order of each sender's messages at each member."""
    result = PropertyResult(NAME, "delivered ranges")
    explained = explained if explained is not None else Explained()
    for underlay in trace.underlays.values():
        for local in underlay.locals.values():
            if local.deliveries:
                _check_local(underlay, local, result, explained)
    if regional:
        lanes.check_fifo(regional, result, explained)
    return result


def _check_local(underlay: UnderlayTrace, local: Local, result: PropertyResult, explained: Explained) -> None:
    last_of: dict[str, DeliveryRow] = {}
    for delivery in local.deliveries:
        if delivery.rank < FIFO_RANK or delivery.tainted:
            continue
        result.checked += 1
        sender = delivery.sender
        last = last_of.get(sender)
        if last is not None:
            if delivery.first == last.stop:
                last_of[sender] = delivery
                continue
            if delivery.first < last.stop:
                explained.misordered.add(id(delivery))
                explained.add_missing(local.member, underlay.name, sender, [delivery.span])
                result.report(
                    f"{local.member} delivered {span_text(sender, delivery.span)} at n={delivery.n} after "
                    f"{span_text(sender, last.span)} at n={last.n}",
                    member=local.member,
                    other=sender,
                    sender=sender,
                    span=delivery.span,
                    view=delivery.view,
                )
                continue
        elif delivery.first == 0:
            last_of[sender] = delivery
            continue
        last_of[sender] = delivery
        for hole in _holes(underlay, local, delivery, last):
            explained.add_missing(local.member, underlay.name, sender, [hole])
            result.report(
                f"{local.member} delivered {span_text(sender, delivery.span)} at n={delivery.n} without "
                f"{span_text(sender, hole)}, which goes to it, too",
                member=local.member,
                other=sender,
                sender=sender,
                span=hole,
                view=delivery.view,
            )


def _holes(underlay: UnderlayTrace, local: Local, delivery: DeliveryRow, last: DeliveryRow | None) -> list[Range]:
    source = underlay.locals[delivery.sender]
    start = shared_since(delivery.period, underlay.host(delivery.sender))
    if start is None:
        return []
    since_n: float
    if last is not None and last.n >= start.n:
        low, since_n = last.stop, last.n
    else:
        since_n = start.n
        first_number = _first_number_in(source, start.view)
        if first_number is None:
            return []
        low = max(first_number, last.stop if last is not None else 0)
    delivered = local.delivered[delivery.sender]
    holes: list[Range] = []
    for submit in source.submits_in(low, delivery.first) if low < delivery.first else ():
        if submit.rank >= FIFO_RANK and local.is_owed(submit.targets, since_n, delivery.n):
            for first, stop in delivered.missing(max(submit.first, low), min(submit.stop, delivery.first)):
                if holes and holes[-1][1] == first:
                    holes[-1] = (holes[-1][0], stop)
                else:
                    holes.append((first, stop))
    return holes


def shared_since(period: MemberPeriod | None, other: str) -> MemberPeriod | None:
    """The first period of the stretch up to `period` in which the member went through all views with `other`."""
    if period is None or other not in period.members:
        return None
    while period.prev is not None and other in period.came_with:
        period = period.prev
    return period


def _first_number_in(source: Local, view: str) -> int | None:
    """The number of the first message that `source` submitted after it installed `view`; None if it never did."""
    for period in source.periods:
        if period.view == view:
            index = bisect_right(source.submits, period.n, key=lambda submit: submit.n)
            return source.submits[index].first if index < len(source.submits) else source.submits[-1].stop
    return None
