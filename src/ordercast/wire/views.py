"""Bodies of the membership datagrams: views, welcomes, cuts, ballots and results (docs/design/membership.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address
from struct import Struct
from typing import Final, NamedTuple

from ordercast.config import (
    MAX_FLOW_NAME,
    MAX_GROUP_NAME,
    MAX_HEADER,
    MAX_MEMBERS,
    Demands,
    GroupConfig,
    MinMembers,
)
from ordercast.errors import UsageError, WireError
from ordercast.view import Address, Member, Reason, View, node_id
from ordercast.wire.block import CHANGE, ENTRY, ENTRY_BYTES, HEAD, HEAD_BYTES, head_of
from ordercast.wire.codec import MAX_NUMBER, U64, Reader, Writer
from ordercast.wire.ordering import ASSIGNMENT, Assignment, decode_assignments

MAX_ORIGINS: Final = 4_096
MAX_LOCKS: Final = 1_024  # held at a time; beyond it all are denied
MAX_LOCK_NAME: Final = 255
CHANGES_KEPT: Final = 32  # views that were read out of blocks; the one that was asked for longest ago goes first
MAX_CUT: Final = 262_144  # blocks that one cut may name
MAX_DEMANDS: Final = 2  # of one member's resets: a number and a word, the weakest of each
NUMBER: Final = Struct("<QQ")
HOLD: Final = Struct("<QQI")  # origin, first number, count
BALLOT: Final = Struct("<IQHQ")  # round, highest sequence number, 65535 - member number, node id
if (NUMBER.size, HOLD.size, BALLOT.size) != (16, 20, 22):
    raise AssertionError("membership structures have fixed sizes on the wire")

MAX_ROUND: Final = 1 << 30  # of a recovery; there is at most one a second or so
MAJORITY_CODE: Final = 0xFFFF
ALL_CODE: Final = 0xFFFE
NO_LIMIT: Final = 0xFFFF_FFFF_FFFF_FFFF


class Ballot(NamedTuple):
    """Compared as a tuple: a later round, then Amoeba's rule (highest sequence number, then lowest member number)."""

    round: int
    highest: int
    seniority: int  # 65535 - member number
    node: int


NO_BALLOT: Final = Ballot(0, 0, 0, 0)


class Ring(NamedTuple):
    """A ring as it shows itself to newcomers and to other rings of its name."""

    name: str  # of the underlay
    ring: int
    counter: int
    creator: str
    size: int
    is_working: bool
    leader: Member
    config: GroupConfig


class Asking(NamedTuple):
    """A newcomer's FIND or JOIN. `nonce` tells the answer to this attempt from late answers to earlier ones."""

    name: str  # of the underlay
    member: Member
    nonce: int
    tries: int
    next_block: int
    demands: Demands
    header: bytes
    callers: Mapping[int, int] = {}  # calls from outside below these numbers were delivered to it in another ring


class Proposal(NamedTuple):
    """The value that a recovery agrees on. `fresh`: all members of the view must accept it before it is committed."""

    ballot: Ballot
    fresh: bool
    start: int  # sequence numbers in (start, view.seq) are the agreed remainder
    assignments: tuple[Assignment, ...]
    view: View


class ResetDemand(NamedTuple):
    """What a caller of `reset` asked for: how many members the new view must have, and the header that it brings."""

    rule: MinMembers
    header: bytes


class Cut(NamedTuple):
    """What one member holds of the old ring when ordering stops."""

    received: int  # every sequence number up to and including this is known, and its block held
    decided: int  # the last change that is known here to be decided; 0: none
    assignments: tuple[Assignment, ...]  # beyond `received`
    held: tuple[tuple[int, int, int], ...]  # (origin, first number, count) not below the origin's next number
    view: View  # as of `received`
    next_block: int  # its own blocks below this are out: those without a sequence number will come again
    accepted: Proposal | None
    demands: tuple[ResetDemand, ...] = ()  # of its own calls of `reset` that are under way


