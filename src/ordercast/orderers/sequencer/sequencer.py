"""Amoeba's sequencer. Paper sections 4.1 and 4.2; docs/design/sequencer.md has states, datagrams and timers.

Every member runs this class; `SequencerRole` is the paper's flag that makes one of them the sequencer. The log,
delivery, the send window and recovery are parts; here is what members and sequencer say to each other. Deviations, with
their reasons, stand in the design note: blocks instead of messages, STATUS at half the history, one change at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from ordercast.config import GroupConfig, Timing
from ordercast.engine import NEVER, Change, Note, Outbox, Waiting
from ordercast.errors import UnsupportedService
from ordercast.orderers.logged.changes import join_key
from ordercast.orderers.logged.in_order import InOrderDelivery
from ordercast.orderers.logged.leaving import Leaving
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.recovery import LogRecovery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.orderer import Standing, Start, Suspicion, SuspicionReason, Usage
from ordercast.orderers.sequencer.acknowledging import Acknowledger
from ordercast.orderers.sequencer.announcing import Announcer
from ordercast.orderers.sequencer.asking import ChangeAsker, RoomAsker
from ordercast.orderers.sequencer.blocking import sequencer_blocked_by
from ordercast.orderers.sequencer.naks import SequencerNaks
from ordercast.orderers.sequencer.ordering import SequencerOrdering
from ordercast.orderers.sequencer.sending import SequencerSender, is_resilient
from ordercast.orderers.sequencer.timers import SequencerTimer
from ordercast.parts.detector import Detector
from ordercast.parts.log import Log
from ordercast.parts.memory import DeliveryMemory
from ordercast.parts.timers import Timers
from ordercast.service import AGREED_RANK, FIFO_RANK, RELIABLE_RANK, RESILIENT_RANK, SAFE_RANK, Service
from ordercast.view import GROUP_ORIGIN, Address, Member, View
from ordercast.wire.block import HEAD
from ordercast.wire.header import Kind
from ordercast.wire.ordering import (
    ACKS,
    Acks,
    Assignment,
    Lead,
    decode_accept,
    decode_acks,
    decode_carrier,
    decode_held,
    decode_lead,
    decode_nak,
    decode_ordered,
    decode_propose,
    encode_acks,
)
from ordercast.wire.views import Cut, Proposal
from ordercast.wire.writer import DatagramWriter

REST_BEATS: Final = 4  # heartbeats of a sequencer at short intervals when it has come to rest


class Sequencer:
    """The orderer of one ring. A new ring (after a failure) takes a new object; joins and leaves do not."""

    gives_locks: ClassVar[bool] = False
    ranks: ClassVar[frozenset[int]] = frozenset((RELIABLE_RANK, FIFO_RANK, AGREED_RANK, RESILIENT_RANK, SAFE_RANK))

    __slots__ = (
        "_acknowledger",
        "_announcer",
        "_asker",
        "_delivery",
        "_leaving",
        "_naks",
        "_ordering",
        "_outgoing",
        "_receiver",
        "_recovery",
        "_repairs",
        "_ring",
        "_room",
        "_sender",
        "_timers",
        "_window",
        "detector",
    )

    def __init__(
        self,
        me: Member,
        writer: DatagramWriter,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counter: int,
        counters: dict[str, int],
    ) -> None:
        """`counter` is the highest view counter that this node has used: none is used twice (RMP section 3.1)."""
        ring = self._ring = RingState(me, writer, config, timing, view, next_block, counter, counters)
        self._receiver = Receiver(ring, SAFE_RANK)
        self._repairs = self._receiver.repairs
        self._window = SendWindow(ring, has_policy=False)
        self._outgoing = self._window.outgoing
        self._delivery = InOrderDelivery(ring, self._outgoing)
        self._recovery = LogRecovery(ring, self._receiver, self._outgoing)
        self._leaving = Leaving(ring)
        self.detector = Detector(timing)
        self._timers: Timers[SequencerTimer] = Timers()
        self._announcer = Announcer(ring, self._delivery)
        self._acknowledger = Acknowledger(ring, self._delivery, self._announcer, self._timers)
        self._naks = SequencerNaks(ring, self._repairs, self._delivery, self._announcer, self._acknowledger)
        self._sender = SequencerSender(ring, self._outgoing, self._acknowledger, self._timers)
        self._room = RoomAsker(ring, self._outgoing, self._acknowledger, self._announcer, self._timers)
        self._asker = ChangeAsker(ring, self._leaving, self._outgoing, self._acknowledger, self._timers)
        self._ordering = SequencerOrdering(
            ring,
            self._receiver,
            self._delivery,
            self._window,
            self._leaving,
            self.detector,
            self._timers,
            self._announcer,
            self._acknowledger,
            self._sender,
        )

    # What others read

    @property
    def view(self) -> View:
        return self._ring.view

    @property
    def log(self) -> Log:
        return self._ring.log

    @property
    def next_block(self) -> int:
        return self._ring.next_block

    @property
    def has_left(self) -> bool:
        return self._ring.has_left

    @property
    def callers(self) -> set[int]:
        return self._ring.callers

    @property
    def consumed(self) -> int:
        return self._delivery.consumed

    @property
    def leaver(self) -> Member | None:
        return self._ring.leaver

    @property
    def decided(self) -> int:
        return self._ring.decided

    def decide(self, seq: int) -> None:
        self._ring.decided = max(self._ring.decided, seq)

    @property
    def calls(self) -> None:
        """This orderer takes no calls from outside."""

    def take_views(self) -> list[View]:
        return self._ring.take_views() if self._ring.applied else []

    def usage(self) -> Usage:
        return Usage(self._ring.log.unstable_bytes, len(self._ring.log.entries))

    def memory(self) -> DeliveryMemory:
        """Nothing is delivered here without a sequence number."""
        return DeliveryMemory()

    # Inputs

    def install(self, now_ns: int, start: Start, out: Outbox) -> None:
        """Begin work in the view. Nothing was delivered without a sequence number: no memory is needed."""
        log, role = self._ring.log, self._ordering.apply_view(now_ns)
        for number, block in start.backlog:
            self._window.keep(now_ns, number, block)
        if role is not None:
            role.changes.expect(start.awaited)
            for origin, number, block in start.orphans:
                if log.hold(origin, number, block):
                    out.notes.append(Note("hold", origin, block))  # in the old ring its sender may have been a stranger
                    role.ready[origin] = None
                    self._outgoing.keep(now_ns, origin, number, block, 0)
            self._announcer.send_status(now_ns, self._ordering.role, out)
        self._sender.resend(now_ns, self._ordering.role, out)

    def room(self, now_ns: int) -> tuple[int, int]:
        """Amoeba blocks the sender; so does a window that is used up."""
        window = self._window
        if self._ring.is_frozen or self._ring.has_left or self._leaving.is_retired or self._leaving.is_asked:
            return 0, window.largest
        share = window.share_among(self._announcer.active)
        if window.is_full(share, window.largest):
            self._room.lacks(now_ns)
            return 0, window.largest
        self._room.is_there()
        return window.left(share, window.largest), window.largest

    def after(self) -> int:
        return self._delivery.delivered

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        for block in blocks:
            head = HEAD.unpack_from(block)
            rank = head[2]
            if rank not in self.ranks:
                raise UnsupportedService(f"the sequencer orderer does not give {Service(rank, head[3])}")
            number = self._window.take(now_ns, block, head, out)
            self._sender.send_own(now_ns, self._ordering.role, number, block, rank == RESILIENT_RANK, out)
        if blocks:
            self._timers.set_earlier(SequencerTimer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))
        return len(blocks)

    def consume(self, seq: int) -> None:
        self._delivery.consume(seq)

    def waits_for_application(self) -> bool:
        """Others wait for us to consume: they asked, or the history that we hold up fills."""
        log, role = self._ring.log, self._ordering.role
        if self._acknowledger.owed or log.unstable_bytes > self._window.ceiling // 4:
            return True
        return role is not None and (role.is_blocked or role.rounds.is_open(log))

    def on_data(self, now_ns: int, origin: int, number: int, block: bytes, is_repair: bool, out: Outbox) -> None:
        """A whole block, from its sender or as a repair."""
        if is_repair:
            self._repairs.is_answered = True
        else:
            self._heard(now_ns, origin)
        if origin != self._ring.me.id and not self._ring.has_left:
            self._take(origin, number, block, out)

    def on_segment(
        self,
        now_ns: int,
        origin: int,
        number: int,
        segment: int,
        last: int,
        body: memoryview,
        is_repair: bool,
        out: Outbox,
    ) -> None:
        """One segment of a block that did not arrive whole in one batch."""
        if is_repair:
            self._repairs.is_answered = True
        else:
            self._heard(now_ns, origin)
        if origin == self._ring.me.id or self._ring.has_left:
            return
        if self._repairs.is_old(origin, number):
            self._on_old(origin, number)
            return
        block = self._repairs.add(now_ns, origin, number, segment, last, body)
        if block is not None:
            self._take(origin, number, block, out)

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None:
        """Everything else of the ordering kinds. Raises WireError on nonsense; the underlay counts it."""
        ring = self._ring
        if origin == ring.me.id:
            return
        self._heard(now_ns, origin)
        if self._ordering.role is not None and not ring.is_frozen and kind in (Kind.ACCEPT, Kind.ORDERED):
            ring.count("strange_leads")  # the sequencer is not told the numbers that it assigns
        elif kind == Kind.ACCEPT:
            lead, assignments = decode_accept(body)
            for assignment in assignments:
                self._receiver.assign(*assignment)
            self._on_lead(now_ns, lead)
        elif kind == Kind.ORDERED:
            lead, seq, from_, block = decode_ordered(body)
            if from_ != ring.me.id and not self._repairs.is_old(from_, number):
                self._take(from_, number, bytes(block), out)
            self._receiver.assign(seq, from_, number, 1)
            self._on_lead(now_ns, lead)
        elif kind == Kind.REQUEST:
            self._on_acks(now_ns, origin, decode_acks(body))
            self._on_request(origin, number, bytes(body[ACKS.size :]), out)
        elif kind == Kind.SYNC:
            self._on_sync(now_ns, source, origin, decode_lead(body), out)
        elif kind == Kind.STATUS:
            lead = decode_lead(body)
            if self._ordering.role is not None:
                if not self._leaving.is_retired:  # a member without room asks for a round
                    self._ordering.role.wanted_ns = now_ns
                    self._announcer.send_status(now_ns, self._ordering.role, out)
            else:
                self._on_lead(now_ns, lead)
                self._announcer.holdup, self._announcer.holdup_ns = lead.holdup, now_ns
                self._acknowledger.ask(origin, lead.highest)
                self._acknowledger.is_due |= ring.has_left
        elif kind == Kind.ACK:
            acks = decode_acks(body)
            self._on_acks(now_ns, origin, acks)
            self._remind(now_ns, acks.received)
        elif kind == Kind.NAK:
            acks, _, missing = decode_nak(body)
            self._on_acks(now_ns, origin, acks)
            self._naks.repair(source, self._ordering.role, missing, out)
        elif kind == Kind.HELD:
            acks, holding = decode_held(body)
            self._on_acks(now_ns, origin, acks)
            self._on_held(now_ns, origin, holding)
        elif kind == Kind.CARRIER:
            acks, holding, block = decode_carrier(body)
            self._on_acks(now_ns, origin, acks)
            if self._ordering.role is not None:
                self._on_held(now_ns, origin, holding)
            self._on_request(origin, number, bytes(block), out)
        elif kind == Kind.PROPOSE:
            acks, operation, header = decode_propose(body)
            self._on_acks(now_ns, origin, acks)
            self._asker.on_propose(origin, operation, header, self._ordering.role)

    def greet(self) -> None:
        """We are new: let the sequencer hear us at once, so that it stops welcoming us."""
        self._acknowledger.is_due = True

    def propose(self, now_ns: int, change: Change) -> None:
        """Order a change like a message. A member's own leave waits for its own blocks."""
        if not self._asker.ask(now_ns, change) and self._ordering.role is not None:
            if self._ordering.role.is_leaving(change.member.id):
                if not self._ring.is_decided:
                    return  # its leave may need its own vote, and that the history: it asks again
                self._ordering.role.forget(change.member.id)  # it comes back: it has seen its own leave
            self._ordering.role.propose(change)

    def learn(self, member: int, seq: int) -> None:
        if self._ordering.role is not None:
            self._ordering.role.acknowledge(member, seq, 0, self._ring.log.received)

    def withdraw(self, member: int) -> None:
        if self._ordering.role is not None:
            self._ordering.role.changes.drop(join_key(member))

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        if self._ring.is_frozen:
            return
        if self._ordering.role is not None and not self._leaving.is_retired:
            self._ordering.order(now_ns, self._ordering.role, out)
        if self._ring.log.assignments:
            self._ordering.advance(now_ns, out)
        self._delivery.deliver(out)
        if self._ordering.role is not None:
            self._ordering.lead(now_ns, self._ordering.role, out)
        else:
            self._acknowledger.look(now_ns)
            self._acknowledger.follow(now_ns, self._receiver.last_strong_seq, out)
        if not self._ring.has_left:
            self._sender.go_on(now_ns, out)
            self._naks.look(now_ns, self._ordering.role, out)
        is_urgent = self._ordering.is_urgent
        self.detector.work(is_urgent, now_ns)
        if is_urgent:
            self._announcer.rest_beats = 0
        beat_ns = max(now_ns, self._announcer.spoke_ns + self._beat_ns())
        # A heartbeat to a sequencer that does not answer waits like all else: it would stay due.
        self._timers.set_earlier(SequencerTimer.BEAT, self._acknowledger.restraint.next_ns(beat_ns))

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._ring.is_frozen:
            return
        for timer in self._timers.due(now_ns):
            if timer is SequencerTimer.QUIET:
                self._acknowledger.is_due = True
            elif timer is SequencerTimer.BEAT:
                self._beat(now_ns)
            elif timer is SequencerTimer.RETRANSMIT:
                if not self._ring.has_left:  # a member that was expelled had perhaps sent more than was ordered
                    self._sender.retransmit(now_ns, self._ordering.role, out)
            elif timer is SequencerTimer.TAIL:
                self._ordering.remind(now_ns, out)
            elif timer is SequencerTimer.WANT:
                self._room.expire(now_ns, self._ordering.role, out)
            elif timer is SequencerTimer.PROPOSE:
                self._asker.expire(now_ns, self._ordering.role, out)
        self._naks.send(now_ns, self._ordering.role, out)

    def deadline_ns(self) -> int:
        if self._ring.is_frozen:
            return NEVER
        # Silence is looked at with every heartbeat of our own, which is often enough to suspect.
        return min(self._timers.deadline_ns(), self._naks.deadline_ns())

    def suspects(self, now_ns: int) -> list[Suspicion]:
        """Members that have been silent for too long, or did not answer ten tries."""
        if self._ring.is_frozen:
            return []
        silent, leader = self.detector.suspects(now_ns), self._ring.view.leader.id
        found = [Suspicion(member, SuspicionReason.SILENCE) for member in silent]
        if self._outgoing.is_exhausted and self._ordering.role is None and leader not in silent:
            found.append(Suspicion(leader, SuspicionReason.NO_ACKNOWLEDGEMENT))
        return found

    def blocked_by(self, now_ns: int) -> Waiting | None:
        ring, role, outgoing = self._ring, self._ordering.role, self._outgoing
        return sequencer_blocked_by(now_ns, ring, self._delivery, self.detector, outgoing, self._announcer, role)

    @property
    def is_busy(self) -> bool:
        """Whether anything is outstanding. A history that is not yet free is, although nobody waits for that."""
        return bool(self._ring.log.entries) or self._ordering.is_urgent

    def standing(self) -> Standing:
        role, leader, is_retired = self._ordering.role, self._ring.view.leader, self._leaving.is_retired
        if role is None:
            return Standing(False, False, False, leader, is_retired, True, self._ring.has_left, keeper=leader.id)
        is_settled = not role.others or role.safe >= role.changes.last_seq
        leavers = tuple(role.leavers.values())
        return Standing(True, True, True, leader, is_retired, is_settled, is_settled, leavers)

    # The end of a ring

    def freeze(self) -> None:
        """Failures only: stop ordering, delivering and acknowledging."""
        self._ring.is_frozen = True
        self._timers.clear_all()

    def cut(self, accepted: Proposal | None) -> Cut:
        return self._recovery.cut(accepted)

    def adopt(self, upto: int, assignments: Sequence[Assignment]) -> list[int]:
        return self._recovery.adopt(upto, assignments)

    def lacking(self, upto: int) -> list[int]:
        return self._recovery.lacking(upto)

    def note_remainder(self, upto: int, out: Outbox) -> None:
        self._recovery.note_remainder(upto, out)

    def recover(self, upto: int, out: Outbox) -> None:
        """Deliver the agreed remainder of the old ring, up to and including `upto`; what lies beyond it is void."""
        self._recovery.discard_beyond(upto)
        self._ordering.advance(0, out)
        self._recovery.check_reached(upto)
        self._delivery.safe = self._ring.decided = upto
        self._delivery.deliver(out)
        self.abandon(out)

    def leftovers(self) -> list[tuple[int, bytes]]:
        return self._recovery.leftovers()

    def undelivered(self) -> int:
        return self._recovery.undelivered(self._delivery.delivered)

    def abandon(self, out: Outbox) -> None:
        """This node is out of the ring: what was missing is no gap any more."""
        out.notes.extend(self._repairs.close())

    # What comes in

    def _heard(self, now_ns: int, origin: int) -> None:
        self.detector.heard(origin, now_ns)
        if origin == self._ring.view.leader.id:
            self._acknowledger.restraint.heard()

    def _take(self, origin: int, number: int, block: bytes, out: Outbox) -> bool:
        """A whole block has come; whether it is new."""
        head = self._receiver.hold(origin, number, block, out)
        if head is None:
            self._on_old(origin, number)
            return False
        if self._ordering.role is not None:
            self._ordering.role.ready[origin] = None
        elif head.rank == RESILIENT_RANK and origin != GROUP_ORIGIN:
            self._acknowledger.hold(origin, head.k)
        return True

    def _on_request(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """A whole block of a member. What others have to hold first went to all; anything else we alone have."""
        role = self._ordering.role
        if self._take(origin, number, block, out) and role is not None and not is_resilient(block):
            role.requests.add((origin, number))

    def _on_old(self, origin: int, number: int) -> None:
        """Somebody sends again what we have: our word about it was lost, or it has to wait to be ordered."""
        self._ring.count("duplicates")
        block = self._ring.log.blocks.get((origin, number))
        if block is not None:
            _, _, rank, k, _, _ = HEAD.unpack_from(block)
            if self._ordering.role is not None or rank == RESILIENT_RANK:
                self._acknowledger.hold(origin, k)
        elif self._ordering.role is not None and origin != GROUP_ORIGIN:
            self._ring.writer.next_via()  # the member that multicasts for us may be gone
            self._announcer.sync_now = True

    def _on_lead(self, now_ns: int, lead: Lead) -> None:
        log, delivery = self._ring.log, self._delivery
        if self._ordering.role is not None:
            return
        if lead.highest > log.received + log.ahead:
            self._ring.count("strange_leads")
            return
        log.highest = max(log.highest, lead.highest)
        self._announcer.active = lead.active
        delivery.safe = max(delivery.safe, lead.safe)
        self._acknowledger.restraint.answered(now_ns, lead.safe)
        if lead.stable > log.stable:
            self._announcer.freed_bytes += delivery.purge(lead.stable)

    def _on_sync(self, now_ns: int, source: Address, origin: int, lead: Lead, out: Outbox) -> None:
        self._on_lead(now_ns, lead)
        if origin != self._ring.view.leader.id:
            # It led until its own leave, and goes when it knows that all have it. Another may multicast for it.
            former = self._ordering.former
            to = former.address if former is not None and former.id == origin else source
            out.sends.append(self._ring.writer.control(to, Kind.ACK, encode_acks(self._acknowledger.acks())))
        if self._ring.has_left:
            self._acknowledger.is_due = True  # we have left, and the sequencer waits to hear that we know

    def _on_acks(self, now_ns: int, origin: int, acks: Acks) -> None:
        role, received = self._ordering.role, self._ring.log.received
        if role is not None and not role.acknowledge(origin, acks.received, acks.consumed, received):
            self._ring.count("strange_acks")
        elif role is not None and acks.is_behind:
            role.note_behind(now_ns, origin, acks.consumed)

    def _remind(self, now_ns: int, received: int) -> None:
        """A member says how far it is. If it lacks our last word it waits for us, and would soon suspect one that
        speaks as seldom as at rest: we repeat ourselves, but not while our word may be on its way."""
        if self._ordering.role is not None and received < self._ring.log.received:
            silent_ns = now_ns - self._announcer.spoke_ns
            self._announcer.sync_now |= silent_ns >= 2 * self._ring.timing.heartbeat_busy_ns

    def _on_held(self, now_ns: int, origin: int, holding: list[tuple[int, int]]) -> None:
        if self._ordering.role is not None:
            row = self._ordering.role.row(origin)
            for sender, upto in holding:
                if row is not None and sender in self._ring.log.next_number:
                    row.held[sender] = max(row.held.get(sender, 0), upto)
                    self._ordering.role.ready[sender] = None
            return
        for sender, upto in holding:
            if sender == self._ring.me.id:
                self._outgoing.acknowledged(now_ns, upto)

    # The member's part

    def _beat_ns(self) -> int:
        """How long we may be silent. A sequencer that comes to rest repeats itself a few times: a member that has not
        heard that everything is stable is busy, and would soon suspect one that speaks as seldom as at rest."""
        beats, busy_ns = self._announcer.rest_beats, self._ring.timing.heartbeat_busy_ns
        if self._ordering.role is None or beats >= REST_BEATS:
            return min(self.detector.heartbeat_ns, self._announcer.rest_ns)
        return min(busy_ns << min(beats, 2), self._ring.timing.heartbeat_rest_ns)

    def _beat(self, now_ns: int) -> None:
        """Say something if nothing was said for an interval."""
        if now_ns - self._announcer.spoke_ns < self._beat_ns():
            return
        self._announcer.rest_beats += 1
        if self._ordering.role is not None:
            # The member that multicasts for us may be gone. All others watch us: they must not take us for silent.
            self._ring.writer.next_via()
            self._announcer.sync_now = True
        else:
            self._acknowledger.is_due = True
