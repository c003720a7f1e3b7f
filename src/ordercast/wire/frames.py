"""Frames of the protocol between a daemon and its clients: how a stream of bytes is cut (docs/protocol-client.md).

A frame is a 32-bit length, little-endian, of what follows: one byte of kind, and the body. `FrameBuffer` takes bytes as
they come, whatever their pieces, and gives whole frames. Nothing is allocated from a length that the bytes present do
not cover, and a length above the bound raises `WireError` when its four bytes are there.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from ordercast.config import MAX_BLOCK
from ordercast.errors import WireError

VERSION: Final = 2
"""2 has locks and calls. A daemon speaks 1 as well."""

MAGIC: Final = b"OCDC"

PREFIX: Final = Struct("<IB")  # length of kind and body, kind
PREFIX_BYTES: Final = PREFIX.size
LENGTH_BYTES: Final = 4
if PREFIX_BYTES != 5:
    raise AssertionError("the prefix of a frame has a fixed size on the wire")

MAX_CLIENT_FRAME: Final = MAX_BLOCK + 1_024
"""Bytes of a frame that a client sends, without its length. At the bound the connection is closed."""

MAX_DAEMON_FRAME: Final = 16 << 20
"""The same of a daemon: the view of a group has up to 65,536 members."""


class FrameKind(IntEnum):
    """What a frame is. Those of clients are below 64."""

    HELLO = 1
    JOIN = 2
    LEAVE = 3
    NAME = 4
    SEND = 5
    WATCH = 6
    CONSUMED = 7
    PING = 8
    QUERY = 9
    BYE = 10
    LOCK = 11
    UNLOCK = 12
    WELCOME = 65
    REFUSED = 66
    DELIVER = 67
    VIEW = 68
    TRANSITIONAL = 69
    LEFT = 70
    UNCERTAIN = 71
    FAILED = 72
    STALLED = 73
    RESUMED = 74
    CREDIT = 75
    CONFIRM = 76
    PONG = 77
    ANSWER = 78
    CLOSE = 79
    GRANT = 80
    ANSWERED = 81


def frame(kind: int, body: bytes = b"") -> bytes:
    """A whole frame."""
    return PREFIX.pack(len(body) + 1, kind) + body


def frame_of(kind: int, parts: list[bytes]) -> bytes:
    """A whole frame of several pieces. Hot: one copy for each block that a client gets."""
    return b"".join((PREFIX.pack(sum(map(len, parts)) + 1, kind), *parts))


class FrameBuffer:
    """Cuts one connection's bytes into frames."""

    __slots__ = ("_most", "_rest", "_wanted")

    def __init__(self, most: int) -> None:
        """`most`: bytes of the largest frame, without its length."""
        self._most = most
        self._rest = bytearray()  # the beginning of a frame
        self._wanted = 0  # bytes that must be there before it is worth looking again

    @property
    def waiting_bytes(self) -> int:
        """Of a frame that has not come whole."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that these bytes complete, as (kind, body). Hot: once for each read of a socket, and a byte is
        copied once, or twice where its frame comes in pieces."""
        rest, at, size = self._rest, 0, len(data)
        frames: list[tuple[int, bytes]] = []
        unpack = PREFIX.unpack_from
        if rest:
            # Complete the frame that has begun; the next ones are cut out of `data` itself.
            at = min(size, self._wanted - len(rest))
            rest += data[:at]
            if len(rest) == PREFIX_BYTES == self._wanted:
                self._wanted = LENGTH_BYTES + self._length(rest)
                more = min(size - at, self._wanted - PREFIX_BYTES)
                rest += data[at : at + more]
                at += more
            if len(rest) < self._wanted:
                return frames
            frames.append((rest[LENGTH_BYTES], bytes(memoryview(rest)[PREFIX_BYTES:])))
            self._rest = rest = bytearray()
        while size - at >= PREFIX_BYTES:
            length, kind = unpack(data, at)
            if not 0 < length <= self._most:
                raise self._wrong(length)
            stop = at + LENGTH_BYTES + length
            if stop > size:
                break
            frames.append((kind, data[at + PREFIX_BYTES : stop]))
            at = stop
        if at < size:
            rest += data[at:]
            self._wanted = PREFIX_BYTES
            if len(rest) >= PREFIX_BYTES:
                self._wanted = LENGTH_BYTES + self._length(rest)
        return frames

    def _length(self, rest: bytearray) -> int:
        """Of the frame that has begun."""
        length: int = PREFIX.unpack_from(rest)[0]
        if not 0 < length <= self._most:
            raise self._wrong(length)
        return length

    def _wrong(self, length: int) -> WireError:
        return WireError(f"a frame of {length} bytes: 1 to {self._most} are allowed")
