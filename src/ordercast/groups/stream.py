"""One session on one channel: one send queue, one numbering of messages, and the ports of the session's groups there.

Everything that the session sends on the channel goes through one queue, whatever its group. So FIFO, causal and total
order hold across the session's groups, and one large message delays those behind it in every group.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import ne
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ordercast.config import MAX_BLOCK
from ordercast.errors import InvariantViolation, OrdercastError, OutcomeUnknown, UsageError
from ordercast.groups.addressing import GroupNames, NamedGroup
from ordercast.groups.consumption import PORT_BYTES, SESSION_BYTES
from ordercast.groups.open_calls import OpenCalls
from ordercast.groups.queue import SMALL_SHARE, Packed, SendQueue
from ordercast.groups.queued import NO_NUMBER, Addressees, EachTarget, NumberedTargets, Target, listed
from ordercast.groups.wanted import WantedGroups
from ordercast.groups.watches import Watch, Watches
from ordercast.service import UNRELIABLE_RANK, Service
from ordercast.wire.block import open_column

if TYPE_CHECKING:
    from ordercast.groups.calls import Asked
    from ordercast.groups.channel import Channel
    from ordercast.groups.port import Port
    from ordercast.groups.session import Session

PASS_BLOCKS: Final = 256
"""Blocks submitted at once; the rest of the queue follows in the next round."""

NUMBERED_MESSAGES: Final = 64
"""With fewer messages at once a column of numbers costs more than it saves."""


class OutBlock(NamedTuple):
    """Of an own block that is out: its first message, how many it has, and for which groups."""

    first: int
    messages: int
    group: Target | None  # of all messages; None: one of the other two, or an operation
    groups: EachTarget | None  # of each message
    addressees: Addressees | None  # all messages go to all of these


class Stream:
    """What one session sends on one channel, and the waits for it."""

    __slots__ = (
        "addressed",
        "base",
        "channel",
        "has_numbers",
        "held_bytes",
        "is_ending",
        "is_fed",
        "is_large_open",
        "is_parting",
        "is_short",
        "is_system",
        "label",
        "me",
        "outside",
        "outstanding",
        "parted",
        "ports",
        "queue",
        "ready",
        "rosters",
        "rows",
        "session",
        "waiting",
        "wanted",
        "watches",
    )

    def __init__(self, channel: Channel, session: Session, next_number: int, *, is_system: bool = False) -> None:
        """`is_system`: the node's own, for operations on the roster. They go on where messages have to wait."""
        self.channel = channel
        self.session = session
        self.label = session.label
        self.me = channel.me.session(session.label)
        self.rows = channel.rows.of_session(session.label, str(self.me))
        self.ports: dict[str, Port] = {}  # by group, in the order of opening
        self.base: Port | None = None  # of a shared underlay: the session's place in the underlay itself
        self.is_fed = False  # the base port receives the events of all groups, in one order
        self.wanted = WantedGroups()
        self.rosters = 0  # that this node has left, or that a merge has ended: each had numbers of its own
        self.waiting: dict[Port, None] = {}  # ports whose tasks wait for room in the queue
        self.held_bytes = 0  # by all its ports on their own account
        # All its ports have ended, and others have the beginning of a large message: they get the end of it as well.
        self.is_ending = False
        # sending
        self.queue = SendQueue(next_number, session.label.encode())
        self.has_numbers = False  # some of what is queued or out names its groups by their numbers
        self.parted: dict[Port, None] = {}  # that it is on its way out of, or out: what is queued for them goes by name
        self.ready: list[Packed] = []  # packed, and refused by the engine for now; at most PASS_BLOCKS
        # Own block number -> what is not yet delivered here. The engine's room bounds it.
        self.outstanding: dict[int, OutBlock] = {}
        self.is_large_open = False  # fragments of an own message were delivered here, and not yet its last
        # What is delivered now was brought together by a part of the view, and other parts may go on without it.
        self.is_parting = False
        self.is_system = is_system
        self.is_short = not is_system and channel.is_short()  # the view has too few members to send to
        self.watches = Watches()
        # The last groups that it has sent to from outside: messages to the same ones share blocks.
        self.addressed: GroupNames | None = None
        self.outside: OpenCalls | None = None  # calls to groups that the session is not in, once there are any

    # State.

    @property
    def lowest_undelivered(self) -> int:
        """The first own message that is not yet delivered here."""
        for out in self.outstanding.values():
            return out.first
        return self.lowest_unsent

    @property
    def lowest_unsent(self) -> int:
        """The first own message that the engine has not taken."""
        return self.ready[0].first if self.ready else self.queue.next_number

    @property
    def priority(self) -> int:
        """Of what it submits next."""
        return self.ready[0].priority if self.ready else self.queue.priority

    @property
    def resume(self) -> int:
        """The number with which a later stream of the session on this underlay goes on."""
        if not self.ready:
            return self.queue.spent_number
        head = self.ready[0]
        return head.first + int(not head.shown)  # a later fragment: the number is spent

    @property
    def listeners(self) -> list[Port]:
        """The ports that events of the underlay go to: of a session that receives everything at its base port, that.
        A base port whose application does not receive there gets none, because it would hold up everything."""
        return [self.base] if self.is_fed and self.base is not None else list(self.ports.values())

    @property
    def is_holding_up(self) -> bool:
        """The underlay waits for this session to receive, because it holds as much as it may."""
        return any(port.is_holding_up for port in self.listeners)

    def may_hold(self, held: int, size: int) -> bool:
        """Whether a port that holds `held` bytes on its own account may hold `size` more.

        A session that receives all its groups in one place is one application, and waits for nobody but itself. A
        labelled session holds so much all in all: others of its node must not wait for it soon, wherever it receives.
        """
        channel = self.channel
        if channel.shared is None or not channel.consumption.has_room(size):
            return False
        if self.label and self.held_bytes + size > SESSION_BYTES:
            return False
        return bool(self.label) if self.is_fed else held + size <= PORT_BYTES

    # The application.

    def feed(self) -> None:
        """Receive all groups of the session on this channel at the base port, in one order, from here on. What their
        ports have comes first, in the same order."""
        if not self.is_fed and self.base is not None:
            self.is_fed = True
            self.base.take_over(list(self.ports.values()))

    def watch(self, first: int, stop: int, service: Service) -> Watch:
        """Wait for own messages [first, stop) to several groups, which have just been offered."""
        return self.watches.confirm(first, stop, service)

    def flush(self) -> Watch | None:
        """Wait until everything offered so far is delivered here; None if it is."""
        stop = self.queue.end_number
        return self.watches.flush(stop) if self.lowest_undelivered < stop else None

    # The channel.

    def on_the_way(self, now_ns: int, port: Port, recovered: str) -> None:
        """A group has got a view on the way through the recovery of this view of the underlay. What comes in it was
        brought together as well, so the group hears the signal again. A session that receives all its groups in one
        order was told until the next view of the underlay: in its trace the group's view has the signal, even if it has
        only now come into the group."""
        if not self.is_fed or self.base is None:
            port.transitional = ""
        elif port.view is not None and self.base.transitional == recovered:
            self.rows.group_transitional(now_ns, port.view)

    def submit(self, now_ns: int) -> bool:
        """Pack and submit what the engine has room for; False if there was nothing to do."""
        if self.parted:
            self._readdress()
        channel, queue, ready = self.channel, self.queue, self.ready
        if channel.view is None or (queue.is_waiting and not ready):
            return False
        if channel.shared is not None and channel.shared.is_held(self):
            return False  # its groups may get other numbers
        if self.is_short and not self.is_large_open:
            return False  # a message that others have the beginning of is completed: newcomers wait for its end
        engine = channel.engine
        priority = self.priority
        if priority and engine.interest is not None:
            engine.interest.hurry(priority)
        room, largest = engine.room(now_ns)
        largest = min(largest, MAX_BLOCK)
        if queue.large_bytes > engine.config.max_message:
            # This node came back into a group that was made anew with a smaller max_message.
            group, addressees = queue.head_large
            self._lose(queue.next_number, queue.next_number + 1, group, addressees)
            queue.drop_large()
        may_begin = channel.shared is None or channel.shared.may_begin(self)
        if ready:
            room -= sum(len(packed.block) for packed in ready)
        while room > 0 and len(ready) < PASS_BLOCKS and queue.priority >= priority:
            limit = min(room, largest)
            if limit * SMALL_SHARE < largest and queue.queued_bytes > limit and (self.outstanding or ready):
                break
            packed = queue.pack(limit, largest, engine.after(), may_begin=may_begin)
            if packed is None:
                break
            ready.append(packed)
            room -= len(packed.block)
        if not ready:
            return False
        count = engine.submit(now_ns, [packed.block for packed in ready], channel.out)
        taken = ready[:count]
        del ready[:count]
        if taken and not priority and channel.shared is not None:
            channel.shared.submitted = self
        for packed in taken:
            if packed.service.rank != UNRELIABLE_RANK:  # those have no block number, and are delivered in this pass
                out = OutBlock(packed.first, packed.messages, packed.group, packed.groups, packed.addressees)
                self.outstanding[channel.next_block] = out
                channel.next_block += 1
        rows = self.rows
        for packed in taken:
            first, shown, service, nbytes = packed.first, packed.shown, packed.service, packed.payload_bytes
            group, numbers = packed.group, packed.numbers
            if group is not None:
                group.messages_sent += packed.messages
                rows.submit(now_ns, group.number, first, shown, service, nbytes)
            elif packed.groups is not None:
                self._submitted(now_ns, packed, packed.groups)
            elif len(numbers) == 1:
                rows.submit(now_ns, numbers[0], first, shown, service, nbytes)
            elif numbers:
                rows.submit_many(now_ns, numbers, first, shown, service, nbytes)
        return count > 0

    def offer_to(
        self, groups: Sequence[str], payload: bytes, service: Service, type_: int = 0, priority: int = 0
    ) -> int:
        """Queue one message to groups that this session need not be in; its number, or -1: the queue is full, wait."""
        number = self.queue.end_number
        return number if self.offer_all_to(groups, [payload], service, type_, priority) else -1

    def call_outside(self, group: str, payload: bytes, service: Service, handler: int, type_: int = 0) -> Asked | None:
        """Queue a call to a group that this session is not in; None: the queue is full, wait."""
        if self.outside is None:
            self.outside = OpenCalls(self)
        return self.outside.call(group, payload, service, handler, type_)

    def offer_all_to(
        self, groups: Sequence[str], payloads: Sequence[bytes], service: Service, type_: int = 0, priority: int = 0
    ) -> int:
        """Queue messages, each to all of these groups, which this session need not be in; how many were taken."""
        shared = self.channel.shared
        if shared is None:
            raise UsageError(f"{self.channel.underlay!r} is not a shared underlay: only its members can send to it")
        self.channel.check_message(max(map(len, payloads)), service, type_, self.channel.underlay)
        if not service.is_ordered and len(set(groups)) > 1:
            raise UsageError(
                f"a message to several groups is AGREED or stronger, got {service}: with less it could come before its "
                "groups have their names. Send it to each of them"
            )
        queue, addressees, taken = self.queue, shared.address(self, groups), 0
        while taken < len(payloads) and queue.has_room:
            queue.offer_addressed(payloads[taken], service, type_, addressees, priority)
            taken += 1
        if taken > 1:
            shared.address(self, groups)  # the names are needed until the last message is delivered, too
        return taken

    def offer_many_to(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int],
        ports: Sequence[Port],
        numbered: int = NUMBERED_MESSAGES,
        priority: int = 0,
    ) -> int:
        """Queue messages, each to the group of a port; how many were taken. So many as `numbered` go by numbers."""
        port = ports[0]
        if port is ports[-1] and ports.count(port) == len(ports):
            return self.queue.offer_many(payloads, service, type_, lengths, port, None, priority)
        if len(ports) >= numbered:
            try:
                numbers = array("I", [port.number for port in ports])
            except OverflowError:
                pass  # one has no number yet
            else:
                return self.offer_numbered(payloads, service, type_, lengths, np.asarray(numbers), priority)
        return self.queue.offer_many(payloads, service, type_, lengths, port, ports, priority)

    def offer_numbered(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int],
        numbers: npt.NDArray[np.uint32],
        priority: int = 0,
    ) -> int:
        """The same by the numbers of groups that the session is in. Hot: benches measure it as `send_many`."""
        number = int(numbers[0])
        port = self.target_of(number)
        if np.count_nonzero(numbers == number) == len(numbers):
            return self.queue.offer_many(payloads, service, type_, lengths, port, None, priority)
        self.has_numbers = True
        return self.queue.offer_many(payloads, service, type_, lengths, port, NumberedTargets(numbers, self), priority)

    def target_of(self, number: int) -> Port:
        """The port of a group of a shared underlay, by its number."""
        for port in self.channel.reception.ports_of(number):
            if port.stream is self:
                return port
        raise InvariantViolation(f"{self.session} is in no group with the number {number} of {self.channel.underlay!r}")

    def forget_number(self, port: Port) -> None:
        """The group of this port is about to have another number, or none."""
        port.messages_sent += self.wanted.take_count(port.number)
        self._list_targets()

    def part_from(self, port: Port) -> None:
        """The session is on its way out of the group of this port, or out of it. The group may end with it, and be made
        anew under another number, before what is queued for it leaves: that is sent from outside, by the group's name.
        """
        if self.queue.count or self.ready:
            self.parted[port] = None

    def _readdress(self) -> None:
        """One pass over the queue for all ports that have parted since the last one."""
        parted, self.parted, shared = self.parted, {}, self.channel.shared
        if shared is None or not parted:
            return
        self._unpack(goes_on=True)
        self._list_targets()
        by_name: dict[Target, Target] = {port: NamedGroup(GroupNames(shared, self, [port.group])) for port in parted}
        found = self.queue.readdress(by_name)
        for port in parted:
            if port in found:
                shared.number_of(port.group, self)  # all of them are named at once

    def _list_targets(self) -> None:
        """Keep the groups of what is queued and out, not their numbers."""
        if self.has_numbers:
            self.has_numbers = False
            self.queue.list_targets()
            self.ready = [
                packed if packed.groups is None else packed._replace(groups=listed(packed.groups))
                for packed in self.ready
            ]
            for number, out in self.outstanding.items():
                if out.groups is not None:
                    self.outstanding[number] = out._replace(groups=listed(out.groups))

    def _submitted(self, now_ns: int, packed: Packed, groups: EachTarget) -> None:
        """A block that mixes groups is out."""
        if isinstance(groups, NumberedTargets):
            self.wanted.count(groups.numbers)
        else:
            for group in groups:
                group.messages_sent += 1
        if self.rows.is_on:
            each = packed.payload_bytes // packed.messages
            for number, start, stop in row_runs(open_column(packed.column)):
                count = stop - start
                self.rows.submit(now_ns, number, packed.first + start, count, packed.service, each * count)

    def on_departed(self) -> None:
        """This node is out of a shared underlay. Blocks that have not left are made anew, with other numbers of groups;
        what it wanted of the roster goes with it."""
        self._unpack()
        self._readdress()
        if self.outside is not None:
            self.outside.on_departed()
        self.queue.drop_operations()
        self.rosters += 1
        self.wanted.clear()

    def before_renumbering(self) -> None:
        """All groups are about to have other numbers: what has not left is made anew, with those."""
        self._unpack()
        for port in self.ports.values():
            self.forget_number(port)
        self._readdress()
        self.rosters += 1

    def _unpack(self, goes_on: bool = False) -> None:
        ready, self.ready = self.ready, []
        for packed in reversed(ready):
            self.queue.put_back(packed, goes_on)

    def delivered(self, now_ns: int, number: int, first: int, count: int, position: int) -> None:
        """Own block `number`, with messages [first, first + count), was delivered here: its service is kept.

        In a recovery that others need not be part of, only a part of the view is known to hold it.
        """
        self.outstanding.pop(number, None)
        watches = self.watches
        if self.is_parting:
            text = f"a part of {self.channel.underlay!r} has messages {first} to {first + count - 1}; another may not"
            watches.part(first, first + count, OutcomeUnknown(text))
        if self.is_short:
            # It was sent in a larger view, and members have left since: too few have it to keep the service's promise.
            text = f"{self.channel.underlay!r} has too few members left to confirm messages {first} to "
            watches.part(first, first + count, OutcomeUnknown(f"{text}{first + count - 1}; they are delivered"), 0)
        for watch, service in watches.delivered(first, count, position):
            number = watch.group.number if watch.group is not None else NO_NUMBER
            count = watch.stop - watch.first
            self.rows.confirm(now_ns, number, watch.first, count, service, watch.position)
        if watches.has_flushes:
            watches.flushed(self.lowest_undelivered)

    def restart_large(self) -> None:
        """Members no longer have the beginning of an own large message: it begins again."""
        if self.is_large_open:
            self.queue.restart()
            self.is_large_open = False

    def forget_unknown(self, number: int, stop: int) -> None:
        """Own blocks [number, stop) were lost with this node's membership: others may or may not deliver them."""
        lost = [block for block in self.outstanding if number <= block < stop]
        if not lost:
            return
        taken = [self.outstanding.pop(block) for block in lost]
        ranges: list[tuple[int, int, Target | None, Addressees | None]] = []
        for out in taken:
            if out.groups is None:
                ranges.append((out.first, out.messages, out.group, out.addressees))
            else:
                runs = runs_of(listed(out.groups))
                ranges += [(out.first + start, end - start, each, None) for each, start, end in runs]
        begins, ends, group, addressees = ranges[0][0], 0, ranges[0][2], ranges[0][3]
        for first, count, its_group, its_addressees in ranges:
            if its_group is not group or its_addressees is not addressees:
                self._lose(begins, ends, group, addressees)
                begins, ends, group, addressees = first, 0, its_group, its_addressees
            ends = max(ends, first + count)
        last = ranges[-1][0]
        if self.queue.abandon_large(last):
            ends = max(ends, last + 1)
        self._lose(begins, ends, group, addressees)

    def fail(self, error: OrdercastError) -> None:
        """All waits end with `error`."""
        self.watches.fail(error)
        if self.outside is not None:
            self.outside.fail(error)

    def _lose(self, first: int, stop: int, group: Target | None, addressees: Addressees | None) -> None:
        if stop <= first:
            return
        name = self.channel.underlay
        text = f"this node was out of {name!r} before it saw its messages {first} to {stop - 1} delivered"
        self.watches.lose(first, stop, OutcomeUnknown(text))
        if group is not None:
            group.lose(first, stop - first)
        elif addressees is not None:
            addressees.lose(first, stop - first)


