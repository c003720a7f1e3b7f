"""Clients of Spread at daemons with other orderers than `sites`."""

from __future__ import annotations

import asyncio

import pytest
from tests.daemon.spread_house import Frame, RawClient, listen, membership
from tests.network.quick import QUICK, fresh, within

from ordercast.daemon.hub import Hub
from ordercast.daemon.spread.listener import SpreadListener
from ordercast.runtime.node import SessionNode

LIMIT_S = 60.0
LITTLE = bytes.fromhex("80000080")


@pytest.mark.parametrize("orderer", ["token", "timestamp", "sequencer"])
@within(LIMIT_S)
async def test_every_orderer_serves_clients_of_spread(orderer: str) -> None:
    """Services that an orderer does not give are made stronger, and shown as they were."""
    async with SessionNode(f"d-{fresh()}", timing=QUICK) as node:
        floor = fresh()
        await node.attach(floor, orderer=orderer)
        hub = Hub(node, floor)
        listener = SpreadListener(hub.seats)
        port = await listen(listener)
        alice = RawClient(*await asyncio.open_connection("127.0.0.1", port))
        bob = RawClient(*await asyncio.open_connection("127.0.0.1", port))
        await alice.shake(b"alice")
        await bob.shake(b"bob")
        await alice.enter(b"g")
        await bob.enter(b"g")
        assert (await alice.frame()).type == 0x1100
        for bit in (0x01, 0x02, 0x04, 0x08, 0x10, 0x20):
            alice.cast([b"g"], b"%d" % bit, bit)
            expected = Frame(bit, alice.me, (b"g",), LITTLE, b"%d" % bit)
            assert [await client.frame() for client in (alice, bob)] == [expected] * 2
        bob.disconnect()
        gone = await alice.frame()
        assert (gone.type, membership(gone)[2]) == (0x1400, [[bob.me]])
        listener.close()
        hub.seats.stop("the daemon stops")
        for client in (alice, bob):
            client.drop()
        assert listener.desk.counters["passed_over"] == 0
