"""The public API in virtual time: one asynchronous program runs unchanged on a real network and in here.

    async def program(node):                      # `node` makes nodes: in here simulated ones, elsewhere real ones
        async with node("a") as a, node("b") as b:
            group = await a.join("prices")
            ...

    simulate(program, seed=7, network=LAN)

`Simulation` is what the program gets. It makes nodes, and it holds the world for programs that want to break things.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from ordercast.api.checks import as_timing
from ordercast.api.local import LocalBackend
from ordercast.api.node import NodeBase
from ordercast.config import LAN_DATAGRAM, GroupConfig, Timing
from ordercast.errors import NotMember, UsageError
from ordercast.gms.embedded import EMBEDDED, EmbeddedService
from ordercast.gms.placement import labels_of
from ordercast.gms.replica import GmsReplica
from ordercast.groups.engines import EngineFactory
from ordercast.groups.host import Host
from ordercast.groups.regions.engines import RegionEngineFactory
from ordercast.groups.regions.served import ServedEngines
from ordercast.sim.application import HostStack
from ordercast.sim.loop import DEFAULT_LIMIT_NS, run_in_world
from ordercast.sim.network import LAN, NetworkModel
from ordercast.sim.world import BUFFER_BYTES, Machine, World
from ordercast.trace.recorder import Recorder
from ordercast.view import Address

T = TypeVar("T")


class PassFollower(Protocol):
    """What is told of the passes."""

    def settle(self) -> None: ...


class SimDriver:
    """Runs the passes of one life of a node of a world (`ordercast.api.local.Driver`)."""

    __slots__ = ("_context", "_engines", "_listeners", "_node", "_regions", "_timing", "_world", "host")

    def __init__(
        self,
        world: World,
        name: str,
        *,
        timing: Timing | None,
        buffer_bytes: int,
        engines: EngineFactory | None,
        has_multicast: bool,
        regions: RegionEngineFactory | None = None,
    ) -> None:
        self._world = world
        self._timing = timing
        self._engines = engines
        self._regions = regions
        self._listeners: list[PassFollower] = []
        self._context = copy_context()  # of the program that made the node: passes happen outside of it
        node = world.nodes.get(name)
        if node is None:
            node = world.add(name, self._boot, buffer_bytes=buffer_bytes, has_multicast=has_multicast)
        elif node.is_up:
            raise UsageError(f"there is a node {name!r}, and it is up")
        else:
            node.boot = self._boot
        self._node = node
        world.start(name)

    def _boot(self, node: Machine) -> HostStack:
        recorder = Recorder(None, node.name, node.life)
        node.recorders.append(recorder)
        self.host = Host(
            node.name,
            node.life,
            node.address,
            buffer_bytes=node.buffer_bytes,
            rng=self._world.stream(f"engine/{node.name}/{node.life}"),
            timing=self._timing,
            recorder=recorder,
            engines=self._engines,
            regions=self._served(node),
            has_multicast=self._world.has_multicast(node),
        )
        self.host.start(self._world.clock(node))
        node.after_pass = lambda now_ns: self._context.run(self._after_pass, now_ns)
        return HostStack(self.host)

    def _served(self, node: Machine) -> RegionEngineFactory:
        """Own multicasts do not come back, and without multicast every node of the world is asked."""
        return self._regions if self._regions is not None else ServedEngines([node.address, *self.contacts()])

    def start(self, listener: PassFollower) -> None:
        """`listener` is told of each pass."""
        self._listeners.append(listener)

    def add_listener(self, listener: PassFollower) -> None:
        """One more that is told of each pass, after the others: the sessions of a daemon."""
        self._listeners.append(listener)

    def _after_pass(self, _now_ns: int) -> None:
        self.host.take_log()  # a simulation logs nothing: its trace tells
        for listener in self._listeners:
            listener.settle()

    # What seats and the backend ask for.

    def now_ns(self) -> int:
        return self._world.clock(self._node)

    def wake(self) -> None:
        if not self.is_up:
            return  # what is left of a life that is over
        for underlay in self.host.underlays:
            self._world.listen(self._node, underlay)
        self._world.wake(self._node)

    def hurry(self) -> None:
        self.wake()

    def prepare(self, underlay: str, orderer: str) -> None:
        """`wake` listens to what is open."""

    def find(self, group: str) -> None:
        """Every group has an address."""

    async def locate(self, contact: str | Address) -> Address:
        """By the name of a node of the world, or by its address."""
        if not isinstance(contact, str):
            return contact
        node = self._world.nodes.get(contact)
        if node is None:
            raise UsageError(f"there is no node {contact!r} in this world")
        return node.address

    def contacts(self) -> list[Address]:
        if self._world.has_multicast(self._node):
            return []
        return [node.address for node in self._world.nodes.values() if node is not self._node]

    def socket_stats(self) -> dict[str, int]:
        return {}

    # The life of the node.

    @property
    def is_up(self) -> bool:
        return self._node.stack is not None and self._node.life == self.host.me.life

    def crash(self, is_process: bool = False) -> None:
        self._world.crash(self._node.name, is_process)

    def halt(self) -> None:
        """Stop of the node's own will."""
        self.host.close(self.now_ns())
        self._after_pass(0)
        self._world.halt(self._node.name)


