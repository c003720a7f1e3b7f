"""RMP's rotating token site. Paper sections 4.2, 4.3 and 4.6; docs/design/token.md has states, datagrams and timers.

Every member runs this class, and each is token site in its turn: it assigns sequence numbers to what it holds, tells
everybody by one TOKEN (the paper's ACK), and with it passes the token on.
Deviations, with their reasons, stand in the design note.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ordercast.config import MS, GroupConfig, Timing
from ordercast.engine import NEVER, Change, Note, Outbox, To
from ordercast.errors import WireError
from ordercast.orderers.orderer import Standing, Start, Suspicion, SuspicionReason
from ordercast.orderers.token.calls import WAIT_NS
from ordercast.orderers.token.ordering import TokenOrdering
from ordercast.orderers.token.pending import key_of
from ordercast.orderers.token.sending import Timer
from ordercast.parts.changes import MEMBERSHIP, next_view
from ordercast.parts.log import runs_of
from ordercast.parts.rtt import RoundTrip
from ordercast.view import GROUP_ORIGIN, Address, Member, Reason, View, id_of, next_counter
from ordercast.wire.block import CALLED, FRAGMENTED, head_of
from ordercast.wire.calls import asks_for_answer, open_call
from ordercast.wire.header import Kind
from ordercast.wire.ordering import (
    Acks,
    Assignment,
    Missing,
    decode_acks,
    decode_held,
    decode_nak,
    encode_acks,
    encode_held,
    encode_nak,
)
from ordercast.wire.token import (
    HOLDS,
    HURRY,
    State,
    decode_change,
    decode_list,
    decode_state,
    decode_token,
    encode_change,
    encode_list,
    encode_state,
    encode_token,
)
from ordercast.wire.views import pack_change
from ordercast.wire.writer import DatagramWriter

NAMED_TRIES: Final = 4  # NACKs that name one site before everybody is asked
LEAVE_NS: Final = 10 * MS  # between two looks whether own blocks still hold up our leave


class Passed:
    """Our last pass, until there is a sign that the next site has accepted the token."""

    __slots__ = ("body", "kind", "sent_ns", "site", "tries", "turn")

    def __init__(self, turn: int, site: int, kind: Kind, body: bytes, sent_ns: int) -> None:
        self.turn = turn
        self.site = site
        self.kind = kind
        self.body = body
        self.sent_ns = sent_ns
        self.tries = 0


class Token(TokenOrdering):
    """The orderer of one ring. A new ring (after a failure) takes a new object; changes without failure do not."""

    gives_locks: ClassVar[bool] = True

    def __init__(
        self,
        me: Member,
        writer: DatagramWriter,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counter: int,
        counters: dict[str, int],
    ) -> None:
        """`counter` is the highest view counter that this node has used: none is used twice (section 3.1)."""
        super().__init__(me, writer, config, timing, view, next_block, counters)
        self._counter = max(counter, view.counter)
        # The token
        self._turn = 0  # the last pass that we know of
        self._before = 0  # who passed it to us
        self._named_at = -1  # we are named: the place up to which we have to hold everything; -1 if we are not
        self._passed: Passed | None = None
        self._pass_rtt = RoundTrip(timing.retransmit_ns, timing.retransmit_max_ns)
        # Leaving
        self.is_retired = False
        self._leaver: Member | None = None
        self._is_released = False  # somebody knows that we know of our leave
        # The rest
        self._held_due: dict[int, None] = {}  # senders to reassure
        self._behind: dict[int, None] = {}  # members to tell where the token is
        self._sync_now = False
        self._announced = 0  # everybody has been told that all hold everything up to this place
        self._spoke_ns = 0  # when we last told all where the token is and who holds what
        self._gap_tries = 0
        self._watched_leaver = 0

    # Inputs

    def install(self, now_ns: int, start: Start, out: Outbox) -> None:
        """Begin work in the view. Which blocks are awaited is in the view, since any member may order a join."""
        self._inherit(start.memory)
        self._apply_view(now_ns)
        for number, block in start.backlog:
            self._keep_own(now_ns, number, block, out)
            self._send_own(number, block, out)
        for origin, number, block in start.orphans:
            if self.log.hold(origin, number, block):
                out.notes.append(Note("hold", origin, block))  # in the old ring its sender may have been a stranger
                self._send_orphan(origin, number, block, out)
                if origin in self.callers:
                    # We do not answer for it: the caller sends again itself, or has gone on without it.
                    self._calls.held(now_ns, self.log, origin, number, False)
                    self._timers.set_earlier(Timer.CALLS, now_ns + WAIT_NS)
                else:
                    self._ready[origin] = None
                    self._outgoing.keep(now_ns, origin, number, block, 0)
        if self._outgoing.unordered:
            self._timers.set(Timer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))
        if self._site == self.me.id:
            self.is_holding = True
            self._is_hurried = True  # the new list's first ACK (section 4.4)
            if len(self.view.members) > 1:
                self._sync_now = True

    def waits_for_application(self) -> bool:
        """The token is here, and goes on when the application has taken what it has."""
        return self.is_holding and self._is_overrun()

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None:
        """Everything else of the ordering kinds. Raises WireError on nonsense; the underlay counts it."""
        if origin == self.me.id:
            return
        self._detector.heard(origin, now_ns)
        if kind == Kind.TOKEN:
            state, assignments = decode_token(body)
            self._on_token(now_ns, origin, state, assignments)
        elif kind == Kind.ORDERED:
            token, block = decode_list(body)
            state, assignments = decode_token(token)
            if not assignments:
                raise WireError("a block without a place")
            _, sender, first, count = assignments[-1]
            if sender != self.me.id and not self.has_left and not self._repairs.is_old(sender, first + count - 1):
                self._take(now_ns, sender, first + count - 1, block, out)
            self._on_token(now_ns, origin, state, assignments)
        elif kind == Kind.REQUEST:
            self._on_request(now_ns, origin, number, bytes(body), out)
        elif kind == Kind.LIST:
            token, change = decode_list(body)
            state, assignments = decode_token(token)
            if not self.has_left:
                self._hold(GROUP_ORIGIN, state.highest, change, out)
            self._on_token(now_ns, origin, state, assignments)
        elif kind in (Kind.SYNC, Kind.CONFIRM):
            self._on_sync(now_ns, source, origin, decode_state(body)[0], out)
        elif kind == Kind.NAK:
            acks, target, missing = decode_nak(body)
            self._on_nak(source, origin, acks, target, missing, out)
        elif kind == Kind.ACCEPT:
            self._on_accept(body)
        elif kind == Kind.UNRELIABLE:
            self._on_unreliable(origin, number, bytes(body), out)
        elif kind == Kind.STATUS:
            # What came before it on the same way has been read: that is all its sender wants to know.
            member = self.view.member(origin)
            if member is not None:
                out.sends.append(self._writer.control(member.address, Kind.ACK, encode_acks(decode_acks(body))))
        elif kind == Kind.ACK:
            self._pacer.acked(now_ns, origin, decode_acks(body).received, self._table.others)
        elif kind == Kind.HELD:
            for sender, upto in decode_held(body)[1]:
                if sender == self.me.id:
                    self._outgoing.acknowledged(now_ns, upto)
        elif kind == Kind.PROPOSE:
            self._on_propose(now_ns, origin, decode_change(body))
        else:
            self._count("strange_kinds")

    def on_call(self, now_ns: int, origin: int, number: int, is_first: bool, block: bytes, out: Outbox) -> bool:
        """A call from outside; False if it was delivered here before. (Section 4.5.)"""
        log, calls = self.log, self._calls
        if self.is_frozen or self.has_left or self.view.member(origin) is not None:
            return True
        if number < log.next_number.get(origin, 0):
            if log.seq_of(origin, number) > self.delivered:
                return True  # its answer follows its delivery
            if self.is_holding:
                calls.take_up(origin, number)
            return False
        if not head_of(block).rank and not asks_for_answer(block):
            return self._on_unreliable_call(origin, number, block, out)
        calls.heard(now_ns, origin)
        if is_first and origin in log.next_number:
            calls.begin_with(origin, number)
        if (origin, number) in log.blocks or not calls.may_hold(log, origin, number, is_first):
            return True
        if self._hold(origin, number, block, out, from_outside=True) is not None:
            calls.held(now_ns, log, origin, number, is_first)
            self._timers.set_earlier(Timer.CALLS, now_ns + WAIT_NS)
        return True

    def greet(self) -> None:
        """We are new: let who made the view hear us, so that it sends us the token again if we have missed it."""
        self._behind[id_of(self.view.creator)] = None

    def propose(self, now_ns: int, change: Change) -> None:
        """Ask for a change, or sponsor a newcomer's. A member's own leave waits for its own blocks."""
        if change.reason == Reason.LEAVE and change.member.id == self.me.id:
            self._leave_header = change.header
            self._timers.set(Timer.LEAVE, now_ns)
        else:
            self._pending_changes.ask(now_ns, change)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        # Hot: once per pass, and a pass is all that a single message gets; `bench` shows it as latency one at a time.
        if self.is_frozen:
            return
        log = self.log
        if log.assignments:
            self._advance(now_ns, out)
        if not self.has_left:
            self._take_turn(now_ns, out)
        else:
            self._table.learn(self.me.id, log.received)  # or nobody would hear that we know of our leave
        if self._fresh or self.delivered < log.received:
            self._deliver(out)
        if log.entries:
            self._purge_safe()
            if self.is_holding and not log.entries and self._pending_changes:
                self._take_turn(now_ns, out)  # what has just become safe held up a change
                self._deliver(out)
        if self._sync_now or self._behind or self._held_due or self._pending_changes.due_ns <= now_ns:
            self._speak(now_ns, out)
        if not self.has_left and self._repairs.is_wanted(self.is_holding):
            out.notes.extend(self._repairs.look(now_ns, self.is_holding))
        if self._watched_leaver != self._table.leaver:
            self._apply_view(now_ns)  # it knows that it has left, and may be silent from now on
        self._detector.work(self.is_busy, now_ns)
        self._timers.set_earlier(Timer.BEAT, now_ns + self._detector.heartbeat_ns)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self.is_frozen:
            return
        for timer in self._timers.due(now_ns):
            if timer is Timer.CONFIRM:
                self._confirm(out)
            elif timer is Timer.NULL:
                self._is_hurried = True
            elif timer is Timer.TOKEN:
                self._pass_again(now_ns, out)
            elif timer is Timer.RETRANSMIT:
                self._retransmit(now_ns, out)
            elif timer is Timer.BEAT:
                if now_ns - self._spoke_ns >= self._detector.heartbeat_ns:
                    self._sync_now = True
            elif timer is Timer.CALLS:
                due_ns = self._calls.expire(now_ns, self.log)
                if due_ns:
                    self._timers.set(Timer.CALLS, due_ns)
            elif timer is Timer.LEAVE:
                self._ask_to_leave(now_ns)
        self._send_naks(now_ns, out)

    def deadline_ns(self) -> int:
        if self.is_frozen:
            return NEVER
        # Silence is looked at with every heartbeat of our own, which is often enough to suspect.
        return min(self._timers.deadline_ns(), self._repairs.deadline_ns(), self._pending_changes.due_ns)

    def suspects(self, now_ns: int) -> list[Suspicion]:
        """Who has been silent for too long, or did not answer ten tries (section 4.4)."""
        if self.is_frozen or self.has_left:
            return []
        found = dict.fromkeys(self._detector.suspects(now_ns), SuspicionReason.SILENCE)
        if self._outgoing.is_exhausted:
            found.setdefault(self._site, SuspicionReason.NO_ACKNOWLEDGEMENT)
        if self._gap_tries > self._timing.tries:
            found.setdefault(self._site, SuspicionReason.NO_REPAIR)
        if self._passed is not None and self._passed.tries > self._timing.tries:
            found.setdefault(self._passed.site, SuspicionReason.NO_TOKEN)
        return [Suspicion(member, why) for member, why in found.items() if member and member != self.me.id]

    @property
    def is_busy(self) -> bool:
        """Whether anything is outstanding: heartbeats are frequent while it is."""
        log = self.log
        return bool(
            self._outgoing.unordered
            or log.entries
            or log.blocks
            or log.received < log.highest
            or self._passed is not None
            or self._named_at >= 0
            or self._pending_changes
            or self._leave_header is not None
            or self.has_left
        )

    # Roles

    def standing(self) -> Standing:
        """No member leads here; the first one answers for the ring to newcomers and to other rings."""
        table, is_settled = self._table, self._is_settled
        return Standing(
            self.view.leader.id == self.me.id,
            self.is_holding or self._named_at >= 0,
            not self.has_left,
            self.me,
            self.is_retired,
            is_settled,
            self.has_left and self._passed is None and is_settled and self._is_released,
            (self._leaver.address,) if table.leaver and self._leaver is not None else (),
        )

    @property
    def _is_settled(self) -> bool:
        """Every member has the last change (a ring that dissolves may end, a leaver may go: section 4.3)."""
        return self._table.safe >= self.view.seq

    @property
    def calls(self) -> Token:
        return self

    @property
    def departed(self) -> list[int]:
        """Who is known to know of the last change, one that has left by it included."""
        return self._table.informed(self.view.seq)

    @property
    def allowance(self) -> int:
        """A share like that of a member that has just begun to send; what callers have out counts for all of them."""
        return self._ceiling // (2 * (len(self.view.members) + len(self.callers)))

    def answers(self, origin: int, number: int) -> bool:
        return self._calls.is_mine(origin, number)

    def freeze(self) -> None:
        super().freeze()
        self._timers.clear_all()

    # What comes in

    def _take(self, now_ns: int, origin: int, number: int, block: bytes, out: Outbox) -> bool:
        """A whole block has come; whether it is new."""
        head = self._hold(origin, number, block, out)
        if head is None:
            self._on_old(origin, number)
            return False
        if origin in self.callers or (head.flags & CALLED and self.view.member(origin) is None):
            self._calls.held(now_ns, self.log, origin, number, False)
            self._timers.set_earlier(Timer.CALLS, now_ns + WAIT_NS)
            return True
        self._ready[origin] = None
        self._arrived(origin, number, block, head)
        return True

    def _on_old(self, origin: int, number: int) -> None:
        """Somebody sends again what we have: our word about it was lost, or its place has to wait."""
        self._count("duplicates")
        if self.is_holding and origin != GROUP_ORIGIN:
            if (origin, number) in self.log.blocks:
                self._held_due[origin] = None
            else:
                self._behind[origin] = None

    def _on_request(self, now_ns: int, origin: int, number: int, block: bytes, out: Outbox) -> None:
        """A sender takes us for the token site, and has told nobody else."""
        if self.has_left or self._repairs.is_old(origin, number):
            self._on_old(origin, number)
            return
        self._take(now_ns, origin, number, block, out)
        if self.is_holding or self._named_at >= 0:
            self._only_here[origin, number] = None
        elif self.view.member(origin) is not None:
            out.sends.append(self._writer.block(To.ALL, Kind.REPAIR, origin, number, block))

    def _on_unreliable(self, origin: int, number: int, block: bytes, out: Outbox) -> None:
        head = head_of(block)
        if head.rank or head.flags & FRAGMENTED:
            raise WireError("a block without a place is UNRELIABLE and whole")
        if self._is_overrun():
            self._count("overrun_drops")  # nothing holds up who sends these: what the application cannot take is lost
            return
        if (
            self.view.member(origin) is not None
            and not self.has_left
            and self._arrived_unreliable(origin, number, block)
        ):
            out.notes.append(Note("hold", origin, block, head=head))

    def _on_unreliable_call(self, origin: int, number: int, block: bytes, out: Outbox) -> bool:
        """An UNRELIABLE call is delivered where it arrives; the token site acknowledges it."""
        if self._is_overrun():
            self._count("overrun_drops")
            return True
        is_new = self._arrived_unreliable(origin, number, block, number)
        if is_new:
            out.notes.append(Note("name", origin, detail=open_call(block)[0].caller))
            out.notes.append(Note("hold", origin, block))
        if self.is_holding:
            self._calls.take_up(origin, number)
        return is_new

    def _on_token(self, now_ns: int, origin: int, state: State, assignments: list[Assignment]) -> None:
        """The token site has placed blocks and passed the token on."""
        if self.is_holding and state.turn > self._turn:
            self._count("strange_tokens")  # the token is here, and nobody else can pass it
            return
        if self.has_left:
            self._on_state(now_ns, origin, state)
            return
        if state.highest <= self.log.received + self.log.ahead:
            for placed in assignments:
                self._assign(*placed)
        if state.site == self.me.id and state.turn <= self._turn and (self.is_holding or state.turn < self._turn):
            self._behind[origin] = None  # it repeats its pass: our word that the token is here was lost
        self._on_state(now_ns, origin, state)

    def _on_state(self, now_ns: int, origin: int, state: State) -> None:
        """What anybody knows of the token and of who holds what."""
        log = self.log
        if self.view.member(origin) is None and origin not in (self._table.leaver, *self.view.prior):
            self._count("strange_tokens")  # of nobody, or of a newcomer whose join is not here: others will say it too
            return
        if state.highest > log.received + log.ahead or (self.is_holding and state.turn > self._turn):
            self._count("strange_tokens")
            return
        if self._table.merge(state.view, state.rows):
            self._announced = max(self._announced, min(state.rows, default=0))
        if self.has_left:
            if state.view >= self.view.seq:
                rows = state.rows[len(self.view.members) :]
                self._is_released = self._is_released or not rows or rows[0] >= self.view.seq
        else:
            log.highest = max(log.highest, state.highest)
        passed = self._passed
        if passed is not None and (
            state.turn > passed.turn or (state.turn == passed.turn and origin == passed.site and state.flags & HOLDS)
        ):
            if not passed.tries:
                self._pass_rtt.sample(now_ns - passed.sent_ns)
            self._passed = None
            self._timers.clear(Timer.TOKEN)
        if state.turn > self._turn and not self.has_left:
            # Who has left does not follow: it would tell of a pass without the places that came with it.
            self._turn, self._site = state.turn, state.site
            if state.site == self.me.id:
                self._before = origin
                self._named_at = state.highest
                self._is_hurried = bool(state.flags & HURRY)
            else:
                self._named_at = -1

    def _on_sync(self, now_ns: int, source: Address, origin: int, state: State, out: Outbox) -> None:
        self._on_state(now_ns, origin, state)
        passed = self._passed
        if self.view.member(origin) is None and origin != self._table.leaver:
            # Where it came from a member, that one has forwarded it and answers (section 3.4).
            if not self.has_left and all(member.address != source for member in self.view.members):
                out.sends.append(self._writer.control(source, Kind.LEFT, encode_state(self._state())))
        elif self.is_holding and state.view == self._table.view.seq and min(state.rows, default=0) < self._announced:
            self._behind[origin] = None  # what is safe has been said, and not heard there
        elif state.turn < self._turn and (self.is_holding or (passed is not None and passed.site == origin)):
            self._behind[origin] = None

    def _on_propose(self, now_ns: int, origin: int, change: Change) -> None:
        member = self.view.member(origin)
        if member is None or self.has_left:
            return
        if change.reason in (Reason.LEAVE, Reason.LOCK, Reason.UNLOCK):
            if change.member.id != origin:
                raise WireError("a change in the name of another member")
            change = change._replace(member=member)
        elif change.reason == Reason.JOIN and self.view.member(change.member.id) is not None:
            return  # an echo
        self._pending_changes.hear(now_ns, change)

    # Views

    def _on_view(self, now_ns: int, old: View, out: Outbox) -> None:
        view = self.view
        self._counter = max(self._counter, view.counter)
        self._cleared = view.seq  # a change stands behind what is safe only
        gone = next((member for member in old.members if view.member(member.id) is None), None)
        self._leaver = gone or self._leaver
        self._table.apply(view)
        self._pending_changes.answered(view)
        self._repairs.callers = self.callers
        for origin in view.callers:
            self._calls.drop_old(self.log, origin)  # a newcomer may have had them in another ring
        if view.reason in MEMBERSHIP:
            self._last_change = view.seq
            self._awaited = {}
        for member in view.members:
            if old.member(member.id) is None:
                self._upto[member.id] = self.log.next_number[member.id]
                self._calls.become_member(member.id)
                self._ready[member.id] = None  # its first blocks may have come before its join
                self._recent.pop(member.id, None)
        if gone is not None:
            self._upto.pop(gone.id, None)
            self._ready.pop(gone.id, None)
            self._open.discard(gone.id)
        self._apply_view(now_ns)
        if self.has_left:
            self.is_holding = False
            self._named_at = -1
            self._sync_now = True
            self.is_retired = True
            self._leave_header = None
            self.abandon(out)

    def _apply_view(self, now_ns: int) -> None:
        """Bounds that follow from the current view, and whom we watch."""
        self._fit_to(self.view)
        self._detector.watch([] if self.has_left else self._table.others, now_ns)
        self._watched_leaver = self._table.leaver

    # The token site

    def _take_turn(self, now_ns: int, out: Outbox) -> None:
        """Accept the token if it is ours and everything before it is here; then do what a token site does."""
        log = self.log
        self._table.learn(self.me.id, log.received)
        if 0 <= self._named_at <= log.received:
            self._named_at = -1
            self.is_holding = True
            self._timers.set(Timer.CONFIRM, now_ns + self._timing.confirm_ns)
        if not self.is_holding or self._is_overrun():
            return
        if log.received < log.highest:
            log.highest = log.received  # what was spoken of beyond the last pass is hearsay: only we place
        changes = list(self._pending_changes.waiting(now_ns)) if self._pending_changes else []
        assignments = self._order(now_ns, changes, out)
        if assignments:
            self._table.learn(self.me.id, log.received)
        if changes:
            change = self._next_change(changes)
            if change is not None and self._order_change(now_ns, change, assignments, out):
                return
        if self._only_here and not assignments:
            self._show_all(out)  # it has to wait
        is_deferred = self._leaves_to_first() and any(change.reason == Reason.JOIN for change in changes)
        if assignments or self._must_hurry(changes) or is_deferred:
            self._pass(now_ns, assignments, out)
        elif self._table.round >= log.received:
            self._is_hurried = False  # the round is complete: the token rests here
            self._timers.clear(Timer.NULL)
            if self._announced < log.received:
                self._sync_now = True  # what is safe now is delivered, and frees windows, when all know it
        elif not self._timers.is_set(Timer.NULL):
            self._timers.set(Timer.NULL, now_ns + self._timing.token_quiet_ns)

    def _order_change(self, now_ns: int, change: Change, assignments: list[tuple[int, int, int]], out: Outbox) -> bool:
        """A New List: the changed view, in one datagram with its own ACK (section 4.3). A newcomer comes directly
        after us, and is token site next."""
        log, old, seq = self.log, self.view, self.log.received + 1
        callers = self._calls.kept(now_ns, log, self.callers, self._timing.caller_flush_ns)
        numbers = {origin: number for origin, number in log.next_number.items() if origin not in self.callers}
        view = next_view(
            old,
            change,
            next_counter(self._counter, now_ns),
            self._config.max_members,
            seq,
            log.position,
            numbers,
            callers,
            self.me,
            self.me.id,
        )
        if view is None:
            self._pending_changes.drop(key_of(change))
            return False
        block = pack_change(view)
        log.hold(GROUP_ORIGIN, seq, block)
        log.assign(seq, GROUP_ORIGIN, seq)
        was_holding = self.is_holding
        self._advance(now_ns, out)
        self._table.learn(self.me.id, log.received)
        self.is_holding = was_holding  # our own leave ends with a pass, too
        self._pass(now_ns, [*assignments, (seq, GROUP_ORIGIN, seq)], out, block)
        return True

    def _pass(
        self, now_ns: int, assignments: list[tuple[int, int, int]], out: Outbox, change: bytes | None = None
    ) -> None:
        """Tell everybody the places, and who is token site next."""
        site = self._successor()
        is_alone = site == self.me.id
        if is_alone and not self._table.others:
            return
        self._turn += 1
        self._site = site
        self.is_holding = is_alone  # who has just left has to hear of it
        self._timers.clear(Timer.CONFIRM)
        self._timers.clear(Timer.NULL)
        state = self._state()
        if self._is_hurried:
            state = state._replace(flags=state.flags | HURRY)
        self._is_hurried = False
        body = encode_token(state, runs_of(assignments))
        kind = Kind.TOKEN
        if change is not None:
            body, kind = encode_list(body, change), Kind.LIST
        elif self._only_here and assignments and self._only_here.pop(assignments[-1][1:], 0) is None:
            body, kind = encode_list(body, self.log.entries[assignments[-1][0]].block), Kind.ORDERED
        if self._only_here:
            self._show_all(out)
        out.sends.append(self._writer.control(To.ALL, kind, body))
        if not is_alone:
            self._passed = Passed(self._turn, site, kind, body, now_ns)
            self._timers.set(Timer.TOKEN, now_ns + self._pass_rtt.timeout_ns(0))
        self._sync_now = False
        self._spoke_ns = now_ns

    def _show_all(self, out: Outbox) -> None:
        """Blocks that only we have go out by themselves after all."""
        for origin, number in self._only_here:
            block = self.log.find_block(origin, number)
            if block is not None:
                kind = Kind.DATA if origin == self.me.id else Kind.REPAIR
                out.sends.append(self._writer.block(To.ALL, kind, origin, number, block))
        self._only_here.clear()

    def _successor(self) -> int:
        """The member after us in the ring; if we have left, the one that was after us."""
        members, me = self.view.members, self.me.id
        at = self.view.index(me)
        if at < 0:
            prior = self.view.prior
            at = prior.index(me)
            return next(member for member in (*prior[at + 1 :], *prior[:at]) if self.view.member(member) is not None)
        return members[(at + 1) % len(members)].id

    def _state(self) -> State:
        log, table = self.log, self._table
        rows = table.rows()
        self._announced = max(self._announced, min(rows))
        highest = max(log.highest, log.received, *rows)
        return State(self._turn, self._site, highest, table.view.seq, HOLDS if self.is_holding else 0, rows)

    def _pass_again(self, now_ns: int, out: Outbox) -> None:
        passed = self._passed
        if passed is None:
            return
        passed.tries += 1
        self._count("token_retries")
        self._writer.next_via()
        self._timers.set(Timer.TOKEN, now_ns + self._pass_rtt.timeout_ns(passed.tries))
        self._send_passed(passed, out)

    def _send_passed(self, passed: Passed, out: Outbox) -> None:
        member = self.view.member(passed.site)
        if member is not None:
            out.sends.append(self._writer.control(member.address, passed.kind, passed.body))

    def _confirm(self, out: Outbox) -> None:
        """No ACK of ours doubles as one: tell the site before that the token is here."""
        member = self.view.member(self._before)
        if not self.is_holding or member is None:
            return
        out.sends.append(self._writer.control(member.address, Kind.CONFIRM, encode_state(self._state())))

    # What goes out

    def _speak(self, now_ns: int, out: Outbox) -> None:
        """After a batch: requests, words to those who lag behind, heartbeats."""
        if self._pending_changes.due_ns <= now_ns:
            for change in self._pending_changes.repeated(now_ns):
                out.sends.append(self._writer.control(To.ALL, Kind.PROPOSE, encode_change(change)))
        if self._held_due:
            self._acknowledge_held(out)
        if self._sync_now:
            self._sync_now = False
            self._spoke_ns = now_ns
            self._behind.clear()
            if self._table.others:
                out.sends.append(self._writer.control(To.ALL, Kind.SYNC, encode_state(self._state())))
        elif self._behind:
            for origin in self._behind:
                self._tell(origin, out)
            self._behind.clear()

    def _tell(self, origin: int, out: Outbox) -> None:
        member = self.view.member(origin)
        if member is None:
            return
        if self._passed is not None and self._passed.site == origin:
            self._send_passed(self._passed, out)
        else:
            out.sends.append(self._writer.control(member.address, Kind.SYNC, encode_state(self._state())))

    def _acknowledge_held(self, out: Outbox) -> None:
        """To senders that send again what waits here for its place: we have it."""
        acks = Acks(self.log.received, 0)
        for origin in self._held_due:
            member = self.view.member(origin)
            if member is not None:
                upto = self.log.next_number.get(origin, 0)
                while (origin, upto) in self.log.blocks:
                    upto += 1
                body = encode_held(acks, [(origin, upto)])
                out.sends.append(self._writer.control(member.address, Kind.HELD, body))
        self._held_due.clear()

    def _ask_to_leave(self, now_ns: int) -> None:
        if self._leave_header is None or self.has_left:
            return
        if self._outgoing.unordered:
            self._timers.set(Timer.LEAVE, now_ns + LEAVE_NS)
        else:
            self._pending_changes.ask(now_ns, Change(Reason.LEAVE, self.me, self._leave_header))

    # Gaps and repairs

    def _send_naks(self, now_ns: int, out: Outbox) -> None:
        """NACKs go to all and name one site to answer: the last token site, then others, at the end everybody."""
        acks = Acks(self.log.received, 0)
        wanted = self._repairs.due_by_tries(now_ns)
        self._gap_tries = max(wanted, default=self._gap_tries if self.log.received < self.log.highest else 0)
        for tries, missing in wanted.items():
            body = encode_nak(acks, missing, self._answerer(tries))
            out.sends.append(self._writer.control(To.ALL, Kind.NAK, body))
        for origin, blocks in self._repairs.due_blocks(now_ns).items():
            member = self.view.member(origin)
            if member is not None:
                out.sends.append(self._writer.control(member.address, Kind.NAK, encode_nak(acks, blocks, origin)))

    def _answerer(self, tries: int) -> int:
        """Who is to answer the n-th NACK for something; 0: everybody."""
        if tries > NAMED_TRIES:
            return 0
        members = [member.id for member in self.view.members if member.id != self.me.id]
        if not members:
            return 0
        last = self._before if self._site == self.me.id else self._predecessor(self._site)
        at = members.index(last) if last in members else 0
        return members[(at + tries - 1) % len(members)]

    def _predecessor(self, site: int) -> int:
        """Who passed the token to `site`: the last that is known to have been token site."""
        members = self.view.members
        return members[self.view.index(site) - 1].id

    def _on_nak(
        self, source: Address, origin: int, acks: Acks, target: int, missing: list[Missing], out: Outbox
    ) -> None:
        if acks.received <= self.log.received:
            self._table.learn(origin, acks.received)
        self._note_losses(missing)
        if target in (0, self.me.id):
            member = self.view.member(origin)
            self._repair(member.address if member is not None else source, missing, out)
