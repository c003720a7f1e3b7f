"""A member with a folder, as a process of its own: `python -m tests.network.restarting NAME FOLDER GROUP ORDERER`.

It sends a message every 50 ms, and writes a line for each view, for each message that somebody sent, and for what may
be lost.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.network.quick import QUICK

from ordercast import Message, Node, Uncertain, View, run

EVERY_S = 0.05


async def live(name: str, folder: Path, group_name: str, orderer: str) -> None:
    node = Node(name, data_dir=folder, timing=QUICK)
    group = await node.join(group_name, orderer=orderer)

    async def send() -> None:
        while True:
            await group.send(name.encode())
            await asyncio.sleep(EVERY_S)

    sending = asyncio.create_task(send())
    async for event in group:
        if isinstance(event, View):
            names = ",".join(sorted(member.name for member in event.members))
            print("view", event.reason.name, names, flush=True)
        elif isinstance(event, Message):
            print("message", bytes(event.payload).decode(), flush=True)
        elif isinstance(event, Uncertain):
            print("uncertain", event.text, flush=True)
    await sending


if __name__ == "__main__":
    run(live(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
