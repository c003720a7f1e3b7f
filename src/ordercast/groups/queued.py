"""What stands in a send queue: messages as the application gave them, with the groups that they are for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ordercast.errors import WireError
from ordercast.service import Service
from ordercast.wire.block import (
    ENTRY,
    ENTRY_BYTES,
    EQUAL,
    FLAGS_OFFSET,
    FULL_HEAD,
    HEAD_BYTES,
    Head,
    group_column,
    label_of,
    open_column,
    open_columns,
    open_messages,
    payload_bytes,
    service_of,
    type_of,
)
from ordercast.wire.calls import CallHead

NO_NUMBER: Final = -1
"""Of a group that this node is not in yet."""

OPENED_BYTES: Final = 16 << 10
"""A block of a client below this is opened, so that small ones of one or several sends become large ones."""

NOBODY: Final = 0
"""The number that no group of a shared underlay has: a message to it is delivered to nobody."""


class Target(Protocol):
    """The group that a message is for: a port, or a name. Its number may change while the message waits, because this
    node was out of the underlay in between, or the session is out of the group; so it is asked for when a block is
    packed."""

    number: int  # NO_NUMBER: none yet, and the message waits
    messages_sent: int

    def lose(self, first: int, count: int) -> None:
        """Own messages to it were lost with this node's membership."""


class Addressees(Protocol):
    """Groups that a message is for."""

    def numbers(self) -> Sequence[int] | None:
        """Their numbers; None: not all of them have one yet."""

    def lose(self, first: int, count: int) -> None:
        """Own messages to them were lost with this node's membership."""


class Routes(Protocol):
    """The groups of this node by their numbers."""

    def target_of(self, number: int) -> Target:
        """The group of this number, which a session of this node is in."""


class NumberedTargets:
    """The group of each of many messages, by its number: a column for a block, without an object per message.

    The numbers hold while this node is in the groups. Before it leaves one of them the stream asks for the groups
    themselves (`Stream.forget_number`).
    """

    __slots__ = ("_routes", "numbers")

    def __init__(self, numbers: npt.NDArray[np.uint32], routes: Routes) -> None:
        self.numbers = numbers
        self._routes = routes

    def part(self, start: int, stop: int) -> NumberedTargets:
        return NumberedTargets(self.numbers[start:stop], self._routes)

    def over(self, column: bytes) -> NumberedTargets:
        """The same for the column of a block."""
        return NumberedTargets(open_column(column), self._routes)

    def listed(self) -> Sequence[Target]:
        target_of = self._routes.target_of
        numbers: list[int] = self.numbers.tolist()
        return [target_of(number) for number in numbers]


EachTarget: TypeAlias = "Sequence[Target] | NumberedTargets"
"""The group of each message."""


def listed(groups: EachTarget) -> Sequence[Target]:
    """The groups themselves."""
    return groups.listed() if isinstance(groups, NumberedTargets) else groups


