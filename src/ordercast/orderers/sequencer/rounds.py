"""When the sequencer asks all members how far they are, so that its history has room (Amoeba sections 4.1 and 5).

The paper asks when the history is full, and everybody waits for the answers. Here the sequencer asks a little earlier,
so that senders need not stop: by as much as was ordered while it waited for the answers the last few times. One sender
that waits for each of its messages stops for no longer than a message takes, so the history fills to its last place:
n/H + 2 datagrams for a broadcast, with H blocks of history.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ordercast.config import MS
from ordercast.parts.log import Entry, Log

ROUNDS_KEPT: Final = 4  # whose length decides when the next one begins
STALL_NS: Final = MS  # a history that is full for so long has held up senders
UNKNOWN: Final = 1 << 40  # bytes: more than any history


class StatusRounds:
    """A round begins with a STATUS, and ends when all members have consumed what was ordered before it."""

    __slots__ = (
        "_blocked_ns",
        "_costs",
        "_is_for_room",
        "_largest",
        "_recent_blocks",
        "_recent_bytes",
        "_round_blocks",
        "_round_bytes",
        "_since_bytes",
        "_unstable",
        "asked_seq",
    )

    def __init__(self) -> None:
        self.asked_seq = -1  # how far the log was when members were asked
        self._is_for_room = False
        self._since_bytes = 0  # ordered since then
        self._round_blocks = 0  # since the first STATUS of a round that takes long
        self._round_bytes = 0
        self._blocked_ns = -1  # since when the history has been full; -1: it is not
        # What was ordered during the last rounds. At first that is not known: a history of blocks is filled as in the
        # paper, and one of bytes, which fast senders fill, by half.
        self._recent_blocks: deque[int] = deque([0], maxlen=ROUNDS_KEPT)
        self._recent_bytes: deque[int] = deque([UNKNOWN], maxlen=ROUNDS_KEPT)
        # What of the history is whose
        self._costs: deque[tuple[int, int, int]] = deque()  # sequence number, origin, bytes; bounded by the history
        self._unstable: dict[int, int] = {}  # origin -> bytes
        self._largest = 0  # of these

    def is_open(self, log: Log) -> bool:
        """Whether answers are awaited."""
        return self.asked_seq > log.stable

    def ordered(self, entry: Entry) -> None:
        """The block has its sequence number."""
        cost, origin = entry.cost, entry.origin
        self._round_blocks += 1
        self._round_bytes += cost
        self._since_bytes += cost
        self._costs.append((entry.seq, origin, cost))
        filled = self._unstable[origin] = self._unstable.get(origin, 0) + cost
        if filled > self._largest:
            self._largest = filled

    def blocked(self, now_ns: int) -> None:
        """Something waits to be ordered, and the history is full."""
        if self._blocked_ns < 0:
            self._blocked_ns = now_ns

    def freed(self, now_ns: int, before: int, stable: int, limit_blocks: int, share_bytes: int) -> None:
        """Everything up to `stable` has left the history, which began behind `before`."""
        costs, unstable = self._costs, self._unstable
        while costs and costs[0][0] <= stable:
            _, origin, cost = costs.popleft()
            left = unstable[origin] - cost
            if left:
                unstable[origin] = left
            else:
                del unstable[origin]
        self._largest = max(unstable.values(), default=0)
        if before < self.asked_seq <= stable and self._is_for_room:
            self._measure(now_ns, limit_blocks, share_bytes)
        self._blocked_ns = -1

    def asked(self, log: Log, is_for_room: bool) -> None:
        """A STATUS goes out. Where answers to the one before are awaited still, both are one long round."""
        if not self.is_open(log):
            self._round_blocks = self._round_bytes = 0
            self._is_for_room = is_for_room
        self.asked_seq = log.received
        self._since_bytes = 0

    def is_due(self, log: Log, limit_blocks: int, share_bytes: int) -> bool:
        """Whether to ask now. `share_bytes`: what one sender may have in the history."""
        if self.is_open(log):
            return self._since_bytes >= share_bytes // 2  # the answers take long: those to the next may come with them
        if len(log.entries) >= limit_blocks - self._margin(self._recent_blocks, limit_blocks):
            return True
        return self._largest >= share_bytes - self._margin(self._recent_bytes, share_bytes)

    def _measure(self, now_ns: int, limit_blocks: int, share_bytes: int) -> None:
        """A round is over: what was ordered meanwhile is what the next one needs. One that was too short to tell counts
        double: senders had to stop."""
        blocks = max(0, self._round_blocks - 1)  # one may wait for the answers
        if 0 <= self._blocked_ns <= now_ns - STALL_NS:
            blocks = max(blocks, 2 * self._margin(self._recent_blocks, limit_blocks) + 1)
        nbytes = self._round_bytes
        if nbytes >= self._margin(self._recent_bytes, share_bytes):
            nbytes *= 2
        self._recent_blocks.append(blocks)
        self._recent_bytes.append(nbytes)

    def _margin(self, recent: deque[int], limit: int) -> int:
        """How long before the end of what there is to ask."""
        return min(max(recent) * 3 // 2, limit // 2)
