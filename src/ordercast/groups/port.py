"""One session's membership of one group: view, events received, locks, calls, and how it ends (docs/design/host.md).

No clock, socket or loop: the channel tells it what happens, the API above takes events and settled waits. What is
heavy stands elsewhere, so that an idle port is small: sending and its waits on the `Stream`, the engine, its buffers
and meters on the `Channel`. Locks and calls are made when they are first used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from ordercast.config import SECOND
from ordercast.engine import NEVER, Reset
from ordercast.errors import (
    GroupFailed,
    NotMember,
    OrdercastError,
    OutcomeUnknown,
)
from ordercast.groups.calls import Asked, Calls
from ordercast.groups.checks import TYPE_MAX, TYPE_MIN, no_locks
from ordercast.groups.consumption import EVENT_BYTES, Receipt
from ordercast.groups.events import Left, MixedBatch, PortEvent, Uncertain
from ordercast.groups.locks import LockRequest, Locks
from ordercast.groups.queue import QUEUE_BYTES, QUEUE_MESSAGES
from ordercast.groups.requests import Inbox, PendingReply
from ordercast.groups.rows import Meter
from ordercast.groups.status import Resumed, Stalled
from ordercast.groups.watches import Watch
from ordercast.service import AGREED, Service
from ordercast.view import Member, View

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.engines import GroupEngine
    from ordercast.groups.stream import Stream

LEAVE_PATIENCE_NS: Final = 3 * SECOND
"""How long a leave waits for what was sent before it; a group that does not work must not hold its members."""


class PendingLeave:
    """A port is on its way out. What all idle ports would carry along stands here."""

    __slots__ = ("due_ns", "header", "is_ordered", "number")

    def __init__(self, header: bytes, is_ordered: bool, number: int) -> None:
        self.header: bytes | None = header  # None: the leave is under way
        self.is_ordered = is_ordered  # it is a view of the group, or does not happen
        self.number = number  # it waits until all own messages below this are delivered
        self.due_ns = NEVER  # and at most until then


class Port:
    """One group as one session has it. The `Host` and the `Channel` drive it."""

    __slots__ = (
        "_calls",
        "_events",
        "_locks",
        "_taken",
        "_taking",
        "channel",
        "gone",
        "group",
        "held_bytes",
        "is_changed",
        "is_leaving",
        "join_header",
        "messages_delivered",
        "messages_sent",
        "notices",
        "number",
        "queue",
        "refusal",
        "resets",
        "respond",
        "stream",
        "transitional",
        "view",
    )

    def __init__(self, group: str, number: int, stream: Stream, join_header: bytes = b"") -> None:
        # what it belongs to
        self.group = group
        self.number = number  # of the group, on its underlay; -1: on a shared one it is not in yet
        self.channel: Channel = stream.channel
        self.stream = stream
        self.queue = stream.queue
        # membership
        self.view: View | None = None  # None: not a member
        self.refusal: str | None = None  # why the join came to nothing
        self.gone: Left | None = None  # out for good
        self.transitional = ""  # the underlay's view whose recovery this port has heard of
        self.join_header = join_header  # on a shared underlay; kept for a return
        self.is_leaving = False
        self.resets: tuple[Reset, ...] = ()  # ended and not yet taken by the API
        self.is_changed = True  # view, end, refusal or resets have changed since the API looked
        # locks and calls, once there are any
        self._locks: Locks | None = None
        self._calls: Calls | None = None
        self.respond: Callable[[PendingReply, bytes], Awaitable[None]] | None = None  # the API's
        # Received: two lists make a queue. An empty deque would take ten times the memory.
        self._events: list[tuple[PortEvent, Receipt | None]] = []  # newest last
        self._taking: list[tuple[PortEvent, Receipt | None]] = []  # before these, oldest last
        self._taken: Receipt | None = None  # of the event that the application works on
        # These overtake all others. At most two are kept, the last `Stalled` and the `Resumed` that ends it.
        self.notices: list[PortEvent] | None = None
        self.held_bytes = 0  # on this port's own account (`groups/consumption.py`)
        # counters
        self.messages_sent = 0
        self.messages_delivered = 0

    # State.

    @property
    def driven(self) -> Channel:
        """What a pass works on when something happens to this port."""
        return self.channel

    @property
    def title(self) -> str:
        """What texts call it: a base port has the name of its underlay."""
        return self.group or self.channel.underlay

    @property
    def engine(self) -> GroupEngine:
        return self.channel.engine

    @property
    def underlay(self) -> str:
        return self.channel.underlay

    @property
    def me(self) -> Member:
        """The member of the group that this port is."""
        return self.stream.me

    @property
    def is_member(self) -> bool:
        return self.view is not None

    @property
    def is_joinable(self) -> bool:
        """Whether others may come into the group through this node: not where it is one of many on its underlay."""
        return self.view is not None and not self.is_leaving and self.channel.shared is None

    @property
    def failure(self) -> str | None:
        """Why calls fail until a reset; None if they do not."""
        return self.channel.failure

    @property
    def default_service(self) -> Service:
        return self.channel.default_service

    @property
    def next_block(self) -> int:
        return self.channel.next_block

    @property
    def sent(self) -> Meter:
        return self.channel.sent

    @property
    def received(self) -> Meter:
        return self.channel.received

    @property
    def counters(self) -> dict[str, int]:
        reception = self.channel.reception
        self.messages_sent += self.stream.wanted.take_count(self.number)
        return {
            "unreadable_blocks": reception.unreadable_blocks,
            "dropped_fragments": reception.dropped_fragments,
            "messages_sent": self.messages_sent,
            "messages_delivered": self.messages_delivered,
        }

    @property
    def settled(self) -> list[Watch]:
        """Waits of the session on this channel that have come to their end, for the API to take."""
        return self.stream.watches.settled

    # The application sends.

    def check(self, size: int, service: Service, type_: int) -> None:
        """Raise what is wrong with a message before it is taken."""
        self.check_open()
        self.channel.check_message(size, service, type_, self.group)

    def check_open(self) -> None:
        """Raise if calls on this group fail at present."""
        if self.gone is not None or self.is_leaving:
            raise NotMember(f"this node is not in {self.title!r}: {self.gone.text if self.gone else 'it is leaving'}")
        failure = self.channel.failure
        if failure is not None:
            raise GroupFailed(f"{self.title!r} has failed ({failure}); call reset()")

    @property
    def has_room(self) -> bool:
        return self.queue.has_room

    @property
    def end_number(self) -> int:
        """The number of the next message that is offered."""
        return self.queue.end_number

    def try_offer(self, payload: bytes, service: Service, type_: int) -> int:
        """`check` and `offer` in one for the usual case: the number, or -1: ask them. Hot: once per `send`."""
        queue, channel = self.queue, self.channel
        if (
            self.view is not None
            and channel.failure is None
            and not self.is_leaving
            and (service is channel.usual or service in channel.supported)  # hashing costs 300 ns
            and len(payload) <= channel.max_message
            and (type_.__class__ is int and TYPE_MIN <= type_ <= TYPE_MAX)
            and queue.queued_bytes < QUEUE_BYTES
            and queue.count < QUEUE_MESSAGES
        ):
            number = queue.next_number + queue.count
            queue.offer(payload, service, type_, self)
            return number
        return -1

    def offer(self, payload: bytes, service: Service, type_: int = 0, priority: int = 0) -> int:
        """Queue one message; its number, or -1: the queue is full, wait. `check` was called before."""
        queue = self.queue
        if not queue.has_room:
            return -1
        number = queue.end_number
        queue.offer(payload, service, type_, self, priority)
        return number

    def offer_many(
        self, payloads: Sequence[bytes], service: Service, type_: int = 0, lengths: list[int] | None = None
    ) -> int:
        """Queue messages from the first on; how many were taken. They have consecutive numbers from `end_number` on.

        The sequence, and the list of its lengths where the caller has it, are kept and must not be changed afterwards.
        """
        return self.queue.offer_many(payloads, service, type_, lengths, self)

    def watch(self, first: int, stop: int, service: Service) -> Watch:
        """Wait for own messages [first, stop), which have just been offered: it comes back in `settled`."""
        return self.stream.watches.confirm(first, stop, service, self)

    def flush(self) -> Watch | None:
        """Wait until everything offered so far is delivered here, to the session's other groups on the channel, too.

        None if it is.
        """
        return self.stream.flush()

    def forget(self, watch: Watch) -> None:
        """Nobody waits for it any more."""
        self.stream.watches.forget(watch)

    # The application calls, and is called.

    @property
    def locks(self) -> Locks:
        """Those of all sessions of this node that are in the group."""
        if self._locks is None:
            shared = self.channel.shared
            self._locks = shared.locks.of_group(self.group) if shared is not None else Locks(self.channel.me.id)
            if self.view is not None and self.group:
                self._locks.on_view(self.view, self)
            self.channel.add_talker(self)
        return self._locks

    @property
    def calls(self) -> Calls:
        if self._calls is None:
            channel = self.channel
            self._calls = Calls(self.group, self.me, channel.me.id, channel.engine, self.locks, channel.out, self)
            self._calls.respond = self.respond
        return self._calls

    def check_locks(self) -> None:
        """Raise if this group has no locks, handlers and calls."""
        self.check_open()
        if not self.engine.gives_locks:
            raise no_locks(self.title, self.engine.config.orderer)

    @property
    def takes_calls(self) -> bool:
        """Whether calls may be this session's to answer, or answers for it."""
        return not self.stream.label or self._locks is not None

    def lock(self, key: str, tries_once: bool = False) -> LockRequest:
        return self.locks.claim(key, None, tries_once, self)

    def call(self, payload: bytes, service: Service, handler: int, type_: int = 0) -> Asked | None:
        """Queue a call of this member; None: the queue is full, wait. The answer comes back in `calls.settled`."""
        queue = self.queue
        if not queue.has_room:
            return None
        asked, head = self.calls.ask(queue.end_number, handler)
        queue.offer_call(payload, service, type_, head, self)
        return asked

    def answer(self, owed: PendingReply, payload: bytes) -> bool:
        """Answer a call; False: the queue is full, wait."""
        if self.view is None or self.is_leaving:
            raise NotMember(f"this node is no longer in {self.title!r}: it cannot answer")
        if not owed.is_outside and not self.queue.has_room:
            return False
        head = self.calls.answer(owed, payload)
        if head is not None:
            self.queue.offer_call(payload, AGREED, 0, head, self)
        return True

    def serve(self, handler: int, tries_once: bool = False) -> LockRequest:
        """Want a handler: when the claim holds it, requests come to its `inbox`, an `Inbox`."""
        return self.locks.claim(str(handler), Inbox(), tries_once, self)

    def take_settled(self) -> list[Watch | Asked | LockRequest]:
        """Everything that somebody may have waited for and that has come to its end since the last call."""
        settled: list[Watch | Asked | LockRequest] = []
        watches = self.stream.watches.settled
        if watches:
            settled += watches
            watches.clear()
        for calls in (self.stream.outside, self._calls):
            if calls is not None and calls.settled:
                settled += calls.settled
                calls.settled.clear()
        if self._locks is not None:
            settled += self._locks.take_settled(self)
        return settled

    # The application receives.

    @property
    def has_events(self) -> bool:
        return bool(self._taking or self._events or self.notices)

    def take(self) -> PortEvent | None:
        """The next event. Asking for it says that the application has finished with the one before."""
        taken = self._taken
        if taken is not None:
            self._taken = None
            if self.is_leaving:
                taken.leaving -= 1
            self.channel.consumption.finish(taken)
        if self.notices:
            return self.notices.pop(0)
        if not self._taking:
            if not self._events:
                return None
            self._events.reverse()
            self._taking, self._events = self._events, self._taking
        event, receipt = self._taking.pop()
        if receipt is not None:
            if receipt.seq >= 0:
                self._taken = receipt
            else:
                self._finish(receipt)  # it holds no buffer
        return event

    def take_over(self, ports: Sequence[Port]) -> None:
        """This is a base port: what others have queued comes here, in one order, before what follows."""
        found: list[tuple[PortEvent, Receipt]] = []
        for port in ports:
            for event, receipt in (*port._taking, *port._events):
                if receipt is not None:  # only a port that has ended has such
                    receipt.leaving += int(self.is_leaving) - int(port.is_leaving)
                    found.append((event, receipt))
            port._taking, port._events = [], []
            self.held_bytes += port.held_bytes
            port.held_bytes = 0
        found.sort(key=_turn_of)
        self._events += self._joined(found)

    def _joined(self, found: list[tuple[PortEvent, Receipt]]) -> list[tuple[PortEvent, Receipt | None]]:
        """The same, where a block that was divided by group is whole again."""
        joined: list[tuple[PortEvent, Receipt | None]] = []
        blocks: dict[int, tuple[int, list[MixedBatch]]] = {}  # where each stands, and its parts
        kept: dict[int, Receipt] = {}
        for event, receipt in found:
            block = id(event.part_of) if isinstance(event, MixedBatch) and event.part_of is not None else 0
            if not block or not isinstance(event, MixedBatch):
                joined.append((event, receipt))
            elif block not in blocks:
                blocks[block], kept[block] = (len(joined), [event]), receipt
                joined.append((event, receipt))
            else:
                blocks[block][1].append(event)
                # One receipt remains: the one that the engine waits for, if there is one.
                other = kept[block]
                kept[block], spare = (receipt, other) if receipt.seq > other.seq else (other, receipt)
                self._finish(spare)
        for block, (at, parts) in blocks.items():
            joined[at] = (parts[0].with_parts(parts[1:]), kept[block])
        return joined

    def finish_taken(self) -> None:
        """The application has finished with the event it took last."""
        receipt, self._taken = self._taken, None
        if receipt is not None:
            self._finish(receipt)

    @property
    def has_consumed(self) -> bool:
        """The engine is to be told of buffers that are free again: a pass is wanted."""
        return self.channel.consumption.has_news

    @property
    def is_holding_up(self) -> bool:
        """The underlay waits for the application to receive here, because this port holds as much as it may."""
        waiting = (*self._taking, *self._events, (None, self._taken))
        return any(receipt is not None and receipt.seq >= 0 for _, receipt in waiting)

    def may_hold(self, size: int) -> bool:
        """Whether `size` more bytes go on this port's own account."""
        return self.stream.may_hold(self.held_bytes, size)

    def _finish(self, receipt: Receipt) -> None:
        self.held_bytes -= receipt.size
        self.stream.held_bytes -= receipt.size
        if self.is_leaving:
            receipt.leaving -= 1
        self.channel.consumption.finish(receipt)

    # The application changes its membership.

    def leave(self, header: bytes, is_ordered: bool = False) -> None:
        """Leave once everything that was sent is delivered. Offers end here. In a group that has failed, or fails
        meanwhile: at once and without a view, or not at all with `is_ordered`."""
        if self.gone is not None:
            return
        before = self.channel.leaving.get(self)
        if before is not None:
            before.is_ordered = is_ordered and before.is_ordered
            return
        self.is_leaving = True
        self._count_leaving(1)
        self.channel.leaving[self] = PendingLeave(header, is_ordered, self.queue.end_number)

    def stay(self) -> None:
        """The group has failed before the leave was ordered: it has not happened."""
        self.is_leaving = False
        self._count_leaving(-1)
        self.changed()

    def _count_leaving(self, step: int) -> None:
        for _, receipt in (*self._taking, *self._events):
            if receipt is not None:
                receipt.leaving += step
        if self._taken is not None:
            self._taken.leaving += step

    def may_leave(self, now_ns: int, leave: PendingLeave) -> bool:
        """Whether everything sent is delivered, or there is no point in waiting for that."""
        if self.view is None or self.channel.failure is not None:
            return True
        if leave.due_ns == NEVER:
            leave.due_ns = now_ns + LEAVE_PATIENCE_NS
        return self.stream.lowest_undelivered >= leave.number or leave.due_ns <= now_ns

    # The channel.

    def changed(self) -> None:
        """The API is to look at this port after the pass."""
        self.is_changed = True
        self.channel.note(self)

    def add(self, event: PortEvent, receipt: Receipt) -> None:
        """Queue an event. Hot: once per block."""
        if self.stream.is_fed and self.stream.base is not None:
            self = self.stream.base
        self.channel.note(self)
        self._events.append((event, receipt))
        self.held_bytes += receipt.size
        self.stream.held_bytes += receipt.size
        if self.is_leaving:
            receipt.leaving += 1

    def tell(self, event: PortEvent) -> None:
        """Queue an event of this port alone, which holds no buffer."""
        consumption = self.channel.consumption
        if self.may_hold(EVENT_BYTES):
            self.add(event, consumption.hold(EVENT_BYTES, 1))
        else:
            self.add(event, consumption.add(-1, 1))

    def notify(self, event: Stalled | Resumed) -> None:
        """Tell the application ahead of everything else. What it has not taken is bounded, however long it waits."""
        before = self.notices[-1:] if self.notices and isinstance(event, Resumed) else []
        self.notices = [*before, event]
        self.channel.note(self)

    def lose(self, first: int, count: int) -> None:
        """Own messages were lost with this node's membership."""
        if self.gone is None:
            group = self.group if self.channel.shared is not None else ""
            self.tell(Uncertain(first, count, group))

    @property
    def is_waiting(self) -> bool:
        """Whether the application waits for a lock, or for the answer to a call."""
        locks, calls = self._locks, self._calls
        return (locks is not None and locks.is_waiting) or (calls is not None and calls.is_waiting)

    @property
    def has_steps(self) -> bool:
        """Requests for locks, or answers, are to leave with this pass."""
        locks, calls, is_in = self._locks, self._calls, self.number >= 0 or self.channel.shared is None
        return (locks is not None and is_in and bool(locks.todo)) or (calls is not None and calls.has_answers)

    def take_steps(self, now_ns: int) -> None:
        """Tell the engine what this member wants of locks, and let answers leave."""
        channel = self.channel
        engine, out = self.engine, channel.out
        if self._locks is not None:
            steps, self._locks.todo = self._locks.todo, []
            for key, is_release, is_again, owner in steps:
                named = f"{self.number}:{key}" if channel.shared is not None else key
                if is_release:
                    if not is_again:
                        (owner if isinstance(owner, Port) else self).stream.rows.unlock(now_ns, self.number, key)
                    engine.unlock(now_ns, named, out)
                else:
                    engine.lock(now_ns, named, out)
        if self._calls is not None:
            for owed in self._calls.send():
                if not owed.is_again:
                    self.stream.rows.reply(now_ns, self.number, owed.sender, owed.first)

    def on_view(self, view: View, now_ns: int | None = None) -> None:
        """Locks that the view gives to this node are written to the trace, where the time of that is given."""
        self.view = view
        self.changed()
        if not self.group or (self._locks is None and self.channel.me.id not in view.locks.values()):
            return  # a base port has no locks: those in the view of its underlay are those of groups
        for key in self.locks.on_view(view, self):
            owner = self.locks.owner(key)
            if now_ns is not None:
                (owner if isinstance(owner, Port) else self).stream.rows.lock(now_ns, self.number, key)

    def on_denied(self, lock: str) -> bool:
        """Whether it was about this group: all sessions of the node that are in it have one account of its locks."""
        prefix = f"{self.number}:" if self.channel.shared is not None else ""
        if self._locks is None or not lock.startswith(prefix):
            return False
        self._locks.on_denied(lock.removeprefix(prefix))
        return True

    def on_departed(self) -> None:
        """This node is out of the underlay, for good or to come back as a new member."""
        self.view = None
        self.changed()
        if self._locks is not None and self.channel.view is None:
            self._locks.on_gone()
        elif self._locks is not None:
            self._locks.leave(self)
        if self._calls is not None:
            self._calls.on_gone()
            # An answer would come where this node no longer is. Calls that are still queued leave when it is back.
            lost = OutcomeUnknown(f"this node was out of {self.title!r} before the answer to its call came")
            self._calls.fail(lost, stop=self.stream.lowest_unsent)

    def end(self, left: Left) -> None:
        """Out for good. What was received can still be taken; it holds no buffer any more."""
        self.gone = left
        self.view = self.notices = None
        self.changed()
        self.finish_taken()
        for events in (self._taking, self._events):
            for at, (event, receipt) in enumerate(events):
                if receipt is not None:
                    events[at] = (event, None)
                    self._finish(receipt)
        base = self.stream.base if self.stream.is_fed else None
        if base is None or self.channel.is_over:
            self._events.append((left, None))  # where the whole underlay is left, its base port is told once
        else:
            base._events.append((left, None))
            self.channel.note(base)
        self.fail_requests(NotMember(f"this node is no longer in {self.title!r}: {left.text}"))

    def fail(self, error: OrdercastError) -> None:
        """All waits end with `error`: those of this port, and those for own messages on the same stream."""
        self.stream.fail(error)
        self.fail_requests(error)

    def fail_requests(self, error: OrdercastError) -> None:
        """All waits for an answer or a lock end with `error`."""
        if self._calls is not None:
            self._calls.fail(error)
        if self._locks is not None:
            self._locks.fail(error, self)


def _turn_of(queued: tuple[PortEvent, Receipt]) -> int:
    return queued[1].turn
