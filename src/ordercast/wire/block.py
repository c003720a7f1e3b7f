"""Columnar blocks: many messages of one sender and one service, packed and opened without an object per message.

Layout, little-endian: the head (24 bytes); `kinds` entries of (group, type, count); where the runs are many and short
an index byte per message instead of the counts; one length if all messages are equally long, else a 16-bit length
each; the payloads. docs/design/overview.md section 6 has the reason: ordering costs a block, not a message.

A fragment is a block that holds a part of one message larger than a block; only its last fragment counts it, so that
numbers and positions of messages never know of fragments.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct
from sys import byteorder
from typing import Final, NamedTuple

from ordercast.config import MAX_BLOCK
from ordercast.errors import UsageError, WireError
from ordercast.service import RANK_NAMES, RESILIENT_RANK, Service
from ordercast.wire.codec import MAX_NUMBER

# first message number, count, service rank, k, flags, kinds; then room for the sequence number that it comes after
HEAD: Final = Struct("<QIBBBB8x")
HEAD_BYTES: Final = HEAD.size
FULL_HEAD: Final = Struct("<QIBBBBQ")  # the same, with what the block comes after
AFTER: Final = Struct("<Q")
AFTER_OFFSET: Final = 16
ENTRY: Final = Struct("<IhHI")  # group, type, reserved, count (0 when indexed)
ENTRY_BYTES: Final = ENTRY.size
LENGTH: Final = Struct("<I")
FRAGMENT: Final = Struct("<II")  # size of the whole message, offset of this part
if (HEAD_BYTES, ENTRY_BYTES, FRAGMENT.size) != (24, 12, 8):
    raise AssertionError("block structures have fixed sizes on the wire")

INDEXED: Final = 1
EQUAL: Final = 2
FRAGMENTED: Final = 4
LAST: Final = 8  # of a fragmented message
CHANGE: Final = 16  # a membership change, not messages: the orderer's own
CALLED: Final = 32  # one message, with a call's head before its payload (wire/calls.py)

MAX_KINDS: Final = 255
MAX_COUNT: Final = 60_000  # messages in a block; empty messages cost two bytes each
INDEX_FROM_RUNS: Final = 16  # more runs than this are written as an index array
OVERHEAD: Final = HEAD_BYTES + ENTRY_BYTES + LENGTH.size
FRAGMENT_OVERHEAD: Final = HEAD_BYTES + ENTRY_BYTES + FRAGMENT.size
_SWAP: Final = byteorder == "big"


HeadFields = tuple[int, int, int, int, int, int]  # as HEAD unpacks it, where the block is our own and needs no checks


class Head(NamedTuple):
    """The fixed head of a block."""

    first: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed
    rank: int
    k: int
    flags: int
    kinds: int


class Messages(NamedTuple):
    """An opened block. `kinds` and `index` tell group and type; `index` is None when all messages share kinds[0]."""

    first: int
    service: Service
    payloads: list[bytes] | tuple[bytes, ...]
    kinds: list[tuple[int, int]]
    index: Sequence[int] | None  # type: ignore[assignment]  # nor tuple.index


class Part(NamedTuple):
    """An opened fragment."""

    first: int
    service: Service
    group: int
    type: int
    size: int
    offset: int
    payload: bytes
    is_last: bool


def head_of(block: bytes | bytearray | memoryview) -> Head:
    """The head of a block that came from a peer: checked, never trusted."""
    if len(block) < HEAD_BYTES + ENTRY_BYTES:
        raise WireError("block shorter than its head")
    head = Head(*HEAD.unpack_from(block))
    if head.rank >= len(RANK_NAMES) or head.count > MAX_COUNT or not head.kinds or head.first > MAX_NUMBER:
        raise WireError("block head out of range")
    if head.flags & FRAGMENTED and len(block) < FRAGMENT_OVERHEAD:
        raise WireError("fragment shorter than its head")
    return head


def after_of(block: bytes) -> int:
    """The last sequence number that its sender had delivered: what the block may causally depend on."""
    after: int = AFTER.unpack_from(block, AFTER_OFFSET)[0]
    return after


def come_after(block: bytes, seq: int) -> bytes:
    """A copy of the block with another such sequence number."""
    view = memoryview(block)
    return b"".join((view[:AFTER_OFFSET], AFTER.pack(seq), view[AFTER_OFFSET + AFTER.size :]))


@lru_cache(maxsize=256)
def service_of(rank: int, k: int) -> Service:
    return Service(rank, k if rank == RESILIENT_RANK else 0)


def pack_run(first: int, service: Service, payloads: Sequence[bytes], group: int = 0, type_: int = 0) -> bytes:
    """One block of messages that share group and type: the common case, one `join`."""
    lengths = list(map(len, payloads))
    count = len(lengths)
    length = lengths[0]
    if lengths.count(length) == count:
        head = HEAD.pack(first, count, service.rank, service.k, EQUAL, 1)
        return b"".join((head, ENTRY.pack(group, type_, 0, count), LENGTH.pack(length), *payloads))
    head = HEAD.pack(first, count, service.rank, service.k, 0, 1)
    return b"".join((head, ENTRY.pack(group, type_, 0, count), _lengths(lengths), *payloads))


def pack_mixed(first: int, service: Service, messages: Sequence[tuple[int, int, bytes]]) -> bytes:
    """One block of (group, type, payload) messages; runs where they are few, an index array where they are many."""
    runs: list[list[int]] = []
    for group, type_, _ in messages:
        if runs and runs[-1][0] == group and runs[-1][1] == type_:
            runs[-1][2] += 1
        else:
            runs.append([group, type_, 1])
    payloads = [payload for _, _, payload in messages]
    if len(runs) == 1:
        return pack_run(first, service, payloads, runs[0][0], runs[0][1])
    lengths = _lengths([len(payload) for payload in payloads])
    count = len(payloads)
    if len(runs) <= INDEX_FROM_RUNS:
        head = HEAD.pack(first, count, service.rank, service.k, 0, len(runs))
        entries = [ENTRY.pack(group, type_, 0, length) for group, type_, length in runs]
        return b"".join((head, *entries, lengths, *payloads))
    table: dict[tuple[int, int], int] = {}
    index = bytearray()
    for group, type_, _ in messages:
        kind_index = table.setdefault((group, type_), len(table))
        if kind_index >= MAX_KINDS:
            raise UsageError(f"a block holds at most {MAX_KINDS} different groups and types")
        index.append(kind_index)
    head = HEAD.pack(first, count, service.rank, service.k, INDEXED, len(table))
    entries = [ENTRY.pack(group, type_, 0, 0) for group, type_ in table]
    return b"".join((head, *entries, index, lengths, *payloads))


def pack_fragment(
    first: int, service: Service, group: int, type_: int, payload: bytes, offset: int, stop: int, after: int = 0
) -> bytes:
    """The block that carries bytes [offset, stop) of a message too large for one block."""
    size = len(payload)
    is_last = stop == size
    flags = FRAGMENTED | (LAST if is_last else 0)
    head = FULL_HEAD.pack(first, 1 if is_last else 0, service.rank, service.k, flags, 1, after)
    entry = ENTRY.pack(group, type_, 0, 1 if is_last else 0)
    return b"".join((head, entry, FRAGMENT.pack(size, offset), memoryview(payload)[offset:stop]))


def fits(lengths: Sequence[int], start: int, limit: int) -> int:
    """How far messages from `start` fit one block of at most `limit` bytes (half-open; `start` if not even one)."""
    budget = min(limit, MAX_BLOCK) - OVERHEAD
    stop = start
    total = len(lengths)
    while stop < total and stop - start < MAX_COUNT:
        budget -= lengths[stop] + 2
        if budget < 0:
            break
        stop += 1
    return stop


def open_messages(block: bytes) -> Messages:
    """All messages of a block that is no fragment. Hot: no Python-level loop per message."""
    head, table, index, at = _open_runs(block)
    service = service_of(head.rank, head.k)
    return Messages(head.first, service, _payloads(block, at, head.count, head.flags), table, index)


class Columns(NamedTuple):
    """A block opened without an object per message: lengths and types of each, and all payloads in a row."""

    lengths: array[int]
    payloads: "memoryview"  # noqa: UP037 - mypyc looks unquoted names up where this one is not
    kinds: list[tuple[int, int]]
    index: Sequence[int] | None  # type: ignore[assignment]  # nor tuple.index


def open_columns(block: bytes) -> Columns:
    """`open_messages` for a caller that writes messages on: nothing is cut apart. Hot: the archive's recorder."""
    head, table, index, at = _open_runs(block)
    count = head.count
    if head.flags & EQUAL:
        length, at = _equal_length(block, at, count)
        return Columns(array("I", [length]) * count, memoryview(block)[at:], table, index)
    lengths = _open_lengths(block, at, count)
    at += 2 * count
    if at + sum(lengths) != len(block):
        raise WireError("payloads do not fill the block")
    return Columns(lengths, memoryview(block)[at:], table, index)


