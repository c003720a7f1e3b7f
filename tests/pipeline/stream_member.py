"""A member process for tests of streams: `python stream_member.py NAME GROUP COMMAND...`; it says what it got in lines.

send FIRST STOP PER_SECOND   sends numbers as messages, then leaves
follow                       receives until its input ends, each batch of a transaction as one JSON line
"""

from __future__ import annotations

import asyncio
import json
import sys

import ordercast
from ordercast import Timing
from ordercast.config import MS

# A dead publisher is found soon, and a busy machine is not taken for one.
TIMING = Timing(
    heartbeat_busy_ns=50 * MS, suspect_busy_ns=1_500 * MS, heartbeat_rest_ns=100 * MS, suspect_rest_ns=2_000 * MS
)
CHUNK = 50


async def send(node: ordercast.Node, group: ordercast.Group, first: int, stop: int, per_second: int) -> None:
    receiving = asyncio.create_task(receive(group))
    for start in range(first, stop, CHUNK):
        numbers = range(start, min(start + CHUNK, stop))
        await group.send_many([f"{node.name} {number}".encode() for number in numbers], type=1)
        await asyncio.sleep(len(numbers) / per_second)
    await group.flush()
    receiving.cancel()


async def receive(group: ordercast.Group) -> None:
    async for _ in group.batches():
        pass


async def follow(group: ordercast.Group) -> None:
    async for item in ordercast.transactions(group):
        if isinstance(item, ordercast.Transaction):
            rows = [row.decode() for row in item.rows]
            found = {"query": item.query, "batch": item.batch, "rows": rows, "types": list(item.types)}
            print(json.dumps(found), flush=True)
        elif isinstance(item, ordercast.Missed):
            print(json.dumps({"missed": item.batch}), flush=True)
        elif isinstance(item, ordercast.View):
            print(json.dumps({"members": len(item.members)}), flush=True)
        elif isinstance(item, ordercast.Batch):
            print(json.dumps({"stray": len(item)}), flush=True)


async def main(name: str, group_name: str, command: str, *arguments: str) -> None:
    async with ordercast.Node(name, timing=TIMING) as node:
        group = await node.join(group_name)
        if command == "send":
            first, stop, per_second = map(int, arguments)
            await send(node, group, first, stop, per_second)
        else:
            following = asyncio.create_task(follow(group))
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            await reader.read()
            following.cancel()


if __name__ == "__main__":
    ordercast.run(main(*sys.argv[1:]))
