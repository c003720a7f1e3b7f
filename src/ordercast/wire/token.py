"""Bodies of the token orderer's datagrams (docs/design/token.md has the table of kinds; RMP figure 4.1).

A `State` says where the token is and what each member holds. It is the body of SYNC and CONFIRM, and the first part of
TOKEN (RMP's ACK), which goes on with assignments, and of LIST (New List), which goes on with the change that it orders.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from ordercast.config import MAX_HEADER, MAX_MEMBERS
from ordercast.engine import Change
from ordercast.errors import WireError
from ordercast.view import Reason
from ordercast.wire.codec import MAX_NUMBER, Reader, Writer
from ordercast.wire.ordering import ASSIGNMENT, MAX_ASSIGNMENTS, Assignment, open_behind, pack_behind
from ordercast.wire.views import (
    MAX_LOCK_NAME,
    decode_member,
    encode_member,
    put_numbers,
    take_numbers,
)

Buffer = bytes | bytearray | memoryview

STATE: Final = Struct("<QQQQHH")  # pass, token site after it, highest, view, rows, flags
LIST_SIZE: Final = Struct("<I")  # of the token before the change
if STATE.size != 36:
    raise AssertionError("the state of the token has a fixed size on the wire")

HOLDS: Final = 1  # its sender has accepted the token of that pass
HURRY: Final = 2  # a round is under way: pass it on at once
WAITS: Final = 4  # its sender waits for what another member has to do
BEHIND: Final = 16  # the application of its sender does not receive, and holds up the ring when the token comes
NOTED: Final = 8  # to one member: a request of yours for a change waits here to be ordered


class State(NamedTuple):
    """`rows`: the members of the view at `view`, then its leaver if there is one: what each is known to hold."""

    turn: int
    site: int
    highest: int
    view: int
    flags: int
    rows: tuple[int, ...]


def encode_state(state: State) -> bytes:
    turn, site, highest, view, flags, rows = state
    return STATE.pack(turn, site, highest, view, len(rows), flags) + pack_behind(highest, rows)


def decode_state(body: Buffer) -> tuple[State, int]:
    """The state, and where what follows it begins."""
    if len(body) < STATE.size:
        raise WireError("state of the token too short")
    turn, site, highest, view, count, flags = STATE.unpack_from(body)
    stop = STATE.size + 4 * count
    if count > MAX_MEMBERS + 1 or len(body) < stop or max(turn, highest, view) > MAX_NUMBER:
        raise WireError("state of the token out of range")
    return State(turn, site, highest, view, flags, open_behind(highest, body[STATE.size : stop])), stop


def encode_token(state: State, assignments: Iterable[Assignment]) -> bytes:
    return b"".join((encode_state(state), *(ASSIGNMENT.pack(*assignment) for assignment in assignments)))


def decode_token(body: Buffer) -> tuple[State, list[Assignment]]:
    state, start = decode_state(body)
    rest = len(body) - start
    if rest % ASSIGNMENT.size:
        raise WireError("token of odd size")
    highest = state.highest
    assignments = []
    for seq, origin, number, count in ASSIGNMENT.iter_unpack(memoryview(body)[start:]):
        if not 0 < count <= MAX_ASSIGNMENTS or number > MAX_NUMBER or seq + count - 1 > highest:
            raise WireError("run of sequence numbers out of range")
        assignments.append(Assignment(seq, origin, number, count))
    return state, assignments


def encode_list(token: bytes, change: bytes) -> bytes:
    """A token, and the block of the change that its last assignment is for."""
    return b"".join((LIST_SIZE.pack(len(token)), token, change))


def decode_list(body: Buffer) -> tuple[memoryview, bytes]:
    view = memoryview(body)
    if len(view) < LIST_SIZE.size:
        raise WireError("new list too short")
    stop = LIST_SIZE.size + int(LIST_SIZE.unpack_from(view)[0])
    if stop > len(view):
        raise WireError("new list shorter than its token")
    return view[LIST_SIZE.size : stop], bytes(view[stop:])


def encode_change(change: Change) -> bytes:
    writer = Writer().u8(change.reason).u64(change.serial).u64(change.next_block).text(change.lock).blob(change.header)
    encode_member(writer, change.member)
    put_numbers(writer, change.callers)
    return writer.bytes()


def decode_change(body: Buffer) -> Change:
    reader = Reader(memoryview(body))
    reason, serial, next_block = reader.u8(), reader.u64(), reader.number()
    lock, header = reader.text(MAX_LOCK_NAME), reader.blob(MAX_HEADER)
    member, callers = decode_member(reader), take_numbers(reader)
    reader.end()
    if reason not in (Reason.JOIN, Reason.LEAVE, Reason.DISSOLVE, Reason.LOCK, Reason.UNLOCK):
        raise WireError("no change that a member may ask for")
    return Change(Reason(reason), member, header, next_block, lock, serial, callers)
