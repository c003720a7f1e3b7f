"""Recovery: Amoeba's ResetGroup (section 4.2), with Paxos's promises between its two phases.

docs/design/membership.md has states, datagrams, timers and what each failure does. One object lives from the freeze of
a ring to the commit of the next; the underlay feeds it datagrams and installs what it commits.
"""

from __future__ import annotations

import random
from enum import Enum, auto
from typing import Final

from ordercast.config import MinMembers, Timing
from ordercast.engine import NEVER, Outbox
from ordercast.errors import WireError
from ordercast.membership.quorum.cuts import (
    Remainder,
    agree,
    binding,
    clip_assignments,
    holders,
    keeps_others_out,
    may_go_on,
    orphans,
)
from ordercast.orderers.orderer import Recoverable
from ordercast.service import MAJORITY_RANK
from ordercast.view import Address, Member, Reason, View, id_of, next_counter, ring_id
from ordercast.wire.block import after_of, head_of
from ordercast.wire.header import Kind
from ordercast.wire.ordering import MAX_MISSING, Acks, Missing, encode_nak
from ordercast.wire.views import (
    NO_BALLOT,
    Ballot,
    Cut,
    Proposal,
    decode_ballot,
    decode_cut,
    decode_invite,
    decode_result,
    encode_ballot,
    encode_cut,
    encode_invite,
    encode_result,
    open_change,
)
from ordercast.wire.writer import DatagramWriter

SUSPECT_TRIES: Final = 2  # invitations that somebody already suspected gets before the others go on
SLOW_NS: Final = 1_000_000_000  # between invitations while too few members answer
RESULT_TRIES: Final = 15  # times that a result is sent before those who do not acknowledge it are left out
MAX_SENIORITY: Final = 65_535


class Role(Enum):
    INVITED = auto()  # promised somebody, waiting for its result
    ACCEPTING = auto()  # has the result, collecting what it lacks
    ACCEPTED = auto()  # waiting for the commit
    INVITING = auto()
    FETCHING = auto()
    PROPOSING = auto()
    FAILED = auto()  # manual recovery: waiting for reset()


