"""A run of Spread sessions with a partition, a merge, a slow client and disconnects, judged by its trace."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.daemon.spread_bytes import AGREED, SAFE, SELF_DISCARD, big
from tests.daemon.spread_house import RawClient, SpreadHouse
from tests.network.quick import within

from ordercast.daemon.spread.settings import SpreadSettings
from ordercast.sim.checkers import check_all
from ordercast.sim.checkers.verdict import Verdict
from ordercast.trace.convert import convert
from ordercast.trace.run import RunInfo, parameters_of_sites, software_version
from ordercast.trace.store import read_trace

LIMIT_S = 120.0
ROUNDS = 30


async def chatter(clients: list[RawClient], tag: bytes) -> None:
    """Messages of every kind to one and several groups."""
    for number in range(ROUNDS):
        for client in clients:
            body = b"%b %b %d" % (tag, client.me, number)
            client.cast([b"g"], body, SAFE if number % 9 == 0 else AGREED)
            client.cast([b"g", b"h"], body, AGREED | SELF_DISCARD)
            client.send(big(AGREED, client.me, [b"h", b"g", b"h"], body, 7))
            await client.writer.drain()
    for client in clients:
        client.cast([client.me], tag)
    for client in clients:
        while (await client.frame()).body != tag:
            pass


@within(LIMIT_S)
async def run_sessions(trace: Path) -> None:
    settings = SpreadSettings(max_messages=50, grace_s=0)
    async with SpreadHouse("d1", "d2", trace=trace, settings=settings) as house:
        clients = [await house.connect(b"c%d" % number, f"d{number % 2 + 1}") for number in range(4)]
        for client in clients:
            client.join(b"g")
        clients[0].join(b"h")
        for client in clients:
            await client.members(4)
        await chatter(clients, b"together")
        deaf = await house.connect(b"deaf", "d1")
        deaf.join(b"g")
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        house.cut(["d1"], ["d2"])
        for client in clients:
            await client.until(0x1800)
        await asyncio.gather(chatter(clients[::2], b"left part"), chatter(clients[1::2], b"right part"))
        house.cut()
        for client in clients:
            await client.until(0x1800)
        clients[3].reset()
        await chatter(clients[:3], b"merged")
        clients[2].disconnect()
        await chatter(clients[:2], b"the end")
        for client in clients[:2]:
            client.disconnect()
        deaf.drop()
        for daemon in house.daemons.values():
            while daemon.hub.seats.all or daemon.hub.seats.is_closing:
                await asyncio.sleep(0.01)
            daemon.listener.close()
        await asyncio.gather(*[daemon.node.close() for daemon in house.daemons.values()])


def judge(trace: Path) -> Verdict:
    RunInfo(
        run_id="0" * 16,
        started="2026-01-01T00:00:00.000+00:00",
        source="network",
        clock="one-host",
        seed=None,
        orderer="sites",
        services=("AGREED", "SAFE"),
        parameters=parameters_of_sites({"d1": "site0", "d2": "site1"}, {}),
        software_version=software_version(),
    ).write(trace)
    convert(trace)
    info, rows = read_trace(trace)
    return check_all(rows, clock=info.clock, partitions=info.partitions)


def test_the_trace_of_spread_sessions_breaks_no_promise(tmp_path: Path) -> None:
    run_sessions(tmp_path)
    verdict = judge(tmp_path)
    assert verdict.held, "\n".join(verdict.summary())
    assert verdict.rows > 1_000
    for name in ("total_order", "fifo", "virtual_synchrony", "resilience"):
        assert verdict.properties[name].checked > 0, name
