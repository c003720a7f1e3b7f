"""The blocks that a member of a timestamp ring answers for: sent to all, and again to members that lack them."""

from __future__ import annotations

from ordercast.engine import Outbox, To
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.timestamp.agreement import Agreement
from ordercast.orderers.timestamp.timers import TimestampTimer
from ordercast.parts.timers import Timers
from ordercast.wire.header import Kind


class TimestampSender:
    __slots__ = ("_agreement", "_me", "_outgoing", "_ring", "_table", "_timers", "_window")

    def __init__(
        self,
        ring: RingState,
        delivery: ServiceDelivery,
        window: SendWindow,
        agreement: Agreement,
        timers: Timers[TimestampTimer],
    ) -> None:
        self._ring = ring
        self._me = ring.me.id
        self._table = delivery.table
        self._window = window
        self._outgoing = window.outgoing
        self._agreement = agreement
        self._timers = timers

    def send_own(self, number: int, block: bytes, out: Outbox) -> None:
        if self._table.others:
            out.sends.append(self._ring.writer.block(To.ALL, Kind.DATA, self._me, number, block))

    def send_to(self, members: list[int], origin: int, number: int, block: bytes, out: Outbox) -> None:
        """Again, or in the name of another: to all if more than half of them lack it."""
        ring = self._ring
        if 2 * len(members) > len(self._agreement.members) > 2:
            out.sends.append(ring.writer.block(To.ALL, Kind.REPAIR, origin, number, block))
            return
        for each in members:
            member = ring.view.member(each)
            if member is not None:
                out.sends.append(ring.writer.block(member.address, Kind.REPAIR, origin, number, block))

    def submitted(self, now_ns: int) -> None:
        if self._outgoing.unordered:
            self._timers.set_earlier(TimestampTimer.RETRANSMIT, self._outgoing.deadline_ns(now_ns))

    def retransmit(self, now_ns: int, out: Outbox) -> None:
        """Blocks go out again to members that have not acknowledged them."""
        outgoing, has_shrunk = self._outgoing, False
        for origin, number, block in outgoing.due(now_ns):
            lacking = self._agreement.lacking((origin, number))
            if not lacking:
                outgoing.unordered[origin, number].tries = 0
                continue  # it waits in a queue, or for our own word
            self._ring.count("retransmissions")
            if origin == self._me and not has_shrunk:
                self._window.timed_out(number)
                has_shrunk = True
            self.send_to(lacking, origin, number, block, out)
        if outgoing.unordered:
            self._timers.set(TimestampTimer.RETRANSMIT, outgoing.deadline_ns(now_ns))
        self._ring.writer.next_via()