def open_part(block: bytes) -> Part:
    """A fragment's part of its message."""
    head = head_of(block)
    if not head.flags & FRAGMENTED or head.kinds != 1 or len(block) < FRAGMENT_OVERHEAD:
        raise WireError("not a fragment")
    group, type_, _, _ = ENTRY.unpack_from(block, HEAD_BYTES)
    size, offset = FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)
    payload = block[FRAGMENT_OVERHEAD:]
    is_last = bool(head.flags & LAST)
    if offset + len(payload) > size or (is_last and offset + len(payload) != size) or head.count != int(is_last):
        raise WireError("fragment outside its message")
    return Part(head.first, service_of(head.rank, head.k), group, type_, size, offset, payload, is_last)


def payload_bytes(block: bytes | bytearray | memoryview, head: Head) -> int:
    """Payload bytes of a block, for traces and counters, without opening it."""
    if head.flags & FRAGMENTED:
        return int(FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)[0]) if head.count else 0
    at = HEAD_BYTES + head.kinds * ENTRY_BYTES + (head.count if head.flags & INDEXED else 0)
    at += LENGTH.size if head.flags & EQUAL else 2 * head.count
    return max(0, len(block) - at)


def _lengths(lengths: list[int]) -> bytes:
    column = array("H", lengths)
    if _SWAP:
        column.byteswap()
    return column.tobytes()


