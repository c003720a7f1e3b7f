"""The log of a timestamp ring grows: what leaves the reception queue gets the next sequence number; views change.

TOMPA sections 2.1 and 3.2 for the order; docs/design/timestamp.md for joins and leaves, which the papers leave open.
"""

from __future__ import annotations

from collections import deque

from ordercast.engine import Change, Outbox, To
from ordercast.errors import InvariantViolation
from ordercast.orderers.logged.changes import PendingChanges, order_change
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.leaving import Leaving
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.timestamp.agreement import Agreement
from ordercast.orderers.timestamp.catchup import AGAIN_MAX_NS, CatchUp
from ordercast.orderers.timestamp.sending import TimestampSender
from ordercast.orderers.timestamp.speaking import StampSender
from ordercast.orderers.timestamp.timers import TimestampTimer
from ordercast.parts.detector import Detector
from ordercast.parts.timers import Timers
from ordercast.service import MAJORITY_RANK
from ordercast.view import DEPARTURES, GROUP_ORIGIN, Reason, View
from ordercast.wire.block import CALLED, CHANGE
from ordercast.wire.header import Kind
from ordercast.wire.stamps import encode_stamps
from ordercast.wire.token import encode_list


class TimestampOrdering:
    """What becomes received, and what follows from it. The first member orders changes."""

    __slots__ = (
        "_agreement",
        "_asked_at",
        "_catchup",
        "_delivery",
        "_detector",
        "_lag_ns",
        "_leaving",
        "_outgoing",
        "_owed",
        "_own_strong",
        "_receiver",
        "_ring",
        "_sender",
        "_speaker",
        "_table",
        "_timers",
        "_window",
        "changes",
        "watched_leaver",
    )

    def __init__(
        self,
        ring: RingState,
        receiver: Receiver,
        delivery: ServiceDelivery,
        window: SendWindow,
        leaving: Leaving,
        detector: Detector,
        timers: Timers[TimestampTimer],
        agreement: Agreement,
        sender: TimestampSender,
        speaker: StampSender,
        catchup: CatchUp,
    ) -> None:
        view = ring.view
        self._ring = ring
        self._receiver = receiver
        self._delivery = delivery
        self._table = delivery.table
        self._window = window
        self._outgoing = window.outgoing
        self._leaving = leaving
        self._detector = detector
        self._timers = timers
        self._agreement = agreement
        self._owed = agreement.owed
        self._sender = sender
        self._speaker = speaker
        self._catchup = catchup
        self._own_strong: deque[int] = deque()  # sequence numbers of what waits for others, and we answer for
        self.watched_leaver = 0  # the member that left and is watched until it knows
        # Changes
        self.changes = PendingChanges(view.seq, view.awaited)
        self._asked_at = -1
        self._lag_ns = ring.timing.nak_retry_ns

    # What leaves the queue has the next sequence number

    def receive(self, now_ns: int, out: Outbox) -> None:
        """Until the head of the queue is not decided, or our own leave has been received."""
        ring, log, queue = self._ring, self._ring.log, self._agreement.queue
        while True:
            before = log.received
            seq = before + 1
            assignments, blocks = log.assignments, log.blocks
            while True:
                key = assignments.get(seq)
                if key is None:
                    key = queue.take()
                    if key is None:
                        break
                    if not log.assign(seq, *key):
                        raise InvariantViolation(f"{seq} is further ahead than the window allows")
                elif key not in blocks:
                    break
                else:
                    queue.remove(key)
                seq += 1
                if key[0] == GROUP_ORIGIN:
                    break  # what follows is decided by other members, and perhaps known already
            if seq == before + 1:
                break
            self.advance(now_ns, out)
            if log.received < seq - 1 and not ring.has_left:
                raise InvariantViolation("the queue let go of a block that is not here")
            for known in range(seq, log.received + 1):  # entries behind a change that somebody has told us
                queue.remove((log.entries[known].origin, log.entries[known].number))
            if self._receiver.last_strong_seq > before:
                self._note_strong(before)
            if ring.has_left:
                break
        self._table.learn(ring.me.id, log.received)

    def advance(self, now_ns: int, out: Outbox) -> None:
        """Receive what has become complete."""
        ring, receiver, window, outgoing = self._ring, self._receiver, self._window, self._outgoing
        vectors = self._agreement.vectors
        for entry in receiver.advance(out):
            flags = entry.flags
            if flags & CHANGE:
                old = receiver.apply(entry, out)
                if not ring.is_frozen:
                    self._on_view(now_ns, old, out)
                if ring.has_left:
                    break
                continue
            vectors.received(entry.origin, entry.seq)
            if flags & CALLED and self._delivery.must_be_safe(entry):
                receiver.last_strong_seq = entry.seq
            if outgoing.unordered and window.ordered(now_ns, entry):
                self._agreement.received(entry.origin, entry.number)

    def _note_strong(self, before: int) -> None:
        """A member waits to hear that we have received it: the one that answers for it, and tells all."""
        entries, me = self._ring.log.entries, self._ring.me.id
        for seq in range(before + 1, self._ring.log.received + 1):
            entry = entries[seq]
            if entry.rank >= MAJORITY_RANK and not entry.is_change:
                answerer = self._agreement.answerer(entry.origin)
                if answerer == me:
                    self._own_strong.append(seq)
                else:
                    self._owed.news.add(answerer)

    def deliver(self, out: Outbox) -> None:
        """What we may deliver others may, too, when they know what we know."""
        self._delivery.deliver(out)
        while self._own_strong and self._own_strong[0] <= self._delivery.delivered:
            self._own_strong.popleft()
            self._owed.tell_all = True

    def go_on(self, now_ns: int, out: Outbox) -> None:
        """What held us back is over."""
        self._agreement.release()
        self._agreement.decide(out)
        self.receive(now_ns, out)
        self.deliver(out)

    # Changes

    def propose(self, change: Change) -> None:
        """Leaves go first: a newcomer may wait for the end of a long message that its sender ends by leaving."""
        self.changes.add(change, goes_first=change.reason in DEPARTURES)

    def change(self, now_ns: int, out: Outbox) -> None:
        """As the first member: let the next one in or out, when nothing that we have proposed for is open."""
        ring, agreement, changes, safe = self._ring, self._agreement, self.changes, self._table.safe
        if not ring.is_first or not ring.is_decided or not changes.is_due(safe, ring.log.next_number):
            agreement.is_closing = agreement.is_draining = False
            if ring.is_first and changes and (safe < changes.last_seq or self._is_expelling):
                self._ask_all(now_ns)
        else:
            agreement.is_closing = True
            # Nobody comes in the middle of a long message, and no ring ends there.
            if not agreement.long or changes.first.reason in DEPARTURES:
                agreement.is_draining = True
            if agreement.is_draining and not agreement.queue:
                # A newcomer has nothing of what stands before its join: if we fail, the others must have all of it.
                if safe >= ring.log.received:
                    self._order_change(now_ns, changes.take(), out)
                    agreement.is_closing = agreement.is_draining = False
                else:
                    self._ask_all(now_ns)
            elif agreement.is_draining and not self._timers.is_set(TimestampTimer.LAG):
                self._timers.set(TimestampTimer.LAG, now_ns + self._lag_ns)
        if agreement.held_back and not agreement.is_draining and not ring.has_left:
            self.go_on(now_ns, out)

    @property
    def _is_expelling(self) -> bool:
        return bool(self.changes) and self.changes.first.reason == Reason.EXPEL

    def _ask_all(self, now_ns: int) -> None:
        """Have all members say what they have received, again and again."""
        timers, received = self._timers, self._ring.log.received
        if self._asked_at != received:
            self._asked_at = received
            self._lag_ns = self._ring.timing.nak_retry_ns
            self._owed.wants = self._owed.tell_all = True
            timers.set(TimestampTimer.LAG, now_ns + self._lag_ns)
        elif not timers.is_set(TimestampTimer.LAG):
            timers.set(TimestampTimer.LAG, now_ns + self._lag_ns)

    def ask_again(self) -> None:
        """All have not said what they have received in time, or some have not proposed for what is under way."""
        if self.changes:
            self._owed.wants = self._owed.tell_all = True
            is_under_way = self._agreement.is_draining and len(self._agreement.queue) > 0
            self._owed.hurries = is_under_way or self._is_expelling
            # Asked so often, members are beyond their reserve. The expulsion must get through all the same.
            self._owed.expels = self._is_expelling and self._lag_ns >= AGAIN_MAX_NS
            self._lag_ns = min(2 * self._lag_ns, AGAIN_MAX_NS)

    def _order_change(self, now_ns: int, change: Change, out: Outbox) -> None:
        ring, log = self._ring, self._ring.log
        seq = log.received + 1
        block = order_change(ring, now_ns, change, log.next_number, {})
        if block is None:
            return
        self.advance(now_ns, out)
        self._table.learn(ring.me.id, log.received)
        self.deliver(out)
        if self._table.others:
            body = encode_list(encode_stamps(self._speaker.stamps()), block)
            out.sends.append(ring.writer.control(To.ALL, Kind.LIST, body, number=seq))

    # Views

    def _on_view(self, now_ns: int, old: View, out: Outbox) -> None:
        ring, view, agreement = self._ring, self._ring.view, self._agreement
        self._delivery.cleared = view.seq  # a change stands behind what is safe only
        agreement.members = [member.id for member in view.members]
        gone = self._leaving.applied()
        self._table.apply(view)
        self._answered(view)
        if not ring.has_left and not ring.is_first:
            agreement.is_closing = agreement.is_draining = False
        newcomers = [member for member in view.members if old.member(member.id) is None]
        for member in newcomers:
            self._delivery.admit(member.id)
            agreement.admit(member)
            self._catchup.forget(member.id)
        if gone is not None:
            self._delivery.forget(gone.id)
            agreement.forget(gone.id)
            self._catchup.forget(gone.id)
        self.apply_view(now_ns)
        if ring.has_left:
            self._leaving.received()
            self._owed.tell_all = True
            out.notes.extend(self._receiver.repairs.close())
            return
        agreement.begin_view()
        self._owed.news.add(view.leader.id)
        if newcomers:
            self._outgoing.restart(now_ns)
        for member in newcomers:
            agreement.propose_from(member.id)  # its first blocks may have come before its join
            for (origin, number), each in self._outgoing.unordered.items():
                self._sender.send_to([member.id], origin, number, each.block, out)
        agreement.take_later(out)

    def _answered(self, view: View) -> None:
        """What waited with an earlier first member is asked for again."""
        self.changes.applied(view)
        for key, change in self.changes.items():
            if str(change.member) == view.subject:
                self.changes.drop(key)

    def apply_view(self, now_ns: int) -> None:
        """Bounds that follow from the current view, and the members that we watch."""
        self._window.fit_to_view()
        self._detector.watch([] if self._ring.has_left else self._table.others, now_ns)
        self.watched_leaver = self._table.leaver
