"""What a session has sent on a channel and the engine has not taken: a bounded queue that packs itself into blocks.

Messages of one service and type that follow one another share blocks, whatever their groups are: where these differ,
the block has a column with the number of the group of each message. There is no loop over messages: a block is one
`join` of a slice. (Joining the payloads of a `send_many` at once, to cut blocks out of that, was tried: it copies
everything twice and costs twice as much.) Nothing here waits for a timer: what has gathered when the engine has room
leaves.

A message larger than a block is *large*: it is cut lazily, fragment by fragment as the window opens, and stays at the
head of the queue until this node has delivered it. The reason: a member that joins in the middle of it has no
beginning, and the others must not deliver what the joiner cannot (docs/trace.md, virtual synchrony): at such a view all
drop the open fragments and the sender begins again (`restart`), and then nothing of the same sender may have overtaken
it. The price is one round trip per large message, in addition to its transfer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from sys import byteorder
from typing import Final, NamedTuple, Protocol

from ordercast.config import MAX_BLOCK
from ordercast.service import AGREED, RELIABLE, UNRELIABLE_RANK, Service
from ordercast.wire.block import (
    ENTRY,
    EQUAL,
    FRAGMENT_OVERHEAD,
    FULL_HEAD,
    GROUPED,
    LENGTH,
    MAX_COUNT,
    OVERHEAD,
    pack_fragment,
    pack_multi,
    pack_roster,
    pack_run,
)
from ordercast.wire.calls import CallHead, pack_call

QUEUE_BYTES: Final = 1 << 20
"""Payload bytes that wait. At the bound nothing more is taken and the caller waits; one message may overshoot it."""

QUEUE_MESSAGES: Final = 1 << 16
"""Messages that wait: empty payloads count nothing in bytes."""

SMALL_SHARE: Final = 4
"""A block below this part of the largest one is not worth sending while more is queued and room is sure to come."""

LARGE_BYTES: Final = MAX_BLOCK - OVERHEAD - 2
"""Longer messages are large whatever the group's largest block is."""

MIXED: Final = -1
"""Instead of the number of a group: each message has its own."""

GROUP_BYTES: Final = 4
"""What one message takes in the column of groups."""

_SWAP: Final = byteorder == "big"


class Addressees(Protocol):
    """Groups that a message is for."""

    def numbers(self) -> Sequence[int] | None:
        """Their numbers; None: not all of them have one yet."""


class Packed(NamedTuple):
    """A block that is ready to be submitted."""

    block: bytes
    first: int
    messages: int  # 0: a fragment that completes none
    payload_bytes: int  # of what is shown
    service: Service
    shown: int  # messages whose `submit` row goes with this block: of a large one with its first fragment
    group: int = 0  # MIXED: see `groups`
    groups: array[int] | None = None  # the number of the group of each message, where they differ
    targets: tuple[int, ...] = ()  # all groups that all messages go to, where these are several


class _Stretch:
    """Consecutive messages of one service and type, as the application gave them: bytes need no copy."""

    __slots__ = ("at", "ends", "equal", "group", "groups", "lengths", "payloads", "service", "type")

    def __init__(
        self, group: int, service: Service, type_: int, payloads: Sequence[bytes], groups: Sequence[int] | None = None
    ) -> None:
        self.group = group if groups is None else MIXED
        self.groups = groups  # of each message, where they differ
        self.service = service
        self.type = type_
        self.payloads: Sequence[bytes] = payloads
        self.lengths: list[int] = []  # filled by `measure`: then nothing is appended any more
        self.equal = -1  # the length that all messages share, or -1
        self.ends: list[int] = []  # bytes up to the end of each message; only when they differ
        self.at = 0  # messages taken

    def measure(self) -> None:
        """Find out what is needed to cut blocks; once."""
        if not self.lengths:
            self.set_lengths(list(map(len, self.payloads)))

    def append(self, payload: bytes, group: int) -> None:
        """One more message, where `payloads` is a list of our own. Hot: once per `send`."""
        payloads = self.payloads
        if self.group != group:
            groups = self.groups
            if groups is None:
                groups = self.groups = [self.group] * len(payloads)
                self.group = MIXED
            groups.append(group)  # type: ignore[attr-defined]
        payloads.append(payload)  # type: ignore[attr-defined]

    def groups_of(self, start: int, stop: int) -> array[int]:
        """The group of each message [start, stop)."""
        if self.groups is None:
            return array("I", [self.group]) * (stop - start)
        return array("I", self.groups[start:stop])

    def set_lengths(self, lengths: list[int]) -> None:
        self.lengths = lengths
        if lengths.count(lengths[0]) == len(lengths):
            self.equal = lengths[0]
        else:
            self.ends = list(accumulate(lengths))

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


