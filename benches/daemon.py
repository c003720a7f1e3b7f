"""Daemons with one client process each: `python benches/daemon.py [--size N] [--orderer NAME] [--idle N] [--urgent]`.

All clients are in one group; each sends with AGREED as fast as it can and receives what all send. The rate is that of
one receiver: messages of all senders, with every payload opened. `--idle N` measures idle sessions instead, and
`--urgent` how long messages with a priority take while others saturate the daemons. One JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from struct import Struct
from time import monotonic_ns, perf_counter, process_time
from typing import Any

from daemons import FAST, Daemons, configuration, cpu_of, daemons, memory_of, parser_of, run_clients, throughput, unix

from ordercast import Batch, View, connect, run

CHUNK_BYTES = 400_000
BULK_MESSAGES = 20  # of one call
URGENT = 10
PAUSE_S = 0.01  # between two messages of those who send little
STAMP = Struct("<Bq")  # who sends it, and when
KINDS = ("normal", "little", "urgent")


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


async def stamped(address: str, kind: str, size: int, seconds: float) -> dict[str, float]:
    """One process of `--urgent`: it sends messages with the time in them, or receives them and has the figures.

    Those who send little do so from outside the group: one with a priority and one without.
    """
    async with await connect(address) as node:
        stop = perf_counter() + seconds
        if kind == "receiver":
            return await received(node, stop)
        number, count = KINDS.index(kind), 0
        if kind != "normal":
            priority = URGENT if kind == "urgent" else 0
            while perf_counter() < stop:
                payload = STAMP.pack(number, monotonic_ns()).ljust(size, b".")
                await node.send(payload, groups=["bench"], priority=priority)
                count += 1
                await asyncio.sleep(PAUSE_S)
            return {"sent": count}
        while perf_counter() < stop:
            for _ in range(BULK_MESSAGES):
                await node.send(STAMP.pack(number, monotonic_ns()).ljust(size, b"."), groups=["bench"])
            count += BULK_MESSAGES
        return {"sent": count}


async def received(node: Any, stop: float) -> dict[str, Any]:
    group = await node.join("bench")
    delays: dict[str, list[float]] = {kind: [] for kind in KINDS}
    batches = group.batches()
    while perf_counter() < stop:
        try:
            async with asyncio.timeout(max(0.001, stop - perf_counter())):
                event = await anext(batches)
        except TimeoutError:
            break
        if isinstance(event, Batch):
            now = monotonic_ns()
            for payload in event.messages:
                kind, sent_ns = STAMP.unpack_from(payload)
                delays[KINDS[kind]].append((now - sent_ns) / 1e6)
    return {kind: shown(sorted(found[len(found) // 4 :])) for kind, found in delays.items()}


def shown(delays: list[float]) -> dict[str, float]:
    """Of the delays in milliseconds, without those of the beginning."""
    if not delays:
        return {"messages": 0}
    parts = {"p50_ms": 0.5, "p99_ms": 0.99}
    found = {word: round(delays[int(part * (len(delays) - 1))], 1) for word, part in parts.items()}
    return {"messages": len(delays), **found}


def urgent(args: argparse.Namespace, house: Daemons) -> dict[str, Any]:
    """Normal traffic of some clients of the first daemon fills its queues; the receiver is at the last one."""
    seconds = args.seconds
    where = [(house.address(len(house.processes) - 1), "receiver", seconds + 2)]
    where += [(house.address(0), kind, seconds) for kind in (*["normal"] * args.bulk, "little", "urgent")]
    flags = ["--daemons", str(args.daemons), "--size", str(args.size)]
    words = [["--client", at, "--kind", kind, "--seconds", str(each), *flags] for at, kind, each in where]
    found, *_ = run_clients(__file__, words)
    share = found["urgent"].get("p99_ms", 0) / max(0.001, found["normal"].get("p99_ms", 0))
    return {
        "daemons": args.daemons,
        "sites": args.sites,
        "rate": args.rate,
        "size": args.size,
        "bulk": args.bulk,
        **found,
    } | {"urgent_p99_share": round(share, 3)}


def main() -> int:
    parser = parser_of(__doc__, 300_000)
    parser.add_argument("--orderer", default="sites", help="of the daemons (sites)")
    parser.add_argument("--idle", type=int, default=0, help="measure so many idle sessions instead")
    parser.add_argument("--urgent", action="store_true", help="measure priorities instead; use --size 1000")
    parser.add_argument("--kind", default="", help=argparse.SUPPRESS)
    parser.add_argument("--bulk", type=int, default=2, help="clients of --urgent that send all they can (2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of --urgent (10)")
    parser.add_argument("--sites", type=int, default=1, help="that the daemons are in, in turn (1)")
    parser.add_argument("--rate", default=FAST, help=f"of the links between sites ({FAST})")
    args = parser.parse_args()
    if args.client is not None and args.kind:
        print(json.dumps(run(stamped(args.client, args.kind, args.size, args.seconds))))
        return 0
    if args.client is not None:
        print(json.dumps(run(client(args.client, args.daemons, args.size, args.messages))))
        return 0
    count = 1 if args.idle else args.daemons
    text = configuration("ordercast bench of daemons", count, args.sites, args.rate)
    with daemons(text, [unix(at) for at in range(count)], args.orderer) as house:
        if args.idle:
            figures = run(idle(house.address(0), house.processes[0].pid, args.idle, 10.0))
        elif args.urgent:
            figures = urgent(args, house)
        else:
            figures = {"orderer": args.orderer} | throughput(__file__, args, house, house.address)[0]
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
