"""Making frames: runs of messages are gathered into columns and sealed with a header and checksums."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np

from ordercast.archive.headers import (
    ALIGNMENT,
    MAX_COUNT,
    MAX_NAMES,
    MAX_SERVICES,
    MAX_VALUES,
    MESSAGES,
    FrameHead,
    layout,
    pack_frame_head,
    padded,
)
from ordercast.engine import Buffer
from ordercast.errors import InvariantViolation, UsageError

NAME_LENGTH: Final = Struct("<H")
"""In front of each name in the tables of a frame: its bytes."""


class Sealed(NamedTuple):
    """A frame that is ready to be written: its header, and its bytes as they go to the file."""

    head: FrameHead
    buffers: Sequence[Buffer]

    def tobytes(self) -> bytes:
        return b"".join(self.buffers)


def seal_mark(kind: int, begin: int, stop: int, now_ns: int) -> Sealed:
    """A frame without messages: a hole, or positions that belong to no ordered message."""
    head = FrameHead(kind, 0, 0, 0, 0, 0, 0, 0, begin, stop, -1, -1, now_ns, now_ns, 0)
    return Sealed(head, (pack_frame_head(head),))


class FrameBuilder:
    """Gathers runs of messages, each with consecutive positions and numbers, into one frame.

    Hot: `benches` of the archive measure it; it costs a run, not a message.
    """

    __slots__ = (
        "_lengths",
        "_names",
        "_numbers",
        "_positions",
        "_runs",
        "_services",
        "_types",
        "_values",
        "_views",
        "count",
        "first",
        "last",
        "values_bytes",
    )

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._positions: list[Any] = []
        self._numbers: list[Any] = []
        self._lengths: list[Any] = []
        self._types: list[Any] = []
        self._values: list[Buffer] = []
        self._runs: list[tuple[int, int, int, int, int]] = []  # count, view, sender, service, time
        self._views: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._services: dict[str, int] = {}
        self.count = 0
        self.values_bytes = 0
        self.first = -1
        self.last = -1

    def fits(self, count: int, values_bytes: int) -> bool:
        """Whether such a run can still be added; to an empty builder anything can that a frame can hold at all."""
        return (
            self.count + count <= MAX_COUNT
            and self.values_bytes + values_bytes <= MAX_VALUES
            and max(len(self._views), len(self._names)) < MAX_NAMES
            and len(self._services) < MAX_SERVICES
        )

    def add(
        self,
        position: int,
        view: str,
        sender: str,
        number: int,
        service: str,
        timestamp_ns: int,
        types: int | Sequence[int],
        lengths: Any,
        values: Buffer,
    ) -> None:
        """Messages at consecutive positions: `lengths` is a sequence of theirs, `values` their bytes in a row."""
        lengths = np.asarray(lengths, dtype=np.int64)
        count = len(lengths)
        if not count:
            return
        if position <= self.last:
            raise InvariantViolation(f"position {position} came to the archive behind {self.last}")
        if self.first < 0:
            self.first = position
        self.last = position + count - 1
        self._positions.append(np.arange(position, position + count, dtype="<i8"))
        self._numbers.append(np.arange(number, number + count, dtype="<i8"))
        self._lengths.append(lengths)
        self._types.append(
            np.full(count, types, dtype="<i2") if isinstance(types, int) else np.asarray(types, dtype="<i2")
        )
        self._values.append(values)
        view_index = self._views.setdefault(view, len(self._views))
        sender_index = self._names.setdefault(sender, len(self._names))
        service_index = self._services.setdefault(service, len(self._services))
        self._runs.append((count, view_index, sender_index, service_index, timestamp_ns))
        self.count += count
        self.values_bytes += len(memoryview(values))

    def seal(self, begin: int, stop: int | None = None) -> Sealed:
        """The frame, which covers `[begin, stop)`, by default up to its last message; the builder is empty again."""
        if not self.count:
            raise InvariantViolation("a frame of messages has at least one")
        counts, views, senders, services, times = (
            np.array(column, dtype="<i8") for column in zip(*self._runs, strict=True)
        )
        offsets = np.zeros(self.count + 1, dtype="<i4")
        np.cumsum(_joined(self._lengths), out=offsets[1:])
        if int(offsets[-1]) != self.values_bytes:
            raise InvariantViolation("the lengths of messages do not add up to their bytes")
        columns = FrameColumns(
            _joined(self._positions),
            _joined(self._numbers),
            np.repeat(times, counts).astype("<i8", copy=False),
            offsets,
            np.repeat(views.astype("<i2"), counts),
            np.repeat(senders.astype("<i2"), counts),
            _joined(self._types),
            np.repeat(services.astype("<i1"), counts),
        )
        tables = (list(self._views), list(self._names), list(self._services))
        sealed = seal_columns(
            columns, self._values, self.values_bytes, tables, begin, self.last + 1 if stop is None else stop
        )
        self._clear()
        return sealed


class FrameColumns(NamedTuple):
    """The fixed columns of a frame as numpy arrays, in the order in which they lie there."""

    position: Any
    number: Any
    timestamp: Any
    offsets: Any
    view: Any
    sender: Any
    type: Any
    service: Any


def seal_columns(
    columns: FrameColumns,
    values: Sequence[Buffer],
    values_bytes: int,
    tables: tuple[Sequence[str], Sequence[str], Sequence[str]],
    begin: int,
    stop: int,
) -> Sealed:
    packed_tables = b"".join(_pack_name(name) for table in tables for name in table)
    buffers: list[Buffer] = []
    for column in columns:
        data: Buffer = np.ascontiguousarray(column).data.cast("B")
        buffers.append(data)
        if pad := -len(data) % ALIGNMENT:
            buffers.append(bytes(pad))
    buffers += values
    buffers.append(bytes(-values_bytes % ALIGNMENT))
    buffers.append(packed_tables.ljust(padded(len(packed_tables)), b"\0"))
    crc = 0
    for buffer in buffers:
        crc = zlib.crc32(buffer, crc)
    count = len(columns.position)
    # All timestamps of a frame lie between these two, even if the clock was set back.
    first_ns, last_ns = int(columns.timestamp.min()), int(columns.timestamp.max())
    head = FrameHead(
        MESSAGES,
        layout(count, values_bytes, len(packed_tables)).end,
        count,
        values_bytes,
        len(packed_tables),
        len(tables[0]),
        len(tables[1]),
        len(tables[2]),
        begin,
        stop,
        int(columns.position[0]),
        int(columns.position[-1]),
        first_ns,
        last_ns,
        crc,
    )
    return Sealed(head, (pack_frame_head(head), *buffers))


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _pack_name(name: str) -> bytes:
    data = name.encode()
    if len(data) > 0xFFFF:
        raise UsageError(f"a name of {len(data)} bytes does not fit an archive")
    return NAME_LENGTH.pack(len(data)) + data
