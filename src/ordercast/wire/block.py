"""Columnar blocks: many messages of one sender, type and service, packed and opened without an object per message.

Layout, little-endian: the head (24 bytes); one entry of (group, type, count); where the messages go to different groups
(GROUPED) a 32-bit group number for each, where all of them go to several groups (MULTI) the list of these; one length
if all messages are equally long, else a 16-bit length each; the payloads. docs/design/overview.md section 6 has the
reason: ordering costs a block, not a message. (A table of groups with an index byte per message was tried: it ends at
255 groups, and costs a loop over the messages at both ends.)

A fragment is a block that holds a part of one message larger than a block; only its last fragment counts it, so that
numbers and positions of messages never know of fragments. A roster block (ROSTER) holds no message at all, but an
operation on the roster of groups (`wire/roster.py`).

A block of a session that has a label ends with the label, behind the payloads; the entry has its length, which is 0 in
all other blocks. It stands at the end because orderers look at fragments, and at the heads of calls, at fixed places.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct
from sys import byteorder
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ordercast.config import MAX_BLOCK
from ordercast.errors import UsageError, WireError
from ordercast.service import AGREED, AGREED_RANK, RANK_NAMES, RESILIENT_RANK, Service
from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.labels import MAX_LABEL, read_label

# first message number, count, service rank, k (of RESILIENT; of other services the priority, which only the sender's
# own engine reads), flags, kinds; then room for the sequence number that it comes after
HEAD: Final = Struct("<QIBBBB8x")
HEAD_BYTES: Final = HEAD.size
FULL_HEAD: Final = Struct("<QIBBBBQ")  # the same, with what the block comes after
AFTER: Final = Struct("<Q")
AFTER_OFFSET: Final = 16
ENTRY: Final = Struct("<IhHI")  # group (0 when GROUPED or MULTI), type, bytes of the session's label, count
ENTRY_BYTES: Final = ENTRY.size
LABEL_BYTES: Final = Struct("<H")  # the third field of the entry
LABEL_OFFSET: Final = HEAD_BYTES + 6
PRIORITY_OFFSET: Final = 13
FLAGS_OFFSET: Final = 14
LENGTH: Final = Struct("<I")
FRAGMENT: Final = Struct("<II")  # size of the whole message, offset of this part
if (HEAD_BYTES, ENTRY_BYTES, FRAGMENT.size, array("I").itemsize) != (24, 12, 8, 4):
    raise AssertionError("block structures have fixed sizes on the wire")

GROUPED: Final = 1  # a column with the number of the group of each message
EQUAL: Final = 2
FRAGMENTED: Final = 4
LAST: Final = 8  # of a fragmented message
CHANGE: Final = 16  # a membership change, not messages: the orderer's own
CALLED: Final = 32  # one message, with a call's head before its payload (wire/calls.py)
MULTI: Final = 64  # a list of groups: all messages go to all of them
ROSTER: Final = 128  # no messages, but an operation on the roster

MAX_TARGETS: Final = 255  # groups that one message goes to
MAX_COUNT: Final = 60_000  # messages in a block; empty messages cost two bytes each
GROUP_BYTES: Final = 4  # that a message costs more in a block with a column of groups
OVERHEAD: Final = HEAD_BYTES + ENTRY_BYTES + LENGTH.size
FRAGMENT_OVERHEAD: Final = HEAD_BYTES + ENTRY_BYTES + FRAGMENT.size
ROSTER_OVERHEAD: Final = HEAD_BYTES + ENTRY_BYTES
_NEVER: Final = 1 << 62
_SWAP: Final = byteorder == "big"

Groups: TypeAlias = "int | array[int] | tuple[int, ...]"  # as texts: 3.11 has no array[int] at run time
"""One group of all messages; the column with one group for each; or the groups that all messages go to."""

GroupColumn: TypeAlias = "array[int] | npt.NDArray[np.uint32] | Sequence[int]"
"""The group of each message, as a sender has it."""


def _least_bytes(flags: int) -> int:
    """The shortest block that can have these flags; longer than any block where they do not go together."""
    if flags & ~EQUAL & ~GROUPED == 0:
        return HEAD_BYTES + ENTRY_BYTES
    if flags in (MULTI, MULTI | EQUAL):
        return HEAD_BYTES + ENTRY_BYTES + LENGTH.size
    if flags & ~LAST == FRAGMENTED:
        return FRAGMENT_OVERHEAD
    if flags & ~LAST == FRAGMENTED | MULTI:
        return FRAGMENT_OVERHEAD + LENGTH.size
    return HEAD_BYTES + ENTRY_BYTES if flags in (EQUAL | CALLED, CHANGE, ROSTER) else _NEVER


_LEAST: Final = tuple(map(_least_bytes, range(256)))

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
    """An opened block."""

    first: int
    service: Service
    payloads: list[bytes] | tuple[bytes, ...]
    type: int
    groups: Groups


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
    targets: tuple[int, ...] = ()  # the groups that the message goes to, where they are several


def head_of(block: bytes | bytearray | memoryview) -> Head:
    """The head of a block that came from a peer: checked, never trusted."""
    if len(block) < HEAD_BYTES + ENTRY_BYTES:
        raise WireError("block shorter than its head")
    head = Head(*HEAD.unpack_from(block))
    if head.rank >= len(RANK_NAMES) or head.count > MAX_COUNT or head.kinds != 1 or head.first > MAX_NUMBER:
        raise WireError("block head out of range")
    if len(block) < _LEAST[head.flags]:
        raise WireError("flags that do not go together, or a block shorter than they say")
    label: int = LABEL_BYTES.unpack_from(block, LABEL_OFFSET)[0]
    if label and (label > MAX_LABEL or head.flags & (CHANGE | ROSTER) or len(block) < _LEAST[head.flags] + label):
        raise WireError("a session's label that is too long, or in a block that has none")
    if head.flags == ROSTER and (head.count or head.rank != AGREED_RANK):
        # In another service its members would read it at different places of their streams.
        raise WireError("a roster block holds messages, or is not AGREED")
    return head


def label_of(block: bytes | bytearray | memoryview) -> str:
    """The label of the session that sent a block whose head has been read; empty: the node's own."""
    size: int = LABEL_BYTES.unpack_from(block, LABEL_OFFSET)[0]
    return read_label(bytes(block[-size:])) if size else ""


