"""The log as a member of the ring keeps it: holding, placing, delivering, and handing over when the ring breaks.

No datagram is sent from here. Amoeba section 4.1 (history, gaps, delivery in sequence) and what section 4.2 asks of a
member when the group is re-formed; SAFE after DESIGN section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ordercast.config import GroupConfig, MinMembers, Timing
from ordercast.engine import Delivery, Denied, Note, Outbox, Run
from ordercast.errors import InvariantViolation, WireError
from ordercast.orderers.orderer import Usage
from ordercast.parts.detector import Detector
from ordercast.parts.log import Entry, Log
from ordercast.parts.outgoing import Outgoing
from ordercast.parts.repairs import Repairs
from ordercast.service import SAFE_RANK
from ordercast.view import GROUP_ORIGIN, Member, Reason, View
from ordercast.wire.block import CALLED, CHANGE, FRAGMENTED, HEAD, Head, head_of
from ordercast.wire.calls import open_call
from ordercast.wire.header import HEADER_BYTES
from ordercast.wire.ordering import Assignment
from ordercast.wire.views import Cut, Proposal, open_change, pack_change


class Keeper:
    """State that survives joins and leaves and ends with the ring."""

    strong_rank: ClassVar[int] = SAFE_RANK  # from this service on delivery waits for others, and so does a change

    def __init__(
        self,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counters: dict[str, int],
    ) -> None:
        self.me = me
        self.view = view  # as of what is received
        self._changed: list[View] = []  # views that were applied since the underlay last took them
        self.is_frozen = False
        self.has_left = False  # our log ends here, with our own leave or with the ring
        # The log
        ahead = 4 * config.history_blocks + 1_024
        numbers = {**view.callers, **view.numbers}
        self.log = Log(view.seq, view.position, numbers, ahead, config.datagram - HEADER_BYTES)
        self.callers = set(view.callers)  # origins that are no members (RMP section 4.5)
        if view.reason == Reason.JOIN:
            # We are the one who joins. The others may not have this view yet, and lose whom they would have it from.
            self.log.begin_with(pack_change(view))
        self.delivered = view.seq
        self.consumed = view.seq
        # Who joins knows nothing of the others. To claim that they have this view would let it and the one that let it
        # in count as enough members without those who have not.
        self.safe = view.seq if view.reason in (Reason.CREATE, Reason.RESET) else view.seq - 1
        self._last_safe_seq = 0  # of the last block that is received and waits for others (SAFE)
        self._noted = 0  # places up to here were reported as placed before they were received (recovery)
        self._in_pieces: set[int] = set()  # origins that have sent fragments
        self._whole_upto: dict[int, int] = {}  # origin -> numbers below it are reported as held (fragments)
        self._shown = view.id  # of the view that was delivered last
        # Senders that were gone when we came: they have a number here, and we know no name for it.
        present = {member.id for member in view.members}
        self._unnamed = set(view.numbers) - present if view.reason == Reason.JOIN else set()
        self._strangers: set[tuple[int, int]] = set()  # held in a recovery, before the join of their sender is known
        self._freed_bytes = 0
        # What we answer for, and what we lack
        self.next_block = next_block
        self._outgoing = Outgoing(me.id, timing)
        self._repairs = Repairs(self.log, timing, config.datagram)
        self._counters = counters  # the underlay's: they outlive the ring
        self._detector = Detector(timing)

    def on_data(self, now_ns: int, origin: int, number: int, block: bytes, is_repair: bool, out: Outbox) -> None:
        """A whole block, from its sender or as a repair."""
        if not is_repair:
            self._detector.heard(origin, now_ns)
        if origin != self.me.id and not self.has_left:
            self._take(now_ns, origin, number, block, out)

    def on_segment(
        self,
        now_ns: int,
        origin: int,
        number: int,
        segment: int,
        last: int,
        body: memoryview,
        is_repair: bool,
        out: Outbox,
    ) -> None:
        """One segment of a block that did not arrive whole in one batch."""
        if not is_repair:
            self._detector.heard(origin, now_ns)
        if origin == self.me.id or self.has_left:
            return
        if self._repairs.is_old(origin, number):
            self._on_old(origin, number)
            return
        block = self._repairs.add(now_ns, origin, number, segment, last, body)
        if block is not None:
            self._take(now_ns, origin, number, block, out)

    def _take(self, now_ns: int, origin: int, number: int, block: bytes, out: Outbox) -> bool:
        """What the orderer does with a whole block that has come; whether it is new."""
        raise NotImplementedError

    def _on_old(self, origin: int, number: int) -> None:
        """Hook: something has come that is here already."""

    def consume(self, seq: int) -> None:
        """The application has taken everything up to and including place `seq`."""
        self.consumed = max(self.consumed, min(seq, self.delivered))
        self._skip_changes()

    def take_views(self) -> list[View]:
        """Views that were applied since the last call."""
        views = self._changed
        if views:
            self._changed = []
        return views

    def usage(self) -> Usage:
        return Usage(self.log.unstable_bytes, len(self.log.entries))

    # Holding and placing

    def _hold(self, origin: int, number: int, block: bytes, out: Outbox, from_outside: bool = False) -> Head | None:
        """Keep a block that has come; its head, or None if it is here already or cannot be true."""
        head = head_of(block)
        if bool(head.flags & CHANGE) != (origin == GROUP_ORIGIN):
            raise WireError("a change that is not the group's")
        if origin == GROUP_ORIGIN:
            view = open_change(block)  # raises here what would break us later
            if view.ring != self.view.ring or view.seq != number:
                raise WireError("a change that belongs elsewhere")
        call = open_call(block)[0] if head.flags & CALLED else None
        if not self.log.hold(origin, number, block, self.is_frozen or from_outside):
            return None
        if call is not None and self.view.member(origin) is None:
            out.notes.append(Note("name", origin, detail=call.caller))
            out.notes.append(Note("hold", origin, block, head=head))
        elif origin not in self.log.next_number or origin in self._unnamed:
            self._strangers.add((origin, number))
        else:
            if head.flags & FRAGMENTED:
                self._in_pieces.add(origin)
            else:
                out.notes.append(Note("hold", origin, block, head=head))
            if origin in self._in_pieces:
                self._report_whole(origin, out)
        return head

    def _report_whole(self, origin: int, out: Outbox) -> None:
        """A message in fragments is held when its last fragment and all before it are."""
        log = self.log
        number = max(self._whole_upto.get(origin, 0), log.next_number.get(origin, 0))
        while (block := log.blocks.get((origin, number))) is not None:
            if HEAD.unpack_from(block)[4] & FRAGMENTED:
                out.notes.append(Note("hold", origin, block))
            number += 1
        self._whole_upto[origin] = number

    def _assign(self, seq: int, origin: int, number: int, count: int) -> None:
        if not self.log.assign(seq, origin, number, count):
            self._count("bad_places")

    def _purge(self, stable: int) -> None:
        """Forget what everybody has consumed, as far as we have ourselves."""
        me = self.me.id
        for entry in self.log.purge(min(stable, self.consumed)):
            self._freed_bytes += entry.cost
            if entry.origin == me:
                self._outgoing.stable(entry.number)

    def _advance(self, now_ns: int, out: Outbox) -> None:
        """Receive what has become complete."""
        if self.has_left:
            return
        outgoing = self._outgoing
        for entry in self.log.advance():
            if entry.is_change:
                if self._apply_change(now_ns, entry, out):
                    break  # what follows is not for us, and must never be acknowledged in our name
                continue
            if self._strangers and (entry.origin, entry.number) in self._strangers:
                self._strangers.discard((entry.origin, entry.number))
                if entry.seq > self._noted:
                    out.notes.append(Note("hold", entry.origin, entry.block, head=entry.head))
            if entry.seq > self._noted:
                self._note_placed(entry, out)
            if entry.rank >= self.strong_rank:
                self._last_safe_seq = entry.seq
            if entry.flags & (FRAGMENTED | CALLED):
                self._on_special(now_ns, entry)
            if outgoing.unordered and outgoing.ordered(now_ns, entry.origin, entry.number):
                self._on_own_placed(entry)

    def _apply_change(self, now_ns: int, entry: Entry, out: Outbox) -> bool:
        """A view has its place and everything before it is here: roles change now, delivery follows in order.

        Whether it is the end of the log for us.
        """
        view = open_change(entry.block)
        old, self.view = self.view, view
        if view.id != old.id:
            self._changed.append(view)
        numbers = self.log.next_number
        for member in view.members:
            numbers[member.id] = max(numbers.get(member.id, 0), view.numbers.get(member.id, 0))
            if old.member(member.id) is None:
                out.notes.append(Note("name", member.id, detail=str(member)))
                self._unnamed.discard(member.id)
        if view.reason == Reason.LEAVE:
            for origin in view.prior:
                if view.member(origin) is None:
                    numbers.pop(origin, None)
        for origin in self.callers - view.callers.keys():
            if view.member(origin) is None:
                numbers.pop(origin, None)
        for origin, number in view.callers.items():
            numbers[origin] = max(numbers.get(origin, 0), number)
        self.callers = set(view.callers)
        self.has_left = view.member(self.me.id) is None or view.reason == Reason.DISSOLVE
        if not self.is_frozen:
            self._on_view(now_ns, old, out)
        return self.has_left

    def _note_placed(self, entry: Entry, out: Outbox) -> None:
        out.notes.append(Note("placed", entry.origin, entry.block, entry.position, head=entry.head))

    def _on_own_placed(self, entry: Entry) -> None:
        """Hook: something that we answer for has been received at its place."""

    def _on_special(self, now_ns: int, entry: Entry) -> None:  # noqa: ARG002 - others want it
        """Part of a long message, or a call, has been received."""
        if entry.flags & CALLED and self.view.member(entry.origin) is None:
            self.callers.add(entry.origin)

    def _on_view(self, now_ns: int, old: View, out: Outbox) -> None:
        """Hook: what else follows from a new view."""

    # Delivering

    def _deliver(self, out: Outbox) -> None:
        """Everything received goes up in order; SAFE blocks, and all behind them, when all members have them."""
        entries = self.log.entries
        run: list[Delivery] = []
        seq = self.delivered + 1
        received, safe = self.log.received, self.safe
        while seq <= received:
            entry = entries[seq]
            if entry.rank == SAFE_RANK and seq > safe:
                break
            if entry.is_change:
                if run:
                    out.upcalls.append(Run(run))
                    run = []
                self._show(open_change(entry.block), out)
            else:
                run.append(Delivery(seq, entry.position, entry.origin, entry.number, entry.block))
            seq += 1
        self.delivered = seq - 1
        if run:
            out.upcalls.append(Run(run))
        self._skip_changes()

    def _show(self, view: View, out: Outbox) -> None:
        """A change has its turn. Where it changed nothing, only who asked for it hears of it."""
        if view.id != self._shown:
            self._shown = view.id
            out.upcalls.append(view)
        elif view.reason == Reason.LOCK and view.subject == str(self.me):
            out.upcalls.append(Denied(view.lock))

    def _skip_changes(self) -> None:
        """Nobody consumes a view."""
        entries = self.log.entries
        while self.consumed < self.delivered and entries[self.consumed + 1].is_change:
            self.consumed += 1

    # Recovery: what the membership asks of any orderer

    def freeze(self) -> None:
        """Failures only: stop ordering, delivering and acknowledging."""
        self.is_frozen = True

    def cut(self, rule: MinMembers, accepted: Proposal | None) -> Cut:
        """What is held and placed here."""
        log = self.log
        assignments = tuple(log.assigned_runs(log.received + 1, log.highest + 1))
        safe = min(self.safe, log.received)
        held, departed = tuple(log.held_runs()), tuple(self.departed)
        return Cut(log.received, safe, assignments, held, self.view, departed, self.next_block, rule, accepted)

    @property
    def departed(self) -> list[int]:
        """Hook: who is known to know of the last change, above all one that has left by it."""
        return []

    def adopt(self, upto: int, assignments: Sequence[Assignment]) -> list[int]:
        """Learn the places of the agreed remainder, forget contrary ones; what is missing here."""
        known = self.log.assignments
        for seq, origin, number, count in assignments:
            for offset in range(max(0, self.log.received + 1 - seq), count):
                known[seq + offset] = (origin, number + offset)
        return self.lacking(upto)

    def lacking(self, upto: int) -> list[int]:
        """The places up to and including `upto` whose place or block is missing here."""
        assignments, blocks = self.log.assignments, self.log.blocks
        return [seq for seq in range(self.log.received + 1, upto + 1) if assignments.get(seq) not in blocks]

    def note_remainder(self, upto: int, out: Outbox) -> None:
        """Everything up to `upto` is held here and its place agreed, although it is not delivered yet."""
        position = self.log.position
        for seq in range(self.log.received + 1, upto + 1):
            origin, number = self.log.assignments[seq]
            block = self.log.blocks[origin, number]
            if origin == GROUP_ORIGIN:
                out.notes.extend(Note("name", each.id, detail=str(each)) for each in open_change(block).members)
            elif seq > self._noted:
                if (origin, number) in self._strangers:
                    out.notes.append(Note("hold", origin, block))
                out.notes.append(Note("placed", origin, block, position))
            position += HEAD.unpack_from(block)[1]
        self._noted = max(self._noted, upto)

    def recover(self, upto: int, out: Outbox) -> None:
        """Deliver the agreed remainder of the old ring, up to and including `upto`; places beyond it are void."""
        log = self.log
        for seq in [seq for seq in log.assignments if seq > upto]:
            del log.assignments[seq]
        self._advance(0, out)
        if log.received != upto and not self.has_left:
            raise InvariantViolation(f"recovery was to reach place {upto} and reached {log.received}")
        self.safe = upto
        self._deliver(out)
        self.abandon(out)

    def leftovers(self) -> list[tuple[int, bytes]]:
        """Own blocks that never got a place, in order: they are submitted again under the same numbers."""
        return self._outgoing.own()

    def undelivered(self) -> int:
        """The lowest number of an own block that was not delivered here."""
        me = self.me.id
        placed = [
            entry.number for seq, entry in self.log.entries.items() if entry.origin == me and seq > self.delivered
        ]
        return min([*placed, *(number for number, _ in self._outgoing.own())], default=self.next_block)

    def abandon(self, out: Outbox) -> None:
        """This node is out of the ring: what was open stays open for ever, and is no gap any more."""
        out.notes.extend(self._repairs.close())

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1
