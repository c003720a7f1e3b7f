"""The public API in virtual time, with the toy engine in the place of a protocol."""

from __future__ import annotations

import asyncio

import pytest

from ordercast.errors import NotMember, UsageError
from ordercast.groups.events import Message
from ordercast.sim.api import Simulation, simulate
from ordercast.sim.toy import ToyEngines
from ordercast.sim.world import World


async def two_members(node: Simulation) -> list[list[bytes]]:
    a, b = node("a"), node("b")
    groups = [await a.join("g"), await b.join("g")]
    await groups[0].send(b"hello")
    assert await groups[1].send(b"world", confirm=True) == 1
    got: list[list[bytes]] = []
    for group in groups:
        payloads: list[bytes] = []
        while len(payloads) < 2:
            event, _ = await group.receive()
            if isinstance(event, Message):
                payloads.append(event.payload)
        got.append(payloads)
    return got


def test_a_program_of_the_public_api_runs_in_virtual_time() -> None:
    assert simulate(two_members, engines=ToyEngines("ab")) == [[b"hello", b"world"]] * 2


def test_one_seed_gives_one_run_of_a_program() -> None:
    worlds = [World(7), World(7)]
    for world in worlds:
        simulate(two_members, engines=ToyEngines("ab"), world=world)
    assert worlds[0].now_ns == worlds[1].now_ns
    assert [recorder.dump() for recorder in worlds[0].recorders()] == [
        recorder.dump() for recorder in worlds[1].recorders()
    ]


def test_whoever_waits_on_a_node_that_crashes_learns_it() -> None:
    async def program(node: Simulation) -> None:
        a = node("a")
        group = await a.join("g")

        async def receive() -> None:
            while True:
                await group.receive()

        waiting = asyncio.create_task(receive())
        await asyncio.sleep(1)
        a.crash()
        with pytest.raises(NotMember, match="crashed"):
            await waiting
        assert not a.is_up
        assert node("a").member.life == 1

    simulate(program, engines=ToyEngines("a"))


def test_a_node_that_is_up_cannot_be_made_twice() -> None:
    async def program(node: Simulation) -> None:
        node("a")
        with pytest.raises(UsageError, match="it is up"):
            node("a")

    simulate(program, engines=ToyEngines("a"))


def test_a_program_on_the_real_engines_survives_the_crash_of_the_sequencer() -> None:

    async def program(node: Simulation) -> tuple[list[str], list[bytes], float]:
        nodes = [node(name) for name in "abc"]
        groups = [await each.join("g", orderer="sequencer") for each in nodes]
        await groups[1].send(b"before", confirm=True)
        nodes[0].crash()
        await groups[2].send(b"after", confirm=True)
        payloads: list[bytes] = []
        async for event in groups[2]:
            if isinstance(event, Message):
                payloads.append(event.payload)
                if event.payload == b"after":
                    break
        members = [str(member) for member in groups[2].members]
        for each in nodes[1:]:
            await each.close()
        return members, payloads, asyncio.get_running_loop().time()

    members, payloads, seconds = simulate(program, seed=3)
    assert sorted(members) == ["b/0", "c/0"]  # whoever noticed first coordinated, and leads
    assert payloads == [b"before", b"after"]
    assert 1 < seconds < 10
