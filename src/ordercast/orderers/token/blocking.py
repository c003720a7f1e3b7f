"""Which member holds up a token ring. The token rests at a member whose application does not receive (RMP 4.6)."""

from __future__ import annotations

from ordercast.engine import Waiting
from ordercast.orderers.logged.blocking import (
    VAIN_TRIES,
    behind,
    is_in_vain,
    no_answer,
    not_receiving,
    own_application,
    unheard,
)
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.token.naks import TokenNaks
from ordercast.orderers.token.pending import ChangeRequests
from ordercast.orderers.token.rotation import Rotation
from ordercast.parts.detector import Detector
from ordercast.parts.outgoing import Outgoing


def token_blocked_by(
    now_ns: int,
    ring: RingState,
    delivery: ServiceDelivery,
    detector: Detector,
    rotation: Rotation,
    outgoing: Outgoing,
    requests: ChangeRequests,
    naks: TokenNaks,
) -> Waiting | None:
    log, table, me, site = ring.log, delivery.table, ring.me.id, rotation.site
    if delivery.is_overrun():
        return own_application(ring)
    silent = unheard(ring, detector, now_ns)
    if silent is not None:
        return silent
    passed = rotation.passed
    if passed is not None and passed.tries >= VAIN_TRIES:
        return no_answer(ring, [passed.site], "the token was passed there, and is not taken")
    if log.received < log.highest and naks.tries >= VAIN_TRIES:
        return no_answer(ring, [site] if site != me else table.others, "requests for what is lost are not answered")
    if site not in (0, me) and not rotation.is_holding:
        if site in rotation.full:
            return not_receiving(ring, [site])
        if is_in_vain(outgoing) or requests.is_in_vain(VAIN_TRIES):
            return no_answer(ring, [site], "the token is there, and what this node sends is not acknowledged")
        if table.row(site) < log.received:
            return no_answer(ring, [site], "the token is there, and what comes before it is not")
        return no_answer(ring, [site], "the token is there, and what this node waits for is not ordered")
    if log.received < log.highest:
        holders = [member for member in table.others if table.row(member) > log.received]
        return no_answer(ring, holders or table.others, "what this node lacks is there, and has not come yet")
    late = behind(ring, table)
    if late:
        return no_answer(ring, late, "what was sent is not acknowledged")
    awaited = requests.pending.awaited(log.next_number)
    return no_answer(ring, awaited, "what the last recovery left open is not sent again") if awaited else None
