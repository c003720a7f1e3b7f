"""Flow control of UNRELIABLE blocks: they are not ordered, so no ACK ever tells that they have arrived.

A sender asks all members for a word after each half of its share of their socket buffers. A member that answers has
read what came before the question; when all have, those bytes count no more. A question or answer that is lost costs a
pause, not the message: after UNANSWERED_NS everything counts as gone.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS

UNANSWERED_NS: Final = 20 * MS


class UnreliablePacer:
    __slots__ = ("_acked", "_asked", "_asked_at", "_next", "_since_ns", "bytes", "total")

    def __init__(self) -> None:
        self._next = -1  # it begins with the clock: a node that comes back into a ring does not repeat its numbers
        self.bytes = 0  # sent and not known to be read
        self.total = 0  # sent since the ring began
        self._since_ns = 0
        self._asked: dict[int, int] = {}  # number that a question stood behind -> `total` at that time
        self._asked_at = 0  # `total` at the last question
        self._acked: dict[int, int] = {}  # member -> the last question that it answered

    def sent(self, now_ns: int, cost: int) -> int:
        """Another block leaves; its number."""
        if not self.bytes:
            self._since_ns = now_ns
        if self._next < 0:
            self._next = now_ns
        number, self._next = self._next, self._next + 1
        self.bytes += cost
        self.total += cost
        return number

    def wants_word(self, share: int) -> bool:
        """Whether it is time to ask; the question stands behind what was sent last."""
        if self.total - self._asked_at < share // 2:
            return False
        self._asked_at = self.total
        self._asked[self._next] = self.total
        return True

    def acked(self, now_ns: int, member: int, number: int, others: list[int]) -> None:
        if number not in self._asked:
            return
        self._acked[member] = max(number, self._acked.get(member, 0))
        lowest = min([self._acked.get(other, 0) for other in others], default=0)
        for asked in [asked for asked in self._asked if asked <= lowest]:
            self.bytes = min(self.bytes, self.total - self._asked.pop(asked))
            self._since_ns = now_ns

    def left(self, now_ns: int, share: int) -> int:
        """What of the share may leave now."""
        if now_ns - self._since_ns >= UNANSWERED_NS and self.bytes >= share:
            self.bytes = 0
            self._asked.clear()
        return share - self.bytes

    @property
    def due_ns(self) -> int:
        return self._since_ns + UNANSWERED_NS
