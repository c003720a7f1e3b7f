"""The log of a sequencer ring grows: views are applied, roles change, and the sequencer orders (Amoeba section 4.1)."""

from __future__ import annotations

from typing import Final

from ordercast.engine import Change, Outbox, To
from ordercast.errors import InvariantViolation
from ordercast.orderers.logged.changes import order_change
from ordercast.orderers.logged.expelling import eviction
from ordercast.orderers.logged.in_order import InOrderDelivery, first_safe
from ordercast.orderers.logged.leaving import Leaving
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.replies import send_held
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.sequencer.acknowledging import Acknowledger
from ordercast.orderers.sequencer.announcing import Announcer
from ordercast.orderers.sequencer.role import SequencerRole
from ordercast.orderers.sequencer.sending import SequencerSender, fits_ordered
from ordercast.orderers.sequencer.timers import SequencerTimer
from ordercast.parts.detector import Detector
from ordercast.parts.slow import SlowReceivers
from ordercast.parts.timers import Timers
from ordercast.service import RESILIENT_RANK
from ordercast.view import DEPARTURES, GROUP_ORIGIN, Member, Reason, View
from ordercast.wire.block import HEAD
from ordercast.wire.header import Kind
from ordercast.wire.ordering import NO_HOLDUP, encode_acks

UNHEARD: Final = 4  # heartbeats: a member that is silent for longer may be cut off, and is no slow receiver


