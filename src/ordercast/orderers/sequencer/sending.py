"""The blocks that a member answers for, on their way to the sequencer: methods 1 and 2 (Amoeba section 4.1)."""

from __future__ import annotations

from typing import Final

from ordercast.engine import Outbox, To
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.sequencer.acknowledging import Acknowledger
from ordercast.orderers.sequencer.restraint import UNANSWERED_BLOCKS
from ordercast.orderers.sequencer.role import SequencerRole
from ordercast.orderers.sequencer.timers import SequencerTimer
from ordercast.parts.outgoing import AT_ONCE, Outgoing
from ordercast.parts.timers import Timers
from ordercast.service import RESILIENT_RANK
from ordercast.wire.block import HEAD
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.ordering import ACKS, CARRIED, HOLDING, ORDERED_PREFIX, encode_acks, encode_carrier

PB_LIMIT: Final = 16_384  # bytes of a block up to which method 1 is used; measured, see the design note


class SequencerSender:
    """How own blocks, and those of senders that are gone, go out. `role` is None where another member orders.

    `pb_limit` chooses between the methods. It is each member's own, and may change at any time: receivers take both.
    """

    __slots__ = ("_acknowledger", "_outgoing", "_ring", "_timers", "_waiting", "pb_limit")

    def __init__(
        self, ring: RingState, outgoing: Outgoing, acknowledger: Acknowledger, timers: Timers[SequencerTimer]
    ) -> None:
        self._ring = ring
        self._outgoing = outgoing
        self._acknowledger = acknowledger
        self._timers = timers
        self._waiting: dict[int, None] = {}  # own blocks that a sequencer that does not answer has not been sent
        self.pb_limit = PB_LIMIT

    def send_own(
        self, now_ns: int, role: SequencerRole | None, number: int, block: bytes, must_be_held: bool, out: Outbox
    ) -> None:
        """Method 1 or method 2; to the sequencer itself there is nothing to send but what others must have."""
        ring, me = self._ring, self._ring.me.id
        if role is not None:
            role.ready[me] = None
            if not role.others:
                return
            if not must_be_held and fits_ordered(ring, block):
                role.requests.add((me, number))
                return
        elif not must_be_held and self._is_small(block):
            if self._waiting or self._must_wait(now_ns):
                self._waiting[number] = None
            else:
                self._request(now_ns, number, block, out)
            return
        elif self._acknowledger.held_due and self._carry(now_ns, number, block, must_be_held, out):
            return
        out.sends.append(ring.writer.block(To.ALL, Kind.DATA, me, number, block))

    def _request(self, now_ns: int, number: int, block: bytes, out: Outbox) -> None:
        """To the sequencer alone, with our acknowledgements."""
        if self._acknowledger.held_due and self._carry(now_ns, number, block, False, out):
            return
        prefix = encode_acks(self._acknowledger.acks())
        to = self._ring.view.leader.address
        out.sends.append(self._ring.writer.prefixed(to, Kind.REQUEST, number, prefix, block))
        self._acknowledger.told(now_ns)

    def _is_small(self, block: bytes) -> bool:
        """Whether it goes to the sequencer alone."""
        return len(block) <= self.pb_limit and fits_ordered(self._ring, block)

    def _must_wait(self, now_ns: int) -> bool:
        """Whether the sequencer does not answer."""
        restraint = self._acknowledger.restraint
        if not restraint.holds(now_ns, UNANSWERED_BLOCKS):
            return False
        self._timers.set_earlier(SequencerTimer.RETRANSMIT, restraint.next_ns(now_ns, UNANSWERED_BLOCKS))
        return True

    def go_on(self, now_ns: int, out: Outbox) -> None:
        """Send what waits for a word of the sequencer, if it was heard or that takes too long."""
        while self._waiting and not self._must_wait(now_ns):
            number = next(iter(self._waiting))
            del self._waiting[number]
            block = self._outgoing.sent_late(now_ns, number)
            if block is not None:
                self._request(now_ns, number, block, out)

    def _carry(self, now_ns: int, number: int, block: bytes, must_be_held: bool, out: Outbox) -> bool:
        """What we hold of others is acknowledged with our own block (section 5: under heavy load acknowledgements ride
        on other messages); False where one datagram is too small for both."""
        ring, acknowledger = self._ring, self._acknowledger
        room = ring.config.datagram - HEADER_BYTES - CARRIED.size - ACKS.size - len(block)
        if not (must_be_held or self._is_small(block)) or room < HOLDING.size * len(acknowledger.held_due):
            return False
        prefix = encode_carrier(acknowledger.acks(), acknowledger.take_holding())
        to = To.ALL if must_be_held else ring.view.leader.address
        out.sends.append(ring.writer.prefixed(to, Kind.CARRIER, number, prefix, block))
        acknowledger.told(now_ns, is_alone=not must_be_held)
        return True

    def send_orphan(self, role: SequencerRole | None, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """In the name of a sender that is gone: ordered if that can be at once, else ahead of its order."""
        if role is not None and not is_resilient(block) and fits_ordered(self._ring, block):
            role.requests.add((origin, number))
        else:
            out.sends.append(self._ring.writer.block(To.ALL, Kind.REPAIR, origin, number, block))

    def resend(self, now_ns: int, role: SequencerRole | None, out: Outbox) -> None:
        """There is a new sequencer: it has to hear of everything that is not ordered yet."""
        outgoing = self._outgoing
        self._acknowledger.restraint.restart()
        self._waiting.clear()
        outgoing.restart(now_ns)
        for (origin, number), each in outgoing.unordered.items():
            if origin == self._ring.me.id:
                self.send_own(now_ns, role, number, each.block, is_resilient(each.block), out)
            else:
                self.send_orphan(role, origin, number, each.block, out)
        if outgoing.unordered:
            self._timers.set(SequencerTimer.RETRANSMIT, outgoing.deadline_ns(now_ns))

    def retransmit(self, now_ns: int, role: SequencerRole | None, out: Outbox) -> None:
        """Blocks that are not ordered in time go out again; one in a while to a sequencer that does not answer."""
        ring, restraint = self._ring, self._acknowledger.restraint
        self.go_on(now_ns, out)
        if restraint.holds(now_ns):
            self._timers.set(SequencerTimer.RETRANSMIT, restraint.next_ns(now_ns))
            return
        ring.writer.next_via()
        for origin, number, block in self._outgoing.due(now_ns, 1 if restraint.is_vain(now_ns) else AT_ONCE):
            must_be_held = is_resilient(block)
            if role is not None and not must_be_held:
                continue  # it waits for room in the history, not for the network
            ring.count("retransmissions")
            if origin != ring.me.id:
                self.send_orphan(role, origin, number, block, out)
            elif must_be_held or len(block) <= self.pb_limit:
                self.send_own(now_ns, role, number, block, must_be_held, out)
            else:
                out.sends.append(ring.writer.block(ring.view.leader.address, Kind.REPAIR, origin, number, block))
                restraint.told(now_ns, 0, 0)
        if self._outgoing.unordered:
            self._timers.set(SequencerTimer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))


def fits_ordered(ring: RingState, block: bytes) -> bool:
    """Whether a block and its sequence number fit one datagram."""
    return HEADER_BYTES + ORDERED_PREFIX + len(block) <= ring.config.datagram


def is_resilient(block: bytes) -> bool:
    """Whether other members have to hold the block before it is ordered."""
    return bool(HEAD.unpack_from(block)[2] == RESILIENT_RANK)
