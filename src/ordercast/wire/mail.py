"""How one node of one group addresses its datagrams: tag, ring and origin filled in, long bodies cut in segments."""

from __future__ import annotations

from ordercast.engine import Buffer, Send
from ordercast.view import Address
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.segments import pieces, train


class Mail:
    """`ring` changes when a new ring is installed; `datagram` when the group's parameters become known."""

    __slots__ = ("_serial", "datagram", "origin", "ring", "tag")

    def __init__(self, tag: int, origin: int, datagram: int) -> None:
        self.tag = tag
        self.origin = origin
        self.datagram = datagram
        self.ring = 0
        self._serial = 0

    def control(self, to: Address, kind: int, body: Buffer, ring: int | None = None, number: int | None = None) -> Send:
        """A control body, numbered (where the number says nothing: in turn) so that the segments of a long one meet."""
        self._serial += 1
        number = self._serial if number is None else number
        ring = self.ring if ring is None else ring
        if len(body) + HEADER_BYTES <= self.datagram:
            head = HEADER.pack(MAGIC, kind, 0, 0, self.tag, ring, self.origin, number)
            return Send(to, (head, body), 0)
        return Send(to, *train(kind, self.tag, ring, self.origin, number, body, self.datagram))

    def block(self, to: Address, kind: int, origin: int, number: int, block: Buffer) -> Send:
        """A whole block as a train of segments."""
        return Send(to, *train(kind, self.tag, self.ring, origin, number, block, self.datagram))

    def prefixed(self, to: Address, kind: int, number: int, prefix: bytes, block: Buffer) -> Send:
        """A block of ours behind a prefix: always one datagram, the caller has checked that it fits."""
        head = HEADER.pack(MAGIC, kind, 0, 0, self.tag, self.ring, self.origin, number)
        return Send(to, (head + prefix, block), 0)

    def ordered(self, to: Address, number: int, prefix: bytes, block: Buffer) -> Send:
        """A block with its place; the prefix names its origin."""
        return self.prefixed(to, Kind.ORDERED, number, prefix, block)

    def repair(self, to: Address, origin: int, number: int, block: Buffer, first: int, stop: int) -> Send:
        """Segments [first, stop) of a block again; all of them where stop is 0."""
        if not stop:
            return self.block(to, Kind.REPAIR, origin, number, block)
        parts = pieces(Kind.REPAIR, self.tag, self.ring, origin, number, block, self.datagram, first, stop)
        return Send(to, *parts)
