"""Bodies of the ordering datagrams (docs/design/sequencer.md has the table of kinds)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from sys import byteorder
from typing import Final, NamedTuple

from ordercast.errors import WireError
from ordercast.wire.codec import MAX_NUMBER, Reader, Writer

Buffer = bytes | bytearray | memoryview

ACKS: Final = Struct("<QQ")  # received up to, consumed up to, with BEHIND
LEAD: Final = Struct("<QQQHH")  # highest sequence number, stable, safe, active senders, and who holds up the group
ASSIGNMENT: Final = Struct("<QQQI")  # sequence number, origin, block number, count: a run
MISSING: Final = Struct("<QQIHH")  # origin (0: the log), number, count, first segment, stop segment (0: all)
TARGET: Final = Struct("<Q")
SEQ_ORIGIN: Final = Struct("<QQ")
HOLDING: Final = Struct("<QQ")  # origin, held up to (half-open)
CARRIED: Final = Struct("<H")  # how many HOLDING there are
if (ACKS.size, LEAD.size, ASSIGNMENT.size, MISSING.size, HOLDING.size) != (16, 28, 28, 24, 16):
    raise AssertionError("ordering structures have fixed sizes on the wire")

ORDERED_PREFIX: Final = LEAD.size + 16
MAX_ASSIGNMENTS: Final = 65_536  # entries that a run may cover; a larger claim is hostile
MAX_REASON: Final = 900  # bytes of text that say why a member was expelled
MAX_MISSING: Final = 256  # entries of a NAK; the rest is asked for when these have come

_FAR: Final = 0xFFFF_FFFF  # so far behind that it says nothing
_SWAP: Final = byteorder == "big"


class Acks(NamedTuple):
    """What a member tells the sequencer with every datagram: everything up to and including these; and whether its
    application leaves what it was given. What is not consumed may also wait for a word that this member has not heard,
    and only the member itself can tell."""

    received: int
    consumed: int
    is_behind: bool = False


_BEHIND: Final = 1 << 63  # besides what is consumed


class Holdup(NamedTuple):
    """The member that the sequencer's history waits for: its index in the view, and whether its application does not
    consume, where otherwise it has not acknowledged."""

    member: int
    is_application: bool


NO_HOLDUP: Final = Holdup(0xFFFF, False)
_APPLICATION: Final = 0x8000  # besides its index, counted from 1; 0: nobody


class Lead(NamedTuple):
    """What the sequencer tells everybody with every datagram."""

    highest: int
    stable: int
    safe: int
    active: int
    holdup: Holdup = NO_HOLDUP


class Assignment(NamedTuple):
    """Blocks `number` … of `origin` have the sequence numbers `seq` …, `count` of them."""

    seq: int
    origin: int
    number: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed


class Missing(NamedTuple):
    """What a NAK asks for: entries of the log (origin 0) or blocks of an origin; segments [first, stop), 0 for all."""

    origin: int
    number: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed
    first: int
    stop: int


def pack_behind(highest: int, numbers: Iterable[int]) -> bytes:
    """Numbers near and below `highest`, four bytes each."""
    column = array("I", [min(highest - number, _FAR) for number in numbers])
    if _SWAP:
        column.byteswap()
    return column.tobytes()


def open_behind(highest: int, body: Buffer) -> tuple[int, ...]:
    """What `pack_behind` wrote; 0 where a number was too far behind."""
    column = array("I", bytes(body))
    if _SWAP:
        column.byteswap()
    return tuple([highest - behind if behind <= highest else 0 for behind in column])


def encode_lead(lead: Lead) -> bytes:
    member, is_application = lead.holdup
    held = 0 if lead.holdup is NO_HOLDUP else member + 1 | _APPLICATION * is_application
    return LEAD.pack(lead.highest, lead.stable, lead.safe, lead.active, held)


def decode_lead(body: Buffer) -> Lead:
    if len(body) < LEAD.size:
        raise WireError("lead too short")
    highest, stable, safe, active, held = LEAD.unpack_from(body)
    if stable > highest or safe > highest or highest > MAX_NUMBER:
        raise WireError("lead contradicts itself")
    if not held:
        return Lead(highest, stable, safe, active)
    return Lead(highest, stable, safe, active, Holdup((held & ~_APPLICATION) - 1, bool(held & _APPLICATION)))


def encode_accept(lead: Lead, assignments: Iterable[Assignment]) -> bytes:
    parts = [encode_lead(lead)]
    parts.extend(ASSIGNMENT.pack(*assignment) for assignment in assignments)
    return b"".join(parts)


def decode_accept(body: Buffer) -> tuple[Lead, list[Assignment]]:
    lead = decode_lead(body)
    rest = len(body) - LEAD.size
    if rest % ASSIGNMENT.size:
        raise WireError("accept of odd size")
    return lead, decode_assignments(Reader(memoryview(body), LEAD.size), rest // ASSIGNMENT.size)


def decode_assignments(reader: Reader, count: int) -> list[Assignment]:
    assignments = []
    for _ in range(count):
        run = Assignment(*reader.unpack(ASSIGNMENT))
        if not 0 < run.count <= MAX_ASSIGNMENTS or max(run.seq, run.number) > MAX_NUMBER:
            raise WireError("run of sequence numbers out of range")
        assignments.append(run)
    return assignments


def encode_ordered(lead: Lead, seq: int, origin: int) -> bytes:
    """The prefix of an ORDERED body; the block follows it as a buffer of its own."""
    return encode_lead(lead) + SEQ_ORIGIN.pack(seq, origin)


def decode_ordered(body: Buffer) -> tuple[Lead, int, int, memoryview]:
    """Lead, sequence number, origin, and where the block lies: only a receiver that keeps it copies it."""
    if len(body) <= ORDERED_PREFIX:
        raise WireError("ordered block too short")
    seq, origin = SEQ_ORIGIN.unpack_from(body, LEAD.size)
    if seq > MAX_NUMBER:
        raise WireError("sequence number out of range")
    return decode_lead(body), seq, origin, memoryview(body)[ORDERED_PREFIX:]


def encode_acks(acks: Acks) -> bytes:
    return ACKS.pack(acks.received, acks.consumed | _BEHIND * acks.is_behind)


def decode_acks(body: Buffer) -> Acks:
    if len(body) < ACKS.size:
        raise WireError("acknowledgement too short")
    received, consumed = ACKS.unpack_from(body)
    is_behind = consumed >= _BEHIND
    if is_behind:
        consumed -= _BEHIND
    if consumed > received:
        raise WireError("more consumed than received")
    return Acks(received, consumed, is_behind)


def encode_nak(acks: Acks, missing: Iterable[Missing], target: int = 0) -> bytes:
    """`target` is the one member that is to answer; 0: any that gets it."""
    parts = [encode_acks(acks), TARGET.pack(target)]
    parts.extend(MISSING.pack(*each) for each in missing)
    return b"".join(parts)


def decode_nak(body: Buffer) -> tuple[Acks, int, list[Missing]]:
    acks = decode_acks(body)
    start = ACKS.size + TARGET.size
    rest = len(body) - start
    if rest < 0 or rest % MISSING.size or rest // MISSING.size > MAX_MISSING:
        raise WireError("request for repair of odd size")
    target: int = TARGET.unpack_from(body, ACKS.size)[0]
    found = []
    for at in range(start, len(body), MISSING.size):
        missing = Missing(*MISSING.unpack_from(body, at))
        if not 0 < missing.count <= MAX_MISSING or missing.first > missing.stop or missing.number > MAX_NUMBER:
            raise WireError("request for repair out of range")
        found.append(missing)
    return acks, target, found


def encode_held(acks: Acks, holding: Iterable[tuple[int, int]]) -> bytes:
    parts = [encode_acks(acks)]
    parts.extend(HOLDING.pack(origin, upto) for origin, upto in holding)
    return b"".join(parts)


def decode_held(body: Buffer) -> tuple[Acks, list[tuple[int, int]]]:
    acks = decode_acks(body)
    if (len(body) - ACKS.size) % HOLDING.size:
        raise WireError("held of odd size")
    return acks, [HOLDING.unpack_from(body, at) for at in range(ACKS.size, len(body), HOLDING.size)]


def encode_carrier(acks: Acks, holding: Sequence[tuple[int, int]]) -> bytes:
    """The prefix of a CARRIER body; the block follows it as a buffer of its own."""
    return CARRIED.pack(len(holding)) + encode_held(acks, holding)


def decode_carrier(body: Buffer) -> tuple[Acks, list[tuple[int, int]], memoryview]:
    """Acknowledgement, blocks that are held, and where the sender's own block lies."""
    if len(body) < CARRIED.size:
        raise WireError("carrier too short")
    start = CARRIED.size
    stop = start + ACKS.size + HOLDING.size * CARRIED.unpack_from(body)[0]
    if len(body) <= stop:
        raise WireError("carrier without a block")
    view = memoryview(body)
    return *decode_held(view[start:stop]), view[stop:]


def encode_propose(acks: Acks, operation: int, header: bytes) -> bytes:
    return Writer().raw(encode_acks(acks)).u8(operation).blob(header).bytes()


def encode_expulsion(member: int, view: int, serial: int, text: bytes) -> bytes:
    """The header of a PROPOSE that asks for an expulsion: of which member, asked for in the view at `view`."""
    return Writer().u64(member).u64(view).u64(serial).blob(text).bytes()


def decode_expulsion(header: bytes) -> tuple[int, int, int, bytes]:
    reader = Reader(memoryview(header))
    member, view, serial, text = reader.u64(), reader.number(), reader.u64(), reader.blob(MAX_REASON)
    reader.end()
    return member, view, serial, text


def decode_propose(body: Buffer) -> tuple[Acks, int, bytes]:
    acks = decode_acks(body)
    reader = Reader(memoryview(body), ACKS.size)
    operation, header = reader.u8(), reader.blob(1_024)
    reader.end()
    return acks, operation, header
