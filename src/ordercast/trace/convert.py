"""From the recorders' files to Parquet: `raw/<node>-<life>.oct` becomes `events/node=<name>/part-<life>.parquet`.

The conversion is columnar: numpy takes the cells apart and Arrow looks the texts up, so no Python object is made per
event. Memory is bounded by one row group, whatever the length of the run. Rising
numbers are stored as differences, texts as dictionaries, and everything is compressed with zstd: measured, this takes
the fewest bytes and is faster to write than Parquet's defaults.

The sessions of a daemon share its file; each becomes a node `client@daemon` of its own, whose rows count from 0 in the
order of the file. They are written some at a time, and the file is read again for each of these turns. A daemon that
was killed takes the sessions with it that had not ended: each gets a `crash` row as well.

The node's name is the name of the folder and not a column of the file (docs/trace.md). Equal rows give equal bytes: row
groups are cut by number of rows, and Parquet's dictionaries follow the first use in the row group, so nothing depends
on where a recorder happened to put its definitions.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ordercast.service import parse_service
from ordercast.trace.cells import (
    CHUNK_BYTES,
    END_CODES,
    LIST_COLUMNS,
    NO_SERVICE,
    NULL,
    ROW_DTYPE,
    ROW_TAG,
    CellReader,
    Cells,
    TraceGarbled,
    service_text,
)
from ordercast.trace.naming import check_node_name
from ordercast.trace.recorder import CRASH, Recorder
from ordercast.trace.schema import KINDS, Row

RAW_FOLDER: Final = "raw"
RAW_SUFFIX: Final = ".oct"
EVENTS_FOLDER: Final = "events"
ROWS_PER_GROUP: Final = 1 << 16
COMPRESSION_LEVEL: Final = 3  # zstd's default, named because another level is another file
MAX_LIFE: Final = (1 << 63) - 1
SESSIONS_AT_ONCE: Final = 16  # written in one turn: each holds at most one row group in memory

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
    converted: list[Converted] = []
    for (node, life), path in sorted(found.items()):
        converted += _Conversion(trace, node, life, partial(_chunks_of_file, path)).run(times.get((node, life)))
    return converted


def write_recorder(trace: Path, recorder: Recorder) -> Converted:
    """Write what a recorder kept in memory: how a simulation leaves its trace. Returns what its own rows became."""
    chunks = partial(_chunks_of_bytes, recorder.dump())
    return _Conversion(trace, recorder.node, recorder.life, chunks).run(None)[0]


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


def _chunks_of_bytes(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


class _Conversion:
    """One raw file on its way to Parquet: the node's own rows first, then its sessions in turns."""

    __slots__ = ("_chunks", "_crash_ns", "_life", "_node", "_sessions", "_trace")

    def __init__(self, trace: Path, node: str, life: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        self._trace = trace
        self._node = node
        self._life = life
        self._chunks = chunks
        self._sessions: dict[str, None] = {}  # in the order of their first rows
        self._crash_ns: int | None = None  # when the node crashed

    def run(self, crash_at_ns: int | None) -> list[Converted]:
        """`crash_at_ns` is None for a life that was not killed, NULL for one killed at an unknown time."""
        converted = [self._convert_own(crash_at_ns)]
        names = list(self._sessions)
        for start in range(0, len(names), SESSIONS_AT_ONCE):
            converted += self._convert_sessions(names[start : start + SESSIONS_AT_ONCE])
        return converted

    def _convert_own(self, crash_at_ns: int | None) -> Converted:
        reader = CellReader(self._node, self._life)
        with _Part(self._trace, self._node, self._life, reader) as part:
            last_ns = 0
            for cells in map(reader.feed, self._chunks()):
                self._sessions.update(dict.fromkeys(reader.session_names(cells).values()))
                if len(cells):
                    last_ns = int(cells["at_ns"][-1])
                own = cells[cells["session"] == 0]
                part.add(own)
                crashes = own[own["kind"] == CRASH]
                if len(crashes):
                    self._crash_ns = int(crashes["at_ns"][-1])
            if crash_at_ns is not None:
                # A kill is noticed after it happened, never before what the victim still wrote.
                self._crash_ns = max(last_ns, crash_at_ns)
                part.add(_crash(self._crash_ns))
        return Converted(self._node, self._life, part.rows, reader.torn_bytes, part.path)

    def _convert_sessions(self, names: list[str]) -> list[Converted]:
        reader = CellReader(self._node, self._life)
        with ExitStack() as stack:
            parts = {name: stack.enter_context(_Part(self._trace, name, self._life, reader)) for name in names}
            for cells in map(reader.feed, self._chunks()):
                idents: dict[str, list[int]] = {}  # a recorder that forgot a name has a second number for it
                for ident, name in reader.session_names(cells).items():
                    idents.setdefault(name, []).append(ident)
                for name in parts.keys() & idents.keys():
                    parts[name].add(cells[np.isin(cells["session"], idents[name])])
            for part in parts.values():
                if self._crash_ns is not None and not part.has_ended:
                    part.add(_crash(self._crash_ns))
        return [Converted(name, self._life, part.rows, 0, part.path) for name, part in parts.items()]


def _crash(at_ns: int) -> Cells:
    cell = np.zeros(1, ROW_DTYPE)
    cell["tag"], cell["kind"], cell["rank"], cell["at_ns"] = ROW_TAG, CRASH, NO_SERVICE, at_ns
    for column in ("first", "count", "position", "prev_position", "bytes"):
        cell[column] = NULL
    return cell


class _Part:
    """One part file. Rows are gathered into groups of one size, so that nothing but rows decides where these end."""

    __slots__ = ("_life", "_reader", "_schema", "_unfinished", "_waiting", "_writer", "has_ended", "path", "rows")

    def __init__(self, trace: Path, node: str, life: int, reader: CellReader) -> None:
        self._life = life
        self._reader = reader
        self._schema = parquet_schema()
        self._waiting: list[Cells] = []
        self._writer: Any = None
        self.path = part_path(trace, node, life)
        # Written under a hidden name first: a reader never meets half a file, and an error leaves the old one alone.
        self._unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        self.rows = 0
        self.has_ended = False  # its last row says so

    def __enter__(self) -> _Part:
        _, pq = load_pyarrow()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._unfinished,
            self._schema,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=list(_DICTIONARY_COLUMNS),
            column_encoding=dict.fromkeys(_DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._write(0)
            self._writer.close()
            if kind is None:
                os.replace(self._unfinished, self.path)
        finally:
            self._unfinished.unlink(missing_ok=True)

    def add(self, cells: Cells) -> None:
        """The next rows, which get the next numbers."""
        if not len(cells):
            return
        if cells["n"][0] != self.rows or cells["n"][-1] != self.rows + len(cells) - 1:
            cells = cells.copy()
            cells["n"] = np.arange(self.rows, self.rows + len(cells))
        self.rows += len(cells)
        self.has_ended = int(cells["kind"][-1]) in END_CODES
        self._waiting.append(cells)
        if sum(map(len, self._waiting)) >= ROWS_PER_GROUP:
            self._write(ROWS_PER_GROUP)

    def _write(self, least: int) -> None:
        """Write row groups until fewer rows than `least` wait; with 0 all of them."""
        gathered = np.concatenate(self._waiting) if self._waiting else np.zeros(0, ROW_DTYPE)
        whole = len(gathered) - len(gathered) % least if least else len(gathered)
        for start in range(0, whole, ROWS_PER_GROUP):
            table = _table(self._schema, self._life, gathered[start : min(start + ROWS_PER_GROUP, whole)], self._reader)
            self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)
        self._waiting = [gathered[whole:]] if whole < len(gathered) else []


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