class SimNode(NodeBase):
    """One life of a node of a world. A node that is down (crashed, or closed) comes back by being made again."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        config: GroupConfig | None = None,
        timing: Timing | str | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        engines: EngineFactory | None = None,
        has_multicast: bool = True,
        regions: RegionEngineFactory | None = None,
        gms: str | None = None,
        placement: Mapping[str, int] | None = None,
    ) -> None:
        if gms not in (None, EMBEDDED):
            raise UsageError(f'a simulated node finds the membership service by itself; gms is None or "{EMBEDDED}"')
        driver = SimDriver(
            world,
            name,
            timing=as_timing(timing),
            buffer_bytes=buffer_bytes,
            engines=engines,
            has_multicast=has_multicast,
            regions=regions,
        )
        defaults = config if config is not None else GroupConfig(datagram=LAN_DATAGRAM)
        self._local = LocalBackend(driver.host, defaults, driver)
        super().__init__(self._local)
        self._driver = driver
        driver.start(self._open)
        plan = labels_of(placement) if placement is not None else ()
        self._embedded = EmbeddedService(self, driver, as_timing(timing), plan=plan) if gms == EMBEDDED else None

    @property
    def host(self) -> Host:
        """What runs the protocols of this life."""
        return self._driver.host

    @property
    def parts(self) -> tuple[SimDriver, LocalBackend]:
        """What a daemon needs of its node: its sessions are further applications of the same host."""
        return self._driver, self._local

    @property
    def embedded_service(self) -> EmbeddedService | None:
        """As `Node.embedded_service`."""
        return self._embedded

    @property
    def is_up(self) -> bool:
        """Whether this life has neither crashed nor ended."""
        return self._driver.is_up

    @property
    def embedded_replica(self) -> GmsReplica | None:
        """The replica of the membership service that this node runs now, with gms="embedded"."""
        return self._embedded.replica if self._embedded is not None else None

    def crash(self, *, is_process: bool = False) -> None:
        """Nothing more is sent, and the tasks that wait here learn that the node is gone. The machine is down, or
        (`is_process`) only its process, as by SIGKILL: then its kernel tells senders so."""
        if self.is_up:
            if self._embedded is not None:
                self._embedded.abort()
            self._driver.crash(is_process)
            self._open.fail(NotMember(f"the node {self.name!r} has crashed"))

    def abort(self) -> None:
        """As `Node.abort`: for the others this is a crash."""
        self.crash()

    async def close(self) -> None:
        """Leave all groups and stop."""
        if not self.is_up:
            return
        await self._leave_regions()
        if self._embedded is not None:
            await self._embedded.stop()
        await self._leave_all()
        if self.is_up:
            self._driver.halt()


class Simulation:
    """What a simulated program gets: a maker of nodes, and the world that they live in."""

    __slots__ = ("_engines", "_regions", "world")

    def __init__(
        self, world: World, engines: EngineFactory | None = None, regions: RegionEngineFactory | None = None
    ) -> None:
        self.world = world
        self._engines = engines
        self._regions = regions

    def __call__(
        self,
        name: str,
        *,
        config: GroupConfig | None = None,
        timing: Timing | str | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        has_multicast: bool = True,
        gms: str | None = None,
        placement: Mapping[str, int] | None = None,
    ) -> SimNode:
        """A node that is up; the next life of one that was there before and is down. gms: as `Node` has it, "embedded";
        any other node finds the membership service by itself. placement: as `Node` has it."""
        return SimNode(
            self.world,
            name,
            config=config,
            timing=timing,
            buffer_bytes=buffer_bytes,
            engines=self._engines,
            has_multicast=has_multicast,
            regions=self._regions,
            gms=gms,
            placement=placement,
        )


def simulate(
    program: Callable[[Simulation], Coroutine[Any, Any, T]],
    *,
    seed: int | str = 0,
    network: NetworkModel = LAN,
    limit_ns: int = DEFAULT_LIMIT_NS,
    engines: EngineFactory | None = None,
    regions: RegionEngineFactory | None = None,
    world: World | None = None,
) -> T:
    """Run a program in virtual time and return what it returns. Give a `world` to look at its traces afterwards."""
    made = world if world is not None else World(seed, network)
    return run_in_world(made, program(Simulation(made, engines, regions)), limit_ns)
