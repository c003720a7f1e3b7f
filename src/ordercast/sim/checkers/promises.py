"""Property 8, promises: what a confirmed send, a lock and a call promise to the application.

Reading.

- **Confirmed**: a `confirm` row of a RESILIENT(k)-or-stronger message (the service is that of its submit). The members
  that *were there* are those of the view in which the sender delivered it (a sender that did not deliver it: its view
  at the `confirm`; a sender outside: the earliest view in which any member delivered it). Each of them that went on
  from that view and stayed in to the end (as in property 7) must have delivered it, in that view or a later one, for
  what survivors hold but cannot order is submitted again (docs/design/overview.md section 7). *At most k failed at
  once*: no change of view on its way lost more than k members (for MAJORITY half of the view, for SAFE all but one). A
  member that did not come along counts as failed. This is judged where the run ended quietly, since until then the
  message may still come. With components those were there that go on from that view together with the sender; what
  others owe is safe delivery (property 6). With any service from RELIABLE on, some member has delivered what is
  confirmed; a caller's message before the confirmation arrives, where clocks can be compared. A message to lightweight
  groups may find no member there: this is said only where the sender itself was in one of them from the submit to the
  confirmation.
- **Locks**: per underlay, group and name (`detail`). A lock is held from `lock` to `unlock`, `leave` (of its
  lightweight group, too), `stop` or `crash`. Two holders are two members whose times overlap and whose views at that
  time contain each other: a member that is excluded and does not know it yet may still believe to hold the lock. Where
  clocks cannot be compared only locks that both hold at the end are judged.
- **Calls**: a call is named by the sender and number in its `reply` rows; two such rows are two answers. They are
  excused where two rings gave them, which the members' `min_members` did not forbid: delivered in different views that
  have none in common behind them, or one that both sides of a failure may go on from; and neither answerer went on
  from its own to the other's. A member that answers has delivered the call before, once or (`redeliver`) again.
- **Enough members**: `attendance.py`.
"""

from __future__ import annotations

from bisect import bisect_right

from ordercast.service import MAJORITY_RANK, RELIABLE_RANK, RESILIENT_RANK, SAFE_RANK
from ordercast.sim.checkers.attendance import check_attendance
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.liveness import settled_members
from ordercast.sim.checkers.ranges import Range, merged, subtract
from ordercast.sim.checkers.records import FOREVER, Local, MemberPeriod, UnderlayTrace
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text
from ordercast.sim.checkers.views import Rules, may_part, sort_views
from ordercast.trace.schema import Row

NAME = "promises"

Held = tuple[int, int, Local, int]  # from, to (run clock), by whom, n of the lock row


def check(
    trace: Trace,
    explained: Explained | None = None,
    *,
    clock: str = "virtual",
    quiet: bool = True,
    min_members: Rules = "majority",
    bootstrap: int = 1,
    has_components: bool = False,
) -> PropertyResult:
    """Judge confirms, locks and replies."""
    result = PropertyResult(NAME, "confirms, locks and replies")
    explained = explained if explained is not None else Explained()
    for underlay in trace.underlays.values():
        if quiet:
            settled = settled_members(underlay, min_members, comparable=clock != "many")
            for local in underlay.locals.values():
                for row in local.confirms:
                    _check_confirm(underlay, local, row, settled, result, explained, has_components)
        first_ns = _first_deliveries(underlay) if clock != "many" else None
        for local in underlay.locals.values():
            for row in local.confirms:
                _check_delivered(underlay, local, row, first_ns, result)
        _check_locks(underlay, result, comparable=clock != "many")
        _check_replies(underlay, result, min_members)
        check_attendance(underlay, result, min_members, bootstrap)
    return result