def type_of(block: bytes) -> int:
    """The type of its messages."""
    type_: int = ENTRY.unpack_from(block, HEAD_BYTES)[1]
    return type_


def with_label(block: bytes, label: bytes) -> bytes:
    """The block of a session that has this label; `block` has none yet."""
    view = memoryview(block)
    return b"".join((view[:LABEL_OFFSET], LABEL_BYTES.pack(len(label)), view[LABEL_OFFSET + 2 :], label))


def with_priority(block: bytes, priority: int) -> bytes:
    """The block with a priority; its service is not RESILIENT."""
    view = memoryview(block)
    return b"".join((view[:PRIORITY_OFFSET], bytes((priority,)), view[PRIORITY_OFFSET + 1 :]))


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


def pack_run(
    first: int, service: Service, payloads: Sequence[bytes], group: int = 0, type_: int = 0, after: int = 0
) -> bytes:
    """One block of messages to one group: the common case, one `join`."""
    lengths = list(map(len, payloads))
    count = len(lengths)
    length = lengths[0]
    if lengths.count(length) == count:
        head = FULL_HEAD.pack(first, count, service.rank, service.k, EQUAL, 1, after)
        return b"".join((head, ENTRY.pack(group, type_, 0, count), LENGTH.pack(length), *payloads))
    head = FULL_HEAD.pack(first, count, service.rank, service.k, 0, 1, after)
    return b"".join((head, ENTRY.pack(group, type_, 0, count), lengths_column(lengths), *payloads))


def pack_grouped(
    first: int,
    service: Service,
    payloads: Sequence[bytes],
    groups: GroupColumn,
    type_: int = 0,
    after: int = 0,
) -> bytes:
    """One block of messages to different groups. Without a column where all of them go to one group after all."""
    column = group_column(groups)
    count = len(payloads)
    if len(column) != GROUP_BYTES * count:
        raise UsageError(f"{count} messages need {count} group numbers, got {len(column) // GROUP_BYTES}")
    if column == column[:GROUP_BYTES] * count:
        return pack_run(first, service, payloads, int.from_bytes(column[:GROUP_BYTES], "little"), type_, after)
    return _pack_with(GROUPED, column, first, service, payloads, type_, after)


