"""Bodies of roster blocks: JOIN, LEAVE, NAME and SEED (docs/design/roster.md), and PART (docs/design/sites.md).

One body holds one kind of operation and as many names or numbers as fit. Names travel as one column of lengths, in
characters, and one text: it is decoded at once and cut by slices. Each part of a seed, or of a roster that components
exchange, stands alone: it has its own table of the lists of sessions that its groups share.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, islice, pairwise
from struct import Struct
from sys import byteorder
from typing import Final, NamedTuple

from ordercast.config import MAX_GROUP_NAME, MAX_HEADER, MAX_MEMBERS
from ordercast.errors import UsageError, WireError
from ordercast.wire.block import group_column
from ordercast.wire.codec import MAX_NUMBER, Reader, Writer
from ordercast.wire.labels import read_label, wrong_with

SessionKey = tuple[int, str]
"""A session: the id of its node, and its label."""

LIST_SESSIONS: Final = 64  # sessions in one list of a seed: a longer list goes on in the next record
SEED: Final = Struct("<BBIQ")  # operation, flags, part, as-of sequence number
SEED_STATE: Final = Struct("<QQQQI")  # next number, changes; origin, as-of and next part of a seed that is under way
UNSEEDED: Final = Struct("<QQ")  # node, sequence number of the view that it came with
RECORD_BYTES: Final = 4 + 2 + 2 + 1  # number, members, namers, length of the name
MARKED_BYTES: Final = 1 + 2 + 2 + 2  # mark, members, namers, length of the name and a character of it
SEED_OVERHEAD: Final = SEED.size + 4 + 2  # counts of groups and lists
PART: Final = Struct("<BBI")  # operation, flags, part
if (SEED.size, SEED_STATE.size, UNSEEDED.size, PART.size) != (14, 36, 16, 6):
    raise AssertionError("roster structures have fixed sizes on the wire")

LAST_PART: Final = 1
_SWAP: Final = byteorder == "big"


class Operation(IntEnum):
    """What a roster block does."""

    JOIN = 1
    LEAVE = 2
    NAME = 3
    SEED = 4
    PART = 5  # of the roster of one component, for the others


class JoinGroups(NamedTuple):
    """A session joins groups; those that there are not are made."""

    label: str
    header: bytes
    names: list[str]


class LeaveGroups(NamedTuple):
    """A session leaves groups, or gives their names back."""

    label: str
    header: bytes
    numbers: array[int]


class NameGroups(NamedTuple):
    """A session names groups that it is going to send to from outside."""

    label: str
    names: list[str]


class SeedProgress(NamedTuple):
    """The seed that is under way: who sends it, as of where, and the part that comes next."""

    origin: int
    as_of: int
    part: int


class SeedState(NamedTuple):
    """What a roster has beside its groups."""

    next_number: int
    changes: int
    seed: SeedProgress | None
    unseeded: dict[int, int]  # node -> sequence number of the view that it came with


class SeedGroups(NamedTuple):
    """Groups of one part. A record with the number of the one before it has more sessions of the same group."""

    numbers: array[int]
    names: list[str]
    lists: list[tuple[SessionKey, ...]]
    members: array[int]  # for each group the index of its list
    namers: array[int]


class SeedPart(NamedTuple):
    """A part of a seed; the last one has the state."""

    as_of: int
    part: int
    state: SeedState | None
    groups: SeedGroups


AnyOperation = JoinGroups | LeaveGroups | NameGroups | SeedPart


class PartFront(NamedTuple):
    """Which part of a roster a body is."""

    part: int
    is_last: bool


class RosterPart(NamedTuple):
    """Groups of one part. A group with the name of the one before it has more sessions of the same group."""

    marks: bytes  # 1: the group has changed since its last view
    names: list[str]
    lists: list[tuple[SessionKey, ...]]
    members: array[int]  # for each group the index of its list
    namers: array[int]


# Out. -----------------------------------------------------------------------------------------------------------------


def encode_joins(label: str, header: bytes, names: Sequence[str], limit: int) -> Iterator[bytes]:
    """Bodies of at most `limit` bytes that join these groups; one name alone may be longer."""
    return _with_names(_front(Operation.JOIN, label).blob(_checked(header)).bytes(), names, limit)


def encode_name_groups(label: str, names: Sequence[str], limit: int) -> Iterator[bytes]:
    """Bodies of at most `limit` bytes that name these groups; one name alone may be longer."""
    return _with_names(_front(Operation.NAME, label).bytes(), names, limit)


def encode_leaves(label: str, header: bytes, numbers: Sequence[int], limit: int) -> Iterator[bytes]:
    """Bodies of at most `limit` bytes that leave these groups; one number alone may be longer."""
    front = _front(Operation.LEAVE, label).blob(_checked(header)).bytes()
    each = max(1, (limit - len(front) - 4) // 4)
    for at in range(0, len(numbers), each):
        some = numbers[at : at + each]
        yield b"".join((front, len(some).to_bytes(4, "little"), group_column(some)))


def encode_seed(
    as_of: int,
    groups: Iterator[tuple[int, str, tuple[SessionKey, ...], tuple[SessionKey, ...]]],
    state: SeedState,
    limit: int,
) -> Iterator[bytes]:
    """Bodies of a seed, made as they are asked for. `groups`: (number, name, members, namers) by rising number.

    A part is at most `limit` bytes long, unless the lists of one group or the state need more.
    """
    part = 0
    piece = _Piece(limit)
    for number, name, members, namers in groups:
        for first in range(0, max(len(members), len(namers), 1), LIST_SESSIONS):
            stop = first + LIST_SESSIONS
            record = (number, name, members[first:stop], namers[first:stop])
            if not piece.add(*record):
                yield piece.body(SEED.pack(Operation.SEED, 0, part, as_of))
                part += 1
                piece = _Piece(limit)
                piece.add(*record)
    end = _encode_state(state)
    if piece.numbers and piece.nbytes + len(end) > limit:
        yield piece.body(SEED.pack(Operation.SEED, 0, part, as_of))
        part += 1
        piece = _Piece(limit)
    yield piece.body(SEED.pack(Operation.SEED, LAST_PART, part, as_of) + end)


def encode_parts(
    groups: Iterator[tuple[bool, str, tuple[SessionKey, ...], tuple[SessionKey, ...]]], limit: int
) -> Iterator[bytes]:
    """Bodies of a roster that components exchange, made as they are asked for. `groups`: (whether it has changed since
    its last view, name, members, namers). A part is at most `limit` bytes long, unless one group needs more."""
    part = 0
    piece = _Piece(limit)
    for is_changed, name, members, namers in groups:
        for first in range(0, max(len(members), len(namers), 1), LIST_SESSIONS):
            stop = first + LIST_SESSIONS
            record = (int(is_changed), name, members[first:stop], namers[first:stop])
            if not piece.add(*record):
                yield piece.marked(PART.pack(Operation.PART, 0, part))
                part += 1
                piece = _Piece(limit)
                piece.add(*record)
    yield piece.marked(PART.pack(Operation.PART, LAST_PART, part))


class _Piece:
    """Groups of one part as they gather."""

    __slots__ = ("_index", "_limit", "_lists", "_members", "_namers", "_names", "nbytes", "numbers")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.nbytes = SEED_OVERHEAD
        self.numbers: list[int] = []
        self._names: list[str] = []
        self._lists: list[bytes] = []
        self._index: dict[tuple[SessionKey, ...], int] = {}
        self._members: list[int] = []
        self._namers: list[int] = []

    def add(self, number: int, name: str, members: tuple[SessionKey, ...], namers: tuple[SessionKey, ...]) -> bool:
        """False where the part is full; the first group always fits."""
        index = self._index
        new = [_encode_list(each) for each in {members, namers} if each not in index]
        nbytes = self.nbytes + RECORD_BYTES + len(name.encode()) + sum(map(len, new))
        if self.numbers and nbytes > self._limit:
            return False
        self.nbytes = nbytes
        for each in (members, namers):
            if each not in index:
                index[each] = len(index)
                self._lists.append(_encode_list(each))
        self.numbers.append(number)
        self._names.append(name)
        self._members.append(index[members])
        self._namers.append(index[namers])
        return True

    def body(self, front: bytes) -> bytes:
        """Of a seed."""
        return self._body(front, group_column(self.numbers))

    def marked(self, front: bytes) -> bytes:
        """Of a roster that components exchange: marks instead of numbers."""
        return self._body(front, bytes(self.numbers))

    def _body(self, front: bytes, column: bytes) -> bytes:
        writer = Writer().raw(front).u16(len(self._lists)).raw(b"".join(self._lists)).u32(len(self.numbers))
        writer.raw(column).raw(_indexes(self._members)).raw(_indexes(self._namers))
        return writer.raw(bytes(map(len, self._names))).raw("".join(self._names).encode()).bytes()


def _front(operation: Operation, label: str) -> Writer:
    wrong = wrong_with(label)
    if wrong:
        raise UsageError(f"the label of a session {wrong}")
    data = label.encode()
    return Writer().u8(operation).u8(len(data)).raw(data)


def _checked(header: bytes) -> bytes:
    if len(header) > MAX_HEADER:
        raise UsageError(f"a header has at most {MAX_HEADER} bytes, got {len(header)}")
    return header


def _with_names(front: bytes, names: Sequence[str], limit: int) -> Iterator[bytes]:
    encoded = [name.encode() for name in names]
    for data in encoded:
        if not 1 <= len(data) <= MAX_GROUP_NAME:
            raise UsageError(f"the name of a group has 1 to {MAX_GROUP_NAME} bytes, got {len(data)}")
    ends = list(accumulate([len(data) + 1 for data in encoded]))
    budget = limit - len(front) - 4
    at = used = 0
    while at < len(encoded):
        stop = max(at + 1, bisect_right(ends, used + budget, at))
        lengths = bytes(map(len, islice(names, at, stop)))
        yield b"".join((front, (stop - at).to_bytes(4, "little"), lengths, *encoded[at:stop]))
        at, used = stop, ends[stop - 1]


def _encode_list(sessions: tuple[SessionKey, ...]) -> bytes:
    writer = Writer().u8(len(sessions))
    for node, label in sessions:
        data = label.encode()
        writer.u64(node).u8(len(data)).raw(data)
    return writer.bytes()


def _encode_state(state: SeedState) -> bytes:
    seed = state.seed or SeedProgress(0, 0, 0)
    writer = Writer().pack(SEED_STATE, state.next_number, state.changes, *seed).u16(len(state.unseeded))
    for node, came in state.unseeded.items():
        writer.pack(UNSEEDED, node, came)
    return writer.bytes()


def _indexes(values: list[int]) -> bytes:
    column = array("H", values)
    if _SWAP:
        column.byteswap()
    return column.tobytes()


# In. ------------------------------------------------------------------------------------------------------------------


def decode_operation(body: bytes | memoryview) -> AnyOperation:
    """What a roster block says. All of it is read, also by members that need little of it: all refuse the same."""
    reader = Reader(memoryview(body))
    operation = reader.u8()
    if operation == Operation.SEED:
        return _decode_seed(reader)
    label = _label(reader)
    if operation == Operation.JOIN:
        return JoinGroups(label, reader.blob(MAX_HEADER), _names(reader, reader.count(2)))
    if operation == Operation.LEAVE:
        header = reader.blob(MAX_HEADER)
        numbers = _column(reader, "I", reader.count(4))
        reader.end()
        return LeaveGroups(label, header, numbers)
    if operation == Operation.NAME:
        return NameGroups(label, _names(reader, reader.count(2)))
    raise WireError("no operation on a roster")


def is_seed(body: bytes | memoryview) -> bool:
    return len(body) > 0 and body[0] == Operation.SEED


def part_front(body: bytes | memoryview) -> PartFront | None:
    """Which part of a roster this is; None: it is none. Everybody counts parts by this alone, readable or not."""
    if len(body) < PART.size:
        return None
    operation, flags, part = PART.unpack_from(body)
    if operation != Operation.PART or flags & ~LAST_PART:
        return None
    return PartFront(part, bool(flags & LAST_PART))


def decode_part(body: bytes | memoryview) -> RosterPart:
    """The groups of a part, whose front has been read."""
    reader = Reader(memoryview(body)[PART.size :])
    lists = [_decode_list(reader) for _ in range(reader.u16())]
    count = reader.count(MARKED_BYTES)
    marks = reader.raw(count)
    members = _column(reader, "H", count)
    namers = _column(reader, "H", count)
    if count and (max(members) >= len(lists) or max(namers) >= len(lists) or max(marks) > 1):
        raise WireError("a group of a roster without a list of its sessions, or with an unknown mark")
    return RosterPart(marks, _names(reader, count), lists, members, namers)


def _decode_seed(reader: Reader) -> SeedPart:
    flags, part, as_of = reader.u8(), reader.u32(), reader.number()
    if flags & ~LAST_PART:
        raise WireError("unknown flags of a seed")
    state = _decode_state(reader) if flags & LAST_PART else None
    lists = [_decode_list(reader) for _ in range(reader.u16())]
    count = reader.count(RECORD_BYTES + 1)
    numbers = _column(reader, "I", count)
    members = _column(reader, "H", count)
    namers = _column(reader, "H", count)
    if count and (max(members) >= len(lists) or max(namers) >= len(lists) or not min(numbers)):
        raise WireError("a group of a seed without a list of its sessions, or without a number")
    names = _names(reader, count)
    return SeedPart(as_of, part, state, SeedGroups(numbers, names, lists, members, namers))


def _decode_state(reader: Reader) -> SeedState:
    next_number, changes, origin, as_of, part = reader.unpack(SEED_STATE)
    count = reader.u16()
    if count > MAX_MEMBERS or max(changes, as_of) > MAX_NUMBER or not 1 <= next_number <= 1 << 32:
        raise WireError("the state of a roster out of range")
    pairs = [reader.unpack(UNSEEDED) for _ in range(count)]
    seed = SeedProgress(origin, as_of, part) if origin else None
    return SeedState(next_number, changes, seed, {pair[0]: pair[1] for pair in pairs})


def _decode_list(reader: Reader) -> tuple[SessionKey, ...]:
    return tuple([(reader.u64(), _label(reader)) for _ in range(reader.u8())])


def _label(reader: Reader) -> str:
    return read_label(reader.raw(reader.u8()))


def _names(reader: Reader, count: int) -> list[str]:
    """All that is left of a body. Hot: a slice per name, and nothing else."""
    lengths = reader.raw(count)
    text = _text(reader.rest())
    ends = list(accumulate(lengths, initial=0))
    if ends[-1] != len(text) or 0 in lengths:
        raise WireError("names do not fill the body")
    names = [text[first:stop] for first, stop in pairwise(ends)]
    if not text.isascii() and max([len(name.encode()) for name in names]) > MAX_GROUP_NAME:
        raise WireError("the name of a group is too long")
    return names


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WireError("text is not UTF-8") from error


def _column(reader: Reader, code: str, count: int) -> array[int]:
    column = array(code)
    column.frombytes(reader.raw(count * column.itemsize))
    if _SWAP:
        column.byteswap()
    return column