Group = TypeVar("Group")

MAX_RUNS: Final = 16
"""A block with more runs of messages to one group is a single row of the trace, which names no group."""
MIXED: Final = -1
"""Its group: no block has this number."""


def runs_of(groups: Sequence[Group]) -> Iterator[tuple[Group, int, int]]:
    """(group, start, stop) of consecutive messages to one group."""
    start, size = 0, len(groups)
    for index in range(1, size + 1):
        if index == size or groups[index] != groups[start]:
            yield groups[start], start, index
            start = index


def row_runs(numbers: Sequence[int] | npt.NDArray[np.uint32]) -> list[tuple[int, int, int]]:
    """The runs as the trace has them: if there are too many, one for all, with MIXED as its group. Hot: once for each
    block that mixes groups."""
    front = list(numbers[: MAX_RUNS + 1])
    if len(front) > MAX_RUNS and all(map(ne, front, front[1:])):
        return [(MIXED, 0, len(numbers))]  # no two neighbours are alike: the rest does not matter
    column = np.asarray(numbers, dtype=np.uint32)
    is_other = column[1:] != column[:-1]
    if np.count_nonzero(is_other) >= MAX_RUNS:
        return [(MIXED, 0, len(column))]
    bounds: list[int] = [0, *(np.flatnonzero(is_other) + 1).tolist(), len(column)]
    return [(int(column[start]), start, stop) for start, stop in pairwise(bounds)]
