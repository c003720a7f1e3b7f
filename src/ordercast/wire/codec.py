"""Reading and writing control bodies: every read is checked, every list has a bound.

A peer's bytes are data, never trusted: whatever is short, long or out of range raises WireError, which the underlay
counts. Nothing is allocated from a length that the bytes present do not cover.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ordercast.errors import WireError

U8: Final = Struct("<B")
U16: Final = Struct("<H")
U32: Final = Struct("<I")
U64: Final = Struct("<Q")
I64: Final = Struct("<q")
MAX_NUMBER: Final = 1 << 60  # a million blocks a second would take 36,000 years; sums stay inside 63 bits


class Writer:
    """Appends fields to one body."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def u8(self, value: int) -> Writer:
        self._parts.append(U8.pack(value))
        return self

    def u16(self, value: int) -> Writer:
        self._parts.append(U16.pack(value))
        return self

    def u32(self, value: int) -> Writer:
        self._parts.append(U32.pack(value))
        return self

    def u64(self, value: int) -> Writer:
        self._parts.append(U64.pack(value))
        return self

    def i64(self, value: int) -> Writer:
        self._parts.append(I64.pack(value))
        return self

    def pack(self, struct: Struct, *values: int) -> Writer:
        self._parts.append(struct.pack(*values))
        return self

    def raw(self, value: bytes) -> Writer:
        self._parts.append(value)
        return self

    def blob(self, value: bytes) -> Writer:
        """Up to 65,535 bytes with their length."""
        self._parts.append(U16.pack(len(value)))
        self._parts.append(value)
        return self

    def text(self, value: str) -> Writer:
        return self.blob(value.encode())

    def bytes(self) -> bytes:
        return b"".join(self._parts)


class Reader:
    """Takes fields off one body, from the front."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self._data = data
        self._at = at
        self._end = len(data)

    def u8(self) -> int:
        return self._one(U8)

    def u16(self) -> int:
        return self._one(U16)

    def u32(self) -> int:
        return self._one(U32)

    def u64(self) -> int:
        return self._one(U64)

    def i64(self) -> int:
        return self._one(I64)

    def number(self) -> int:
        """A counter: places, positions, block and message numbers, which never come near the end of 64 bits."""
        value = self._one(U64)
        if value > MAX_NUMBER:
            raise WireError("a number out of all reason")
        return value

    def unpack(self, struct: Struct) -> tuple[int, ...]:
        at = self._at
        if at + struct.size > self._end:
            raise WireError("body too short")
        self._at = at + struct.size
        return struct.unpack_from(self._data, at)

    def blob(self, most: int = 65_535) -> bytes:
        size = self._one(U16)
        if size > most:
            raise WireError("field too long")
        return self.raw(size)

    def raw(self, size: int) -> bytes:
        at = self._at
        if at + size > self._end:
            raise WireError("body too short")
        self._at = at + size
        return bytes(self._data[at : at + size])

    def text(self, most: int = 1_024) -> str:
        try:
            return self.blob(most).decode()
        except UnicodeDecodeError as error:
            raise WireError("text is not UTF-8") from error

    def count(self, each: int) -> int:
        """A 32-bit count of records of at least `each` bytes that the rest of the body can really hold."""
        count = self._one(U32)
        if count * each > self._end - self._at:
            raise WireError("more records announced than the body holds")
        return count

    def rest(self) -> bytes:
        at = self._at
        self._at = self._end
        return bytes(self._data[at : self._end])

    @property
    def left(self) -> int:
        return self._end - self._at

    def end(self) -> None:
        if self._at != self._end:
            raise WireError("bytes left over")

    def _one(self, struct: Struct) -> int:
        at = self._at
        if at + struct.size > self._end:
            raise WireError("body too short")
        self._at = at + struct.size
        value: int = struct.unpack_from(self._data, at)[0]
        return value
