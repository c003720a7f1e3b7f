"""The blocks that a member sends itself, as long as nobody else's place is in question: windows and bookkeeping.

How much may be out is a policy's business (`parts/window.py`, RMP section 4.6); what the receivers' sockets can hold is
its ceiling (DESIGN section 6). How a block goes out is the orderer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Note, Outbox
from ordercast.errors import InvariantViolation, UnsupportedService
from ordercast.orderers.logged.deliverer import Deliverer
from ordercast.parts.log import DATAGRAM_OVERHEAD, Entry, runs_of
from ordercast.parts.share import ceiling_of, largest_block
from ordercast.parts.window import make_policy
from ordercast.service import Service
from ordercast.view import GROUP_ORIGIN, Address, Member, View
from ordercast.wire.block import HEAD, come_after
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.ordering import Lead, Missing, decode_accept, encode_accept
from ordercast.wire.writer import DatagramWriter

MIN_PACKET: Final = 8_192  # what a sender may always have out (figure 4.2), in segments where datagrams are smaller


class Sender(Deliverer):
    """What a member has out, and how much more may follow."""

    ranks: ClassVar[frozenset[int]]
    gives: ClassVar[str]  # what `UnsupportedService` says

    def __init__(
        self,
        me: Member,
        writer: DatagramWriter,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counters: dict[str, int],
    ) -> None:
        super().__init__(me, config, timing, view, next_block, counters)
        self._writer = writer
        self._config = config
        self._timing = timing
        self._ceiling = ceiling_of(view, config)
        self._largest = largest_block(self._ceiling, len(view.members), config)
        packet = min(max(config.datagram - HEADER_BYTES, MIN_PACKET), self._largest)
        self._policy = make_policy(config.flow, packet, self._largest)
        self._leave_header: bytes | None = None

    def room(self, now_ns: int) -> tuple[int, int]:
        """What the window (section 4.6) and our share of the receivers' buffers leave. Small remainders count as none:
        they would make small blocks."""
        if self.is_frozen or self.has_left or self._leave_header is not None:
            return 0, self._largest
        share = self._share()
        self._policy.limit(share)
        room, largest = self._policy.room()
        largest = min(largest, self._largest)
        if self._must_pause(now_ns, share):
            return 0, largest
        outgoing = self._outgoing
        left = share - outgoing.bytes
        if outgoing.count and (left < min(largest, share // 4) or outgoing.count >= 2 * self._config.history_blocks):
            return 0, largest
        body = self._config.datagram - HEADER_BYTES
        left = left * body // (body + DATAGRAM_OVERHEAD)
        return min(room, left if outgoing.count else max(left, largest)), largest

    def _must_pause(self, now_ns: int, share: int) -> bool:  # noqa: ARG002 - others want it
        """Hook: whether something else than the window holds us up."""
        return False

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        """How many were taken: `room` counts bytes of messages, and many small blocks cost more than that."""
        if self.is_frozen or self.has_left or self._leave_header is not None:
            return 0  # nobody would wait for it
        taken, most, share, outgoing = 0, 2 * self._config.history_blocks, self._share(), self._outgoing
        for block in blocks:
            _, _, rank, k, _, _ = HEAD.unpack_from(block)
            if rank not in self.ranks:
                raise UnsupportedService(f"{self.gives}, not {Service(rank, k)}")
            if outgoing.count and (outgoing.count >= most or outgoing.bytes >= share):
                break
            self._submit_one(now_ns, block, out)
            taken += 1
        self._submitted(now_ns)
        return taken

    def _submit_one(self, now_ns: int, block: bytes, out: Outbox) -> None:
        number = self.next_block
        self.next_block = number + 1
        block = come_after(block, self.delivered)
        self._policy.sent(number, len(block))
        out.notes.append(Note("hold", self.me.id, block))
        self._keep_own(now_ns, number, block, out)
        self._send_own(number, block, out, is_first=True)

    def _submitted(self, now_ns: int) -> None:
        """Hook: blocks have been submitted."""

    def _keep_own(self, now_ns: int, number: int, block: bytes, out: Outbox) -> None:  # noqa: ARG002 - others want it
        if not self.log.hold(self.me.id, number, block):
            raise InvariantViolation(f"own block {number} is not the next of this ring")
        self._outgoing.keep(now_ns, self.me.id, number, block, self.log.cost(block))

    def _send_own(self, number: int, block: bytes, out: Outbox, is_first: bool = False) -> None:
        raise NotImplementedError

    def _on_own_placed(self, entry: Entry) -> None:
        self._policy.acked(entry.number)

    def _share(self) -> int:
        """What of the ceiling is ours: an equal share with all who are sending.

        Who is not counted among them yet begins with so little that all could do the same at once.
        """
        active = self.log.active
        if self.me.id in active:
            return self._ceiling // max(1, len(active) - (GROUP_ORIGIN in active))
        return max(self._ceiling // (2 * len(self.view.members)), self._largest)

    def _is_overrun(self) -> bool:
        """The application has fallen behind: more must not come until it has taken some of it (section 4.6)."""
        return self._backlog > max(self._ceiling // 2, 2 * self._largest)

    def _fit_to(self, view: View) -> None:
        """Bounds that follow from a view."""
        self._ceiling = ceiling_of(view, self._config)
        self._largest = largest_block(self._ceiling, len(view.members), self._config)

    # Repairs

    def _note_losses(self, missing: list[Missing]) -> None:
        """One request for repair is one sign of congestion, however many blocks it names."""
        for sender, number, _, _, _ in missing:
            if sender == self.me.id and number < self.next_block and self._policy.nacked(number):
                break

    def _repair(self, to: Address, missing: list[Missing], out: Outbox) -> None:
        """Send what somebody lacks: blocks, or places with or without them."""
        blocks, assignments = self._repairs.answer(missing)
        for origin, number, block, first, stop in blocks:
            self._count("repairs")
            out.sends.append(self._writer.repair(to, origin, number, block, first, stop))
        if assignments:
            log = self.log
            lead = Lead(log.received, log.stable, min(self.safe, log.received), 0)
            out.sends.append(self._writer.control(to, Kind.ACCEPT, encode_accept(lead, runs_of(assignments))))

    def _on_accept(self, body: memoryview) -> None:
        """Somebody tells us places."""
        lead, assignments = decode_accept(body)
        if not self.has_left and lead.highest <= self.log.received + self.log.ahead:
            for placed in assignments:
                self._assign(*placed)
            self.log.highest = max(self.log.highest, lead.highest)
