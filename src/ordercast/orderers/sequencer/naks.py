"""What is missing here, and what others miss: members ask the sequencer, and both ask senders (Amoeba section 4.1)."""

from __future__ import annotations

from ordercast.engine import Outbox
from ordercast.orderers.logged.in_order import InOrderDelivery
from ordercast.orderers.logged.replies import known_lead, send_assignments, send_repairs
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.sequencer.acknowledging import Acknowledger
from ordercast.orderers.sequencer.announcing import Announcer
from ordercast.orderers.sequencer.role import SequencerRole
from ordercast.parts.repairs import Repairs
from ordercast.view import Address
from ordercast.wire.header import Kind
from ordercast.wire.ordering import MAX_MISSING, Missing, encode_nak


class SequencerNaks:
    """`role` is None where another member orders."""

    __slots__ = ("_acknowledger", "_announcer", "_delivery", "_repairs", "_ring")

    def __init__(
        self,
        ring: RingState,
        repairs: Repairs,
        delivery: InOrderDelivery,
        announcer: Announcer,
        acknowledger: Acknowledger,
    ) -> None:
        self._ring = ring
        self._repairs = repairs
        self._delivery = delivery
        self._announcer = announcer
        self._acknowledger = acknowledger

    def look(self, now_ns: int, role: SequencerRole | None, out: Outbox) -> None:
        """Once per pass: what has come, and what is missing newly."""
        out.notes.extend(self._repairs.look(now_ns, True, self._missing_blocks(role)))

    def _missing_blocks(self, role: SequencerRole | None) -> list[tuple[int, int]]:
        """What senders are asked for. The sequencer was sent everything. A member that is to say what it holds of a
        sender was sent that; without a question the sender would wait for its own timeout, and all others with it."""
        repairs, has_blocks = self._repairs, bool(self._ring.log.blocks)
        if role is None:
            return repairs.holes(self._acknowledger.answers_for) if has_blocks else []
        if not has_blocks and not len(repairs.partial):
            return []
        return sorted({*repairs.holes(lambda _origin, _block: True), *repairs.parts()})[:MAX_MISSING]

    def deadline_ns(self) -> int:
        return self._acknowledger.restraint.next_ns(self._repairs.deadline_ns())

    def send(self, now_ns: int, role: SequencerRole | None, out: Outbox) -> None:
        """Ask for what has been missing for too long."""
        if self.deadline_ns() > now_ns:
            return  # or a timer would be overdue that nothing clears
        ring, acks = self._ring, self._acknowledger.acks()
        missing = self._repairs.due_seqs(now_ns)
        if missing and role is None:
            self._acknowledger.to_leader(now_ns, Kind.NAK, encode_nak(acks, missing), out)
        for origin, blocks in self._repairs.due_blocks(now_ns).items():
            member = ring.view.member(origin)
            if member is not None:
                out.sends.append(ring.writer.control(member.address, Kind.NAK, encode_nak(acks, blocks)))

    def repair(self, to: Address, role: SequencerRole | None, missing: list[Missing], out: Outbox) -> None:
        """Send what somebody lacks: sequence numbers with their blocks, or blocks of ours."""
        assignments = send_repairs(self._ring, self._repairs, to, missing, out)
        if assignments:
            known = known_lead(self._ring, self._delivery.safe, self._announcer.active)
            send_assignments(self._ring, to, known if role is None else self._announcer.lead_info(), assignments, out)