def pack_multi(
    first: int, service: Service, payloads: Sequence[bytes], groups: Sequence[int], type_: int = 0, after: int = 0
) -> bytes:
    """One block of messages that go to all of these groups."""
    return _pack_with(MULTI, _targets_bytes(groups), first, service, payloads, type_, after)


def pack_roster(first: int, body: bytes, after: int = 0) -> bytes:
    """The block of one operation on the roster. `first`: the number of the next message of its sender."""
    head = FULL_HEAD.pack(first, 0, AGREED.rank, AGREED.k, ROSTER, 1, after)
    return b"".join((head, ENTRY.pack(0, 0, 0, 0), body))


def pack_fragment(
    first: int,
    service: Service,
    group: int,
    type_: int,
    payload: bytes,
    offset: int,
    stop: int,
    after: int = 0,
    targets: Sequence[int] = (),
) -> bytes:
    """The block that carries bytes [offset, stop) of a message too large for one block.

    `targets`: the groups of a message to several of them; then `group` is 0. Each fragment names them, after the
    sizes, which orderers look for at their fixed place.
    """
    size = len(payload)
    is_last = stop == size
    flags = FRAGMENTED | (LAST if is_last else 0) | (MULTI if targets else 0)
    head = FULL_HEAD.pack(first, 1 if is_last else 0, service.rank, service.k, flags, 1, after)
    entry = ENTRY.pack(group, type_, 0, 1 if is_last else 0)
    named = _targets_bytes(targets) if targets else b""
    return b"".join((head, entry, FRAGMENT.pack(size, offset), named, memoryview(payload)[offset:stop]))


def fits(lengths: Sequence[int], start: int, limit: int, column: int = 2) -> int:
    """How far messages from `start` fit one block of at most `limit` bytes (half-open; `start` if not even one).

    `column`: bytes of a message in the columns; with groups, 2 + `GROUP_BYTES`.
    """
    budget = min(limit, MAX_BLOCK) - OVERHEAD
    stop = start
    total = len(lengths)
    while stop < total and stop - start < MAX_COUNT:
        budget -= lengths[stop] + column
        if budget < 0:
            break
        stop += 1
    return stop


def open_messages(block: bytes) -> Messages:
    """All messages of a block that is no fragment. Hot: no Python-level loop per message."""
    head, type_, groups, at, stop = _open_front(block)
    service = service_of(head.rank, head.k)
    return Messages(head.first, service, _payloads(block, at, stop, head.count, head.flags), type_, groups)


def open_payloads(block: bytes, head: Head) -> tuple[Sequence[bytes], int]:
    """The messages of a block whose head and groups are known already, and their type."""
    count, flags = head.count, head.flags
    group, type_, label, counted = ENTRY.unpack_from(block, HEAD_BYTES)
    if flags & (FRAGMENTED | CHANGE | ROSTER) or counted != count or (group and flags & (GROUPED | MULTI)):
        raise WireError("not a block of messages, or an entry that is not its own")
    at = HEAD_BYTES + ENTRY_BYTES
    if flags & GROUPED:
        at += GROUP_BYTES * count
    elif flags & MULTI:
        at = _open_targets(block, at)[1]
    return _payloads(block, at, len(block) - label, count, flags), type_


class Columns(NamedTuple):
    """A block opened without an object per message: the lengths, and all payloads in a row."""

    lengths: array[int]
    payloads: "memoryview"  # noqa: UP037 - mypyc looks unquoted names up where this one is not
    type: int
    groups: Groups


