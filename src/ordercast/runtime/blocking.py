"""The same verbs for programs without asyncio: a thread runs the loop, calls wait for it.

Each call costs two switches between threads (about 100 us), so iteration fetches what is at hand at once. Calls may
come from any thread. A timeout ends a call *inside* the loop: either it had its effect and returns, or it had none and
raises TimeoutError.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ordercast.config import DEFAULT_ORDERER, GroupConfig, MinMembers, RecoveryMode, Timing
from ordercast.errors import NotMember, UsageError
from ordercast.groups.base import JOIN_TIMEOUT_S
from ordercast.groups.checks import Payload
from ordercast.groups.events import Batch, Event, Left, Message, PortEvent, Request
from ordercast.groups.group import CALL_TIMEOUT_S, Group
from ordercast.groups.host import EngineFactory
from ordercast.groups.locking import Handler, Lock
from ordercast.runtime.node import Node, loop_factory
from ordercast.service import AGREED, Service
from ordercast.view import Address, Member, View

FETCH_EVENTS: Final = 64
"""Events fetched at once: blocks of at most 60 KB, which the group counts as received at the next fetch."""

_T = TypeVar("_T")


class BlockingNode:
    """A `Node` with its loop in a thread of its own. Arguments as there; `with` closes it."""

    def __init__(
        self,
        name: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        peers: Iterable[str | Address] = (),
        *,
        multicast: bool | None = None,
        datagram: int | None = None,
        trace: str | Path | None = None,
        clock_offset_ns: int = 0,
        insecure: bool = False,
        timing: Timing | None = None,
        life: int | None = None,
        engines: EngineFactory | None = None,
    ) -> None:
        factory = loop_factory()
        self._loop = factory() if factory is not None else asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ordercast", daemon=True)
        self._thread.start()

        async def start() -> Node:
            return Node(
                name,
                host,
                port,
                peers,
                multicast=multicast,
                datagram=datagram,
                trace=trace,
                clock_offset_ns=clock_offset_ns,
                insecure=insecure,
                timing=timing,
                life=life,
                engines=engines,
            )

        try:
            self._node = self._call(start())
        except BaseException:
            self._end_loop()
            raise

    @property
    def address(self) -> Address:
        return self._node.address

    @property
    def member(self) -> Member:
        return self._node.member

    @property
    def name(self) -> str:
        return self._node.name

    def join(
        self,
        name: str,
        *,
        orderer: str = DEFAULT_ORDERER,
        create: bool | None = None,
        min_members: MinMembers = "majority",
        recovery: RecoveryMode = "automatic",
        resilience: int | None = None,
        max_members: int | None = None,
        buffers: int | None = None,
        max_message: int | None = None,
        flow: str | None = None,
        anticipate: bool | None = None,
        header: bytes = b"",
        timeout: float | None = JOIN_TIMEOUT_S,
        ttl: int | None = None,
        contact: str | Address | None = None,
    ) -> BlockingGroup:
        """Become a member, as `Node.join`."""
        group = self._call(
            self._node.join(
                name,
                orderer=orderer,
                create=create,
                min_members=min_members,
                recovery=recovery,
                resilience=resilience,
                max_members=max_members,
                buffers=buffers,
                max_message=max_message,
                flow=flow,
                anticipate=anticipate,
                header=header,
                timeout=timeout,
                ttl=ttl,
                contact=contact,
            )
        )
        return BlockingGroup(self, group)

    def call(
        self,
        group: str,
        payload: Payload,
        *,
        service: Service = AGREED,
        handler: int | None = None,
        timeout: float | None = CALL_TIMEOUT_S,
        to: str | Address | None = None,
        ack: bool = True,
        again: bool = False,
        type: int = 0,
    ) -> bytes | None:
        """Send one message to a group that this node need not be in, and get an answer, as `Node.call`."""
        return self._call(
            self._node.call(
                group,
                payload,
                service=service,
                handler=handler,
                timeout=timeout,
                to=to,
                ack=ack,
                again=again,
                type=type,
            )
        )

    def close(self) -> None:
        """Leave all groups, stop the node and its thread."""
        if self._thread.is_alive():
            self._call(self._node.close())
            self._end_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, call: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Run a call on the loop and wait for it."""
        if not self._thread.is_alive():
            call.close()
            raise NotMember("this node has been closed")
        if threading.current_thread() is self._thread:
            call.close()
            raise UsageError("blocking calls cannot be made from the node's own thread")

        async def bounded() -> _T:
            bound = asyncio.timeout(timeout)
            try:
                async with bound:
                    return await call
            except TimeoutError:
                if not bound.expired():
                    raise  # the call's own
                raise TimeoutError(f"the call was not done within {timeout} s") from None

        future: Future[_T] = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _read(self, read: Callable[[], _T]) -> _T:
        """Read state on the loop's thread, where it does not change under the reader's hands."""

        async def call() -> _T:
            return read()

        return self._call(call())