def _check_confirm(
    underlay: UnderlayTrace,
    local: Local,
    row: Row,
    settled: dict[str, Local],
    result: PropertyResult,
    explained: Explained,
    has_components: bool,
) -> None:
    sender = row.sender or local.member
    source = underlay.locals.get(sender)
    if source is None or row.first is None or row.count is None:
        return
    for submit in source.submits_in(row.first, row.first + row.count):
        if submit.rank < RESILIENT_RANK:
            continue
        span = max(submit.first, row.first), min(submit.stop, row.first + row.count)
        view = _view_of(underlay, source, row, span)
        if view is None:
            continue
        result.checked += 1
        for member, survivor in settled.items():
            there = next((period for period in survivor.periods if period.view == view), None)
            if there is None or there.stay != survivor.periods[-1].stay or there.next is None:
                continue
            if not survivor.is_owed(submit.targets, there.n, there.stop_n):
                continue
            if has_components and underlay.host(sender) not in there.next.came_with:
                continue
            if not _few_failed(there, submit.rank, submit.k):
                continue
            delivered = survivor.delivered.get(sender)
            missing = subtract([span], delivered.ranges() if delivered is not None else [])
            for lost in explained.unexplained(member, underlay.name, sender, missing):
                explained.add_missing(member, underlay.name, sender, [lost])
                result.report(
                    f"{span_text(sender, lost)} was confirmed (n={row.n}) and {member} went on from view {view}, "
                    f"but never delivered it",
                    member=member,
                    other=sender,
                    sender=sender,
                    span=lost,
                    view=view,
                )


def _first_deliveries(underlay: UnderlayTrace) -> dict[tuple[str, int], int]:
    """When each call of a caller outside was first delivered by anybody."""
    found: dict[tuple[str, int], int] = {}
    for local in underlay.locals.values():
        for delivery in local.deliveries:
            source = underlay.locals.get(delivery.sender)
            if source is not None and source.is_outside:
                for number in range(delivery.first, delivery.stop):
                    call = delivery.sender, number
                    found[call] = min(delivery.at_ns, found.get(call, FOREVER))
    return found


def _check_delivered(
    underlay: UnderlayTrace, local: Local, row: Row, first_ns: dict[tuple[str, int], int] | None, result: PropertyResult
) -> None:
    """What was confirmed has been delivered, by the sender itself or, of a caller's, by anybody: before, as far as
    clocks can tell."""
    sender = row.sender or local.member
    source = underlay.locals.get(sender)
    if source is None or row.first is None or row.count is None:
        return
    result.checked += 1
    first, stop = row.first, row.first + row.count
    lost = merged(
        (max(submit.first, first), min(submit.stop, stop))
        for submit in source.submits_in(first, stop)
        if submit.rank >= RELIABLE_RANK and (local is not source or source.is_owed(submit.targets, submit.n, row.n))
    )
    if first_ns is not None and source.is_outside:
        numbers = [number for span in lost for number in range(*span)]
        late = [number for number in numbers if first_ns.get((sender, number), FOREVER) > row.at_ns]
        lost = merged((number, number + 1) for number in late)
    else:
        for other in (source, *underlay.locals.values()):
            delivered = other.delivered.get(sender)
            if lost and delivered is not None:
                lost = [gap for span in lost for gap in delivered.missing(*span)]
    for span in lost:
        result.report(
            f"{span_text(sender, span)} was confirmed (n={row.n}), and nobody had delivered it",
            member=local.member,
            sender=sender,
            span=span,
            view=row.view,
        )


def _view_of(underlay: UnderlayTrace, source: Local, row: Row, span: Range) -> str | None:
    """The view whose members were there when the message was confirmed."""
    for delivery in source.deliveries:
        if delivery.sender == source.member and delivery.first <= span[0] < delivery.stop and not delivery.tainted:
            return delivery.period.view if delivery.period is not None else None
    period = source.period_at(row.n)
    if period is not None:
        return period.view
    views = {
        delivery.period.view
        for local in underlay.locals.values()
        for delivery in local.deliveries
        if delivery.period is not None
        and delivery.sender == source.member
        and delivery.first <= span[0] < delivery.stop
    }
    rank = sort_views([local.periods for local in underlay.locals.values()])
    return min(views, key=lambda view: (rank.get(view, 0), view), default=None)


def _few_failed(period: MemberPeriod, rank: int, k: int) -> bool:
    while period.next is not None:
        size = len(period.members)
        lost = size - sum(member in period.next.came_with for member in period.members)
        tolerated = size - 1 if rank == SAFE_RANK else size // 2 if rank == MAJORITY_RANK else k
        if lost > tolerated:
            return False
        period = period.next
    return True