def open_columns(block: bytes) -> Columns:
    """`open_messages` for a caller that writes messages on: nothing is cut apart. Hot: the archive's recorder."""
    head, type_, groups, at, stop = _open_front(block)
    count = head.count
    if head.flags & EQUAL:
        length, at = _equal_length(block, at, stop, count)
        return Columns(array("I", [length]) * count, memoryview(block)[at:stop], type_, groups)
    lengths = _open_lengths(block, at, stop, count)
    at += 2 * count
    if at + sum(lengths) != stop:
        raise WireError("payloads do not fill the block")
    return Columns(lengths, memoryview(block)[at:stop], type_, groups)


def groups_of(block: bytes, head: Head) -> Groups:
    """The groups that the messages of a block go to, without opening it. Hot: once per block of a shared underlay."""
    flags = head.flags
    if flags & GROUPED:
        return _open_groups(block, head.count)
    if flags & MULTI:
        return _open_targets(block, _targets_at(flags))[0]
    group: int = ENTRY.unpack_from(block, HEAD_BYTES)[0]
    return group


def roster_body(block: bytes, head: Head) -> memoryview:
    """The operation that a roster block carries (`wire/roster.py`)."""
    if head.flags != ROSTER:
        raise WireError("not a roster block")
    return memoryview(block)[ROSTER_OVERHEAD:]


def open_part(block: bytes) -> Part:
    """A fragment's part of its message."""
    head = head_of(block)
    if not head.flags & FRAGMENTED:
        raise WireError("not a fragment")
    group, type_, label, _ = ENTRY.unpack_from(block, HEAD_BYTES)
    size, offset = FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)
    targets: tuple[int, ...] = ()
    at = FRAGMENT_OVERHEAD
    if head.flags & MULTI:
        targets, at = _open_targets(block, at)
        if group:
            raise WireError("a group beside the list of groups")
    if at > len(block) - label:
        raise WireError("fragment shorter than its groups")
    payload = block[at : len(block) - label]
    is_last = bool(head.flags & LAST)
    if offset + len(payload) > size or (is_last and offset + len(payload) != size) or head.count != int(is_last):
        raise WireError("fragment outside its message")
    return Part(head.first, service_of(head.rank, head.k), group, type_, size, offset, payload, is_last, targets)


def payload_bytes(block: bytes | bytearray | memoryview, head: Head) -> int:
    """Payload bytes of a block, for traces and counters, without opening it."""
    if head.flags & FRAGMENTED:
        return int(FRAGMENT.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)[0]) if head.count else 0
    at = HEAD_BYTES + ENTRY_BYTES + (LENGTH.size if head.flags & EQUAL else 2 * head.count)
    if head.flags & GROUPED:
        at += GROUP_BYTES * head.count
    elif head.flags & MULTI:
        at += LENGTH.size + GROUP_BYTES * int(LENGTH.unpack_from(block, HEAD_BYTES + ENTRY_BYTES)[0])
    return max(0, len(block) - int(LABEL_BYTES.unpack_from(block, LABEL_OFFSET)[0]) - at)


def group_column(groups: GroupColumn) -> bytes:
    """Group numbers as they stand in a block."""
    if isinstance(groups, np.ndarray):
        return groups.astype("<u4", copy=False).tobytes()
    column = groups if isinstance(groups, array) and groups.typecode == "I" else array("I", groups)
    if _SWAP:
        column = array("I", column)
        column.byteswap()
    return column.tobytes()


def open_column(column: bytes) -> npt.NDArray[np.uint32]:
    """Group numbers that stand in a block, without a copy."""
    return np.frombuffer(column, dtype="<u4")


def _pack_with(
    flag: int, groups: bytes, first: int, service: Service, payloads: Sequence[bytes], type_: int, after: int
) -> bytes:
    """A block whose groups stand before its lengths."""
    lengths = list(map(len, payloads))
    count = len(lengths)
    length = lengths[0]
    entry = ENTRY.pack(0, type_, 0, count)
    if lengths.count(length) == count:
        head = FULL_HEAD.pack(first, count, service.rank, service.k, flag | EQUAL, 1, after)
        return b"".join((head, entry, groups, LENGTH.pack(length), *payloads))
    head = FULL_HEAD.pack(first, count, service.rank, service.k, flag, 1, after)
    return b"".join((head, entry, groups, lengths_column(lengths), *payloads))


