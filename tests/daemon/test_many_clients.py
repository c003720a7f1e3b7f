"""Two thousand connections, names of every length, clients that never read: the daemon lives, its memory is bounded."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.daemon.houses import DaemonHouse
from tests.daemon.test_hostile_clients import RawClient
from tests.network.quick import within

from ordercast import JoinRefused, UsageError
from ordercast.daemon.seat import KIB, MIB, Limits
from ordercast.wire.client_frames import ClientHello, encode_hello, encode_join
from ordercast.wire.daemon_frames import decode_refused
from ordercast.wire.endings import SessionEnd
from ordercast.wire.frames import VERSION, FrameKind
from ordercast.wire.labels import MAX_LABEL

CONNECTIONS = 2_000
AT_ONCE = 100


@pytest.fixture
def many_files() -> Iterator[None]:
    """Two sockets for each connection: client and daemon are one process here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + 200
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"a process may have {hard} files, and {wanted} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


@pytest.mark.usefixtures("many_files")
@within(60)
async def test_two_thousand_connections_come_and_go(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house:
        async with house.client("alive") as alive:
            group = await alive.join("prices")
            before = resident_bytes()
            clients: list[RawClient] = []
            for first in range(0, CONNECTIONS, AT_ONCE):
                names = [f"c-{number}" for number in range(first, first + AT_ONCE)]
                clients += await asyncio.gather(*(RawClient.greeted(house, name, 64 * KIB) for name in names))
            assert len(house.hub.seats) == CONNECTIONS + 1
            # Both ends are here; the daemon's alone is measured by benches/daemon.py --idle.
            assert (resident_bytes() - before) / CONNECTIONS < 100 * KIB
            await group.send(b"still here", confirm=True)
            status = await alive.ask("status")
            assert (status["sessions"], status["held_bytes"]) == (CONNECTIONS + 1, 0)
            for client in clients:
                client.close()
            while len(house.hub.seats) > 1 or house.hub.seats.is_closing:
                await asyncio.sleep(0.01)
            assert house.hub.seats.endings[SessionEnd.LOST] == CONNECTIONS
            await group.send(b"and after", confirm=True)
        assert house.hub.error is None


@pytest.mark.usefixtures("many_files")
@within(60)
async def test_connections_beyond_the_bound_are_refused_and_silent_ones_are_closed(tmp_path: Path) -> None:
    limits = Limits(max_sessions=300)
    async with DaemonHouse(tmp_path, limits=limits) as house:
        sessions = await asyncio.gather(*(RawClient.greeted(house, f"c-{number}") for number in range(300)))
        late = await RawClient.open(house)
        late.send(encode_hello(ClientHello(VERSION, "late", b"", 1_000)))
        code, text = decode_refused(await late.until(FrameKind.REFUSED))
        assert (code, "takes no more" in text) == (3, True)
        silent: list[RawClient] = []
        for _ in range(400):  # they say nothing: a few more than sessions may be open, and the others are closed
            with suppress(ConnectionError):
                silent.append(await RawClient.open(house))
        assert len(house.listener) <= 300 + 256
        sessions[0].close()
        while len(house.hub.seats) == 300 or house.hub.seats.is_closing:
            await asyncio.sleep(0.01)
        for each in silent:
            each.close()
        while len(house.listener) > 299:
            await asyncio.sleep(0.01)
        async with house.client("next") as after:
            assert (await after.ask("status"))["sessions"] == 300
        for each in (late, *sessions):
            each.close()


@within(60)
async def test_names_of_every_length_are_taken_or_refused(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house:
        for length in range(1, MAX_LABEL + 1):
            client = await RawClient.greeted(house, "n" * length)
            client.send(encode_join([(1, "g" * min(255, length))]))
            await client.until(FrameKind.VIEW)
            client.close()
        for length in (MAX_LABEL + 1, MAX_LABEL + 2, 255, 256, 1_000, 60_000):
            raw = await RawClient.open(house)
            raw.send(encode_hello(ClientHello(VERSION, "n" * length, b"", 1_000)))
            why, text = await raw.closed()
            assert (why, bool(text)) == (SessionEnd.PROTOCOL, True)
            with pytest.raises(UsageError, match="name"):
                await house.connect("n" * length)
        async with house.client() as unnamed:
            assert str(unnamed.member)
            for length in (1, 2, 100, 254, 255):
                group = await unnamed.join("g" * length)
                await group.leave()
            for wrong in ("", "g" * 256, "ü" * 128, "g" * 100_000):
                with pytest.raises(UsageError):
                    await unnamed.join(wrong)
        async with house.client("twice"):
            with pytest.raises(JoinRefused):
                await house.connect("twice")
        assert house.hub.error is None


@within(60)
async def test_twenty_clients_that_never_read_take_no_more_than_the_limits(tmp_path: Path) -> None:
    limits = Limits(session_bytes=2 * MIB, total_bytes=6 * MIB, patience_ns=0)
    async with DaemonHouse(tmp_path, limits=limits) as house, house.client("fast") as fast:
        sleepers = [await RawClient.greeted(house, f"s-{number}", window=16 * MIB) for number in range(20)]
        for sleeper in sleepers:
            sleeper.send(encode_join([(1, "prices")]))
        group = await fast.join("prices")
        while len(group.members) < 21:
            await group.receive()
        most = 0
        while len(house.hub.seats) > 1:
            await group.send_many([bytes(1_000)] * 500)
            while group.has_events:
                await group.receive()
            most = max(most, house.hub.seats.held_bytes)
            await asyncio.sleep(0)
        # What a pass brings comes before the limit is looked at.
        assert most <= limits.total_bytes + 2 * MIB
        assert house.hub.seats.endings[SessionEnd.SLOW] == 20
        await group.flush()
        status = await fast.ask("status")
        assert status["ended"] == {"slow": 20}
        assert status["held_bytes"] <= limits.session_bytes
        for sleeper in sleepers:
            sleeper.close()
