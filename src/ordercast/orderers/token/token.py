"""RMP's rotating token site. Paper sections 4.2, 4.3 and 4.6; docs/design/token.md has states, datagrams and timers.

Every member runs this class, and each is token site in its turn: it assigns sequence numbers to what it holds, tells
everybody by one TOKEN (the paper's ACK), and with it passes the token on. Here is what members say to each other; the
work of the token site is in `ordering.py`. Deviations, with their reasons, stand in the design note.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ordercast.config import GroupConfig, Timing
from ordercast.engine import NEVER, Change, Note, Outbox, To, Waiting
from ordercast.errors import UnsupportedService, WireError
from ordercast.orderers.logged.changes import join_key
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.expelling import eviction
from ordercast.orderers.logged.leaving import LOOK_NS, Leaving
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.recovery import LogRecovery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.orderer import Standing, Start, Suspicion, Usage
from ordercast.orderers.token.acknowledging import TokenAcknowledger
from ordercast.orderers.token.blocking import token_blocked_by
from ordercast.orderers.token.calls import OutsideCalls
from ordercast.orderers.token.naks import TokenNaks
from ordercast.orderers.token.ordering import TokenOrdering
from ordercast.orderers.token.pending import ChangeRequests
from ordercast.orderers.token.rotation import Rotation
from ordercast.orderers.token.sending import TokenSender
from ordercast.orderers.token.timers import TokenTimer
from ordercast.orderers.token.vigilance import Vigilance
from ordercast.parts.detector import Detector
from ordercast.parts.log import Log
from ordercast.parts.memory import DeliveryMemory
from ordercast.parts.timers import Timers
from ordercast.service import RANK_NAMES, RESILIENT_RANK, UNRELIABLE_RANK, Service
from ordercast.view import GROUP_ORIGIN, Address, Member, View, id_of
from ordercast.wire.block import CALLED, FRAGMENTED, HEAD
from ordercast.wire.header import Kind
from ordercast.wire.ordering import Assignment, decode_acks, decode_held
from ordercast.wire.token import (
    NOTED,
    OVERDUE,
    WAITS,
    State,
    decode_change,
    decode_list,
    decode_state,
    decode_token,
)
from ordercast.wire.views import Cut, Proposal
from ordercast.wire.writer import DatagramWriter


class Token:
    """The orderer of one ring. A new ring (after a failure) takes a new object; changes without failure do not."""

    gives_locks: ClassVar[bool] = True
    ranks: ClassVar[frozenset[int]] = frozenset(range(len(RANK_NAMES)))

    __slots__ = (
        "_acknowledger",
        "_calls",
        "_delivery",
        "_leaving",
        "_naks",
        "_ordering",
        "_outgoing",
        "_receiver",
        "_recovery",
        "_repairs",
        "_requests",
        "_ring",
        "_rotation",
        "_sender",
        "_table",
        "_timers",
        "_vigilance",
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
        """`counter` is the highest view counter that this node has used: none is used twice (section 3.1)."""
        ring = self._ring = RingState(me, writer, config, timing, view, next_block, counter, counters)
        self._receiver = Receiver(ring, RESILIENT_RANK)
        self._repairs = self._receiver.repairs
        self._window = SendWindow(ring)
        self._outgoing = self._window.outgoing
        self._delivery = ServiceDelivery(ring, self._window, RESILIENT_RANK)
        self._table = self._delivery.table
        self._recovery = LogRecovery(ring, self._receiver, self._outgoing)
        self._leaving = Leaving(ring)
        self.detector = Detector(timing)
        self._timers: Timers[TokenTimer] = Timers()
        self._rotation = Rotation(ring, self._table, self._timers)
        self._sender = TokenSender(ring, self._delivery, self._window, self._rotation, self._timers)
        self._requests = ChangeRequests(view, timing, ring.rtt)
        self._naks = TokenNaks(ring, self._repairs, self._delivery, self._window, self._rotation)
        self._vigilance = Vigilance(ring, self.detector, self._rotation, self._outgoing, self._naks, self._requests)
        self._calls = OutsideCalls(
            ring, self._receiver, self._delivery, self._window, self._rotation, self._timers, self._vigilance
        )
        self._ordering = TokenOrdering(
            ring,
            self._receiver,
            self._delivery,
            self._window,
            self._leaving,
            self.detector,
            self._timers,
            self._rotation,
            self._sender,
            self._requests,
            self._calls.pending,
        )
        self._acknowledger = TokenAcknowledger(ring, self._rotation, self._requests)

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
    def calls(self) -> OutsideCalls:
        return self._calls

    def take_views(self) -> list[View]:
        return self._ring.take_views() if self._ring.applied else []

    def usage(self) -> Usage:
        log = self._ring.log
        return Usage(log.unstable_bytes + self._delivery.backlog, len(log.entries))

    def memory(self) -> DeliveryMemory:
        return self._delivery.memory()

    # Inputs

    def install(self, now_ns: int, start: Start, out: Outbox) -> None:
        """Begin work in the view. Which blocks are awaited is in the view, since any member may order a join."""
        ring, rotation, outgoing = self._ring, self._rotation, self._outgoing
        self._delivery.inherit(start.memory)
        self._ordering.apply_view(now_ns)
        for number, block in start.backlog:
            self._sender.keep_again(now_ns, number, block, out)
        for origin, number, block in start.orphans:
            if ring.log.hold(origin, number, block):
                out.notes.append(Note("hold", origin, block))  # in the old ring its sender may have been a stranger
                self._sender.send_orphan(origin, number, block, out)
                if origin in ring.callers:
                    # We do not answer for it: the caller sends again itself, or has gone on without it.
                    self._calls.wait(now_ns, origin, number, False)
                else:
                    self._sender.ready[origin] = None
                    outgoing.keep(now_ns, origin, number, block, 0)
        if outgoing.unordered:
            self._timers.set(TokenTimer.RETRANSMIT, outgoing.deadline_ns(now_ns))
        if rotation.site == ring.me.id:
            rotation.is_holding = True
            rotation.is_hurried = True  # the new list's first ACK (section 4.4)
            if len(ring.view.members) > 1:
                rotation.sync_now = True

    def room(self, now_ns: int) -> tuple[int, int]:
        """What the window (section 4.6) leaves, unless UNRELIABLE blocks hold us up."""
        ring, window = self._ring, self._window
        if ring.is_frozen or ring.has_left or self._leaving.is_asked:
            return 0, window.largest
        share = window.share()
        room, largest = window.room(share)
        return 0 if self._sender.must_pause(now_ns, share) else room, largest

    def after(self) -> int:
        return self._delivery.delivered

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        """How many were taken: `room` counts bytes of messages, and many small blocks cost more than that."""
        ring, window, sender = self._ring, self._window, self._sender
        if ring.is_frozen or ring.has_left or self._leaving.is_asked:
            return 0  # nobody would wait for it
        taken, share = 0, window.share()
        for block in blocks:
            head = HEAD.unpack_from(block)
            if head[2] not in self.ranks:
                raise UnsupportedService(f"the token orderer gives all services, not {Service(head[2], head[3])}")
            if window.is_used_up(share):
                break
            if head[2] == UNRELIABLE_RANK and not head[4] & FRAGMENTED:
                if self._delivery.is_overrun():
                    break  # our own application gets it at once, and has not taken what it has
                sender.send_unreliable(now_ns, block, head, out)
            else:
                number = window.take(now_ns, block, head, out)
                sender.kept(number, block, head)
                sender.send_own(number, block, out, head)
            taken += 1
        if self._outgoing.unordered:
            self._timers.set_earlier(TokenTimer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))
        return taken

    def consume(self, seq: int) -> None:
        self._delivery.consume(seq)

    def waits_for_application(self) -> bool:
        """The token is here, or own blocks wait, and goes on when the application has taken what it has."""
        return self._delivery.is_overrun()

    def on_data(self, now_ns: int, origin: int, number: int, block: bytes, is_repair: bool, out: Outbox) -> None:
        """A whole block, from its sender or as a repair."""
        if is_repair:
            self._repairs.is_answered = True
        else:
            self.detector.heard(origin, now_ns)
        if origin != self._ring.me.id and not self._ring.has_left:
            self._take(now_ns, origin, number, block, out)

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
            self._acknowledger.on_old(origin, number)
            return
        block = self._repairs.add(now_ns, origin, number, segment, last, body)
        if block is not None:
            self._take(now_ns, origin, number, block, out)

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None:
        """Everything else of the ordering kinds. Raises WireError on nonsense; the underlay counts it."""
        ring, me = self._ring, self._ring.me.id
        if origin == me:
            return
        self.detector.heard(origin, now_ns)
        if kind == Kind.TOKEN:
            state, assignments = decode_token(body)
            self._on_token(now_ns, origin, state, assignments)
        elif kind == Kind.ORDERED:
            token, block = decode_list(body)
            state, assignments = decode_token(token)
            if not assignments:
                raise WireError("a block without a sequence number")
            _, sender, first, count = assignments[-1]
            if sender != me and not ring.has_left and not self._repairs.is_old(sender, first + count - 1):
                self._take(now_ns, sender, first + count - 1, block, out)
            self._on_token(now_ns, origin, state, assignments)
        elif kind == Kind.REQUEST:
            self._on_request(now_ns, origin, number, bytes(body), out)
        elif kind == Kind.LIST:
            token, change = decode_list(body)
            state, assignments = decode_token(token)
            if not ring.has_left:
                self._receiver.hold(GROUP_ORIGIN, state.highest, change, out)
            self._on_token(now_ns, origin, state, assignments)
        elif kind in (Kind.SYNC, Kind.CONFIRM):
            self._on_sync(now_ns, origin, decode_state(body)[0])
        elif kind == Kind.NAK:
            self._naks.on_nak(source, origin, body, out)
        elif kind == Kind.ACCEPT:
            self._receiver.on_accept(body)
        elif kind == Kind.UNRELIABLE:
            self._sender.on_unreliable(origin, number, bytes(body), out)
        elif kind == Kind.STATUS:
            self._acknowledger.on_status(origin, body, out)
        elif kind == Kind.ACK:
            self._sender.pacer.acked(now_ns, origin, decode_acks(body).received, self._table.others)
        elif kind == Kind.HELD:
            for sender, upto in decode_held(body)[1]:
                if sender == me:
                    self._outgoing.acknowledged(now_ns, upto)
        elif kind == Kind.PROPOSE:
            self._requests.on_propose(now_ns, ring, origin, decode_change(body))
        elif kind != Kind.PROBE:  # which wants no answer
            ring.count("strange_kinds")

    def greet(self) -> None:
        """We are new: let the member that made the view hear us. It sends us the token again if we have missed it."""
        self._rotation.behind[id_of(self._ring.view.creator)] = None

    def propose(self, now_ns: int, change: Change) -> None:
        """Ask for a change, or sponsor a newcomer's. A member's own leave waits for its own blocks."""
        if self._leaving.takes(change):
            self._timers.set(TokenTimer.LEAVE, now_ns)
        else:
            self._requests.ask(now_ns, change)

    def learn(self, member: int, seq: int) -> None:
        self._table.learn(member, seq)

    def withdraw(self, member: int) -> None:
        self._requests.drop(join_key(member))

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        # Hot: once per pass, and a pass is all that a single message gets; `bench` shows it as latency one at a time.
        ring, ordering, delivery, rotation = self._ring, self._ordering, self._delivery, self._rotation
        if ring.is_frozen:
            return
        log = ring.log
        if log.assignments:
            ordering.advance(now_ns, out)
        if not ring.has_left:
            ordering.take_turn(now_ns, out)
        else:
            self._table.learn(ring.me.id, log.received)  # or nobody would hear that we know of our leave
        if delivery.fresh or delivery.delivered < log.received:
            delivery.deliver(out)
        if log.entries:
            delivery.purge_safe()
            if rotation.is_holding and not log.entries and self._requests.pending:
                ordering.take_turn(now_ns, out)  # what has just become safe held up a change
                delivery.deliver(out)
        if rotation.sync_now or rotation.behind or self._requests.due_ns <= now_ns:
            self._requests.speak(now_ns, ring, rotation.is_holding, out)
            rotation.speak(now_ns, out)
        if self._acknowledger.held or self._requests.noted:
            self._acknowledger.speak(out)
        if not ring.has_left and self._repairs.is_wanted(rotation.is_holding):
            out.notes.extend(self._repairs.look(now_ns, rotation.is_holding))
        if ordering.watched_leaver != self._table.leaver:
            ordering.apply_view(now_ns)  # it knows that it has left, and may be silent from now on
        self._vigilance.work(now_ns, self.is_busy)
        self._timers.set_earlier(TokenTimer.BEAT, now_ns + self.detector.heartbeat_ns)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._ring.is_frozen:
            return
        for timer in self._timers.due(now_ns):
            if timer is TokenTimer.CONFIRM:
                self._rotation.confirm(out)
            elif timer is TokenTimer.NULL:
                self._rotation.is_hurried = True
            elif timer is TokenTimer.TOKEN:
                self._rotation.pass_again(now_ns, out)
            elif timer is TokenTimer.RETRANSMIT:
                if not self._ring.has_left:  # a member that was expelled had perhaps sent more than was ordered
                    self._sender.retransmit(now_ns, out)
            elif timer is TokenTimer.BEAT:
                self._vigilance.watch_application(now_ns, self._delivery)
                if now_ns - self._rotation.spoke_ns >= self.detector.heartbeat_ns:
                    self._rotation.sync_now = True
            elif timer is TokenTimer.CALLS:
                self._calls.expire(now_ns)
            elif timer is TokenTimer.LEAVE:
                self._ask_to_leave(now_ns)
        self._naks.send(now_ns, out)

    def deadline_ns(self) -> int:
        if self._ring.is_frozen:
            return NEVER
        # Silence is looked at with every heartbeat of our own, which is often enough to suspect.
        return min(self._timers.deadline_ns(), self._repairs.deadline_ns(), self._requests.due_ns)

    def suspects(self, now_ns: int) -> list[Suspicion]:
        return self._vigilance.suspects(now_ns)

    def blocked_by(self, now_ns: int) -> Waiting | None:
        return token_blocked_by(
            now_ns,
            self._ring,
            self._delivery,
            self.detector,
            self._rotation,
            self._outgoing,
            self._requests,
            self._naks,
        )

    @property
    def is_busy(self) -> bool:
        """Whether anything is outstanding in the ring itself."""
        log, rotation = self._ring.log, self._rotation
        return bool(
            self._outgoing.unordered
            or log.entries
            or log.blocks
            or log.received < log.highest
            or rotation.passed is not None
            or rotation.named_at >= 0
            or self._requests.pending
            or self._leaving.is_asked
            or self._ring.has_left
        )

    def standing(self) -> Standing:
        """No member leads here; the first one answers for the ring to newcomers and to other rings."""
        ring, rotation, leaving = self._ring, self._rotation, self._leaving
        # Every member has the last change: a ring that dissolves may end, a leaver may go (section 4.3).
        is_settled = self._table.safe >= ring.view.seq
        return Standing(
            ring.view.leader.id == ring.me.id,
            rotation.is_site,
            not ring.has_left,
            ring.me,
            leaving.is_retired,
            is_settled,
            ring.has_left and rotation.passed is None and is_settled,
            leaving.leavers(self._table),
            self._vigilance.is_stalled,
        )

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

    def _take(self, now_ns: int, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """A whole block has come."""
        ring = self._ring
        head = self._receiver.hold(origin, number, block, out)
        if head is None:
            self._acknowledger.on_old(origin, number)
        elif origin in ring.callers or (head.flags & CALLED and ring.view.member(origin) is None):
            self._calls.wait(now_ns, origin, number, False)
        else:
            self._sender.ready[origin] = None
            self._delivery.arrived(origin, number, block, head.rank, head.flags)

    def _on_request(self, now_ns: int, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """A sender takes us for the token site, and has told nobody else."""
        ring = self._ring
        if ring.has_left or self._repairs.is_old(origin, number):
            self._acknowledger.on_old(origin, number)
            return
        self._take(now_ns, origin, number, block, out)
        if self._rotation.is_site:
            self._sender.only_here[origin, number] = None
        elif ring.view.member(origin) is not None:
            out.sends.append(ring.writer.block(To.ALL, Kind.REPAIR, origin, number, block))

    def _on_token(self, now_ns: int, origin: int, state: State, assignments: list[Assignment]) -> None:
        """The token site has ordered blocks and passed the token on."""
        ring, rotation = self._ring, self._rotation
        if rotation.is_holding and state.turn > rotation.turn:
            ring.count("strange_tokens")  # the token is here, and nobody else can pass it
            return
        if ring.has_left:
            self._on_state(now_ns, origin, state)
            return
        if state.highest <= ring.log.received + ring.log.ahead:
            for assignment in assignments:
                self._receiver.assign(*assignment)
        if (
            state.site == ring.me.id
            and state.turn <= rotation.turn
            and (rotation.is_holding or state.turn < rotation.turn)
            and not rotation.is_under_way(now_ns, origin)
        ):
            rotation.behind[origin] = None  # it repeats its pass: our word that the token is here was lost
        self._on_state(now_ns, origin, state)

    def _on_state(self, now_ns: int, origin: int, state: State) -> None:
        """What anybody knows of the token and of what each member holds."""
        ring, log, table, rotation = self._ring, self._ring.log, self._table, self._rotation
        if ring.view.member(origin) is None and origin != table.leaver and origin not in ring.view.prior:
            ring.count("strange_tokens")  # of nobody, or of a newcomer whose join is not here: others will say it too
            return
        if state.highest > log.received + log.ahead or (rotation.is_holding and state.turn > rotation.turn):
            ring.count("strange_tokens")
            return
        if state.flags & WAITS:
            self._vigilance.on_waiting(now_ns)
        if state.flags & OVERDUE and not ring.has_left:
            member = ring.view.member(origin)
            if member is not None:
                self._requests.ask(now_ns, eviction(ring, member))
        rotation.hear_of_application(origin, state.flags)
        if table.merge(state.view, state.rows):
            rotation.announced = max(rotation.announced, min(state.rows, default=0))
        if not ring.has_left:
            log.highest = max(log.highest, state.highest)
        rotation.follow(now_ns, origin, state)

    def _on_sync(self, now_ns: int, origin: int, state: State) -> None:
        self._on_state(now_ns, origin, state)
        if state.flags & NOTED:
            self._requests.acknowledged(now_ns)
        ring, table, rotation = self._ring, self._table, self._rotation
        if ring.view.member(origin) is None and origin != table.leaver:
            pass  # it has left
        elif rotation.is_holding and state.view == table.view.seq and min(state.rows, default=0) < rotation.announced:
            rotation.behind[origin] = None  # what is safe has been said, and not heard there
        elif state.turn < rotation.turn and (rotation.is_holding or rotation.is_missed_by(now_ns, origin)):
            rotation.behind[origin] = None

    # What goes out

    def _ask_to_leave(self, now_ns: int) -> None:
        change = self._leaving.request()
        if change is None:
            return
        if self._outgoing.unordered:
            self._timers.set(TokenTimer.LEAVE, now_ns + LOOK_NS)
        else:
            self._requests.ask(now_ns, change)
