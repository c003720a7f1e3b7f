"""What a member does not send to a sequencer that does not answer (docs/design/detector.md, "What the kernel limits").

The kernel of a machine whose process is gone sends few reports of that. Each datagram to the dead process uses up one,
and the probes are to get them. So once two datagrams went unanswered, acknowledgements, requests for repairs and blocks
that are sent again wait; blocks that are sent for the first time wait behind three. One leaves every 60 ms, and all of
them as soon as the sequencer is heard.

Over a far link much is under way before an answer can come. Nothing is held back that could not have been answered
yet, by the shortest round trip that was seen, and nothing at all before one was.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.engine import NEVER

UNANSWERED: Final = 2  # datagrams that leave without an answer, and
UNANSWERED_BLOCKS: Final = 3  # if they carry a new block. Where datagrams are lost, so many in a row seldom are
HELD_BACK_NS: Final = 60 * MS  # nothing waits for longer: by then the probes have left twice


class Restraint:
    __slots__ = ("_asked", "_asked_ns", "_first_ns", "_known", "_last_ns", "_least_ns", "_told")

    def __init__(self) -> None:
        self._told = 0  # datagrams since a word of the sequencer
        self._first_ns = 0  # when the first of them left
        self._last_ns = 0
        self._least_ns = NEVER  # the shortest round trip, and a quarter
        self._known = 0  # how far we have said that we have received
        self._asked = 0  # so far when the round trip began that is measured; 0: none is
        self._asked_ns = 0

    def restart(self) -> None:
        """Another member is the sequencer."""
        self._told = self._asked = 0
        self._least_ns = NEVER

    def heard(self) -> None:
        self._told = 0

    def told(self, now_ns: int, received: int, safe: int) -> None:
        """A datagram leaves for the sequencer alone. It says how far we have received; we know what is `safe`."""
        if not self._told:
            self._first_ns = now_ns
        self._told += 1
        self._last_ns = now_ns
        if received > self._known:
            self._known = received
            if not self._asked and received > safe:
                self._asked, self._asked_ns = received, now_ns

    def answered(self, now_ns: int, safe: int) -> None:
        """The sequencer knows of all members that they have received so much: it has had our word."""
        if self._asked and safe >= self._asked:
            self._asked = 0
            took_ns = now_ns - self._asked_ns
            self._least_ns = min(self._least_ns, took_ns + took_ns // 4)

    def is_vain(self, now_ns: int, unanswered: int = UNANSWERED) -> bool:
        """Whether so many datagrams have left since the last word, and the first could have been answered."""
        return self._told >= unanswered and now_ns - self._first_ns >= self._least_ns

    def next_ns(self, wish_ns: int, unanswered: int = UNANSWERED) -> int:
        """When something may leave that is to leave at `wish_ns`."""
        return max(wish_ns, self._last_ns + HELD_BACK_NS) if self.is_vain(wish_ns, unanswered) else wish_ns

    def holds(self, now_ns: int, unanswered: int = UNANSWERED) -> bool:
        """Whether what can wait has to."""
        return self.next_ns(now_ns, unanswered) > now_ns
