"""What a token site says to members that send again what waits at it: blocks, and requests for changes."""

from __future__ import annotations

from ordercast.engine import Outbox
from ordercast.orderers.logged.replies import send_held
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.token.pending import ChangeRequests
from ordercast.orderers.token.rotation import Rotation
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.ordering import Acks
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
