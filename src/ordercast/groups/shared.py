"""The groups of a shared underlay at one node: the roster, and what its changes mean for the node's ports.

docs/design/roster.md has the design. The channel tells it of views and of roster blocks in the order of the stream; it
offers the operations of this node, and gives the ports of the groups their views.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ordercast.config import MAX_BLOCK
from ordercast.engine import Transitional
from ordercast.errors import UsageError
from ordercast.groups.events import Left
from ordercast.groups.records import MAX_NAMED, GroupChange, GroupRecord
from ordercast.groups.roster import Roster
from ordercast.groups.session import Session
from ordercast.groups.stream import Stream
from ordercast.view import Member, View
from ordercast.wire.block import OVERHEAD
from ordercast.wire.roster import SessionKey, encode_joins, encode_leaves, encode_names

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.port import Port

BODY_BYTES: Final = MAX_BLOCK - OVERHEAD - 64
"""The largest body of an operation: with it a block is full."""

SEED_AHEAD: Final = 4
"""Parts of a seed that wait to be submitted. The rest is made when these are out."""

LABEL: Final = ""
"""Of the session of an embedded node. A daemon will have one for each client."""


class GroupNames:
    """Groups that a message is for, by name."""

    __slots__ = ("_names", "_shared")

    def __init__(self, shared: SharedGroups, names: Sequence[str]) -> None:
        self._shared = shared
        self._names = tuple(names)

    def numbers(self) -> Sequence[int] | None:
        numbers = [self._shared.number_of(name) for name in self._names]
        return None if -1 in numbers else numbers


class SharedGroups:
    """What a channel has besides where its underlay carries many groups."""

    __slots__ = (
        "_channel",
        "_joining",
        "_leaving",
        "_named",
        "_ports",
        "_seed",
        "_seq",
        "_system",
        "_to_name",
        "_transitional",
        "roster",
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.roster = Roster(channel.me.id)
        self._ports: dict[str, list[Port]] = {}  # by group, of all sessions
        self._joining: list[Port] = []  # their join is to be offered
        self._leaving: list[Port] = []  # their leave is to be offered
        self._named: dict[str, None] = {}  # groups that this node has given a number without being in them
        self._to_name: list[str] = []  # those of them that are to be offered
        self._seed: Iterator[bytes] | None = None
        # Of the last view or operation: the view's own, and one more for each operation since. All members of the
        # underlay count alike, and the next view has a greater one, since every operation takes one in the log.
        self._seq = 0
        self._transitional = ""  # the underlay's view that is being recovered, until the next one
        self._system = Stream(channel, Session(), 0)  # of the node itself: seeds
        channel.streams.append(self._system)

    # Ports

    def attach(self, port: Port) -> None:
        self._ports.setdefault(port.group, []).append(port)
        self._joining.append(port)

    def detach(self, port: Port) -> None:
        ports = [other for other in self._ports.pop(port.group, ()) if other is not port]
        if ports:
            self._ports[port.group] = ports
        if port in self._joining:
            self._joining.remove(port)

    def leave(self, port: Port) -> bool:
        """The port leaves, behind what its session has sent. False: it is in no group, and is out at once."""
        if port in self._joining or port.number < 0 or self._channel.view is None:
            return False
        self._leaving.append(port)
        return True

    # What this node says

    @property
    def has_operations(self) -> bool:
        """Whether `offer` has anything to do now."""
        if self._channel.view is None or not self.roster.is_seeded:
            return False
        if self._joining or self._leaving or self._to_name or (self._seed is None and self.roster.must_seed()):
            return True
        return self._seed is not None and self._system.queue.queued_bytes < SEED_AHEAD * BODY_BYTES

    def offer(self) -> None:
        """Put the operations of this node behind what its sessions have sent. Once for each pass."""
        roster = self.roster
        if self._joining:
            joining, self._joining = self._joining, []
            for stream, header, ports in _by_session(joining):
                for body in encode_joins(LABEL, header, [port.group for port in ports], BODY_BYTES):
                    stream.queue.offer_operation(body)
        if self._leaving:
            leaving, self._leaving = self._leaving, []
            for stream, header, ports in _by_session(leaving):
                for body in encode_leaves(LABEL, header, [port.number for port in ports], BODY_BYTES):
                    stream.queue.offer_operation(body)
        if self._to_name:
            for body in encode_names(LABEL, self._to_name, BODY_BYTES):
                self._system.queue.offer_operation(body)
            self._to_name = []
        if self._seed is None and roster.must_seed():
            self._seed = roster.seed(BODY_BYTES)
        if self._seed is not None:
            queue = self._system.queue
            while queue.queued_bytes < SEED_AHEAD * BODY_BYTES:
                part = next(self._seed, None)
                if part is None:
                    self._seed = None
                    break
                queue.offer_operation(part)

    def address(self, names: Sequence[str]) -> GroupNames:
        """The groups that a message is for. Those without a number are named; the message waits for that."""
        found = GroupNames(self, names)
        unknown = [name for name in dict.fromkeys(names) if self.roster.find(name) is None and name not in self._named]
        if len(self._named) + len(unknown) > MAX_NAMED:
            raise UsageError(
                f"this node has named {len(self._named)} groups on {self._channel.underlay!r} that it is not in; "
                f"{MAX_NAMED} are the most. Join those that it sends to often"
            )
        found.numbers()
        return found

    def number_of(self, name: str) -> int:
        """The number of a group; -1: it has none. Then it is named: this node is about to send to it."""
        record = self.roster.find(name)
        if record is not None:
            return record.number
        if name not in self._named:
            self._named[name] = None
            self._to_name.append(name)
        return -1

    # What the underlay says

    def on_transitional(self, now_ns: int) -> None:
        """Ports hear of it with the first message or view that follows it for them."""
        self._transitional = self._channel.view.id if self._channel.view is not None else ""
        del now_ns

    def signal(self, port: Port) -> None:
        """The port is about to get something that a recovery brought together."""
        if self._transitional and port.view is not None and port.transitional != self._transitional:
            port.transitional = self._transitional
            port.add(Transitional(port.view.id, port.group), self._channel.consumption.add(-1, 1))

    def on_view(self, now_ns: int, view: View) -> None:
        """The next view of the underlay: sessions of nodes that are not in it are out of their groups."""
        for base in [stream.base for stream in self._channel.streams if stream.base is not None]:
            base.on_view(view)
            if base.stream.is_fed:
                base.add(view, self._channel.consumption.add(-1, 1))
        self._seq = view.seq
        for change in self.roster.on_view(view.seq, view):
            self._on_change(now_ns, change, view, view.position)
        self._transitional = ""
        self._seed = None
        for port in self._channel.talkers:
            if port.view is not None and port.number >= 0:
                record = self.roster.at(port.number)
                if record is not None:
                    self._show_locks(now_ns, port, record, view)

    def on_operation(self, now_ns: int, position: int, origin: int, body: bytes | memoryview) -> None:
        """A roster block at its place in the order."""
        view = self._channel.view
        if view is None:
            return
        self._seq += 1
        for change in self.roster.apply(self._seq, origin, body):
            self._on_change(now_ns, change, view, position)

    def on_departed(self) -> None:
        """This node is out of the underlay. If it comes back, it joins its groups again."""
        self.roster = Roster(self._channel.me.id)
        self._seed = None
        self._transitional = ""
        self._leaving.clear()
        self._to_name = list(self._named)
        self._joining = [port for ports in self._ports.values() for port in ports]
        for port in self._joining:
            self._channel.reception.detach(port)
            port.number = -1

    # In detail

    def _on_change(self, now_ns: int, change: GroupChange, view: View, position: int) -> None:
        ports = self._ports.get(change.record.name)
        if ports is None:
            return
        channel, record = self._channel, change.record
        mine: SessionKey = (channel.me.id, LABEL)
        if mine not in change.after:
            if mine in change.before:
                self._on_left(now_ns, ports, change)
            return
        was_in = mine in change.before
        came_with = change.before if was_in else (mine,)
        shown = self._view_of(record, view, change, position, [key for key in change.after if key in came_with])
        if not was_in:
            for port in ports:
                port.number = record.number
                channel.reception.attach(port)
            channel.rows.join(now_ns, record.name)
        channel.rows.group_view(now_ns, shown)
        for port in ports:
            self.signal(port)
            for key in port.on_view(shown):
                channel.rows.lock(now_ns, port.number, key)
            port.add(shown, channel.consumption.add(-1, 1))

    def _on_left(self, now_ns: int, ports: list[Port], change: GroupChange) -> None:
        """This session is out of the group, as it wanted."""
        self._channel.rows.group_leave(now_ns, change.record.name)
        for port in list(ports):
            self._channel.end_port(port, Left(wanted=True, returning=False, text="left", group=port.group))

    def _show_locks(self, now_ns: int, port: Port, record: GroupRecord, view: View) -> None:
        """A view of the underlay may give or take locks of the group."""
        shown = port.view
        locks = locks_of(record.number, view)
        if shown is None or shown.locks == locks:
            return
        port.view = shown = replace(shown, locks=locks, reason=view.reason, lock=view.lock)
        for key in port.on_view(shown):
            self._channel.rows.lock(now_ns, port.number, key)
        port.add(shown, self._channel.consumption.add(-1, 1))

    def _view_of(
        self, record: GroupRecord, view: View, change: GroupChange, position: int, came_with: list[SessionKey]
    ) -> View:
        members = tuple(self._member(view, key) for key in change.after)
        return View(
            (view.counter << 20) + change.count,
            view.creator,
            view.ring,
            view.incarnation,
            view.seq,
            position,
            members,
            {},
            change.reason,
            self._name(view, change.subject) if change.subject is not None else view.subject,
            change.header,
            came_with=tuple(str(self._member(view, key)) for key in came_with),
            locks=locks_of(record.number, view),
            group=record.name,
        )

    def _member(self, view: View, key: SessionKey) -> Member:
        found = view.member(key[0])
        if found is None:
            raise LookupError(f"the session {key} is in a group and its node is not in {view.id}")
        return found

    def _name(self, view: View, key: SessionKey) -> str:
        found = view.member(key[0])
        return str(found) if found is not None else f"{key[0]:016x}"


def locks_of(number: int, view: View) -> dict[str, int]:
    """The locks of one group among those of its underlay."""
    prefix = f"{number}:"
    return {key.removeprefix(prefix): holder for key, holder in view.locks.items() if key.startswith(prefix)}


def _by_session(ports: list[Port]) -> list[tuple[Stream, bytes, list[Port]]]:
    """Ports of one session that say the same with their join or leave go into one operation."""
    found: dict[tuple[int, bytes], tuple[Stream, bytes, list[Port]]] = {}
    for port in ports:
        header = port.leave_header if port.is_leaving else port.join_header
        entry = found.setdefault((id(port.stream), header or b""), (port.stream, header or b"", []))
        entry[2].append(port)
    return list(found.values())