class _Large:
    """One message larger than a block, and how far it has been submitted."""

    __slots__ = ("group", "is_out", "is_traced", "offset", "payload", "service", "type")

    def __init__(self, group: int, service: Service, type_: int, payload: bytes) -> None:
        self.group = group
        self.service = service
        self.type = type_
        self.payload = payload
        self.offset = 0
        self.is_traced = False  # its number has been shown to the trace
        self.is_out = False  # its last fragment was sent once: somebody may have it whole


class _Call:
    """One message that asks for an answer, or is one: a block of its own (`wire/calls.py`)."""

    __slots__ = ("group", "head", "payload", "service", "type")

    def __init__(self, group: int, service: Service, type_: int, payload: bytes, head: CallHead) -> None:
        self.group = group
        self.service = service
        self.type = type_
        self.payload = payload
        self.head = head


class _Operation:
    """An operation on the roster of a shared underlay: a block without messages (`groups/roster.py`)."""

    __slots__ = ("body", "group")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.group = 0


class _Addressed:
    """One message to several groups, or to one that this session is not in. Its groups may have no numbers yet."""

    __slots__ = ("groups", "payload", "service", "type")

    def __init__(self, groups: Addressees, service: Service, type_: int, payload: bytes) -> None:
        self.groups = groups
        self.service = service
        self.type = type_
        self.payload = payload

    @property
    def group(self) -> int:
        return MIXED


