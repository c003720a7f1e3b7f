"""Shared underlays for programs without asyncio. `blocking.py` has the node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from ordercast.api.checks import Payload
from ordercast.api.feeding import NodeFeed
from ordercast.api.resolved import ResolvedGroups
from ordercast.api.shared import SharedUnderlay
from ordercast.config import GroupConfig
from ordercast.groups.events import Event, PortEvent
from ordercast.groups.status import GroupStatus
from ordercast.runtime.blocking_group import BlockingFeed, BlockingGroup
from ordercast.runtime.loop_thread import LoopThread
from ordercast.service import Service
from ordercast.view import Member, View


class BlockingUnderlay:
    """A `SharedUnderlay` whose calls block. `timeout` is in seconds, None waits as long as it takes."""

    def __init__(self, thread: LoopThread, shared: SharedUnderlay) -> None:
        self._thread = thread
        self._shared = shared
        self._reading = BlockingGroup(thread, shared._group)

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._shared).removeprefix('<Shared')}"

    # State.

    @property
    def name(self) -> str:
        """As `SharedUnderlay.name`."""
        return self._shared.name

    @property
    def member(self) -> Member:
        """As `SharedUnderlay.member`."""
        return self._shared.member

    @property
    def view(self) -> View | None:
        """As `SharedUnderlay.view`."""
        return self._shared.view

    @property
    def members(self) -> tuple[Member, ...]:
        """As `SharedUnderlay.members`."""
        return self._shared.members

    @property
    def is_member(self) -> bool:
        """As `SharedUnderlay.is_member`."""
        return self._shared.is_member

    @property
    def failure(self) -> str | None:
        """As `SharedUnderlay.failure`."""
        return self._shared.failure

    @property
    def groups(self) -> list[str]:
        """As `SharedUnderlay.groups`."""
        return self._thread.read(lambda: self._shared.groups)

    @property
    def slow_groups(self) -> list[str]:
        """As `SharedUnderlay.slow_groups`."""
        return self._thread.read(lambda: self._shared.slow_groups)

    @property
    def config(self) -> GroupConfig:
        """As `SharedUnderlay.config`."""
        return self._shared.config

    @property
    def default_service(self) -> Service:
        """As `SharedUnderlay.default_service`."""
        return self._shared.default_service

    @property
    def status(self) -> GroupStatus:
        """As `SharedUnderlay.status`."""
        return self._thread.read(lambda: self._shared.status)

    @property
    def stats(self) -> dict[str, int]:
        """As `SharedUnderlay.stats`."""
        return self._thread.read(lambda: self._shared.stats)

    # Groups.

    def join_many(self, names: Iterable[str], header: bytes = b"", timeout: float | None = None) -> None:
        """As `SharedUnderlay.join_many`. After TimeoutError the joins go on."""
        self._thread.call(self._shared.join_many(names, header), timeout)

    def leave_many(self, names: Iterable[str], header: bytes = b"", timeout: float | None = None) -> None:
        """As `SharedUnderlay.leave_many`. After TimeoutError the leaves go on."""
        self._thread.call(self._shared.leave_many(names, header), timeout)

    def detach(self, timeout: float | None = None) -> None:
        """As `SharedUnderlay.detach`; harmless where the node has been closed."""
        if self._thread.is_alive:
            self._thread.call(self._shared.detach(), timeout)

    def expel(self, member: Member | str | int, why: str = "", timeout: float | None = None) -> None:
        """As `SharedUnderlay.expel`. After TimeoutError the expulsion goes on."""
        self._thread.call(self._shared.expel(member, why), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    # Sending.

    def send(
        self,
        payload: Payload,
        *,
        groups: Sequence[str],
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        priority: int = 0,
        timeout: float | None = None,
    ) -> int | None:
        """As `SharedUnderlay.send`. After TimeoutError a confirmed message may still be delivered."""
        sent = self._shared.send(payload, groups=groups, service=service, type=type, confirm=confirm, priority=priority)
        return self._thread.call(sent, timeout)

    def send_many(
        self,
        payloads: Iterable[Payload],
        *,
        groups: Iterable[str],
        service: Service | None = None,
        type: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        """As `SharedUnderlay.send_many`. After TimeoutError the first of the messages have been sent."""
        sent = self._shared.send_many(list(payloads), groups=groups, service=service, type=type, priority=priority)
        self._thread.call(sent, timeout)

    def resolve(self, names: Iterable[str]) -> ResolvedGroups:
        """As `SharedUnderlay.resolve`."""
        return self._thread.read(lambda: self._shared.resolve(names))

    def feed(self, fn: NodeFeed, *, service: Service | None = None, type: int = 0) -> BlockingFeed:
        """As `SharedUnderlay.feed`. The function is called in the thread of the loop."""
        feed = self._thread.read(lambda: self._shared.feed(fn, service=service, type=type))
        return BlockingFeed(self._thread, feed)

    def flush(self, timeout: float | None = None) -> None:
        """As `SharedUnderlay.flush`."""
        self._thread.call(self._shared.flush(), timeout)

    # Receiving.

    def events(self) -> Iterator[Event]:
        """As `SharedUnderlay.events`. One thread may receive."""
        self._thread.read(self._shared.events)
        return iter(self._reading)

    def batches(self, timeout: float | None = None) -> Iterator[PortEvent]:
        """As `SharedUnderlay.batches`; TimeoutError where nothing comes for `timeout` seconds."""
        self._thread.read(self._shared.batches)
        return self._reading.batches(timeout)
