"""Daemons with one client process each, and idle sessions: `python benches/daemon.py [--size N] [--orderer NAME]`.

All clients are in one group; each sends with AGREED as fast as it can and receives what all send. The rate is that of
one receiver: messages of all senders, with every payload opened. One JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from ordercast import Batch, View, connect, run
from ordercast.cli.local_sites import LOOPBACK, free_ports
from ordercast.runtime.addresses import group_address

CHUNK_BYTES = 400_000
LIMIT_S = 60.0


async def client(address: str, clients: int, size: int, count: int) -> dict[str, float]:
    """One client process: its figures."""
    async with await connect(address) as node:
        group = await node.join("bench")
        batches = group.batches()
        async for event in batches:
            if isinstance(event, View) and len(event.members) == clients:
                break
        wanted, got, opened = clients * count, 0, 0
        started, cpu = perf_counter(), process_time()

        async def send() -> None:
            chunk = [bytes(size)] * max(1, CHUNK_BYTES // size)
            left = count
            while left:
                part = chunk[:left]
                await group.send_many(part)
                left -= len(part)

        sender = asyncio.create_task(send())
        async for event in batches:
            if isinstance(event, Batch):
                got += len(event)
                opened += len(event.messages)
            if got >= wanted:
                break
        await sender
        wall = perf_counter() - started
        assert opened == wanted
        return {"per_s": round(wanted / wall), "wall_s": round(wall, 2), "cpu_s": round(process_time() - cpu, 2)}


def configuration(count: int) -> str:
    """One site with so many daemons on loopback."""
    host, port = group_address("ordercast bench of daemons")
    lines = ["[defaults]", 'rate = "10000Mbit"', "", "[[site]]", 'name = "local"', f'multicast = "{host}:{port}"', ""]
    for at, each in enumerate(free_ports(count)):
        lines += ["[[daemon]]", f'name = "d{at}"', 'site = "local"', f'host = "{LOOPBACK}"', f"port = {each}", ""]
    return "\n".join(lines)


def start_daemons(folder: Path, count: int, orderer: str) -> list[subprocess.Popen[str]]:
    """Processes that are ready."""
    file = folder / "sites.toml"
    file.write_text(configuration(count), encoding="utf-8")
    processes = []
    for at in range(count):
        words = [sys.executable, "-m", "ordercast.cli.main", "daemon", "--listen", "none"]
        words += [str(file), "--name", f"d{at}"] if orderer == "sites" else ["--orderer", orderer, "--name", f"d{at}"]
        words += ["--unix", str(folder / f"d{at}.sock"), "--json"]
        log = (folder / f"d{at}.log").open("w", encoding="utf-8")
        processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True))
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline(), "a daemon did not start"
    return processes


def cpu_of(pid: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_of(pid: int) -> int:
    """Bytes that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


def throughput(folder: Path, args: argparse.Namespace, daemons: list[subprocess.Popen[str]]) -> dict[str, Any]:
    before = sum([cpu_of(each.pid) for each in daemons])
    clients = []
    for at in range(args.daemons):
        words = [sys.executable, __file__, "--client", f"unix:{folder / f'd{at}.sock'}", "--daemons", str(args.daemons)]
        words += ["--size", str(args.size), "--messages", str(args.messages)]
        clients.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    try:
        found = [json.loads(each.communicate(timeout=LIMIT_S)[0]) for each in clients]
    finally:
        for each in clients:
            each.kill()
    return {
        "orderer": args.orderer,
        "daemons": args.daemons,
        "size": args.size,
        "messages_each": args.messages,
        "per_receiver_per_s": min([each["per_s"] for each in found]),
        "client_cpu_s": round(sum([each["cpu_s"] for each in found]), 2),
        "daemon_cpu_s": round(sum([cpu_of(each.pid) for each in daemons]) - before, 2),
        "wall_s": max([each["wall_s"] for each in found]),
    }


async def idle(address: str, pid: int, count: int, seconds: float) -> dict[str, Any]:
    """What idle sessions cost the daemon."""
    before = memory_of(pid)
    nodes = [await connect(address) for _ in range(count)]
    taken = memory_of(pid) - before
    cpu = cpu_of(pid)
    await asyncio.sleep(seconds)
    used = cpu_of(pid) - cpu
    for node in nodes:
        node.abort()
    return {
        "sessions": count,
        "bytes_each": taken // count,
        "core_share": round(used / seconds, 4),
        "seconds": seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--daemons", type=int, default=4, help="and as many clients (4)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message (100)")
    parser.add_argument("--messages", type=int, default=300_000, help="that each client sends (300000)")
    parser.add_argument("--orderer", default="sites", help="of the daemons (sites)")
    parser.add_argument("--idle", type=int, default=0, help="measure so many idle sessions instead")
    args = parser.parse_args()
    if args.client is not None:
        print(json.dumps(run(client(args.client, args.daemons, args.size, args.messages))))
        return 0
    with tempfile.TemporaryDirectory(prefix="ordercast-bench-") as name:
        folder = Path(name)
        daemons = start_daemons(folder, 1 if args.idle else args.daemons, args.orderer)
        try:
            if args.idle:
                figures = run(idle(f"unix:{folder / 'd0.sock'}", daemons[0].pid, args.idle, 10.0))
            else:
                figures = throughput(folder, args, daemons)
        finally:
            for each in daemons:
                each.terminate()
            for each in daemons:
                each.wait(timeout=30)
                if each.stdout is not None:
                    each.stdout.close()
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
