"""The public API on asyncio: send to a group, receive from it (docs/api.md). `NodeBase.join` makes a `Group`.

Every await here may be cancelled: an event is taken from its port only when it is returned, and a message is either
accepted or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, overload

from ordercast.config import GroupConfig, MinMembers
from ordercast.errors import (
    CallTimeout,
    InvariantViolation,
    JoinRefused,
    MessageTooLarge,
    NotEnoughMembers,
    NotMember,
    OrdercastError,
    UsageError,
)
from ordercast.groups.calls import Asked
from ordercast.groups.checks import (
    Payload,
    as_bytes,
    as_header,
    as_lock,
    check_call,
    check_handler,
    check_min_members,
    check_timeout,
)
from ordercast.groups.events import Batch, Event, Message, PortEvent
from ordercast.groups.locking import Handler, Lock
from ordercast.groups.port import Port
from ordercast.groups.requests import PendingReply
from ordercast.groups.watches import Watch
from ordercast.service import RELIABLE, UNRELIABLE, Service
from ordercast.view import Member, View

if TYPE_CHECKING:
    from ordercast.groups.base import NodeBase

CHUNK_MESSAGES: Final = 16_384
"""Messages that `send_many` offers at once, so that a very long list is not sliced over and over."""

CALL_TIMEOUT_S: Final = 30.0
"""How long a call waits for its answer by default."""

_BYTES_ONLY: Final = {bytes}

_T = TypeVar("_T")


class Group:
    """One group, as one member sees it. Made by `join`. One task at a time may receive; any number may send."""

    def __init__(self, node: NodeBase, port: Port) -> None:
        loop = asyncio.get_running_loop()
        self._node = node
        self._port = port
        self._loop = loop
        self._error: OrdercastError | None = None
        # membership
        self._joined: asyncio.Future[None] = loop.create_future()
        self._leaves: list[asyncio.Future[None]] = []
        self._resets: list[asyncio.Future[int]] = []
        # sending: one at a time, in the order of the calls
        self._turn = asyncio.Lock()
        self._in_turn = 0
        self._room: asyncio.Future[None] | None = None
        # receiving
        self._consumer: asyncio.Future[None] | None = None
        self._batch: Batch | None = None  # being handed out one by one
        self._messages: Iterator[Message] = iter(())
        self._handed = 0
        # calls
        self._handlers: set[Handler] = set()  # entered, or being waited for
        port.calls.respond = self._respond

    # State.

    @property
    def name(self) -> str:
        return self._port.group

    @property
    def view(self) -> View | None:
        """The newest view that this node has, None when it is out. The events tell where in the order it came."""
        return self._port.view

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of `view`, the leader first; empty when this node is out."""
        view = self._port.view
        return view.members if view else ()

    @property
    def is_member(self) -> bool:
        return self._port.is_member

    @property
    def config(self) -> GroupConfig:
        """The group's parameters, as they were set when it was created."""
        return self._port.engine.config

    @property
    def default_service(self) -> Service:
        """What a send that names no service gets: AGREED, or RESILIENT(resilience)."""
        return self._port.default_service

    @property
    def locks(self) -> dict[str, str]:
        """Who holds what, by `view`: locks by name, each with its holder's name/life."""
        view = self._port.view
        if view is None:
            return {}
        names = {member.id: str(member) for member in view.members}
        return {key: names.get(holder, f"{holder:016x}") for key, holder in view.locks.items()}

    @property
    def stats(self) -> dict[str, int]:
        """Counters: of this handle, of the protocol, and datagrams by kind (`sent.data`, `received.ack`, …)."""
        port = self._port
        stats = {**port.counters, **port.engine.counters}
        stats["queued_messages"] = port.queue.count
        stats["queued_bytes"] = port.queue.queued_bytes
        for word, meter in (("sent", port.sent), ("received", port.received)):
            for detail, count in meter.by_detail().items():
                stats[f"{word}.{detail}"] = count
        return stats

    # Sending.

    @overload
    async def send(
        self, payload: Payload, service: Service | None = None, type: int = 0, confirm: Literal[False] = False
    ) -> None: ...

    @overload
    async def send(
        self, payload: Payload, service: Service | None = None, type: int = 0, *, confirm: Literal[True]
    ) -> int: ...

    @overload
    async def send(
        self, payload: Payload, service: Service | None = None, type: int = 0, confirm: bool = False
    ) -> int | None: ...

    async def send(
        self, payload: Payload, service: Service | None = None, type: int = 0, confirm: bool = False
    ) -> int | None:
        """Send one message to all members, this one included. Amoeba's SendToGroup.

        Returns when the message is accepted; that takes long only while the queue is full. With `confirm` it returns
        the message's position once it is delivered here, so that the promise of its service holds (-1 for a service
        without order). Raises GroupFailed, NotMember, OutcomeUnknown, UnsupportedService, MessageTooLarge.
        """
        if payload.__class__ is not bytes:
            payload = as_bytes(payload)
        port = self._port
        if service is None:
            service = port.default_service
        number = -1 if self._in_turn or self._error is not None else port.try_offer(payload, service, type)
        watch: Watch | None = None
        if number >= 0:
            if confirm:
                watch = port.watch(number, number + 1, service)
        else:
            self._check(len(payload), service, type)
            self._in_turn += 1
            try:
                async with self._turn:
                    await self._wait_for_room()
                    number = port.offer(payload, service, type)
                    if confirm:
                        watch = port.watch(number, number + 1, service)
            finally:
                self._in_turn -= 1
        if watch is None:
            self._touch()
            return None
        self._now()
        await self._outcome(watch)
        return watch.position

    @overload
    async def send_many(
        self,
        payloads: Iterable[Payload],
        service: Service | None = None,
        type: int = 0,
        confirm: Literal[False] = False,
    ) -> None: ...

    @overload
    async def send_many(
        self, payloads: Iterable[Payload], service: Service | None = None, type: int = 0, *, confirm: Literal[True]
    ) -> int: ...

    @overload
    async def send_many(
        self, payloads: Iterable[Payload], service: Service | None = None, type: int = 0, confirm: bool = False
    ) -> int | None: ...

    async def send_many(
        self, payloads: Iterable[Payload], service: Service | None = None, type: int = 0, confirm: bool = False
    ) -> int | None:
        """Send many messages, which follow one another in this sender's order; those of others may come between.

        Returns when all are accepted. With `confirm` it returns the position of the *first* when *all* are delivered
        here (-1 if there is none). A call that is cancelled or fails half-way has sent the first of them. Errors as
        `send`.
        """
        # Hot: benches measure it; each line that touches every message costs nanoseconds a message.
        items = list(payloads)
        if not items:
            return -1 if confirm else None
        if set(map(_class_of, items)) != _BYTES_ONLY:
            items = [as_bytes(payload) for payload in items]
        port = self._port
        if service is None:
            service = port.default_service
        lengths = list(map(len, items))
        self._check(0, service, type)
        longest = port.engine.config.max_message
        if sum(lengths) > longest and max(lengths) > longest:
            raise MessageTooLarge(
                f"{max(lengths)} bytes exceed max_message={longest}, set when {self.name!r} was created"
            )
        watch: Watch | None = None
        self._in_turn += 1
        try:
            async with self._turn:
                if confirm:
                    watch = port.watch(port.end_number, port.end_number + len(items), service)
                start = 0
                while start < len(items):
                    await self._wait_for_room()
                    stop = start + CHUNK_MESSAGES
                    start += port.offer_many(items[start:stop], service, type, lengths[start:stop])  # type: ignore[arg-type]
                    self._touch()
        except BaseException:
            if watch is not None:
                port.forget(watch)
            raise
        finally:
            self._in_turn -= 1
        if watch is None:
            return None
        await self._outcome(watch)
        return watch.position

    async def flush(self) -> None:
        """Wait until everything that was sent before is delivered here. Errors as a confirmed send."""
        self._check_open()
        watch = self._port.flush()
        if watch is not None:
            await self._outcome(watch)

    # Receiving.

    @property
    def has_events(self) -> bool:
        """Whether the next `receive` returns at once."""
        return self._port.has_events or (self._batch is not None and self._handed < len(self._batch.messages))

    async def receive(self) -> tuple[Event, bool]:
        """The next event, and whether more of them are here already. Amoeba's ReceiveFromGroup.

        Raises NotMember behind the final `Left`.
        """
        event = await self._next_event()
        return event, self.has_events

    async def take(self, limit: int = 64) -> list[PortEvent]:
        """The next events as `batches` yields them: waits for one, and adds those that are here, at most `limit`.

        They count as received when more is asked for. Raises NotMember behind the final `Left`.
        """
        rest = self._take_rest()
        events = [rest if rest is not None else await self._next()]
        while len(events) < limit and self._port.has_events:
            events.append(await self._next())
        return events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        # Hot in the per-message face: nothing is awaited while there are messages at hand.
        message = next(self._messages, None)
        if message is not None:
            self._handed += 1
            return message
        if self._port.gone is not None and not self._port.has_events and self._error is None:
            raise StopAsyncIteration
        return await self._next_event()

    async def batches(self) -> AsyncIterator[PortEvent]:
        """Blocks of messages as they come, with the other events between them in order. Ends behind the final `Left`.

        The fast face: a `Batch` is one sender's consecutive messages, opened by its first use. A batch counts as
        received, and its buffers are free for the group, when the next one is asked for.
        """
        while True:
            rest = self._take_rest()
            if rest is not None:
                yield rest
            if self._port.gone is not None and not self._port.has_events and self._error is None:
                return
            yield await self._next()

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
        """Send one message to all members, and return the answer of who holds the handler. RMP section 3.3.

        The answer goes to all members as well. Raises CallTimeout after `timeout` seconds (None: never), Unhandled
        where nobody held the handler, and what a confirmed send raises. A call fits one block.
        """
        payload = as_bytes(payload)
        check_handler(handler)
        check_timeout(timeout)
        check_call(len(payload), "a call")
        if service is None:
            service = self._port.default_service
        if service == UNRELIABLE:
            service = RELIABLE  # who must answer is a question of its place, and UNRELIABLE messages have none
        self._check(len(payload), service, type)
        self._check_locks()
        port = self._port
        asked: Asked | None = None
        try:
            async with asyncio.timeout(timeout) as bound:
                asked = await self._offer(lambda: port.call(payload, service, handler, type))
                asked.waiter = self._loop.create_future()
                self._now()
                await asked.waiter
        except BaseException as error:
            if asked is not None:
                port.calls.forget(asked)
            if isinstance(error, TimeoutError) and bound.expired():
                text = f"the holder of handler {handler} of {self.name!r} has not answered within {timeout} s"
                raise CallTimeout(f"{text}: the call may or may not have been carried out") from None
            raise
        if asked.error is not None:
            raise asked.error
        if asked.answer is None:
            raise InvariantViolation("a call was settled without an answer and without an error")
        return asked.answer

    def lock(self, key: str | int, timeout: float | None = None) -> Lock:
        """A lock of the group, by a name or a number: `async with group.lock("printer") as lock`. RMP section 3.3.

        Entering waits until this member holds it, TimeoutError after `timeout` seconds. Locks are granted in the total
        order. Numbers 0 to 5 are the handlers'.
        """
        check_timeout(timeout)
        self._check_locks()
        return Lock(self, as_lock(key), timeout)

    def handler(self, handler: int, timeout: float | None = None) -> Handler:
        """Answer calls: `async with group.handler(2) as h`, then `async for request in h`. RMP section 3.3."""
        check_timeout(timeout)
        self._check_locks()
        return Handler(self, check_handler(handler), timeout)

    # Membership.

    async def leave(self, header: bytes = b"") -> None:
        """Leave in order, after everything that was sent; the others get `header` with the view. Amoeba's LeaveGroup.

        The events up to this node's leave can still be received afterwards. Leaving twice is harmless. If the wait is
        cancelled, the leave goes on.
        """
        header = as_header(header)
        if self._port.gone is not None or self._error is not None:
            return
        self._node.host.leave(self._port, header)
        left: asyncio.Future[None] = self._loop.create_future()
        self._leaves.append(left)
        self._node._wake()
        try:
            await left
        finally:
            if left in self._leaves:
                self._leaves.remove(left)

    async def reset(self, min_members: MinMembers = "majority", header: bytes = b"") -> int:
        """Make the group anew out of the members that are alive; its size. Amoeba's ResetGroup.

        Raises NotEnoughMembers if fewer than `min_members` are found: the group stays failed, and reset may be
        called again. Resets that overlap are one, with the parameters of the last, and end together.
        """
        check_min_members(min_members)
        header = as_header(header)
        port = self._port
        if port.gone is not None or port.is_leaving:
            port.check_open()
        if self._error is not None:
            raise self._error
        self._node.host.reset(self._node._now_ns(), port, min_members, header)
        done: asyncio.Future[int] = self._loop.create_future()
        self._resets.append(done)
        self._node._wake()
        try:
            return await done
        finally:
            if done in self._resets:
                self._resets.remove(done)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    # What the node calls.

    async def _is_in(self) -> bool:
        """Whether this node is in, or on its way back; waits for the end of a join or a leave."""
        if not self._joined.done():
            await asyncio.wait([self._joined])
        elif self._port.is_leaving and self._port.gone is None and self._error is None:
            await self.leave()
        return self._port.gone is None and self._error is None and not self._port.is_leaving

    def _settle(self) -> None:
        """A pass has worked on the port: whoever waited for what it brought goes on."""
        port = self._port
        if not self._joined.done():
            if port.refusal is not None:
                self._joined.set_exception(JoinRefused(port.refusal))
            elif port.gone is not None:
                self._joined.set_exception(NotMember(f"{self.name!r} was left before it was joined: {port.gone.text}"))
            elif port.view is not None:
                self._joined.set_result(None)
            if self._joined.done():
                self._joined.exception()  # seen, whether or not anybody waits any more
        wake_all(port.settled)
        wake_all(port.calls.settled)
        wake_all(port.locks.settled)
        for handler in self._handlers:
            handler._settle()
        for reset in port.resets:
            # A reset that begins while another is under way takes it over: the outcome is that of all who wait.
            waiting, self._resets = self._resets, []
            for done in waiting:
                if not done.done():
                    if reset.size:
                        done.set_result(reset.size)
                    else:
                        done.set_exception(NotEnoughMembers(f"{self.name!r} stays failed: {reset.text}"))
        port.resets.clear()
        if self._room is not None and (port.has_room or port.failure is not None or port.gone is not None):
            _wake(self._room)
        if self._consumer is not None and (port.has_events or port.gone is not None):
            _wake(self._consumer)
        if port.gone is not None:
            self._end(NotMember(f"this node is no longer in {self.name!r}: {port.gone.text}"))

    def _fail(self, error: OrdercastError) -> None:
        """The node has failed."""
        self._error = error
        if not self._joined.done():
            self._joined.set_exception(error)
            self._joined.exception()
        self._port.fail(error)
        wake_all(self._port.settled)
        wake_all(self._port.calls.settled)
        self._port.locks.on_gone()
        wake_all(self._port.locks.settled)
        for handler in self._handlers:
            handler._settle()
        _wake(self._room)
        _wake(self._consumer)
        self._end(error)

    def _end(self, error: OrdercastError) -> None:
        for done in self._resets:
            if not done.done():
                done.set_exception(error)
                done.exception()
        self._resets.clear()
        for left in self._leaves:
            _wake(left)
        self._leaves.clear()

    # In detail.

    def _touch(self) -> None:
        self._node.host.touch(self._port)
        self._node._wake()

    def _now(self) -> None:
        """Somebody waits for what has just been asked: it may leave at once."""
        if self._error is None:
            self._node.host.touch(self._port)
            self._node._pass()

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        self._port.check_open()

    def _check(self, size: int, service: Service, type_: int) -> None:
        if self._error is not None:
            raise self._error
        self._port.check(size, service, type_)

    def _check_locks(self) -> None:
        if self._error is not None:
            raise self._error
        self._port.check_locks()

    async def _offer(self, offer: Callable[[], _T | None]) -> _T:
        """Queue something that is no plain message, in turn with what others send."""
        self._in_turn += 1
        try:
            async with self._turn:
                while True:
                    await self._wait_for_room()
                    taken = offer()
                    if taken is not None:
                        return taken
        finally:
            self._in_turn -= 1

    async def _respond(self, owed: PendingReply, payload: bytes) -> None:
        """Answer a call: to a caller outside at once, to the group in turn with what is sent to it."""
        payload = as_bytes(payload)
        check_call(len(payload), "an answer")
        if self._error is not None:
            raise self._error
        if owed.is_outside:
            self._port.answer(owed, payload)
        else:
            await self._offer(lambda: self._port.answer(owed, payload) or None)
        self._now()

    async def _wait_for_room(self) -> None:
        """In turn: until the queue has room. Whoever waits learns at once when the group fails."""
        self._check_open()
        while not self._port.has_room:
            self._room = self._loop.create_future()
            try:
                await self._room
            finally:
                self._room = None
            self._check_open()

    async def _outcome(self, watch: Watch) -> None:
        if watch.error is None and (watch.remaining or watch.service is None):
            watch.waiter = self._loop.create_future()
            try:
                await watch.waiter
            except BaseException:
                self._port.forget(watch)
                raise
        if watch.error is not None:
            raise watch.error

    async def _next_event(self) -> Event:
        while True:
            message = next(self._messages, None)
            if message is not None:
                self._handed += 1
                return message
            event = await self._next()
            if not isinstance(event, Batch):
                return event
            self._set_batch(event)

    def _take_rest(self) -> Batch | None:
        """What is left of the batch whose messages were handed out one by one."""
        batch, handed = self._batch, self._handed
        if batch is None or handed >= len(batch.messages):
            return None
        self._batch = None
        self._messages = iter(())
        return batch.after(handed)

    def _set_batch(self, batch: Batch | None) -> None:
        self._batch = batch
        self._handed = 0
        self._messages = batch.each() if batch is not None else iter(())

    async def _next(self) -> PortEvent:
        """The next event of the port. What was taken before is finished with: the next pass tells the group."""
        if self._consumer is not None:
            raise UsageError(f"another task is receiving from {self.name!r}; one at a time may")
        self._set_batch(None)
        port = self._port
        while True:
            event = port.take()
            if port.has_consumed and port.engine.waits_for_application():
                self._touch()
            if event is not None:
                return event
            if self._error is not None:
                raise self._error
            if port.gone is not None:
                raise NotMember(f"this node is no longer in {self.name!r}: {port.gone.text}")
            self._consumer = self._loop.create_future()
            try:
                await self._consumer
            finally:
                self._consumer = None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def wake_all(settled: list[Any]) -> None:
    """Wake who waited for what has come, and forget it."""
    for waited in settled:
        _wake(waited.waiter)
    settled.clear()


_class_of = type  # `type` is an argument of the sends
