"""Waits for own messages on regions: until every lane that they went to has acknowledged them."""

from __future__ import annotations

from collections import deque

from ordercast.errors import OrdercastError
from ordercast.groups.watches import Watch


class LaneWait:
    """One wait. It is over when everything before its marks has left (`marks`), and so many lanes have acknowledged."""

    __slots__ = ("lanes", "marks", "shown", "watch")

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.marks = 0  # in queues of routes, not reached yet
        self.lanes = 0  # that have not acknowledged
        self.shown: list[tuple[int, str, int]] = []  # for the trace: region, view, number of its last message there

    @property
    def is_over(self) -> bool:
        return not self.marks and not self.lanes


class LaneWaits:
    """The waits of one lane, by the count of blocks that they wait for; both rise."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: deque[tuple[int, LaneWait]] = deque()

    def add(self, count: int, wait: LaneWait) -> None:
        wait.lanes += 1
        self._waits.append((count, wait))

    def acked(self, count: int) -> list[LaneWait]:
        """So many blocks are stable: the waits that are over with that."""
        found: list[LaneWait] = []
        waits = self._waits
        while waits and waits[0][0] <= count:
            wait = waits.popleft()[1]
            wait.lanes -= 1
            if wait.is_over:
                found.append(wait)
        return found

    def fail(self, error: OrdercastError) -> list[LaneWait]:
        """All of them end with an error."""
        found = [wait for _, wait in self._waits]
        self._waits.clear()
        for wait in found:
            wait.watch.error = error
        return found
