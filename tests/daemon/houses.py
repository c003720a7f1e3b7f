"""Daemons in the process of a test, with real sockets for their clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from tests.network.quick import QUICK, fresh

from ordercast.client.node import ClientNode, connect
from ordercast.daemon.hub import Hub
from ordercast.daemon.listener import Listener
from ordercast.daemon.seat import Limits
from ordercast.runtime.node import SessionNode


class DaemonHouse:
    """One daemon. Several with the same `floor` are in one underlay."""

    def __init__(
        self, folder: Path, name: str = "d", *, floor: str = "", limits: Limits | None = None, orderer: str = "token"
    ) -> None:
        self.path = folder / f"{name}.sock"
        self.node = SessionNode(f"{name}-{fresh()}", timing=QUICK)
        self.floor = floor or fresh()
        self._limits = limits
        self._orderer = orderer

    @property
    def address(self) -> str:
        return f"unix:{self.path}"

    async def start(self) -> Self:
        await self.node.attach(self.floor, orderer=self._orderer)
        self.hub = Hub(self.node, self.floor, self._limits)
        self.listener = Listener(self.hub)
        await self.listener.listen_unix(self.path)
        return self

    async def stop(self) -> None:
        self.hub.seats.stop("the daemon stops")
        await self.listener.close()
        await self.node.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def client(self, name: str | None = None, **named: object) -> AsyncIterator[ClientNode]:
        """A client, as long as it is used."""
        async with await self.connect(name, **named) as node:
            yield node

    async def connect(self, name: str | None = None, **named: object) -> ClientNode:
        return await connect(self.address, name=name, **named)  # type: ignore[arg-type]
