"""The groups of a shared underlay at one node: the roster, and what its changes mean for the node's ports.

docs/design/roster.md has the design. The channel tells it of views and of roster blocks in the order of the stream; it
offers the operations of this node, and gives the ports of the groups their views. Where the components of the underlay
go on and merge, the roster is an `ExchangeRoster`, and `Regrouping` has what differs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from ordercast.config import MAX_BLOCK, MAX_GROUP_NAME
from ordercast.engine import Transitional, Upcall
from ordercast.errors import UsageError, WireError
from ordercast.groups.addressing import GroupNames
from ordercast.groups.events import Left
from ordercast.groups.exchange import ExchangeRoster
from ordercast.groups.group_views import GroupViews, Telling
from ordercast.groups.queued import NO_NUMBER, NOBODY
from ordercast.groups.records import MAX_NAMED, GroupChange
from ordercast.groups.regrouping import NameKey, Regrouping
from ordercast.groups.roster import Roster
from ordercast.groups.rosters import AnyRoster
from ordercast.groups.session import Session
from ordercast.groups.shared_locks import SharedLocks
from ordercast.groups.stream import Stream
from ordercast.view import View
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
NAME: Final = bytes([Operation.NAME])  # how the body of such an operation begins

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.port import Port

BODY_BYTES: Final = MAX_BLOCK - OVERHEAD - 64  # the largest body of an operation: with it a block is full
SEED_AHEAD: Final = 4  # parts of a seed that wait to be submitted; the rest is made when these are out
GIVEN_BACK: Final = 64  # names that one send looks at to give them back

KEPT_NAMES: Final = 1_024
"""Groups that this node sends to from outside, and keeps the numbers of. Beyond it those are given back that were not
sent to for longest. So many reasons are kept, too, of ports that ended before they could say them."""


class SharedGroups:
    """What a channel has besides where its underlay carries many groups."""

    __slots__ = (
        "_changes",
        "_channel",
        "_joining",
        "_leaving",
        "_maker",
        "_named",
        "_parting",
        "_reasons",
        "_regrouping",
        "_seed",
        "_seq",
        "_shown",
        "_taken_back",
        "_telling",
        "_to_name",
        "_transitional",
        "_unanswered",
        "large",
        "left",
        "locks",
        "roster",
        "streams",
        "submitted",
        "system",
        "waiting",
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        interest = channel.engine.interest
        self._regrouping = Regrouping(channel, interest) if interest is not None else None
        self.roster: AnyRoster = self._new_roster()
        self._maker = GroupViews(by_position=interest is not None)
        self.streams: dict[str, Stream] = {}  # of all sessions, by their labels
        # Operations that are to be offered. All of a node's go through one queue, so that their order is certain.
        self._joining: dict[Port, None] = {}
        self._leaving: list[tuple[str, int, bytes]] = []  # label, number of the group, and header
        self._to_name: list[NameKey] = []
        self._parting: set[Port] = set()  # whose leave is on its way: the group may have another number behind it
        self._taken_back: set[Port] = set()  # ports that stay, because the underlay failed, and whose leave is out
        self._reasons: dict[NameKey, bytes] = {}  # headers of ports that ended before their leaves could be ordered
        # Groups that a session is not in, and has asked a number for: the last message to each. The latest come last.
        self._named: dict[NameKey, tuple[Stream, int]] = {}
        self._unanswered: set[NameKey] = set()  # those of them whose operation has not been read yet
        self._seed: Iterator[bytes] | None = None
        # What the engine has said and this node has not come to yet: a pass makes only so many views of groups.
        self.waiting: deque[Upcall] = deque()
        self.left = PASS_CHANGES  # how many this pass may still make
        self._telling: Telling | None = None  # groups have it up to `_changes`
        self._changes: deque[GroupChange] = deque()
        self._shown: set[Port] = set()  # that got a view of their own by it
        # Of the last view or operation: the view's own, and one more for each operation since. All members of the
        # underlay count alike, and the next view has a greater one, since every operation takes one in the log. Where
        # components go on, it is the position.
        self._seq = 0
        self._transitional = ""  # the underlay's view that is being recovered, until all groups know of the next one
        self.locks = SharedLocks(channel)
        self.large: Stream | None = None  # the session whose large message is under way, or was last
        self.submitted: Stream | None = None  # the last one whose blocks without a priority were taken
        self.system = Stream(channel, Session(), 0, is_system=True)  # of the node itself: operations
        channel.streams.append(self.system)

    def _new_roster(self) -> AnyRoster:
        interest, me = self._channel.engine.interest, self._channel.me.id
        return ExchangeRoster(me, interest.interests) if interest is not None else Roster(me)

    # Sessions

    def enter(self, stream: Stream) -> None:
        """A session begins to use the underlay."""
        if stream.label in self.streams:
            raise UsageError(
                f"another session of this node uses {self._channel.underlay!r} under the label {stream.label!r}: on a "
                "shared underlay each has a label of its own. Host.open_session makes them"
            )
        self.streams[stream.label] = stream

    def exit(self, stream: Stream) -> None:
        """It is out. What it has named is given back: that comes behind all that it has sent."""
        del self.streams[stream.label]
        self._to_name = [key for key in self._to_name if key[0] != stream.label]
        for key in [key for key in self._named if key[0] == stream.label]:
            self._unname(key)

    def may_begin(self, stream: Stream) -> bool:
        """Whether a session may begin a large message: those of a node go one after the other, because members keep
        the beginnings of all that are open, and let nobody join in the middle of one."""
        if self.large is not None and self.large is not stream and self.large.queue.has_begun:
            return False
        self.large = stream
        return True

    def in_turn(self) -> list[Stream]:
        """The streams in the order in which they submit in this pass: operations first, then sessions that have urgent
        messages, and of the others first the one behind the last that did submit, so that none takes all the room for
        good. (The next one in each pass would not do: where every third pass has room, it may be the same one.)"""
        first, *others = self._channel.streams
        if len(others) > 1:
            at = others.index(self.submitted) + 1 if self.submitted in others else 0
            others = others[at:] + others[:at]
            if any(stream.priority for stream in others):
                others.sort(key=lambda stream: -stream.priority)
        return [first, *others]

    # Ports

    def attach(self, port: Port) -> None:
        self._joining[port] = None
        self._channel.consumption.ports += 1

    def detach(self, port: Port) -> None:
        """The port has ended. A session that the roster still has in the group is taken out there as well."""
        label = port.stream.label
        if port.group:
            self._channel.consumption.ports -= 1
            port.stream.part_from(port)
        self._joining.pop(port, None)
        self._forget_leave(port)
        if self._regrouping is not None:
            self._regrouping.forget(port)
        self._note_base(port)
        self.locks.detach(port)
        record = self.roster.at(port.number)
        if record is not None and record.name == port.group and self._key(label) in record.members:
            self._leaving.append((label, port.number, self._reasons.get((label, port.group), b"")))
        if port.number < 0:
            port.number = NOBODY  # what it has sent waits no longer

    def leave(self, port: Port, header: bytes) -> bool:
        """The port is to leave: what it sent is delivered. False: there is no order for that, and it is out at once."""
        if port.number < 0 or self._channel.view is None or self._channel.failure is not None:
            if header and port not in self._joining and len(self._reasons) < KEPT_NAMES:
                self._reasons[port.stream.label, port.group] = header
            return False
        self._leaving.append((port.stream.label, port.number, header))
        self._parting.add(port)
        port.stream.part_from(port)
        if self._regrouping is not None:
            self._regrouping.note_leave(port, header)
        return True

    def take_back(self, port: Port) -> None:
        """The port stays. If its leave is on its way all the same, it is out of the group for a moment."""
        if port in self._parting:
            self._taken_back.add(port)

    def _forget_leave(self, port: Port) -> None:
        self._parting.discard(port)
        self._taken_back.discard(port)

    def _note_base(self, port: Port) -> None:
        """A join or leave has ended: tasks may wait at the underlay for many of them."""
        if port.stream.base is not None:
            self._channel.note(port.stream.base)

    # What this node says

    def _key(self, label: str) -> SessionKey:
        """A session of this node, as the roster knows it."""
        return (self._channel.me.id, label)

    def _port(self, label: str, group: str) -> Port | None:
        """The open port of a session, in the group or on its way in or out."""
        stream = self.streams.get(label)
        return stream.ports.get(group) if stream is not None else None

    @property
    def is_at_rest(self) -> bool:
        """All that this node wanted of the roster has been read, and nobody waits for a seed of it."""
        if self._joining or self._leaving or self._to_name or self.locks.unlocking or self._seed is not None:
            return False
        if self._regrouping is not None and self._regrouping.is_waiting:
            return False
        if self.system.outstanding or not self.system.queue.is_waiting:
            return False
        return self.roster.is_seeded and not self.roster.must_seed()

    @property
    def has_operations(self) -> bool:
        """Whether `offer` has anything to do now."""
        regrouping = self._regrouping
        if self._channel.view is None or (regrouping is not None and regrouping.is_late(self.is_behind)):
            return False
        if self._seed is None and self.roster.must_seed():
            return True
        if self._seed is not None and self.system.queue.queued_bytes < SEED_AHEAD * BODY_BYTES:
            return True
        if not self.roster.is_seeded:
            return False
        if self._joining or self._leaving or self._to_name or self.locks.unlocking:
            return True
        return regrouping is not None and regrouping.is_ready

    def is_held(self, stream: Stream) -> bool:
        """Whether a session must not submit now, because its groups may be about to have other numbers: components have
        merged, and until all rosters are exchanged only these are sent; or a leave that it has taken back is out."""
        if self._regrouping is None:
            return any(port.stream is stream for port in self._taken_back) and not self.is_at_rest
        return self._regrouping.is_late(self.is_behind) or not (stream.is_system or self.roster.is_seeded)

    def offer(self, now_ns: int) -> None:
        """Offer the operations of this node, and its roster to those that need it. Leaves come first: a group that is
        left may have been opened again."""
        roster, queue = self.roster, self.system.queue
        self.locks.give_back(now_ns)
        if self._leaving and roster.is_seeded:
            numbers: dict[tuple[str, bytes], list[int]] = {}
            for label, number, header in self._leaving:
                numbers.setdefault((label, header), []).append(number)
            self._leaving = []
            for (label, header), each in numbers.items():
                for body in encode_leaves(label, header, each, LEAVES_BYTES):
                    queue.offer_operation(body)
        if roster.is_seeded:
            joining: Iterable[Port] = self._joining
            if self._regrouping is not None:
                joining = self._regrouping.take_joins(joining, roster)
            joins: dict[tuple[str, bytes], list[str]] = {}
            for port in joining:
                joins.setdefault((port.stream.label, port.join_header), []).append(port.group)
            self._joining = {}
            for (label, header), groups in joins.items():
                for body in encode_joins(label, header, groups, JOINS_BYTES):
                    queue.offer_operation(body)
        if self._to_name and roster.is_seeded:
            names: dict[str, list[str]] = {}
            for label, name in self._to_name:
                names.setdefault(label, []).append(name)
            self._to_name = []
            for label, groups in names.items():
                for body in encode_name_groups(label, groups, BODY_BYTES):
                    queue.offer_operation(body)
        if self._seed is None and roster.must_seed():
            self._seed = roster.seed(BODY_BYTES)
        while self._seed is not None and queue.queued_bytes < SEED_AHEAD * BODY_BYTES:
            part = next(self._seed, None)
            if part is None:
                self._seed = None
            else:
                queue.offer_operation(part)

    def address(self, stream: Stream, names: Sequence[str]) -> GroupNames:
        """The groups that a message of a session is for. Those that it is not in are named; the message waits."""
        names = list(dict.fromkeys(names))
        if not 1 <= len(names) <= MAX_TARGETS:
            raise UsageError(f"a message goes to 1 to {MAX_TARGETS} groups, got {len(names)}")
        for name in names:
            if not name or len(name.encode()) > MAX_GROUP_NAME:
                raise UsageError(f"a group's name has 1 to {MAX_GROUP_NAME} bytes, got {len(name.encode())}")
        label, ports, named = stream.label, stream.ports, self._named
        unknown = [name for name in names if name not in ports and (label, name) not in named]
        if len(self._named) + len(unknown) > MAX_NAMED:
            raise UsageError(
                f"this node has named {len(self._named)} groups on {self._channel.underlay!r} that it is not in; "
                f"{MAX_NAMED} are the most. Join those that it sends to often"
            )
        for name in names:
            if (label, name) in named:
                del named[label, name]
                named[label, name] = (stream, stream.queue.end_number)
        found = stream.addressed
        if found is None or found.names != tuple(names):
            found = stream.addressed = GroupNames(self, stream, names)
        found.numbers()
        if len(self._named) > KEPT_NAMES:
            self._give_back()
        return found

    def _give_back(self) -> None:
        """Names that were not used for longest. Those of messages that are not delivered yet are kept: their groups
        must not end before."""
        for key in list(islice(self._named, min(GIVEN_BACK, len(self._named) - KEPT_NAMES))):
            stream, number = self._named[key]
            if key in self._unanswered or key[1] in stream.ports or number >= stream.lowest_undelivered:
                continue
            self._unname(key)

    def _unname(self, key: NameKey) -> None:
        """A name is wanted no more: what the roster has of it is taken back."""
        self._named.pop(key, None)
        record = self.roster.find(key[1])
        if record is not None and self._key(key[0]) in record.namers:
            self._leaving.append((key[0], record.number, b""))

    def number_of(self, name: str, stream: Stream) -> int:
        """The number of a group that a session is about to send to.

        A group that the session is not in is named, also where others have made it: the group could end with them, and
        come back under another number, while the message is under way. So is one that it is on its way out of: the name
        goes behind the leave.
        """
        port = stream.ports.get(name)
        if port is not None and port.number >= 0 and port not in self._parting:
            return port.number
        key = (stream.label, name)
        if key not in self._named:
            self._named[key] = (stream, stream.queue.end_number)
            self._unanswered.add(key)
            self._to_name.append(key)
        if key in self._unanswered:
            return NO_NUMBER
        record = self.roster.find(name)
        return record.number if record is not None else NOBODY  # a bound has kept it out

    # What the underlay says

    def on_transitional(self, came_with: Sequence[str] = ()) -> None:
        """Ports hear of it with the first message or view that follows it for them. Where components go on, only those
        do whose groups lose a member: the others may keep their views."""
        view = self._channel.view
        self._transitional = view.id if view is not None else ""
        if self._regrouping is not None and view is not None:
            self._regrouping.on_transitional(view, came_with)
        self.roster.on_transitional()

    def signal(self, now_ns: int, port: Port) -> None:
        """The port is about to get what a recovery may have brought together. Hot: once per block and port."""
        if not self._transitional:
            return
        stream, regrouping = port.stream, self._regrouping
        if stream.is_fed and stream.base is not None:
            port = stream.base
        is_told = port.transitional == self._transitional
        if port.view is None or (is_told and not (regrouping is not None and regrouping.has_exchanged)):
            return
        # One that receives all its groups in one order is told once; in its trace each group has the signal.
        views = [each.view for each in ([port] if port.group else stream.ports.values()) if each.view is not None]
        if regrouping is not None:
            views = regrouping.parting(stream, views)
            if not views and (port.group or is_told):
                return
        port.transitional = self._transitional
        for view in views:
            stream.rows.group_transitional(now_ns, view)
        if port.group or not is_told:
            came_with = regrouping.came_with if regrouping is not None and not port.group else ()
            port.tell(Transitional(port.view.id, port.group, came_with))

    def on_view(self, now_ns: int, view: View) -> None:
        """The next view of the underlay: sessions of nodes that are not in it are out of their groups."""
        for base in [stream.base for stream in self._channel.streams if stream.base is not None]:
            if base.stream.is_fed:
                self.signal(now_ns, base)
            base.on_view(view)
            if base.stream.is_fed:
                base.tell(view)
        self._seq = view.seq
        self._telling = Telling(view, view.position, is_view=True)
        self._changes = deque(self.roster.on_view(view.seq, view))
        if self._regrouping is not None:
            self._regrouping.on_view()
            self.system.on_departed()  # what has not left is void
            self._seed = None
        self.go_on(now_ns)

    def _want_again(self) -> None:
        """What this node wants of the roster begins again: none of its operations is under way, and its ports have been
        told of all changes."""
        if self._regrouping is not None and self.roster.is_seeded:
            wanted = self._regrouping.wanted(self.roster, self.streams, self._named, self._reasons)
            self._joining = dict.fromkeys(wanted.joins)
            self._leaving = wanted.leaves
            self._to_name = wanted.names
            self._unanswered = set(wanted.names)

    @property
    def is_behind(self) -> bool:
        """The engine has said more than this node has come to."""
        return bool(self.waiting) or self._telling is not None

    def go_on(self, now_ns: int) -> bool:
        """Let groups have the view of the underlay, as far as this pass goes. Whether there is time for more."""
        telling, changes = self._telling, self._changes
        if telling is not None:
            view = telling.view
            while changes and self.left > 0:
                self._shown.update(self._on_change(now_ns, changes.popleft(), view, telling.position))
            if changes:
                return False
            shown, self._shown, self._telling = self._shown, set(), None
            # Where rosters are to be exchanged, groups get their views with the exchange.
            if self._regrouping is None or (self.roster.is_seeded and self._regrouping.all_told()):
                self._transitional = ""
            if telling.is_view:
                self.locks.on_view(now_ns, view, shown)
            self._want_again()
        return self.left > 0

    def on_operation(self, now_ns: int, position: int, origin: int, body: memoryview) -> None:
        """A roster block at its place in the order."""
        view = self._channel.view
        if view is None:
            return
        self._seq += 1
        if self._regrouping is not None:
            self._seq = position
        made = self.roster.apply(self._seq, origin, body)
        if self._regrouping is not None and self.roster.take_renumbered():
            for port in self._regrouping.renumber(self.roster, self.streams):
                self._on_left(now_ns, port, "the components that merged have too many groups or members")
            # As many groups may need a view of it as by a view of the underlay.
            self._telling, self._changes = Telling(view, position, is_view=False), deque(made)
            self.go_on(now_ns)
            return
        for change in made:
            self._on_change(now_ns, change, view, position)
        if origin == self._channel.me.id and body[:1] == NAME:
            try:
                operation = decode_operation(body)
            except WireError:
                return  # somebody else has made it up
            if isinstance(operation, NameGroups):
                self._on_named(operation.label, operation.names)

    def _on_named(self, label: str, names: Sequence[str]) -> None:
        """Own names have been read. Those of groups that the session is on its way out of, or in without a port because
        it ended while its join was under way, have had no effect. Those of a session that has ended are given back, if
        no later one of its label has joined: that has the name's place, and a leave would put it out."""
        regrouping = self._regrouping
        for name in names:
            key, port = (label, name), self._port(label, name)
            self._unanswered.discard(key)
            if key not in self._named:
                if port is None or port in self._joining or (regrouping is not None and regrouping.holds(port)):
                    self._unname(key)  # the JOIN is not on its way
                continue
            record = self.roster.find(name)
            is_in = record is not None and self._key(label) in record.members
            if is_in and (port is None or port.number < 0 or port in self._parting):
                self._name_again(key)

    def _name_again(self, key: NameKey) -> None:
        """A session is on its way out of a group that it still sends to: it is named behind the leave."""
        if key in self._named and key not in self._to_name:
            self._unanswered.add(key)
            self._to_name.append(key)

    def on_departed(self) -> None:
        """This node is out of the underlay. If it comes back, it joins its groups again."""
        channel = self._channel
        self.roster = self._new_roster()
        self._seed, self._transitional = None, ""
        self.locks.on_departed()
        self._reasons.clear()
        self._leaving.clear()
        self._parting.clear()
        self._taken_back.clear()
        self._to_name = list(self._named)
        self._unanswered = set(self._named)
        ports = [port for stream in self.streams.values() for port in stream.ports.values()]
        for port in ports:
            channel.reception.detach(port)
            port.number = NO_NUMBER
        self._joining = dict.fromkeys(ports)
        for stream in channel.streams:
            stream.on_departed()

    # In detail

    def _on_change(self, now_ns: int, change: GroupChange, view: View, position: int) -> Sequence[Port]:
        """The ports that got a view of their group: those of all sessions that are in it."""
        self.left -= 1
        reception, subject, number = self._channel.reception, change.subject, change.record.number
        if self._regrouping is not None:
            if reception.is_assembling and change.has_new_node:
                reception.drop_open(number)
            for key in self._regrouping.own_changes(change):
                self._on_own(now_ns, change, key)
        elif subject is not None and subject[0] == self._channel.me.id:
            self._on_own(now_ns, change, subject)
        ports = list(reception.ports_of(number))
        if not ports or not change.after:
            return ()
        self.left -= len(ports) - 1
        stayed = tuple([key for key in change.after if key in change.before])
        for port in ports:
            mine = self._key(port.stream.label)
            came_with = stayed if mine in change.before else (mine,)
            shown = self._maker.make(view, change, position, came_with)
            self.signal(now_ns, port)
            port.stream.rows.group_view(now_ns, shown)
            port.on_view(shown, now_ns)
            port.tell(shown)
            if self._transitional and self._telling is None and self._regrouping is None:
                port.stream.on_the_way(now_ns, port, self._transitional)
        return ports

    def _on_own(self, now_ns: int, change: GroupChange, key: SessionKey) -> None:
        """A session of this node has come into a group, or is out of it."""
        record, label = change.record, key[1]
        port = self._port(label, record.name)
        if port is not None or key not in change.after:
            self._reasons.pop((label, record.name), None)
        if key not in change.after:
            if port is not None and port.number == record.number:
                self._on_left(now_ns, port)
            if self._regrouping is not None:
                self._joining.update(dict.fromkeys(self._regrouping.unblock(record.name)))
            return
        if port is None:
            why = self._reasons.get((label, record.name), b"")
            self._leaving.append((label, record.number, why))  # it ended while its join was under way
            self._name_again((label, record.name))  # the join has taken its name, and the leave ends the group
            return
        if port.number > NOBODY:
            self._on_left(now_ns, port, "a leave was ordered, and a join behind it")  # both are of before an exchange
            if self._port(label, record.name) is None:
                return  # it was on its way out, and is to be taken out again
        self._named.pop((label, record.name), None)
        self._joining.pop(port, None)
        port.number = record.number
        self._note_base(port)
        self._channel.reception.attach(port)
        port.stream.rows.join(now_ns, record.name)

    def _on_left(self, now_ns: int, port: Port, why: str = "a leave that was taken back was ordered") -> None:
        """This session is out of the group."""
        channel = self._channel
        self.write_leave(now_ns, port)
        if port.is_leaving:
            channel.end_port(now_ns, port, Left(wanted=True, returning=False, text="left", group=port.group))
            return
        # A leave that was taken back when the underlay failed has been ordered after all, for instance.
        self._forget_leave(port)
        channel.reception.detach(port)
        port.number = NO_NUMBER
        port.on_departed()
        port.tell(Left(wanted=False, returning=True, text=why, group=port.group))
        self._joining[port] = None

    def write_leave(self, now_ns: int, port: Port) -> None:
        """The rows of a port that leaves its group. What it holds there is given back."""
        self.locks.write_leave(now_ns, port)
        port.stream.rows.group_leave(now_ns, port.group)
