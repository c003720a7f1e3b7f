"""One publisher, three subscribers, received in batches. One subscriber leaves half-way; the others miss nothing.

Runs on loopback: `python examples/event_fanout.py`; in the simulator, in virtual time: with `--sim`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import ordercast
from ordercast.sim.api import simulate

EVENTS = 20_000
TICK, END = 1, 2  # types: small numbers that come with each message


async def subscribe(group: ordercast.Group, leave_after: int = EVENTS) -> list[bytes]:
    """What came up to the end, or up to the batch with which this subscriber has had enough."""
    seen: list[bytes] = []
    async for batch in group.batches():
        if not isinstance(batch, ordercast.Batch):
            continue  # a view: somebody came or went, at this place of the order
        if batch.type == END:
            break
        seen.extend(batch.messages)
        if len(seen) >= leave_after:
            await group.leave(header=b"enough")
            break
    return seen


async def publish(group: ordercast.Group) -> None:
    await group.send_many([b"tick %d" % number for number in range(EVENTS)], type=TICK)
    await group.send(b"", type=END, service=ordercast.SAFE, confirm=True)  # all who are left hold everything


async def main(node: Callable[[str], Any]) -> list[list[bytes]]:
    async with node("source") as source, node("ann") as ann, node("bob") as bob, node("cleo") as cleo:
        feed = await source.join("ticks", create=True)
        groups = [await each.join("ticks", create=False) for each in (ann, bob, cleo)]
        limits = (EVENTS, EVENTS, EVENTS // 2)
        readers = (subscribe(group, limit) for group, limit in zip(groups, limits, strict=True))
        # Who sends is a member as well, and takes part in the order: it has to receive, or it would hold up the group.
        sending = asyncio.create_task(publish(feed))
        *seen, _ = await asyncio.gather(*readers, subscribe(feed))
        await sending
        return seen


if __name__ == "__main__":
    found = simulate(main) if "--sim" in sys.argv else ordercast.run(main(ordercast.Node))
    print("received:", [len(seen) for seen in found], "the same:", found[0] == found[1])
    print("cleo left with a beginning of it:", found[2] == found[0][: len(found[2])])
