"""What clients of Spread send once they are accepted: joins, leaves, messages. Sections 4 and 5 of the reference.

Sans-I/O: bytes go in, split anyhow, requests come out. Messages that follow one another with the same type, hint and
groups are one `SpreadCast`, so that a fast sender costs little more than its bytes. What is malformed ends the
connection, as Spread does (section 5.2): `fault` says why, and nothing is read any more.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ordercast.daemon.spread import bits
from ordercast.daemon.spread.names import FIELD_BYTES, read_field

HEADER: Final = Struct("<I32si4si")  # type, name, groups, hint, bytes of the body
HEADER_BIG: Final = Struct(">I32si4si")
HEADER_BYTES: Final = HEADER.size
LENGTH_LITTLE: Final = Struct("<i")
LENGTH_BIG: Final = Struct(">i")
LENGTH_OFFSET: Final = 44
if HEADER_BYTES != 48:
    raise AssertionError("the header of Spread's messages has 48 bytes on the wire")

MAX_CAST_GROUPS: Final = 100
MAX_TOTAL: Final = 143_952
"""Bytes of a message's body and groups."""

MAX_TOTAL_EVER: Final = 64 << 20  # what a configuration may raise it to

_ONE_OF: Final = bits.REGULAR_MESS | bits.COMMANDS


class JoinGroup(NamedTuple):
    """A client joins a group."""

    group: bytes


class LeaveGroup(NamedTuple):
    """A client leaves a group."""

    group: bytes


class Disconnect(NamedTuple):
    """A client says good-bye."""


class SpreadCast(NamedTuple):
    """Messages of a client that follow one another with the same type, hint and groups."""

    type: int  # without the marker and without what is the daemon's own
    hint: bytes
    groups: tuple[bytes, ...]
    bodies: list[bytes]


AnyRequest = JoinGroup | LeaveGroup | Disconnect | SpreadCast


class FrameDecoder:
    """The requests of one accepted connection."""

    __slots__ = ("_buffer", "_max_total", "_need", "_own", "fault", "is_over")

    def __init__(self, private_group: bytes, max_total: int = MAX_TOTAL) -> None:
        """`private_group`: of the client, which stands in all of its messages."""
        self._own = private_group + b"\0"
        self._max_total = max_total
        # A request that is not complete: at most one header, the largest message, and what came with its end.
        self._buffer = bytearray()
        self._need = HEADER_BYTES  # bytes before it is worth looking again
        self.fault = ""  # why the connection has to be closed
        self.is_over = False  # the client has disconnected, or has sent what ends its connection

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def receive(self, data: bytes) -> list[AnyRequest]:
        """Bytes of the client; its requests. Those before a fault count."""
        if self.is_over:
            return []
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._need:
                return []
            data = bytes(buffer)
            buffer.clear()
        requests: list[AnyRequest] = []
        at = self._read(data, requests)
        if not self.is_over:
            buffer += data[at:] if at else data
        return requests

    def _read(self, data: bytes, requests: list[AnyRequest]) -> int:
        """Read what is complete; where the next request begins. Hot: `benches/spread_clients.py` measures it."""
        at, size = 0, len(data)
        cast_head = cast_groups = b""  # of the last message: what is like it needs no second look
        bodies: list[bytes] = []
        length_of = LENGTH_LITTLE.unpack_from
        most = self._max_total
        while size - at >= HEADER_BYTES:
            if data[at : at + LENGTH_OFFSET] == cast_head:
                (length,) = length_of(data, at + LENGTH_OFFSET)
                start = at + HEADER_BYTES + len(cast_groups)
                stop = start + length
                # What is longer than may be is looked at below, so that it is told in the same words.
                if 0 <= length <= most - len(cast_groups):
                    if stop > size:
                        self._need = stop - at
                        return at
                    if data[at + HEADER_BYTES : start] == cast_groups:
                        bodies.append(data[start:stop])
                        at = stop
                        continue
            is_little = data[at] & 0x80 and data[at + 3] & 0x80
            header = (HEADER if is_little else HEADER_BIG).unpack_from(data, at)
            word, name, count, hint, length = header
            fault = self._fault_of(word, name, count, hint, length)
            if fault:
                self._end(fault)
                return size
            start = at + HEADER_BYTES + FIELD_BYTES * count
            stop = start + length
            if stop > size:
                self._need = stop - at
                return at
            fields = data[at + HEADER_BYTES : start]
            groups = tuple([read_field(fields[i : i + FIELD_BYTES]) for i in range(0, len(fields), FIELD_BYTES)])
            word &= ~bits.ENDIAN
            if word & bits.REGULAR_MESS:
                bodies = [data[start:stop]]
                requests.append(SpreadCast(word & ~bits.DAEMONS_OWN, hint, groups, bodies))
                cast_head, cast_groups = data[at : at + LENGTH_OFFSET], fields
                length_of = (LENGTH_LITTLE if is_little else LENGTH_BIG).unpack_from
            else:
                cast_head = b""
                if word & bits.KILL_MESS:
                    requests.append(Disconnect())
                    self.is_over = True
                    return size
                if groups:
                    requests.append((JoinGroup if word & bits.JOIN_MESS else LeaveGroup)(groups[0]))
            at = stop
        self._need = HEADER_BYTES
        return at

    def _fault_of(self, word: int, name: bytes, count: int, hint: bytes, length: int) -> str:
        if (word & _ONE_OF).bit_count() != 1 or word & bits.GROUPS_MESS:
            return f"a type word 0x{word:08x}, which is no request and no message of one service"
        if not name.startswith(self._own):
            return f"the sender {read_field(name)!r}, which is not this client"
        if not 0 <= count <= MAX_CAST_GROUPS:
            return f"a message to {count} groups; {MAX_CAST_GROUPS} are the most"
        if not bits.is_legal_hint(hint):
            return f"a hint {hint.hex()} with bits that mean nothing"
        if length < 0 or length + FIELD_BYTES * count > self._max_total:
            return f"a message of {length} bytes to {count} groups; {self._max_total} bytes are the most"
        return ""

    def _end(self, fault: str) -> None:
        self.fault = fault
        self.is_over = True
        self._buffer.clear()
