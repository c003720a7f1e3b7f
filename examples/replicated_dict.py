"""A dictionary on three nodes. All claim the same keys at once; the first claim in the common order wins, everywhere.

Runs on loopback: `python examples/replicated_dict.py`; in the simulator, in virtual time: with `--sim`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import ordercast
from ordercast.sim.api import simulate

KEYS = [f"seat {number}" for number in range(20)]
NAMES = ("ann", "bob", "cleo")


class ReplicatedDict:
    """A copy that changes only by messages of the group, so that all copies change in the same order."""

    def __init__(self, group: ordercast.Group) -> None:
        self.group = group
        self.data: dict[str, str] = {}
        self.applied = 0

    async def claim(self, keys: list[str], value: str) -> None:
        for key in keys:  # confirmed, one after the other: returns when the claim has come back in its place
            await self.group.send(json.dumps([key, value]).encode(), confirm=True)

    async def apply(self, count: int) -> None:
        """Take `count` claims. A second claim finds the key taken, at every node."""
        async for event in self.group:
            if isinstance(event, ordercast.Message):
                key, value = json.loads(event.payload)
                self.data.setdefault(key, value)
                self.applied += 1
            if self.applied == count:
                return


async def main(node: Callable[[str], Any]) -> list[dict[str, str]]:
    async with node("ann") as ann, node("bob") as bob, node("cleo") as cleo:
        copies = [ReplicatedDict(await each.join("seats")) for each in (ann, bob, cleo)]
        orders = (KEYS, KEYS[::-1], KEYS[10:] + KEYS[:10])
        claims = [copy.claim(keys, name) for copy, keys, name in zip(copies, orders, NAMES, strict=True)]
        await asyncio.gather(*claims, *(copy.apply(3 * len(KEYS)) for copy in copies))
        return [copy.data for copy in copies]


if __name__ == "__main__":
    found = simulate(main) if "--sim" in sys.argv else ordercast.run(main(ordercast.Node))
    print("ann, bob and cleo agree:", found[0] == found[1] == found[2])
    print({name: sum(owner == name for owner in found[0].values()) for name in NAMES})
