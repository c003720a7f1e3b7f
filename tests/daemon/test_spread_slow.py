"""Clients that do not receive, and clients that send nonsense: the daemon and the others go on. Point 13, section 8."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.daemon.spread_bytes import AGREED, NULL_CHOICE, hello, little
from tests.daemon.spread_house import RawClient, SpreadHouse, membership
from tests.network.quick import within

from ordercast.daemon.spread.settings import SpreadSettings

LIMIT_S = 120.0
BURST_BYTES = 400_000
"""The sender itself reads between two bursts, which its socket and reader hold."""


async def deaf(house: SpreadHouse, name: bytes = b"deaf") -> RawClient:
    """A client that is in the group and does not read any more."""
    client = await house.connect(name)
    client.join(b"g")
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return client


async def flood(sender: RawClient, body: bytes, most: int) -> tuple[int, bytes]:
    """Send until somebody is disconnected: how many messages it took, and who it was."""
    burst = BURST_BYTES // (len(body) + 80)
    for sent in range(0, most, burst):
        for _ in range(burst):
            sender.cast([b"g"], body)
        await sender.writer.drain()
        for _ in range(burst):
            frame = await sender.frame()
            if frame.type == 0x1400:
                return sent, membership(frame)[2][0][0]
    raise AssertionError(f"nobody was disconnected by {most} messages")


@within(LIMIT_S)
async def test_a_client_that_does_not_read_is_kicked_at_a_thousand_messages() -> None:
    """Point 13: the others see a disconnect, and lose nothing."""
    async with SpreadHouse(settings=SpreadSettings(grace_s=0)) as house:
        alice = await house.connect(b"alice")
        await alice.enter(b"g")
        client = await deaf(house)
        await alice.members(2)
        sent, gone = await flood(alice, b"x" * 2_000, 100_000)
        assert gone == client.me
        assert sent >= 1_000 - BURST_BYTES // 2_000  # the socket's buffers take some more
        assert house.daemon.listener.desk.counters["kicked"] == 1


@within(LIMIT_S)
async def test_large_messages_are_bounded_by_their_bytes() -> None:
    settings = SpreadSettings(max_bytes=1 << 20, grace_s=60)
    async with SpreadHouse(settings=settings) as house:
        alice = await house.connect(b"alice")
        await alice.enter(b"g")
        client = await deaf(house)
        await alice.members(2)
        _, gone = await flood(alice, bytes(50_000), 2_000)
        assert gone == client.me


@within(LIMIT_S)
async def test_when_all_hold_too_much_the_one_goes_that_holds_most() -> None:
    settings = SpreadSettings(total_bytes=4 << 20, grace_s=60)
    async with SpreadHouse(settings=settings) as house:
        alice = await house.connect(b"alice")
        await alice.enter(b"g")
        clients = [await deaf(house, b"deaf%d" % number) for number in range(3)]
        await alice.members(4)
        _, gone = await flood(alice, bytes(20_000), 20_000)
        assert gone in [client.me for client in clients]
        assert sum(client.waiting_bytes for client in house.daemon.listener.desk.visitors) <= 6 << 20


@within(LIMIT_S)
async def test_a_burst_does_not_kick_a_client_that_reads() -> None:
    """A block holds more messages than may wait: there is time to read them."""
    async with SpreadHouse(settings=SpreadSettings(max_messages=10, grace_s=30)) as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        await alice.enter(b"g")
        await bob.enter(b"g")
        await alice.frame()
        count = 20_000
        alice.send(b"".join([little(AGREED, alice.me, [b"g"], b"%d" % number) for number in range(count)]))

        async def read(client: RawClient) -> list[bytes]:
            return [frame.body for frame in await client.frames(count)]

        found = await asyncio.gather(read(alice), read(bob))
        assert list(found) == [[b"%d" % number for number in range(count)]] * 2


@within(LIMIT_S)
async def test_random_bytes_on_many_connections_disturb_nobody() -> None:
    chance = random.Random(4803)
    async with SpreadHouse() as house:
        alice, bob = await house.connect(b"alice"), await house.connect(b"bob")
        await alice.enter(b"g")
        await bob.enter(b"g")
        await alice.frame()
        for number in range(150):
            client = await house.dial()
            if number % 3:
                client.send(hello(b"c%d" % number) + NULL_CHOICE)
            client.send(chance.randbytes(chance.randrange(1, 3_000)))
            if number % 2:
                client.reset()
            elif number % 3:
                await client.closed()
        alice.cast([b"g"], b"still here")
        assert (await bob.frame()).body == b"still here"


@pytest.mark.parametrize("size", range(12))
@within(LIMIT_S)
async def test_names_of_every_length_are_taken_or_refused(size: int) -> None:
    async with SpreadHouse() as house:
        client = await house.dial()
        client.send(hello(b"n" * size) + NULL_CHOICE)
        answer = await client.read(1)
        assert answer == (b"\xfb" if size > 10 else b"\x05")


@within(LIMIT_S)
async def test_hundreds_of_clients_connect_at_once_and_leave() -> None:
    async with SpreadHouse() as house:
        desk = house.daemon.listener.desk
        clients = await asyncio.gather(*[house.connect(b"c%d" % number, flags=0) for number in range(300)])
        assert len(house.daemon.hub.seats) == 300
        for client in clients:
            client.join(b"g")
        clients[0].cast([b"g"], b"to all")
        clients[0].cast([clients[0].me], b"end")
        assert (await clients[0].frame()).body == b"to all"
        for client in clients:
            client.drop()
        while desk.visitors:
            await asyncio.sleep(0.01)
        assert len(house.daemon.hub.seats) == 0
