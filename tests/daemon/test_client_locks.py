"""Locks, handlers and calls of a daemon's clients (RMP section 3.3, docs/guides/calls-and-locks.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.daemon.houses import DaemonHouse
from tests.network.quick import fresh, within

from ordercast import (
    Answer,
    CallTimeout,
    Group,
    LockDenied,
    NotMember,
    OutcomeUnknown,
    Request,
    Unhandled,
    UsageError,
    View,
    connect_blocking,
)
from ordercast.wire.endings import SessionEnd


async def swallow(group: Group) -> None:
    async for _ in group:
        pass


@asynccontextmanager
async def in_group(house: DaemonHouse, *names: str) -> AsyncIterator[list[Group]]:
    """Clients that are in the group "work", and receive."""
    clients = [await house.connect(name) for name in names]
    groups = [await client.join("work") for client in clients]
    tasks = [asyncio.create_task(swallow(group)) for group in groups]
    try:
        yield groups
    finally:
        for client in clients:
            await client.close()
        await asyncio.gather(*tasks, return_exceptions=True)


def cut(house: DaemonHouse, name: str) -> None:
    """The connection of a client is lost."""
    seat = house.hub.seats.named(name)
    assert seat is not None
    house.hub.seats.put_out(seat, SessionEnd.LOST, "the cable is cut")


async def until_free(group: Group, key: str) -> None:
    while key in group.locks:
        await asyncio.sleep(0.001)


@within(60)
async def test_clients_of_one_daemon_exclude_one_another_and_tokens_rise(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, in_group(house, "alice", "bob") as (one, two):
        inside: list[str] = []
        tokens: list[int] = []

        async def work(group: Group, who: str) -> None:
            for _ in range(5):
                async with group.lock("printer") as lock:
                    assert lock.is_held
                    tokens.append(lock.token)
                    inside.append(who)
                    await asyncio.sleep(0)
                    assert inside.pop() == who
                    assert not inside
                assert not lock.is_held

        await asyncio.gather(work(one, "alice"), work(two, "bob"))
        assert tokens == sorted(set(tokens))


@within(60)
async def test_a_lock_excludes_clients_of_another_daemon_and_embedded_nodes(tmp_path: Path) -> None:
    floor = fresh()
    async with DaemonHouse(tmp_path, "d", floor=floor) as one, DaemonHouse(tmp_path, "e", floor=floor) as two:
        embedded = await two.node.join("work", underlay=floor)
        task = asyncio.create_task(swallow(embedded))
        async with in_group(one, "alice") as (alice,), in_group(two, "bob") as (bob,):
            async with alice.lock("disk") as lock:
                for other in (bob, embedded):
                    with pytest.raises(LockDenied) as denied:
                        await other.lock("disk", timeout=0).acquire()
                    assert denied.value.holder == str(one.node.member)
                assert bob.locks["disk"] == str(one.node.member)
                assert bob.locks["disk"].token == lock.token == embedded.locks["disk"].token
                with pytest.raises(TimeoutError, match="holds it"):
                    await embedded.lock("disk", timeout=0.05).acquire()
            async with embedded.lock("disk", timeout=5) as next_lock:
                assert next_lock.token > lock.token
                with pytest.raises(LockDenied, match="is held by"):
                    await bob.lock("disk", timeout=0).acquire()  # of the same node
        task.cancel()


@within(60)
async def test_the_lock_of_a_client_whose_connection_is_gone_is_free(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, in_group(house, "bob") as (two,):
        alice = await house.connect("alice", reconnect=False)
        one = await alice.join("work")
        lock = one.lock("printer")
        await lock.acquire()
        waiting = asyncio.create_task(two.lock("printer").acquire())
        await asyncio.sleep(0)
        alice.abort()
        await waiting
        assert not lock.is_held
        with pytest.raises(NotMember):
            await one.lock("printer").acquire()


@within(60)
async def test_a_client_that_comes_back_has_lost_its_lock_and_gets_it_again(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, in_group(house, "alice", "bob") as (one, two):
        lock = one.lock("printer")
        await lock.acquire()
        first = lock.token
        waiting = two.lock("other")
        await waiting.acquire()
        wanted = asyncio.create_task(one.lock("other").acquire())
        cut(house, "alice")
        while lock.is_held:
            await asyncio.sleep(0.001)
        assert lock.token == first, "what it wrote with the old token is told from the work of the next holder"
        lock.release()
        waiting.release()
        await wanted  # asked for on the new connection
        async with one.lock("printer") as again:
            assert again.token > first


@within(60)
async def test_a_task_that_is_cancelled_wants_the_lock_no_longer(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, in_group(house, "alice", "bob") as (one, two):
        async with one.lock("printer"):
            waiting = asyncio.create_task(two.lock("printer").acquire())
            await asyncio.sleep(0.01)
            waiting.cancel()
        await until_free(one, "printer")
        async with one.lock("printer", timeout=5):
            pass


@within(60)
async def test_views_of_clients_say_which_lock_has_changed_hands(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice:
        group = await alice.join("work")
        async with group.lock("printer"):
            pass
        seen: list[tuple[str, tuple[str, ...]]] = []
        while len(seen) < 2:
            event, _ = await group.receive()
            if isinstance(event, View) and event.lock:
                seen.append((event.lock, tuple(event.locks)))
        assert seen == [("printer", ("printer",)), ("printer", ())]


@within(60)
async def test_a_client_serves_a_handler_and_others_call_it(tmp_path: Path) -> None:
    floor = fresh()
    async with (
        DaemonHouse(tmp_path, "d", floor=floor) as here,
        DaemonHouse(tmp_path, "e", floor=floor) as there,
        in_group(here, "server") as (server,),
        in_group(there, "caller", "other") as (caller, other),
    ):

        async def serve() -> None:
            async with server.handler(2) as requests:
                async for request in requests:
                    await request.reply(request.payload.upper())

        task = asyncio.create_task(serve())
        while "2" not in caller.locks:
            await asyncio.sleep(0.001)
        assert await caller.call(b"hello", handler=2) == b"HELLO"
        answers = await asyncio.gather(
            *(group.call(b"%d" % n, handler=2) for n in range(20) for group in (caller, other))
        )
        assert answers == [b"%d" % n for n in range(20) for _ in range(2)]
        with pytest.raises(Unhandled):
            await caller.call(b"?", handler=3)
        assert await server.call(b"own", handler=2) == b"OWN"
        task.cancel()


@within(60)
async def test_calls_and_answers_are_events_of_all_members_in_their_order(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("server") as one, house.client("caller") as two:
        server, caller = await one.join("work"), await two.join("work")
        async with server.handler(1):
            number = await caller.request(b"what?", handler=1)
            while True:
                event, _ = await server.receive()
                if isinstance(event, Request):
                    break
            assert (event.must_answer, event.handler, event.caller) == (True, 1, str(caller.member))
            await event.reply(b"that")
            with pytest.raises(UsageError, match="at most one answer"):
                await event.reply(b"again")
            seen: list[Request | Answer] = []
            while len(seen) < 2:
                event, _ = await caller.receive()
                if isinstance(event, Request | Answer):
                    seen.append(event)
            request, answer = seen
            assert not request.must_answer
            with pytest.raises(UsageError, match="another one answers"):
                await request.reply(b"no")
            assert (answer.payload, answer.answers) == (b"that", (str(caller.member), number))


@within(60)
async def test_a_client_and_an_embedded_member_answer_each_other(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, in_group(house, "alice") as (alice,):
        embedded = await house.node.join("work", underlay=house.floor)
        task = asyncio.create_task(swallow(embedded))

        async def serve(group: Group, handler: int) -> None:
            async with group.handler(handler) as requests:
                async for request in requests:
                    await request.reply(request.payload[::-1])

        tasks = [asyncio.create_task(serve(alice, 0)), asyncio.create_task(serve(embedded, 1))]
        while len(alice.locks) < 2 or len(embedded.locks) < 2:
            await asyncio.sleep(0.001)
        assert await embedded.call(b"abc", handler=0) == b"cba"
        assert await alice.call(b"abc", handler=1) == b"cba"
        assert await alice.call(bytes(59_000), handler=1) == bytes(59_000)
        for each in (task, *tasks):
            each.cancel()


@within(60)
async def test_a_call_whose_connection_is_lost_has_an_unknown_outcome(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, in_group(house, "silent", "alice") as (silent, alice):
        await silent.handler(2).acquire()
        asking = asyncio.create_task(alice.call(b"?", handler=2))
        while not alice.stats["messages_delivered"]:
            await asyncio.sleep(0.001)
        cut(house, "alice")
        with pytest.raises(OutcomeUnknown, match="before the answer came"):
            await asking


@within(60)
async def test_calls_beyond_what_a_daemon_takes_are_an_error_and_not_the_end_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon is not told which answers are awaited no longer: of too many calls it gives up the oldest."""
    monkeypatch.setattr("ordercast.client.calling.MAX_ASKED", 20)
    monkeypatch.setattr("ordercast.daemon.calls.MAX_ASKED", 20)
    async with DaemonHouse(tmp_path) as house, in_group(house, "alice", "bob") as (one, two), one.handler(2) as handler:
        for _ in range(2):
            calls = [asyncio.create_task(two.call(b"x", handler=2)) for _ in range(20)]
            for _ in calls:
                await anext(handler)
            with pytest.raises(UsageError, match="at most 20 calls"):
                await two.call(b"one more", handler=2)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        last = asyncio.create_task(two.call(b"answer this", handler=2))
        async for request in handler:
            await request.reply(request.payload)
            break
        assert await last == b"answer this"


