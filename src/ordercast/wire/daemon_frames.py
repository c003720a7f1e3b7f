"""Bodies of the frames that a daemon sends to its clients (docs/protocol-client.md). Everything read is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ordercast.config import MAX_GROUP_NAME, MAX_HEADER, GroupConfig
from ordercast.engine import Failed, StallReason, Transitional
from ordercast.errors import WireError
from ordercast.service import RANK_NAMES, RESILIENT_RANK, Service
from ordercast.view import Member, Reason, View
from ordercast.wire.client_frames import FLUSH_RANK, SECRET_BYTES, take_service
from ordercast.wire.codec import Reader, Writer
from ordercast.wire.frames import FrameKind, frame, frame_of
from ordercast.wire.labels import MAX_LABEL
from ordercast.wire.views import decode_config, decode_member, encode_config, encode_member

DELIVERY: Final = Struct("<Hq")  # bytes of the names, position
MAX_TEXT: Final = 4_096
MAX_ID: Final = 1_024  # bytes of a view's id, or of a member
MAX_HEADS: Final = 4_096
MAX_RECORDS: Final = 1 << 17  # members that are remembered
MAX_TABLES: Final = 1_024  # groups whose last members are remembered
_REASONS: Final = frozenset(Reason)
_STALLS: Final = tuple(StallReason)


class Refusal(IntEnum):
    """Why a daemon takes no session; the text of the frame says more."""

    VERSION = 1
    LABEL_TAKEN = 2  # try again: an earlier session of the label may just be leaving
    FULL = 3
    USAGE = 4
    NOT_READY = 5  # the daemon has no view yet: try again


class SendOutcome(IntEnum):
    """What became of messages that a client watched."""

    DELIVERED = 0
    UNKNOWN = 1
    NOT_MEMBER = 2
    FAILED = 3


class Welcome(NamedTuple):
    """WELCOME: the session is open."""

    version: int
    label: str
    daemon: Member  # the session is label@name/life of it
    underlay: str
    config: GroupConfig
    ranks: int  # bit n: services of rank n are given
    next_number: int  # of the session's next message
    credit: int  # bytes of SEND frames that may come, since the connection began
    block_bytes: int  # the largest block that is worth sending
    secret: bytes
    has_locks: bool = False  # and handlers and calls; never in version 1


class Delivered(NamedTuple):
    """DELIVER: a block as it travelled. `groups`: the names of its groups by the numbers that it has for them."""

    position: int
    view: str
    sender: str
    groups: Mapping[int, str]
    block: bytes


class LeftNotice(NamedTuple):
    """LEFT, as the event of the API has it."""

    wanted: bool
    returning: bool
    text: str
    group: str


class UncertainNotice(NamedTuple):
    """UNCERTAIN, likewise."""

    first: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed
    group: str
    text: str


class StallNotice(NamedTuple):
    """STALLED, likewise; `seconds`: for how long it has stood still."""

    reason: StallReason
    waiting_for: tuple[str, ...]
    seconds: float
    text: str
    have: int
    need: int


class Credit(NamedTuple):
    """CREDIT: how much may come, and how much of what came is delivered."""

    total: int  # bytes of SEND frames, since the connection began
    delivered: int  # own messages below this number


class Confirmation(NamedTuple):
    """CONFIRM: what became of a WATCH."""

    first: int
    stop: int
    service: Service | None
    outcome: SendOutcome
    position: int
    text: str


class QueryReply(NamedTuple):
    """ANSWER: to the QUERY of the same id, as JSON."""

    id: int
    text: str


def encode_welcome_frame(welcome: Welcome) -> bytes:
    writer = Writer().u16(welcome.version).text(welcome.label)
    encode_member(writer, welcome.daemon)
    writer.text(welcome.underlay)
    encode_config(writer, welcome.config)
    writer.u8(welcome.ranks).u64(welcome.next_number).u64(welcome.credit).u32(welcome.block_bytes)
    writer.blob(welcome.secret)
    if welcome.version > 1:
        writer.u8(int(welcome.has_locks))
    return frame(FrameKind.WELCOME, writer.bytes())


def decode_welcome_frame(body: bytes) -> Welcome:
    reader = Reader(body)
    version, label, daemon = reader.u16(), reader.text(MAX_LABEL), decode_member(reader)
    underlay, config = reader.text(MAX_GROUP_NAME), decode_config(reader)
    ranks, number, credit, block_bytes = reader.u8(), reader.number(), reader.number(), reader.u32()
    secret, has_locks = reader.blob(SECRET_BYTES), bool(reader.u8() & 1) if version > 1 else False
    return Welcome(version, label, daemon, underlay, config, ranks, number, credit, block_bytes, secret, has_locks)


def encode_refused(code: Refusal, text: str) -> bytes:
    return frame(FrameKind.REFUSED, Writer().u8(code).text(short_text(text)).bytes())


def decode_refused(body: bytes) -> tuple[int, str]:
    """A code that is not known is one of a later version."""
    reader = Reader(body)
    return reader.u8(), reader.text(MAX_TEXT)


def delivery_names(view: str, sender: str, groups: Mapping[int, str]) -> bytes:
    """What the deliveries of one sender to one group have in common."""
    writer = Writer().text(view).text(sender).u16(len(groups))
    for number, name in groups.items():
        writer.u32(number).text(name)
    return writer.bytes()


def encode_deliver(names: bytes, position: int, block: bytes) -> bytes:
    """Hot: once for each block, whatever the number of clients that get it."""
    return frame_of(FrameKind.DELIVER, [DELIVERY.pack(len(names), position), names, block])


class DeliveryReader:
    """Reads DELIVER frames of one connection. What many of them have in common is read once."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[bytes, tuple[str, str, Mapping[int, str]]] = {}  # MAX_HEADS bounds it

    def read(self, body: bytes) -> Delivered:
        """Hot: once for each block."""
        if len(body) < DELIVERY.size:
            raise WireError("a delivery without its head")
        size, position = DELIVERY.unpack_from(body)
        at = DELIVERY.size + size
        names = body[DELIVERY.size : at]
        head = self._heads.get(names)
        if head is None:
            if len(names) < size:
                raise WireError("a delivery without its names")
            head = _read_names(names)
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[names] = head
        view, sender, groups = head
        return Delivered(position, view, sender, groups, body[at:])


