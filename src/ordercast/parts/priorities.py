"""Queues of rising priority: the most urgent first, with a floor for the rest.

A level that always has something would let the others wait forever. So while less urgent items wait, they get a fifth
of the bytes (`REST`): one byte for each four of the level above. Among the rest the same holds again.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from ordercast.errors import InvariantViolation

T = TypeVar("T")

REST: Final = 4  # bytes of a level for each byte of what is below it, while both wait


class PriorityQueues(Generic[T]):
    """The owner bounds how many items there are (`len`)."""

    __slots__ = ("_is_owing", "_length", "_owed", "_queues")

    def __init__(self, levels: int) -> None:
        self._queues: list[deque[tuple[int, T]]] = [deque() for _ in range(levels)]  # size and item
        self._owed = [0] * levels  # bytes that a level has sent while something below it waited
        self._is_owing = False  # there may be debts
        self._length = 0

    def push(self, item: T, size: int, level: int) -> None:
        """`level`: 0 is the least urgent."""
        self._queues[level].append((size, item))
        self._length += 1

    def next_size(self) -> int:
        """The size of what `pop` gives; 0 where nothing waits."""
        if len(self._queues[0]) == self._length:
            return self._queues[0][0][0] if self._length else 0
        return self._queues[self._chosen()][0][0]

    def peek(self) -> T:
        """What `pop` gives."""
        if not self._length:
            raise InvariantViolation("nothing waits")
        return self._queues[0 if len(self._queues[0]) == self._length else self._chosen()][0][1]

    def pop(self) -> T:
        if not self._length:
            raise InvariantViolation("nothing waits")
        if len(self._queues[0]) == self._length:  # the usual case: nothing else waits, and nobody owes anything
            if self._is_owing:
                self._forget_debts()
            self._length -= 1
            return self._queues[0].popleft()[1]
        self._is_owing = True
        level = self._chosen()
        size, item = self._queues[level].popleft()
        self._length -= 1
        below = self._length - sum([len(queue) for queue in self._queues[level:]])
        # A debt lasts while both wait: nobody saves up for later.
        self._owed[level] = self._owed[level] + size if below else 0
        for above in range(level + 1, len(self._queues)):
            self._owed[above] = self._owed[above] - REST * size if self._queues[above] else 0
        return item

    def clear(self) -> None:
        for queue in self._queues:
            queue.clear()
        self._forget_debts()
        self._length = 0

    def _forget_debts(self) -> None:
        self._owed = [0] * len(self._owed)
        self._is_owing = False

    def count(self, level: int) -> int:
        """How many items of a level wait."""
        return len(self._queues[level])

    def size(self, level: int) -> int:
        """Of all items of a level."""
        return sum([size for size, _ in self._queues[level]])

    def __len__(self) -> int:
        return self._length

    def _chosen(self) -> int:
        """From below: each level gives way where it owes what waits below it."""
        chosen = -1
        for level, queue in enumerate(self._queues):
            if not queue:
                continue
            if chosen < 0 or self._owed[level] < REST * self._queues[chosen][0][0]:
                chosen = level
        return chosen
