"""asyncio in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ordercast.sim.loop import SimulationStuck, run_in_world
from ordercast.sim.world import World


def test_sleeping_takes_virtual_time_only() -> None:
    world = World(1)

    async def program() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        await asyncio.sleep(100)
        times.append(loop.time())
        await asyncio.gather(asyncio.sleep(5), asyncio.sleep(7))
        times.append(loop.time())
        return times

    assert run_in_world(world, program()) == pytest.approx([0, 100, 107])
    assert abs(world.now_ns - 107_000_000_000) < 10


def test_events_of_the_world_wake_the_program() -> None:
    world = World(1)

    async def program() -> int:
        future = asyncio.get_running_loop().create_future()
        world.at(1_234, future.set_result, None)
        await future
        return world.now_ns

    assert run_in_world(world, program()) == 1_234


def test_a_time_out_of_asyncio_is_virtual() -> None:
    async def program() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)

    run_in_world(World(1), program())


def test_a_program_that_waits_for_nothing_is_told_so() -> None:
    async def program() -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationStuck, match="nothing is left"):
        run_in_world(World(1), program())


def test_a_program_that_never_ends_meets_the_limit() -> None:
    async def program() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(SimulationStuck, match="by 10 s"):
        run_in_world(World(1), program(), limit_ns=10_000_000_000)


def test_what_is_left_running_is_cancelled() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append("cancelled")

    async def program() -> asyncio.Task[None]:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        return task

    assert run_in_world(World(1), program()).cancelled()
    assert ended == ["cancelled"]
