"""Regions on real sockets with the membership service that the nodes bring along."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from random import SystemRandom

import pytest
from tests.network.test_node_mixed import listener, ttls
from tests.sim.regions_program import Reader, check_seen, three_members

from ordercast import BlockingNode, Message, Node
from ordercast.errors import UsageError
from ordercast.runtime.addresses import group_address
from ordercast.view import Address

TIMEOUT_S = 60.0


def of_this_run() -> Callable[[str], Address]:
    """Multicast addresses that no other run on this machine has: otherwise its service would be found."""
    salt = SystemRandom().getrandbits(64)
    return lambda name: group_address(f"{name} {salt}")


def test_a_member_dies_and_comes_back() -> None:
    addresses = of_this_run()

    def make(name: str) -> Node:
        return Node(name, gms="embedded", addresses=addresses)

    async def program() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            check_seen(await three_members(make))

    asyncio.run(program())


def test_nodes_are_told_where_the_service_is() -> None:
    """Without multicast, and without a replica of its own."""

    async def program() -> None:
        async with asyncio.timeout(TIMEOUT_S), Node("desk", gms="embedded", multicast=False) as desk:
            where = [desk.address]
            async with Node("a", gms=where, multicast=False) as a, Node("b", gms=where, multicast=False) as b:
                await asyncio.gather(
                    a.join_many(["x", "y"], orderer="regions"), b.join_many(["y", "z"], orderer="regions")
                )
                reader = Reader(b.group("y"))
                await reader.members_are(["a", "b"])
                await a.send(b"1", groups=["y"], confirm=True)
                await a.send(b"2", groups=["y", "z"], confirm=True)
                await reader.has_all_of([a], 2)
                assert list(reader.seen.values()) == [[1, 2]]

    asyncio.run(program())


def test_a_blocking_node_brings_the_service_along() -> None:
    with BlockingNode("a", gms="embedded", addresses=of_this_run()) as node:
        group = node.join("prices", orderer="regions", timeout=TIMEOUT_S)
        group.send(b"1", confirm=True)
        assert next(event.payload for event in group if isinstance(event, Message)) == b"1"


def test_names_of_regions_are_not_for_groups() -> None:
    async def program() -> None:
        async with Node("a", addresses=of_this_run()) as node:
            for name in ("regions", "region/1"):
                with pytest.raises(UsageError, match="regions are called"):
                    await node.join(name)
                with pytest.raises(UsageError, match="regions are called"):
                    await node.join(name, orderer="regions")

    asyncio.run(program())


def test_a_node_that_cannot_find_a_service_is_told_so() -> None:
    async def program() -> None:
        async with Node("a", multicast=False) as node:
            with pytest.raises(UsageError, match="gms"):
                await node.join("prices", orderer="regions")

    asyncio.run(program())


@pytest.mark.skipif(sys.platform != "linux", reason="the option that tells the TTL has another number elsewhere")
def test_multicasts_to_a_region_go_as_far_as_any_member_asked_for() -> None:
    addresses = of_this_run()

    async def program() -> None:
        async with asyncio.timeout(TIMEOUT_S), contextlib.AsyncExitStack() as nodes:
            a, b, c = [
                await nodes.enter_async_context(Node(name, gms="embedded", addresses=addresses)) for name in "abc"
            ]
            await b.attach("regions", ttl=7)
            readers = [Reader(await node.join("x", orderer="regions")) for node in (a, b, c)]
            for reader in readers:
                await reader.members_are(["a", "b", "c"])
            (address,) = a._driver.host.attached.listens()
            with listener(address) as ears:
                for node, reader in zip((a, c), readers[::2], strict=True):
                    await reader.group.send(b"0", confirm=True)
                    assert ttls(ears) == {7}, node

    asyncio.run(program())
