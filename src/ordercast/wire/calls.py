"""Calls: what a block carries that asks for an answer, and the datagrams of callers that are no members (RMP 4.5).

A call is a block with one message (flag CALLED) whose payload begins with a `CallHead`. A member's own call travels as
any block of its; a caller outside sends CALL datagrams until a REPLY comes. What may change between two tries of one
call (the first-packet flag, the underlay's name) stands before the block; the block itself never changes.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address
from struct import Struct
from typing import Final, NamedTuple

from ordercast.config import MAX_GROUP_NAME
from ordercast.errors import WireError
from ordercast.service import Service
from ordercast.view import Address
from ordercast.wire.block import CALLED, ENTRY, EQUAL, FULL_HEAD, HEAD_BYTES, LENGTH, head_of, open_messages
from ordercast.wire.codec import MAX_NUMBER, Reader, Writer

Buffer = bytes | bytearray | memoryview

NO_HANDLER: Final = 255
HANDLERS: Final = 6  # the first six locks (RMP section 3.3)

# Flags of a call
WANTS_ACK: Final = 1
WANTS_AGAIN: Final = 2  # deliver it again where it comes again and has no answer yet
IS_ANSWER: Final = 4  # a member's answer to a member's call, to the whole group

# Flags of a CALL datagram
FIRST: Final = 1  # the caller's first, as far as it knows: begin its numbers here
RELAY: Final = 2  # it went to one member alone, which passes it on to the others

ACKNOWLEDGED: Final = 0
ANSWERED: Final = 1

ALLOWANCE: Final = Struct("<I")
CALL: Final = Struct("<QBBQQ")  # needs, flags, handler, asker, asked
if CALL.size != 26:
    raise AssertionError("the head of a call has a fixed size on the wire")


class CallHead(NamedTuple):
    """`needs`: one past the number of the caller's last call before this that must not be skipped (0: none); calls
    without acknowledgement between may have been lost. `asker`, `asked`: of an answer, the call that it answers."""

    needs: int
    flags: int
    handler: int
    caller: str  # name/life of the sender
    address: Address  # where the answer goes; ("", 0) for members
    asker: int = 0
    asked: int = 0
    asked_by: str = ""  # name/life of the asker: a reader of the answer may never have been in a view with it


class Reply(NamedTuple):
    caller: int
    status: int
    position: int
    payload: bytes
    allowance: int = 0  # bytes that the caller may have out, as far as the members' sockets go; 0: not said


def pack_call(
    first: int, service: Service, head: CallHead, payload: bytes, type_: int = 0, group: int = 0, after: int = 0
) -> bytes:
    """The block of one call; `first` is the sender's message number."""
    writer = Writer().pack(CALL, head.needs, head.flags, head.handler, head.asker, head.asked)
    writer.text(head.caller).text(head.address[0]).u16(head.address[1])
    if head.flags & IS_ANSWER:
        writer.text(head.asked_by)
    body = writer.raw(payload).bytes()
    front = FULL_HEAD.pack(first, 1, service.rank, service.k, EQUAL | CALLED, 1, after)
    return b"".join((front, ENTRY.pack(group, type_, 0, 1), LENGTH.pack(len(body)), body))


def open_call(block: bytes) -> tuple[CallHead, bytes]:
    """The head and the payload of a call."""
    front = head_of(block)
    # One layout and no other: `needs_of` knows where the head of the call lies.
    if (front.flags, front.kinds, front.count) != (EQUAL | CALLED, 1, 1):
        raise WireError("not a call")
    messages = open_messages(block)
    reader = Reader(memoryview(messages.payloads[0]))
    needs, flags, handler, asker, asked = reader.unpack(CALL)
    if needs > MAX_NUMBER or asked > MAX_NUMBER or (handler >= HANDLERS and handler != NO_HANDLER):
        raise WireError("head of a call out of range")
    caller, host, port = reader.text(600), reader.text(255), reader.u16()
    if host:
        try:
            IPv4Address(host)
        except AddressValueError as error:
            raise WireError("a caller's address is no IPv4 address") from error
    if bool(host) != bool(port):
        raise WireError("a caller's address is half there")
    asked_by = reader.text(600) if flags & IS_ANSWER else ""
    return CallHead(needs, flags, handler, caller, (host, port), asker, asked, asked_by), reader.rest()


def needs_of(block: bytes) -> int:
    """The numbers of the caller below this come before the call; cheap, for a block that `open_call` has checked."""
    needs: int = CALL.unpack_from(block, HEAD_BYTES + ENTRY.size + LENGTH.size)[0]
    return needs


def asks_for_answer(block: bytes) -> bool:
    """Whether the holder of a handler must answer it; cheap, for a block that `open_call` has checked."""
    _, flags, handler, _, _ = CALL.unpack_from(block, HEAD_BYTES + ENTRY.size + LENGTH.size)
    return bool(handler != NO_HANDLER and not flags & IS_ANSWER)


def encode_call(flags: int, name: str, block: Buffer) -> bytes:
    """The body of a CALL. `name` is the underlay's; it is empty where the header's ring says which one is meant."""
    return Writer().u8(flags).text(name).raw(bytes(block)).bytes()


def decode_call(body: Buffer) -> tuple[int, str, bytes]:
    reader = Reader(memoryview(body))
    return reader.u8(), reader.text(MAX_GROUP_NAME), reader.rest()


def encode_reply(reply: Reply) -> bytes:
    writer = Writer().u32(reply.allowance).u64(reply.caller).u8(reply.status).i64(reply.position)
    return writer.raw(reply.payload).bytes()


def allow(reply: bytes, allowance: int) -> bytes:
    """An encoded reply with the allowance written in: the engine knows it, the handler that answers does not."""
    return ALLOWANCE.pack(min(allowance, 0xFFFF_FFFF)) + reply[ALLOWANCE.size :]


def decode_reply(body: Buffer) -> Reply:
    reader = Reader(memoryview(body))
    allowance = reader.u32()
    reply = Reply(reader.u64(), reader.u8(), reader.i64(), reader.rest(), allowance)
    if reply.status > ANSWERED:
        raise WireError("unknown status of a reply")
    return reply
