"""Regions with the real membership service, in virtual time: the program of real nodes, judged by its trace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

import pytest
from tests.sim.regions_program import (
    GROUP,
    ROUND,
    Reader,
    Seen,
    check_seen,
    everybody_sends,
    judge,
    send,
    three_members,
)

from ordercast import Group
from ordercast.config import SECOND
from ordercast.groups.events import Left
from ordercast.sim.api import SimNode, Simulation, simulate
from ordercast.sim.network import LAN, NetworkModel
from ordercast.sim.world import World

LOSSY = replace(LAN, loss=0.03)
LIMIT_NS = 300 * SECOND


@pytest.mark.parametrize("network", [LAN, LOSSY], ids=["lan", "lossy"])
@pytest.mark.parametrize("seed", range(3))
def test_a_member_dies_and_comes_back(seed: int, network: NetworkModel) -> None:
    world = World(seed, network)

    async def program(make: Simulation) -> list[Seen]:
        def embedded(name: str) -> SimNode:
            return make(name, gms="embedded")

        return await three_members(embedded)

    check_seen(simulate(program, world=world, limit_ns=LIMIT_NS))
    judge(world)


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_was_put_out_comes_back_in_the_same_life(seed: int) -> None:
    """It stands still for so long that the service excludes it. Its next engine registers anew, and its peers take what
    it sends although they know the couriers of the former engine."""
    world = World(seed, LAN)

    async def program(make: Simulation) -> None:
        names = ["a", "b", "c"]
        nodes = [make("a", gms="embedded"), make("b"), make("c")]
        groups = await asyncio.gather(*(node.join(GROUP, orderer="regions") for node in nodes))
        readers = [Reader(group) for group in groups]
        await asyncio.gather(*(reader.members_are(names) for reader in readers))
        await everybody_sends(readers, nodes, 0)
        world.pause("c")
        await asyncio.gather(*(reader.members_are(names[:2]) for reader in readers[:2]))
        await asyncio.gather(*(send(reader.group, ROUND) for reader in readers[:2]))
        world.resume("c")
        await readers[2].until(lambda reader: bool(reader.left))
        assert readers[2].left == [Left(False, True, readers[2].left[0].text, GROUP)]
        await asyncio.gather(*(reader.members_are(names) for reader in readers))
        await send(readers[2].group, ROUND)
        await readers[2].group.send(b"%d" % (2 * ROUND), confirm=True)
        await asyncio.gather(*(reader.has_all_of(nodes[2:], 2 * ROUND + 1) for reader in readers))
        assert [reader.seen[str(nodes[2].member)] for reader in readers] == [list(range(2 * ROUND + 1))] * 3
        for node in reversed(nodes):
            await node.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_cut_takes_from_two_regions_is_put_out_within_five_seconds(seed: int) -> None:
    """The leader of one region, whose members miss its token after three seconds only, and members of the other, which
    are found by theirs. The service asks everybody when it has found the first."""
    world = World(seed, LOSSY)
    crews = {"metals": "abcd", "energy": "wxyz"}
    cut = "ayz"
    took_ns: list[int] = []

    async def program(make: Simulation) -> None:
        make("desk", gms="embedded")
        readers: dict[str, Reader] = {}
        for group, names in crews.items():
            for name in names:
                readers[name] = Reader(await make(name).join(group, orderer="regions"))

        async def are_there(gone: str) -> None:
            waits = []
            for names in crews.values():
                left = [name for name in names if name not in gone]
                waits += [readers[name].members_are(left) for name in left]
            await asyncio.gather(*waits)

        await are_there("")
        sending = [asyncio.create_task(send_on(readers[name].group)) for name in readers if name not in cut]
        await asyncio.sleep(2 + seed / 4)
        world.network.partition([cut, ["desk", *[name for name in readers if name not in cut]]])
        began_ns = world.now_ns
        await are_there(cut)
        took_ns.append(world.now_ns - began_ns)
        world.network.heal()
        await are_there("")
        for task in sending:
            task.cancel()
        await asyncio.sleep(5)  # what is under way arrives

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)
    assert took_ns[0] < 5 * SECOND, took_ns


async def send_on(group: Group) -> None:
    for number in count():
        await group.send(b"%d" % number)
        await asyncio.sleep(0.02)


def test_without_multicast_every_node_is_asked() -> None:
    world = World(0, LAN)

    async def program(make: Simulation) -> None:
        a = make("a", gms="embedded", has_multicast=False)
        b = make("b", has_multicast=False)
        readers = [Reader(await node.join(GROUP, orderer="regions")) for node in (a, b)]
        await asyncio.gather(*(reader.members_are(["a", "b"]) for reader in readers))
        await everybody_sends(readers, (a, b), 0)
        await b.close()
        await a.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


def test_a_quiet_region_goes_to_the_next_service_when_all_replicas_are_gone() -> None:
    """Its token goes around, nobody asks for anything, and nobody is missed: only a word to the service tells."""
    world = World(0, LAN)

    async def program(make: Simulation) -> None:
        desk, nodes = make("desk", gms="embedded"), [make(name) for name in "abc"]
        groups = await asyncio.gather(*(node.join(GROUP, orderer="regions") for node in nodes))
        readers = [Reader(group) for group in groups]
        await asyncio.gather(*(reader.members_are(["a", "b", "c"]) for reader in readers))
        await asyncio.sleep(20)
        desk.crash()
        await asyncio.sleep(1)
        make("desk", gms="embedded")
        began_ns = world.now_ns
        await asyncio.gather(*(reader.until(lambda reader: bool(reader.left)) for reader in readers))
        assert all(left.returning for reader in readers for left in reader.left)
        await asyncio.gather(*(reader.members_are(["a", "b", "c"]) for reader in readers))
        assert world.now_ns - began_ns < 30 * SECOND
        await everybody_sends(readers, nodes, 0)
        for node in nodes:
            await node.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_region_of_which_all_nodes_die_at_once_does_not_stay(is_busy: bool) -> None:
    """Nobody is left there to accuse anybody: a sender to it does, or their silence tells."""
    world = World(0, LAN)

    async def program(make: Simulation) -> None:
        make("desk", gms="embedded")
        a, b, c = make("a"), make("b"), make("c")
        readers = [Reader(await node.join(GROUP, orderer="regions")) for node in (a, b, c)]
        await c.join("other", orderer="regions")  # so it is in another region
        await asyncio.gather(*(reader.members_are(["a", "b", "c"]) for reader in readers))
        await asyncio.sleep(5)
        began_ns = world.now_ns
        for node in (a, b):
            node.crash()
        if is_busy:
            await readers[2].group.send(b"0", confirm=True)
        await readers[2].members_are(["c"])
        assert world.now_ns - began_ns < (12 if is_busy else 32) * SECOND
        await c.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)


def test_first_joins_wait_for_nothing_but_the_search_for_a_service() -> None:
    """A node that joins one group after the other does not wait for the next second each time."""
    world = World(0, LAN)
    took_ns: list[int] = []

    async def program(make: Simulation) -> None:
        a, b = make("a", gms="embedded"), make("b")
        for node, groups in ((a, ["x", "y", "z"]), (b, ["x", "y"])):
            for group in groups:
                before_ns = world.now_ns
                await node.join(group, orderer="regions")
                took_ns.append(world.now_ns - before_ns)

    simulate(program, world=world, limit_ns=LIMIT_NS)
    assert took_ns[0] < SECOND
    assert max(took_ns[1:]) < SECOND // 20
