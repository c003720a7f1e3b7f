"""Daemons of sites whose process dies, and daemons with another file, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.sim.test_sites_api import CREWS, LIMIT_NS, node_of, until

from ordercast import Group, View
from ordercast.config import MS, SECOND, Timing
from ordercast.sim.api import SimNode
from ordercast.sim.datagrams import Train
from ordercast.sim.loop import run_in_world
from ordercast.sim.network import LAN
from ordercast.sim.pipes import Carried, Pipe
from ordercast.sim.topology import Topology, plain_topology
from ordercast.sim.world import World
from ordercast.sites import LinkSpec


async def meet(world: World, topology: Topology) -> dict[str, tuple[SimNode, Group]]:
    nodes = {name: node_of(world, topology, name) for name in topology.nodes}
    groups = {name: await node.join("orders") for name, node in nodes.items()}
    await asyncio.gather(*[until(group, len(groups)) for group in groups.values()])
    return {name: (node, groups[name]) for name, node in nodes.items()}


async def next_view(world: World, group: Group) -> int:
    """When the next view comes."""
    async for event in group:
        if isinstance(event, View):
            return world.now_ns
    raise AssertionError("the group has ended")


@pytest.mark.parametrize("victim", ["w1", "w2"])  # the representative of its site, and another one
@pytest.mark.parametrize("is_process", [True, False])
def test_a_process_that_dies_is_noticed_by_probes_and_a_machine_by_silence(victim: str, is_process: bool) -> None:
    topology = plain_topology({"east": ["e1", "e2"], "west": ["w1", "w2", "w3"]})
    world = World(5, LAN, topology=topology)

    async def program() -> None:
        crew = await meet(world, topology)
        rest = [group for name, (_, group) in crew.items() if name != victim]
        routes = [group.stats["routes_computed"] for group in rest]
        for number in range(100):  # so that something is outstanding all the time
            await rest[0].send(b"%d" % number)
        began_ns = world.now_ns
        world.crash(victim, is_process)
        for number in range(100):
            await rest[0].send(b"%d" % number)
        took_ns = max(await asyncio.gather(*[next_view(world, group) for group in rest])) - began_ns
        if is_process:
            assert took_ns < 600 * MS
        else:
            assert Timing().suspect_busy_ns <= took_ns < 3 * SECOND
        assert [group.stats["routes_computed"] for group in rest] == routes

    run_in_world(world, program(), LIMIT_NS)


def test_a_way_that_only_probes_pass_is_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """They leave by another port than everything else: that a process lives does not say that it is reached."""
    topology = plain_topology(CREWS)
    world = World(7, LAN, topology=topology)
    carry, passed = Pipe.carry, 0

    def probes_only(
        pipe: Pipe, now_ns: int, target: str, batch: Train, kind: str, name_kind: Callable[[bytes], str] | None = None
    ) -> list[Carried]:
        nonlocal passed
        passed += kind == "probe"
        return carry(pipe, now_ns, target, batch, kind, name_kind) if kind == "probe" else []

    async def program() -> None:
        crew = await meet(world, topology)
        groups = [group for _, group in crew.values()]
        monkeypatch.setattr(Pipe, "carry", probes_only)
        began_ns = world.now_ns
        for number in range(100):
            for group in groups:
                await group.send(b"%d" % number)
        took_ns = max(await asyncio.gather(*[next_view(world, group) for group in groups])) - began_ns
        assert took_ns < 3 * SECOND

    run_in_world(world, program(), LIMIT_NS)
    assert passed


def test_a_daemon_with_another_file_is_refused_until_it_has_the_same() -> None:
    """Indices and routes of two files mean different things: their daemons do not merge."""
    topology = plain_topology(CREWS)
    other = Topology(replace(topology.config, default_link=LinkSpec(weight=7)), topology.pipes, topology.network)
    world = World(6, LAN, topology=topology)

    async def program() -> None:
        nodes = {name: node_of(world, other if name == "w2" else topology, name) for name in topology.nodes}
        groups = {name: await node.join("orders") for name, node in nodes.items()}
        await asyncio.gather(*[until(groups[name], 3) for name in ("e1", "e2", "w1")])
        await asyncio.sleep(20)
        view = groups["w2"].view
        assert view is not None
        assert [member.name for member in view.members] == ["w2"]
        assert all(group.stats["strange_sites"] > 10 for group in groups.values())
        # Restarted with the file of the others it merges.
        nodes["w2"].crash()
        again = await node_of(world, topology, "w2").join("orders")
        await asyncio.gather(*[until(group, 4) for group in (groups["e1"], groups["e2"], groups["w1"], again)])

    run_in_world(world, program(), LIMIT_NS)


def test_a_daemon_that_is_restarted_with_another_file_ends_the_view_with_its_former_life() -> None:
    topology = plain_topology(CREWS)
    other = Topology(replace(topology.config, default_link=LinkSpec(weight=7)), topology.pipes, topology.network)
    world = World(7, LAN, topology=topology)

    async def program() -> None:
        crew = await meet(world, topology)
        crew["w2"][0].crash()
        began_ns = world.now_ns
        rest = [group for name, (_, group) in crew.items() if name != "w2"]
        await node_of(world, other, "w2").join("orders")
        assert max(await asyncio.gather(*[next_view(world, group) for group in rest])) - began_ns < SECOND
        assert all(group.stats["strange_sites"] for group in rest)

    run_in_world(world, program(), LIMIT_NS)