def encode_member(writer: Writer, member: Member) -> None:
    writer.text(member.name).i64(member.life).raw(encode_address(member.address)).u32(member.buffer_bytes)
    writer.u8(member.has_multicast).u8(member.ttl).u16(rule_code(member.min_members))


def decode_member(reader: Reader) -> Member:
    name, life, address = reader.text(255), reader.i64(), take_address(reader)
    buffer_bytes, has_multicast, ttl = reader.u32(), bool(reader.u8()), reader.u8()
    return Member(node_id(name, life), name, life, address, buffer_bytes, has_multicast, ttl, rule_of(reader.u16()))


def encode_address(address: Address) -> bytes:
    return Writer().text(address[0]).u16(address[1]).bytes()


def decode_address(body: bytes | memoryview) -> Address:
    reader = Reader(body)
    address = take_address(reader)
    reader.end()
    return address


def take_address(reader: Reader) -> Address:
    address: Address = (reader.text(255), reader.u16())
    try:
        # A name would have to be looked up where it is used, and its sender would choose what is asked.
        IPv4Address(address[0])
    except AddressValueError as error:
        raise WireError("a node's address is no IPv4 address") from error
    if not address[1]:
        raise WireError("a node has no port")
    return address


def encode_config(writer: Writer, config: GroupConfig) -> None:
    writer.text(config.orderer).u8(config.resilience).u16(config.max_members).u64(config.history_bytes)
    writer.u32(config.history_blocks).u64(config.max_message).u32(config.datagram).text(config.flow)
    writer.u8(config.anticipate | config.shared << 1)


def decode_config(reader: Reader) -> GroupConfig:
    orderer, resilience, max_members, history_bytes = reader.text(64), reader.u8(), reader.u16(), reader.u64()
    history_blocks, max_message, datagram = reader.u32(), reader.u64(), reader.u32()
    flow, flags = reader.text(MAX_FLOW_NAME), reader.u8()
    if flags > 3:
        raise WireError("group parameters out of range")
    anticipate, shared = bool(flags & 1), bool(flags & 2)
    try:
        return GroupConfig(
            orderer,
            resilience,
            max_members,
            history_bytes,
            history_blocks,
            max_message,
            datagram,
            flow,
            anticipate,
            shared,
        )
    except UsageError as error:
        raise WireError("group parameters out of range") from error


def encode_view(view: View) -> bytes:
    writer = Writer().u64(view.counter).text(view.creator).u64(view.ring).u32(view.incarnation)
    writer.u64(view.seq).u64(view.position).u8(view.reason).text(view.subject).blob(view.header)
    writer.u16(len(view.members))
    for member in view.members:
        encode_member(writer, member)
    writer.u16(len(view.prior))
    for origin, rule in zip(view.prior, view.prior_rules, strict=True):
        writer.u64(origin).u16(rule_code(rule))
    for numbers in (view.numbers, view.callers, view.awaited):
        put_numbers(writer, numbers)
    writer.text(view.lock).u64(view.serial).u16(len(view.locks))
    for lock in sorted(view.locks):
        writer.text(lock).u64(view.locks[lock])
    return writer.bytes()


