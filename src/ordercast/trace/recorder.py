"""What a node does on its hot path to leave evidence: one `pack_into` per row, one `write(2)` per pass.

The rows of a pass are in the file before its datagrams leave (docs/trace.md), so that a killed process cannot have
sent what its trace does not show. That rules out a writer thread. It also rules out Parquet, which is unreadable until
it is closed. `ordercast.trace.convert` turns the files into Parquet afterwards.

The format is in `ordercast.trace.cells`. No clock is read here: the time of a row is an argument.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from ordercast.trace.cells import (
    CELL_BYTES,
    DEFINITION,
    HEADER,
    INLINE_BYTES,
    LIST_TAG,
    MAGIC,
    MAX_DEFINITION_BYTES,
    MAX_DEFINITION_CELLS,
    MORE_BYTES,
    MORE_TAG,
    NO_SERVICE,
    NULL,
    ROW,
    ROW_DTYPE,
    ROW_TAG,
    TEXT_TAG,
    VERSION,
    Cells,
    TraceGarbled,
    decode,
)
from ordercast.trace.naming import session_name
from ordercast.trace.schema import KINDS, Row

__all__ = ["NO_SERVICE", "NULL", "Recorder", "TraceGarbled", "TraceWriteFailed", "Traffic", "decode", "hop_detail"]

START: Final = KINDS.index("start")
STOP: Final = KINDS.index("stop")
CRASH: Final = KINDS.index("crash")
SUBMIT: Final = KINDS.index("submit")
HOLD: Final = KINDS.index("hold")
PLACED: Final = KINDS.index("placed")
DELIVER: Final = KINDS.index("deliver")
REDELIVER: Final = KINDS.index("redeliver")
CONFIRM: Final = KINDS.index("confirm")
VIEW: Final = KINDS.index("view")
TRANSITIONAL: Final = KINDS.index("transitional")
JOIN: Final = KINDS.index("join")
LEAVE: Final = KINDS.index("leave")
LOCK: Final = KINDS.index("lock")
UNLOCK: Final = KINDS.index("unlock")
REPLY: Final = KINDS.index("reply")
TX: Final = KINDS.index("tx")
RX: Final = KINDS.index("rx")
GAP: Final = KINDS.index("gap")
REPAIRED: Final = KINDS.index("repaired")
STALLED: Final = KINDS.index("stalled")
RESUMED: Final = KINDS.index("resumed")
CARRY: Final = KINDS.index("carry")
LOST: Final = KINDS.index("lost")

# What gathers between two writes: two thousand rows, far more than a pass makes. A fuller pass is written in pieces.
BUFFER_BYTES: Final = 2048 * CELL_BYTES
MIN_BUFFER_BYTES: Final = (MAX_DEFINITION_CELLS + 1) * CELL_BYTES

# Names remembered at once. At the bound all are forgotten and each is defined again at its next use: one more cell in
# the file, but no view, sender or group ever goes unrecorded, and ids that a caller keeps stay good, as none is reused.
MAX_NAMES: Final = 1 << 16
# Details are for people. At the bound a new one is recorded as null and counted, since a detail that is different in
# every row would otherwise fill the file with definitions.
MAX_DETAILS: Final = 1 << 12
MAX_DETAIL_BYTES: Final = 1 << 10

# docs/trace.md allows one `tx` or `rx` row per direction and detail in this time.
TRAFFIC_INTERVAL_NS: Final = 100_000_000
# Kinds of datagrams counted apart; the protocol has about ten, and a few for each site that it talks to. At the bound a
# new one is counted as OTHER.
MAX_TRAFFIC_KINDS: Final = 1_024
OTHER: Final = "other"

_pack_row = ROW.pack_into


class TraceWriteFailed(OSError):
    """The trace cannot be written any further. Raised once; what comes after is counted in `Recorder.rows_lost`."""


class Recorder:
    """The trace of one life of one node, written to a file or kept in memory (`sink=None`)."""

    __slots__ = (
        "_buffer",
        "_details",
        "_failed",
        "_fd",
        "_kept",
        "_last_cell",
        "_n",
        "_names",
        "_next_id",
        "_owns_fd",
        "_rows_written",
        "_used",
        "details_dropped",
        "life",
        "node",
        "rows_lost",
    )

    def __init__(self, sink: Path | int | None, node: str, life: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        """`sink` is a path that does not exist yet, or a descriptor opened with O_APPEND, which stays the caller's."""
        if buffer_bytes < MIN_BUFFER_BYTES:
            raise ValueError(f"the buffer must hold the longest definition: at least {MIN_BUFFER_BYTES} bytes")
        self.node = node
        self.life = life
        # where the rows go
        self._owns_fd = isinstance(sink, Path)
        # A life that is recorded twice would count its rows from 0 again: O_EXCL refuses it before it spoils the file.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._fd = os.open(sink, flags, 0o644) if isinstance(sink, Path) else sink
        self._failed = False
        self._kept: list[bytes] = []
        # what has gathered
        self._buffer = bytearray(buffer_bytes // CELL_BYTES * CELL_BYTES)
        self._last_cell = len(self._buffer) - CELL_BYTES
        self._used = CELL_BYTES
        self._n = 0
        self._rows_written = 0
        # texts that have a number
        self._names: dict[str | tuple[str, ...], int] = {}
        self._details: dict[str, int] = {}
        self._next_id = 1
        # what did not get into the trace
        self.details_dropped = 0
        self.rows_lost = 0

        HEADER.pack_into(self._buffer, 0, MAGIC, VERSION, CELL_BYTES, life)
        self.string(node)  # definition 1 says whose trace this is

    def row(
        self,
        kind_code: int,
        at_ns: int,
        underlay: int = 0,
        group: int = 0,
        view: int = 0,
        sender: int = 0,
        first: int = NULL,
        count: int = NULL,
        rank: int = NO_SERVICE,
        k: int = 0,
        position: int = NULL,
        prev_position: int = NULL,
        nbytes: int = NULL,
        detail: int = 0,
        members: int = 0,
        came_with: int = 0,
        groups: int = 0,
        session: int = 0,
    ) -> None:
        """Record one event. Texts are numbers from `string`, `strings`, `detail` and `session`, 0 for none.

        Hot: one call per block and event. Nothing is checked here; `decode` refuses what makes no sense.
        """
        used = self._used
        if used > self._last_cell:
            self._make_room(1)
            used = self._used
        n = self._n
        _pack_row(
            self._buffer, used,
            ROW_TAG, kind_code, rank, k,
            underlay, group, view, sender, detail, members, came_with, groups, session,
            n, at_ns, first, count, position, prev_position, nbytes,
        )  # fmt: skip
        self._n = n + 1
        self._used = used + CELL_BYTES

    def many(self, rows: Cells) -> None:
        """Record rows that `rows_like` made, in their order."""
        count = len(rows)
        rows["n"] = np.arange(self._n, self._n + count)
        self._n += count
        data = rows.tobytes()
        done = 0
        while done < len(data):
            if self._used > self._last_cell:
                self._make_room(1)
            size = min(len(data) - done, len(self._buffer) - self._used)
            self._buffer[self._used : self._used + size] = data[done : done + size]
            self._used += size
            done += size

    def string(self, text: str) -> int:
        """The number of a name: underlay, group, view or sender. It stays good for the life of the recorder."""
        ident = self._names.get(text)
        return ident if ident is not None else self._remember(text, TEXT_TAG, text.encode())

    def strings(self, texts: Iterable[str]) -> int:
        """The number of a list of names: members, came_with or groups. An empty list is not null."""
        key = tuple(texts)
        ident = self._names.get(key)
        if ident is not None:
            return ident
        return self._remember(key, LIST_TAG, struct.pack(f"<{len(key)}I", *map(self.string, key)))

    def session(self, client: str) -> int:
        """The number of a client's session, whose rows share this file; the client without a name is the node itself.

        Conversion makes a node `client@daemon` of it, with numbers of its own. `ValueError`: see `naming.session_name`.
        """
        return self.string(session_name(client, self.node)) if client else 0

    def detail(self, text: str) -> int:
        """The number of a detail, or 0 (null) once there have been too many different ones."""
        ident = self._details.get(text)
        if ident is not None:
            return ident
        if len(self._details) >= MAX_DETAILS:
            self.details_dropped += 1
            return 0
        # Cut at a character, not at a byte: half a character would make the whole file unreadable.
        payload = text.encode(errors="replace")[:MAX_DETAIL_BYTES].decode(errors="ignore").encode()
        ident = self._define(TEXT_TAG, payload)
        self._details[text] = ident
        return ident

    def flush(self) -> None:
        """Write what has gathered; to be called before the datagrams of the pass leave. In memory it does nothing."""
        if self._fd is not None and self._used:
            self._write(self._fd)

    def close(self) -> None:
        """Write the rest and close the file, if it was opened here."""
        try:
            self.flush()
        finally:
            if self._owns_fd and self._fd is not None:
                os.close(self._fd)
                self._owns_fd = False
                self._failed = True  # a row after the end is counted as lost, and never reaches a reused descriptor

    def dump(self) -> bytes:
        """All bytes recorded, in memory: two runs are the same if their dumps are."""
        if self._fd is not None:
            raise ValueError("this recorder writes to a file and keeps nothing; read the file")
        return b"".join(self._kept) + bytes(memoryview(self._buffer)[: self._used])

    def rows(self) -> list[Row]:
        """All rows recorded, in memory."""
        return list(decode(self.dump(), self.node, self.life))

    def _remember(self, key: str | tuple[str, ...], tag: int, payload: bytes) -> int:
        if len(payload) > MAX_DEFINITION_BYTES:
            raise ValueError(f"a name or list of {len(payload)} bytes is too long to record ({MAX_DEFINITION_BYTES})")
        if len(self._names) >= MAX_NAMES:
            self._names.clear()
        ident = self._define(tag, payload)
        self._names[key] = ident
        return ident

    def _define(self, tag: int, payload: bytes) -> int:
        more = range(INLINE_BYTES, len(payload), MORE_BYTES)
        self._make_room(1 + len(more))
        ident = self._next_id
        buffer, used = self._buffer, self._used
        # The buffer is reused, and what an older row left behind a short text would make equal runs differ.
        buffer[used : used + CELL_BYTES * (1 + len(more))] = bytes(CELL_BYTES * (1 + len(more)))
        DEFINITION.pack_into(buffer, used, tag, ident, len(payload))
        inline = payload[:INLINE_BYTES]
        first = used + DEFINITION.size
        buffer[first : first + len(inline)] = inline
        used += CELL_BYTES
        for start in more:
            piece = payload[start : start + MORE_BYTES]
            buffer[used] = MORE_TAG
            buffer[used + 1 : used + 1 + len(piece)] = piece
            used += CELL_BYTES
        self._used = used
        self._next_id = ident + 1
        return ident

    def _make_room(self, cells: int) -> None:
        if self._used + cells * CELL_BYTES <= len(self._buffer):
            return
        if self._fd is None:
            self._kept.append(bytes(memoryview(self._buffer)[: self._used]))
            self._used = 0
        else:
            self._write(self._fd)

    def _write(self, fd: int) -> None:
        # Emptied before the first write: an error must leave nothing behind that a later flush would append again.
        used, self._used = self._used, 0
        if self._failed:
            self.rows_lost += self._n - self._rows_written
            self._rows_written = self._n
            return
        with memoryview(self._buffer) as view:
            done = 0
            while done < used:
                try:
                    done += os.write(fd, view[done:used])
                except OSError as error:
                    # Whatever comes after a partial write would be out of step with the cells, so nothing comes after
                    # it; a reader drops the torn end and keeps all that was whole.
                    self._failed = True
                    self.rows_lost += self._n - self._rows_written
                    self._rows_written = self._n
                    raise TraceWriteFailed(
                        error.errno,
                        f"the trace of {self.node}/{self.life} ends here, it cannot be written: {error.strerror}",
                    ) from error
        self._rows_written = self._n


class Traffic:
    """Datagrams and bytes per kind since the last rows: a row per datagram would cost more than the datagram."""

    __slots__ = ("_interval_ns", "_next_ns", "_received", "_sent", "_underlay")

    def __init__(self, underlay: int = 0, interval_ns: int = TRAFFIC_INTERVAL_NS) -> None:
        self._underlay = underlay
        self._interval_ns = interval_ns
        self._next_ns: int | None = None  # nothing has been written yet
        self._sent: dict[str, list[int]] = {}  # detail -> [datagrams, bytes]
        self._received: dict[str, list[int]] = {}

    def sent(self, detail: str, nbytes: int, datagrams: int = 1) -> None:
        """Count datagrams that left, of kind `detail`."""
        entry = self._sent.get(detail) or _entry(self._sent, detail)
        entry[0] += datagrams
        entry[1] += nbytes

    def received(self, detail: str, nbytes: int, datagrams: int = 1) -> None:
        """Count datagrams that arrived, of kind `detail`."""
        entry = self._received.get(detail) or _entry(self._received, detail)
        entry[0] += datagrams
        entry[1] += nbytes

    def due(self, now_ns: int) -> bool:
        """True if the last rows are old enough for new ones, and there is something to write."""
        if self._next_ns is not None and now_ns < self._next_ns:
            return False
        return any(entry[0] for counts in (self._sent, self._received) for entry in counts.values())

    def emit(self, recorder: Recorder, now_ns: int) -> None:
        """Write what was counted, and count from zero. Ask `due` first, except when the node stops."""
        self._next_ns = now_ns + self._interval_ns
        for kind, counts in ((TX, self._sent), (RX, self._received)):
            for detail, entry in counts.items():
                datagrams, nbytes = entry
                if datagrams:
                    ident = recorder.detail(detail)
                    recorder.row(kind, now_ns, self._underlay, count=datagrams, nbytes=nbytes, detail=ident)
                    entry[0] = entry[1] = 0


def hop_detail(kind: str, site: str) -> str:
    """The detail of datagrams to or from another site: `hop.data>EAST`."""
    return f"hop.{kind}>{site}"


def _entry(counts: dict[str, list[int]], detail: str) -> list[int]:
    if len(counts) >= MAX_TRAFFIC_KINDS:
        detail = OTHER
    return counts.setdefault(detail, [0, 0])


def rows_like(
    kind_code: int,
    at_ns: int,
    underlay: int,
    group: int,
    view: int,
    sender: int,
    first: int,
    count: int,
    rank: int,
    *,
    position: int = NULL,
    prev_position: int = NULL,
) -> Cells:
    """One row, for `np.repeat`; the caller sets the columns that differ, and `Recorder.many` numbers them."""
    cell = bytearray(CELL_BYTES)
    _pack_row(
        cell, 0,
        ROW_TAG, kind_code, rank, 0,
        underlay, group, view, sender, 0, 0, 0, 0, 0,
        0, at_ns, first, count, position, prev_position, NULL,
    )  # fmt: skip
    return np.frombuffer(cell, dtype=ROW_DTYPE)
