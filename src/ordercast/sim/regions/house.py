"""Machines of a world of regions, through all their lives: with a program, with a replica of the service, or both."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ordercast.config import Timing
from ordercast.errors import OrdercastError, UsageError
from ordercast.gms.embedded import EMBEDDED
from ordercast.gms.replica import GmsReplica
from ordercast.sim.api import SimNode
from ordercast.sim.application import HostStack
from ordercast.sim.regions.plan import RegionNodePlan, RegionsPlan
from ordercast.sim.regions.program import RegionProgram
from ordercast.sim.world import Machine, World


class RegionMachine:
    """One machine."""

    __slots__ = ("_is_stopping", "_plan", "_replica", "_terms", "_world", "name", "node", "program", "programs")

    def __init__(self, world: World, terms: RegionsPlan, name: str, plan: RegionNodePlan | None) -> None:
        """`plan`: None for a replica of the service that is nothing else."""
        self._world = world
        self._terms = terms
        self._plan = plan
        self._replica: GmsReplica | None = None
        self._is_stopping = False
        self.name = name
        scenario = terms.scenario
        has_multicast = name not in scenario.without_multicast
        world.add(name, _never, buffer_bytes=scenario.buffer_bytes, has_multicast=has_multicast)
        self.node: SimNode | None = None
        self.program: RegionProgram | None = None
        self.programs: list[RegionProgram] = []  # of all lives

    @property
    def is_up(self) -> bool:
        return self.node is not None and self.node.is_up

    @property
    def is_closing(self) -> bool:
        """Whether it is on its way down, in order."""
        return self._is_stopping and self.is_up

    @property
    def replica(self) -> GmsReplica | None:
        """That runs here now."""
        if not self.is_up or self.node is None:
            return None
        return self._replica if self._plan is None else self.node.embedded_replica

    @property
    def keeps_service(self) -> bool:
        """Whether it is there for the service."""
        return self._plan is None or self._plan.brings_service

    def start(self) -> None:
        if self.is_up:
            return
        plan = self._plan
        embedded = EMBEDDED if plan is not None and plan.brings_service else None
        self.node = node = SimNode(
            self._world, self.name, config=self._terms.config if plan is not None else None, gms=embedded
        )
        self._is_stopping = False
        if plan is None:
            self._replica = GmsReplica(node, node.parts[0], Timing())
            asyncio.get_running_loop().create_task(_run(node, self._replica))
        else:
            self.program = RegionProgram(plan, node)
            self.programs.append(self.program)

    def crash(self, *, is_process: bool = False) -> None:
        """The machine is down, or (`is_process`) only its process: the kernel says so."""
        if self.node is not None and self.node.is_up:
            self.node.crash(is_process=is_process)

    def close(self) -> None:
        """In order."""
        if self.node is None or not self.is_up or self._is_stopping:
            return
        self._is_stopping = True
        if self.program is not None:
            self.program.is_closing = True
        if self._plan is None and self._replica is not None:
            self._replica.stop()
        else:
            asyncio.get_running_loop().create_task(_close(self.node))


def _never(_node: Machine) -> HostStack:
    raise UsageError("a machine is started with what runs on it")


async def _run(node: SimNode, replica: GmsReplica) -> None:
    with suppress(OrdercastError):  # its node has crashed
        await replica.run()
    await _close(node)


async def _close(node: SimNode) -> None:
    with suppress(OrdercastError):
        await node.close()
