"""What an underlay keeps over restarts of its node, and a node that comes back with that (docs/design/restarts.md)."""

from __future__ import annotations

from ordercast.engine import Departed, LogLost, Note, Outbox
from ordercast.membership.policy import DepartureCause, Membership
from ordercast.membership.quorum.local import LocalMember, coming_along
from ordercast.membership.quorum.returning import Returning
from ordercast.membership.quorum.rule import electorate
from ordercast.membership.quorum.voting import FormerVote
from ordercast.orderers import LoggedOrderer
from ordercast.view import Address, Reason, View
from ordercast.wire.returns import Kept, decode_kept, encode_kept
from ordercast.wire.views import Proposal, encode_result


class Keeping:
    """`returning`: this node was restarted, and its last ring is not known to be over. `_former`: a former life of it
    had been let go by its last ring when it crashed."""

    __slots__ = ("_former", "_local", "_stamp", "returning")

    def __init__(self, local: LocalMember) -> None:
        self._local = local
        self.returning: Returning | None = None
        self._former: FormerVote | None = None
        self._stamp: object = None  # of what was given out last

    def restore(self, entry: bytes, next_block: int) -> None:
        """An earlier life kept this. It matters if that life may still have a vote. If it has none any more, it crashed
        soon after it had left or was put out; others may not know that, and wait for its vote."""
        if not entry:
            return
        kept = decode_kept(entry)
        self._stamp = ()  # something is on disk
        former = kept.formerly[0]
        if kept.view.member(former) is not None or (former in kept.view.prior and not kept.is_decided):
            self.returning = Returning(self._local, kept, next_block)
        else:
            self._former = FormerVote(self._local, kept, next_block)

    def on_control(
        self, now_ns: int, kind: int, source: Address, ring: int, origin: int, body: bytes, out: Outbox
    ) -> bool:
        """Whether that was for the member that comes back: as long as there is one, this node has no other."""
        if self._former is not None:
            self._former.on_control(now_ns, kind, source, ring, body, out)
        if self.returning is not None:
            self.returning.on_control(now_ns, kind, source, ring, origin, body, out)
        return self.returning is not None

    def retire(self, now_ns: int, header: bytes, membership: Membership[LoggedOrderer], out: Outbox) -> bool:
        """It is to leave. Whether it is on its way back: then it is out for its application, and keeps its vote."""
        if self.returning is None:
            return False
        self.returning.is_leaving = True
        membership.retire(now_ns, header)
        out.upcalls.append(Departed(True, False, DepartureCause.LEFT_UNJOINED.value))
        return True

    def take(self) -> Returning | None:
        """The return that has come to an end."""
        returning = self.returning
        if returning is None or (returning.successor is None and not returning.is_over):
            return None
        self.returning = None
        return returning

    def changed(self, kept: Kept | None) -> bytes | None:
        """What is to be on disk, if that is not what was given out last; empty: nothing. `kept`: of the ring that this
        node is in. A shared underlay keeps nothing: its roster would have to be kept as well."""
        if self.returning is not None:
            kept = self.returning.kept
        elif kept is not None or (self._former is not None and self._former.is_over):
            self._former = None
        elif self._former is not None:
            kept = self._former.kept  # until there is something newer: this life may crash as well
        if kept is None or kept.config.shared:
            is_new = self._stamp is not None
            self._stamp = None
            return b"" if is_new else None
        view, accepted = kept.view, kept.accepted
        # What it is about, and no more: this is asked for in every pass.
        stamp = (
            kept.formerly,
            view.ring,
            view.seq,
            view.counter,
            kept.is_decided,
            kept.promised,
            accepted.ballot if accepted is not None else None,
        )
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        return encode_kept(kept)


def follow_kept(kept: Kept, successor: Proposal, membership: Membership[LoggedOrderer], out: Outbox) -> None:
    """The ring that this node was in before its restart is over, and it goes on in the next one."""
    old = kept.view
    out.notes.extend([Note("name", member.id, detail=str(member)) for member in old.members])
    if kept.ended[0]:  # a member of that ring may not know it yet: ours must not end in what comes before it
        membership.past.add(*kept.ended)
    membership.past.add(old.ring, encode_result(successor.ballot, successor))
    membership.resume(successor.view, kept.config)


def losses(old: View, view: View) -> list[LogLost]:
    """What a view after a restart may have lost, for a member that comes from `old`."""
    if view.reason != Reason.RESTART or electorate(old).is_quorum(set(coming_along(view))):
        return []
    back = ", ".join([str(member) for member in view.members if old.member(member.id) is None])
    text = f"messages of view {old.id} may be lost that only members held which were restarted: {back} came back"
    return [LogLost(old.id, text)]
