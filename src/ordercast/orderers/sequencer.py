"""Amoeba's sequencer. Paper sections 4.1 and 4.2; docs/design/sequencer.md has states, datagrams and timers.

Every member runs this class; `self.lead` is the paper's flag that makes one of them the sequencer. Deviations, with
their reasons, stand in the design note: blocks instead of messages, STATUS at half the history, one change at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from ordercast.config import MAX_BLOCK, MS, GroupConfig, MinMembers, Timing
from ordercast.engine import NEVER, Change, Delivery, Note, Outbox, Run, To
from ordercast.errors import InvariantViolation, UnsupportedService, WireError
from ordercast.orderers.leading import Leading, ackers
from ordercast.parts.detector import Detector
from ordercast.parts.gaps import Gaps
from ordercast.parts.log import Entry, Log, runs_of
from ordercast.parts.rtt import RoundTrip
from ordercast.parts.timers import Timers
from ordercast.service import AGREED_RANK, FIFO_RANK, RELIABLE_RANK, RESILIENT_RANK, SAFE_RANK, Service
from ordercast.view import GROUP_ORIGIN, Address, Member, Reason, View, next_counter
from ordercast.wire.block import CHANGE, FRAGMENTED, HEAD, come_after, head_of
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.mail import Mail
from ordercast.wire.ordering import (
    ACKS,
    MAX_MISSING,
    ORDERED_PREFIX,
    Acks,
    Lead,
    Missing,
    Placed,
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
from ordercast.wire.segments import Reassembly
from ordercast.wire.views import Cut, Proposal, open_change, pack_change

RANKS: Final = frozenset((RELIABLE_RANK, FIFO_RANK, AGREED_RANK, RESILIENT_RANK, SAFE_RANK))

PB_LIMIT: Final = 4_096  # bytes of a block up to which method 1 is used; measured, see the design note
REPAIRS_PER_NAK: Final = 64  # blocks sent for one NAK; what is missing still is asked for again
RETRANSMIT_AT_ONCE: Final = 16
STATUSES_OWED: Final = 8
MIN_BLOCK: Final = 512
WANT_NS: Final = 2 * MS
PROPOSE_NS: Final = 100 * MS


class Timer(Enum):
    QUIET = auto()  # delta t: acknowledge although nothing was sent
    BEAT = auto()
    RETRANSMIT = auto()
    TAIL = auto()  # the sequencer: somebody may have missed the last accept
    WANT = auto()  # no room: ask the sequencer for a status round
    PROPOSE = auto()  # ask for our own leave


class Own:
    """A block of ours that has no place yet."""

    __slots__ = ("block", "sent_ns", "tries")

    def __init__(self, block: bytes, sent_ns: int) -> None:
        self.block = block
        self.sent_ns = sent_ns
        self.tries = 0


class Sequencer:
    """The orderer of one ring. A new ring (after a failure) takes a new object; joins and leaves do not."""

    def __init__(
        self, me: Member, mail: Mail, config: GroupConfig, timing: Timing, view: View, next_block: int, counter: int
    ) -> None:
        """`counter` is the highest view counter that this node has used: none is used twice (RMP section 3.1)."""
        self.me = me
        self._counter = max(counter, view.counter)
        self._mail = mail
        self._config = config
        self._timing = timing
        # The ring
        self.view = view  # as of what is received
        self.lead: Leading | None = None
        self.is_frozen = False
        self.is_retired = False  # we led and our own leave, or the dissolution, is ordered
        self.has_left = False  # our log ends here, with our own leave or with the ring
        self.changed: list[View] = []  # views that were applied since the underlay last took them
        # The log
        ahead = 4 * config.history_blocks + 1_024
        self.log = Log(view.seq, view.position, view.numbers, ahead, config.datagram - HEADER_BYTES)
        self.delivered = view.seq
        self.consumed = view.seq
        self.safe = view.seq
        self._partial = Reassembly(config.datagram)
        self._noted = 0  # places up to here were reported as placed before they were received (recovery)
        self._whole_upto: dict[int, int] = {}  # origin -> numbers below it are reported as held (fragments)
        # Sending
        self.next_block = next_block
        self._own: dict[int, Own] = {}
        self._orphans: dict[tuple[int, int], Own] = {}  # blocks of gone senders, which we submit as the coordinator
        self._own_unstable: dict[int, int] = {}  # number -> cost, until stable
        self._own_bytes = 0
        self._active = 0
        self._ceiling = 0
        self._largest = MIN_BLOCK
        self._rtt = RoundTrip(timing.retransmit_ns, timing.retransmit_max_ns)
        self._leave_header: bytes | None = None
        self._is_exhausted = False
        self._want_ns = WANT_NS
        # Acknowledging
        self._acked = Acks(view.seq, view.seq)
        self._ack_now = False
        self._owed: deque[int] = deque(maxlen=STATUSES_OWED)
        self._held_due: dict[int, int] = {}  # origin -> k
        self._spoke_ns = 0
        self._gaps: Gaps[int] = Gaps(timing.nak_delay_ns, timing.nak_retry_ns)
        self._block_gaps: Gaps[tuple[int, int]] = Gaps(timing.nak_delay_ns, timing.nak_retry_ns)
        # Leading
        self._announced = Lead(view.seq, view.seq, view.seq, 0)
        self._freed_bytes = 0
        self._last_safe_place = 0
        self._sync_now = False
        # The rest
        self._detector = Detector(timing)
        self._timers: Timers[Timer] = Timers()
        self.counters: dict[str, int] = {}

    # Inputs

    def install(
        self,
        now_ns: int,
        backlog: Sequence[tuple[int, bytes]],
        orphans: Sequence[tuple[int, int, bytes]],
        out: Outbox,
    ) -> None:
        """Begin work in the view. `backlog`: own blocks without a place; `orphans`: blocks of senders that are gone."""
        self._apply_view(now_ns)
        for number, block in backlog:
            self._keep_own(now_ns, number, block)
        if self.lead is not None:
            for origin, number, block in orphans:
                if not self.log.hold(origin, number, block):
                    continue
                self.lead.ready[origin] = None
                self._orphans[origin, number] = Own(block, now_ns)
                self._send_orphan(origin, number, block, out)
            self._send_status(now_ns, out)
        self._resend_own(now_ns, out)

    def room(self, now_ns: int) -> tuple[int, int]:
        """Amoeba blocks the sender; so does a window that is used up. Small remainders count as none: they would
        make small blocks."""
        if self.is_frozen or self.is_retired or self._leave_header is not None:
            return 0, self._largest
        window = self._window()
        left = window - self._own_bytes
        if self._own_unstable and (
            left < min(self._largest, window // 4) or len(self._own_unstable) >= self._config.history_blocks
        ):
            self._timers.set_earlier(Timer.WANT, now_ns + self._want_ns)
            return 0, self._largest
        self._want_ns = WANT_NS
        return left, self._largest

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        for block in blocks:
            rank, k = HEAD.unpack_from(block)[2:4]
            if rank not in RANKS:
                raise UnsupportedService(unsupported(Service(rank, k)))
            number = self.next_block
            self.next_block = number + 1
            block = come_after(block, self.delivered)
            self._keep_own(now_ns, number, block)
            out.notes.append(Note("hold", self.me.id, block))
            self._send_own(number, block, out)
        if blocks:
            self._timers.set_earlier(Timer.RETRANSMIT, now_ns + self._rtt.timeout_ns(0))
        return len(blocks)

    def consume(self, seq: int) -> None:
        self.consumed = max(self.consumed, min(seq, self.delivered))
        self._skip_changes()

    def on_data(self, now_ns: int, origin: int, number: int, block: bytes, is_repair: bool, out: Outbox) -> None:
        """A whole block, from its sender or as a repair."""
        if not is_repair:
            self._detector.heard(origin, now_ns)
        if origin != self.me.id and not self.has_left:
            self._hold(origin, number, block, out)

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
        if not is_repair:
            self._detector.heard(origin, now_ns)
        if origin == self.me.id or self.has_left:
            return
        if self._is_old(origin, number):
            self._on_old(origin, number)
            return
        block = self._partial.add((origin, number, 0), segment, last, body)
        if block is not None:
            self._hold(origin, number, block, out)

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None:
        """Everything else of the ordering kinds. Raises WireError on nonsense; the underlay counts it."""
        if origin == self.me.id:
            return
        self._detector.heard(origin, now_ns)
        if kind == Kind.ACCEPT:
            lead, places = decode_accept(body)
            for placed in places:
                self._place(*placed)
            self._on_lead(lead)
        elif kind == Kind.ORDERED:
            lead, seq, from_, block = decode_ordered(body)
            if from_ != self.me.id and not self._is_old(from_, number):
                self._hold(from_, number, bytes(block), out)
            self._place(seq, from_, number, 1)
            self._on_lead(lead)
        elif kind == Kind.REQUEST:
            self._on_acks(origin, decode_acks(body))
            if self._hold(origin, number, bytes(body[ACKS.size :]), out) and self.lead is not None:
                self.lead.requests.add((origin, number))
        elif kind == Kind.SYNC:
            self._on_lead(decode_lead(body))
            if origin != self.view.leader.id:
                # It led until its own leave, and goes when it knows that all have it.
                out.sends.append(self._mail.control(source, Kind.ACK, encode_acks(self._acks())))
            if self.has_left:
                self._ack_now = True  # we have left, and the sequencer waits to hear that we know
        elif kind == Kind.STATUS:
            lead = decode_lead(body)
            if self.lead is not None:
                self._send_status(now_ns, out)  # a member without room asks for a round
            else:
                self._on_lead(lead)
                self._owed.append(lead.highest)
        elif kind == Kind.ACK:
            self._on_ack(source, origin, decode_acks(body), out)
        elif kind == Kind.NAK:
            acks, missing = decode_nak(body)
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
        self._find_gaps(now_ns, out)
        self._detector.work(self.is_busy, now_ns)
        self._timers.set_earlier(Timer.BEAT, self._spoke_ns + self._detector.heartbeat_ns)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self.is_frozen:
            return
        for timer in self._timers.due(now_ns):
            if timer is Timer.QUIET:
                self._ack_now = True
            elif timer is Timer.BEAT:
                self._beat(now_ns, out)
            elif timer is Timer.RETRANSMIT:
                self._retransmit(now_ns, out)
            elif timer is Timer.TAIL:
                self._sync_now = True
            elif timer is Timer.WANT:
                self._want(now_ns, out)
            elif timer is Timer.PROPOSE:
                self._propose_leave(now_ns, out)
        self._complain(now_ns, out)

    def deadline_ns(self) -> int:
        if self.is_frozen:
            return NEVER
        return min(
            self._timers.deadline_ns(),
            self._gaps.deadline_ns(),
            self._block_gaps.deadline_ns(),
            self._detector.deadline_ns(),
        )

    def suspects(self, now_ns: int) -> list[int]:
        """Who has been silent for too long, or did not answer ten tries."""
        if self.is_frozen:
            return []
        found = self._detector.suspects(now_ns)
        if self._is_exhausted and self.lead is None and self.view.leader.id not in found:
            found.append(self.view.leader.id)
        return found

    @property
    def is_busy(self) -> bool:
        """Whether anything is outstanding: heartbeats are frequent while it is."""
        log = self.log
        return bool(
            self._own
            or log.entries
            or log.blocks
            or log.received < log.highest
            or self._leave_header is not None
            or (self.lead is not None and self.lead.changes)
        )

    @property
    def is_settled(self) -> bool:
        """As the leader: everybody has the last change (a leaver may go, a ring may begin the next change)."""
        return self.lead is None or not self.lead.others(self.me.id) or self.lead.safe >= self.lead.last_change

    # Recovery: what the membership asks of any orderer

    def freeze(self) -> None:
        """Failures only: stop ordering, delivering and acknowledging."""
        self.is_frozen = True
        self._timers.clear_all()

    def cut(self, rule: MinMembers, accepted: Proposal | None) -> Cut:
        """What is held and placed here."""
        log = self.log
        places = tuple(log.placed_runs(log.received + 1, log.highest + 1))
        safe = min(self.safe, log.received)
        return Cut(log.received, safe, places, tuple(log.held_runs()), self.view, rule, accepted)

    def adopt(self, upto: int, places: Sequence[Placed]) -> list[int]:
        """Learn the places of the agreed remainder, forget contrary ones; what is missing here."""
        known = self.log.places
        for seq, origin, number, count in places:
            for offset in range(max(0, self.log.received + 1 - seq), count):
                known[seq + offset] = (origin, number + offset)
        return self.lacking(upto)

    def lacking(self, upto: int) -> list[int]:
        """The places up to and including `upto` whose place or block is missing here."""
        places, blocks = self.log.places, self.log.blocks
        return [seq for seq in range(self.log.received + 1, upto + 1) if places.get(seq) not in blocks]

    def note_remainder(self, upto: int, out: Outbox) -> None:
        """Everything up to `upto` is held here and its place agreed, although it is not delivered yet."""
        position = self.log.position
        for seq in range(self.log.received + 1, upto + 1):
            origin, number = self.log.places[seq]
            block = self.log.blocks[origin, number]
            if seq > self._noted and origin != GROUP_ORIGIN:
                out.notes.append(Note("placed", origin, block, position))
            position += HEAD.unpack_from(block)[1]
        self._noted = max(self._noted, upto)

    def recover(self, upto: int, out: Outbox) -> None:
        """Deliver the agreed remainder of the old ring, up to and including `upto`; places beyond it are void."""
        log = self.log
        for seq in [seq for seq in log.places if seq > upto]:
            del log.places[seq]
        self._advance(0, out)
        if log.received != upto:
            raise InvariantViolation(f"recovery was to reach place {upto} and reached {log.received}")
        self.safe = upto
        self._deliver(out)
        self._close_gaps(out)

    def leftovers(self) -> list[tuple[int, bytes]]:
        """Own blocks that never got a place, in order: they are submitted again under the same numbers."""
        return [(number, self._own[number].block) for number in sorted(self._own)]

    def undelivered(self) -> int:
        """The lowest number of an own block that was not delivered here."""
        me = self.me.id
        placed = [e.number for e in self.log.entries.values() if e.origin == me and e.seq > self.delivered]
        return min([*self._own, *placed], default=self.next_block)

    def abandon(self, out: Outbox) -> None:
        """This node is out of the ring: what was open stays open for ever, and is no gap any more."""
        self._close_gaps(out)

    # Holding and placing

    def _hold(self, origin: int, number: int, block: bytes, out: Outbox) -> bool:
        head = head_of(block)
        if bool(head.flags & CHANGE) != (origin == GROUP_ORIGIN):
            raise WireError("a change that is not the group's")
        if origin == GROUP_ORIGIN:
            open_change(block)  # raises here what would break us later
        if not self.log.hold(origin, number, block):
            self._on_old(origin, number)
            return False
        if origin != GROUP_ORIGIN:
            if not head.flags & FRAGMENTED:
                out.notes.append(Note("hold", origin, block))
            self._report_whole(origin, out)
            if self.lead is not None:
                self.lead.ready[origin] = None
            elif head.rank == RESILIENT_RANK:
                self._held_due[origin] = max(head.k, self._held_due.get(origin, 0))
        return True

    def _report_whole(self, origin: int, out: Outbox) -> None:
        """A message in fragments is held when its last fragment and all before it are."""
        log = self.log
        number = max(self._whole_upto.get(origin, 0), log.next_number.get(origin, 0))
        while (block := log.blocks.get((origin, number))) is not None:
            if HEAD.unpack_from(block)[4] & FRAGMENTED:
                out.notes.append(Note("hold", origin, block))
            number += 1
        self._whole_upto[origin] = number

    def _is_old(self, origin: int, number: int) -> bool:
        if origin == GROUP_ORIGIN:
            return number <= self.log.received
        return number < self.log.next_number.get(origin, 0) or (origin, number) in self.log.blocks

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

    def _place(self, seq: int, origin: int, number: int, count: int) -> None:
        if not self.log.place(seq, origin, number, count):
            self._count("bad_places")

    def _on_lead(self, lead: Lead) -> None:
        log = self.log
        if self.lead is not None:
            return
        if log.highest < lead.highest <= log.received + 8 * self._config.history_blocks:
            log.highest = lead.highest
        self._active = lead.active
        self.safe = max(self.safe, lead.safe)
        if lead.stable > log.stable:
            self._purge(lead.stable)

    def _purge(self, stable: int) -> None:
        me = self.me.id
        for entry in self.log.purge(min(stable, self.consumed)):
            self._freed_bytes += entry.cost
            if entry.origin == me:
                self._own_bytes -= self._own_unstable.pop(entry.number, 0)

    def _advance(self, now_ns: int, out: Outbox) -> None:
        if self.has_left:
            return
        me = self.me.id
        for entry in self.log.advance():
            if entry.is_change:
                self._apply_change(now_ns, entry, out)
                if self.has_left:
                    break  # what follows is not for us, and must never be acknowledged in our name
                continue
            if entry.seq > self._noted:
                out.notes.append(Note("placed", entry.origin, entry.block, entry.position))
            if entry.rank == SAFE_RANK:
                self._ack_now = True
                self._last_safe_place = entry.seq
            if entry.origin == me:
                own = self._own.pop(entry.number, None)
                if own is not None and not own.tries and now_ns:
                    self._rtt.sample(now_ns - own.sent_ns)
                self._is_exhausted = False
            elif self._orphans:
                self._orphans.pop((entry.origin, entry.number), None)

    def _deliver(self, out: Outbox) -> None:
        entries = self.log.entries
        run: list[Delivery] = []
        seq = self.delivered + 1
        received, safe = self.log.received, self.safe
        while seq <= received:
            entry = entries[seq]
            if entry.rank == SAFE_RANK and seq > safe:
                break
            if entry.is_change:
                if run:
                    out.upcalls.append(Run(run))
                    run = []
                out.upcalls.append(open_change(entry.block))
            else:
                run.append(Delivery(seq, entry.position, entry.origin, entry.number, entry.block))
            seq += 1
        self.delivered = seq - 1
        if run:
            out.upcalls.append(Run(run))
        self._skip_changes()

    def _skip_changes(self) -> None:
        """Nobody consumes a view."""
        entries = self.log.entries
        while self.consumed < self.delivered and entries[self.consumed + 1].is_change:
            self.consumed += 1

    # Views

    def _apply_view(self, now_ns: int) -> None:
        """Roles and bounds that follow from the current view."""
        view, me = self.view, self.me.id
        smallest = min((member.buffer_bytes for member in view.members if member.buffer_bytes), default=0)
        history = self._config.history_bytes
        self._ceiling = min(history, smallest // 2) if smallest else history
        self._largest = max(MIN_BLOCK, min(MAX_BLOCK, self._ceiling // 4))
        if view.leader.id == me and self.lead is None:
            # After a reset all members have acknowledged the result; after the old sequencer's leave nothing is known.
            known = self.log.stable if view.reason == Reason.LEAVE else view.seq
            self.lead = Leading(view, known, view.seq)
            self.log.highest = self.log.received
            self.lead.ready.update(dict.fromkeys(self.log.next_number))
            self._sync_now = True
        self._watch(now_ns)

    def _watch(self, now_ns: int) -> None:
        if self.has_left or self.is_retired:
            self._detector.watch([], now_ns)
        elif self.lead is not None:
            self._detector.watch(self.lead.others(self.me.id), now_ns)
        else:
            self._detector.watch([self.view.leader.id], now_ns)

    def _apply_change(self, now_ns: int, entry: Entry, out: Outbox) -> None:
        """A view has its place and everything before it is here: roles change now, delivery follows in order."""
        view = open_change(entry.block)
        old = self.view
        self.view = view
        self._counter = max(self._counter, view.counter)
        self.changed.append(view)
        numbers = self.log.next_number
        for member in view.members:
            numbers[member.id] = max(numbers.get(member.id, 0), view.numbers.get(member.id, 0))
        if view.reason == Reason.LEAVE:
            for origin in view.prior:
                if view.member(origin) is None:
                    numbers.pop(origin, None)
        for member in view.members:
            if old.member(member.id) is None:
                out.notes.append(Note("name", member.id, detail=str(member)))
        self.has_left = view.member(self.me.id) is None or view.reason == Reason.DISSOLVE
        if self.is_frozen:
            return
        self._ack_now = True
        if view.leader.id != old.leader.id and self.me.id != old.leader.id:
            # The leaver serves repairs until it knows that all have its leave.
            out.sends.append(self._mail.control(old.leader.address, Kind.ACK, encode_acks(self._acks())))
        if self.has_left:
            self._watch(now_ns)
            return
        self._apply_view(now_ns)
        if view.leader.id != old.leader.id:
            self._resend_own(now_ns, out)
        for origin, number in self.log.blocks:
            # Who acknowledges RESILIENT blocks depends on the view.
            rank, k = HEAD.unpack_from(self.log.blocks[origin, number])[2:4]
            if rank == RESILIENT_RANK and self.lead is None:
                self._held_due[origin] = max(k, self._held_due.get(origin, 0))

    # The sequencer's part

    def _order(self, now_ns: int, out: Outbox) -> None:
        """Give places to what is ready, then to the next change."""
        lead, log, me = self.lead, self.log, self.me.id
        if lead is None:
            return
        runs: list[tuple[int, int, int]] = []
        lead.is_blocked = False
        if lead.is_held_up(self._last_safe_place):
            return
        limit_blocks = 2 * self._config.history_blocks
        for origin in list(lead.ready):
            while (block := lead.next_block(log, self.view, me, origin, self._ceiling, limit_blocks)) is not None:
                number, seq = log.next_number[origin], log.received + 1
                log.place(seq, origin, number)
                self._advance(now_ns, out)
                if log.received != seq:
                    raise InvariantViolation("the sequencer lacks a block that it gave a place")
                lead.ordered(origin, block, log.entries[seq].cost)
                if (origin, number) in lead.requests:
                    lead.requests.discard((origin, number))
                    prefix = encode_ordered(self._lead_info(), seq, origin)
                    out.sends.append(self._mail.ordered(To.ALL, number, prefix, block))
                    self._spoke_ns = now_ns
                else:
                    runs.append((seq, origin, number))
            if lead.is_blocked:
                break
            if (origin, log.next_number.get(origin, -1)) not in log.blocks:
                del lead.ready[origin]
        if runs:
            self._accept(now_ns, runs, out)
        change = lead.next_change() if not self._orphans else None
        if change is not None:
            self._order_change(now_ns, lead, change, out)

    def _accept(self, now_ns: int, places: list[tuple[int, int, int]], out: Outbox) -> None:
        body = encode_accept(self._lead_info(), runs_of(places))
        out.sends.append(self._mail.control(To.ALL, Kind.ACCEPT, body))
        self._spoke_ns = now_ns

    def _order_change(self, now_ns: int, lead: Leading, change: Change, out: Outbox) -> None:
        log, seq = self.log, self.log.received + 1
        counter = next_counter(self._counter, now_ns)
        view = next_view(
            self.view, change, counter, self._config.max_members, seq, log.position, log.next_number, self.me
        )
        if view is None:
            return
        block = pack_change(view)
        log.hold(GROUP_ORIGIN, seq, block)
        log.place(seq, GROUP_ORIGIN, seq)
        lead.last_change = seq
        if change.reason == Reason.JOIN:
            lead.admit(change.member.id, seq)
        elif change.reason == Reason.LEAVE and change.member.id != self.me.id:
            lead.dismiss(change.member.id, seq)
        else:
            self.is_retired = True
        self._advance(now_ns, out)
        if self._fits_with_place(block):
            prefix = encode_ordered(self._lead_info(), seq, GROUP_ORIGIN)
            out.sends.append(self._mail.ordered(To.ALL, seq, prefix, block))
        else:
            out.sends.append(self._mail.block(To.ALL, Kind.REPAIR, GROUP_ORIGIN, seq, block))
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
        self._watch(now_ns)

    def _has_news(self) -> bool:
        """Whether others wait for what only we know: safety that frees deliveries, stability that frees windows."""
        log, told = self.log, self._announced
        if told.safe < self._last_safe_place and self.safe > told.safe:
            return True
        return log.stable > told.stable and (self._freed_bytes >= self._ceiling // 8 or log.stable == log.received)

    def _send_status(self, now_ns: int, out: Outbox) -> None:
        lead = self.lead
        if lead is None:
            return
        lead.since_bytes = lead.since_blocks = 0
        self._spoke_ns = now_ns
        if lead.others(self.me.id):
            out.sends.append(self._mail.control(To.ALL, Kind.STATUS, encode_lead(self._lead_info())))

    def _sync(self, now_ns: int, out: Outbox) -> None:
        self._sync_now = False
        self._spoke_ns = now_ns
        if self.lead is not None and self.lead.others(self.me.id):
            out.sends.append(self._mail.control(To.ALL, Kind.SYNC, encode_lead(self._lead_info())))

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
                out.sends.append(self._mail.control(member.address, Kind.HELD, body))
        self._held_due.clear()

    def _on_acks(self, origin: int, acks: Acks) -> None:
        if self.lead is not None and not self.lead.acknowledge(origin, acks.received, acks.consumed, self.log.received):
            self._count("strange_acks")

    def _on_ack(self, source: Address, origin: int, acks: Acks, out: Outbox) -> None:
        if self.lead is None:
            return
        self._on_acks(origin, acks)
        if self.lead.row(origin) is None:
            out.sends.append(self._mail.control(source, Kind.LEFT, encode_lead(self._lead_info())))

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
                for number, own in self._own.items():
                    if number < upto:
                        own.sent_ns, own.tries = now_ns, 0

    def _on_propose(self, source: Address, origin: int, operation: int, header: bytes, out: Outbox) -> None:
        if self.lead is None or operation != Reason.LEAVE:
            return
        member = self.view.member(origin)
        if member is not None:
            self.lead.propose(Change(Reason.LEAVE, member, header))
        elif self.lead.row(origin) is None:
            out.sends.append(self._mail.control(source, Kind.LEFT, encode_lead(self._lead_info())))

    # The member's part

    def _follow(self, now_ns: int, out: Outbox) -> None:
        """After a batch, as a member: acknowledge what is owed."""
        owed = self._owed
        while owed and self.consumed >= owed[0]:
            owed.popleft()
            self._ack_now = True
        if self._held_due:
            self._send_held(now_ns, out)
        if self._ack_now:
            self._to_leader(now_ns, Kind.ACK, encode_acks(self._acks()), out)
        elif owed or self._acks() != self._acked:
            if not self._timers.is_set(Timer.QUIET):
                self._timers.set(Timer.QUIET, now_ns + self._timing.ack_quiet_ns)

    def _send_held(self, now_ns: int, out: Outbox) -> None:
        view, me = self.view, self.me.id
        holding = [
            (origin, self.log.reach(origin))
            for origin, k in self._held_due.items()
            if me in ackers(view, view.leader.id, origin, k)
        ]
        self._held_due.clear()
        if holding:
            self._to_leader(now_ns, Kind.HELD, encode_held(self._acks(), holding), out)

    def _to_leader(self, now_ns: int, kind: Kind, body: bytes, out: Outbox) -> None:
        out.sends.append(self._mail.control(self.view.leader.address, kind, body))
        self._told(now_ns)

    def _told(self, now_ns: int) -> None:
        """The sequencer has just been told how far we are."""
        self._acked = self._acks()
        self._ack_now = False
        self._spoke_ns = now_ns
        self._timers.clear(Timer.QUIET)

    def _acks(self) -> Acks:
        return Acks(self.log.received, self.consumed)

    def _beat(self, now_ns: int, out: Outbox) -> None:
        if self.lead is not None:
            self._sync_now = True
        else:
            self._ack_now = True

    def _want(self, now_ns: int, out: Outbox) -> None:
        """Still no room: have the sequencer ask everybody, for it may see no reason of its own."""
        if not self._own_unstable:
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
        """What of the ceiling is ours: an equal share with all who are sending."""
        active = self._active + (self.me.id not in self.log.active)
        return self._ceiling // max(1, active)

    def _keep_own(self, now_ns: int, number: int, block: bytes) -> None:
        if not self.log.hold(self.me.id, number, block):
            raise InvariantViolation(f"own block {number} is not the next of this ring")
        cost = self.log.cost(block)
        self._own[number] = Own(block, now_ns)
        self._own_unstable[number] = cost
        self._own_bytes += cost

    def _send_own(self, number: int, block: bytes, out: Outbox) -> None:
        """Method 1 or method 2; to the sequencer itself there is nothing to send but what others must have."""
        if self.lead is not None:
            self.lead.ready[self.me.id] = None
            if not is_resilient(block) and self._fits_with_place(block):
                self.lead.requests.add((self.me.id, number))
                return
        elif not is_resilient(block) and len(block) <= PB_LIMIT and self._fits_with_place(block):
            prefix = encode_acks(self._acks())
            out.sends.append(self._mail.prefixed(self.view.leader.address, Kind.REQUEST, number, prefix, block))
            self._acked = self._acks()
            return
        out.sends.append(self._mail.block(To.ALL, Kind.DATA, self.me.id, number, block))

    def _send_orphan(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """In the name of a sender that is gone: with its place if it can have one at once, else ahead of it."""
        if self.lead is not None and not is_resilient(block) and self._fits_with_place(block):
            self.lead.requests.add((origin, number))
        else:
            out.sends.append(self._mail.block(To.ALL, Kind.REPAIR, origin, number, block))

    def _fits_with_place(self, block: bytes) -> bool:
        return HEADER_BYTES + ORDERED_PREFIX + len(block) <= self._config.datagram

    def _resend_own(self, now_ns: int, out: Outbox) -> None:
        """There is a new sequencer: it has to hear of everything that has no place yet."""
        for number, own in self._own.items():
            own.sent_ns, own.tries = now_ns, 0
            self._send_own(number, own.block, out)
        if self._own or self._orphans:
            self._timers.set(Timer.RETRANSMIT, now_ns + self._rtt.timeout_ns(0))

    def _retransmit(self, now_ns: int, out: Outbox) -> None:
        sent = 0
        due_ns = NEVER
        for number, own in self._own.items():
            at_ns = own.sent_ns + self._rtt.timeout_ns(own.tries)
            if at_ns > now_ns or sent >= RETRANSMIT_AT_ONCE:
                due_ns = min(due_ns, max(at_ns, now_ns + MS))
                continue
            sent += 1
            own.sent_ns = now_ns
            own.tries += 1
            if own.tries > self._timing.tries:
                self._is_exhausted = True
            if self.lead is not None and not is_resilient(own.block):
                continue  # it waits for room in the history, not for the network
            self._count("retransmissions")
            if is_resilient(own.block) or len(own.block) <= PB_LIMIT:
                self._send_own(number, own.block, out)
            else:
                leader = self.view.leader.address
                out.sends.append(self._mail.block(leader, Kind.REPAIR, self.me.id, number, own.block))
            due_ns = min(due_ns, now_ns + self._rtt.timeout_ns(own.tries))
        for (origin, number), orphan in self._orphans.items():
            at_ns = orphan.sent_ns + self._rtt.timeout_ns(orphan.tries)
            if at_ns <= now_ns and is_resilient(orphan.block):
                orphan.sent_ns = now_ns
                orphan.tries += 1
                self._send_orphan(origin, number, orphan.block, out)
            due_ns = min(due_ns, max(at_ns, now_ns + self._timing.retransmit_ns))
        if self._own or self._orphans:
            self._timers.set(Timer.RETRANSMIT, min(due_ns, now_ns + self._timing.retransmit_max_ns))

    def _propose_leave(self, now_ns: int, out: Outbox) -> None:
        if self._leave_header is None or self.has_left:
            return
        self._timers.set(Timer.PROPOSE, now_ns + PROPOSE_NS)
        if self._own:
            self._timers.set(Timer.PROPOSE, now_ns + PROPOSE_NS // 10)
        elif self.lead is not None:
            self.lead.propose(Change(Reason.LEAVE, self.me, self._leave_header))
        else:
            self._to_leader(now_ns, Kind.PROPOSE, encode_propose(self._acks(), Reason.LEAVE, self._leave_header), out)

    # Gaps and repairs

    def _find_gaps(self, now_ns: int, out: Outbox) -> None:
        log = self.log
        if len(self._partial):
            for origin, number, _ in self._partial.keys():
                if self._is_old(origin, number):
                    self._partial.forget((origin, number, 0))
        if self.lead is None:
            if log.received < log.highest or self._gaps:
                missing = log.missing(MAX_MISSING) if log.received < log.highest else []
                self._note_gaps(*self._gaps.update(missing, now_ns), out)
        elif log.blocks or len(self._partial) or self._block_gaps:
            self._note_block_gaps(*self._block_gaps.update(self._missing_blocks(), now_ns), out)

    def _missing_blocks(self) -> list[tuple[int, int]]:
        """As the sequencer: what senders must have sent, for later blocks of theirs are here, or parts."""
        lowest: dict[int, int] = {}
        for origin, number in self.log.blocks:
            if number < lowest.get(origin, NEVER):
                lowest[origin] = number
        holes = []
        for origin, number in lowest.items():
            first = self.log.next_number.get(origin, number)
            holes.extend((origin, hole) for hole in range(first, min(number, first + MAX_MISSING)))
        partial = {(origin, number) for origin, number, _ in self._partial.keys() if origin != GROUP_ORIGIN}
        return sorted(partial.union(holes))[:MAX_MISSING]

    def _note_gaps(self, new: list[int], gone: list[int], out: Outbox) -> None:
        for seq in new:
            out.notes.append(Note("gap", GROUP_ORIGIN, first=seq, count=1, detail="place"))
        for seq in gone:
            out.notes.append(Note("repaired", GROUP_ORIGIN, first=seq, count=1, detail="place"))

    def _note_block_gaps(self, new: list[tuple[int, int]], gone: list[tuple[int, int]], out: Outbox) -> None:
        for origin, number in new:
            out.notes.append(Note("gap", GROUP_ORIGIN, first=number, count=1, detail=f"block of {origin:016x}"))
        for origin, number in gone:
            out.notes.append(Note("repaired", GROUP_ORIGIN, first=number, count=1, detail=f"block of {origin:016x}"))

    def _close_gaps(self, out: Outbox) -> None:
        self._note_gaps([], self._gaps.clear(), out)
        self._note_block_gaps([], self._block_gaps.clear(), out)

    def _complain(self, now_ns: int, out: Outbox) -> None:
        """Ask for what has been missing for too long: members the sequencer, the sequencer the senders."""
        due = self._gaps.due(now_ns)
        if due and self.lead is None:
            entries: list[Missing] = []
            for seq in due:
                key = self.log.places.get(seq)
                segments = self._partial.missing((*key, 0)) if key is not None else []
                if segments:
                    entries.extend(Missing(GROUP_ORIGIN, seq, 1, first, stop) for first, stop in segments[:4])
                elif entries and not entries[-1].stop and entries[-1].number + entries[-1].count == seq:
                    entries[-1] = entries[-1]._replace(count=entries[-1].count + 1)
                else:
                    entries.append(Missing(GROUP_ORIGIN, seq, 1, 0, 0))
            self._to_leader(now_ns, Kind.NAK, encode_nak(self._acks(), entries[:MAX_MISSING]), out)
        wanted: dict[int, list[Missing]] = {}
        for origin, number in self._block_gaps.due(now_ns):
            segments = self._partial.missing((origin, number, 0)) or [(0, 0)]
            wanted.setdefault(origin, []).extend(Missing(origin, number, 1, *segment) for segment in segments[:4])
        for origin, entries in wanted.items():
            member = self.view.member(origin)
            if member is not None:
                body = encode_nak(self._acks(), entries[:MAX_MISSING])
                out.sends.append(self._mail.control(member.address, Kind.NAK, body))

    def _repair(self, to: Address, missing: list[Missing], out: Outbox) -> None:
        """Send what somebody lacks: places with their blocks, or blocks of ours."""
        left = REPAIRS_PER_NAK
        places: list[tuple[int, int, int]] = []
        for origin, number, count, first, stop in missing:
            for each in range(number, number + count):
                if not left:
                    break
                if origin == GROUP_ORIGIN:
                    found = self.log.block_at(each)
                    if found is None:
                        continue
                    places.append((each, found[0], found[1]))
                    from_, sent, block = found
                else:
                    held = self.log.find_block(origin, each)
                    if held is None:
                        continue
                    from_, sent, block = origin, each, held
                left -= 1
                self._count("repairs")
                out.sends.append(self._mail.repair(to, from_, sent, block, first, stop))
        if places:
            body = encode_accept(self._lead_info() if self.lead is not None else self._known_lead(), runs_of(places))
            out.sends.append(self._mail.control(to, Kind.ACCEPT, body))

    def _known_lead(self) -> Lead:
        log = self.log
        return Lead(log.received, log.stable, min(self.safe, log.received), self._active)

    def _count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1


def next_view(
    view: View,
    change: Change,
    counter: int,
    max_members: int,
    seq: int,
    position: int,
    next_number: dict[int, int],
    me: Member,
) -> View | None:
    """The view that a change makes; None where it changes nothing (any more)."""
    members = view.members
    present = view.member(change.member.id) is not None
    if change.reason == Reason.JOIN:
        if present or len(members) >= max_members:
            return None
        members = (*members, change.member)
    elif change.reason == Reason.LEAVE:
        if not present:
            return None
        # The last leaver dissolves the group: nobody is left to lead, and a view is never empty.
        members = tuple(member for member in members if member.id != change.member.id) or members
    # Those of senders that are gone too: what they left behind may still be on its way to its place.
    numbers = dict(next_number)
    if change.reason == Reason.JOIN:
        numbers[change.member.id] = max(change.next_block, next_number.get(change.member.id, 0))
    is_last = change.reason == Reason.LEAVE and len(view.members) == 1
    return View(
        counter,
        str(me),
        view.ring,
        view.incarnation,
        seq,
        position,
        members,
        numbers,
        Reason.DISSOLVE if is_last else change.reason,
        str(change.member),
        change.header,
        tuple(member.id for member in view.members),
    )


def is_resilient(block: bytes) -> bool:
    return bool(HEAD.unpack_from(block)[2] == RESILIENT_RANK)


def unsupported(service: Service) -> str:
    return f"the sequencer orderer does not give {service}; it gives RELIABLE, FIFO, AGREED, RESILIENT(k) and SAFE"
