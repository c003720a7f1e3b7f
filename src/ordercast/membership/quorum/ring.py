"""One ring as its member has it: from its installation to the decision on the next one.

While the ring works, changes are decided by votes (`Deciding`). A suspicion, or a coordinator's invitation, freezes it;
from then on its members decide by ballots what follows (`Recovery`). A ring never works again after that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.config import GroupConfig, MinMembers
from ordercast.engine import NEVER, Change, Failed, Note, Outbox, Reset, To
from ordercast.errors import WireError
from ordercast.membership.policy import NOTE
from ordercast.membership.quorum.deciding import Deciding
from ordercast.membership.quorum.local import LocalMember, Wishes
from ordercast.membership.quorum.meeting import Meeting, waits_beside
from ordercast.membership.quorum.recovery import Recovery, begins_recovery
from ordercast.membership.quorum.roles import RecoveryTerms
from ordercast.orderers import LoggedOrderer
from ordercast.orderers.orderer import Suspicion, SuspicionReason
from ordercast.view import Address, Member, Reason, View, id_of
from ordercast.wire.header import Kind
from ordercast.wire.returns import Kept, Returned, decode_returned
from ordercast.wire.views import (
    NO_BALLOT,
    Proposal,
    Ring,
    decode_result,
    decode_suspects,
    encode_address,
    encode_ring,
    encode_suspects,
    encode_welcome,
)

WORKING: Final = "working"
NEWCOMER_WAITS: Final = 10  # times `recovery_wait_ns`: so long a newcomer whose join is not decided hears nobody


class Successor(NamedTuple):
    """What is decided to follow a ring. `is_in`: this node is a member of it."""

    proposal: Proposal
    is_in: bool
    orphans: list[tuple[int, int, bytes]]  # blocks of senders that are gone: this node submits them
    awaited: dict[int, int]  # member -> its blocks below this number will come again


class QuorumRing:
    """`recovery` is there once the ring is frozen."""

    __slots__ = (
        "_config",
        "_excluding",
        "_forgetful",
        "_local",
        "_wishes",
        "counter",
        "deciding",
        "frozen_ns",
        "give_up_ns",
        "has_failed",
        "orderer",
        "recovery",
    )

    def __init__(
        self, local: LocalMember, wishes: Wishes, config: GroupConfig, orderer: LoggedOrderer, counter: int
    ) -> None:
        """`counter`: the highest of a view that is known here."""
        self._local = local
        self._wishes = wishes
        self._config = config
        self.orderer = orderer
        self.counter = counter
        self.deciding = Deciding(local, orderer)
        self.recovery: Recovery | None = None
        self.frozen_ns = 0
        self.give_up_ns = NEVER  # when a newcomer whose join is not decided looks for the group again
        self.has_failed = False  # manual recovery: the application was told that its calls fail
        self._excluding: Proposal | None = None  # the next view is decided, without this node
        self._forgetful: set[int] = set()  # newcomers that were members, and came back without their folder

    @property
    def is_entered(self) -> bool:
        """Whether this node knows that its own join is decided."""
        view = self.orderer.view
        is_own_join = view.reason == Reason.JOIN and view.subject == str(self._local.me)
        return not is_own_join or self.orderer.decided >= view.seq

    @property
    def is_ending(self) -> bool:
        """Whether the last change that is received here ends the ring."""
        return self.orderer.view.reason == Reason.DISSOLVE

    @property
    def resets(self) -> tuple[MinMembers, ...]:
        """What the calls of reset() on this node that are under way asked for."""
        return self.recovery.resets.rules if self.recovery is not None else ()

    def end_resets(self, view: View) -> list[Reset]:
        """There is a next view: what the calls of reset() on this node come to."""
        return self.recovery.resets.end(self.orderer.view, view) if self.recovery is not None else []

    @property
    def restart_ns(self) -> int:
        """Until when a member that wants to leave a frozen ring stays for those that were restarted; 0: nobody was."""
        return self.recovery.restart_ns if self.recovery is not None else 0

    @property
    def stage(self) -> str:
        """For people: this node's role in recovery, or that there is none."""
        return WORKING if self.recovery is None else self.recovery.role.name.lower()

    # While it works

    @property
    def is_shown_here(self) -> bool:
        """Whether this node sends beacons: the leader; of a frozen ring, each member that cannot hear the beacons of
        others."""
        return self.orderer.standing().leads if self.recovery is None else not self._local.me.has_multicast

    def shown(self) -> Ring:
        """The ring as newcomers and other rings see it."""
        view, standing = self.orderer.view, self.orderer.standing()
        return Ring(
            self._local.name,
            view.ring,
            view.counter,
            view.creator,
            len(view.members),
            self.recovery is None and not standing.is_retired,
            standing.contact,
            self._config,
            view.largest >= self._config.bootstrap,
        )

    def shown_to(self, newcomer: Member, out: Outbox) -> Ring:
        """The same, for a newcomer. If it was a member of this ring and has forgotten that, people are told once: a
        ring that has stopped may wait for its vote."""
        former = next((each for each in self.orderer.view.members if each.name == newcomer.name), None)
        is_forgotten = self.recovery is not None and former is not None and former.life < newcomer.life
        if is_forgotten and former is not None and newcomer.id not in self._forgetful:
            self._forgetful.add(newcomer.id)
            text = f"{former} counts as gone, and its vote is missing"
            self._note(f"{newcomer} came back without its folder (data_dir): {text}", out, newcomer.id)
        return self.shown()

    def fail(self, now_ns: int, suspicions: list[Suspicion], out: Outbox) -> None:
        """Members are suspected: stop, and decide on the next view, or wait for a reset(). In a recovery: members that
        are gone need not be waited for."""
        view, is_new = self.orderer.view, self.recovery is None
        for member, why in suspicions:
            self._note(f"{view.member(member) or f'{member:016x}'} is suspected: {why.value}", out, member)
        suspects = [each.member for each in suspicions]
        if not is_new:
            self._freeze(now_ns).on_gone(now_ns, suspects, out)
            return
        names = tuple(str(member) for member in view.members if member.id in suspects)
        recovery = self._freeze(now_ns)
        if self._wishes.is_manual:
            if suspicions and suspicions[0].why is not SuspicionReason.HEARSAY:
                out.sends.append(self._local.writer.control(To.ALL, Kind.SUSPECT, encode_suspects(suspects)))
            who = ", ".join(names) or "a member"
            self._say_failed(names, f"{who} does not answer; reset() re-forms the group", out)
            recovery.wait()
        else:
            self._note("recovery begins: this member coordinates", out)
            recovery.begin(now_ns, suspects, RecoveryTerms(self._wishes.min_members), out)

    def reset(self, now_ns: int, terms: RecoveryTerms, out: Outbox) -> None:
        """Amoeba's ResetGroup. Where one asks for more members than a ring that works has, the ring goes on."""
        size, rule = len(self.orderer.view.members), terms.rule
        if self.recovery is None and isinstance(rule, int) and rule > size:
            out.upcalls.append(Reset(0, f"min_members={rule} can never be met: the view has {size} members", rule))
            return
        suspects = [each.member for each in self.orderer.suspects(now_ns)]
        recovery = self._freeze(now_ns)
        recovery.resets.add(rule, terms.header)
        self._note("recovery begins: reset() was called", out)
        recovery.begin(now_ns, suspects, terms, out)

    def meet(
        self, now_ns: int, source: Address, kind: int, seen: Ring, is_past: bool, meeting: Meeting, out: Outbox
    ) -> bool:
        """Another ring of our name has shown itself, which this node was in before if `is_past`. Whether this node
        leaves ours for it, because ours is frozen."""
        if not seen.is_working:
            if kind == Kind.BEACON and self.recovery is None:
                # A member of a ring that is stuck and that hears no multicasts asks whether there is another.
                meeting.answer(source, self.shown(), out)
        elif is_past or self.orderer.standing().is_retired:
            pass
        elif self.recovery is not None:
            return self.is_superseded_by(now_ns, seen)
        elif meeting.on_ring(now_ns, source, kind, seen, self.shown(), self.orderer, out):
            # Ours is smaller. All members are told where to go: not all of them may hear that ring (RMP section 3.4).
            self.orderer.propose(now_ns, Change(Reason.DISSOLVE, self._local.me, encode_address(source)))
        return False

    # After a failure

    def is_superseded_by(self, now_ns: int, seen: Ring) -> bool:
        """Whether a member of this frozen ring goes to another ring of its name that works.

        If that is its own next ring, the commit is on its way.
        """
        accepted = self.recovery.accepted if self.recovery is not None else None
        if accepted is not None and accepted.view.ring == seen.ring:
            return False
        return now_ns - self.frozen_ns > waits_beside(seen, self.shown()) * self._local.timing.recovery_wait_ns

    def on_message(self, now_ns: int, kind: int, source: Address, origin: int, body: bytes, out: Outbox) -> None:
        """A datagram of recovery, of this ring. Its member may need the vote of a newcomer whose join is not decided:
        that one stays."""
        if self.give_up_ns != NEVER:
            self._be_patient(now_ns)
        if kind == Kind.COMMIT:
            self._on_commit(now_ns, source, decode_result(body)[1], out)
            return
        if kind == Kind.RETURN:
            self._on_returned(now_ns, decode_returned(body), out)
            return
        recovery = self.recovery
        if recovery is None:
            if kind == Kind.SUSPECT:
                others = [each for each in decode_suspects(body) if each != self._local.me.id]
                self.fail(now_ns, [Suspicion(each, SuspicionReason.HEARSAY) for each in others], out)
                return
            if not begins_recovery(kind, body) or self.orderer.standing().is_stalled:
                return
            recovery = self._freeze(now_ns)
            inviter = self.orderer.view.member(origin)
            self._note(f"recovery begins: invited by {inviter or f'{origin:016x}'}", out, origin)
            if self._wishes.is_manual:
                self._say_failed((), "a member failed; the group is being re-formed", out)
        recovery.on_message(now_ns, kind, source, origin, body, out)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self.recovery is not None:
            self.recovery.expire(now_ns, out)
        else:
            self.deciding.expire(now_ns, out)

    def deadline_ns(self) -> int:
        if self.recovery is None:
            return self.deciding.deadline_ns()
        return min(self.recovery.deadline_ns(), self.give_up_ns)

    def successor(self, now_ns: int, out: Outbox) -> Successor | None:
        """What is decided to follow; to be asked after every step of the recovery. Tells of a reset() that failed."""
        if self._excluding is not None:
            return Successor(self._excluding, False, [], {})
        recovery = self.recovery
        if recovery is None:
            return None
        if recovery.is_refused:
            recovery.is_refused = False
            stays = "failed" if self._wishes.is_manual else "without enough members"
            out.upcalls += recovery.resets.fail(f"the group stays {stays}: {recovery.found} of its members answered")
            if not self._wishes.is_manual:
                recovery.begin(now_ns, [], RecoveryTerms(self._wishes.min_members), out)
        proposal = recovery.committed
        if proposal is None:
            return None
        recovery.tell_commit(out)
        is_in = proposal.view.member(self._local.me.id) is not None
        return Successor(proposal, is_in, self._orphans(recovery, proposal), recovery.awaited())

    def has_left_before(self, view: View) -> bool:
        """Whether our own leave, or our expulsion, is in what a committed view follows: so it is decided."""
        last = self.orderer.view
        return last.member(self._local.me.id) is None and last.seq < view.seq and not self.resets

    def _on_commit(self, now_ns: int, source: Address, proposal: Proposal, out: Outbox) -> None:
        if proposal.view.member(self._local.me.id) is None:
            self._excluding = proposal
            return
        if proposal.view.ring == self.orderer.view.ring:
            raise WireError("a ring that follows itself")
        self._freeze(now_ns).on_commit(now_ns, source, proposal, out)

    def _on_returned(self, now_ns: int, returned: Returned, out: Outbox) -> None:
        """A member has been restarted with its folder. So its former life is over, and it has still its vote."""
        if returned.name != self._local.name or returned.former == self._local.me.id:
            return
        view = self.orderer.view
        if self.orderer.has_left:  # it may be the only one that knows the last view
            is_decided = self.orderer.decided >= view.seq
            body = encode_welcome(self._local.name, int(is_decided), self._config, view)
            out.sends.append(self._local.writer.control(returned.member.address, Kind.WELCOME, body))
            return
        if self.recovery is None:
            is_needed = returned.former in view.prior and self.orderer.decided < view.seq
            knows_more = returned.view.seq > view.seq  # perhaps its own join
            if view.member(returned.former) is None and not (is_needed or knows_more):
                # It has left, and joins as a new member.
                body = encode_ring(self.shown())
                out.sends.append(self._local.writer.control(returned.member.address, Kind.HERE, body))
                return
            if self.orderer.standing().is_stalled:
                return
            self.fail(now_ns, [Suspicion(returned.former, SuspicionReason.RESTARTED)], out)
        if self.recovery is not None:
            self.recovery.on_returned(now_ns, returned, out)

    def kept(self, ended: tuple[int, bytes]) -> Kept:
        """What this member must not forget. `ended`: how the ring before this one did."""
        view, recovery = self.orderer.view, self.recovery
        promised = recovery.promised if recovery is not None else NO_BALLOT
        accepted = recovery.accepted if recovery is not None else None
        is_decided = self.orderer.decided >= view.seq
        return Kept(self._config, (self._local.me.id,), view, is_decided, promised, accepted, ended)

    def _orphans(self, recovery: Recovery, proposal: Proposal) -> list[tuple[int, int, bytes]]:
        """What this node submits for senders that are gone: it made the view, and promised that there. It may have been
        brought through by another coordinator, or in another round."""
        if id_of(proposal.view.creator) != self._local.me.id:
            return []
        return recovery.orphans() if recovery.is_coordinator and proposal.fresh else self._promised(proposal.view)

    def _promised(self, view: View) -> list[tuple[int, int, bytes]]:
        """Blocks of senders that are gone, which the members of a view that we proposed wait for."""
        found: list[tuple[int, int, bytes]] = []
        for origin, upto in view.awaited.items():
            if view.member(origin) is None:
                for number in range(view.numbers.get(origin, upto), upto):
                    block = self.orderer.log.find_block(origin, number)
                    if block is not None:
                        found.append((origin, number, block))
        return found

    def _freeze(self, now_ns: int) -> Recovery:
        """Stop ordering."""
        if self.recovery is None:
            self.deciding.stop()
            self.orderer.freeze()
            self.frozen_ns = now_ns
            if not self.is_entered:
                self._be_patient(now_ns)
            rule = self._wishes.min_members
            self.recovery = Recovery(self._local, self.orderer, self._config, rule, self.counter, self.deciding.joins)
        return self.recovery

    def _be_patient(self, now_ns: int) -> None:
        self.give_up_ns = now_ns + NEWCOMER_WAITS * self._local.timing.recovery_wait_ns

    def _say_failed(self, suspects: tuple[str, ...], text: str, out: Outbox) -> None:
        self.has_failed = True
        out.upcalls.append(Failed(suspects, text))

    def _note(self, text: str, out: Outbox, origin: int = 0) -> None:
        out.notes.append(Note(NOTE, origin or self._local.me.id, detail=text))
