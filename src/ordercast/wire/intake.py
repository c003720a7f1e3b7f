"""From what a driver received to datagrams that can be acted on: checked, taken out of trains, long ones whole.

A train that is one whole block in order, the common case under load, is stripped of its headers in one step. Control
bodies in several segments are put together here. Segments of blocks are not: the orderer has to know which of them are
missing, and where a site forwards them, each goes on alone. Nor are datagrams that are only forwarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ordercast.config import SECOND
from ordercast.engine import NEVER
from ordercast.errors import WireError
from ordercast.wire.header import FORWARD, HEADER, HEADER_BYTES, MAGIC, MAX_SEGMENTS, TAG_OFFSET, Kind
from ordercast.wire.segments import Datagram, Reassembly, strip_train

MAX_DATAGRAMS: Final = 4_096  # of one batch; a train of tiny datagrams must not hold us up
# Kinds whose segments are handed on one by one.
_SEGMENTS: Final = frozenset({Kind.DATA, Kind.REPAIR, Kind.PACKET, Kind.PUSH, Kind.PULLED})
STALE_PARTS_NS: Final = 2 * SECOND  # a control body that is not whole by then comes again as a new one


class Intake:
    __slots__ = ("_counters", "_parts", "_tag", "due_ns")

    def __init__(self, tag: int, counters: dict[str, int]) -> None:
        self._tag = tag
        self._counters = counters
        self._parts = Reassembly(0)
        self.due_ns = NEVER  # when what is half here is forgotten

    def read(self, now_ns: int, data: memoryview, stride: int) -> Iterator[Datagram]:
        """The datagrams of one batch, in order; malformed ones are counted and left out."""
        size = len(data)
        if not 0 < stride < size:
            stride = size
        count = -(-size // stride) if stride else 0
        if count > MAX_DATAGRAMS or stride <= HEADER_BYTES:
            self.reject()
            return
        if count > 1:
            whole = self._whole_block(data, stride, count)
            if whole is not None:
                yield whole
                return
        for at in range(0, size, stride):
            datagram = self._one(now_ns, data[at : at + stride])
            if datagram is not None:
                yield datagram

    def reject(self) -> None:
        self._counters["malformed"] = self._counters.get("malformed", 0) + 1

    def expire(self, now_ns: int) -> None:
        if self.due_ns <= now_ns:
            self.clear()

    def clear(self) -> None:
        self._parts.clear()
        self.due_ns = NEVER

    @property
    def is_empty(self) -> bool:
        return not len(self._parts)

    def _whole_block(self, data: memoryview, stride: int, count: int) -> Datagram | None:
        magic, kind, segment, last, tag, ring, origin, number = HEADER.unpack_from(data)
        if magic != MAGIC or tag != self._tag or segment or not last + 1 == count <= MAX_SEGMENTS:
            return None
        if kind not in (Kind.DATA, Kind.REPAIR):
            return None
        body = strip_train(data, stride, count)
        return None if body is None else Datagram(kind, 0, 0, ring, origin, number, memoryview(body))

    def _one(self, now_ns: int, data: memoryview) -> Datagram | None:
        if len(data) <= HEADER_BYTES:
            self.reject()
            return None
        magic, kind, segment, last, tag, ring, origin, number = HEADER.unpack_from(data)
        if magic != MAGIC or tag != self._tag or segment > last:
            self.reject()
            return None
        body = data[HEADER_BYTES:]
        if not last or kind in _SEGMENTS or kind >= FORWARD:
            return Datagram(kind, segment, last, ring, origin, number, body)
        self.due_ns = now_ns + STALE_PARTS_NS
        try:
            # Numbers may begin anew with a ring.
            whole = self._parts.add((origin, number, ring << 8 | kind), segment, last, body)
        except WireError:
            self.reject()
            return None
        return None if whole is None else Datagram(kind, 0, 0, ring, origin, number, memoryview(whole))


def is_mixed(data: memoryview, stride: int, tag: int) -> bool:
    """Whether a train holds datagrams of several underlays: the kernel joins what came one after the other."""
    count = (len(data) - TAG_OFFSET - 4) // stride + 1
    tags = np.ndarray((count,), "<u4", data, TAG_OFFSET, (stride,))
    return bool((tags != tag).any())
