"""Two-phase timestamps: ABCAST, and TOMPA's anticipation. TOMPA sections 2 and 3; docs/design/timestamp.md.

Every member runs this class: what members say to each other, and how members come and go. Deviations, with their
reasons, stand in the design note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum, auto
from typing import ClassVar, Final

from ordercast.config import MS, GroupConfig, Timing
from ordercast.engine import NEVER, Change, Note, Outbox, To
from ordercast.orderers.orderer import Standing, Start, Suspicion, SuspicionReason
from ordercast.orderers.timestamp.changes import Changes
from ordercast.orderers.timestamp.queue import Key
from ordercast.orderers.timestamp.receiving import Receiver
from ordercast.parts.changes import next_view
from ordercast.parts.timers import Timers
from ordercast.service import AGREED_RANK, FIFO_RANK, MAJORITY_RANK, RELIABLE_RANK, RESILIENT_RANK, SAFE_RANK
from ordercast.view import GROUP_ORIGIN, Address, Member, Reason, View, id_of, next_counter
from ordercast.wire.block import head_of
from ordercast.wire.header import Kind
from ordercast.wire.ordering import (
    MAX_MISSING,
    Acks,
    decode_held,
    decode_nak,
    decode_propose,
    encode_held,
    encode_nak,
    encode_propose,
)
from ordercast.wire.stamps import ASKS, MAX_ACKED, WANTS, Acked, Decided, Stamps, decode_stamps, encode_stamps
from ordercast.wire.token import decode_list, encode_list
from ordercast.wire.views import pack_change
from ordercast.wire.writer import DatagramWriter

LEAVE_NS: Final = 10 * MS  # between two looks whether own blocks still hold up our leave
PROPOSE_NS: Final = 100 * MS
AGAIN_MAX_NS: Final = 100 * MS
ALONG: Final = 16  # blocks that are acknowledged once more with the next
MAX_DECISIONS: Final = 256  # in one datagram: a body has no more than 256 segments, which may be small
FEW_DECISIONS: Final = 8  # up to so many in one datagram each has its bounds
AT_ONCE: Final = 64  # blocks of one sender that are acknowledged again at a time
MAX_LATER: Final = 4_096  # decisions of a later view that are kept; the others are asked for again


class Timer(IntEnum):  # its members are keys of a table on the hot path: an int hashes in C
    RETRANSMIT = auto()
    AGAIN = auto()  # decisions do not come: acknowledge again
    BEHIND = auto()  # others have received more than we
    BEAT = auto()
    LEAVE = auto()
    LAG = auto()  # as the first member: a change waits until all have the last


class Timestamp(Receiver):
    """The orderer of one ring. A new ring (after a failure) takes a new object; joins and leaves do not."""

    gives_locks: ClassVar[bool] = False
    ranks: ClassVar[frozenset[int]] = frozenset(
        (RELIABLE_RANK, FIFO_RANK, AGREED_RANK, RESILIENT_RANK, MAJORITY_RANK, SAFE_RANK)
    )
    gives: ClassVar[str] = "the timestamp orderer gives RELIABLE, FIFO, AGREED, RESILIENT(k), MAJORITY and SAFE"

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
        """`counter` is the highest view counter that this node has used: none is used twice (RMP section 3.1)."""
        super().__init__(me, writer, config, timing, view, next_block, counters)
        self._counter = max(counter, view.counter)
        self._timers: Timers[Timer] = Timers()
        self._told = view.seq  # how far others know that we have received
        self._spoke_ns = 0  # when we last spoke to all
        # Decisions and places that do not come
        # What a member said last counts, not the most: a wrong word is mended by the next.
        self._sent_by: dict[int, int] = {}  # origin -> it has sent its blocks below this
        self._received_by: dict[int, int] = {}  # origin -> it has received up to this place
        self._stuck: dict[int, int] = {}  # origin -> its first undecided block, at the last look
        self._again_ns = timing.nak_retry_ns
        self._behind_at = 0
        # Changes
        self._changes = Changes(view)
        self._wants = False  # all are to say what they have received, since a change waits for it
        self._asked_at = -1
        self._lag_ns = timing.nak_retry_ns
        # Leaving
        self.is_retired = False
        self._leaver: Member | None = None
        self._is_released = False  # somebody knows that we know of our leave
        self._watched_leaver = 0

    # Inputs

    def install(self, now_ns: int, start: Start, out: Outbox) -> None:
        """Begin work in the view. Which blocks are awaited is in the view, since another may order a join."""
        self._inherit(start.memory)
        self._apply_view(now_ns)
        for number, block in start.backlog:
            self._keep_own(now_ns, number, block, out)
            self._send_own(number, block, out)
        for origin, number, block in start.orphans:
            if self.log.hold(origin, number, block):
                out.notes.append(Note("hold", origin, block))  # in the old ring its sender may have been a stranger
                self._outgoing.keep(now_ns, origin, number, block, 0)
                self._answer_for(origin, number)
                self._arrived(origin, number, block, head_of(block))
                self._propose_from(origin)
                self._send_to(self._table.others, origin, number, block, out)
        self._submitted(now_ns)
        self._tell_all = len(self._members) > 1

    def _submitted(self, now_ns: int) -> None:
        if self._outgoing.unordered:
            self._timers.set_earlier(Timer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))

    def waits_for_application(self) -> bool:
        """Blocks are held back until the application has taken what it has."""
        return bool(self._held_back) and self._is_overrun()

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None:
        """Everything else of the ordering kinds. Raises WireError on nonsense; the underlay counts it."""
        if origin == self.me.id:
            return
        self._detector.heard(origin, now_ns)
        if kind in (Kind.STAMPS, Kind.DECISION, Kind.SYNC):
            self._on_stamps(now_ns, source, origin, decode_stamps(body), out)
        elif kind == Kind.LIST:
            head, change = decode_list(body)
            stamps = decode_stamps(head)
            if not self.has_left and number > self.log.received:
                self._hold(GROUP_ORIGIN, number, change, out)
                self._assign(number, GROUP_ORIGIN, number, 1)
            self._on_stamps(now_ns, source, origin, stamps, out)
        elif kind == Kind.NAK:
            acks, _, missing = decode_nak(body)
            if acks.received <= self.log.received:
                self._table.learn(origin, acks.received)
            self._note_losses(missing)
            member = self.view.member(origin)
            self._repair(member.address if member is not None else source, missing, out)
        elif kind == Kind.ACCEPT:
            self._on_accept(body)
        elif kind == Kind.HELD:
            for sender, upto in decode_held(body)[1]:
                if self._answerer(sender) == self.me.id:
                    self._outgoing.acknowledged(now_ns, upto, sender)
        elif kind == Kind.PROPOSE:
            _, operation, header = decode_propose(body)
            self._on_propose(source, origin, operation, header, out)
        else:
            self._count("strange_kinds")

    def greet(self) -> None:
        """We are new: let who made the view hear us, so that it stops welcoming us."""
        self._news.add(id_of(self.view.creator))

    def propose(self, now_ns: int, change: Change) -> None:
        """Order a change like a message. A member's own leave waits for its own blocks."""
        if change.reason == Reason.LEAVE and change.member.id == self.me.id:
            self._leave_header = change.header
            self._timers.set(Timer.LEAVE, now_ns)
        elif self.is_leader:
            self._changes.propose(change)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        if self.is_frozen:
            return
        if self._held_back:
            self._release()
        if self._has_votes:
            self._decide(out)
        if self.has_left:
            self._table.learn(self.me.id, self.log.received)  # or nobody would hear that we know of our leave
        else:
            self._receive(now_ns, out)
        if self._fresh or self.delivered < self.log.received:
            self._deliver(out)
            self._announce_strong()
        if self.log.entries:
            self._purge_safe()
            if self._held_back and not self.has_left and not self._is_full():
                self._go_on(now_ns, out)
        if (self._changes or self._is_closing or self._is_draining) and not self.has_left:
            self._change(now_ns, out)
        self._speak(now_ns, out)
        if not self.has_left:
            self._look(now_ns, out)
        if self._watched_leaver != self._table.leaver:
            self._apply_view(now_ns)  # it knows that it has left, and may be silent from now on
        self._detector.work(self.is_busy, now_ns)
        self._timers.set_earlier(Timer.BEAT, now_ns + self._detector.heartbeat_ns)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self.is_frozen:
            return
        for timer in self._timers.due(now_ns):
            if timer is Timer.RETRANSMIT:
                self._retransmit(now_ns, out)
            elif timer is Timer.AGAIN:
                self._acknowledge_again()
            elif timer is Timer.BEHIND:
                self._catch_up(now_ns)
            elif timer is Timer.BEAT:
                if now_ns - self._spoke_ns >= self._detector.heartbeat_ns:
                    self._writer.next_via()
                    self._tell_all = True
            elif timer is Timer.LEAVE:
                self._ask_to_leave(now_ns, out)
            elif timer is Timer.LAG and self._changes:
                self._wants = self._tell_all = True
                self._lag_ns = min(2 * self._lag_ns, AGAIN_MAX_NS)
        self._send_naks(now_ns, out)

    def deadline_ns(self) -> int:
        if self.is_frozen:
            return NEVER
        # Silence is looked at with every heartbeat of our own, which is often enough to suspect.
        return min(self._timers.deadline_ns(), self._repairs.deadline_ns())

    def suspects(self, now_ns: int) -> list[Suspicion]:
        """Who has been silent for too long, or did not acknowledge ten tries."""
        if self.is_frozen or self.has_left:
            return []
        found = dict.fromkeys(self._detector.suspects(now_ns), SuspicionReason.SILENCE)
        if self._outgoing.is_exhausted:
            for key, each in self._outgoing.unordered.items():
                if each.tries > self._timing.tries:
                    for member in self._lacking(key):
                        found.setdefault(member, SuspicionReason.NO_ACKNOWLEDGEMENT)
        return [Suspicion(member, why) for member, why in found.items() if member != self.me.id]

    @property
    def is_busy(self) -> bool:
        """Whether anything is outstanding: heartbeats are frequent while it is."""
        log = self.log
        return bool(
            self._outgoing.unordered
            or log.entries
            or log.blocks
            or log.received < log.highest
            or self._leave_header is not None
            or (self._changes and self.is_leader)
            or self.has_left
            or self._repairs.is_wanted(False)
        )

    # Roles

    def standing(self) -> Standing:
        leads, is_settled = self.is_leader, self._table.safe >= self.view.seq
        may_go = self.has_left and is_settled and self._is_released
        leavers = (self._leaver.address,) if self._table.leaver and self._leaver is not None else ()
        return Standing(leads, leads, leads, self.view.leader, self.is_retired, is_settled, may_go, leavers)

    @property
    def calls(self) -> None:
        """This orderer takes no calls from outside."""

    @property
    def is_leader(self) -> bool:
        """The first member orders changes; nobody else has a part of its own."""
        return self.view.leader.id == self.me.id and not self.has_left

    @property
    def departed(self) -> list[int]:
        """Who is known to know of the last change, one that has left by it included."""
        return self._table.informed(self.view.seq)

    def freeze(self) -> None:
        super().freeze()
        self._timers.clear_all()

    # What comes in

    def _on_stamps(self, now_ns: int, source: Address, origin: int, stamps: Stamps, out: Outbox) -> None:
        log, queue = self.log, self._queue
        is_member = self.view.member(origin) is not None
        if stamps.highest > log.received + log.ahead or stamps.view > log.received + log.ahead:
            self._count("strange_stamps")
            return
        if not is_member and origin != self._table.leaver and stamps.view <= self.view.seq:
            # Where it came from a member, that one has forwarded it and answers (RMP section 3.4).
            if not self.has_left and all(member.address != source for member in self.view.members):
                out.sends.append(self._writer.control(source, Kind.LEFT, encode_stamps(self._stamps())))
            if origin not in self.view.prior:
                self._count("strange_stamps")
            return
        if not is_member and origin != self._table.leaver:
            self._on_newcomer(origin, stamps, out)
            return
        self._table.merge(stamps.view, stamps.rows)
        if self.has_left:
            if stamps.view >= self.view.seq:
                rows = stamps.rows[len(self.view.members) :]
                self._is_released = self._is_released or not rows or rows[0] >= self.view.seq
            return
        if stamps.view > log.received:
            log.highest = max(log.highest, stamps.view)  # there is a change that we have missed
            self._received_by[origin] = stamps.view
        index = self.view.index(origin)
        if stamps.view == self.view.seq and 0 <= index < len(stamps.rows):
            self._received_by[origin] = stamps.rows[index]
            if stamps.rows[index] > log.received and not self._timers.is_set(Timer.BEHIND):
                self._behind_at = log.received
                self._timers.set(Timer.BEHIND, now_ns + self._timing.nak_delay_ns)
        for decided in stamps.decisions:
            self._on_decided(decided, out)
        if is_member:
            if stamps.flags & WANTS or (not self.is_busy and min(stamps.rows, default=0) < log.stable):
                self._news.add(origin)  # it waits to hear what we have, and have forgotten about perhaps
            if stamps.sent <= log.next_number.get(origin, 0) + log.ahead:
                self._sent_by[origin] = stamps.sent
            waiting = queue.undecided(origin)
            if waiting and waiting[0] < stamps.decided:
                self._stuck[origin] = waiting[0]
                self._timers.set_earlier(Timer.AGAIN, now_ns + self._timing.nak_delay_ns)
        for acked in stamps.acks:
            self._on_acked(origin, acked, stamps)

    def _on_newcomer(self, origin: int, stamps: Stamps, out: Outbox) -> None:
        """It is in a view that is not here yet, as it says: what it has acknowledged and decided there is kept."""
        for decided in stamps.decisions:
            if decided.view > self.view.seq:
                self._on_decided(decided, out)
        for acked in stamps.acks:
            self._on_acked(origin, acked, stamps)

    # Changes

    def _change(self, now_ns: int, out: Outbox) -> None:
        """As the first member: let the next one in or out, when nothing that we have proposed for is open."""
        safe, received = self._table.safe, self.log.received
        if not self.is_leader or not self._changes.is_due(safe, self.log.next_number):
            self._is_closing = self._is_draining = False
            if self.is_leader and self._changes and safe < self._changes.last:
                self._ask_all(now_ns)
        else:
            self._is_closing = True
            if not self._long or not self._changes.waits_for_long:
                self._is_draining = True
            if self._is_draining and not self._queue:
                # A newcomer has nothing of what stands before its join: if we fail, the others must have all of it.
                if safe >= received:
                    self._order_change(now_ns, self._changes.take(), out)
                    self._is_closing = self._is_draining = False
                else:
                    self._ask_all(now_ns)
        if self._held_back and not self._is_draining and not self.has_left:
            self._go_on(now_ns, out)

    def _ask_all(self, now_ns: int) -> None:
        """Have all members say what they have received, again and again."""
        if self._asked_at != self.log.received:
            self._asked_at = self.log.received
            self._lag_ns = self._timing.nak_retry_ns
            self._wants = self._tell_all = True
            self._timers.set(Timer.LAG, now_ns + self._lag_ns)
        elif not self._timers.is_set(Timer.LAG):
            self._timers.set(Timer.LAG, now_ns + self._lag_ns)

    def _go_on(self, now_ns: int, out: Outbox) -> None:
        """What held us back is over."""
        self._release()
        self._decide(out)
        self._receive(now_ns, out)
        self._deliver(out)
        self._announce_strong()

    def _order_change(self, now_ns: int, change: Change, out: Outbox) -> None:
        log, seq = self.log, self.log.received + 1
        view = next_view(
            self.view,
            change,
            next_counter(self._counter, now_ns),
            self._config.max_members,
            seq,
            log.position,
            log.next_number,
            {},
            self.me,
        )
        if view is None:
            return
        block = pack_change(view)
        log.hold(GROUP_ORIGIN, seq, block)
        log.assign(seq, GROUP_ORIGIN, seq)
        self._advance(now_ns, out)
        self._table.learn(self.me.id, log.received)
        self._deliver(out)
        self._announce_strong()
        if self._table.others:
            body = encode_list(encode_stamps(self._stamps()), block)
            out.sends.append(self._writer.control(To.ALL, Kind.LIST, body, number=seq))

    def _on_view(self, now_ns: int, old: View, out: Outbox) -> None:
        view = self.view
        self._counter = max(self._counter, view.counter)
        self._cleared = view.seq  # a change stands behind what is safe only
        self._members = [member.id for member in view.members]
        gone = next((member for member in old.members if view.member(member.id) is None), None)
        self._leaver = gone or self._leaver
        self._table.apply(view)
        self._changes.applied(view)
        if not self.has_left and self.is_leader is False:
            self._is_closing = self._is_draining = False
        newcomers = [member for member in view.members if old.member(member.id) is None]
        for member in newcomers:
            number = self.log.next_number[member.id]
            self._upto[member.id] = self._expected[member.id] = number
            self._since[member.id] = view.seq
            for votes in self._votes.values():
                votes.admit(member.id, view.seq)
            self._come.pop(member.id, None)
            self._sent_by.pop(member.id, None)
            self._recent.pop(member.id, None)
        if gone is not None:
            for table in (self._upto, self._expected, self._come, self._sent_by, self._held_back, self._owed):
                table.pop(gone.id, None)
            self._open.discard(gone.id)
            self._long.discard(gone.id)
        self._apply_view(now_ns)
        if self.has_left:
            self.is_retired = True
            self._leave_header = None
            self._tell_all = True
            self.abandon(out)
            return
        # Who has left proposes no more: what was expected of it bounds nothing now.
        self._queue.forget_bounds()
        self._has_votes = True
        self._news.add(view.leader.id)
        if newcomers:
            self._outgoing.restart(now_ns)
        for member in newcomers:
            self._propose_from(member.id)  # its first blocks may have come before its join
            for (origin, number), each in self._outgoing.unordered.items():
                self._send_to([member.id], origin, number, each.block, out)
        later, self._later = self._later, []
        for decided in later:
            self._on_decided(decided, out)

    def _apply_view(self, now_ns: int) -> None:
        """Bounds that follow from the current view, and whom we watch."""
        self._fit_to(self.view)
        self._detector.watch([] if self.has_left else self._table.others, now_ns)
        self._watched_leaver = self._table.leaver

    def _ask_to_leave(self, now_ns: int, out: Outbox) -> None:
        if self._leave_header is None or self.has_left:
            return
        self._timers.set(Timer.LEAVE, now_ns + PROPOSE_NS)
        if self._outgoing.unordered:
            self._timers.set(Timer.LEAVE, now_ns + LEAVE_NS)
        elif self.is_leader:
            self._changes.propose(Change(Reason.LEAVE, self.me, self._leave_header))
        else:
            body = encode_propose(self._acks(), Reason.LEAVE, self._leave_header)
            out.sends.append(self._writer.control(self.view.leader.address, Kind.PROPOSE, body))

    def _on_propose(self, source: Address, origin: int, operation: int, header: bytes, out: Outbox) -> None:
        if not self.is_leader or operation != Reason.LEAVE:
            return
        member = self.view.member(origin)
        if member is not None:
            self._changes.propose(Change(Reason.LEAVE, member, header))
        elif origin != self._table.leaver:
            out.sends.append(self._writer.control(source, Kind.LEFT, encode_stamps(self._stamps())))

    # What goes out

    def _stamps(self, acks: Sequence[Acked] = (), decisions: Sequence[Decided] = ()) -> Stamps:
        log, table, queue = self.log, self._table, self._queue
        rows = table.rows()
        highest = max(log.received, *rows)
        decided = self._next_decision.get(self.me.id, self.next_block)
        nexts = self._nexts() if acks else ()
        return Stamps(table.view.seq, queue.clock, highest, self.next_block, decided, rows, nexts, acks, decisions)

    def _tell_received(self) -> None:
        """Whether it is time to say how far we are although nobody asked: windows wait for it."""
        log = self.log
        active = [origin for origin in log.active if origin not in (self.me.id, GROUP_ORIGIN)]
        few_bytes = log.unstable_bytes < self._ceiling // (4 * max(2, len(active)))
        if few_bytes and 4 * (log.received - self._told) < self._config.history_blocks:
            return
        if len(active) == 1 and self.view.member(active[0]) is not None:
            self._news.add(active[0])
        else:
            self._tell_all = True

    def _speak(self, now_ns: int, out: Outbox) -> None:
        """After a batch, in one datagram: to all if more than one waits for it, else to that one."""
        if self.log.received > self._told:
            self._tell_received()
        if self._held_due:
            self._acknowledge_held(out)
        if self._repeats:
            self._repeat(out)
        owed, decisions = self._owed, self._fresh_decisions
        if not (owed or decisions or self._news or self._tell_all):
            return
        others = self._table.others
        waiting = {*owed, *self._news}
        waiting.discard(self.me.id)
        if others and (decisions or self._tell_all or waiting):
            to: Address = To.ALL
            if not decisions and not self._tell_all and len(waiting) == 1:
                member = self.view.member(next(iter(waiting)))
                to = member.address if member is not None else To.ALL
            kind = Kind.DECISION if decisions else Kind.STAMPS if owed else Kind.SYNC
            stamps = self._stamps(list(self._acked(owed.values())), sparing(decisions))
            if self._asks or self._wants:
                stamps = stamps._replace(flags=ASKS * self._asks + WANTS * self._wants)
            while True:
                first, rest = stamps.decisions[:MAX_DECISIONS], stamps.decisions[MAX_DECISIONS:]
                body = encode_stamps(stamps._replace(decisions=first))
                out.sends.append(self._writer.control(to, kind, body))
                if not rest:
                    break
                stamps = stamps._replace(acks=(), nexts=(), flags=0, decisions=rest)
            self._told = self.log.received
            if to == To.ALL:
                self._spoke_ns = now_ns
        self._owed = {}
        self._asks = self._wants = False
        self._fresh_decisions = []
        self._news.clear()
        self._tell_all = False

    def _acked(self, owed: Iterable[dict[Key, None]]) -> Iterable[Acked]:
        """Proposals as runs; what was decided meanwhile needs none.

        The last few before them that are not decided go along: a lost acknowledgement costs no more than the next one.
        """
        proposed = self._queue.proposed
        keys = {key for keys in owed for key in keys}
        for origin in {key[0] for key in keys}:
            keys.update([(origin, number) for number in self._queue.undecided(origin)[-ALONG:]])
        origin = first = 0
        numbers: list[int] = []
        for key in sorted(keys):
            number = proposed(*key)
            if not number:
                continue
            if numbers and key == (origin, first + len(numbers)) and len(numbers) < MAX_ACKED:
                numbers.append(number)
                continue
            if numbers:
                yield Acked(origin, first, tuple(numbers))
            (origin, first), numbers = key, [number]
        if numbers:
            yield Acked(origin, first, tuple(numbers))

    def _repeat(self, out: Outbox) -> None:
        """Decisions to those who have not heard of them. The bounds are left out: they are old."""
        for origin, keys in self._repeats.items():
            member = self.view.member(origin)
            if member is not None:
                known = [(key, self._decisions[key]) for key in dict.fromkeys(keys) if key in self._decisions]
                decisions = [Decided(*key, stamp, view) for key, (stamp, view) in known]
                self._count("repeated_decisions")
                body = encode_stamps(self._stamps((), decisions))
                out.sends.append(self._writer.control(member.address, Kind.DECISION, body))
        self._repeats = {}

    def _acknowledge_held(self, out: Outbox) -> None:
        """To senders that send again what waits here to be proposed for: we have it."""
        for origin in self._held_due:
            member = self.view.member(self._answerer(origin))
            if member is not None:
                upto = self._expected.get(origin, 0)
                while (origin, upto) in self.log.blocks:
                    upto += 1
                body = encode_held(self._acks(), [(origin, upto)])
                out.sends.append(self._writer.control(member.address, Kind.HELD, body))
        self._held_due.clear()

    def _acks(self) -> Acks:
        return Acks(self.log.received, self.log.received)

    # Own blocks

    def _keep_own(self, now_ns: int, number: int, block: bytes, out: Outbox) -> None:
        super()._keep_own(now_ns, number, block, out)
        me = self.me.id
        self._arrived(me, number, block, head_of(block))
        self._answer_for(me, number)
        if number == self._expected.get(me):
            self._propose_from(me)

    def _send_own(self, number: int, block: bytes, out: Outbox, is_first: bool = False) -> None:  # noqa: ARG002
        if self._table.others:
            out.sends.append(self._writer.block(To.ALL, Kind.DATA, self.me.id, number, block))

    def _send_to(self, members: list[int], origin: int, number: int, block: bytes, out: Outbox) -> None:
        """Again, or in the name of another: to all if more than half of them lack it."""
        if 2 * len(members) > len(self._members) > 2:
            out.sends.append(self._writer.block(To.ALL, Kind.REPAIR, origin, number, block))
            return
        for each in members:
            member = self.view.member(each)
            if member is not None:
                out.sends.append(self._writer.block(member.address, Kind.REPAIR, origin, number, block))

    def _lacking(self, key: Key) -> list[int]:
        """Which others have not acknowledged a block that we answer for."""
        votes = self._votes.get(key)
        return [member for member in votes.lacking(self._members) if member != self.me.id] if votes is not None else []

    def _retransmit(self, now_ns: int, out: Outbox) -> None:
        """Blocks go out again to those who have not acknowledged them."""
        has_shrunk = False
        for origin, number, block in self._outgoing.due(now_ns):
            lacking = self._lacking((origin, number))
            if not lacking:
                self._outgoing.unordered[origin, number].tries = 0
                continue  # it waits in a queue, or for our own word
            self._count("retransmissions")
            if origin == self.me.id and not has_shrunk:
                self._policy.timed_out(number)
                has_shrunk = True
            self._send_to(lacking, origin, number, block, out)
        if self._outgoing.unordered:
            self._timers.set(Timer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))
        self._writer.next_via()

    # What does not come

    def _look(self, now_ns: int, out: Outbox) -> None:
        """After a batch: what is missing, and whether decisions stay away."""
        expected, log = self._expected, self.log
        missing: list[Key] = []
        come, sent = self._come, self._sent_by
        for origin in {**come, **sent}:
            known = max(come.get(origin, 0), sent.get(origin, 0))
            first = expected.get(origin, known)
            if first < known:
                stop = min(known, first + MAX_MISSING)
                missing += [(origin, number) for number in range(first, stop) if (origin, number) not in log.blocks]
        partial = self._repairs.partial
        if len(partial):
            missing += [(origin, number) for origin, number, _ in partial if origin != GROUP_ORIGIN]
        if missing or self._repairs.is_wanted(False):
            out.notes.extend(self._repairs.look(now_ns, True, sorted(set(missing))[:MAX_MISSING]))
        if not self._timers.is_set(Timer.AGAIN) and any(
            self._answerer(origin) != self.me.id for origin in self._queue.open_origins()
        ):
            self._stuck = {origin: self._queue.undecided(origin)[0] for origin in self._queue.open_origins()}
            self._timers.set(Timer.AGAIN, now_ns + self._again_ns)

    def _acknowledge_again(self) -> None:
        """Blocks that still wait for the decision that they waited for at the last look."""
        is_stuck = False
        for origin, first in self._stuck.items():
            waiting = self._queue.undecided(origin)
            if waiting and waiting[0] == first and self._answerer(origin) != self.me.id:
                is_stuck = self._asks = True
                for number in waiting[:AT_ONCE]:
                    self._owe(origin, number)
        self._stuck = {}
        self._again_ns = min(2 * self._again_ns, AGAIN_MAX_NS) if is_stuck else self._timing.nak_retry_ns

    def _catch_up(self, now_ns: int) -> None:
        """Others have received more than we. If nothing has come meanwhile, ask for the places."""
        log = self.log
        ahead = max([self._received_by.get(member, 0) for member in self._members])
        if log.received >= ahead or self.has_left:
            return
        if log.received == self._behind_at:
            log.highest = max(log.highest, ahead)
        self._behind_at = log.received
        self._timers.set(Timer.BEHIND, now_ns + self._timing.nak_retry_ns)

    def _forget_hearsay(self) -> None:
        """Nobody has the places that somebody spoke of. If there are such, they will be spoken of again."""
        log = self.log
        log.highest = max([log.received, *log.assignments])
        self._received_by.clear()

    def _send_naks(self, now_ns: int, out: Outbox) -> None:
        """Places are asked of one that has received them, blocks of who answers for them."""
        if self.has_left:
            return
        acks, claims = self._acks(), self._received_by.values()
        for tries, missing in self._repairs.due_by_tries(now_ns).items():
            lowest = min([each.number for each in missing if each.origin == GROUP_ORIGIN], default=0)
            if tries > self._timing.tries and lowest > max([self.log.received, *self.log.assignments, *claims]):
                self._forget_hearsay()
                break
            others = [member for member in self._members if member != self.me.id]
            able = [member for member in others if self._table.row(member) >= max(lowest, 1)] or others
            if able:
                member = self.view.member(able[(tries - 1) % len(able)])
                if member is not None:
                    out.sends.append(self._writer.control(member.address, Kind.NAK, encode_nak(acks, missing)))
        for origin, blocks in self._repairs.due_blocks(now_ns).items():
            member = self.view.member(self._answerer(origin))
            if member is not None and member.id != self.me.id:
                out.sends.append(self._writer.control(member.address, Kind.NAK, encode_nak(acks, blocks)))


def sparing(decisions: Sequence[Decided]) -> Sequence[Decided]:
    """Bounds with the last of many decisions only. They grow from one to the next, and each takes as much work."""
    if len(decisions) <= FEW_DECISIONS:
        return decisions
    return [*[decided._replace(bounds=()) for decided in decisions[:-1]], decisions[-1]]
