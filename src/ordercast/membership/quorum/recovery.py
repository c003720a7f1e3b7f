"""Recovery: Amoeba's ResetGroup (section 4.2), with Paxos's promises between its two phases.

docs/design/membership.md has states, datagrams, timers and what each failure does. One object lives from the freeze of
a ring to the commit of the next. It keeps what this member has promised and accepted; a round that this member
coordinates is a `Coordinator`. The membership feeds it datagrams and installs what it commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ordercast.config import GroupConfig, MinMembers
from ordercast.engine import NEVER, Outbox
from ordercast.errors import WireError
from ordercast.membership.quorum.coordinator import Coordinator
from ordercast.membership.quorum.local import LocalMember
from ordercast.membership.quorum.resets import PendingResets
from ordercast.membership.quorum.roles import NO_LOG, RecoveryTerms, Role
from ordercast.orderers import LoggedOrderer
from ordercast.view import Address, View
from ordercast.wire.header import Kind
from ordercast.wire.ordering import MAX_MISSING, Acks, Missing, encode_nak
from ordercast.wire.returns import Returned
from ordercast.wire.views import (
    NO_BALLOT,
    Ballot,
    Cut,
    Proposal,
    decode_ballot,
    decode_check,
    decode_cut,
    decode_invite,
    decode_result,
    encode_ballot,
    encode_check,
    encode_cut,
    encode_result,
    open_change,
)

MAX_SENIORITY: Final = 65_535


def begins_recovery(kind: int, body: bytes) -> bool:
    """Whether a datagram of a coordinator stops a ring that works. Raises WireError before anything is stopped."""
    if kind == Kind.INVITE:
        decode_invite(body)
    elif kind == Kind.RESULT:
        decode_result(body)
    else:
        return False
    return True


class Recovery:
    __slots__ = (
        "_config",
        "_coordinator",
        "_coordinator_id",
        "_counter",
        "_due_ns",
        "_heard_ns",
        "_is_coordinating",
        "_is_known",
        "_joins",
        "_local",
        "_orderer",
        "_pending",
        "_returned",
        "_returned_ns",
        "_role",
        "_round",
        "_terms",
        "accepted",
        "answered",
        "committed",
        "is_refused",
        "promised",
        "resets",
    )

    def __init__(
        self,
        local: LocalMember,
        orderer: LoggedOrderer,
        config: GroupConfig,
        rule: MinMembers,
        counter: int,
        joins: Mapping[int, View],
    ) -> None:
        """`rule`: this member's own. `counter`: the highest of a view that is known here. `joins`: the last newcomers
        of the ring, with the views that let them in."""
        self._local = local
        self._orderer = orderer
        self._config = config
        self._counter = counter
        self._joins = joins
        self._role = Role.FAILED
        self._due_ns = NEVER
        # Promises
        self.promised = NO_BALLOT
        self.accepted: Proposal | None = None
        self._pending: Proposal | None = None  # the result under way
        self._is_known = False  # it is known to be committed: only what it takes along is missing here
        self._coordinator: Address = local.me.address
        self._coordinator_id = local.me.id
        self._heard_ns = 0  # when the coordinator was heard last
        self.answered: tuple[int, ...] = ()  # the members that have answered it, as it says; for people
        self._terms = RecoveryTerms(rule)
        self.resets = PendingResets()  # of this node
        # Coordinating
        self._round: Coordinator | None = None  # the last one of ours
        self._is_coordinating = False  # it still counts
        # Members that were restarted, by their ids in the ring, and when the first of them was heard
        self._returned: dict[int, Returned] = {}
        self._returned_ns = NEVER
        # Outcome
        self.committed: Proposal | None = None
        self.is_refused = False  # manual: too few members

    # Inputs

    def begin(self, now_ns: int, suspects: list[int], terms: RecoveryTerms, out: Outbox) -> None:
        """Become coordinator of the next round. A member that has left takes part, and leaves this to others."""
        me, orderer = self._local.me, self._orderer
        self.is_refused = False
        if orderer.has_left or self._is_known:
            return
        self._terms = terms
        seniority = MAX_SENIORITY - max(orderer.view.index(me.id), 0)
        self.promised = Ballot(self.promised.round + 1, orderer.log.received, seniority, me.id)
        self._coordinator, self._coordinator_id = me.address, me.id
        self._pending = None
        cut, known = self._cut(), self._round.invitees if self._round is not None else {}
        self._round = Coordinator(
            self._local,
            orderer,
            self._config,
            self.promised,
            terms,
            suspects,
            cut,
            self._counter,
            self._joins,
            self._returned,
            self._returned_ns + self._local.timing.restart_wait_ns,
        )
        for member in known.values():  # a newcomer that only the cut of another named, which may not answer any more
            self._round.invitees.setdefault(member.id, member)
        self._is_coordinating = True
        self._round.start(now_ns, out)
        self._follow(self._round)

    def wait(self) -> None:
        """Frozen without a coordinator (manual recovery)."""
        self._role = Role.FAILED
        self._is_coordinating = False
        self._due_ns = NEVER

    def on_message(self, now_ns: int, kind: int, source: Address, origin: int, body: bytes, out: Outbox) -> None:
        if self._is_known:
            return  # the next view is decided: ballots are over for this member
        if kind == Kind.INVITE:
            self._on_invite(now_ns, source, origin, *decode_invite(body), out)
        elif kind == Kind.CUT:
            ballot, cut = decode_cut(body)
            if self._round is not None and self._is_coordinating and ballot == self.promised:
                self._round.on_cut(now_ns, origin, cut, out)
                self._follow(self._round)
        elif kind == Kind.DENY:
            self._on_deny(now_ns, decode_ballot(body))
        elif kind == Kind.RESULT:
            self._on_result(now_ns, source, origin, *decode_result(body), out)
        elif kind == Kind.RESULT_ACK:
            if decode_ballot(body) == self.promised and self._round is not None and self._is_coordinating:
                self._round.on_result_ack(origin)
                self._follow(self._round)
        elif kind == Kind.CHECK:
            self._on_check(now_ns, source, origin, *decode_check(body), out)

    def on_returned(self, now_ns: int, returned: Returned, out: Outbox) -> None:
        """A member of the ring was restarted with its folder."""
        known = self._returned.get(returned.former)
        if self._is_known or (known is not None and known.member.life > returned.member.life):
            return
        self._returned[returned.former] = returned
        if known is None:
            self._returned_ns = min(self._returned_ns, now_ns)
        if self._round is not None and self._is_coordinating:
            self._round.on_returned(now_ns, returned, out)
            self._follow(self._round)
        elif self._role is Role.FAILED:  # nobody coordinates: it says that it is there
            body = encode_check(self.promised, [])
            out.sends.append(self._local.writer.control(returned.member.address, Kind.CHECK, body))

    def on_commit(self, now_ns: int, source: Address, proposal: Proposal, out: Outbox) -> None:
        """The next view is decided, and this member is in it. It begins when everything before it is here."""
        if self._is_known:
            return
        accepted = self.accepted
        self._is_coordinating = False
        if accepted is not None and accepted.view.ring == proposal.view.ring:
            self.committed = accepted
            return
        if not self._is_plausible(proposal):
            raise WireError("a commit that cannot follow what is here")
        self._is_known = True
        self._coordinator = source
        self._pending = proposal
        self._role = Role.ACCEPTING
        self._orderer.adopt(proposal.view.seq - 1, proposal.assignments)
        self._try_accept(out)
        if self._role is Role.ACCEPTING:
            self._ask_coordinator(out)
            self._due_ns = now_ns + self._local.timing.invite_ns

    def on_gone(self, now_ns: int, members: list[int], out: Outbox) -> None:
        """The processes of these members are gone: they are not waited for. If one of them coordinates, or holds what
        our own round counts on, the next round begins at once."""
        if self._round is not None and self._is_coordinating:
            if self._round.counts_on(members):
                self.begin(now_ns, self._round.suspects, self._terms, out)
            else:
                self._round.consider(now_ns, out)
                self._follow(self._round)
        elif self._coordinator_id in members and self._role is not Role.FAILED and not self._is_known:
            self._heard_ns = now_ns - self._local.timing.recovery_wait_ns - 1
            self._due_ns = now_ns

    def on_sign(self, source: Address, origin: int, out: Outbox) -> None:
        """A member speaks that may not know of the recovery: as the coordinator, invite it now."""
        if self._round is not None and self._is_coordinating:
            self._round.on_sign(source, origin, out)

    def progress(self, now_ns: int, out: Outbox) -> None:
        """Something that was fetched may have come."""
        if self._round is not None and self._is_coordinating:
            self._round.progress(now_ns, out)
            self._follow(self._round)
        elif self._role is Role.ACCEPTING:
            self._try_accept(out)
            self._await_commit(now_ns)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._round is not None and self._is_coordinating:
            if self._round.due_ns > now_ns:
                return
            if self._round.expire(now_ns, out):
                # Phase 1 again: a member that is silent now is left out unless it answers.
                self.begin(now_ns, self._round.suspects, self._terms, out)
            else:
                self._follow(self._round)
        elif self._due_ns <= now_ns:
            self._due_ns = NEVER
            if self._role is not Role.FAILED:
                self._watch_coordinator(now_ns, out)

    def deadline_ns(self) -> int:
        return self._round.due_ns if self._round is not None and self._is_coordinating else self._due_ns

    @property
    def role(self) -> Role:
        return self._round.role if self._round is not None and self._is_coordinating else self._role

    @property
    def restart_ns(self) -> int:
        """Until then restarted members may be enough for a round of this one, with the time that it takes; 0: there are
        none."""
        timing = self._local.timing
        return self._returned_ns + timing.restart_wait_ns + timing.recovery_wait_ns if self._returned else 0

    @property
    def found(self) -> int:
        """Members of the old view that answered."""
        return self._round.found if self._round is not None else 0

    @property
    def own_round(self) -> Coordinator | None:
        """The round that counts, where it is this member's own."""
        return self._round if self._is_coordinating else None

    @property
    def coordinator_id(self) -> int:
        """The member that coordinates, as far as this one knows."""
        return self._coordinator_id

    @property
    def is_coordinator(self) -> bool:
        """Whether the round that counts is this member's own."""
        return self._round is not None and self._is_coordinating

    def tell_commit(self, out: Outbox) -> None:
        """As the coordinator: tell all members of the old view and of the new one, and a leaver."""
        proposal, local = self.committed, self._local
        if proposal is None or self._round is None or not self._is_coordinating:
            return
        body = encode_result(proposal.ballot, proposal)
        told = {member.id: member.address for member in self._round.invitees.values()}
        told.update((member.id, member.address) for member in proposal.view.members)
        told.update((each.member.id, each.member.address) for each in self._returned.values())
        for member, address in told.items():
            if member != local.me.id:
                out.sends.append(local.writer.control(address, Kind.COMMIT, body))

    def orphans(self) -> list[tuple[int, int, bytes]]:
        """As the coordinator: what to submit for senders that are gone."""
        return self._round.orphans() if self._round is not None else []

    def awaited(self) -> dict[int, int]:
        """As the coordinator: how far the survivors had sent when they were frozen."""
        return self._round.awaited() if self._round is not None and self._is_coordinating else {}

    def _follow(self, round_: Coordinator) -> None:
        """Take over what came of a step of our own round."""
        self._counter = round_.counter
        if round_.role is Role.PROPOSING and round_.proposal is not None:
            self.accepted = round_.proposal
        if round_.is_committed:
            self.committed = round_.proposal
        if round_.has_left:
            # Our own leave stands in what the survivors agree on: another of them has to coordinate. We answer no
            # CHECK any more, so one of them begins.
            self._is_coordinating = False
            self._coordinator_id = 0
            self._role = Role.INVITED
            self._due_ns = NEVER
        if round_.is_refused:
            self.is_refused = True
            self.wait()

    @property
    def _is_retired(self) -> bool:
        """Whether this member has left, also where only others know that."""
        return self._orderer.has_left or (self._round is not None and self._round.has_left)

    # Taking part

    def _on_invite(
        self,
        now_ns: int,
        source: Address,
        origin: int,
        ballot: Ballot,
        rule: MinMembers,
        is_override: bool,
        header: bytes,
        out: Outbox,
    ) -> None:
        if ballot < self.promised:
            out.sends.append(self._local.writer.control(source, Kind.DENY, encode_ballot(self.promised)))
            return
        if ballot.seniority == NO_LOG and not self._is_retired:
            # Its coordinator was restarted and has nothing of the log: this member's own round is worth more.
            self.promised = ballot
            self.begin(now_ns, [], self._terms, out)
            return
        if ballot > self.promised:
            self._promise(now_ns, source, origin, ballot)
            self._terms = RecoveryTerms(rule, is_override, header)
        elif self.role is not Role.INVITED:
            return
        cut = self._cut()
        out.sends.append(self._local.writer.control(source, Kind.CUT, encode_cut(ballot, cut)))

    def _cut(self) -> Cut:
        """What we hold, and what our own resets ask for."""
        return self._orderer.cut(self.accepted)._replace(demands=self.resets.demands())

    def _promise(self, now_ns: int, source: Address, origin: int, ballot: Ballot) -> None:
        self.promised = ballot
        self._role = Role.INVITED
        self._is_coordinating = False
        self._pending = None
        self._coordinator, self._coordinator_id = source, origin
        self.answered = ()
        self._heard_ns = now_ns
        self._due_ns = now_ns + self._check_ns()
        self._expect_coordinator(now_ns)

    def _on_deny(self, now_ns: int, ballot: Ballot) -> None:
        """A member promised a higher ballot: its coordinator goes on. If it does not, the next round is ours."""
        if self._round is None or ballot <= self.promised or ballot.node == self._local.me.id:
            return
        winner = self._round.invitees.get(ballot.node)
        if winner is not None:
            self._promise(now_ns, winner.address, ballot.node, ballot)

    def _on_result(
        self, now_ns: int, source: Address, origin: int, ballot: Ballot, proposal: Proposal, out: Outbox
    ) -> None:
        if ballot < self.promised:
            out.sends.append(self._local.writer.control(source, Kind.DENY, encode_ballot(self.promised)))
            return
        if self.role is Role.ACCEPTED and ballot == self.promised:
            out.sends.append(self._local.writer.control(source, Kind.RESULT_ACK, encode_ballot(ballot)))
            return
        if ballot > self.promised or self._coordinator_id != origin:
            self._promise(now_ns, source, origin, ballot)
        self._heard_ns = now_ns
        is_member = proposal.view.member(self._local.me.id) is not None
        if is_member and not self._is_plausible(proposal):
            raise WireError("a result that cannot follow what is here")
        self._pending = proposal._replace(ballot=ballot)
        self._role = Role.ACCEPTING
        self._due_ns = now_ns + self._check_ns()
        if is_member:
            self._orderer.adopt(proposal.view.seq - 1, proposal.assignments)
        self._try_accept(out)
        self._await_commit(now_ns)
        if self.role is Role.ACCEPTING:
            self._ask_coordinator(out)

    def _is_plausible(self, proposal: Proposal) -> bool:
        """Whether the remainder begins where we are at the latest, and is no longer than a log can be."""
        log, upto = self._orderer.log, proposal.view.seq - 1
        return log.received <= upto <= log.received + log.ahead and (
            sum(placed.count for placed in proposal.assignments) <= log.ahead + log.received - proposal.start
        )

    def _try_accept(self, out: Outbox) -> None:
        proposal = self._pending
        if proposal is None:
            return
        view = proposal.view
        if view.member(self._local.me.id) is not None:
            if self._orderer.lacking(view.seq - 1):
                return
            position, numbers, change = self._orderer.log.preview(view.seq - 1)
            base = self._orderer.view if change is None else open_change(change)
            mine = max(numbers.get(self._local.me.id, 0), base.numbers.get(self._local.me.id, 0))
            if position != view.position or mine != view.numbers.get(self._local.me.id):
                raise WireError("a result that does not continue what is here")
            self._orderer.note_remainder(view.seq - 1, out)
        self.accepted = proposal
        self._pending = None
        self._role = Role.ACCEPTED
        if self._is_known:
            self.committed = proposal
        else:
            self._acknowledge(out)

    def _acknowledge(self, out: Outbox) -> None:
        body = encode_ballot(self.promised)
        out.sends.append(self._local.writer.control(self._coordinator, Kind.RESULT_ACK, body))

    def _ask_coordinator(self, out: Outbox) -> None:
        if self._pending is None:
            return
        missing = [Missing(0, seq, 1, 0, 0) for seq in self._orderer.lacking(self._pending.view.seq - 1)[:MAX_MISSING]]
        received = self._orderer.log.received
        body = encode_nak(Acks(received, min(self._orderer.consumed, received)), missing)
        out.sends.append(self._local.writer.control(self._coordinator, Kind.NAK, body))

    def _on_check(
        self, now_ns: int, source: Address, origin: int, ballot: Ballot, answered: tuple[int, ...], out: Outbox
    ) -> None:
        if self._coordinator_id == self._local.me.id:
            if ballot == self.promised and origin != self._local.me.id and self.role is not Role.FAILED:
                mine = self._round.answered if self._round is not None and self._round.is_patient else []
                out.sends.append(self._local.writer.control(source, Kind.CHECK, encode_check(ballot, mine)))
                self.on_sign(source, origin, out)  # it has promised, and its answer was lost
            else:
                out.sends.append(self._local.writer.control(source, Kind.DENY, encode_ballot(self.promised)))
        elif origin == self._coordinator_id and ballot == self.promised:
            self._heard_ns = now_ns
            self.answered = answered

    def _watch_coordinator(self, now_ns: int, out: Outbox) -> None:
        """Invited members check periodically that the coordinator is still alive (Amoeba section 4.2)."""
        patience_ns = self._local.timing.recovery_wait_ns
        if self._is_known and self._pending is not None:
            # The member that told us may be gone: each member of the next ring keeps the old log for us.
            sources = [each.address for each in self._pending.view.members if each.id != self._local.me.id]
            if self._coordinator in sources:
                self._coordinator = sources[(sources.index(self._coordinator) + 1) % len(sources)]
            else:
                self._coordinator = next(iter(sources), self._coordinator)
            self._ask_coordinator(out)
            self._due_ns = now_ns + self._local.timing.invite_ns
            return
        if now_ns - self._heard_ns > patience_ns and not self._orderer.has_left:
            own = [RecoveryTerms(demand.rule, True, demand.header) for demand in self.resets.demands()[:1]]
            self.begin(now_ns, [self._coordinator_id], own[0] if own else self._terms, out)
            return
        out.sends.append(self._local.writer.control(self._coordinator, Kind.CHECK, encode_ballot(self.promised)))
        self._expect_coordinator(now_ns)
        if self.role is Role.ACCEPTING:
            self._ask_coordinator(out)
        elif self.role is Role.ACCEPTED:
            out.sends.append(
                self._local.writer.control(self._coordinator, Kind.RESULT_ACK, encode_ballot(self.promised))
            )
        self._due_ns = now_ns + self._check_ns()
        self._await_commit(now_ns)

    def _await_commit(self, now_ns: int) -> None:
        """Nothing but the COMMIT is missing here. It is sent once, so that a lost one has to be asked for soon."""
        if self._role is Role.ACCEPTED:
            self._due_ns = min(self._due_ns, now_ns + self._local.timing.invite_ns)

    def _expect_coordinator(self, now_ns: int) -> None:
        """Nothing goes on without its word."""
        members = self._orderer.view.members
        self._local.probing.expect(now_ns, [each for each in members if each.id == self._coordinator_id])

    def _check_ns(self) -> int:
        quarter = self._local.timing.recovery_wait_ns // 4
        return quarter + self._local.rng.randrange(quarter // 2)
