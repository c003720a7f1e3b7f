"""Three daemons and clients of both kinds, all as processes, that go through kills, a partition and a merge.

Every step waits until the clients say that they are there; how long that takes decides nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.network.quick import within

from ordercast.cli.chronicle import Transition, parting_faults
from ordercast.cli.client_processes import DAEMON, ClientProcesses, crew, doors_of
from ordercast.cli.local_sites import settings_of_sites, sites_of_settings
from ordercast.cli.site_processes import SiteProcesses, SitesVenue

LIMIT_S = 300.0  # for a machine that does something else, too
DAEMONS = ("d1", "d2", "d3")
PARTS = (("d1",), ("d2", "d3"))
KILLED = 6  # clients: a native one and one of Spread of each daemon
GROUP = "g"
PACE_S = 0.2
DELIVERED = 50
"""Messages that each client is to receive in each view."""


class ClientHouse:
    """The processes, and what is done to them."""

    def __init__(self, trace: Path, sockets: Path, clients: int) -> None:
        settings = settings_of_sites("clients", {f"site-of-{name}": [name] for name in DAEMONS}, multicasts=False)
        doors = doors_of(sockets, DAEMONS)
        told = {"sites": settings, "doors": doors}
        self._plans = crew(clients, DAEMONS)
        self.daemons = SiteProcesses(SitesVenue(trace, sites_of_settings(settings), told, GROUP, module=DAEMON))
        self.clients = ClientProcesses(doors, GROUP, PACE_S)
        self.daemons.write_info({"clients": clients})

    async def start(self) -> None:
        """All clients are in one view, and send."""
        await self.daemons.start(DAEMONS)
        await self.daemons.until([DAEMONS])
        await self.clients.start(self._plans)
        self.clients.tell("send")
        await self._until(self.names)

    @property
    def names(self) -> list[str]:
        """Of the clients that live."""
        return list(self.clients.children)

    async def kill_clients(self) -> None:
        killed = self.names[:KILLED]
        await self.clients.crash(killed)
        await self._until(self.names)
        lives = self.clients.transitions()
        for name in self.names:
            assert _causes(lives[name], killed) == ["disconnect"] * len(killed)

    async def cut_and_merge(self) -> None:
        where = {name: said["client"] for name, said in (await self.clients.ask()).items()}
        parts = [[name for name in where if where[name].split("#")[2] in part] for part in PARTS]
        self._cut(*PARTS)
        await self._until(*parts)
        self._cut(DAEMONS)
        await self._until(self.names)
        lives = self.clients.transitions().values()
        checked, faults = parting_faults(lives, [[where[name] for name in part] for part in parts])
        assert faults == []
        assert checked, "nobody went from the view of all to that of its part, or back"

    async def kill_daemon(self, name: str) -> None:
        """Its clients go to the others; then it is started again."""
        await self.daemons.crash(name)
        await self._until(self.names, without=name)
        await self.daemons.start([name])
        await self.daemons.until([DAEMONS])

    async def stop(self) -> None:
        """When all have received everything."""
        await self.clients.drain()
        await self.daemons.stop()

    async def kill(self) -> None:
        await self.clients.kill()
        await self.daemons.kill()

    def _cut(self, *parts: Sequence[str]) -> None:
        self.daemons.cut([[f"site-of-{name}" for name in part] for part in parts])

    async def _until(self, *parts: list[str], without: str = "") -> None:
        await self.clients.until(parts, delivering=DELIVERED, without=[without])


@within(LIMIT_S)
async def _go_through(house: ClientHouse) -> None:
    try:
        await house.start()
        await house.kill_clients()
        await house.cut_and_merge()
        await house.kill_daemon("d3")
        await house.stop()
    finally:
        await house.kill()


def run_clients(trace: Path, clients: int) -> ClientHouse:
    """All of it; the raw trace is in this folder."""
    with tempfile.TemporaryDirectory(prefix="oc") as sockets:  # the path of a unix socket is short
        house = ClientHouse(trace, Path(sockets), clients)
        _go_through(house)
    return house


def _causes(life: list[Transition], names: list[str]) -> list[str]:
    """The causes of the views that lost exactly one of these clients."""
    found, members = [], set[str]()
    for each in life:
        gone = [member.split("#")[1] for member in members - set(each.members)]
        if len(gone) == 1 and gone[0] in names:
            found.append(each.cause)
        members = set(each.members)
    return found
