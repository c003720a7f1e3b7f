"""An underlay: membership and one orderer behind one Engine (DESIGN sections 1 and 5).

Datagrams are decoded and sorted here; what does not parse, or belongs to another ring, is counted and dropped. The
orderer works while the ring is whole, `Reform` while it is not, `Joining` before there is one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from ordercast.config import MAX_GROUP_NAME, MAX_HEADER, Demands, GroupConfig, MinMembers, RecoveryMode, Timing
from ordercast.engine import (
    NEVER,
    Change,
    Departed,
    Failed,
    Joined,
    Outbox,
    Refused,
    RepeatedCall,
    Reset,
    Send,
    To,
    Transitional,
    UnknownOutcome,
)
from ordercast.errors import UsageError, WireError
from ordercast.membership.past import PastRings
from ordercast.membership.quorum.admission import Admission
from ordercast.membership.quorum.joining import Joining, better
from ordercast.membership.quorum.local import Local
from ordercast.membership.quorum.recovery import Recovery
from ordercast.membership.quorum.roles import Terms
from ordercast.orderers import ORDERERS, LoggedOrderer, unsupported_names
from ordercast.orderers.orderer import Start, Suspicion, SuspicionReason
from ordercast.parts.memory import DeliveryMemory
from ordercast.service import Service
from ordercast.underlay.routes import MulticastRoutes
from ordercast.view import Address, Member, Reason, View, group_tag, id_of, next_counter, ring_id
from ordercast.wire.block import come_after
from ordercast.wire.calls import FIRST, RELAY, allow, decode_call, encode_call, open_call
from ordercast.wire.header import FORWARD, HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.intake import Intake
from ordercast.wire.segments import Datagram, without_mark
from ordercast.wire.views import (
    Asking,
    Proposal,
    Ring,
    decode_address,
    decode_asking,
    decode_invite,
    decode_refusal,
    decode_result,
    decode_ring,
    decode_suspects,
    decode_welcome,
    encode_address,
    encode_asking,
    encode_refusal,
    encode_result,
    encode_ring,
    encode_suspects,
)
from ordercast.wire.writer import DatagramWriter

# As plain numbers: an enum's member costs a look-up in the hot path each time it is named.
_DATA: Final = int(Kind.DATA)
_REPAIR: Final = int(Kind.REPAIR)
_FIND: Final = int(Kind.FIND)

MAX_OLD_CONTACTS: Final = 8  # members of the last view that a node without multicast asks when it comes back


class Phase(Enum):
    JOINING = auto()
    MEMBER = auto()
    LINGERING = auto()  # out of the group, serving repairs until all have our leave
    CLOSED = auto()


class Underlay:
    def __init__(
        self,
        group: str,
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
    ) -> None:
        if not 0 < len(group.encode()) <= MAX_GROUP_NAME:
            raise UsageError(f"a group name has 1 to {MAX_GROUP_NAME} bytes, got {len(group.encode())}")
        check_header(header)
        unknown = unsupported_names(config)
        if unknown:
            raise UsageError(unknown)
        check_rule(min_members)
        if recovery not in ("automatic", "manual"):
            raise UsageError(f"recovery is 'automatic' or 'manual', got {recovery!r}")
        self.group = group
        self.me = me = replace(me, min_members=min_members)
        self.config = config
        self.counters: dict[str, int] = {}
        self.peak_bytes = 0  # the most that was buffered here: the group's parameters bound it, and simulations look
        self.peak_blocks = 0
        self._timing = timing
        self._rng = rng
        self._rule: MinMembers = min_members
        self._is_manual = recovery == "manual"
        self._create = create
        self._contact = contact
        self._demands = demands
        self._header = header
        # Where we are
        self.view: View | None = None  # as delivered to the application
        self._phase = Phase.JOINING
        self._writer = DatagramWriter(group_tag(group), me.id, config.datagram)
        self._joining: Joining | None = None
        self._orderer: LoggedOrderer | None = None
        self._recovery: Recovery | None = None
        self._routes = MulticastRoutes(me, self._writer, timing.linger_ns)
        self._intake = Intake(self._writer.tag, self.counters)
        # What outlives a ring
        self._next_block = next_block
        self._serial = 0  # of our requests for locks
        self._memory = DeliveryMemory()
        self._backlog: list[tuple[int, bytes]] = []
        self._counter = 0
        self._past = PastRings()
        self._onward: Address | None = None  # who leads the ring that ours has dissolved into
        self._leave_header: bytes | None = None
        self._declined: int | None = None  # the attempt to join that we gave up
        self._is_resetting = False
        self._is_dissolving = False
        self._frozen_ns = 0
        # As the leader
        self._admission = Admission(group, self._writer)
        self._beacon_ns = NEVER
        self._linger_ns = NEVER

    # The engine

    def start(self, now_ns: int, out: Outbox) -> None:
        self._look(now_ns, False, out)

    def supports(self, service: Service) -> bool:
        return service.rank in ORDERERS[self.config.orderer].ranks

    @property
    def gives_locks(self) -> bool:
        return ORDERERS[self.config.orderer].gives_locks

    def room(self, now_ns: int) -> tuple[int, int]:
        if self._phase is not Phase.MEMBER or self._orderer is None or self._recovery is not None:
            return 0, 0
        return self._orderer.room(now_ns)

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        if self._orderer is None or self._phase is not Phase.MEMBER or self._recovery is not None:
            return 0
        taken = self._orderer.submit(now_ns, blocks, out)
        self._next_block = self._orderer.next_block
        return taken

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:  # noqa: ARG002 - other orderers may answer at once
        if self._orderer is not None:
            self._orderer.consume(seq)

    def waits_for_application(self) -> bool:
        return self._orderer is not None and self._orderer.waits_for_application()

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        orderer = self._orderer
        size = len(data)
        if size > HEADER_BYTES and not 0 < stride < size and orderer is not None:
            # The hot paths, of blocks in one datagram and of small messages, without the calls between.
            magic, kind, segment, last, tag, ring, origin, number = HEADER.unpack_from(data)
            if (
                ring == self._writer.ring
                and kind < _FIND
                and kind != _REPAIR
                and not last
                and not segment
                and magic == MAGIC
                and tag == self._writer.tag
                and self._recovery is None
                and not self._admission
            ):
                try:
                    if kind == _DATA:
                        orderer.on_data(now_ns, origin, number, bytes(data[HEADER_BYTES:]), False, out)
                    else:
                        orderer.on_control(now_ns, kind, source, origin, number, data[HEADER_BYTES:], out)
                except WireError:
                    self._intake.reject()
                return
        if size > HEADER_BYTES and data[1] >= FORWARD:
            plain = without_mark(data, stride if 0 < stride < size else size, FORWARD)
            if plain is not None:
                self._forward(now_ns, source, plain, stride, out)
                return
        for datagram in self._intake.read(now_ns, data, stride):
            try:
                self._on_datagram(now_ns, source, datagram, out)
            except WireError:
                self._intake.reject()  # hostile bytes are counted and dropped, never raised

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        orderer, recovery = self._orderer, self._recovery
        if recovery is not None:
            try:
                recovery.progress(now_ns, out)
            except WireError:
                self._intake.reject()  # a result that does not fit what came since
            self._after_recovery(now_ns, out)
        elif orderer is not None:
            before = len(out.upcalls)
            orderer.after_batch(now_ns, out)
            views = orderer.take_views()
            if views:
                self._on_changed(now_ns, orderer, views, out)
            if len(out.upcalls) > before:
                self._translate(now_ns, before, False, out)
            self._settle(now_ns, out)
            held_bytes, blocks = orderer.usage()
            self.peak_bytes = max(self.peak_bytes, held_bytes)
            self.peak_blocks = max(self.peak_blocks, blocks)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._joining is not None:
            self._joining.expire(now_ns, out)
            self._after_joining(now_ns, out)
        if self._recovery is not None:
            self._recovery.expire(now_ns, out)
        elif self._orderer is not None:
            self._orderer.expire(now_ns, out)
            suspects = self._orderer.suspects(now_ns)
            if suspects and self._phase is Phase.MEMBER:
                self._fail(now_ns, suspects, out)
        self._intake.expire(now_ns)
        self._routes.expire(now_ns)
        if self._beacon_ns <= now_ns:
            self._beacon(now_ns, To.ANYONE, out)
        self._admission.expire(now_ns, out)
        if self._linger_ns <= now_ns:
            if self._is_dissolving:
                self._dissolve(now_ns, out)
            else:
                if self._phase is Phase.MEMBER:  # our leave, or what comes before it, never got through
                    self._drop_own(out)
                    out.upcalls.append(Departed(True, False, "left while the group did not work"))
                self._close()

    def deadline_ns(self) -> int:
        due = min(self._beacon_ns, self._linger_ns, self._intake.due_ns, self._routes.due_ns)
        if self._joining is not None:
            due = min(due, self._joining.deadline_ns())
        if self._recovery is not None:
            due = min(due, self._recovery.deadline_ns())
        elif self._orderer is not None:
            due = min(due, self._orderer.deadline_ns())
        return min(due, self._admission.deadline_ns()) if self._admission else due

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        check_header(header)
        if self._phase in (Phase.LINGERING, Phase.CLOSED):
            return
        if self._phase is Phase.JOINING or self._orderer is None or self._recovery is not None:
            # There is no ring that could order our leave; to the others we are as good as crashed.
            self._drop_own(out)
            out.upcalls.append(Departed(True, False, "left while there was no working group"))
            joining = self._joining
            self._close()
            if joining is not None and joining.has_asked:
                # We may be let in all the same. Then we decline, or the others would wait for us to speak.
                self._declined = joining.nonce
                self._phase = Phase.LINGERING
                self._linger_ns = now_ns + self._timing.linger_ns
            return
        self._leave_header = header
        self._orderer.propose(now_ns, Change(Reason.LEAVE, self.me, header))

    def reset(self, now_ns: int, min_members: MinMembers, header: bytes, out: Outbox) -> None:
        check_header(header)
        check_rule(min_members)
        if self._phase is not Phase.MEMBER or self._orderer is None:
            out.upcalls.append(Reset(0, "this node is not a member"))
            return
        self._is_resetting = True
        suspects = [each.member for each in self._orderer.suspects(now_ns)]
        self._freeze(now_ns)
        if self._recovery is not None:
            self._recovery.asked = Terms(min_members, True, header)
            self._recovery.begin(now_ns, suspects, self._recovery.asked, out)
            self._after_recovery(now_ns, out)

    def lock(self, now_ns: int, lock: str, out: Outbox) -> None:  # noqa: ARG002 - it goes out with the pass
        self._propose_lock(now_ns, Reason.LOCK, lock)

    def unlock(self, now_ns: int, lock: str, out: Outbox) -> None:  # noqa: ARG002
        self._propose_lock(now_ns, Reason.UNLOCK, lock)

    def _propose_lock(self, now_ns: int, reason: Reason, lock: str) -> None:
        """Has effect in a working ring only: in the view after a recovery the application sees who holds what."""
        if self._phase is Phase.MEMBER and self._orderer is not None and self._recovery is None:
            self._serial += 1
            self._orderer.propose(now_ns, Change(reason, self.me, lock=lock, serial=self._serial))

    def answers(self, origin: int, number: int) -> bool:
        calls = self._orderer.calls if self._orderer is not None else None
        return calls is not None and calls.answers(origin, number)

    def reply(self, to: Address, number: int, body: bytes, out: Outbox) -> None:
        if self._orderer is not None:
            calls = self._orderer.calls
            body = allow(body, calls.allowance if calls is not None else 0)
        out.sends.append(self._writer.control(to, Kind.REPLY, body, number=number))

    def audience(self) -> list[Address]:
        orderer, me = self._orderer, self.me.id
        if orderer is None:
            return []
        members = [member.address for member in orderer.view.members if member.id != me]
        return list(dict.fromkeys([*members, *self._admission.addresses(), *orderer.standing().leavers]))

    def copies(self) -> list[Address]:
        return self._routes.copies

    @property
    def ttl(self) -> int:
        return self._routes.ttl

    @property
    def is_sure(self) -> bool:
        """Whether all members are known to have the last change. Until then a recovery also needs enough of the members
        before it; a simulation asks, to tell a group that is stuck for good reason from one that is not."""
        return self._orderer is not None and self._orderer.safe >= self._orderer.view.seq

    def is_at_rest(self) -> bool:
        if self._phase in (Phase.CLOSED, Phase.LINGERING):
            return True
        return (
            self._phase is Phase.MEMBER
            and self._recovery is None
            and self._orderer is not None
            and not self._orderer.is_busy
            and not self._admission
            and self._intake.is_empty
        )

    @property
    def is_ordering(self) -> bool:
        """Whether this member gives the next place now: it is the sequencer, or the token site. With timestamps all
        decide; the first member orders changes."""
        return self._recovery is None and self._orderer is not None and self._orderer.standing().orders

    @property
    def is_closed(self) -> bool:
        return self._phase is Phase.CLOSED

    def describe(self) -> str:
        """One line for people: where this engine is."""
        view = self.view.id if self.view is not None else "no view"
        role = self._recovery.role.name.lower() if self._recovery is not None else "working"
        log = self._orderer.log if self._orderer is not None else None
        assignments = "" if log is None else f", received {log.received} of {log.highest}, stable {log.stable}"
        return f"{self._phase.name.lower()}, {role}, {view}{assignments}"

    # Datagrams

    def _on_datagram(self, now_ns: int, source: Address, datagram: Datagram, out: Outbox) -> None:
        kind, segment, last, ring, origin, number, body = datagram
        orderer = self._orderer
        if kind in (Kind.DATA, Kind.REPAIR):
            is_repair = kind == Kind.REPAIR
            if orderer is None or ring != self._writer.ring:
                self._on_foreign(now_ns, source, kind, ring, out)
            elif self._recovery is not None and not is_repair:
                pass  # only what brings survivors to the same place goes on
            elif last:
                orderer.on_segment(now_ns, origin, number, segment, last, body, is_repair, out)
            else:
                orderer.on_data(now_ns, origin, number, bytes(body), is_repair, out)
        elif kind >= FORWARD:
            plain = HEADER.pack(MAGIC, kind & ~FORWARD, segment, last, self._writer.tag, ring, origin, number)
            self._forward(now_ns, source, plain + bytes(body), 0, out)
        elif origin == self.me.id:
            pass
        elif kind < Kind.FIND:
            if orderer is None or ring != self._writer.ring:
                self._on_foreign(now_ns, source, kind, ring, out)
            elif self._recovery is None or kind in (Kind.NAK, Kind.ACCEPT):
                self._admission.heard(origin)
                orderer.on_control(now_ns, kind, source, origin, number, body, out)
        elif kind < Kind.SUSPECT:
            self._on_membership(now_ns, source, kind, ring, origin, bytes(body), out)
        elif kind <= Kind.CHECK:
            self._on_recovery(now_ns, source, kind, ring, origin, bytes(body), out)
        elif kind == Kind.CALL:
            self._on_call(now_ns, source, ring, origin, number, bytes(body), out)
        else:
            raise WireError("unknown kind")

    def _on_call(
        self, now_ns: int, source: Address, ring: int, origin: int, number: int, body: bytes, out: Outbox
    ) -> None:
        """From a caller that is no member (RMP section 4.5): by the group's name, or by a ring that is or was ours."""
        flags, group, block = decode_call(body)
        orderer = self._orderer
        if orderer is None or self._phase is not Phase.MEMBER or self._recovery is not None:
            return  # it will come again
        if group != self.group if group else ring != self._writer.ring and ring not in self._past:
            self._count("foreign")
            return
        calls = orderer.calls
        if calls is None:
            self._count("strange_calls")
            return
        open_call(block)  # raises here what would break us later
        is_new = calls.on_call(now_ns, origin, number, bool(flags & FIRST), block, out)
        if not is_new:
            out.upcalls.append(RepeatedCall(origin, number, block))
        if flags & RELAY and len(orderer.view.members) > 1:
            again = encode_call(flags & ~RELAY, self.group, block)
            out.sends.append(self._writer.call(To.ALL, origin, number, again))
        elif self._routes.is_first and all(member.address != source for member in orderer.view.members):
            # The caller itself has multicast it, and does not know whom that does not reach.
            for address in self._routes.copies:
                out.sends.append(self._writer.call(address, origin, number, body))

    def _on_foreign(self, now_ns: int, source: Address, kind: int, ring: int, out: Outbox) -> None:
        """A datagram of another ring: of ours as it was, or of a stranger on the same address."""
        if ring not in self._past:
            self._count("foreign")
            return
        self._count("old_ring")
        if kind in (Kind.DATA, Kind.REPAIR, Kind.CUT, Kind.RESULT_ACK, Kind.COMMIT):
            return  # no straggler: what it says was right when it said it
        commit = self._past.answer(now_ns, ring)
        if commit is not None:
            out.sends.append(self._writer.control(source, Kind.COMMIT, commit, ring))

    def _forward(self, now_ns: int, source: Address, data: bytes | bytearray, stride: int, out: Outbox) -> None:
        """Multicast what a member without multicast sent us for all, then take it as from that member. RMP section 3.4.

        The mark has been cleared, so that nobody passes it on once more. Only members are served, and only for this
        ring: otherwise we would multiply a stranger's datagrams. Our own multicast does not come back to us.
        """
        _, kind, _, _, _, ring, _, _ = HEADER.unpack_from(data)
        if self._orderer is None or ring != self._writer.ring:
            self._on_foreign(now_ns, source, kind, ring, out)
        elif source not in self._routes.copies or not self.me.has_multicast:
            self._count("strange_forwards")
        else:
            self._count("forwarded", -(-len(data) // stride) if stride else 1)
            out.sends.append(Send(To.MULTICAST, (data,), stride))
            for address in self._routes.copies:
                if address != source:
                    out.sends.append(Send(address, (data,), stride))
            self.receive(now_ns, source, memoryview(data), stride, out)

    # Joining

    def _look(self, now_ns: int, is_return: bool, out: Outbox) -> None:
        """Begin to look for the group."""
        self._phase = Phase.JOINING
        self._writer.ring = 0
        self._routes.clear()
        self._carry()
        self._orderer = None
        self._recovery = None
        self._is_dissolving = False
        self._linger_ns = NEVER
        self._admission.clear()
        self._beacon_ns = NEVER
        self._joining = Joining(
            self.group,
            self.me,
            self._writer,
            self._timing,
            self._rng,
            self._create,
            self._demands,
            self._header,
            self._first_number,
            is_return,
            self._whom_to_ask(),
            self._memory.called,
        )
        self._joining.start(now_ns, out)

    def _whom_to_ask(self) -> list[Address]:
        """For the group: its contact alone at first; later anybody, and whom we know where multicast may not help."""
        contacts = [address for address in (self._onward, self._contact) if address is not None]
        if self.view is None:
            return contacts or [To.ANYONE]
        if contacts or not self.me.has_multicast:
            contacts += [member.address for member in self.view.members if member.id != self.me.id][:MAX_OLD_CONTACTS]
        return list(dict.fromkeys([To.ANYONE, *contacts]))

    def carry(self) -> object:
        self._carry()
        memory = self._memory
        return memory if memory.early or memory.called or memory.recent else None

    def inherit(self, memory: object) -> None:
        if isinstance(memory, DeliveryMemory):
            self._memory = memory

    def _carry(self) -> None:
        """The orderer of a ring goes: what it delivered ahead of the log must not come twice in the next."""
        if self._orderer is not None:
            self._memory = self._orderer.memory()

    @property
    def _first_number(self) -> int:
        """The number of the first block that we will submit in the ring to come."""
        return self._backlog[0][0] if self._backlog else self._next_block

    def _after_joining(self, now_ns: int, out: Outbox) -> None:
        joining = self._joining
        if joining is None:
            return
        if joining.refusal:
            self._close()
            out.upcalls.append(Refused(joining.refusal))
        elif joining.must_create:
            self._counter = next_counter(self._counter, now_ns)
            view = View(
                self._counter,
                str(self.me),
                ring_id(self.group, self.me.id, self._counter),
                0,
                0,
                0,
                (self.me,),
                {self.me.id: self._first_number},
                Reason.CREATE,
                str(self.me),
                self._header,
                callers=dict(self._memory.called),
            )
            self._enter(now_ns, view, out)

    def _enter(self, now_ns: int, view: View, out: Outbox) -> None:
        """Become a member in a view in which nobody comes with us."""
        self._joining = None
        self._phase = Phase.MEMBER
        out.upcalls.append(Joined())
        self._install(now_ns, view, (), {}, (str(self.me),), out)

    def _install(
        self,
        now_ns: int,
        view: View,
        orphans: Sequence[tuple[int, int, bytes]],
        awaited: dict[int, int],
        came_with: tuple[str, ...],
        out: Outbox,
    ) -> None:
        """Begin a ring."""
        self._writer.ring = view.ring
        self._writer.datagram = self.config.datagram
        self._routes.begin(now_ns, view)
        self._counter = max(self._counter, view.counter)
        self._recovery = None
        self._linger_ns = NEVER
        self._admission.clear()
        self._carry()
        self._orderer = ORDERERS[self.config.orderer](
            self.me, self._writer, self.config, self._timing, view, self._next_block, self._counter, self.counters
        )
        backlog, self._backlog = self._backlog, []
        self.view = replace(view, came_with=came_with)
        out.upcalls.append(self.view)
        self._orderer.install(now_ns, Start(backlog, orphans, awaited, self._memory), out)
        if view.leader.id == self.me.id:
            self._beacon(now_ns, To.ANYONE, out)
        else:
            self._beacon_ns = NEVER
        if self._leave_header is not None:
            self._orderer.propose(now_ns, Change(Reason.LEAVE, self.me, self._leave_header))

    def _on_membership(
        self, now_ns: int, source: Address, kind: int, ring: int, origin: int, body: bytes, out: Outbox
    ) -> None:
        if kind == Kind.FIND:
            asking = decode_asking(body)
            if asking.group == self.group:
                self._on_find(source, asking, out)
        elif kind == Kind.JOIN:
            asking = decode_asking(body)
            if asking.group == self.group:
                self._on_join(now_ns, source, asking, out)
        elif kind in (Kind.HERE, Kind.BEACON):
            seen = decode_ring(body)
            if seen.group == self.group:
                self._on_ring(now_ns, source, kind, seen, out)
        elif kind == Kind.WELCOME:
            group, nonce, config, view = decode_welcome(body)
            if unsupported_names(config):
                raise WireError("a welcome to what this version does not have")
            if (
                group == self.group
                and self._joining is not None
                and self._joining.is_answered_by(nonce)
                and view.member(self.me.id) is not None
                and view.numbers.get(self.me.id) == self._first_number
            ):
                self.config = config
                self._enter(now_ns, view, out)
                if self._orderer is not None:
                    self._orderer.greet()
            elif group == self.group and self._declined == nonce:
                out.sends.append(self._writer.control(source, Kind.LEFT, b"declined", view.ring))
        elif kind == Kind.REFUSE:
            group, text = decode_refusal(body)
            if group == self.group and self._joining is not None:
                self._joining.on_refuse(text)
                self._after_joining(now_ns, out)
        elif kind == Kind.LEFT and ring == self._writer.ring:
            if self._phase is Phase.LINGERING:
                self._close()
            elif self._admission.is_expected(origin) and self._recovery is None and not self._is_manual:
                # There is no need to wait until its silence is noticed.
                self._fail(now_ns, [Suspicion(origin, SuspicionReason.DECLINED)], out)

    def _on_find(self, source: Address, asking: Asking, out: Outbox) -> None:
        if self._joining is not None:
            self._joining.on_find(asking)
        elif self._phase is Phase.MEMBER and self._orderer is not None:
            is_leader = self._orderer.standing().leads
            if self._recovery is not None:
                self._recovery.on_departed(asking.member.id)
            if is_leader or asking.tries or self._recovery is not None:
                out.sends.append(self._writer.control(source, Kind.HERE, encode_ring(self._ring())))

    def _on_join(self, now_ns: int, source: Address, asking: Asking, out: Outbox) -> None:
        """The leader's side: check the parameters, then let the change be ordered."""
        orderer = self._orderer
        if (
            self._phase is not Phase.MEMBER
            or orderer is None
            or not orderer.standing().admits
            or self._recovery is not None
        ):
            return
        joiner = asking.member
        if orderer.view.member(joiner.id) is not None:
            self._admission.again(now_ns, asking)
            return
        if self._admission.is_over(asking):
            return
        refusal = self._admission.refusal(asking, self.config, orderer.view)
        if refusal:
            out.sends.append(self._writer.control(source, Kind.REFUSE, encode_refusal(self.group, refusal)))
            return
        orderer.propose(
            now_ns, Change(Reason.JOIN, joiner, asking.header, asking.next_block, "", asking.nonce, asking.callers)
        )

    def _on_ring(self, now_ns: int, source: Address, kind: int, seen: Ring, out: Outbox) -> None:
        """A ring of our name has shown itself."""
        if self._joining is not None:
            self._joining.on_ring(now_ns, source, seen, out)
            self._after_joining(now_ns, out)
            return
        orderer = self._orderer
        if self._phase is not Phase.MEMBER or orderer is None or seen.ring == self._writer.ring:
            return
        if not seen.is_working:
            if kind == Kind.BEACON and self._recovery is None:
                # A member of a ring that is stuck and that hears no multicasts asks whether there is another.
                out.sends.append(self._writer.control(source, Kind.HERE, encode_ring(self._ring())))
            return
        if seen.ring in self._past or orderer.standing().is_retired:
            return
        recovery = self._recovery
        if recovery is not None:
            accepted = recovery.accepted
            if accepted is not None and accepted.view.ring == seen.ring:
                return  # our own next ring: its commit is on its way, or will be asked for
            if now_ns - self._frozen_ns > 2 * self._timing.recovery_wait_ns:
                self._exclude(now_ns, "another ring of this group works, and this one does not", out)
        elif not orderer.standing().leads:
            if kind == Kind.BEACON:  # with static peers the leader may not have heard it
                out.sends.append(self._writer.control(orderer.view.leader.address, Kind.BEACON, encode_ring(seen)))
        elif better(self._ring(), seen):
            self._beacon(now_ns, seen.leader.address, out)
        elif kind == Kind.HERE and source == seen.leader.address:
            # All members are told where to go: not all of them may hear that ring (RMP section 3.4).
            orderer.propose(now_ns, Change(Reason.DISSOLVE, self.me, encode_address(source)))
        else:
            # Anybody can say that there is a larger ring. Its leader itself has to answer before we end ours.
            asking = Asking(self.group, self.me, 0, 0, self._next_block, self._demands, b"")
            out.sends.append(self._writer.control(seen.leader.address, Kind.FIND, encode_asking(asking)))

    def _ring(self) -> Ring:
        orderer = self._orderer
        if orderer is None:
            raise WireError("there is no ring to show")
        view = orderer.view
        return Ring(
            self.group,
            view.ring,
            view.counter,
            view.creator,
            len(view.members),
            self._recovery is None and not orderer.standing().is_retired,
            orderer.standing().contact,
            self.config,
        )

    def _beacon(self, now_ns: int, to: Address, out: Outbox) -> None:
        orderer = self._orderer
        is_mine = orderer is not None and (
            orderer.standing().leads if self._recovery is None else not self.me.has_multicast
        )
        if not is_mine or self._phase is not Phase.MEMBER:
            self._beacon_ns = NEVER
            return
        body = encode_ring(self._ring())
        if to == To.ANYONE:
            self._beacon_ns = now_ns + self._timing.beacon_ns
            if self._contact is not None:
                out.sends.append(self._writer.control(self._contact, Kind.BEACON, body))
        out.sends.append(self._writer.control(to, Kind.BEACON, body))

    # Views

    def _on_changed(self, now_ns: int, orderer: LoggedOrderer, views: list[View], out: Outbox) -> None:
        """Views that the orderer has applied; delivery follows in order with messages."""
        for view in views:
            self._routes.apply(now_ns, view)
            self._counter = max(self._counter, view.counter)
            if view.reason == Reason.JOIN:
                self._admission.admitted(view)
                if view.creator == str(self.me):
                    self._admission.welcome(now_ns, view, self.config, out)
            if view.leader.id == self.me.id and self._beacon_ns == NEVER:
                self._beacon(now_ns, To.ANYONE, out)
        if orderer.has_left and self._linger_ns == NEVER:
            self._linger_ns = now_ns + self._timing.linger_ns

    def _translate(self, now_ns: int, before: int, is_recovery: bool, out: Outbox) -> None:
        """Views as this node sees them: with who came along, or as the end of its membership.

        In a recovery what is delivered in views on the way was brought together as well.
        """
        upcalls = out.upcalls[before:]
        del out.upcalls[before:]
        if self._phase is not Phase.MEMBER:
            return
        for upcall in upcalls:
            if not isinstance(upcall, View):
                if is_recovery and self.view is not None and out.upcalls and out.upcalls[-1] is self.view:
                    out.upcalls.append(Transitional(self.view.id))
                out.upcalls.append(upcall)
            elif upcall.reason == Reason.DISSOLVE:
                with suppress(WireError):  # where the last member leaves, its own header
                    self._onward = decode_address(upcall.header)
                orderer = self._orderer
                if orderer is not None and self._recovery is None and not orderer.standing().is_settled:
                    self._is_dissolving = True  # the leader goes last: the others may need repairs to get this far
                    self._linger_ns = now_ns + self._timing.linger_ns
                else:
                    self._dissolve(now_ns, out)
                return
            elif upcall.member(self.me.id) is None:
                out.upcalls.append(Departed(True, False, "left"))
                self._phase = Phase.LINGERING
                self._linger_ns = now_ns + self._timing.linger_ns
                self._beacon_ns = NEVER
                return
            else:
                self._deliver_view(upcall, out)

    def _deliver_view(self, view: View, out: Outbox) -> None:
        previous = self.view
        came_with = tuple(
            str(member) for member in view.members if previous is not None and previous.member(member.id) is not None
        )
        self.view = replace(view, came_with=came_with)
        out.upcalls.append(self.view)

    def _dissolve(self, now_ns: int, out: Outbox) -> None:
        """The ring ends here, for all its members at the same place: to join another, or because the last one left."""
        orderer = self._orderer
        self._is_dissolving = False
        self._linger_ns = NEVER
        if orderer is None:
            return
        orderer.abandon(out)
        if self._leave_header is not None:
            self._drop_own(out)
            out.upcalls.append(Departed(True, False, "left"))
            self._close()
            return
        # What it comes after was a place of the ring that ends here.
        self._backlog = [(number, come_after(block, 0)) for number, block in orderer.leftovers()]
        out.upcalls.append(Departed(False, True, "this ring of the group joins a larger one"))
        # The larger ring may be gone when we get there: then the first of us makes the group anew.
        self._create = None
        self._look(now_ns, False, out)

    def _settle(self, now_ns: int, out: Outbox) -> None:
        """Who led and leaves may go when all have that as well."""
        orderer = self._orderer
        if orderer is None:
            return
        if self._is_dissolving:
            if orderer.standing().is_settled:
                self._dissolve(now_ns, out)
        elif self._phase is Phase.LINGERING and orderer.standing().may_go:
            self._close()

    # Failures

    def _fail(self, now_ns: int, suspicions: list[Suspicion], out: Outbox) -> None:
        orderer = self._orderer
        if orderer is None:
            return
        if self._is_dissolving:
            self._dissolve(now_ns, out)  # whoever is silent has gone ahead
            return
        suspects = [each.member for each in suspicions]
        names = tuple(str(member) for member in orderer.view.members if member.id in suspects)
        self._count("suspicions")
        self._freeze(now_ns)
        if self._recovery is None:
            return
        if self._is_manual:
            if suspicions and suspicions[0].why is not SuspicionReason.HEARSAY:
                out.sends.append(self._writer.control(To.ALL, Kind.SUSPECT, encode_suspects(suspects)))
            who = ", ".join(names) or "a member"
            out.upcalls.append(Failed(names, f"{who} does not answer; reset() re-forms the group"))
            self._recovery.wait()
        else:
            self._recovery.begin(now_ns, suspects, Terms(self._rule), out)
            self._after_recovery(now_ns, out)

    def _freeze(self, now_ns: int) -> None:
        orderer = self._orderer
        if orderer is None or self._recovery is not None:
            return
        orderer.freeze()
        self._frozen_ns = now_ns
        if self._leave_header is not None:
            # Nobody orders our leave any more. Recovery may bring that back; if it does not come soon we go without.
            self._linger_ns = now_ns if self._is_manual else now_ns + self._timing.linger_ns
        self._admission.clear()
        # Where this comes to nothing, others of the group may go on. We hear that by their beacons, or have to ask.
        self._beacon_ns = NEVER if self.me.has_multicast else now_ns + self._timing.beacon_ns
        local = Local(self.group, self.me, self._writer, self._timing, self._rng)
        self._recovery = Recovery(local, orderer, self._rule, self._counter)

    def _on_recovery(
        self, now_ns: int, source: Address, kind: int, ring: int, origin: int, body: bytes, out: Outbox
    ) -> None:
        orderer = self._orderer
        if orderer is None or ring != self._writer.ring or self._phase is not Phase.MEMBER:
            self._on_foreign(now_ns, source, kind, ring, out)
            return
        if kind == Kind.COMMIT:
            _, proposal = decode_result(body)
            self._on_commit(now_ns, proposal, out)
            return
        if self._recovery is None:
            if kind == Kind.SUSPECT:
                others = [each for each in decode_suspects(body) if each != self.me.id]
                self._fail(now_ns, [Suspicion(each, SuspicionReason.HEARSAY) for each in others], out)
                return
            if kind == Kind.INVITE:
                decode_invite(body)  # raises before anything is stopped for it
            elif kind == Kind.RESULT:
                decode_result(body)
            else:
                return
            self._freeze(now_ns)
            if self._is_manual:
                out.upcalls.append(Failed((), "a member failed; the group is being re-formed"))
        if self._recovery is not None:
            self._recovery.on_message(now_ns, kind, source, origin, body, out)
            self._after_recovery(now_ns, out)

    def _after_recovery(self, now_ns: int, out: Outbox) -> None:
        recovery = self._recovery
        if recovery is None:
            return
        if recovery.is_refused:
            recovery.is_refused = False
            if self._is_resetting:
                self._is_resetting = False
                out.upcalls.append(Reset(0, f"only {recovery.found} members of the old view answered"))
            if not self._is_manual:
                recovery.begin(now_ns, [], Terms(self._rule), out)
        if recovery.has_left:
            self._exclude(now_ns, "left while the group was being re-formed", out)
            return
        if recovery.committed is not None:
            proposal = recovery.committed
            body = encode_result(proposal.ballot, proposal)
            orderer = self._orderer
            if orderer is not None:
                told = {member.id: member.address for member in orderer.view.members}
                told.update((member.id, member.address) for member in proposal.view.members)
                for member, address in told.items():
                    if member != self.me.id:
                        out.sends.append(self._writer.control(address, Kind.COMMIT, body))
            self._commit(now_ns, proposal, recovery.orphans(), recovery.awaited(), out)

    def _on_commit(self, now_ns: int, proposal: Proposal, out: Outbox) -> None:
        recovery = self._recovery
        accepted = recovery.accepted if recovery is not None else None
        if accepted is not None and accepted.view.ring == proposal.view.ring and proposal.view.member(self.me.id):
            # Another found our own proposal binding: what it promised for those who are gone is still ours to send.
            is_ours = id_of(accepted.view.creator) == self.me.id
            self._commit(now_ns, accepted, self._promised_orphans(accepted.view) if is_ours else [], {}, out)
        elif self._leave_header is not None:
            self._drop_own(out)
            out.upcalls.append(Departed(True, False, "left while the group was being re-formed"))
            self._close()
        else:
            self._exclude(now_ns, "the group was re-formed without this node", out)

    def _promised_orphans(self, view: View) -> list[tuple[int, int, bytes]]:
        """Blocks of senders that are gone, which the members of a view that we proposed wait for."""
        orderer = self._orderer
        found: list[tuple[int, int, bytes]] = []
        for origin, upto in view.awaited.items():
            if orderer is not None and view.member(origin) is None:
                for number in range(view.numbers.get(origin, upto), upto):
                    block = orderer.log.find_block(origin, number)
                    if block is not None:
                        found.append((origin, number, block))
        return found

    def _commit(
        self,
        now_ns: int,
        proposal: Proposal,
        orphans: Sequence[tuple[int, int, bytes]],
        awaited: dict[int, int],
        out: Outbox,
    ) -> None:
        """Deliver what the survivors agreed on, then begin the new ring."""
        orderer = self._orderer
        if orderer is None:
            return
        view = proposal.view
        old_ring = self._writer.ring
        if view.member(self.me.id) is None:
            # As the coordinator, of what others began without us: we may have received more than they went on with.
            self._past.add(old_ring, encode_result(proposal.ballot, proposal))
            self._exclude(now_ns, "the group was re-formed without this node", out)
            return
        out.upcalls.append(Transitional(self.view.id if self.view is not None else ""))
        before = len(out.upcalls)
        orderer.recover(view.seq - 1, out)
        orderer.take_views()
        self._translate(now_ns, before, True, out)
        self._past.add(old_ring, encode_result(proposal.ballot, proposal))
        if self._phase is not Phase.MEMBER:
            return
        self._backlog = orderer.leftovers()
        previous = self.view
        came_with = tuple(str(member) for member in view.members if previous and previous.member(member.id))
        self._install(now_ns, view, orphans, awaited, came_with, out)
        if self._is_resetting:
            self._is_resetting = False
            out.upcalls.append(Reset(len(view.members), ""))

    def _exclude(self, now_ns: int, text: str, out: Outbox) -> None:
        """Out, without having wanted it: say so, and come back as a new member."""
        if self._orderer is not None:
            self._orderer.abandon(out)
        self._drop_own(out)
        self._count("exclusions")
        if self._is_resetting:
            self._is_resetting = False
            out.upcalls.append(Reset(0, text))
        if self._is_manual or self._leave_header is not None:
            out.upcalls.append(Departed(self._leave_header is not None, False, text))
            self._close()
        else:
            out.upcalls.append(Departed(False, True, text))
            self._look(now_ns, True, out)

    def _drop_own(self, out: Outbox) -> None:
        """Own blocks that were not delivered here: nobody can tell what becomes of them."""
        orderer = self._orderer
        if orderer is not None:
            lowest = orderer.undelivered()
            if lowest < orderer.next_block:
                out.upcalls.append(UnknownOutcome(lowest, orderer.next_block))
        elif self._backlog:
            out.upcalls.append(UnknownOutcome(self._backlog[0][0], self._next_block))
        self._backlog = []

    def _close(self) -> None:
        self._carry()
        self._phase = Phase.CLOSED
        self._joining = None
        self._recovery = None
        self._admission.clear()
        self._beacon_ns = self._linger_ns = NEVER
        self._orderer = None
        self._intake.clear()
        self._routes.clear()

    def _count(self, name: str, count: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + count


def check_header(header: bytes) -> None:
    if len(header) > MAX_HEADER:
        raise UsageError(f"a header has at most {MAX_HEADER} bytes, got {len(header)}; send the rest as a message")


def check_rule(rule: MinMembers) -> None:
    if rule not in ("majority", "all") and not (isinstance(rule, int) and 1 <= rule <= 1_000):
        raise UsageError(f"min_members is a number from 1 to 1000, 'majority' or 'all', got {rule!r}")
