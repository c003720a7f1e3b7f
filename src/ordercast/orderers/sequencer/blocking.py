"""Which member holds up a sequencer's group. The sequencer's table knows; others know what it has told them.

Amoeba section 3: a member that never receives blocks the group. The sequencer names that member in the flags of its
STATUS, so that every member can say it.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.engine import Waiting
from ordercast.orderers.logged.blocking import is_in_vain, no_answer, not_receiving, own_application, unheard
from ordercast.orderers.logged.in_order import InOrderDelivery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.sequencer.announcing import Announcer
from ordercast.orderers.sequencer.role import SequencerRole
from ordercast.parts.detector import Detector
from ordercast.parts.outgoing import Outgoing
from ordercast.wire.ordering import NO_HOLDUP

ASKED: Final = "asked for an acknowledgement, which has not come"
TOLD_NS: Final = 500 * MS
"""How long a word of the sequencer about a member counts. Members without room have it repeated every 100 ms; one that
is older was true of a moment."""


def sequencer_blocked_by(
    now_ns: int,
    ring: RingState,
    delivery: InOrderDelivery,
    detector: Detector,
    outgoing: Outgoing,
    announcer: Announcer,
    role: SequencerRole | None,
) -> Waiting | None:
    log, me, leader = ring.log, ring.me.id, ring.view.leader.id
    silent = unheard(ring, detector, now_ns)
    if silent is not None:
        return silent
    if role is not None:
        return _as_sequencer(now_ns, ring, delivery, role)
    if is_in_vain(outgoing):
        return no_answer(ring, [leader], "messages are ordered there, and what this node sends is not acknowledged")
    if log.received < log.highest:
        return no_answer(ring, [leader], "messages are ordered there, and what is lost has not come again")
    told = announcer.holdup if now_ns - announcer.holdup_ns <= TOLD_NS else NO_HOLDUP
    slow = ring.view.members[told.member].id if told.member < len(ring.view.members) else 0
    if slow not in (0, me) and told != NO_HOLDUP:
        return not_receiving(ring, [slow]) if told.is_application else no_answer(ring, [slow], ASKED)
    if delivery.consumed < delivery.delivered:
        return own_application(ring)
    return no_answer(ring, [leader], "messages are ordered there, and what this node waits for is not")


def _as_sequencer(now_ns: int, ring: RingState, delivery: InOrderDelivery, role: SequencerRole) -> Waiting | None:
    log, me = ring.log, ring.me.id
    lacking = role.not_holding(log, ring.view, me)
    if lacking:
        return no_answer(ring, lacking, "a RESILIENT message is not acknowledged")
    slow, late = role.lagging(now_ns, log.received)
    if me in slow and delivery.consumed < delivery.delivered:
        return own_application(ring)
    others = [member for member in slow if member != me]
    if others:
        return not_receiving(ring, others)
    silent = [member for member in late if member != me]
    if silent:
        return no_answer(ring, silent, ASKED)
    awaited = role.changes.awaited(log.next_number)
    return no_answer(ring, awaited, "what the last recovery left open is not sent again") if awaited else None
