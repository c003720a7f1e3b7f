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

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from ordercast.config import MAX_BLOCK
from ordercast.groups.queued import (
    AddressedMessages,
    Addressees,
    EachTarget,
    LargeMessage,
    NumberedTargets,
    QueuedBlock,
    QueuedCall,
    QueuedOperation,
    Stretch,
    Target,
    as_queued,
    joined,
    listed,
    targets_of,
)
from ordercast.service import AGREED, RELIABLE, UNRELIABLE_RANK, Service
from ordercast.wire.block import (
    CALLED,
    ENTRY,
    EQUAL,
    FRAGMENT_OVERHEAD,
    FRAGMENTED,
    FULL_HEAD,
    GROUP_BYTES,
    GROUPED,
    LENGTH,
    MAX_COUNT,
    MAX_TARGETS,
    OVERHEAD,
    Head,
    fits,
    group_column,
    head_of,
    lengths_column,
    open_messages,
    open_part,
    pack_fragment,
    pack_multi,
    pack_roster,
    pack_run,
    type_of,
    with_label,
    with_priority,
)
from ordercast.wire.calls import CallHead, open_call, pack_call

QUEUE_BYTES: Final = 1 << 20
"""Payload bytes that wait. At the bound nothing more is taken and the caller waits; one message may overshoot it."""

QUEUE_MESSAGES: Final = 1 << 16
"""Messages that wait: empty payloads count nothing in bytes."""

SMALL_SHARE: Final = 4
"""A block below this part of the largest one is not worth sending while more is queued and room is sure to come."""

LARGE_BYTES: Final = MAX_BLOCK - OVERHEAD - 2
"""Longer messages are large whatever the group's largest block is."""

TARGETS_BYTES: Final = LENGTH.size + GROUP_BYTES * MAX_TARGETS
"""What the groups of a message take at most where they are several."""


class Packed(NamedTuple):
    """A block that is ready to be submitted."""

    block: bytes
    first: int
    messages: int  # 0: a fragment that completes none
    payload_bytes: int  # of what is shown
    service: Service
    shown: int  # messages whose `submit` row goes with this block: of a large one with its first fragment
    group: Target | None = None  # of all messages; None: see the other two, or it is an operation
    groups: EachTarget | None = None  # of each message, where they differ
    addressees: Addressees | None = None  # all messages go to all of these
    numbers: Sequence[int] = ()  # of these
    column: bytes = b""  # the number of the group of each message, as the block has it
    priority: int = 0

    @property
    def is_operation(self) -> bool:
        """On the roster."""
        return self.group is None and self.groups is None and self.addressees is None


