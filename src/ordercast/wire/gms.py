"""Bodies of what nodes and the membership service say to each other (QSM section 2.2; docs/design/gms.md).

WHO and SERVICE are datagrams without a courier; everything else is a parcel. ASK, TOLD and EPOCH are cut into pages
(`wire/pages.py`) first. The body of an ASK is also what replicas order: a batch is a list of them, with who asked. What
an EPOCH says is in `membership/epochs.py`, since its types stand above this room.

Joins name groups by *signature* first: the xor of 128-bit hashes of the names, and their count. Names travel only where
the service does not know the signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import blake2b
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from ordercast.config import MAX_GROUP_NAME
from ordercast.errors import InvariantViolation, WireError
from ordercast.view import Address, Member
from ordercast.wire.codec import MAX_NUMBER, Reader, Writer
from ordercast.wire.header import Kind
from ordercast.wire.numbers import NumberReader, folded, pack_numbers
from ordercast.wire.views import decode_member, encode_address, encode_member, take_address

Buffer = bytes | bytearray | memoryview
Runs = tuple[tuple[int, int], ...]

TO_NODES: Final = frozenset({Kind.TOLD, Kind.EPOCH, Kind.PING, Kind.OUT, Kind.LEADER})  # parcels of a desk
TO_DESKS: Final = frozenset({Kind.ASK, Kind.PONG, Kind.ACCUSE})  # parcels of nodes

MAX_GROUP: Final = (1 << 32) - 1  # the last number that a group may have
MAX_ASKED_NAMES: Final = 131_072  # of one request; more are asked for in several
MAX_ASKED_RUNS: Final = MAX_ASKED_NAMES
MAX_TEXT: Final = 1_024  # of a refusal
MAX_BATCH: Final = 4_096  # requests in one epoch
MAX_PLACED: Final = 65_536  # nodes that one part of a plan places
MAX_LABEL: Final = 255

WHO: Final = Struct("<Q")  # which service is meant; 0: any
STANDING: Final = Struct("<QQ")  # service, epoch: of the node in PONG, of the service in OUT
SIGNATURE_BYTES: Final = 16
SIGNATURE_HEAD: Final = Struct("<16sI")
if (WHO.size, STANDING.size, SIGNATURE_HEAD.size) != (8, 16, 20):
    raise AssertionError("the small bodies of the service have fixed sizes on the wire")


# Signatures, names and runs. -----------------------------------------------------------------------------------------


class Signature(NamedTuple):
    """A set of names in 20 bytes."""

    xor: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed


def signature_of(names: Iterable[str]) -> Signature:
    """Of names that are all different. The order does not matter."""
    xor = count = 0
    for name in names:
        xor ^= int.from_bytes(blake2b(name.encode(), digest_size=SIGNATURE_BYTES, person=b"oc-gms").digest(), "little")
        count += 1
    return Signature(xor, count)


def _write_signature(writer: Writer, signature: Signature) -> None:
    writer.raw(SIGNATURE_HEAD.pack(signature.xor.to_bytes(SIGNATURE_BYTES, "little"), signature.count))


def _read_signature(reader: Reader) -> Signature:
    xor = int.from_bytes(reader.raw(SIGNATURE_BYTES), "little")
    count = reader.u32()
    if not 0 < count <= MAX_ASKED_NAMES:
        raise WireError("a signature of no names, or of too many")
    return Signature(xor, count)


def _write_names(writer: Writer, names: Sequence[str]) -> None:
    """All lengths, then all bytes: a hundred thousand names are read in one loop without a call for each."""
    encoded = [name.encode() for name in names]
    lengths = [len(name) for name in encoded]
    if len(names) > MAX_ASKED_NAMES or (lengths and not 1 <= min(lengths) <= max(lengths) <= MAX_GROUP_NAME):
        raise InvariantViolation(f"{len(names)} names are to be sent, or one of a length that no group's name has")
    writer.u32(len(names)).raw(bytes(lengths)).raw(b"".join(encoded))


def _read_names(reader: Reader) -> tuple[str, ...]:
    """In rising order, each once."""
    count = reader.count(2)
    if count > MAX_ASKED_NAMES:
        raise WireError("too many names")
    lengths = reader.raw(count)
    if count and not min(lengths):
        raise WireError("a group without a name")
    data = reader.raw(sum(lengths))
    names = []
    at = 0
    try:
        for length in lengths:
            names.append(data[at : at + length].decode())
            at += length
    except UnicodeDecodeError as error:
        raise WireError("a name is not UTF-8") from error
    if any(one >= other for one, other in pairwise(names)):
        raise WireError("names that do not rise")
    return tuple(names)


def write_runs(writer: Writer, runs: Runs) -> None:
    """Runs in any order: distance of each from the end of the one before, and length."""
    numbers = [len(runs)]
    before = 0
    for first, stop in runs:
        numbers += (folded(first - before), stop - first)
        before = stop
    packed = pack_numbers(numbers)
    writer.u32(len(packed)).raw(packed)


def read_runs(reader: Reader, is_rising: bool, most: int = MAX_ASKED_RUNS) -> Runs:
    """`is_rising`: a set in normal form; otherwise a sequence of numbers."""
    numbers = NumberReader(reader.raw(reader.count(1)))
    runs: list[tuple[int, int]] = []
    before = 0
    for _ in range(numbers.count(most, 2)):
        first = before + numbers.signed()
        stop = first + numbers.number(MAX_GROUP, 1)
        if not 0 < first < stop <= MAX_GROUP + 1:
            raise WireError("a run of groups out of range")
        if is_rising and runs and first <= before:
            raise WireError("runs of groups that do not rise")
        runs.append((first, stop))
        before = stop
    numbers.end()
    return tuple(runs)


# Discovery. ----------------------------------------------------------------------------------------------------------


class Replica(NamedTuple):
    """What a replica says of its service: the body of SERVICE, LEADER and PING. `leader` 0: it knows of none."""

    service: int
    epoch: int
    desk: int
    address: Address
    leader: int
    leader_address: Address


def encode_who(service: int) -> bytes:
    return WHO.pack(service)


def decode_who(body: Buffer) -> int:
    if len(body) != WHO.size:
        raise WireError("question for the service of odd size")
    service: int = WHO.unpack_from(body)[0]
    return service


def encode_replica(replica: Replica) -> bytes:
    service, epoch, desk, address, leader, leader_address = replica
    writer = Writer().u64(service).u64(epoch).u64(desk).raw(encode_address(address)).u64(leader)
    return writer.raw(encode_address(leader_address)).bytes()


def decode_replica(body: Buffer) -> Replica:
    reader = Reader(memoryview(body))
    service, epoch, desk, address = reader.u64(), reader.number(), reader.u64(), take_address(reader)
    leader, leader_address = reader.u64(), take_address(reader)
    reader.end()
    if not desk:
        raise WireError("a replica without an id")
    return Replica(service, epoch, desk, address, leader, leader_address)


# Requests. -----------------------------------------------------------------------------------------------------------


class Ask(IntEnum):
    """What a node asks for, or what the leader itself has ordered. The value is on the wire."""

    REGISTER = 1
    JOIN = 2
    LEAVE = 3
    FOLLOW = 4
    CONFIRM = 5  # every lane that this epoch ended is closed
    DEPART = 6
    SYNC = 7  # what has changed since an epoch, or everything
    # The leader's own.
    FOUND = 16  # the service begins
    EXCLUDE = 17
    PLACE = 18  # a plan: which nodes are to share regions


class NodeRequest(NamedTuple):
    """One request; which fields count is up to `what`."""

    what: Ask
    member: Member | None = None  # REGISTER
    is_back: bool = False  # REGISTER: this life of the node was registered before
    signature: Signature | None = None  # JOIN, FOLLOW
    names: tuple[str, ...] = ()  # JOIN, FOLLOW; none: by signature alone
    runs: Runs = ()  # LEAVE
    epoch: int = 0  # CONFIRM, SYNC
    service: int = 0  # FOUND: its id. Of a node: which one it speaks to
    text: str = ""  # EXCLUDE: why
    placed: tuple[tuple[str, int], ...] = ()  # PLACE: names of nodes and their regions in the plan
    is_first: bool = False  # PLACE: what was placed before counts no longer


def encode_request(request: NodeRequest) -> bytes:
    what = request.what
    writer = Writer().u8(what).u64(request.service)
    if what is Ask.REGISTER:
        if request.member is None:
            raise InvariantViolation("a registration without a member is to be sent")
        encode_member(writer, request.member)
        writer.u8(request.is_back)
    elif what in (Ask.JOIN, Ask.FOLLOW):
        if request.signature is None:
            raise InvariantViolation("a request without a signature is to be sent")
        _write_signature(writer, request.signature)
        _write_names(writer, request.names)
    elif what is Ask.LEAVE:
        write_runs(writer, request.runs)
    elif what in (Ask.CONFIRM, Ask.SYNC):
        writer.u64(request.epoch)
    elif what is Ask.EXCLUDE:
        writer.text(request.text)
    elif what is Ask.PLACE:
        writer.u8(request.is_first).u32(len(request.placed))
        for name, region in request.placed:
            writer.text(name).u32(region)
    return writer.bytes()


def decode_request(body: Buffer) -> NodeRequest:
    reader = Reader(memoryview(body))
    code, service = reader.u8(), reader.u64()
    try:
        what = Ask(code)
    except ValueError as error:
        raise WireError("an unknown request") from error
    request = NodeRequest(what, service=service)
    if what is Ask.REGISTER:
        request = request._replace(member=decode_member(reader), is_back=_flag(reader))
    elif what in (Ask.JOIN, Ask.FOLLOW):
        signature, names = _read_signature(reader), _read_names(reader)
        if names and len(names) != signature.count:
            raise WireError("as many names as the signature does not count")
        request = request._replace(signature=signature, names=names)
    elif what is Ask.LEAVE:
        request = request._replace(runs=read_runs(reader, is_rising=True))
    elif what in (Ask.CONFIRM, Ask.SYNC):
        request = request._replace(epoch=reader.number())
    elif what is Ask.EXCLUDE:
        request = request._replace(text=reader.text(MAX_TEXT))
    elif what is Ask.PLACE:
        request = request._replace(is_first=_flag(reader), placed=_read_placed(reader))
    reader.end()
    return request


def _flag(reader: Reader) -> bool:
    flag = reader.u8()
    if flag > 1:
        raise WireError("a flag that is neither set nor clear")
    return bool(flag)


def _read_placed(reader: Reader) -> tuple[tuple[str, int], ...]:
    count = reader.count(6)
    if count > MAX_PLACED:
        raise WireError("too many nodes of a plan")
    return tuple([(reader.text(MAX_LABEL), reader.u32()) for _ in range(count)])


# Answers. ------------------------------------------------------------------------------------------------------------


class Told(IntEnum):
    """What came of a request. The value is on the wire."""

    DONE = 1
    NUMBERS = 2  # of the names, in their order
    NAMES = 3  # the signature is unknown: tell the names
    REFUSED = 4
    WAIT = 5  # it was heard; so many pages of it have come


class NodeAnswer(NamedTuple):
    """The answer to one request."""

    what: Told
    service: int
    epoch: int  # from which it holds
    numbers: Runs = ()
    text: str = ""
    pages: int = 0


def encode_answer(answer: NodeAnswer) -> bytes:
    writer = Writer().u8(answer.what).u64(answer.service).u64(answer.epoch)
    if answer.what is Told.NUMBERS:
        write_runs(writer, answer.numbers)
    elif answer.what is Told.REFUSED:
        writer.text(answer.text)
    elif answer.what is Told.WAIT:
        writer.u16(answer.pages)
    return writer.bytes()


def decode_answer(body: Buffer) -> NodeAnswer:
    reader = Reader(memoryview(body))
    code, service, epoch = reader.u8(), reader.u64(), reader.number()
    try:
        answer = NodeAnswer(Told(code), service, epoch)
    except ValueError as error:
        raise WireError("an unknown answer") from error
    if answer.what is Told.NUMBERS:
        answer = answer._replace(numbers=read_runs(reader, is_rising=False))
    elif answer.what is Told.REFUSED:
        answer = answer._replace(text=reader.text(MAX_TEXT))
    elif answer.what is Told.WAIT:
        answer = answer._replace(pages=reader.u16())
    reader.end()
    return answer


# Small ones. ---------------------------------------------------------------------------------------------------------


class NodeStanding(NamedTuple):
    """The body of PONG and OUT: which service, and an epoch of the node, or of the service."""

    service: int
    epoch: int


def encode_standing(standing: NodeStanding) -> bytes:
    return STANDING.pack(*standing)


def decode_standing(body: Buffer) -> NodeStanding:
    if len(body) != STANDING.size:
        raise WireError("a word of the service of odd size")
    standing = NodeStanding(*STANDING.unpack_from(body))
    if standing.epoch > MAX_NUMBER:
        raise WireError("epoch out of range")
    return standing


# Batches: what replicas order. ---------------------------------------------------------------------------------------


class EpochOperation(NamedTuple):
    """One request of a batch, with who asked (0: the service itself) and its number."""

    node: int
    number: int
    request: NodeRequest


class EpochBatch(NamedTuple):
    """What makes one epoch. `epoch` is the one that it makes: a batch that comes too late makes none."""

    epoch: int
    leader: str
    operations: tuple[EpochOperation, ...]


def encode_batch(batch: EpochBatch) -> bytes:
    if len(batch.operations) > MAX_BATCH:
        raise InvariantViolation(f"a batch of {len(batch.operations)} requests is to be sent")
    writer = Writer().u64(batch.epoch).text(batch.leader).u32(len(batch.operations))
    for node, number, request in batch.operations:
        body = encode_request(request)
        writer.u64(node).u64(number).u32(len(body)).raw(body)
    return writer.bytes()


def decode_batch(body: Buffer) -> EpochBatch:
    reader = Reader(memoryview(body))
    epoch, leader, count = reader.number(), reader.text(MAX_TEXT), reader.count(20)
    if count > MAX_BATCH:
        raise WireError("too many requests in a batch")
    operations = []
    for _ in range(count):
        node, number = reader.u64(), reader.number()
        operations.append(EpochOperation(node, number, decode_request(reader.raw(reader.count(1)))))
    reader.end()
    return EpochBatch(epoch, leader, tuple(operations))
