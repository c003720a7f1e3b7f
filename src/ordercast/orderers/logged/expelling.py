"""Expulsions: members that the others go on without, by a change in order like a leave (docs/design/slow.md).

Any member may ask for one, for a program (`Group.expel`) or because an application holds up the group. What the member
has sent and is not ordered then is dropped by all.
"""

from __future__ import annotations

from ordercast.config import SECOND
from ordercast.engine import NEVER, Change
from ordercast.orderers.logged.leaving import REPEAT_NS
from ordercast.orderers.logged.ring import RingState
from ordercast.view import MAY_RETURN, Member, Reason


def expulsion(me: Member, member: Member, why: str, seq: int) -> Change:
    """The expulsion of a member for good, asked for by `me` in the view at `seq`."""
    text = f"expelled by {me}: {why}" if why else f"expelled by {me}"
    return Change(Reason.EXPEL, member, text.encode(), seq)


def eviction(ring: RingState, member: Member) -> Change:
    """The expulsion of a member whose application does not receive. It may come back."""
    waited_s = ring.config.patience_ns / SECOND
    why = f"its application has not received for {waited_s:.1f} s"
    return expulsion(ring.me, member, why, ring.view.seq)._replace(serial=MAY_RETURN)


def is_current(ring: RingState, change: Change) -> bool:
    """Whether the member has been in since the expulsion was asked for: an echo must not meet its next stay."""
    member = change.member.id
    return ring.view.member(member) is not None and change.next_block >= ring.joined.get(member, ring.first_seq)


def renewed(ring: RingState, change: Change) -> Change:
    """A request that goes out again. An expulsion is asked for as of now: its member is still in."""
    return change._replace(next_block=ring.view.seq) if change.reason == Reason.EXPEL else change


class Expulsions:
    """Those that this member asks for, until they are ordered. Bound: one for each member."""

    __slots__ = ("_ring", "_wanted", "due_ns")

    def __init__(self, ring: RingState) -> None:
        self._ring = ring
        self._wanted: dict[int, Change] = {}
        self.due_ns = NEVER  # when to ask next

    def want(self, now_ns: int, change: Change) -> None:
        self._wanted.setdefault(change.member.id, change)
        self.due_ns = now_ns

    def due(self, now_ns: int) -> list[Change]:
        """What to ask for now. A member that is out, or was since, needs no expulsion."""
        ring = self._ring
        if now_ns < self.due_ns:
            return []
        self._wanted = {member: each for member, each in self._wanted.items() if is_current(ring, each)}
        self.due_ns = now_ns + REPEAT_NS if self._wanted and not ring.has_left else NEVER
        return [renewed(ring, change) for change in self._wanted.values()] if self.due_ns < NEVER else []
