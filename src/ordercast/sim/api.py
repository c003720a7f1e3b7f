"""The public API in virtual time: one asynchronous program runs unchanged on a real network and in here.

    async def program(node):                      # `node` makes nodes: in here simulated ones, elsewhere real ones
        async with node("a") as a, node("b") as b:
            group = await a.join("prices")
            ...

    simulate(program, seed=7, network=LAN)

`Simulation` is what the program gets; beside making nodes it holds the world, for programs that want to break things.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ordercast.config import LAN_DATAGRAM, GroupConfig, Timing
from ordercast.errors import NotMember, UsageError
from ordercast.groups.base import NodeBase
from ordercast.groups.host import EngineFactory, Host
from ordercast.sim.application import HostStack
from ordercast.sim.loop import DEFAULT_LIMIT_NS, run_in_world
from ordercast.sim.network import LAN, NetworkModel
from ordercast.sim.world import BUFFER_BYTES, Machine, World
from ordercast.trace.recorder import Recorder
from ordercast.view import Address

T = TypeVar("T")


class SimNode(NodeBase):
    """One life of a node of a world. A node that is down (crashed, or closed) comes back by being made again."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        config: GroupConfig | None = None,
        timing: Timing | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        engines: EngineFactory | None = None,
        has_multicast: bool = True,
    ) -> None:
        self._world = world
        node = world.nodes.get(name)
        if node is None:
            node = world.add(name, self._boot, buffer_bytes=buffer_bytes, has_multicast=has_multicast)
        elif node.is_up:
            raise UsageError(f"there is a node {name!r}, and it is up")
        else:
            node.boot = self._boot
        self._node = node
        self._made_of = (timing, engines)
        world.start(name)
        super().__init__(self.host, config if config is not None else GroupConfig(datagram=LAN_DATAGRAM))

    def _boot(self, node: Machine) -> HostStack:
        timing, engines = self._made_of
        recorder = Recorder(None, node.name, node.life)
        node.recorders.append(recorder)
        self.host = Host(
            node.name,
            node.life,
            node.address,
            buffer_bytes=node.buffer_bytes,
            rng=self._world.stream(f"engine/{node.name}/{node.life}"),
            timing=timing,
            recorder=recorder,
            engines=engines,
            has_multicast=self._world.has_multicast(node),
        )
        self.host.start(self._world.clock(node))
        node.after_pass = self._after_pass
        return HostStack(self.host)

    def _after_pass(self, _now_ns: int) -> None:
        self.after_pass()

    def _now_ns(self) -> int:
        return self._world.clock(self._node)

    def _wake(self) -> None:
        for port in self.host.ports:
            self._world.listen(self._node, port.group)
        self._world.wake(self._node)

    async def _locate(self, contact: str | Address) -> Address:
        """By the name of a node of the world, or by its address."""
        if not isinstance(contact, str):
            return contact
        node = self._world.nodes.get(contact)
        if node is None:
            raise UsageError(f"there is no node {contact!r} in this world")
        return node.address

    def _contacts(self) -> list[Address]:
        if self._world.has_multicast(self._node):
            return []
        return [node.address for node in self._world.nodes.values() if node is not self._node]

    @property
    def is_up(self) -> bool:
        return self._node.stack is not None and self._node.life == self.host.me.life

    def crash(self) -> None:
        """As by SIGKILL: nothing more is sent, and whoever waits here learns that the node is gone."""
        if self.is_up:
            self._world.crash(self._node.name)
            self.fail(NotMember(f"the node {self.name!r} has crashed"))

    async def close(self) -> None:
        """Leave all groups and stop."""
        if not self.is_up:
            return
        await asyncio.gather(*(group.leave() for group in self.groups))
        if self.is_up:
            self.host.close(self._now_ns())
            self.after_pass()
            self._world.halt(self._node.name)


class Simulation:
    """What a simulated program gets: a maker of nodes, and the world that they live in."""

    __slots__ = ("_engines", "world")

    def __init__(self, world: World, engines: EngineFactory | None = None) -> None:
        self.world = world
        self._engines = engines

    def __call__(
        self,
        name: str,
        *,
        config: GroupConfig | None = None,
        timing: Timing | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        has_multicast: bool = True,
    ) -> SimNode:
        """A node that is up; the next life of one that was there before and is down."""
        return SimNode(
            self.world,
            name,
            config=config,
            timing=timing,
            buffer_bytes=buffer_bytes,
            engines=self._engines,
            has_multicast=has_multicast,
        )


def simulate(
    program: Callable[[Simulation], Coroutine[Any, Any, T]],
    *,
    seed: int | str = 0,
    network: NetworkModel = LAN,
    limit_ns: int = DEFAULT_LIMIT_NS,
    engines: EngineFactory | None = None,
    world: World | None = None,
) -> T:
    """Run a program in virtual time and return what it returns. Give a `world` to look at its traces afterwards."""
    made = world if world is not None else World(seed, network)
    return run_in_world(made, program(Simulation(made, engines)), limit_ns)