class Stretch:
    """Consecutive messages of one service, type and priority, as the application gave them: bytes need no copy."""

    __slots__ = ("at", "ends", "equal", "group", "groups", "lengths", "payloads", "priority", "service", "type")

    def __init__(
        self,
        group: Target | None,
        service: Service,
        type_: int,
        payloads: Sequence[bytes],
        groups: EachTarget | None = None,
        priority: int = 0,
    ) -> None:
        self.group = group  # of all messages
        self.groups = groups  # of each message, where they differ; then `group` is None
        self.service = service
        self.type = type_
        self.priority = priority
        self.payloads: Sequence[bytes] = payloads
        self.lengths: list[int] = []  # filled by `measure`: then nothing is appended any more
        self.equal = -1  # the length that all messages share, or -1
        self.ends: list[int] = []  # bytes up to the end of each message; only when they differ
        self.at = 0  # messages taken

    def measure(self) -> None:
        """Find out what is needed to cut blocks; once."""
        if not self.lengths:
            self.set_lengths(list(map(len, self.payloads)))

    def append(self, payload: bytes, group: Target) -> None:
        """One more message, where `payloads` is a list of our own. Hot: once per `send`."""
        payloads = self.payloads
        if self.group is not group:
            groups = self.groups
            if groups is None:
                groups = self.groups = [self.group] * len(payloads)  # type: ignore[list-item]
                self.group = None
            groups.append(group)  # type: ignore[union-attr]
        payloads.append(payload)  # type: ignore[attr-defined]

    def targets(self, start: int, stop: int) -> EachTarget:
        """The group of each message [start, stop)."""
        groups = self.groups
        if groups is None:
            return [self.target] * (stop - start)
        return groups.part(start, stop) if isinstance(groups, NumberedTargets) else groups[start:stop]

    def column(self, count: int) -> bytes:
        """The number of the group of each of the next messages, as a block has them, up to the first whose group has
        none."""
        groups = self.groups
        if isinstance(groups, NumberedTargets):
            return group_column(groups.numbers[self.at : self.at + count])
        if groups is None:
            number = self.target.number
            return group_column([number]) * count if number >= 0 else b""
        found = [target.number for target in groups[self.at : self.at + count]]
        return group_column(found[: found.index(NO_NUMBER)] if NO_NUMBER in found else found)

    def list_targets(self) -> None:
        """The numbers of groups are about to change: keep the groups themselves."""
        if self.groups is not None:
            self.groups = listed(self.groups)

    def readdress(self, targets: Mapping[Target, Target]) -> set[Target]:
        """Messages to some groups go to others instead; which of them there are. The targets are listed."""
        each: Sequence[Target] = listed(self.groups or ()) if self.group is None else [self.group]
        found = targets.keys() & each
        if found and self.group is not None:
            self.group = targets[self.group]
        elif found:
            self.groups = [targets.get(target, target) for target in each]
        return found

    @property
    def target(self) -> Target:
        """The group of the next message."""
        if self.group is not None:
            return self.group
        assert self.groups is not None
        if isinstance(self.groups, NumberedTargets):
            return self.groups.part(self.at, self.at + 1).listed()[0]
        return self.groups[self.at]

    @property
    def is_waiting(self) -> bool:
        """The group of the next message has no number yet."""
        return not isinstance(self.groups, NumberedTargets) and self.target.number < 0

    def set_lengths(self, lengths: list[int]) -> None:
        self.lengths = lengths
        if lengths.count(lengths[0]) == len(lengths):
            self.equal = lengths[0]
        else:
            self.ends = list(accumulate(lengths))

    @property
    def nbytes(self) -> int:
        """Of all its messages, once they are measured."""
        return self.offset(len(self.lengths))

    def offset(self, index: int) -> int:
        if self.equal >= 0:
            return index * self.equal
        return self.ends[index - 1] if index else 0

    def fit(self, budget: int, most: int, column: int) -> int:
        """How many of the next messages fit `budget` bytes, each with `column` bytes of length column."""
        at = self.at
        left = min(len(self.lengths) - at, most)
        if budget < 0:
            return 0
        if self.equal >= 0:
            each = self.equal + column
            return min(left, budget // each) if each else left
        limit = budget + self.offset(at) + column * at
        ends = self.ends
        return bisect_right(range(at, at + left), limit, key=lambda index: ends[index] + column * (index + 1))


class LargeMessage:
    """One message larger than a block, and how far it has been submitted."""

    __slots__ = (
        "group",
        "groups",
        "is_out",
        "is_traced",
        "numbers",
        "offset",
        "payload",
        "priority",
        "service",
        "type",
    )

    def __init__(
        self,
        group: Target | None,
        service: Service,
        type_: int,
        payload: bytes,
        groups: Addressees | None = None,
        priority: int = 0,
    ) -> None:
        self.group = group
        self.groups = groups  # instead of one
        self.service = service
        self.type = type_
        self.payload = payload
        self.priority = priority
        self.offset = 0
        self.numbers: tuple[int, ...] = ()  # of its groups, in the fragments up to `offset`
        self.is_traced = False  # its number has been shown to the trace
        self.is_out = False  # its last fragment was sent once: somebody may have it whole


class QueuedCall:
    """One message that asks for an answer, or is one: a block of its own (`wire/calls.py`)."""

    __slots__ = ("group", "head", "payload", "service", "type")

    def __init__(self, group: Target, service: Service, type_: int, payload: bytes, head: CallHead) -> None:
        self.group = group
        self.service = service
        self.type = type_
        self.payload = payload
        self.head = head


class QueuedBlock:
    """Messages to one group that came packed from a client of this node: they leave as they are, but for the head."""

    __slots__ = ("block", "count", "group", "nbytes", "priority", "service", "shown_bytes", "type")

    def __init__(self, group: Target, block: bytes, head: Head, priority: int) -> None:
        self.group = group
        self.service = service_of(head.rank, head.k)
        self.type = type_of(block)
        self.block = block
        self.count = head.count
        self.nbytes = len(block)  # what it counts as in the queue
        self.shown_bytes = payload_bytes(block, head)  # in the trace
        self.priority = priority

    def sent_as(self, first: int, after: int) -> bytes:
        """The block with its number, its group and what it comes after."""
        service, count = self.service, self.count
        head = FULL_HEAD.pack(first, count, service.rank, service.k, self.block[FLAGS_OFFSET], 1, after)
        entry = ENTRY.pack(self.group.number, self.type, 0, count)
        return b"".join((head, entry, memoryview(self.block)[HEAD_BYTES + ENTRY_BYTES :]))

    def opened(self) -> Stretch:
        """The same messages, to be packed anew."""
        stretch = Stretch(self.group, self.service, self.type, open_messages(self.block).payloads, None, self.priority)
        stretch.measure()
        return stretch


def as_queued(block: bytes, head: Head, group: Target, priority: int) -> Stretch | QueuedBlock:
    """What stands in the queue for a block that a client has packed. Raises WireError where it cannot be opened."""
    queued = QueuedBlock(group, block, head, priority)
    if not head.count or head.flags & ~EQUAL or label_of(block):
        raise WireError("a block of a client has messages to one group, and no label")
    if len(block) < OPENED_BYTES:
        return queued.opened()
    open_columns(block)
    return queued


class QueuedOperation:
    """An operation on the roster of a shared underlay: a block without messages (`groups/roster.py`)."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class AddressedMessages:
    """Messages to several groups, or to one that this session is not in. Its groups may have no numbers yet."""

    __slots__ = ("at", "groups", "lengths", "payloads", "priority", "service", "type")

    def __init__(
        self, groups: Addressees, service: Service, type_: int, payloads: list[bytes], priority: int = 0
    ) -> None:
        self.groups = groups
        self.priority = priority
        self.service = service
        self.type = type_
        self.payloads = payloads
        self.lengths = list(map(len, payloads))
        self.at = 0  # messages taken

    def is_like(self, groups: Addressees, service: Service, type_: int, priority: int) -> bool:
        """Whether a message may follow in the same block."""
        is_same = self.type == type_ and self.priority == priority
        return self.groups is groups and self.service == service and is_same

    def append(self, payload: bytes) -> None:
        self.payloads.append(payload)
        self.lengths.append(len(payload))


def joined(each: list[EachTarget], column: bytes) -> EachTarget:
    """The group of each message of a block, which has their numbers in `column`."""
    first = each[0]
    if len(each) == 1:
        return first
    if isinstance(first, NumberedTargets) and all(isinstance(part, NumberedTargets) for part in each):
        return first.over(column)
    groups: list[Target] = []
    for part in each:
        groups += listed(part)
    return groups


def targets_of(
    item: Stretch | LargeMessage | QueuedBlock | QueuedCall | QueuedOperation | AddressedMessages,
) -> Sequence[Target | None]:
    """The group of each message that has not left; None: of one that goes to groups by their names."""
    if isinstance(item, Stretch):
        return listed(item.targets(item.at, len(item.payloads)))
    if isinstance(item, QueuedOperation):
        return ()
    if isinstance(item, AddressedMessages):
        return [None] * (len(item.lengths) - item.at)
    return [item.group] * (item.count if isinstance(item, QueuedBlock) else 1)
