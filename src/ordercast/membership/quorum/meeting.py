"""Rings of one name that meet: beacons, and which of two rings goes on (docs/design/overview.md section 3).

A ring shows itself once a second. The lesser of two rings (`better`) dissolves, and its members join the other one as
new members. Rings never merge: their orders cannot be brought together.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ordercast.engine import NEVER, Outbox, To
from ordercast.membership.quorum.local import LocalMember, Wishes
from ordercast.orderers import Orderer
from ordercast.view import Address
from ordercast.wire.header import Kind
from ordercast.wire.views import Asking, Ring, encode_asking, encode_ring

# So many times `recovery_wait_ns` a member of a ring that does not work stays beside one that goes on.
WAITS: Final = 2
PATIENT_WAITS: Final = 30  # beside one that is not better than ours


class MeetingAnswer(Enum):
    """What a member does when it sees another ring of its name."""

    NOTHING = auto()
    SHOW_OURS = auto()  # ours is the larger one
    TELL_LEADER = auto()  # the first member decides, and may not have heard it
    ASK_ITS_LEADER = auto()  # ours is the smaller one: its leader itself has to confirm that
    DISSOLVE = auto()  # its leader has confirmed it


def better(one: Ring, other: Ring) -> bool:
    """Which of two rings goes on: one that has had its bootstrap, because the other has no messages to keep, then the
    larger, then the one with the lower view id."""
    if one.ring == other.ring:
        return False
    first = (not one.has_begun, -one.size, one.counter, one.creator)
    return first < (not other.has_begun, -other.size, other.counter, other.creator)


def waits_beside(seen: Ring, ours: Ring) -> int:
    """How long a member of `ours`, which does not work, stays with it beside the ring `seen`, which does: so many times
    `recovery_wait_ns`. That one may have been made by a newcomer that did not hear ours: for a smaller one than ours we
    are in no hurry, because members that are silent for now may need us."""
    return WAITS if better(seen, ours) else PATIENT_WAITS


def meet(ours: Ring, seen: Ring, leads: bool, is_beacon: bool, is_from_leader: bool) -> MeetingAnswer:
    """A member of the ring `ours`, which works, sees the ring `seen`, which works too.

    A beacon comes unasked and from any member; the answer to a question of ours (HERE) that comes from the leader of
    the other ring is its word.
    """
    if not leads:
        return MeetingAnswer.TELL_LEADER if is_beacon else MeetingAnswer.NOTHING
    if better(ours, seen):
        return MeetingAnswer.SHOW_OURS
    return MeetingAnswer.DISSOLVE if not is_beacon and is_from_leader else MeetingAnswer.ASK_ITS_LEADER


class Meeting:
    """When this member shows its ring next, and what it says to other rings."""

    __slots__ = ("_local", "_wishes", "due_ns")

    def __init__(self, local: LocalMember, wishes: Wishes) -> None:
        self._local = local
        self._wishes = wishes
        self.due_ns = NEVER

    def show(self, now_ns: int, to: Address, ours: Ring, out: Outbox) -> None:
        """A beacon. The contact gets one of its own: multicasts may not reach it."""
        writer, contact, body = self._local.writer, self._wishes.contact, encode_ring(ours)
        if to == To.ANYONE:
            self.due_ns = now_ns + self._local.timing.beacon_ns
            if contact is not None:
                out.sends.append(writer.control(contact, Kind.BEACON, body))
        out.sends.append(writer.control(to, Kind.BEACON, body))

    def answer(self, to: Address, ours: Ring, out: Outbox) -> None:
        out.sends.append(self._local.writer.control(to, Kind.HERE, encode_ring(ours)))

    def on_ring(
        self, now_ns: int, source: Address, kind: int, seen: Ring, ours: Ring, orderer: Orderer, out: Outbox
    ) -> bool:
        """Another ring that works has shown itself. Whether ours has to dissolve into it."""
        its_leader = seen.leader.address
        answer = meet(ours, seen, orderer.standing().leads, kind == Kind.BEACON, source == its_leader)
        if answer is MeetingAnswer.SHOW_OURS:
            self.show(now_ns, its_leader, ours, out)
        elif answer is MeetingAnswer.TELL_LEADER:
            leader = orderer.view.leader.address
            out.sends.append(self._local.writer.control(leader, Kind.BEACON, encode_ring(seen)))
        elif answer is MeetingAnswer.ASK_ITS_LEADER:
            # Any node can say that there is a larger ring. Its leader itself has to answer before we end ours.
            asking = Asking(self._local.name, self._local.me, 0, 0, orderer.next_block, self._wishes.demands, b"")
            out.sends.append(self._local.writer.control(its_leader, Kind.FIND, encode_asking(asking)))
        return answer is MeetingAnswer.DISSOLVE
