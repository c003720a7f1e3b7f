"""The blocks that a member of a token ring sends itself: carried, UNRELIABLE, sent again (RMP section 4.2)."""

from __future__ import annotations

from typing import Final

from ordercast.engine import Note, Outbox, To
from ordercast.errors import WireError
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.token.pacing import UnreliablePacer
from ordercast.orderers.token.rotation import Rotation
from ordercast.orderers.token.timers import TokenTimer
from ordercast.parts.timers import Timers
from ordercast.service import FIFO_RANK
from ordercast.wire.block import FRAGMENTED, HEAD, HeadFields, head_of
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.ordering import Acks, encode_acks

CARRIED_ROOM: Final = 128  # what a token takes of a datagram besides its table: its state and a few assignments
CARRIED_LIMIT: Final = 4_096  # bytes of a block up to which it may travel with its ACK, like Amoeba's method 1


class TokenSender:
    """How own blocks, and those of senders that are gone, go out."""

    __slots__ = (
        "_delivery",
        "_me",
        "_outgoing",
        "_ring",
        "_rotation",
        "_table",
        "_timers",
        "_window",
        "only_here",
        "pacer",
        "ready",
    )

    def __init__(
        self,
        ring: RingState,
        delivery: ServiceDelivery,
        window: SendWindow,
        rotation: Rotation,
        timers: Timers[TokenTimer],
    ) -> None:
        self._ring = ring
        self._me = ring.me.id
        self._delivery = delivery
        self._table = delivery.table
        self._window = window
        self._outgoing = window.outgoing
        self._rotation = rotation
        self._timers = timers
        # What waits to be ordered
        self.ready: dict[int, None] = {}  # members that may have something, in order of arrival
        self.only_here: dict[tuple[int, int], None] = {}  # blocks that nobody else has: they go out with their ACK
        # What is never ordered
        self.pacer = UnreliablePacer()

    def must_pause(self, now_ns: int, share: int) -> bool:
        """Whether UNRELIABLE blocks that are out hold us up."""
        if self.pacer.bytes and self.pacer.left(now_ns, share) <= 0:
            self._timers.set_earlier(TokenTimer.UNRELIABLE, self.pacer.due_ns)
            return True
        return False

    def keep_again(self, now_ns: int, number: int, block: bytes, out: Outbox) -> None:
        """An own block of the ring before, which was never ordered."""
        self._window.keep(now_ns, number, block)
        self.kept(number, block, HEAD.unpack_from(block))
        self.send_own(number, block, out)

    def kept(self, number: int, block: bytes, head: HeadFields) -> None:
        """An own block is held here: it waits to be ordered, and we may be the first to deliver it."""
        self.ready[self._me] = None
        self._delivery.arrived(self._me, number, block, head[2], head[4])

    def send_own(self, number: int, block: bytes, out: Outbox, head: HeadFields | None = None) -> None:
        """To all; a small one that is sent for the first time, while nothing else is under way, to the token site.

        `head` is given with the first time. Deviation: the paper multicasts every packet. Four datagrams' worth of
        interrupts become two, and the site that everybody waits for does not compete for a processor with members
        that can only wait.
        """
        if not self._table.others:
            return
        ring, me, rotation = self._ring, self._me, self._rotation
        if head is not None and len(block) <= CARRIED_LIMIT and self._may_carry(block, head):
            if rotation.is_holding:
                self.only_here[me, number] = None
                return
            site, active = ring.view.member(rotation.site), ring.log.active
            is_quiet = len(self._outgoing.unordered) == 1 and len(active) == (me in active)
            if site is not None and is_quiet and site.id != me:
                out.sends.append(ring.writer.block(site.address, Kind.REQUEST, me, number, block))
                return
        out.sends.append(ring.writer.block(To.ALL, Kind.DATA, me, number, block))

    def _may_carry(self, block: bytes, head: HeadFields) -> bool:
        """Whether it waits to be ordered anyway, and fits one datagram with its ACK."""
        room = self._ring.config.datagram - HEADER_BYTES - CARRIED_ROOM - 4 * len(self._ring.view.members)
        return head[2] > FIFO_RANK and not head[4] & FRAGMENTED and len(block) <= room

    def send_orphan(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """In the name of a sender that is gone."""
        if self._table.others:
            out.sends.append(self._ring.writer.block(To.ALL, Kind.REPAIR, origin, number, block))

    def send_unreliable(self, now_ns: int, block: bytes, head: HeadFields, out: Outbox) -> None:
        ring, me, pacer = self._ring, self._me, self.pacer
        number = pacer.sent(now_ns, ring.log.cost(block))
        out.notes.append(Note("hold", me, block, head=head))
        self._delivery.arrived_unreliable(me, number, block)
        if self._table.others:
            out.sends.append(ring.writer.block(To.ALL, Kind.UNRELIABLE, me, number, block))
            if pacer.wants_word(self._window.share()):
                out.sends.append(ring.writer.control(To.ALL, Kind.STATUS, encode_acks(Acks(number + 1, 0))))

    def on_unreliable(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        ring, delivery = self._ring, self._delivery
        head = head_of(block)
        if head.rank or head.flags & FRAGMENTED:
            raise WireError("a block that is not ordered is UNRELIABLE and whole")
        if delivery.is_overrun():
            ring.count("overrun_drops")  # nothing holds up their sender: what the application cannot take is lost
            return
        is_member = ring.view.member(origin) is not None and not ring.has_left
        if is_member and delivery.arrived_unreliable(origin, number, block):
            out.notes.append(Note("hold", origin, block, head=head))

    def send_all_here(self, out: Outbox) -> None:
        """Blocks that only we have go out by themselves after all."""
        ring = self._ring
        for origin, number in self.only_here:
            block = ring.log.find_block(origin, number)
            if block is not None:
                kind = Kind.DATA if origin == self._me else Kind.REPAIR
                out.sends.append(ring.writer.block(To.ALL, kind, origin, number, block))
        self.only_here.clear()

    def retransmit(self, now_ns: int, out: Outbox) -> None:
        """Own blocks without an ACK go out again, to all (section 4.4: Data packets need positive acknowledgement)."""
        has_shrunk = False
        for origin, number, block in self._outgoing.due(now_ns):
            if self._rotation.is_holding:
                continue  # it waits here, not for the network
            self._ring.count("retransmissions")
            if origin == self._me:
                if not has_shrunk:
                    self._window.timed_out(number)
                    has_shrunk = True
                self.send_own(number, block, out)
            else:
                self.send_orphan(origin, number, block, out)
        if self._outgoing.unordered:
            self._timers.set(TokenTimer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))
        self._ring.writer.next_via()
