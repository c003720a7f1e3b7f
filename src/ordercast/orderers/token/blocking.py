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
        return no_answer(ring, [passed.site], "does not take the token")
    if log.received < log.highest and naks.tries >= VAIN_TRIES:
        return no_answer(ring, [site] if site != me else table.others, "does not answer requests for what is lost")
    if site not in (0, me) and not rotation.is_holding:
        if site in rotation.full:
            return not_receiving(ring, [site])
        if is_in_vain(outgoing) or requests.is_in_vain(VAIN_TRIES):
            return no_answer(ring, [site], "has the token, and does not acknowledge what this node sends")
        if table.row(site) < log.received:
            return no_answer(ring, [site], "has the token, and lacks what comes before it")
        return no_answer(ring, [site], "has the token, and has not ordered what this node waits for")
    if log.received < log.highest:
        holders = [member for member in table.others if table.row(member) > log.received]
        return no_answer(ring, holders or table.others, "has what this node lacks, and it has not come yet")
    late = behind(ring, table)
    if late:
        return no_answer(ring, late, "has not said that it has what was sent")
    awaited = requests.pending.awaited(log.next_number)
    return no_answer(ring, awaited, "has not sent again what the last recovery left open") if awaited else None
