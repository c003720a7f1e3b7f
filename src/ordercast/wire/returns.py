"""What a restarted member says of its former life (RETURN), and what a member keeps for that (docs/design/restarts.md).

Both name the last view that the member received, what it promised, and the proposal that it accepted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.config import MAX_GROUP_NAME, GroupConfig
from ordercast.errors import WireError
from ordercast.view import Member, View
from ordercast.wire.codec import Reader, Writer
from ordercast.wire.views import (
    BALLOT,
    Ballot,
    Proposal,
    decode_config,
    decode_member,
    decode_proposal,
    decode_view,
    encode_config,
    encode_member,
    encode_proposal,
    encode_view,
    take_ballot,
)

MAX_FORMER: Final = 64  # lives of a node that one entry covers; of more, the first and the last ones


class Kept(NamedTuple):
    """What a member must not forget of its ring: others have counted on it."""

    config: GroupConfig
    formerly: tuple[int, ...]  # the id that it has in the ring first, then those of lives since that only returned
    view: View  # the last one that it received, with everything before it
    is_decided: bool  # the change that made the view is known to be decided
    promised: Ballot
    accepted: Proposal | None
    ended: tuple[int, bytes] = (0, b"")  # the ring before this one, and the COMMIT that ended it


class Returned(NamedTuple):
    """A member that was restarted with what it had kept. It has a vote in its ring, and nothing of the log."""

    name: str  # of the underlay
    ballot: Ballot  # its last promise: the answer to an invitation with that ballot, or only a sign
    member: Member  # as it is now
    next_block: int
    formerly: tuple[int, ...]  # as kept
    view: View
    is_decided: bool
    accepted: Proposal | None

    @property
    def former(self) -> int:
        """The id that it has in the ring."""
        return self.formerly[0]


def encode_kept(kept: Kept) -> bytes:
    writer = Writer()
    encode_config(writer, kept.config)
    _put_facts(writer, kept.promised, kept.formerly, kept.view, kept.is_decided, kept.accepted)
    return writer.u64(kept.ended[0]).u32(len(kept.ended[1])).raw(kept.ended[1]).bytes()


def decode_kept(body: bytes | memoryview) -> Kept:
    reader = Reader(body)
    config = decode_config(reader)
    promised, formerly, view, is_decided, accepted = _take_facts(reader)
    ring = reader.u64()
    ended = (ring, reader.raw(reader.count(1)))
    reader.end()
    return Kept(config, formerly, view, is_decided, promised, accepted, ended)


def encode_returned(returned: Returned) -> bytes:
    writer = Writer().text(returned.name)
    encode_member(writer, returned.member)
    writer.u64(returned.next_block)
    _put_facts(writer, returned.ballot, returned.formerly, returned.view, returned.is_decided, returned.accepted)
    return writer.bytes()


def decode_returned(body: bytes | memoryview) -> Returned:
    reader = Reader(body)
    name, member, next_block = reader.text(MAX_GROUP_NAME), decode_member(reader), reader.number()
    ballot, formerly, view, is_decided, accepted = _take_facts(reader)
    reader.end()
    return Returned(name, ballot, member, next_block, formerly, view, is_decided, accepted)


def _put_facts(
    writer: Writer,
    ballot: Ballot,
    formerly: tuple[int, ...],
    view: View,
    is_decided: bool,
    accepted: Proposal | None,
) -> None:
    writer.pack(BALLOT, *ballot).u8(len(formerly))
    for member in formerly:
        writer.u64(member)
    writer.raw(encode_view(view)).u8(is_decided | (accepted is not None) << 1)
    if accepted is not None:
        encode_proposal(writer, accepted)


def _take_facts(reader: Reader) -> tuple[Ballot, tuple[int, ...], View, bool, Proposal | None]:
    ballot, count = take_ballot(reader), reader.u8()
    if not 0 < count <= MAX_FORMER:
        raise WireError("number of former lives out of range")
    formerly = tuple([reader.u64() for _ in range(count)])
    view, flags = decode_view(reader), reader.u8()
    if flags > 3:
        raise WireError("unknown facts of a former life")
    return ballot, formerly, view, bool(flags & 1), decode_proposal(reader) if flags & 2 else None