@within(60)
async def test_a_daemon_gives_up_the_oldest_call_of_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.daemon.calls.MAX_ASKED", 20)
    async with (
        DaemonHouse(tmp_path) as house,
        house.client("outside") as outside,
        in_group(house, "alice", "bob") as (one, two),
        one.handler(2) as handler,
    ):
        for handle in (two.call, partial(outside.call, "work")):
            calls = [asyncio.create_task(handle(b"x", handler=2)) for _ in range(21)]
            with pytest.raises(OutcomeUnknown, match="20 later calls"):
                await calls[0]
            for _ in calls:
                request = await anext(handler)
                await request.reply(b"y")
            assert set(await asyncio.gather(*calls[1:])) == {b"y"}


@within(60)
async def test_node_call_reaches_groups_of_the_daemons_from_inside_and_outside(tmp_path: Path) -> None:
    async with (
        DaemonHouse(tmp_path) as house,
        in_group(house, "server") as (server,),
        house.client("alice") as alice,
        server.handler(2) as requests,
    ):

        async def answer() -> None:
            async for request in requests:
                await request.reply(b"yes")

        task = asyncio.create_task(answer())
        assert await alice.call("work", b"?", handler=2) == b"yes"
        assert await alice.call("work", b"only told") is None
        with pytest.raises(Unhandled):
            await alice.call("work", b"?", handler=3)
        with pytest.raises(Unhandled):
            await alice.call("nowhere", b"?", handler=2)
        assert await house.node.call("work", b"as a node", handler=2) == b"yes"
        assert len(server.members) == 1, "nobody has joined to call"
        await alice.join("work")
        assert await alice.call("work", b"as a member", handler=2) == b"yes"
        task.cancel()


