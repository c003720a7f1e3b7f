"""Segments: how a body becomes datagrams, and datagrams a body again.

Every segment of a body but the last is exactly as long as the datagram size allows, so that one `sendmsg` with
UDP_SEGMENT sends them all and one GRO batch brings them all. Which bytes segment i holds depends only on the datagram
size, a parameter of the group: a repair fills the hole that the loss left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ordercast.errors import WireError
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, MAX_SEGMENTS

Buffer = bytes | bytearray | memoryview

MAX_PARTIAL: Final = 512  # bodies under reassembly at once; the oldest goes, and is repaired if it was real
MAX_PARTIAL_BYTES: Final = 32 << 20

# All bytes of a header but the segment number: a train is one body when these are equal in all its datagrams.
_SEGMENT_OFFSET: Final = 2
_KIND_OFFSET: Final = 1
_ALIKE: Final = [0, 1, *range(4, 24)]  # magic and kind; tag, ring and origin


class Datagram(NamedTuple):
    """A decoded header of our group, with where its body lies."""

    kind: int
    segment: int
    last: int
    ring: int
    origin: int
    number: int
    body: "memoryview"  # noqa: UP037 - mypyc looks unquoted names up where this one is not


def train(
    kind: int, tag: int, ring: int, origin: int, number: int, body: Buffer, datagram: int
) -> tuple[list[Buffer], int]:
    """Buffers and stride that send one body; stride 0 when it fits one datagram."""
    step = datagram - HEADER_BYTES
    size = len(body)
    if size <= step:
        return [HEADER.pack(MAGIC, kind, 0, 0, tag, ring, origin, number), body], 0
    last = (size - 1) // step
    if last >= MAX_SEGMENTS:
        raise WireError(f"{size} bytes need more than {MAX_SEGMENTS} datagrams of {datagram}")
    view = memoryview(body)
    pack = HEADER.pack
    buffers: list[Buffer] = []
    for segment in range(last + 1):
        buffers.append(pack(MAGIC, kind, segment, last, tag, ring, origin, number))
        buffers.append(view[segment * step : (segment + 1) * step])
    return buffers, datagram


def pieces(
    kind: int, tag: int, ring: int, origin: int, number: int, body: Buffer, datagram: int, first: int, stop: int
) -> tuple[list[Buffer], int]:
    """Segments [first, stop) of a body, for a repair."""
    step = datagram - HEADER_BYTES
    last = max(0, (len(body) - 1) // step)
    view = memoryview(body)
    buffers: list[Buffer] = []
    stop = min(stop, last + 1)
    for segment in range(first, stop):
        buffers.append(HEADER.pack(MAGIC, kind, segment, last, tag, ring, origin, number))
        buffers.append(view[segment * step : (segment + 1) * step])
    return buffers, (datagram if stop - first > 1 else 0)


def segments_of(size: int, datagram: int) -> int:
    """How many datagrams a body of `size` bytes takes."""
    return max(1, -(-size // (datagram - HEADER_BYTES)))


def without_mark(data: memoryview, stride: int, mark: int) -> bytearray | None:
    """A copy of a train whose datagrams are all of one kind, ring and origin, with a bit of the kind cleared; None
    where they are not, as the kernel joins what came one after the other. `stride` is the size of a single one."""
    plain = bytearray(data)
    count = (len(data) - HEADER_BYTES) // stride + 1
    if len(data) > count * stride:
        return None  # the last is shorter than a header
    heads = np.ndarray((count, HEADER_BYTES), np.uint8, plain, 0, (stride, 1))
    if count > 1 and (heads[:, _ALIKE] != heads[0, _ALIKE]).any():
        return None
    heads[:, _KIND_OFFSET] &= ~mark & 0xFF
    return plain


def strip_train(data: memoryview, stride: int, count: int) -> bytes | None:
    """The body, when `data` is one whole body in order; None when it is anything else.

    `count` is the number of datagrams, which the caller has found equal to last + 1 of the first header. Hot with
    1,400-byte datagrams: a structured view does 44 segments in one step where a loop would take twice the time.
    """
    whole = len(data) // stride
    table = np.frombuffer(data, dtype=np.uint8, count=whole * stride).reshape(whole, stride)
    heads = table[:, :HEADER_BYTES]
    expected = heads[0].copy()
    if whole == count:
        tail = b""
    else:
        tail_at = whole * stride
        head_end = tail_at + HEADER_BYTES
        if len(data) <= head_end or bytes(data[tail_at:head_end]) != _with_segment(expected, whole):
            return None
        tail = bytes(data[head_end:])
    if not np.array_equal(heads[:, _SEGMENT_OFFSET], np.arange(whole, dtype=np.uint8)):
        return None
    mask = heads == expected
    mask[:, _SEGMENT_OFFSET] = True
    if not mask.all():
        return None
    return table[:, HEADER_BYTES:].tobytes() + tail


def _with_segment(head: np.ndarray[tuple[int], np.dtype[np.uint8]], segment: int) -> bytes:
    raw = bytearray(head.tobytes())
    raw[_SEGMENT_OFFSET] = segment
    return bytes(raw)


class _Partial:
    __slots__ = ("bytes", "last", "missing", "pieces")

    def __init__(self, last: int) -> None:
        self.last = last
        self.pieces: list[bytes | None] = [None] * (last + 1)
        self.missing = last + 1
        self.bytes = 0


class Reassembly:
    """Bodies of which some segments have come, keyed by who sent what; bounded, oldest out first."""

    __slots__ = ("_bytes", "_most", "_most_bytes", "_partial", "_step", "evicted")

    def __init__(self, datagram: int, most: int = MAX_PARTIAL, most_bytes: int = MAX_PARTIAL_BYTES) -> None:
        """With `datagram` 0 segments may have any size: a newcomer does not know the group's yet. Whoever gives other
        bounds has bodies whose segments never come again."""
        self._partial: dict[tuple[int, int, int], _Partial] = {}
        self._step = datagram - HEADER_BYTES if datagram else 0
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self.evicted = 0

    def add(self, key: tuple[int, int, int], segment: int, last: int, body: Buffer) -> bytes | None:
        """Keep one segment; the whole body once nothing is missing. Raises WireError where sizes cannot be true."""
        size = len(body)
        step = self._step
        if segment > last or not size or (step and (size > step or (segment < last and size != step))):
            raise WireError("segment has an impossible size")
        partial = self._partial.get(key)
        if partial is None or partial.last != last:
            self.forget(key)
            partial = self._partial[key] = _Partial(last)
            self._evict()
        if partial.pieces[segment] is not None:
            return None
        partial.pieces[segment] = bytes(body)
        partial.missing -= 1
        partial.bytes += size
        self._bytes += size
        if partial.missing:
            if self._bytes > self._most_bytes:
                self._evict()
            return None
        self.forget(key)
        return b"".join([piece for piece in partial.pieces if piece is not None])

    def missing(self, key: tuple[int, int, int]) -> list[tuple[int, int]]:
        """Half-open ranges of the segments that have not come; empty where none has come at all."""
        partial = self._partial.get(key)
        if partial is None:
            return []
        ranges: list[tuple[int, int]] = []
        for segment, piece in enumerate(partial.pieces):
            if piece is not None:
                continue
            if ranges and ranges[-1][1] == segment:
                ranges[-1] = (ranges[-1][0], segment + 1)
            else:
                ranges.append((segment, segment + 1))
        return ranges

    def piece(self, key: tuple[int, int, int], segment: int) -> tuple[bytes, int] | None:
        """One segment of a body that is not whole, with the number of the last; None where it has not come."""
        partial = self._partial.get(key)
        found = partial.pieces[segment] if partial is not None and segment <= partial.last else None
        return (found, partial.last) if partial is not None and found is not None else None

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(self._partial)

    def forget(self, key: tuple[int, int, int]) -> None:
        partial = self._partial.pop(key, None)
        if partial is not None:
            self._bytes -= partial.bytes

    def clear(self) -> None:
        self._partial.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._partial)

    def _evict(self) -> None:
        while len(self._partial) > self._most or (self._bytes > self._most_bytes and len(self._partial) > 1):
            self.forget(next(iter(self._partial)))
            self.evicted += 1
