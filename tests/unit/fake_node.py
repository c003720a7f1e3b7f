"""A node without sockets: passes run on the event loop, all groups lead to one `Exchange`."""

from __future__ import annotations

import asyncio
import random

from tests.unit.fake_engine import Exchange

from ordercast.api.local import LocalBackend
from ordercast.api.node import NodeBase
from ordercast.config import GroupConfig
from ordercast.errors import OrdercastError, UsageError
from ordercast.groups.host import Host
from ordercast.view import Address


class FakeNode(NodeBase):
    """Its clock counts passes. It is its own driver (`ordercast.api.local.Driver`)."""

    def __init__(self, name: str, exchange: Exchange, others: list[FakeNode] | None = None) -> None:
        self.host = Host(name, 0, ("127.0.0.1", 1), buffer_bytes=1 << 20, rng=random.Random(1), engines=exchange)
        super().__init__(LocalBackend(self.host, GroupConfig(), self))
        self._others = others if others is not None else []
        self._others.append(self)
        self._is_woken = False
        self.passes = 0

    # The driver.

    def now_ns(self) -> int:
        return self.passes

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self.run_pass)

    def hurry(self) -> None:
        self.wake()

    def prepare(self, underlay: str, orderer: str) -> None:
        """There is no address to listen to."""

    def find(self, group: str) -> None:
        """There is no address to look up."""

    async def locate(self, contact: str | Address) -> Address:
        raise UsageError(f"{contact} is not known here")

    def contacts(self) -> list[Address]:
        return []

    def socket_stats(self) -> dict[str, int]:
        return {}

    def run_pass(self) -> None:
        """One pass, and one for each node that it gave something to."""
        self._is_woken = False
        self.passes += 1
        self.host.expire(self.passes)
        self.host.finish(self.passes)
        self._open.settle()
        for node in self._others:
            for port in node.host.ports:
                if not port.engine.is_at_rest():
                    node.host.touch(port)
            if node.host.is_dirty or node.host.deadline_ns() <= node.passes:
                node.wake()

    def poke(self) -> None:
        """The test changed something behind the node's back."""
        for port in self.host.ports:
            self.host.touch(port)
        self.wake()

    def fail(self, error: OrdercastError) -> None:
        """The node stops, as on an error of its own."""
        self._open.fail(error)

    async def close(self) -> None:
        await self._leave_all()
        self.host.close(self.passes)
        self._open.settle()
