"""Lists of numbers in few bytes: seven bits in each, low ones first, and the eighth says that more follow (LEB128).

What daemons tell one another when a view ends is thousands of small numbers. As fixed fields a cut of the largest size
would not fit into the segments of one body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ordercast.errors import InvariantViolation, WireError
from ordercast.wire.codec import MAX_NUMBER

MAX_ID: Final = (1 << 64) - 1
_MORE: Final = 0x80
_LONGEST: Final = 63  # bits before the last byte of a number


def pack_numbers(numbers: Iterable[int]) -> bytes:
    out = bytearray()
    append = out.append
    for value in numbers:
        if value < 0:
            raise InvariantViolation(f"{value} is to be sent, and only numbers from 0 on can be")
        while value >= _MORE:
            append(value & 0x7F | _MORE)
            value >>= 7
        append(value)
    return bytes(out)


def folded(value: int) -> int:
    """A number with a sign as one without: small ones stay small."""
    return value << 1 if value >= 0 else (-value << 1) - 1


class NumberReader:
    """Takes numbers off one body, from the front. All of them are read at once: as many as there are bytes at most."""

    __slots__ = ("_at", "_numbers")

    def __init__(self, body: bytes | memoryview) -> None:
        found: list[int] = []
        value = shift = 0
        for byte in body:
            if byte < _MORE:
                found.append(value | byte << shift)
                value = shift = 0
                continue
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > _LONGEST:
                raise WireError("a number is longer than 64 bits")
        if shift:
            raise WireError("body ends inside a number")
        self._numbers = found
        self._at = 0

    def number(self, most: int = MAX_NUMBER, least: int = 0) -> int:
        """Both bounds are inclusive."""
        at = self._at
        if at >= len(self._numbers):
            raise WireError("body too short")
        self._at = at + 1
        value = self._numbers[at]
        if not least <= value <= most:
            raise WireError("a number out of range")
        return value

    def id(self) -> int:
        """The id of a daemon: 64 bits, never 0."""
        return self.number(MAX_ID, 1)

    def signed(self) -> int:
        value = self.number(MAX_ID)
        return value >> 1 if not value & 1 else -(value + 1 >> 1)

    def flag(self) -> bool:
        return bool(self.number(1))

    def count(self, most: int, each: int = 1) -> int:
        """How many records of at least `each` numbers follow; no more than there is room for."""
        found = self.number(most)
        if found * each > len(self._numbers) - self._at:
            raise WireError("more records announced than the body holds")
        return found

    def end(self) -> None:
        if self._at != len(self._numbers):
            raise WireError("numbers left over")
