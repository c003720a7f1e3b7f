"""Whole nodes on regions with their service: a sample of random runs, and what such runs have found, made small."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from tests.sim.regions_program import GROUP, Reader, judge, send

from ordercast import FIFO, RELIABLE, UNRELIABLE, Message, NotMember
from ordercast.cli.main import main
from ordercast.config import SECOND, GroupConfig
from ordercast.service import Service
from ordercast.sim.api import Simulation, simulate
from ordercast.sim.network import LAN
from ordercast.sim.regions.plan import drawn_regions
from ordercast.sim.regions.run import run_regions
from ordercast.sim.world import World

LIMIT_NS = 300 * SECOND


@pytest.mark.parametrize("seed", range(4, 10))
def test_random_runs_hold(seed: int) -> None:
    outcome = run_regions(drawn_regions(seed))
    assert outcome.held, "\n".join([*outcome.failures, outcome.command])


def test_a_seed_gives_the_same_run() -> None:
    assert run_regions(drawn_regions(7)).digest == run_regions(drawn_regions(7)).digest


@pytest.mark.parametrize("service", [UNRELIABLE, RELIABLE], ids=str)
@pytest.mark.parametrize("reorder", [0.0, 0.5])
def test_a_sender_that_is_in_no_view_of_the_receiver_has_its_name(service: Service, reorder: float) -> None:
    """Only the first block of a lane tells it, which others may overtake and UNRELIABLE messages need not have."""
    world = World(3, replace(LAN, reorder=reorder))

    async def program(make: Simulation) -> None:
        member, outside = make("a", gms="embedded"), make("b")
        group = await member.join(GROUP, orderer="regions")
        await outside.attach("regions")
        for number in range(100):
            await outside.send(b"%d" % number, groups=[GROUP], service=service)
        await asyncio.sleep(2)  # nothing else has left yet
        await outside.send(b"last", groups=[GROUP], service=FIFO, confirm=True)
        got = 0
        async for event in group:
            if isinstance(event, Message):
                assert event.sender == str(outside.member)
                if event.payload == b"last":
                    break
                got += 1
        assert got or reorder  # of UNRELIABLE what overtakes the name is dropped
        for node in (outside, member):
            await node.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


def test_a_message_to_a_group_that_is_being_left_reaches_its_members() -> None:
    """The node forgets the number of the group with its leave: it has to ask for it as who sends from outside."""
    world = World(4, LAN)

    async def program(make: Simulation) -> None:
        nodes = [make("a", gms="embedded"), make("b")]
        readers = [
            Reader(group) for group in await asyncio.gather(*(node.join(GROUP, orderer="regions") for node in nodes))
        ]
        await asyncio.gather(*(reader.members_are(["a", "b"]) for reader in readers))
        await send(readers[1].group, 0, 1)
        leaving = asyncio.create_task(readers[1].group.leave())
        await asyncio.sleep(0.001)
        await nodes[1].send(b"1", groups=[GROUP, "news"], confirm=True)  # it waits for the number of the other one
        await leaving
        await readers[0].has_all_of(nodes[1:], 2)
        for node in reversed(nodes):
            await node.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


def test_what_waits_when_its_group_is_left_reaches_the_group_later() -> None:
    """A member stands still, so that the region takes nothing for longer than a leave waits."""
    world = World(5, LAN)
    config = GroupConfig(orderer="regions", history_bytes=64 << 10)

    async def program(make: Simulation) -> None:
        nodes = [make("a", gms="embedded", config=config), make("b", config=config), make("c", config=config)]
        readers = [
            Reader(group) for group in await asyncio.gather(*(node.join(GROUP, orderer="regions") for node in nodes))
        ]
        await asyncio.gather(*(reader.members_are(["a", "b", "c"]) for reader in readers))
        world.pause("c")
        for number in range(100):
            await readers[1].group.send(b"%04000d" % number)
        await readers[1].group.leave()
        await (await nodes[1].attach("regions")).flush()
        await readers[0].has_all_of(nodes[1:2], 100)
        world.resume("c")
        await readers[2].until(lambda reader: bool(reader.left))
        for node in reversed(nodes):
            await node.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


def test_a_node_that_has_left_all_regions_goes_on_with_its_numbers() -> None:
    """It comes back in the same life: nobody may see a number of it twice. Of its former groups it has no handle."""
    world = World(6, LAN)

    async def program(make: Simulation) -> None:
        nodes = [make("a", gms="embedded"), make("b")]
        readers = [
            Reader(group) for group in await asyncio.gather(*(node.join(GROUP, orderer="regions") for node in nodes))
        ]
        await asyncio.gather(*(reader.members_are(["a", "b"]) for reader in readers))
        await send(readers[1].group, 0, 3)
        await (await nodes[1].attach("regions")).detach()
        with pytest.raises(NotMember):
            nodes[1].group(GROUP)
        again = await nodes[1].join(GROUP, orderer="regions")
        await send(again, 3, 3)
        await readers[0].has_all_of(nodes[1:], 6)
        assert readers[0].seen[str(nodes[1].member)] == list(range(6))
        for node in reversed(nodes):
            await node.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


def test_a_node_that_was_leaving_when_it_was_put_out_stays_out() -> None:
    world = World(7, LAN)

    async def program(make: Simulation) -> None:
        nodes = [make("a", gms="embedded"), make("b")]
        groups = await asyncio.gather(*(node.join(GROUP, orderer="regions") for node in nodes))
        reader = Reader(groups[0])
        await reader.members_are(["a", "b"])
        world.network.partition([["b"]])
        leaving = [
            asyncio.create_task(groups[1].leave()),
            asyncio.create_task((await nodes[1].attach("regions")).detach()),
        ]
        await reader.members_are(["a"])
        world.network.heal()
        await asyncio.gather(*leaving)
        await asyncio.sleep(10)
        assert [member.name for member in groups[0].members] == ["a"]
        for node in reversed(nodes):
            await node.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


def test_a_sender_without_multicast_reaches_a_region_whose_members_have_it() -> None:
    world = World(8, LAN)

    async def program(make: Simulation) -> None:
        nodes = [make("a", gms="embedded"), make("b"), make("c", has_multicast=False)]
        readers = [
            Reader(group)
            for group in await asyncio.gather(*(node.join(GROUP, orderer="regions") for node in nodes[:2]))
        ]
        await asyncio.gather(*(reader.members_are(["a", "b"]) for reader in readers))
        await nodes[2].attach("regions")
        await nodes[2].send(b"0", groups=[GROUP], confirm=True)
        await asyncio.gather(*(reader.has_all_of(nodes[2:], 1) for reader in readers))
        for node in reversed(nodes):
            await node.close()

    simulate(program, world=world, limit_ns=LIMIT_NS)
    judge(world)


def test_fuzz_and_sim_take_regions(capsys: pytest.CaptureFixture[str]) -> None:
    """A seed is replayed by the command that the fuzzer prints, and a person may give a few numbers instead."""
    assert main(["fuzz", "--orderer", "regions", "--runs", "1", "--first-seed", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ends"]["quiet"] == 1
    assert main(["sim", "--scenario-seed", "7", "--orderer", "regions"]) == 0
    assert "replay: ordercast sim --scenario-seed 7 --orderer regions" in capsys.readouterr().out
    flags = ["--orderer", "regions", "--nodes", "4", "--messages", "60", "--loss", "0.02", "--crash", "1"]
    assert main(["sim", *flags, "--restart", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["held"]
    assert told["delivered"] > 60
    assert main(["sim", *flags, "--restart", "1"]) == 0
    told = capsys.readouterr().out
    assert " 60 messages, 1 faults, " in told
    assert " crash for " in told
    assert " send " not in told  # a line for each would hide all others
    assert main(["sim", "--orderer", "regions", "--recovery", "manual"]) == 2
    assert main(["fuzz", "--orderer", "regions", "--profile", "membership", "--runs", "1"]) == 2
