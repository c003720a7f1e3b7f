"""Ten thousand topics on one underlay. A desk is in all of them; ann and bob follow a few, and see one order.

Runs on loopback: `python examples/topics.py`; in the simulator, in virtual time: with `--sim`.
A topic is a group of its own: it has members, views and locks. What they share is the underlay, and with it the order.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import ordercast
from ordercast.sim.api import simulate

TOPICS = [f"share {number}" for number in range(10_000)]
PRICE, END = 1, 2  # types: small numbers that come with each message
Seen = list[tuple[str, bytes]]


async def follow(floor: ordercast.SharedUnderlay) -> Seen:
    """The prices of all topics that this node is in, as they come: in one order over all of them."""
    seen: Seen = []
    async for event in floor.events():
        if isinstance(event, ordercast.Message):
            if event.type == END:
                break
            seen.append((event.group, event.payload))
    return seen


async def main(node: Callable[[str], Any]) -> list[Seen]:
    async with node("desk") as desk, node("ann") as ann, node("bob") as bob:
        floors = [await each.attach("floor") for each in (desk, ann, bob)]
        wanted = TOPICS, TOPICS[::100], TOPICS[::150]
        await asyncio.gather(*(floor.join_many(names) for floor, names in zip(floors, wanted, strict=True)))
        readers = [asyncio.create_task(follow(floor)) for floor in floors]
        # Messages of different topics share blocks. Those of topics that a node is not in are not even opened there.
        await floors[0].send_many([b"%d" % number for number in range(len(TOPICS))], groups=TOPICS, type=PRICE)
        # To two topics: it travels once, and each of the three gets it once.
        await floors[0].send(b"closed", groups=[TOPICS[100], TOPICS[150]], type=END)
        return list(await asyncio.gather(*readers))


def among(seen: Seen, topics: list[str]) -> Seen:
    chosen = set(topics)
    return [each for each in seen if each[0] in chosen]


if __name__ == "__main__":
    all_, of_ann, of_bob = simulate(main) if "--sim" in sys.argv else ordercast.run(main(ordercast.Node))
    print("received:", [len(seen) for seen in (all_, of_ann, of_bob)])
    print("ann has what the desk has of her topics, in its order:", of_ann == among(all_, TOPICS[::100]))
    print("bob and ann agree on their common topics:", among(of_ann, TOPICS[::300]) == among(of_bob, TOPICS[::300]))
