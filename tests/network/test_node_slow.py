"""Members that do not receive, and expulsions, between real nodes on loopback (docs/design/slow.md)."""

from __future__ import annotations

import asyncio

import pytest
from tests.network.quick import QUICK, fresh, within

from ordercast import Batch, BlockingNode, Group, Left, Message, Node, NotMember, UsageError, View
from ordercast.view import Reason

on_loop = within(60)
ORDERERS = ["token", "sequencer", "timestamp"]
MESSAGES = 300  # of 1,000 bytes: more than a history of 64 KiB holds


async def count_messages(group: Group, number: int) -> None:
    """Receive until so many messages have come."""
    async for event in group.batches():
        if isinstance(event, Batch):
            number -= event.count
        if number <= 0:
            return


async def until_view(group: Group, size: int) -> View:
    """Receive until a view of so many members comes."""
    async for event in group.batches():
        if isinstance(event, View) and len(event.members) == size:
            return event
    raise AssertionError(f"no view of {size} members came")


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
async def test_the_others_go_on_without_a_member_that_does_not_receive_until_it_does(orderer: str) -> None:
    """Amoeba section 3 and RMP section 4.6 wait for it instead."""
    name = fresh()
    nodes = [Node(each, timing=QUICK) for each in "abc"]
    a, b, c = [await node.join(name, orderer=orderer, buffers=65_536, patience=0.3) for node in nodes]
    sending = asyncio.create_task(a.send_many([bytes(1_000)] * MESSAGES))
    await asyncio.gather(count_messages(a, MESSAGES), count_messages(b, MESSAGES))
    await sending
    assert [member.name for member in a.members] == ["a", "b"]
    seen = []
    async for event in c:
        seen.append(event)
        if isinstance(event, View) and seen[-2:-1] and isinstance(seen[-2], Left):
            break  # it is back
    left = seen[-2]
    assert isinstance(left, Left)
    assert left.returning
    assert not left.wanted
    assert left.text.startswith("expelled by ")
    assert left.text.endswith(": its application has not received for 0.3 s")
    assert 0 < sum(isinstance(event, Message) for event in seen) < MESSAGES
    assert len((await until_view(a, 3)).members) == 3
    await c.send(b"here again", confirm=True)
    for node in nodes:
        await node.close()


@on_loop
async def test_a_group_that_waits_has_all_members_although_one_does_not_receive() -> None:
    """Amoeba section 3. The joiner's wish does not count: the group was created with slow="wait"."""
    name = fresh()
    nodes = [Node(each, timing=QUICK) for each in "ab"]
    a = await nodes[0].join(name, buffers=65_536, slow="wait", patience=0.1)
    b = await nodes[1].join(name, slow="evict", patience=5)
    assert (b.config.slow, b.config.patience_ns) == ("wait", 100_000_000)
    sending = asyncio.create_task(a.send_many([bytes(1_000)] * MESSAGES))
    receiving = asyncio.create_task(count_messages(a, MESSAGES))
    await asyncio.wait([sending, receiving], timeout=0.6)  # six times what the group would allow
    assert not receiving.done()
    assert len(a.members) == 2
    await asyncio.gather(count_messages(b, MESSAGES), receiving, sending)
    for node in nodes:
        await node.close()


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
async def test_an_expelled_member_is_out_for_good_and_is_told_why(orderer: str) -> None:
    name = fresh()
    nodes = [Node(each, timing=QUICK) for each in "abc"]
    a, b, c = [await node.join(name, orderer=orderer) for node in nodes]
    await until_view(b, 3)
    await b.send(b"before", confirm=True)
    await b.expel("c", "it is being replaced")
    assert [member.name for member in b.members] == ["a", "b"]
    view = await until_view(b, 2)
    assert (view.reason, view.subject) == (Reason.EXPEL, str(c.member))
    assert view.header == f"expelled by {b.member}: it is being replaced".encode()
    seen = [event async for event in c]
    assert seen[-1] == Left(wanted=False, returning=False, text=f"expelled by {b.member}: it is being replaced")
    assert [event.payload for event in seen if isinstance(event, Message)] == [b"before"]
    with pytest.raises(NotMember, match="expelled by b"):
        await c.send(b"too late")
    with pytest.raises(UsageError, match="call leave"):
        await a.expel(a.member)
    with pytest.raises(UsageError, match="is not in"):
        await b.expel("c")
    again = await nodes[2].join(name, orderer=orderer)
    await a.expel(again.member.id)
    for node in nodes:
        await node.close()


def test_a_blocking_program_expels_a_member() -> None:
    name = fresh()
    with BlockingNode("a", timing=QUICK) as a, BlockingNode("b", timing=QUICK) as b:
        one, two = a.join(name, slow="evict", patience=2.5), b.join(name)
        assert two.config.patience_ns == 2_500_000_000
        one.expel("b", timeout=10)
        assert [member.name for member in one.members] == ["a"]
        assert [event for event in two if isinstance(event, Left)] == [
            Left(wanted=False, returning=False, text=f"expelled by {one.member}")
        ]
