"""The public asyncio API over a group without a network. Amoeba section 3 for the meaning of the primitives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from tests.unit.fake_engine import Exchange, FakeEngine
from tests.unit.fake_node import FakeNode

from ordercast.api.group import Group
from ordercast.api.local import LocalSeat
from ordercast.engine import Departed, Failed, UnknownOutcome
from ordercast.errors import (
    GroupFailed,
    InvariantViolation,
    JoinRefused,
    MessageTooLarge,
    NotEnoughMembers,
    NotMember,
    OutcomeUnknown,
    UnsupportedService,
    UsageError,
)
from ordercast.groups.events import Batch, Left, Message, Uncertain
from ordercast.groups.queue import QUEUE_BYTES
from ordercast.service import AGREED, RESILIENT, SAFE, UNRELIABLE
from ordercast.view import Reason, View


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a loop of its own; whatever hangs fails after a while instead."""

    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 20))

    return run


async def turns(count: int = 20) -> None:
    """Let everything run that can, without waiting for time."""
    for _ in range(count):
        await asyncio.sleep(0)


def fake(group: Group) -> FakeEngine:
    seat = group._seat
    assert isinstance(seat, LocalSeat)
    engine = seat.port.engine
    assert isinstance(engine, FakeEngine)
    return engine


async def is_stuck(waiting: Awaitable[Any]) -> asyncio.Task[Any]:
    """The task of a call that must not have ended yet."""

    async def call() -> Any:
        return await waiting

    task = asyncio.create_task(call())
    await turns()
    assert not task.done()
    return task


@on_loop
async def test_members_receive_the_same_events_in_the_same_order() -> None:
    exchange = Exchange()
    nodes: list[FakeNode] = []
    a = await FakeNode("a", exchange, nodes).join("g", header=b"hello")
    b = await FakeNode("b", exchange, nodes).join("g")
    await asyncio.gather(a.send(b"1"), b.send(b"2", SAFE, 5), a.send_many([b"3", bytearray(b"4"), memoryview(b"5")]))
    await a.leave(b"bye")
    seen_a = [event async for event in a]
    assert isinstance(seen_a[0], View)
    assert seen_a[0].header == b"hello"
    assert isinstance(seen_a[-1], Left)
    seen_b = [(await b.receive())[0] for _ in range(7)]
    assert seen_b[1:6] == seen_a[2:-1]
    assert [type(event) for event in seen_a[:2]] == [View, View]
    messages = [event for event in seen_b if isinstance(event, Message)]
    assert sorted(message.payload for message in messages) == [b"1", b"2", b"3", b"4", b"5"]
    assert [message.position for message in messages] == [0, 1, 2, 3, 4]
    two = next(message for message in messages if message.payload == b"2")
    assert (two.sender, two.number, two.service, two.type, two.group, two.view) == ("b/0", 0, SAFE, 5, "g", "2@a/0")
    last = seen_b[-1]
    assert isinstance(last, View)
    assert (last.reason, last.header, [str(member) for member in b.members]) == (Reason.LEAVE, b"bye", ["b/0"])


@on_loop
async def test_receive_tells_whether_more_is_here() -> None:
    """Amoeba section 3: the more flag."""
    group = await FakeNode("a", Exchange()).join("g")
    await group.send_many([b"1", b"2"])
    await group.flush()
    seen = [await group.receive() for _ in range(3)]
    assert [more for _, more in seen] == [True, True, False]
    task = await is_stuck(group.receive())
    await group.send(b"3")
    event, more = await task
    assert isinstance(event, Message)
    assert (event.payload, more) == (b"3", False)


@on_loop
async def test_confirmed_sends_return_positions() -> None:
    group = await FakeNode("a", Exchange()).join("g")
    assert await group.send(b"x", confirm=True) == 0
    waiting: object = await group.send(b"x")  # type: ignore[func-returns-value]
    assert waiting is None
    assert await group.send_many([b"x"] * 10, confirm=True) == 2
    assert await group.send(bytes(200_000), SAFE, confirm=True) == 12
    assert await group.send_many([], confirm=True) == -1


@on_loop
async def test_sends_of_one_turn_of_the_loop_leave_as_one_block() -> None:
    group = await FakeNode("a", Exchange()).join("g")
    for index in range(100):
        await group.send(b"%d" % index)
    await group.flush()
    assert len(fake(group).sent_blocks) == 1


@on_loop
async def test_batches_hand_over_blocks_and_the_other_events_between_them() -> None:
    group = await FakeNode("a", Exchange()).join("g")
    await group.send_many([b"x" * 100] * 2_000, type=3)
    await group.flush()
    await group.leave()
    seen = [event async for event in group.batches()]
    assert isinstance(seen[0], View)
    assert isinstance(seen[-1], Left)
    batches = [event for event in seen if isinstance(event, Batch)]
    assert sum(len(batch) for batch in batches) == 2_000
    assert len(batches) == 4
    assert [batch.first for batch in batches] == [batch.position for batch in batches]
    assert set(batches[0].messages) == {b"x" * 100}
    assert (batches[0].type, batches[0].types[-1], batches[0].is_readable) == (3, 3, True)


