"""What is missing, asked of all with one site named to answer; and the answers (RMP sections 4.2 and 4.6)."""

from __future__ import annotations

from ordercast.engine import Outbox, To
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.replies import known_lead, send_assignments, send_repairs
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.token.rotation import Rotation
from ordercast.parts.repairs import Repairs
from ordercast.view import Address
from ordercast.wire.header import Kind
from ordercast.wire.ordering import Acks, decode_nak, encode_nak


class TokenNaks:
    __slots__ = ("_delivery", "_repairs", "_ring", "_rotation", "_window", "tries")

    def __init__(
        self, ring: RingState, repairs: Repairs, delivery: ServiceDelivery, window: SendWindow, rotation: Rotation
    ) -> None:
        self._ring = ring
        self._repairs = repairs
        self._delivery = delivery
        self._window = window
        self._rotation = rotation
        self.tries = 0  # how often something that is missing has been asked for

    def send(self, now_ns: int, out: Outbox) -> None:
        """NACKs go to all and name one site to answer: the last token site, then others, at the end everybody."""
        ring, log = self._ring, self._ring.log
        acks = Acks(log.received, 0)
        wanted = self._repairs.due_by_tries(now_ns)
        self.tries = max(wanted, default=self.tries if log.received < log.highest else 0)
        for tries, missing in wanted.items():
            body = encode_nak(acks, missing, self._rotation.answerer(tries))
            out.sends.append(ring.writer.control(To.ALL, Kind.NAK, body))
        for origin, blocks in self._repairs.due_blocks(now_ns).items():
            member = ring.view.member(origin)
            if member is not None:
                out.sends.append(ring.writer.control(member.address, Kind.NAK, encode_nak(acks, blocks, origin)))

    def on_nak(self, source: Address, origin: int, body: memoryview, out: Outbox) -> None:
        """Somebody lacks something; we answer if we are named, or if everybody is."""
        ring = self._ring
        acks, target, missing = decode_nak(body)
        if acks.received <= ring.log.received:
            self._delivery.table.learn(origin, acks.received)
        self._window.note_losses(missing)
        if target in (0, ring.me.id):
            member = ring.view.member(origin)
            to = member.address if member is not None else source
            assignments = send_repairs(ring, self._repairs, to, missing, out)
            if assignments:
                send_assignments(ring, to, known_lead(ring, self._delivery.safe), assignments, out)
