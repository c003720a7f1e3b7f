"""Property 4, total_order: AGREED-or-stronger messages come in one order, per underlay, so across groups too.

Reading, as a certificate that is cheap to check and implies the property:

- View and position together name one message, and in one view a message has one position, at all members. Ranges may
  be cut differently.
- During a stay (from coming in to going out) a member's positions rise, across views too, since a view starts above
  all positions of the members that came. So any two members order what both deliver in one view alike; and as members
  that go on together deliver the same set in each view (property 5), they agree over all views. A fall of positions
  that contradicts no other member is reported as well: by the definition of `position` it is a fault, if only of the
  recorder.
- Nothing is compared between different views, nor across a `leave`: a member left behind by a failure may have
  delivered in V what the others deliver later in another order, and a ring that dissolves has positions of its own.
- SAFE messages keep one order at any two members whatever happens. Certificate: one position in the whole trace, and
  rising over the whole life. Where that fails, the orders of each two members are compared exactly. MAJORITY messages
  are judged with them where only a majority goes on: where in every change of view of the underlay the members that
  came together are more than half of the old view, or half with its first member, or all others had left of their own
  (they wrote `leave` or `stop`, and no member wrote `transitional`).
"""

from __future__ import annotations

from ordercast.service import MAJORITY_RANK, SAFE_RANK
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.ranges import Range
from ordercast.sim.checkers.records import FOREVER, DeliveryRow, Local, UnderlayTrace, is_ordered
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text

NAME = "total_order"

Named = tuple[int, int, str, int]  # position, stop position, sender, number minus position


def check(trace: Trace, explained: Explained | None = None) -> PropertyResult:
    """Judge the total order of each underlay."""
    result = PropertyResult(NAME, "ordered ranges")
    explained = explained if explained is not None else Explained()
    for underlay in trace.underlays.values():
        _check_underlay(underlay, result, explained)
    return result


def _check_underlay(underlay: UnderlayTrace, result: PropertyResult, explained: Explained) -> None:
    strong_rank = MAJORITY_RANK if only_majorities_go_on(underlay) else SAFE_RANK
    names: dict[str | None, set[Named]] = {}
    strong: set[Named] = set()
    strong_certain = True
    for local in underlay.locals.values():
        stay = -1
        top = -1
        before: DeliveryRow | None = None
        strong_top = -1
        for delivery in local.deliveries:
            if not is_ordered(delivery):
                continue
            position = delivery.position
            assert position is not None
            result.checked += 1
            stop = position + delivery.stop - delivery.first
            named = position, stop, delivery.sender, delivery.first - position
            bucket = names.get(delivery.view)
            if bucket is None:
                bucket = names[delivery.view] = set()
            bucket.add(named)
            if delivery.rank >= strong_rank:
                strong.add(named)
                if position < strong_top:
                    strong_certain = False
                strong_top = stop
            here = delivery.period.stay if delivery.period is not None else 0
            if here != stay:
                stay, top, before = here, -1, None
            if position < top:
                if id(delivery) not in explained.misordered:
                    explained.misordered.add(id(delivery))
                    _report_fall(local, delivery, before, result)
                continue  # the one that came late is the odd one: those after it are measured against the rest
            top, before = stop, delivery
    for view, bucket in names.items():
        _check_names(underlay, view, bucket, result)
    if strong and not (strong_certain and not _has_two_positions(strong)):
        _check_strong(underlay, strong_rank, result, explained)


def only_majorities_go_on(underlay: UnderlayTrace) -> bool:
    """Did every change of view in the trace leave at most one part that could go on?"""
    for local in underlay.nodes:
        for period in local.periods:
            if period.next is None:
                continue
            stayed = [member for member in period.members if member in period.next.came_with]
            if 2 * len(stayed) > len(period.members):
                continue
            if 2 * len(stayed) == len(period.members) and period.members[0] in stayed:
                continue
            gone = [member for member in period.members if member not in stayed]
            if period.transitional_n < FOREVER or any(
                not _left_quietly(underlay, member, period.view) for member in gone
            ):
                return False
    return True


def _left_quietly(underlay: UnderlayTrace, member: str, view: str) -> bool:
    local = underlay.locals.get(member)
    for period in local.periods if local is not None else ():
        if period.view == view:
            return period.cut in ("leave", "stop") and period.transitional_n == FOREVER
    return False


def _report_fall(local: Local, delivery: DeliveryRow, before: DeliveryRow | None, result: PropertyResult) -> None:
    other = span_text(before.sender, before.span) if before is not None else "?"
    previous = before.position if before is not None else None
    result.report(
        f"{local.member} delivered {span_text(delivery.sender, delivery.span)} at position {delivery.position} "
        f"(n={delivery.n}) after {other} at position {previous}",
        member=local.member,
        other=before.sender if before is not None else None,
        sender=delivery.sender,
        span=delivery.span,
        view=delivery.view,
    )