def decode_view(reader: Reader) -> View:
    counter, creator, ring, incarnation = reader.number(), reader.text(600), reader.u64(), reader.u32()
    seq, position, reason = reader.number(), reader.number(), reader.u8()
    subject, header = reader.text(600), reader.blob(MAX_HEADER)
    if reason > max(Reason):
        raise WireError("unknown reason of a view")
    count = reader.u16()
    if not 0 < count <= MAX_MEMBERS:
        raise WireError("number of members out of range")
    members = tuple(decode_member(reader) for _ in range(count))
    count = reader.u16()
    if count > MAX_MEMBERS:
        raise WireError("number of members out of range")
    before = [(reader.u64(), rule_of(reader.u16())) for _ in range(count)]
    prior, prior_rules = tuple(origin for origin, _ in before), tuple(rule for _, rule in before)
    numbers, callers, awaited = take_numbers(reader), take_numbers(reader), take_numbers(reader)
    changed, serial = reader.text(MAX_LOCK_NAME), reader.u64()
    count = reader.u16()
    if count > MAX_LOCKS:
        raise WireError("too many locks")
    locks = {}
    for _ in range(count):
        lock = reader.text(MAX_LOCK_NAME)
        locks[lock] = reader.u64()
    if len({member.id for member in members}) != len(members):
        raise WireError("a member twice in a view")
    return View(
        counter,
        creator,
        ring,
        incarnation,
        seq,
        position,
        members,
        numbers,
        Reason(reason),
        subject,
        header,
        prior,
        prior_rules,
        locks=locks,
        callers=callers,
        awaited=awaited,
        lock=changed,
        serial=serial,
    )


def put_numbers(writer: Writer, numbers: Mapping[int, int]) -> None:
    writer.u32(len(numbers))
    for origin in sorted(numbers):
        writer.pack(NUMBER, origin, numbers[origin])


def take_numbers(reader: Reader) -> dict[int, int]:
    """Block numbers by origin."""
    count = reader.count(NUMBER.size)
    if count > MAX_ORIGINS:
        raise WireError("too many origins")
    numbers = {}
    for _ in range(count):
        origin = reader.u64()
        numbers[origin] = reader.number()
    return numbers


def pack_change(view: View) -> bytes:
    """A view as a block of the log."""
    return HEAD.pack(0, 0, 0, 0, CHANGE, 1) + ENTRY.pack(0, 0, 0, 0) + encode_view(view)


@lru_cache(maxsize=CHANGES_KEPT)
def open_change(block: bytes) -> View:
    """The view in a block of the log. A member asks several times for each, and reading a large view takes long."""
    if not head_of(block).flags & CHANGE:
        raise WireError("not a change")
    reader = Reader(memoryview(block), HEAD_BYTES + ENTRY_BYTES)
    view = decode_view(reader)
    reader.end()
    return view


def encode_asking(asking: Asking) -> bytes:
    writer = Writer().text(asking.name)
    encode_member(writer, asking.member)
    writer.u64(asking.nonce).u8(min(asking.tries, 255)).u64(asking.next_block)
    demands = asking.demands
    for limit in (demands.max_members, demands.history_bytes, demands.max_message, demands.history_blocks):
        writer.u64(NO_LIMIT if limit is None else limit)
    writer.blob(asking.header)
    put_numbers(writer, asking.callers)
    return writer.bytes()


def decode_asking(body: bytes | memoryview) -> Asking:
    reader = Reader(body)
    name, member = reader.text(MAX_GROUP_NAME), decode_member(reader)
    nonce, tries, next_block = reader.u64(), reader.u8(), reader.number()
    limits = [None if limit == NO_LIMIT else limit for limit in [reader.u64() for _ in range(4)]]
    demands, header = Demands(*limits), reader.blob(MAX_HEADER)
    asking = Asking(name, member, nonce, tries, next_block, demands, header, take_numbers(reader))
    reader.end()
    return asking


def encode_ring(ring: Ring) -> bytes:
    writer = Writer().text(ring.name).u64(ring.ring).u64(ring.counter).text(ring.creator).u16(ring.size)
    writer.u8(ring.is_working)
    encode_member(writer, ring.leader)
    encode_config(writer, ring.config)
    return writer.bytes()


def decode_ring(body: bytes | memoryview) -> Ring:
    reader = Reader(body)
    name, ring, counter = reader.text(MAX_GROUP_NAME), reader.u64(), reader.number()
    creator, size, is_working = reader.text(600), reader.u16(), bool(reader.u8())
    found = Ring(name, ring, counter, creator, size, is_working, decode_member(reader), decode_config(reader))
    reader.end()
    return found


