"""The headers of segments and frames, and where the columns of a frame lie. docs/design/archive.md has the format.

Little-endian throughout. Columns begin at multiples of 8 bytes, so that Arrow wraps them where they lie. Each frame has
its own tables of views, senders and services: any frame can be read alone. A frame *covers* the positions
`[begin, stop)`. A covered position without a message in the frame belongs to no ordered message.
"""

from __future__ import annotations

import re
import zlib
from struct import Struct
from typing import Final, NamedTuple

from ordercast.archive.errors import ForeignFile, NewerFormat
from ordercast.engine import Buffer

VERSION: Final = 2
"""The newest format that this code reads. It writes 2 only for segments of a later epoch, and 1 otherwise."""

FRAME_VERSION: Final = 1
ALIGNMENT: Final = 8

# magic, version, bytes of the header, bytes of the group's name, flags, archive, first, after, created_ns, crc; behind
# it the group's name, and with version 2 the base of the epoch
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
_BASE: Final = Struct("<q")
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


def segment_name(first: int) -> str:
    """The file name of the segment that covers positions from `first` on."""
    return f"segment-{first:020}.ocl"


def padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# The header of a segment. --------------------------------------------------------------------------------------------


class SegmentHead(NamedTuple):
    """What a segment belongs to. It covers positions from `first` on; `after` is where the archive ended before it.

    Where `after` is less than `first`, the positions between were missing when the segment was begun (`after` is -1
    if there was no segment before it). `base` is where its epoch begins: a message has the position `base` + the
    position that the group gave it.
    """

    group: str
    archive: bytes  # 16 bytes that no other archive has
    first: int
    after: int
    created_ns: int
    nbytes: int = 0  # of the header itself
    base: int = 0


def pack_segment_head(head: SegmentHead) -> bytes:
    name = head.group.encode()
    behind = name + _BASE.pack(head.base) if head.base else name
    version = 2 if head.base else 1
    size = -(-(SEGMENT_HEAD.size + len(behind)) // 64) * 64
    fields = (SEGMENT_MAGIC, version, size, len(name), 0, head.archive, head.first, head.after, head.created_ns)
    packed = bytearray((SEGMENT_HEAD.pack(*fields, 0) + behind).ljust(size, b"\0"))
    _CRC.pack_into(packed, SEGMENT_CRC_OFFSET, zlib.crc32(packed))
    return bytes(packed)


def open_segment_head(data: bytes, name: str) -> SegmentHead | None:
    """The header of the segment `name`; None if it is torn: shorter than it says, or without its checksum.

    Raises ForeignFile if this is no segment, NewerFormat if a newer version wrote it.
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
    stop = SEGMENT_HEAD.size + name_bytes
    if len(data) < size or size < stop + (_BASE.size if version >= 2 else 0) or size % 64:
        return None
    checked = bytearray(data[:size])
    _CRC.pack_into(checked, SEGMENT_CRC_OFFSET, 0)
    if version < 1 or zlib.crc32(checked) != crc:
        return None
    group = data[SEGMENT_HEAD.size : stop].decode(errors="replace")
    base = _BASE.unpack_from(data, stop)[0] if version >= 2 else 0
    return SegmentHead(group, archive, first, after, created_ns, size, base)


# The header of a frame. ----------------------------------------------------------------------------------------------


class FrameHead(NamedTuple):
    """What is known of a frame without its body. It covers `[begin, stop)`; `first`, `last`: of messages (-1: none)."""

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
            FRAME_MAGIC, head.kind, FRAME_VERSION, 0, head.body_bytes, head.count, head.values_bytes, head.tables_bytes,
            head.views, head.senders, head.services, head.begin, head.stop, head.first, head.last, head.first_ns,
            head.last_ns, head.body_crc, 0,
        )
    )  # fmt: skip
    _CRC.pack_into(packed, FRAME_CRC_OFFSET, zlib.crc32(memoryview(packed)[:FRAME_CRC_OFFSET]))
    return bytes(packed)


def open_frame_head(data: Buffer, at: int = 0) -> FrameHead | None:
    """The frame header at `at`; None if there is none: too few bytes, a torn header, or other bytes."""
    view = memoryview(data)
    if len(view) - at < FRAME_BYTES or bytes(view[at : at + 4]) != FRAME_MAGIC:
        return None
    if zlib.crc32(view[at : at + FRAME_CRC_OFFSET]) != _CRC.unpack_from(view, at + FRAME_CRC_OFFSET)[0]:
        return None
    _, kind, version, _, *fields, _ = FRAME_HEAD.unpack_from(view, at)
    head = FrameHead(kind, *fields)
    # The checksum proves that an archive wrote this header. What another version means by it is not ours to guess.
    if version != FRAME_VERSION or kind not in KINDS or not _is_consistent(head):
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