def _read_names(names: bytes) -> tuple[str, str, Mapping[int, str]]:
    reader = Reader(names)
    view, sender = reader.text(MAX_ID), reader.text(MAX_ID)
    groups = {reader.u32(): reader.text(MAX_GROUP_NAME) for _ in range(reader.u16())}
    reader.end()
    if not groups:
        raise WireError("a delivery to no group")
    return view, sender, groups


class ViewWriter:
    """Writes VIEW frames. The record of a member is made once: a large group has many views with the same ones."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: dict[int, tuple[str, bytes]] = {}  # member id -> name and record; MAX_RECORDS bounds it

    def frame(self, view: View) -> bytes:
        writer = Writer().text(view.group).u64(view.counter).text(view.creator).u64(view.ring).u32(view.incarnation)
        writer.i64(view.seq).i64(view.position).u8(view.reason).text(view.subject).blob(view.header)
        records = [self._record(member) for member in view.members]
        table = b"".join([record for _, record in records])
        writer.u32(len(records)).u32(len(table)).raw(table)
        came_with = dict.fromkeys(view.came_with)
        bits = bytearray(-(-len(records) // 8))
        for at, (name, _) in enumerate(records):
            if name in came_with:
                bits[at >> 3] |= 1 << (at & 7)
                del came_with[name]
        writer.raw(bytes(bits))
        _put_texts(writer, list(came_with))
        writer.u16(len(view.components))
        for component in view.components:
            _put_texts(writer, component)
        writer.u16(len(view.locks))
        for lock, holder in view.locks.items():
            writer.text(lock).u64(holder).u64(view.tokens.get(lock, 0))
        if view.lock:
            writer.text(view.lock)
        return frame(FrameKind.VIEW, writer.bytes())

    def _record(self, member: Member) -> tuple[str, bytes]:
        found = self._records.get(member.id)
        if found is None:
            if len(self._records) >= MAX_RECORDS:
                self._records.clear()
            writer = Writer().text(member.label)
            encode_member(writer, member)
            found = self._records[member.id] = (str(member), Writer().blob(writer.bytes()).bytes())
        return found


class MemberTable(NamedTuple):
    """The members of a view, as they came and as they are."""

    data: bytes
    members: tuple[Member, ...]
    names: tuple[str, ...]


_EMPTY: Final = MemberTable(b"", (), ())


class ViewReader:
    """Reads VIEW frames of one connection. The record of a member is read once; where members were only added to those
    of the last view of a group, the others are not looked at again."""

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Member, str]] = {}  # by record; MAX_RECORDS bounds it
        self._last: dict[str, MemberTable] = {}  # by group; MAX_TABLES bounds it

    def read(self, body: bytes) -> View:
        reader = Reader(body)
        group, counter, creator = reader.text(MAX_GROUP_NAME), reader.u64(), reader.text(MAX_ID)
        ring, incarnation, seq, position = reader.u64(), reader.u32(), reader.i64(), reader.i64()
        reason, subject, header = reader.u8(), reader.text(MAX_ID), reader.blob(MAX_HEADER)
        if reason not in _REASONS:
            raise WireError("unknown reason of a view")
        count, size = reader.u32(), reader.u32()
        table = self._table(group, reader.raw(size))
        if len(table.members) != count:
            raise WireError("a view has another number of members than it says")
        bits = int.from_bytes(reader.raw(-(-count // 8)), "little")
        flags = f"{bits:0{count}b}"[::-1] if count else ""
        came_with = tuple([name for name, flag in zip(table.names, flags, strict=False) if flag == "1"])
        came_with += _take_texts(reader)
        components = tuple([_take_texts(reader) for _ in range(reader.u16())])
        locks, tokens = {}, {}
        for _ in range(reader.u16()):
            lock = reader.text(MAX_ID)
            locks[lock], tokens[lock] = reader.u64(), reader.u64()
        changed = reader.text(MAX_ID) if reader.left else ""
        reader.end()
        return View(
            counter,
            creator,
            ring,
            incarnation,
            seq,
            position,
            table.members,
            {},
            Reason(reason),
            subject,
            header,
            came_with=came_with,
            group=group,
            locks=locks,
            tokens=tokens,
            lock=changed,
            components=components,
        )

    def _table(self, group: str, data: bytes) -> MemberTable:
        last = self._last.get(group, _EMPTY)
        if not data.startswith(last.data):
            last = _EMPTY
        known, found, at, size = self._known, [], len(last.data), len(data)
        while at < size:
            if at + 2 > size:
                raise WireError("the record of a member is cut")
            stop = at + 2 + data[at] + (data[at + 1] << 8)
            if stop > size:
                raise WireError("the record of a member is cut")
            record = data[at:stop]
            found.append(known.get(record) or self._member(record))
            at = stop
        members = last.members + tuple([member for member, _ in found])
        table = MemberTable(data, members, last.names + tuple([name for _, name in found]))
        if len(self._last) >= MAX_TABLES:
            self._last.clear()
        self._last[group] = table
        return table

    def _member(self, record: bytes) -> tuple[Member, str]:
        reader = Reader(record, 2)
        label = reader.text(MAX_LABEL)
        member = decode_member(reader).session(label)
        reader.end()
        if len(self._known) >= MAX_RECORDS:
            self._known.clear()
        found = self._known[record] = (member, str(member))
        return found


def encode_transitional(signal: Transitional) -> bytes:
    writer = Writer().text(signal.view).text(signal.group)
    _put_texts(writer, signal.came_with)
    return frame(FrameKind.TRANSITIONAL, writer.bytes())


def decode_transitional(body: bytes) -> Transitional:
    reader = Reader(body)
    return Transitional(reader.text(MAX_ID), reader.text(MAX_GROUP_NAME), _take_texts(reader))


def encode_left(left: LeftNotice) -> bytes:
    flags = left.wanted | left.returning << 1
    return frame(FrameKind.LEFT, Writer().u8(flags).text(left.group).text(short_text(left.text)).bytes())


def decode_left(body: bytes) -> LeftNotice:
    reader = Reader(body)
    flags, group, text = reader.u8(), reader.text(MAX_GROUP_NAME), reader.text(MAX_TEXT)
    return LeftNotice(bool(flags & 1), bool(flags & 2), text, group)


def encode_uncertain(uncertain: UncertainNotice) -> bytes:
    writer = Writer().u64(uncertain.first).u64(uncertain.count).text(uncertain.group).text(short_text(uncertain.text))
    return frame(FrameKind.UNCERTAIN, writer.bytes())


def decode_uncertain(body: bytes) -> UncertainNotice:
    reader = Reader(body)
    first, count = reader.number(), reader.number()
    return UncertainNotice(first, count, reader.text(MAX_GROUP_NAME), reader.text(MAX_TEXT))


def encode_failed(failed: Failed) -> bytes:
    writer = Writer()
    _put_texts(writer, failed.suspects)
    return frame(FrameKind.FAILED, writer.text(short_text(failed.text)).bytes())


def decode_failed(body: bytes) -> Failed:
    reader = Reader(body)
    return Failed(_take_texts(reader), reader.text(MAX_TEXT))


def encode_stalled(stall: StallNotice) -> bytes:
    writer = Writer().u8(_STALLS.index(stall.reason)).u64(int(max(0.0, stall.seconds) * 1e6))
    _put_texts(writer, stall.waiting_for)
    return frame(FrameKind.STALLED, writer.text(short_text(stall.text)).u32(stall.have).u32(stall.need).bytes())


def decode_stalled(body: bytes) -> StallNotice:
    reader = Reader(body)
    reason, seconds, waiting_for = _take_stall(reader), reader.number() / 1e6, _take_texts(reader)
    return StallNotice(reason, waiting_for, seconds, reader.text(MAX_TEXT), reader.u32(), reader.u32())


def encode_resumed(reason: StallReason, seconds: float) -> bytes:
    return frame(FrameKind.RESUMED, Writer().u8(_STALLS.index(reason)).u64(int(max(0.0, seconds) * 1e6)).bytes())


def decode_resumed(body: bytes) -> tuple[StallReason, float]:
    reader = Reader(body)
    return _take_stall(reader), reader.number() / 1e6


def encode_credit(credit: Credit) -> bytes:
    return frame(FrameKind.CREDIT, Writer().u64(credit.total).u64(credit.delivered).bytes())


def decode_credit(body: bytes) -> Credit:
    reader = Reader(body)
    return Credit(reader.number(), reader.number())


def encode_confirm(confirmation: Confirmation) -> bytes:
    service = confirmation.service
    rank, k = (service.rank, service.k) if service is not None else (FLUSH_RANK, 0)
    writer = Writer().u64(confirmation.first).u64(confirmation.stop).u8(rank).u8(k).u8(confirmation.outcome)
    return frame(FrameKind.CONFIRM, writer.i64(confirmation.position).text(short_text(confirmation.text)).bytes())


def decode_confirm(body: bytes) -> Confirmation:
    reader = Reader(body)
    first, stop, service, outcome = reader.number(), reader.number(), take_service(reader), reader.u8()
    if outcome >= len(SendOutcome):
        raise WireError("unknown outcome of messages")
    return Confirmation(first, stop, service, SendOutcome(outcome), reader.i64(), reader.text(MAX_TEXT))


def encode_answer(reply: QueryReply) -> bytes:
    return frame(FrameKind.ANSWER, Writer().u32(reply.id).raw(reply.text.encode()).bytes())


def decode_answer(body: bytes) -> QueryReply:
    reader = Reader(body)
    number = reader.u32()
    try:
        return QueryReply(number, reader.rest().decode())
    except UnicodeDecodeError as error:
        raise WireError("an answer is not UTF-8") from error


def encode_close(why: str, text: str) -> bytes:
    return frame(FrameKind.CLOSE, Writer().text(why).text(short_text(text)).bytes())


def decode_close(body: bytes) -> tuple[str, str]:
    reader = Reader(body)
    return reader.text(MAX_ID), reader.text(MAX_TEXT)


def ranks_of(supports: Sequence[bool]) -> int:
    """Which services an underlay gives, as bits by their ranks."""
    return sum([1 << rank for rank, is_given in enumerate(supports) if is_given])


def supported(ranks: int, service: Service) -> bool:
    return bool(ranks >> service.rank & 1) and service.rank < len(RANK_NAMES)


def sample_services() -> list[Service]:
    """One service of each rank."""
    return [Service(rank, int(rank == RESILIENT_RANK)) for rank in range(len(RANK_NAMES))]


def _take_stall(reader: Reader) -> StallReason:
    number = reader.u8()
    if number >= len(_STALLS):
        raise WireError("unknown reason of a stall")
    return _STALLS[number]


def _put_texts(writer: Writer, texts: Sequence[str]) -> None:
    writer.u32(len(texts))
    for text in texts:
        writer.text(text)


def _take_texts(reader: Reader) -> tuple[str, ...]:
    return tuple([reader.text(MAX_ID) for _ in range(reader.count(2))])


def short_text(text: str) -> str:
    """At most MAX_TEXT bytes of it, and no half a character."""
    return text.encode(errors="replace")[:MAX_TEXT].decode(errors="ignore")