def encode_welcome(name: str, nonce: int, config: GroupConfig, view: View) -> bytes:
    writer = Writer().text(name).u64(nonce)
    encode_config(writer, config)
    return writer.raw(encode_view(view)).bytes()


def decode_welcome(body: bytes | memoryview) -> tuple[str, int, GroupConfig, View]:
    reader = Reader(body)
    welcome = reader.text(MAX_GROUP_NAME), reader.u64(), decode_config(reader), decode_view(reader)
    reader.end()
    return welcome


def encode_refusal(name: str, text: str) -> bytes:
    return Writer().text(name).text(text).bytes()


def decode_refusal(body: bytes | memoryview) -> tuple[str, str]:
    reader = Reader(body)
    return reader.text(MAX_GROUP_NAME), reader.text(1_024)


def encode_ballot(ballot: Ballot) -> bytes:
    return BALLOT.pack(*ballot)


def decode_ballot(body: bytes | memoryview) -> Ballot:
    reader = Reader(body)
    ballot = take_ballot(reader)
    reader.end()
    return ballot


def encode_check(ballot: Ballot, answered: Sequence[int] = ()) -> bytes:
    """A question whether the coordinator is alive; its answer names the members that have answered it."""
    return encode_ballot(ballot) + b"".join(map(U64.pack, answered))