class Recovery:
    def __init__(
        self,
        group: str,
        me: Member,
        writer: DatagramWriter,
        timing: Timing,
        rng: random.Random,
        orderer: Recoverable,
        rule: MinMembers,
        counter: int,
    ) -> None:
        self._group = group
        self._me = me
        self._writer = writer
        self._timing = timing
        self._rng = rng
        self._orderer = orderer
        self._own_rule = rule
        self._counter = counter
        self.role = Role.FAILED
        # Promises
        self.promised = NO_BALLOT
        self.accepted: Proposal | None = None
        self._coordinator: Address = me.address
        self._coordinator_id = me.id
        self._rule = rule
        self._is_override = False  # a reset() asked for: its rule alone counts, and too few members end it
        self.asked: tuple[MinMembers, bytes] | None = None  # rule and header of our own application's reset()
        self.header = b""
        self._heard_ns = 0
        # Coordinating
        self._invitees: dict[int, Member] = {}
        self._suspects: set[int] = set()
        self._cuts: dict[int, Cut] = {}
        self._tries = 0  # invitations of this round
        self._steps = 0  # requests or results since the last decision
        self._remainder: Remainder | None = None
        self._orphans: list[tuple[int, int]] = []
        self._is_only_part = True  # the rules let no other part of the old view go on
        self._proposal: Proposal | None = None
        self._acks: set[int] = set()
        self._departed: set[int] = set()
        self._pending: Proposal | None = None  # as a participant: the result under way
        self._due_ns = NEVER
        # Outcome
        self.committed: Proposal | None = None
        self.is_refused = False  # manual: too few members
        self.has_left = False
        self.found = 0  # members that answered

    # Inputs

    def begin(
        self, now_ns: int, suspects: list[int], rule: MinMembers, is_override: bool, header: bytes, out: Outbox
    ) -> None:
        """Become coordinator of the next round."""
        self.role = Role.INVITING
        self.is_refused = False
        self._is_override = is_override
        self._rule = rule
        self.header = header
        self._suspects = set(suspects)
        view, log = self._orderer.view, self._orderer.log
        seniority = MAX_SENIORITY - max(view.index(self._me.id), 0)
        self.promised = Ballot(self.promised.round + 1, log.received, seniority, self._me.id)
        self._coordinator, self._coordinator_id = self._me.address, self._me.id
        self._invitees = {member.id: member for member in view.members}
        self._cuts = {self._me.id: self._orderer.cut(rule, self.accepted)}
        self._tries = 0
        self._orphans = []
        self._pending = None
        self._invite(now_ns, out)
        self._consider(now_ns, out)

    def wait(self) -> None:
        """Frozen without a coordinator (manual recovery)."""
        self.role = Role.FAILED
        self._due_ns = NEVER

    def on_message(self, now_ns: int, kind: int, source: Address, origin: int, body: bytes, out: Outbox) -> None:
        if kind == Kind.INVITE:
            self._on_invite(now_ns, source, origin, *decode_invite(body), out)
        elif kind == Kind.CUT:
            self._on_cut(now_ns, origin, *decode_cut(body), out)
        elif kind == Kind.DENY:
            self._on_deny(now_ns, decode_ballot(body))
        elif kind == Kind.RESULT:
            self._on_result(now_ns, source, origin, *decode_result(body), out)
        elif kind == Kind.RESULT_ACK:
            self._on_result_ack(origin, decode_ballot(body))
        elif kind == Kind.CHECK:
            self._on_check(now_ns, source, origin, decode_ballot(body), out)

    def on_departed(self, member: int) -> None:
        """A member of the view before asks to join as new: it will never be part of another quorum of the old one."""
        if member in self._orderer.view.prior:
            self._departed.add(member)

    def progress(self, now_ns: int, out: Outbox) -> None:
        """Something that was fetched may have come."""
        if self.role is Role.FETCHING:
            if not self._missing():
                self._propose(now_ns, out)
        elif self.role is Role.ACCEPTING:
            self._try_accept(out)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._due_ns > now_ns:
            return
        self._due_ns = NEVER
        if self.role is Role.INVITING:
            self._invite(now_ns, out)
            self._consider(now_ns, out)
        elif self.role in (Role.FETCHING, Role.PROPOSING):
            self._steps += 1
            if self._steps > RESULT_TRIES:
                self._again(now_ns, out)
            elif self.role is Role.PROPOSING:
                self._send_result(now_ns, out)
            elif self._missing():
                self._fetch(now_ns, out)
            else:
                self._propose(now_ns, out)
        elif self.role in (Role.INVITED, Role.ACCEPTING, Role.ACCEPTED):
            self._watch_coordinator(now_ns, out)

    def deadline_ns(self) -> int:
        return self._due_ns

    def orphans(self) -> list[tuple[int, int, bytes]]:
        """As the coordinator: what to submit for senders that are gone."""
        return self._orphans_upto(self._proposal.view.seq if self._proposal is not None else 0)

    def _orphans_upto(self, upto: int) -> list[tuple[int, int, bytes]]:
        """A sender's blocks end where one is missing, or depends on what nobody could place: its cause would come
        later. And at what must have one order everywhere, where another part of the group may go on: that part has
        placed it already, perhaps."""
        found = []
        ended = set()
        for origin, number in self._orphans:
            block = self._orderer.log.find_block(origin, number)
            is_doubtful = block is not None and head_of(block).rank >= MAJORITY_RANK and not self._is_only_part
            if block is None or after_of(block) > upto or is_doubtful:
                ended.add(origin)
            elif origin not in ended:
                found.append((origin, number, block))
        return found

    def awaited(self) -> dict[int, int]:
        """As the coordinator: how far the survivors had sent when they were frozen."""
        return {member: cut.next_block for member, cut in self._cuts.items()}

    # Phase 1: invitation

    def _invite(self, now_ns: int, out: Outbox) -> None:
        body = encode_invite(self.promised, self._rule, self._is_override, self.header)
        for member in self._invitees.values():
            if member.id not in self._cuts:
                out.sends.append(self._writer.control(member.address, Kind.INVITE, body))
        self._tries += 1
        slow = self._tries > self._timing.invite_tries
        wait_ns = SLOW_NS if slow else self._timing.invite_ns
        self._due_ns = now_ns + wait_ns + self._rng.randrange(wait_ns // 4)

    def _consider(self, now_ns: int, out: Outbox) -> None:
        """Go on when all have answered, or when those who have not had their chances."""
        silent = [member for member in self._invitees if member not in self._cuts]
        chances = SUSPECT_TRIES if all(member in self._suspects for member in silent) else self._timing.invite_tries
        if not silent or self._tries > chances:
            self._decide(now_ns, out)

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
            out.sends.append(self._writer.control(source, Kind.DENY, encode_ballot(self.promised)))
            return
        if ballot > self.promised:
            self._promise(now_ns, source, origin, ballot)
            self._rule, self._is_override, self.header = rule, is_override, header
        elif self.role is not Role.INVITED:
            return
        cut = self._orderer.cut(self._own_rule, self.accepted)
        out.sends.append(self._writer.control(source, Kind.CUT, encode_cut(ballot, cut)))

    def _promise(self, now_ns: int, source: Address, origin: int, ballot: Ballot) -> None:
        self.promised = ballot
        self.role = Role.INVITED
        self._pending = None
        self._coordinator, self._coordinator_id = source, origin
        self._heard_ns = now_ns
        self._due_ns = now_ns + self._check_ns()

    def _on_cut(self, now_ns: int, origin: int, ballot: Ballot, cut: Cut, out: Outbox) -> None:
        if self.role is not Role.INVITING or ballot != self.promised or cut.view.ring != self._orderer.view.ring:
            return
        if origin not in self._invitees:
            return
        log = self._orderer.log
        if abs(cut.received - log.received) > log.ahead or cut.view.seq > cut.received:
            raise WireError("a cut of another log")
        is_new = origin not in self._cuts
        self._cuts[origin] = cut
        for member in cut.view.members:  # somebody may know of a join that we do not
            self._invitees.setdefault(member.id, member)
        if is_new:  # invitations to one that is dead may be answered by another at its address, again and again
            self._consider(now_ns, out)

    def _on_deny(self, now_ns: int, ballot: Ballot) -> None:
        """Somebody promised a higher ballot: its coordinator goes on. If it does not, the next round is ours."""
        if ballot <= self.promised or ballot.node not in self._invitees or ballot.node == self._me.id:
            return
        self._promise(now_ns, self._invitees[ballot.node].address, ballot.node, ballot)

    # Phase 2: decide, fetch, propose

    def _decide(self, now_ns: int, out: Outbox) -> None:
        self._remainder = agree(self._cuts)
        for seq, origin, number in self._remainder.beyond:
            self._orderer.log.assign(seq, origin, number)
        self.role = Role.FETCHING
        self._steps = 0
        if not self._missing():
            self._propose(now_ns, out)
        else:
            self._fetch(now_ns, out)

    def _missing(self) -> list[int]:
        return self._orderer.lacking(self._remainder.upto) if self._remainder is not None else []

    def _fetch(self, now_ns: int, out: Outbox) -> None:
        """Ask for what we lack: up to the highest received by place, beyond it from whoever holds the block."""
        remainder = self._remainder
        if remainder is None:
            return
        log = self._orderer.log
        wanted: dict[int, list[Missing]] = {}
        held = holders(self._cuts)
        for seq in self._missing()[:MAX_MISSING]:
            if seq <= remainder.received:
                wanted.setdefault(remainder.top, []).append(Missing(0, seq, 1, 0, 0))
            else:
                origin, number = log.assignments[seq]
                who = held.get((origin, number)) or [remainder.top]
                missing = Missing(origin, number, 1, 0, 0)
                wanted.setdefault(who[self._steps % len(who)], []).append(missing)
        self._ask(wanted, out)
        self._due_ns = now_ns + self._timing.invite_ns

    def _ask(self, wanted: dict[int, list[Missing]], out: Outbox) -> None:
        received = self._orderer.log.received
        for member, missing in wanted.items():
            if member in self._invitees:
                body = encode_nak(Acks(received, min(self._orderer.consumed, received)), missing)
                out.sends.append(self._writer.control(self._invitees[member].address, Kind.NAK, body))

    def _propose(self, now_ns: int, out: Outbox) -> None:
        remainder = self._remainder
        if remainder is None:
            return
        log = self._orderer.log
        bound = binding(self._cuts)
        upto = remainder.upto if bound is None else bound.view.seq - 1
        position, numbers, change = log.preview(max(remainder.upto, log.received))
        base = self._orderer.view if change is None else open_change(change)
        for member in base.members:  # who joins in the remainder has a number by its join
            numbers[member.id] = max(numbers.get(member.id, 0), base.numbers.get(member.id, 0))
        unknown = [member for member in base.members if member.id not in self._invitees]
        if unknown:
            self._invitees.update((member.id, member) for member in unknown)
            self.role = Role.INVITING
            self._invite(now_ns, out)
            return
        if base.member(self._me.id) is None:
            self.has_left = True  # our own leave is part of what the survivors agree on
            return
        survivors = set(self._cuts)
        rules = [self._rule] if self._is_override else [self._rule, *(cut.rule for cut in self._cuts.values())]
        if not self._is_override:
            rules += [member.min_members for member in base.members]  # of those who are gone as well (RMP 4.4)
        known = any(cut.safe >= base.seq for cut in self._cuts.values()) or all(
            member.id in survivors for member in base.members
        )
        # Who is known to know of the last change will never be in a quorum of the view before it; nor will who made it.
        informed = [cut.departed for cut in self._cuts.values() if cut.view.seq == base.seq]
        departed = self._departed.union(*informed, [id_of(base.creator)])
        self.found = len([member for member in base.members if member.id in survivors])
        if not may_go_on(rules, base, survivors, departed, known):
            if self._is_override:
                self.is_refused = True
                self.wait()
            else:
                self._back_to_inviting(now_ns, out)
            return
        if bound is None:
            gone = [origin for origin in numbers if origin not in survivors]
            self._orphans = orphans(self._cuts, numbers, gone)
            self._is_only_part = keeps_others_out(rules, len(base.members))
            if self._lacks_orphans(now_ns, out):
                return
            view = self._new_view(now_ns, base, survivors, upto, position, numbers)
            assignments = clip_assignments(log.assigned_runs(remainder.start + 1, upto + 1), remainder.start, upto)
            bound = Proposal(self.promised, True, remainder.start, assignments, view)
        else:
            self._orphans = []
            bound = bound._replace(fresh=False, ballot=self.promised)
        if bound.view.member(self._me.id) is not None:
            self._orderer.note_remainder(bound.view.seq - 1, out)
        self._proposal = bound
        self.accepted = bound
        self._acks = {self._me.id}
        self.role = Role.PROPOSING
        self._steps = 0
        self._send_result(now_ns, out)
        self._consider_commit()

    def _lacks_orphans(self, now_ns: int, out: Outbox) -> bool:
        """Fetch blocks of senders that are gone. They are a courtesy: what does not come in a few tries is left."""
        log, held = self._orderer.log, holders(self._cuts)
        wanted: dict[int, list[Missing]] = {}
        for origin, number in self._orphans:
            if log.find_block(origin, number) is None:
                who = [member for member in held[origin, number] if member != self._me.id]
                if who:
                    asked = wanted.setdefault(who[self._steps % len(who)], [])
                    asked.append(Missing(origin, number, 1, 0, 0))
        if not wanted or self._steps >= RESULT_TRIES:
            return False
        self._ask({member: missing[:MAX_MISSING] for member, missing in wanted.items()}, out)
        self._due_ns = now_ns + self._timing.invite_ns
        return True

    def _back_to_inviting(self, now_ns: int, out: Outbox) -> None:
        self.role = Role.INVITING
        if not now_ns < self._due_ns < NEVER:
            self._invite(now_ns, out)

    def _new_view(
        self, now_ns: int, base: View, survivors: set[int], upto: int, position: int, numbers: dict[int, int]
    ) -> View:
        others = tuple(member for member in base.members if member.id in survivors and member.id != self._me.id)
        counter = next_counter(max(self._counter, base.counter), now_ns)
        self._counter = counter
        present = {member.id for member in (self._me, *others)}
        kept = present.union(origin for origin, _ in self._orphans)
        # Who is no member and was none calls from outside (RMP section 4.5).
        known = self._orderer.callers | base.callers.keys() | self._orderer.log.callers_upto(upto)
        members = {member.id for member in base.members} | set(base.prior)
        callers = {origin: numbers[origin] for origin in known - members if origin in numbers}
        awaited = {member: cut.next_block for member, cut in self._cuts.items() if member in present}
        for origin, number, _ in self._orphans_upto(upto + 1):
            if origin not in callers:  # a caller sends again itself, or has given up
                awaited[origin] = number + 1
        return View(
            counter,
            str(self._me),
            ring_id(self._group, self._me.id, counter),
            base.incarnation + 1,
            upto + 1,
            position,
            (self._me, *others),
            {origin: number for origin, number in numbers.items() if origin in kept},
            Reason.RESET,
            str(self._me),
            self.header,
            locks={lock: holder for lock, holder in base.locks.items() if holder in present},
            callers=callers,
            awaited=awaited,
        )

    def _send_result(self, now_ns: int, out: Outbox) -> None:
        if self._proposal is None:
            return
        body = encode_result(self.promised, self._proposal)
        for member in self._cuts:
            if member not in self._acks:
                out.sends.append(self._writer.control(self._invitees[member].address, Kind.RESULT, body))
        self._due_ns = now_ns + self._timing.invite_ns

    def _on_result_ack(self, origin: int, ballot: Ballot) -> None:
        if self.role is Role.PROPOSING and ballot == self.promised:
            self._acks.add(origin)
            self._consider_commit()

    def _consider_commit(self) -> None:
        proposal = self._proposal
        if proposal is None:
            return
        members = {member.id for member in proposal.view.members}
        if (members if proposal.fresh else set(self._cuts)) <= self._acks:
            self.committed = proposal

    def _again(self, now_ns: int, out: Outbox) -> None:
        """Somebody who had answered is silent now: phase 1 again, without it unless it answers."""
        self.begin(now_ns, list(self._suspects), self._rule, self._is_override, self.header, out)

    # Taking part

    def _on_result(
        self, now_ns: int, source: Address, origin: int, ballot: Ballot, proposal: Proposal, out: Outbox
    ) -> None:
        if ballot < self.promised:
            out.sends.append(self._writer.control(source, Kind.DENY, encode_ballot(self.promised)))
            return
        if self.role is Role.ACCEPTED and ballot == self.promised:
            out.sends.append(self._writer.control(source, Kind.RESULT_ACK, encode_ballot(ballot)))
            return
        if ballot > self.promised or self._coordinator_id != origin:
            self._promise(now_ns, source, origin, ballot)
        self._heard_ns = now_ns
        is_member = proposal.view.member(self._me.id) is not None
        if is_member and not self._is_plausible(proposal):
            raise WireError("a result that cannot follow what is here")
        self._pending = proposal._replace(ballot=ballot)
        self.role = Role.ACCEPTING
        self._due_ns = now_ns + self._check_ns()
        if is_member:
            self._orderer.adopt(proposal.view.seq - 1, proposal.assignments)
        self._try_accept(out)
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
        if view.member(self._me.id) is not None:
            if self._orderer.lacking(view.seq - 1):
                return
            position, numbers, change = self._orderer.log.preview(view.seq - 1)
            base = self._orderer.view if change is None else open_change(change)
            mine = max(numbers.get(self._me.id, 0), base.numbers.get(self._me.id, 0))
            if position != view.position or mine != view.numbers.get(self._me.id):
                raise WireError("a result that does not continue what is here")
            self._orderer.note_remainder(view.seq - 1, out)
        self.accepted = proposal
        self._pending = None
        self.role = Role.ACCEPTED
        out.sends.append(self._writer.control(self._coordinator, Kind.RESULT_ACK, encode_ballot(self.promised)))

    def _ask_coordinator(self, out: Outbox) -> None:
        if self._pending is None:
            return
        missing = [Missing(0, seq, 1, 0, 0) for seq in self._orderer.lacking(self._pending.view.seq - 1)[:MAX_MISSING]]
        received = self._orderer.log.received
        body = encode_nak(Acks(received, min(self._orderer.consumed, received)), missing)
        out.sends.append(self._writer.control(self._coordinator, Kind.NAK, body))

    def _on_check(self, now_ns: int, source: Address, origin: int, ballot: Ballot, out: Outbox) -> None:
        if self._coordinator_id == self._me.id:
            if ballot == self.promised and origin != self._me.id and self.role is not Role.FAILED:
                out.sends.append(self._writer.control(source, Kind.CHECK, encode_ballot(ballot)))
            else:
                out.sends.append(self._writer.control(source, Kind.DENY, encode_ballot(self.promised)))
        elif origin == self._coordinator_id and ballot == self.promised:
            self._heard_ns = now_ns

    def _watch_coordinator(self, now_ns: int, out: Outbox) -> None:
        """They check periodically if the coordinator is still alive (section 4.2)."""
        patience_ns = self._timing.recovery_wait_ns
        if now_ns - self._heard_ns > patience_ns:
            if self.asked is not None:
                self._rule, self.header = self.asked
                self._is_override = True
            self.begin(now_ns, [self._coordinator_id], self._rule, self._is_override, self.header, out)
            return
        out.sends.append(self._writer.control(self._coordinator, Kind.CHECK, encode_ballot(self.promised)))
        if self.role is Role.ACCEPTING:
            self._ask_coordinator(out)
        elif self.role is Role.ACCEPTED:
            out.sends.append(self._writer.control(self._coordinator, Kind.RESULT_ACK, encode_ballot(self.promised)))
        self._due_ns = now_ns + self._check_ns()

    def _check_ns(self) -> int:
        quarter = self._timing.recovery_wait_ns // 4
        return quarter + self._rng.randrange(quarter // 2)
