"""What waits for the same set of regions, in the order in which it was offered: a queue that gives parts of itself.

A group is in one set of regions at a time, its *route*. A message leaves for all regions of its route in one pass, or
for none. The reason: an epoch may move a member from one region to another, and a message that had left for the first
and not for the second would never reach it. (A queue for each lane was tried on paper: it has that hole, and nothing
that is done at the epoch closes it without sending something twice.) Routes do not hold up one another, as one queue
for all of them would.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from ordercast.groups.queue import LARGE_BYTES, QUEUE_BYTES, QUEUE_MESSAGES, TARGETS_BYTES
from ordercast.groups.queued import (
    AddressedMessages,
    Addressees,
    EachTarget,
    LargeMessage,
    NumberedTargets,
    Stretch,
    Target,
    listed,
)
from ordercast.groups.regions.waits import LaneWait
from ordercast.service import FIFO, FIFO_RANK, Service

RouteItem = Stretch | LargeMessage | AddressedMessages

NO_ORDER: Final = 1 << 62
"""Of a queue in which nothing waits."""


class Route:
    """The messages to one set of regions. `order` of an item rises over all routes of a node."""

    __slots__ = ("_items", "count", "marks", "nbytes", "offered", "regions", "taken")

    def __init__(self, regions: tuple[int, ...]) -> None:
        self.regions = regions
        self._items: deque[tuple[int, RouteItem]] = deque()
        self.count = 0  # messages that wait
        self.nbytes = 0
        self.offered = 0  # messages so far; a mark stands behind so many
        self.taken = 0
        self.marks: deque[tuple[int, LaneWait]] = deque()

    @property
    def has_room(self) -> bool:
        return self.nbytes < QUEUE_BYTES and self.count < QUEUE_MESSAGES

    @property
    def is_idle(self) -> bool:
        return not self._items and not self.marks

    @property
    def head(self) -> RouteItem | None:
        return self._items[0][1] if self._items else None

    @property
    def order(self) -> int:
        """Of what waits longest."""
        return self._items[0][0] if self._items else NO_ORDER

    def items(self) -> list[RouteItem]:
        """What waits, in order."""
        return [item for _, item in self._items]

    # In.

    def offer(self, payload: bytes, service: Service, type_: int, group: Target, order: int, after: int) -> None:
        """Take one message. It shares an item with what was offered just before, unless that is of the order `after`
        or earlier: something else has come in between. Hot: once per `send`."""
        self._count(1, len(payload))
        if len(payload) > LARGE_BYTES:
            self._items.append((order, LargeMessage(group, whole(service), type_, payload)))
            return
        if self._items:
            at, last = self._items[-1]
            if (
                at > after
                and isinstance(last, Stretch)
                and isinstance(last.payloads, list)
                and not last.lengths
                and last.type == type_
                and (last.service is service or last.service == service)
                and not isinstance(last.groups, NumberedTargets)
            ):
                last.append(payload, group)
                return
        self._items.append((order, Stretch(group, service, type_, [payload])))

    def offer_many(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int] | None,
        group: Target | None,
        groups: EachTarget | None,
        order: int,
    ) -> int:
        """Take as many messages, from the first on, as the bound allows; how many. `groups`: of each, instead of one.
        The sequences are kept, not copied."""
        room = QUEUE_BYTES - self.nbytes
        take = min(len(payloads), QUEUE_MESSAGES - self.count)
        if room <= 0 or take <= 0:
            return 0
        if lengths is None:
            lengths = list(map(len, payloads))
        total = sum(lengths)
        if total >= room:
            take = min(take, bisect_left(list(accumulate(lengths)), room) + 1)
        if take < len(lengths):
            payloads, lengths = payloads[:take], lengths[:take]
            groups = part_of(groups, 0, take)
            total = sum(lengths)
        if max(lengths) > LARGE_BYTES:
            targets = listed(groups) if groups is not None else [group] * take
            for payload, target in zip(payloads, targets, strict=True):
                if target is not None:
                    self.offer(payload, service, type_, target, order, order)
            return take
        self._items.append((order, stretch_of(payloads, service, type_, lengths, group, groups)))
        self._count(take, total)
        return take

    def offer_addressed(
        self, payloads: list[bytes], service: Service, type_: int, groups: Addressees, order: int
    ) -> None:
        """Take messages, each of which goes to all of these groups."""
        for payload in payloads:
            self._count(1, len(payload))
            if len(payload) > LARGE_BYTES - TARGETS_BYTES:
                self._items.append((order, LargeMessage(None, whole(service), type_, payload, groups)))
            else:
                self._items.append((order, AddressedMessages(groups, service, type_, [payload])))

    def mark(self, wait: LaneWait) -> None:
        """`wait` is for everything that was offered so far."""
        wait.marks += 1
        self.marks.append((self.offered, wait))

    # Out.

    def draw(self, budget: int, largest: int, column: int) -> Stretch | None:
        """The next messages, of one service and type, that fit `budget` bytes with `column` bytes for each; None: none
        fits. The item at the head is a stretch. A message beyond `largest` becomes a large one, and is the head then.
        """
        order, stretch = self._items[0]
        assert isinstance(stretch, Stretch)
        stretch.measure()
        at, lengths = stretch.at, stretch.lengths
        take = stretch.fit(budget, len(lengths) - at, column)
        if not take:
            if lengths[at] + column > largest:
                self._make_large(order, stretch)
            return None
        if not at and take == len(lengths):
            self._items.popleft()
            part = stretch
        else:
            part = stretch_of(
                stretch.payloads[at : at + take],
                stretch.service,
                stretch.type,
                lengths[at : at + take],
                stretch.group,
                part_of(stretch.groups, at, at + take),
            )
            stretch.at += take
            if stretch.at == len(lengths):
                self._items.popleft()
        self._take(take, part.nbytes)
        return part

    def draw_addressed(self) -> AddressedMessages | None:
        """The message at the head, where it goes to several groups, or to one that this node is not in."""
        item = self._items[0][1]
        if not isinstance(item, AddressedMessages):
            return None
        self._items.popleft()
        self._take(len(item.payloads), sum(item.lengths))
        return item

    def end_large(self) -> None:
        """The last fragment of the large message at the head has left."""
        item = self._items.popleft()[1]
        assert isinstance(item, LargeMessage)
        self._take(1, len(item.payload))

    def take_marks(self) -> list[LaneWait]:
        """The marks that everything has left for."""
        found: list[LaneWait] = []
        while self.marks and self.marks[0][0] <= self.taken:
            found.append(self.marks.popleft()[1])
        return found

    def take_all(self) -> list[tuple[int, RouteItem]]:
        """Everything that waits, to be put into other routes: an epoch was installed. Marks stay."""
        items, self._items = list(self._items), deque()
        self.taken = self.offered
        self.count = self.nbytes = 0
        return items

    def list_targets(self) -> None:
        """Groups are about to get other numbers: keep their names."""
        for _, item in self._items:
            if isinstance(item, Stretch):
                item.list_targets()

    def make_addressed_large(self, item: AddressedMessages) -> None:
        """The message at the head does not fit the largest block of these lanes."""
        order = self._items.popleft()[0]
        large = LargeMessage(None, whole(item.service), item.type, item.payloads[0], item.groups)
        self._items.appendleft((order, large))

    def put(self, order: int, item: RouteItem) -> None:
        """One of those that another route had."""
        if isinstance(item, LargeMessage):
            item.offset = 0  # the members of new views have no beginning of it, and nobody has it whole
            self._count(1, len(item.payload))
        else:
            payloads = item.payloads[item.at :]
            self._count(len(payloads), sum(map(len, payloads)))
        self._items.append((order, item))

    def _make_large(self, order: int, stretch: Stretch) -> None:
        """The next message does not fit the largest block of these lanes."""
        large = LargeMessage(stretch.target, whole(stretch.service), stretch.type, stretch.payloads[stretch.at])
        stretch.at += 1
        if stretch.at == len(stretch.lengths):
            self._items.popleft()
        self._items.appendleft((order, large))

    def _count(self, messages: int, nbytes: int) -> None:
        self.count += messages
        self.offered += messages
        self.nbytes += nbytes

    def _take(self, messages: int, nbytes: int) -> None:
        self.count -= messages
        self.taken += messages
        self.nbytes -= nbytes


def stretch_of(
    payloads: Sequence[bytes],
    service: Service,
    type_: int,
    lengths: list[int],
    group: Target | None,
    groups: EachTarget | None,
) -> Stretch:
    """A measured stretch."""
    stretch = Stretch(group if groups is None else None, service, type_, payloads, groups)
    stretch.set_lengths(lengths)
    return stretch


def copy_of(stretch: Stretch) -> Stretch:
    """The same messages for another lane: everything is shared, but how far it has got."""
    copy = Stretch(stretch.group, stretch.service, stretch.type, stretch.payloads, stretch.groups)
    copy.lengths, copy.equal, copy.ends = stretch.lengths, stretch.equal, stretch.ends
    return copy


def part_of(groups: EachTarget | None, start: int, stop: int) -> EachTarget | None:
    """The groups of messages [start, stop)."""
    if groups is None:
        return None
    return groups.part(start, stop) if isinstance(groups, NumberedTargets) else groups[start:stop]


def whole(service: Service) -> Service:
    """The service of a large message's fragments: they have to come in order, and none may be lost."""
    return FIFO if service.rank < FIFO_RANK else service
