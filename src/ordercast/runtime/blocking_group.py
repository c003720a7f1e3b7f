"""Groups, locks and handlers for programs without asyncio. `blocking.py` has the node."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from ordercast.api.checks import Payload
from ordercast.api.feeding import Feed, GroupFeed
from ordercast.api.group import CALL_TIMEOUT_S, Group
from ordercast.api.locking import Handler, Lock, LockHolder
from ordercast.config import GroupConfig, MinMembers
from ordercast.groups.events import Batch, Event, Left, Message, PortEvent, Request
from ordercast.groups.status import GroupStatus
from ordercast.runtime.loop_thread import LoopThread
from ordercast.service import Service
from ordercast.view import Member, View

FETCH_EVENTS: Final = 64
"""Events fetched at once: blocks of at most 60 KB, which the group counts as received at the next fetch."""


class BlockingGroup:
    """A `Group` whose calls block. `timeout` is in seconds, None waits as long as it takes. One thread may receive."""

    def __init__(self, thread: LoopThread, group: Group) -> None:
        self._thread = thread
        self._group = group
        self._fetched: deque[PortEvent] = deque()
        self._batch: Batch | None = None  # its messages are being handed out one by one
        self._messages: Iterator[Message] = iter(())
        self._handed = 0
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._group).removeprefix('<')}"

    # State.

    @property
    def name(self) -> str:
        """As `Group.name`."""
        return self._group.name

    @property
    def member(self) -> Member:
        """As `Group.member`."""
        return self._group.member

    @property
    def view(self) -> View | None:
        """As `Group.view`."""
        return self._group.view

    @property
    def members(self) -> tuple[Member, ...]:
        """As `Group.members`."""
        return self._group.members

    @property
    def is_member(self) -> bool:
        """As `Group.is_member`."""
        return self._group.is_member

    @property
    def failure(self) -> str | None:
        """As `Group.failure`."""
        return self._group.failure

    @property
    def config(self) -> GroupConfig:
        """As `Group.config`."""
        return self._group.config

    @property
    def default_service(self) -> Service:
        """As `Group.default_service`."""
        return self._group.default_service

    @property
    def status(self) -> GroupStatus:
        """As `Group.status`."""
        return self._thread.read(lambda: self._group.status)

    @property
    def stats(self) -> dict[str, int]:
        """As `Group.stats`."""
        return self._thread.read(lambda: self._group.stats)

    @property
    def locks(self) -> dict[str, LockHolder]:
        """As `Group.locks`."""
        return self._thread.read(lambda: self._group.locks)

    # Sending.

    def send(
        self,
        payload: Payload,
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        timeout: float | None = None,
        *,
        priority: int = 0,
    ) -> int | None:
        """As `Group.send`. After TimeoutError a confirmed message may still be delivered."""
        return self._thread.call(self._group.send(payload, service, type, confirm, priority=priority), timeout)

    def send_many(
        self,
        payloads: Iterable[Payload],
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        timeout: float | None = None,
        *,
        priority: int = 0,
    ) -> int | None:
        """As `Group.send_many`. After TimeoutError the first of the messages have been sent."""
        sending = self._group.send_many(list(payloads), service, type, confirm, priority=priority)
        return self._thread.call(sending, timeout)

    def feed(self, fn: GroupFeed, *, service: Service | None = None, type: int = 0) -> BlockingFeed:
        """As `Group.feed`. The function is called in the thread of the loop."""
        feed = self._thread.read(lambda: self._group.feed(fn, service=service, type=type))
        return BlockingFeed(self._thread, feed)

    def flush(self, timeout: float | None = None) -> None:
        """As `Group.flush`."""
        self._thread.call(self._group.flush(), timeout)

    # Receiving.

    @property
    def has_events(self) -> bool:
        """As `Group.has_events`."""
        return bool(self._fetched) or self._has_rest or self._thread.read(lambda: self._group.has_events)

    def receive(self, timeout: float | None = None) -> tuple[Event, bool]:
        """As `Group.receive`: the next event, and whether more of them are here."""
        if not self._fetched and not self._has_rest:
            self._thread.read(self._group._reader.check_failed)
        event = self._next_event(timeout)
        return event, self.has_events

    def take(self, limit: int = 64, timeout: float | None = None) -> list[PortEvent]:
        """As `Group.take`: waits for one event, and adds those that are here, at most `limit`."""
        events = [self._next(timeout)]
        while len(events) < limit and self._fetched:
            events.append(self._next(timeout))
        return events

    def __iter__(self) -> Iterator[Event]:
        """Events one by one, to the final `Left`."""
        while not self._has_ended:
            yield self._next_event(None)

    def batches(self, timeout: float | None = None) -> Iterator[PortEvent]:
        """As `Group.batches`; TimeoutError where nothing comes for `timeout` seconds, and iteration may begin again."""
        while not self._has_ended or self._fetched:
            yield self._next(timeout)

    # Calls and locks.

    def call(
        self,
        payload: Payload,
        *,
        handler: int,
        service: Service | None = None,
        timeout: float | None = CALL_TIMEOUT_S,
        type: int = 0,
    ) -> bytes:
        """As `Group.call`."""
        return self._thread.call(
            self._group.call(payload, handler=handler, service=service, timeout=timeout, type=type)
        )

    def request(
        self,
        payload: Payload,
        *,
        handler: int,
        service: Service | None = None,
        type: int = 0,
        timeout: float | None = None,
    ) -> int:
        """As `Group.request`."""
        return self._thread.call(self._group.request(payload, handler=handler, service=service, type=type), timeout)

    def reply(self, request: Message, payload: bytes, timeout: float | None = None) -> None:
        """Answer a call, as `Request.reply`."""
        self._thread.call(request.reply(payload), timeout)

    def lock(self, key: str | int, timeout: float | None = None) -> BlockingLock:
        """As `Group.lock`: `with group.lock("printer") as lock`. One thread at a time is inside."""
        return BlockingLock(self._thread, self._thread.read(lambda: self._group.lock(key, timeout)))

    def handler(self, handler: int, timeout: float | None = None) -> BlockingHandler:
        """As `Group.handler`: `with group.handler(2) as h`, then `for request in h`."""
        return BlockingHandler(self._thread, self._thread.read(lambda: self._group.handler(handler, timeout)))

    # Membership.

    def ready(self, timeout: float | None = None) -> None:
        """As `Group.ready`."""
        self._thread.call(self._group.ready(timeout))

    def leave(self, header: bytes = b"", timeout: float | None = None) -> None:
        """As `Group.leave`; harmless where the node has been closed, which left all groups."""
        if self._thread.is_alive:
            self._thread.call(self._group.leave(header), timeout)

    def abandon(self, timeout: float | None = None) -> None:
        """As `Group.abandon`."""
        if self._thread.is_alive:
            self._thread.call(self._group.abandon(), timeout)

    def reset(self, min_members: MinMembers = "majority", header: bytes = b"", timeout: float | None = None) -> int:
        """As `Group.reset`."""
        return self._thread.call(self._group.reset(min_members, header), timeout)

    def expel(self, member: Member | str | int, why: str = "", timeout: float | None = None) -> None:
        """As `Group.expel`. After TimeoutError the expulsion goes on."""
        self._thread.call(self._group.expel(member, why), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    # In detail.

    @property
    def _has_rest(self) -> bool:
        return self._batch is not None and self._handed < len(self._batch.messages)

    def _next_event(self, timeout: float | None) -> Event:
        while True:
            message = next(self._messages, None)
            if message is not None:
                self._handed += 1
                return message
            event = self._next(timeout)
            if not isinstance(event, Batch):
                return event
            self._batch, self._handed, self._messages = event, 0, event.each()

    def _next(self, timeout: float | None) -> PortEvent:
        batch, handed = self._batch, self._handed
        has_rest = self._has_rest
        self._batch, self._handed, self._messages = None, 0, iter(())
        if batch is not None and has_rest:
            return batch.after(handed)
        if not self._fetched:
            self._fetched.extend(self._thread.call(self._group.take(FETCH_EVENTS), timeout))
        event = self._fetched.popleft()
        self._has_ended = isinstance(event, Left) and self._group._is_final(event)
        return event


class BlockingFeed:
    """A `Feed` that any thread may signal."""

    def __init__(self, thread: LoopThread, feed: Feed[Any]) -> None:
        self._thread = thread
        self._feed = feed

    @property
    def is_active(self) -> bool:
        """As `Feed.is_active`."""
        return self._feed.is_active

    def signal(self) -> None:
        """As `Feed.signal`."""
        self._thread.read(self._feed.signal)

    def stop(self) -> None:
        """As `Feed.stop`; harmless where the node has been closed."""
        if self._thread.is_alive:
            self._thread.read(self._feed.stop)


class BlockingLock:
    """A `Lock` whose calls block."""

    def __init__(self, thread: LoopThread, lock: Lock) -> None:
        self._thread = thread
        self._lock = lock

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._lock).removeprefix('<')}"

    @property
    def key(self) -> str:
        """As `Lock.key`."""
        return self._lock.key

    @property
    def is_held(self) -> bool:
        """As `Lock.is_held`."""
        return self._lock.is_held

    @property
    def token(self) -> int:
        """As `Lock.token`."""
        return self._lock.token

    def acquire(self) -> None:
        """As `Lock.acquire`."""
        self._thread.call(self._lock.acquire())

    def release(self) -> None:
        """As `Lock.release`; harmless where the node has been closed."""
        if self._thread.is_alive:
            self._thread.read(self._lock.release)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class BlockingHandler(BlockingLock):
    """A `Handler` whose calls and iteration block. `reply` answers what the iteration gave."""

    def __init__(self, thread: LoopThread, handler: Handler) -> None:
        super().__init__(thread, handler)
        self._handler = handler

    @property
    def dropped(self) -> int:
        """As `Handler.dropped`."""
        return self._handler.dropped

    def take(self, timeout: float | None = None) -> Request | None:
        """The next request; None where the handler is lost. TimeoutError where none comes in time."""

        async def take() -> Request | None:
            return await anext(self._handler, None)

        return self._thread.call(take(), timeout)

    def __iter__(self) -> Iterator[Request]:
        while (request := self.take()) is not None:
            yield request

    def reply(self, request: Message, payload: bytes, timeout: float | None = None) -> None:
        """Answer a call, as `Request.reply`."""
        self._thread.call(request.reply(payload), timeout)
