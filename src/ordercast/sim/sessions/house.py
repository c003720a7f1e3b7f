"""Daemons of a simulated world: `OrdercastDaemon` as it is, in a process that can be killed, stopped and started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ordercast.config import SITES_ORDERER, SITES_UNDERLAY, GroupConfig
from ordercast.daemon.config import UNDERLAY, DaemonConfig
from ordercast.daemon.daemon import OrdercastDaemon
from ordercast.daemon.seat import Limits
from ordercast.daemon.spread.config import SpreadConfig
from ordercast.daemon.spread.settings import SpreadSettings
from ordercast.errors import OrdercastError
from ordercast.groups.engines import EngineFactory
from ordercast.sim.api import SimNode
from ordercast.sim.sessions.processes import Process, ProcessLoop
from ordercast.sim.sessions.streams import Streams
from ordercast.sim.topology import Topology
from ordercast.sim.world import World
from ordercast.sites import SitesConfig
from ordercast.underlay.sites import sites_engines

NATIVE_PORT: Final = 4_810
SPREAD_PORT: Final = 4_803
RESTART_S: Final = 1.0
"""A daemon that could not start is started again after this time, as a supervisor does."""


@dataclass(frozen=True, slots=True)
class HouseTerms:
    """What all daemons of a world are started with."""

    orderer: str
    config: GroupConfig
    limits: Limits
    spread: SpreadSettings
    sites: SitesConfig | None = None

    @property
    def underlay(self) -> str:
        return SITES_UNDERLAY if self.orderer == SITES_ORDERER else UNDERLAY

    @property
    def engines(self) -> EngineFactory | None:
        return sites_engines(self.sites) if self.sites is not None else None


class SimDaemon:
    """One machine with a daemon, through all its lives."""

    __slots__ = ("_loop", "_streams", "_terms", "_world", "daemon", "host", "name", "node", "process")

    def __init__(self, world: World, loop: ProcessLoop, streams: Streams, terms: HouseTerms, name: str, host: str):
        self._world = world
        self._loop = loop
        self._streams = streams
        self._terms = terms
        self.name = name
        self.host = host
        self.process: Process | None = None
        self.node: SimNode | None = None
        self.daemon: OrdercastDaemon | None = None

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dead

    @property
    def is_ready(self) -> bool:
        """Whether it lets clients in."""
        return self.is_up and self.daemon is not None and self.daemon.listener is not None

    @property
    def view(self) -> str:
        """The newest view of the underlay that it has; empty: none."""
        if self.daemon is None or self.daemon.hub is None:
            return ""
        places = self.daemon.hub.seats.host.session.places
        return next((port.view.id for port in places if not port.group and port.view is not None), "")

    @property
    def address(self) -> str:
        return f"tcp://{self.host}:{NATIVE_PORT}"

    @property
    def spread_address(self) -> tuple[str, int]:
        return (self.host, SPREAD_PORT)

    def start(self) -> None:
        if self.is_up:
            return
        self._streams.dead_hosts.discard(self.host)
        self.process = Process(self._loop, self.name, self.host)
        self.process.start(self._run(self.process))

    async def _run(self, process: Process) -> None:
        """Until it is killed or stopped; a supervisor starts it again where it could not start."""
        terms = self._terms
        config = DaemonConfig(
            name=self.name,
            orderer=terms.orderer,
            underlay=terms.underlay,
            sites=terms.sites,
            insecure=True,
            unix=None,
            listen=((self.host, NATIVE_PORT),),
            limits=terms.limits,
            spread=SpreadConfig(((self.host, SPREAD_PORT),), None, terms.spread),
        )
        while True:
            self.daemon = OrdercastDaemon(config, self._make_node)
            try:
                await self.daemon.start()
            except (OrdercastError, TimeoutError):
                await asyncio.sleep(RESTART_S)
                continue
            break
        try:
            await self.daemon.run()
        except OrdercastError:
            process.kill()  # the node has stopped by itself

    def _make_node(self, _config: DaemonConfig) -> SimNode:
        terms = self._terms
        self.node = SimNode(self._world, self.name, config=terms.config, engines=terms.engines)
        return self.node

    def kill(self, *, machine: bool = False) -> None:
        """kill -9 of the process; or the whole machine is gone, and says nothing."""
        process = self.process
        if process is None or process.is_dead:
            return
        if machine:
            for transport in self._streams.of(process):
                self._streams.cut(transport)
            self._streams.dead_hosts.add(self.host)
        process.kill()
        self._world.crash(self.name, is_process=not machine)

    def stop(self) -> None:
        """SIGTERM: its sessions leave in order."""
        process, daemon = self.process, self.daemon
        if process is not None and daemon is not None and not process.is_dead:
            process.start(self._stop(process, daemon))

    async def _stop(self, process: Process, daemon: OrdercastDaemon) -> None:
        await daemon.stop()
        process.kill()

    def pause(self) -> None:
        if self.process is not None and not self.process.is_dead:
            self.process.pause()
            self._world.pause(self.name)

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self.process.resume()
            self._world.resume(self.name)


def make_house(
    world: World,
    loop: ProcessLoop,
    streams: Streams,
    terms: HouseTerms,
    names: tuple[str, ...],
    topology: Topology | None,
) -> dict[str, SimDaemon]:
    """A daemon for each name."""
    address_of: Callable[[str], str] = (
        (lambda name: topology.address_of(name)[0])
        if topology is not None
        else (lambda name: f"10.0.0.{1 + names.index(name)}")
    )
    return {name: SimDaemon(world, loop, streams, terms, name, address_of(name)) for name in names}
