"""The membership service under random faults: crashes of replicas and nodes, partitions, losses, restarts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest
from tests.sim.gms_world import Attendant, GmsWorld

from ordercast.config import SECOND
from ordercast.gms.dump import dump
from ordercast.orderers.regions.given import GivenView
from ordercast.sim.api import Simulation, simulate
from ordercast.sim.network import LAN

REPLICAS = ("r1", "r2", "r3")
NODES = ("a", "b", "c", "d", "e")
NAMES = ("fx", "news", "x", "y")
ACTS = ("crash replica", "restart", "crash node", "node", "partition", "heal", "join", "leave", "accuse")
STEPS = 12
LIMIT_NS = 3_600 * SECOND


class Chaos:
    """What happens in one world, drawn from a seed."""

    def __init__(self, world: GmsWorld, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.down: list[str] = []  # replicas
        self.seen: list[Attendant] = []  # also of lives that are over

    async def run(self) -> None:
        world = self.world
        await world.replica(*REPLICAS)
        for name in NODES:
            self.begin(name)
        for _ in range(STEPS):
            await self.step()
            await asyncio.sleep(self.rng.choice((0.1, 0.5, 2, 6)))
        world.make.world.network.heal()
        for name in self.down:
            await self.restart(name)
        await asyncio.sleep(5)
        self.accuse_the_dead()
        for name in list(world.attendants):
            world.join(name, "last")  # whoever was put out and has not heard of it asks for something now
        await world.settled()
        await asyncio.sleep(3)
        dumps = {name: dump(replica.desk.directory) for name, replica in world.replicas.items()}
        assert len(set(dumps.values())) == 1, world.describe()
        check_views(self.seen)

    def begin(self, name: str) -> None:
        groups = self.rng.sample(NAMES, self.rng.randint(1, len(NAMES)))
        self.seen.append(self.world.attend(name, *groups))

    async def step(self) -> None:
        world, rng = self.world, self.rng
        what = rng.choice(ACTS)
        name = rng.choice(sorted(world.attendants)) if world.attendants else ""
        if what == "crash replica" and self.is_whole:
            self.down.append(rng.choice(REPLICAS))
            world.crash(self.down[-1])
        elif what == "restart" and self.down:
            world.make.world.network.heal()
            await self.restart(self.down.pop())
        elif what == "crash node" and len(world.attendants) > 2:
            world.crash(name)
        elif what == "node" and len(world.attendants) < len(NODES):
            self.begin(rng.choice([each for each in NODES if each not in world.attendants]))
        elif what == "partition" and not self.down:
            everybody = [*REPLICAS, *NODES]
            rng.shuffle(everybody)
            cut = rng.randint(1, len(everybody) - 1)
            world.make.world.network.partition([everybody[:cut], everybody[cut:]])
        elif what == "heal":
            world.make.world.network.heal()
        elif what == "join" and name:
            world.join(name, rng.choice(NAMES))
        elif what == "leave" and name:
            group = rng.choice(NAMES)
            world.act(name, lambda now_ns: world.attendants[name].attendance.leave(now_ns, [group]))
        elif what == "accuse" and name:
            world.accuse(name, rng.choice(self.seen).me.id)

    @property
    def is_whole(self) -> bool:
        """Whether all replicas are in one group. A crash while another one is out may leave less than a majority, and
        the service stops for good: that is the quorum's rule, and no fault."""
        replicas = [replica.status()["replicas"] for replica in self.world.replicas.values()]
        return not self.down and all(len(each) == len(REPLICAS) for each in replicas if isinstance(each, list))

    async def restart(self, name: str) -> None:
        await self.world.replica(name)

    def accuse_the_dead(self) -> None:
        """As their neighbours in a region would."""
        world = self.world
        living = {each.me.id for each in world.attendants.values()}
        dead = {each.me.id for each in self.seen} - living
        name = min(world.attendants)
        for node in sorted(dead):
            world.accuse(name, node)


def check_views(attendants: list[Attendant]) -> None:
    """What all nodes have been told fits together."""
    views: dict[tuple[int, int], GivenView] = {}
    regions: dict[tuple[int, int, int], int] = {}
    for attendant in attendants:
        for epoch in attendant.epochs:
            for view in epoch.views:
                assert views.setdefault((epoch.service, view.view), view) == view, "a view never changes"
            key = (epoch.service, epoch.number, attendant.me.id)
            assert regions.setdefault(key, epoch.mine) == epoch.mine, "one region for a node and epoch"


@pytest.mark.parametrize("seed", range(10))
def test_the_service_comes_to_rest_after_random_faults(seed: int) -> None:
    async def program(make: Simulation) -> None:
        world = GmsWorld(make)
        await Chaos(world, Random(f"gms/{seed}")).run()
        await world.stop()

    network = replace(LAN, loss=0.03, duplicate=0.02, reorder=0.05) if seed % 2 else LAN
    simulate(program, seed=f"gms-random/{seed}", network=network, limit_ns=LIMIT_NS)