def _check_names(underlay: UnderlayTrace, view: str | None, bucket: set[Named], result: PropertyResult) -> None:
    """One message for each position, one position for each message; overlapping rows may be cut differently."""
    blamed: set[Named] = set()
    last: Named | None = None
    for named in sorted(bucket):
        if last is not None and named[0] < last[1]:
            if named[2:] != last[2:]:
                _report_clash(underlay, view, last, named, "position", result)
                blamed.update((last, named))
            if named[1] <= last[1]:
                continue
        last = named
    last = None
    for named in sorted(bucket, key=_by_number):
        if last is not None and named[2] == last[2] and named[0] + named[3] < last[1] + last[3]:
            if named[3] != last[3] and not (named in blamed and last in blamed):
                _report_clash(underlay, view, last, named, "message", result)
            if named[1] + named[3] <= last[1] + last[3]:
                continue
        last = named


def _by_number(named: Named) -> tuple[str, int, int]:
    return named[2], named[0] + named[3], named[0]


def _has_two_positions(strong: set[Named]) -> bool:
    last: Named | None = None
    for named in sorted(strong, key=_by_number):
        if last is not None and named[2] == last[2] and named[0] + named[3] < last[1] + last[3]:
            if named[3] != last[3]:
                return True
            if named[1] <= last[1]:
                continue
        last = named
    return False


def _report_clash(
    underlay: UnderlayTrace, view: str | None, left: Named, right: Named, what: str, result: PropertyResult
) -> None:
    deliverer = _deliverer_of(underlay, view, left)
    other = _deliverer_of(underlay, view, right)
    left_span, right_span = _span(left), _span(right)
    if what == "position":
        text = f"in view {view} position {right[0]} is {span_text(right[2], right_span)} at {other}, but part of "
        text += f"{span_text(left[2], left_span)} from position {left[0]} at {deliverer}"
    else:
        text = f"in view {view} {span_text(right[2], right_span)} is at position {right[0]} at {other}, but "
        text += f"{span_text(left[2], left_span)} is at position {left[0]} at {deliverer}"
    result.report(text, member=other, other=deliverer, sender=right[2], span=right_span, view=view)


def _span(named: Named) -> Range:
    return named[0] + named[3], named[1] + named[3]


def _deliverer_of(underlay: UnderlayTrace, view: str | None, named: Named) -> str:
    first, stop = _span(named)
    for local in underlay.locals.values():
        for delivery in local.deliveries:
            if (
                delivery.view == view
                and delivery.position == named[0]
                and delivery.sender == named[2]
                and delivery.span == (first, stop)
            ):
                return local.member
    return "?"


def _check_strong(underlay: UnderlayTrace, rank: int, result: PropertyResult, explained: Explained) -> None:
    """Compare exactly, for each two members, the order of the strong messages that both delivered."""
    cuts: dict[str, set[int]] = {}
    lines: list[tuple[Local, list[DeliveryRow]]] = []
    for local in underlay.locals.values():
        line = [d for d in local.deliveries if d.rank >= rank and is_ordered(d) and id(d) not in explained.misordered]
        if line:
            lines.append((local, line))
        for delivery in line:
            cuts.setdefault(delivery.sender, set()).update(delivery.span)
    points = {sender: sorted(numbers) for sender, numbers in cuts.items()}
    index = {sender: {number: at for at, number in enumerate(numbers)} for sender, numbers in points.items()}
    atoms: list[tuple[Local, list[tuple[str, int, DeliveryRow]]]] = []
    for local, line in lines:
        pieces: list[tuple[str, int, DeliveryRow]] = []
        for delivery in line:
            at = index[delivery.sender]
            pieces.extend(
                (delivery.sender, number, delivery) for number in range(at[delivery.first], at[delivery.stop])
            )
        atoms.append((local, pieces))
    for left in range(len(atoms)):
        rank_of = {(sender, number): rank for rank, (sender, number, _) in enumerate(atoms[left][1])}
        for right in range(left + 1, len(atoms)):
            _compare(atoms[left][0], rank_of, atoms[right][0], atoms[right][1], result)


def _compare(
    left: Local,
    rank_of: dict[tuple[str, int], int],
    right: Local,
    pieces: list[tuple[str, int, DeliveryRow]],
    result: PropertyResult,
) -> None:
    top = -1
    before: DeliveryRow | None = None
    for sender, number, delivery in pieces:
        rank = rank_of.get((sender, number))
        if rank is None:
            continue
        if rank < top and before is not None:
            result.report(
                f"{right.member} delivered {span_text(before.sender, before.span)} before "
                f"{span_text(sender, delivery.span)}, {left.member} the other way round; both are SAFE or MAJORITY",
                member=right.member,
                other=left.member,
                sender=sender,
                span=delivery.span,
                view=delivery.view,
            )
            return
        top, before = rank, delivery
