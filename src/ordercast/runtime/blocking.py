"""The same API for programs without asyncio: a thread runs the loop, and calls wait for it.

Every name of `Node`, `Group`, `Lock`, `Handler` and `SharedUnderlay` is here, in `blocking_group.py` or in
`blocking_shared.py` (a test compares them). Calls that wait may have a `timeout` in addition. Each call costs two
switches between threads (about 100 us), so iteration fetches what is at hand at once. Calls may come from any thread. A
timeout ends a call *inside* the loop: either it had its effect and returns, or it had none and raises TimeoutError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ordercast.config import Timing
from ordercast.gms.embedded import EmbeddedService
from ordercast.groups.engines import EngineFactory
from ordercast.groups.regions.engines import RegionEngineFactory
from ordercast.runtime.blocking_node import BlockingNodeBase
from ordercast.runtime.listening import Authority
from ordercast.runtime.loop_thread import LoopThread
from ordercast.runtime.node import Node
from ordercast.runtime.udp.counters import Counters
from ordercast.sites import SitesConfig
from ordercast.view import Address


class BlockingNode(BlockingNodeBase):
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
        gms: Iterable[str | Address] | str | None = None,
        placement: Mapping[str, int] | None = None,
        engines: EngineFactory | None = None,
        regions: RegionEngineFactory | None = None,
    ) -> None:
        thread = LoopThread()

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
                gms=gms,
                placement=placement,
                engines=engines,
                regions=regions,
            )

        try:
            self._node = thread.call(start())
        except BaseException:
            thread.stop()
            raise
        super().__init__(thread, self._node)

    @property
    def address(self) -> Address:
        """As `Node.address`."""
        return self._node.address

    @property
    def sockets(self) -> Counters:
        """As `Node.sockets`."""
        return self._node.sockets

    @property
    def embedded_service(self) -> EmbeddedService | None:
        """As `Node.embedded_service`."""
        return self._node.embedded_service

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

    def abort(self) -> None:
        """Stop at once, without leaving the groups, as `Node.abort`. The thread ends as well."""
        if self._thread.is_alive:
            self._thread.read(self._node.abort)
            self._thread.stop()
