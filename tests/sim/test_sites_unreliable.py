"""UNRELIABLE messages that are more than a link behind the next site takes, in virtual time."""

from __future__ import annotations

import asyncio

from ordercast import AGREED, UNRELIABLE, Group, Message, View
from ordercast.config import LAN_DATAGRAM, GroupConfig
from ordercast.groups.engines import engines_of_sites
from ordercast.sim.api import SimNode
from ordercast.sim.loop import run_in_world
from ordercast.sim.network import LAN
from ordercast.sim.topology import parse_topology
from ordercast.sim.world import World

LIMIT_NS = 60_000_000_000
CHAIN = """
[[site]]
name = "east"
[[site]]
name = "middle"
[[site]]
name = "west"
[[daemon]]
name = "e1"
site = "east"
host = "10.1.0.1"
[[daemon]]
name = "m1"
site = "middle"
host = "10.2.0.1"
[[daemon]]
name = "w1"
site = "west"
host = "10.3.0.1"
[[link]]
between = ["middle", "west"]
rate = "1Mbit"
[[link]]
between = ["east", "west"]
weight = 9
[simulation]
latency = "20ms"
"""


async def until(group: Group, members: int) -> None:
    async for event in group:
        if isinstance(event, View) and len(event.members) == members:
            return


def test_they_do_not_fill_a_slower_link_of_a_site_that_forwards_them() -> None:
    """They are never unstable, so nothing but the site that forwards them bounds what waits there."""
    topology = parse_topology(CHAIN, "chain.toml")
    world = World(11, LAN, topology=topology)
    came: dict[str, int] = {}
    stats: dict[str, int] = {}

    async def follow(name: str, group: Group) -> None:
        async for event in group:
            assert isinstance(event, Message), f"{name} got {event}"
            if event.service == AGREED:
                came[name] = came.get(name, 0) + 1

    async def flood(group: Group) -> None:
        while True:
            await group.send(bytes(1_300), UNRELIABLE)

    async def speak(group: Group) -> None:
        while True:
            await asyncio.sleep(0.5)
            await group.send(b"word", AGREED)

    async def program() -> None:
        config = GroupConfig(orderer="sites", datagram=LAN_DATAGRAM)
        nodes = [
            SimNode(world, name, config=config, engines=engines_of_sites(topology.config)) for name in topology.nodes
        ]
        groups = [await node.join("orders") for node in nodes]
        await asyncio.gather(*[until(group, 3) for group in groups])
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(follow(name, group)) for name, group in zip(topology.nodes, groups, strict=True)
            ]
            running += [tasks.create_task(flood(groups[0])), tasks.create_task(speak(groups[1]))]
            await asyncio.sleep(5)
            stats.update(groups[1].stats)
            for task in running:
                task.cancel()

    run_in_world(world, program(), LIMIT_NS)
    assert min(came.get(name, 0) for name in topology.nodes) >= 4
    assert stats["link_drops"] > 1_000
