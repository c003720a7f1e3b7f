"""An underlay: membership and one orderer behind one Engine (docs/design/overview.md sections 1 and 5).

Datagrams are decoded and sorted here; what does not parse is counted and dropped. The orderer works while the ring is
whole. The membership takes the underlay from view to view: what it decides comes as values (`membership.policy`), and
is carried out here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ordercast.config import AlonePolicy, Demands, GroupConfig, MinMembers, RecoveryMode, Timing
from ordercast.engine import NEVER, Change, Denied, Departed, Joined, Note, Outbox, Refused, Transitional, Waiting
from ordercast.errors import WireError
from ordercast.membership.policy import (
    NO_RING,
    DepartureCause,
    Dissolved,
    Excluded,
    Install,
    LeftRing,
    Membership,
    OldView,
    Phase,
    Silence,
    Transition,
    Visited,
)
from ordercast.membership.quorum import QuorumMembership
from ordercast.membership.quorum.local import LocalMember, Wishes
from ordercast.orderers import ORDERERS, LoggedOrderer
from ordercast.orderers.logged.expelling import expulsion
from ordercast.orderers.orderer import Start, Suspicion, SuspicionReason
from ordercast.parts.memory import DeliveryMemory
from ordercast.parts.probing import Probing
from ordercast.service import Service
from ordercast.underlay.checks import check_header, check_rule, check_terms
from ordercast.underlay.keeping import Keeping, follow_kept, losses
from ordercast.underlay.luggage import EVERYTHING, Legacy, Luggage
from ordercast.underlay.outside import Outside
from ordercast.underlay.returning import WayBack
from ordercast.underlay.routes import MulticastRoutes
from ordercast.underlay.telling import described, exclusion, hush, view_after
from ordercast.underlay.vacancy import Vacancy
from ordercast.underlay.waiting import underlay_waits
from ordercast.view import Address, Member, Reason, View, group_tag
from ordercast.wire.header import FORWARD, HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.intake import Intake
from ordercast.wire.segments import Datagram, without_mark
from ordercast.wire.writer import DatagramWriter

# As plain numbers: an enum's member costs a look-up in the hot path each time it is named.
_DATA: Final = int(Kind.DATA)
_REPAIR: Final = int(Kind.REPAIR)
_FIND: Final = int(Kind.FIND)


class Underlay:
    __slots__ = (
        "_intake",
        "_keeping",
        "_luggage",
        "_membership",
        "_orderer",
        "_outside",
        "_probing",
        "_returning",
        "_routes",
        "_serial",
        "_timing",
        "_writer",
        "config",
        "counters",
        "me",
        "name",
        "peak_blocks",
        "peak_bytes",
        "view",
    )

    def __init__(
        self,
        name: str,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        rng: random.Random,
        *,
        create: bool | None = None,
        min_members: MinMembers = "majority",
        recovery: RecoveryMode = "automatic",
        demands: Demands = Demands(),  # noqa: B008 - frozen
        header: bytes = b"",
        next_block: int = 0,
        contact: Address | None = None,
        alone: AlonePolicy = "create",
    ) -> None:
        """`name` is the underlay's own; the tag of its datagrams and the ids of its rings come from it."""
        check_terms(name, header, config, min_members, recovery)
        self.name = name
        self.me = me = replace(me, min_members=min_members)
        self.config = config
        self.counters: dict[str, int] = {}
        # The most that was buffered here: the group's parameters bound it, and simulations look.
        self.peak_bytes = self.peak_blocks = 0
        self.view: View | None = None  # as delivered to the application
        self._timing = timing
        self._writer = writer = DatagramWriter(group_tag(name), me.id, config.datagram)
        self._routes = MulticastRoutes(me, writer, timing.linger_ns)
        self._intake = Intake(writer.tag, self.counters)
        self._outside = Outside(name, me, writer, self._routes, self.counters)
        # The ring
        self._probing = Probing(writer, timing, rng, self.counters)
        wishes = Wishes(create, min_members, recovery == "manual", demands, header, contact, config.shared, alone)
        local = LocalMember(name, me, writer, timing, rng, self._probing)
        self._membership: Membership[LoggedOrderer] = QuorumMembership(local, wishes, config, self.counters)
        self._keeping = Keeping(local)
        self._orderer: LoggedOrderer | Vacancy = Vacancy(me, DeliveryMemory())
        # What outlives a ring
        self._luggage = Luggage(next_block)
        self._serial = 0  # of our requests for locks
        self._returning = WayBack()

    # The application

    def start(self, now_ns: int, out: Outbox) -> None:
        self._writer.begin(now_ns)
        if self._keeping.returning is not None:
            self._keeping.returning.start(now_ns, out)
        else:
            self._search(now_ns, out)

    def supports(self, service: Service) -> bool:
        return service.rank in ORDERERS[self.config.orderer].ranks

    @property
    def gives_locks(self) -> bool:
        return ORDERERS[self.config.orderer].gives_locks

    @property
    def interest(self) -> None:
        """None: one ring goes on, and everybody gets everything."""

    def room(self, now_ns: int) -> tuple[int, int]:
        membership = self._membership
        # A newcomer sends nothing before its application has the first view.
        if membership.is_whole and self.view is not None and self._is_open:
            return self._orderer.room(now_ns)
        return 0, 0

    def short_of(self) -> tuple[int, int] | None:
        """How many members the view has and how many this member needs to take part, where they are too few."""
        return self.view.shortage(self.me.id, self.config.bootstrap) if self.view is not None else None

    @property
    def is_working(self) -> bool:
        """Whether this node is in a ring that is whole: it orders, or waits for enough members to do so. A log that
        ends here, where that is not decided, waits for votes."""
        orderer = self._orderer
        is_ending = orderer.has_left and orderer.decided < orderer.view.seq
        return self._membership.is_whole and self._is_open and self.view is not None and not is_ending

    def after(self) -> int:
        return self._orderer.after()

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        if not self._membership.is_whole or not self._is_open:
            return 0
        taken = self._orderer.submit(now_ns, blocks, out)
        self._luggage.next_block = self._orderer.next_block
        return taken

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:  # noqa: ARG002 - other orderers may answer at once
        self._orderer.consume(seq)

    def waits_for_application(self) -> bool:
        return self._orderer.waits_for_application() or self._returning.waits_for_application

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        check_header(header)
        if self._membership.silence is Silence.VISITING:
            self._luggage.drop(self._orderer, out)
        if self._returning.cancel():  # it is out already, and need not come back
            out.upcalls.append(Departed(True, False, DepartureCause.LEFT_UNJOINED.value))
            return
        if self._keeping.retire(now_ns, header, self._membership, out):
            return
        self._membership.leave(now_ns, header, out)
        self._follow(now_ns, self._membership.take(), out)

    def expel(self, now_ns: int, member: int, why: str, out: Outbox) -> None:  # noqa: ARG002 - it goes with the pass
        """Has an effect in a working ring only: after a recovery the member is in the next view, or not."""
        orderer, expelled = self._orderer, self._orderer.view.member(member)
        if expelled is not None and self._membership.is_whole and self._membership.phase is Phase.MEMBER:
            orderer.propose(now_ns, expulsion(self.me, expelled, why, orderer.view.seq))

    def resume(self, now_ns: int, out: Outbox) -> None:
        if self._returning.received():
            self._look(now_ns, out)

    def reset(self, now_ns: int, min_members: MinMembers, header: bytes, out: Outbox) -> None:
        check_header(header)
        check_rule(min_members)
        self._membership.reset(now_ns, min_members, header, out)
        self._follow(now_ns, self._membership.take(), out)

    def lock(self, now_ns: int, lock: str, out: Outbox) -> None:
        if self.short_of() is not None:
            out.upcalls.append(Denied(lock))  # with the next view it is asked for again
        else:
            self._propose_lock(now_ns, Reason.LOCK, lock)

    def unlock(self, now_ns: int, lock: str, out: Outbox) -> None:  # noqa: ARG002
        self._propose_lock(now_ns, Reason.UNLOCK, lock)

    def _propose_lock(self, now_ns: int, reason: Reason, lock: str) -> None:
        """Has an effect in a working ring only: the view after a recovery shows which locks are held."""
        if self._membership.is_whole and self._is_open:
            self._serial += 1
            self._orderer.propose(now_ns, Change(reason, self.me, lock=lock, serial=self._serial))

    @property
    def _is_open(self) -> bool:
        """Whether this node is a member, and its application knows."""
        return self._membership.phase is Phase.MEMBER and self._membership.silence is Silence.NONE

    def wait_for_others(self, is_waiting: bool) -> None:
        calls = self._orderer.calls
        if calls is not None:
            calls.wait_for_others(is_waiting)

    def answers(self, origin: int, number: int) -> bool:
        calls = self._orderer.calls
        return calls is not None and calls.answers(origin, number)

    def reply(self, to: Address, number: int, body: bytes, out: Outbox) -> None:
        self._outside.reply(to, number, body, self._orderer.calls, out)

    def carry(self) -> object:
        membership = self._membership
        formers = self._luggage.bequeath(self, membership.phase is Phase.JOINING)
        legacy = Legacy(self._orderer.memory(), membership.past.endings(), membership.attempts, formers)
        return None if legacy.is_empty else legacy

    def inherit(self, memory: object) -> None:
        if isinstance(memory, Legacy):
            self._orderer = Vacancy(self.me, memory.memory)
            self._membership.past.inherit(memory.endings)
            self._membership.attempts, self._luggage.formers = memory.attempts, memory.formers

    def give_way(self, ring: int, is_guest: bool) -> None:
        membership, is_back = self._membership, self._keeping.returning is not None
        makes_views = membership.silence is Silence.SERVING and (is_back or membership.phase is Phase.MEMBER)
        if ring == membership.ring or (makes_views and not is_guest):
            self._search(0, Outbox())
            self._follow(0, membership.take(), Outbox())

    def durable(self) -> bytes | None:
        return self._keeping.changed(self._membership.kept())

    def restore(self, entry: bytes) -> None:
        self._keeping.restore(entry, self._luggage.next_block)

    # The pass

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        size = len(data)
        if size > HEADER_BYTES and not 0 < stride < size:
            # The hot paths, of blocks in one datagram and of small messages, without the calls between.
            magic, kind, segment, last, tag, ring, origin, number = HEADER.unpack_from(data)
            if (
                ring == self._membership.direct_ring
                and kind < _FIND
                and kind != _REPAIR
                and not last
                and not segment
                and magic == MAGIC
                and tag == self._writer.tag
            ):
                try:
                    if kind == _DATA:
                        self._orderer.on_data(now_ns, origin, number, bytes(data[HEADER_BYTES:]), False, out)
                    else:
                        self._orderer.on_control(now_ns, kind, source, origin, number, data[HEADER_BYTES:], out)
                except WireError:
                    self._intake.reject()
                return
        if size > HEADER_BYTES and data[1] >= FORWARD:
            plain = without_mark(data, stride if 0 < stride < size else size, FORWARD)
            if plain is not None:
                self._forward(now_ns, source, plain, stride, out)
                return
        upcalls, silence = len(out.upcalls), self._membership.silence
        for datagram in self._intake.read(now_ns, data, stride):
            try:
                self._on_datagram(now_ns, source, datagram, out)
            except WireError:
                self._intake.reject()  # hostile bytes are counted and dropped, never raised
        hush(upcalls, silence, self._membership.silence, out)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None:
        upcalls, silence = len(out.upcalls), self._membership.silence
        gone = self._probing.on_report(now_ns, address, quoted, self._orderer.detector, out)
        # A member that has left in order while it was probed is gone, and nobody misses it.
        if gone and (not self._membership.is_whole or self._orderer.view.member(gone) is not None):
            self._membership.on_suspects(now_ns, [Suspicion(gone, SuspicionReason.GONE)], out)
            self._follow(now_ns, self._membership.take(), out)
            hush(upcalls, silence, self._membership.silence, out)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        orderer, membership = self._orderer, self._membership
        before, silence = len(out.upcalls), membership.silence
        if silence is Silence.SERVING:
            orderer.consume(EVERYTHING)  # nobody else does
        if not membership.is_whole:
            membership.after_batch(now_ns, out)
            self._follow(now_ns, membership.take(), out)
            hush(before, silence, self._membership.silence, out)
            return
        orderer.after_batch(now_ns, out)
        views = orderer.take_views()
        while views:
            for view in views:
                self._routes.apply(now_ns, view)
            membership.on_applied(now_ns, views, out)
            orderer.after_batch(now_ns, out)  # a change may be decided now, and what waited for that goes on
            views = orderer.take_views()
        if len(out.upcalls) > before:
            self._translate(now_ns, before, False, out)
        if self._probing.due_ns == NEVER and orderer.detector.is_watching:
            self._probing.due_ns = now_ns + self._timing.probe_ns
        if membership.direct_ring == NO_RING:
            membership.after_batch(now_ns, out)
            self._follow(now_ns, membership.take(), out)
            hush(before, silence, self._membership.silence, out)
        held_bytes, blocks = orderer.usage()
        self.peak_bytes = max(self.peak_bytes, held_bytes)
        self.peak_blocks = max(self.peak_blocks, blocks)

    def expire(self, now_ns: int, out: Outbox) -> None:
        membership = self._membership
        upcalls, silence = len(out.upcalls), membership.silence
        if membership.is_whole:
            self._orderer.expire(now_ns, out)
            suspicions = self._orderer.suspects(now_ns)
            if suspicions:
                membership.on_suspects(now_ns, suspicions, out)
                self._follow(now_ns, membership.take(), out)
        self._probing.expire(now_ns, membership.is_whole, self._orderer.detector, self._orderer.view, out)
        self._intake.expire(now_ns)
        self._routes.expire(now_ns)
        if self._keeping.returning is not None:
            self._keeping.returning.expire(now_ns, out)
            self._come_back(now_ns, out)
        membership.expire(now_ns, out)
        self._follow(now_ns, membership.take(), out)
        hush(upcalls, silence, self._membership.silence, out)

    def deadline_ns(self) -> int:
        membership = self._membership
        due = min(membership.deadline_ns(), self._intake.due_ns, self._routes.due_ns, self._probing.due_ns)
        if self._keeping.returning is not None:
            return min(due, self._keeping.returning.deadline_ns())
        return min(due, self._orderer.deadline_ns()) if membership.is_whole else due

    # Questions

    def audience(self) -> list[Address]:
        orderer, me = self._orderer, self.me.id
        members = [member.address for member in orderer.view.members if member.id != me]
        return list(dict.fromkeys([*members, *self._membership.newcomers(), *orderer.standing().leavers]))

    def copies(self) -> list[Address]:
        return self._routes.copies

    @property
    def ttl(self) -> int:
        return self._routes.ttl

    def waiting(self, now_ns: int) -> Waiting | None:
        if self._returning.is_expected:
            return self._returning.waiting(self.name, self.me, self._orderer.view.members)
        is_in, returning, orderer = self.view is not None, self._keeping.returning, self._orderer
        return underlay_waits(now_ns, self.name, is_in, self.short_of(), returning, self._membership, orderer)

    def is_at_rest(self) -> bool:
        membership = self._membership
        if membership.phase in (Phase.CLOSED, Phase.LINGERING):
            return membership.silence is not Silence.VISITING and not self._returning.is_expected
        return membership.is_at_rest and not self._orderer.is_busy and self._intake.is_empty

    @property
    def is_ordering(self) -> bool:
        """Whether this member gives the next sequence number now; with timestamps, whether it orders changes."""
        return self._membership.is_whole and self._orderer.standing().orders

    @property
    def is_closed(self) -> bool:
        return self._membership.phase is Phase.CLOSED and not self._returning.is_expected

    def describe(self) -> str:
        return described(self.view, self._membership, self._orderer)

    # Datagrams

    def _on_datagram(self, now_ns: int, source: Address, datagram: Datagram, out: Outbox) -> None:
        kind, segment, last, ring, origin, number, body = datagram
        membership = self._membership
        if kind in (_DATA, _REPAIR):
            is_repair = kind == _REPAIR
            if ring != membership.ring:
                membership.on_stranger(now_ns, source, kind, ring, origin, body, out)
            elif not is_repair and not membership.is_whole:
                pass  # only what brings survivors to the same point goes on
            elif last:
                self._orderer.on_segment(now_ns, origin, number, segment, last, body, is_repair, out)
            else:
                self._orderer.on_data(now_ns, origin, number, bytes(body), is_repair, out)
        elif kind >= FORWARD:
            plain = HEADER.pack(MAGIC, kind & ~FORWARD, segment, last, self._writer.tag, ring, origin, number)
            self._forward(now_ns, source, plain + bytes(body), 0, out)
        elif origin == self.me.id:
            pass
        elif kind < _FIND:
            if ring != membership.ring:
                membership.on_stranger(now_ns, source, kind, ring, origin, body, out)
            elif membership.is_whole or kind in (Kind.NAK, Kind.ACCEPT):
                membership.on_heard(now_ns, origin)
                self._orderer.on_control(now_ns, kind, source, origin, number, body, out)
        elif kind < Kind.CALL and self._keeping.on_control(now_ns, kind, source, ring, origin, bytes(body), out):
            self._come_back(now_ns, out)
        elif kind < Kind.CALL:
            self._probing.heard(origin)
            membership.on_control(now_ns, kind, source, ring, origin, bytes(body), out)
            self._follow(now_ns, membership.take(), out)
        elif kind == Kind.CALL:
            is_short, orderer = self.short_of() is not None, self._orderer
            call = bytes(body)
            self._outside.on_call(now_ns, source, ring, origin, number, call, is_short, membership, orderer, out)
        else:
            raise WireError("unknown kind")

    def _forward(self, now_ns: int, source: Address, data: bytes | bytearray, stride: int, out: Outbox) -> None:
        """What a member without multicast sent for all (RMP section 3.4)."""
        _, kind, _, _, _, ring, _, _ = HEADER.unpack_from(data)
        if ring != self._membership.ring:
            self._membership.on_stranger(now_ns, source, kind, ring, 0, b"", out)
        elif self._outside.forward(source, data, stride, out):
            self.receive(now_ns, source, memoryview(data), stride, out)

    # From view to view

    def _come_back(self, now_ns: int, out: Outbox) -> None:
        """The ring that this node was in before its restart may be over."""
        returned = self._keeping.take()
        if returned is not None and returned.successor is not None:
            follow_kept(returned.kept, returned.successor, self._membership, out)
        elif returned is not None:
            self._search(now_ns, out)
        self._follow(now_ns, self._membership.take(), out)

    def _follow(self, now_ns: int, transition: Transition | None, out: Outbox) -> None:
        """Carry out what the membership has decided, and what follows from that."""
        while transition is not None:
            if isinstance(transition, Install):
                self._install(now_ns, transition, out)
            else:
                self._end(now_ns, transition, out)
            transition = self._membership.take()

    def _install(self, now_ns: int, install: Install, out: Outbox) -> None:
        """Finish the old ring, and begin a new one."""
        view, members = install.view, frozenset({self.me.id})
        if not install.came_from:
            self.view = None
            out.upcalls.append(Joined())
        elif self._finish(now_ns, install.came_from[0], out):
            members = frozenset(install.came_from[0].members)
        else:
            return
        # Also after a failure: of a member that was restarted no entry of the log has told the name.
        out.notes.extend([Note("name", member.id, detail=str(member)) for member in view.members])
        self.config = install.config
        self._writer.ring, self._writer.datagram = view.ring, self.config.datagram
        self._routes.begin(now_ns, view)
        memory, is_silent = self._orderer.memory(), self._membership.silence.is_guest
        backlog, next_block = self._luggage.bring(memory, is_silent, view.ring, view.numbers.get(self.me.id, 0))
        self._probing.begin()
        self._orderer = orderer = ORDERERS[self.config.orderer](
            self.me, self._writer, self.config, self._timing, view, next_block, install.counter, self.counters
        )
        if view.reason != Reason.JOIN:  # a newcomer delivers its join like any change, once it is known to be decided
            self.view = replace(view, came_with=tuple(str(member) for member in view.members if member.id in members))
            out.upcalls.append(self.view)
            if install.came_from:
                out.upcalls += losses(install.came_from[0].view, view)
        orderer.install(now_ns, Start(backlog, install.orphans, install.awaited, memory), out)
        self._membership.installed(now_ns, orderer, out)

    def _finish(self, now_ns: int, old: OldView, out: Outbox) -> bool:
        """Deliver the rest of the old view; whether this node is still a member after it."""
        orderer = self._orderer
        if self.view is not None:  # a newcomer may have to deliver its first view now
            out.upcalls.append(Transitional(old.view.id))
        before = len(out.upcalls)
        orderer.recover(old.upto, out)
        orderer.take_views()
        self._translate(now_ns, before, True, out)
        if self._membership.phase is not Phase.MEMBER:
            return False
        if not self._membership.silence.is_guest:
            self._luggage.backlog = orderer.leftovers()
        return True

    def _translate(self, now_ns: int, before: int, is_recovery: bool, out: Outbox) -> None:
        """Views as this node sees them: with the members that came along, or as the end of its membership.

        In a recovery what is delivered in views on the way was brought together as well.
        """
        upcalls = out.upcalls[before:]
        del out.upcalls[before:]
        membership = self._membership
        if membership.phase is not Phase.MEMBER:
            return
        for upcall in upcalls:
            if not isinstance(upcall, View):
                if is_recovery and self.view is not None and out.upcalls and out.upcalls[-1] is self.view:
                    out.upcalls.append(Transitional(self.view.id))
                out.upcalls.append(upcall)
            elif membership.on_delivered(now_ns, upcall, out):
                self.view = view_after(self.view, upcall, self.me)
                out.upcalls.append(self.view)
            else:
                if upcall.reason == Reason.EXPEL and membership.silence is Silence.NONE:
                    departed = out.upcalls.pop()
                    self._luggage.drop(self._orderer, out)
                    out.upcalls.append(departed)
                    self._returning.departed(departed)
                return

    def _end(self, now_ns: int, transition: Transition, out: Outbox) -> None:
        """The ring, or the search for one, has ended for this node."""
        orderer = self._orderer
        if isinstance(transition, Refused):
            out.upcalls.append(transition)
        elif isinstance(transition, LeftRing):
            departed = transition.expelled or Departed(True, False, transition.why.value)
            self._luggage.drop(orderer, out)
            out.upcalls.append(departed)
            self._returning.departed(departed)
            if transition.is_serving:
                return
        elif isinstance(transition, Visited):
            self.view = None
            self._orderer = Vacancy(self.me, self._luggage.take_aside(orderer.memory()))
            self._look(now_ns, out)
            return
        elif isinstance(transition, Excluded):
            orderer.abandon(out)
            self._luggage.drop(orderer, out)
            out.upcalls += exclusion(transition, self.view is not None)
            if transition.is_returning:
                self._look(now_ns, out)
                return
        elif isinstance(transition, Dissolved):
            orderer.abandon(out)
            if transition.why is DepartureCause.DISSOLVED:
                if self.config.shared:
                    # They name groups by the numbers of a roster that ends here.
                    self._luggage.drop(orderer, out)
                else:
                    self._luggage.keep_anew(orderer.leftovers())
                out.upcalls.append(Departed(False, True, transition.why.value))
                self._look(now_ns, out)
                return
            self._luggage.drop(orderer, out)
            out.upcalls.append(Departed(True, False, transition.why.value))
        self._keeping.returning = None
        self._vacate()
        self._intake.clear()
        if self._returning.left():
            self._look(now_ns, out)

    def _look(self, now_ns: int, out: Outbox) -> None:
        """Begin to look for the group again."""
        self._writer.ring = 0
        self._vacate()
        self._search(now_ns, out)

    def _search(self, now_ns: int, out: Outbox) -> None:
        self._membership.start(now_ns, self._luggage.newcomer(self._orderer.memory()), out)

    def _vacate(self) -> None:
        """The orderer of a ring goes: what it delivered ahead of the log must not come twice in the next."""
        self._orderer = Vacancy(self.me, self._orderer.memory())
        self._routes.clear()
        self._probing.begin()