@on_loop
async def test_batches_go_on_where_single_messages_stopped() -> None:
    group = await FakeNode("a", Exchange()).join("g")
    await group.send_many([b"1", b"2", b"3"])
    await group.flush()
    await group.receive()
    event, _ = await group.receive()
    assert isinstance(event, Message)
    assert event.payload == b"1"
    async for batch in group.batches():
        assert isinstance(batch, Batch)
        assert (list(batch), batch.first, batch.position) == ([b"2", b"3"], 1, 1)
        break


@on_loop
async def test_send_waits_while_the_queue_is_full_and_waiters_go_in_order() -> None:
    exchange = Exchange()
    node = FakeNode("a", exchange)
    group = await node.join("g")
    exchange.room_bytes = 0
    await group.send(bytes(QUEUE_BYTES))
    first = await is_stuck(group.send(b"1"))
    second = await is_stuck(group.send_many([b"2", b"3"], confirm=True))
    third = await is_stuck(group.send(b"4"))
    cancelled = await is_stuck(group.send(b"never"))
    fifth = await is_stuck(group.send(b"5"))
    cancelled.cancel()
    exchange.room_bytes = 1 << 22
    node.poke()
    await asyncio.gather(first, second, third, fifth)
    assert second.result() == 2
    await group.flush()
    payloads = [(await group.receive())[0] for _ in range(7)]
    assert [event.payload for event in payloads if isinstance(event, Message)][1:] == [b"1", b"2", b"3", b"4", b"5"]


@on_loop
async def test_send_many_of_more_than_the_queue_holds_loses_nothing() -> None:
    group = await FakeNode("a", Exchange()).join("g")
    count = 3 * QUEUE_BYTES // 100
    sending = asyncio.create_task(group.send_many([b"%0100d" % index for index in range(count)], confirm=True))
    got: list[bytes] = []
    async for event in group.batches():
        if isinstance(event, Batch):
            got += event.messages
        if len(got) == count:
            break
    assert await sending == 0
    assert got == [b"%0100d" % index for index in range(count)]


@on_loop
async def test_mistakes_raise_at_the_call() -> None:
    node = FakeNode("a", Exchange())
    group = await node.join("g", max_message=1_000, resilience=2)
    assert group.default_service == RESILIENT(2)
    for wrong in ("text", 7, None, ["x"]):
        with pytest.raises(TypeError):
            await group.send(wrong)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        await group.send_many([b"x", "y"])  # type: ignore[list-item]
    with pytest.raises(MessageTooLarge):
        await group.send(bytes(1_001))
    with pytest.raises(MessageTooLarge):
        await group.send_many([b"x", bytes(1_001)])
    with pytest.raises(UnsupportedService):
        await group.send(b"x", UNRELIABLE)
    with pytest.raises(UsageError):
        await node.join("g")
    with pytest.raises(UsageError):
        await node.join("h", min_members=0)
    with pytest.raises(UsageError, match="min_members=3 can never be met: the group has at most 2 members"):
        await node.join("h", min_members=3, max_members=2)
    with pytest.raises(UsageError):
        await node.join("h", recovery="perhaps")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        await node.join("h", max_members=0)
    assert fake(group).sent_blocks == []


@on_loop
async def test_second_receiver_is_refused_while_one_waits() -> None:
    group = await FakeNode("a", Exchange()).join("g")
    await group.receive()
    task = await is_stuck(group.receive())
    with pytest.raises(UsageError, match="another task"):
        await group.receive()
    task.cancel()
    await turns()
    await group.send(b"x")
    event, _ = await group.receive()
    assert isinstance(event, Message)


@on_loop
async def test_cancelled_calls_leave_everything_in_order() -> None:
    exchange = Exchange()
    node = FakeNode("a", exchange)
    group = await node.join("g")
    await group.receive()
    exchange.is_open = False
    for call in (group.receive(), group.send(b"1", confirm=True), group.flush()):
        task = await is_stuck(call)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    exchange.is_open = True
    exchange.order()
    node.poke()
    event, _ = await group.receive()
    assert isinstance(event, Message)
    assert event.payload == b"1"
    assert await group.send(b"2", confirm=True) == 1


@on_loop
async def test_join_that_is_refused_says_why() -> None:
    exchange = Exchange()
    exchange.refuse = "there is no such group"
    node = FakeNode("a", exchange)
    with pytest.raises(JoinRefused, match="no such group"):
        await node.join("g", create=False)
    exchange.refuse = ""
    await node.join("g")


@on_loop
async def test_only_parameters_that_were_given_become_demands() -> None:
    node = FakeNode("a", Exchange())
    plain = fake(await node.join("g"))
    assert plain.options["demands"].max_members is None
    given = fake(await node.join("h", max_members=7, buffers=1 << 20, min_members=2, recovery="manual"))
    assert (given.options["demands"].max_members, given.config.max_members) == (7, 7)
    assert (given.options["demands"].history_bytes, given.config.history_bytes) == (1 << 20, 1 << 20)
    assert (given.options["min_members"], given.options["recovery"]) == (2, "manual")


