"""Frames of locks and calls between a daemon and its clients, since version 2 (docs/protocol-client.md).

A call, like an answer, is a message of the client, with a number: it comes in a SEND frame, as a block that
`wire/calls.py` packs. What a daemon delivers of calls is such a block in a DELIVER frame; the flag OWED of its head
says that this client is to answer. The frames here are what has no place in the order of messages.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ordercast.errors import WireError
from ordercast.wire.codec import Reader, Writer
from ordercast.wire.daemon_frames import MAX_TEXT, short_text
from ordercast.wire.frames import FrameKind, frame
from ordercast.wire.views import MAX_LOCK_NAME

OWED: Final = 128
"""Flag of a call in a DELIVER frame: the client that gets it is to answer."""

_TRIES_ONCE: Final = 1


class LockAsk(NamedTuple):
    """LOCK: the client wants a lock, or a handler, of a group. It chooses the id."""

    id: int
    handle: int
    tries_once: bool  # a denial is the outcome
    key: str


class GrantOutcome(IntEnum):
    """What became of it."""

    HELD = 0
    LOST = 1  # it was held, and is not any more
    DENIED = 2  # the text names the holder, where there is one
    NOT_MEMBER = 3
    FAILED = 4


class Grant(NamedTuple):
    """GRANT: news of a lock that the client has asked for."""

    id: int
    outcome: GrantOutcome
    token: int  # of a lock that is held
    text: str


class CallOutcome(IntEnum):
    """What became of a call."""

    ANSWERED = 0
    UNKNOWN = 1
    NOT_MEMBER = 2
    FAILED = 3
    UNHANDLED = 4


class CallEnd(NamedTuple):
    """ANSWERED: the call that is message `number` of the client has come to its end."""

    number: int
    outcome: CallOutcome
    text: str
    answer: bytes


def encode_lock(ask: LockAsk) -> bytes:
    writer = Writer().u32(ask.id).u32(ask.handle).u8(_TRIES_ONCE if ask.tries_once else 0).text(ask.key)
    return frame(FrameKind.LOCK, writer.bytes())


def decode_lock(body: bytes) -> LockAsk:
    reader = Reader(body)
    ask = LockAsk(reader.u32(), reader.u32(), bool(reader.u8() & _TRIES_ONCE), reader.text(MAX_LOCK_NAME))
    reader.end()
    if not ask.key:
        raise WireError("a lock has a name")
    return ask


def encode_unlock(id_: int) -> bytes:
    return frame(FrameKind.UNLOCK, Writer().u32(id_).bytes())


def decode_unlock(body: bytes) -> int:
    reader = Reader(body)
    id_ = reader.u32()
    reader.end()
    return id_


def encode_grant(grant: Grant) -> bytes:
    writer = Writer().u32(grant.id).u8(grant.outcome).u64(grant.token).text(short_text(grant.text))
    return frame(FrameKind.GRANT, writer.bytes())


def decode_grant(body: bytes) -> Grant:
    reader = Reader(body)
    id_, outcome, token = reader.u32(), reader.u8(), reader.u64()
    if outcome >= len(GrantOutcome):
        raise WireError("unknown outcome of a lock")
    return Grant(id_, GrantOutcome(outcome), token, reader.text(MAX_TEXT))


def encode_answered(end: CallEnd) -> bytes:
    writer = Writer().u64(end.number).u8(end.outcome).text(short_text(end.text))
    return frame(FrameKind.ANSWERED, writer.raw(end.answer).bytes())


def decode_answered(body: bytes) -> CallEnd:
    reader = Reader(body)
    number, outcome = reader.number(), reader.u8()
    if outcome >= len(CallOutcome):
        raise WireError("unknown outcome of a call")
    return CallEnd(number, CallOutcome(outcome), reader.text(MAX_TEXT), reader.rest())
