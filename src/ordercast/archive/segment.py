"""The file format: a segment is a header and frames, a frame is a header and columns. docs/design/archive.md has it.

Little-endian throughout. Columns begin at multiples of 8 bytes, so that Arrow wraps them where they lie. Each frame has
its own tables of views, senders and services: any frame can be read alone. A frame *covers* the positions
`[begin, stop)`: those that no message of it has, belong to no ordered message.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ordercast.archive.errors import ArchiveDamaged, ForeignFile, NewerFormat
from ordercast.engine import Buffer
from ordercast.errors import InvariantViolation, UsageError

if TYPE_CHECKING:
    import pyarrow

VERSION: Final = 1
ALIGNMENT: Final = 8

# magic, version, bytes of the header, bytes of the group's name, flags, archive, first, after, created_ns, crc
SEGMENT_HEAD: Final = Struct("<8sHHHH16sqqqI4x")
SEGMENT_MAGIC: Final = b"OCARCHIV"
SEGMENT_CRC_OFFSET: Final = 56
# magic, kind, version, flags, bytes of the body, count, bytes of the values, bytes of the tables, views, senders,
# services, begin, stop, first, last, first_ns, last_ns, crc of the body, crc of the header up to here
FRAME_HEAD: Final = Struct("<4sBBHIIIIHHH2xqqqqqqII8x")
FRAME_MAGIC: Final = b"OCFR"
FRAME_BYTES: Final = FRAME_HEAD.size
FRAME_CRC_OFFSET: Final = 84
_CRC: Final = Struct("<I")
_LENGTH: Final = Struct("<H")
if (SEGMENT_HEAD.size, FRAME_BYTES) != (64, 96):
    raise AssertionError("archive structures have fixed sizes on disk")

MESSAGES: Final = 1
HOLE: Final = 2
EMPTY: Final = 3
KINDS: Final = {MESSAGES: "messages", HOLE: "hole", EMPTY: "empty"}

MAX_COUNT: Final = 1 << 20
"""Messages of one frame."""

MAX_VALUES: Final = (1 << 31) - 1
"""Bytes of the values of one frame: offsets have 32 bits. A single message has at most 1 GiB (config.py)."""

MAX_NAMES: Final = 1 << 15
"""Views, and senders, of one frame: their indexes have 16 bits."""

MAX_SERVICES: Final = 1 << 7
"""Services of one frame: their indexes have 8 bits."""

MAX_POSITION: Final = (1 << 62) - 1

NAME: Final = re.compile(r"segment-(\d{20})\.ocl")
COLUMNS: Final = ("group", "position", "view", "sender", "number", "service", "timestamp", "type", "value")


def segment_name(first: int) -> str:
    """The file name of the segment that covers positions from `first` on."""
    return f"segment-{first:020}.ocl"


def padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# The header of a segment. --------------------------------------------------------------------------------------------


class SegmentHead(NamedTuple):
    """Who a segment belongs to. It covers from `first` on; `after` is where the archive ended when it was begun.

    Where `after` is less than `first`, the positions between were missing then (`after` is -1 where there was none).
    """

    group: str
    archive: bytes  # 16 bytes that no other archive has
    first: int
    after: int
    created_ns: int
    nbytes: int = 0  # of the header itself


def pack_segment_head(head: SegmentHead) -> bytes:
    name = head.group.encode()
    size = -(-(SEGMENT_HEAD.size + len(name)) // 64) * 64
    fields = (SEGMENT_MAGIC, VERSION, size, len(name), 0, head.archive, head.first, head.after, head.created_ns)
    packed = bytearray((SEGMENT_HEAD.pack(*fields, 0) + name).ljust(size, b"\0"))
    _CRC.pack_into(packed, SEGMENT_CRC_OFFSET, zlib.crc32(packed))
    return bytes(packed)


def open_segment_head(data: bytes, name: str) -> SegmentHead | None:
    """The header of the segment `name`; None where it is torn: shorter than it says, or not what was written.

    Raises ForeignFile where this is no segment, NewerFormat where it is one of a newer version.
    """
    if not data.startswith(SEGMENT_MAGIC[: len(data)]):
        if not any(data):
            return None  # the file's length reached the disk before its bytes did
        raise ForeignFile(f"{name} is named like a segment of an archive and is none: move it out of the folder")
    if len(data) < SEGMENT_HEAD.size:
        return None
    _, version, size, name_bytes, _, archive, first, after, created_ns, crc = SEGMENT_HEAD.unpack_from(data)
    if version > VERSION:
        raise NewerFormat(
            f"{name} has format {version}, and this version of Ordercast reads up to {VERSION}: use a newer one"
        )
    if len(data) < size or size < SEGMENT_HEAD.size + name_bytes or size % 64:
        return None
    checked = bytearray(data[:size])
    _CRC.pack_into(checked, SEGMENT_CRC_OFFSET, 0)
    if version < 1 or zlib.crc32(checked) != crc:
        return None
    group = data[SEGMENT_HEAD.size : SEGMENT_HEAD.size + name_bytes].decode(errors="replace")
    return SegmentHead(group, archive, first, after, created_ns, size)


# The header of a frame. ----------------------------------------------------------------------------------------------


class FrameHead(NamedTuple):
    """What is known of a frame without its body. `begin, stop` is covered; first and last are messages' (-1: none)."""

    kind: int
    body_bytes: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed
    values_bytes: int
    tables_bytes: int
    views: int
    senders: int
    services: int
    begin: int
    stop: int
    first: int
    last: int
    first_ns: int
    last_ns: int
    body_crc: int

    @property
    def nbytes(self) -> int:
        """Of the whole frame."""
        return FRAME_BYTES + self.body_bytes