@on_loop
async def test_calls_fail_at_once_until_reset_succeeds() -> None:
    """Amoeba section 3: outstanding calls return an error; ResetGroup returns the size of the new group."""
    exchange = Exchange()
    node = FakeNode("a", exchange)
    group = await node.join("g", recovery="manual")
    exchange.is_open = False
    confirming = await is_stuck(group.send(b"1", confirm=True))
    flushing = await is_stuck(group.flush())
    exchange.fail("b is silent")
    node.poke()
    for task in (confirming, flushing):
        with pytest.raises(GroupFailed, match="b is silent"):
            await task
    with pytest.raises(GroupFailed):
        await group.send(b"2")
    with pytest.raises(NotEnoughMembers):
        await group.reset(min_members=2)
    with pytest.raises(GroupFailed):
        await group.send_many([b"2"])
    assert await group.reset(min_members=1, header=b"again") == 1
    exchange.is_open = True
    await group.send(b"3")
    seen = [(await group.receive())[0] for _ in range(5)]
    assert [type(event) for event in seen] == [View, Failed, View, Message, Message]
    assert seen[2].header == b"again"  # type: ignore[union-attr]


@on_loop
async def test_senders_that_wait_for_room_learn_of_a_failure() -> None:
    exchange = Exchange()
    node = FakeNode("a", exchange)
    group = await node.join("g", recovery="manual")
    exchange.room_bytes = 0
    await group.send(bytes(QUEUE_BYTES))
    waiting = [await is_stuck(group.send(b"1")), await is_stuck(group.send_many([b"2"]))]
    exchange.fail("b is silent")
    node.poke()
    for task in waiting:
        with pytest.raises(GroupFailed):
            await task


@on_loop
async def test_exclusion_is_told_to_senders_and_receivers() -> None:
    exchange = Exchange()
    node = FakeNode("a", exchange)
    group = await node.join("g")
    exchange.is_open = False
    confirming = await is_stuck(group.send(b"1", confirm=True))
    exchange.waiting.clear()
    fake(group).pending += [UnknownOutcome(0, 1), Departed(wanted=False, returning=True, text="excluded")]
    node.poke()
    with pytest.raises(OutcomeUnknown):
        await confirming
    await group.receive()
    assert (await group.receive())[0] == Uncertain(0, 1)
    assert (await group.receive())[0] == Left(wanted=False, returning=True, text="excluded")
    assert group.members == ()
    await group.send(b"2")
    exchange.is_open = True
    exchange.install(Reason.JOIN, "a/0", b"", [fake(group)])
    node.poke()
    assert isinstance((await group.receive())[0], View)
    event, _ = await group.receive()
    assert isinstance(event, Message)
    assert (event.payload, event.number) == (b"2", 1)


@on_loop
async def test_leaving_ends_iteration_and_later_calls_raise() -> None:
    node = FakeNode("a", Exchange())
    async with await node.join("g") as group:
        await group.send(b"1")
        resetting = None
    assert resetting is None
    assert len([event async for event in group]) == 3
    with pytest.raises(NotMember):
        await group.send(b"2")
    with pytest.raises(NotMember):
        await group.receive()
    with pytest.raises(NotMember):
        await group.reset()
    await group.leave()
    again = await node.join("g")
    await again.send(b"3")
    await again.receive()
    event, _ = await again.receive()
    assert isinstance(event, Message)
    assert event.number == 1


@on_loop
async def test_broken_node_fails_every_call_with_its_reason() -> None:
    exchange = Exchange()
    node = FakeNode("a", exchange)
    group = await node.join("g")
    await group.receive()
    exchange.is_open = False
    tasks = [await is_stuck(call) for call in (group.receive(), group.send(b"1", confirm=True), group.flush())]
    node.fail(InvariantViolation("a bug"))
    for task in tasks:
        with pytest.raises(InvariantViolation, match="a bug"):
            await task
    for call in (group.send(b"2"), group.receive(), group.reset(), node.join("h")):
        with pytest.raises(InvariantViolation, match="a bug"):
            await call
    await group.leave()


@on_loop
async def test_stats_tell_counts_and_queues() -> None:
    group = await FakeNode("a", Exchange()).join("g")
    await group.send_many([b"x"] * 5)
    await group.flush()
    stats = group.stats
    assert (stats["messages_sent"], stats["messages_delivered"], stats["sent.data"]) == (5, 5, 1)
    assert (stats["queued_messages"], stats["queued_bytes"]) == (0, 0)


@on_loop
async def test_unreadable_block_of_a_faulty_member_gives_no_message_and_no_error() -> None:
    exchange = Exchange()
    node = FakeNode("a", exchange)
    group = await node.join("g")
    await group.receive()
    await group.send(b"1", AGREED)
    block = fake(group)
    await group.flush()
    exchange.waiting.append((block, 1, block.sent_blocks[0][:-1] + b"xx"))
    exchange.waiting.append((block, 2, b"short" + bytes(20)))
    exchange.order()
    node.poke()
    await group.send(b"2")
    await group.flush()
    seen = [(await group.receive())[0] for _ in range(2)]
    assert [event.payload for event in seen if isinstance(event, Message)] == [b"1", b"2"]
