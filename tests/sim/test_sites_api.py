"""The public API on an underlay of sites, and what it has in common with other shared underlays, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ordercast import SAFE, UNRELIABLE, Group, Message, OutcomeUnknown, UsageError, View
from ordercast.config import LAN_DATAGRAM, GroupConfig
from ordercast.groups.engines import engines_of_sites
from ordercast.sim.api import SimNode
from ordercast.sim.loop import run_in_world
from ordercast.sim.network import LAN
from ordercast.sim.topology import Topology, plain_topology
from ordercast.sim.world import World

LIMIT_NS = 120_000_000_000
CREWS = {"east": ["e1", "e2"], "west": ["w1", "w2"]}


def node_of(world: World, topology: Topology, name: str) -> SimNode:
    config = GroupConfig(orderer="sites", datagram=LAN_DATAGRAM)
    return SimNode(world, name, config=config, engines=engines_of_sites(topology.config))


async def until(group: Group, members: int) -> list[bytes]:
    """Messages until a view of so many."""
    found: list[bytes] = []
    async for event in group:
        if isinstance(event, View) and len(event.members) == members:
            break
        if isinstance(event, Message):
            found.append(event.payload)
    return found


@pytest.mark.parametrize("orderer", ["token", "sites"])
def test_flush_returns_after_unreliable_messages_on_a_shared_underlay(orderer: str) -> None:
    topology = plain_topology(CREWS)
    world = World(1, LAN, topology=topology) if orderer == "sites" else World(1, LAN)

    async def program() -> None:
        names = topology.nodes
        nodes = [node_of(world, topology, name) if orderer == "sites" else SimNode(world, name) for name in names]
        groups = [await node.join("orders", underlay="floor") for node in nodes]
        await asyncio.gather(*[until(group, 4) for group in groups])
        for _ in range(10):
            await groups[0].send(bytes(1_000), UNRELIABLE)
        async with asyncio.timeout(5):
            await groups[0].flush()
        assert groups[0].stats["queued_messages"] == 0

    run_in_world(world, program(), LIMIT_NS)


@pytest.mark.parametrize(
    ("orderer", "underlay"), [("token", None), ("token", "floor"), ("sites", "floor")], ids=["own", "shared", "sites"]
)
def test_an_unreliable_message_is_confirmed_when_it_has_left_whatever_becomes_of_it(
    orderer: str, underlay: str | None
) -> None:
    topology = plain_topology(CREWS)
    world = World(1, LAN, topology=topology) if orderer == "sites" else World(1, LAN)

    async def program() -> None:
        names = topology.nodes
        nodes = [node_of(world, topology, name) if orderer == "sites" else SimNode(world, name) for name in names]
        groups = [await node.join("orders", underlay=underlay) for node in nodes]
        await asyncio.gather(*[until(group, 4) for group in groups])
        if underlay is not None:
            await nodes[1].join("stock", underlay=underlay)
        async with asyncio.timeout(5):
            assert await groups[0].send(b"1", UNRELIABLE, confirm=True) == -1
            assert await groups[0].send_many([b"2", bytes(100_000)], UNRELIABLE, confirm=True) == -1
            if underlay is not None:
                assert await nodes[0].send(b"3", groups=["stock"], service=UNRELIABLE, confirm=True) == -1
        if orderer == "token":  # a ring of sites needs its token for what it sends, and loses it here
            world.network.partition([[names[0]], list(names[1:])])
            async with asyncio.timeout(0.01):  # virtual: nobody is suspected so soon
                assert await groups[0].send(b"4", UNRELIABLE, confirm=True) == -1

    run_in_world(world, program(), LIMIT_NS)


def test_a_safe_message_that_only_a_part_has_is_delivered_and_not_confirmed() -> None:
    """Every part of a view goes on: after the signal nobody can promise anything for the others."""
    topology = plain_topology(CREWS)
    world = World(3, LAN, topology=topology)

    async def program() -> None:
        nodes = [node_of(world, topology, name) for name in topology.nodes]
        groups = [await node.join("orders") for node in nodes]
        await asyncio.gather(*[until(group, 4) for group in groups])
        world.pipes.partition([["east"], ["west"]])
        with pytest.raises(OutcomeUnknown, match="another may not"):
            await groups[0].send(b"east only", SAFE, confirm=True)
        assert await until(groups[0], 2) == [b"east only"]
        assert await until(groups[1], 2) == [b"east only"]
        assert await until(groups[2], 2) == []
        assert await groups[0].send(b"apart", SAFE, confirm=True) is not None
        world.pipes.heal()
        merged = await asyncio.gather(*[until(group, 4) for group in groups])
        assert merged == [[b"apart"], [b"apart"], [], []]
        components = {group.view.components for group in groups if group.view is not None}
        assert len(components) == 1, "the same at all"
        assert sorted(map(sorted, components.pop())) == [["e1/0", "e2/0"], ["w1/0", "w2/0"]]

    run_in_world(world, program(), LIMIT_NS)


def test_other_orderers_run_beside_sites_on_one_daemon() -> None:
    topology = plain_topology({"here": ["a", "b"]})
    world = World(4, LAN, topology=topology)

    async def program() -> None:
        nodes = [node_of(world, topology, name) for name in topology.nodes]
        over = [await node.join("orders") for node in nodes]
        beside = [await node.join("locks", orderer="token") for node in nodes]
        await asyncio.gather(*[until(group, 2) for group in (*over, beside[0])])
        assert [group.config.orderer for group in (*over, *beside)] == ["sites", "sites", "token", "token"]
        assert await over[0].send(b"urgent", confirm=True, priority=15) is not None
        assert await over[0].send_many([b"a", b"b"], confirm=True, priority=1) is not None
        for priority in (-1, 16, "high"):
            with pytest.raises(UsageError, match="from 0, the usual one, to 15"):
                await over[0].send(b"x", priority=priority)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no priorities: leave priority out, or use a group with orderer='sites'"):
            await beside[0].send(b"x", priority=1)
        with pytest.raises(UsageError, match="no priorities"):
            await beside[0].send_many([b"x"], priority=1)
        async with beside[1].lock("key"):
            assert await beside[0].send(b"x", confirm=True) is not None

    run_in_world(world, program(), LIMIT_NS)