def decode_check(body: bytes | memoryview) -> tuple[Ballot, tuple[int, ...]]:
    reader = Reader(body)
    ballot = take_ballot(reader)
    if reader.left % U64.size or reader.left > MAX_MEMBERS * U64.size:
        raise WireError("a check of odd size")
    return ballot, tuple([reader.u64() for _ in range(reader.left // U64.size)])


def take_ballot(reader: Reader) -> Ballot:
    ballot = Ballot(*reader.unpack(BALLOT))
    if ballot.round > MAX_ROUND or ballot.highest > MAX_NUMBER:
        raise WireError("a ballot out of range")
    return ballot


def encode_suspects(suspects: list[int]) -> bytes:
    writer = Writer().u16(len(suspects))
    for member in suspects:
        writer.u64(member)
    return writer.bytes()


def decode_suspects(body: bytes | memoryview) -> list[int]:
    reader = Reader(body)
    count = reader.u16()
    if count > MAX_MEMBERS:
        raise WireError("number of members out of range")
    suspects = [reader.u64() for _ in range(count)]
    reader.end()
    return suspects


def encode_proposal(writer: Writer, proposal: Proposal) -> None:
    writer.pack(BALLOT, *proposal.ballot).u8(proposal.fresh).u64(proposal.start).u32(len(proposal.assignments))
    for assignment in proposal.assignments:
        writer.pack(ASSIGNMENT, *assignment)
    writer.raw(encode_view(proposal.view))


def decode_proposal(reader: Reader) -> Proposal:
    ballot, fresh, start = take_ballot(reader), bool(reader.u8()), reader.number()
    assignments = tuple(decode_assignments(reader, reader.count(ASSIGNMENT.size)))
    return Proposal(ballot, fresh, start, assignments, decode_view(reader))


def encode_result(ballot: Ballot, proposal: Proposal) -> bytes:
    writer = Writer().pack(BALLOT, *ballot)
    encode_proposal(writer, proposal)
    return writer.bytes()


def decode_result(body: bytes | memoryview) -> tuple[Ballot, Proposal]:
    reader = Reader(body)
    ballot, proposal = take_ballot(reader), decode_proposal(reader)
    reader.end()
    return ballot, proposal


def encode_cut(ballot: Ballot, cut: Cut) -> bytes:
    writer = Writer().pack(BALLOT, *ballot).u64(cut.received).u64(cut.decided).u32(len(cut.assignments))
    for assignment in cut.assignments:
        writer.pack(ASSIGNMENT, *assignment)
    writer.u32(len(cut.held))
    for held in cut.held:
        writer.pack(HOLD, *held)
    writer.raw(encode_view(cut.view)).u64(cut.next_block).u8(cut.accepted is not None)
    if cut.accepted is not None:
        encode_proposal(writer, cut.accepted)
    writer.u8(len(cut.demands))
    for demand in cut.demands:
        writer.u16(rule_code(demand.rule)).blob(demand.header)
    return writer.bytes()


def decode_cut(body: bytes | memoryview) -> tuple[Ballot, Cut]:
    reader = Reader(body)
    ballot, received, decided = take_ballot(reader), reader.number(), reader.number()
    assignments = tuple(decode_assignments(reader, reader.count(ASSIGNMENT.size)))
    held = []
    total = 0
    for _ in range(reader.count(HOLD.size)):
        origin, first, count = reader.unpack(HOLD)
        if first > MAX_NUMBER:
            raise WireError("a block number out of range")
        total += count
        held.append((origin, first, count))
    if total + sum(assignment.count for assignment in assignments) > MAX_CUT:
        raise WireError("cut names too many blocks")
    view, next_block = decode_view(reader), reader.number()
    accepted = decode_proposal(reader) if reader.u8() else None
    count = reader.u8()
    if count > MAX_DEMANDS:
        raise WireError("too many demands of resets")
    demands = tuple(ResetDemand(rule_of(reader.u16()), reader.blob(MAX_HEADER)) for _ in range(count))
    reader.end()
    return ballot, Cut(received, decided, assignments, tuple(held), view, next_block, accepted, demands)


def encode_invite(ballot: Ballot, rule: MinMembers, is_override: bool, header: bytes) -> bytes:
    return Writer().pack(BALLOT, *ballot).u16(rule_code(rule)).u8(is_override).blob(header).bytes()


def decode_invite(body: bytes | memoryview) -> tuple[Ballot, MinMembers, bool, bytes]:
    reader = Reader(body)
    ballot, rule = take_ballot(reader), rule_of(reader.u16())
    invite = ballot, rule, bool(reader.u8()), reader.blob(MAX_HEADER)
    reader.end()
    return invite


def rule_code(rule: MinMembers) -> int:
    if isinstance(rule, int):
        return min(rule, ALL_CODE - 1)
    return MAJORITY_CODE if rule == "majority" else ALL_CODE


def rule_of(code: int) -> MinMembers:
    if code == MAJORITY_CODE:
        return "majority"
    return "all" if code == ALL_CODE else code


def encode_decision(seq: int, asks: bool = False) -> bytes:
    """What VOTE, DECIDED and DEPART say: the sequence number of a change. `asks`: the sender waits for an answer."""
    return Writer().u64(seq).u8(asks).bytes()


def decode_decision(body: bytes | memoryview) -> tuple[int, bool]:
    reader = Reader(body)
    decision = reader.number(), bool(reader.u8())
    reader.end()
    return decision


def encode_withdrawal(name: str, nonces: Sequence[int], is_answer: bool) -> bytes:
    """A newcomer takes its attempts back; as an answer: they will not be ordered."""
    writer = Writer().text(name).u8(is_answer).u8(len(nonces))
    for nonce in nonces:
        writer.u64(nonce)
    return writer.bytes()


def decode_withdrawal(body: bytes | memoryview) -> tuple[str, list[int], bool]:
    reader = Reader(body)
    name = reader.text(MAX_GROUP_NAME)
    is_answer = reader.u8() != 0
    nonces = [reader.u64() for _ in range(reader.u8())]
    reader.end()
    return name, nonces, is_answer


def encode_ended(name: str) -> bytes:
    return Writer().text(name).bytes()


def decode_ended(body: bytes | memoryview) -> str:
    reader = Reader(body)
    name = reader.text(MAX_GROUP_NAME)
    reader.end()
    return name
