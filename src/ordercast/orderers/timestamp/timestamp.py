"""Two-phase timestamps: ABCAST, and TOMPA's anticipation. TOMPA sections 2 and 3; docs/design/timestamp.md.

Every member runs this class. Here is what members say to each other; how they agree is in `agreement.py`, what follows
for the log in `ordering.py`. Deviations, with their reasons, stand in the design note.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from ordercast.config import GroupConfig, Timing
from ordercast.engine import NEVER, Change, Note, Outbox, Waiting
from ordercast.errors import UnsupportedService
from ordercast.orderers.logged.changes import join_key
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.expelling import Expulsions, eviction, is_current
from ordercast.orderers.logged.leaving import LOOK_NS, REPEAT_NS, Leaving
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.recovery import LogRecovery
from ordercast.orderers.logged.replies import known_lead, send_assignments, send_repairs
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.orderer import Standing, Start, Suspicion, SuspicionReason, Usage
from ordercast.orderers.timestamp.agreement import Agreement
from ordercast.orderers.timestamp.blocking import timestamp_blocked_by
from ordercast.orderers.timestamp.catchup import CatchUp
from ordercast.orderers.timestamp.ordering import TimestampOrdering
from ordercast.orderers.timestamp.owed import OwedStamps
from ordercast.orderers.timestamp.sending import TimestampSender
from ordercast.orderers.timestamp.speaking import StampSender
from ordercast.orderers.timestamp.timers import TimestampTimer
from ordercast.parts.detector import Detector
from ordercast.parts.log import Log
from ordercast.parts.memory import DeliveryMemory
from ordercast.parts.slow import SlowReceivers
from ordercast.parts.timers import Timers
from ordercast.service import AGREED_RANK, FIFO_RANK, MAJORITY_RANK, RELIABLE_RANK, RESILIENT_RANK, SAFE_RANK, Service
from ordercast.view import GROUP_ORIGIN, Address, Member, Reason, View, id_of
from ordercast.wire.block import HEAD
from ordercast.wire.header import Kind
from ordercast.wire.ordering import (
    Assignment,
    decode_expulsion,
    decode_held,
    decode_nak,
    decode_propose,
    encode_expulsion,
    encode_propose,
)
from ordercast.wire.stamps import EXPELS, HURRIES, SLOW, WANTS, Stamps, decode_stamps
from ordercast.wire.token import decode_list
from ordercast.wire.views import Cut, Proposal
from ordercast.wire.writer import DatagramWriter

# A decision shows that all members hold the block: RESILIENT waits for no more.
STRONG_RANK: Final = MAJORITY_RANK


class Timestamp:
    """The orderer of one ring. A new ring (after a failure) takes a new object; joins and leaves do not."""

    gives_locks: ClassVar[bool] = False
    ranks: ClassVar[frozenset[int]] = frozenset(
        (RELIABLE_RANK, FIFO_RANK, AGREED_RANK, RESILIENT_RANK, MAJORITY_RANK, SAFE_RANK)
    )

    __slots__ = (
        "_agreement",
        "_catchup",
        "_delivery",
        "_expulsions",
        "_leaving",
        "_ordering",
        "_outgoing",
        "_owed",
        "_receiver",
        "_recovery",
        "_repairs",
        "_ring",
        "_sender",
        "_slow",
        "_speaker",
        "_table",
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
        self._receiver = Receiver(ring, STRONG_RANK)
        self._repairs = self._receiver.repairs
        window = self._window = SendWindow(ring)
        self._outgoing = self._window.outgoing
        delivery = self._delivery = ServiceDelivery(ring, self._window, STRONG_RANK)
        self._table = delivery.table
        self._recovery = LogRecovery(ring, self._receiver, self._outgoing)
        self._leaving = Leaving(ring)
        self._expulsions = Expulsions(ring)
        self._slow = SlowReceivers(config)
        self.detector = Detector(timing)
        timers: Timers[TimestampTimer] = Timers()
        self._timers = timers
        self._owed = OwedStamps()
        agreement = self._agreement = Agreement(ring, self._receiver, delivery, window, self._owed)
        self._sender = TimestampSender(ring, delivery, window, agreement, timers)
        self._speaker = StampSender(ring, delivery, window, agreement)
        self._catchup = CatchUp(ring, self._repairs, delivery, agreement, timers)
        self._ordering = TimestampOrdering(
            ring,
            self._receiver,
            delivery,
            window,
            self._leaving,
            self.detector,
            timers,
            agreement,
            self._sender,
            self._speaker,
            self._catchup,
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
        """What is delivered has left the log: the application's tickets hold it."""
        return self._delivery.delivered

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
        log = self._ring.log
        return Usage(log.unstable_bytes + self._delivery.backlog, len(log.entries))

    def memory(self) -> DeliveryMemory:
        return self._delivery.memory()

    # Inputs

    def install(self, now_ns: int, start: Start, out: Outbox) -> None:
        """Begin work in the view. Which blocks are awaited is in the view, since another may order a join."""
        log, agreement = self._ring.log, self._agreement
        self._delivery.inherit(start.memory)
        self._ordering.apply_view(now_ns)
        for number, block in start.backlog:
            head = HEAD.unpack_from(block)
            self._window.keep(now_ns, number, block)
            agreement.kept(number, block, head[2], head[4])
            self._sender.send_own(number, block, out)
        for origin, number, block in start.orphans:
            if log.hold(origin, number, block):
                head = HEAD.unpack_from(block)
                # In the old ring its sender may have been a stranger.
                out.notes.append(Note("hold", origin, block, head=head))
                self._outgoing.keep(now_ns, origin, number, block, 0)
                agreement.answer_for(origin, number)
                self._delivery.arrived(origin, number, block, head[2], head[4])
                agreement.propose_from(origin)
                self._sender.send_to(self._table.others, origin, number, block, out)
        self._sender.submitted(now_ns)
        self._owed.tell_all = len(agreement.members) > 1

    def room(self, now_ns: int) -> tuple[int, int]:  # noqa: ARG002 - the contract
        ring, window = self._ring, self._window
        if ring.is_frozen or ring.has_left or self._leaving.is_asked:
            return 0, window.largest
        return window.room(window.share())

    def after(self) -> int:
        return self._delivery.delivered

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        """How many were taken: `room` counts bytes of messages, and many small blocks cost more than that."""
        ring, window = self._ring, self._window
        if ring.is_frozen or ring.has_left or self._leaving.is_asked:
            return 0  # nobody would wait for it
        taken, share = 0, window.share()
        for block in blocks:
            head = HEAD.unpack_from(block)
            if head[2] not in self.ranks:
                raise UnsupportedService(unsupported(Service(head[2], head[3])))
            if window.is_used_up(share):
                break
            number = window.take(now_ns, block, head, out)
            self._agreement.kept(number, block, head[2], head[4])
            self._sender.send_own(number, block, out)
            taken += 1
        self._sender.submitted(now_ns)
        return taken

    def consume(self, seq: int) -> None:
        self._delivery.consume(seq)

    def waits_for_application(self) -> bool:
        """Blocks are held back until the application has taken what it has."""
        return bool(self._agreement.held_back) and self._agreement.is_overrun

    def on_data(self, now_ns: int, origin: int, number: int, block: bytes, is_repair: bool, out: Outbox) -> None:
        """A whole block, from its sender or as a repair."""
        if is_repair:
            self._repairs.is_answered = True
        else:
            self.detector.heard(origin, now_ns)
        if origin != self._ring.me.id and not self._ring.has_left:
            self._agreement.take(origin, number, block, out)

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
            self.detector.heard(origin, now_ns)
        if origin == self._ring.me.id or self._ring.has_left:
            return
        if self._repairs.is_old(origin, number):
            self._agreement.on_old(origin, number)
            return
        block = self._repairs.add(now_ns, origin, number, segment, last, body)
        if block is not None:
            self._agreement.take(origin, number, block, out)

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None:
        """Everything else of the ordering kinds. Raises WireError on nonsense; the underlay counts it."""
        ring = self._ring
        if origin == ring.me.id:
            return
        self.detector.heard(origin, now_ns)
        if kind in (Kind.STAMPS, Kind.DECISION, Kind.SYNC):
            self._on_stamps(now_ns, origin, decode_stamps(body), out)
        elif kind == Kind.LIST:
            head, change = decode_list(body)
            stamps = decode_stamps(head)
            if not ring.has_left and number > ring.log.received:
                self._receiver.hold(GROUP_ORIGIN, number, change, out)
                self._receiver.assign(number, GROUP_ORIGIN, number, 1)
            self._on_stamps(now_ns, origin, stamps, out)
        elif kind == Kind.NAK:
            self._on_nak(source, origin, body, out)
        elif kind == Kind.ACCEPT:
            self._receiver.on_accept(body)
        elif kind == Kind.HELD:
            for sender, upto in decode_held(body)[1]:
                if self._agreement.answerer(sender) == ring.me.id:
                    self._outgoing.acknowledged(now_ns, upto, sender)
        elif kind == Kind.PROPOSE:
            _, operation, header = decode_propose(body)
            self._on_propose(origin, operation, header)
        elif kind != Kind.PROBE:  # which wants no answer
            ring.count("strange_kinds")

    def greet(self) -> None:
        """We are new: let the member that made the view hear us, so that it stops welcoming us."""
        self._owed.news.add(id_of(self._ring.view.creator))

    def propose(self, now_ns: int, change: Change) -> None:
        """Order a change like a message. A member's own leave waits for its own blocks."""
        if change.reason == Reason.EXPEL:
            self._expulsions.want(now_ns, change)
            self._timers.set(TimestampTimer.LEAVE, now_ns)
        elif self._leaving.takes(change):
            self._timers.set(TimestampTimer.LEAVE, now_ns)
        elif self._ring.is_first:
            self._ordering.propose(change)

    def learn(self, member: int, seq: int) -> None:
        self._table.learn(member, seq)

    def withdraw(self, member: int) -> None:
        self._ordering.changes.drop(join_key(member))

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        ring, log, agreement = self._ring, self._ring.log, self._agreement
        delivery, ordering = self._delivery, self._ordering
        if ring.is_frozen:
            return
        if agreement.held_back:
            agreement.release()
        if agreement.has_votes:
            agreement.decide(out)
        if ring.has_left:
            self._table.learn(ring.me.id, log.received)  # or nobody would hear that we know of our leave
        else:
            ordering.receive(now_ns, out)
        if delivery.fresh or delivery.delivered < log.received:
            ordering.deliver(out)
        if log.entries:
            if delivery.purge_safe():
                agreement.forget_stable()
            if agreement.held_back and not ring.has_left and not agreement.is_full():
                ordering.go_on(now_ns, out)
        if (ordering.changes or agreement.is_closing or agreement.is_draining) and not ring.has_left:
            ordering.change(now_ns, out)
        self._speaker.speak(now_ns, out)
        if not ring.has_left:
            self._catchup.look(now_ns, out)
        if ordering.watched_leaver != self._table.leaver:
            ordering.apply_view(now_ns)  # it knows that it has left, and may be silent from now on
        self.detector.work(self.is_busy, now_ns)
        self._timers.set_earlier(TimestampTimer.BEAT, now_ns + self.detector.heartbeat_ns)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._ring.is_frozen:
            return
        for timer in self._timers.due(now_ns):
            if timer is TimestampTimer.RETRANSMIT:
                if not self._ring.has_left:  # a member that was expelled had perhaps sent more than was ordered
                    self._sender.retransmit(now_ns, out)
            elif timer is TimestampTimer.AGAIN:
                self._catchup.acknowledge_again()
            elif timer is TimestampTimer.BEHIND:
                self._catchup.catch_up(now_ns)
            elif timer is TimestampTimer.BEAT:
                self._watch_application(now_ns)
                if now_ns - self._speaker.spoke_ns >= self.detector.heartbeat_ns:
                    self._ring.writer.next_via()
                    self._owed.tell_all = True
                    # A few heartbeats in a row may be lost by chance: members are asked before they are suspected.
                    self._owed.wants = self._owed.wants or self.detector.is_missing(now_ns)
            elif timer is TimestampTimer.LEAVE:
                self._ask_for_changes(now_ns, out)
            elif timer is TimestampTimer.LAG:
                self._ordering.ask_again()
        self._catchup.send_naks(now_ns, out)

    def deadline_ns(self) -> int:
        if self._ring.is_frozen:
            return NEVER
        # Silence is looked at with every heartbeat of our own, which is often enough to suspect.
        return min(self._timers.deadline_ns(), self._repairs.deadline_ns())

    def suspects(self, now_ns: int) -> list[Suspicion]:
        """Members that have been silent for too long, or did not acknowledge ten tries."""
        ring, outgoing = self._ring, self._outgoing
        if ring.is_frozen or ring.has_left:
            return []
        found = dict.fromkeys(self.detector.suspects(now_ns), SuspicionReason.SILENCE)
        if outgoing.is_exhausted:
            for key, each in outgoing.unordered.items():
                if each.tries > ring.timing.tries:
                    for member in self._agreement.lacking(key):
                        found.setdefault(member, SuspicionReason.NO_ACKNOWLEDGEMENT)
        return [Suspicion(member, why) for member, why in found.items() if member != ring.me.id]

    def blocked_by(self, now_ns: int) -> Waiting | None:
        return timestamp_blocked_by(
            now_ns, self._ring, self._delivery, self.detector, self._outgoing, self._agreement, self._catchup.full
        )

    @property
    def is_busy(self) -> bool:
        """Whether anything is outstanding: heartbeats are frequent while it is."""
        ring, log = self._ring, self._ring.log
        return bool(
            self._outgoing.unordered
            or log.entries
            or log.blocks
            or log.received < log.highest
            or self._leaving.is_asked
            or (self._ordering.changes and ring.is_first)
            or ring.has_left
            or self._repairs.is_wanted(False)
        )

    def standing(self) -> Standing:
        """The first member orders changes; no other member has a part of its own."""
        ring, leaving, leads = self._ring, self._leaving, self._ring.is_first
        is_settled = self._table.safe >= ring.view.seq
        may_go = ring.has_left and is_settled
        leavers = leaving.leavers(self._table)
        return Standing(leads, leads, leads, ring.view.leader, leaving.is_retired, is_settled, may_go, leavers)

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
        self._delivery.recover(upto, out)
        self.abandon(out)

    def leftovers(self) -> list[tuple[int, bytes]]:
        return self._recovery.leftovers()

    def undelivered(self) -> int:
        return self._recovery.undelivered(self._delivery.delivered)

    def abandon(self, out: Outbox) -> None:
        """This node is out of the ring: what was missing is no gap any more."""
        out.notes.extend(self._repairs.close())

    # What comes in

    def _on_stamps(self, now_ns: int, origin: int, stamps: Stamps, out: Outbox) -> None:
        ring, log, view, table = self._ring, self._ring.log, self._ring.view, self._table
        is_member = view.member(origin) is not None
        if stamps.highest > log.received + log.ahead or stamps.view > log.received + log.ahead:
            ring.count("strange_stamps")
            return
        if not is_member and origin != table.leaver and stamps.view <= view.seq:
            if origin not in view.prior:
                ring.count("strange_stamps")
            return
        if not is_member and origin != table.leaver:
            self._on_newcomer(origin, stamps, out)
            return
        table.merge(stamps.view, stamps.rows)
        if ring.has_left:
            return
        self._catchup.heard_received(now_ns, origin, stamps)
        for decided in stamps.decisions:
            self._agreement.on_decided(decided, out)
        if is_member:
            self._catchup.hear_of_application(origin, stamps.flags)
            if stamps.flags & WANTS or (not self.is_busy and min(stamps.rows, default=0) < table.safe):
                self._owed.news.add(origin)  # it waits to hear what we have, and have forgotten about perhaps
            if stamps.flags & HURRIES and stamps.view >= view.seq:  # and not for a change that is here already
                self._agreement.is_hurried = True  # until the next view
                self._agreement.is_pressed |= bool(stamps.flags & EXPELS)
            member = view.member(origin) if stamps.flags & SLOW and ring.is_first else None
            if member is not None:
                self._ordering.propose(eviction(ring, member))
            self._catchup.heard_sent(now_ns, origin, stamps)
        if stamps.acks:
            self._agreement.on_acked(origin, stamps)

    def _on_newcomer(self, origin: int, stamps: Stamps, out: Outbox) -> None:
        """It is in a view that is not here yet, as it says: what it has acknowledged and decided there is kept."""
        for decided in stamps.decisions:
            if decided.view > self._ring.view.seq:
                self._agreement.on_decided(decided, out)
        if stamps.acks:
            self._agreement.on_acked(origin, stamps)

    def _on_nak(self, source: Address, origin: int, body: memoryview, out: Outbox) -> None:
        ring = self._ring
        acks, _, missing = decode_nak(body)
        if acks.received <= ring.log.received:
            self._table.learn(origin, acks.received)
        self._window.note_losses(missing)
        member = ring.view.member(origin)
        to = member.address if member is not None else source
        assignments = send_repairs(ring, self._repairs, to, missing, out)
        if assignments:
            send_assignments(ring, to, known_lead(ring, self._delivery.safe), assignments, out)

    def _on_propose(self, origin: int, operation: int, header: bytes) -> None:
        ring, member = self._ring, self._ring.view.member(origin)
        if not ring.is_first or member is None:
            return
        if operation == Reason.LEAVE:
            self._ordering.propose(Change(Reason.LEAVE, member, header))
        elif operation == Reason.EXPEL:
            target, seq, serial, text = decode_expulsion(header)
            expelled = ring.view.member(target)
            if expelled is not None:
                change = Change(Reason.EXPEL, expelled, text, seq, serial=serial)
                if is_current(ring, change):
                    self._ordering.propose(change)

    # What goes out

    def _watch_application(self, now_ns: int) -> None:
        """With each heartbeat: blocks wait for our word because our application is behind. Where that lasts, we say so
        with our heartbeats, and the first member evicts us. It evicts itself."""
        ring, agreement = self._ring, self._agreement
        is_blocking = bool(agreement.held_back) and agreement.is_overrun and len(ring.view.members) > 1
        overdue = self._slow.look(now_ns, {ring.me.id: self._delivery.oldest} if is_blocking else {})
        self._owed.is_slow = bool(overdue) and not ring.has_left
        if self._owed.is_slow and ring.is_first:
            self._ordering.propose(eviction(ring, ring.me))

    def _ask_for_changes(self, now_ns: int, out: Outbox) -> None:
        """Expulsions, and our own leave."""
        ring = self._ring
        for change in self._expulsions.due(now_ns):
            if ring.is_first:
                self._ordering.propose(change)
            else:
                header = encode_expulsion(change.member.id, change.next_block, change.serial, change.header)
                body = encode_propose(self._speaker.acks(), Reason.EXPEL, header)
                out.sends.append(ring.writer.control(ring.view.leader.address, Kind.PROPOSE, body))
        self._timers.set(TimestampTimer.LEAVE, self._expulsions.due_ns)
        self._ask_to_leave(now_ns, out)

    def _ask_to_leave(self, now_ns: int, out: Outbox) -> None:
        ring, change = self._ring, self._leaving.request()
        if change is None:
            return
        self._timers.set(TimestampTimer.LEAVE, now_ns + REPEAT_NS)
        if self._outgoing.unordered:
            self._timers.set(TimestampTimer.LEAVE, now_ns + LOOK_NS)
            if now_ns - self._speaker.spoke_ns >= REPEAT_NS:
                self._owed.hurries = self._owed.tell_all = True
        elif ring.is_first:
            self._ordering.propose(change)
        else:
            body = encode_propose(self._speaker.acks(), Reason.LEAVE, change.header)
            out.sends.append(ring.writer.control(ring.view.leader.address, Kind.PROPOSE, body))


def unsupported(service: Service) -> str:
    given = "RELIABLE, FIFO, AGREED, RESILIENT(k), MAJORITY and SAFE"
    return f"the timestamp orderer gives {given}, not {service}"
