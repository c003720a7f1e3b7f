"""The packets of a ring as one daemon has them (Spread section 3.2): kept until all daemons of the site have them."""

from __future__ import annotations

from ordercast.errors import InvariantViolation
from ordercast.wire.sites import MAX_RANGES, LinkPacket, Range, ranges_of


class RingPackets:
    """Packets of the ring as one daemon has them, until all have them."""

    __slots__ = ("_most", "_open", "aru", "freed", "highest")

    def __init__(self, most: int) -> None:
        """`most`: packets beyond what all daemons have; holders send no more."""
        self._most = most
        self._open: dict[int, LinkPacket] = {}  # open_pkts; above `freed`, at most twice `most` ahead of it
        self.aru = 0  # everything up to this has come
        self.highest = 0  # numbered so far, as the token says
        self.freed = 0  # ring_aru: all daemons have everything up to this

    def __len__(self) -> int:
        return len(self._open)

    def add(self, seq: int, packet: LinkPacket) -> bool:
        """Whether it is new."""
        if seq <= self.aru or seq in self._open:
            return False
        self._open[seq] = packet
        while self.aru + 1 in self._open:
            self.aru += 1
        return True

    def is_possible(self, seq: int) -> bool:
        """Whether a holder may have numbered so far: each keeps to the limit as it knows it, and we may know of one
        round less. What is refused here wrongly is asked for again."""
        return seq <= self.freed + 2 * self._most

    @property
    def limit(self) -> int:
        """The last number that may be given now."""
        return self.freed + self._most

    def held(self, first: int, stop: int) -> list[int]:
        """The numbers of a range that can be sent again."""
        found = self._open
        return [seq for seq in range(max(first, self.freed + 1), min(stop, self.highest + 1)) if seq in found]

    def get(self, seq: int) -> LinkPacket:
        return self._open[seq]

    def missing(self) -> list[Range]:
        """What has been numbered and has not come, as far as one token can ask for it."""
        found = self._open
        return ranges_of((seq for seq in range(self.aru + 1, self.highest + 1) if seq not in found), MAX_RANGES)

    def free(self, aru: int) -> bool:
        """All daemons have everything up to and including this; whether that is news."""
        if aru <= self.freed:
            return False
        if aru > self.aru:
            raise InvariantViolation(f"all daemons are said to have {aru} packets, and this one has {self.aru}")
        for seq in range(self.freed + 1, aru + 1):
            del self._open[seq]
        self.freed = aru
        return True
