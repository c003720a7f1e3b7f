"""What a node does besides where the components of a shared underlay go on and merge (docs/design/sites.md, "Rosters").

A join waits until all daemons of the view know that this one wants the group's messages. A view voids that, and an
exchange of rosters gives all groups other numbers. So with each of them what this node wants of the roster begins
again: nothing of its own is under way then, and what is to be said follows from what its ports want and what the
roster has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ordercast.groups.engines import InterestPort
from ordercast.groups.queued import NO_NUMBER, NOBODY
from ordercast.groups.records import GroupChange, GroupRecord, Sessions
from ordercast.view import View
from ordercast.wire.roster import SessionKey

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.port import Port
    from ordercast.groups.rosters import AnyRoster
    from ordercast.groups.stream import Stream


NameKey = tuple[str, str]
"""The label of a session, and a group that it sends to from outside."""


class WantedOperations(NamedTuple):
    """What a node has to say so that the roster has what it wants."""

    joins: list[Port]
    leaves: list[tuple[str, int, bytes]]  # label, number of the group, and header
    names: list[NameKey]


class Presence(Enum):
    """Sessions of a node in a group that one more session of it is to join."""

    OUT = auto()
    STAYING = auto()  # one of them at least
    LEAVING = auto()  # all of them


class Regrouping:
    """Joins that wait for interest, headers of leaves that are not carried out yet, and groups that lose members."""

    __slots__ = (
        "_blocked",
        "_channel",
        "_headers",
        "_interest",
        "_lost",
        "_parted",
        "_signalled",
        "_waiting",
        "came_with",
        "has_exchanged",
    )

    def __init__(self, channel: Channel, interest: InterestPort) -> None:
        self._channel = channel
        self._interest = interest
        # Groups whose interest was declared in this view, and the ports that wait for it. The ports of a node bound it.
        self._waiting: dict[str, dict[Port, None]] = {}
        # Joins of groups that this node is on its way out of: a leave ends the interests that were stamped before it.
        self._blocked: dict[str, dict[Port, None]] = {}
        self._headers: dict[Port, bytes] = {}
        # Until all groups have their next views
        self._lost: set[str] = set()  # nodes that do not come along
        self._parted: list[str] | None = None  # those of the present view, behind its signal
        self.has_exchanged = False  # behind a signal: groups have views since then that lose members as well
        self._signalled: set[tuple[str, str]] = set()  # sessions and views of groups that have had the signal
        self.came_with: tuple[str, ...] = ()  # of the last signal

    # Joins.

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting or self._blocked)

    def holds(self, port: Port) -> bool:
        """Whether its join waits here."""
        return any(port in table.get(port.group, ()) for table in (self._waiting, self._blocked))

    @property
    def is_ready(self) -> bool:
        """Whether the first of those that wait may join: what was declared earlier is stable earlier."""
        return bool(self._waiting) and self._interest.is_stable(next(iter(self._waiting)))

    def take_joins(self, ports: Iterable[Port], roster: AnyRoster) -> list[Port]:
        """The ports that may join now, of these and of those that wait already. A group that this node is in and stays
        in needs no interest."""
        waiting, interest = self._waiting, self._interest
        taken: list[Port] = []
        declared: list[str] = []
        for port in ports:
            presence = self._presence_in(roster.find(port.group))
            if presence is Presence.STAYING:
                taken.append(port)
                continue
            if presence is Presence.LEAVING:
                self._blocked.setdefault(port.group, {})[port] = None
                continue
            if port.group not in waiting:
                waiting[port.group] = {}
                declared.append(port.group)
            waiting[port.group][port] = None
        if declared:
            interest.declare(declared)
        while self.is_ready:
            group = next(iter(waiting))
            found = waiting.pop(group)
            if self._presence_in(roster.find(group)) is Presence.LEAVING:
                self._blocked.setdefault(group, {}).update(found)  # the LEAVE comes first, and ends this interest
            else:
                taken += found
        return taken

    def _presence_in(self, record: GroupRecord | None) -> Presence:
        me = self._channel.me.id
        if record is None or all(key[0] != me for key in record.members):
            return Presence.OUT
        ports = self._channel.reception.ports_of(record.number)
        return Presence.STAYING if any(not port.is_leaving for port in ports) else Presence.LEAVING

    def forget(self, port: Port) -> None:
        """The port has ended."""
        self._headers.pop(port, None)
        for table in (self._waiting, self._blocked):
            ports = table.get(port.group)
            if ports is not None:
                ports.pop(port, None)
                if not ports:
                    del table[port.group]  # an interest stays until the next view

    def unblock(self, group: str) -> list[Port]:
        """A session of this node is out of the group: the ports that begin again. An interest that some of them wait
        for may have been stamped before the LEAVE, which has ended it then."""
        return [*self._blocked.pop(group, ()), *self._waiting.pop(group, ())]

    def note_leave(self, port: Port, header: bytes) -> None:
        """The port is to leave, with this header."""
        self._headers[port] = header

    # The signal.

    def on_transitional(self, view: View, came_with: Collection[str]) -> None:
        """The view of the underlay ends here, and these go on together."""
        self.came_with = tuple(came_with)
        self._parted = [str(member) for member in view.members if str(member) not in came_with]
        self._lost.update(self._parted)

    def parting(self, stream: Stream, views: Iterable[View]) -> list[View]:
        """The views of groups that lose a member. A session hears the signal in each of them once, also where the view
        of the underlay ends again before the rosters are exchanged."""
        found: list[View] = []
        for view in views:
            if any(f"{each.name}/{each.life}" in self._lost for each in view.members):
                key = (stream.label, f"{view.group} {view.id}")
                if key not in self._signalled:
                    self._signalled.add(key)
                    found.append(view)
        return found

    def all_told(self) -> bool:
        """All groups that have lost a member have their next views: whether the signal is over. It is not where an
        exchange ended behind the signal of the present view. The views that it made are of before that signal."""
        if self._parted is not None:
            self._lost = set(self._parted)
            self.has_exchanged = True
            return False
        self._lost.clear()
        self._signalled.clear()
        self.has_exchanged = False
        return True

    # Views and exchanges.

    def is_late(self, is_behind: bool) -> bool:
        """Whether the engine has come further than the roster: what is said now would be said in another view."""
        mine, view = self._channel.view, self._channel.engine.view
        return is_behind or mine is None or view is None or mine.rank != view.rank

    def on_view(self) -> None:
        """INTERESTs of the last view are void, and its signal is behind us."""
        self._parted = None
        self._waiting = {}
        self._blocked = {}

    def own_changes(self, change: GroupChange) -> list[SessionKey]:
        """Sessions of this node that a change brings into its group, or takes out: a view or an exchange may bring
        several at once."""
        me, before, after = self._channel.me.id, change.before, change.after
        gone = [key for key in before if key[0] == me and key not in after]
        return gone + [key for key in after if key[0] == me and key not in before]

    def renumber(self, roster: AnyRoster, streams: Mapping[str, Stream]) -> list[Port]:
        """An exchange of rosters has given all groups other numbers. The ports whose sessions are not in their groups
        any more, because a bound kept them out or nobody could read of them: they have no number."""
        channel, me = self._channel, self._channel.me.id
        lost: list[Port] = []
        for label, stream in streams.items():
            key = (me, label)
            for port in stream.ports.values():
                record = roster.find(port.group)
                if port.number > NOBODY and (record is None or key not in record.members):
                    lost.append(port)
        for stream in channel.streams:
            stream.before_renumbering()
        for port in lost:
            channel.reception.detach(port)
            port.number = NO_NUMBER

        def find(group: str) -> int:
            record = roster.find(group)
            return record.number if record is not None else NOBODY

        channel.reception.renumber(find)
        channel.rows.forget_groups()
        return lost

    def wanted(
        self,
        roster: AnyRoster,
        streams: Mapping[str, Stream],
        named: Collection[NameKey],
        reasons: Mapping[NameKey, bytes],
    ) -> WantedOperations:
        """What is to be said, where nothing is under way. `named`: groups that sessions send to from outside.
        `reasons`: why ports have ended that could not say it."""
        me = self._channel.me.id
        leaves: list[tuple[str, int, bytes]] = []
        leaving: set[NameKey] = set()
        inside: dict[int, tuple[Sessions, list[str]]] = {}  # by the list's identity: many groups share one
        for record in roster.groups.values():
            members = record.members
            known = inside.get(id(members))
            if known is None:
                known = inside[id(members)] = (members, [label for node, label in members if node == me])
            for label in known[1]:
                stream = streams.get(label)
                port = stream.ports.get(record.name) if stream is not None else None
                if port is None or port.number != record.number:
                    # Another one has joined it, and has ended.
                    leaves.append((label, record.number, reasons.get((label, record.name), b"")))
                elif port in self._headers:
                    leaves.append((label, record.number, self._headers[port]))
                else:
                    continue
                leaving.add((label, record.name))
            for node, label in record.namers:
                if node == me and (label, record.name) not in named:
                    leaves.append((label, record.number, b""))
        joins: list[Port] = []
        for label, stream in streams.items():
            for port in stream.ports.values():
                found = roster.find(port.group)
                is_in = found is not None and (me, label) in found.members and port.number == found.number
                if not is_in and not port.is_leaving:
                    joins.append(port)
        names: list[NameKey] = []
        for label, name in named:
            found, key = roster.find(name), (me, label)
            is_known = found is not None and (key in found.namers or key in found.members)
            if not is_known or (label, name) in leaving:
                names.append((label, name))  # a leave may end the group: it is named behind that
        return WantedOperations(joins, leaves, names)
