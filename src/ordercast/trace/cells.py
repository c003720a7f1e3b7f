"""The binary form of one node's trace, and how it is read back: docs/trace.md's rows as cells of one fixed size.

A file is a header cell followed by row cells and definition cells. Everything is a whole number of cells, so that a
killed process leaves at most one incomplete cell or definition at the end, and so that a reader can lay one numpy
structure over a whole file instead of parsing it row by row. Texts are defined once, before the first row that uses
them, and rows name them by number: the file needs no second file to be understood. (Rejected: a separate string
table, which a kill could leave older than the rows that use it.)

A definition longer than its cell goes on in continuation cells. Each of those begins with a tag of its own, so that no
text, however chosen, can be taken for a row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ordercast.service import RANK_NAMES, RESILIENT_RANK, Service
from ordercast.trace.naming import is_session_of
from ordercast.trace.schema import KINDS, Row

NULL: Final = -(1 << 63)  # an integer column that has no meaning in a row
NO_SERVICE: Final = 255  # the rank of a row without a service

MAGIC: Final = b"OCTRACE\0"
VERSION: Final = 1

# The first byte of a cell. Zero is none of them: a file system that lost data leaves zeros.
ROW_TAG: Final = 1
TEXT_TAG: Final = 2
LIST_TAG: Final = 3
MORE_TAG: Final = 4

CELL_BYTES: Final = 96
HEADER: Final = struct.Struct("<8sHH4xq72x")  # magic, version, bytes of a cell, life
# tag, kind, rank, k | underlay, group, view, sender, detail, members, came_with, groups, session |
# n, at_ns, first, count, position, prev_position, bytes
# The session is the name of a client of this node; 0: the row is the node's own. `n` counts the rows of all of them.
ROW: Final = struct.Struct("<BBBB9I7q")
DEFINITION: Final = struct.Struct("<B3xII")  # tag, id, bytes of payload; the payload follows in the same cell
INLINE_BYTES: Final = CELL_BYTES - DEFINITION.size
MORE_BYTES: Final = CELL_BYTES - 1

if HEADER.size != CELL_BYTES or ROW.size != CELL_BYTES:
    raise AssertionError("header and row must each fill one cell; a change of layout needs a new VERSION")

TEXT_COLUMNS: Final = ("underlay", "group", "view", "sender", "detail")
LIST_COLUMNS: Final = ("members", "came_with", "groups")
INT_COLUMNS: Final = ("n", "at_ns", "first", "count", "position", "prev_position", "bytes")

ROW_DTYPE: Final = np.dtype(
    {
        "names": ["tag", "kind", "rank", "k", *TEXT_COLUMNS, *LIST_COLUMNS, "session", *INT_COLUMNS],
        "formats": ["u1"] * 4 + ["<u4"] * 9 + ["<i8"] * 7,
        "offsets": [0, 1, 2, 3, *range(4, 40, 4), *range(40, 96, 8)],
        "itemsize": CELL_BYTES,
    }
)

# One text, or one list as the ids of its texts. Long enough for a view of 16 thousand members.
MAX_DEFINITION_BYTES: Final = 1 << 16
MAX_DEFINITION_CELLS: Final = 1 + -(-(MAX_DEFINITION_BYTES - INLINE_BYTES) // MORE_BYTES)
MAX_COUNT: Final = (1 << 31) - 1  # `count` is an int32 in docs/trace.md
CRASH_CODE: Final = KINDS.index("crash")
END_CODES: Final = frozenset((KINDS.index("stop"), CRASH_CODE))

# How much is decoded at a time: bounds the memory of a reader whatever the size of the file.
CHUNK_BYTES: Final = CELL_BYTES << 15

Cells: TypeAlias = npt.NDArray[np.void]
Definition: TypeAlias = str | tuple[str, ...] | None


class TraceGarbled(ValueError):
    """The bytes are not what a recorder writes: damaged, of another version, or not a trace at all."""


class SessionCounts:
    """How many rows a node and each of its sessions have, and which sessions have not ended."""

    __slots__ = ("_open", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}  # by session; the node itself has no name here
        self._open: dict[str, None] = {}  # in the order of their first rows

    def next(self, session: str, kind: int) -> int:
        """The number of the next row of a session, or of the node."""
        number = self.rows.get(session, 0)
        self.rows[session] = number + 1
        if session:
            if kind in END_CODES:
                self._open.pop(session, None)
            else:
                self._open[session] = None
        return number

    def take_open(self) -> list[str]:
        """The sessions that a crash of their daemon ends."""
        found = list(self._open)
        self._open.clear()
        return found


class CellReader:
    """Checks and takes apart the bytes of one node's trace, chunk by chunk.

    It keeps the definitions and at most one incomplete definition, never the rows.
    """

    __slots__ = ("_has_header", "_is_list", "_life", "_node", "_pending", "_split", "definitions", "offset", "rows")

    def __init__(self, node: str, life: int) -> None:
        self._node = node
        self._life = life
        self._has_header = False
        self._pending = b""  # an incomplete cell or definition, with which the next chunk begins
        self._is_list = bytearray(1)  # by id, beside `definitions`: lets numpy check a column at once
        self._split = SessionCounts()  # of the rows that `to_rows` has given
        self.definitions: list[Definition] = [None]  # by id; 0 is null
        self.rows = 0
        self.offset = 0  # bytes understood so far

    def feed(self, data: bytes) -> Cells:
        """Take the next bytes of the file; return the rows that they complete, checked."""
        data = self._pending + data
        cells = len(data) // CELL_BYTES
        start = 0
        if not self._has_header:
            if not cells:
                # A torn header still has to be the beginning of one, or any short file would pass as an empty trace.
                if not MAGIC.startswith(data[: len(MAGIC)]):
                    raise TraceGarbled(f"the trace of {self._node}/{self._life} does not begin like one")
                self._pending = data
                return np.zeros(0, ROW_DTYPE)
            self._read_header(data)
            start = 1
        table = np.frombuffer(data, ROW_DTYPE, cells)[start:]
        stop = start + self._define(data, table["tag"], start)
        self._pending = data[stop * CELL_BYTES :]
        table = table[: stop - start]
        rows: Cells = table[table["tag"] == ROW_TAG]
        self._check(rows)
        self.rows += len(rows)
        self.offset += stop * CELL_BYTES
        return rows

    @property
    def torn_bytes(self) -> int:
        """What the end of the file left incomplete: not zero only after a kill or a full disk."""
        return len(self._pending)

    def to_rows(self, cells: Cells) -> Iterator[Row]:
        """The rows of a batch that `feed` returned, as people and checkers read them: those of a session are a node's
        of their own, and count from 0. Batches come in order."""
        texts, split = self.definitions, self._split
        for cell in cells.tolist():
            (_, kind, rank, k, underlay, group, view, sender, detail, members, came_with, groups, *numbers) = cell
            session, _, at_ns, first, count, position, prev_position, nbytes = numbers
            name = str(texts[session]) if session else ""
            yield Row(
                name or self._node,
                self._life,
                split.next(name, kind),
                at_ns,
                KINDS[kind],
                texts[underlay] or "",  # _check made sure that texts are where texts belong
                texts[group],
                texts[groups],
                texts[view],
                texts[members],
                texts[came_with],
                texts[sender],
                None if first == NULL else first,
                None if count == NULL else count,
                service_text(rank, k),
                None if position == NULL else position,
                None if prev_position == NULL else prev_position,
                None if nbytes == NULL else nbytes,
                texts[detail],
            )
            if kind == CRASH_CODE and not session:
                for each in split.take_open():
                    yield Row(each, self._life, split.next(each, kind), at_ns, KINDS[kind], "")

    def session_names(self, cells: Cells) -> dict[int, str]:
        """The sessions that rows of a batch are about, by the numbers that they have there."""
        found = {ident: self.definitions[ident] for ident in np.unique(cells["session"]).tolist() if ident}
        return {ident: name for ident, name in found.items() if isinstance(name, str)}

    def _read_header(self, data: bytes) -> None:
        magic, version, cell_bytes, life = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise TraceGarbled(f"the trace of {self._node}/{self._life} does not begin like one")
        if version != VERSION or cell_bytes != CELL_BYTES:
            raise TraceGarbled(f"the trace of {self._node}/{self._life} has version {version}, this reads {VERSION}")
        if life != self._life:
            raise TraceGarbled(f"this is the trace of life {life} of a node, not of {self._node}/{self._life}")
        self._has_header = True

    def _define(self, data: bytes, tags: npt.NDArray[np.uint8], start: int) -> int:
        """Read the definitions; return how many cells are whole, up to a definition that the next chunk completes."""
        covered = 0  # cells before this one belong to a definition that has been read
        for cell in np.flatnonzero(tags != ROW_TAG).tolist():
            if cell < covered:
                continue
            tag = int(tags[cell])
            at = (start + cell) * CELL_BYTES
            if tag not in (TEXT_TAG, LIST_TAG):
                raise self._garbled(at, f"a cell begins with {tag}")
            _, ident, size = DEFINITION.unpack_from(data, at)
            if ident != len(self.definitions):
                raise self._garbled(at, f"definition {ident} stands where {len(self.definitions)} is due")
            if size > MAX_DEFINITION_BYTES:
                raise self._garbled(at, f"a definition of {size} bytes; at most {MAX_DEFINITION_BYTES} are written")
            more = -(-max(0, size - INLINE_BYTES) // MORE_BYTES)
            covered = cell + 1 + more
            if (tags[cell + 1 : covered] != MORE_TAG).any():
                raise self._garbled(at, "a definition is cut off by another cell")
            if covered > len(tags):
                return cell
            first = at + DEFINITION.size
            parts = [data[first : at + CELL_BYTES]]
            begins = range(at + CELL_BYTES, at + (1 + more) * CELL_BYTES, CELL_BYTES)
            parts.extend(data[begin + 1 : begin + CELL_BYTES] for begin in begins)
            payload = b"".join(parts)[:size]
            self.definitions.append(self._text(at, payload) if tag == TEXT_TAG else self._list(at, payload))
            self._is_list.append(tag == LIST_TAG)
            if ident == 1 and self.definitions[1] != self._node:
                raise self._garbled(at, f"this is the trace of {self.definitions[1]!r}")
        return len(tags)

    def _text(self, at: int, payload: bytes) -> str:
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise self._garbled(at, "a text is not UTF-8") from error

    def _list(self, at: int, payload: bytes) -> tuple[str, ...]:
        if len(payload) % 4:
            raise self._garbled(at, "a list is not made of whole ids")
        texts: list[str] = []
        for ident in struct.unpack(f"<{len(payload) // 4}I", payload):
            text = self.definitions[ident] if ident < len(self.definitions) else None
            if not isinstance(text, str):
                raise self._garbled(at, f"a list names {ident}, which is no text defined before it")
            texts.append(text)
        return tuple(texts)

    def _check(self, rows: Cells) -> None:
        """Refuse what no recorder writes, a column at a time: afterwards every id and code can be looked up blindly."""
        if not len(rows):
            return
        if (rows["kind"] >= len(KINDS)).any():
            raise self._garbled(self.offset, "a row has an unknown kind")
        rank = rows["rank"]
        if ((rank >= len(RANK_NAMES)) & (rank != NO_SERVICE)).any() or (
            (rows["k"] != 0) & (rank != RESILIENT_RANK)
        ).any():
            raise self._garbled(self.offset, "a row has an unknown service")
        if (rows["n"] != np.arange(self.rows, self.rows + len(rows))).any():
            raise self._garbled(self.offset, "rows are missing or out of order")
        count = rows["count"]
        if ((count != NULL) & ((count < 0) | (count > MAX_COUNT))).any():
            raise self._garbled(self.offset, "a row has an impossible count")
        is_list = np.frombuffer(bytes(self._is_list), np.uint8)
        for column in TEXT_COLUMNS:
            ids = rows[column]
            if int(ids.max()) >= len(is_list) or is_list[ids].any():
                raise self._garbled(self.offset, f"column {column} names a text that is not defined")
        sessions = rows["session"]
        if int(sessions.max()) >= len(is_list) or is_list[sessions].any():
            raise self._garbled(self.offset, "a row is of a session whose name is not defined")
        for name in self.session_names(rows).values():
            if not is_session_of(name, self._node):
                raise self._garbled(self.offset, f"a row is of {name!r}, which is no session of this node")
        for column in LIST_COLUMNS:
            ids = rows[column]
            if int(ids.max()) >= len(is_list) or ((is_list[ids] == 0) & (ids != 0)).any():
                raise self._garbled(self.offset, f"column {column} names a list that is not defined")

    def _garbled(self, at: int, reason: str) -> TraceGarbled:
        return TraceGarbled(f"the trace of {self._node}/{self._life} is damaged near byte {at}: {reason}")


def decode(data: bytes, node: str, life: int) -> Iterator[Row]:
    """The rows in the bytes of one node's trace; an incomplete end is dropped, damage raises `TraceGarbled`."""
    reader = CellReader(node, life)
    for start in range(0, len(data), CHUNK_BYTES):
        yield from reader.to_rows(reader.feed(data[start : start + CHUNK_BYTES]))


def service_text(rank: int, k: int) -> str | None:
    """The `service` column of a row with this rank and k."""
    return None if rank == NO_SERVICE else _SERVICE_TEXTS[rank] if rank != RESILIENT_RANK else str(Service(rank, k))


_SERVICE_TEXTS: Final[tuple[str, ...]] = tuple(str(Service(rank)) for rank in range(len(RANK_NAMES)))
