"""The quorum policy: of the parts that a failure leaves of a ring, at most one goes on. Amoeba 4.2, RMP 4.3 and 4.4.

A node joins (`Joining`), is a member of a ring (`QuorumRing`) whose members let newcomers in (`Admission`) and recover
from failures (`Recovery`), and leaves. Rings of one name that meet become one (`meeting`). This module decides which of
these parts has its turn, and tells the underlay by values (`policy`). docs/design/membership.md has the protocol.
"""

from __future__ import annotations

from contextlib import suppress

from ordercast.config import GroupConfig, MinMembers
from ordercast.engine import NEVER, Change, Departed, Failed, Note, Outbox, Refused, Reset, To
from ordercast.errors import WireError
from ordercast.membership.past import PastRings
from ordercast.membership.policy import (
    NO_RING,
    NOTE,
    Closed,
    DepartureCause,
    Dissolved,
    Excluded,
    Install,
    LeftRing,
    Newcomer,
    OldView,
    Phase,
    Transition,
)
from ordercast.membership.quorum.admission import Admission
from ordercast.membership.quorum.joining import Joining, whom_to_ask
from ordercast.membership.quorum.local import LocalMember, Wishes
from ordercast.membership.quorum.meeting import Meeting
from ordercast.membership.quorum.recovery import Recovery, begins_recovery
from ordercast.membership.quorum.ring import QuorumRing
from ordercast.membership.quorum.roles import RecoveryTerms
from ordercast.orderers import LoggedOrderer, unsupported_names
from ordercast.orderers.orderer import Suspicion, SuspicionReason
from ordercast.view import Address, Reason, View, id_of, next_counter
from ordercast.wire.header import Kind
from ordercast.wire.views import (
    Asking,
    Proposal,
    Ring,
    decode_address,
    decode_asking,
    decode_refusal,
    decode_result,
    decode_ring,
    decode_suspects,
    decode_welcome,
    encode_address,
    encode_result,
    encode_suspects,
)


