"""Blocks that this member answers for, from `submit` until they are stable: its own, and those of gone senders.

Amoeba's sender keeps its message until it sees it come back with a sequence number (section 4.1). Retransmission times
come from the round trip, double with each try up to a bound, and after ten tries the sequencer is suspected (4.2).
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS, Timing
from ordercast.engine import NEVER
from ordercast.parts.rtt import RoundTrip

AT_ONCE: Final = 16  # blocks retransmitted in one go: more would add to the congestion that lost them


class Unordered:
    """A block that has no sequence number yet."""

    __slots__ = ("block", "sent_ns", "since_ns", "tries")

    def __init__(self, block: bytes, sent_ns: int) -> None:
        self.block = block
        self.since_ns = sent_ns  # when it was sent first
        self.sent_ns = sent_ns
        self.tries = 0


class Outgoing:
    __slots__ = ("_costs", "_me", "_progress_ns", "_rtt", "_timing", "bytes", "is_exhausted", "unordered")

    def __init__(self, me: int, timing: Timing) -> None:
        self._me = me
        self._timing = timing
        self._rtt = RoundTrip(timing)
        self.unordered: dict[tuple[int, int], Unordered] = {}  # by origin and number, in the order of submission
        self._costs: dict[int, int] = {}  # own number -> cost, ordered or not, until stable
        self.bytes = 0  # their sum: what our window is held against
        self.is_exhausted = False  # ten tries in vain
        self._progress_ns = 0  # when one of them was last ordered

    def keep(self, now_ns: int, origin: int, number: int, block: bytes, cost: int) -> None:
        self.unordered[origin, number] = Unordered(block, now_ns)
        if origin == self._me:
            self._costs[number] = cost
            self.bytes += cost

    def ordered(self, now_ns: int, origin: int, number: int) -> bool:
        """It has its sequence number; False if we do not answer for it."""
        found = self.unordered.pop((origin, number), None)
        if found is None:
            return False
        self.is_exhausted = False
        # What we ordered ourselves has been nowhere. Of those that come back together the first took longest. They tell
        # of one round trip: as many samples would make the deviation vanish, and with it all patience.
        if not found.tries and now_ns > found.sent_ns and now_ns != self._progress_ns:
            self._rtt.sample(now_ns - found.sent_ns)
        self._progress_ns = now_ns
        return True

    def sent_late(self, now_ns: int, number: int) -> bytes | None:
        """An own block leaves only now; None if it need not any more."""
        found = self.unordered.get((self._me, number))
        if found is None:
            return None
        found.sent_ns = now_ns
        return found.block

    def stable(self, number: int) -> None:
        """An own block left the history: its share of the window is free."""
        self.bytes -= self._costs.pop(number, 0)

    @property
    def count(self) -> int:
        """Own blocks that are not stable."""
        return len(self._costs)

    @property
    def has_own(self) -> bool:
        """Whether own blocks wait to be ordered."""
        return any(origin == self._me for origin, _ in self.unordered)

    @property
    def has_orphans(self) -> bool:
        return any(origin != self._me for origin, _ in self.unordered)

    def own(self) -> list[tuple[int, bytes]]:
        """Own blocks without a sequence number, in order."""
        return [(number, each.block) for (origin, number), each in self.unordered.items() if origin == self._me]

    def acknowledged(self, now_ns: int, upto: int, sender: int = 0) -> None:
        """Blocks of `sender` (0: ours) below `upto` are held and wait: no reason to send them again, for some time."""
        sender = sender or self._me
        lately_ns = now_ns - self._timing.held_ns
        for (origin, number), each in self.unordered.items():
            if origin == sender and number < upto and each.since_ns > lately_ns:
                each.sent_ns, each.tries = now_ns, 0

    def restart(self, now_ns: int) -> None:
        """Everything is sent anew, to a new sequencer or member."""
        self.is_exhausted = False
        for each in self.unordered.values():
            each.sent_ns, each.since_ns, each.tries = now_ns, now_ns, 0

    def due(self, now_ns: int, most: int = AT_ONCE) -> list[tuple[int, int, bytes]]:
        """Origin, number and block of what to send again now; counted as tried."""
        found = []
        last_ns = 0
        for (origin, number), each in self.unordered.items():
            if self._due_ns(each) > now_ns:
                continue
            last_ns = max(last_ns, each.sent_ns)
            each.sent_ns = now_ns
            each.tries += 1
            self.is_exhausted = self.is_exhausted or each.tries > self._timing.tries
            found.append((origin, number, each.block))
            if len(found) >= most:
                break
        if found:
            self._rtt.expired_one(now_ns, last_ns)
        return found

    def deadline_ns(self, now_ns: int) -> int:
        """When the next one is due; never at once, since a timer that is always due is a loop."""
        soonest = min(map(self._due_ns, self.unordered.values()), default=NEVER)
        return max(soonest, now_ns + MS) if soonest < NEVER else NEVER

    def _due_ns(self, each: Unordered) -> int:
        # Blocks are ordered in the sender's order: while sequence numbers come, the blocks behind wait for their turn.
        # Counting from the last one keeps a long queue from being taken for a loss.
        return max(each.sent_ns, self._progress_ns) + self._rtt.timeout_ns(each.tries)