@within(60)
async def test_where_the_orderer_has_no_locks_the_error_is_that_of_an_embedded_node(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path, orderer="sequencer") as house, house.client("alice") as alice:
        group = await alice.join("work")
        embedded = await house.node.join("work", underlay=house.floor)
        texts = []
        for each in (group, embedded):
            with pytest.raises(UsageError, match="locks, handlers, calls need") as raised:
                each.lock("printer")
            texts.append(str(raised.value))
            with pytest.raises(UsageError, match="locks, handlers, calls need"):
                each.handler(2)
            with pytest.raises(UsageError, match="locks, handlers, calls need"):
                await each.call(b"?", handler=2)
        assert texts[0] == texts[1]


@within(60)
async def test_the_blocking_twin_has_locks_handlers_and_calls(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, in_group(house, "bob") as (bob,):

        def program() -> list[object]:
            with connect_blocking(house.address, name="alice") as alice:
                group = alice.join("work")
                with group.lock("disk", timeout=5) as lock:
                    held = (lock.is_held, lock.token > 0, group.locks["disk"].token == lock.token)
                with pytest.raises(Unhandled):
                    group.call(b"?", handler=4)
                with group.handler(2, timeout=5) as requests:
                    for request in requests:
                        group.reply(request, request.payload.upper())
                        break
                    number = group.request(b"told", handler=3)
                return [held, number >= 0, alice.call("work", b"only told")]

        working = asyncio.create_task(asyncio.to_thread(program))
        while "2" not in bob.locks:
            await asyncio.sleep(0.005)
        assert await bob.call(b"what?", handler=2) == b"WHAT?"
        assert await working == [(True, True, True), True, None]


@within(20)
async def test_a_call_without_an_answer_says_so_from_inside_and_outside(tmp_path: Path) -> None:
    async with (
        DaemonHouse(tmp_path) as house,
        in_group(house, "server") as (server,),
        house.client("alice") as alice,
        server.handler(2),
    ):
        no_answer = (
            "the holder of handler 2 of 'work' has not answered within 0.05 s: the call may or may not have been"
        )
        with pytest.raises(CallTimeout, match=no_answer):
            await alice.call("work", b"?", handler=2, timeout=0.05)
        await alice.join("work")
        with pytest.raises(CallTimeout, match=no_answer):
            await alice.call("work", b"?", handler=2, timeout=0.05)
