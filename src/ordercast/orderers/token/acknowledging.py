"""What a token site says to members that send again what waits at it: blocks, and requests for changes. And what any
member answers to one that asks whether its blocks have been read."""

from __future__ import annotations

from ordercast.engine import Outbox
from ordercast.orderers.logged.replies import send_held
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.token.pending import ChangeRequests
from ordercast.orderers.token.rotation import Rotation
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.header import Kind
from ordercast.wire.ordering import Acks, decode_acks, encode_acks
from ordercast.wire.token import NOTED


class TokenAcknowledger:
    __slots__ = ("_requests", "_ring", "_rotation", "held")

    def __init__(self, ring: RingState, rotation: Rotation, requests: ChangeRequests) -> None:
        self._ring = ring
        self._rotation = rotation
        self._requests = requests
        self.held: dict[int, None] = {}  # senders to tell that we hold what they send again

    def on_old(self, origin: int, number: int) -> None:
        """Somebody sends again what we have: our word about it was lost, or it has to wait to be ordered."""
        self._ring.count("duplicates")
        if self._rotation.is_holding and origin != GROUP_ORIGIN:
            if (origin, number) in self._ring.log.blocks:
                self.held[origin] = None
            else:
                self._rotation.behind[origin] = None

    def on_status(self, origin: int, body: memoryview, out: Outbox) -> None:
        """What came before it on the same way has been read: that is all its sender wants to know."""
        member = self._ring.view.member(origin)
        if member is not None:
            out.sends.append(self._ring.writer.control(member.address, Kind.ACK, encode_acks(decode_acks(body))))

    def speak(self, out: Outbox) -> None:
        """At the end of a pass in which there is something to say."""
        if self.held:
            log = self._ring.log
            acks = Acks(log.received, 0)
            for origin in self.held:
                upto = log.held_upto(origin, log.next_number.get(origin, 0))
                send_held(self._ring, origin, acks, origin, upto, out)
            self.held.clear()
        if self._requests.noted and self._rotation.is_holding:
            for origin in self._requests.take_noted():
                self._rotation.tell(origin, out, NOTED)
