"""The groups of a shared underlay at one node: the roster, and what its changes mean for the node's ports.

docs/design/roster.md has the design. The channel tells it of views and of roster blocks in the order of the stream; it
offers the operations of this node, and gives the ports of the groups their views. Where the components of the underlay
go on and merge, the roster is an `ExchangeRoster`, and `Regrouping` has what differs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from ordercast.config import MAX_BLOCK, MAX_GROUP_NAME
from ordercast.engine import Transitional, Upcall
from ordercast.errors import UsageError
from ordercast.groups.events import Left
from ordercast.groups.exchange import ExchangeRoster
from ordercast.groups.group_views import GroupViews, Telling, locks_of
from ordercast.groups.queued import NO_NUMBER, NOBODY
from ordercast.groups.records import MAX_NAMED, GroupChange
from ordercast.groups.regrouping import Presence, Regrouping
from ordercast.groups.roster import Roster
from ordercast.groups.rosters import AnyRoster
from ordercast.groups.session import Session
from ordercast.groups.stream import Stream
from ordercast.view import RECOVERIES, Reason, View
from ordercast.wire.block import MAX_TARGETS, OVERHEAD
from ordercast.wire.roster import (
    NameGroups,
    Operation,
    SessionKey,
    decode_operation,
    encode_joins,
    encode_leaves,
    encode_name_groups,
)

PASS_CHANGES: Final = 1_000
"""Views of groups that one pass makes, and what one more operation brings: some tens of milliseconds."""
JOINS_BYTES: Final = 16_384
LEAVES_BYTES: Final = 4_096
"""An operation is carried out in one pass: so it is about some thousand groups."""
UNBOUNDED: Final = 1 << 62

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.port import Port

BODY_BYTES: Final = MAX_BLOCK - OVERHEAD - 64
"""The largest body of an operation: with it a block is full."""

SEED_AHEAD: Final = 4
"""Parts of a seed that wait to be submitted. The rest is made when these are out."""

KEPT_NAMES: Final = 1_024
"""Groups that this node sends to from outside, and keeps the numbers of. Beyond it those are given back that were not
sent to for longest."""

GIVEN_BACK: Final = 64
"""Names that one send looks at to give them back."""

LABEL: Final = ""
"""Of the session of an embedded node. A daemon will have one for each client."""


class GroupNames:
    """Groups that a message is for, by name."""

    __slots__ = ("_names", "_shared", "_stream")

    def __init__(self, shared: SharedGroups, stream: Stream, names: Sequence[str]) -> None:
        self._shared = shared
        self._stream = stream
        self._names = tuple(names)

    def numbers(self) -> Sequence[int] | None:
        # Names that a bound kept out have the number of nobody; one of them is enough.
        numbers = list(dict.fromkeys([self._shared.number_of(name, self._stream) for name in self._names]))
        return None if NO_NUMBER in numbers else numbers

    def lose(self, first: int, count: int) -> None:
        """Told to the session where it receives all groups in one order, or else by the first of them that it is in."""
        stream = self._stream
        port = stream.base if stream.is_fed else None
        if port is None:
            port = next((stream.ports[name] for name in self._names if name in stream.ports), None)
        if port is not None:
            port.lose(first, count)


class SharedGroups:
    """What a channel has besides where its underlay carries many groups."""

    __slots__ = (
        "_changes",
        "_channel",
        "_joining",
        "_leaving",
        "_locks",
        "_maker",
        "_named",
        "_ports",
        "_regrouping",
        "_seed",
        "_seq",
        "_shown",
        "_system",
        "_telling",
        "_to_name",
        "_transitional",
        "_unanswered",
        "_unlocking",
        "left",
        "roster",
        "waiting",
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        interest = channel.engine.interest
        self._regrouping = Regrouping(interest) if interest is not None else None
        self.roster: AnyRoster = self._new_roster()
        self._maker = GroupViews(by_position=interest is not None)
        self._ports: dict[str, Port] = {}  # by group, of all sessions
        # Operations that are to be offered. All of a node's go through one queue, so that their order is certain.
        self._joining: dict[Port, None] = {}
        self._leaving: list[tuple[int, bytes]] = []  # number of the group, and header
        self._to_name: list[str] = []
        # Groups that this node is not in, and has asked a number for: the last message to each. The latest come last.
        self._named: dict[str, tuple[Stream, int]] = {}
        self._unanswered: set[str] = set()  # those of them whose operation has not been read yet
        self._seed: Iterator[bytes] | None = None
        # What the engine has said and this node has not come to yet: a pass makes only so many views of groups.
        self.waiting: deque[Upcall] = deque()
        self.left = PASS_CHANGES  # how many this pass may still make
        self._telling: Telling | None = None  # groups have it up to `_changes`
        self._changes: deque[GroupChange] = deque()
        self._shown: set[Port | None] = set()  # that got a view of their own by it
        # Of the last view or operation: the view's own, and one more for each operation since. All members of the
        # underlay count alike, and the next view has a greater one, since every operation takes one in the log. Where
        # components go on, positions take its place.
        self._seq = 0
        self._transitional = ""  # the underlay's view that is being recovered, until the next one
        self._locks: dict[str, int] = {}  # of all groups, as of the last view
        self._unlocking: dict[str, None] = {}  # locks that are to be given back: their ports have ended
        self._system = Stream(channel, Session(), 0, is_system=True)  # of the node itself: operations
        channel.streams.append(self._system)

    def _new_roster(self) -> AnyRoster:
        interest, me = self._channel.engine.interest, self._channel.me.id
        return ExchangeRoster(me, interest.interests) if interest is not None else Roster(me)

    # Ports

    def check(self, group: str) -> None:
        """Raise where the group cannot be opened."""
        if group in self._ports:
            raise UsageError(
                f"another session of this node is in {group!r} already: on a shared underlay a node is in a group once"
            )

    def attach(self, port: Port) -> None:
        self._ports[port.group] = port
        self._joining[port] = None
        self._channel.consumption.ports += 1

    def detach(self, port: Port) -> None:
        """The port has ended. A session that the roster still has in the group is taken out there as well."""
        if port.group:
            self._channel.consumption.ports -= 1
        if self._ports.get(port.group) is port:
            del self._ports[port.group]
        self._joining.pop(port, None)
        if self._regrouping is not None:
            self._regrouping.forget(port)
        self._note_base(port)
        prefix = f"{port.number}:"
        self._unlocking.update({lock: None for lock in self._own_locks if lock.startswith(prefix)})
        record = self.roster.at(port.number)
        if record is not None and record.name == port.group and self._key in record.members:
            self._leaving.append((port.number, b""))
        if port.number < 0:
            port.number = NOBODY  # what it has sent waits no longer

    def leave(self, port: Port, header: bytes) -> bool:
        """The port is to leave, now that what it sent is delivered. False: there is no order for that, and it is out
        at once."""
        if port.number < 0 or self._channel.view is None or self._channel.failure is not None:
            return False
        self._leaving.append((port.number, header))
        if self._regrouping is not None:
            self._regrouping.note_leave(port, header)
        return True

    def _note_base(self, port: Port) -> None:
        """A join or leave has ended: tasks may wait at the underlay for many of them."""
        if port.stream.base is not None:
            self._channel.note(port.stream.base)

    # What this node says

    @property
    def _key(self) -> SessionKey:
        return (self._channel.me.id, LABEL)

    @property
    def is_at_rest(self) -> bool:
        """All that this node wanted of the roster has been read, and nobody waits for a seed of it."""
        if self._joining or self._leaving or self._to_name or self._unlocking or self._seed is not None:
            return False
        if self._regrouping is not None and self._regrouping.is_waiting:
            return False
        return (
            not self._system.outstanding
            and self._system.queue.is_waiting
            and self.roster.is_seeded
            and not self.roster.must_seed()
        )

    @property
    def has_operations(self) -> bool:
        """Whether `offer` has anything to do now."""
        regrouping = self._regrouping
        if self._channel.view is None or (regrouping is not None and self._is_late):
            return False
        if self._seed is None and self.roster.must_seed():
            return True
        if self._seed is not None and self._system.queue.queued_bytes < SEED_AHEAD * BODY_BYTES:
            return True
        if not self.roster.is_seeded:
            return False
        if self._joining or self._leaving or self._to_name or self._unlocking:
            return True
        return regrouping is not None and regrouping.is_ready

    def is_held(self, stream: Stream) -> bool:
        """Whether a session must not submit now, because its groups may be about to have other numbers: components have
        merged. Until all rosters are exchanged only these are sent."""
        if self._regrouping is None:
            return False
        return self._is_late or not (stream.is_system or self.roster.is_seeded)

    @property
    def _is_late(self) -> bool:
        """Whether the engine has come further than the roster: what is said now would be said in another view."""
        mine, view = self._channel.view, self._channel.engine.view
        return self.is_behind or mine is None or view is None or mine.rank != view.rank

    def offer(self, now_ns: int) -> None:
        """Offer the operations of this node, and its roster to those that need it."""
        roster, queue = self.roster, self._system.queue
        if roster.is_seeded:
            self._offer_operations(now_ns)
        if self._seed is None and roster.must_seed():
            self._seed = roster.seed(BODY_BYTES)
        if self._seed is not None:
            while queue.queued_bytes < SEED_AHEAD * BODY_BYTES:
                part = next(self._seed, None)
                if part is None:
                    self._seed = None
                    break
                queue.offer_operation(part)

    def _offer_operations(self, now_ns: int) -> None:
        """Leaves come first: a group that is left may have been opened again."""
        queue = self._system.queue
        for lock in self._unlocking:
            self._channel.engine.unlock(now_ns, lock, self._channel.out)
        self._unlocking = {}
        if self._leaving:
            numbers: dict[bytes, list[int]] = {}
            for number, header in self._leaving:
                numbers.setdefault(header, []).append(number)
            self._leaving = []
            for header, each in numbers.items():
                for body in encode_leaves(LABEL, header, each, LEAVES_BYTES):
                    queue.offer_operation(body)
        joining: Iterable[Port] = self._joining
        if self._regrouping is not None:
            joining = self._regrouping.take_joins(joining, self._presence_in)
        if joining:
            names: dict[bytes, list[str]] = {}
            for port in joining:
                names.setdefault(port.join_header, []).append(port.group)
            for header, groups in names.items():
                for body in encode_joins(LABEL, header, groups, JOINS_BYTES):
                    queue.offer_operation(body)
        self._joining = {}
        if self._to_name:
            for body in encode_name_groups(LABEL, self._to_name, BODY_BYTES):
                queue.offer_operation(body)
            self._to_name = []

    def _presence_in(self, group: str) -> Presence:
        """Whether sessions of this node are in the group, and stay."""
        record, port, me = self.roster.find(group), self._ports.get(group), self._channel.me.id
        if record is None or all(key[0] != me for key in record.members):
            return Presence.OUT
        is_staying = port is not None and port.number == record.number and not port.is_leaving
        return Presence.STAYING if is_staying else Presence.LEAVING

    def address(self, stream: Stream, names: Sequence[str]) -> GroupNames:
        """The groups that a message of a session is for. Those that it is not in are named; the message waits."""
        names = list(dict.fromkeys(names))
        if not 1 <= len(names) <= MAX_TARGETS:
            raise UsageError(f"a message goes to 1 to {MAX_TARGETS} groups, got {len(names)}")
        for name in names:
            if not name or len(name.encode()) > MAX_GROUP_NAME:
                raise UsageError(f"a group's name has 1 to {MAX_GROUP_NAME} bytes, got {len(name.encode())}")
        unknown = [name for name in names if name not in self._ports and name not in self._named]
        if len(self._named) + len(unknown) > MAX_NAMED:
            raise UsageError(
                f"this node has named {len(self._named)} groups on {self._channel.underlay!r} that it is not in; "
                f"{MAX_NAMED} are the most. Join those that it sends to often"
            )
        for name in names:
            if name in self._named:
                del self._named[name]
                self._named[name] = (stream, stream.queue.end_number)
        found = GroupNames(self, stream, names)
        found.numbers()
        if len(self._named) > KEPT_NAMES:
            self._give_back()
        return found

    def _give_back(self) -> None:
        """Names that were not used for longest. Those of messages that are not delivered yet are kept: their groups
        must not end before."""
        for name in list(islice(self._named, min(GIVEN_BACK, len(self._named) - KEPT_NAMES))):
            stream, number = self._named[name]
            if name in self._unanswered or name in self._ports or number >= stream.lowest_undelivered:
                continue
            del self._named[name]
            record = self.roster.find(name)
            if record is not None and self._key in record.namers:
                self._leaving.append((record.number, b""))

    def number_of(self, name: str, stream: Stream) -> int:
        """The number of a group that this node is about to send to.

        A group that the node is not in is named, also where others have made it: the group could end with them, and
        come back under another number, while the message is under way.
        """
        port = self._ports.get(name)
        if port is not None and port.number >= 0:
            return port.number
        if name not in self._named:
            self._named[name] = (stream, stream.queue.end_number)
            self._unanswered.add(name)
            self._to_name.append(name)
        if name in self._unanswered:
            return NO_NUMBER
        record = self.roster.find(name)
        return record.number if record is not None else NOBODY  # a bound has kept it out

    # What the underlay says

    def on_transitional(self) -> None:
        """Ports hear of it with the first message or view that follows it for them."""
        self._transitional = self._channel.view.id if self._channel.view is not None else ""
        self.roster.on_transitional()

    def signal(self, port: Port) -> None:
        """The port is about to get something that a recovery brought together."""
        if port.stream.is_fed and port.stream.base is not None:
            port = port.stream.base
        if self._transitional and port.view is not None and port.transitional != self._transitional:
            port.transitional = self._transitional
            port.tell(Transitional(port.view.id, port.group))

    def on_view(self, now_ns: int, view: View) -> None:
        """The next view of the underlay: sessions of nodes that are not in it are out of their groups."""
        for base in [stream.base for stream in self._channel.streams if stream.base is not None]:
            if base.stream.is_fed:
                self.signal(base)
            base.on_view(view)
            if base.stream.is_fed:
                base.tell(view)
        self._seq = view.seq
        self._telling = Telling(view, view.position, is_view=True)
        self._changes = deque(self.roster.on_view(view.seq, view))
        if self._regrouping is not None:
            self._regrouping.on_view()
            self._system.on_departed()  # what has not left is void
            self._seed = None
        self.go_on(now_ns)

    def _want_again(self) -> None:
        """What this node wants of the roster begins again: none of its operations is under way, and its ports have been
        told of all changes."""
        if self._regrouping is not None and self.roster.is_seeded:
            wanted = self._regrouping.wanted(self.roster, self._key, self._ports, self._named)
            self._joining = dict.fromkeys(wanted.joins)
            self._leaving = wanted.leaves
            self._to_name = wanted.names
            self._unanswered = set(wanted.names)

    @property
    def is_behind(self) -> bool:
        """Whether the engine has said more than this node has come to."""
        return bool(self.waiting) or self._telling is not None

    def go_on(self, now_ns: int) -> bool:
        """Let groups have the view of the underlay, as far as this pass goes. Whether there is time for more."""
        telling, changes = self._telling, self._changes
        if telling is not None:
            view = telling.view
            while changes and self.left > 0:
                self._shown.add(self._on_change(now_ns, changes.popleft(), view, telling.position))
            if changes:
                return False
            shown, self._shown, self._telling = self._shown, set(), None
            if telling.is_view:
                self._transitional = ""
                self._show_locks(now_ns, view, shown)
            self._want_again()
        return self.left > 0

    def on_operation(self, now_ns: int, position: int, origin: int, body: memoryview) -> None:
        """A roster block at its place in the order."""
        view = self._channel.view
        if view is None:
            return
        self._seq = self._seq + 1 if self._regrouping is None else position
        made = self.roster.apply(self._seq, origin, body)
        if self.roster.take_renumbered():
            self._renumber(now_ns)
            # As many groups may need a view of it as by a view of the underlay.
            self._telling, self._changes = Telling(view, position, is_view=False), deque(made)
            self.go_on(now_ns)
            return
        for change in made:
            self._on_change(now_ns, change, view, position)
        if origin == self._channel.me.id and self._unanswered and body[0] == Operation.NAME:
            operation = decode_operation(body)
            if isinstance(operation, NameGroups):
                self._on_named(operation.names)

    def _on_named(self, names: Sequence[str]) -> None:
        """Own names have been read. Those of groups that this node is in without a port, because the port ended while
        its join was under way, have had no effect."""
        self._unanswered.difference_update(names)
        for name in names:
            record, port = self.roster.find(name), self._ports.get(name)
            if record is not None and self._key in record.members and (port is None or port.number < 0):
                self._name_again(name)

    def _name_again(self, name: str) -> None:
        """This node is on its way out of a group that it still sends to: it is named behind the leave."""
        if name in self._named and name not in self._to_name:
            self._unanswered.add(name)
            self._to_name.append(name)

    def _renumber(self, now_ns: int) -> None:
        """An exchange of rosters has given all groups other numbers."""
        channel, find = self._channel, self.roster.find
        for port in [port for port in self._ports.values() if port.number > NOBODY]:
            record = find(port.group)
            if record is None or self._key not in record.members:
                self._on_left(now_ns, port, "the components that merged have too many groups or members")
        for stream in channel.streams:
            stream.before_renumbering()
        channel.reception.renumber(lambda group: NOBODY if (record := find(group)) is None else record.number)
        channel.rows.forget_groups()

    def on_departed(self) -> None:
        """This node is out of the underlay. If it comes back, it joins its groups again."""
        channel = self._channel
        self.roster = self._new_roster()
        self._seed = None
        self._transitional = ""
        self._locks = {}
        self._unlocking = {}
        self._leaving.clear()
        self._to_name = list(self._named)
        self._unanswered = set(self._named)
        for port in self._ports.values():
            channel.reception.detach(port)
            port.number = NO_NUMBER
        self._joining = dict.fromkeys(self._ports.values())
        for stream in channel.streams:
            stream.on_departed()

    # In detail

    def _on_change(self, now_ns: int, change: GroupChange, view: View, position: int) -> Port | None:
        """The port that got a view of its group."""
        self.left -= 1
        channel, record, mine = self._channel, change.record, self._key
        if self._regrouping is not None and channel.reception.is_assembling and change.has_new_node:
            channel.reception.drop_open(record.number)
        port = self._ports.get(record.name)
        was_in = mine in change.before
        if mine not in change.after:
            if was_in and port is not None and port.number == record.number:
                self._on_left(now_ns, port)
            elif was_in and self._regrouping is not None:
                self._joining.update(dict.fromkeys(self._regrouping.unblock(record.name)))
            return None
        if not was_in:
            if port is None:
                self._leaving.append((record.number, b""))  # it ended while its join was under way
                self._name_again(record.name)  # the join has taken its name, and the leave ends the group
                return None
            self._named.pop(record.name, None)
            self._joining.pop(port, None)
            port.number = record.number
            self._note_base(port)
            channel.reception.attach(port)
            channel.rows.join(now_ns, record.name)
        elif port is None or port.number != record.number:
            return None
        came_with = change.before if was_in else (mine,)
        shown = self._maker.make(view, change, position, tuple([key for key in change.after if key in came_with]))
        channel.rows.group_view(now_ns, shown)
        self.signal(port)
        for key in port.on_view(shown):
            channel.rows.lock(now_ns, port.number, key)
        port.tell(shown)
        return port

    def _on_left(self, now_ns: int, port: Port, why: str = "a leave that was taken back was ordered") -> None:
        """This session is out of the group."""
        channel = self._channel
        self.write_leave(now_ns, port)
        if port.is_leaving:
            channel.end_port(port, Left(wanted=True, returning=False, text="left", group=port.group))
            return
        # A leave that was taken back when the underlay failed has been ordered after all, for instance.
        channel.reception.detach(port)
        port.number = NO_NUMBER
        port.on_departed()
        left = Left(wanted=False, returning=True, text=why, group=port.group)
        port.tell(left)
        self._joining[port] = None

    def write_leave(self, now_ns: int, port: Port) -> None:
        """The rows of a port that leaves its group. What it holds there is given back."""
        rows = self._channel.rows
        prefix = f"{port.number}:"
        for lock in self._own_locks:
            if lock.startswith(prefix):
                rows.group_unlock(now_ns, port.group, lock.removeprefix(prefix))
        rows.group_leave(now_ns, port.group)

    # Locks: those of all groups stand in the views of the underlay, named by the number of their group

    @property
    def _own_locks(self) -> list[str]:
        return [lock for lock, holder in self._locks.items() if holder == self._channel.me.id]

    def _show_locks(self, now_ns: int, view: View, shown: set[Port | None]) -> None:
        """A view of the underlay may give or take locks, and a recovery may have lost requests for them."""
        channel, before = self._channel, self._locks
        self._locks = view.locks
        for number in dict.fromkeys([_number_of(lock) for lock, _ in sorted(before.items() ^ view.locks.items())]):
            for port in channel.reception.ports_of(number):
                if port.view is None or port in shown:
                    continue
                lock = view.lock.removeprefix(f"{number}:") if view.lock.startswith(f"{number}:") else ""
                locks, tokens = locks_of(number, view.locks), locks_of(number, view.tokens)
                shown_view = replace(port.view, locks=locks, tokens=tokens, reason=view.reason, lock=lock)
                self._tell(now_ns, port, shown_view)
                port.tell(port.view)
                shown.add(port)
        if view.reason in RECOVERIES:
            for port in channel.talkers:
                if port.view is not None and port.number >= 0 and port not in shown:
                    self._tell(now_ns, port, replace(port.view, reason=view.reason, lock=""))
        elif view.reason == Reason.JOIN:
            # What was denied because there were too few members is asked for again.
            for port in channel.talkers:
                if port.view is not None and port.number >= 0 and port not in shown:
                    self._tell(now_ns, port, port.view)
        for lock in self._own_locks:
            if not channel.reception.ports_of(_number_of(lock)):
                self._unlocking[lock] = None  # it was asked for by a port that has ended

    def _tell(self, now_ns: int, port: Port, view: View) -> None:
        for key in port.on_view(view):
            self._channel.rows.lock(now_ns, port.number, key)


def _number_of(lock: str) -> int:
    """The number of a lock's group. A peer may have made it up."""
    number = lock.partition(":")[0]
    return int(number) if number.isascii() and number.isdecimal() else NOBODY