class SendQueue:
    """Messages in the order in which they were offered; `next_number` is the number of the first of them."""

    __slots__ = ("_items", "count", "next_number", "queued_bytes")

    def __init__(self, next_number: int = 0) -> None:
        self._items: deque[_Stretch | _Large | _Call | _Operation | _Addressed] = deque()
        self.next_number = next_number
        self.count = 0
        self.queued_bytes = 0

    # State.

    @property
    def end_number(self) -> int:
        """The number that the next message offered will have."""
        return self.next_number + self.count

    @property
    def has_room(self) -> bool:
        return self.queued_bytes < QUEUE_BYTES and self.count < QUEUE_MESSAGES

    @property
    def is_waiting(self) -> bool:
        """True where nothing can be packed: empty, or the large message at the head is out and not yet delivered."""
        if not self._items:
            return True
        head = self._items[0]
        if isinstance(head, _Addressed):
            return head.groups.numbers() is None
        return isinstance(head, _Large) and head.offset >= len(head.payload)

    @property
    def spent_number(self) -> int:
        """The first number that no block in the world has: where a later membership of this life goes on."""
        head = self._items[0] if self._items else None
        return self.next_number + int(isinstance(head, _Large) and head.is_traced)

    @property
    def large_bytes(self) -> int:
        """Size of the large message at the head; 0 if there is none."""
        head = self._items[0] if self._items else None
        return len(head.payload) if isinstance(head, _Large) else 0

    @property
    def head_group(self) -> int:
        """The group of the message at the head; 0 if there is none."""
        return self._items[0].group if self._items else 0

    # In.

    def offer(self, payload: bytes, service: Service, type_: int, group: int = 0) -> None:
        """Take one message. The caller has asked `has_room`."""
        size = len(payload)
        self.count += 1
        self.queued_bytes += size
        if size > LARGE_BYTES:
            self._items.append(_Large(group, _whole(service), type_, payload))
            return
        last = self._items[-1] if self._items else None
        if (
            isinstance(last, _Stretch)
            and isinstance(last.payloads, list)
            and not last.lengths
            and last.type == type_
            and (last.service is service or last.service == service)
        ):
            last.append(payload, group)
            return
        self._items.append(_Stretch(group, service, type_, [payload]))

    def offer_call(self, payload: bytes, service: Service, type_: int, head: CallHead, group: int = 0) -> None:
        """Take one call, or answer, which the caller has found to fit a block."""
        self.count += 1
        self.queued_bytes += len(payload)
        self._items.append(_Call(group, service, type_, payload, head))

    def offer_addressed(self, payload: bytes, service: Service, type_: int, groups: Addressees) -> None:
        """Take one message, which fits a block, to these groups. What is offered later waits with it for their
        numbers."""
        self.count += 1
        self.queued_bytes += len(payload)
        self._items.append(_Addressed(groups, service, type_, payload))

    def offer_operation(self, body: bytes) -> None:
        """Take an operation on the roster. It comes behind what was offered before."""
        self.queued_bytes += len(body)
        self._items.append(_Operation(body))

    def offer_many(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int] | None = None,
        group: int = 0,
        groups: Sequence[int] | None = None,
    ) -> int:
        """Take as many messages, from the first on, as the bound allows; how many. `groups`: of each, instead of one.

        Hot: benches measure it as `send_many`. The sequences are kept, not copied: the caller changes them no more.
        """
        room = QUEUE_BYTES - self.queued_bytes
        take = min(len(payloads), QUEUE_MESSAGES - self.count)
        if room <= 0 or take <= 0:
            return 0
        if lengths is None:
            lengths = list(map(len, payloads))
        total = sum(lengths)
        if total >= room:
            # The one that crosses the bound is taken, too: otherwise a message above the bound would never be.
            take = min(take, bisect_left(list(accumulate(lengths)), room) + 1)
        if take < len(lengths):
            payloads, lengths = payloads[:take], lengths[:take]
            groups = groups[:take] if groups is not None else None
            total = sum(lengths)
        stretch = _Stretch(group, service, type_, payloads, groups)
        stretch.set_lengths(lengths)
        if (stretch.equal if stretch.equal >= 0 else max(lengths)) > LARGE_BYTES:
            for index, payload in enumerate(payloads):
                self.offer(payload, service, type_, group if groups is None else groups[index])
            return take
        self._items.append(stretch)
        self.count += take
        self.queued_bytes += total
        return take

    # Out.

    def pack(self, limit: int, largest: int, after: int = 0) -> Packed | None:
        """The next block, of at most `limit` bytes, where `largest` is what a block may have when there is more room.

        `after`: the sequence number up to which this node has delivered.

        None: nothing to send, or nothing that fits yet.
        """
        if self.is_waiting:
            return None
        head = self._items[0]
        if isinstance(head, _Large):
            return self._pack_fragment(head, limit, after)
        if isinstance(head, _Call):
            return self._pack_call(head, limit, largest, after)
        if isinstance(head, _Operation):
            return self._pack_operation(head, limit, largest, after)
        if isinstance(head, _Addressed):
            return self._pack_addressed(head, limit, largest, after)
        return self._pack_messages(limit, largest, after)

    def restart(self) -> None:
        """A member came in: a large message that is under way begins again."""
        head = self._items[0] if self._items else None
        if isinstance(head, _Large):
            head.offset = 0

    def drop_large(self) -> None:
        """The large message at the head cannot be sent: its number is passed over."""
        self._end_large(self.next_number)

    def delivered_large(self, first: int) -> None:
        """This node delivered its own large message `first`: what waits behind it may go."""
        self._end_large(first)

    def abandon_large(self, first: int) -> bool:
        """Fragments of message `first` were lost with this node's membership; True if the message is lost with them.

        It is if its last fragment was submitted: somebody may have it whole. Otherwise nobody can, and it begins again.
        """
        head = self._items[0] if self._items else None
        if not isinstance(head, _Large) or not head.offset:
            return False
        if not head.is_out:
            head.offset = 0
            return False
        return self._end_large(first)

    def _end_large(self, first: int) -> bool:
        head = self._items[0] if self._items else None
        if not isinstance(head, _Large) or first != self.next_number:
            return False
        self._items.popleft()
        self._took(1, len(head.payload))
        return True

    def _took(self, count: int, nbytes: int) -> None:
        self.next_number += count
        self.count -= count
        self.queued_bytes -= nbytes

    def _pack_fragment(self, large: _Large, limit: int, after: int) -> Packed | None:
        if limit <= FRAGMENT_OVERHEAD:
            return None
        size = len(large.payload)
        start = large.offset
        stop = min(start + limit - FRAGMENT_OVERHEAD, size)
        first = self.next_number
        block = pack_fragment(first, large.service, large.group, large.type, large.payload, start, stop, after)
        large.offset = stop
        # Its number is spent, and shown to the trace, with the first fragment: the rest may never get out.
        shown = 0 if large.is_traced else 1
        large.is_traced = True
        large.is_out = large.is_out or stop == size
        return Packed(block, first, int(stop == size), size if shown else 0, large.service, shown, large.group)

    def _pack_call(self, call: _Call, limit: int, largest: int, after: int) -> Packed | None:
        first = self.next_number
        block = pack_call(first, call.service, call.head, call.payload, call.type, call.group, after)
        # A call is one block also where the blocks of a group with small buffers are smaller: then it goes alone.
        if limit < min(len(block), largest):
            return None
        self._items.popleft()
        self._took(1, len(call.payload))
        return Packed(block, first, 1, len(call.payload), call.service, 1, call.group)

    def _pack_operation(self, operation: _Operation, limit: int, largest: int, after: int) -> Packed | None:
        block = pack_roster(self.next_number, operation.body, after)
        if limit < min(len(block), largest):
            return None
        self._items.popleft()
        self.queued_bytes -= len(operation.body)
        return Packed(block, self.next_number, 0, 0, AGREED, 0)

    def _pack_addressed(self, message: _Addressed, limit: int, largest: int, after: int) -> Packed | None:
        numbers = message.groups.numbers()
        if numbers is None:
            return None
        first, payload = self.next_number, message.payload
        if len(numbers) == 1:
            block = pack_run(first, message.service, [payload], numbers[0], message.type, after)
        else:
            block = pack_multi(first, message.service, [payload], numbers, message.type, after)
        if limit < min(len(block), largest):
            return None
        self._items.popleft()
        self._took(1, len(payload))
        if len(numbers) == 1:
            return Packed(block, first, 1, len(payload), message.service, 1, numbers[0])
        return Packed(block, first, 1, len(payload), message.service, 1, MIXED, None, tuple(numbers))

    def _pack_messages(self, limit: int, largest: int, after: int) -> Packed | None:
        items = self._items
        head = items[0]
        assert isinstance(head, _Stretch)
        head.measure()
        group, service, type_, equal = head.group, head.service, head.type, head.equal
        budget = limit - OVERHEAD
        column = 0 if equal >= 0 else 2
        marked = GROUP_BYTES if group == MIXED else 0  # what the column of groups takes for each message
        parts: list[bytes] = []
        taken: list[tuple[_Stretch, int, int]] = []
        count = used = 0
        while items and count < MAX_COUNT:
            item = items[0]
            if not isinstance(item, _Stretch) or item.type != type_ or item.service != service:
                break
            item.measure()
            # From here on the block may need a column of lengths, or of groups, for what is already in it, too.
            wider = 2 if column or item.equal != equal else 0
            more = GROUP_BYTES if marked or item.group != group else 0
            if used + (wider + more) * count >= budget and count:
                break
            take = item.fit(budget - used - (wider + more) * count, MAX_COUNT - count, wider + more)
            if not take:
                break
            column, marked = wider, more
            start, stop = item.offset(item.at), item.offset(item.at + take)
            parts.extend(item.payloads[item.at : item.at + take])
            taken.append((item, item.at, item.at + take))
            count += take
            used += stop - start
            item.at += take
            if item.at < len(item.lengths):
                break
            items.popleft()
        if not count:
            return self._make_large(head, limit, after) if limit >= largest else None
        number = self.next_number
        if column:
            head_bytes = FULL_HEAD.pack(number, count, service.rank, service.k, GROUPED if marked else 0, 1, after)
            lengths_bytes = b"".join([_column(item.lengths[first:stop]) for item, first, stop in taken])
        else:
            flags = EQUAL | GROUPED if marked else EQUAL
            head_bytes = FULL_HEAD.pack(number, count, service.rank, service.k, flags, 1, after)
            lengths_bytes = LENGTH.pack(equal)
        self._took(count, used)
        if not marked:
            block = b"".join((head_bytes, ENTRY.pack(group, type_, 0, count), lengths_bytes, *parts))
            return Packed(block, number, count, used, service, count, group)
        groups = array("I")
        for item, first, stop in taken:
            groups += item.groups_of(first, stop)
        block = b"".join((head_bytes, ENTRY.pack(0, type_, 0, count), _bytes_of(groups), lengths_bytes, *parts))
        return Packed(block, number, count, used, service, count, MIXED, groups)

    def _make_large(self, head: _Stretch, limit: int, after: int) -> Packed | None:
        """The next message does not fit the largest block of this group: it becomes a large one."""
        group = head.group if head.groups is None else head.groups[head.at]
        large = _Large(group, _whole(head.service), head.type, head.payloads[head.at])
        head.at += 1
        if head.at == len(head.lengths):
            self._items.popleft()
        self._items.appendleft(large)
        return self._pack_fragment(large, limit, after)


def _whole(service: Service) -> Service:
    """The service of a large message's fragments: one that is lost would take the rest with it, so none may be."""
    return RELIABLE if service.rank == UNRELIABLE_RANK else service


def _column(lengths: list[int]) -> bytes:
    return _bytes_of(array("H", lengths))


def _bytes_of(column: array[int]) -> bytes:
    if _SWAP:
        column = column[:]
        column.byteswap()
    return column.tobytes()
