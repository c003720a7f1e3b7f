"""Which member holds up a group with timestamps: without the word of every member nothing is decided (TOMPA 2.1)."""

from __future__ import annotations

from ordercast.engine import Waiting
from ordercast.orderers.logged.blocking import (
    behind,
    no_answer,
    not_receiving,
    own_application,
    unheard,
)
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.timestamp.agreement import Agreement
from ordercast.parts.detector import Detector
from ordercast.parts.outgoing import Outgoing


def timestamp_blocked_by(
    now_ns: int,
    ring: RingState,
    delivery: ServiceDelivery,
    detector: Detector,
    outgoing: Outgoing,
    agreement: Agreement,
    full: set[int],
) -> Waiting | None:
    """`full`: members whose applications do not receive."""
    log, me = ring.log, ring.me.id
    if delivery.is_overrun():
        return own_application(ring)
    silent = unheard(ring, detector, now_ns)
    if silent is not None:
        return silent
    if full:
        return not_receiving(ring, sorted(full))
    for key in outgoing.unordered:
        lacking = agreement.lacking(key)
        if lacking:
            return no_answer(ring, lacking, "has not acknowledged what this node has sent")
    undecided = [member for member in agreement.queue.undecided_senders() if member != me]
    if undecided:
        return no_answer(ring, undecided, "has not decided the order of its messages")
    if log.received < log.highest:
        return no_answer(ring, delivery.table.others, "does not repair what is lost")
    late = behind(ring, delivery.table)
    if late:
        return no_answer(ring, late, "has not said that it has what was sent")
    leader = ring.view.leader.id
    return no_answer(ring, [leader], "orders changes, and has not ordered this one") if leader != me else None
