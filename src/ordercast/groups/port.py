"""The application's side of one group: a bounded send queue, the events received, and who waits for what.

No clock, socket or loop: `Host` calls `finish` once per pass, the API above takes events and settled watches.
The receive queue has no bound of its own: what the application has not taken is not consumed, stays in the history
of the group, and the history is bounded (Amoeba section 3: a member that never receives blocks the group).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from ordercast.config import MAX_BLOCK, SECOND, GroupConfig
from ordercast.engine import (
    NEVER,
    Delivery,
    Denied,
    Departed,
    Engine,
    Failed,
    Joined,
    Outbox,
    Refused,
    RepeatedCall,
    Reset,
    Run,
    Transitional,
    UnknownOutcome,
    Upcall,
)
from ordercast.errors import (
    GroupFailed,
    MessageTooLarge,
    NotMember,
    OrdercastError,
    OutcomeUnknown,
    UnsupportedService,
    UsageError,
    WireError,
)
from ordercast.groups.calls import Asked, Calls
from ordercast.groups.checks import TYPE_MAX, TYPE_MIN, check_kind
from ordercast.groups.events import NO_POSITION, Batch, CallBatch, Left, PortEvent, Uncertain
from ordercast.groups.locks import LockRequest, Locks
from ordercast.groups.queue import QUEUE_BYTES, QUEUE_MESSAGES, SMALL_SHARE, Packed, SendQueue
from ordercast.groups.requests import Inbox, Incoming, PendingReply, read_call
from ordercast.groups.rows import Meter, Rows
from ordercast.groups.watches import Watch, Watches
from ordercast.service import AGREED, AGREED_RANK, RESILIENT, UNRELIABLE_RANK, Service
from ordercast.trace.recorder import Recorder
from ordercast.view import Member, View
from ordercast.wire.block import CALLED, CHANGE, FRAGMENTED, head_of, payload_bytes, service_of
from ordercast.wire.fragments import Assembler

PASS_BLOCKS: Final = 256
"""Blocks submitted at once; the rest of the queue follows in the next round."""

PASS_ROUNDS: Final = 4
"""Rounds of submit and after_batch in one pass, where delivering has made new room; then the driver gets its turn."""

MAX_NAMES: Final = 4_096
"""Names of senders remembered, those of earlier views included; at the bound only the present members' are kept."""

LEAVE_PATIENCE_NS: Final = 3 * SECOND
"""How long a leave waits for what was sent before it; a group that does not work must not hold its members."""


class GroupEngine(Engine, Protocol):
    """An engine that stands for one group: what `ordercast.underlay.Underlay` is, and what a test may fake."""

    @property
    def view(self) -> View | None: ...

    @property
    def config(self) -> GroupConfig: ...

    @property
    def counters(self) -> dict[str, int]: ...

    @property
    def gives_locks(self) -> bool: ...

    def supports(self, service: Service) -> bool: ...


