"""The smallest engine for the bulk simulation: blocks go to a multicast address, and who hears them delivers them.

For tests of the world and for its benchmark. Nothing is repaired, and nothing is acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.engine import NEVER, Delivery, Outbox, Run, Send
from ordercast.view import Address
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind


class FloodEngine:
    """One node. `hears`: the multicast addresses that it listens to; `to`: where its blocks go.

    room_bytes: what it takes in a pass. stride: the size of the datagrams of a train; 0: a block is one datagram.
    """

    __slots__ = ("_hears", "_left", "_me", "_next_number", "_room", "_seq", "_stride", "_to", "received")

    def __init__(
        self, me: int, hears: frozenset[Address], to: Address, *, room_bytes: int = 1 << 16, stride: int = 0
    ) -> None:
        self._me = me
        self._hears = hears
        self._to = to
        self._room = self._left = room_bytes
        self._stride = stride
        self._next_number = 0
        self._seq = 0
        self.received = 0  # datagrams

    def start(self, now_ns: int, out: Outbox) -> None:
        """There is nobody to find."""

    def listens(self) -> frozenset[Address]:
        return self._hears

    def move(self, hears: frozenset[Address]) -> None:
        """Listen to other addresses, from the next pass on."""
        self._hears = hears

    def room(self, now_ns: int) -> tuple[int, int]:  # noqa: ARG002
        return self._left, self._room

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:  # noqa: ARG002
        for block in blocks:
            header = HEADER.pack(MAGIC, Kind.DATA, 0, 0, 0, 0, self._me, self._next_number)
            out.sends.append(Send(self._to, [header, block], self._stride))
            self._left -= len(block)
            self._next_number += 1
        return len(blocks)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:  # noqa: ARG002
        size = len(data)
        if stride and stride < size:
            self.received += -(-size // stride)
            return
        self.received += 1
        self._seq += 1
        block = bytes(data[HEADER_BYTES:])
        out.upcalls.append(Run([Delivery(self._seq, 0, 0, self._seq, block)]))

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        """Nothing is kept."""

    def waits_for_application(self) -> bool:
        return False

    def after_batch(self, now_ns: int, out: Outbox) -> None:  # noqa: ARG002
        self._left = self._room

    def expire(self, now_ns: int, out: Outbox) -> None:
        """No timers."""

    def deadline_ns(self) -> int:
        return NEVER

    def is_at_rest(self) -> bool:
        return True
