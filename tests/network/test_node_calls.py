"""Calls, locks and handlers between real nodes on loopback (RMP sections 3.3 and 4.5)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.network.quick import QUICK, fresh, within
from tests.network.test_node_groups import rows_of

from ordercast import BlockingNode, CallTimeout, Group, Node, NotMember, Request, UsageError
from ordercast.groups.checks import MAX_CALL
from ordercast.sim.checkers import check_all

on_loop = within(60)


async def receive(group: Group) -> None:
    with suppress(NotMember):
        async for _ in group:
            pass


async def shout(group: Group, handler: int) -> None:
    with suppress(NotMember):
        async with group.handler(handler) as requests:
            async for request in requests:
                await request.reply(request.payload.upper())


async def start(*groups: Group) -> list[asyncio.Task[None]]:
    """Have members receive, and the first that gets there answer calls with handler 1."""
    tasks = [asyncio.create_task(work) for group in groups for work in (receive(group), shout(group, 1))]
    while not all("1" in group.locks for group in groups):
        await asyncio.sleep(0.01)
    return tasks


@on_loop
async def test_a_node_calls_a_group_that_it_is_not_in(tmp_path: Path) -> None:
    name = fresh()
    async with (
        Node("a", timing=QUICK, trace=tmp_path) as a,
        Node("b", timing=QUICK, trace=tmp_path) as b,
        Node("x", timing=QUICK, trace=tmp_path) as x,
    ):
        tasks = await start(await a.join(name, orderer="token"), await b.join(name, orderer="token"))
        assert await x.call(name, b"plain") is None
        assert await x.call(name, b"asked", handler=1) == b"ASKED"
        calls = (x.call(name, b"call %d" % number, handler=1) for number in range(300))
        assert await asyncio.gather(*calls) == [b"CALL %d" % number for number in range(300)]
        large = bytes(range(256)) * (MAX_CALL // 256)
        assert await x.call(name, large, handler=1) == large.upper()
        assert await x.call(name, b"named", handler=1, to="{}:{}".format(*b.address)) == b"NAMED"
        assert await x.call(name, b"named", handler=1, to=a.address) == b"NAMED"
        assert await x.call(name, b"gone", ack=False) is None
        assert x.read_drops() == 0
    await asyncio.gather(*tasks)
    verdict = check_all(rows_of(tmp_path), clock="one-host", quiet=False)
    assert verdict.held, "\n".join(verdict.summary())


@on_loop
async def test_a_call_outlives_the_member_that_was_to_answer() -> None:
    name = fresh()
    async with Node("b", timing=QUICK) as b, Node("c", timing=QUICK) as c, Node("x", timing=QUICK) as x:
        a = Node("a", timing=QUICK)
        group = await a.join(name, orderer="token")
        others = [await node.join(name, orderer="token") for node in (b, c)]

        async def die(request: Request) -> None:
            assert request.must_answer
            a.abort()

        async def serve() -> None:
            async with group.handler(1) as requests:
                await die(await anext(requests))

        tasks = [asyncio.create_task(serve()), asyncio.create_task(receive(group))]
        while not others[0].locks:
            await asyncio.sleep(0.01)
        tasks += await start(*others)
        assert await x.call(name, b"still?", handler=1, again=True) == b"STILL?"
    await asyncio.gather(*tasks, return_exceptions=True)


@on_loop
async def test_calls_without_multicast_go_through_peers() -> None:
    name = fresh()
    async with Node("a", timing=QUICK, multicast=False) as a:
        b = Node("b", timing=QUICK, multicast=False, peers=[a.address])
        x = Node("x", timing=QUICK, multicast=False, peers=[a.address, b.address])
        y = Node("y", timing=QUICK, multicast=False)
        async with b, x, y:
            tasks = await start(*[await node.join(name, orderer="token") for node in (a, b)])
            for number in range(5):
                assert await x.call(name, b"call %d" % number, handler=1) == b"CALL %d" % number
            assert await y.call(name, b"named", handler=1, to=b.address) == b"NAMED"
            with pytest.raises(UsageError, match="neither multicast nor peers"):
                await y.call(name, b"who?")
    await asyncio.gather(*tasks)


@on_loop
async def test_locks_of_real_nodes_exclude_each_other() -> None:
    name = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b:
        groups = [await node.join(name, orderer="token") for node in (a, b)]
        tasks = [asyncio.create_task(receive(group)) for group in groups]
        inside = 0

        async def work(group: Group) -> None:
            nonlocal inside
            for _ in range(10):
                async with group.lock("door") as lock:
                    inside += 1
                    await asyncio.sleep(0)
                    assert (inside, lock.is_held) == (1, True)
                    inside -= 1

        await asyncio.gather(*(work(group) for group in groups for _ in range(2)))
    await asyncio.gather(*tasks)


def test_calls_and_locks_without_asyncio() -> None:
    name = fresh()
    with BlockingNode("a", timing=QUICK) as a, BlockingNode("x", timing=QUICK) as x:
        group = a.join(name, orderer="token")
        seen: list[object] = []
        reading = threading.Thread(target=lambda: seen.extend(group), daemon=True)
        reading.start()
        with group.handler(2) as handler:

            def serve() -> None:
                for request in handler:
                    handler.reply(request, request.payload.upper())

            serving = threading.Thread(target=serve, daemon=True)
            serving.start()
            assert x.call(name, b"hello", handler=2) == b"HELLO"
            assert group.call(b"hello", handler=2) == b"HELLO"
            assert x.call(name, b"hello") is None
            assert list(group.locks) == ["2"]
            with group.lock("door") as lock:
                assert (lock.key, lock.is_held) == ("door", True)
                with pytest.raises(TimeoutError, match="was not granted"), group.lock("door", timeout=0.2):
                    pass
            assert not lock.is_held
        serving.join(10)
        assert not serving.is_alive()
        with pytest.raises(CallTimeout, match="has not answered"):
            x.call(name, b"hello", handler=2, timeout=0.3)
        with group.handler(2, timeout=5) as handler:
            with pytest.raises(TimeoutError):
                handler.take(timeout=0.2)
            assert handler.dropped == 0
    reading.join(10)
    assert not reading.is_alive()