def _targets_bytes(groups: Sequence[int]) -> bytes:
    if not 1 <= len(groups) <= MAX_TARGETS or len(set(groups)) != len(groups):
        raise UsageError(f"a message goes to 1 to {MAX_TARGETS} different groups, got {len(groups)}")
    return LENGTH.pack(len(groups)) + group_column(groups)


def lengths_column(lengths: list[int]) -> bytes:
    """Lengths as they stand in a block."""
    column = array("H", lengths)
    if _SWAP:
        column.byteswap()
    return column.tobytes()


def _open_front(block: bytes) -> tuple[Head, int, Groups, int, int]:
    """What comes before the lengths: head, type, groups; and where the lengths begin, and the payloads end."""
    head = head_of(block)
    flags = head.flags
    if flags & (FRAGMENTED | CHANGE | ROSTER):
        raise WireError("not a block of messages")
    group, type_, label, count = ENTRY.unpack_from(block, HEAD_BYTES)
    if count != head.count:
        raise WireError("the entry does not count the messages of the block")
    at, stop = HEAD_BYTES + ENTRY_BYTES, len(block) - label
    if not flags & (GROUPED | MULTI):
        return head, type_, group, at, stop
    if group:
        raise WireError("a group beside the list of groups")
    if flags & GROUPED:
        return head, type_, _open_groups(block, count), at + GROUP_BYTES * count, stop
    targets, at = _open_targets(block, at)
    return head, type_, targets, at, stop


def _open_groups(block: bytes, count: int) -> array[int]:
    """The column with the group of each message."""
    start = HEAD_BYTES + ENTRY_BYTES
    stop = start + GROUP_BYTES * count
    if len(block) < stop:
        raise WireError("block shorter than its groups")
    column = array("I", block[start:stop])
    if _SWAP:
        column.byteswap()
    return column


def _targets_at(flags: int) -> int:
    return FRAGMENT_OVERHEAD if flags & FRAGMENTED else HEAD_BYTES + ENTRY_BYTES


def _open_targets(block: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The groups that all messages go to, and what comes after them."""
    (count,) = LENGTH.unpack_from(block, at)  # `head_of` has seen that it is there
    at += LENGTH.size
    stop = at + GROUP_BYTES * count
    if not 1 <= count <= MAX_TARGETS or len(block) < stop:
        raise WireError("a list of groups that is too long, or not there")
    column = array("I", block[at:stop])
    if _SWAP:
        column.byteswap()
    targets = tuple(column)
    if len(set(targets)) != count:
        raise WireError("a group twice in one list")
    return targets, stop


@lru_cache(maxsize=64)
def _equal_struct(length: int, count: int) -> Struct:
    # One C call slices a whole block of equal messages: 50 ns a message instead of 110 for a comprehension.
    return Struct(f"{length}s" * count)


def _payloads(block: bytes, at: int, stop: int, count: int, flags: int) -> list[bytes] | tuple[bytes, ...]:
    """The messages that lie between the lengths at `at` and `stop`."""
    if flags & EQUAL:
        length, at = _equal_length(block, at, stop, count)
        if not length:
            return [b""] * count
        return _equal_struct(length, count).unpack_from(block, at)
    column = _open_lengths(block, at, stop, count)
    bounds = list(accumulate(column, initial=at + 2 * count))
    if bounds[-1] != stop:
        raise WireError("payloads do not fill the block")
    return [block[first:end] for first, end in pairwise(bounds)]


def _equal_length(block: bytes, at: int, stop: int, count: int) -> tuple[int, int]:
    """The length that all messages share, and where they begin; they fill the block up to `stop`."""
    if stop < at + LENGTH.size:
        raise WireError("block shorter than its length")
    (length,) = LENGTH.unpack_from(block, at)
    at += LENGTH.size
    if stop - at != length * count:
        raise WireError("payloads do not fill the block")
    return length, at


def _open_lengths(block: bytes, at: int, stop: int, count: int) -> array[int]:
    start = at + 2 * count
    if stop < start:
        raise WireError("block shorter than its lengths")
    column = array("H", block[at:start])
    if _SWAP:
        column.byteswap()
    return column
