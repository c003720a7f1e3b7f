"""`ordercast daemon spread.conf` as processes, with clients of Spread: kill -9 of a daemon, and a stop in order."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.daemon.spread_bytes import AGREED
from tests.daemon.spread_house import LOWEST_PORT, RawClient, membership
from tests.network.quick import within

from ordercast.cli.local_sites import free_ports

LIMIT_S = 120.0


async def start(conf: Path, name: str) -> asyncio.subprocess.Process:
    """A daemon that is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "ordercast.cli.main", "daemon", str(conf), "--name", name),
        *("--unix", "none", "--listen", "none", "--spread-dir", "none"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert b"ready" in await process.stdout.readline()
    return process


@within(LIMIT_S)
async def test_three_daemons_as_processes_serve_clients_until_they_are_killed(tmp_path: Path) -> None:
    port = LOWEST_PORT + free_ports(1)[0] % 15_000
    conf = tmp_path / "spread.conf"
    hosts = {"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3"}
    lines = [f"    {name} {host}" for name, host in hosts.items()]
    conf.write_text("\n".join([f"Spread_Segment 127.0.0.255:{port} {{", *lines, "}"]))
    processes = {name: await start(conf, name) for name in hosts}
    clients: list[RawClient] = []
    try:
        for number in range(6):
            name = "abc"[number % 3]
            client = RawClient(*await asyncio.open_connection(hosts[name], port))
            await client.shake(b"c%d" % number)
            client.join(b"g")
            clients.append(client)
        frames = [await client.members(6) for client in clients]
        assert {frame.groups for frame in frames} == {(b"#c0#a", b"#c3#a", b"#c1#b", b"#c4#b", b"#c2#c", b"#c5#c")}
        assert len({membership(frame)[0] for frame in frames}) == 1
        for number in range(20):
            for client in clients:
                client.cast([b"g"], b"%b %d" % (client.me, number))
        orders = [await client.frames(120) for client in clients]
        assert all(order == orders[0] for order in orders)
        assert {frame.type for frame in orders[0]} == {AGREED}

        processes["c"].send_signal(signal.SIGKILL)
        await processes["c"].wait()
        for client in clients[2::3]:
            assert await client.closed() == b""
        rest = [client for number, client in enumerate(clients) if number % 3 != 2]
        for client in rest:
            signalled, view = (await client.until(0x1800))[-2:]
            assert (signalled.type, signalled.body) == (0x2000, membership(frames[0])[0])
            assert view.groups == (b"#c0#a", b"#c3#a", b"#c1#b", b"#c4#b")
            assert membership(view)[2] == [list(view.groups)]

        processes["c"] = await start(conf, "c")
        back = RawClient(*await asyncio.open_connection(hosts["c"], port))
        clients.append(back)
        await back.shake(b"c2")
        back.join(b"g")
        assert (await rest[0].members(5)).groups == (b"#c0#a", b"#c3#a", b"#c1#b", b"#c4#b", b"#c2#c")

        processes["b"].send_signal(signal.SIGTERM)
        assert await processes["b"].wait() == 0
        gone = await rest[0].members(3)
        assert gone.groups == (b"#c0#a", b"#c3#a", b"#c2#c")
    finally:
        for client in clients:
            client.drop()
        for process in processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
