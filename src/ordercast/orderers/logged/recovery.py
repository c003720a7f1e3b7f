"""What the quorum membership asks of a log when the ring breaks (Amoeba section 4.2, RMP section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.engine import Note, Outbox
from ordercast.errors import InvariantViolation
from ordercast.orderers.logged.receiving import Receiver
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.outgoing import Outgoing
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.block import HEAD
from ordercast.wire.ordering import Assignment
from ordercast.wire.views import Cut, Proposal, open_change


class LogRecovery:
    """The log of a ring that is over: what this member has of it, and how it gets to the agreed end."""

    __slots__ = ("_log", "_outgoing", "_receiver", "_ring")

    def __init__(self, ring: RingState, receiver: Receiver, outgoing: Outgoing) -> None:
        self._ring = ring
        self._log = ring.log
        self._receiver = receiver
        self._outgoing = outgoing

    def cut(self, accepted: Proposal | None) -> Cut:
        """What is held, assigned and known to be decided here."""
        ring, log = self._ring, self._log
        assignments = tuple(log.assigned_runs(log.received + 1, log.highest + 1))
        held = tuple(log.held_runs())
        return Cut(log.received, ring.decided, assignments, held, ring.view, ring.next_block, accepted)

    def adopt(self, upto: int, assignments: Sequence[Assignment]) -> list[int]:
        """Learn the agreed remainder and forget contrary assignments; what is missing here."""
        known = self._log.assignments
        for seq, origin, number, count in assignments:
            for offset in range(max(0, self._log.received + 1 - seq), count):
                known[seq + offset] = (origin, number + offset)
        return self.lacking(upto)

    def lacking(self, upto: int) -> list[int]:
        """The sequence numbers up to and including `upto` whose assignment or block is missing here."""
        assignments, blocks = self._log.assignments, self._log.blocks
        return [seq for seq in range(self._log.received + 1, upto + 1) if assignments.get(seq) not in blocks]

    def note_remainder(self, upto: int, out: Outbox) -> None:
        """Everything up to `upto` is held here and its order agreed, although it is not delivered yet."""
        log, receiver = self._log, self._receiver
        position = log.position
        for seq in range(log.received + 1, upto + 1):
            origin, number = log.assignments[seq]
            block = log.blocks[origin, number]
            if origin == GROUP_ORIGIN:
                out.notes.extend(Note("name", each.id, detail=str(each)) for each in open_change(block).members)
            elif seq > receiver.noted:
                if (origin, number) in receiver.strangers:
                    out.notes.append(Note("hold", origin, block))
                out.notes.append(Note("placed", origin, block, position))
            position += HEAD.unpack_from(block)[1]
        receiver.noted = max(receiver.noted, upto)

    def discard_beyond(self, upto: int) -> None:
        """Assignments beyond the agreed end are void."""
        assignments = self._log.assignments
        for seq in [seq for seq in assignments if seq > upto]:
            del assignments[seq]

    def check_reached(self, upto: int) -> None:
        if self._log.received != upto and not self._ring.has_left:
            raise InvariantViolation(f"recovery was to reach {upto} and reached {self._log.received}")

    def leftovers(self) -> list[tuple[int, bytes]]:
        """Own blocks that never got a sequence number, in order: they are submitted again under the same numbers."""
        return self._outgoing.own()

    def undelivered(self, delivered: int) -> int:
        """The lowest number of an own block that was not delivered here."""
        me = self._ring.me.id
        ordered = [entry.number for seq, entry in self._log.entries.items() if entry.origin == me and seq > delivered]
        waiting = [number for number, _ in self._outgoing.own()]
        return min([*ordered, *waiting], default=self._ring.next_block)
