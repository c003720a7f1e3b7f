"""Daemons of one configuration of sites in this process, and clients that speak Spread's protocol in raw bytes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import unpack
from types import TracebackType
from typing import NamedTuple, Self

from tests.daemon.spread_bytes import AGREED, JOIN, KILL, LEAVE, LITTLE_PLAIN, NULL_CHOICE, hello, little
from tests.network.quick import QUICK

from ordercast import UsageError
from ordercast.api.shared import SharedUnderlay
from ordercast.cli.cut_engine import Hearing, cut_engines
from ordercast.cli.local_sites import settings_of_sites, sites_of_settings
from ordercast.config import SITES_UNDERLAY
from ordercast.daemon.hub import Hub
from ordercast.daemon.listener import Listener
from ordercast.daemon.seat import Limits
from ordercast.daemon.spread.listener import SpreadListener
from ordercast.daemon.spread.settings import SpreadSettings
from ordercast.runtime.node import SessionNode

LOWEST_PORT, HIGHEST_PORT = 15_000, 32_000  # Java and 3.17 take no port from 32,768 on


class Daemon:
    """One daemon of a house."""

    def __init__(self, node: SessionNode, floor: SharedUnderlay, hub: Hub, listener: SpreadListener, port: int) -> None:
        self.node = node
        self.floor = floor
        self.hub = hub
        self.listener = listener
        self.port = port


class SpreadHouse:
    """Daemons by their names, each a site of its own, in the order in which they are given."""

    def __init__(
        self,
        *names: str,
        settings: SpreadSettings | None = None,
        folder: Path | None = None,
        limits: Limits | None = None,
        trace: Path | None = None,
    ) -> None:
        self._trace = trace
        self.names = names or ("lochost",)
        self._settings = settings
        self._limits = limits
        self._folder = folder
        crews = {f"site{index}": [name] for index, name in enumerate(self.names)}
        self.config = sites_of_settings(settings_of_sites("spread", crews, multicasts=False))
        self._hearing = {name: Hearing() for name in self.names}
        self.daemons: dict[str, Daemon] = {}
        self._clients: list[RawClient] = []
        self._natives: list[Listener] = []

    async def __aenter__(self) -> Self:
        for name in self.names:
            await self.start(name)
        await self.together()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        for client in self._clients:
            client.drop()
        for native in self._natives:
            await native.close()
        for daemon in self.daemons.values():
            daemon.listener.close()
            daemon.node.abort()

    async def start(self, name: str) -> None:
        engines = cut_engines(self.config, self._hearing[name])
        node = SessionNode(name, sites=self.config, timing=QUICK, engines=engines, trace=self._trace)
        floor = await node.attach(SITES_UNDERLAY)
        hub = Hub(node, SITES_UNDERLAY, self._limits)
        listener = SpreadListener(hub.seats, self._settings, [each.name for each in self.config.daemons])
        port = await listen(listener)
        if self._folder is not None:
            await listener.listen_unix(port, self._folder)
            native = Listener(hub)
            await native.listen_unix(self._folder / f"{name}.sock")
            self._natives.append(native)
        self.daemons[name] = Daemon(node, floor, hub, listener, port)

    async def together(self) -> None:
        """All daemons are in one view."""
        while any(len(daemon.floor.members) < len(self.daemons) for daemon in self.daemons.values()):
            await asyncio.sleep(0.01)

    def cut(self, *parts: Sequence[str]) -> None:
        """Daemons of different parts do not hear one another; without parts the network heals."""
        for name, hearing in self._hearing.items():
            near = next((part for part in parts if name in part), self.names)
            hearing.cut = frozenset(self.config.daemon(other).address for other in self.names if other not in near)

    @property
    def daemon(self) -> Daemon:
        return self.daemons[self.names[0]]

    async def dial(self, daemon: str | None = None, *, unix: bool = False, limit: int = 1 << 20) -> RawClient:
        """A connection that has said nothing yet."""
        port = self.daemons[daemon or self.names[0]].port
        if unix:
            assert self._folder is not None
            streams = await asyncio.open_unix_connection(str(self._folder / str(port)), limit=limit)
        else:
            streams = await asyncio.open_connection("127.0.0.1", port, limit=limit)
        client = RawClient(*streams)
        self._clients.append(client)
        return client

    async def connect(
        self,
        name: bytes,
        daemon: str | None = None,
        version: tuple[int, ...] = (5, 0, 1),
        flags: int = 1,
        *,
        unix: bool = False,
    ) -> RawClient:
        """A client that is accepted."""
        client = await self.dial(daemon, unix=unix)
        await client.shake(name, version, flags)
        return client


class Frame(NamedTuple):
    """One message of the daemon, taken apart by hand."""

    type: int
    name: bytes
    groups: tuple[bytes, ...]
    hint: bytes
    body: bytes


class RawClient:
    """Spread's protocol as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.me = b""

    async def shake(self, name: bytes, version: tuple[int, ...] = (5, 0, 1), flags: int = 1) -> None:
        self.send(hello(name, version, flags))
        if version >= (3, 16):
            assert await self.read(6) == b"\x05NULL "
            self.send(NULL_CHOICE)
        assert await self.read(1) == b"\x01"
        await self.read(3 if version >= (3, 15) else 2)
        self.me = await self.read((await self.read(1))[0])

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def join(self, group: bytes) -> None:
        self.send(little(JOIN, self.me, [group]))

    def leave(self, group: bytes) -> None:
        self.send(little(LEAVE, self.me, [group]))

    def disconnect(self) -> None:
        self.send(little(KILL, self.me, [self.me]))

    def cast(self, groups: list[bytes], body: bytes, type_: int = AGREED, mess_type: int = 0) -> None:
        self.send(little(type_, self.me, groups, body, mess_type))

    async def read(self, size: int) -> bytes:
        return await self.reader.readexactly(size)

    async def frame(self) -> Frame:
        head = await self.read(48)
        assert head[0] & 0x80, "a header of the daemon is little-endian"
        assert head[3] & 0x80, "a header of the daemon is little-endian"
        type_, name, count, hint, length = unpack("<I32si4si", head)
        fields = await self.read(32 * count)
        groups = tuple(_name(fields[at : at + 32]) for at in range(0, len(fields), 32))
        return Frame(type_ & ~0x80000080, _name(name), groups, hint, await self.read(length))

    async def frames(self, count: int) -> list[Frame]:
        return [await self.frame() for _ in range(count)]

    async def until(self, type_: int) -> list[Frame]:
        """Frames up to the first of this type."""
        found = [await self.frame()]
        while found[-1].type != type_:
            found.append(await self.frame())
        return found

    async def members(self, count: int) -> Frame:
        """The first view with so many members; what comes before is passed over."""
        while True:
            frame = await self.frame()
            if frame.type & 0x1000 and len(frame.groups) == count:
                return frame

    async def enter(self, group: bytes) -> Frame:
        """Join a group; the first view."""
        self.join(group)
        frame = await self.frame()
        assert frame.type == 0x1100
        assert frame.name == group
        return frame

    async def quiet(self) -> None:
        """Nothing else has come: a message to oneself is the next one."""
        self.cast([self.me], b"quiet?")
        frame = await self.frame()
        assert (frame.groups, frame.body) == ((self.me,), b"quiet?")

    async def closed(self) -> bytes:
        """What still comes until the daemon has closed the connection."""
        found = b""
        with suppress(ConnectionResetError):
            while data := await self.reader.read(1 << 16):
                found += data
        return found

    def reset(self) -> None:
        """Vanish without a word."""
        self.writer.transport.abort()

    def drop(self) -> None:
        self.writer.transport.abort()


def membership(frame: Frame) -> tuple[bytes, int, list[list[bytes]], int]:
    """Group id, offset, vs_sets, and which of them is at the offset; of the layout of 4.x."""
    assert frame.hint == LITTLE_PLAIN
    body = frame.body
    number, offset = unpack("<II", body[12:20])
    sets: list[list[bytes]] = []
    own = -1
    at = 20
    while at < len(body):
        if at == 20 + offset:
            own = len(sets)
        (count,) = unpack("<I", body[at : at + 4])
        at += 4
        sets.append([_name(body[at + 32 * i : at + 32 * i + 32]) for i in range(count)])
        at += 32 * count
    assert at == len(body)
    assert len(sets) == number
    return body[:12], offset, sets, own


def _name(data: bytes) -> bytes:
    name, nul, rest = data.partition(b"\0")
    assert nul, "a name has a NUL"
    assert not rest.strip(b"\0"), "what follows a name is zero"
    return name


async def listen(listener: SpreadListener) -> int:
    chance = random.Random()
    for _ in range(50):
        port = chance.randrange(LOWEST_PORT, HIGHEST_PORT)
        try:
            await listener.listen("127.0.0.1", port)
        except UsageError:
            continue
        return port
    raise AssertionError("no port is free")