class Port:
    """One group at one node. Its `engine` is driven by the `Host` only."""

    __slots__ = (
        "_assembler",
        "_consumed_seq",
        "_done_seq",
        "_events",
        "_is_large_open",
        "_leave_header",
        "_max_message",
        "_names",
        "_outstanding",
        "_previous",
        "_ready",
        "_rows",
        "_seqs",
        "_supported",
        "_taken_seq",
        "_usual",
        "_watches",
        "armed_ns",
        "calls",
        "counters",
        "deadline_ns",
        "default_service",
        "engine",
        "failure",
        "gone",
        "group",
        "is_leaving",
        "is_member",
        "leave_due_ns",
        "locks",
        "log",
        "me",
        "next_block",
        "order",
        "out",
        "queue",
        "received",
        "refusal",
        "resets",
        "sent",
        "settled",
        "view",
        "wants_pass",
    )

    def __init__(
        self,
        group: str,
        me: Member,
        engine: GroupEngine,
        order: int,
        *,
        next_number: int = 0,
        next_block: int = 0,
        recorder: Recorder | None = None,
    ) -> None:
        # who and what
        self.group = group
        self.me = me
        self.engine = engine
        self.order = order  # of opening, among the ports of a host: ties are broken by it, never by chance
        self.out = Outbox()
        self._rows = Rows(recorder, group, str(me))
        # membership
        self.view: View | None = None
        self.is_member = False
        self.failure: str | None = None  # why calls fail until a reset
        self.refusal: str | None = None  # why the join came to nothing
        self.gone: Left | None = None  # out for good
        self.is_leaving = False
        self._leave_header: bytes | None = None  # the leave that waits for the queue
        self.leave_due_ns = NEVER  # until when it waits
        self.resets: list[Reset] = []  # ended and not yet taken by the API
        self._names: dict[int, str] = {me.id: str(me)}
        # sending
        self.queue = SendQueue(next_number)
        self.next_block = next_block
        self._ready: deque[Packed] = deque()  # packed, and refused by the engine for now
        self._outstanding: dict[int, tuple[int, int]] = {}  # own block number -> (first, count), not yet delivered here
        self._watches = Watches()
        self.settled = self._watches.settled
        # locks and calls
        self.locks = Locks(me.id)
        self.calls = Calls(group, me, engine, self.locks, self.out)
        # the group's, as of its last view
        self._supported: set[Service] = set()
        self._usual: Service | None = None  # one of them
        self._max_message = engine.config.max_message
        self.default_service = AGREED
        # receiving
        self._events: deque[PortEvent] = deque()
        self._seqs: deque[int] = deque()  # for each event: the log place that is done with when the event is
        self._taken_seq = -1  # of the event that the application works on
        self._done_seq = -1
        self._consumed_seq = -1  # what the engine was told
        self._previous = -1  # position of the last ordered message delivered
        self._assembler = Assembler(engine.config.max_message)
        self._is_large_open = False  # fragments of an own message were delivered here, and not yet its last
        # driving
        self.wants_pass = False
        self.deadline_ns = -1
        self.armed_ns = NEVER  # under which the host's heap has it
        self.sent = Meter()
        self.received = Meter()
        self.log: list[str] = []  # view changes and suspicions, for the driver's log
        self.counters = {"unreadable_blocks": 0, "dropped_fragments": 0, "messages_sent": 0, "messages_delivered": 0}

    # The application sends.

    def check(self, size: int, service: Service, type_: int) -> None:
        """Raise what is wrong with a message before it is taken."""
        self.check_open()
        check_kind(service, type_)
        if service not in self._supported:
            if not self.engine.supports(service):
                raise UnsupportedService(
                    f"the {self.engine.config.orderer} orderer of {self.group!r} cannot give {service}"
                )
            self._supported.add(service)
            self._usual = service
        if size > self.engine.config.max_message:
            raise MessageTooLarge(
                f"{size} bytes exceed max_message={self.engine.config.max_message}, set when {self.group!r} was created"
            )

    def check_open(self) -> None:
        """Raise if calls on this group fail at present."""
        if self.gone is not None or self.is_leaving:
            raise NotMember(f"this node is not in {self.group!r}: {self.gone.text if self.gone else 'it is leaving'}")
        if self.failure is not None:
            raise GroupFailed(f"{self.group!r} has failed ({self.failure}); call reset()")

    @property
    def has_room(self) -> bool:
        return self.queue.has_room

    @property
    def end_number(self) -> int:
        """The number of the next message that is offered."""
        return self.queue.end_number

    def try_offer(self, payload: bytes, service: Service, type_: int) -> int:
        """`check` and `offer` in one for the usual case: the number, or -1: ask them. Hot: once per `send`."""
        queue = self.queue
        if (
            self.is_member
            and self.failure is None
            and not self.is_leaving
            and (service is self._usual or service in self._supported)  # hashing costs 300 ns
            and len(payload) <= self._max_message
            and (type_.__class__ is int and TYPE_MIN <= type_ <= TYPE_MAX)
            and queue.queued_bytes < QUEUE_BYTES
            and queue.count < QUEUE_MESSAGES
        ):
            number = queue.next_number + queue.count
            queue.offer(payload, service, type_)
            return number
        return -1

    def offer(self, payload: bytes, service: Service, type_: int = 0) -> int:
        """Queue one message; its number, or -1: the queue is full, wait. `check` was called before."""
        queue = self.queue
        if not queue.has_room:
            return -1
        number = queue.end_number
        queue.offer(payload, service, type_)
        return number

    def offer_many(
        self, payloads: Sequence[bytes], service: Service, type_: int = 0, lengths: list[int] | None = None
    ) -> int:
        """Queue messages from the first on; how many were taken. They have consecutive numbers from `end_number` on.

        The sequence, and the list of its lengths where the caller has it, are kept and must not be changed afterwards.
        """
        return self.queue.offer_many(payloads, service, type_, lengths)

    def watch(self, first: int, stop: int, service: Service) -> Watch:
        """Wait for own messages [first, stop), which have just been offered: it comes back in `settled`."""
        return self._watches.confirm(first, stop, service)

    def flush(self) -> Watch | None:
        """Wait until everything offered so far is delivered here; None if it is."""
        if self._lowest_undelivered() >= self.queue.end_number:
            return None
        return self._watches.flush(self.queue.end_number)

    def forget(self, watch: Watch) -> None:
        """Nobody waits for it any more."""
        self._watches.forget(watch)

    # The application calls, and is called.

    def check_locks(self) -> None:
        """Raise if this group has no locks, handlers and calls."""
        self.check_open()
        if not self.engine.gives_locks:
            name = self.engine.config.orderer
            raise UsageError(f'{self.group!r} has the orderer {name!r}; locks, handlers, calls need orderer="token"')

    def call(self, payload: bytes, service: Service, handler: int, type_: int = 0) -> Asked | None:
        """Queue a call of this member; None: the queue is full, wait. The answer comes back in `calls.settled`."""
        queue = self.queue
        if not queue.has_room:
            return None
        asked, head = self.calls.ask(queue.end_number, handler)
        queue.offer_call(payload, service, type_, head)
        return asked

    def answer(self, owed: PendingReply, payload: bytes) -> bool:
        """Answer a call; False: the queue is full, wait."""
        if not self.is_member or self.is_leaving:
            raise NotMember(f"this node is no longer in {self.group!r}: it cannot answer")
        if not owed.is_outside and not self.queue.has_room:
            return False
        head = self.calls.answer(owed, payload)
        if head is not None:
            self.queue.offer_call(payload, AGREED, 0, head)
        return True

    def serve(self, handler: int) -> LockRequest:
        """Want a handler: when the claim holds it, requests come to its `inbox`, an `Inbox`."""
        return self.locks.claim(str(handler), Inbox())

    # The application receives.

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def take(self) -> PortEvent | None:
        """The next event. Asking for it says that the application has finished with the one before."""
        self.finish_taken()
        if not self._events:
            return None
        self._taken_seq = self._seqs.popleft()
        return self._events.popleft()

    def finish_taken(self) -> None:
        """The application has finished with the event it took last."""
        if self._taken_seq > self._done_seq:
            self._done_seq = self._taken_seq
        self._taken_seq = -1

    @property
    def has_consumed(self) -> bool:
        """The engine is to be told of buffers that are free again: a pass is wanted."""
        return self._done_seq > self._consumed_seq

    # The application changes its membership.

    def leave(self, header: bytes) -> None:
        """Leave once everything that was sent is delivered; at once if the group has failed. Offers end here."""
        if self.gone is None and not self.is_leaving:
            self.is_leaving = True
            self._leave_header = header

    # One pass.

    def finish(self, now_ns: int) -> None:
        """Submit what there is room for, let the engine conclude, and take what it has for the application."""
        engine, out = self.engine, self.out
        if self.is_leaving and self.gone is None:
            # Nobody may receive any more, and what is still to be sent must not wait for that.
            self.finish_taken()
            self._done_seq = max(self._done_seq, max(self._seqs, default=-1))
        if self._done_seq > self._consumed_seq:
            self._consumed_seq = self._done_seq
            if self.gone is None:
                engine.consume(now_ns, self._done_seq, out)
        self.wants_pass = False
        queue, ready = self.queue, self._ready
        for turn in range(PASS_ROUNDS):
            has_moved = (queue.count or ready) and self._submit(now_ns)
            if self.locks.todo or self.calls.has_answers:
                self._say(now_ns)
                has_moved = True
            if not has_moved and turn:
                break
            if self._leave_header is not None and self._may_leave(now_ns):
                engine.leave(now_ns, self._leave_header, out)
                self._leave_header = None
                self.leave_due_ns = NEVER
            engine.after_batch(now_ns, out)
            # The lists are emptied before they are worked through: an error must not hand anything over twice.
            if out.upcalls:
                upcalls, out.upcalls = out.upcalls, []
                upcalls = self._enter(now_ns, upcalls)
            else:
                upcalls = []
            if out.notes:
                notes, out.notes = out.notes, []
                self._rows.notes(now_ns, notes, self._names)
                self.log.extend([note.detail for note in notes if note.kind == "membership"])
            for upcall in upcalls:
                self._on_upcall(now_ns, upcall)
        else:
            self.wants_pass = True
        if self._leave_header is not None and self._may_leave(now_ns):
            self.wants_pass = True
        self._rows.traffic(now_ns, self.sent, self.received)

    def _enter(self, now_ns: int, upcalls: list[Upcall]) -> list[Upcall]:
        """Come in before the notes of the same pass are written: they are about senders that the first view names.

        The upcalls that are left; all of them where the pass does not begin a membership.
        """
        for upcall in upcalls:
            if type(upcall) is Joined:
                break
        else:
            return upcalls
        entered = next((at for at, upcall in enumerate(upcalls) if isinstance(upcall, View)), -1) + 1
        for upcall in upcalls[:entered]:
            self._on_upcall(now_ns, upcall)
        return upcalls[entered:]

    def stop(self, now_ns: int) -> None:
        """The node stops: the last traffic rows, and nobody waits any longer."""
        self._rows.traffic(now_ns, self.sent, self.received, last=True)
        self.fail(NotMember(f"the node has stopped, and with it its part of {self.group!r}"))

    def fail(self, error: OrdercastError) -> None:
        """All who wait learn `error`."""
        self._watches.fail(error)
        self.calls.fail(error)
        self.locks.fail(error)

    @property
    def resume(self) -> tuple[int, int]:
        """Message and block number with which a later membership of this life goes on."""
        if not self._ready:
            return self.queue.spent_number, self.next_block
        head = self._ready[0]
        return head.first + int(not head.shown), self.next_block  # a later fragment: the number is spent

    # Sending, in detail.

    def _may_leave(self, now_ns: int) -> bool:
        """Whether everything sent is delivered, or there is no point in waiting for that."""
        if not self.is_member or self.failure is not None:
            return True
        if self.leave_due_ns == NEVER:
            self.leave_due_ns = now_ns + LEAVE_PATIENCE_NS
        is_drained = not self.queue.count and not self._ready and not self._outstanding
        return is_drained or self.leave_due_ns <= now_ns

    def _lowest_undelivered(self) -> int:
        for first, _ in self._outstanding.values():
            return first
        return self._ready[0].first if self._ready else self.queue.next_number

    def _submit(self, now_ns: int) -> bool:
        """Pack and submit what the engine has room for; False if there was nothing to do."""
        queue, ready = self.queue, self._ready
        if not self.is_member or (queue.is_waiting and not ready):
            return False
        room, largest = self.engine.room(now_ns)
        largest = min(largest, MAX_BLOCK)
        if queue.large_bytes > self.engine.config.max_message:
            # This node came back into a group that was made anew with a smaller max_message.
            self._lose(queue.next_number, queue.next_number + 1)
            queue.drop_large()
        room -= sum(len(packed.block) for packed in ready)
        while room > 0 and len(ready) < PASS_BLOCKS:
            limit = min(room, largest)
            if limit * SMALL_SHARE < largest and queue.queued_bytes > limit and (self._outstanding or ready):
                break
            packed = queue.pack(limit, largest)
            if packed is None:
                break
            ready.append(packed)
            room -= len(packed.block)
        if not ready:
            return False
        taken = self.engine.submit(now_ns, [packed.block for packed in ready], self.out)
        for _ in range(taken):
            packed = ready.popleft()
            if packed.service.rank != UNRELIABLE_RANK:  # those have no block number, and are delivered in this pass
                self._outstanding[self.next_block] = (packed.first, packed.messages)
                self.next_block += 1
            self.counters["messages_sent"] += packed.messages
            self._rows.submit(now_ns, packed.first, packed.shown, packed.service, packed.payload_bytes)
        return taken > 0

    def _say(self, now_ns: int) -> None:
        """Tell the engine what this member wants of locks, and let answers leave."""
        steps, self.locks.todo = self.locks.todo, []
        for key, is_release, is_again in steps:
            if is_release:
                if not is_again:
                    self._rows.unlock(now_ns, key)
                self.engine.unlock(now_ns, key, self.out)
            else:
                self.engine.lock(now_ns, key, self.out)
        for owed in self.calls.send():
            if not owed.is_again:
                self._rows.reply(now_ns, owed.sender, owed.first)

    # What the engine says.

    def _on_upcall(self, now_ns: int, upcall: Upcall) -> None:
        if isinstance(upcall, Run):
            self._on_run(now_ns, upcall.deliveries)
        elif isinstance(upcall, View):
            self._on_view(now_ns, upcall)
        elif isinstance(upcall, Transitional):
            self._rows.transitional(now_ns)
            self._add(upcall, -1)
        elif isinstance(upcall, Joined):
            self._rows.join(now_ns)
        elif isinstance(upcall, Failed):
            self.failure = upcall.text
            self.fail(GroupFailed(f"{self.group!r} has failed ({upcall.text}); call reset()"))
            self._add(upcall, -1)
        elif isinstance(upcall, UnknownOutcome):
            self._on_unknown(upcall)
        elif isinstance(upcall, Departed):
            self._on_departed(now_ns, upcall)
        elif isinstance(upcall, Reset):
            if upcall.size:
                self.failure = None
            self.resets.append(upcall)
        elif isinstance(upcall, Denied):
            self.locks.on_denied(upcall.lock)
        elif isinstance(upcall, RepeatedCall):
            self._on_repeated_call(now_ns, upcall)
        elif isinstance(upcall, Refused):
            self.refusal = upcall.text
            self._end(Left(wanted=False, returning=False, text=upcall.text))

    def _on_run(self, now_ns: int, deliveries: Sequence[Delivery]) -> None:
        # Hot: one turn per block; benches measure it as part of `deliver`.
        rows, names, me, group = self._rows, self._names, self.me.id, self.group
        view = self.view.id if self.view else ""
        for seq, position, origin, number, block in deliveries:
            try:
                head = head_of(block)
            except WireError:
                self.counters["unreadable_blocks"] += 1
                self._pass_over(seq)
                continue
            first, count, rank, k, flags, _ = head
            sender = names.get(origin) or f"{origin:016x}"
            is_own = origin == me
            batch: Batch | None
            if flags & CALLED:
                call = self._open_call(origin, number, position, block)
                if call is None:
                    self._pass_over(seq)
                    continue
                sender, service, size = call.sender, call.service, len(call.payload)
                is_own = is_own and not call.is_outside  # a call from before this node came in
                if is_own:
                    self._outstanding.pop(number, None)
                batch = CallBatch(self.calls.deliver(call))
            elif flags & (FRAGMENTED | CHANGE):
                batch = self._assemble(origin, block, position, sender, view) if flags & FRAGMENTED else None
                if origin == me:
                    self._outstanding.pop(number, None)
                    if batch is not None:
                        self.queue.delivered_large(first)
                if batch is None:
                    self._pass_over(seq)
                    continue
                service, size = batch.service, len(batch.messages[0])
            else:
                service, size = service_of(rank, k), payload_bytes(block, head)
                shown_at = position if rank >= AGREED_RANK else NO_POSITION
                batch = Batch(block, group, view, sender, first, count, shown_at, service)
                if origin == me:
                    self._outstanding.pop(number, None)
            rows.deliver(now_ns, sender, first, count, service, position, self._previous, size)
            if rank >= AGREED_RANK:
                self._previous = position + count - 1
            self.counters["messages_delivered"] += count
            if is_own:
                self._settle(now_ns, first, count, position)
            self._events.append(batch)
            self._seqs.append(seq)

    def _open_call(self, origin: int, number: int, position: int, block: bytes) -> Incoming | None:
        try:
            call = read_call(origin, number, position, block, self.view.id if self.view else "", self._names)
        except WireError:
            self.counters["unreadable_blocks"] += 1
            return None
        if origin not in self._names:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
                self._names.update((member.id, str(member)) for member in (self.view.members if self.view else ()))
            self._names[origin] = call.sender
        return call

    def _on_repeated_call(self, now_ns: int, again: RepeatedCall) -> None:
        call = self._open_call(again.origin, again.number, -1, again.block)
        if call is not None and self.calls.again(call):
            self._rows.redeliver(now_ns, call.sender, call.first, call.service, len(call.payload))

    def _on_view(self, now_ns: int, view: View) -> None:
        self.view = view
        self.is_member = True
        self.failure = None
        present = {member.id: str(member) for member in view.members}
        if len(self._names) + len(present) > MAX_NAMES:
            self._names = {self.me.id: str(self.me)}
        self._names.update(present)
        if len(view.came_with) < len(view.members):
            # Somebody is new and has no beginning of the large messages that are half delivered: all drop theirs, and
            # the senders begin again. This node may be the new one, and its group another than before.
            self._assembler = Assembler(self.engine.config.max_message)
            if self._is_large_open:
                self.queue.restart()
                self._is_large_open = False
        else:
            self._assembler.retire(present)
        config = self.engine.config
        self._supported.clear()
        self._usual = None
        self._max_message = config.max_message
        self.default_service = RESILIENT(config.resilience) if config.resilience else AGREED
        self._rows.view(now_ns, view)
        for key in self.locks.on_view(view):
            self._rows.lock(now_ns, key)
        self._add(view, -1)

    def _on_unknown(self, unknown: UnknownOutcome) -> None:
        lost = [number for number in self._outstanding if unknown.number <= number < unknown.stop]
        if not lost:
            return
        ranges = [self._outstanding.pop(number) for number in lost]
        first = ranges[0][0]
        stop = max(start + count for start, count in ranges)
        if self.queue.abandon_large(ranges[-1][0]):
            stop = max(stop, ranges[-1][0] + 1)
        if stop > first:
            self._lose(first, stop)

    def _lose(self, first: int, stop: int) -> None:
        error = OutcomeUnknown(
            f"this node was out of {self.group!r} before it saw its messages {first} to {stop - 1} delivered"
        )
        self._watches.lose(first, stop, error)
        self._add(Uncertain(first, stop - first), -1)

    def _on_departed(self, now_ns: int, gone: Departed) -> None:
        self._rows.leave(now_ns, gone.text)
        left = Left(gone.wanted, gone.returning, gone.text)
        self.is_member = False
        self.view = None
        self._previous = -1
        self._done_seq = self._consumed_seq = self._taken_seq = -1
        # What is queued belongs to a log that this node has left: taking it frees nothing any more.
        self._seqs = deque([-1] * len(self._seqs))
        self._assembler = Assembler(self.engine.config.max_message)
        self.locks.on_gone()
        self.calls.on_gone()
        # An answer would come where this node no longer is. Calls that are still queued leave when it is back.
        lost = OutcomeUnknown(f"this node was out of {self.group!r} before the answer to its call came")
        self.calls.fail(lost, stop=self._ready[0].first if self._ready else self.queue.next_number)
        if self._is_large_open:
            # Its beginning was delivered where this node no longer is.
            self.queue.restart()
            self._is_large_open = False
        if gone.returning:
            self._add(left, -1)
        else:
            self._end(left)

    def _end(self, left: Left) -> None:
        self.gone = left
        self._leave_header = None
        self.leave_due_ns = NEVER
        self._add(left, -1)
        self.fail(NotMember(f"this node is no longer in {self.group!r}: {left.text}"))

    # Receiving, in detail.

    def _assemble(self, origin: int, block: bytes, position: int, sender: str, view: str) -> Batch | None:
        try:
            whole = self._assembler.add(origin, block)
        except WireError:
            self.counters["dropped_fragments"] += 1
            return None
        if origin == self.me.id:
            self._is_large_open = whole is None
        if whole is None:
            return None
        shown_at = position if whole.service.is_ordered else NO_POSITION
        payloads = [whole.payload]
        return Batch(b"", self.group, view, sender, whole.first, 1, shown_at, whole.service, payloads, whole.type)

    def _add(self, event: PortEvent, seq: int) -> None:
        self._events.append(event)
        self._seqs.append(seq)

    def _pass_over(self, seq: int) -> None:
        """A block that gives the application nothing is done with as soon as everything before it is."""
        if self._seqs:
            self._seqs[-1] = max(self._seqs[-1], seq)
        elif self._taken_seq >= 0:
            self._taken_seq = max(self._taken_seq, seq)
        else:
            self._done_seq = max(self._done_seq, seq)

    def _settle(self, now_ns: int, first: int, count: int, position: int) -> None:
        """Own messages [first, first + count) were delivered here: the promise of their service holds."""
        for watch, service in self._watches.delivered(first, count, position):
            self._rows.confirm(now_ns, watch.first, watch.stop - watch.first, service, watch.position)
        if self._watches.has_flushes:
            self._watches.flushed(self._lowest_undelivered())
