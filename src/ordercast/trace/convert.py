"""From the recorders' files to Parquet: `raw/<node>-<life>.oct` becomes `events/node=<name>/part-<life>.parquet`.

The conversion is columnar: numpy takes the cells apart and Arrow looks the texts up, so no Python object is made per
event. Memory is bounded by one row group for the node and for each of its sessions, whatever the length of the run.
The rows of a session are a file of their own: `events/node=<label>@<name>/part-<life>.parquet`. Rising
numbers are stored as differences, texts as dictionaries, and everything is compressed with zstd: measured, this takes
the fewest bytes and is faster to write than Parquet's defaults.

The node's name is the name of the folder and not a column of the file (docs/trace.md). Equal rows give equal bytes: row
groups are cut by number of rows, and Parquet's dictionaries follow the first use in the row group, so nothing depends
on where a recorder happened to put its definitions.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ordercast.service import parse_service
from ordercast.trace.cells import (
    CHUNK_BYTES,
    ENDS,
    LIST_COLUMNS,
    NO_SERVICE,
    NULL,
    ROW_DTYPE,
    ROW_TAG,
    SESSION,
    CellReader,
    Cells,
    TraceGarbled,
    service_text,
    session_node,
)
from ordercast.trace.recorder import CRASH, Recorder
from ordercast.trace.schema import KINDS, Row

RAW_FOLDER: Final = "raw"
RAW_SUFFIX: Final = ".oct"
EVENTS_FOLDER: Final = "events"
ROWS_PER_GROUP: Final = 1 << 16
COMPRESSION_LEVEL: Final = 3  # zstd's default, named because another level is another file
MAX_LIFE: Final = (1 << 63) - 1

# Starts with a letter or digit, so that no file is hidden; '@' is in the names of a daemon's clients. Left out on
# purpose: '/' leaves the folder, '=' and '%' mean something to readers of partitioned folders.
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,119}")
_RAW_NAME: Final = re.compile(r"(?P<node>.+)-(?P<life>0|[1-9][0-9]{0,18})")

_DELTA_COLUMNS: Final = ("n", "at_ns", "first", "position", "prev_position")
_DICTIONARY_COLUMNS: Final = (
    *("life", "kind", "underlay", "group", "view", "sender", "count", "service", "bytes", "detail"),
    *(f"{column}.list.element" for column in ("groups", "members", "came_with")),
)


@dataclass(frozen=True, slots=True)
class Converted:
    """What one file became. `torn_bytes` is what a kill left incomplete at its end."""

    node: str
    life: int
    rows: int
    torn_bytes: int
    path: Path


def raw_path(trace: Path, node: str, life: int) -> Path:
    """Where the recorder of this life of this node writes; the folder is made."""
    check_node_name(node)
    check_life(life)
    folder = trace / RAW_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{node}-{life}{RAW_SUFFIX}"


def part_path(trace: Path, node: str, life: int) -> Path:
    """Where the events of this life of this node are after conversion."""
    check_node_name(node)
    check_life(life)
    return trace / EVENTS_FOLDER / f"node={node}" / f"part-{life}.parquet"


def check_node_name(node: str) -> None:
    """Refuse a name that would not be one plain folder on every system, and the same one to every reader."""
    if not _NODE_NAME.fullmatch(node) or ".." in node:
        raise ValueError(
            f"{node!r} cannot name a node in a trace: use up to 120 letters, digits, '.', '_', '@', '+' and '-', "
            "a letter or digit first, no '..'"
        )


def check_life(life: int) -> None:
    """Refuse a life that is no number of a life."""
    if not 0 <= life <= MAX_LIFE:
        raise ValueError(f"a life is a number from 0 to {MAX_LIFE}, not {life}")


def convert(
    trace: Path, *, crashed: Collection[tuple[str, int]] | Mapping[tuple[str, int], int] = ()
) -> list[Converted]:
    """Turn all raw files of a trace folder into Parquet; the raw files stay.

    `crashed` names the lives that the harness killed, as (node, life): each gets its `crash` row with the next `n`. A
    mapping also says when (run clock); otherwise the row has the time of the last row before it.
    """
    found: dict[tuple[str, int], Path] = {}
    for path in sorted((trace / RAW_FOLDER).glob(f"*{RAW_SUFFIX}")):
        match = _RAW_NAME.fullmatch(path.name.removesuffix(RAW_SUFFIX))
        if match is None:
            raise ValueError(f"{path} is not named <node>-<life>{RAW_SUFFIX}")
        found[match["node"], int(match["life"])] = path
    if unknown := sorted(set(crashed) - found.keys()):
        node, life = unknown[0]
        raise ValueError(f"{node}/{life} is said to have crashed, but {trace / RAW_FOLDER} has no file of it")
    times = crashed if isinstance(crashed, Mapping) else dict.fromkeys(crashed, NULL)
    return [
        converted
        for (node, life), path in sorted(found.items())
        for converted in _convert_life(trace, node, life, _chunks_of_file(path), times.get((node, life)))
    ]


def write_recorder(trace: Path, recorder: Recorder) -> Converted:
    """Write what a recorder kept in memory: how a simulation leaves its trace. What became of the node's own rows."""
    data = recorder.dump()
    chunks = (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))
    return _convert_life(trace, recorder.node, recorder.life, chunks, None)[0]


