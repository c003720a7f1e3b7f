"""The blocks that a member of a token ring sends itself: carrying, UNRELIABLE ones, sending again (RMP section 4.2)."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import ClassVar, Final

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Note, Outbox, To
from ordercast.orderers.logged.sending import Sender
from ordercast.orderers.token.pacing import UnreliablePacer
from ordercast.parts.timers import Timers
from ordercast.service import FIFO_RANK, RANK_NAMES
from ordercast.view import Member, Reason, View
from ordercast.wire.block import FRAGMENTED, HEAD, head_of
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.ordering import Acks, encode_acks
from ordercast.wire.writer import DatagramWriter

CARRIED_ROOM: Final = 128  # what a token takes of a datagram besides its table: its state and a few places
CARRIED_LIMIT: Final = 4_096  # bytes of a block up to which it may travel with its place, like Amoeba's method 1


class Timer(IntEnum):  # its members are keys of a table on the hot path: an int hashes in C
    CONFIRM = auto()  # nothing to order yet: tell the site before that the token is here
    NULL = auto()  # quiet for long enough: send the token round once
    TOKEN = auto()  # no sign that the next site has it
    RETRANSMIT = auto()
    BEAT = auto()
    LEAVE = auto()
    UNRELIABLE = auto()  # UNRELIABLE blocks may go on
    CALLS = auto()  # calls that wait in vain are forgotten


class TokenSender(Sender):
    """What a member of a token ring has out, and how it goes out."""

    ranks: ClassVar[frozenset[int]] = frozenset(range(len(RANK_NAMES)))
    gives: ClassVar[str] = "the token orderer gives all services"

    def __init__(
        self,
        me: Member,
        writer: DatagramWriter,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counters: dict[str, int],
    ) -> None:
        super().__init__(me, writer, config, timing, view, next_block, counters)
        self._timers: Timers[Timer] = Timers()
        # Where the token is
        self._site = view.leader.id if view.reason in (Reason.CREATE, Reason.RESET) else 0
        self.is_holding = False
        # What waits for a place
        self._ready: dict[int, None] = {}  # members that may have something, in order of arrival
        self._only_here: dict[tuple[int, int], None] = {}  # blocks that nobody else has: they go out with their place
        # What gets none
        self._pacer = UnreliablePacer()

    def _must_pause(self, now_ns: int, share: int) -> bool:
        if self._pacer.bytes and self._pacer.left(now_ns, share) <= 0:
            self._timers.set_earlier(Timer.UNRELIABLE, self._pacer.due_ns)
            return True
        return False

    def _submit_one(self, now_ns: int, block: bytes, out: Outbox) -> None:
        if self.is_unreliable(block):
            self._send_unreliable(now_ns, block, out)
        else:
            super()._submit_one(now_ns, block, out)

    def _submitted(self, now_ns: int) -> None:
        if self._outgoing.unordered:
            self._timers.set_earlier(Timer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))

    def _keep_own(self, now_ns: int, number: int, block: bytes, out: Outbox) -> None:
        super()._keep_own(now_ns, number, block, out)
        self._ready[self.me.id] = None
        self._arrived(self.me.id, number, block, head_of(block))

    def _send_own(self, number: int, block: bytes, out: Outbox, is_first: bool = False) -> None:
        """To all; a small one that is sent for the first time, while nothing else is under way, to the token site.

        Deviation: the paper multicasts every packet. Four datagrams' worth of interrupts become two, and the site that
        everybody waits for does not compete for a processor with those who can only wait.
        """
        if not self._table.others:
            return
        if is_first and len(block) <= CARRIED_LIMIT and self._may_carry(block):
            if self.is_holding:
                self._only_here[self.me.id, number] = None
                return
            site, active = self.view.member(self._site), self.log.active
            is_quiet = len(self._outgoing.unordered) == 1 and len(active) == (self.me.id in active)
            if site is not None and is_quiet and site.id != self.me.id:
                out.sends.append(self._writer.block(site.address, Kind.REQUEST, self.me.id, number, block))
                return
        out.sends.append(self._writer.block(To.ALL, Kind.DATA, self.me.id, number, block))

    def _may_carry(self, block: bytes) -> bool:
        """Whether it waits for a place anyway, and fits one datagram with it."""
        _, _, rank, _, flags, _ = HEAD.unpack_from(block)
        room = self._config.datagram - HEADER_BYTES - CARRIED_ROOM - 4 * len(self.view.members)
        return bool(rank > FIFO_RANK and not flags & FRAGMENTED and len(block) <= room)

    def _send_orphan(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        if self._table.others:
            out.sends.append(self._writer.block(To.ALL, Kind.REPAIR, origin, number, block))

    def _send_unreliable(self, now_ns: int, block: bytes, out: Outbox) -> None:
        me = self.me.id
        number = self._pacer.sent(now_ns, self.log.cost(block))
        out.notes.append(Note("hold", me, block))
        self._arrived_unreliable(me, number, block)
        if self._table.others:
            out.sends.append(self._writer.block(To.ALL, Kind.UNRELIABLE, me, number, block))
            if self._pacer.wants_word(self._share()):
                out.sends.append(self._writer.control(To.ALL, Kind.STATUS, encode_acks(Acks(number + 1, 0))))

    def _retransmit(self, now_ns: int, out: Outbox) -> None:
        """Own blocks without an ACK go out again, to all (section 4.4: Data packets need positive acknowledgement)."""
        has_shrunk = False
        for origin, number, block in self._outgoing.due(now_ns):
            if self.is_holding:
                continue  # it waits here, not for the network
            self._count("retransmissions")
            if origin == self.me.id:
                if not has_shrunk:
                    self._policy.timed_out(number)
                    has_shrunk = True
                self._send_own(number, block, out)
            else:
                self._send_orphan(origin, number, block, out)
        if self._outgoing.unordered:
            self._timers.set(Timer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))
        self._writer.next_via()
