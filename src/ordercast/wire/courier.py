"""What a courier puts on the wire: parts of parcels, and acknowledgements (`parts/courier.py`).

A *parcel* is a control body, or a segment of a block, for one peer. Its header is the usual one, with whatever ring,
origin and number mean to its kind. The 28 bytes behind it are the courier's: who sends to whom (ids name lives, so that
nothing of an earlier life is taken for a later one's), the connection, the sequence number, how far the oldest part
that is not acknowledged lies behind it, and which part of the parcel it is. A receiver that knows nothing of the
connection any more can so begin in the middle of it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ordercast.errors import InvariantViolation, WireError
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, MAX_SEGMENTS
from ordercast.wire.segments import Datagram

Buffer = bytes | bytearray | memoryview

MAX_WINDOW: Final = 1_024  # parts that a courier may have out to one peer
MAX_SEQ: Final = (1 << 32) - 1

PREFIX: Final = Struct("<QQIIHBB")  # from, to, connection, sequence, behind, part, last part
PREFIX_BYTES: Final = PREFIX.size
OVERHEAD_BYTES: Final = HEADER_BYTES + PREFIX_BYTES
ACK: Final = Struct("<QQIIII")  # from, to, connection, received up to, sequence that asked for it, words that follow
WORD: Final = Struct("<Q")  # of the mask of what came beyond
WORD_BITS: Final = 64
MAX_WORDS: Final = MAX_WINDOW // WORD_BITS
if (PREFIX_BYTES, ACK.size) != (28, 32):
    raise AssertionError("the courier's prefix and acknowledgement have fixed sizes on the wire")


class Parcel(NamedTuple):
    """What a courier brings: the fields of its header, and its whole body. `segment`, `last`: of a block."""

    kind: int
    ring: int
    origin: int
    number: int
    body: Buffer
    segment: int = 0
    last: int = 0


class ParcelPart(NamedTuple):
    """One datagram of a parcel on its way. The body of `parcel` is this part's alone."""

    sender: int
    to: int
    connection: int
    seq: int  # from 1 on in each connection
    behind: int  # seq - behind: the oldest that is not acknowledged
    part: int
    last: int
    parcel: Parcel


class CourierAck(NamedTuple):
    """`received`: everything up to it has come. `mask`: bit i stands for `received + 1 + i`, which has come as well."""

    sender: int
    to: int
    connection: int
    received: int
    asked_by: int  # the last part that came: its sender knows how long that took
    mask: int = 0


def cut_parcel(parcel: Parcel, datagram: int) -> list[Parcel]:
    """Its parts, as parcels with a piece of the body each."""
    step = datagram - OVERHEAD_BYTES
    size = len(parcel.body)
    if size <= step:
        return [parcel]
    if size > step * MAX_SEGMENTS:
        raise InvariantViolation(f"a parcel of {size} bytes takes more than {MAX_SEGMENTS} datagrams of {datagram}")
    body = memoryview(parcel.body)
    return [parcel._replace(body=body[at : at + step]) for at in range(0, size, step)]


def part_head(tag: int, part: ParcelPart) -> bytes:
    """What leaves before the body: the header and the prefix."""
    sender, to, connection, seq, behind, index, last_part, (kind, ring, origin, number, _, segment, last) = part
    prefix = PREFIX.pack(sender, to, connection, seq, behind, index, last_part)
    return HEADER.pack(MAGIC, kind, segment, last, tag, ring, origin, number) + prefix


def open_part(datagram: Datagram) -> ParcelPart:
    """A part with a copy of its body."""
    kind, segment, last_segment, ring, origin, number, data = datagram
    if len(data) < PREFIX_BYTES:
        raise WireError("part of a parcel shorter than its prefix")
    sender, to, connection, seq, behind, part, last = PREFIX.unpack_from(data)
    if not seq or behind >= min(seq, MAX_WINDOW) or part > last or part >= seq:
        raise WireError("part of a parcel with impossible numbers")
    body = bytes(data[PREFIX_BYTES:])
    if last and not body:
        raise WireError("empty part of a parcel")
    return ParcelPart(
        sender, to, connection, seq, behind, part, last, Parcel(kind, ring, origin, number, body, segment, last_segment)
    )


def encode_courier_ack(ack: CourierAck) -> bytes:
    sender, to, connection, received, asked_by, mask = ack
    words = [mask >> at & (1 << WORD_BITS) - 1 for at in range(0, mask.bit_length(), WORD_BITS)]
    head = ACK.pack(sender, to, connection, received, asked_by, len(words))
    return head + b"".join([WORD.pack(word) for word in words])


def decode_courier_ack(body: Buffer) -> CourierAck:
    if len(body) < ACK.size:
        raise WireError("acknowledgement of a courier too short")
    sender, to, connection, received, asked_by, words = ACK.unpack_from(body)
    if words > MAX_WORDS or len(body) != ACK.size + words * WORD.size:
        raise WireError("acknowledgement of a courier of odd size")
    mask = int.from_bytes(bytes(body[ACK.size :]), "little")
    if mask & 1 or (words and not mask >> (words - 1) * WORD_BITS):
        raise WireError("a mask that begins with what it says is missing, or ends with nothing")
    if not asked_by or asked_by > received + MAX_WINDOW:
        raise WireError("acknowledgement of a courier out of range")
    return CourierAck(sender, to, connection, received, asked_by, mask)
