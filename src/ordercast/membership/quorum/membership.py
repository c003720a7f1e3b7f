"""The quorum policy: of the parts that a failure leaves of a ring, at most one goes on. Amoeba 4.2, RMP 4.3 and 4.4.

A node joins (`Joining`), is a member of a ring (`QuorumRing`) whose members let newcomers in (`Admission`), decide by
`rule` on changes, and recover from failures; and it leaves. Rings of one name that meet become one (`meeting`). Here is
which part has its turn, and what the underlay is told (`policy`). The protocol: docs/design/membership.md.
"""

from __future__ import annotations

from ordercast.config import MS, GroupConfig, MinMembers
from ordercast.engine import NEVER, Departed, Note, Outbox, Refused, Reset, To, Waiting
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
    Silence,
    Transition,
    Visited,
)
from ordercast.membership.quorum.admission import Admission
from ordercast.membership.quorum.joining import Joining, new_attempts, read_welcome, whom_to_ask
from ordercast.membership.quorum.local import LocalMember, Wishes, coming_along, departed_by, installed_text, onward_of
from ordercast.membership.quorum.meeting import Meeting
from ordercast.membership.quorum.patience import LeavePatience
from ordercast.membership.quorum.ring import WORKING, QuorumRing, Successor
from ordercast.membership.quorum.roles import RecoveryTerms
from ordercast.membership.quorum.waiting import waiting_of
from ordercast.membership.quorum.withdrawing import Withdrawing
from ordercast.orderers import LoggedOrderer
from ordercast.orderers.orderer import Suspicion
from ordercast.view import Address, Reason, View, next_counter
from ordercast.wire.header import Kind
from ordercast.wire.returns import Kept
from ordercast.wire.views import (
    Asking,
    Ring,
    decode_asking,
    decode_ended,
    decode_refusal,
    decode_ring,
    decode_withdrawal,
    encode_ended,
    encode_result,
)


