"""The same API for programs without asyncio: a thread runs the loop, and calls wait for it.

Every name of `Node`, `Group`, `Lock`, `Handler` and `SharedUnderlay` is here, in `blocking_group.py` or in
`blocking_shared.py` (a test compares them). Calls that wait may have a `timeout` in addition. Each call costs two
switches between threads (about 100 us), so iteration fetches what is at hand at once. Calls may come from any thread. A
timeout ends a call *inside* the loop: either it had its effect and returns, or it had none and raises TimeoutError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ordercast.api.checks import Payload
from ordercast.api.group import CALL_TIMEOUT_S, Group
from ordercast.api.node import JOIN_TIMEOUT_S, PATIENCE_S
from ordercast.api.shared import SharedUnderlay
from ordercast.config import AlonePolicy, MinMembers, RecoveryMode, SlowPolicy, Timing
from ordercast.groups.engines import EngineFactory
from ordercast.groups.events import Event, PortEvent
from ordercast.runtime.blocking_group import BlockingGroup
from ordercast.runtime.blocking_shared import BlockingUnderlay
from ordercast.runtime.listening import Authority
from ordercast.runtime.loop_thread import LoopThread
from ordercast.runtime.node import Node
from ordercast.runtime.udp.counters import Counters
from ordercast.service import AGREED, Service
from ordercast.sites import SitesConfig
from ordercast.view import Address, Member


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
        timing: Timing | str | None = None,
        life: int | None = None,
        addresses: Authority | None = None,
        data_dir: str | Path | None = None,
        site: str | None = None,
        sites: str | Path | SitesConfig | None = None,
        engines: EngineFactory | None = None,
    ) -> None:
        self._thread = LoopThread()
        self._handles: dict[Group, BlockingGroup] = {}
        self._underlays: dict[SharedUnderlay, BlockingUnderlay] = {}

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
                addresses=addresses,
                data_dir=data_dir,
                site=site,
                sites=sites,
                engines=engines,
            )

        try:
            self._node = self._thread.call(start())
        except BaseException:
            self._thread.stop()
            raise

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._node).removeprefix('<')}"

    @property
    def address(self) -> Address:
        """As `Node.address`."""
        return self._node.address

    @property
    def member(self) -> Member:
        """As `Node.member`."""
        return self._node.member

    @property
    def name(self) -> str:
        """As `Node.name`."""
        return self._node.name

    @property
    def groups(self) -> list[BlockingGroup]:
        """As `Node.groups`: the handles that `join` returned."""
        groups = self._thread.read(lambda: self._node.groups)
        return [handle for group in groups if (handle := self._handles.get(group)) is not None]

    @property
    def stats(self) -> dict[str, int]:
        """As `Node.stats`."""
        return self._thread.read(lambda: self._node.stats)

    @property
    def sockets(self) -> Counters:
        """As `Node.sockets`."""
        return self._node.sockets

    @property
    def is_closed(self) -> bool:
        """As `Node.is_closed`."""
        return self._node.is_closed

    @property
    def uses_multicast(self) -> bool:
        """As `Node.uses_multicast`."""
        return self._node.uses_multicast

    def read_drops(self) -> int:
        """As `Node.read_drops`."""
        return self._thread.read(self._node.read_drops)

    def groups_at(self, contact: str | Address) -> list[str]:
        """As `Node.groups_at`."""
        return self._thread.call(self._node.groups_at(contact))

    def join(
        self,
        name: str | None = None,
        *,
        orderer: str | None = None,
        create: bool | None = None,
        min_members: MinMembers = "majority",
        recovery: RecoveryMode = "automatic",
        resilience: int | None = None,
        max_members: int | None = None,
        buffers: int | None = None,
        nr_buf: int | None = None,
        max_message: int | None = None,
        flow: str | None = None,
        anticipate: bool | None = None,
        header: bytes = b"",
        timeout: float | None = JOIN_TIMEOUT_S,
        ttl: int | None = None,
        contact: str | Address | None = None,
        alone: AlonePolicy = "create",
        bootstrap: int | None = None,
        slow: SlowPolicy = "evict",
        patience: float = PATIENCE_S,
        underlay: str | None = None,
    ) -> BlockingGroup:
        """Become a member, as `Node.join`."""
        group = self._thread.call(
            self._node.join(
                name,
                orderer=orderer,
                create=create,
                min_members=min_members,
                recovery=recovery,
                resilience=resilience,
                max_members=max_members,
                buffers=buffers,
                nr_buf=nr_buf,
                max_message=max_message,
                flow=flow,
                anticipate=anticipate,
                header=header,
                timeout=timeout,
                ttl=ttl,
                contact=contact,
                alone=alone,
                bootstrap=bootstrap,
                slow=slow,
                patience=patience,
                underlay=underlay,
            )
        )
        return self._handle(group)

    def attach(
        self,
        underlay: str,
        *,
        orderer: str | None = None,
        create: bool | None = None,
        min_members: MinMembers = "majority",
        recovery: RecoveryMode = "automatic",
        resilience: int | None = None,
        max_members: int | None = None,
        buffers: int | None = None,
        nr_buf: int | None = None,
        max_message: int | None = None,
        flow: str | None = None,
        anticipate: bool | None = None,
        timeout: float | None = JOIN_TIMEOUT_S,
        ttl: int | None = None,
        contact: str | Address | None = None,
        alone: AlonePolicy = "create",
        bootstrap: int | None = None,
        slow: SlowPolicy = "evict",
        patience: float = PATIENCE_S,
    ) -> BlockingUnderlay:
        """Come into a shared underlay, as `Node.attach`."""
        shared = self._thread.call(
            self._node.attach(
                underlay,
                orderer=orderer,
                create=create,
                min_members=min_members,
                recovery=recovery,
                resilience=resilience,
                max_members=max_members,
                buffers=buffers,
                nr_buf=nr_buf,
                max_message=max_message,
                flow=flow,
                anticipate=anticipate,
                timeout=timeout,
                ttl=ttl,
                contact=contact,
                alone=alone,
                bootstrap=bootstrap,
                slow=slow,
                patience=patience,
            )
        )
        return self._underlay(shared)

    def group(self, name: str) -> BlockingGroup:
        """As `Node.group`."""
        return self._handle(self._thread.read(lambda: self._node.group(name)))

    def join_many(
        self, names: Iterable[str], *, underlay: str | None = None, header: bytes = b"", timeout: float | None = None
    ) -> None:
        """As `Node.join_many`. After TimeoutError the joins go on."""
        self._thread.call(self._node.join_many(names, underlay=underlay, header=header), timeout)

    def leave_many(
        self, names: Iterable[str], *, underlay: str | None = None, header: bytes = b"", timeout: float | None = None
    ) -> None:
        """As `Node.leave_many`. After TimeoutError the leaves go on."""
        self._thread.call(self._node.leave_many(names, underlay=underlay, header=header), timeout)

    def send(
        self,
        payload: Payload,
        *,
        groups: Sequence[str],
        underlay: str | None = None,
        service: Service | None = None,
        type: int = 0,
        confirm: bool = False,
        timeout: float | None = None,
    ) -> int | None:
        """As `Node.send`. After TimeoutError a confirmed message may still be delivered."""
        sent = self._node.send(payload, groups=groups, underlay=underlay, service=service, type=type, confirm=confirm)
        return self._thread.call(sent, timeout)

    def events(self, underlay: str | None = None) -> Iterator[Event]:
        """As `Node.events`. One thread may receive."""
        return self._underlay(self._thread.read(lambda: self._node._attached(underlay))).events()

    def batches(self, underlay: str | None = None, timeout: float | None = None) -> Iterator[PortEvent]:
        """As `Node.batches`; TimeoutError where nothing comes for `timeout` seconds."""
        return self._underlay(self._thread.read(lambda: self._node._attached(underlay))).batches(timeout)

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
            self._thread.call(self._node.close())
            self._thread.stop()

    def abort(self) -> None:
        """Stop at once, without leaving the groups, as `Node.abort`. The thread ends as well."""
        if self._thread.is_alive:
            self._thread.read(self._node.abort)
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
