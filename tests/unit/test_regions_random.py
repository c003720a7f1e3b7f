"""Random joins, leaves and sends on regions: per sender and group everything comes in order, and nothing twice."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.unit.fake_regions import FakeService

from ordercast.config import SECOND
from ordercast.groups.events import Batch
from ordercast.sim.api import SimNode, Simulation, simulate
from ordercast.sim.network import IDEAL
from ordercast.sim.world import World

GROUPS = ("red", "green", "blue", "pink")
NODES = 4
STEPS = 25
Seen = list[tuple[str, tuple[str, ...], int]]


async def read(node: SimNode, seen: Seen) -> None:
    async for event in node.batches("regions"):
        if isinstance(event, Batch):
            seen += [(each.sender, each.groups, int(each.payload.split(b"|")[0])) for each in event.each()]


async def live(node: SimNode, rng: random.Random) -> None:
    mine: set[str] = set()
    for step in range(STEPS):
        what = rng.random()
        others = [name for name in GROUPS if name not in mine]
        if what < 0.2 and others:
            some = rng.sample(others, rng.randint(1, len(others)))
            await node.join_many(some, orderer="regions")
            mine.update(some)
        elif what < 0.3 and mine:
            some = rng.sample(sorted(mine), rng.randint(1, len(mine)))
            await node.leave_many(some, underlay="regions")
            mine.difference_update(some)
        else:
            for number in range(rng.randint(1, 6)):
                groups = rng.sample(GROUPS, 1 if rng.random() < 0.8 else 2)
                size = rng.choice((10, 10, 100, 3_000, 150_000))
                await node.send(b"%d|" % (step * 10 + number) + bytes(size), groups=groups)
        await asyncio.sleep(rng.random() * 0.05)
    await (await node.attach("regions")).flush()


@pytest.mark.parametrize("seed", range(4))
def test_what_each_sender_sends_to_a_group_comes_in_order_and_once(seed: int) -> None:
    service, world = FakeService(), World(seed, IDEAL)
    seen: dict[str, Seen] = {}

    async def program(node: Simulation) -> None:
        nodes = [node(f"n{number}") for number in range(NODES)]
        readers = []
        for each in nodes:
            await each.attach("regions")
            readers.append(asyncio.create_task(read(each, seen.setdefault(each.name, []))))
        await asyncio.gather(*(live(each, random.Random(f"{seed}/{each.name}")) for each in nodes))
        await asyncio.sleep(1)
        for reader in readers:
            reader.cancel()

    simulate(program, world=world, regions=service.engines, limit_ns=120 * SECOND)
    assert sum(map(len, seen.values())) > 100
    for got in seen.values():
        assert len({(sender, number) for sender, _, number in got}) == len(got)
        last: dict[tuple[str, str], int] = {}
        for sender, groups, number in got:
            for group in groups:
                assert last.get((sender, group), -1) < number
                last[sender, group] = number
    rows = [row for machine in world.nodes.values() for recorder in machine.recorders for row in recorder.rows()]
    carried = {(row.node, row.underlay, row.first) for row in rows if row.kind == "carry" and row.count}
    submitted = {(row.node, row.underlay, row.first) for row in rows if row.kind == "submit"}
    assert carried
    assert {row.underlay.partition("/")[0] for row in rows if row.kind == "deliver"} == {"region"}
    assert {key[:2] for key in submitted} == {key[:2] for key in carried}
