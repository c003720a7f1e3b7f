"""Shared underlays on real sockets: a thousand groups on three nodes, in one order (docs/api.md)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import islice

import pytest
from tests.network.quick import QUICK, fresh, within

from ordercast import BlockingNode, Left, Message, Node, SharedUnderlay, View

ORDERERS = ["token", "sequencer", "timestamp"]
GROUPS = [f"topic {number:03d}" for number in range(1_000)]


class Listener:
    """What one node sees of all its groups, in the one order of the underlay."""

    def __init__(self, node: Node, underlay: str) -> None:
        self.node = node
        self.seen: list[tuple[str, tuple[str, ...], int]] = []  # sender and number, groups, position
        self.views: dict[str, tuple[str, ...]] = {}  # group -> names of its members
        self.payloads: list[bytes] = []
        self._task = asyncio.create_task(self._listen(underlay))

    async def _listen(self, underlay: str) -> None:
        async for event in self.node.events(underlay):
            if isinstance(event, Message):
                self.seen.append((f"{event.sender} {event.number}", event.groups, event.position))
                self.payloads.append(event.payload)
            elif isinstance(event, View) and event.group:
                self.views[event.group] = tuple(member.name for member in event.members)

    async def until(self, count: int) -> None:
        while len(self.seen) < count:
            assert not self._task.done(), "the events have ended"
            await asyncio.sleep(0.01)

    async def until_members(self, groups: list[str], names: set[str]) -> None:
        while any(set(self.views.get(group, ())) != names for group in groups):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("orderer", ORDERERS)
@within(60)
async def test_a_thousand_groups_of_three_nodes_are_one_order_and_a_crash_takes_one_out_of_all(orderer: str) -> None:
    floor = fresh()
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(name, timing=QUICK)) for name in "abc"]
        underlays = [await node.attach(floor, orderer=orderer) for node in nodes]
        listeners = [Listener(node, floor) for node in nodes]
        await asyncio.gather(*(node.join_many(GROUPS, underlay=floor) for node in nodes))
        for listener in listeners:
            await listener.until_members(GROUPS, {"a", "b", "c"})
        assert all(underlay.groups == GROUPS for underlay in underlays)

        async def talk(node: Node, underlay: SharedUnderlay) -> None:
            """To one group, to two, to many at once, and to one that nobody is in."""
            for number in range(50):
                await node.group(GROUPS[number * 7]).send(b"one")
                await node.send(b"two", groups=[GROUPS[number], GROUPS[-number - 1]])
                await node.send(b"nobody", groups=[f"nobody {number % 5}"])
            await underlay.send_many([b"many"] * 1_000, groups=GROUPS)
            await node.send(bytes(150_000), groups=GROUPS[:3], confirm=True)

        await asyncio.gather(*map(talk, nodes, underlays))
        for listener in listeners:
            await listener.until(3 * 1_101)
        first, *others = listeners
        assert len(first.seen) == 3 * 1_101
        assert b"nobody" not in first.payloads
        assert [position for *_, position in first.seen] == sorted(position for *_, position in first.seen)
        for other in others:
            assert other.seen == first.seen
            assert other.payloads == first.payloads
        nodes[2].abort()
        for listener in listeners[:2]:
            await listener.until_members(GROUPS, {"a", "b"})
        assert await nodes[0].send(b"after", groups=GROUPS[5:8], confirm=True) is not None
        await listeners[1].until(3 * 1_101 + 1)
        assert listeners[1].seen[-1][1] == tuple(GROUPS[5:8])


@pytest.mark.parametrize("orderer", ORDERERS)
@within(60)
async def test_a_node_sends_to_groups_that_it_is_not_in_and_leaves_many_at_once(orderer: str) -> None:
    floor = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b:
        await a.attach(floor, orderer=orderer)
        await a.join_many(GROUPS, underlay=floor)
        inside = Listener(a, floor)
        await b.attach(floor)
        for number in range(20):
            await b.send(b"%d" % number, groups=[GROUPS[number], "unheard of"])
        await inside.until(20)
        assert inside.payloads == [b"%d" % number for number in range(20)]
        group = await b.join(GROUPS[0], underlay=floor)
        assert [member.name for member in group.members] == ["a", "b"]
        await a.leave_many(GROUPS[:999])
        while len(group.members) > 1:
            await asyncio.sleep(0.01)
        assert await b.call(GROUPS[999], b"?") is None
        await inside.until(21)
        assert inside.payloads[-1] == b"?"
        await a.close()
        while len(group.members) > 1 or group.view is None:
            await asyncio.sleep(0.01)


def test_programs_without_asyncio_use_shared_underlays_as_well() -> None:
    floor = fresh()
    with BlockingNode("a", timing=QUICK) as a, BlockingNode("b", timing=QUICK) as b:
        underlay = a.attach(floor)
        assert a.attach(floor) is underlay
        events = a.events(floor)
        underlay.join_many(GROUPS[:50], timeout=20)
        b.join_many(GROUPS[:10], underlay=floor, timeout=20)
        group = b.group(GROUPS[3])
        assert b.group(GROUPS[3]) is group
        assert group.send(b"one", confirm=True, timeout=20) == 0
        assert b.send(b"two", groups=GROUPS[5:60], confirm=True, timeout=20) == 1
        underlay.send_many([b"three"] * 50, groups=GROUPS[:50], timeout=20)
        underlay.flush(timeout=20)
        found = list(islice((event for event in events if isinstance(event, Message)), 52))
        assert [message.payload for message in found] == [b"one", b"two", *[b"three"] * 50]
        assert [message.group for message in found[2:]] == GROUPS[:50]
        assert found[1].groups == tuple(GROUPS[5:60])
        b.leave_many(GROUPS[:10], timeout=20)
        assert underlay.groups == GROUPS[:50]
        assert underlay.slow_groups == []
        underlay.detach(timeout=20)
        assert isinstance(list(events)[-1], Left)
        assert not underlay.is_member
