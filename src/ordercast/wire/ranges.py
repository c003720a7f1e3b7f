"""Bounded sets of numbers on the wire: what NAKs, pulls and verdicts of regions name (docs/design/regions.md).

A set is exact below its *limit*; it says nothing of numbers at or beyond it. So a set that grew too long can be cut off
and stays true. Layout, little-endian: limit (64 bits), number of runs (16), then first (64) and count (32) of each run.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ordercast.errors import InvariantViolation, WireError
from ordercast.wire.codec import MAX_NUMBER, Reader

Run = tuple[int, int]  # first, stop

NO_LIMIT: Final = MAX_NUMBER  # the set is exact for all numbers that there are
MAX_RUNS: Final = 64  # of one set on the wire
MAX_RUN: Final = (1 << 32) - 1  # numbers in one run

SET_HEAD: Final = Struct("<QH")  # limit, runs
SET_RUN: Final = Struct("<QI")  # first, count
if (SET_HEAD.size, SET_RUN.size) != (10, 12):
    raise AssertionError("sets of numbers have fixed sizes on the wire")


class NumberSet(NamedTuple):
    """Half-open runs that rise and do not touch each other, all below `limit`. `parts/ranges.py` computes with them."""

    runs: tuple[Run, ...] = ()
    limit: int = NO_LIMIT

    @property
    def is_truncated(self) -> bool:
        return self.limit < NO_LIMIT

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return SET_HEAD.size + SET_RUN.size * len(self.runs)


EMPTY: Final = NumberSet()


def encode_set(numbers: NumberSet) -> bytes:
    """What is longer than a set may be on the wire has to be truncated before."""
    runs, limit = numbers
    if len(runs) > MAX_RUNS or any(stop - first > MAX_RUN for first, stop in runs):
        raise InvariantViolation(f"a set of {len(runs)} runs is to be sent, and has not been truncated")
    return SET_HEAD.pack(limit, len(runs)) + b"".join([SET_RUN.pack(first, stop - first) for first, stop in runs])


def read_set(reader: Reader, most: int = MAX_RUNS) -> NumberSet:
    """One set off the front of a body, with at most so many runs."""
    limit, count = reader.unpack(SET_HEAD)
    if limit > NO_LIMIT or count > most:
        raise WireError("a set with too many runs, or a limit out of range")
    if count * SET_RUN.size > reader.left:
        raise WireError("more runs announced than the body holds")
    runs = []
    least = 0
    for _ in range(count):
        first, length = reader.unpack(SET_RUN)
        if first < least or not length or first + length > limit:
            raise WireError("runs that are empty, do not rise, touch each other or go beyond the limit")
        least = first + length + 1
        runs.append((first, first + length))
    return NumberSet(tuple(runs), limit)


def decode_set(body: bytes | memoryview) -> NumberSet:
    """A body that is one set."""
    reader = Reader(body)
    numbers = read_set(reader)
    reader.end()
    return numbers
