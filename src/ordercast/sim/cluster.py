"""A group of simulated applications: a `World` whose nodes run `Host`s, and on each a program (`member.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ordercast.config import GroupConfig, MinMembers, RecoveryMode, Timing
from ordercast.groups.directory import Directory
from ordercast.groups.engines import EngineFactory
from ordercast.sim.application import GROUP, HostStack
from ordercast.sim.calling import SimCaller
from ordercast.sim.folders import SimFolder
from ordercast.sim.member import SimMember
from ordercast.sim.network import IDEAL, NetworkModel
from ordercast.sim.topology import Topology
from ordercast.sim.world import BUFFER_BYTES, EVENT_LIMIT, REST_HOLD_NS, Machine, World
from ordercast.view import View


@dataclass(frozen=True, slots=True)
class Terms:
    """With what every member joins. `group`: its name; a member may have another (`Cluster.add`).

    `directory`: which underlay carries a group; None where each group has one of its own, with its name.
    """

    config: GroupConfig = field(default_factory=GroupConfig)
    create: bool | None = None
    min_members: MinMembers = "majority"
    recovery: RecoveryMode = "automatic"
    timing: Timing = field(default_factory=Timing)
    group: str = GROUP
    directory: Directory | None = None


class Cluster:
    """A world of members of a group, or of several, and of nodes outside that call it."""

    __slots__ = ("callers", "engines", "members", "terms", "world")

    def __init__(
        self,
        seed: int | str,
        network: NetworkModel = IDEAL,
        terms: Terms | None = None,
        *,
        event_limit: int = EVENT_LIMIT,
        engines: EngineFactory | None = None,
        topology: Topology | None = None,
    ) -> None:
        self.engines = engines  # None: the real ones
        self.world = World(seed, network, event_limit=event_limit, topology=topology)
        self.terms = terms if terms is not None else Terms()
        self.members: dict[str, SimMember] = {}
        self.callers: dict[str, SimCaller] = {}

    def add(
        self,
        name: str,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        take_delay_ns: int = 0,
        has_multicast: bool = True,
        rule: MinMembers | None = None,
        group: str | None = None,
        has_folder: bool = False,
    ) -> SimMember:
        """A member whose node is still down.

        rule: the `min_members` that it asks for, if not that of all. group: the group that it joins, likewise.
        has_folder: it keeps over restarts what it has promised.
        """

        def boot(node: Machine) -> HostStack:
            return self.members[node.name].boot(node)

        node = self.world.add(name, boot, buffer_bytes=buffer_bytes, has_multicast=has_multicast)
        node.folder = SimFolder(lambda: self.world.now_ns) if has_folder else None
        member = SimMember(self, node, take_delay_ns, rule, group)
        self.members[name] = member
        return member

    def add_caller(self, name: str, *, buffer_bytes: int = BUFFER_BYTES, has_multicast: bool = True) -> SimCaller:
        """A node that never joins; it is still down."""

        def boot(node: Machine) -> HostStack:
            return self.callers[node.name].boot(node)

        node = self.world.add(name, boot, buffer_bytes=buffer_bytes, has_multicast=has_multicast)
        caller = self.callers[name] = SimCaller(self, node)
        return caller

    # What faults may ask of applications, by name. --------------------------------------------------------------------

    def stall(self, name: str) -> None:
        self.members[name].stall()

    def unstall(self, name: str) -> None:
        if name in self.members:
            self.members[name].unstall()

    def leave(self, name: str) -> None:
        self.members[name].leave()

    def rejoin(self, name: str) -> None:
        self.members[name].rejoin()

    def expel(self, name: str, member: str) -> None:
        self.members[name].expel(member)

    def reset(self, name: str, min_members: int | None = None) -> None:
        self.members[name].reset(min_members)

    # What there is to see. -------------------------------------------------------------------------------------------

    def unrest(self) -> list[str]:
        """What applications still have to do, and whether the group is one: rings of one name must find each other."""
        texts = [
            f"{member}: {member.waiting} messages have not been handed over"
            for member in self.members.values()
            if member.node.is_up and member.waiting
        ]
        for member in self.members.values():
            if member.node.is_up:
                texts += [f"{member}: {text}" for text in member.holding.unrest()]
                if member.is_expelled:
                    texts.append(f"{member}: it was expelled, and comes back")
                if member.asked:
                    texts.append(f"{member}: {member.asked} calls have no answer")
        for caller in self.callers.values():
            if caller.node.is_up and caller.waiting:
                texts.append(f"{caller}: {caller.waiting} calls are open")
        for group in dict.fromkeys(member.group for member in self.members.values()):
            views = self.views(group)
            if len(views) > 1:
                listed = "; ".join(f"{view.id} of {', '.join(map(str, view.members))}" for view in views)
                texts.append(f"there are several views at once: {listed}")
        return texts

    def views(self, group: str | None = None) -> list[View]:
        """The different views that live members of a group are in, in the order of the members; None: of any group."""
        views: dict[str, View] = {}
        for member in self.members.values():
            view = member.view if member.node.is_up and group in (None, member.group) else None
            if view is not None:
                views.setdefault(view.id, view)
        return list(views.values())

    def run_to_rest(self, limit_ns: int, hold_ns: int = REST_HOLD_NS) -> list[str]:
        return self.world.run_to_rest(limit_ns, self.unrest, hold_ns)

    def corruptions(self) -> list[str]:
        """What applications got that nobody sent."""
        texts = [text for member in self.members.values() for text in member.seen.corruptions]
        return texts + [text for caller in self.callers.values() for text in caller.corruptions]
