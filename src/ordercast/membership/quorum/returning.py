"""A member that was restarted with its folder: it votes in its last ring again, and comes back into the next one.

docs/design/restarts.md has the argument. It has kept what it promised and nothing of the log. So it answers a
coordinator like any member, and accepts what is proposed by keeping it. Its new life enters the next view like a
newcomer. A member that has a log coordinates. Only where none is heard do restarted members form the group again by
themselves (cold start): a quorum of the last view that any of them received. A member that has left coordinates
nothing. As long as its leave is not decided it has a vote, and is asked for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ordercast.config import SECOND, GroupConfig
from ordercast.engine import NEVER, Note, Outbox, To
from ordercast.membership.policy import NOTE
from ordercast.membership.quorum.local import LocalMember
from ordercast.membership.quorum.meeting import WAITS, waits_beside
from ordercast.membership.quorum.roles import NO_LOG
from ordercast.membership.quorum.rule import (
    Electorate,
    are_quorums,
    binding,
    is_committed,
    is_of_earlier_stay,
    lacks_holders,
    needed,
    vote_of,
)
from ordercast.membership.quorum.voting import KeptVote
from ordercast.view import Address, Member, Reason, View, next_counter, ring_id
from ordercast.wire.header import Kind
from ordercast.wire.returns import Kept, Returned, decode_returned, encode_returned
from ordercast.wire.views import (
    NO_BALLOT,
    Asking,
    Ballot,
    Cut,
    Proposal,
    Ring,
    decode_asking,
    decode_ballot,
    decode_check,
    decode_cut,
    decode_ended,
    decode_invite,
    decode_result,
    decode_ring,
    decode_welcome,
    encode_invite,
    encode_result,
    encode_ring,
    encode_welcome,
)

SLOW_NS: Final = 1 * SECOND  # between signs of life while nothing happens
BACK_OFF: Final = 4  # doublings of the time between signs, from `find_ns` on
PROPOSE_TRIES: Final = 15  # times that a result is sent before the next round
TOLD_NS: Final = 3 * SECOND  # so long the word of a coordinator about those that have answered it is good
SEARCH_WAITS: Final = 2  # times `recovery_wait_ns`: so long members with a log may be silent, as they wait for another
MAX_FOREIGN: Final = 16  # other rings of the name that are remembered; the first are forgotten first


class Returning(KeptVote):
    """From the restart to the next view, or to the news that the group has gone on without this member.

    One of `successor` and `is_over` is the outcome.
    """

    __slots__ = (
        "_acks",
        "_answered",
        "_answered_ns",
        "_coordinator_ns",
        "_cuts",
        "_due_ns",
        "_floor",
        "_foreign",
        "_heard",
        "_heard_ns",
        "_is_coordinating",
        "_leavers",
        "_patient_ns",
        "_proposal",
        "_ready_ns",
        "_steps",
        "_tries",
        "_votes",
        "is_leaving",
        "is_over",
        "successor",
    )

    def __init__(self, local: LocalMember, kept: Kept, next_block: int) -> None:
        super().__init__(local, kept, next_block)
        self._due_ns = NEVER
        self._tries = 0
        # Others that were restarted
        self._heard: dict[int, Returned] = {}  # by the id that each has in the ring: the last that it said
        self._heard_ns: dict[int, int] = {}  # when a member spoke in the ring, by that id; for people
        self._patient_ns = 0  # when those that are there have had time to speak; for people
        self._leavers: dict[int, Address] = {}  # members that have left, were not restarted, and may still have a vote
        self._ready_ns = NEVER  # since when they are enough, with this one
        self._coordinator_ns = 0  # when a coordinator was heard last
        self._answered: tuple[int, ...] = ()  # the members that have answered it, as it says; for people
        self._answered_ns = 0
        self._floor = 0  # the highest round that was heard of
        self._foreign: dict[int, int] = {}  # other rings of the name that work, and when each was heard first
        # Coordinating
        self._is_coordinating = False
        self._votes: dict[int, Returned] = {}
        self._cuts: dict[int, Cut] = {}  # the votes of leavers
        self._proposal: Proposal | None = None
        self._acks: set[int] = set()
        self._steps = 0
        self.is_leaving = False  # its application is out: it votes, and leaves once it is back
        # Outcome
        self.successor: Proposal | None = None  # the next view, with this member in it
        self.is_over = False  # the group has gone on, or has ended: this node joins as a new one

    # What it waits for

    def present(self, now_ns: int) -> set[int]:
        """The members of the last view that are heard here, or by the coordinator, by the ids that they had there, this
        one included."""
        answered = self._answered if self._is_told(now_ns) else ()
        silent_ns = TOLD_NS + self._local.timing.recovery_wait_ns  # it is that long before it shows itself again
        heard = [member for member, at_ns in self._heard_ns.items() if now_ns - at_ns < silent_ns]
        return {self.kept.formerly[0], *heard, *answered}

    def is_patient(self, now_ns: int) -> bool:
        """Whether members that have not spoken had time to do so: one with a log first waits for its coordinator, which
        may be gone."""
        return now_ns >= self._patient_ns

    def electorates(self) -> tuple[list[Electorate], View]:
        """The views whose quorums have to be there, as far as those that were heard know; and the last view."""
        votes, base = self._as_votes(self._heard, {})
        return needed(votes, base), base

    def coordinator(self, now_ns: int) -> int:
        """The member that re-forms the group, and has not said yet which members have answered it; 0: there is none."""
        node = self.kept.promised.node
        is_heard = node in self._heard_ns and now_ns - self._heard_ns[node] < TOLD_NS
        return node if is_heard and node != self._local.me.id and not self._is_told(now_ns) else 0

    def _is_told(self, now_ns: int) -> bool:
        return self._answered_ns > 0 and now_ns - self._answered_ns < TOLD_NS

    # Inputs

    def start(self, now_ns: int, out: Outbox) -> None:
        view = self.kept.view
        members = ", ".join(map(str, view.members))
        self._note(f"restarted with its folder: it was in view {view.id} of {members}, and votes there", out)
        self._await_members(now_ns)
        self._announce(now_ns, out)

    def on_control(
        self, now_ns: int, kind: int, source: Address, ring: int, origin: int, body: bytes, out: Outbox
    ) -> None:
        if kind == Kind.FIND:
            asking = decode_asking(body)
            if asking.name == self._local.name:
                self._answer(source, asking, out)
        elif kind in (Kind.HERE, Kind.BEACON):
            self._on_ring(now_ns, kind, decode_ring(body), out)
        elif ring != self.kept.view.ring:
            if ring == self.kept.ended[0] and kind not in (Kind.COMMIT, Kind.ENDED):
                self._say(source, Kind.COMMIT, self.kept.ended[1], ring, out)
        else:
            self._note_voice(now_ns, origin)
            self._on_ring_message(now_ns, kind, source, origin, body, out)
            self._note_leaver(now_ns, source, origin)

    def _on_ring_message(self, now_ns: int, kind: int, source: Address, origin: int, body: bytes, out: Outbox) -> None:
        if kind == Kind.ENDED:
            self.is_over = self.is_over or decode_ended(body) == self._local.name
        elif kind == Kind.WELCOME:
            self._on_later(now_ns, *decode_welcome(body))
        elif kind == Kind.RETURN:
            self._on_returned(now_ns, decode_returned(body), out)
        elif kind == Kind.INVITE:
            self.on_invite(now_ns, source, decode_invite(body)[0], out)
        elif kind == Kind.CUT:
            self._on_cut(now_ns, origin, *decode_cut(body), out)
        elif kind == Kind.RESULT:
            self.on_result(now_ns, source, *decode_result(body), out)
        elif kind == Kind.RESULT_ACK:
            self._on_result_ack(now_ns, origin, decode_ballot(body), out)
        elif kind == Kind.DENY:
            self._on_deny(now_ns, decode_ballot(body))
        elif kind == Kind.CHECK:
            ballot, answered = decode_check(body)
            # One that says nothing asks a former life of this node, or cannot say yet which members are missing.
            if answered and ballot == self.kept.promised and not self._is_coordinating:
                self._answered, self._answered_ns = answered, now_ns
        elif kind == Kind.COMMIT:
            self._on_commit(now_ns, decode_result(body)[1], body, out)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._due_ns > now_ns:
            return
        if self._is_coordinating:
            self._steps += 1
            if self._steps > PROPOSE_TRIES:
                self._stand_back(now_ns)
            elif self._proposal is not None:
                self._send_result(now_ns, out)
            else:
                self._invite(now_ns, out)
                self._consider(now_ns, out)  # one that was heard may be gone, and nobody else may answer
        elif self._may_begin(now_ns):
            self._begin(now_ns, out)
        else:
            self._announce(now_ns, out)

    def deadline_ns(self) -> int:
        return self._due_ns

    # Showing itself

    def _await_members(self, now_ns: int) -> None:
        self._patient_ns = now_ns + SEARCH_WAITS * self._local.timing.recovery_wait_ns

    def _answer(self, source: Address, asking: Asking, out: Outbox) -> None:
        """A newcomer asks. It must not make the group anew beside this one. Its join may have been ordered, and nobody
        else may know that: then it is a member, and has a log. Where it is the only member that is left it begins with
        the last view, also if others left after it had joined."""
        view = self.kept.view
        is_joined = view.reason == Reason.JOIN and view.subject == str(asking.member)
        if is_joined or [member.id for member in view.members] == [asking.member.id]:
            attempt = view.serial if is_joined else asking.nonce
            body = encode_welcome(self._local.name, attempt, self.kept.config, view)
            self._say(source, Kind.WELCOME, body, view.ring, out)
        elif not self.is_leaving:
            self._say(source, Kind.HERE, encode_ring(self._shown()), 0, out)

    def _announce(self, now_ns: int, out: Outbox) -> None:
        """To the group's address, and to every member of the last view where it was."""
        body = encode_returned(self._returned())
        addresses = [member.address for member in self.kept.view.members]
        addresses += [each.member.address for each in self._heard.values()]
        for to in dict.fromkeys([To.ANYONE, *addresses]):
            if to != self._local.me.address:
                self._say(to, Kind.RETURN, body, self.kept.view.ring, out)
        timing = self._local.timing
        wait_ns = min(timing.find_ns << min(self._tries, BACK_OFF), SLOW_NS)
        self._tries += 1
        self._due_ns = now_ns + wait_ns + self._local.rng.randrange(max(wait_ns // 4, 1))
        self._plan(now_ns)

    def _shown(self) -> Ring:
        view = self.kept.view
        return Ring(
            self._local.name,
            view.ring,
            view.counter,
            view.creator,
            len(view.members),
            False,
            self._local.me,
            self.kept.config,
        )

    # Voting

    def _promise(self, now_ns: int, ballot: Ballot) -> None:
        if ballot > self.kept.promised:
            self.kept = self.kept._replace(promised=ballot)
            self._is_coordinating = False
            self._proposal = None
            self._due_ns = now_ns + self._local.timing.recovery_wait_ns
        self._floor = max(self._floor, ballot.round)
        self._coordinator_ns = now_ns

    def _on_deny(self, now_ns: int, ballot: Ballot) -> None:
        if ballot > self.kept.promised:
            self._floor = max(self._floor, ballot.round)
            if self._is_coordinating:
                self._stand_back(now_ns)

    def _on_commit(self, now_ns: int, proposal: Proposal, body: bytes, out: Outbox) -> None:
        """The ring is over. The next view has this member, or a former life of it, or neither."""
        view, kept = proposal.view, self.kept
        if view.member(self._local.me.id) is not None:
            self.successor = proposal
            return
        former = [member for member in kept.formerly if view.member(member) is not None]
        if not former:
            self._note(f"view {view.id} has gone on without it: it joins as a new member", out)
            self.is_over = True
            return
        others = [member for member in kept.formerly if member != former[0]]
        ended = (kept.view.ring, body)
        self.kept = Kept(kept.config, (former[0], *others), view, True, NO_BALLOT, None, ended)
        self._heard.clear()
        self._heard_ns.clear()
        self._leavers.clear()
        self._stand_back(now_ns)
        self._floor = self._tries = 0
        self._coordinator_ns = self._answered_ns = 0
        self._ready_ns = NEVER
        self._await_members(now_ns)
        self._announce(now_ns, out)

    def _on_later(self, now_ns: int, name: str, serial: int, config: GroupConfig, view: View) -> None:
        """A member that has left tells a later view of the ring, or that ours is decided: nobody else may know it."""
        kept, former = self.kept, self.kept.formerly[0]
        is_decided = serial == 1
        is_news = (view.seq, is_decided) > (kept.view.seq, kept.is_decided)
        if name != self._local.name or view.ring != kept.view.ring or not is_news:
            return
        if view.member(former) is not None:
            self.kept = kept._replace(config=config, view=view, is_decided=is_decided)
            self._plan(now_ns)
        elif is_decided:
            self.is_over = True  # it was its own leave

    def _on_ring(self, now_ns: int, kind: int, seen: Ring, out: Outbox) -> None:
        """A ring shows itself. Our own one answers so where its members know that we have left it. Another one may
        follow ours, with us in it, and be heard before its COMMIT: it is asked, and has time to say so. One that a
        member of ours leads was not made by a newcomer."""
        if seen.name != self._local.name or not seen.is_working:
            return
        if seen.ring == self.kept.view.ring:
            self.is_over = self.is_over or kind == Kind.HERE
        elif seen.ring not in self._foreign:
            if len(self._foreign) >= MAX_FOREIGN:
                del self._foreign[next(iter(self._foreign))]
            self._foreign[seen.ring] = now_ns
            self._say_returned(seen.leader.address, out)
        else:
            is_led_by_ours = self.kept.view.member(seen.leader.id) is not None
            waits = WAITS if is_led_by_ours else waits_beside(seen, self._shown())
            if now_ns - self._foreign[seen.ring] > waits * self._local.timing.recovery_wait_ns:
                self.is_over = True

    # Cold start

    def _on_returned(self, now_ns: int, returned: Returned, out: Outbox) -> None:
        if returned.name != self._local.name or returned.view.ring != self.kept.view.ring:
            return
        known = self._heard.get(returned.former)
        if returned.former in self.kept.formerly or (known and known.member.life > returned.member.life):
            return
        self._heard[returned.former] = returned
        self._heard_ns[returned.former] = now_ns
        self._floor = max(self._floor, returned.ballot.round)
        if not self._is_coordinating:
            if known is None:
                self._tries = 0
                self._due_ns = min(self._due_ns, now_ns + self._local.rng.randrange(self._local.timing.find_ns))
            self._plan(now_ns)
        elif returned.ballot == self.kept.promised and self._proposal is None:
            self._votes[returned.former] = returned
            self._consider(now_ns, out)

    def _note_voice(self, now_ns: int, origin: int) -> None:
        """A member with a log may speak although it has nothing to say to this life: to the coordinator of a round that
        a former life of this node began, for example."""
        views = [self.kept.view, *[each.view for each in self._heard.values()]]
        if any(origin in view.prior or view.member(origin) is not None for view in views):
            self._heard_ns[origin] = now_ns

    def _note_leaver(self, now_ns: int, source: Address, origin: int) -> None:
        """A member speaks. If it has left by the last change, which is not known to be decided, its vote may be needed,
        and it has a log: nobody that returns brings it along."""
        kept, view = self.kept, self.kept.view
        has_vote = origin in view.prior and view.member(origin) is None and not kept.is_decided
        if has_vote and origin not in self._leavers and origin not in self._heard:
            self._leavers[origin] = source
            self._plan(now_ns)

    def _on_cut(self, now_ns: int, origin: int, ballot: Ballot, cut: Cut, out: Outbox) -> None:
        """A leaver has promised. It has a log, and nobody comes back that could use it."""
        is_asked = self._is_coordinating and self._proposal is None and ballot == self.kept.promised
        if is_asked and origin in self._leavers and cut.view.ring == self.kept.view.ring:
            self._cuts[origin] = cut
            self._consider(now_ns, out)

    def _plan(self, now_ns: int) -> None:
        """Look whether those that were heard are enough, and since when."""
        votes, base = self._as_votes(self._heard, self._expected())
        if not self._may_coordinate(votes, base) or not are_quorums(needed(votes, base), votes.keys()):
            self._ready_ns = NEVER
            return
        self._ready_ns = min(self._ready_ns, now_ns)
        self._due_ns = min(self._due_ns, max(self._begin_ns(votes, base), now_ns + 1))

    def _begin_ns(self, votes: dict[int, Cut], base: View) -> int:
        """When it is this member's turn to coordinate: first the one whose view is the last, then by their order."""
        timing = self._local.timing
        begin_ns = self._ready_ns
        if lacks_holders(needed(votes, base), base, votes.keys(), set()):
            begin_ns += timing.restart_wait_ns
        mine = self.kept.formerly[0]
        best = min(votes, key=lambda member: (-votes[member].view.seq, base.index(member) % (len(base.members) + 1)))
        if best != mine:
            begin_ns += timing.recovery_wait_ns
        return max(begin_ns, self._coordinator_ns + timing.recovery_wait_ns if self._coordinator_ns else 0)

    def _may_begin(self, now_ns: int) -> bool:
        if self._ready_ns == NEVER:
            return False
        return self._begin_ns(*self._as_votes(self._heard, self._expected())) <= now_ns

    def _may_coordinate(self, votes: dict[int, Cut], base: View) -> bool:
        """A member that has left votes as long as its leave is not decided, and another has to coordinate."""
        mine = self.kept.formerly[0]
        return mine in votes and base.member(mine) is not None

    def _expected(self) -> dict[int, Cut]:
        """What leavers will say, as far as it matters for the plan."""
        mine = vote_of(self._returned())
        return dict.fromkeys(self._leavers, mine._replace(accepted=None))

    def _as_votes(self, returned: dict[int, Returned], leavers: dict[int, Cut]) -> tuple[dict[int, Cut], View]:
        """The votes of these and of this member in the last view that one of them received, and that view."""
        votes = {**leavers, **{member: vote_of(each) for member, each in returned.items()}}
        votes[self.kept.formerly[0]] = vote_of(self._returned())
        last = max([vote.view for vote in votes.values()], key=lambda view: view.seq)
        return {each: vote for each, vote in votes.items() if not is_of_earlier_stay(each, vote.view, last)}, last

    def _begin(self, now_ns: int, out: Outbox) -> None:
        self._floor = max(self._floor, self.kept.promised.round) + 1
        self.kept = self.kept._replace(promised=Ballot(self._floor, 0, NO_LOG, self._local.me.id))
        self._is_coordinating = True
        self._votes, self._cuts = {}, {}
        self._proposal = None
        self._steps = 0
        self._note("no member that has a log is heard: restarted members form the group again", out)
        self._invite(now_ns, out)
        self._consider(now_ns, out)

    def _stand_back(self, now_ns: int) -> None:
        timing = self._local.timing
        self._is_coordinating = False
        self._proposal = None
        self._coordinator_ns = now_ns
        self._due_ns = now_ns + timing.recovery_wait_ns + self._local.rng.randrange(timing.recovery_wait_ns)

    def _invite(self, now_ns: int, out: Outbox) -> None:
        body = encode_invite(self.kept.promised, self._local.me.min_members, False, b"")
        addresses = [each.member.address for each in self._heard.values()]
        addresses += [member.address for member in self.kept.view.members]
        for to in dict.fromkeys([*addresses, *self._leavers.values()]):
            if to != self._local.me.address:
                self._say(to, Kind.INVITE, body, self.kept.view.ring, out)
        self._due_ns = now_ns + self._local.timing.invite_ns

    def _consider(self, now_ns: int, out: Outbox) -> None:
        """Propose once those that answered are enough. Those that were heard, and not this time, get a few chances."""
        votes, base = self._as_votes(self._votes, self._cuts)
        electorates = needed(votes, base)
        if not self._may_coordinate(votes, base) or not are_quorums(electorates, votes.keys()):
            return
        is_early = lacks_holders(electorates, base, votes.keys(), set())
        if is_early and now_ns < self._ready_ns + self._local.timing.restart_wait_ns:
            return
        if self._steps < self._local.timing.invite_tries and any(member not in self._votes for member in self._heard):
            return
        bound = binding(votes, [*self._votes.values(), self._returned()])
        if bound is None:
            bound = Proposal(self.kept.promised, True, base.seq, (), self._new_view(now_ns, base))
        else:
            bound = bound._replace(fresh=False, ballot=self.kept.promised)
        self._proposal = bound
        self.kept = self.kept._replace(accepted=bound)
        self._acks = {self._local.me.id, *self.kept.formerly}
        self._steps = 0
        self._send_result(now_ns, out)
        self._consider_commit(now_ns, out)

    def _new_view(self, now_ns: int, base: View) -> View:
        """Those that answered, as they are now. Of the log after `base` nothing is left."""
        me = self._local.me
        members: list[Member] = [me]
        numbers = {me.id: self._next_block}
        for member in base.members:
            returned = self._votes.get(member.id)
            if returned is not None:
                members.append(returned.member)
                numbers[returned.member.id] = returned.next_block
        counter = next_counter(base.counter, now_ns)
        return replace(
            base,
            counter=counter,
            creator=str(me),
            ring=ring_id(self._local.name, me.id, counter),
            incarnation=base.incarnation + 1,
            seq=base.seq + 1,
            members=tuple(members),
            numbers=numbers,
            reason=Reason.RESTART,
            subject=str(me),
            header=b"",
            prior=(),
            prior_rules=(),
            locks={},
            tokens={},
            largest_before=base.largest,
            awaited={},
            lock="",
            serial=0,
        )

    def _send_result(self, now_ns: int, out: Outbox) -> None:
        if self._proposal is None:
            return
        body = encode_result(self.kept.promised, self._proposal)
        for returned in self._votes.values():
            if returned.former not in self._acks:
                self._say(returned.member.address, Kind.RESULT, body, self.kept.view.ring, out)
        for leaver in self._cuts.keys() - self._acks:
            self._say(self._leavers[leaver], Kind.RESULT, body, self.kept.view.ring, out)
        self._due_ns = now_ns + self._local.timing.invite_ns

    def _on_result_ack(self, now_ns: int, origin: int, ballot: Ballot, out: Outbox) -> None:
        if self._proposal is None or not self._is_coordinating or ballot != self.kept.promised:
            return
        for returned in self._votes.values():
            if origin == returned.member.id:
                self._acks |= {origin, *returned.formerly}
        if origin in self._cuts:
            self._acks.add(origin)
        self._consider_commit(now_ns, out)

    def _consider_commit(self, now_ns: int, out: Outbox) -> None:
        proposal = self._proposal
        votes, base = self._as_votes(self._votes, self._cuts)
        if proposal is None or not is_committed(proposal, needed(votes, base), self._acks):
            return
        body = encode_result(proposal.ballot, proposal)
        addresses = [each.member.address for each in self._heard.values()]
        addresses += [member.address for member in (*proposal.view.members, *self.kept.view.members)]
        for to in dict.fromkeys([*addresses, *self._leavers.values()]):
            if to != self._local.me.address:
                self._say(to, Kind.COMMIT, body, self.kept.view.ring, out)
        self._on_commit(now_ns, proposal, body, out)

    # Helpers

    def _note(self, text: str, out: Outbox) -> None:
        out.notes.append(Note(NOTE, self._local.me.id, detail=text))
