"""Writes executions as traces in a few readable lines, and breaks them on purpose, for the tests of the checkers.

The recorder it plays is honest: `n` and `prev_position` are made from the order of the events when the rows are taken,
so a test that moves an event changes what happened, not how it was written down. Time is one tick per event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ordercast.trace.schema import Row

UNDERLAY = "u"


@dataclass(frozen=True)
class Message:
    """`count` messages of one submit."""

    sender: str
    first: int
    count: int
    service: str
    position: int | None
    underlay: str = UNDERLAY
    group: str | None = None
    groups: tuple[str, ...] | None = None


@dataclass
class Event:
    """A row that has no `n` and no `prev_position` yet."""

    member: str
    kind: str
    at_ns: int
    columns: dict[str, Any] = field(default_factory=dict)


def member(name: str) -> str:
    """`a` stands for `a/0`."""
    return name if "/" in name else f"{name}/0"


def is_ordered(service: str) -> bool:
    return service.startswith(("AGREED", "RESILIENT", "MAJORITY", "SAFE"))


class World:
    """An execution under construction. Nodes are given as `a` (life 0) or `a/1`."""

    def __init__(self, *names: str, view: bool = True, underlay: str = UNDERLAY) -> None:
        self.events: list[Event] = []
        self.now_ns = 0
        self.next_number: dict[tuple[str, str], int] = {}
        self.next_position: dict[str, int] = {}
        self.current: dict[tuple[str, str], str] = {}  # (member, underlay) -> view
        self.lists: dict[str, tuple[str, ...]] = {}
        for name in names:
            self.event(name, "start", underlay="")
        if names and view:
            self.view(1, names, came={name: [name] for name in names}, underlay=underlay)

    # Events

    def event(self, name: str, kind: str, *, underlay: str = UNDERLAY, **columns: Any) -> Event:
        self.now_ns += 1
        event = Event(member(name), kind, self.now_ns, {"underlay": underlay, **columns})
        self.events.append(event)
        return event

    def view(
        self,
        counter: int,
        members: tuple[str, ...] | list[str] | str,
        *,
        at: tuple[str, ...] | list[str] | str | None = None,
        came: dict[str, Any] | None = None,
        group: str | None = None,
        underlay: str = UNDERLAY,
    ) -> str:
        """Everyone in `at` (default: all) installs the view; who is not in `came` came with all others who are not."""
        names = tuple(member(name) for name in members)
        view = f"{counter}@{names[0]}"
        came = {member(name): tuple(member(one) for one in ones) for name, ones in (came or {}).items()}
        together = tuple(name for name in names if name not in came)
        self.lists[view] = names
        for name in at if at is not None else names:
            who = member(name)
            columns = {"view": view, "members": names, "came_with": came.get(who, together), "group": group}
            self.event(who, "view", underlay=underlay, **columns)
            if group is None:
                self.current[who, underlay] = view
        return view

    def submit(
        self,
        name: str,
        count: int = 1,
        service: str = "AGREED",
        *,
        group: str | None = None,
        groups: tuple[str, ...] | None = None,
        underlay: str = UNDERLAY,
    ) -> Message:
        who = member(name)
        first = self.next_number.get((who, underlay), 0)
        self.next_number[who, underlay] = first + count
        position = None
        if is_ordered(service):
            position = self.next_position.get(underlay, 0)
            self.next_position[underlay] = position + count
        message = Message(who, first, count, service, position, underlay, group, groups)
        self.event(who, "submit", **self._columns(message), view=self.current.get((who, underlay)))
        return message

    def hold(self, names: Any, message: Message) -> None:
        for name in names:
            self.event(name, "hold", **self._columns(message))

    def placed(self, names: Any, message: Message) -> None:
        for name in names:
            self.event(name, "placed", **self._columns(message), position=message.position)

    def deliver(
        self,
        names: Any,
        message: Message,
        *,
        position: int | None = None,
        view: str | None = None,
        part: tuple[int, int] | None = None,
        kind: str = "deliver",
    ) -> None:
        """Deliver the message, or the `part` (first, count) of it; `position` is that of the whole."""
        base = position if position is not None else message.position
        first, count = part if part is not None else (message.first, message.count)
        for name in names:
            columns = self._columns(message) | {"first": first, "count": count}
            if base is not None:
                columns["position"] = base + first - message.first
            here = view or self.current.get((member(name), message.underlay))
            self.event(name, kind, **columns, view=here)

    def send(self, name: str, to: Any, count: int = 1, service: str = "AGREED", **columns: Any) -> Message:
        """A whole multicast: submitted, held and placed by everyone in `to`, then delivered by everyone in `to`."""
        message = self.submit(name, count, service, **columns)
        self.hold(to, message)
        if message.position is not None:
            self.placed(to, message)
        self.deliver(to, message)
        return message

    def confirm(self, name: str, message: Message) -> None:
        self.event(name, "confirm", **self._columns(message))

    def leave(self, name: str, **columns: Any) -> None:
        self.event(name, "leave", **columns)
        if "group" not in columns:
            self.current.pop((member(name), UNDERLAY), None)

    @staticmethod
    def _columns(message: Message) -> dict[str, Any]:
        return {
            "underlay": message.underlay,
            "sender": message.sender,
            "first": message.first,
            "count": message.count,
            "service": message.service,
            "group": message.group,
            "groups": message.groups,
        }

    # Faults

    def find(self, name: str, kind: str, message: Message | None = None) -> list[Event]:
        """The events of one member and kind, of one message if given."""
        return [
            event
            for event in self.events
            if event.member == member(name)
            and event.kind == kind
            and (
                message is None or (event.columns["sender"], event.columns["first"]) == (message.sender, message.first)
            )
        ]

    def drop(self, *events: Event) -> None:
        self.events = [event for event in self.events if not any(event is one for one in events)]

    def swap(self, left: Event, right: Event) -> None:
        """Two events change places, in order and in time."""
        one, two = (next(at for at, event in enumerate(self.events) if event is each) for each in (left, right))
        self.events[one], self.events[two] = right, left
        left.at_ns, right.at_ns = right.at_ns, left.at_ns

    def repeat(self, event: Event) -> None:
        """The same once more, right behind it."""
        at = next(place for place, each in enumerate(self.events) if each is event)
        self.events.insert(at + 1, Event(event.member, event.kind, event.at_ns, dict(event.columns)))

    def move_before(self, event: Event, other: Event) -> None:
        """The event happens just before the other one, in order and in time."""
        self.drop(event)
        at = next(place for place, each in enumerate(self.events) if each is other)
        event.at_ns = other.at_ns - 1
        self.events.insert(at, event)

    # Rows

    def rows(self) -> list[Row]:
        numbers: dict[str, int] = {}
        positions: dict[tuple[str, str], int] = {}
        rows: list[Row] = []
        for event in self.events:
            columns = dict(event.columns)
            if event.kind == "deliver" and columns.get("position") is not None:
                key = event.member, columns["underlay"]
                columns["prev_position"] = positions.get(key, -1)
                positions[key] = columns["position"] + columns["count"] - 1
            n = numbers.get(event.member, 0)
            numbers[event.member] = n + 1
            name, _, life = event.member.rpartition("/")
            rows.append(Row(name, int(life), n, event.at_ns, event.kind, **columns))
        return rows
