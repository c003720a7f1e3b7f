"""Bodies of the frames that a client sends to its daemon (docs/protocol-client.md). Everything read is checked.

A SEND frame is a block as `wire/block.py` has it, with *handles* where groups have their numbers: a client gives each
group that it names a handle of its own, by JOIN or NAME. The first number, the label and what a block comes after are
filled in by the daemon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ordercast.config import MAX_GROUP_NAME, MAX_HEADER
from ordercast.errors import WireError
from ordercast.service import RANK_NAMES, RESILIENT_RANK, Service
from ordercast.wire.block import MAX_COUNT
from ordercast.wire.codec import U32, Reader, Writer
from ordercast.wire.frames import MAGIC, FrameKind, frame
from ordercast.wire.labels import MAX_LABEL

SECRET_BYTES: Final = 16
"""By which a client that has lost its connection is known again."""

MAX_WINDOW: Final = 16 << 20
"""Bytes of events that a client may have under way and not consumed."""

MAX_QUERY: Final = 1_024
"""Bytes of what a query asks for."""

FLUSH_RANK: Final = 255
"""In place of a service: wait for everything before `stop`."""


class ClientHello(NamedTuple):
    """HELLO: the first frame of a connection."""

    version: int
    label: str  # empty: the daemon chooses one
    secret: bytes  # of an earlier session of this client, which this one replaces; else empty
    window: int  # bytes of events that may be under way


class GroupHandles(NamedTuple):
    """JOIN and NAME: groups, and the handles by which the client means them from here on."""

    header: bytes  # of the joins; empty for NAME
    groups: tuple[tuple[int, str], ...]


class LeaveHandles(NamedTuple):
    """LEAVE."""

    header: bytes
    handles: tuple[int, ...]


class WatchRange(NamedTuple):
    """WATCH: tell when own messages [first, stop) are delivered. It comes before the SEND frames that it is about."""

    first: int
    stop: int
    service: Service | None  # None: a flush, of everything before `stop`


class Question(NamedTuple):
    """QUERY: something about the daemon."""

    id: int
    what: str
    argument: str


def encode_hello(hello: ClientHello) -> bytes:
    writer = Writer().raw(MAGIC).u16(hello.version).text(hello.label).blob(hello.secret).u32(hello.window)
    return frame(FrameKind.HELLO, writer.bytes())


def decode_hello(body: bytes) -> ClientHello:
    """A later version may have more behind its window: that is for who understands it."""
    reader = Reader(body)
    if reader.raw(len(MAGIC)) != MAGIC:
        raise WireError("this is no client of Ordercast: the first frame is to be a HELLO")
    version, label, secret, window = reader.u16(), reader.text(MAX_LABEL), reader.blob(SECRET_BYTES), reader.u32()
    if secret and len(secret) != SECRET_BYTES:
        raise WireError(f"a secret has {SECRET_BYTES} bytes")
    if not 0 < window <= MAX_WINDOW:
        raise WireError(f"a window has 1 to {MAX_WINDOW} bytes")
    return ClientHello(version, label, secret, window)


def encode_join(groups: Sequence[tuple[int, str]], header: bytes = b"") -> bytes:
    return frame(FrameKind.JOIN, _handles(Writer().blob(header), groups))


def decode_join(body: bytes) -> GroupHandles:
    reader = Reader(body)
    header = reader.blob(MAX_HEADER)
    return GroupHandles(header, _take_handles(reader))


def encode_name(groups: Sequence[tuple[int, str]]) -> bytes:
    return frame(FrameKind.NAME, _handles(Writer(), groups))


def decode_name(body: bytes) -> GroupHandles:
    return GroupHandles(b"", _take_handles(Reader(body)))


def encode_leave(handles: Sequence[int], header: bytes = b"") -> bytes:
    writer = Writer().blob(header).u32(len(handles))
    for handle in handles:
        writer.u32(handle)
    return frame(FrameKind.LEAVE, writer.bytes())


def decode_leave(body: bytes) -> LeaveHandles:
    reader = Reader(body)
    header = reader.blob(MAX_HEADER)
    handles = tuple([reader.u32() for _ in range(reader.count(U32.size))])
    reader.end()
    return LeaveHandles(header, handles)


def encode_send(block: bytes) -> bytes:
    return frame(FrameKind.SEND, block)


def encode_watch(watch: WatchRange) -> bytes:
    rank, k = (watch.service.rank, watch.service.k) if watch.service is not None else (FLUSH_RANK, 0)
    return frame(FrameKind.WATCH, Writer().u64(watch.first).u64(watch.stop).u8(rank).u8(k).bytes())


def decode_watch(body: bytes) -> WatchRange:
    reader = Reader(body)
    first, stop = reader.number(), reader.number()
    service = take_service(reader)
    reader.end()
    if stop < first or (service is not None and stop == first):
        raise WireError("a watch of no messages")
    return WatchRange(first, stop, service)


def encode_consumed(total: int) -> bytes:
    """`total`: bytes of all event frames that the application has finished with, since the connection began."""
    return frame(FrameKind.CONSUMED, Writer().u64(total).bytes())


def encode_ping(number: int, kind: FrameKind = FrameKind.PING) -> bytes:
    return frame(kind, Writer().u64(number).bytes())


def decode_count(body: bytes) -> int:
    """The one number of a CONSUMED, PING or PONG frame."""
    reader = Reader(body)
    number = reader.number()
    reader.end()
    return number


def encode_query(question: Question) -> bytes:
    return frame(FrameKind.QUERY, Writer().u32(question.id).text(question.what).text(question.argument).bytes())


def decode_query(body: bytes) -> Question:
    reader = Reader(body)
    question = Question(reader.u32(), reader.text(MAX_QUERY), reader.text(MAX_QUERY))
    reader.end()
    return question


def take_service(reader: Reader) -> Service | None:
    """A rank and a k; None: FLUSH_RANK."""
    rank, k = reader.u8(), reader.u8()
    if rank == FLUSH_RANK and not k:
        return None
    if rank >= len(RANK_NAMES) or (k and rank != RESILIENT_RANK):
        raise WireError("no service has this rank")
    return Service(rank, k)


def _handles(writer: Writer, groups: Sequence[tuple[int, str]]) -> bytes:
    writer.u32(len(groups))
    for handle, name in groups:
        writer.u32(handle).text(name)
    return writer.bytes()


def _take_handles(reader: Reader) -> tuple[tuple[int, str], ...]:
    groups = tuple([(reader.u32(), reader.text(MAX_GROUP_NAME)) for _ in range(reader.count(U32.size + 2))])
    reader.end()
    if len(groups) > MAX_COUNT or any(not name or not handle for handle, name in groups):
        raise WireError("a group has a name and a handle above 0")
    return groups
