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
            return no_answer(ring, lacking, "what this node sends is not acknowledged")
    undecided = [member for member in agreement.queue.undecided_senders() if member != me]
    if undecided:
        return no_answer(ring, undecided, "the order of messages from there is not decided")
    if log.received < log.highest:
        return no_answer(ring, delivery.table.others, "what is lost has not come again")
    late = behind(ring, delivery.table)
    if late:
        return no_answer(ring, late, "what was sent is not acknowledged")
    leader = ring.view.leader.id
    return no_answer(ring, [leader], "changes are ordered there, and this one is not") if leader != me else None
