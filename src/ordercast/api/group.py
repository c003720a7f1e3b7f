"""One group of the public API on asyncio: send to it, receive from it (docs/api.md). `NodeBase.join` makes a `Group`.

A group stands on a `Seat`. Every await here may be cancelled: an event is taken from the seat only when it is returned,
and a message is either accepted or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self, overload

from ordercast.api.calling import Calling
from ordercast.api.checks import (
    Payload,
    as_bytes,
    as_header,
    as_lock,
    as_payloads,
    check_call,
    check_handler,
    check_min_members,
    check_timeout,
)
from ordercast.api.expelling import Expelling
from ordercast.api.feeding import Feed, GroupFeed, group_offer
from ordercast.api.locking import Handler, Lock, LockHolder
from ordercast.api.readiness import Readiness
from ordercast.api.receiving import EventReader
from ordercast.api.seat import Seat
from ordercast.api.sending import SendTurns
from ordercast.api.waiting import wake, wake_all
from ordercast.config import GroupConfig, MinMembers
from ordercast.errors import (
    GroupFailed,
    JoinRefused,
    NotEnoughMembers,
    NotMember,
    OrdercastError,
)
from ordercast.groups.events import Event, Left, PortEvent
from ordercast.groups.requests import PendingReply
from ordercast.groups.status import GroupStatus
from ordercast.service import Service
from ordercast.view import Member, View

CALL_TIMEOUT_S: Final = 30.0
"""How long a call waits for its answer by default."""


class Group:
    """One group, as one member sees it. Made by `join`. One task at a time may receive; any number may send."""

    def __init__(self, seat: Seat) -> None:
        loop = asyncio.get_running_loop()
        self._seat = seat
        self._loop = loop
        self._sending = SendTurns(seat, loop)
        self._calling = Calling(seat, self._sending, loop)
        self._reader = EventReader(seat, loop)
        self._feed: Feed[Any] | None = None
        self._handlers: set[Handler] = set()  # held, or waited for
        self._readiness = Readiness(seat)
        self._follow: Callable[[], None] | None = None  # called after each pass that brought news; of an underlay
        self._default_service = seat.default_service  # the seat's, as of the last pass: a look-up per send would cost
        # membership
        self._joined: asyncio.Future[None] = loop.create_future()
        self._leaves: list[asyncio.Future[None]] = []
        self._resets: list[tuple[MinMembers, asyncio.Future[int]]] = []
        self._expelling = Expelling(seat, loop)
        seat.respond_by(self._respond)

    def __repr__(self) -> str:
        view = self._seat.view
        if view is None:
            return f"<Group {self.name!r}, not a member>"
        return f"<Group {self.name!r}, view {view.id}: {', '.join(map(str, view.members))}>"

    # State.

    @property
    def name(self) -> str:
        """The name under which the group was joined."""
        return self._seat.group

    @property
    def member(self) -> Member:
        """This node, as the views of the group name it."""
        return self._seat.member

    @property
    def view(self) -> View | None:
        """The newest view that this node has, None when it is out. The events tell where in the order it came."""
        return self._seat.view

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of `view`, the leader first; empty when this node is out."""
        view = self._seat.view
        return view.members if view else ()

    @property
    def is_member(self) -> bool:
        """Whether this node is in the group now."""
        return self._seat.is_member

    @property
    def failure(self) -> str | None:
        """Why calls fail until the group is re-formed by a `reset`; None while it works."""
        return self._seat.failure

    @property
    def config(self) -> GroupConfig:
        """The group's parameters, as they were set when it was created."""
        return self._seat.config

    @property
    def default_service(self) -> Service:
        """What a send that names no service gets: AGREED, or RESILIENT(resilience)."""
        return self._seat.default_service

    @property
    def locks(self) -> dict[str, LockHolder]:
        """The locks that are held as of `view`: each lock's name, with its holder as name/life, which has the fencing
        token of the grant as `token`."""
        view = self._seat.view
        if view is None:
            return {}
        return {key: LockHolder(view.holder(key), view.tokens.get(key, 0)) for key in view.locks}

    @property
    def status(self) -> GroupStatus:
        """What the group is doing now; where it makes no progress, why, and for which members it waits."""
        return self._seat.status

    @property
    def stats(self) -> dict[str, int]:
        """Counters of this member. `ordercast.api.stats.GROUP_STATS` lists them; all are always there."""
        return self._seat.stats()

    # Sending.

    @overload
    async def send(
        self,
        payload: Payload,
        service: Service | None = None,
        type: int = 0,
        confirm: Literal[False] = False,
        *,
        priority: int = 0,
    ) -> None: ...

    @overload
    async def send(
        self,
        payload: Payload,
        service: Service | None = None,
        type: int = 0,
        *,
        confirm: Literal[True],
        priority: int = 0,
    ) -> int: ...

    @overload
    async def send(
        self,
        payload: Payload,
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        *,
        priority: int = 0,
    ) -> int | None: ...

    async def send(
        self,
        payload: Payload,
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        *,
        priority: int = 0,
    ) -> int | None:
        """Send one message to all members, this one included. Amoeba's SendToGroup.

        Returns when the message is accepted; that takes long only while the queue is full. With `confirm` it returns
        the message's position once it is delivered here, so that the promise of its service holds (-1 for a service
        without order). `priority`, up to 15: with the orderer `sites`, where links are behind, the message goes before
        those of other senders with less. Raises GroupFailed, NotMember, OutcomeUnknown, UnsupportedService,
        MessageTooLarge; UsageError for a priority where the orderer has none.
        """
        if payload.__class__ is not bytes:
            payload = as_bytes(payload)
        seat = self._seat
        if service is None:
            service = self._default_service
        number = -1 if self._sending.in_turn or priority else seat.try_offer(payload, service, type)
        if number < 0:
            number = await self._sending.offer(payload, service, type, priority)
        if not confirm:
            seat.wake()
            return None
        watch = seat.watch(number, number + 1, service)
        seat.hurry()
        await self._sending.outcome(watch)
        return watch.position

    @overload
    async def send_many(
        self,
        payloads: Iterable[Payload],
        service: Service | None = None,
        type: int = 0,
        confirm: Literal[False] = False,
        *,
        priority: int = 0,
    ) -> None: ...

    @overload
    async def send_many(
        self,
        payloads: Iterable[Payload],
        service: Service | None = None,
        type: int = 0,
        *,
        confirm: Literal[True],
        priority: int = 0,
    ) -> int: ...

    @overload
    async def send_many(
        self,
        payloads: Iterable[Payload],
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        *,
        priority: int = 0,
    ) -> int | None: ...

    async def send_many(
        self,
        payloads: Iterable[Payload],
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        *,
        priority: int = 0,
    ) -> int | None:
        """Send many messages, which follow one another in this sender's order; those of others may come between.

        Returns when all are accepted. With `confirm` it returns the position of the *first* when *all* are delivered
        here (-1 if there is none). A call that is cancelled or fails half-way has sent the first of them. Errors as
        `send`.
        """
        # Hot: benches measure it; each line that touches every message costs nanoseconds a message.
        items = as_payloads(payloads)
        if not items:
            return -1 if confirm else None
        if service is None:
            service = self._default_service
        lengths = list(map(len, items))
        watch = await self._sending.offer_many(items, lengths, service, type, confirm, priority)
        if watch is None:
            return None
        await self._sending.outcome(watch)
        return watch.position

    def feed(self, fn: GroupFeed, *, service: Service | None = None, type: int = 0) -> Feed[Payload]:
        """Have a function asked for messages when they may leave, instead of sending them (orderer "regions" only).

        `fn(room_bytes, max_messages)` returns payloads. It is called when rate and window permit, must not block, and
        rests after an empty answer until `signal()` of what is returned. An exception or another feed stops it."""
        seat = self._seat
        seat.check_open()
        chosen = self._default_service if service is None else service
        self._feed_by(feed := Feed(seat, fn, group_offer(seat, chosen, type), self._loop))
        return feed

    def _feed_by(self, feed: Feed[Any]) -> None:
        if self._feed is not None:
            self._feed.stop()  # first, since that ends what the seat expects of the new one
        feed._start()
        self._feed = feed

    async def flush(self) -> None:
        """Wait until everything that was sent before is delivered here. Errors are those of a confirmed send."""
        self._seat.check_open()
        watch = self._seat.flush()
        if watch is not None:
            await self._sending.outcome(watch)

    # Receiving.

    @property
    def has_events(self) -> bool:
        """Whether the next `receive` returns at once."""
        return self._reader.has_events

    async def receive(self) -> tuple[Event, bool]:
        """The next event, and whether more of them are here already. Amoeba's ReceiveFromGroup.

        Raises GroupFailed after `Failed`, until the group is re-formed, and NotMember after the final `Left`.
        """
        self._reader.check_failed()
        event = await self._reader.next_event()
        return event, self._reader.has_events

    async def take(self, limit: int = 64) -> list[PortEvent]:
        """The next events as `batches` yields them: waits for one, and adds those that are here, at most `limit`.

        They count as received when more is asked for. Raises NotMember after the final `Left`.
        """
        reader = self._reader
        rest = reader.take_rest()
        events = [rest if rest is not None else await reader.next()]
        while len(events) < limit and self._seat.has_events:
            events.append(await reader.next())
        return events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        # Hot in the per-message API: nothing is awaited while there are messages at hand.
        reader = self._reader
        message = next(reader.messages, None)
        if message is not None:
            reader.handed += 1
            return message
        if reader.has_ended:
            raise StopAsyncIteration
        return await reader.next_event()

    async def batches(self) -> AsyncIterator[PortEvent]:
        """Blocks of messages as they come, with the other events between them in order. Ends after the final `Left`.

        The fast way to receive: a `Batch` is one sender's consecutive messages, opened by its first use. A batch counts
        as received, and its buffers are free for the group, when the next one is asked for.
        """
        reader = self._reader
        while True:
            rest = reader.take_rest()
            if rest is not None:
                yield rest
            if reader.has_ended:
                return
            yield await reader.next()

    # Calls and locks.

    async def call(
        self,
        payload: Payload,
        *,
        handler: int,
        service: Service | None = None,
        timeout: float | None = CALL_TIMEOUT_S,
        type: int = 0,
    ) -> bytes:
        """Send one message to all members, and return the answer of the handler's holder. RMP section 3.3.

        The answer goes to all members as well. Raises CallTimeout after `timeout` seconds (None: never), Unhandled
        where no member held the handler, and what a confirmed send raises. A call fits one block.
        """
        chosen = self._default_service if service is None else service
        return await self._calling.call(payload, handler, chosen, type, timeout)

    async def request(self, payload: Payload, *, handler: int, service: Service | None = None, type: int = 0) -> int:
        """Send one message that names a handler, and do not wait for its answer. RMP section 3.3.

        Returns the message's number when it is accepted, as `send` does. The holder of the handler is to answer, and
        the answer comes to all members as an `Answer`, whose `answers` has this member and this number. None comes
        where no member holds the handler, or where its holder crashes. A request fits one block.
        """
        chosen = self._default_service if service is None else service
        return await self._calling.request(payload, handler, chosen, type)

    def lock(self, key: str | int, timeout: float | None = None) -> Lock:
        """A lock of the group, by a name or a number: `async with group.lock("printer") as lock`. RMP section 3.3.

        Entering waits until this member holds it, TimeoutError after `timeout` seconds. With a timeout of 0 the group
        is asked once: LockDenied names the holder where there is one. Locks are granted in the total order. The numbers
        0 to 5 belong to the handlers.
        """
        check_timeout(timeout)
        self._seat.check_locks()
        return Lock(self._seat, as_lock(key), timeout)

    def handler(self, handler: int, timeout: float | None = None) -> Handler:
        """Answer calls: `async with group.handler(2) as h`, then `async for request in h`. RMP section 3.3."""
        check_timeout(timeout)
        self._seat.check_locks()
        return Handler(self._seat, self._handlers, check_handler(handler), timeout)

    # Membership.

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the group works for this member: it is in, no recovery is under way, and there are as many members
        as `bootstrap` and `min_members` ask for. TimeoutError after `timeout` seconds says what is missing.

        NotMember if this node is out for good. What works now may stop working at any time: sends wait by themselves.
        """
        check_timeout(timeout)
        await self._readiness.wait(timeout)

    async def leave(self, header: bytes = b"") -> None:
        """Leave in order, after everything that was sent; the others get `header` with the view. Amoeba's LeaveGroup.

        The events up to this node's leave can still be received afterwards. Leaving twice is harmless. If the wait is
        cancelled, the leave goes on. Raises GroupFailed where the group has failed, or fails before the leave is
        ordered: this node is still a member then, and may `reset` the group or `abandon` it.
        """
        header, seat = as_header(header), self._seat
        if seat.failure is not None and seat.gone is None and seat.error is None and not seat.is_leaving:
            seat.check_open()
        await self._leave(header, is_ordered=True)

    async def abandon(self) -> None:
        """Leave in any case: as `leave` does while the group works, and otherwise without a view that shows it, so that
        it is one more crash to the others. Also at the end of `async with` and by `node.close()`."""
        await self._leave(b"", is_ordered=False)

    async def _leave(self, header: bytes, is_ordered: bool) -> None:
        if self._seat.gone is not None or self._seat.error is not None:
            return
        left: asyncio.Future[None] = self._loop.create_future()
        self._seat.leave(header, is_ordered)
        self._leaves.append(left)
        try:
            await left
        finally:
            if left in self._leaves:
                self._leaves.remove(left)

    async def reset(self, min_members: MinMembers = "majority", header: bytes = b"") -> int:
        """Make a new view out of the members that are alive; its size. Amoeba's ResetGroup.

        Raises NotEnoughMembers if the new view has fewer than `min_members`, or if none was made since too few were
        found: then the group stays failed, and reset may be called again. Resets that overlap, of this or of several
        members, make one view between them, and each has its own minimum.
        """
        check_min_members(min_members)
        header = as_header(header)
        seat = self._seat
        if seat.error is not None:
            raise seat.error
        if seat.gone is not None or seat.is_leaving:
            seat.check_open()
        done: asyncio.Future[int] = self._loop.create_future()
        seat.reset(min_members, header)
        waiting = (min_members, done)
        self._resets.append(waiting)
        try:
            return await done
        finally:
            if waiting in self._resets:
                self._resets.remove(waiting)

    async def expel(self, member: Member | str | int, why: str = "") -> None:
        """Have the group go on without another member; returns with the view that is without it.

        member: as views have it, or by its name, as name/life, or by its id. It gets everything that is ordered before,
        and then `Left(returning=False)` with `why`: it is out for good, unless its program joins again. What it has
        sent and is not ordered then is dropped, and `Uncertain` tells it so. Raises UsageError for this node itself,
        which is to `leave`, and for one that is not in the view; GroupFailed and NotMember as `send`.
        """
        await self._expelling.expel(member, why)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abandon()

    # What the node calls.

    async def _wait_until_joined(self) -> None:
        await self._joined

    async def _wait_with_others(self) -> None:
        """As `_wait_until_joined`, where several tasks may wait: one that is cancelled leaves the others alone."""
        if not self._joined.done():
            await asyncio.wait([self._joined])
        self._joined.result()

    async def _wait_until_left(self) -> None:
        """Wait for the end of a leave, whatever it comes to."""
        with suppress(GroupFailed):
            await self._leave(b"", is_ordered=True)

    def _is_final(self, left: Left) -> bool:
        """Whether nothing follows. The events of an underlay tell of the end of each of its groups."""
        return not left.returning and left.group in ("", self.name)

    @property
    def _is_leaving(self) -> bool:
        return self._seat.is_leaving and self._seat.gone is None and self._seat.error is None

    async def _is_in(self) -> bool:
        """Whether this node is in, or on its way back; waits for the end of a join or a leave."""
        seat = self._seat
        if not self._joined.done():
            await asyncio.wait([self._joined])
        elif self._is_leaving:
            await self._wait_until_left()
        return seat.gone is None and seat.error is None and not seat.is_leaving

    def _settle(self) -> bool:
        """A pass has worked on the seat: the tasks that waited for what it brought go on. Whether it has ended."""
        seat = self._seat
        has_ended = seat.take_changed() and self._follow_membership()
        wake_all(seat.take_settled())
        for handler in self._handlers:
            handler._settle()
        self._sending.settle()
        self._reader.settle()
        self._readiness.settle()
        if self._feed is not None:
            self._feed._settle()
        if self._follow is not None:
            self._follow()
        if has_ended and seat.gone is not None:
            self._end(NotMember(f"this node is no longer in {self.name!r}: {seat.gone.text}"))
        return has_ended

    def _follow_membership(self) -> bool:
        """The view, the end or a reset may be new. Whether this node is out for good."""
        seat = self._seat
        gone = seat.gone
        self._default_service = seat.default_service
        if not self._joined.done():
            if seat.refusal is not None:
                self._joined.set_exception(JoinRefused(seat.refusal))
            elif gone is not None:
                self._joined.set_exception(NotMember(f"{self.name!r} was left before it was joined: {gone.text}"))
            elif seat.view is not None:
                self._joined.set_result(None)
            if self._joined.done():
                self._joined.exception()  # seen, also where no task waits any more
        for reset in seat.take_resets():
            for rule, done in self._resets:
                if not done.done() and reset.rule in (None, rule):
                    if reset.size:
                        done.set_result(reset.size)
                    else:
                        done.set_exception(NotEnoughMembers(f"reset of {self.name!r}: {reset.text}"))
            self._resets = [(rule, done) for rule, done in self._resets if not done.done()]
        self._expelling.follow()
        if self._leaves and not seat.is_leaving and gone is None:
            failed = GroupFailed(f"{self.name!r} has failed before this node's leave was ordered; call reset()")
            for left in self._leaves:
                if not left.done():
                    left.set_exception(failed)
                    left.exception()
            self._leaves.clear()
        return gone is not None

    def _fail(self, error: OrdercastError) -> None:
        """The node has failed."""
        self._seat.fail(error)
        if not self._joined.done():
            self._joined.set_exception(error)
            self._joined.exception()
        wake_all(self._seat.take_settled())
        for handler in self._handlers:
            handler._settle()
        self._sending.settle()
        self._reader.settle()
        self._readiness.settle()
        if self._follow is not None:
            self._follow()
        self._end(error)

    def _end(self, error: OrdercastError) -> None:
        self._expelling.fail(error)
        for _, done in self._resets:
            if not done.done():
                done.set_exception(error)
                done.exception()
        self._resets.clear()
        for left in self._leaves:
            wake(left)
        self._leaves.clear()

    async def _respond(self, owed: PendingReply, payload: bytes) -> None:
        """Answer a call: to a caller outside at once, to the group in turn with what is sent to it."""
        payload = as_bytes(payload)
        check_call(len(payload), "an answer")
        seat = self._seat
        if owed.is_outside:
            seat.answer(owed, payload)
        else:
            await self._sending.take(lambda: seat.answer(owed, payload) or None)
        seat.hurry()
