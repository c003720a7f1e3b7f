"""Which member holds up a ring that works, as one member knows it: what all disciplines say about it.

It is asked where something has made no progress for a second, never in a pass that works (docs/design/stalled.md). Each
discipline has its own order of questions (`blocking.py` of its room). The first that finds a member answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ordercast.config import SECOND
from ordercast.engine import StallReason, Waiting
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.detector import Detector
from ordercast.parts.outgoing import Outgoing
from ordercast.parts.table import Table

UNHEARD_NS: Final = SECOND  # a member is called silent after this; it is suspected later, by its own times
VAIN_TRIES: Final = 3  # retransmissions without an acknowledgement; a block that waits at a member is acknowledged


def own_application(ring: RingState) -> Waiting:
    """This node holds up the others."""
    text = "the application of this node does not receive, and the group waits for it: receive events, or leave"
    return Waiting(StallReason.NOT_RECEIVING, (str(ring.me),), text)


def not_receiving(ring: RingState, members: Iterable[int]) -> Waiting:
    """Other members have everything, and their applications do not take it."""
    names = names_of(ring, members)
    verb = "do" if len(names) > 1 else "does"
    text = f"buffers are full: the application of {' and '.join(names)} {verb} not receive"
    return Waiting(StallReason.NOT_RECEIVING, names, text)


def no_answer(ring: RingState, members: Iterable[int], what: str) -> Waiting:
    """Members do not get what was sent, or their answers do not come; `what` says which, of one or of several."""
    names = names_of(ring, members)
    return Waiting(StallReason.NETWORK, names, f"waiting for {' and '.join(names)}: {what}")


def unheard(ring: RingState, detector: Detector, now_ns: int) -> Waiting | None:
    """Members that have been silent for long, and are not suspected yet."""
    silent = detector.unheard(now_ns, UNHEARD_NS)
    return no_answer(ring, silent, "not heard for a second or longer") if silent else None


def is_in_vain(outgoing: Outgoing) -> bool:
    """Whether blocks that we answer for are sent again and again, and no member says that it has them."""
    return any(each.tries >= VAIN_TRIES for each in outgoing.unordered.values())


def behind(ring: RingState, table: Table) -> list[int]:
    """The members that lack most of what is received here, as far as the table knows."""
    rows = {member: table.row(member) for member in table.others}
    lowest = min(rows.values(), default=ring.log.received)
    return [member for member, row in rows.items() if row == lowest < ring.log.received]


def names_of(ring: RingState, members: Iterable[int]) -> tuple[str, ...]:
    """As name/life; by number where the view does not name it any more."""
    leaver = ring.leaver
    found = []
    for member in members:
        known = ring.view.member(member) or (leaver if leaver is not None and leaver.id == member else None)
        found.append(str(known) if known is not None else f"{member:016x}")
    return tuple(found)