def write_rows(trace: Path, rows: Iterable[Row]) -> list[Converted]:
    """Write rows that exist as objects, for tests and small simulations; `n` must count from 0 in each life."""
    recorders: dict[tuple[str, int], Recorder] = {}
    expected: dict[tuple[str, int], int] = {}
    for row in rows:
        life = row.node, row.life
        if life not in recorders:
            check_node_name(row.node)
            check_life(row.life)
            recorders[life] = Recorder(None, row.node, row.life)
            expected[life] = 0
        if row.n != expected[life]:
            raise ValueError(f"row {row.n} of {row.node}/{row.life} stands where row {expected[life]} is due")
        expected[life] += 1
        try:
            _record(recorders[life], row)
        except struct.error as error:
            raise ValueError(f"row {row.n} of {row.node}/{row.life} has a number too large for its column") from error
    return [write_recorder(trace, recorder) for _, recorder in sorted(recorders.items())]


def load_pyarrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet; they belong to an extra, so a node never needs them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet traces need pyarrow: pip install 'ordercast[trace]'") from error
    return pyarrow, pyarrow.parquet


def parquet_schema() -> Any:
    """The columns of a part file, as docs/trace.md states them: signed types, in its order, without `node`."""
    pa, _ = load_pyarrow()
    text, texts = pa.string(), pa.list_(pa.field("element", pa.string(), nullable=False))
    return pa.schema(
        [
            pa.field("life", pa.int64(), nullable=False),
            pa.field("n", pa.int64(), nullable=False),
            pa.field("at_ns", pa.int64(), nullable=False),
            pa.field("kind", text, nullable=False),
            pa.field("underlay", text, nullable=False),
            pa.field("group", text),
            pa.field("groups", texts),
            pa.field("view", text),
            pa.field("members", texts),
            pa.field("came_with", texts),
            pa.field("sender", text),
            pa.field("first", pa.int64()),
            pa.field("count", pa.int32()),
            pa.field("service", text),
            pa.field("position", pa.int64()),
            pa.field("prev_position", pa.int64()),
            pa.field("bytes", pa.int64()),
            pa.field("detail", text),
        ]
    )


def _chunks_of_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _convert_life(
    trace: Path, node: str, life: int, chunks: Iterable[bytes], crash_at_ns: int | None
) -> list[Converted]:
    """Convert one life, with its sessions; the node's own rows come first. `crash_at_ns` is None for one that was not
    killed, NULL for one killed at an unknown time."""
    reader = CellReader(node, life)
    own = _PartFile(trace, node, life, reader)
    parts: dict[str, _PartFile] = {}  # by label
    try:
        for cells in _with_crash(reader, chunks, crash_at_ns):
            sessions = cells[SESSION]
            if not parts and not sessions.any():
                own.add(cells)
                continue
            # Ids, since a text has another one after the recorder has forgotten it.
            ids = {ident: str(reader.definitions[ident]) for ident in np.unique(sessions).tolist() if ident}
            for label in ids.values():
                if label not in parts:
                    parts[label] = _PartFile(trace, session_node(label, node), life, reader)
            is_own = sessions == 0
            is_end = is_own & np.isin(cells["kind"], ENDS)
            own.add(cells[is_own])
            for label, part in parts.items():
                mine = [ident for ident, text in ids.items() if text == label]
                part.add(cells[np.isin(sessions, mine) | is_end])
        return [part.finish() for part in (own, *parts.values())]
    finally:
        for part in (own, *parts.values()):
            part.discard()


