"""Blocks that come, and sequence numbers that come: what is held, and what both together make received.

Amoeba section 4.1 (history, gaps). No datagram is sent from here; what an orderer does with an entry is its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.engine import Note, Outbox
from ordercast.errors import WireError
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.log import Entry
from ordercast.parts.repairs import Repairs
from ordercast.view import GROUP_ORIGIN, Reason, View
from ordercast.wire.block import CALLED, CHANGE, FRAGMENTED, HEAD, Head, head_of
from ordercast.wire.calls import open_call
from ordercast.wire.ordering import decode_accept
from ordercast.wire.views import open_change


class Receiver:
    """What a member holds and receives, with the notes that the trace wants of it."""

    __slots__ = (
        "_in_pieces",
        "_log",
        "_ring",
        "_strong_rank",
        "_unnamed",
        "_whole_upto",
        "last_strong_seq",
        "noted",
        "repairs",
        "reported",
        "strangers",
    )

    def __init__(self, ring: RingState, strong_rank: int) -> None:
        """`strong_rank`: from this service on delivery waits for others, and so does a change."""
        view = ring.view
        self._ring = ring
        self._log = ring.log
        self._strong_rank = strong_rank
        self.repairs = Repairs(ring.log, ring.timing, ring.config.datagram, ring.rtt)
        self.last_strong_seq = 0  # of the last entry that is received and waits for others
        self.noted = 0  # up to this sequence number the trace has been told before it was received (recovery)
        self.reported: set[tuple[int, int]] = set()  # blocks whose order the trace has been told already
        self.strangers: set[tuple[int, int]] = set()  # held in a recovery, before the join of their sender is known
        self._in_pieces: set[int] = set()  # origins that have sent fragments
        self._whole_upto: dict[int, int] = {}  # origin -> numbers below it are reported as held (fragments)
        # Senders that were gone when we came: they have a number here, and we know no name for it.
        present = {member.id for member in view.members}
        self._unnamed = set(view.numbers) - present if view.reason == Reason.JOIN else set()

    def hold(self, origin: int, number: int, block: bytes, out: Outbox, from_outside: bool = False) -> Head | None:
        """Keep a block that has come; its head, or None if it is here already or cannot be true."""
        ring, log = self._ring, self._log
        head = head_of(block)
        if bool(head.flags & CHANGE) != (origin == GROUP_ORIGIN):
            raise WireError("a change that is not the group's")
        if origin == GROUP_ORIGIN:
            view = open_change(block)  # raises here what would break us later
            if view.ring != ring.view.ring or view.seq != number:
                raise WireError("a change that belongs elsewhere")
        call = open_call(block)[0] if head.flags & CALLED else None
        if not log.hold(origin, number, block, ring.is_frozen or from_outside):
            return None
        if call is not None and ring.view.member(origin) is None:
            out.notes.append(Note("name", origin, detail=call.caller))
            out.notes.append(Note("hold", origin, block, head=head))
        elif origin not in log.next_number or origin in self._unnamed:
            self.strangers.add((origin, number))
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
        log = self._log
        number = max(self._whole_upto.get(origin, 0), log.next_number.get(origin, 0))
        while (block := log.blocks.get((origin, number))) is not None:
            if HEAD.unpack_from(block)[4] & FRAGMENTED:
                out.notes.append(Note("hold", origin, block))
            number += 1
        self._whole_upto[origin] = number

    def assign(self, seq: int, origin: int, number: int, count: int) -> None:
        """Learn sequence numbers that a peer tells."""
        if not self._log.assign(seq, origin, number, count):
            self._ring.count("bad_assignments")

    def on_accept(self, body: memoryview) -> None:
        """A member answers with sequence numbers what we asked for."""
        lead, assignments = decode_accept(body)
        self.repairs.is_answered = True
        if not self._ring.has_left and lead.highest <= self._log.received + self._log.ahead:
            for assignment in assignments:
                self.assign(*assignment)
            self._log.highest = max(self._log.highest, lead.highest)

    def apply(self, entry: Entry, out: Outbox) -> View:
        """A view is received, and everything before it: it is in force now, its delivery follows in order.

        The view before it.
        """
        ring, view = self._ring, open_change(entry.block)
        for member in view.members:
            if ring.view.member(member.id) is None:
                out.notes.append(Note("name", member.id, detail=str(member)))
                self._unnamed.discard(member.id)
        return ring.apply(view)

    def advance(self, out: Outbox) -> Iterator[Entry]:
        """What has become complete, entry by entry. The orderer reacts to each before the next is received.

        A change is the orderer's to apply. If our log ends with it the orderer stops here: what follows is not for us,
        and must never be acknowledged in our name. Hot: once for each block.
        """
        if self._ring.has_left:
            return
        notes, strong_rank = out.notes, self._strong_rank
        for entry in self._log.advance():
            flags = entry.flags
            if not flags & CHANGE:
                if self.strangers and (entry.origin, entry.number) in self.strangers:
                    self.strangers.discard((entry.origin, entry.number))
                    if entry.seq > self.noted:
                        notes.append(Note("hold", entry.origin, entry.block, head=entry.head))
                if entry.seq > self.noted:
                    if self.reported and (entry.origin, entry.number) in self.reported:
                        self.reported.discard((entry.origin, entry.number))
                    else:
                        notes.append(Note("placed", entry.origin, entry.block, entry.position, head=entry.head))
                if entry.rank >= strong_rank:
                    self.last_strong_seq = entry.seq
                if flags & CALLED and self._ring.view.member(entry.origin) is None:
                    self._ring.callers.add(entry.origin)
            yield entry
