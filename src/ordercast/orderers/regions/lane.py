"""A lane: what one sender has in one region view (QSM sections 2.3 and 2.4; docs/design/regions.md).

Blocks are numbered from 0 on, OPEN first, and kept until ACK covers them. A lane is *live* until an epoch ends its
view, then *closing* until the region knows its final count and has acknowledged everything, and *done* once everybody
in the region has everything.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ordercast.engine import NEVER
from ordercast.orderers.regions.given import GivenView
from ordercast.parts.ranges import NumberSet, blocks_of, from_numbers, members_of, pieces_of
from ordercast.parts.rate import SendingRate
from ordercast.wire.ranges import EMPTY
from ordercast.wire.regions import CLOSED, MAX_LANE_BLOCKS, RegionAck

UNPURGED: Final = 4  # times the history that may be acknowledged by cachers and lacked by somebody else
ANSWERED: Final = 1_024  # blocks that one NAK is answered for; the rest is asked for again


class NakAnswer(NamedTuple):
    """What a NAK asks for and is kept: runs of segments of each block. `gone`: what is not kept any more."""

    blocks: list[tuple[int, bytes, tuple[tuple[int, int], ...]]]
    gone: NumberSet


class LaneWindow:
    """Bytes of one lane that may be unacknowledged: its share of what members' buffers take, and `least` at any rate.
    `senders`: how many share it, as far as anybody knows. Each datagram takes `overhead` of a buffer besides."""

    __slots__ = ("_ceiling", "_least", "bytes", "largest", "overhead")

    def __init__(self, ceiling: int, least: int, largest: int, senders: int, overhead: int = 0) -> None:
        self._ceiling = ceiling
        self._least = least
        self.largest = largest  # block that it takes
        self.overhead = overhead
        self.share(senders)

    def share(self, senders: int) -> None:
        self.bytes = max(self._least, self._ceiling // max(1, senders))


class RegionLane:
    __slots__ = (
        "_ordinals",
        "_sizes",
        "_taken",
        "_under_way",
        "ack",
        "close_ns",
        "closings",
        "count",
        "ended",
        "given",
        "is_closed",
        "is_drained",
        "kept",
        "purge",
        "rate",
        "tail_ns",
        "tails",
        "unacked_bytes",
        "unpurged_bytes",
        "window",
    )

    def __init__(self, given: GivenView, rate: SendingRate, window: LaneWindow) -> None:
        self.given = given
        self.rate = rate
        self.window = window
        self.count = 0
        self.kept: dict[int, bytes] = {}
        self._ordinals: dict[int, int] = {}  # of kept blocks: which of those that were ever taken for the region
        self._sizes: deque[int] = deque()  # of blocks that are not purged
        self._taken: deque[int] = deque()  # of members' buffers, by blocks that are kept
        self._under_way = 0  # the sum of that
        self.unacked_bytes = 0
        self.unpurged_bytes = 0
        self.ack = 0
        self.purge = 0
        # Ends
        self.ended = 0  # the epoch that ended its view
        self.is_closed = False  # the region knows the final count
        self.is_drained = False
        self.closings = 0  # how often CLOSE was said
        self.close_ns = NEVER
        self.tail_ns = NEVER
        self.tails = 0  # how often the last block was sent again since an ACK has freed something

    def room(self, history_bytes: int, history_blocks: int, segment_bytes: int) -> int:
        """Bytes that may leave now."""
        if self.ended or len(self.kept) >= history_blocks or self.count >= MAX_LANE_BLOCKS:
            return 0
        if len(self._sizes) >= UNPURGED * history_blocks:
            return 0
        free = min(
            history_bytes - self.unacked_bytes,
            self.window.bytes - self._under_way,
            UNPURGED * history_bytes - self.unpurged_bytes,
        )
        return max(0, min(free, self.rate.credits * segment_bytes))

    def add(self, now_ns: int, block: bytes, ordinal: int, segments: int, tail_ns: int) -> int:
        """A block leaves; its number. `ordinal`: -1 of OPEN."""
        number = self.count
        self.count += 1
        self.kept[number] = block
        if ordinal >= 0:
            self._ordinals[number] = ordinal
        size = len(block)
        self._sizes.append(size)
        self.unacked_bytes += size
        self.unpurged_bytes += size
        self._taken.append(size + segments * self.window.overhead)
        self._under_way += self._taken[-1]
        self.rate.take(now_ns, segments)
        if self.tail_ns == NEVER:
            self.tail_ns = now_ns + tail_ns
        return number

    @property
    def first_open(self) -> int:
        """The first block of the application that is not acknowledged, as an ordinal; -1: none."""
        for ordinal in self._ordinals.values():
            return ordinal
        return -1

    def on_ack(self, now_ns: int, ack: RegionAck, tail_ns: int) -> bool:
        """Whether it frees anything. What it cannot know is not believed."""
        if max(ack.ack, ack.purge) > self.count:
            return False
        has_freed = ack.ack > self.ack
        for number in range(self.ack, ack.ack):
            self.unacked_bytes -= len(self.kept.pop(number))
            self._under_way -= self._taken.popleft()
            self._ordinals.pop(number, None)
        self.ack = max(self.ack, ack.ack)
        for _ in range(self.purge, ack.purge):
            self.unpurged_bytes -= self._sizes.popleft()
        self.purge = max(self.purge, ack.purge)
        if self.ended and ack.flags & CLOSED:
            self.is_closed = True
        if not self.kept:
            self.tail_ns = NEVER
        elif has_freed:
            self.tail_ns = now_ns + tail_ns
        if has_freed:
            self.tails = 0
        if not self.ended:
            self.rate.report(now_ns, ack.rate, ack.senders)
            self.window.share(ack.senders)
        return has_freed

    def answer(self, partition: int, count: int, segments: NumberSet, step: int) -> NakAnswer:
        """To a NAK of a partition, one of `count`."""
        found = []
        gone = []
        for divided in members_of(blocks_of(segments), ANSWERED):
            number = divided * count + partition
            if number >= self.count:
                break
            block = self.kept.get(number)
            if block is None:
                gone.append(number)
            else:
                pieces = pieces_of(segments, divided, max(1, -(-len(block) // step)))
                found.append((number, block, pieces))
        return NakAnswer(found, from_numbers(gone) if gone else EMPTY)

    def end(self, now_ns: int, epoch: int) -> None:
        self.ended = epoch
        self.close_ns = now_ns

    def drain(self) -> None:
        """The view is forgotten where it was asked about: everybody has everything."""
        self.is_drained = True
        self.kept.clear()
        self._ordinals.clear()
        self._sizes.clear()
        self._taken.clear()
        self._under_way = 0
        self.unacked_bytes = self.unpurged_bytes = 0
        self.tail_ns = NEVER

    @property
    def is_settled(self) -> bool:
        """Nobody needs this sender for the view any more: the epoch that ended it may be confirmed."""
        return self.is_drained or (self.is_closed and not self.kept)

    @property
    def is_done(self) -> bool:
        """And everybody has everything: it need not be named in OPEN."""
        return self.is_drained or (self.is_settled and self.purge >= self.count)

    @property
    def is_stable(self) -> bool:
        return self.purge >= self.count
