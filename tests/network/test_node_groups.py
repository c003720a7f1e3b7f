"""Whole groups between real nodes on loopback: the public API over sockets, membership and orderers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.network.quick import PATIENT, QUICK, fresh, within

from ordercast import (
    AGREED,
    RESILIENT,
    SAFE,
    Batch,
    BlockingNode,
    Failed,
    Group,
    GroupFailed,
    JoinRefused,
    Left,
    Message,
    Node,
    NotEnoughMembers,
    NotMember,
    Transitional,
    View,
)
from ordercast.groups.events import PortEvent
from ordercast.sim.checkers import check_all
from ordercast.trace.convert import RAW_FOLDER
from ordercast.trace.recorder import decode
from ordercast.trace.schema import Row

on_loop = within(60)
ORDERERS = ["token", "timestamp"]


class Reader:
    """Receives everything of a group from now on."""

    def __init__(self, group: Group) -> None:
        self.events: list[PortEvent] = []
        self._news = asyncio.Event()
        self._group = group
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with suppress(NotMember):  # the node was stopped
            async for event in self._group.batches():
                self.events.append(event)
                self._news.set()

    @property
    def payloads(self) -> list[bytes]:
        return [payload for event in self.events if isinstance(event, Batch) for payload in event]

    @property
    def assignments(self) -> list[tuple[int, bytes]]:
        return [
            (event.position + index, payload)
            for event in self.events
            if isinstance(event, Batch)
            for index, payload in enumerate(event)
        ]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def messages(self, number: int) -> list[bytes]:
        await self.until(lambda: len(self.payloads) >= number)
        return self.payloads

    async def members(self, number: int) -> None:
        await self.until(lambda: self.sizes[-1:] == [number])

    @property
    def sizes(self) -> list[int]:
        return [len(event.members) for event in self.events if isinstance(event, View)]


async def form(
    names: str, group: str, trace: Path | None = None, **options: Any
) -> tuple[list[Node], list[Group], list[Reader]]:
    nodes = [Node(name, timing=QUICK, trace=trace) for name in names]
    groups = [await node.join(group, **options) for node in nodes]
    return nodes, groups, [Reader(each) for each in groups]


def rows_of(trace: Path) -> list[Row]:
    """What the nodes wrote, each life in its order."""
    rows: list[Row] = []
    for path in sorted((trace / RAW_FOLDER).iterdir()):
        node, _, life = path.stem.rpartition("-")
        rows += decode(path.read_bytes(), node, int(life))
    return rows


async def close(nodes: list[Node]) -> None:
    for node in nodes:
        await node.close()


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
@pytest.mark.parametrize("datagram", [None, 1_400])
async def test_all_senders_are_seen_in_one_order(datagram: int | None, orderer: str) -> None:
    name = fresh()
    nodes = [Node(each, timing=QUICK, datagram=datagram) for each in "abcd"]
    groups = [await node.join(name, orderer=orderer) for node in nodes]
    readers = [Reader(group) for group in groups]
    await asyncio.gather(
        *(
            group.send_many([b"%d/%d" % (index, number) + bytes(100) for number in range(2_000)])
            for index, group in enumerate(groups)
        )
    )
    for reader in readers:
        await reader.messages(8_000)
    assert readers[0].assignments == readers[1].assignments == readers[2].assignments == readers[3].assignments
    positions = [seq for seq, _ in readers[0].assignments]
    assert positions == sorted(positions)
    assert sum(node.read_drops() for node in nodes) == 0
    await close(nodes)


@on_loop
@pytest.mark.parametrize("service", [AGREED, RESILIENT(2), SAFE])
async def test_confirmed_sends_return_rising_positions(service: Any) -> None:
    nodes, groups, readers = await form("abc", fresh())
    positions = [await groups[index % 3].send(b"x", service, confirm=True) for index in range(30)]
    assert positions == sorted(set(positions))
    for reader in readers:
        await reader.messages(30)
    assert [seq for seq, _ in readers[0].assignments] == positions
    await close(nodes)


@on_loop
async def test_headers_travel_with_joins_and_leaves() -> None:
    """Amoeba section 3: the small message of JoinGroup and LeaveGroup reaches all other members."""
    name = fresh()
    nodes, _, readers = await form("ab", name)
    async with Node("c", timing=QUICK) as late:
        group = await late.join(name, header=b"here I am")
        await group.send(b"one word")
        await group.leave(b"and gone")
    for reader in readers:
        await reader.until(lambda reader=reader: reader.sizes[-2:] == [3, 2])  # type: ignore[misc]
        views = [event for event in reader.events if isinstance(event, View)]
        assert [view.header for view in views[-2:]] == [b"here I am", b"and gone"]
        assert reader.payloads == [b"one word"]
    await close(nodes)


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
async def test_large_messages_pass_and_small_ones_wait_their_turn(orderer: str) -> None:
    nodes, groups, readers = await form("abc", fresh(), orderer=orderer)
    large = random.Random(1).randbytes(16 << 20)
    await groups[1].send(b"before")
    await groups[1].send(large)
    await groups[1].send(b"after", confirm=True)
    for reader in readers:
        assert await reader.messages(3) == [b"before", large, b"after"]
    await close(nodes)


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
async def test_member_that_joins_while_a_large_message_is_under_way_gets_it_whole_or_not_at_all(orderer: str) -> None:
    name = fresh()
    nodes, groups, readers = await form("ab", name, orderer=orderer)
    large = random.Random(2).randbytes(16 << 20)
    await groups[1].send(large)
    for index, each in enumerate("cde"):
        nodes.append(Node(each, timing=QUICK))
        groups.append(await nodes[-1].join(name))
        readers.append(Reader(groups[-1]))
        await groups[0].send(b"joined %d" % index)
    await groups[1].send(b"end", confirm=True)
    for reader in readers:
        # Of two senders either may come first.
        await reader.until(lambda reader=reader: {b"end", b"joined 2"} <= set(reader.payloads))  # type: ignore[misc]
        assert reader.payloads.count(large) == readers[0].payloads.count(large) == 1 or large not in reader.payloads
    for reader in readers[2:]:
        first = reader.assignments[0][0]
        assert reader.assignments == [each for each in readers[0].assignments if each[0] >= first]
    await close(nodes)


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
@pytest.mark.parametrize("victim", [0, 2])
async def test_survivors_of_a_crash_go_on_together(victim: int, orderer: str, tmp_path: Path) -> None:
    nodes, groups, readers = await form("abcd", fresh(), tmp_path, orderer=orderer)
    services = [AGREED, SAFE, AGREED, RESILIENT(1)]
    sending = [
        asyncio.create_task(group.send_many([b"x" * 100] * 20_000, service))
        for group, service in zip(groups, services, strict=True)
    ]
    await readers[victim].messages(1_000)
    nodes[victim].abort()
    await asyncio.gather(*sending, return_exceptions=True)
    survivors = [index for index in range(4) if index != victim]
    for index in survivors:
        await readers[index].members(3)
        await groups[index].flush()
        await groups[index].send(b"end", confirm=True)
    for index in survivors:
        await readers[index].until(lambda index=index: readers[index].payloads.count(b"end") == 3)  # type: ignore[misc]
        assert any(isinstance(event, Transitional) for event in readers[index].events)
    one, two, three = (readers[index].assignments for index in survivors)
    assert one == two == three
    await close([nodes[index] for index in survivors])
    verdict = check_all(rows_of(tmp_path), clock="one-host", quiet=True)
    assert verdict.held, "\n".join(verdict.summary())


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
async def test_manual_recovery_waits_for_reset(orderer: str) -> None:
    """Amoeba section 3: calls fail until ResetGroup; it returns the size and its header reaches all."""
    nodes, groups, readers = await form("abc", fresh(), recovery="manual", orderer=orderer)
    nodes[0].abort()
    with pytest.raises(GroupFailed):
        await groups[1].send(b"x", SAFE, confirm=True)
    await readers[2].until(lambda: any(isinstance(event, Failed) for event in readers[2].events))
    with pytest.raises(GroupFailed):
        await groups[2].send(b"y")
    with pytest.raises(NotEnoughMembers):
        await groups[2].reset(min_members=3)
    assert await groups[2].reset(min_members=2, header=b"go on") == 2
    await readers[1].members(2)
    await groups[1].send(b"z", confirm=True)
    await groups[2].send(b"z", confirm=True)
    for reader in readers[1:]:
        await reader.until(lambda reader=reader: reader.payloads[-2:] == [b"z", b"z"])  # type: ignore[misc]
        last = [event for event in reader.events if isinstance(event, View)][-1]
        assert last.header == b"go on"
    assert readers[1].assignments == readers[2].assignments
    await close(nodes[1:])


@on_loop
async def test_creating_and_joining_can_be_told_apart() -> None:
    name = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b:
        with pytest.raises(JoinRefused):
            await a.join(name, create=False)
        await a.join(name, create=True, max_members=2, max_message=1_000_000)
        with pytest.raises(JoinRefused):
            await b.join(name, create=True)
        with pytest.raises(JoinRefused, match="max_message"):
            await b.join(name, max_message=10)
        group = await b.join(name, create=False)
        assert group.config.max_message == 1_000_000
        async with Node("c", timing=QUICK) as c:
            with pytest.raises(JoinRefused, match="full"):
                await c.join(name)


@on_loop
async def test_group_without_multicast_meets_through_peers() -> None:
    name = fresh()
    async with Node("a", timing=QUICK, multicast=False) as a:
        peers = [f"{a.address[0]}:{a.address[1]}"]
        one = await a.join(name)
        async with Node("b", peers=peers, timing=QUICK) as b, Node("c", peers=peers, timing=QUICK) as c:
            two, three = await b.join(name), await c.join(name)
            readers = [Reader(group) for group in (one, two, three)]
            await two.send_many([b"x" * 1_000] * 1_000)
            await three.send(b"y", SAFE, confirm=True)
            for reader in readers:
                await reader.messages(1_001)
            assert readers[0].assignments == readers[1].assignments == readers[2].assignments


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
async def test_leaving_and_coming_back_keeps_the_sender_s_numbers(orderer: str) -> None:
    name = fresh()
    nodes, groups, readers = await form("ab", name, orderer=orderer)
    for turn in range(3):
        await groups[1].send(b"%d" % turn, confirm=True)
        await groups[1].leave()
        groups[1] = await nodes[1].join(name)
    await groups[1].send(b"3", confirm=True)
    await readers[0].messages(4)
    batches = [event for event in readers[0].events if isinstance(event, Batch)]
    assert [(batch.first, list(batch)) for batch in batches] == [(turn, [b"%d" % turn]) for turn in range(4)]
    await close(nodes)


@on_loop
async def test_one_node_in_many_groups_keeps_them_apart() -> None:
    names = [fresh() for _ in range(20)]
    async with Node("a", timing=PATIENT) as a, Node("b", timing=PATIENT) as b:
        ours = await asyncio.gather(*(a.join(name) for name in names))
        theirs = await asyncio.gather(*(b.join(name) for name in names))
        readers = [Reader(group) for group in ours]
        await asyncio.gather(*(group.send(group.name.encode(), confirm=True) for group in theirs))
        for reader, name in zip(readers, names, strict=True):
            assert await reader.messages(1) == [name.encode()]


@on_loop
@pytest.mark.parametrize("orderer", ORDERERS)
async def test_member_that_does_not_receive_holds_the_senders_and_nothing_is_lost(orderer: str) -> None:
    """Amoeba section 3: if a member never calls ReceiveFromGroup, the group may block; nothing is thrown away."""
    name = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b:
        one, two = await a.join(name, buffers=200_000, orderer=orderer), await b.join(name)
        reader = Reader(one)
        sending = asyncio.create_task(one.send_many([b"%06d" % index + bytes(1_000) for index in range(5_000)]))
        done, _ = await asyncio.wait([sending], timeout=0.5)
        assert not done, "two does not receive, and all buffers are full"
        assert len(reader.payloads) < 1_000
        assert len(one.members) == 2, "slow is not dead"
        slow = Reader(two)
        await sending
        await slow.messages(5_000)
        assert [payload[:6] for payload in slow.payloads] == [b"%06d" % index for index in range(5_000)]


def test_blocking_programs_take_part_too() -> None:
    name = fresh()
    with BlockingNode("a", timing=QUICK) as a, BlockingNode("b", timing=QUICK) as b:
        one, two = a.join(name), b.join(name)
        assert [member.name for member in two.members] == ["a", "b"]
        position = two.send(b"hello", SAFE, confirm=True, timeout=10)
        one.send_many([b"x"] * 1_000)
        one.flush(timeout=10)
        got: list[Message] = []
        for event in two:
            if isinstance(event, Message):
                got.append(event)
            if len(got) == 1_001:
                break
        assert (got[0].payload, got[0].position) == (b"hello", position)
        two.leave(b"bye", timeout=10)
        assert isinstance(list(two)[-1], Left)
