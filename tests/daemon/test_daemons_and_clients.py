"""Three daemons and thirty clients as processes, native and of Spread, in one group: clients and a daemon are killed,
the daemons are cut off from one another and merge. What all clients have seen fits together, and so does the trace.

Every step waits until the clients say that they are there; how long that takes decides nothing. `make chaos
CHAOS="--orderer daemons"` does more of the same, with losses.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.network.quick import within

from ordercast.cli.chronicle import Transition, parting_faults
from ordercast.cli.client_processes import DAEMON, ClientProcesses, crew, doors_of
from ordercast.cli.local_sites import settings_of_sites, sites_of_settings
from ordercast.cli.proof import prove
from ordercast.cli.site_processes import SiteProcesses, SitesVenue

LIMIT_S = 300.0  # for a machine that does something else, too
CLIENTS = 30
DAEMONS = ("d1", "d2", "d3")
PARTS = (("d1",), ("d2", "d3"))
GROUP = "g"
PACE_S = 0.2
DELIVERED = 50
"""Messages that each client is to receive in each view."""


class House:
    """The processes."""

    def __init__(self, trace: Path, sockets: Path) -> None:
        settings = settings_of_sites("clients", {f"site-of-{name}": [name] for name in DAEMONS}, multicasts=False)
        doors = doors_of(sockets, DAEMONS)
        told = {"sites": settings, "doors": doors}
        self.daemons = SiteProcesses(SitesVenue(trace, sites_of_settings(settings), told, GROUP, module=DAEMON))
        self.clients = ClientProcesses(doors, GROUP, PACE_S)

    async def until(self, *parts: list[str], without: str = "") -> None:
        await self.clients.until(parts, delivering=DELIVERED, without=[without])

    async def start(self) -> list[str]:
        await self.daemons.start(DAEMONS)
        await self.daemons.until([DAEMONS])
        await self.clients.start(crew(CLIENTS, DAEMONS))
        self.clients.tell("send")
        everybody = list(self.clients.children)
        await self.until(everybody)
        return everybody

    def cut(self, *parts: tuple[str, ...]) -> None:
        self.daemons.cut([[f"site-of-{name}" for name in part] for part in parts])

    async def kill(self) -> None:
        await self.clients.kill()
        await self.daemons.kill()


@within(LIMIT_S)
async def run_house(house: House) -> None:
    try:
        everybody = await house.start()
        killed = everybody[:6]  # a native client and one of Spread of each daemon
        await house.clients.crash(killed)
        rest = everybody[6:]
        await house.until(rest)
        for name in rest:
            assert causes(house.clients.transitions()[name], killed) == ["disconnect"] * len(killed)

        where = {name: said["client"] for name, said in (await house.clients.ask()).items()}
        parts = [[name for name in rest if where[name].split("#")[2] in part] for part in PARTS]
        house.cut(*PARTS)
        await house.until(*parts)
        house.cut(DAEMONS)
        await house.until(rest)
        lives = house.clients.transitions().values()
        checked, faults = parting_faults(lives, [[where[name] for name in part] for part in parts])
        assert faults == []
        assert checked, "nobody went from the view of all to that of its part, or back"

        await house.daemons.crash("d3")
        await house.until(rest, without="d3")
        await house.daemons.start(["d3"])
        await house.daemons.until([DAEMONS])
        await house.clients.drain()
        await house.daemons.stop()
    finally:
        await house.kill()


def causes(life: list[Transition], names: list[str]) -> list[str]:
    """The causes of the views that lost exactly one of these clients."""
    found, members = [], set[str]()
    for each in life:
        gone = [member.split("#")[1] for member in members - set(each.members)]
        if len(gone) == 1 and gone[0] in names:
            found.append(each.cause)
        members = set(each.members)
    return found


def test_native_clients_and_those_of_spread_see_the_same_through_kills_and_a_partition(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="oc") as sockets:  # a path of a unix socket is short
        house = House(tmp_path, Path(sockets))
        house.daemons.write_info({})
        run_house(house)
    assert house.clients.disagreements() == []
    proof = prove(tmp_path, house.daemons.crashed, with_spark=False, say=print)
    assert proof.held, {name: one.word for name, one in proof.properties.items()} | {"evidence": proof.evidence}