class SequencerOrdering:
    """What becomes received, and what follows from it. `role` is set while this member is the sequencer."""

    __slots__ = (
        "_acknowledger",
        "_announcer",
        "_delivery",
        "_detector",
        "_leaving",
        "_outgoing",
        "_receiver",
        "_ring",
        "_sender",
        "_slow",
        "_timers",
        "_watched",
        "_window",
        "former",
        "role",
    )

    def __init__(
        self,
        ring: RingState,
        receiver: Receiver,
        delivery: InOrderDelivery,
        window: SendWindow,
        leaving: Leaving,
        detector: Detector,
        timers: Timers[SequencerTimer],
        announcer: Announcer,
        acknowledger: Acknowledger,
        sender: SequencerSender,
    ) -> None:
        self._ring = ring
        self._receiver = receiver
        self._delivery = delivery
        self._window = window
        self._outgoing = window.outgoing
        self._leaving = leaving
        self._detector = detector
        self._timers = timers
        self._announcer = announcer
        self._acknowledger = acknowledger
        self._sender = sender
        self.role: SequencerRole | None = None
        self.former: Member | None = None  # the sequencer before
        self._watched: list[int] = []
        self._slow = SlowReceivers(ring.config)

    # Views

    def advance(self, now_ns: int, out: Outbox) -> None:
        """Receive what has become complete."""
        ring, window, outgoing = self._ring, self._window, self._outgoing
        for entry in self._receiver.advance(out):
            if entry.is_change:
                old = self._receiver.apply(entry, out)
                if not ring.is_frozen:
                    self._on_view(now_ns, old, out)
                if ring.has_left:
                    break
            elif outgoing.unordered:
                window.ordered(now_ns, entry)

    def _on_view(self, now_ns: int, old: View, out: Outbox) -> None:
        ring, view = self._ring, self._ring.view
        self._acknowledger.is_due = True
        if view.leader.id != old.leader.id and ring.me.id != old.leader.id:
            # The leaver serves repairs until it knows that all have its leave.
            self.former = old.leader
            body = encode_acks(self._acknowledger.acks())
            out.sends.append(ring.writer.control(old.leader.address, Kind.ACK, body))
        if ring.has_left:
            self._watch(now_ns)
            out.notes.extend(self._receiver.repairs.close())
            return
        role = self.apply_view(now_ns)
        if view.leader.id != old.leader.id:
            self._sender.resend(now_ns, self.role, out)
        if role is None:
            for (origin, _), block in ring.log.blocks.items():
                # Which members acknowledge RESILIENT blocks depends on the view.
                rank, k = HEAD.unpack_from(block)[2:4]
                if rank == RESILIENT_RANK:
                    self._acknowledger.hold(origin, k)

    def apply_view(self, now_ns: int) -> SequencerRole | None:
        """Roles and bounds that follow from the current view."""
        ring, view = self._ring, self._ring.view
        self._window.fit_to_view()
        self._announcer.spread_beats()
        self._announcer.holdup = NO_HOLDUP  # what the sequencer said counts in the members of the view before
        if view.leader.id == ring.me.id and self.role is None:
            known = ring.log.stable if view.reason in DEPARTURES else first_safe(view)
            self.role = SequencerRole(view, ring.me.id, known, view.seq)
            seqs = [entry.seq for entry in ring.log.entries.values() if entry.rank == RESILIENT_RANK]
            self.role.resilient_seq = max(seqs, default=0)
            ring.log.highest = ring.log.received
            self.role.ready.update(dict.fromkeys(ring.log.next_number))
            self._announcer.sync_now = True
        self._watch(now_ns)
        return self.role

    def _watch(self, now_ns: int) -> None:
        if self._ring.has_left or self._leaving.is_retired:
            self._detector.watch([], now_ns)
        elif self.role is not None:
            self._watched = self.role.others
            self._detector.watch(self._watched, now_ns)
        else:
            self._detector.watch([self._ring.view.leader.id], now_ns)

    # The sequencer's part

    def order(self, now_ns: int, role: SequencerRole, out: Outbox) -> None:
        """Order what is ready, then the next change. A join goes first: it waits until all members have everything,
        and what is ordered before it would keep it waiting."""
        ring, log = self._ring, self._ring.log
        runs: list[tuple[int, int, int]] = []
        is_alone = not role.others  # nobody listens but newcomers, for whom their join is the beginning
        role.is_blocked = False
        if role.is_held_up(log, self._receiver.last_strong_seq, ring.is_decided):
            return
        if not is_alone and role.changes and role.changes.first.reason == Reason.JOIN:
            self._order_next_change(now_ns, role, out)
        is_decided = ring.is_decided
        limit_bytes, limit_blocks = self._window.ceiling, ring.config.history_blocks
        for origin in list(role.ready):
            while (block := role.next_block(log, ring.view, ring.me.id, origin, limit_bytes, limit_blocks)) is not None:
                number, seq = log.next_number[origin], log.received + 1
                log.assign(seq, origin, number)
                self.advance(now_ns, out)
                if log.received != seq:
                    raise InvariantViolation("the sequencer lacks a block that it has ordered")
                role.ordered(log.entries[seq])
                if is_alone:
                    role.requests.discard((origin, number))
                elif (origin, number) in role.requests:
                    role.requests.discard((origin, number))
                    self._announcer.send_ordered(now_ns, seq, origin, number, block, out)
                else:
                    runs.append((seq, origin, number))
            if role.is_blocked:
                role.rounds.blocked(now_ns)
                break
            if (origin, log.next_number.get(origin, -1)) not in log.blocks:
                del role.ready[origin]
        if runs:
            self._announcer.send_accept(now_ns, runs, out)
        if is_decided and not role.is_held_up(log, self._receiver.last_strong_seq, is_decided):
            self._order_next_change(now_ns, role, out)

    def _order_next_change(self, now_ns: int, role: SequencerRole, out: Outbox) -> None:
        if self._ring.is_decided and not self._outgoing.has_orphans:
            change = role.next_change(self._ring.log)
            if change is not None:
                self._order_change(now_ns, role, change, out)

    def _order_change(self, now_ns: int, role: SequencerRole, change: Change, out: Outbox) -> None:
        ring, seq = self._ring, self._ring.log.received + 1
        block = order_change(ring, now_ns, change, ring.log.next_number, {})
        if block is None:
            return
        role.changes.last_seq = seq
        if change.reason == Reason.JOIN:
            role.admit(change.member.id, seq)
        elif change.reason in DEPARTURES and change.member.id != ring.me.id:
            role.dismiss(change.member, seq)
        else:
            self._leaving.is_retired = True
        self.advance(now_ns, out)
        if fits_ordered(ring, block):
            self._announcer.send_ordered(now_ns, seq, GROUP_ORIGIN, seq, block, out)
        else:
            out.sends.append(ring.writer.block(To.ALL, Kind.REPAIR, GROUP_ORIGIN, seq, block))
            self._announcer.send_accept(now_ns, [(seq, GROUP_ORIGIN, seq)], out)

    def lead(self, now_ns: int, role: SequencerRole, out: Outbox) -> None:
        """After a batch, as the sequencer: stability, status rounds, answers to those that wait for our word."""
        ring, log, delivery, announcer = self._ring, self._ring.log, self._delivery, self._announcer
        self._acknowledger.look(now_ns)
        acks = self._acknowledger.acks()
        role.acknowledge(ring.me.id, acks.received, acks.consumed, log.received)
        if acks.is_behind:
            role.note_behind(now_ns, ring.me.id, acks.consumed)
        delivery.safe = max(delivery.safe, role.safe)
        share_bytes = self._window.stop_at(len(log.active) - (GROUP_ORIGIN in log.active))
        before = log.stable
        if role.stable > before:
            announcer.freed_bytes += delivery.purge(role.stable)
            role.rounds.freed(now_ns, before, log.stable, ring.config.history_blocks, share_bytes)
        if (role.is_blocked or role.changes) and not self._leaving.is_retired:
            self.order(now_ns, role, out)
        self._evict_slow(now_ns, role)
        delivery.deliver(out)
        is_for_room = role.rounds.is_due(log, ring.config.history_blocks, share_bytes)
        if is_for_room or (ring.is_decided and role.must_ask(log)):
            announcer.send_status(now_ns, role, out, is_for_room)
        elif announcer.sync_now or announcer.has_news(
            self._receiver.last_strong_seq, self._window.ceiling, role.rounds.asked_seq
        ):
            announcer.send_sync(now_ns, role, out)
        if self._acknowledger.held_due:
            self._tell_senders(out)
        self._wait_for_acks(now_ns, role)
        if role.others is not self._watched:
            self._watch(now_ns)

    def _evict_slow(self, now_ns: int, role: SequencerRole) -> None:
        """Members whose applications have kept the history full for too long, this one perhaps among them. The change
        is ordered with the next pass, which the acknowledgements that are awaited bring about. What a member has
        consumed is known by its own word only: the time of one that is not heard begins again when it is. Others that
        hold up the group go before us: the next sequencer would wait for them from the beginning."""
        holding_up = role.holding_up(now_ns)
        if holding_up:
            for member in self._detector.unheard(now_ns, UNHEARD * self._detector.heartbeat_ns):
                holding_up.pop(member, None)
        for member in self._slow.look(now_ns, holding_up):
            slow = self._ring.view.member(member)
            may_go = member != self._ring.me.id or len(holding_up) == 1
            if slow is not None and may_go and len(self._ring.view.members) > 1:
                role.propose(eviction(self._ring, slow))

    def _wait_for_acks(self, now_ns: int, role: SequencerRole) -> None:
        """Speak up after a while, if a member may have missed the last message, or if somebody waits for an answer."""
        log, tail, timers = self._ring.log, self._announcer.tail, self._timers
        if not role.others:
            timers.clear(SequencerTimer.TAIL)
        elif role.awaits_acks(log, self._receiver.last_strong_seq):
            timers.set_earlier(SequencerTimer.TAIL, now_ns + tail.soon_ns)
        elif role.safe >= log.received or tail.told_seq >= log.received:
            timers.clear(SequencerTimer.TAIL)
        elif not timers.is_set(SequencerTimer.TAIL):
            timers.set(SequencerTimer.TAIL, self._announcer.spoke_ns + tail.wait_ns)

    def remind(self, now_ns: int, out: Outbox) -> None:
        """The time to wait for acknowledgements, or for the next message, is over."""
        role, announcer, log = self.role, self._announcer, self._ring.log
        if role is None:
            return
        if role.awaits_acks(log, self._receiver.last_strong_seq) and not self._leaving.is_retired:
            # All are asked as long as anybody is awaited: so all of them are heard, and none is taken for silent.
            self._ring.writer.next_via()
            announcer.send_status(now_ns, role, out)
        elif self._leaving.is_retired or now_ns >= announcer.spoke_ns + announcer.tail.wait_ns:
            self._ring.writer.next_via()
            announcer.tail.told_seq = log.received
            announcer.sync_now = True

    @property
    def is_urgent(self) -> bool:
        """Whether anybody waits for anything: heartbeats are frequent then. A history that is not yet free is none."""
        log, role = self._ring.log, self.role
        return bool(
            self._outgoing.unordered
            or log.blocks
            or log.received < log.highest
            or self._delivery.delivered < log.received
            or self._acknowledger.is_awaited
            or self._leaving.is_asked
            or self._timers.is_set(SequencerTimer.WANT)
            or (role is not None and bool(role.others) and role.awaits_acks(log, self._receiver.last_strong_seq))
        )

    def _tell_senders(self, out: Outbox) -> None:
        """To senders that send again what waits here to be ordered: we have it."""
        acknowledger, log = self._acknowledger, self._ring.log
        for origin in acknowledger.held_due:
            send_held(self._ring, origin, acknowledger.acks(), origin, log.reach(origin), out)
        acknowledger.held_due.clear()
