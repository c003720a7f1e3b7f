"""The blocks that a member sends itself: how much may be out, and what is kept until it is stable.

How much may be out is a policy's business (`parts/window.py`, RMP section 4.6); what the receivers' sockets can hold is
its ceiling (docs/design/overview.md section 6). How a block goes out is the orderer's.
"""

from __future__ import annotations

from typing import Final

from ordercast.engine import NEVER, Note, Outbox
from ordercast.errors import InvariantViolation
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.log import DATAGRAM_OVERHEAD, Entry
from ordercast.parts.outgoing import Outgoing
from ordercast.parts.share import ceiling_of, largest_block
from ordercast.parts.window import FlowPolicy, make_policy
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.block import HeadFields
from ordercast.wire.header import HEADER_BYTES
from ordercast.wire.ordering import Missing

MIN_PACKET: Final = 8_192  # what a sender may always have out (figure 4.2), in segments where datagrams are smaller


class SendWindow:
    """What a member has out, and how much more may follow."""

    __slots__ = ("_body", "_log", "_me", "_most", "_policy", "_ring", "ceiling", "largest", "outgoing")

    def __init__(self, ring: RingState, has_policy: bool = True) -> None:
        """Without a policy the share of the receivers' buffers is the window."""
        config = ring.config
        self._ring = ring
        self._log = ring.log
        self._me = ring.me.id
        self._body = config.datagram - HEADER_BYTES
        self._most = 2 * config.history_blocks  # own blocks that may be unstable
        self.outgoing = Outgoing(ring.me.id, ring.timing)
        self.ceiling = ceiling_of(ring.view, config)
        self.largest = largest_block(self.ceiling, len(ring.view.members), config)
        packet = min(max(self._body, MIN_PACKET), self.largest)
        self._policy: FlowPolicy | None = make_policy(config.flow, packet, self.largest) if has_policy else None

    def fit_to_view(self) -> None:
        """Bounds that follow from the view in force."""
        view, config = self._ring.view, self._ring.config
        self.ceiling = ceiling_of(view, config)
        self.largest = largest_block(self.ceiling, len(view.members), config)

    # How much more

    def share(self) -> int:
        """What of the ceiling is ours: an equal share with all that are sending."""
        active = self._log.active
        if self._me in active:
            return self.ceiling // max(1, len(active) - (GROUP_ORIGIN in active))
        return self._first_share()

    def share_among(self, senders: int) -> int:
        """The share with so many senders, where another member has counted them."""
        if self._me in self._log.active:
            return self.ceiling // max(1, senders)
        return self._first_share()

    def _first_share(self) -> int:
        """A member that does not count among the senders yet begins with so little that all could do so at once."""
        return max(self.ceiling // (2 * len(self._ring.view.members)), self.largest)

    def room(self, share: int) -> tuple[int, int]:
        """What the policy (section 4.6) and our share of the receivers' buffers leave, and the largest block."""
        room, largest = NEVER, self.largest
        if self._policy is not None:
            self._policy.limit(share)
            room, allowed = self._policy.room()
            largest = min(allowed, largest)
        if self.is_full(share, largest):
            return 0, largest
        return min(room, self.left(share, largest)), largest

    def left(self, share: int, largest: int) -> int:
        """Bytes of messages that fit what is left of the share; one block of the largest size if nothing is out."""
        outgoing = self.outgoing
        left = (share - outgoing.bytes) * self._body // (self._body + DATAGRAM_OVERHEAD)
        return left if outgoing.count else max(left, largest)

    def is_full(self, share: int, largest: int) -> bool:
        """Whether nothing more may leave. Small remainders count as none: they would make small blocks."""
        outgoing = self.outgoing
        if not outgoing.count:
            return False
        return share - outgoing.bytes < min(largest, share // 4) or outgoing.count >= self._most

    def stop_at(self, senders: int) -> int:
        """Unstable bytes at which one of so many senders stops, since too little is left of its share."""
        share = self.ceiling // max(1, senders)
        return max(1, share - min(self.largest, share // 4))

    def is_used_up(self, share: int) -> bool:
        """Whether `submit` takes no more: `room` counts bytes of messages, and many small blocks cost more."""
        outgoing = self.outgoing
        return outgoing.count > 0 and (outgoing.count >= self._most or outgoing.bytes >= share)

    # What is out

    def take(self, now_ns: int, block: bytes, head: HeadFields, out: Outbox) -> int:
        """A block of the application is kept and gets its number."""
        ring = self._ring
        number = ring.next_block
        ring.next_block = number + 1
        if self._policy is not None:
            self._policy.sent(number, len(block))
        out.notes.append(Note("hold", self._me, block, head=head))
        self.keep(now_ns, number, block)
        return number

    def keep(self, now_ns: int, number: int, block: bytes) -> None:
        """Keep an own block until it is stable."""
        if not self._log.hold(self._me, number, block):
            raise InvariantViolation(f"own block {number} is not the next of this ring")
        self.outgoing.keep(now_ns, self._me, number, block, self._log.cost(block))

    def ordered(self, now_ns: int, entry: Entry) -> bool:
        """An entry is received; whether we answer for its block."""
        if not self.outgoing.ordered(now_ns, entry.origin, entry.number):
            return False
        if self._policy is not None:
            self._policy.acked(entry.number)
        return True

    def timed_out(self, number: int) -> None:
        """An own block goes out again since nobody acknowledged it."""
        if self._policy is not None:
            self._policy.timed_out(number)

    def note_losses(self, missing: list[Missing]) -> None:
        """One request for repair is one sign of congestion, however many blocks it names."""
        if self._policy is None:
            return
        for sender, number, _, _, _ in missing:
            if sender == self._me and number < self._ring.next_block and self._policy.nacked(number):
                break