def _open_runs(block: bytes) -> tuple[Head, list[tuple[int, int]], Sequence[int] | None, int]:
    """What comes before the lengths: head, kinds, index (None when all share kinds[0]), and where the lengths begin."""
    head = head_of(block)
    count, flags, kinds = head.count, head.flags, head.kinds
    if flags & (FRAGMENTED | CHANGE):
        raise WireError("not a block of messages")
    at = HEAD_BYTES + kinds * ENTRY_BYTES
    if len(block) < at:
        raise WireError("block shorter than its entries")
    if kinds == 1 and not flags & INDEXED:
        group, type_, _, in_run = ENTRY.unpack_from(block, HEAD_BYTES)
        if in_run != count:
            raise WireError("run does not cover the block")
        return head, [(group, type_)], None, at
    return head, *_open_kinds(block, count, flags, kinds, at)


def _open_kinds(
    block: bytes, count: int, flags: int, kinds: int, at: int
) -> tuple[list[tuple[int, int]], Sequence[int], int]:
    table: list[tuple[int, int]] = []
    runs: list[int] = []
    for kind_index in range(kinds):
        group, type_, _, in_run = ENTRY.unpack_from(block, HEAD_BYTES + kind_index * ENTRY_BYTES)
        table.append((group, type_))
        runs.append(in_run)
    if flags & INDEXED:
        index = block[at : at + count]
        if len(index) != count or (count and max(index) >= kinds):
            raise WireError("index array out of range")
        return table, index, at + count
    if sum(runs) != count:
        raise WireError("runs do not cover the block")
    spread: list[int] = []
    for kind_index, in_run in enumerate(runs):
        spread.extend([kind_index] * in_run)
    return table, spread, at


@lru_cache(maxsize=64)
def _equal_struct(length: int, count: int) -> Struct:
    # One C call slices a whole block of equal messages: 50 ns a message instead of 110 for a comprehension.
    return Struct(f"{length}s" * count)


def _payloads(block: bytes, at: int, count: int, flags: int) -> list[bytes] | tuple[bytes, ...]:
    if flags & EQUAL:
        length, at = _equal_length(block, at, count)
        if not length:
            return [b""] * count
        return _equal_struct(length, count).unpack_from(block, at)
    column = _open_lengths(block, at, count)
    bounds = list(accumulate(column, initial=at + 2 * count))
    if bounds[-1] != len(block):
        raise WireError("payloads do not fill the block")
    return [block[first:stop] for first, stop in pairwise(bounds)]


def _equal_length(block: bytes, at: int, count: int) -> tuple[int, int]:
    """The length that all messages share, and where they begin; they fill the block."""
    if len(block) < at + LENGTH.size:
        raise WireError("block shorter than its length")
    (length,) = LENGTH.unpack_from(block, at)
    at += LENGTH.size
    if len(block) - at != length * count:
        raise WireError("payloads do not fill the block")
    return length, at


def _open_lengths(block: bytes, at: int, count: int) -> array[int]:
    start = at + 2 * count
    if len(block) < start:
        raise WireError("block shorter than its lengths")
    column = array("H", block[at:start])
    if _SWAP:
        column.byteswap()
    return column
