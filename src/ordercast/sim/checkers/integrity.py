"""Property 1, integrity: nothing is delivered that was not submitted; nothing twice at one member life.

Reading. A member life is `name/life`: coming back without a restart keeps the life, so also what was delivered before
a `leave` must not come again after it. UNRELIABLE is included; `redeliver` may repeat what was delivered (or be the
first that a later handler hears of it), but not invent anything. A message is named by underlay,
sender life and number. `Submitted` means by that sender, before: at the sender itself by `n`; elsewhere by the run
clock, where the clocks of two nodes can be compared. A delivery whose service is weaker than the one submitted
delivers something that was not asked for, and is reported here, once, while the other properties go on to judge what
was asked. The same holds for one that names other groups than its submit: a message has the same groups everywhere. On
a shared underlay a life delivers only what goes to a group in whose view it is at that moment. Regions: `lanes.py`.
"""

from __future__ import annotations

from ordercast.sim.checkers import lanes
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.ranges import merged, subtract
from ordercast.sim.checkers.records import Local, UnderlayTrace
from ordercast.sim.checkers.region_records import RegionalTrace
from ordercast.sim.checkers.verdict import PropertyResult, span_text
from ordercast.trace.schema import Row

NAME = "integrity"


def check(trace: Trace, *, clock: str = "virtual", regional: RegionalTrace | None = None) -> PropertyResult:
    """Judge integrity; with `clock` other than `many` also that a submit comes before its deliveries in time."""
    result = PropertyResult(NAME, "delivered ranges", checked=trace.delivery_rows)
    for delivery, underlay in trace.spurious:
        what = span_text(delivery.sender, delivery.span)
        result.report(
            f"{delivery.member} delivered {what} at n={delivery.n} in {underlay.name}, which was not submitted",
            member=delivery.member,
            sender=delivery.sender,
            span=delivery.span,
            view=delivery.view,
        )
    for delivery, underlay, twice in trace.duplicates:
        result.report(
            f"{delivery.member} delivered {span_text(delivery.sender, twice)} again at n={delivery.n} "
            f"in {underlay.name}",
            member=delivery.member,
            sender=delivery.sender,
            span=twice,
            view=delivery.view,
        )
    for delivery, _, submit in trace.weakened:
        result.report(
            f"{delivery.member} delivered {span_text(delivery.sender, delivery.span)} at n={delivery.n} under a weaker "
            f"service than its submit at n={submit.n} asked for",
            member=delivery.member,
            other=delivery.sender,
            sender=delivery.sender,
            span=delivery.span,
            view=delivery.view,
        )
    for delivery, _, submit in trace.misnamed:
        result.report(
            f"{delivery.member} delivered {span_text(delivery.sender, delivery.span)} at n={delivery.n} under other "
            f"groups than its submit at n={submit.n} named: {', '.join(submit.targets or ())}",
            member=delivery.member,
            other=delivery.sender,
            sender=delivery.sender,
            span=delivery.span,
            view=delivery.view,
        )
    for delivery, _ in trace.strays:
        result.report(
            f"{delivery.member} delivered {span_text(delivery.sender, delivery.span)} at n={delivery.n}, though it was "
            f"in no view of {', '.join(delivery.targets or ())}",
            member=delivery.member,
            sender=delivery.sender,
            span=delivery.span,
            view=delivery.view,
        )
    _check_time(trace, result, comparable=clock != "many")
    for underlay in trace.underlays.values():
        for local in underlay.locals.values():
            for row in local.redeliveries:
                _check_again(underlay, local, row, result)
    if regional:
        lanes.check_integrity(regional, result)
    return result


def _check_again(underlay: UnderlayTrace, local: Local, row: Row, result: PropertyResult) -> None:
    """What is handed over again was submitted once."""
    if row.sender is None or row.first is None or row.count is None:
        return  # the well_formed checker names it
    result.checked += 1
    source = underlay.locals.get(row.sender)
    span = row.first, row.first + row.count
    known = merged((one.first, one.stop) for one in source.submits_in(*span)) if source is not None else []
    for lost in subtract([span], known):
        result.report(
            f"{local.member} delivered {span_text(row.sender, lost)} again at n={row.n} in {underlay.name}, which was "
            f"not submitted",
            member=local.member,
            sender=row.sender,
            span=lost,
            view=row.view,
        )


def _check_time(trace: Trace, result: PropertyResult, *, comparable: bool) -> None:
    for underlay in trace.underlays.values():
        locals_here = underlay.locals
        for local in locals_here.values():
            member = local.member
            for delivery in local.deliveries:
                if delivery.submit < 0:
                    continue
                submits = locals_here[delivery.sender].submits
                submit = submits[delivery.submit]
                if delivery.stop > submit.stop:  # the row covers several submits: the last one is the latest
                    submit = locals_here[delivery.sender].submits_in(delivery.first, delivery.stop)[-1]
                early = (
                    submit.n > delivery.n if delivery.sender == member else comparable and submit.at_ns > delivery.at_ns
                )
                if early:
                    delivery.tainted = True
                    result.report(
                        f"{member} delivered {span_text(delivery.sender, delivery.span)} at n={delivery.n}, "
                        f"{delivery.at_ns} ns, before it was submitted at {submit.at_ns} ns",
                        member=member,
                        other=delivery.sender,
                        sender=delivery.sender,
                        span=delivery.span,
                        view=delivery.view,
                    )
