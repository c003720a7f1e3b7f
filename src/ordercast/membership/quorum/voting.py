"""The vote of a restarted member: what it kept answers a coordinator, whatever has become of the member since.

`Returning` is the way back of one that may still be a member. `FormerVote` is what is left of one that was let go
before it crashed. It joins as a newcomer, and says beside that what it knows: perhaps nobody else does
(docs/design/restarts.md).
"""

from __future__ import annotations

from ordercast.engine import Outbox
from ordercast.membership.quorum.local import LocalMember
from ordercast.view import Address
from ordercast.wire.header import Kind
from ordercast.wire.returns import MAX_FORMER, Kept, Returned, encode_returned
from ordercast.wire.views import (
    Ballot,
    Proposal,
    decode_invite,
    decode_result,
    decode_ring,
    encode_ballot,
    encode_welcome,
)


class KeptVote:
    """`kept` is what has to be on disk before anything leaves."""

    __slots__ = ("_local", "_next_block", "kept")

    def __init__(self, local: LocalMember, kept: Kept, next_block: int) -> None:
        self._local = local
        self._next_block = next_block
        former = kept.formerly if local.me.id in kept.formerly else (*kept.formerly, local.me.id)
        self.kept = kept._replace(formerly=(former[0], *former[1:][1 - MAX_FORMER :]))

    def on_invite(self, now_ns: int, source: Address, ballot: Ballot, out: Outbox) -> None:
        if self._may_promise(source, ballot, out):
            self._promise(now_ns, ballot)
            self._say_returned(source, out)

    def on_result(self, now_ns: int, source: Address, ballot: Ballot, proposal: Proposal, out: Outbox) -> None:
        if self._may_promise(source, ballot, out):
            self._promise(now_ns, ballot)
            self.kept = self.kept._replace(accepted=proposal._replace(ballot=ballot))
            self._say(source, Kind.RESULT_ACK, encode_ballot(ballot), self.kept.view.ring, out)

    def _may_promise(self, source: Address, ballot: Ballot, out: Outbox) -> bool:
        if ballot < self.kept.promised:
            self._say(source, Kind.DENY, encode_ballot(self.kept.promised), self.kept.view.ring, out)
            return False
        return True

    def _promise(self, now_ns: int, ballot: Ballot) -> None:  # noqa: ARG002 - a way back counts its time from here
        self.kept = self.kept._replace(promised=max(ballot, self.kept.promised))

    def _returned(self) -> Returned:
        kept = self.kept
        return Returned(
            self._local.name,
            kept.promised,
            self._local.me,
            self._next_block,
            kept.formerly,
            kept.view,
            kept.is_decided,
            kept.accepted,
        )

    def _say_returned(self, to: Address, out: Outbox) -> None:
        self._say(to, Kind.RETURN, encode_returned(self._returned()), self.kept.view.ring, out)

    def _say(self, to: Address, kind: Kind, body: bytes, ring: int, out: Outbox) -> None:
        out.sends.append(self._local.writer.control(to, kind, body, ring))


class FormerVote(KeptVote):
    """Of a life that the ring had let go. It is in none of the views that follow. So it counts for nothing but that its
    departure is decided: members that have not received that wait for its vote."""

    __slots__ = ("is_over",)

    def __init__(self, local: LocalMember, kept: Kept, next_block: int) -> None:
        super().__init__(local, kept, next_block)
        self.is_over = False

    def on_control(self, now_ns: int, kind: int, source: Address, ring: int, body: bytes, out: Outbox) -> None:
        """A ring of its name that does not work is told: it may wait for this one. One that was restarted as well needs
        the view alone, and says so itself."""
        view = self.kept.view
        if kind in (Kind.HERE, Kind.BEACON):
            seen = decode_ring(body)
            if seen.name == self._local.name and seen.ring == view.ring and not seen.is_working:
                self._say_returned(source, out)
        elif ring != view.ring:
            pass
        elif kind == Kind.INVITE:
            self.on_invite(now_ns, source, decode_invite(body)[0], out)
        elif kind == Kind.RESULT:
            self.on_result(now_ns, source, *decode_result(body), out)
        elif kind == Kind.RETURN:
            welcome = encode_welcome(self._local.name, int(self.kept.is_decided), self.kept.config, view)
            self._say(source, Kind.WELCOME, welcome, ring, out)
        elif kind in (Kind.COMMIT, Kind.ENDED):
            self.is_over = True
