"""Cutting a range of an archive into parts that tasks read by themselves, and reading such a part as Arrow batches.

An archive may have thousands of segments, so a task does not look at all of it again. The driver knows the segments and
tells each task the file, where to begin in it, and how far it is whole.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ordercast.archive.arrow import to_arrow
from ordercast.archive.errors import ArchiveDamaged, DataLoss
from ordercast.archive.folder import frame_heads
from ordercast.archive.headers import FRAME_BYTES, open_frame_head
from ordercast.archive.reader import Archive, Frame

if TYPE_CHECKING:
    import pyarrow

PART_BYTES: Final = 32 << 20
"""About how much of a file one task reads, unless the user asks for more parts."""

CHUNK_BYTES: Final = 4 << 20
"""Bytes read at a time."""

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 8 << 20
"""Arrow batches are closed at these bounds. Measured: CPU time of a row is least between 4,096 and 16,384 rows."""


class Slice(NamedTuple):
    """Rows of one segment with positions in `[first, stop)`; `begin` is where the frame at byte `at` begins."""

    path: str
    group: str
    first: int
    stop: int
    begin: int
    at: int
    size: int  # the file is whole up to here


class _SegmentRange(NamedTuple):
    """Positions `[first, stop)` of a segment with about `nbytes` bytes, to be cut."""

    segment: int
    first: int
    stop: int
    nbytes: int


def cut(archive: Archive, first: int, stop: int, parts: int) -> list[list[Slice]]:
    """Split `[first, stop)` into at least `parts` parts of about equal bytes, as far as there are positions.

    By what the archive knew at its last `refresh`. Positions that it does not have are simply not there.
    """
    segments = archive.segments
    stretches: list[_SegmentRange] = []
    for index, info in enumerate(segments):
        marks = [*info.marks, (info.stop, info.size)]
        for (begin, at), (end, end_at) in pairwise(marks):
            low, high = max(begin, first), min(end, stop)
            if low < high:
                stretches.append(_SegmentRange(index, low, high, (end_at - at) * (high - low) // (end - begin)))
    total = sum(stretch.nbytes for stretch in stretches)
    parts = max(parts, -(-total // PART_BYTES))
    planned: list[list[Slice]] = []
    for part in _even(stretches, parts, total):
        joined: list[_SegmentRange] = []
        for stretch in part:
            if joined and joined[-1].segment == stretch.segment:
                stretch = stretch._replace(first=joined.pop().first)
            joined.append(stretch)
        slices = []
        for stretch in joined:
            info = segments[stretch.segment]
            begin, at = info.marks[max(bisect_right(info.marks, (stretch.first, 1 << 62)) - 1, 0)]
            slices.append(Slice(str(info.path), archive.group, stretch.first, stretch.stop, begin, at, info.size))
        planned.append(slices)
    return planned


def _even(stretches: Iterable[_SegmentRange], parts: int, total: int) -> Iterator[list[_SegmentRange]]:
    """Group stretches to about equal bytes; one that is larger than a part is cut by its positions."""
    share = max(total / parts, 1.0)
    part: list[_SegmentRange] = []
    room = share
    for stretch in stretches:
        while stretch.nbytes > room and stretch.stop - stretch.first > 1:
            count = min(
                max(int((stretch.stop - stretch.first) * room / stretch.nbytes), 1), stretch.stop - stretch.first - 1
            )
            at = stretch.first + count
            taken = int(stretch.nbytes * count / (stretch.stop - stretch.first))
            yield [*part, stretch._replace(stop=at, nbytes=taken)]
            stretch = stretch._replace(first=at, nbytes=stretch.nbytes - taken)
            part, room = [], share
        part.append(stretch)
        room -= stretch.nbytes
        if room <= 0:
            yield part
            part, room = [], share
    if part:
        yield part


def frames_of(part: Slice) -> Iterator[Frame]:
    """The frames of messages that have some of a slice, checked; raises DataLoss if the file is gone."""
    path, begin, at = Path(part.path), part.begin, part.at
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise DataLoss(
            f"{path.parent}: positions {part.first} to {part.stop - 1} are not in the archive any more; {path.name} "
            "was removed, by retention if not by hand"
        ) from None
    try:
        for place, head in frame_heads(fd, at, part.size, begin):
            at, begin = place, head.begin
            if head.stop > part.first:
                break
        chunk, base = b"", at
        while at < part.size and begin < part.stop:
            if at + FRAME_BYTES > base + len(chunk):
                chunk, base = os.pread(fd, min(CHUNK_BYTES, part.size - at), at), at
            found = open_frame_head(chunk, at - base)
            if found is None or found.begin != begin:
                raise ArchiveDamaged(f"{path} is damaged at byte {at}: what was whole before is not what was written")
            if at + found.nbytes > base + len(chunk):
                chunk, base = os.pread(fd, max(found.nbytes, min(CHUNK_BYTES, part.size - at)), at), at
            frame = Frame(part.group, found, chunk, at - base)
            if found.count and found.last >= part.first and found.first < part.stop:
                frame.check(f"{path} at byte {at}")
                yield frame
            at += found.nbytes
            begin = found.stop
    finally:
        os.close(fd)


def batches_of(part: Slice) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a slice as `arrow_schema` below has them. Hot: benches/stream.py."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = nbytes = 0
    for frame in frames_of(part):
        whole = to_arrow(frame, part.first, part.stop)
        row_bytes = frame.head.values_bytes // frame.head.count
        for at in range(0, whole.num_rows, BATCH_ROWS):
            batch = whole.slice(at, BATCH_ROWS)
            size = batch.num_rows * row_bytes
            if waiting and (rows + batch.num_rows > BATCH_ROWS or nbytes + size > BATCH_BYTES):
                yield _for_spark(pa.concat_batches(waiting))
                waiting, rows, nbytes = [], 0, 0
            waiting.append(batch)
            rows += batch.num_rows
            nbytes += size
    if waiting:
        yield _for_spark(pa.concat_batches(waiting))


def _for_spark(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Spark's timestamps have microseconds: nanoseconds are cut off, not rounded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = spark_schema()
    at = schema.get_field_index("timestamp")
    columns = batch.columns
    micros = pc.divide(columns[at].cast(pa.int64()), pa.scalar(1_000, pa.int64()))
    columns[at] = micros.cast(schema.field(at).type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def spark_schema() -> pyarrow.Schema:
    """The columns as Spark takes them from Arrow."""
    import pyarrow as pa

    from ordercast.archive.arrow import arrow_schema

    schema = arrow_schema()
    at = schema.get_field_index("timestamp")
    return pa.schema(
        [field.with_nullable(True) for field in schema.set(at, pa.field("timestamp", pa.timestamp("us", "UTC")))]
    )
