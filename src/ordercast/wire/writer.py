"""How one node addresses the datagrams of one underlay: tag, ring and origin filled in, long bodies cut in segments.

A node without multicast sends what is meant for all to one member that has it, and marks it FORWARD: that member
multicasts it (RMP section 3.4).
"""

from __future__ import annotations

from ordercast.engine import Buffer, Send, To
from ordercast.view import Address
from ordercast.wire.header import FORWARD, HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.segments import pieces, train


class DatagramWriter:
    """`ring` changes when a new ring is installed; `datagram` when the group's parameters become known.

    `via` is the member that multicasts for us; None if we do it ourselves, or if no member can.
    """

    __slots__ = ("_relays", "_serial", "datagram", "origin", "ring", "tag", "via")

    def __init__(self, tag: int, origin: int, datagram: int) -> None:
        self.tag = tag
        self.origin = origin
        self.datagram = datagram
        self.ring = 0
        self.via: Address | None = None
        self._relays: list[Address] = []
        self._serial = 0

    def begin(self, now_ns: int) -> None:
        """Numbers of control bodies begin with the clock. A node that left its ring and came back has the same origin
        there: its numbers must not meet segments that lie about since its first stay."""
        self._serial = now_ns

    def set_relays(self, relays: list[Address]) -> None:
        """The members that could multicast for us, first choice first. The present one goes on if it is among them."""
        self._relays = relays
        if self.via not in relays:
            self.via = relays[0] if relays else None

    def next_via(self) -> None:
        """Nothing came of what was sent: have another member multicast for us, if there is one."""
        if self.via is not None and len(self._relays) > 1:
            self.via = self._relays[(self._relays.index(self.via) + 1) % len(self._relays)]

    def control(self, to: Address, kind: int, body: Buffer, ring: int | None = None, number: int | None = None) -> Send:
        """A control body. Its number joins the segments of a long one; `number` None: it has no other meaning."""
        self._serial += 1
        number = self._serial if number is None else number
        if self.via is not None and to == To.ALL:
            to, kind = self.via, kind | FORWARD
        ring = self.ring if ring is None else ring
        if len(body) + HEADER_BYTES <= self.datagram:
            head = HEADER.pack(MAGIC, kind, 0, 0, self.tag, ring, self.origin, number)
            return Send(to, (head, body), 0)
        return Send(to, *train(kind, self.tag, ring, self.origin, number, body, self.datagram))

    def block(self, to: Address, kind: int, origin: int, number: int, block: Buffer) -> Send:
        """A whole block as a train of segments."""
        if self.via is not None and to == To.ALL:
            to, kind = self.via, kind | FORWARD
        return Send(to, *train(kind, self.tag, self.ring, origin, number, block, self.datagram))

    def call(self, to: Address, origin: int, number: int, body: Buffer) -> Send:
        """A CALL with the caller `origin` as its origin."""
        if self.via is not None and to == To.ALL:
            to, kind = self.via, Kind.CALL | FORWARD
        else:
            kind = int(Kind.CALL)
        return Send(to, *train(kind, self.tag, self.ring, origin, number, body, self.datagram))

    def prefixed(self, to: Address, kind: int, number: int, prefix: bytes, block: Buffer) -> Send:
        """A block of ours behind a prefix: always one datagram; it has been checked that it fits."""
        if self.via is not None and to == To.ALL:
            to, kind = self.via, kind | FORWARD
        head = HEADER.pack(MAGIC, kind, 0, 0, self.tag, self.ring, self.origin, number)
        return Send(to, (head + prefix, block), 0)

    def ordered(self, to: Address, number: int, prefix: bytes, block: Buffer) -> Send:
        """A block with its sequence number; the prefix names its origin."""
        return self.prefixed(to, Kind.ORDERED, number, prefix, block)

    def repair(self, to: Address, origin: int, number: int, block: Buffer, first: int, stop: int) -> Send:
        """Segments [first, stop) of a block again; all of them if stop is 0."""
        if not stop:
            return self.block(to, Kind.REPAIR, origin, number, block)
        kind = int(Kind.REPAIR)
        if self.via is not None and to == To.ALL:
            to, kind = self.via, kind | FORWARD
        parts = pieces(kind, self.tag, self.ring, origin, number, block, self.datagram, first, stop)
        return Send(to, *parts)
