"""Two sites of two daemons with sessions, as rows written by hand, and one story of a partition and a merge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from tests.unit.trace_builder import Event, Message, World, member

EAST: Final = "ab"
WEST: Final = "cd"
DAEMONS: Final = EAST + WEST
SESSIONS: Final = ("r@a", "s@b", "t@a", "u@a", "v@b", "w@c", "x@c")
GROUPS: Final = {
    "g": ("s@b", "t@a", "u@a", "v@b", "w@c", "d"),
    "h": ("v@b", "x@c", "d"),
    "k": ("u@a", "v@b"),
}
SITES: Final = {"a": "east", "b": "east", "c": "west", "d": "west"}

Names = Iterable[str]


def host(name: str) -> str:
    """The daemon of a session; the node itself."""
    return name.rpartition("@")[2]


def of_names(names: Names) -> tuple[str, ...]:
    return tuple(map(member, names))


class Land:
    """Daemons and sessions under construction: the views of daemons are known, and those of groups follow."""

    def __init__(self, *, daemons: str = DAEMONS, sessions: Names = SESSIONS, groups: dict[str, Any] = GROUPS) -> None:
        self.world = World(*daemons)
        self.views = dict.fromkeys(daemons, "1@a/0")
        self.members: dict[tuple[str, str], tuple[str, ...]] = {}  # (daemon's view, group)
        for name in sessions:
            self.world.event(name, "start", underlay="")
        for group, names in groups.items():
            self.group_view(group, names, came={name: (name,) for name in names})

    def view(self, counter: int, names: str, *classes: str) -> None:
        """The daemons install a view; each of the classes came together, or all of them."""
        came = {name: one for one in classes or (names,) for name in one}
        for name, view in [(name, f"{counter}@{names[0]}/0") for name in names]:
            self.views[name] = view
            self.world.current[member(name), "u"] = view
            columns: dict[str, Any] = {"members": of_names(names), "came_with": of_names(came[name])}
            self.world.event(name, "view", view=view, **columns)

    def group_view(
        self, group: str, names: Names, *classes: Names, at: Names | None = None, came: dict[str, Names] | None = None
    ) -> str:
        """The view of a group, named for its place in the underlay's view."""
        names = tuple(names)
        place = self.world.now_ns + 1
        view = f"{place}@{self.views[host(names[0])]}"
        together = {name: tuple(one) for one in classes or (names,) for name in one} | dict(came or {})
        for name in at if at is not None else names:
            columns: dict[str, Any] = {"members": of_names(names), "came_with": of_names(together[name])}
            self.world.event(name, "view", group=group, view=view, **columns)
        return view

    def signal(self, names: Names, *groups: str) -> None:
        """Of daemons, and of sessions by their groups."""
        for name in names:
            if "@" in name:
                for group in groups:
                    self.world.event(name, "transitional", group=group)
            else:
                self.world.event(name, "transitional", view=self.views[name])

    def submit(
        self, sender: str, *groups: str, service: str = "AGREED", at: str = DAEMONS, position: int | None = None
    ) -> Message:
        """Submitted by a session, held and placed by these daemons."""
        several: dict[str, Any] = {"group": groups[0]} if len(groups) == 1 else {"groups": groups}
        self.world.current[member(sender), "u"] = self.views[host(sender)]
        message = self.world.submit(sender, 1, service, **several)
        if position is not None:
            message = dataclasses.replace(message, position=position)
        self.world.hold(at, message)
        if message.position is not None:
            self.world.placed(at, message)
        return message

    def deliver(self, names: Names, message: Message) -> None:
        """By sessions, in the views of their daemons."""
        for name in names:
            self.world.deliver([name], message, view=self.views[host(name)])

    def post(self, sender: str, names: Names, *groups: str, **columns: Any) -> Message:
        """Submitted and delivered."""
        message = self.submit(sender, *groups, **columns)
        self.deliver(names, message)
        return message

    def of(self, name: str, kind: str, message: Message | None = None, **columns: Any) -> Event:
        """The first such event of a member."""
        return next(
            one
            for one in self.world.find(name, kind, message)
            if all(one.columns.get(column) == value for column, value in columns.items())
        )