def pack_frame_head(head: FrameHead) -> bytes:
    packed = bytearray(
        FRAME_HEAD.pack(
            FRAME_MAGIC, head.kind, VERSION, 0, head.body_bytes, head.count, head.values_bytes, head.tables_bytes,
            head.views, head.senders, head.services, head.begin, head.stop, head.first, head.last, head.first_ns,
            head.last_ns, head.body_crc, 0,
        )
    )  # fmt: skip
    _CRC.pack_into(packed, FRAME_CRC_OFFSET, zlib.crc32(memoryview(packed)[:FRAME_CRC_OFFSET]))
    return bytes(packed)


def open_frame_head(data: Buffer, at: int = 0) -> FrameHead | None:
    """The frame header at `at`; None where there is none: short, torn, or other bytes."""
    view = memoryview(data)
    if len(view) - at < FRAME_BYTES or bytes(view[at : at + 4]) != FRAME_MAGIC:
        return None
    if zlib.crc32(view[at : at + FRAME_CRC_OFFSET]) != _CRC.unpack_from(view, at + FRAME_CRC_OFFSET)[0]:
        return None
    _, kind, version, _, *fields, _ = FRAME_HEAD.unpack_from(view, at)
    head = FrameHead(kind, *fields)
    # What a checksum confirms was written by us; what another version means by it, is not ours to guess.
    if version != VERSION or kind not in KINDS or not _is_consistent(head):
        return None
    return head


def _is_consistent(head: FrameHead) -> bool:
    if not 0 <= head.begin < head.stop <= MAX_POSITION or head.count > MAX_COUNT or head.values_bytes > MAX_VALUES:
        return False
    if head.kind != MESSAGES:
        return head.count == 0 and head.body_bytes == 0
    if not head.count or not head.begin <= head.first <= head.last < head.stop:
        return False
    return head.body_bytes == layout(head.count, head.values_bytes, head.tables_bytes).end


class Layout(NamedTuple):
    """Where the columns of a frame begin, in its body."""

    position: int
    number: int
    timestamp: int
    offsets: int
    view: int
    sender: int
    type: int
    service: int
    values: int
    tables: int
    end: int