class QuorumMembership:
    """Implements `policy.Membership` for orderers with one contiguous log."""

    __slots__ = (
        "_admission",
        "_config",
        "_counter",
        "_counters",
        "_is_dissolving",
        "_is_return",
        "_joining",
        "_last_view",
        "_linger_ns",
        "_local",
        "_meeting",
        "_onward",
        "_patience",
        "_pending",
        "_state",
        "_wishes",
        "_withdrawing",
        "attempts",
        "direct_ring",
        "is_whole",
        "past",
        "phase",
        "ring",
        "silence",
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
        self._withdrawing: Withdrawing | None = None  # while LINGERING after a join that was given up
        self.silence = Silence.NONE
        self.ring = NO_RING
        self.is_whole = False
        self.direct_ring = NO_RING
        self._pending: Transition | None = None
        # What outlives a ring
        self.past = PastRings()
        self._counter = local.me.life // MS  # a life is a time: fencing tokens of a group made anew rise, too
        self._last_view: View | None = None  # as delivered
        self._onward: Address | None = None  # the leader of the ring that ours has dissolved into
        self._is_return = False
        self.attempts = new_attempts()
        # What goes on in a ring
        self._admission = Admission(local)
        self._meeting = Meeting(local, wishes)
        self._patience = LeavePatience(local.timing.linger_ns)
        self._is_dissolving = False  # the leader goes last: the others may need repairs to get this far
        self._linger_ns = NEVER

    # Inputs

    def start(self, now_ns: int, newcomer: Newcomer, out: Outbox) -> None:
        if self.silence.is_unwanted or (self.phase is Phase.LINGERING and self._state is not None):
            self._close(Closed())
            return
        self.phase, self.silence = Phase.JOINING, Silence.NONE
        ask = whom_to_ask(self._local.me, self._onward, self._wishes.contact, self._last_view)
        self._joining = Joining(self._local, self._wishes, newcomer, self._is_return, ask, self.attempts)
        self._joining.start(now_ns, out)

    def installed(self, now_ns: int, orderer: LoggedOrderer, out: Outbox) -> None:
        view, old = orderer.view, self._state
        self._joining, self._withdrawing, self.phase = None, None, Phase.MEMBER
        self._state = state = QuorumRing(self._local, self._wishes, self._config, orderer, self._counter)
        self.ring, self.is_whole, self._last_view = view.ring, True, view
        self._linger_ns = now_ns + self._local.timing.linger_ns if self.silence.is_guest else NEVER
        self._admission.clear()
        if old is not None:
            others = {member.id for member in view.members} - {self._local.me.id}
            self.past.keep_log(now_ns, old.orderer.view.ring, old.orderer, others)
            out.upcalls += old.end_resets(view)
        self._meeting.due_ns = NEVER
        if view.leader.id == self._local.me.id:
            self._show_ring(now_ns, out)
        if self._patience.is_asked:
            self._patience.propose(now_ns, self._local.me, orderer)
        if view.reason == Reason.JOIN:
            orderer.greet()
            state.deciding.on_change(now_ns, view, out, is_new=True)
        else:
            self._note(installed_text(view, old.orderer.view if old is not None else None), out)
        self._update_direct()

    def on_control(
        self, now_ns: int, kind: int, source: Address, ring: int, origin: int, body: bytes, out: Outbox
    ) -> None:
        if kind == Kind.WITHDRAW:
            self._on_withdraw(now_ns, source, origin, body, out)
        elif kind == Kind.ENDED:
            self._on_ended(now_ns, ring, body, out)
        elif kind >= Kind.VOTE or kind == Kind.RETURN:
            self._on_ring_message(now_ns, source, kind, ring, origin, body, out)
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
        elif kind == Kind.REFUSE and self._joining is not None:
            self._joining.on_refuse(*decode_refusal(body))
            self._after_joining(now_ns, out)

    def on_stranger(
        self, now_ns: int, source: Address, kind: int, ring: int, origin: int, body: bytes | memoryview, out: Outbox
    ) -> None:
        """A datagram of a ring that was ours, or of an unknown one on the same address."""
        is_past = ring in self.past
        self._count("old_ring" if is_past else "foreign")
        if self._joining is not None and not is_past:
            self._joining.on_traffic(now_ns)
        self.past.answer(now_ns, self._local.writer, source, kind, ring, origin, body, out)

    def on_heard(self, now_ns: int, origin: int) -> None:  # noqa: ARG002 - other policies may count from now on
        if self.past.is_keeping:
            self.past.heard(origin)
            self._update_direct()

    def on_suspects(self, now_ns: int, suspicions: list[Suspicion], out: Outbox) -> None:
        state = self._state
        if state is None or self.phase is not Phase.MEMBER:
            return
        if self._is_dissolving:
            self._dissolve(now_ns, out)  # the silent members have gone ahead
            return
        self._count("suspicions")
        state.fail(now_ns, suspicions, out)
        self._after_recovery(now_ns, state, out)

    def on_applied(self, now_ns: int, views: list[View], out: Outbox) -> None:
        me, state = self._local.me, self._state
        for view in views:
            self._counter = max(self._counter, view.counter)
            if state is not None:
                state.counter = self._counter
                state.deciding.on_change(now_ns, view, out)
            if view.reason == Reason.JOIN:
                self._admission.admitted(view)
                if view.creator == str(me):
                    self._admission.welcome(now_ns, view, self._config, out)
            if view.leader.id == me.id and self._meeting.due_ns == NEVER:
                self._show_ring(now_ns, out)
        if state is not None and state.orderer.has_left and self._linger_ns == NEVER:
            self._linger_ns = self._patience.retired(now_ns, state.orderer.view.reason)
        self._update_direct()

    def on_delivered(self, now_ns: int, view: View, out: Outbox) -> bool:
        state, linger_ns = self._state, now_ns + self._local.timing.linger_ns
        if view.reason == Reason.DISSOLVE:
            self._onward = onward_of(view) or self._onward
            if state is not None and state.recovery is None and not state.orderer.standing().is_settled:
                self._is_dissolving = True
                self._linger_ns = linger_ns
                self._update_direct()
            else:
                self._dissolve(now_ns, out)
            return False
        if view.member(self._local.me.id) is None:
            departed = departed_by(view, self._patience.is_asked, self._wishes.is_manual)
            self.phase, self._meeting.due_ns = Phase.LINGERING, NEVER
            self._linger_ns = self._patience.serve(now_ns)
            if state is not None and state.recovery is None:
                state.deciding.depart(now_ns, out)
            self._update_direct()
            self._is_return = departed.returning or self._is_return
            self._note(departed.text, out)
            out.upcalls.append(departed)
            return False
        self._last_view = view
        if view.reason not in (Reason.LOCK, Reason.UNLOCK):
            self._note(installed_text(view), out)
        return True

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        if self.silence is Silence.VISITING:  # for the application this is a join that it gives up
            self.silence = Silence.WITHDRAWN
            out.upcalls.append(Departed(True, False, DepartureCause.LEFT_UNJOINED.value))
            return
        if self.phase in (Phase.LINGERING, Phase.CLOSED):
            return
        state = self._state
        if state is not None and not (state.recovery is not None and self._wishes.is_manual):
            self._patience.header = header
            if state.recovery is None:
                self._patience.propose(now_ns, self._local.me, state.orderer)
            else:  # the others may need our vote; what they recover to can order our leave
                self._linger_ns = now_ns + self._local.timing.linger_ns
            return
        # There is no ring that could order our leave; for the others it is the same as a crash.
        joining = self._joining
        self._end(LeftRing(DepartureCause.LEFT_UNJOINED), DepartureCause.LEFT_UNJOINED.value, out)
        if joining is not None:
            self._withdraw(now_ns, joining, out)

    def retire(self, now_ns: int, header: bytes) -> None:
        self.phase, self.silence, self._patience.header = Phase.LINGERING, Silence.SERVING, header
        self._linger_ns = self._patience.serve(now_ns)

    def reset(self, now_ns: int, min_members: MinMembers, header: bytes, out: Outbox) -> None:
        state = self._state
        if state is None or self.phase is not Phase.MEMBER or self.silence is not Silence.NONE:
            out.upcalls.append(Reset(0, "this node is not a member", min_members))
            return
        state.reset(now_ns, RecoveryTerms(min_members, True, header), out)
        self._after_recovery(now_ns, state, out)

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
            self._after_recovery(now_ns, state, out)
        elif self._is_dissolving:
            if state.orderer.standing().is_settled:
                self._dissolve(now_ns, out)
        elif self.phase is Phase.LINGERING and state.deciding.may_go and state.orderer.standing().may_go:
            self._close(Closed())

    def expire(self, now_ns: int, out: Outbox) -> None:
        self.past.expire(now_ns, self._state is not None and not self.is_whole)
        if self._joining is not None:
            self._joining.expire(now_ns, out)
            self._after_joining(now_ns, out)
            return
        if self._withdrawing is not None:
            self._withdrawing.expire(now_ns, out)
            if self._withdrawing.is_over(now_ns):
                self._close(Closed())
            return
        if self._state is not None:
            self._admission.forget_gone(self._state.deciding.settled)
            self._state.expire(now_ns, out)
            self._after_recovery(now_ns, self._state, out)
        self._update_direct()
        if self._meeting.due_ns <= now_ns:
            self._show_ring(now_ns, out)
        self._admission.expire(now_ns, out)
        if self._linger_ns <= now_ns or self._patience.is_over(now_ns):
            state = self._state if self.phase is Phase.MEMBER else None
            if self._is_dissolving:
                self._dissolve(now_ns, out)
            elif state is None:
                self._close(Closed())
            elif state.restart_ns > now_ns:
                self._linger_ns = state.restart_ns
            elif state.is_ending and not self._patience.is_asked:
                self._onward = onward_of(state.orderer.view) or self._onward
                self._exclude(state, DepartureCause.SUPERSEDED, out)
            else:
                self._give_up(now_ns, state, out)

    def deadline_ns(self) -> int:
        due = min(self._meeting.due_ns, self._linger_ns, self._patience.due_ns)
        if self.direct_ring != NO_RING:
            return due  # hot: the ring works, and no newcomer is expected
        past_ns, alone = self.past.deadline_ns(), self._joining or self._withdrawing
        if alone is not None:
            return min(past_ns, alone.deadline_ns())  # nothing else is served meanwhile
        due = min(due, past_ns, self._admission.deadline_ns())
        return min(due, self._state.deadline_ns()) if self._state is not None else due

    def take(self) -> Transition | None:
        pending, self._pending = self._pending, None
        return pending

    # Questions

    @property
    def is_at_rest(self) -> bool:
        return self.direct_ring != NO_RING

    @property
    def state(self) -> str:
        return self._state.stage if self._state is not None else WORKING

    def waiting(self) -> Waiting | None:
        return waiting_of(self._local, self._joining, self._state)

    def was_in(self, ring: int) -> bool:
        return ring in self.past

    def newcomers(self) -> list[Address]:
        return self._admission.addresses()

    def kept(self) -> Kept | None:
        return self._state.kept(self.past.last()) if self._state is not None else None

    # Joining

    def resume(self, view: View, config: GroupConfig) -> None:
        self._config = config
        self._counter = max(self._counter, view.counter)
        self._pending = Install(view, config, self._counter)

    def _after_joining(self, now_ns: int, out: Outbox) -> None:
        joining = self._joining
        if joining is not None and joining.refusal:
            self._end(Refused(joining.refusal), f"the join was refused: {joining.refusal}", out)
            self._withdraw(now_ns, joining, out)
        elif joining is not None and joining.must_create:
            self.resume(joining.first_view(next_counter(self._counter, now_ns)), self._config)

    def _withdraw(self, now_ns: int, joining: Joining, out: Outbox) -> None:
        """A join has come to nothing. A member that was asked may let us in all the same: then we leave in order."""
        if joining.asked:
            self.phase, self.silence = Phase.LINGERING, Silence.WITHDRAWN
            self._withdrawing = Withdrawing(self._local, joining)
            self._withdrawing.start(now_ns, out)

    def _on_welcome(self, source: Address, body: bytes, out: Outbox) -> None:
        joining, withdrawing = self._joining, self._withdrawing
        name, nonce, config, view = read_welcome(body)
        if name != self._local.name or view.member(self._local.me.id) is None:
            return
        if withdrawing is not None and withdrawing.accept(nonce):
            self._patience.header = b""
        elif joining is None or not joining.accept(nonce):
            if self._state is not None and view.ring == self.ring:
                self._state.deciding.greet(source, view.seq, out)
            return
        elif not joining.suits(view, config):
            # That ring may need our vote: we are a member of it, leave it in order, and look for the group again.
            self.silence, self._patience.header = Silence.VISITING, b""
            self._note(f"let in late by {view.creator}: leaves, to come in anew", out)
        self.resume(view, config)

    # Newcomers, seen by members

    def _on_asking(self, now_ns: int, source: Address, kind: int, asking: Asking, out: Outbox) -> None:
        state = self._state
        if state is None or self.phase is not Phase.MEMBER:
            if self._joining is not None and kind == Kind.FIND:
                self._joining.on_find(asking)
            elif kind == Kind.FIND and self.phase is Phase.LINGERING and self.past.is_over:
                out.sends.append(self._local.writer.control(source, Kind.ENDED, encode_ended(self._local.name)))
        elif kind == Kind.FIND:
            is_gone = self.silence.is_unwanted and not self.is_whole  # it votes, and nobody waits for it
            if not is_gone and (state.recovery is not None or asking.tries or state.orderer.standing().leads):
                self._meeting.answer(source, state.shown_to(asking.member, out), out)
        elif state.recovery is None:
            self._admission.on_join(now_ns, source, asking, self._config, state.orderer, out)

    def _on_withdraw(self, now_ns: int, source: Address, origin: int, body: bytes, out: Outbox) -> None:
        """A newcomer has given up its join; or a member confirms that it will not order ours."""
        name, nonces, is_answer = decode_withdrawal(body)
        state, is_ours = self._state, name == self._local.name
        if is_ours and is_answer and self._withdrawing is not None:
            self._withdrawing.on_confirmed(now_ns, source, nonces)
        elif is_ours and not is_answer and state is not None and self.is_whole:
            self._admission.on_withdraw(source, origin, nonces, state.orderer, out)

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
        if state.meet(now_ns, source, kind, seen, seen.ring in self.past, self._meeting, out):
            self._exclude(state, DepartureCause.SUPERSEDED, out)

    def _show_ring(self, now_ns: int, out: Outbox) -> None:
        state = self._state
        if state is not None and self.phase is Phase.MEMBER and state.is_shown_here:
            self._meeting.show(now_ns, To.ANYONE, state.shown(), out)
        else:
            self._meeting.due_ns = NEVER

    def _dissolve(self, now_ns: int, out: Outbox) -> None:
        """The ring has ended in order for all of its members: they join another one, or the last one left."""
        was_leaving = self._patience.is_asked
        # The larger ring may be gone when we get there: then the first of us makes the group anew.
        self._wishes = self._wishes._replace(create=None)
        self._is_return = False
        self.past.add_ended(self.ring, self._local.name)
        why = DepartureCause.LEFT if was_leaving else DepartureCause.DISSOLVED
        has_lost = self._last_view is not None and self._last_view.incarnation > 0
        self._end(Dissolved(why), f"the ring has ended: {why.value}", out, not was_leaving)
        if was_leaving and has_lost and self.phase is Phase.CLOSED:
            # A member that a failure left behind looks for a group that is no more: it may be told.
            self.phase, self._linger_ns = Phase.LINGERING, self._patience.serve(now_ns)

    def _on_ended(self, now_ns: int, ring: int, body: bytes, out: Outbox) -> None:
        """Our ring has ended in order, and we have missed that; or the group that we come back to is no more."""
        state = self._state
        if decode_ended(body) != self._local.name:
            return
        if self._joining is not None:
            self._joining.on_ended(now_ns)
        elif state is not None and ring == self.ring:
            self.past.add_ended(ring, self._local.name)
            if self.phase is Phase.LINGERING:
                self._close(Closed())
            else:
                self._exclude(state, DepartureCause.DISSOLVED, out)

    # Decisions

    def _on_ring_message(
        self, now_ns: int, source: Address, kind: int, ring: int, origin: int, body: bytes, out: Outbox
    ) -> None:
        """On changes that are under way, or on what follows a failure. A leaver takes part until it may go."""
        state = self._state
        if state is None or ring != self.ring:
            self.on_stranger(now_ns, source, kind, ring, origin, body, out)
            if kind == Kind.RETURN and state is not None and self.is_whole and ring not in self.past:
                self._meeting.answer(source, state.shown(), out)
            return
        self.on_heard(now_ns, origin)
        if kind < Kind.SUSPECT and kind != Kind.RETURN:
            if state.recovery is not None:
                state.recovery.on_sign(source, origin, out)
            else:
                seq = state.deciding.on_message(kind, source, origin, body, out)
                if kind == Kind.VOTE:
                    self._admission.heard(now_ns, origin, seq)
                self._update_direct()
        else:
            state.on_message(now_ns, kind, source, origin, body, out)
            self._after_recovery(now_ns, state, out)

    def _after_recovery(self, now_ns: int, state: QuorumRing, out: Outbox) -> None:
        """The ring may have been frozen, or its successor decided."""
        if state.recovery is not None and self.is_whole:
            self._on_frozen(now_ns, state)
        successor = state.successor(now_ns, out)
        if successor is not None:
            self._follow(state, successor, out)
        elif state.give_up_ns <= now_ns and self.phase is Phase.MEMBER:
            self._exclude(state, DepartureCause.UNDECIDED, out)

    def _on_frozen(self, now_ns: int, state: QuorumRing) -> None:
        if self._patience.is_asked and self.phase is Phase.MEMBER:
            self._linger_ns = self._patience.freeze(now_ns, self.silence, state.has_failed)
        self._admission.clear()
        # Where this comes to nothing, others of the group may go on. We hear that by their beacons, or have to ask.
        is_hearing = self._local.me.has_multicast or self.silence.is_unwanted
        self._meeting.due_ns = NEVER if is_hearing else now_ns + self._local.timing.beacon_ns
        self.is_whole = False
        self._update_direct()

    def _follow(self, state: QuorumRing, successor: Successor, out: Outbox) -> None:
        """Deliver what the survivors agreed on, then begin the new ring."""
        proposal, view = successor.proposal, successor.proposal.view
        self.past.add(self.ring, encode_result(proposal.ballot, proposal))
        if self.phase is Phase.LINGERING:
            # It has left. Until its time is over it tells others what follows: it may be the only one that knows.
            linger_ns, is_visit = self._linger_ns, self.silence is Silence.VISITING
            self._close(Closed())
            if not is_visit:
                self.phase, self._linger_ns = Phase.LINGERING, linger_ns
        elif not successor.is_in and not state.has_left_before(view):
            # We may have received more than they went on with.
            if self._patience.is_asked:
                self._end(LeftRing(DepartureCause.LEFT_IN_RECOVERY), DepartureCause.LEFT_IN_RECOVERY.value, out)
            else:
                self._exclude(state, DepartureCause.EXCLUDED, out)
        else:
            self._counter = max(self._counter, view.counter)
            self._note(f"recovery committed: view {view.id}", out)
            old = OldView(self._last_view or state.orderer.view, view.seq - 1, coming_along(view))
            self._pending = Install(view, self._config, self._counter, (old,), successor.orphans, successor.awaited)

    # The end

    def _give_up(self, now_ns: int, state: QuorumRing, out: Outbox) -> None:
        """Our leave or our expulsion, or what comes before it, never got through. The application is out. Others may
        need our vote, and what they recover to can order our leave: for some time longer this is no crash."""
        why = DepartureCause.LEFT_STUCK
        if self.silence is not Silence.NONE:
            self._end(LeftRing(why), why.value, out)
            return
        expelled = None if self._patience.is_asked else departed_by(state.orderer.view, False, self._wishes.is_manual)
        self._note(f"{expelled.text if expelled is not None else why.value}; its vote stays", out)
        self._is_return = self._is_return or (expelled is not None and expelled.returning)
        self._pending, self.silence = LeftRing(why, True, expelled), Silence.SERVING
        self._linger_ns = self._patience.give_up(now_ns)
        self._update_direct()

    def _exclude(self, state: QuorumRing, why: DepartureCause, out: Outbox) -> None:
        """Out of the ring against our will: say so, and come back as a new member."""
        was_leaving = self._patience.is_asked
        is_returning = not self._wishes.is_manual and not was_leaving
        self._count("exclusions")
        # A newcomer that never was in, or a member of a ring that has ended, may make the group anew.
        self._is_return = why not in (DepartureCause.UNDECIDED, DepartureCause.DISSOLVED)
        excluded = Excluded(why, is_returning, was_leaving, state.resets)
        self._end(excluded, f"excluded from view {state.orderer.view.id}: {why.value}", out, is_returning)

    def _end(self, transition: Transition, text: str, out: Outbox, is_returning: bool = False) -> None:
        self._note(text, out)
        self._close(transition)
        self.phase = Phase.JOINING if is_returning else self.phase

    def _close(self, transition: Transition) -> None:
        self._pending, self.phase = transition, Phase.CLOSED
        if self.silence is Silence.VISITING:
            self._pending, self.phase = Visited(), Phase.JOINING
        if self.silence in (Silence.VISITING, Silence.SERVING):  # it may come back
            self.silence, self._patience = Silence.NONE, LeavePatience(self._local.timing.linger_ns)
        self._joining = self._withdrawing = self._state = None
        self.ring, self.is_whole, self._is_dissolving = NO_RING, False, False
        self._admission.clear()
        self._update_direct()
        self._meeting.due_ns = self._linger_ns = self._patience.due_ns = NEVER

    # Helpers

    def _update_direct(self) -> None:
        """The ring's traffic concerns the orderer alone while nobody is expected and nothing is to be decided."""
        state = self._state
        is_calm = self.is_whole and self.phase is Phase.MEMBER and not self._is_dissolving
        is_calm = is_calm and self.silence is Silence.NONE and not self._admission and not self.past.is_keeping
        self.direct_ring = self.ring if is_calm and state is not None and not state.deciding else NO_RING

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1

    def _note(self, text: str, out: Outbox, origin: int = 0) -> None:
        out.notes.append(Note(NOTE, origin or self._local.me.id, detail=text))
