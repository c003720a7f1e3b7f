"""Shared underlays in the public API, over a group without a network (docs/api.md, "Shared underlays")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.fake_engine import Exchange
from tests.unit.fake_node import FakeNode
from tests.unit.test_group_api import on_loop, turns

from ordercast.api.shared import SharedUnderlay
from ordercast.api.transactions import Transaction, publish, transactions
from ordercast.errors import InvariantViolation, MessageTooLarge, NotMember, UsageError
from ordercast.groups.consumption import PORT_BYTES
from ordercast.groups.events import Batch, Event, Left, Message, MixedBatch, PortEvent
from ordercast.groups.queue import QUEUE_MESSAGES
from ordercast.groups.shared import KEPT_NAMES
from ordercast.service import AGREED
from ordercast.view import Reason, View

TOPICS = [f"topic {number}" for number in range(30)]


def pair() -> tuple[FakeNode, FakeNode]:
    exchange, nodes = Exchange(), list[FakeNode]()
    return FakeNode("a", exchange, nodes), FakeNode("b", exchange, nodes)


async def messages(events: AsyncIterator[Event], count: int) -> list[Message]:
    found: list[Message] = []
    async for event in events:
        if isinstance(event, Message):
            found.append(event)
            if len(found) == count:
                break
    return found


async def first_batch(events: AsyncIterator[PortEvent]) -> MixedBatch:
    while True:
        event = await anext(events)
        if isinstance(event, MixedBatch):
            return event


@on_loop
async def test_the_first_join_attaches_the_underlay_and_groups_are_like_any_other() -> None:
    a, b = pair()
    orders, prices = await a.join("orders", underlay="floor", header=b"hi"), await a.join("prices", underlay="floor")
    other = await b.join("orders", underlay="floor")
    await turns()
    assert [group.name for group in a.groups] == ["orders", "prices"], "the underlay itself is no group"
    assert [member.name for member in orders.members] == ["a", "b"]
    assert [member.name for member in prices.members] == ["a"]
    first, _ = await orders.receive()
    assert isinstance(first, View)
    assert (first.group, first.reason, first.header) == ("orders", Reason.JOIN, b"hi")
    assert await other.send(b"1", confirm=True) == 0
    (message,) = await messages(orders, 1)
    assert (message.payload, message.group, message.groups) == (b"1", "orders", ("orders",))
    await orders.leave(b"bye")
    await turns()
    assert [member.name for member in other.members] == ["b"]
    assert prices.is_member
    await a.close()
    await b.close()


@on_loop
async def test_attach_gives_one_handle_however_many_tasks_ask() -> None:
    a, _ = pair()
    handles = await asyncio.gather(*(a.attach("floor", min_members=1) for _ in range(3)), a.attach("yard"))
    assert handles[0] is handles[1] is handles[2]
    assert [handle.name for handle in handles[2:]] == ["floor", "yard"]
    assert (handles[0].groups, handles[0].is_member, handles[0].member) == ([], True, a.member)
    assert handles[0].config.shared
    assert repr(handles[0]).startswith("<SharedUnderlay 'floor', view ")
    assert a.groups == []
    await handles[0].detach()
    await handles[0].detach()
    assert not handles[0].is_member
    again = await a.attach("floor")
    assert again is not handles[0]
    assert again.is_member


@on_loop
async def test_an_attach_that_is_given_up_leaves_nothing_behind() -> None:
    a, _ = pair()
    one, two = asyncio.create_task(a.attach("floor")), asyncio.create_task(a.attach("floor"))
    await asyncio.sleep(0)
    one.cancel()
    floor = await two
    assert one.cancelled()
    assert floor.is_member, "the other one still wanted it"
    gone = asyncio.create_task(a.attach("yard"))
    await asyncio.sleep(0)
    gone.cancel()
    await turns()
    with pytest.raises(UsageError, match="not attached to 'yard'"):
        a.events("yard")
    assert a.host.underlays == ["floor"]
    with pytest.raises(TimeoutError, match="no way into the underlay 'yard' was found in 0 s"):
        await a.attach("yard", timeout=0)
    await turns()
    assert (await a.attach("yard", min_members=1)).is_member


@on_loop
async def test_many_groups_are_joined_and_left_together() -> None:
    a, b = pair()
    await a.join_many(TOPICS, underlay="floor", header=b"hello")
    floor = await b.attach("floor")
    await floor.join_many(TOPICS[:10])
    await turns()
    assert floor.groups == TOPICS[:10]
    assert a.groups == b.groups == []
    group = a.group("topic 3")
    assert a.group("topic 3") is group
    assert [member.name for member in group.members] == ["a", "b"]
    assert [each.name for each in a.groups] == ["topic 3"]
    view, _ = await group.receive()
    assert isinstance(view, View)
    assert (view.header, view.reason, [member.name for member in view.members]) == (b"hello", Reason.JOIN, ["a"])
    await b.leave_many(TOPICS[2:5], header=b"bye")
    await turns()
    assert floor.groups == [*TOPICS[:2], *TOPICS[5:10]]
    assert [member.name for member in group.members] == ["a"]
    with pytest.raises(NotMember, match="this node is not in 'topic 3': join it first"):
        b.group("topic 3")
    await b.join_many(TOPICS[3:4], underlay="floor")
    await turns()
    assert [member.name for member in group.members] == ["a", "b"]


@on_loop
async def test_a_message_to_several_groups_comes_once_and_names_all_of_them() -> None:
    a, b = pair()
    await a.join_many(["orders", "prices", "news"], underlay="floor")
    await b.join_many(["prices", "news"], underlay="floor")
    seen_a, seen_b = a.events("floor"), b.events()
    assert await b.send(b"1", groups=["orders"], confirm=True) == 0, "it is not in that group"
    assert await b.send(b"2", groups=["prices", "news", "prices"], confirm=True) == 1
    await a.send(b"3", groups=["news", "unheard of"])
    assert await a.send(bytes(200_000), groups=["orders", "news"], confirm=True) == 3
    found = [(message.payload[:1], message.groups) for message in await messages(seen_a, 4)]
    assert found == [
        (b"1", ("orders",)),
        (b"2", ("prices", "news")),
        (b"3", ("news", "unheard of")),
        (b"\0", ("orders", "news")),
    ]
    got = await messages(seen_b, 3)
    assert [(message.payload[:1], message.groups, message.position) for message in got] == [
        (b"2", ("prices", "news"), 1),
        (b"3", ("news", "unheard of"), 2),
        (b"\0", ("orders", "news"), 3),
    ]


@on_loop
async def test_events_and_batches_give_all_groups_in_one_order() -> None:
    a, b = pair()
    await a.join_many(TOPICS, underlay="floor")
    floor = await b.attach("floor")
    await floor.join_many(TOPICS)
    wanted = [b"%d" % number for number in range(90)]
    await floor.send_many(wanted[:60], groups=TOPICS * 2)
    await floor.flush()
    await turns()
    events = a.events("floor")  # what has come to the groups before comes first, in the same order
    for number in range(60, 90):
        await a.group(TOPICS[number - 60]).send(wanted[number])
    found = await messages(events, 90)
    assert [message.payload for message in found] == wanted
    assert [message.group for message in found] == TOPICS * 3
    assert [message.position for message in found] == list(range(90))
    payloads: list[bytes] = []
    names: list[str] = []
    async for event in b.batches("floor"):
        if isinstance(event, MixedBatch):
            payloads += event.messages
            names += event.groups
            if len(payloads) == 90:
                break
    assert payloads == wanted
    assert names == TOPICS * 3


@on_loop
async def test_the_end_of_one_group_does_not_end_the_events_of_the_underlay() -> None:
    a, b = pair()
    await a.join_many(["orders", "prices"], underlay="floor")
    events = a.events("floor")
    await a.group("orders").leave()
    await b.join("prices", underlay="floor")
    await b.send(b"1", groups=["orders", "prices"], confirm=True)
    await a.send(b"2", groups=["prices"], confirm=True)
    await a._attached("floor").detach()
    seen = [event async for event in events]
    assert [event.payload for event in seen if isinstance(event, Message)] == [b"1", b"2"]
    assert [(event.group, event.wanted) for event in seen if isinstance(event, Left)] == [("orders", True), ("", True)]
    assert any(isinstance(event, View) and not event.group for event in seen), "the underlay has views, too"


@on_loop
async def test_tasks_that_wait_for_room_go_on_whatever_group_they_send_to() -> None:
    a, _ = pair()
    await a.join_many(["orders", "prices"], underlay="floor")
    events = a.events("floor")
    floor = a._attached(None)
    count = QUEUE_MESSAGES + 1_000

    async def send() -> None:
        for number in range(count):
            await a.group("orders" if number % 2 else "prices").send(b"")
        await floor.send(b"last", groups=["orders"])

    sending = asyncio.create_task(send())
    assert (await messages(events, count + 1))[-1].payload == b"last"
    await sending
    assert floor.stats["queued_messages"] == 0


@on_loop
async def test_a_group_that_is_not_received_from_holds_up_the_underlay_late_and_is_named() -> None:
    a, b = pair()
    await a.join_many(["orders", "prices"], underlay="floor")
    await b.attach("floor")
    floor = a._attached("floor")
    prices = a.group("prices")
    for _ in range(PORT_BYTES // 50_000 + 2):
        await b.send(bytes(50_000), groups=["orders"], confirm=True)
    assert floor.slow_groups == ["orders"]
    assert a.group("orders").stats["holding_up"] == 1
    assert PORT_BYTES - 60_000 < a.group("orders").stats["held_bytes"] <= PORT_BYTES
    assert (prices.stats["holding_up"], floor.stats["holding_up"]) == (0, 0)
    await messages(a.group("orders"), PORT_BYTES // 50_000 + 2)
    await turns()
    assert a.group("orders").stats["held_bytes"] == 0
    assert a.group("orders").has_events is False


@on_loop
async def test_names_of_groups_that_are_sent_to_from_outside_are_given_back() -> None:
    a, b = pair()
    await a.attach("floor")
    await b.join_many(["orders"], underlay="floor")
    events = b.events()
    for number in range(KEPT_NAMES + 200):
        await a.send(b"x", groups=[f"far {number}", "orders"])
        if number % 50 == 0:
            await a._attached("floor").flush()
    await a._attached("floor").flush()
    await a.send(b"x", groups=["orders", "far 0"], confirm=True)
    await turns()
    assert len(await messages(events, KEPT_NAMES + 201)) == KEPT_NAMES + 201
    (channel,) = [port.channel for port in b.host.ports if not port.group]
    assert channel.shared is not None
    named = [name for name in channel.shared.roster.groups if name.startswith("far")]
    assert len(named) <= KEPT_NAMES + 10
    assert "far 0" in named, "it was named again"
    assert "far 1" not in named


@on_loop
async def test_misuse_of_shared_underlays_raises_with_the_alternative() -> None:
    a, b = pair()
    with pytest.raises(UsageError, match=r"not attached to 'floor': await node.attach\('floor'\) first"):
        await a.leave_many(["x"], underlay="floor")
    with pytest.raises(UsageError, match="say which underlay: this node is attached to none"):
        await a.send(b"x", groups=["x"])
    with pytest.raises(UsageError, match=r"orderer, min_members: these belong to the underlay.*attach\('floor', "):
        await a.join("x", underlay="floor", orderer="sequencer", min_members=1)
    with pytest.raises(UsageError, match=r"joined by its name: join\(\"prices\", underlay='floor'\)"):
        await a.join(underlay="floor")
    with pytest.raises(UsageError, match="create is True, False or None"):
        await a.attach("floor", create="yes")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'floor' is the name of the underlay itself"):
        await a.join("floor", underlay="floor")
    floor: SharedUnderlay = await a.attach("floor", max_message=1_000)
    await floor.join_many(["x", "y"])
    assert await a.attach("floor") is await a.attach("floor", max_message=1_000) is floor
    with pytest.raises(UsageError, match="attached to 'floor' already, with other parameters: leave them out"):
        await a.attach("floor", min_members=1)
    with pytest.raises(UsageError, match="this node is in 'y' already"):
        await floor.join_many(["z", "y"])
    with pytest.raises(UsageError, match="'z' is named twice; join each group once"):
        await floor.join_many(["z", "w", "z"])
    assert floor.groups == ["x", "y"], "none of them was joined"
    with pytest.raises(UsageError, match=r"come as a list: write \['xy'\]"):
        await floor.join_many("xy")
    with pytest.raises(UsageError, match="1 to 255 groups, got 0"):
        await floor.send(b"x", groups=[])
    with pytest.raises(UsageError, match="there are 2 messages and 1 groups: give the group of each message"):
        await floor.send_many([b"x", b"y"], groups=["x"])
    with pytest.raises(NotMember, match=r"not in 'z' on 'floor': join it, or send\(payload, groups=\['z'\]\)"):
        await floor.send_many([b"x"], groups=["z"])
    with pytest.raises(NotMember, match="not in 'z' on 'floor'"):
        await floor.leave_many(["x", "z"])
    with pytest.raises(MessageTooLarge, match="1001 bytes exceed max_message=1000"):
        await floor.send(bytes(1_001), groups=["x"])
    with pytest.raises(UsageError, match="this node is in 'floor' already, as an underlay that carries groups"):
        await a.join("floor")
    await b.attach("floor")
    await turns()
    with pytest.raises(UsageError, match="calls on the underlay 'floor' are never lost: leave again out"):
        await b.call("x", b"?", handler=1, again=True)
    await b.attach("yard")
    with pytest.raises(UsageError, match="say which underlay: this node is attached to 'floor' and 'yard'"):
        b.events()
    await floor.detach()
    with pytest.raises(NotMember, match="this node is not in 'floor'"):
        await floor.join_many(["v"])


@on_loop
async def test_waits_for_many_groups_end_with_the_node() -> None:
    exchange = Exchange()
    a = FakeNode("a", exchange)
    floor = await a.attach("floor")
    exchange.is_open = False
    joining = asyncio.create_task(floor.join_many(TOPICS))
    await turns()
    assert not joining.done()
    a.fail(InvariantViolation("something is wrong"))
    with pytest.raises(InvariantViolation, match="something is wrong"):
        await joining
    with pytest.raises(InvariantViolation, match="something is wrong"):
        await floor.send(b"x", groups=["orders"], service=AGREED)


@on_loop
async def test_transactions_come_whole_although_their_publisher_sends_to_other_groups_meanwhile() -> None:
    a, b = pair()
    await a.join_many(["orders", "news"], underlay="floor")
    orders = await b.join("orders", underlay="floor")
    rows = [b"%d" % number for number in range(40_000)]

    async def chat() -> None:
        for _ in range(200):
            await a.send(b"chat", groups=["news"])
            await a.group("news").send(b"chat")
            await asyncio.sleep(0)

    chatting = asyncio.create_task(chat())
    position = await publish(a.group("orders"), "q", 0, rows)
    await chatting
    async for item in transactions(orders):
        if isinstance(item, Transaction):
            assert (list(item.rows), item.position) == (rows, position)
            break
    assert position > len(rows) + 1, "messages of the other group came in between"


@on_loop
async def test_a_batch_of_several_groups_divides_into_runs_without_holes() -> None:
    a, b = pair()
    await a.join_many(["x", "y", "z"], underlay="floor")
    floor = await b.attach("floor")
    await floor.join_many(["x", "y", "z"])
    await a.leave_many(["z"])
    events = a.batches()
    await floor.send_many([b"%d" % number for number in range(7)], groups=["x", "x", "z", "x", "y", "y", "x"])
    batch = await first_batch(events)
    runs = list(batch.runs())
    assert [(run.group, run.first, run.position, list(run.messages)) for run in runs] == [
        ("x", 0, 0, [b"0", b"1"]),
        ("x", 3, 3, [b"3"]),
        ("y", 4, 4, [b"4", b"5"]),
        ("x", 6, 6, [b"6"]),
    ]
    assert [run.__class__ for run in runs] == [Batch] * 4