def _check_locks(underlay: UnderlayTrace, result: PropertyResult, *, comparable: bool) -> None:
    held: dict[tuple[str | None, str | None], list[Held]] = {}
    for local in underlay.locals.values():
        for row in local.locks:
            result.checked += 1
            held.setdefault((row.group, row.detail), []).append((row.at_ns, _released(local, row), local, row.n))
    for (_, lock), times in held.items():
        if not comparable:
            times = [(0, end, local, n) for _, end, local, n in times if end == FOREVER]
        times.sort(key=lambda one: one[:2])
        running: list[Held] = []
        for begin, end, local, n in times:
            running = [one for one in running if one[1] > begin]
            for _, other_end, other, _ in running:
                if other is local or min(end, other_end) <= begin:
                    continue
                at_ns = begin if comparable else FOREVER - 1
                if not (_sees(underlay, local, other, at_ns) and _sees(underlay, other, local, at_ns)):
                    continue
                period = local.period_at(n)
                result.report(
                    f"lock {lock!r} was granted to {local.member} at {begin} ns (n={n}) while {other.member} held it",
                    member=local.member,
                    other=other.member,
                    view=period.view if period is not None else None,
                )
                break
            running.append((begin, end, local, n))


def _released(local: Local, lock: Row) -> int:
    ends = [
        row.at_ns for row in local.unlocks if row.n > lock.n and (row.group, row.detail) == (lock.group, lock.detail)
    ]
    ends.extend(at_ns for n, at_ns in local.cuts if n > lock.n)
    groups = local.group_periods.get(lock.group or "", ())
    ends.extend(period.end_ns for period in groups if period.cut is not None and period.stop_n > lock.n)
    return min(ends, default=FOREVER)


def _sees(underlay: UnderlayTrace, local: Local, other: Local, at_ns: int) -> bool:
    """Is `other` in the view in which `local` is at that time? Lives without views see everyone."""
    if not local.periods:
        return True
    index = bisect_right(local.periods, at_ns, key=lambda period: period.at_ns) - 1
    return index >= 0 and underlay.host(other.member) in local.periods[index].members


def _check_replies(underlay: UnderlayTrace, result: PropertyResult, rules: Rules) -> None:
    given: dict[tuple[str, int], list[tuple[Local, Row, MemberPeriod | None]]] = {}
    for local in underlay.locals.values():
        heard = _heard(local) if local.replies else {}
        for row in local.replies:
            if row.sender is None or row.first is None:
                continue
            result.checked += 1
            span = row.first, row.first + 1
            heard_n = heard.get((row.sender, row.first), FOREVER)
            if heard_n > row.n:
                result.report(
                    f"{local.member} answered the call {span_text(row.sender, span)} (n={row.n}), which it had not "
                    f"delivered",
                    member=local.member,
                    sender=row.sender,
                    span=span,
                    view=row.view,
                )
            here = local.period_at(min(heard_n, row.n))
            before = given.setdefault((row.sender, row.first), [])
            other = next((one for one in before if not _were_parted(underlay, rules, one[2], here)), None)
            if other is not None:
                result.report(
                    f"the call {span_text(row.sender, span)} was answered by {local.member} (n={row.n}) "
                    f"and by {other[0].member} (n={other[1].n})",
                    member=local.member,
                    other=other[0].member,
                    sender=row.sender,
                    span=span,
                    view=row.view,
                )
            before.append((local, row, here))


def _were_parted(underlay: UnderlayTrace, rules: Rules, one: MemberPeriod | None, other: MemberPeriod | None) -> bool:
    """Whether two members that delivered the same call were in two rings that may both have been there."""
    if one is None or other is None or one.member == other.member or one.view == other.view:
        return False
    if _went_on(one, other.view) or _went_on(other, one.view):
        return False
    return may_part([local.periods for local in underlay.locals.values()], rules, one.view, other.view)


def _went_on(period: MemberPeriod, view: str) -> bool:
    while period.next is not None:
        period = period.next
        if period.view == view:
            return True
    return False


def _heard(local: Local) -> dict[tuple[str, int], int]:
    """When each call was handed over to a member that answers: a call is one message, and a row of its own."""
    askers = {row.sender for row in local.replies}
    heard: dict[tuple[str, int], int] = {}
    for delivery in local.deliveries:
        if delivery.sender in askers:
            for number in range(delivery.first, delivery.stop):
                heard.setdefault((delivery.sender, number), delivery.n)
    for row in local.redeliveries:
        call = row.sender or "", row.first or 0
        heard[call] = min(row.n, heard.get(call, FOREVER))
    return heard
