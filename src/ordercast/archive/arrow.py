"""Frames as Arrow record batches. Only this module of the archive needs pyarrow, and imports it when it is called."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ordercast.archive.frame import COLUMNS, Frame

if TYPE_CHECKING:
    import pyarrow


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
    data = pa.py_buffer(frame.data)
    body, place = frame.body_at, frame.layout

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
