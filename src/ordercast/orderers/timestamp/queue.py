"""The reception queue of one member: proposals, decisions, and anticipation. TOMPA sections 2.1 and 3.2.

Blocks wait under a timestamp and leave in the order of timestamps, when they are decided. The paper sorts the queue
anew with each change; here it is a heap in which a block that moves leaves its old entry behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

Stamp = tuple[int, int]  # number and member, compared in this order
Key = tuple[int, int]  # origin and number of a block

SLACK: Final = 64  # entries left behind, besides one for each block that waits, before the heap is made anew


class Queued(NamedTuple):
    """As the figures of the paper show it."""

    key: Key
    stamp: Stamp
    is_decided: bool  # deliverable


class _Waiting:
    __slots__ = ("acked", "is_decided", "proposed", "stamp")

    def __init__(self, proposed: int, stamp: Stamp) -> None:
        self.proposed = proposed  # what we acknowledged
        self.acked = proposed  # our clock when we acknowledged it last
        self.stamp = stamp
        self.is_decided = False


class ReceptionQueue:
    """Bound: one entry for each block that is held and not received; the sender's windows bound those."""

    __slots__ = ("_heap", "_me", "_undecided", "_waiting", "clock")

    def __init__(self, me: int, clock: int = 0) -> None:
        self._me = me
        self.clock = clock  # the paper's local_ts
        self._waiting: dict[Key, _Waiting] = {}
        self._undecided: dict[int, dict[int, _Waiting]] = {}  # origin -> number -> the same, in the sender's order
        # Timestamp, 0 for the decided (which go first: no other ends up at the same one), key. An entry that differs
        # from what the block has was left behind. They are compared by value: compiled tuples have no identity.
        self._heap: list[tuple[Stamp, int, Key]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Queued]:
        """What waits, in order."""
        found = [(each.stamp, not each.is_decided, key) for key, each in self._waiting.items()]
        for stamp, is_undecided, key in sorted(found):
            yield Queued(key, stamp, not is_undecided)

    def propose(self, origin: int, number: int) -> int:
        """A block has come, the next of its sender: the number that we propose for it (section 3.2.2.2)."""
        self.clock += 1
        key, stamp = (origin, number), (self.clock, self._me)
        each = self._waiting[key] = _Waiting(self.clock, stamp)
        undecided = self._undecided.get(origin)
        if undecided is None:
            undecided = self._undecided[origin] = {}
        undecided[number] = each
        heappush(self._heap, (stamp, 1, key))
        return self.clock

    def proposed(self, origin: int, number: int) -> int:
        """What we proposed for a block that is not decided; 0 if there is none such here."""
        each = self._undecided.get(origin, {}).get(number)
        return each.proposed if each is not None else 0

    def acknowledge(self, origin: int, number: int) -> int:
        """As `proposed`, and an acknowledgement with it leaves now."""
        each = self._undecided.get(origin, {}).get(number)
        if each is None:
            return 0
        each.acked = self.clock
        return each.proposed

    def undecided(self, origin: int) -> list[int]:
        """The blocks of a sender that wait for their decision, in order."""
        return list(self._undecided.get(origin, ()))

    def open_origins(self) -> list[int]:
        """Whose blocks wait for their decision."""
        return list(self._undecided)

    def decide(self, origin: int, number: int, stamp: Stamp) -> int:
        """The final timestamp of a block (section 3.2.3.2). Our clock when we acknowledged it last; 0 if it does not
        wait here."""
        waiting = self._undecided.get(origin)
        each = waiting.pop(number, None) if waiting is not None else None
        if waiting is None or each is None:
            return 0
        if not waiting:
            del self._undecided[origin]
        each.is_decided = True
        each.stamp = stamp
        heappush(self._heap, (stamp, 0, (origin, number)))
        # The paper omits this: what we propose from now on must come after what we may deliver from now on.
        self.clock = max(self.clock, stamp[0])
        return each.acked

    def first_after(self, origin: int, clock: int) -> int:
        """The first undecided block of a sender that we have proposed for since our clock was `clock`; -1: none."""
        found = -1
        waiting = self._undecided.get(origin, {})
        for number in reversed(waiting):
            if waiting[number].proposed <= clock:
                break
            found = number
        return found

    def anticipate(self, origin: int, first: int, stamp: Stamp) -> None:
        """Blocks of `origin` from `first` on get no less than `stamp`, and one more for each (section 3.2.3.2)."""
        waiting = self._undecided.get(origin)
        if waiting is None:
            return
        number, member = stamp
        for at in reversed(waiting):
            if at < first:
                break
            each, stamp = waiting[at], (number + at - first, member)
            if each.stamp < stamp:
                each.stamp = stamp
                heappush(self._heap, (stamp, 1, (origin, at)))
        if len(self._heap) > 2 * len(self._waiting) + SLACK:
            self._compact()

    def undecided_senders(self) -> list[int]:
        """The senders of which a block waits here for its decision."""
        return list(self._undecided)

    def forget_bounds(self) -> None:
        """Back to our own proposals: the bounds were of a list of members that is no more."""
        for waiting in self._undecided.values():
            for each in waiting.values():
                each.stamp = (each.proposed, self._me)
        self._compact()

    def take(self) -> Key | None:
        """The first block, if it is decided: it leaves the queue."""
        heap, waiting = self._heap, self._waiting
        while heap:
            stamp, is_undecided, key = heap[0]
            each = waiting.get(key)
            if each is None or each.stamp != stamp or each.is_decided == is_undecided:
                heappop(heap)  # it has moved, or has left
                continue
            if is_undecided:
                return None
            heappop(heap)
            del waiting[key]
            return key
        return None

    def remove(self, key: Key) -> None:
        """Its sequence number is known from elsewhere."""
        if self._waiting.pop(key, None) is not None:
            origin, number = key
            waiting = self._undecided.get(origin)
            if waiting is not None:
                waiting.pop(number, None)
                if not waiting:
                    del self._undecided[origin]

    def _compact(self) -> None:
        self._heap = [(each.stamp, int(not each.is_decided), key) for key, each in self._waiting.items()]
        heapify(self._heap)