def layout(count: int, values_bytes: int, tables_bytes: int) -> Layout:
    wide, narrow = count * 8, padded(count * 2)
    offsets = 3 * wide
    view = offsets + padded((count + 1) * 4)
    service = view + 3 * narrow
    values = service + padded(count)
    tables = values + padded(values_bytes)
    end = tables + padded(tables_bytes)
    return Layout(0, wide, 2 * wide, offsets, view, view + narrow, view + 2 * narrow, service, values, tables, end)


# Frames being made. --------------------------------------------------------------------------------------------------


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
        columns = Columns(
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
        sealed = _seal(columns, self._values, self.values_bytes, tables, begin, self.last + 1 if stop is None else stop)
        self._clear()
        return sealed


class Columns(NamedTuple):
    """The fixed columns of a frame as numpy arrays, in the order in which they lie there."""

    position: Any
    number: Any
    timestamp: Any
    offsets: Any
    view: Any
    sender: Any
    type: Any
    service: Any


def _seal(
    columns: Columns,
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
    # All of a frame's times lie between these two, also where somebody set the clock back.
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
    return _LENGTH.pack(len(data)) + data


# Frames being read. --------------------------------------------------------------------------------------------------


class Frame:
    """One frame over the bytes that were read; columns are wrapped where they lie, not copied."""

    __slots__ = ("_at", "_data", "_layout", "_tables", "group", "head")

    def __init__(self, group: str, head: FrameHead, data: Buffer, at: int = 0) -> None:
        """`data` holds the whole frame, at `at`: a multiple of 8 from an address that is one."""
        self.group = group
        self.head = head
        self._data = data
        self._at = at + FRAME_BYTES
        self._layout = layout(head.count, head.values_bytes, head.tables_bytes)
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
        """Raise ArchiveDamaged where the body is not what was written, or does not keep the format."""
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
        body = memoryview(self._data)[self._at : self._at + self.head.body_bytes]
        return len(body) == self.head.body_bytes and zlib.crc32(body) == self.head.body_crc

    # Columns.

    def _column(self, offset: int, count: int, dtype: str) -> Any:
        return np.frombuffer(self._data, dtype=dtype, count=count, offset=self._at + offset)

    @property
    def position(self) -> Any:
        return self._column(self._layout.position, self.head.count, "<i8")

    @property
    def number(self) -> Any:
        return self._column(self._layout.number, self.head.count, "<i8")

    @property
    def timestamp(self) -> Any:
        """Nanoseconds since 1970, when the recorder took the message."""
        return self._column(self._layout.timestamp, self.head.count, "<i8")

    @property
    def offsets(self) -> Any:
        """Message i is `values[offsets[i]:offsets[i + 1]]`."""
        return self._column(self._layout.offsets, self.head.count + 1, "<i4")

    @property
    def view_index(self) -> Any:
        return self._column(self._layout.view, self.head.count, "<i2")

    @property
    def sender_index(self) -> Any:
        return self._column(self._layout.sender, self.head.count, "<i2")

    @property
    def service_index(self) -> Any:
        return self._column(self._layout.service, self.head.count, "<i1")

    @property
    def type(self) -> Any:
        return self._column(self._layout.type, self.head.count, "<i2")

    @property
    def values(self) -> memoryview:
        at = self._at + self._layout.values
        return memoryview(self._data)[at : at + self.head.values_bytes]

    @property
    def tables(self) -> tuple[list[str], list[str], list[str]]:
        """The names of views, senders and services, which the index columns point into."""
        if self._tables is None:
            at = self._at + self._layout.tables
            names = list(_open_names(bytes(memoryview(self._data)[at : at + self.head.tables_bytes])))
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
        """The messages one by one; for people and small programs, not for speed."""
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
        """A frame of the same messages that covers `[begin, stop)` only, which lies inside of what this one covers."""
        if not self.begin <= begin < stop <= self.stop:
            raise InvariantViolation(f"[{begin}, {stop}) is not inside of [{self.begin}, {self.stop})")
        if self.head.kind != MESSAGES:
            return seal_mark(self.head.kind, begin, stop, self.head.first_ns)
        rows = self.rows(begin, stop)
        if rows.start == rows.stop:
            return seal_mark(EMPTY, begin, stop, self.head.first_ns)
        offsets = self.offsets[rows.start : rows.stop + 1]
        values = self.values[int(offsets[0]) : int(offsets[-1])]
        columns = Columns(
            self.position[rows],
            self.number[rows],
            self.timestamp[rows],
            offsets - offsets[0],
            self.view_index[rows],
            self.sender_index[rows],
            self.type[rows],
            self.service_index[rows],
        )
        return _seal(columns, (values,), len(values), self.tables, begin, stop)

    def sealed(self) -> Sealed:
        """The frame as it is, to be written again."""
        at = self._at - FRAME_BYTES
        return Sealed(self.head, (memoryview(self._data)[at : at + self.head.nbytes],))


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


def to_arrow(frame: Frame, first: int | None = None, stop: int | None = None) -> pyarrow.RecordBatch:
    """The messages of a frame, those at `[first, stop)` if given, with the columns COLUMNS (`arrow_schema`).

    Numbers and values are wrapped, not copied; names are spread from the frame's tables. Hot: the Spark source.
    """
    import pyarrow as pa

    schema = arrow_schema()
    if not frame.head.count:
        return pa.RecordBatch.from_pylist([], schema=schema)
    times = schema.field("timestamp").type
    rows = frame.rows(first, stop)
    count, begin = rows.stop - rows.start, rows.start
    views, senders, services = frame.tables
    total = frame.head.count
    data = pa.py_buffer(frame._data)
    body, place = frame._at, frame._layout

    def fixed(kind: Any, at: int, width: int) -> Any:
        return pa.Array.from_buffers(kind, count, [None, data.slice(body + at, total * width)], offset=begin)

    offsets = data.slice(body + place.offsets, (total + 1) * 4)
    values = data.slice(body + place.values, frame.head.values_bytes)
    columns = [
        _spread([frame.group], None, count),
        fixed(pa.int64(), place.position, 8),
        _spread(views, frame.view_index[rows], count),
        _spread(senders, frame.sender_index[rows], count),
        fixed(pa.int64(), place.number, 8),
        _spread(services, frame.service_index[rows], count),
        fixed(times, place.timestamp, 8),
        fixed(pa.int16(), place.type, 2),
        pa.Array.from_buffers(pa.binary(), count, [None, offsets, values], offset=begin),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@cache
def arrow_schema() -> pyarrow.Schema:
    """The columns that readers give, as Arrow has them."""
    import pyarrow as pa

    text = pa.string()
    kinds = (text, pa.int64(), text, text, pa.int64(), text, pa.timestamp("ns", tz="UTC"), pa.int16(), pa.binary())
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in zip(COLUMNS, kinds, strict=True)])


def _spread(names: list[str], index: Any, count: int) -> Any:
    """A column of texts. Where the frame has one name only, nothing has to be looked up."""
    import pyarrow as pa

    if len(names) == 1:
        return pa.repeat(pa.scalar(names[0], pa.string()), count)
    return pa.array(names, pa.string()).take(pa.array(index))


def _open_names(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ArchiveDamaged("a table of names ends inside a name")
        (size,) = _LENGTH.unpack_from(data, at)
        at += 2
        if at + size > len(data):
            raise ArchiveDamaged("a table of names ends inside a name")
        yield data[at : at + size].decode(errors="replace")
        at += size


def _is_below(index: Any, count: int) -> bool:
    return bool(index.min() >= 0) and bool(index.max() < count)