class SendQueue:
    """Messages in the order in which they were offered; `next_number` is the number of the first of them."""

    __slots__ = ("_items", "_label", "count", "next_number", "queued_bytes")

    def __init__(self, next_number: int = 0, label: bytes = b"") -> None:
        """`label`: of the session, which all its blocks carry."""
        self._label = label
        self._items: deque[Stretch | LargeMessage | QueuedBlock | QueuedCall | QueuedOperation | AddressedMessages] = (
            deque()
        )
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
        """True where nothing can be packed: the queue is empty, the group of the message at the head has no number
        yet, or that message is a large one that is out and not yet delivered."""
        if not self._items:
            return True
        head = self._items[0]
        if isinstance(head, Stretch):
            return head.is_waiting
        if isinstance(head, QueuedOperation):
            return False
        if isinstance(head, QueuedCall | QueuedBlock):
            return head.group.number < 0
        if isinstance(head, LargeMessage) and head.offset >= len(head.payload):
            return True
        if isinstance(head, LargeMessage) and head.group is not None:
            return head.group.number < 0
        return head.groups is not None and head.groups.numbers() is None

    @property
    def priority(self) -> int:
        """Of the message at the head."""
        head = self._items[0] if self._items else None
        return 0 if head is None or isinstance(head, QueuedCall | QueuedOperation) else head.priority

    @property
    def spent_number(self) -> int:
        """The first number that no block in the world has: where a later membership of this life goes on."""
        head = self._items[0] if self._items else None
        return self.next_number + int(isinstance(head, LargeMessage) and head.is_traced)

    @property
    def large_bytes(self) -> int:
        """Size of the large message at the head; 0 if there is none."""
        head = self._items[0] if self._items else None
        return len(head.payload) if isinstance(head, LargeMessage) else 0

    @property
    def has_begun(self) -> bool:
        """Others may have the beginning of the large message at the head, and wait for its end."""
        head = self._items[0] if self._items else None
        return isinstance(head, LargeMessage) and head.offset > 0

    @property
    def owes_large(self) -> bool:
        """Its number is spent by the large message at the head, and nobody has it whole: it may begin again."""
        head = self._items[0] if self._items else None
        return isinstance(head, LargeMessage) and head.is_traced

    @property
    def head_large(self) -> tuple[Target | None, Addressees | None]:
        """The group, or the groups, of the large message at the head."""
        head = self._items[0] if self._items else None
        return (head.group, head.groups) if isinstance(head, LargeMessage) else (None, None)

    def targets(self) -> list[Target | None]:
        """The group of each message; None: of one that goes to groups by their names."""
        return [target for item in self._items for target in targets_of(item)]

    # In.

    def offer(self, payload: bytes, service: Service, type_: int, group: Target, priority: int = 0) -> None:
        """Take one message. The caller has asked `has_room`."""
        size = len(payload)
        self.count += 1
        self.queued_bytes += size
        if size > LARGE_BYTES:
            self._items.append(LargeMessage(group, _whole(service), type_, payload, None, priority))
            return
        last = self._items[-1] if self._items else None
        if (
            isinstance(last, Stretch)
            and isinstance(last.payloads, list)
            and not last.lengths
            and last.type == type_
            and last.priority == priority
            and (last.service is service or last.service == service)
        ):
            last.append(payload, group)
            return
        self._items.append(Stretch(group, service, type_, [payload], None, priority))

    def offer_call(self, payload: bytes, service: Service, type_: int, head: CallHead, group: Target) -> None:
        """Take one call, or answer, which the caller has found to fit a block."""
        self.count += 1
        self.queued_bytes += len(payload)
        self._items.append(QueuedCall(group, service, type_, payload, head))

    def offer_block(self, block: bytes, head: Head, group: Target, priority: int = 0) -> bool:
        """Take the messages of a block that a client has packed, for one group; False: there is no room. Raises
        WireError where the block cannot be opened."""
        item = as_queued(block, head, group, priority)
        if not self.has_room:
            return False
        self._items.append(item)
        self.count += head.count
        self.queued_bytes += item.nbytes
        return True

    def offer_addressed(
        self, payload: bytes, service: Service, type_: int, groups: Addressees, priority: int = 0
    ) -> None:
        """Take one message to these groups. What is offered later waits with it for their numbers."""
        self.count += 1
        self.queued_bytes += len(payload)
        last = self._items[-1] if self._items else None
        if len(payload) > LARGE_BYTES - TARGETS_BYTES - len(self._label):
            self._items.append(LargeMessage(None, _whole(service), type_, payload, groups, priority))
        elif isinstance(last, AddressedMessages) and last.is_like(groups, service, type_, priority):
            last.append(payload)
        else:
            self._items.append(AddressedMessages(groups, service, type_, [payload], priority))

    def offer_stretch(self, stretch: Stretch) -> None:
        """Take messages that are measured, and that another queue has bounded (`groups/regions/`)."""
        self.count += len(stretch.lengths)
        self.queued_bytes += stretch.nbytes
        self._items.append(stretch)

    def offer_operation(self, body: bytes) -> None:
        """Take an operation on the roster. It comes behind what was offered before."""
        self.queued_bytes += len(body)
        self._items.append(QueuedOperation(body))

    def offer_many(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int] | None,
        group: Target,
        groups: EachTarget | None = None,
        priority: int = 0,
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
            if groups is not None:
                groups = groups.part(0, take) if isinstance(groups, NumberedTargets) else groups[:take]
            total = sum(lengths)
        stretch = Stretch(group if groups is None else None, service, type_, payloads, groups, priority)
        stretch.set_lengths(lengths)
        if (stretch.equal if stretch.equal >= 0 else max(lengths)) > LARGE_BYTES:
            targets = [group] * take if groups is None else listed(groups)
            for payload, target in zip(payloads, targets, strict=True):
                self.offer(payload, service, type_, target, priority)
            return take
        self._items.append(stretch)
        self.count += take
        self.queued_bytes += total
        return take

    # Out.

    def pack(self, limit: int, largest: int, after: int = 0, *, may_begin: bool = True) -> Packed | None:
        """The next block, of at most `limit` bytes, where `largest` is what a block may have when there is more room.

        `after`: the sequence number up to which this node has delivered. `may_begin`: a large message.

        None: nothing to send, or nothing that fits yet.
        """
        label, priority = self._label, self.priority
        if not label and not priority:
            return self._pack(limit, largest, after, may_begin)
        packed = self._pack(limit - len(label), largest - len(label), after, may_begin)
        if packed is None:
            return None
        block = with_label(packed.block, label) if label else packed.block
        return packed._replace(block=with_priority(block, priority) if priority else block, priority=priority)

    def _pack(self, limit: int, largest: int, after: int, may_begin: bool) -> Packed | None:
        if self.is_waiting:
            return None
        head = self._items[0]
        if isinstance(head, LargeMessage):
            return self._pack_fragment(head, limit, after) if may_begin or head.offset else None
        if isinstance(head, QueuedCall):
            return self._pack_call(head, limit, largest, after)
        if isinstance(head, QueuedBlock):
            return self._pack_block(head, limit, largest, after, may_begin)
        if isinstance(head, QueuedOperation):
            return self._pack_operation(head, limit, largest, after)
        if isinstance(head, AddressedMessages):
            return self._pack_addressed(head, limit, largest, after)
        return self._pack_messages(limit, largest, after, may_begin)

    def put_back(self, packed: Packed, goes_on: bool = False) -> None:
        """Before the block left this node was out of a shared underlay, or out of a group (`goes_on`): it is made anew,
        with the numbers that its groups have then. The last one that was packed comes first. Operations are not kept.
        """
        if packed.is_operation:
            return
        head = head_of(packed.block)
        if head.flags & FRAGMENTED:
            large = self._items[0]
            if isinstance(large, LargeMessage):
                # Without the underlay, the others were out of its stream with it.
                large.offset = min(large.offset, open_part(packed.block).offset) if goes_on else 0
                large.is_traced = large.is_traced and not packed.shown
            return
        if head.flags & CALLED:
            call, payload = open_call(packed.block)
            if packed.group is not None:
                self._items.appendleft(QueuedCall(packed.group, packed.service, type_of(packed.block), payload, call))
            self._took(-1, -len(payload))
            return
        payloads, type_ = list(open_messages(packed.block).payloads), type_of(packed.block)
        service, priority = packed.service, packed.priority
        if packed.addressees is not None:
            self._items.appendleft(AddressedMessages(packed.addressees, service, type_, payloads, priority))
        else:
            stretch = Stretch(packed.group, service, type_, payloads, packed.groups, priority)
            stretch.measure()
            self._items.appendleft(stretch)
        self._took(-len(payloads), -sum(map(len, payloads)))

    def list_targets(self) -> None:
        """The numbers of groups are about to change: keep the groups themselves."""
        for item in self._items:
            if isinstance(item, Stretch):
                item.list_targets()

    def readdress(self, targets: Mapping[Target, Target]) -> set[Target]:
        """What is queued for some groups goes to others instead; which of them there are. The targets are listed."""
        found: set[Target] = set()
        for item in self._items:
            if isinstance(item, Stretch):
                found |= item.readdress(targets)
            elif isinstance(item, QueuedBlock | QueuedCall | LargeMessage) and item.group is not None:
                found |= targets.keys() & (item.group,)
                item.group = targets.get(item.group, item.group)
        return found

    def drop_operations(self) -> None:
        """What this node wanted of a roster that it has left."""
        operations = [item for item in self._items if isinstance(item, QueuedOperation)]
        if operations:
            self._items = deque(item for item in self._items if not isinstance(item, QueuedOperation))
            self.queued_bytes -= sum(len(operation.body) for operation in operations)

    def restart(self) -> None:
        """A member came in: a large message that is under way begins again."""
        head = self._items[0] if self._items else None
        if isinstance(head, LargeMessage):
            head.offset = 0

    def cut(self) -> None:
        """The session ends in the middle of a large message: what is behind it is not sent any more."""
        self._items = deque([self._items[0]])
        self.count = 1
        self.queued_bytes = self.large_bytes

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
        if not isinstance(head, LargeMessage) or not head.offset:
            return False
        if not head.is_out:
            head.offset = 0
            return False
        return self._end_large(first)

    def _end_large(self, first: int) -> bool:
        head = self._items[0] if self._items else None
        if not isinstance(head, LargeMessage) or first != self.next_number:
            return False
        self._items.popleft()
        self._took(1, len(head.payload))
        return True

    def _took(self, count: int, nbytes: int) -> None:
        self.next_number += count
        self.count -= count
        self.queued_bytes -= nbytes

    def _pack_fragment(self, large: LargeMessage, limit: int, after: int) -> Packed | None:
        numbers: Sequence[int] = ()
        if large.groups is not None:
            numbers = large.groups.numbers() or ()
        overhead = FRAGMENT_OVERHEAD + (LENGTH.size + GROUP_BYTES * len(numbers) if len(numbers) > 1 else 0)
        if limit <= overhead:
            return None
        number = large.group.number if large.group is not None else numbers[0] if len(numbers) == 1 else 0
        targets = numbers if len(numbers) > 1 else ()
        if large.numbers != (number, *targets):
            large.numbers, large.offset = (number, *targets), 0  # a group that its session has left was made anew
        size = len(large.payload)
        start = large.offset
        stop = min(start + limit - overhead, size)
        first = self.next_number
        block = pack_fragment(first, large.service, number, large.type, large.payload, start, stop, after, targets)
        large.offset = stop
        # Its number is spent, and shown to the trace, with the first fragment: the rest may never get out.
        shown = 0 if large.is_traced else 1
        large.is_traced = True
        large.is_out = large.is_out or stop == size
        nbytes = size if shown else 0
        return Packed(
            block, first, int(stop == size), nbytes, large.service, shown, large.group, None, large.groups, numbers
        )

    def _pack_call(self, call: QueuedCall, limit: int, largest: int, after: int) -> Packed | None:
        first = self.next_number
        block = pack_call(first, call.service, call.head, call.payload, call.type, call.group.number, after)
        # A call is one block also where the blocks of a group with small buffers are smaller: then it goes alone.
        if limit < min(len(block), largest):
            return None
        self._items.popleft()
        self._took(1, len(call.payload))
        return Packed(block, first, 1, len(call.payload), call.service, 1, call.group)

    def _pack_block(self, queued: QueuedBlock, limit: int, largest: int, after: int, may_begin: bool) -> Packed | None:
        """Hot: one copy for each block of a daemon's client. One that is too large for this underlay is opened."""
        if limit >= len(queued.block):
            first, count, service = self.next_number, queued.count, queued.service
            self._items.popleft()
            self._took(count, queued.nbytes)
            nbytes = queued.shown_bytes
            return Packed(queued.sent_as(first, after), first, count, nbytes, service, count, queued.group)
        if limit < largest:
            return None
        stretch = queued.opened()
        self.queued_bytes += stretch.nbytes - queued.nbytes
        self._items[0] = stretch
        return self._pack_messages(limit, largest, after, may_begin)

    def _pack_operation(self, operation: QueuedOperation, limit: int, largest: int, after: int) -> Packed | None:
        block = pack_roster(self.next_number, operation.body, after)
        if limit < min(len(block), largest):
            return None
        self._items.popleft()
        self.queued_bytes -= len(operation.body)
        return Packed(block, self.next_number, 0, 0, AGREED, 0)

    def _pack_addressed(self, item: AddressedMessages, limit: int, largest: int, after: int) -> Packed | None:
        numbers = item.groups.numbers()
        if numbers is None:
            return None
        first, at = self.next_number, item.at
        targets = LENGTH.size + GROUP_BYTES * len(numbers) if len(numbers) > 1 else 0
        stop = max(at + 1, fits(item.lengths, at, limit - targets))
        payloads = item.payloads[at:stop]
        if len(numbers) == 1:
            block = pack_run(first, item.service, payloads, numbers[0], item.type, after)
        else:
            block = pack_multi(first, item.service, payloads, numbers, item.type, after)
        if limit < min(len(block), largest):
            return None
        item.at = stop
        if stop == len(item.lengths):
            self._items.popleft()
        size = sum(item.lengths[at:stop])
        self._took(stop - at, size)
        return Packed(block, first, stop - at, size, item.service, stop - at, None, None, item.groups, numbers)

    def _pack_messages(self, limit: int, largest: int, after: int, may_begin: bool) -> Packed | None:
        items = self._items
        head = items[0]
        assert isinstance(head, Stretch)
        head.measure()
        group, service, type_, equal, priority = head.group, head.service, head.type, head.equal, head.priority
        budget = limit - OVERHEAD
        column = 0 if equal >= 0 else 2
        marked = GROUP_BYTES if group is None else 0  # what the column of groups takes for each message
        parts: list[bytes] = []
        taken: list[tuple[Stretch, int, int]] = []
        columns: list[bytes] = []  # the numbers of the groups, where the block mixes them
        count = used = 0
        while items and count < MAX_COUNT:
            item = items[0]
            if not isinstance(item, Stretch) or item.type != type_ or item.service != service:
                break
            if item.priority != priority:
                break
            item.measure()
            # From here on the block may need a column of lengths, or of groups, for what is already in it, too.
            wider = 2 if column or item.equal != equal else 0
            more = GROUP_BYTES if marked or item.group is not group else 0
            if used + (wider + more) * count >= budget and count:
                break
            take = item.fit(budget - used - (wider + more) * count, MAX_COUNT - count, wider + more)
            if take and more:
                if not marked and group is not None and count:
                    columns.append(group_column([group.number]) * count)
                columns.append(item.column(take))
                take = len(columns[-1]) // GROUP_BYTES
            elif item.group is not None and item.group.number < 0:
                take = 0
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
            return self._make_large(head, limit, after, may_begin) if limit >= largest and not head.is_waiting else None
        number = self.next_number
        if column:
            head_bytes = FULL_HEAD.pack(number, count, service.rank, service.k, GROUPED if marked else 0, 1, after)
            lengths_bytes = b"".join([lengths_column(item.lengths[first:stop]) for item, first, stop in taken])
        else:
            flags = EQUAL | GROUPED if marked else EQUAL
            head_bytes = FULL_HEAD.pack(number, count, service.rank, service.k, flags, 1, after)
            lengths_bytes = LENGTH.pack(equal)
        self._took(count, used)
        if not marked:
            at = group.number if group is not None else 0
            block = b"".join((head_bytes, ENTRY.pack(at, type_, 0, count), lengths_bytes, *parts))
            return Packed(block, number, count, used, service, count, group)
        marks = b"".join(columns)
        groups = joined([item.targets(first, stop) for item, first, stop in taken], marks)
        block = b"".join((head_bytes, ENTRY.pack(0, type_, 0, count), marks, lengths_bytes, *parts))
        return Packed(block, number, count, used, service, count, None, groups, None, (), marks)

    def _make_large(self, head: Stretch, limit: int, after: int, may_begin: bool) -> Packed | None:
        """The next message does not fit the largest block of this group: it becomes a large one."""
        large = LargeMessage(head.target, _whole(head.service), head.type, head.payloads[head.at], None, head.priority)
        head.at += 1
        if head.at == len(head.lengths):
            self._items.popleft()
        self._items.appendleft(large)
        return self._pack_fragment(large, limit, after) if may_begin else None


def _whole(service: Service) -> Service:
    """The service of a large message's fragments: one that is lost would take the rest with it, so none may be."""
    return RELIABLE if service.rank == UNRELIABLE_RANK else service
