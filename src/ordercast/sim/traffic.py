"""Drives applications: hands messages and calls of a scenario over when they are due."""

from __future__ import annotations

from ordercast.sim.cluster import Cluster
from ordercast.sim.member import SimMember
from ordercast.sim.scenario import CallPlan, Load
from ordercast.sim.world import World


class LoadDriver:
    """Hands the bursts of a load over to the application."""

    __slots__ = ("_left", "_load", "_member", "_world")

    def __init__(self, cluster: Cluster, load: Load) -> None:
        self._world: World = cluster.world
        self._member: SimMember = cluster.members[load.node]
        self._load = load
        self._left = load.count
        self._world.at(load.start_ns, self._burst)

    def _burst(self, _: None) -> None:
        load = self._load
        count = min(load.burst, self._left)
        self._left -= count
        if self._member.is_wanted:
            self._member.send(count, load.service, load.size, load.is_confirmed)
        if self._left:
            self._world.after(load.interval_ns, self._burst)


class CallDriver:
    """Has calls made by a caller or by a member."""

    __slots__ = ("_cluster", "_left", "_plan", "_world")

    def __init__(self, cluster: Cluster, plan: CallPlan) -> None:
        self._world: World = cluster.world
        self._cluster = cluster
        self._plan = plan
        self._left = plan.count
        self._world.at(plan.start_ns, self._burst)

    def _burst(self, _: None) -> None:
        plan = self._plan
        count = min(plan.burst, self._left)
        self._left -= count
        member = self._cluster.members.get(plan.node)
        if member is None:
            self._cluster.callers[plan.node].call(plan, count)
        elif member.is_wanted:
            member.call(count, plan.service, plan.size, plan.handler, plan.patience_ns)
        if self._left:
            self._world.after(plan.interval_ns, self._burst)
