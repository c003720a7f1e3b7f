"""What a node has in one region: a queue that packs blocks across groups, and how far they are acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ordercast.config import MAX_BLOCK
from ordercast.groups.queue import Packed, SendQueue
from ordercast.groups.queued import AddressedMessages, Addressees, LargeMessage, Stretch
from ordercast.groups.regions.waits import LaneWaits
from ordercast.service import Service
from ordercast.wire.block import OVERHEAD, pack_fragment

BlockKind = tuple[Service, int, Addressees | None]
"""Messages of one service and type, each to one group or all to the same groups, share a block."""


class SentNumbers(NamedTuple):
    """What a node has sent in its life to regions that it has left since: it goes on with these numbers."""

    regions: Mapping[int, int] = MappingProxyType({})  # the number of the next message, by region
    serial: int = 0


class SendLane:
    """One region that this node sends to. Messages are numbered over all views of the region, and over all stays."""

    __slots__ = (
        "_serials",
        "acked",
        "kind",
        "large",
        "largest",
        "queue",
        "ready",
        "region",
        "room",
        "space",
        "submitted",
        "view",
        "waits",
    )

    def __init__(self, region: int, next_number: int, submitted: int) -> None:
        self.region = region
        self.queue = SendQueue(next_number)  # filled and emptied in one pass
        # A message of which fragments are out: nothing else leaves before its end, or it would take its number.
        self.large: LargeMessage | None = None
        self.ready: list[Packed] = []  # packed, and refused by the engine for now
        # of the pass
        self.view = ""  # of the region, when the blocks that are ready were packed
        self.room = 0  # bytes that may leave
        self.space = 0  # bytes of messages that the next block has room for
        self.kind: BlockKind | None = None  # of the messages that are in the queue; None: there are none
        self.largest = MAX_BLOCK
        # Blocks that the engine took, over all views, and how many of them are acknowledged.
        self.submitted = submitted
        self.acked = submitted
        self.waits = LaneWaits()
        # For the trace: the serial of messages of the lane, as (first number, how many, first serial).
        self._serials: deque[tuple[int, int, int]] = deque()

    @property
    def is_idle(self) -> bool:
        """Nothing is out or waits."""
        return self.acked >= self.submitted and not self.ready and not self.queue.count

    def open(self, room: int, largest: int, view: str) -> None:
        """A pass begins."""
        if not self.ready:
            self.view = view
        self.largest = min(largest, MAX_BLOCK)
        self.room = room if not self.ready else 0
        self.space = self.largest - OVERHEAD
        self.kind = None

    def takes(self, kind: BlockKind, head: object) -> bool:
        """Whether messages of this kind may be in the next block. `head`: what is to leave."""
        if self.large is not None and self.large is not head:
            return False
        return self.kind is None or (self.space > 0 and self.kind == kind)

    def add(self, stretch: Stretch, serial: int) -> None:
        """Take messages that follow one another."""
        count = len(stretch.lengths)
        self._serials.append((self.queue.end_number, count, serial))
        self.queue.offer_stretch(stretch)

    def add_addressed(self, item: AddressedMessages, serial: int) -> None:
        """Take messages to several groups."""
        self._serials.append((self.queue.end_number, len(item.payloads), serial))
        for payload in item.payloads:
            self.queue.offer_addressed(payload, item.service, item.type, item.groups)

    def add_fragment(self, large: LargeMessage, start: int, stop: int, numbers: list[int], serial: int) -> None:
        """Take bytes [start, stop) of a large message. With the last of them it has its number."""
        self.pack()
        queue = self.queue
        number = numbers[0] if len(numbers) == 1 else 0
        targets = numbers if len(numbers) > 1 else ()
        first, is_last = queue.next_number, stop == len(large.payload)
        block = pack_fragment(first, large.service, number, large.type, large.payload, start, stop, 0, targets)
        nbytes = len(large.payload) if is_last else 0
        shown = int(is_last)
        self.ready.append(
            Packed(block, first, shown, nbytes, large.service, shown, large.group, None, large.groups, numbers)
        )
        self.large = None if is_last else large
        if is_last:
            self._serials.append((first, 1, serial))
            queue.next_number += 1

    def pack(self) -> None:
        """Make blocks of all that is in the queue."""
        queue, ready, largest = self.queue, self.ready, self.largest
        while queue.count:
            packed = queue.pack(largest, largest)
            if packed is None:
                break
            ready.append(packed)

    def serials(self, count: int) -> list[tuple[int, int, int]]:
        """Of so many messages that the engine has taken: (first number, how many, first serial) for each run."""
        found: list[tuple[int, int, int]] = []
        serials = self._serials
        while count and serials:
            at, size, serial = serials.popleft()
            run = min(size, count)
            found.append((at, run, serial))
            if run < size:
                serials.appendleft((at + run, size - run, serial + run))
            count -= run
        return found
