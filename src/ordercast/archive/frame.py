"""Reading frames: columns are wrapped where they lie, messages are handed out one by one, and parts are cut out."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from ordercast.archive.builder import NAME_LENGTH, FrameColumns, Sealed, seal_columns, seal_mark
from ordercast.archive.errors import ArchiveDamaged
from ordercast.archive.headers import EMPTY, FRAME_BYTES, HOLE, KINDS, MESSAGES, FrameHead, layout
from ordercast.engine import Buffer
from ordercast.errors import InvariantViolation

COLUMNS: Final = ("group", "position", "view", "sender", "number", "service", "timestamp", "type", "value")


class Frame:
    """One frame over the bytes that were read; columns are wrapped where they lie, not copied."""

    __slots__ = ("_tables", "body_at", "data", "group", "head", "layout")

    def __init__(self, group: str, head: FrameHead, data: Buffer, at: int = 0) -> None:
        """`data` holds the whole frame, at `at`: a multiple of 8 from an address that is one."""
        self.group = group
        self.head = head
        self.data = data
        self.body_at = at + FRAME_BYTES
        self.layout = layout(head.count, head.values_bytes, head.tables_bytes)
        self._tables: tuple[list[str], list[str], list[str]] | None = None

    def __len__(self) -> int:
        return self.head.count

    def __repr__(self) -> str:
        return f"Frame({KINDS[self.head.kind]}, [{self.head.begin}, {self.head.stop}), count={self.head.count})"

    @property
    def begin(self) -> int:
        return self.head.begin

    @property
    def stop(self) -> int:
        return self.head.stop

    @property
    def is_hole(self) -> bool:
        return self.head.kind == HOLE

    def check(self, where: str = "a frame") -> None:
        """Raise ArchiveDamaged if the body does not have its checksum, or breaks the format."""
        if not self.is_intact:
            raise ArchiveDamaged(f"{where}: the frame [{self.begin}, {self.stop}) does not have its checksum")
        if self.head.kind != MESSAGES:
            return
        positions, offsets = self.position, self.offsets
        views, senders, services = self.tables
        is_good = (
            int(positions[0]) == self.head.first
            and int(positions[-1]) == self.head.last
            and bool((positions[1:] > positions[:-1]).all())
            and int(offsets[0]) == 0
            and int(offsets[-1]) == self.head.values_bytes
            and bool((offsets[1:] >= offsets[:-1]).all())
            and _is_below(self.view_index, len(views))
            and _is_below(self.sender_index, len(senders))
            and _is_below(self.service_index, len(services))
        )
        if not is_good:
            raise ArchiveDamaged(f"{where}: the frame [{self.begin}, {self.stop}) contradicts itself")

    @property
    def is_intact(self) -> bool:
        """Whether the body has its checksum."""
        body = memoryview(self.data)[self.body_at : self.body_at + self.head.body_bytes]
        return len(body) == self.head.body_bytes and zlib.crc32(body) == self.head.body_crc

    # Columns.

    def _column(self, offset: int, count: int, dtype: str) -> Any:
        return np.frombuffer(self.data, dtype=dtype, count=count, offset=self.body_at + offset)

    @property
    def position(self) -> Any:
        return self._column(self.layout.position, self.head.count, "<i8")

    @property
    def number(self) -> Any:
        return self._column(self.layout.number, self.head.count, "<i8")

    @property
    def timestamp(self) -> Any:
        """Nanoseconds since 1970, when the recorder took the message."""
        return self._column(self.layout.timestamp, self.head.count, "<i8")

    @property
    def offsets(self) -> Any:
        """Message i is `values[offsets[i]:offsets[i + 1]]`."""
        return self._column(self.layout.offsets, self.head.count + 1, "<i4")

    @property
    def view_index(self) -> Any:
        return self._column(self.layout.view, self.head.count, "<i2")

    @property
    def sender_index(self) -> Any:
        return self._column(self.layout.sender, self.head.count, "<i2")

    @property
    def service_index(self) -> Any:
        return self._column(self.layout.service, self.head.count, "<i1")

    @property
    def type(self) -> Any:
        return self._column(self.layout.type, self.head.count, "<i2")

    @property
    def values(self) -> memoryview:
        at = self.body_at + self.layout.values
        return memoryview(self.data)[at : at + self.head.values_bytes]

    @property
    def tables(self) -> tuple[list[str], list[str], list[str]]:
        """The names of views, senders and services, which the index columns point into."""
        if self._tables is None:
            at = self.body_at + self.layout.tables
            names = list(_open_names(bytes(memoryview(self.data)[at : at + self.head.tables_bytes])))
            views, senders, services = self.head.views, self.head.senders, self.head.services
            if len(names) != views + senders + services:
                raise ArchiveDamaged(f"the frame [{self.begin}, {self.stop}) does not have the names that it counts")
            self._tables = (names[:views], names[views : views + senders], names[views + senders :])
        return self._tables

    # Rows.

    def rows(self, first: int | None = None, stop: int | None = None) -> slice:
        """Which rows have positions in `[first, stop)`."""
        low, high = 0, self.head.count
        if first is not None and first > self.head.first:
            low = int(np.searchsorted(self.position, first))
        if stop is not None and stop <= self.head.last:
            high = int(np.searchsorted(self.position, stop))
        return slice(low, max(low, high))

    def records(self, first: int | None = None, stop: int | None = None) -> Iterator[Record]:
        """The messages one by one: easy to use, slow."""
        if not self.head.count:
            return
        rows = self.rows(first, stop)
        views, senders, services = self.tables
        values, offsets = self.values, self.offsets[rows.start : rows.stop + 1].tolist()
        columns = (
            self.position, self.view_index, self.sender_index, self.number, self.service_index, self.timestamp,
            self.type,
        )  # fmt: skip
        for at, (position, view, sender, number, service, timestamp, type_) in enumerate(
            zip(*(column[rows].tolist() for column in columns), strict=True)
        ):
            value = bytes(values[offsets[at] : offsets[at + 1]])
            yield Record(
                self.group, position, views[view], senders[sender], number, services[service], timestamp, type_, value
            )

    def cut(self, begin: int, stop: int) -> Sealed:
        """A frame of the messages in `[begin, stop)`, which lies inside of what this frame covers."""
        if not self.begin <= begin < stop <= self.stop:
            raise InvariantViolation(f"[{begin}, {stop}) is not inside of [{self.begin}, {self.stop})")
        if self.head.kind != MESSAGES:
            return seal_mark(self.head.kind, begin, stop, self.head.first_ns)
        rows = self.rows(begin, stop)
        if rows.start == rows.stop:
            return seal_mark(EMPTY, begin, stop, self.head.first_ns)
        offsets = self.offsets[rows.start : rows.stop + 1]
        values = self.values[int(offsets[0]) : int(offsets[-1])]
        columns = FrameColumns(
            self.position[rows],
            self.number[rows],
            self.timestamp[rows],
            offsets - offsets[0],
            self.view_index[rows],
            self.sender_index[rows],
            self.type[rows],
            self.service_index[rows],
        )
        return seal_columns(columns, (values,), len(values), self.tables, begin, stop)

    def shifted(self, by: int) -> Frame:
        """The same messages at positions that are greater by `by`."""
        if not by:
            return self
        if self.head.kind != MESSAGES:
            sealed = seal_mark(self.head.kind, self.begin + by, self.stop + by, self.head.first_ns)
        else:
            columns = FrameColumns(
                self.position + by,
                self.number,
                self.timestamp,
                self.offsets,
                self.view_index,
                self.sender_index,
                self.type,
                self.service_index,
            )
            begin, stop = self.begin + by, self.stop + by
            sealed = seal_columns(columns, (self.values,), self.head.values_bytes, self.tables, begin, stop)
        return Frame(self.group, sealed.head, sealed.tobytes())

    def part(self, begin: int, stop: int) -> Sealed:
        """The part that covers `[begin, stop)`; the frame as it is if that is all of it."""
        begin, stop = max(begin, self.begin), min(stop, self.stop)
        return self.sealed() if (begin, stop) == (self.begin, self.stop) else self.cut(begin, stop)

    def sealed(self) -> Sealed:
        """The frame as it is, to be written again."""
        at = self.body_at - FRAME_BYTES
        return Sealed(self.head, (memoryview(self.data)[at : at + self.head.nbytes],))


class Record(NamedTuple):
    """One archived message; the fields are COLUMNS."""

    group: str
    position: int
    view: str
    sender: str
    number: int
    service: str
    timestamp: int
    type: int
    value: bytes


def _open_names(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ArchiveDamaged("a table of names ends inside a name")
        (size,) = NAME_LENGTH.unpack_from(data, at)
        at += 2
        if at + size > len(data):
            raise ArchiveDamaged("a table of names ends inside a name")
        yield data[at : at + size].decode(errors="replace")
        at += size


def _is_below(index: Any, count: int) -> bool:
    return bool(index.min() >= 0) and bool(index.max() < count)
