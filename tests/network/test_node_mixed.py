"""Real nodes with and without multicast in one group; TTLs, contacts, colliding names. RMP sections 3.1, 3.3, 3.4."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest
from tests.network.flood_engine import FloodEngine
from tests.network.quick import QUICK, fresh, within

from ordercast import SAFE, Group, JoinRefused, Message, Node, UsageError
from ordercast.runtime.addresses import group_address
from ordercast.view import Address

ORDERERS = ["sequencer", "token", "timestamp"]
LARGE = 40_000
IP_RECVTTL = 12  # linux/in.h
SIZES = [None, 1_400]  # of datagrams: a block in one, or in a train


async def payloads(group: Group, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for event in group:
        if isinstance(event, Message):
            found.append(event.payload)
            if len(found) == count:
                break
    return found


async def until_members(group: Group, count: int) -> None:
    while len(group.members) != count:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("datagram", SIZES)
@pytest.mark.parametrize("orderer", ORDERERS)
@within(60)
async def test_a_node_without_multicast_takes_part_in_a_group_of_others_with_it(
    orderer: str, datagram: int | None
) -> None:
    name = fresh()
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(Node("a", timing=QUICK, datagram=datagram))
        b = await stack.enter_async_context(Node("b", timing=QUICK, datagram=datagram))
        peers = [f"{a.address[0]}:{a.address[1]}"]
        c = await stack.enter_async_context(Node("c", timing=QUICK, multicast=False, peers=peers))
        groups = [await node.join(name, orderer=orderer) for node in (a, b, c)]
        for group in groups:
            await until_members(group, 3)
        assert {member.name: member.has_multicast for member in groups[0].members} == {"a": True, "b": True, "c": False}
        sent = [[b"%d %d" % (index, number) for number in range(50)] for index in range(3)]

        async def talk(index: int) -> None:
            for number, text in enumerate(sent[index]):
                await groups[index].send(text.ljust(LARGE if number % 10 == 0 else 100), confirm=number % 2 == 0)

        talking = asyncio.gather(*(talk(index) for index in range(3)))
        got = await asyncio.gather(*(payloads(group, 150) for group in groups))
        await talking
        assert got[0] == got[1] == got[2]
        assert sorted(text.rstrip() for text in got[0]) == sorted(text for texts in sent for text in texts)
        forwarded = [group.stats.get("forwarded", 0) for group in groups]
        assert sum(forwarded[:2]) > 0
        assert forwarded[2] == 0
        assert [node.read_drops() for node in (a, b, c)] == [0, 0, 0]


@pytest.mark.parametrize("orderer", ORDERERS)
@within(60)
async def test_a_group_goes_on_when_who_forwarded_crashes(orderer: str) -> None:
    name = fresh()
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(Node("a", timing=QUICK))
        b = await stack.enter_async_context(Node("b", timing=QUICK))
        peers = [a.address, b.address]
        c = await stack.enter_async_context(Node("c", timing=QUICK, multicast=False, peers=peers))
        groups = [await node.join(name, orderer=orderer) for node in (a, b, c)]
        for group in groups:
            await until_members(group, 3)
        # Too large for the sequencer to send it on: it is multicast by its sender, so forwarded.
        await groups[2].send(bytes(LARGE), SAFE, confirm=True)
        victim = max(range(2), key=lambda index: groups[index].stats.get("forwarded", 0))
        (a, b)[victim].abort()
        for _ in range(10):
            await groups[2].send(bytes(LARGE), SAFE, confirm=True)
        other = groups[1 - victim]
        await until_members(other, 2)
        assert await payloads(other, 11) == [bytes(LARGE)] * 11


@within(60)
async def test_a_multicast_goes_to_the_group_and_once_to_each_copy() -> None:
    FloodEngine.made = []
    async with (
        Node("a", engines=FloodEngine) as a,
        Node("b", engines=FloodEngine) as b,
        Node("c", engines=FloodEngine, multicast=False) as c,
    ):
        FloodEngine.copies_list = [c.address]
        name = fresh()
        groups = [await node.join(name) for node in (a, b, c)]
        await groups[0].send(b"x")
        assert [await payloads(group, 1) for group in groups] == [[b"x"]] * 3
        await asyncio.sleep(0.05)
        assert groups[2].stats["received"] == 1
        assert groups[1].stats["messages_delivered"] == 1
    FloodEngine.made = []
    FloodEngine.copies_list = []


@contextmanager
def listener(heard: str | Address) -> Iterator[socket.socket]:
    """Hears the multicasts of a group, or of an address, with their TTL."""
    address = group_address(heard) if isinstance(heard, str) else heard
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        membership = socket.inet_aton(address[0]) + socket.inet_aton("127.0.0.1")
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        sock.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        sock.setblocking(False)
        yield sock


def ttls(sock: socket.socket) -> set[int]:
    """Of what has come so far."""
    found: set[int] = set()
    while True:
        try:
            _, ancillary, _, _ = sock.recvmsg(65_536, 64)
        except BlockingIOError:
            return found
        found.update(int.from_bytes(data[:4], "little") for _, kind, data in ancillary if kind == socket.IP_TTL)


@pytest.mark.skipif(sys.platform != "linux", reason="the option that tells the TTL has another number elsewhere")
@within(60)
async def test_multicasts_go_as_far_as_any_member_asked_for() -> None:
    one, two = fresh(), fresh()
    with listener(one) as ears, listener(two) as others:
        async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b:
            group = await a.join(one)
            other = await a.join(two)
            await group.send(b"x", confirm=True)
            assert ttls(ears) == {0}  # loopback
            wide = await b.join(one, ttl=7)
            await until_members(group, 2)
            await group.send(b"x", confirm=True)
            ttls(ears)
            await asyncio.gather(group.send(b"x", confirm=True), other.send(b"y", confirm=True))
            await wide.send(bytes(LARGE), confirm=True)
            assert ttls(ears) == {7}
            assert ttls(others) <= {0}
            await wide.leave()
            await until_members(group, 1)
            await asyncio.sleep(0.1)
            ttls(ears)
            back = await b.join(one)
            await until_members(group, 2)
            await asyncio.sleep(0.2)
            ttls(ears)
            await back.send(b"x", confirm=True)
            await group.send(b"x", confirm=True)
            assert ttls(ears) <= {0}


@within(60)
async def test_a_group_is_joined_through_a_member() -> None:
    """Section 3.3: explicitly, by an address, without multicast and without peers."""
    name = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK, multicast=False) as b:
        group = await a.join(name)
        joined = await b.join(name, contact=f"localhost:{a.address[1]}")
        await until_members(group, 2)
        await joined.send(b"x", confirm=True)
        assert await payloads(group, 1) == [b"x"]
        async with Node("s", timing=QUICK) as stranger, Node("d", timing=QUICK) as d:
            with pytest.raises(JoinRefused, match="does not answer as a member"):
                await d.join(name, contact=stranger.address)
            with pytest.raises(UsageError, match="host:port"):
                await d.join(name, contact="nonsense")
            with pytest.raises(UsageError, match="ttl"):
                await d.join(name, ttl=256)
            assert d.groups == []


@pytest.mark.parametrize("orderer", ORDERERS)
@within(60)
async def test_two_groups_on_one_address_and_port_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch, orderer: str
) -> None:
    """Section 3.1: in the case of collisions to the same address and port, ids filter the packets at each process."""
    same = group_address(fresh())
    monkeypatch.setattr("ordercast.runtime.listening.group_address", lambda _: same)
    one, two = fresh(), fresh()
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(name, timing=QUICK)) for name in "abcd"]
        groups = [await node.join(one if node in nodes[:2] else two, orderer=orderer) for node in nodes]
        for group in groups:
            await until_members(group, 2)
        for group, text in zip(groups, (b"1", b"1", b"2", b"2"), strict=True):
            for _ in range(5):
                await group.send(text * LARGE, confirm=True)
        for group, text in zip(groups, (b"1", b"1", b"2", b"2"), strict=True):
            assert await payloads(group, 10) == [text * LARGE] * 10
            assert len(group.members) == 2
        assert all(node.stats["unknown_group"] > 0 for node in nodes)
        assert all(group.stats.get("malformed", 0) == 0 for group in groups)


@within(60)
async def test_an_authority_assigns_addresses_to_groups() -> None:
    """Section 3.1: the mapping "may either be handled by an external multicast address allocation authority"."""
    one, two = fresh(), fresh()
    assigned = {one: group_address(fresh()), two: group_address(fresh())}
    asked: list[str] = []

    def authority(name: str) -> tuple[str, int]:
        asked.append(name)
        return assigned[name]

    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(Node("a", timing=QUICK, addresses=authority))
        b = await stack.enter_async_context(Node("b", timing=QUICK, addresses=authority))
        c = await stack.enter_async_context(Node("c", timing=QUICK))  # it hashes the name, and finds nobody
        groups = [await node.join(one) for node in (a, b)]
        for group in groups:
            await until_members(group, 2)
        assert set(asked) == {one}
        with pytest.raises(JoinRefused, match="there is no group"):
            await c.join(one, create=False)
        caller = await stack.enter_async_context(Node("d", timing=QUICK, addresses=authority))
        receiving = asyncio.create_task(payloads(groups[0], 1))
        assert await caller.call(one, b"called") is None
        assert await receiving == [b"called"]


@within(60)
async def test_what_an_authority_gives_is_checked() -> None:
    with pytest.raises(UsageError, match="addresses is a function"):
        Node("a", addresses={"g": ("239.1.1.1", 5)})  # type: ignore[arg-type]
    for wrong in (None, "239.1.1.1:5", ("10.0.0.1", 61_000), ("239.1.1.1", 0), ("239.1.1.1", "61000")):
        async with Node("a", timing=QUICK, addresses=lambda _, answer=wrong: answer) as node:  # type: ignore[misc]
            with pytest.raises(UsageError, match="a group has a multicast address and a port"):
                await node.join(fresh())
            with pytest.raises(UsageError, match="a group has a multicast address and a port"):
                await node.call(fresh(), b"x")
            assert node.groups == []


@within(60)
async def test_a_group_is_joined_by_the_address_of_a_member_alone() -> None:
    """Section 3.3: "to join a group based on a process ID, rather than a name"."""
    name = fresh()
    async with Node("a", timing=QUICK) as a, Node("b", timing=QUICK) as b, Node("c", timing=QUICK) as c:
        await a.join(name)
        assert await b.groups_at(a.address) == [name]
        group = await b.join(contact=f"{a.address[0]}:{a.address[1]}")
        assert group.name == name
        await until_members(group, 2)
        assert await a.groups_at(c.address) == []
        with pytest.raises(JoinRefused, match="is in no group"):
            await a.join(contact=c.address)
