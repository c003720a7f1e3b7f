"""What a member owes the sequencer: acknowledgements, and the word that it holds RESILIENT blocks (Amoeba 4.1, 4.2)."""

from __future__ import annotations

from collections import deque
from typing import Final

from ordercast.engine import Outbox
from ordercast.orderers.logged.in_order import InOrderDelivery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.sequencer.announcing import Announcer
from ordercast.orderers.sequencer.restraint import Restraint
from ordercast.orderers.sequencer.role import ackers
from ordercast.orderers.sequencer.timers import SequencerTimer
from ordercast.parts.timers import Timers
from ordercast.service import RESILIENT_RANK
from ordercast.wire.block import HEAD
from ordercast.wire.header import Kind
from ordercast.wire.ordering import Acks, encode_acks, encode_held

STATUSES_OWED: Final = 8


class Acknowledger:
    __slots__ = (
        "_acked",
        "_announcer",
        "_asked_seq",
        "_asker",
        "_delivery",
        "_held_later",
        "_is_asked",
        "_is_behind",
        "_left_at",
        "_left_ns",
        "_log",
        "_ring",
        "_timers",
        "held_due",
        "is_due",
        "owed",
        "restraint",
    )

    def __init__(
        self, ring: RingState, delivery: InOrderDelivery, announcer: Announcer, timers: Timers[SequencerTimer]
    ) -> None:
        self._ring = ring
        self._log = ring.log
        self._delivery = delivery
        self._announcer = announcer
        self._timers = timers
        self._acked = Acks(ring.view.seq, ring.view.seq)
        self._left_ns = -1  # since when the application has left what it was given; -1: it has finished with that
        self._left_at = 0  # how far it had consumed then
        self._is_behind = False
        self.is_due = False  # the sequencer is to hear from us now
        self.owed: deque[int] = deque(maxlen=STATUSES_OWED)  # status rounds: consumed up to where we answer
        self._asked_seq = 0  # how far the log was at the last of them
        self._asker = 0  # and who asked
        self._is_asked = False  # and was not told anything since
        self.held_due: dict[int, int] = {}  # origin -> k
        # origin -> (k, what was acknowledged): behind that there is more, but for a hole or what it depends on
        self._held_later: dict[int, tuple[int, int]] = {}
        self.restraint = Restraint()

    def acks(self) -> Acks:
        return Acks(self._log.received, self._delivery.consumed, self._is_behind)

    def look(self, now_ns: int) -> None:
        """Once per pass, behind deliveries: whether the application has left what it was given, for as long as a
        question waits for it. The application has no turn within a pass."""
        delivery = self._delivery
        if delivery.consumed == delivery.delivered:
            self._left_ns = -1
        elif self._left_ns < 0 or delivery.consumed != self._left_at:
            self._left_ns, self._left_at = now_ns, delivery.consumed
        self._is_behind = 0 <= self._left_ns <= now_ns - self._ring.timing.ack_quiet_ns

    @property
    def _has_news(self) -> bool:
        return self._acked.received != self._log.received or self._acked.consumed != self._delivery.consumed

    def told(self, now_ns: int, is_alone: bool = True) -> None:
        """The sequencer has just been told how far we are. `is_alone`: and nobody else."""
        self._announcer.spoke_ns = now_ns
        self._acked = self.acks()
        if is_alone:
            self.restraint.told(now_ns, self._acked.received, self._delivery.safe)
        self._is_asked = False
        self._timers.clear(SequencerTimer.QUIET)

    def ask(self, origin: int, seq: int) -> None:
        """The sequencer asks: it is told when the application has consumed everything up to `seq`, after a while in
        any case. What lies too far ahead to be true is not heard."""
        if seq > self._log.received + self._log.ahead:
            return
        self.owed.append(seq)
        self._asked_seq, self._asker = seq, origin
        self._is_asked = True

    @property
    def is_awaited(self) -> bool:
        """Whether the sequencer has asked, and waits until all have consumed that. A question ends with the sequencer
        that asked it. The next one does not repeat it, and newcomers have not heard it: they would speak as seldom as
        at rest, and soon be suspected by one that expects more."""
        return self._asked_seq > self._log.stable and self._asker == self._ring.view.leader.id

    def to_leader(self, now_ns: int, kind: Kind, body: bytes, out: Outbox) -> None:
        """Something that begins with our acknowledgement."""
        out.sends.append(self._ring.writer.control(self._ring.view.leader.address, kind, body))
        self.told(now_ns)
        self.is_due = False

    def hold(self, origin: int, k: int) -> None:
        """Say that we hold blocks of `origin`."""
        self.held_due[origin] = max(k, self.held_due.get(origin, 0))

    def answers_for(self, origin: int, block: bytes) -> bool:
        """Whether the sequencer waits for our word that we hold this block."""
        _, _, rank, k, _, _ = HEAD.unpack_from(block)
        view, me = self._ring.view, self._ring.me.id
        return rank == RESILIENT_RANK and me in ackers(view, view.leader.id, origin, k)

    def follow(self, now_ns: int, last_strong_seq: int, out: Outbox) -> None:
        """After a batch, as a member: acknowledge what is owed."""
        owed = self.owed
        while owed and self._delivery.consumed >= owed[0]:
            owed.popleft()
            self.is_due |= self._is_asked or self._has_news
        if last_strong_seq > self._acked.received:
            self.is_due = True  # others wait to deliver it
        for origin, (k, reach) in list(self._held_later.items()):
            if self._log.reach(origin) > reach:
                del self._held_later[origin]
                self.hold(origin, k)
        if (self.held_due or self.is_due) and self.restraint.holds(now_ns):
            self._timers.set_earlier(SequencerTimer.QUIET, self.restraint.next_ns(now_ns))
            return
        holding = self.take_holding() if self.held_due else []
        if holding:
            self.to_leader(now_ns, Kind.HELD, encode_held(self.acks(), holding), out)
        if self.is_due:
            self.to_leader(now_ns, Kind.ACK, encode_acks(self.acks()), out)
        elif self._is_asked or (owed and self._has_news):
            self._timers.set_earlier(SequencerTimer.QUIET, now_ns + self._ring.timing.ack_quiet_ns)
        # What nobody asked about goes with the next message or heartbeat.

    def take_holding(self) -> list[tuple[int, int]]:
        """What the sequencer is to hear of blocks that we hold, with all that they may depend on; the rest when that
        has come."""
        view, log, me = self._ring.view, self._log, self._ring.me.id
        holding = []
        for origin, k in self.held_due.items():
            if me in ackers(view, view.leader.id, origin, k):
                reach = log.reach(origin)
                holding.append((origin, reach))
                if any(sender == origin and number >= reach for sender, number in log.blocks):
                    self._held_later[origin] = (k, reach)
        self.held_due.clear()
        return holding
