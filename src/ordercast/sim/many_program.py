"""The simulated applications on a node that is in many groups of one underlay: the node's own, and its other sessions.

They do what their acts say (`many_groups.py`), and take events where the news of their host say that there are any.
What each of them does and sees is in `many_session.py`.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.groups.channel import Channel
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.sim.ambush import Ambush, phase_of
from ordercast.sim.application import HostStack, boot_host
from ordercast.sim.checkers.stuck import Wish
from ordercast.sim.many_groups import UNDERLAY, GroupAct, ManyGroups
from ordercast.sim.many_session import GroupSession
from ordercast.sim.world import Machine, World

REOPEN_NS: Final = 250 * MS  # a program that was refused waits this long before it comes again


class GroupProgram:
    """The applications on one node, through all its lives."""

    __slots__ = (
        "_ambushes",
        "_is_reopening",
        "_plan",
        "_world",
        "home",
        "host",
        "is_stalled",
        "is_wanted",
        "node",
        "sessions",
        "wishes",
    )

    def __init__(self, world: World, plan: ManyGroups, index: int) -> None:
        self._world = world
        self._plan = plan
        name = plan.scenario.nodes[index]
        self.home = plan.homes[index]
        self._ambushes = [ambush for ambush in plan.ambushes if ambush.node == name]  # that have not happened
        # the present life
        self.host: Host | None = None
        self._is_reopening = False
        # how it behaves
        self.is_wanted = True  # False after a leave: it does not come back by itself
        self.is_stalled = False
        # over all lives
        self.wishes: dict[int, list[Wish]] = {}
        scenario = plan.scenario
        self.node: Machine = world.add(
            name, self.boot, buffer_bytes=scenario.buffer_bytes, has_multicast=name not in scenario.without_multicast
        )
        own = GroupSession(world, plan, self.node, "", is_based=name in plan.based, is_fed=name in plan.fed)
        self.sessions = {"": own}  # by label
        for label in plan.labels:
            is_fed = label in plan.fed_labels
            self.sessions[label] = GroupSession(world, plan, self.node, label, is_based=is_fed, is_fed=is_fed)

    def __str__(self) -> str:
        return str(self.node)

    @property
    def own(self) -> GroupSession:
        """The node's own session."""
        return self.sessions[""]

    @property
    def open_sessions(self) -> list[GroupSession]:
        return [session for session in self.sessions.values() if session.is_open]

    @property
    def channel(self) -> Channel | None:
        """The underlay, while it has a place there."""
        ports = self.host.ports if self.host is not None and self.node.is_up else []
        return ports[0].channel if ports else None

    # Life. -----------------------------------------------------------------------------------------------------------

    def boot(self, node: Machine) -> HostStack:
        """A new life begins, and comes into its groups."""
        host = self.host = boot_host(self._world, node, self._plan.scenario.node_timing(), self._plan.engines)
        self._is_reopening = False
        self.is_wanted = True
        for session in self.sessions.values():
            session.boot(host)
        node.after_pass = self.turn
        self._world.listen(node, UNDERLAY)
        self._enter(host, node)
        return HostStack(host)

    def _enter(self, host: Host, node: Machine) -> None:
        now_ns = self._world.clock(node)
        self.own.enter(host, now_ns, self.home)
        self.wishes.setdefault(node.life, []).append(Wish(now_ns, True))

    # What faults ask of it. ------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave the underlay, with all groups at once."""
        self.is_wanted = False
        host, channel = self.host, self.channel
        if host is None or channel is None:
            return
        for port in channel.ports:
            host.leave(port)
        self._world.wake(self.node)
        self.wishes.setdefault(self.node.life, []).append(Wish(self._world.clock(self.node), False))

    def rejoin(self) -> None:
        """Come back in the same life, as soon as it is out."""
        self.is_wanted = True
        self._come_back(0)

    def _come_back(self, delay_ns: int) -> None:
        if self.is_wanted and self.node.is_up and self.channel is None and not self._is_reopening:
            self._is_reopening = True
            self._world.after(delay_ns, self._reopen, self.node.life)

    def _reopen(self, life: int) -> None:
        if life != self.node.life or not self.node.is_up or self.host is None:
            return
        self._is_reopening = False
        if self.is_wanted and self.channel is None:
            self._enter(self.host, self.node)
            self._world.wake(self.node)

    def stall(self) -> None:
        self.is_stalled = True

    def unstall(self) -> None:
        self.is_stalled = False
        if self.node.is_up and self.host is not None:
            for port in self.host.ports:
                self.host.touch(port)
                port.channel.note(port)
            self._world.wake(self.node)

    def act(self, act: GroupAct) -> None:
        """Nothing if the node is down, or its program on the way out of the underlay."""
        host, channel = self.host, self.channel
        if host is None or channel is None or not self.wishes[self.node.life][-1].is_join or channel.is_over:
            return
        self.sessions[act.session].act(host, act)

    # Its turn. -------------------------------------------------------------------------------------------------------

    def turn(self, _now_ns: int) -> None:
        """After every pass of the node: take what came, and ask for a pass if that made work."""
        host = self.host
        if host is None:
            return
        has_consumed = False
        for port in host.take_news():
            if not isinstance(port, Port):
                continue
            session = self.sessions[port.stream.label]
            session.settle(port)
            if self.is_stalled and port.gone is None:
                continue
            session.take(port)
            if port.has_consumed:
                has_consumed = True
                if port.gone is None:
                    host.touch(port)
        if has_consumed:
            self._world.wake(self.node)
        self._come_back(REOPEN_NS)
        if self._ambushes:
            self._fall()

    # Ambushes. -------------------------------------------------------------------------------------------------------

    def _fall(self) -> None:
        """Crash, if somebody waits for this phase."""
        now_ns, channel = self._world.now_ns, self.channel
        self._ambushes = [ambush for ambush in self._ambushes if now_ns <= ambush.until_ns]
        for ambush in self._ambushes:
            if now_ns >= ambush.at_ns and channel is not None and phase_of(channel) == ambush.phase:
                self._ambushes.remove(ambush)
                self._world.after(ambush.delay_ns, self._crash, ambush)
                return

    def _crash(self, ambush: Ambush) -> None:
        self._world.crash(ambush.node)
        if ambush.down_ns:
            self._world.after(ambush.down_ns, self._world.start, ambush.node)
