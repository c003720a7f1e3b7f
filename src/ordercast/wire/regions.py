"""Bodies of the datagrams of regions (QSM section 2.3; docs/design/regions.md has the table of kinds).

Blocks are DATA with tag = region, ring = region view, origin = sender, number = block. Block 0 of a lane is OPEN.
Everything else travels as parcels of a courier (`wire/courier.py`), and `ring` names the region view as well. All
prefixes are counts: everything below them, 0 is none.

A token has a fixed head, and for each sender an entry of 72 bytes with the sets that are not empty behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ordercast.errors import InvariantViolation, WireError
from ordercast.view import Address
from ordercast.wire.codec import MAX_NUMBER, Reader, Writer
from ordercast.wire.ranges import EMPTY, MAX_RUNS, NumberSet, decode_set, encode_set, read_set
from ordercast.wire.views import encode_address, take_address

Buffer = bytes | bytearray | memoryview

MAX_SENDER_NAME: Final = 255  # bytes
MAX_EARLIER: Final = 2_048  # views that one OPEN names
MAX_SENDERS: Final = 1_024  # with an entry in one token
MAX_TOKEN_RUNS: Final = 4_096  # of all sets of a token together
MAX_REGION_MEMBERS: Final = 2_000  # and so places in a ring: each member once, each partition's first one twice
MAX_PLACE: Final = 2 * MAX_REGION_MEMBERS
MAX_LANE_BLOCKS: Final = 1 << 52  # of one sender in one view: block * 256 + segment stays below 2^60
MAX_RATE: Final = (1 << 32) - 1  # datagrams a second

OPEN: Final = Struct("<QI")  # epoch, views that follow the name
EARLIER: Final = Struct("<IQQ")  # region, view, final count
CLOSE: Final = Struct("<QQ")  # final count, epoch
# epoch, epochs of the last complete round and of the one before, least rate, place, active senders, entries, flags
TOKEN_HEAD: Final = Struct("<QQQIHHHBB4x")
# sender, flags, sets, cutoff, ack, purge, maximum, final, own, full
TOKEN_ENTRY: Final = Struct("<QBB6xQQQQQQQ")
REGION_ACK: Final = Struct("<QQQIHBx")  # ack, purge, epoch, rate, senders, flags
DRAINED: Final = Struct("<Q")  # epoch that ended the view
ACCUSE: Final = Struct("<QQQB3x")  # accused, view, epoch, reason
if (OPEN.size, EARLIER.size, CLOSE.size, TOKEN_HEAD.size, TOKEN_ENTRY.size) != (12, 20, 16, 40, 72):
    raise AssertionError("the bodies of lanes and tokens have fixed sizes on the wire")
if (REGION_ACK.size, DRAINED.size, ACCUSE.size) != (32, 8, 28):
    raise AssertionError("the control bodies of regions have fixed sizes on the wire")

SETS: Final = 7  # of an entry

# Flags of an entry
SEEN: Final = 1  # since the starter's visit: only then the round says something of this sender
DEAD: Final = 2  # the token's epoch excludes it
FINAL: Final = 4  # `final` is its final count
REPORTED: Final = 8  # `naks` is a report of the predecessor, also where it lacks nothing
# Flags of an ACK
CLOSED: Final = 1  # the region knows the final count


def _count(value: int) -> int:
    if value > MAX_LANE_BLOCKS:
        raise WireError("a count of blocks out of range")
    return value


# Lanes. --------------------------------------------------------------------------------------------------------------


class EarlierView(NamedTuple):
    """How many blocks a sender sent in an earlier view, OPEN included."""

    region: int
    view: int
    final: int


class LaneOpening(NamedTuple):
    """Block 0 of a lane: who its sender is, which need not be in a view of the receiver, and all earlier views that it
    used and that are not drained, in any region."""

    epoch: int
    name: str
    life: int
    address: Address  # where it receives
    earlier: tuple[EarlierView, ...] = ()


def encode_open(opening: LaneOpening) -> bytes:
    if len(opening.earlier) > MAX_EARLIER:
        raise InvariantViolation(f"a lane opens with {len(opening.earlier)} earlier views, {MAX_EARLIER} are the most")
    writer = Writer().pack(OPEN, opening.epoch, len(opening.earlier))
    writer.text(opening.name).i64(opening.life).raw(encode_address(opening.address))
    return writer.raw(b"".join([EARLIER.pack(*each) for each in opening.earlier])).bytes()


def decode_open(body: Buffer) -> LaneOpening:
    reader = Reader(memoryview(body))
    epoch, count = reader.unpack(OPEN)
    name, life, address = reader.text(MAX_SENDER_NAME), reader.i64(), take_address(reader)
    if count > MAX_EARLIER or reader.left != count * EARLIER.size or epoch > MAX_NUMBER or not name:
        raise WireError("opening of a lane of odd size, or of nobody")
    earlier = tuple(map(EarlierView._make, EARLIER.iter_unpack(reader.raw(reader.left))))
    if any(not 0 < each.final <= MAX_LANE_BLOCKS for each in earlier) or len({each.view for each in earlier}) != count:
        raise WireError("opening of a lane that names a view twice, or one without blocks")
    return LaneOpening(epoch, name, life, address, earlier)


class LaneClosing(NamedTuple):
    final: int
    epoch: int  # that ends the view


def encode_close(closing: LaneClosing) -> bytes:
    return CLOSE.pack(*closing)


def decode_close(body: Buffer) -> LaneClosing:
    if len(body) != CLOSE.size:
        raise WireError("closing of a lane of odd size")
    final, epoch = CLOSE.unpack_from(body)
    if epoch > MAX_NUMBER:
        raise WireError("epoch out of range")
    return LaneClosing(_count(final), epoch)


# The token. ----------------------------------------------------------------------------------------------------------


class TokenEntry(NamedTuple):
    """What a token says of one sender. The first two sets are of segments, the others of blocks."""

    sender: int
    flags: int = 0
    cutoff: int = 0  # the maximum of the last round: what is below it and not here is missing
    ack: int = 0
    purge: int = 0
    maximum: int = 0  # of this round so far
    final: int = 0
    own: int = 0  # the least prefix of the own partitions' blocks: the next ack
    full: int = 0  # the least prefix of all blocks: the next purge
    naks: NumberSet = EMPTY  # what the predecessor lacks
    common: NumberSet = EMPTY  # what the whole partition lacks
    lack: NumberSet = EMPTY  # what somebody lacks that cannot be had from the sender
    asked: NumberSet = EMPTY  # of the last round's lack: what nobody has been found to keep
    candidates: NumberSet = EMPTY  # what will be lost, unless somebody keeps it
    lost: NumberSet = EMPTY
    gone: NumberSet = EMPTY  # what the sender does not keep any more

    @property
    def sets(self) -> tuple[NumberSet, ...]:
        return (self.naks, self.common, self.lack, self.asked, self.candidates, self.lost, self.gone)


class RegionToken(NamedTuple):
    """`place` counts visits. `clean`, `cleaner`: the epochs of the last complete round and of the one before. Starter
    and round are origin and number of its header."""

    epoch: int
    clean: int
    cleaner: int
    rate: int  # the least that a member receives; MAX_RATE: none has spoken
    place: int
    senders: int  # that have sent since the last round: m
    entries: tuple[TokenEntry, ...] = ()


def encode_token(token: RegionToken) -> bytes:
    epoch, clean, cleaner, rate, place, senders, entries = token
    runs = sum([len(each.runs) for entry in entries for each in entry.sets])
    if len(entries) > MAX_SENDERS or runs > MAX_TOKEN_RUNS:
        raise InvariantViolation(f"a token of {len(entries)} entries and {runs} runs is to be sent")
    parts = [TOKEN_HEAD.pack(epoch, clean, cleaner, rate, place, senders, len(entries), 0, 0)]
    for entry in entries:
        present = [each for each in entry.sets if each != EMPTY]
        which = sum([1 << bit for bit, each in enumerate(entry.sets) if each != EMPTY])
        counts = (entry.cutoff, entry.ack, entry.purge, entry.maximum, entry.final, entry.own, entry.full)
        parts.append(TOKEN_ENTRY.pack(entry.sender, entry.flags, which, *counts))
        parts.extend([encode_set(each) for each in present])
    return b"".join(parts)


def decode_token(body: Buffer) -> RegionToken:
    reader = Reader(memoryview(body))
    epoch, clean, cleaner, rate, place, senders, count, *unused = reader.unpack(TOKEN_HEAD)
    if not cleaner <= clean <= epoch <= MAX_NUMBER or place > MAX_PLACE or any(unused):
        raise WireError("head of a token out of range")
    if count > MAX_SENDERS or count * TOKEN_ENTRY.size > reader.left:
        raise WireError("more entries announced than the token holds")
    entries = []
    left = MAX_TOKEN_RUNS
    before = -1
    for _ in range(count):
        entry = _read_entry(reader, left)
        if entry.sender <= before:
            raise WireError("senders of a token that do not rise")
        before = entry.sender
        left -= sum([len(each.runs) for each in entry.sets])
        entries.append(entry)
    reader.end()
    return RegionToken(epoch, clean, cleaner, rate, place, senders, tuple(entries))


def _read_entry(reader: Reader, left: int) -> TokenEntry:
    sender, flags, which, *counts = reader.unpack(TOKEN_ENTRY)
    if flags >= 2 * REPORTED or which >= 1 << SETS:
        raise WireError("entry of a token with unknown flags")
    cutoff, ack, purge, maximum, final, own, full = map(_count, counts)
    sets = []
    for bit in range(SETS):
        found = EMPTY
        if which >> bit & 1:
            found = read_set(reader, min(MAX_RUNS, left))
            left -= len(found.runs)
            if found == EMPTY:
                raise WireError("an empty set that is said to be there")
        sets.append(found)
    return TokenEntry(sender, flags, cutoff, ack, purge, maximum, final, own, full, *sets)


# What a region and its senders say to each other. --------------------------------------------------------------------


class RegionAck(NamedTuple):
    ack: int
    purge: int
    epoch: int
    rate: int  # formula (1), in datagrams a second
    senders: int
    flags: int = 0


def encode_ack(ack: RegionAck) -> bytes:
    return REGION_ACK.pack(*ack)


def decode_ack(body: Buffer) -> RegionAck:
    if len(body) != REGION_ACK.size or bytes(body[REGION_ACK.size - 1 :]) != b"\0":
        raise WireError("acknowledgement of a region of odd size")
    ack = RegionAck(*REGION_ACK.unpack_from(body))
    if ack.flags > CLOSED or ack.epoch > MAX_NUMBER:
        raise WireError("acknowledgement of a region out of range")
    _count(max(ack.ack, ack.purge))
    return ack


def encode_numbers(numbers: NumberSet) -> bytes:
    """The body of REGION_NAK and PULL (segments), GONE and LOST (blocks)."""
    if not numbers.runs:
        raise InvariantViolation("a set that names nothing is to be sent")
    return encode_set(numbers)


def decode_numbers(body: Buffer) -> NumberSet:
    numbers = decode_set(memoryview(body))
    if not numbers.runs:
        raise WireError("a set that names nothing")
    return numbers


def encode_drained(epoch: int) -> bytes:
    return DRAINED.pack(epoch)


def decode_drained(body: Buffer) -> int:
    if len(body) != DRAINED.size:
        raise WireError("end of a view of odd size")
    epoch: int = DRAINED.unpack_from(body)[0]
    if epoch > MAX_NUMBER:
        raise WireError("epoch out of range")
    return epoch


class Accusation(IntEnum):
    """Why a node is accused. The value is on the wire."""

    TOKEN = 1  # it did not take a token
    SILENCE = 2  # the leader of a region starts none
    PARCEL = 3  # it did not answer another parcel


class Accused(NamedTuple):
    node: int
    view: int
    epoch: int
    reason: Accusation


def encode_accused(accused: Accused) -> bytes:
    return ACCUSE.pack(*accused)


def decode_accused(body: Buffer) -> Accused:
    if len(body) != ACCUSE.size or bytes(body[-3:]) != bytes(3):
        raise WireError("accusation of odd size")
    node, view, epoch, reason = ACCUSE.unpack_from(body)
    if not node or epoch > MAX_NUMBER or not Accusation.TOKEN <= reason <= Accusation.PARCEL:
        raise WireError("accusation out of range")
    return Accused(node, view, epoch, Accusation(reason))


def fits_token(entries: Sequence[TokenEntry], room: int) -> bool:
    """Whether a token with these entries has at most `room` bytes."""
    sets = [each.size for entry in entries for each in entry.sets if each != EMPTY]
    return TOKEN_HEAD.size + TOKEN_ENTRY.size * len(entries) + sum(sets) <= room
