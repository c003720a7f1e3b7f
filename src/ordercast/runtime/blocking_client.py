"""The client of a daemon for programs without asyncio: `ordercast.connect_blocking`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ordercast.client.addresses import DaemonAddress
from ordercast.client.node import CONNECT_TIMEOUT_S, ClientNode, connect
from ordercast.client.session import WINDOW_BYTES
from ordercast.runtime.blocking_node import BlockingNodeBase
from ordercast.runtime.blocking_shared import BlockingUnderlay
from ordercast.runtime.loop_thread import LoopThread


class BlockingClient(BlockingNodeBase):
    """A `ClientNode` with its loop in a thread of its own. Made by `connect_blocking`; `with` closes it."""

    def __init__(self, thread: LoopThread, node: ClientNode) -> None:
        super().__init__(thread, node)
        self._client = node

    @property
    def address(self) -> DaemonAddress | None:
        """As `ClientNode.address`."""
        return self._client.address

    @property
    def is_connected(self) -> bool:
        """As `ClientNode.is_connected`."""
        return self._client.is_connected

    @property
    def is_closed(self) -> bool:
        """As `ClientNode.is_closed`."""
        return self._client.is_closed

    @property
    def underlay(self) -> BlockingUnderlay:
        """As `ClientNode.underlay`."""
        return self._underlay(self._thread.read(lambda: self._client.underlay))

    def ask(self, what: str, argument: str = "", timeout: float | None = None) -> dict[str, Any]:
        """As `ClientNode.ask`."""
        return self._thread.call(self._client.ask(what, argument), timeout)

    def abort(self) -> None:
        """Disconnect at once, as `ClientNode.abort`. The thread ends as well."""
        if self._thread.is_alive:
            self._thread.read(self._client.abort)
            self._thread.stop()


def connect_blocking(
    address: str | Iterable[str] | None = None,
    *,
    name: str | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    reconnect: bool = True,
    window: int = WINDOW_BYTES,
) -> BlockingClient:
    """Connect to a daemon, as `connect`, for programs without asyncio."""
    thread = LoopThread()
    try:
        node = thread.call(connect(address, name=name, timeout=timeout, reconnect=reconnect, window=window))
    except BaseException:
        thread.stop()
        raise
    return BlockingClient(thread, node)
