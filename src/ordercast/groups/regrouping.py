"""What a node does besides where the components of a shared underlay go on and merge (docs/design/sites.md, "Rosters").

A join waits until all daemons of the view know that this one wants the group's messages. A view voids that, and an
exchange of rosters gives all groups other numbers. So with each of them what this node wants of the roster begins
again: nothing of its own is under way then, and what is to be said follows from what its ports want and what the
roster has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ordercast.groups.engines import InterestPort
from ordercast.groups.records import Sessions
from ordercast.wire.roster import SessionKey

if TYPE_CHECKING:
    from ordercast.groups.port import Port
    from ordercast.groups.rosters import AnyRoster


class WantedOperations(NamedTuple):
    """What a node has to say so that the roster has what it wants."""

    joins: list[Port]
    leaves: list[tuple[int, bytes]]  # number of the group, and header
    names: list[str]


class Presence(Enum):
    """Sessions of a node in a group that one more session of it is to join."""

    OUT = auto()
    STAYING = auto()  # one of them at least
    LEAVING = auto()  # all of them


class Regrouping:
    """Joins that wait for interest, and headers of leaves that are not carried out yet."""

    __slots__ = ("_blocked", "_headers", "_interest", "_waiting")

    def __init__(self, interest: InterestPort) -> None:
        self._interest = interest
        # Groups whose interest was declared in this view, and the ports that wait for it. The ports of a node bound it.
        self._waiting: dict[str, dict[Port, None]] = {}
        # Joins of groups that this node is on its way out of: a leave ends the interests that were stamped before it.
        self._blocked: dict[str, dict[Port, None]] = {}
        self._headers: dict[Port, bytes] = {}

    # Joins.

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting or self._blocked)

    @property
    def is_ready(self) -> bool:
        """Whether the first of those that wait may join: what was declared earlier is stable earlier."""
        return bool(self._waiting) and self._interest.is_stable(next(iter(self._waiting)))

    def take_joins(self, ports: Iterable[Port], presence_in: Callable[[str], Presence]) -> list[Port]:
        """The ports that may join now, of these and of those that wait already. A group that this node is in and stays
        in needs no interest."""
        waiting, interest = self._waiting, self._interest
        taken: list[Port] = []
        declared: list[str] = []
        for port in ports:
            presence = presence_in(port.group)
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
            taken += waiting.pop(group)
        return taken

    def forget(self, port: Port) -> None:
        """The port has ended."""
        self._headers.pop(port, None)
        for table in (self._waiting, self._blocked):
            ports = table.get(port.group)
            if ports is not None:
                ports.pop(port, None)
                if not ports:
                    del table[port.group]  # an interest stays until the next view

    def unblock(self, group: str) -> Iterable[Port]:
        """A session of this node is out of the group."""
        return self._blocked.pop(group, ())

    def note_leave(self, port: Port, header: bytes) -> None:
        """The port is to leave, with this header."""
        self._headers[port] = header

    # Views and exchanges.

    def on_view(self) -> None:
        """INTERESTs of the last view are void."""
        self._waiting = {}
        self._blocked = {}

    def wanted(
        self, roster: AnyRoster, key: SessionKey, ports: Mapping[str, Port], named: Collection[str]
    ) -> WantedOperations:
        """What is to be said, where nothing is under way. `named`: groups that the node sends to from outside."""
        leaves: list[tuple[int, bytes]] = []
        inside: dict[int, tuple[Sessions, bool]] = {}  # by the list's identity: many groups share one
        for record in roster.groups.values():
            members = record.members
            known = inside.get(id(members))
            if known is None:
                known = inside[id(members)] = (members, key in members)
            if known[1]:
                port = ports.get(record.name)
                if port is None or port.number != record.number:
                    leaves.append((record.number, b""))  # another one has joined it, and has ended
                elif port in self._headers:
                    leaves.append((record.number, self._headers[port]))
            elif record.namers and key in record.namers and record.name not in named:
                leaves.append((record.number, b""))
        joins: list[Port] = []
        for name, port in ports.items():
            record_of = roster.find(name)
            is_in = record_of is not None and key in record_of.members and port.number == record_of.number
            if not is_in and not port.is_leaving:
                joins.append(port)
        names: list[str] = []
        for name in named:
            record_of = roster.find(name)
            if record_of is None or (key not in record_of.namers and key not in record_of.members):
                names.append(name)
        return WantedOperations(joins, leaves, names)
