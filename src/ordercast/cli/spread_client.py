"""Spread's client protocol from the client's end, as little of it as `client_member` needs: a unix socket, NULL
authentication, version 5.0.1, little-endian. The sections are those of the protocol's reference.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final, NamedTuple, Self

from ordercast.daemon.spread import bits
from ordercast.daemon.spread.encoding import GROUP_ID_BYTES, SETS, SETS_OFFSET
from ordercast.daemon.spread.frames import HEADER, HEADER_BYTES
from ordercast.daemon.spread.names import FIELD_BYTES, field, read_field
from ordercast.errors import NotMember, WireError

VERSION: Final = (5, 0, 1)
WANTS_MEMBERSHIP: Final = 1
NULL_LIST: Final = b"\x05NULL "
NULL_CHOICE: Final = b"NULL".ljust(90, b"\0")
ACCEPTED: Final = b"\x01"
MAX_FRAME: Final = 1 << 24
"""Bytes of one message of the daemon. At the bound the other end is no daemon."""

_COUNT: Final = Struct("<I")


class SpreadFrame(NamedTuple):
    """One message of the daemon."""

    type: int
    name: str
    groups: list[str]
    body: bytes

    @property
    def is_message(self) -> bool:
        return bool(self.type & bits.REGULAR_MESS)


class SpreadMembership(NamedTuple):
    """The body of a regular membership message (section 6.3)."""

    group_id: bytes
    sets: list[list[str]]
    own: int  # which of them is the receiver's


class SpreadClient:
    """A connection that is accepted."""

    __slots__ = ("_reader", "_writer", "me")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.me = ""

    @classmethod
    async def connect(cls, path: str, name: str) -> Self:
        """Raises OSError, NotMember or EOFError where the daemon does not let it in."""
        client = cls(*await asyncio.open_unix_connection(path, limit=MAX_FRAME))
        try:
            await client._shake(name.encode())
        except BaseException:
            client.drop()
            raise
        return client

    async def _shake(self, name: bytes) -> None:
        """Section 3."""
        self._write(bytes((*VERSION, WANTS_MEMBERSHIP, len(name))) + name)
        found = await self._reader.readexactly(1)
        if found == NULL_LIST[:1]:
            await self._reader.readexactly(len(NULL_LIST) - 1)
            self._write(NULL_CHOICE)
            found = await self._reader.readexactly(1)
        if found != ACCEPTED:
            raise NotMember(f"the daemon rejects {name.decode()!r} with {found[0] - 256}")
        await self._reader.readexactly(len(VERSION))
        self.me = (await self._reader.readexactly((await self._reader.readexactly(1))[0])).decode()

    def join(self, group: str) -> None:
        self._send(bits.JOIN_MESS, group, b"")

    def cast(self, group: str, payload: bytes, type_: int = bits.AGREED_MESS) -> None:
        self._send(type_, group, payload)

    def _send(self, type_: int, group: str, body: bytes) -> None:
        me = field(self.me.encode())
        head = HEADER.pack(type_ | bits.ENDIAN, me, 1, bits.PLAIN_HINT, len(body))
        self._write(head + field(group.encode()) + body)

    def _write(self, data: bytes) -> None:
        """Raises OSError when the connection is gone. The transport of uvloop raises RuntimeError then."""
        if self._writer.is_closing():
            raise ConnectionResetError("the daemon has closed the connection")
        self._writer.write(data)

    async def drain(self) -> None:
        """Until the daemon takes more."""
        await self._writer.drain()

    async def receive(self) -> SpreadFrame:
        """The next message. Raises EOFError or OSError when the connection is gone."""
        type_, name, count, _, length = HEADER.unpack(await self._reader.readexactly(HEADER_BYTES))
        if not 0 <= count * FIELD_BYTES + length <= MAX_FRAME:
            raise WireError(f"a message of {count} groups and {length} bytes")
        rest = await self._reader.readexactly(count * FIELD_BYTES + length)
        groups = _names(rest, 0, count)
        return SpreadFrame(type_ & ~bits.ENDIAN, read_field(name).decode(), groups, rest[count * FIELD_BYTES :])

    def drop(self) -> None:
        self._writer.transport.abort()


def read_membership(body: bytes) -> SpreadMembership:
    """Take the body of a regular membership message apart."""
    number, offset = SETS.unpack_from(body, GROUP_ID_BYTES)
    sets: list[list[str]] = []
    at, own = SETS_OFFSET, -1
    for _ in range(number):
        if at == SETS_OFFSET + offset:
            own = len(sets)
        (count,) = _COUNT.unpack_from(body, at)
        at += _COUNT.size
        sets.append(_names(body, at, count))
        at += count * FIELD_BYTES
    if at != len(body) or own < 0:
        raise WireError("a membership message whose sets do not fill it, or whose offset is that of none of them")
    return SpreadMembership(body[:GROUP_ID_BYTES], sets, own)


def _names(data: bytes, at: int, count: int) -> list[str]:
    return [read_field(data[at + FIELD_BYTES * each :][:FIELD_BYTES]).decode() for each in range(count)]
