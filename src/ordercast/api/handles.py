"""The groups that one node has open, and how the news of a pass reaches the tasks that wait."""

from __future__ import annotations

from ordercast.api.group import Group
from ordercast.api.seat import NodeBackend, Seat
from ordercast.api.waiting import wake_all
from ordercast.errors import OrdercastError


class OpenGroups:
    """What a driver tells of its passes. `abandoned` are joins that were given up and have not ended yet."""

    __slots__ = ("_abandoned", "_backend", "_bases", "_groups", "error")

    def __init__(self, backend: NodeBackend) -> None:
        self._backend = backend
        self._groups: dict[Seat, Group] = {}
        self._abandoned: dict[Seat, Group] = {}
        self._bases: dict[Seat, Group] = {}  # underlays, which are no groups of the node's
        self.error: OrdercastError | None = None  # why the node has stopped

    # What the driver calls.

    def settle(self) -> None:
        """A pass has ended: the tasks that waited for what it brought go on."""
        backend = self._backend
        for seat in backend.take_news():
            group = self._groups.get(seat) or self._bases.get(seat) or self._abandoned.get(seat)
            if group is not None and group._settle():
                for groups in (self._groups, self._bases, self._abandoned):
                    groups.pop(seat, None)
        settled = backend.take_settled()
        if settled:
            wake_all(settled)

    def fail(self, error: OrdercastError) -> None:
        """The node cannot go on: all tasks that wait, and every later call, learn why."""
        self.error = error
        for groups in (self._groups, self._bases, self._abandoned):
            for group in list(groups.values()):
                group._fail(error)
            groups.clear()
        self._backend.fail(error)
        wake_all(self._backend.take_settled())

    # What the node calls.

    @property
    def all(self) -> list[Group]:
        """In the order in which they were joined."""
        return list(self._groups.values())

    def add(self, seat: Seat) -> Group:
        group = self._groups[seat] = Group(seat)
        return group

    def add_base(self, seat: Seat) -> Group:
        """A seat of an underlay itself."""
        group = self._bases[seat] = Group(seat)
        return group

    def abandon(self, seat: Seat) -> None:
        """A join was given up: the group is no longer one of the node's, and ends when the protocol allows it."""
        group = self._groups.pop(seat, None) or self._bases.pop(seat, None)
        if group is not None and seat.gone is None and self.error is None:
            self._abandoned[seat] = group
            seat.leave()

    def named(self, name: str) -> Group | None:
        """The open group of this name, also on its way in or out."""
        seat = self._backend.seat(name)
        return (self._groups.get(seat) or self._abandoned.get(seat)) if seat is not None else None
