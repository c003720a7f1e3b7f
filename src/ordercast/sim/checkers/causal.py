"""Property 3, causal: no member delivers a message before one that caused it (CAUSAL and stronger).

Reading. m1 causes m2 if the submitter of m2 had delivered or submitted m1, transitively, where every message of the
chain is CAUSAL or stronger: between services the weaker guarantee holds (docs/design/overview.md section 3), so a FIFO
message carries no causality. Causality is that of one underlay. When a life goes out and comes back as new, the
deliveries of its last view leave its causal past: a member left behind by a failure may have delivered what the others
deliver differently (property 4), and the group cannot order by what it never heard of.

Algorithm. A vector clock for each submit row, not for each message: entry t is the highest number of sender t in its
past. Lives are walked side by side; one that meets a delivery whose submit has no clock yet waits for that sender. At
a delivery of (t, h) a violation is an h not above the entry t of some message delivered here before. The entry of a
message's own sender is left out: that is property 2.
"""

from __future__ import annotations

from ordercast.service import CAUSAL_RANK
from ordercast.sim.checkers.index import Trace
from ordercast.sim.checkers.records import DeliveryRow, Departure, Local, MemberPeriod, Submit, UnderlayTrace
from ordercast.sim.checkers.verdict import Explained, PropertyResult, span_text

NAME = "causal"


def check(trace: Trace, explained: Explained | None = None) -> PropertyResult:
    """Judge causal order in each underlay."""
    result = PropertyResult(NAME, "delivered ranges")
    explained = explained if explained is not None else Explained()
    for underlay in trace.underlays.values():
        _check_underlay(underlay, result, explained)
    return result


class _LifeWalk:
    """One life on its way through its events."""

    __slots__ = ("at", "direct", "index", "local", "need", "saved")

    def __init__(self, local: Local, index: int, size: int) -> None:
        self.local = local
        self.index = index  # its own entry in the clocks, -1 if it never submits
        self.at = 0
        self.need = [-1] * size  # what the messages delivered here had in their past
        self.direct = [-1] * size  # what it submitted or delivered itself
        self.saved: tuple[list[int], list[int]] = (self.need, self.direct)


def _check_underlay(underlay: UnderlayTrace, result: PropertyResult, explained: Explained) -> None:
    senders = [
        member
        for member, local in underlay.locals.items()
        if any(submit.rank >= CAUSAL_RANK for submit in local.submits)
    ]
    if not senders:
        return
    entry_of = {member: index for index, member in enumerate(senders)}
    walkers = [_LifeWalk(local, entry_of.get(member, -1), len(senders)) for member, local in underlay.locals.items()]
    waiting: dict[str, list[_LifeWalk]] = {}
    ready = walkers
    while ready:
        walker = ready.pop()
        blocker = _run(walker, underlay, entry_of, result, explained, waiting, ready)
        if blocker is not None:
            waiting.setdefault(blocker, []).append(walker)
    # What still waits is caught in a circle of deliveries before their submits, which property 1 reports.


def _run(
    walker: _LifeWalk,
    underlay: UnderlayTrace,
    entry_of: dict[str, int],
    result: PropertyResult,
    explained: Explained,
    waiting: dict[str, list[_LifeWalk]],
    ready: list[_LifeWalk],
) -> str | None:
    """Walk until the end, or until a delivery whose cause is not known yet; return the sender to wait for."""
    local, index = walker.local, walker.index
    events = local.events
    locals_here = underlay.locals
    need, direct = walker.need, walker.direct
    size = len(events)
    at = walker.at
    blocker: str | None = None
    submitted = False
    while at < size:
        event = events[at]
        if type(event) is DeliveryRow:
            if event.rank >= CAUSAL_RANK and not event.tainted:
                sender = event.sender
                source = locals_here[sender]
                submit = source.submits[event.submit]
                if event.stop > submit.stop:
                    submit = source.submits_in(event.first, event.stop)[-1]
                clock = submit.clock
                if clock is None:
                    if submit.rank < CAUSAL_RANK:  # delivered as more than was asked for: it takes no part
                        at += 1
                        continue
                    blocker = sender
                    break
                entry = entry_of[sender]
                result.checked += 1
                if event.first <= need[entry] and id(event) not in explained.misordered:
                    _report(local, event, underlay, entry_of, result, explained)
                if direct[entry] < event.stop - 1:
                    direct[entry] = event.stop - 1
                need = list(map(max, need, clock))
        elif type(event) is Submit:
            if event.rank >= CAUSAL_RANK:
                past = list(map(max, need, direct))
                past[index] = -1
                event.clock = past
                direct[index] = event.stop - 1
                submitted = True
        elif type(event) is MemberPeriod:
            walker.saved = (need, list(direct))
        elif type(event) is Departure:
            own = direct[index] if index >= 0 else -1
            need, direct = walker.saved[0], list(walker.saved[1])
            if index >= 0:
                direct[index] = own
        at += 1
    walker.at, walker.need, walker.direct = at, need, direct
    if submitted:
        ready.extend(waiting.pop(local.member, ()))
    return blocker


def _report(
    local: Local,
    event: DeliveryRow,
    underlay: UnderlayTrace,
    entry_of: dict[str, int],
    result: PropertyResult,
    explained: Explained,
) -> None:
    explained.misordered.add(id(event))
    entry = entry_of[event.sender]
    for effect in local.deliveries:
        if effect.n >= event.n:
            break
        if effect.tainted or effect.rank < CAUSAL_RANK or effect.sender == event.sender:
            continue
        for submit in underlay.locals[effect.sender].submits_in(effect.first, effect.stop):
            if submit.clock is not None and submit.clock[entry] >= event.first:
                result.report(
                    f"{local.member} delivered {span_text(event.sender, event.span)} at n={event.n} after "
                    f"{span_text(effect.sender, effect.span)} at n={effect.n}, whose sender knew it when it submitted",
                    member=local.member,
                    other=effect.sender,
                    sender=event.sender,
                    span=event.span,
                    view=event.view,
                )
                return
