"""What the blocking twins of `Node` and of a client share: calls from other threads, which wait for the loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, Unpack

from ordercast.api.checks import Payload
from ordercast.api.feeding import NodeFeed
from ordercast.api.group import CALL_TIMEOUT_S, Group
from ordercast.api.node import JOIN_TIMEOUT_S, NodeBase
from ordercast.api.shared import SharedUnderlay
from ordercast.api.terms import UnderlayTerms
from ordercast.groups.events import Event, PortEvent
from ordercast.runtime.blocking_group import BlockingFeed, BlockingGroup
from ordercast.runtime.blocking_shared import BlockingUnderlay
from ordercast.runtime.loop_thread import LoopThread
from ordercast.service import AGREED, Service
from ordercast.view import Address, Member


class BlockingNodeBase:
    """What blocking twins of all kinds of node have: the node's loop runs in a thread of its own."""

    def __init__(self, thread: LoopThread, node: NodeBase) -> None:
        self._thread = thread
        self._base = node
        self._handles: dict[Group, BlockingGroup] = {}
        self._underlays: dict[SharedUnderlay, BlockingUnderlay] = {}

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._base).removeprefix('<')}"

    @property
    def member(self) -> Member:
        """As `Node.member`."""
        return self._base.member

    @property
    def name(self) -> str:
        """As `Node.name`."""
        return self._base.name

    @property
    def groups(self) -> list[BlockingGroup]:
        """As `Node.groups`: the handles that `join` returned."""
        groups = self._thread.read(lambda: self._base.groups)
        return [handle for group in groups if (handle := self._handles.get(group)) is not None]

    @property
    def stats(self) -> dict[str, int]:
        """As `Node.stats`."""
        return self._thread.read(lambda: self._base.stats)

    def groups_at(self, contact: str | Address) -> list[str]:
        """As `Node.groups_at`."""
        return self._thread.call(self._base.groups_at(contact))

    def join(
        self,
        name: str | None = None,
        *,
        header: bytes = b"",
        timeout: float | None = JOIN_TIMEOUT_S,
        contact: str | Address | None = None,
        underlay: str | None = None,
        **terms: Unpack[UnderlayTerms],
    ) -> BlockingGroup:
        """Become a member, as `Node.join`."""
        group = self._thread.call(
            self._base.join(name, header=header, timeout=timeout, contact=contact, underlay=underlay, **terms)
        )
        return self._handle(group)

    def attach(
        self,
        underlay: str,
        *,
        timeout: float | None = JOIN_TIMEOUT_S,
        contact: str | Address | None = None,
        **terms: Unpack[UnderlayTerms],
    ) -> BlockingUnderlay:
        """Come into a shared underlay, as `Node.attach`."""
        shared = self._thread.call(self._base.attach(underlay, timeout=timeout, contact=contact, **terms))
        return self._underlay(shared)

    def group(self, name: str) -> BlockingGroup:
        """As `Node.group`."""
        return self._handle(self._thread.read(lambda: self._base.group(name)))

    def join_many(
        self,
        names: Iterable[str],
        *,
        underlay: str | None = None,
        header: bytes = b"",
        timeout: float | None = None,
        orderer: str | None = None,
    ) -> None:
        """As `Node.join_many`. After TimeoutError the joins go on."""
        joining = self._base.join_many(names, underlay=underlay, header=header, orderer=orderer)
        self._thread.call(joining, timeout)

    def leave_many(
        self, names: Iterable[str], *, underlay: str | None = None, header: bytes = b"", timeout: float | None = None
    ) -> None:
        """As `Node.leave_many`. After TimeoutError the leaves go on."""
        self._thread.call(self._base.leave_many(names, underlay=underlay, header=header), timeout)

    def send(
        self,
        payload: Payload,
        *,
        groups: Sequence[str],
        underlay: str | None = None,
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        priority: int = 0,
        timeout: float | None = None,
    ) -> int | None:
        """As `Node.send`. After TimeoutError a confirmed message may still be delivered."""
        sent = self._base.send(
            payload, groups=groups, underlay=underlay, service=service, type=type, confirm=confirm, priority=priority
        )
        return self._thread.call(sent, timeout)

    def feed(self, fn: NodeFeed, *, service: Service | None = None, type: int = 0) -> BlockingFeed:
        """As `Node.feed`. The function is called in the thread of the loop."""
        feed = self._thread.read(lambda: self._base.feed(fn, service=service, type=type))
        return BlockingFeed(self._thread, feed)

    def events(self, underlay: str | None = None) -> Iterator[Event]:
        """As `Node.events`. One thread may receive."""
        return self._underlay(self._thread.read(lambda: self._base._attached(underlay))).events()

    def batches(self, underlay: str | None = None, timeout: float | None = None) -> Iterator[PortEvent]:
        """As `Node.batches`; TimeoutError where nothing comes for `timeout` seconds."""
        return self._underlay(self._thread.read(lambda: self._base._attached(underlay))).batches(timeout)

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
        return self._thread.call(
            self._base.call(
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

    def _handle(self, group: Group) -> BlockingGroup:
        """The handle of a group: there is one, because it has what it has fetched."""
        handle = self._handles.get(group)
        if handle is None:
            handle = BlockingGroup(self._thread, group)
            kept = {other: self._handles[other] for other in self._handles if other.is_member}
            self._handles = kept | {group: handle}
        return handle

    def _underlay(self, shared: SharedUnderlay) -> BlockingUnderlay:
        """The handle of an underlay, in the same way."""
        handle = self._underlays.get(shared)
        if handle is None:
            handle = BlockingUnderlay(self._thread, shared)
            kept = {other: self._underlays[other] for other in self._underlays if other.is_member}
            self._underlays = kept | {shared: handle}
        return handle

    def close(self) -> None:
        """Leave all groups, stop the node and its thread."""
        if self._thread.is_alive:
            self._thread.call(self._base.close())
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
