"""The coordinator of one round of a recovery: invite, decide, fetch, propose. Amoeba section 4.2, RMP section 4.4.

The object lives as long as its ballot counts. `Recovery` feeds it and reads what came of it: `proposal`, and the four
outcomes. What it decides by is in `rule`, and how the logs of the survivors become one in `cuts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ordercast.config import GroupConfig, keeps_others_out
from ordercast.engine import NEVER, Outbox
from ordercast.errors import WireError
from ordercast.membership.quorum.cuts import Answers, Remainder, agree, clip_assignments, holders, orphans
from ordercast.membership.quorum.local import LocalMember
from ordercast.membership.quorum.roles import RecoveryTerms, Role
from ordercast.membership.quorum.rule import (
    Electorate,
    Mandate,
    binding,
    electorate,
    is_committed,
    is_of_earlier_stay,
    lacks_holders,
    mandate,
    needed,
)
from ordercast.orderers import LoggedOrderer
from ordercast.service import MAJORITY_RANK
from ordercast.view import Address, Member, Reason, View, id_of, next_counter, ring_id
from ordercast.wire.block import after_of, head_of
from ordercast.wire.header import Kind
from ordercast.wire.ordering import MAX_MISSING, Acks, Missing, encode_nak
from ordercast.wire.returns import Returned
from ordercast.wire.views import (
    Ballot,
    Cut,
    Proposal,
    ResetDemand,
    encode_check,
    encode_invite,
    encode_result,
    encode_welcome,
    open_change,
)

SUSPECT_TRIES: Final = 2  # invitations to a member that is already suspected, before the others go on
SLOW_NS: Final = 1_000_000_000  # between invitations while too few members answer
RESULT_TRIES: Final = 15  # times that a result is sent; members that have not acknowledged it by then are left out


class Coordinator:
    """One round. `role` is INVITING, FETCHING or PROPOSING."""

    __slots__ = (
        "_acks",
        "_answers",
        "_bound",
        "_config",
        "_is_stale",
        "_joins",
        "_local",
        "_mandate",
        "_orderer",
        "_orphans",
        "_remainder",
        "_steps",
        "_suspects",
        "_terms",
        "_tries",
        "ballot",
        "counter",
        "due_ns",
        "found",
        "has_left",
        "invitees",
        "is_committed",
        "is_refused",
        "proposal",
        "role",
    )

    def __init__(
        self,
        local: LocalMember,
        orderer: LoggedOrderer,
        config: GroupConfig,
        ballot: Ballot,
        terms: RecoveryTerms,
        suspects: list[int],
        own_cut: Cut,
        counter: int,
        joins: Mapping[int, View],
        heard: Mapping[int, Returned],
        grace_ns: int,
    ) -> None:
        """`counter`: the highest of a view that is known here. `joins`: newcomers, with the views that let them in.
        `heard`: restarted members, by their ids in the ring. Until `grace_ns` those are waited for that may hold what
        the restarted ones have lost."""
        self._local = local
        self._orderer = orderer
        self._config = config
        self._terms = terms
        self.ballot = ballot
        self.counter = counter
        self.role = Role.INVITING
        self.due_ns = NEVER
        # Inviting
        self.invitees: dict[int, Member] = {member.id: member for member in orderer.view.members}
        leaver = orderer.leaver
        if leaver is not None and orderer.decided < orderer.view.seq:
            self.invitees[leaver.id] = leaver  # it still has a vote in the view before its leave
        self._joins: dict[int, View] = dict(joins)  # newcomers, which may not know that they are in
        self._suspects = set(suspects)
        for returned in heard.values():
            self.meet(returned)
        self._answers = Answers({local.me.id: own_cut}, grace_ns)
        self._tries = 0
        self._is_stale = False  # what was answered is too old
        # Deciding and fetching
        self._steps = 0  # requests or results since the last decision
        self._remainder: Remainder | None = None
        self._bound: Proposal | None = None  # may have been committed: it has to be proposed again
        self._mandate: Mandate | None = None
        self._orphans: list[tuple[int, int]] = []
        # Proposing
        self.proposal: Proposal | None = None
        self._acks: set[int] = set()
        # Outcome
        self.is_committed = False
        self.is_refused = False  # on a reset(): too few members
        self.has_left = False  # this node's own leave is part of what the survivors agree on
        self.found = 0  # members that answered

    # Inputs

    def start(self, now_ns: int, out: Outbox) -> None:
        self._invite(now_ns, out)
        self._consider(now_ns, out)

    def progress(self, now_ns: int, out: Outbox) -> None:
        """Something that was fetched may have come."""
        if self.role is Role.FETCHING and not self._missing():
            self._propose(now_ns, out)

    def expire(self, now_ns: int, out: Outbox) -> bool:
        """Whether the round has come to nothing: a member that had answered is silent now, or may be."""
        self.due_ns = NEVER
        if self._is_stale:
            return True
        if self.role is Role.INVITING:
            self._invite(now_ns, out)
            self._consider(now_ns, out)
            return False
        self._steps += 1
        if self._steps > RESULT_TRIES:
            return True
        if self.role is Role.PROPOSING:
            self._send_result(now_ns, out)
        elif self._missing():
            self._fetch(now_ns, out)
        else:
            self._propose(now_ns, out)
        return False

    def on_cut(self, now_ns: int, origin: int, cut: Cut, out: Outbox) -> None:
        if self.role is not Role.INVITING or cut.view.ring != self._orderer.view.ring:
            return
        if origin not in self.invitees and cut.view.member(origin) is None:
            return  # neither known here, nor by a join that is known there
        if is_of_earlier_stay(origin, cut.view, self._orderer.view):
            return
        log = self._orderer.log
        if abs(cut.received - log.received) > log.ahead or cut.view.seq > cut.received:
            raise WireError("a cut of another log")
        is_new = origin not in self._answers.cuts
        self._answers.cuts[origin] = cut
        self._note_join(cut.view)
        for member in cut.view.members:  # a join may be known there and not here
            self.invitees.setdefault(member.id, member)
        if is_new and self._tries > self._local.timing.invite_tries + 1:
            # The others answered long ago, and may be gone: with this one all are asked anew.
            self._is_stale = True
            self.due_ns = now_ns
        elif is_new:  # another node at the address of a dead one may answer again and again
            self._consider(now_ns, out)

    def meet(self, returned: Returned) -> None:
        """A member was restarted: it is somewhere else now."""
        known = self.invitees.get(returned.former)
        if known is not None:
            self.invitees[returned.former] = replace(known, address=returned.member.address)
        self._note_join(returned.view)
        for member in returned.view.members:  # it may have received a join that is not known here
            self.invitees.setdefault(member.id, member)

    def on_returned(self, now_ns: int, returned: Returned, out: Outbox) -> None:
        """A restarted member speaks. It has promised this ballot, or has to be asked."""
        self.meet(returned)
        grace_ns = now_ns + self._local.timing.restart_wait_ns
        self._answers.grace_ns = min(self._answers.grace_ns, grace_ns)
        if self.role is not Role.INVITING:
            return
        if returned.former in self._answers.cuts:  # its former life has answered, and it waits for our word
            self._show(returned.member, out)
            return
        if is_of_earlier_stay(returned.former, returned.view, self._orderer.view):
            return
        if returned.ballot != self.ballot:
            if returned.former not in self._answers.returned:
                body = self._invitation()
                out.sends.append(self._local.writer.control(returned.member.address, Kind.INVITE, body))
            return
        is_new = returned.former not in self._answers.returned
        self._answers.returned[returned.former] = returned
        if is_new and self._tries > self._local.timing.invite_tries + 1:
            self._is_stale = True  # as in `on_cut`
            self.due_ns = now_ns
        elif is_new:
            self._consider(now_ns, out)
        else:  # it waits, and hears that we are there: if it was restarted again, it was not asked by us
            self._show(returned.member, out)

    def _show(self, member: Member, out: Outbox) -> None:
        """Tell a restarted member that this round is there, and who has answered."""
        body = encode_check(self.ballot, self.answered if self.is_patient else [])
        out.sends.append(self._local.writer.control(member.address, Kind.CHECK, body))

    def on_sign(self, source: Address, origin: int, out: Outbox) -> None:
        """It is heard at last: it need not wait for the next invitation of all. A newcomer whose join is not known here
        is not among those."""
        if self.role is Role.INVITING and origin not in self._answers.cuts:
            out.sends.append(self._local.writer.control(source, Kind.INVITE, self._invitation()))

    def _invitation(self) -> bytes:
        return encode_invite(self.ballot, self._terms.rule, self._terms.is_override, self._terms.header)

    def counts_on(self, members: list[int]) -> bool:
        """Whether one of these has answered, and has to accept what comes of it."""
        return self.role is not Role.INVITING and any(member in self._answers for member in members)

    def consider(self, now_ns: int, out: Outbox) -> None:
        """One of those that have not answered may be gone."""
        if self.role is Role.INVITING:
            self._consider(now_ns, out)

    def on_result_ack(self, origin: int) -> None:
        if self.role is Role.PROPOSING:
            self._acks |= self._answers.ids_of(origin)
            self._consider_commit()

    # What it waits for

    @property
    def answered(self) -> list[int]:
        """The members that have answered, this one included."""
        return list(self._answers.votes)

    @property
    def electorates(self) -> list[Electorate]:
        """The views whose quorums have to answer, as far as that is known by now."""
        view = self._orderer.view
        if self._terms.is_override:
            return [electorate(view)._replace(rules=(self._terms.rule,))]
        bound = [electorate(self._bound.view)] if self._bound is not None else []
        return [*needed(self._answers.votes, view), *bound]

    @property
    def silent(self) -> list[int]:
        """The members whose answer is waited for now."""
        if self.role is Role.PROPOSING and self.proposal is not None:
            return [member.id for member in self.proposal.view.members if member.id not in self._acks]
        return [member for member in self.invitees if member not in self._answers]

    @property
    def is_patient(self) -> bool:
        """Whether those that are silent have had their time, also where they are far away: until then their answers may
        be on their way. For people."""
        return self._tries > self._local.timing.invite_tries + 1

    # What a commit takes along

    @property
    def suspects(self) -> list[int]:
        return list(self._suspects)

    def orphans(self) -> list[tuple[int, int, bytes]]:
        """What to submit for senders that are gone."""
        return self._orphans_upto(self.proposal.view.seq if self.proposal is not None else 0)

    def awaited(self) -> dict[int, int]:
        """How far the survivors had sent when they were frozen."""
        view = self.proposal.view if self.proposal is not None else self._orderer.view
        return {member: cut.next_block for member, cut in self._answers.cuts.items() if view.member(member) is not None}

    def _orphans_upto(self, upto: int) -> list[tuple[int, int, bytes]]:
        """A sender's blocks end where one is missing, or comes after a message that got no sequence number: its cause
        would be delivered later. They also end at a message that must have one order everywhere, if another part of
        the group may go on: that part may have ordered it already."""
        is_only_part = self._mandate is None or keeps_others_out(self._mandate.rules, self._mandate.size)
        found = []
        ended = set()
        for origin, number in self._orphans:
            block = self._orderer.log.find_block(origin, number)
            is_doubtful = block is not None and head_of(block).rank >= MAJORITY_RANK and not is_only_part
            if block is None or after_of(block) > upto or is_doubtful:
                ended.add(origin)
            elif origin not in ended:
                found.append((origin, number, block))
        return found

    # Phase 1: invitation

    def _invite(self, now_ns: int, out: Outbox) -> None:
        body = self._invitation()
        for member in self.invitees.values():
            if member.id not in self._answers:
                join = self._joins.get(member.id)
                if join is not None:
                    welcome = encode_welcome(self._local.name, join.serial, self._config, join)
                    out.sends.append(self._local.writer.control(member.address, Kind.WELCOME, welcome))
                out.sends.append(self._local.writer.control(member.address, Kind.INVITE, body))
        self._local.probing.expect(now_ns, [each for each in self.invitees.values() if each.id not in self._answers])
        self._tries += 1
        slow = self._tries > self._local.timing.invite_tries
        wait_ns = SLOW_NS if slow else self._local.timing.invite_ns
        self.due_ns = now_ns + wait_ns + self._local.rng.randrange(wait_ns // 4)
        if self._answers.grace_ns > now_ns:
            self.due_ns = min(self.due_ns, self._answers.grace_ns)  # those that are there may be enough then

    def _note_join(self, view: View) -> None:
        """The member that let a newcomer in may be gone, and the newcomer has a vote: it has to learn that it is in."""
        if view.reason == Reason.JOIN:
            self._joins[id_of(view.subject)] = view

    def _consider(self, now_ns: int, out: Outbox) -> None:
        """Go on when all have answered, or when the silent members have been invited often enough."""
        probing = self._local.probing
        silent = [member for member in self.invitees if member not in self._answers and not probing.is_gone(member)]
        are_suspected = all(member in self._suspects for member in silent)
        chances = SUSPECT_TRIES if are_suspected else self._local.timing.invite_tries
        if not silent or self._tries > chances:
            self._decide(now_ns, out)

    # Phase 2: decide, fetch, propose

    def _decide(self, now_ns: int, out: Outbox) -> None:
        self._remainder = agree(self._answers.cuts)
        for seq, origin, number in self._remainder.beyond:
            self._orderer.log.assign(seq, origin, number)
        self._bound = binding(self._answers.votes, self._answers.returned.values())
        if self._bound is not None and not self._is_hollow:
            self._orderer.adopt(self._bound.view.seq - 1, self._bound.assignments)
        self.role = Role.FETCHING
        self._steps = 0
        if not self._missing():
            self._propose(now_ns, out)
        else:
            self._fetch(now_ns, out)

    def _missing(self) -> list[int]:
        if self._remainder is None:
            return []
        upto = self._remainder.upto
        bound = self._bound if not self._is_hollow else None
        return self._orderer.lacking(upto if bound is None else max(upto, bound.view.seq - 1))

    @property
    def _is_hollow(self) -> bool:
        """Whether nobody that needs a log is left of those that accepted what has to be proposed again: all of them
        were restarted, and this member is not among its members."""
        bound = self._bound
        if bound is None or bound.view.member(self._local.me.id) is not None:
            return False
        return all(cut.accepted is None or cut.accepted.ballot != bound.ballot for cut in self._answers.cuts.values())

    def _fetch(self, now_ns: int, out: Outbox) -> None:
        """Ask for what is missing here: up to the highest received by sequence number, beyond it by block, of a member
        that holds it."""
        remainder = self._remainder
        if remainder is None:
            return
        log = self._orderer.log
        wanted: dict[int, list[Missing]] = {}
        held = holders(self._answers.cuts)
        for seq in self._missing()[:MAX_MISSING]:
            if seq <= remainder.received:
                wanted.setdefault(remainder.top, []).append(Missing(0, seq, 1, 0, 0))
            elif seq not in log.assignments:
                # Of a proposal that others made when they were further than we are: one that accepted it may know.
                others = [member for member in self._answers.cuts if member != self._local.me.id] or [remainder.top]
                wanted.setdefault(others[self._steps % len(others)], []).append(Missing(0, seq, 1, 0, 0))
            else:
                origin, number = log.assignments[seq]
                who = held.get((origin, number)) or [remainder.top]
                missing = Missing(origin, number, 1, 0, 0)
                wanted.setdefault(who[self._steps % len(who)], []).append(missing)
        self._ask(wanted, out)
        self.due_ns = now_ns + self._local.timing.invite_ns

    def _ask(self, wanted: dict[int, list[Missing]], out: Outbox) -> None:
        received = self._orderer.log.received
        for member, missing in wanted.items():
            if member in self.invitees:
                body = encode_nak(Acks(received, min(self._orderer.consumed, received)), missing)
                out.sends.append(self._local.writer.control(self.invitees[member].address, Kind.NAK, body))

    def _propose(self, now_ns: int, out: Outbox) -> None:
        remainder = self._remainder
        if remainder is None:
            return
        log, bound = self._orderer.log, self._bound
        upto = remainder.upto if bound is None else bound.view.seq - 1
        position, numbers, change = log.preview(max(remainder.upto, log.received))
        base = self._orderer.view if change is None else open_change(change)
        for member in base.members:  # a newcomer of the remainder has its number by its join
            numbers[member.id] = max(numbers.get(member.id, 0), base.numbers.get(member.id, 0))
        # A restarted member may have received a change that nobody has in a log any more. What stands before it is lost
        # with it: its senders go on where the log ends, and send that again. So the numbers of such a view count only
        # for members of which no log knows.
        base = self._answers.last_view(base)
        for member in base.members:
            numbers.setdefault(member.id, base.numbers.get(member.id, 0))
        unknown = [member for member in base.members if member.id not in self.invitees]
        if unknown:
            self._note_join(base)
            self.invitees.update((member.id, member) for member in unknown)
            self.role = Role.INVITING
            self._invite(now_ns, out)
            return
        if base.member(self._local.me.id) is None:
            self.has_left = True
            return
        if self._answers.forget_earlier_stays(base):  # nobody here knew the join when they answered
            self._note_join(base)
            self._back_to_inviting(now_ns, out)
            self._consider(now_ns, out)
            return
        if not self._may_go_on(now_ns, base):
            if self._terms.is_override and self._tries > self._local.timing.invite_tries + 1:
                self.is_refused = True  # also those that are far away had their time
            else:
                self._back_to_inviting(now_ns, out)
            return
        if bound is None:
            survivors = set(self._answers.cuts)
            # A restarted member has to know the sender, and knows the members of the view that it kept.
            views = [each.view for each in self._answers.returned.values()]
            gone = [
                origin
                for origin in numbers
                if origin not in survivors and all(view.member(origin) is not None for view in views)
            ]
            self._orphans = orphans(self._answers.cuts, numbers, gone)
            if self._lacks_orphans(now_ns, out):
                return
            view = self._new_view(now_ns, base, survivors, upto, position, numbers)
            assignments = clip_assignments(log.assigned_runs(remainder.start + 1, upto + 1), remainder.start, upto)
            bound = Proposal(self.ballot, True, remainder.start, assignments, view)
        else:
            self._orphans = []
            bound = bound._replace(fresh=False, ballot=self.ballot)
        if bound.view.member(self._local.me.id) is not None:
            self._orderer.note_remainder(bound.view.seq - 1, out)
        self.proposal = bound
        self._acks = {self._local.me.id}
        self.role = Role.PROPOSING
        self._steps = 0
        self._send_result(now_ns, out)
        self._consider_commit()

    def _may_go_on(self, now_ns: int, base: View) -> bool:
        """Whether those that answered may make the view after `base`."""
        votes = self._answers.votes
        self.found = len([member for member in base.members if member.id in votes])
        own = ResetDemand(self._terms.rule, self._terms.header) if self._terms.is_override else None
        self._mandate = by = mandate(votes, base, own)
        if by is None or not self._answers.returned or by.is_by_reset or now_ns >= self._answers.grace_ns:
            return by is not None
        return not lacks_holders(by.electorates, base, votes.keys(), self._answers.cuts.keys())

    def _lacks_orphans(self, now_ns: int, out: Outbox) -> bool:
        """Fetch blocks of senders that are gone. Nothing needs them: what does not come in a few tries is left out."""
        log, held = self._orderer.log, holders(self._answers.cuts)
        wanted: dict[int, list[Missing]] = {}
        for origin, number in self._orphans:
            if log.find_block(origin, number) is None:
                who = [member for member in held[origin, number] if member != self._local.me.id]
                if who:
                    asked = wanted.setdefault(who[self._steps % len(who)], [])
                    asked.append(Missing(origin, number, 1, 0, 0))
        if not wanted or self._steps >= RESULT_TRIES:
            return False
        self._ask({member: missing[:MAX_MISSING] for member, missing in wanted.items()}, out)
        self.due_ns = now_ns + self._local.timing.invite_ns
        return True

    def _back_to_inviting(self, now_ns: int, out: Outbox) -> None:
        self.role = Role.INVITING
        if not now_ns < self.due_ns < NEVER:
            self._invite(now_ns, out)

    def _new_view(
        self, now_ns: int, base: View, survivors: set[int], upto: int, position: int, numbers: dict[int, int]
    ) -> View:
        me = self._local.me
        back = self._answers.returned
        others = tuple(
            back[member.id].member if member.id in back else member
            for member in base.members
            if (member.id in survivors or member.id in back) and member.id != me.id
        )
        counter = next_counter(max(self.counter, base.counter), now_ns)
        self.counter = counter
        present = {member.id for member in (me, *others)}
        kept = present.union(origin for origin, _ in self._orphans)
        numbers = {**numbers, **{each.member.id: each.next_block for each in back.values()}}
        # An origin that is no member and was none calls from outside (RMP section 4.5).
        known = self._orderer.callers | base.callers.keys() | self._orderer.log.callers_upto(upto)
        members = {member.id for member in base.members} | set(base.prior)
        callers = {origin: numbers[origin] for origin in known - members if origin in numbers}
        awaited = {member: cut.next_block for member, cut in self._answers.cuts.items() if member in present}
        for origin, number, _ in self._orphans_upto(upto + 1):
            if origin not in callers:  # a caller sends again itself, or has given up
                awaited[origin] = number + 1
        return View(
            counter,
            str(me),
            ring_id(self._local.name, me.id, counter),
            base.incarnation + 1,
            upto + 1,
            position,
            (me, *others),
            {origin: number for origin, number in numbers.items() if origin in kept},
            Reason.RESTART if back else Reason.RESET,
            str(me),
            self._mandate.header if self._mandate is not None else b"",
            locks={lock: holder for lock, holder in base.locks.items() if holder in present},
            tokens={lock: token for lock, token in base.tokens.items() if base.locks.get(lock) in present},
            largest_before=base.largest,
            callers=callers,
            awaited=awaited,
        )

    def _send_result(self, now_ns: int, out: Outbox) -> None:
        if self.proposal is None:
            return
        body = encode_result(self.ballot, self.proposal)
        for member in self._answers.cuts:
            if member not in self._acks:
                out.sends.append(self._local.writer.control(self.invitees[member].address, Kind.RESULT, body))
        for member, returned in self._answers.returned.items():
            if member not in self._acks:
                out.sends.append(self._local.writer.control(returned.member.address, Kind.RESULT, body))
        self.due_ns = now_ns + self._local.timing.invite_ns

    def _consider_commit(self) -> None:
        proposal, by = self.proposal, self._mandate
        if proposal is None or by is None:
            return
        if by.is_by_reset:
            back = {returned.member.id for returned in self._answers.returned.values()}
            asked = {
                member.id for member in proposal.view.members if member.id in self._answers.cuts or member.id in back
            }
            self.is_committed = asked <= self._acks
        else:
            self.is_committed = is_committed(proposal, by.electorates, self._acks)