class QuorumMembership:
    """Implements `policy.Membership` for orderers with one contiguous log."""

    __slots__ = (
        "_admission",
        "_config",
        "_counter",
        "_counters",
        "_declined",
        "_is_dissolving",
        "_is_resetting",
        "_is_return",
        "_joining",
        "_last_view",
        "_leave_header",
        "_linger_ns",
        "_local",
        "_meeting",
        "_onward",
        "_past",
        "_pending",
        "_state",
        "_wishes",
        "direct_ring",
        "is_whole",
        "phase",
        "ring",
    )

    def __init__(self, local: LocalMember, wishes: Wishes, config: GroupConfig, counters: dict[str, int]) -> None:
        self._local = local
        self._wishes = wishes
        self._config = config
        self._counters = counters
        # The phase, and what exists in it
        self.phase = Phase.JOINING
        self._joining: Joining | None = None  # while JOINING
        self._state: QuorumRing | None = None  # while MEMBER, and while LINGERING after an ordered leave
        self.ring = NO_RING
        self.is_whole = False
        self.direct_ring = NO_RING
        self._pending: Transition | None = None
        # What outlives a ring
        self._past = PastRings()
        self._counter = 0
        self._last_view: View | None = None  # as delivered
        self._onward: Address | None = None  # the leader of the ring that ours has dissolved into
        self._is_return = False
        self._declined: int | None = None  # the attempt to join that we gave up
        # What goes on in a ring
        self._admission = Admission(local)
        self._meeting = Meeting(local, wishes)
        self._leave_header: bytes | None = None
        self._is_resetting = False
        self._is_dissolving = False  # the leader goes last: the others may need repairs to get this far
        self._linger_ns = NEVER

    # Inputs

    def start(self, now_ns: int, newcomer: Newcomer, out: Outbox) -> None:
        self.phase = Phase.JOINING
        ask = whom_to_ask(self._local.me, self._onward, self._wishes.contact, self._last_view)
        self._joining = Joining(self._local, self._wishes, newcomer, self._is_return, ask)
        self._joining.start(now_ns, out)

    def installed(self, now_ns: int, orderer: LoggedOrderer, out: Outbox) -> None:
        view = orderer.view
        joining, self._joining = self._joining, None
        self.phase = Phase.MEMBER
        self._state = QuorumRing(self._local.name, orderer)
        self.ring = view.ring
        self.is_whole = True
        self._last_view = view
        self._linger_ns = NEVER
        self._admission.clear()
        self._update_direct()
        self._meeting.due_ns = NEVER
        if view.leader.id == self._local.me.id:
            self._show_ring(now_ns, out)
        if self._leave_header is not None:
            orderer.propose(now_ns, Change(Reason.LEAVE, self._local.me, self._leave_header))
        if joining is not None and not joining.must_create:
            orderer.greet()
        self._note_view(view, out)
        if self._is_resetting:
            self._is_resetting = False
            out.upcalls.append(Reset(len(view.members), ""))

    def on_control(
        self, now_ns: int, kind: int, source: Address, ring: int, origin: int, body: bytes, out: Outbox
    ) -> None:
        if kind >= Kind.SUSPECT:
            self._on_recovery(now_ns, source, kind, ring, origin, body, out)
        elif kind in (Kind.FIND, Kind.JOIN):
            asking = decode_asking(body)
            if asking.name == self._local.name:
                self._on_asking(now_ns, source, kind, asking, out)
        elif kind in (Kind.HERE, Kind.BEACON):
            seen = decode_ring(body)
            if seen.name == self._local.name:
                self._on_ring(now_ns, source, kind, seen, out)
        elif kind == Kind.WELCOME:
            self._on_welcome(source, body, out)
        elif kind == Kind.REFUSE:
            name, text = decode_refusal(body)
            if name == self._local.name and self._joining is not None:
                self._joining.on_refuse(text)
                self._after_joining(now_ns, out)
        elif kind == Kind.LEFT and ring == self._local.writer.ring:
            self._on_left(now_ns, origin, out)

    def on_stranger(self, now_ns: int, source: Address, kind: int, ring: int, out: Outbox) -> None:
        """A datagram of a ring that was ours, or of an unknown one on the same address."""
        if ring not in self._past:
            self._count("foreign")
            return
        self._count("old_ring")
        commit = self._past.answer(now_ns, kind, ring)
        if commit is not None:
            out.sends.append(self._local.writer.control(source, Kind.COMMIT, commit, ring))

    def on_heard(self, origin: int) -> None:
        if self._admission:
            self._admission.heard(origin)
            self._update_direct()

    def on_suspects(self, now_ns: int, suspicions: list[Suspicion], out: Outbox) -> None:
        if self._state is not None and self.phase is Phase.MEMBER:
            self._fail(now_ns, self._state, suspicions, out)

    def on_applied(self, now_ns: int, views: list[View], out: Outbox) -> None:
        me = self._local.me
        for view in views:
            self._counter = max(self._counter, view.counter)
            if view.reason == Reason.JOIN:
                self._admission.admitted(view)
                if view.creator == str(me):
                    self._admission.welcome(now_ns, view, self._config, out)
                    self._update_direct()
            if view.leader.id == me.id and self._meeting.due_ns == NEVER:
                self._show_ring(now_ns, out)
        if self._state is not None and self._state.orderer.has_left and self._linger_ns == NEVER:
            self._linger_ns = now_ns + self._local.timing.linger_ns

    def on_delivered(self, now_ns: int, view: View, out: Outbox) -> bool:
        state, linger_ns = self._state, now_ns + self._local.timing.linger_ns
        if view.reason == Reason.DISSOLVE:
            with suppress(WireError):  # where the last member leaves, its own header
                self._onward = decode_address(view.header)
            if state is not None and state.recovery is None and not state.orderer.standing().is_settled:
                self._is_dissolving = True
                self._linger_ns = linger_ns
                self._update_direct()
            else:
                self._dissolve(out)
            return False
        if view.member(self._local.me.id) is None:
            self.phase = Phase.LINGERING
            self._update_direct()
            self._linger_ns = linger_ns
            self._meeting.due_ns = NEVER
            self._note(DepartureCause.LEFT.value, out)
            out.upcalls.append(Departed(True, False, DepartureCause.LEFT.value))
            return False
        self._last_view = view
        if view.reason not in (Reason.LOCK, Reason.UNLOCK):
            self._note_view(view, out)
        return True

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        if self.phase in (Phase.LINGERING, Phase.CLOSED):
            return
        state = self._state
        if state is not None and state.recovery is None:
            self._leave_header = header
            state.orderer.propose(now_ns, Change(Reason.LEAVE, self._local.me, header))
            return
        # There is no ring that could order our leave; for the others it is the same as a crash.
        joining = self._joining
        self._end(LeftRing(DepartureCause.LEFT_UNJOINED), DepartureCause.LEFT_UNJOINED.value, out)
        if joining is not None and joining.has_asked:
            # We may be let in all the same. Then we decline, or the others would wait until we are heard.
            self._declined = joining.nonce
            self.phase = Phase.LINGERING
            self._linger_ns = now_ns + self._local.timing.linger_ns

    def reset(self, now_ns: int, min_members: MinMembers, header: bytes, out: Outbox) -> None:
        state = self._state
        if state is None or self.phase is not Phase.MEMBER:
            out.upcalls.append(Reset(0, "this node is not a member"))
            return
        self._is_resetting = True
        suspects = [each.member for each in state.orderer.suspects(now_ns)]
        recovery = self._freeze(now_ns, state)
        recovery.asked = RecoveryTerms(min_members, True, header)
        self._note("recovery begins: reset() was called", out)
        recovery.begin(now_ns, suspects, recovery.asked, out)
        self._after_recovery(now_ns, state, recovery, out)

    # The pass

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        state = self._state
        if state is None:
            return
        if state.recovery is not None:
            try:
                state.recovery.progress(now_ns, out)
            except WireError:
                self._count("malformed")  # a result that does not fit what came since
            self._after_recovery(now_ns, state, state.recovery, out)
        elif self._is_dissolving:
            if state.orderer.standing().is_settled:
                self._dissolve(out)
        elif self.phase is Phase.LINGERING and state.orderer.standing().may_go:
            self._close(Closed())

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._joining is not None:
            self._joining.expire(now_ns, out)
            self._after_joining(now_ns, out)
            return
        if self._state is not None and self._state.recovery is not None:
            self._state.recovery.expire(now_ns, out)
        if self._meeting.due_ns <= now_ns:
            self._show_ring(now_ns, out)
        self._admission.expire(now_ns, out)
        if self._linger_ns <= now_ns:
            if self._is_dissolving:
                self._dissolve(out)
            elif self.phase is Phase.MEMBER:  # our leave, or what comes before it, never got through
                self._end(LeftRing(DepartureCause.LEFT_STUCK), DepartureCause.LEFT_STUCK.value, out)
            else:
                self._close(Closed())

    def deadline_ns(self) -> int:
        due = min(self._meeting.due_ns, self._linger_ns)
        if self.direct_ring != NO_RING:
            return due  # hot: the ring works, and no newcomer is expected
        if self._joining is not None:
            due = min(due, self._joining.deadline_ns())
        elif self._state is not None and self._state.recovery is not None:
            due = min(due, self._state.recovery.deadline_ns())
        return min(due, self._admission.deadline_ns())

    def take(self) -> Transition | None:
        pending, self._pending = self._pending, None
        return pending

    # Questions

    @property
    def is_sure(self) -> bool:
        """Until then a recovery also needs enough of the members before it."""
        state = self._state
        return state is not None and state.orderer.safe >= state.orderer.view.seq

    @property
    def is_at_rest(self) -> bool:
        return self.direct_ring != NO_RING

    @property
    def state(self) -> str:
        state = self._state
        return "working" if state is None or state.recovery is None else state.recovery.role.name.lower()

    def was_in(self, ring: int) -> bool:
        return ring in self._past

    def newcomers(self) -> list[Address]:
        return self._admission.addresses()

    # Joining

    def _after_joining(self, now_ns: int, out: Outbox) -> None:
        joining = self._joining
        if joining is None:
            return
        if joining.refusal:
            self._end(Refused(joining.refusal), f"the join was refused: {joining.refusal}", out)
        elif joining.must_create:
            self._counter = next_counter(self._counter, now_ns)
            view = joining.first_view(self._counter)
            self._pending = Install(view, self._config, self._counter)

    def _on_welcome(self, source: Address, body: bytes, out: Outbox) -> None:
        name, nonce, config, view = decode_welcome(body)
        if unsupported_names(config):
            raise WireError("a welcome to what this version does not have")
        if name != self._local.name:
            return
        joining, me = self._joining, self._local.me
        if (
            joining is not None
            and joining.is_answered_by(nonce)
            and view.member(me.id) is not None
            and view.numbers.get(me.id) == joining.newcomer.next_block
        ):
            self._config = config
            self._counter = max(self._counter, view.counter)
            self._pending = Install(view, config, self._counter)
        elif self._declined == nonce:
            out.sends.append(self._local.writer.control(source, Kind.LEFT, b"declined", view.ring))

    # Newcomers, seen by members

    def _on_asking(self, now_ns: int, source: Address, kind: int, asking: Asking, out: Outbox) -> None:
        state = self._state
        if state is None or self.phase is not Phase.MEMBER:
            if self._joining is not None and kind == Kind.FIND:
                self._joining.on_find(asking)
        elif kind == Kind.FIND:
            if state.recovery is not None:
                state.recovery.on_departed(asking.member.id)
            if state.recovery is not None or asking.tries or state.orderer.standing().leads:
                self._meeting.answer(source, state.shown(self._config), out)
        elif state.recovery is None:
            self._admission.on_join(now_ns, source, asking, self._config, state.orderer, out)

    def _on_left(self, now_ns: int, origin: int, out: Outbox) -> None:
        """Our leave is ordered, and we did not see it; or a newcomer has declined its join."""
        state = self._state
        if self.phase is Phase.LINGERING:
            self._close(Closed())
        elif (
            state is not None
            and state.recovery is None
            and self._admission.is_expected(origin)
            and not self._wishes.is_manual
        ):
            # There is no need to wait until its silence is noticed.
            self._fail(now_ns, state, [Suspicion(origin, SuspicionReason.DECLINED)], out)

    # Rings that meet

    def _on_ring(self, now_ns: int, source: Address, kind: int, seen: Ring, out: Outbox) -> None:
        """A ring of our name has shown itself."""
        if self._joining is not None:
            self._joining.on_ring(now_ns, source, seen, out)
            self._after_joining(now_ns, out)
            return
        state = self._state
        if state is None or self.phase is not Phase.MEMBER or seen.ring == self.ring:
            return
        recovery = state.recovery
        if not seen.is_working:
            if kind == Kind.BEACON and recovery is None:
                # A member of a ring that is stuck and that hears no multicasts asks whether there is another.
                self._meeting.answer(source, state.shown(self._config), out)
        elif seen.ring in self._past or state.orderer.standing().is_retired:
            pass
        elif recovery is None:
            is_smaller = self._meeting.on_ring(
                now_ns, source, kind, seen, state.shown(self._config), state.orderer, out
            )
            if is_smaller:
                # All members are told where to go: not all of them may hear that ring (RMP section 3.4).
                change = Change(Reason.DISSOLVE, self._local.me, encode_address(source))
                state.orderer.propose(now_ns, change)
        elif recovery.accepted is not None and recovery.accepted.view.ring == seen.ring:
            pass  # our own next ring: its commit is on its way, or will be asked for
        elif now_ns - state.frozen_ns > 2 * self._local.timing.recovery_wait_ns:
            self._exclude(state, DepartureCause.SUPERSEDED, out)

    def _show_ring(self, now_ns: int, out: Outbox) -> None:
        """A beacon of the leader; of a frozen ring, of each member that cannot hear the beacons of others."""
        state = self._state
        if state is not None and self.phase is Phase.MEMBER:
            is_frozen = state.recovery is not None
            if not self._local.me.has_multicast if is_frozen else state.orderer.standing().leads:
                self._meeting.show(now_ns, To.ANYONE, state.shown(self._config), out)
                return
        self._meeting.due_ns = NEVER

    def _dissolve(self, out: Outbox) -> None:
        """The ring has ended in order for all of its members: they join another one, or the last one left."""
        was_leaving = self._leave_header is not None
        # The larger ring may be gone when we get there: then the first of us makes the group anew.
        self._wishes = self._wishes._replace(create=None)
        self._is_return = False
        why = DepartureCause.LEFT if was_leaving else DepartureCause.DISSOLVED
        self._end(Dissolved(why), f"the ring has ended: {why.value}", out, not was_leaving)

    # Failures

    def _fail(self, now_ns: int, state: QuorumRing, suspicions: list[Suspicion], out: Outbox) -> None:
        if self._is_dissolving:
            self._dissolve(out)  # the silent members have gone ahead
            return
        for member, why in suspicions:
            self._note(
                f"{state.orderer.view.member(member) or f'{member:016x}'} is suspected: {why.value}", out, member
            )
        suspects = [each.member for each in suspicions]
        names = tuple(str(member) for member in state.orderer.view.members if member.id in suspects)
        self._count("suspicions")
        recovery = self._freeze(now_ns, state)
        if self._wishes.is_manual:
            if suspicions and suspicions[0].why is not SuspicionReason.HEARSAY:
                out.sends.append(self._local.writer.control(To.ALL, Kind.SUSPECT, encode_suspects(suspects)))
            who = ", ".join(names) or "a member"
            out.upcalls.append(Failed(names, f"{who} does not answer; reset() re-forms the group"))
            recovery.wait()
        else:
            self._note("recovery begins: this member coordinates", out)
            recovery.begin(now_ns, suspects, RecoveryTerms(self._wishes.min_members), out)
            self._after_recovery(now_ns, state, recovery, out)

    def _freeze(self, now_ns: int, state: QuorumRing) -> Recovery:
        if state.recovery is not None:
            return state.recovery
        timing, me = self._local.timing, self._local.me
        if self._leave_header is not None:
            # Our leave cannot be ordered now. Recovery may bring that back; if it does not come soon we go without.
            self._linger_ns = now_ns if self._wishes.is_manual else now_ns + timing.linger_ns
        self._admission.clear()
        # Where this comes to nothing, others of the group may go on. We hear that by their beacons, or have to ask.
        self._meeting.due_ns = NEVER if me.has_multicast else now_ns + timing.beacon_ns
        self.is_whole = False
        self._update_direct()
        return state.freeze(now_ns, self._local, self._wishes.min_members, self._counter)

    def _on_recovery(
        self, now_ns: int, source: Address, kind: int, ring: int, origin: int, body: bytes, out: Outbox
    ) -> None:
        state = self._state
        if state is None or ring != self.ring or self.phase is not Phase.MEMBER:
            self.on_stranger(now_ns, source, kind, ring, out)
            return
        if kind == Kind.COMMIT:
            _, proposal = decode_result(body)
            self._on_commit(state, proposal, out)
            return
        recovery = state.recovery
        if recovery is None:
            if kind == Kind.SUSPECT:
                others = [each for each in decode_suspects(body) if each != self._local.me.id]
                self._fail(now_ns, state, [Suspicion(each, SuspicionReason.HEARSAY) for each in others], out)
                return
            if not begins_recovery(kind, body):
                return
            recovery = self._freeze(now_ns, state)
            inviter = state.orderer.view.member(origin)
            self._note(f"recovery begins: invited by {inviter or f'{origin:016x}'}", out, origin)
            if self._wishes.is_manual:
                out.upcalls.append(Failed((), "a member failed; the group is being re-formed"))
        recovery.on_message(now_ns, kind, source, origin, body, out)
        self._after_recovery(now_ns, state, recovery, out)

    def _after_recovery(self, now_ns: int, state: QuorumRing, recovery: Recovery, out: Outbox) -> None:
        if recovery.is_refused:
            recovery.is_refused = False
            if self._is_resetting:
                self._is_resetting = False
                out.upcalls.append(Reset(0, f"only {recovery.found} members of the old view answered"))
            if not self._wishes.is_manual:
                recovery.begin(now_ns, [], RecoveryTerms(self._wishes.min_members), out)
        if recovery.has_left:
            self._exclude(state, DepartureCause.LEFT_IN_RECOVERY, out)
        elif recovery.committed is not None:
            recovery.tell_commit(out)
            self._commit(state, recovery.committed, recovery.orphans(), recovery.awaited(), out)

    def _on_commit(self, state: QuorumRing, proposal: Proposal, out: Outbox) -> None:
        me = self._local.me
        accepted = state.recovery.accepted if state.recovery is not None else None
        if accepted is not None and accepted.view.ring == proposal.view.ring and proposal.view.member(me.id):
            # Another coordinator found our own proposal binding: the blocks that it promised are still ours to send.
            is_ours = id_of(accepted.view.creator) == me.id
            self._commit(state, accepted, state.promised(accepted.view) if is_ours else [], {}, out)
        elif self._leave_header is not None:
            self._end(LeftRing(DepartureCause.LEFT_IN_RECOVERY), DepartureCause.LEFT_IN_RECOVERY.value, out)
        else:
            self._exclude(state, DepartureCause.EXCLUDED, out)

    def _commit(
        self,
        state: QuorumRing,
        proposal: Proposal,
        orphans: list[tuple[int, int, bytes]],
        awaited: dict[int, int],
        out: Outbox,
    ) -> None:
        """Deliver what the survivors agreed on, then begin the new ring."""
        view = proposal.view
        self._past.add(self.ring, encode_result(proposal.ballot, proposal))
        if view.member(self._local.me.id) is None:
            # As the coordinator of what others began without us. We may have received more than they went on with.
            self._exclude(state, DepartureCause.EXCLUDED, out)
            return
        self._counter = max(self._counter, view.counter)
        self._note(f"recovery committed: view {view.id}", out)
        old = OldView(self._last_view or state.orderer.view, view.seq - 1, tuple(member.id for member in view.members))
        self._pending = Install(view, self._config, self._counter, (old,), orphans, awaited)

    # The end

    def _exclude(self, state: QuorumRing, why: DepartureCause, out: Outbox) -> None:
        """Out of the ring against our will: say so, and come back as a new member."""
        was_leaving = self._leave_header is not None
        is_returning = not self._wishes.is_manual and not was_leaving
        self._count("exclusions")
        self._is_return = True
        excluded = Excluded(why, is_returning, was_leaving, self._is_resetting)
        self._is_resetting = False
        self._end(excluded, f"excluded from view {state.orderer.view.id}: {why.value}", out, is_returning)

    def _end(self, transition: Transition, text: str, out: Outbox, is_returning: bool = False) -> None:
        self._note(text, out)
        self._close(transition)
        if is_returning:
            self.phase = Phase.JOINING

    def _close(self, transition: Transition) -> None:
        self._pending = transition
        self.phase = Phase.CLOSED
        self._joining = None
        self._state = None
        self.ring = NO_RING
        self.is_whole = False
        self._admission.clear()
        self._update_direct()
        self._meeting.due_ns = self._linger_ns = NEVER
        self._is_dissolving = False

    # Helpers

    def _update_direct(self) -> None:
        is_direct = self.is_whole and self.phase is Phase.MEMBER and not self._admission and not self._is_dissolving
        self.direct_ring = self.ring if is_direct else NO_RING

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1

    def _note(self, text: str, out: Outbox, origin: int = 0) -> None:
        out.notes.append(Note(NOTE, origin or self._local.me.id, detail=text))

    def _note_view(self, view: View, out: Outbox) -> None:
        members = ", ".join(map(str, view.members))
        self._note(f"view {view.id} installed: {view.reason.name.lower()} of {view.subject}; members {members}", out)