class _PartFile:
    """The Parquet file of one node, or session, as its rows come."""

    __slots__ = ("_life", "_node", "_path", "_reader", "_rows", "_size", "_unfinished", "_waiting", "_writer")

    def __init__(self, trace: Path, node: str, life: int, reader: CellReader) -> None:
        self._node = node
        self._life = life
        self._reader = reader
        self._path = part_path(trace, node, life)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Written under a hidden name first: a reader never meets half a file, and an error leaves the old one alone.
        self._unfinished = self._path.with_name(f".{self._path.name}.unfinished")
        self._waiting: list[Cells] = []
        self._size = 0  # rows that wait
        self._rows = 0
        self._writer: Any = None

    def add(self, cells: Cells) -> None:
        """The next rows. They are gathered into row groups of one size, so that the borders of these depend on nothing
        but the rows."""
        self._waiting.append(self._numbered(cells))
        self._size += len(cells)
        if self._size >= ROWS_PER_GROUP:
            gathered = np.concatenate(self._waiting)
            whole = self._size - self._size % ROWS_PER_GROUP
            for start in range(0, whole, ROWS_PER_GROUP):
                self._write(gathered[start : start + ROWS_PER_GROUP])
            self._waiting = [gathered[whole:]]
            self._size -= whole

    def finish(self) -> Converted:
        if self._size:
            self._write(np.concatenate(self._waiting))
        self._open().close()
        os.replace(self._unfinished, self._path)
        return Converted(self._node, self._life, self._rows, self._reader.torn_bytes, self._path)

    def discard(self) -> None:
        """Nothing is left of what is not finished."""
        if self._writer is not None:
            self._writer.close()
        self._unfinished.unlink(missing_ok=True)

    def _numbered(self, cells: Cells) -> Cells:
        """Rows of a node and of its sessions stand in one file, and each of them counts its own from 0 on."""
        first = self._rows
        self._rows += len(cells)
        if len(cells) and (cells["n"][0] != first or cells["n"][-1] != self._rows - 1):
            cells = cells.copy()
            cells["n"] = np.arange(first, self._rows)
        return cells

    def _write(self, cells: Cells) -> None:
        self._open().write_table(
            _table(parquet_schema(), self._life, cells, self._reader), row_group_size=ROWS_PER_GROUP
        )

    def _open(self) -> Any:
        if self._writer is None:
            _, pq = load_pyarrow()
            self._writer = pq.ParquetWriter(
                self._unfinished,
                parquet_schema(),
                compression="zstd",
                compression_level=COMPRESSION_LEVEL,
                use_dictionary=list(_DICTIONARY_COLUMNS),
                column_encoding=dict.fromkeys(_DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
            )
        return self._writer


def _with_crash(reader: CellReader, chunks: Iterable[bytes], crash_at_ns: int | None) -> Iterator[Cells]:
    last_ns = 0
    for chunk in chunks:
        cells = reader.feed(chunk)
        if len(cells):
            last_ns = int(cells["at_ns"][-1])
            yield cells
    if crash_at_ns is not None:
        crash = np.zeros(1, ROW_DTYPE)
        crash["tag"], crash["kind"], crash["rank"] = ROW_TAG, CRASH, NO_SERVICE
        crash["n"] = reader.rows
        # A kill is noticed after it happened, never before what the victim still wrote.
        crash["at_ns"] = max(last_ns, crash_at_ns)
        for column in ("first", "count", "position", "prev_position", "bytes"):
            crash[column] = NULL
        yield crash


def _table(schema: Any, life: int, cells: Cells, reader: CellReader) -> Any:
    pa, _ = load_pyarrow()
    columns = []
    for field in schema:
        name = field.name
        if name == "life":
            columns.append(pa.array(np.full(len(cells), life, np.int64)))
        elif name == "kind":
            columns.append(pa.array(KINDS, pa.string()).take(pa.array(cells["kind"].astype(np.int64))))
        elif name == "service":
            codes = cells["rank"].astype(np.int64) << 8 | cells["k"]
            columns.append(_look_up(pa, codes, field.type, lambda code: service_text(code >> 8, code & 0xFF)))
        elif name == "underlay":
            columns.append(_look_up(pa, cells[name], field.type, lambda ident: reader.definitions[ident] or ""))
        elif name in LIST_COLUMNS or pa.types.is_string(field.type):
            columns.append(_look_up(pa, cells[name], field.type, reader.definitions.__getitem__))
        else:
            values = np.ascontiguousarray(cells[name])
            array = pa.array(values, pa.int64(), mask=values == NULL if field.nullable else None)
            columns.append(array.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _look_up(pa: Any, ids: npt.NDArray[Any], kind: Any, value_of: Any) -> Any:
    """A column of texts or lists from a column of ids: Python sees each distinct id once, Arrow sees each row."""
    distinct, places = np.unique(ids, return_inverse=True)
    return pa.array([value_of(ident) for ident in distinct.tolist()], kind).take(pa.array(places))


def _record(recorder: Recorder, row: Row) -> None:
    if row.kind not in KINDS:
        raise ValueError(f"{row.kind!r} is no kind of event; docs/trace.md has {', '.join(KINDS)}")
    service = None if row.service is None else parse_service(row.service)

    def text(value: str | None) -> int:
        return 0 if value is None else recorder.string(value)

    def texts(value: tuple[str, ...] | None) -> int:
        return 0 if value is None else recorder.strings(value)

    def number(value: int | None) -> int:
        return NULL if value is None else value

    recorder.row(
        KINDS.index(row.kind),
        row.at_ns,
        text(row.underlay),
        text(row.group),
        text(row.view),
        text(row.sender),
        number(row.first),
        number(row.count),
        NO_SERVICE if service is None else service.rank,
        0 if service is None else service.k,
        number(row.position),
        number(row.prev_position),
        number(row.bytes),
        # Not `detail`: its bound protects a running node, and rows that exist already are to be written as they are.
        text(row.detail),
        texts(row.members),
        texts(row.came_with),
        texts(row.groups),
    )


__all__ = [
    "Converted",
    "TraceGarbled",
    "check_node_name",
    "convert",
    "load_pyarrow",
    "parquet_schema",
    "part_path",
    "raw_path",
    "write_recorder",
    "write_rows",
]
