"""Amoeba's sequencer. Paper sections 4.1 and 4.2; docs/design/sequencer.md has states, datagrams and timers.

Every member runs this class; `self.lead` is the paper's flag that makes one of them the sequencer. The log, delivery
and recovery are in `keeper.py`; here is what members and sequencer say to each other. Deviations, with their reasons,
stand in the design note: blocks instead of messages, STATUS at half the history, one change at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import IntEnum, auto
from typing import ClassVar, Final

from ordercast.config import MS, GroupConfig, Timing
from ordercast.engine import NEVER, Change, Note, Outbox, To
from ordercast.errors import InvariantViolation, UnsupportedService
from ordercast.orderers.logged.keeper import Keeper
from ordercast.orderers.orderer import Standing, Start, Suspicion, SuspicionReason
from ordercast.orderers.sequencer.role import SequencerRole, ackers
from ordercast.parts.changes import next_view
from ordercast.parts.log import DATAGRAM_OVERHEAD, runs_of
from ordercast.parts.memory import DeliveryMemory
from ordercast.parts.share import MIN_BLOCK, ceiling_of, largest_block
from ordercast.parts.timers import Timers
from ordercast.service import AGREED_RANK, FIFO_RANK, RELIABLE_RANK, RESILIENT_RANK, SAFE_RANK, Service
from ordercast.view import GROUP_ORIGIN, Address, Member, Reason, View, next_counter
from ordercast.wire.block import HEAD, come_after
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.ordering import (
    ACKS,
    ORDERED_PREFIX,
    Acks,
    Lead,
    Missing,
    decode_accept,
    decode_acks,
    decode_held,
    decode_lead,
    decode_nak,
    decode_ordered,
    decode_propose,
    encode_accept,
    encode_acks,
    encode_held,
    encode_lead,
    encode_nak,
    encode_ordered,
    encode_propose,
)
from ordercast.wire.views import pack_change
from ordercast.wire.writer import DatagramWriter

PB_LIMIT: Final = 16_384  # bytes of a block up to which method 1 is used; measured, see the design note
STATUSES_OWED: Final = 8
WANT_NS: Final = 2 * MS
PROPOSE_NS: Final = 100 * MS


class Timer(IntEnum):  # its members are keys of a table on the hot path: an int hashes in C
    QUIET = auto()  # delta t: acknowledge although nothing was sent
    BEAT = auto()
    RETRANSMIT = auto()
    TAIL = auto()  # the sequencer: somebody may have missed the last accept
    WANT = auto()  # no room: ask the sequencer for a status round
    PROPOSE = auto()  # ask for our own leave


class Sequencer(Keeper):
    """The orderer of one ring. A new ring (after a failure) takes a new object; joins and leaves do not."""

    gives_locks: ClassVar[bool] = False
    ranks: ClassVar[frozenset[int]] = frozenset((RELIABLE_RANK, FIFO_RANK, AGREED_RANK, RESILIENT_RANK, SAFE_RANK))

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
        super().__init__(me, config, timing, view, next_block, counters)
        self._writer = writer
        self._config = config
        self._timing = timing
        self._counter = max(counter, view.counter)
        self.lead: SequencerRole | None = None
        self.is_retired = False  # we led and our own leave, or the dissolution, is ordered
        # Sending
        self._active = 0
        self._ceiling = 0
        self._largest = MIN_BLOCK
        self._leave_header: bytes | None = None
        self._want_ns = WANT_NS
        # Acknowledging
        self._acked = Acks(view.seq, view.seq)
        self._ack_now = False
        self._owed: deque[int] = deque(maxlen=STATUSES_OWED)
        self._held_due: dict[int, int] = {}  # origin -> k
        # origin -> (k, what was acknowledged): behind that there is more, but for a hole or a place still to come
        self._held_later: dict[int, tuple[int, int]] = {}
        self._spoke_ns = 0
        # Leading
        self._announced = Lead(view.seq, view.seq, view.seq, 0)
        self._sync_now = False
        self._watched: list[int] = []
        self._former: Member | None = None  # who led before
        # The rest
        self._timers: Timers[Timer] = Timers()

    # Inputs

    def install(self, now_ns: int, start: Start, out: Outbox) -> None:
        """Begin work in the view. Nothing was delivered without a sequence number: no memory is needed."""
        self._apply_view(now_ns)
        for number, block in start.backlog:
            self._keep_own(now_ns, number, block)
        if self.lead is not None:
            self.lead.awaited = dict(start.awaited)
            for origin, number, block in start.orphans:
                if self.log.hold(origin, number, block):
                    out.notes.append(Note("hold", origin, block))  # in the old ring its sender may have been a stranger
                    self.lead.ready[origin] = None
                    self._outgoing.keep(now_ns, origin, number, block, 0)
            self._send_status(now_ns, out)
        self._resend(now_ns, out)

    def room(self, now_ns: int) -> tuple[int, int]:
        """Amoeba blocks the sender; so does a window that is used up. Small remainders count as none: they would
        make small blocks."""
        if self.is_frozen or self.is_retired or self._leave_header is not None:
            return 0, self._largest
        window = self._window()
        left = window - self._outgoing.bytes
        used = self._outgoing.count
        if used and (left < min(self._largest, window // 4) or used >= 2 * self._config.history_blocks):
            self._timers.set_earlier(Timer.WANT, now_ns + self._want_ns)
            return 0, self._largest
        self._want_ns = WANT_NS
        self._timers.clear(Timer.WANT)
        body = self._config.datagram - HEADER_BYTES
        room = left * body // (body + DATAGRAM_OVERHEAD)
        return room if used else max(room, self._largest), self._largest

    def waits_for_application(self) -> bool:
        """Others wait for us to consume: they asked, or the history that we hold up fills."""
        return bool(self._owed) or self.log.unstable_bytes > self._ceiling // 4

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        for block in blocks:
            rank, k = HEAD.unpack_from(block)[2:4]
            if rank not in self.ranks:
                raise UnsupportedService(unsupported(Service(rank, k)))
            number = self.next_block
            self.next_block = number + 1
            block = come_after(block, self.delivered)
            self._keep_own(now_ns, number, block)
            out.notes.append(Note("hold", self.me.id, block))
            self._send_own(number, block, out)
        if blocks:
            self._timers.set_earlier(Timer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))
        return len(blocks)

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None:
        """Everything else of the ordering kinds. Raises WireError on nonsense; the underlay counts it."""
        if origin == self.me.id:
            return
        self._detector.heard(origin, now_ns)
        if self.lead is not None and not self.is_frozen and kind in (Kind.ACCEPT, Kind.ORDERED):
            self._count("strange_leads")  # who gives places is not told them
        elif kind == Kind.ACCEPT:
            lead, assignments = decode_accept(body)
            for placed in assignments:
                self._assign(*placed)
            self._on_lead(lead)
        elif kind == Kind.ORDERED:
            lead, seq, from_, block = decode_ordered(body)
            if from_ != self.me.id and not self._repairs.is_old(from_, number):
                self._take(now_ns, from_, number, bytes(block), out)
            self._assign(seq, from_, number, 1)
            self._on_lead(lead)
        elif kind == Kind.REQUEST:
            self._on_acks(origin, decode_acks(body))
            if self._take(now_ns, origin, number, bytes(body[ACKS.size :]), out) and self.lead is not None:
                self.lead.requests.add((origin, number))
        elif kind == Kind.SYNC:
            self._on_lead(decode_lead(body))
            if origin != self.view.leader.id:
                # It led until its own leave, and goes when it knows that all have it. Another may have multicast this
                # for it.
                former = self._former
                to = former.address if former is not None and former.id == origin else source
                out.sends.append(self._writer.control(to, Kind.ACK, encode_acks(self._acks())))
            if self.has_left:
                self._ack_now = True  # we have left, and the sequencer waits to hear that we know
        elif kind == Kind.STATUS:
            lead = decode_lead(body)
            if self.lead is not None:
                if not self.is_retired:
                    self._send_status(now_ns, out)  # a member without room asks for a round
            else:
                self._on_lead(lead)
                self._owed.append(lead.highest)
        elif kind == Kind.ACK:
            self._on_ack(source, origin, decode_acks(body), out)
        elif kind == Kind.NAK:
            acks, _, missing = decode_nak(body)
            self._on_acks(origin, acks)
            self._repair(source, missing, out)
        elif kind == Kind.HELD:
            acks, holding = decode_held(body)
            self._on_acks(origin, acks)
            self._on_held(now_ns, origin, holding)
        elif kind == Kind.PROPOSE:
            acks, operation, header = decode_propose(body)
            self._on_acks(origin, acks)
            self._on_propose(source, origin, operation, header, out)

    def greet(self) -> None:
        """We are new: let the sequencer hear us at once, so that it stops welcoming us."""
        self._ack_now = True

    def propose(self, now_ns: int, change: Change) -> None:
        """Order a change like a message. A member's own leave waits for its own blocks."""
        if change.reason == Reason.LEAVE and change.member.id == self.me.id:
            self._leave_header = change.header
            self._timers.set(Timer.PROPOSE, now_ns)
        elif self.lead is not None:
            if self.lead.is_leaving(change.member.id):
                self.lead.forget(change.member.id)  # it comes back: it has seen its own leave
            self.lead.propose(change)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        if self.is_frozen:
            return
        if self.lead is not None and not self.is_retired:
            self._order(now_ns, out)
        self._advance(now_ns, out)
        self._deliver(out)
        if self.lead is not None:
            self._led(now_ns, out)
        else:
            self._follow(now_ns, out)
        if not self.has_left:
            out.notes.extend(self._repairs.look(now_ns, self.lead is not None))
        self._detector.work(self.is_busy, now_ns)
        self._timers.set_earlier(Timer.BEAT, now_ns + self._detector.heartbeat_ns)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self.is_frozen:
            return
        for timer in self._timers.due(now_ns):
            if timer is Timer.QUIET:
                self._ack_now = True
            elif timer is Timer.BEAT:
                self._beat(now_ns)
            elif timer is Timer.RETRANSMIT:
                self._retransmit(now_ns, out)
            elif timer is Timer.TAIL:
                self._writer.next_via()
                self._sync_now = True
            elif timer is Timer.WANT:
                self._want(now_ns, out)
            elif timer is Timer.PROPOSE:
                self._propose_leave(now_ns, out)
        self._send_naks(now_ns, out)

    def deadline_ns(self) -> int:
        if self.is_frozen:
            return NEVER
        # Silence is looked at with every heartbeat of our own, which is often enough to suspect.
        return min(self._timers.deadline_ns(), self._repairs.deadline_ns())

    def suspects(self, now_ns: int) -> list[Suspicion]:
        """Who has been silent for too long, or did not answer ten tries."""
        if self.is_frozen:
            return []
        silent = self._detector.suspects(now_ns)
        found = [Suspicion(member, SuspicionReason.SILENCE) for member in silent]
        if self._outgoing.is_exhausted and self.lead is None and self.view.leader.id not in silent:
            found.append(Suspicion(self.view.leader.id, SuspicionReason.NO_ACKNOWLEDGEMENT))
        return found

    @property
    def is_busy(self) -> bool:
        """Whether anything is outstanding: heartbeats are frequent while it is."""
        log = self.log
        return bool(
            self._outgoing.unordered
            or log.entries
            or log.blocks
            or log.received < log.highest
            or self._leave_header is not None
            or (self.lead is not None and self.lead.changes)
        )

    # What comes in

    def _take(self, now_ns: int, origin: int, number: int, block: bytes, out: Outbox) -> bool:  # noqa: ARG002
        """A whole block has come; whether it is new."""
        head = self._hold(origin, number, block, out)
        if head is None:
            self._on_old(origin, number)
            return False
        if self.lead is not None:
            self.lead.ready[origin] = None
        elif head.rank == RESILIENT_RANK and origin != GROUP_ORIGIN:
            self._held_due[origin] = max(head.k, self._held_due.get(origin, 0))
        return True

    def _on_old(self, origin: int, number: int) -> None:
        """Somebody sends again what we have: our word about it was lost, or its place has to wait."""
        self._count("duplicates")
        block = self.log.blocks.get((origin, number))
        if block is not None:
            _, _, rank, k, _, _ = HEAD.unpack_from(block)
            if self.lead is not None or rank == RESILIENT_RANK:
                self._held_due[origin] = max(k, self._held_due.get(origin, 0))
        elif self.lead is not None and origin != GROUP_ORIGIN:
            self._sync_now = True

    def _on_lead(self, lead: Lead) -> None:
        log = self.log
        if self.lead is not None:
            return
        if lead.highest > log.received + log.ahead:
            self._count("strange_leads")
            return
        log.highest = max(log.highest, lead.highest)
        self._active = lead.active
        self.safe = max(self.safe, lead.safe)
        if lead.stable > log.stable:
            self._purge(lead.stable)

    # Views

    def standing(self) -> Standing:
        lead = self.lead
        if lead is None:
            return Standing(False, False, False, self.view.leader, self.is_retired, True, False)
        is_settled = not lead.others or lead.safe >= lead.last_change
        leavers = tuple(lead.leavers.values())
        return Standing(True, True, True, self.view.leader, self.is_retired, is_settled, is_settled, leavers)

    @property
    def calls(self) -> None:
        """This orderer takes no calls from outside."""

    def memory(self) -> DeliveryMemory:
        """Nothing is delivered here without a sequence number."""
        return DeliveryMemory()

    @property
    def departed(self) -> list[int]:
        """Who left and is known to know it."""
        return sorted(self.lead.departed) if self.lead is not None else []

    def freeze(self) -> None:
        super().freeze()
        self._timers.clear_all()

    def _on_view(self, now_ns: int, old: View, out: Outbox) -> None:
        view = self.view
        self._counter = max(self._counter, view.counter)
        self._ack_now = True
        if view.leader.id != old.leader.id and self.me.id != old.leader.id:
            # The leaver serves repairs until it knows that all have its leave.
            self._former = old.leader
            out.sends.append(self._writer.control(old.leader.address, Kind.ACK, encode_acks(self._acks())))
        if self.has_left:
            self._watch(now_ns)
            self.abandon(out)
            return
        self._apply_view(now_ns)
        if view.leader.id != old.leader.id:
            self._resend(now_ns, out)
        if self.lead is None:
            for (origin, _), block in self.log.blocks.items():
                # Who acknowledges RESILIENT blocks depends on the view.
                rank, k = HEAD.unpack_from(block)[2:4]
                if rank == RESILIENT_RANK:
                    self._held_due[origin] = max(k, self._held_due.get(origin, 0))

    def _apply_view(self, now_ns: int) -> None:
        """Roles and bounds that follow from the current view."""
        view, me = self.view, self.me.id
        self._ceiling = ceiling_of(view, self._config)
        self._largest = largest_block(self._ceiling, len(view.members), self._config)
        if view.leader.id == me and self.lead is None:
            # After a reset all members have acknowledged the result; after the old sequencer's leave nothing is known.
            known = self.log.stable if view.reason == Reason.LEAVE else view.seq
            self.lead = SequencerRole(view, me, known, view.seq)
            self.log.highest = self.log.received
            self.lead.ready.update(dict.fromkeys(self.log.next_number))
            self._sync_now = True
        self._watch(now_ns)

    def _watch(self, now_ns: int) -> None:
        if self.has_left or self.is_retired:
            self._detector.watch([], now_ns)
        elif self.lead is not None:
            self._watched = self.lead.others
            self._detector.watch(self._watched, now_ns)
        else:
            self._detector.watch([self.view.leader.id], now_ns)

    # The sequencer's part

    def _order(self, now_ns: int, out: Outbox) -> None:
        """Give places to what is ready, then to the next change."""
        lead, log, me = self.lead, self.log, self.me.id
        if lead is None:
            return
        runs: list[tuple[int, int, int]] = []
        is_alone = not lead.others  # nobody listens but newcomers, for whom their join is the beginning
        lead.is_blocked = False
        if lead.is_held_up(self._last_safe_seq):
            return
        limit_blocks = 2 * self._config.history_blocks
        for origin in list(lead.ready):
            while (block := lead.next_block(log, self.view, me, origin, self._ceiling, limit_blocks)) is not None:
                number, seq = log.next_number[origin], log.received + 1
                log.assign(seq, origin, number)
                self._advance(now_ns, out)
                if log.received != seq:
                    raise InvariantViolation("the sequencer lacks a block that it gave a place")
                lead.ordered(origin, block, log.entries[seq].cost)
                if is_alone:
                    lead.requests.discard((origin, number))
                elif (origin, number) in lead.requests:
                    lead.requests.discard((origin, number))
                    prefix = encode_ordered(self._lead_info(), seq, origin)
                    out.sends.append(self._writer.ordered(To.ALL, number, prefix, block))
                    self._spoke_ns = now_ns
                else:
                    runs.append((seq, origin, number))
            if lead.is_blocked:
                break
            if (origin, log.next_number.get(origin, -1)) not in log.blocks:
                del lead.ready[origin]
        if runs:
            self._accept(now_ns, runs, out)
        if self._outgoing.has_orphans or lead.is_held_up(self._last_safe_seq):
            return
        change = lead.next_change(log)
        if change is not None:
            self._order_change(now_ns, lead, change, out)

    def _accept(self, now_ns: int, assignments: list[tuple[int, int, int]], out: Outbox) -> None:
        body = encode_accept(self._lead_info(), runs_of(assignments))
        out.sends.append(self._writer.control(To.ALL, Kind.ACCEPT, body))
        self._spoke_ns = now_ns

    def _order_change(self, now_ns: int, lead: SequencerRole, change: Change, out: Outbox) -> None:
        log, seq = self.log, self.log.received + 1
        counter = next_counter(self._counter, now_ns)
        view = next_view(
            self.view, change, counter, self._config.max_members, seq, log.position, log.next_number, {}, self.me
        )
        if view is None:
            return
        block = pack_change(view)
        log.hold(GROUP_ORIGIN, seq, block)
        log.assign(seq, GROUP_ORIGIN, seq)
        lead.last_change = seq
        if change.reason == Reason.JOIN:
            lead.admit(change.member.id, seq)
        elif change.reason == Reason.LEAVE and change.member.id != self.me.id:
            lead.dismiss(change.member, seq)
        else:
            self.is_retired = True
        self._advance(now_ns, out)
        if self._fits_with_seq(block):
            prefix = encode_ordered(self._lead_info(), seq, GROUP_ORIGIN)
            out.sends.append(self._writer.ordered(To.ALL, seq, prefix, block))
        else:
            out.sends.append(self._writer.block(To.ALL, Kind.REPAIR, GROUP_ORIGIN, seq, block))
            self._accept(now_ns, [(seq, GROUP_ORIGIN, seq)], out)
        self._spoke_ns = now_ns

    def _led(self, now_ns: int, out: Outbox) -> None:
        """After a batch, as the sequencer: stability, status rounds, who waits for our word."""
        lead, log = self.lead, self.log
        if lead is None:
            return
        lead.acknowledge(self.me.id, log.received, self.consumed, log.received)
        self.safe = max(self.safe, lead.safe)
        stable = lead.stable
        if stable > log.stable:
            self._purge(stable)
        if (lead.is_blocked or lead.changes) and not self.is_retired:
            self._order(now_ns, out)
        self._deliver(out)
        if lead.since_bytes >= self._ceiling // 2 or lead.since_blocks >= self._config.history_blocks:
            self._send_status(now_ns, out)
        elif self._sync_now or self._has_news():
            self._sync(now_ns, out)
        if self._held_due:
            self._tell_senders(out)
        if lead.safe < log.received:
            if not self._timers.is_set(Timer.TAIL):
                self._timers.set(Timer.TAIL, now_ns + 2 * self._timing.ack_quiet_ns)
        else:
            self._timers.clear(Timer.TAIL)
        if lead.others is not self._watched:
            self._watch(now_ns)

    def _has_news(self) -> bool:
        """Whether others wait for what only we know: safety that frees deliveries, stability that frees windows."""
        log, told = self.log, self._announced
        if told.safe < self._last_safe_seq and self.safe > told.safe:
            return True
        return log.stable > told.stable and (self._freed_bytes >= self._ceiling // 8 or log.stable == log.received)

    def _send_status(self, now_ns: int, out: Outbox) -> None:
        lead = self.lead
        if lead is None:
            return
        lead.since_bytes = lead.since_blocks = 0
        self._spoke_ns = now_ns
        if lead.others:
            out.sends.append(self._writer.control(To.ALL, Kind.STATUS, encode_lead(self._lead_info())))

    def _sync(self, now_ns: int, out: Outbox) -> None:
        self._sync_now = False
        self._spoke_ns = now_ns
        if self.lead is not None and self.lead.others:
            out.sends.append(self._writer.control(To.ALL, Kind.SYNC, encode_lead(self._lead_info())))

    def _lead_info(self) -> Lead:
        log = self.log
        self._freed_bytes = 0
        active = len(log.active) - (GROUP_ORIGIN in log.active)
        self._active = active
        self._announced = Lead(log.received, log.stable, min(self.safe, log.received), active)
        return self._announced

    def _tell_senders(self, out: Outbox) -> None:
        """To senders that send again what waits here for its place: we have it."""
        for origin in self._held_due:
            member = self.view.member(origin)
            if member is not None:
                body = encode_held(self._acks(), [(origin, self.log.reach(origin))])
                out.sends.append(self._writer.control(member.address, Kind.HELD, body))
        self._held_due.clear()

    def _on_acks(self, origin: int, acks: Acks) -> None:
        if self.lead is not None and not self.lead.acknowledge(origin, acks.received, acks.consumed, self.log.received):
            self._count("strange_acks")

    def _on_ack(self, source: Address, origin: int, acks: Acks, out: Outbox) -> None:
        if self.lead is None:
            return
        self._on_acks(origin, acks)
        if self.lead.row(origin) is None:
            out.sends.append(self._writer.control(source, Kind.LEFT, encode_lead(self._lead_info())))

    def _on_held(self, now_ns: int, origin: int, holding: list[tuple[int, int]]) -> None:
        if self.lead is not None:
            row = self.lead.row(origin)
            for sender, upto in holding:
                if row is not None and sender in self.log.next_number:
                    row.held[sender] = max(row.held.get(sender, 0), upto)
                    self.lead.ready[sender] = None
            return
        for sender, upto in holding:
            if sender == self.me.id:
                self._outgoing.acknowledged(now_ns, upto)

    def _on_propose(self, source: Address, origin: int, operation: int, header: bytes, out: Outbox) -> None:
        if self.lead is None or operation != Reason.LEAVE:
            return
        member = self.view.member(origin)
        if member is not None:
            self.lead.propose(Change(Reason.LEAVE, member, header))
        elif self.lead.row(origin) is None:
            out.sends.append(self._writer.control(source, Kind.LEFT, encode_lead(self._lead_info())))

    # The member's part

    def _follow(self, now_ns: int, out: Outbox) -> None:
        """After a batch, as a member: acknowledge what is owed."""
        owed = self._owed
        while owed and self.consumed >= owed[0]:
            owed.popleft()
            self._ack_now = True
        if self._last_safe_seq > self._acked.received:
            self._ack_now = True  # others wait to deliver it
        for origin, (k, reach) in list(self._held_later.items()):
            if self.log.reach(origin) > reach:
                del self._held_later[origin]
                self._held_due[origin] = max(k, self._held_due.get(origin, 0))
        if self._held_due:
            self._send_held(now_ns, out)
        if self._ack_now:
            self._to_leader(now_ns, Kind.ACK, encode_acks(self._acks()), out)
        elif (owed or self._acks() != self._acked) and not self._timers.is_set(Timer.QUIET):
            self._timers.set(Timer.QUIET, now_ns + self._timing.ack_quiet_ns)

    def _send_held(self, now_ns: int, out: Outbox) -> None:
        """Acknowledge what is held with all that it may depend on; the rest when that has come."""
        view, log = self.view, self.log
        holding = []
        for origin, k in self._held_due.items():
            if self.me.id in ackers(view, view.leader.id, origin, k):
                reach = log.reach(origin)
                holding.append((origin, reach))
                if any(sender == origin and number >= reach for sender, number in log.blocks):
                    self._held_later[origin] = (k, reach)
        self._held_due.clear()
        if holding:
            self._to_leader(now_ns, Kind.HELD, encode_held(self._acks(), holding), out)

    def _to_leader(self, now_ns: int, kind: Kind, body: bytes, out: Outbox) -> None:
        out.sends.append(self._writer.control(self.view.leader.address, kind, body))
        self._told(now_ns)

    def _told(self, now_ns: int) -> None:
        """The sequencer has just been told how far we are."""
        self._acked = self._acks()
        self._ack_now = False
        self._spoke_ns = now_ns
        self._timers.clear(Timer.QUIET)

    def _acks(self) -> Acks:
        return Acks(self.log.received, self.consumed)

    def _beat(self, now_ns: int) -> None:
        """Say something if nothing was said for an interval."""
        if now_ns - self._spoke_ns < self._detector.heartbeat_ns:
            return
        if self.lead is not None:
            # Who multicasts for us may be gone. All others watch us: they must not take us for silent with it.
            self._writer.next_via()
            self._sync_now = True
        else:
            self._ack_now = True

    def _want(self, now_ns: int, out: Outbox) -> None:
        """Still no room: have the sequencer ask everybody, for it may see no reason of its own."""
        if not self._outgoing.count:
            return
        self._want_ns = min(2 * self._want_ns, self._timing.heartbeat_busy_ns)
        if self.lead is not None:
            self._send_status(now_ns, out)
        else:
            lead = Lead(self.log.received, self.log.stable, self.log.stable, 0)
            self._to_leader(now_ns, Kind.STATUS, encode_lead(lead), out)
            self._ack_now = True

    # Own blocks

    def _window(self) -> int:
        """What of the ceiling is ours: an equal share with all who are sending.

        Who is not counted among them yet begins with so little that all could do the same at once.
        """
        if self.me.id in self.log.active:
            return self._ceiling // max(1, self._active)
        return max(self._ceiling // (2 * len(self.view.members)), self._largest)

    def _keep_own(self, now_ns: int, number: int, block: bytes) -> None:
        if not self.log.hold(self.me.id, number, block):
            raise InvariantViolation(f"own block {number} is not the next of this ring")
        self._outgoing.keep(now_ns, self.me.id, number, block, self.log.cost(block))

    def _send_own(self, number: int, block: bytes, out: Outbox) -> None:
        """Method 1 or method 2; to the sequencer itself there is nothing to send but what others must have."""
        if self.lead is not None:
            self.lead.ready[self.me.id] = None
            if not self.lead.others:
                return
            if not is_resilient(block) and self._fits_with_seq(block):
                self.lead.requests.add((self.me.id, number))
                return
        elif not is_resilient(block) and len(block) <= PB_LIMIT and self._fits_with_seq(block):
            prefix = encode_acks(self._acks())
            out.sends.append(self._writer.prefixed(self.view.leader.address, Kind.REQUEST, number, prefix, block))
            self._acked = self._acks()
            self._timers.clear(Timer.QUIET)  # the acknowledgement rides on the request
            return
        out.sends.append(self._writer.block(To.ALL, Kind.DATA, self.me.id, number, block))

    def _send_orphan(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """In the name of a sender that is gone: with its place if it can have one at once, else ahead of it."""
        if self.lead is not None and not is_resilient(block) and self._fits_with_seq(block):
            self.lead.requests.add((origin, number))
        else:
            out.sends.append(self._writer.block(To.ALL, Kind.REPAIR, origin, number, block))

    def _fits_with_seq(self, block: bytes) -> bool:
        return HEADER_BYTES + ORDERED_PREFIX + len(block) <= self._config.datagram

    def _resend(self, now_ns: int, out: Outbox) -> None:
        """There is a new sequencer: it has to hear of everything that has no place yet."""
        outgoing = self._outgoing
        outgoing.restart(now_ns)
        for (origin, number), each in outgoing.unordered.items():
            if origin == self.me.id:
                self._send_own(number, each.block, out)
            else:
                self._send_orphan(origin, number, each.block, out)
        if outgoing.unordered:
            self._timers.set(Timer.RETRANSMIT, outgoing.deadline_ns(now_ns))

    def _retransmit(self, now_ns: int, out: Outbox) -> None:
        self._writer.next_via()
        for origin, number, block in self._outgoing.due(now_ns):
            if self.lead is not None and not is_resilient(block):
                continue  # it waits for room in the history, not for the network
            self._count("retransmissions")
            if origin != self.me.id:
                self._send_orphan(origin, number, block, out)
            elif is_resilient(block) or len(block) <= PB_LIMIT:
                self._send_own(number, block, out)
            else:
                leader = self.view.leader.address
                out.sends.append(self._writer.block(leader, Kind.REPAIR, origin, number, block))
        if self._outgoing.unordered:
            self._timers.set(Timer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))

    def _propose_leave(self, now_ns: int, out: Outbox) -> None:
        if self._leave_header is None or self.has_left:
            return
        self._timers.set(Timer.PROPOSE, now_ns + PROPOSE_NS)
        if self._outgoing.has_own:
            self._timers.set(Timer.PROPOSE, now_ns + PROPOSE_NS // 10)
        elif self.lead is not None:
            self.lead.propose(Change(Reason.LEAVE, self.me, self._leave_header))
        else:
            self._to_leader(now_ns, Kind.PROPOSE, encode_propose(self._acks(), Reason.LEAVE, self._leave_header), out)

    # Gaps and repairs

    def _send_naks(self, now_ns: int, out: Outbox) -> None:
        """Ask for what has been missing for too long: members the sequencer, the sequencer the senders."""
        assignments = self._repairs.due_seqs(now_ns)
        if assignments and self.lead is None:
            self._to_leader(now_ns, Kind.NAK, encode_nak(self._acks(), assignments), out)
        for origin, blocks in self._repairs.due_blocks(now_ns).items():
            member = self.view.member(origin)
            if member is not None:
                body = encode_nak(self._acks(), blocks)
                out.sends.append(self._writer.control(member.address, Kind.NAK, body))

    def _repair(self, to: Address, missing: list[Missing], out: Outbox) -> None:
        """Send what somebody lacks: places with their blocks, or blocks of ours."""
        blocks, assignments = self._repairs.answer(missing)
        for origin, number, block, first, stop in blocks:
            self._count("repairs")
            out.sends.append(self._writer.repair(to, origin, number, block, first, stop))
        if assignments:
            lead = self._lead_info() if self.lead is not None else self._known_lead()
            out.sends.append(self._writer.control(to, Kind.ACCEPT, encode_accept(lead, runs_of(assignments))))

    def _known_lead(self) -> Lead:
        log = self.log
        return Lead(log.received, log.stable, min(self.safe, log.received), self._active)


def is_resilient(block: bytes) -> bool:
    return bool(HEAD.unpack_from(block)[2] == RESILIENT_RANK)


def unsupported(service: Service) -> str:
    return f"the sequencer orderer does not give {service}; it gives RELIABLE, FIFO, AGREED, RESILIENT(k) and SAFE"
