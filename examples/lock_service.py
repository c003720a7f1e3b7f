"""A lock service on three nodes for clients that are not in the group. The server that answers crashes; nobody notices.

Runs on loopback: `python examples/lock_service.py`; in the simulator, in virtual time: with `--sim`.
Calls come to all servers in one order, so that all know whose turn it is. The server that holds handler 0 answers.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import ordercast
from ordercast.sim.api import SimNode, simulate

ROUNDS = 5


class Server:
    """Queues of clients by lock, the same at every server: the first in a queue has the lock."""

    def __init__(self, group: ordercast.Group) -> None:
        self.group = group
        self.queues: dict[str, list[str | None]] = {}
        self.owed: list[ordercast.Message] = []

    async def apply(self) -> None:
        async for event in self.group:
            if isinstance(event, ordercast.Request):
                verb, lock = event.payload.decode().split()
                queue = self.queues.setdefault(lock, [])
                queue.append(event.caller) if verb == "acquire" else queue.remove(event.caller)
                await self.answer()

    async def serve(self) -> None:
        async with self.group.handler(0) as requests:  # the other servers wait here until its holder is gone
            async for request in requests:  # calls that a crashed holder left without an answer come again
                self.owed.append(request)
                await self.answer()

    async def answer(self) -> None:
        for request in list(self.owed):
            verb, lock = request.payload.decode().split()
            queue = self.queues.get(lock, [])
            if queue[:1] == [request.caller] if verb == "acquire" else request.caller not in queue:
                self.owed.remove(request)
                await request.reply(b"done")


async def use(node: Any, journal: list[str]) -> None:
    for _ in range(ROUNDS):
        await node.call("locks", b"acquire door", handler=0, again=True)
        journal.append(f"{node.name} in")
        await asyncio.sleep(0.01)
        journal.append(f"{node.name} out")
        await node.call("locks", b"release door", handler=0, again=True)


async def main(node: Callable[[str], Any], crash: Callable[[Any], None]) -> list[str]:
    journal: list[str] = []
    async with node("ann") as ann, node("bob") as bob, node("cleo") as cleo, node("dan") as dan, node("eve") as eve:
        servers = [Server(await each.join("locks")) for each in (ann, bob, cleo)]
        tasks = [asyncio.create_task(work) for server in servers for work in (server.apply(), server.serve())]
        asyncio.get_running_loop().call_later(0.06, crash, ann)
        await asyncio.gather(use(dan, journal), use(eve, journal))
    await asyncio.gather(*tasks, return_exceptions=True)  # they end with their nodes
    return journal


if __name__ == "__main__":
    if "--sim" in sys.argv:
        found = simulate(lambda node: main(node, SimNode.crash))
    else:
        found = ordercast.run(main(ordercast.Node, ordercast.Node.abort))
    alone = all(one.replace("in", "out") == two for one, two in zip(found[::2], found[1::2], strict=True))
    print("one client at a time:", alone, "all had their turns:", len(found) == 4 * ROUNDS)
