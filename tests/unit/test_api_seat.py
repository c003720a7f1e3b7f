"""The public API stands on `Seat` and `NodeBackend` alone: here it runs without host, port and engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from tests.unit.fake_seat import FakeClient

from ordercast import (
    SAFE,
    GroupFailed,
    InvariantViolation,
    JoinRefused,
    Left,
    Message,
    NotEnoughMembers,
    NotMember,
    Unhandled,
    UsageError,
    View,
)
from ordercast.api.group import Group


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 10))

    return run


async def joined() -> tuple[FakeClient, Group]:
    client = FakeClient()
    return client, await client.join("echo")


@on_loop
async def test_a_group_sends_receives_and_leaves_on_a_fake_seat() -> None:
    client, group = await joined()
    assert client.groups == [group]
    assert group.is_member
    assert await group.send(b"one", confirm=True) == 0
    await group.send(b"two", SAFE, type=7)
    assert await group.send_many([b"%d" % number for number in range(10)], confirm=True) == 2
    await group.leave()
    events = [event async for event in group]
    assert isinstance(events[0], View)
    assert isinstance(events[-1], Left)
    messages = [event for event in events if isinstance(event, Message)]
    assert [message.payload for message in messages[:2]] == [b"one", b"two"]
    assert [message.position for message in messages] == list(range(12))
    assert (messages[1].service, messages[1].type) == (SAFE, 7)
    assert client.groups == []
    with pytest.raises(NotMember):
        await group.send(b"late")
    with pytest.raises(NotMember):
        await group.receive()


@on_loop
async def test_senders_wait_in_turn_while_the_seat_is_full() -> None:
    _, group = await joined()
    await asyncio.gather(*(group.send(b"%d" % number) for number in range(20)))
    await group.flush()
    await group.leave()
    assert [event.payload async for event in group if isinstance(event, Message)] == [b"%d" % n for n in range(20)]


@on_loop
async def test_what_is_left_of_a_block_comes_as_a_block() -> None:
    _, group = await joined()
    await group.send(b"a", confirm=True)
    first, more = await group.receive()
    assert isinstance(first, View)
    assert more
    assert len(await group.take()) == 1
    assert not group.has_events


@on_loop
async def test_a_second_receiver_is_told_so() -> None:
    _, group = await joined()
    await group.receive()
    waiting = asyncio.create_task(group.receive())
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="only one task at a time"):
        await group.receive()
    waiting.cancel()


@on_loop
async def test_locks_handlers_and_calls_need_a_seat_only() -> None:
    client, group = await joined()
    async with group.lock("printer") as lock:
        assert lock.is_held
        assert lock.key == "printer"
        assert "'printer' of 'echo', held" in repr(lock)
    assert not lock.is_held
    async with group.handler(2):
        assert await group.call(b"abc", handler=2) == b"cba"
    with pytest.raises(Unhandled):
        await group.call(b"abc", handler=3)
    assert await client.call("elsewhere", b"x", handler=1) == b"from elsewhere"


@on_loop
async def test_a_failed_group_raises_until_it_is_reset() -> None:
    client, group = await joined()
    client.backend.seats["echo"].failure = "b is silent"
    with pytest.raises(GroupFailed):
        await group.flush()
    with pytest.raises(NotEnoughMembers):
        await group.reset(min_members=2)
    assert await group.reset(min_members=1) == 1
    assert await group.send(b"y", confirm=True) >= 0


@on_loop
async def test_all_that_wait_learn_why_the_node_stopped() -> None:
    client, group = await joined()
    await group.receive()
    waiting = asyncio.create_task(group.receive())
    await asyncio.sleep(0)
    client.stop(InvariantViolation("a bug"))
    with pytest.raises(InvariantViolation):
        await waiting
    with pytest.raises(InvariantViolation):
        await group.send(b"x")
    with pytest.raises(InvariantViolation):
        await client.join("other")
    assert "(stopped)" in repr(client)


@on_loop
async def test_a_refused_join_leaves_nothing_behind() -> None:
    client = FakeClient()
    client.backend.refuse = "the group is full"
    with pytest.raises(JoinRefused, match="full"):
        await client.join("echo")
    assert client.groups == []
    client.backend.refuse = ""
    assert (await client.join("echo")).is_member


@on_loop
async def test_repr_says_who_and_where() -> None:
    client, group = await joined()
    assert repr(client) == "<FakeClient fake/1 at 127.0.0.1:1: 'echo'>"
    assert repr(group) == "<Group 'echo', view 1@fake/1: fake/1>"
    await group.leave()
    assert repr(group) == "<Group 'echo', not a member>"
    assert repr(client) == "<FakeClient fake/1 at 127.0.0.1:1: no groups>"
