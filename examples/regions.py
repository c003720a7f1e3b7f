"""A thousand topics on regions. A desk is in all of them and sends; four readers follow two sets that overlap.

Runs on loopback: `python examples/regions.py`; in the simulator, in virtual time: with `--sim`.
The nodes bring the membership service along. Readers with the same topics are one region, and a block of messages
travels once to each region, whatever the number of topics. The order is first in, first out per sender and topic.
Between topics there is none, so the end is said in every topic.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import ordercast
from ordercast.sim.api import simulate

TOPICS = [f"share {number}" for number in range(1_000)]
METALS, ENERGY = TOPICS[:600], TOPICS[400:]  # 200 topics are in both
PRICE, END = 1, 2  # types: small numbers that come with each message
ROUNDS = 3
Seen = dict[str, list[bytes]]


async def read(node: Any, topics: list[str]) -> Seen:
    """What comes in all topics of a node, block by block, until all of them have ended."""
    seen: Seen = {topic: [] for topic in topics}
    ended = 0
    async for event in node.batches():
        if isinstance(event, ordercast.Batch):
            for message in event.each():
                if message.type == PRICE:
                    seen[message.group].append(message.payload)
                else:
                    ended += 1
        if ended == len(topics):
            break
    return seen


async def main(node: Callable[..., Any]) -> list[Seen]:
    names = ["desk", "ann", "bob", "cleo", "dan"]
    nodes = [node(name, gms="embedded") for name in names]
    wanted = TOPICS, METALS, METALS, ENERGY, ENERGY
    # Each joins its topics with one request; the service tells who shares a region.
    await asyncio.gather(*(each.join_many(some, orderer="regions") for each, some in zip(nodes, wanted, strict=True)))
    common = nodes[0].group(TOPICS[500])
    while len(common.members) < len(names):  # the desk has to know of everybody, or it would not send to them
        await anext(aiter(common))
    readers = [asyncio.create_task(read(each, some)) for each, some in zip(nodes, wanted, strict=True)]
    floor = await nodes[0].attach("regions")
    for number in range(ROUNDS):
        await floor.send_many([b"%d" % number] * len(TOPICS), groups=TOPICS, type=PRICE)
    await floor.send_many([b"closed"] * len(TOPICS), groups=TOPICS, type=END)
    seen = list(await asyncio.gather(*readers))
    await asyncio.gather(*(each.close() for each in nodes))
    return seen[1:]


if __name__ == "__main__":
    found = simulate(main) if "--sim" in sys.argv else ordercast.run(main(ordercast.Node))
    print("received:", [sum(len(prices) for prices in seen.values()) for seen in found])
    prices = [b"%d" % number for number in range(ROUNDS)]
    print("ann and bob have their topics, in order:", found[0] == found[1] == dict.fromkeys(METALS, prices))
    print("cleo and dan have theirs:", found[2] == found[3] == dict.fromkeys(ENERGY, prices))
