"""What a client sends: its queue, the credit that its daemon gives, what is on its way, and who waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, TypeVar

from ordercast.client.seats import CalledGroup, ClientSeat, GroupList
from ordercast.errors import GroupFailed, NotMember, OrdercastError, OutcomeUnknown, UsageError
from ordercast.groups.checks import check_name
from ordercast.groups.queue import SMALL_SHARE, Packed, SendQueue
from ordercast.groups.queued import Addressees, Target, listed
from ordercast.groups.watches import Watch
from ordercast.service import Service
from ordercast.wire.client_frames import WatchRange, encode_name, encode_send, encode_watch
from ordercast.wire.daemon_frames import Confirmation, Credit, SendOutcome, Welcome
from ordercast.wire.frames import PREFIX_BYTES

MAX_NAMED: Final = 1 << 16
"""Groups that a client has named in its life. At the bound a new one is refused."""

MAX_WATCHES: Final = 1 << 16
"""Confirmations that a client waits for: more than that a daemon does not take. At the bound sends wait."""

FRAME_NAMES: Final = 128
"""Groups in one frame: with names of 255 bytes it stays below the bound of a frame."""

Goal = TypeVar("Goal")


class InFlight(NamedTuple):
    """A block that the daemon has got, and whose messages are not known to be delivered."""

    first: int
    messages: int
    packed: Packed


class ClientSending:
    """The sending side of one client, over all its connections."""

    __slots__ = (
        "_confirming",
        "_credit",
        "_delivered",
        "_flushes",
        "_flying",
        "_handles",
        "_known",
        "_largest",
        "_sent",
        "_unasked",
        "_watches",
        "queue",
        "settled",
        "waiting",
    )

    def __init__(self) -> None:
        self.queue = SendQueue()
        # the connection
        self._credit = 0  # bytes of SEND frames since it began
        self._sent = 0
        self._largest = 0  # block
        self._known: set[int] = set()  # handles that it has been told of
        # groups
        self._handles: dict[str, int] = {}
        # what is on its way
        self._flying: deque[InFlight] = deque()
        self._delivered = 0  # own messages below this are delivered
        # who waits
        self._watches: dict[tuple[int, int], Watch] = {}
        self._flushes: dict[int, list[Watch]] = {}
        self._unasked: list[Watch] = []  # of which the daemon has not been told
        self._confirming = 0  # of which it has, and that it has not confirmed
        self.settled: list[Watch] = []
        self.waiting: dict[ClientSeat, None] = {}  # seats whose tasks wait for room in the queue

    @property
    def has_room(self) -> bool:
        """Whether one more message is taken, with a wait for it. Hot: once per `send`."""
        return self.queue.has_room and self._confirming + len(self._unasked) < MAX_WATCHES

    @property
    def unconfirmed(self) -> int:
        """Messages that the daemon has and that are not known to be delivered."""
        return self.queue.next_number - self._delivered if self._flying else 0

    @property
    def sent_bytes(self) -> int:
        return self._sent

    # The connection.

    def on_welcome(self, welcome: Welcome) -> None:
        """What has not left goes out on this connection, with the numbers of its session."""
        step = welcome.next_number - self.queue.next_number
        self.queue.next_number += step
        everybody = self._everybody()
        for watch in everybody:
            watch.first += step
            watch.stop += step
        self._watches = {(watch.first, watch.stop): watch for watch in self._watches.values()}
        self._flushes = {stop + step: watches for stop, watches in self._flushes.items()}
        self._unasked, self._confirming = everybody, 0
        self._credit, self._sent, self._largest = welcome.credit, 0, welcome.block_bytes
        self._delivered = welcome.next_number
        self._known.clear()

    def on_lost(self, text: str) -> None:
        """What was on its way may have arrived or not, and its groups are told so."""
        self.queue.restart()  # nobody has a message that had not left as a whole
        number = self.queue.next_number
        error = OutcomeUnknown(f"the connection was lost before it was known: {text}")
        self.fail_until(number, error, bool(self._flying))
        flying, self._flying = self._flying, deque()
        ranges: list[tuple[int, int, Target | Addressees]] = []
        for first, count, packed in flying:
            if packed.groups is not None:
                for at, target in enumerate(listed(packed.groups)):
                    _extend(ranges, first + at, 1, target)
            elif packed.addressees is not None:
                _extend(ranges, first, count, packed.addressees)
            elif packed.group is not None:
                _extend(ranges, first, count, packed.group)
        for first, count, each in ranges:
            if count:
                each.lose(first, count)

    def lose_waiting(self, seats: Collection[ClientSeat]) -> None:
        """These groups are left while there is no connection. What waits for them goes out by name on the next one, and
        nobody is there then to be told what has become of it: so each is told now that it does not know."""
        ranges: list[tuple[int, int, Target | None]] = []
        for at, target in enumerate(self.queue.targets()):
            _extend(ranges, self.queue.next_number + at, 1, target)
        for first, count, group in ranges:
            if isinstance(group, ClientSeat) and group in seats:
                group.lose(first, count)

    # Groups.

    def handle_of(self, name: str) -> int:
        """What stands in blocks for a group."""
        handle = self._handles.get(name)
        if handle is None:
            if len(self._handles) >= MAX_NAMED:
                raise UsageError(f"this client has named {MAX_NAMED} groups, and no more: connect once more for others")
            check_name(name)
            handle = self._handles[name] = len(self._handles) + 1
        return handle

    def knows(self, handles: Sequence[int]) -> None:
        """The daemon has been told of these by JOIN."""
        self._known.update(handles)

    # Waits.

    def watch(self, first: int, stop: int, service: Service, group: ClientSeat | None) -> Watch:
        watch = Watch(first, stop, service, group)
        self._watches[first, stop] = watch
        self._unasked.append(watch)
        return watch

    def flush(self) -> Watch | None:
        stop = self.queue.end_number
        if not self.queue.count and not self._flying:
            return None
        watch = Watch(stop, stop, None)
        others = self._flushes.setdefault(stop, [])
        if not others:  # one answer is for all of them
            self._unasked.append(watch)
        others.append(watch)
        return watch

    def forget(self, watch: Watch) -> None:
        """Nobody waits for it any more."""
        if self._watches.get((watch.first, watch.stop)) is watch:
            del self._watches[watch.first, watch.stop]
        if watch.service is not None and watch in self._unasked:  # a flush may be for others as well
            self._unasked.remove(watch)

    def fail(self, error: OrdercastError) -> None:
        """All waits end."""
        for watch in self._everybody():
            self._end(watch, error)
        self._watches.clear()
        self._flushes.clear()
        self._unasked.clear()

    def fail_until(self, number: int, error: OrdercastError, with_flushes: bool = True) -> None:
        """Waits for messages below `number` end; the others go on."""
        for key, watch in list(self._watches.items()):
            if watch.first < number:
                del self._watches[key]
                self._end(watch, error)
        if with_flushes:
            for watches in self._flushes.values():
                for watch in watches:
                    self._end(watch, error)
            self._flushes.clear()

    def fail_group(self, seat: ClientSeat, error: OrdercastError) -> None:
        """A group was left before these messages to it left."""
        for key, watch in list(self._watches.items()):
            if watch.group is seat and watch.first >= self.queue.next_number:
                del self._watches[key]
                self._end(watch, error)

    def _everybody(self) -> list[Watch]:
        return [*self._watches.values(), *[watch for each in self._flushes.values() for watch in each]]

    def _end(self, watch: Watch, error: OrdercastError | None) -> None:
        if watch in self._unasked:
            self._unasked.remove(watch)
        watch.error = error
        watch.remaining = 0
        self.settled.append(watch)

    # What leaves.

    def pump(self, out: list[bytes]) -> bool:
        """Add the frames that may leave now; whether blocks were packed. Hot: once for each turn in which something
        was sent."""
        if self._unasked:
            out += [encode_watch(WatchRange(watch.first, watch.stop, watch.service)) for watch in self._unasked]
            self._confirming += len(self._unasked)
            self._unasked.clear()
        queue, largest, has_packed = self.queue, self._largest, False
        while not queue.is_waiting:
            limit = min(self._credit - self._sent - PREFIX_BYTES, largest)
            if limit <= 0 or (limit * SMALL_SHARE < largest and queue.queued_bytes > limit and self._flying):
                break
            packed = queue.pack(limit, largest)
            if packed is None:
                break
            has_packed = True
            self._name(packed, out)
            out.append(encode_send(packed.block))
            self._sent += len(packed.block) + PREFIX_BYTES
            self._flying.append(InFlight(packed.first, packed.messages, packed))
            if packed.group is not None:
                packed.group.messages_sent += packed.messages
            if packed.messages and queue.large_bytes and packed.first == queue.next_number:
                queue.delivered_large(packed.first)  # the daemon has all of it: what is behind may go
        return has_packed

    def _name(self, packed: Packed, out: list[bytes]) -> None:
        """Tell the daemon of groups that a block names by handles which it does not know."""
        known = self._known
        if packed.group is not None:
            if packed.group.number in known:
                return
            targets: Sequence[Target] = (packed.group,)
        elif packed.groups is not None:
            targets = listed(packed.groups)
        else:
            targets = ()
        unknown = {target.number: target.group for target in targets if isinstance(target, ClientSeat | CalledGroup)}
        if isinstance(packed.addressees, GroupList):
            unknown.update({self.handle_of(name): name for name in packed.addressees.names})
        groups = [(handle, name) for handle, name in unknown.items() if handle not in known]
        out += [encode_name(groups[at : at + FRAME_NAMES]) for at in range(0, len(groups), FRAME_NAMES)]
        known.update([handle for handle, _ in groups])

    # What the daemon tells.

    def on_credit(self, credit: Credit) -> None:
        self._credit = max(self._credit, credit.total)
        self._delivered = max(self._delivered, credit.delivered)
        flying = self._flying
        while flying and flying[0].first + max(1, flying[0].messages) <= self._delivered:
            flying.popleft()

    def on_confirm(self, told: Confirmation) -> None:
        self._confirming -= 1
        error: OrdercastError | None = None
        if told.outcome == SendOutcome.NOT_MEMBER:
            error = NotMember(told.text)
        elif told.outcome == SendOutcome.FAILED:
            error = GroupFailed(told.text)
        elif told.outcome != SendOutcome.DELIVERED:
            error = OutcomeUnknown(told.text)
        if told.service is None:
            for watch in self._flushes.pop(told.stop, ()):
                self._end(watch, error)
            return
        found = self._watches.pop((told.first, told.stop), None)
        if found is not None:
            found.position = told.position
            self._end(found, error)


def _extend(ranges: list[tuple[int, int, Goal]], first: int, count: int, target: Goal) -> None:
    """One more range; it is joined with the last one where it follows that."""
    if ranges and ranges[-1][2] is target:
        begin = ranges[-1][0]
        ranges[-1] = (begin, max(ranges[-1][1], first + count - begin), target)
    else:
        ranges.append((first, count, target))
