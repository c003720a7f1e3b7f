"""The token site's work: what gets a sequence number, in which order, and when the token goes on (RMP 4.2, 4.3, 4.5).

The log grows here, too, and views are applied: a site receives at once what it orders.
"""

from __future__ import annotations

from ordercast.engine import Change, Outbox, To
from ordercast.errors import InvariantViolation
from ordercast.orderers.logged.changes import key_of, order_change
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.leaving import Leaving
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.token.calls import PendingCalls
from ordercast.orderers.token.pending import ChangeRequests
from ordercast.orderers.token.rotation import Rotation
from ordercast.orderers.token.sending import TokenSender
from ordercast.orderers.token.timers import TokenTimer
from ordercast.parts.changes import MEMBERSHIP
from ordercast.parts.detector import Detector
from ordercast.parts.log import Entry, runs_of
from ordercast.parts.timers import Timers
from ordercast.view import GROUP_ORIGIN, Reason, View
from ordercast.wire.block import CALLED, CHANGE, ENTRY_BYTES, FRAGMENT, FRAGMENTED, HEAD, HEAD_BYTES, LAST
from ordercast.wire.header import Kind
from ordercast.wire.token import HURRY, encode_list, encode_token


class TokenOrdering:
    """What becomes received, and what a member does while it is the token site."""

    __slots__ = (
        "_calls",
        "_delivery",
        "_detector",
        "_leaving",
        "_open",
        "_outgoing",
        "_receiver",
        "_requests",
        "_ring",
        "_rotation",
        "_sender",
        "_table",
        "_timers",
        "_window",
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
        timers: Timers[TokenTimer],
        rotation: Rotation,
        sender: TokenSender,
        requests: ChangeRequests,
        calls: PendingCalls,
    ) -> None:
        self._ring = ring
        self._receiver = receiver
        self._delivery = delivery
        self._table = delivery.table
        self._window = window
        self._outgoing = window.outgoing
        self._leaving = leaving
        self._detector = detector
        self._timers = timers
        self._rotation = rotation
        self._sender = sender
        self._requests = requests
        self._calls = calls
        self._open: set[int] = set()  # members whose long message is half ordered
        self.watched_leaver = 0  # the member that left and is watched until it knows

    # The log grows

    def advance(self, now_ns: int, out: Outbox) -> None:
        """Receive what has become complete."""
        ring, window, outgoing = self._ring, self._window, self._outgoing
        for entry in self._receiver.advance(out):
            flags = entry.flags
            if flags & CHANGE:
                old = self._receiver.apply(entry, out)
                if not ring.is_frozen:
                    self._on_view(now_ns, old, out)
                if ring.has_left:
                    break
                continue
            if flags & (FRAGMENTED | CALLED):
                self._on_special(now_ns, entry)
            if outgoing.unordered:
                window.ordered(now_ns, entry)

    def _on_special(self, now_ns: int, entry: Entry) -> None:
        """Part of a long message, or a call, has been received."""
        ring, receiver = self._ring, self._receiver
        if self._delivery.must_be_safe(entry):
            receiver.last_strong_seq = entry.seq
        if entry.flags & FRAGMENTED:
            if entry.flags & LAST or ring.view.member(entry.origin) is None:
                self._open.discard(entry.origin)
            else:
                self._open.add(entry.origin)
        if entry.origin in ring.callers:
            receiver.repairs.callers = ring.callers
            self._calls.received(now_ns, ring.log, entry.origin)

    def _on_view(self, now_ns: int, old: View, out: Outbox) -> None:
        ring, view = self._ring, self._ring.view
        self._delivery.cleared = view.seq  # a change stands behind what is safe only
        gone = self._leaving.applied()
        self._table.apply(view)
        self._requests.answered(view)
        self._receiver.repairs.callers = ring.callers
        for origin in view.callers:
            self._calls.drop_old(ring.log, origin)  # a newcomer may have had them in another ring
        if view.reason in MEMBERSHIP:
            self._requests.pending.applied(view)
        for member in view.members:
            if old.member(member.id) is None:
                self._delivery.admit(member.id)
                self._calls.become_member(member.id)
                self._sender.ready[member.id] = None  # its first blocks may have come before its join
        if gone is not None:
            self._delivery.forget(gone.id)
            self._sender.ready.pop(gone.id, None)
            self._open.discard(gone.id)
            self._rotation.full.discard(gone.id)
        self.apply_view(now_ns)
        if ring.has_left:
            rotation = self._rotation
            rotation.is_holding = False
            rotation.named_at = -1
            rotation.sync_now = True
            self._leaving.received()
            out.notes.extend(self._receiver.repairs.close())

    def apply_view(self, now_ns: int) -> None:
        """Bounds that follow from the current view, and the members that we watch."""
        self._window.fit_to_view()
        self._detector.watch([] if self._ring.has_left else self._table.others, now_ns)
        self.watched_leaver = self._table.leaver

    # The token site

    def take_turn(self, now_ns: int, out: Outbox) -> None:
        """Accept the token if it is ours and everything before it is here; then do what a token site does."""
        ring, log, table, rotation, timers = self._ring, self._ring.log, self._table, self._rotation, self._timers
        table.learn(ring.me.id, log.received)
        if 0 <= rotation.named_at <= log.received:
            rotation.named_at = -1
            rotation.is_holding = True
            timers.set(TokenTimer.CONFIRM, now_ns + ring.timing.confirm_ns)
        if not rotation.is_holding:
            return
        changes = self._requests.waiting(now_ns) if self._requests.pending else []
        is_overrun = self._delivery.is_overrun()
        is_expelling = bool(changes) and changes[0].reason == Reason.EXPEL
        if is_overrun and not is_expelling and (not changes or self._delivery.is_overrun(change_waits=True)):
            return
        if not ring.is_decided and log.unstable_bytes > 2 * self._window.ceiling:
            return  # nothing is delivered here until the last change is known to be decided: more must not come
        if log.received < log.highest:
            log.highest = log.received  # what was spoken of beyond the last pass is hearsay: only we order
        # An expulsion waits for nothing that an application holds up. What comes again after a failure goes before it.
        has_awaited = is_expelling and self._requests.pending.has_awaited(log.next_number)
        is_open = has_awaited if is_expelling else not is_overrun
        assignments = self._order(now_ns, changes, out) if is_open else []
        if assignments:
            table.learn(ring.me.id, log.received)
        if changes:
            change = self._next_change(changes)
            if change is not None and self._order_change(now_ns, change, assignments, out):
                return
        if self._sender.only_here and not assignments:
            self._sender.send_all_here(out)  # it has to wait
        is_deferred = self._leaves_to_first() and any(change.reason == Reason.JOIN for change in changes)
        if assignments or self._must_hurry(changes) or is_deferred:
            self._pass(now_ns, assignments, out)
        elif table.round >= log.received:
            rotation.is_hurried = False  # the round is complete: the token rests here
            timers.clear(TokenTimer.NULL)
            if rotation.announced < log.received:
                rotation.sync_now = True  # what is safe now is delivered, and frees windows, when all know it
        elif not timers.is_set(TokenTimer.NULL):
            timers.set(TokenTimer.NULL, now_ns + ring.timing.token_quiet_ns)

    def _order(self, now_ns: int, changes: list[Change], out: Outbox) -> list[tuple[int, int, int]]:
        """Assign sequence numbers to what is here and has none: (sequence number, origin, number) each."""
        log, ready = self._ring.log, self._sender.ready
        ordered: list[tuple[int, int, int]] = []
        if changes and self._table.safe < self._receiver.last_strong_seq:
            return ordered  # a change waits until what is strong is safe, and more of that would keep it waiting
        if self._waits_for_all(changes):
            return ordered
        room = 2 * self._ring.config.history_blocks - len(log.entries)
        if log.unstable_bytes > 2 * self._window.ceiling or not (ready or self._calls.is_waiting()):
            return ordered
        keeps_out = any(change.reason in (Reason.JOIN, Reason.DISSOLVE) for change in changes)
        if self._calls.is_waiting():
            self._order_calls(now_ns, room, ordered, out)
        blocks, numbers, seq = log.blocks, log.next_number, log.received + 1
        first = len(ordered)
        for origin in list(ready):
            number = numbers.get(origin, -1)
            while len(ordered) < room:
                block = blocks.get((origin, number))
                if block is None:
                    del ready[origin]
                    break
                if keeps_out and self._begins_long(origin, block):
                    break
                ordered.append((seq, origin, number))
                seq += 1
                number += 1
        for run in runs_of(ordered[first:]):
            if not log.assign(*run):
                raise InvariantViolation("another member has assigned what is the token site's to assign")
        if ordered:
            self.advance(now_ns, out)
            if log.received != seq - 1:
                raise InvariantViolation("the token site lacks a block that it has ordered")
        return ordered

    def _order_calls(self, now_ns: int, room: int, ordered: list[tuple[int, int, int]], out: Outbox) -> None:
        log, calls = self._ring.log, self._calls
        for origin in calls.origins():
            while len(ordered) < room and (found := calls.next_of(log, origin)) is not None:
                seq = log.received + 1
                calls.take_up(origin, found[0])
                log.assign(seq, origin, found[0])
                self.advance(now_ns, out)
                ordered.append((seq, origin, found[0]))

    def _begins_long(self, origin: int, block: bytes) -> bool:
        """Whether the block begins a long message while somebody waits to join between messages."""
        is_long = HEAD.unpack_from(block)[4] & FRAGMENTED
        if not is_long or origin in self._open or self._requests.pending.is_awaited(origin):
            return False
        return bool(FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)[1] == 0)

    # Changes

    def _waits_for_all(self, changes: list[Change]) -> bool:
        """Whether a newcomer could come in, if all members had everything. It has nothing of what stands before its
        join, so if we fail, the others must have all of it."""
        if not any(change.reason == Reason.JOIN for change in changes) or self._open or self._leaves_to_first():
            return False
        ring = self._ring
        return ring.is_decided and not self._requests.pending.has_awaited(ring.log.next_number)

    def _next_change(self, changes: list[Change]) -> Change | None:
        """The change to order now. The last change of members is known to all, and what is strong is safe.

        Nobody comes or goes before what survivors of a failure send again is ordered: a member that was left behind
        and comes back may have delivered it. Nobody comes in the middle of a long message.
        """
        safe, pending = self._table.safe, self._requests.pending
        ring = self._ring
        if not changes or not ring.is_decided or safe < pending.last_seq or safe < self._receiver.last_strong_seq:
            return None
        has_awaited = pending.has_awaited(self._ring.log.next_number)
        for change in changes:
            if change.reason in MEMBERSHIP and has_awaited:
                continue
            if change.reason in (Reason.JOIN, Reason.DISSOLVE) and self._open:
                continue
            if change.reason == Reason.JOIN and (safe < ring.log.received or self._leaves_to_first()):
                continue
            return change
        return None

    def _leaves_to_first(self) -> bool:
        """Of two members the first lets newcomers in. It may go on alone, so if it died right after a join that the
        other has ordered, nobody could tell whether it knew, and the others would have to wait for it forever."""
        view = self._ring.view
        return len(view.members) == 2 and view.leader.id != self._ring.me.id

    def _must_hurry(self, changes: list[Change]) -> bool:
        """Whether somebody waits for the token to go round."""
        log, safe = self._ring.log, self._table.safe
        if self._table.round >= log.received:
            return False
        return bool(
            self._rotation.is_hurried
            or safe < self._receiver.last_strong_seq
            or (changes and safe < self._requests.pending.last_seq)
            or self._waits_for_all(changes)
            or log.unstable_bytes > self._window.ceiling // 8
            or 2 * len(log.entries) >= self._ring.config.history_blocks
        )

    def _order_change(self, now_ns: int, change: Change, assignments: list[tuple[int, int, int]], out: Outbox) -> bool:
        """A New List: the changed view, in one datagram with its own ACK (section 4.3). A newcomer comes directly
        after us, and is token site next."""
        ring, log, rotation = self._ring, self._ring.log, self._rotation
        seq = log.received + 1
        callers = self._calls.kept(now_ns, log, ring.callers, ring.timing.caller_flush_ns)
        numbers = {origin: number for origin, number in log.next_number.items() if origin not in ring.callers}
        block = order_change(ring, now_ns, change, numbers, callers, ring.me.id)
        if block is None:
            self._requests.drop(key_of(change))
            return False
        was_holding = rotation.is_holding
        self.advance(now_ns, out)
        self._table.learn(ring.me.id, log.received)
        rotation.is_holding = was_holding  # our own leave ends with a pass, too
        self._pass(now_ns, [*assignments, (seq, GROUP_ORIGIN, seq)], out, block)
        return True

    def _pass(
        self, now_ns: int, assignments: list[tuple[int, int, int]], out: Outbox, change: bytes | None = None
    ) -> None:
        """Tell everybody the assignments, and which member is token site next."""
        rotation, sender, me = self._rotation, self._sender, self._ring.me.id
        site = rotation.successor()
        is_alone = site == me
        if is_alone and not self._table.others:
            return
        rotation.turn += 1
        rotation.site = site
        rotation.is_holding = is_alone  # a member that has just left has to hear of it
        self._timers.clear(TokenTimer.CONFIRM)
        self._timers.clear(TokenTimer.NULL)
        state = rotation.state()
        if rotation.is_hurried:
            state = state._replace(flags=state.flags | HURRY)
        rotation.is_hurried = False
        body = encode_token(state, runs_of(assignments))
        kind = Kind.TOKEN
        if change is not None:
            body, kind = encode_list(body, change), Kind.LIST
        elif sender.only_here and assignments and sender.only_here.pop(assignments[-1][1:], 0) is None:
            body, kind = encode_list(body, self._ring.log.entries[assignments[-1][0]].block), Kind.ORDERED
        if sender.only_here:
            sender.send_all_here(out)
        out.sends.append(self._ring.writer.control(To.ALL, kind, body))
        if not is_alone:
            rotation.await_successor(now_ns, kind, body)
        rotation.sync_now = False
        rotation.spoke_ns = now_ns