@dataclasses.dataclass
class Story:
    """A partition and a merge, with messages that matter by name."""

    land: Land
    messages: dict[str, Message]

    @property
    def world(self) -> World:
        return self.land.world

    def drop(self, name: str, *messages: str) -> Story:
        """Deliveries that do not happen."""
        for message in messages:
            self.world.drop(self.land.of(name, "deliver", self.messages[message]))
        return self


G_EAST: Final = ("s@b", "t@a", "u@a", "v@b")
G_WEST: Final = ("w@c", "d")


def story() -> Story:
    """One view, a partition in which SAFE messages are under way, both parts, and the merge."""
    land = Land()
    sent: dict[str, Message] = {}
    everyone = GROUPS["g"]
    sent["first"] = land.post("u@a", everyone, "g")
    sent["second"] = land.post("u@a", everyone, "g", service="FIFO")
    sent["third"] = land.post("u@a", everyone, "g", service="SAFE")
    sent["to h"] = land.post("x@c", GROUPS["h"], "h", service="SAFE", at="bcd")
    sent["to both"] = land.post("d", (*everyone, "x@c"), "g", "h")
    sent["outside"] = land.post("x@c", everyone, "g")
    sent["to k"] = land.post("v@b", GROUPS["k"], "k", service="SAFE", at=EAST)
    # All daemons have these when the network parts: the west delivers them at once, the east behind its signal.
    sent["stable"] = land.submit("v@b", "g", service="SAFE")
    sent["own"] = land.submit("t@a", "g")
    land.deliver(G_WEST, sent["stable"])
    land.deliver(G_WEST, sent["own"])
    # These stay in the east, and in the west.
    sent["unstable"] = land.submit("s@b", "g", service="SAFE", at=EAST)
    sent["rest of k"] = land.submit("r@a", "k", service="SAFE", at=EAST)
    sent["western"] = land.submit("w@c", "g", at=WEST)
    land.signal((*EAST, *G_EAST), "g")
    land.signal(("v@b",), "h")
    land.deliver(G_EAST, sent["stable"])
    land.deliver(G_EAST, sent["own"])
    land.deliver(G_EAST, sent["unstable"])
    land.deliver(GROUPS["k"], sent["rest of k"])
    land.view(2, EAST)
    land.group_view("g", G_EAST)
    land.group_view("h", ("v@b",))
    land.signal((*WEST, "w@c"), "g")
    land.signal(("x@c",), "h")
    land.deliver(G_WEST, sent["western"])
    land.view(2, WEST)
    land.group_view("g", G_WEST)
    land.group_view("h", ("x@c", "d"))
    # Both go on, with the same positions.
    sent["east"] = land.post("u@a", G_EAST, "g", service="SAFE", at=EAST, position=100)
    sent["west"] = land.post("w@c", G_WEST, "g", service="SAFE", at=WEST, position=100)
    sent["k goes on"] = land.post("v@b", GROUPS["k"], "k", at=EAST, position=101)
    # And merge. k keeps its view.
    land.signal(DAEMONS)
    land.view(3, DAEMONS, EAST, WEST)
    land.group_view("g", everyone, G_EAST, G_WEST)
    land.group_view("h", GROUPS["h"], ("v@b",), ("x@c", "d"))
    sent["merged"] = land.post("v@b", everyone, "g", service="FIFO")
    sent["again"] = land.post("v@b", everyone, "g", service="SAFE", position=200)
    sent["h again"] = land.post("d", GROUPS["h"], "h", position=201)
    sent["last of k"] = land.post("u@a", GROUPS["k"], "k", at=EAST, position=202)
    sent["last"] = land.post("w@c", everyone, "g", position=203)
    return Story(land, sent)