class BlockingGroup:
    """A `Group` whose calls block. `timeout` is in seconds, None waits as long as it takes. One thread may receive."""

    def __init__(self, node: BlockingNode, group: Group) -> None:
        self._node = node
        self._group = group
        self._fetched: deque[PortEvent] = deque()
        self._messages: deque[Message] = deque()
        self._has_ended = False

    # State.

    @property
    def name(self) -> str:
        return self._group.name

    @property
    def view(self) -> View | None:
        return self._group.view

    @property
    def members(self) -> tuple[Member, ...]:
        return self._group.members

    @property
    def config(self) -> GroupConfig:
        return self._group.config

    @property
    def stats(self) -> dict[str, int]:
        return self._node._read(lambda: self._group.stats)

    @property
    def locks(self) -> dict[str, str]:
        return self._node._read(lambda: self._group.locks)

    # Sending.

    def send(
        self,
        payload: Payload,
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        timeout: float | None = None,
    ) -> int | None:
        """As `Group.send`. After TimeoutError a confirmed message may still be delivered."""
        return self._node._call(self._group.send(payload, service, type, confirm), timeout)

    def send_many(
        self,
        payloads: Iterable[Payload],
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        timeout: float | None = None,
    ) -> int | None:
        """As `Group.send_many`. After TimeoutError the first of the messages have been sent."""
        return self._node._call(self._group.send_many(list(payloads), service, type, confirm), timeout)

    def flush(self, timeout: float | None = None) -> None:
        """As `Group.flush`."""
        self._node._call(self._group.flush(), timeout)

    # Receiving.

    def receive(self, timeout: float | None = None) -> tuple[Event, bool]:
        """As `Group.receive`: the next event, and whether more of them are here."""
        event = self._next_event(timeout)
        return event, bool(self._messages or self._fetched) or self._node._read(lambda: self._group.has_events)

    def __iter__(self) -> Iterator[Event]:
        """Events one by one, to the final `Left`."""
        while not self._has_ended:
            yield self._next_event(None)

    def batches(self, timeout: float | None = None) -> Iterator[PortEvent]:
        """As `Group.batches`; TimeoutError where nothing comes for `timeout` seconds, and iteration may begin anew."""
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
        return self._node._call(self._group.call(payload, handler=handler, service=service, timeout=timeout, type=type))

    def reply(self, request: Message, payload: bytes, timeout: float | None = None) -> None:
        """Answer a call, as `Request.reply`."""
        self._node._call(request.reply(payload), timeout)

    def lock(self, key: str | int, timeout: float | None = None) -> BlockingLock:
        """As `Group.lock`: `with group.lock("printer") as lock`. One thread at a time is inside."""
        return BlockingLock(self._node, self._node._read(lambda: self._group.lock(key, timeout)))

    def handler(self, handler: int, timeout: float | None = None) -> BlockingHandler:
        """As `Group.handler`: `with group.handler(2) as h`, then `for request in h`."""
        return BlockingHandler(self._node, self._node._read(lambda: self._group.handler(handler, timeout)))

    # Membership.

    def leave(self, header: bytes = b"", timeout: float | None = None) -> None:
        """As `Group.leave`; harmless where the node has been closed, which left all groups."""
        if self._node._thread.is_alive():
            self._node._call(self._group.leave(header), timeout)

    def reset(self, min_members: MinMembers = "majority", header: bytes = b"", timeout: float | None = None) -> int:
        """As `Group.reset`."""
        return self._node._call(self._group.reset(min_members, header), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    # In detail.

    def _next_event(self, timeout: float | None) -> Event:
        while not self._messages:
            event = self._next(timeout)
            if not isinstance(event, Batch):
                return event
            self._messages.extend(event.each())
        return self._messages.popleft()

    def _next(self, timeout: float | None) -> PortEvent:
        if not self._fetched:
            self._fetched.extend(self._node._call(self._group.take(FETCH_EVENTS), timeout))
        event = self._fetched.popleft()
        self._has_ended = isinstance(event, Left) and not event.returning
        return event


class BlockingLock:
    """A `Lock` whose entrance blocks."""

    def __init__(self, node: BlockingNode, lock: Lock) -> None:
        self._node = node
        self._lock = lock

    @property
    def key(self) -> str:
        return self._lock.key

    @property
    def is_held(self) -> bool:
        return self._lock.is_held

    def __enter__(self) -> Self:
        self._node._call(self._lock.acquire())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._node._thread.is_alive():
            self._node._read(self._lock.release)


class BlockingHandler(BlockingLock):
    """A `Handler` whose entrance and iteration block. `reply` answers what the iteration gave."""

    def __init__(self, node: BlockingNode, handler: Handler) -> None:
        super().__init__(node, handler)
        self._handler = handler

    @property
    def dropped(self) -> int:
        return self._handler.dropped

    def take(self, timeout: float | None = None) -> Request | None:
        """The next request; None where the handler is lost. TimeoutError where none comes in time."""

        async def take() -> Request | None:
            return await anext(self._handler, None)

        return self._node._call(take(), timeout)

    def __iter__(self) -> Iterator[Request]:
        while (request := self.take()) is not None:
            yield request

    def reply(self, request: Message, payload: bytes, timeout: float | None = None) -> None:
        """Answer a call, as `Request.reply`."""
        self._node._call(request.reply(payload), timeout)
