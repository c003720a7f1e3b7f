"""A calculator on three nodes, called from two that are not in the group. Every server computes, one of them answers.

Runs on loopback: `python examples/calculator.py`; in the simulator, in virtual time: with `--sim`.
Half-way the server that answers leaves. The next one goes on where it was: all have seen the same calls.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import ordercast
from ordercast.sim.api import simulate

CALLS = 20
MODULUS = 1_000_003
Seen = list[tuple[str, int]]


class Calculator:
    """A value that changes only by calls, so that all copies change in the same order."""

    def __init__(self, group: ordercast.Group) -> None:
        self.group = group
        self.value = 0
        self.seen: Seen = []
        self.results: defaultdict[Any, asyncio.Future[int]] = defaultdict(asyncio.Future)  # by caller and number

    async def run(self, leave_after: int) -> Seen:
        serving = asyncio.create_task(self.serve())
        async for event in self.group:
            if isinstance(event, ordercast.Request):
                verb, number = event.payload.decode().split()
                self.value = (self.value + int(number) if verb == "add" else self.value * int(number)) % MODULUS
                self.seen.append((event.payload.decode(), self.value))
                self.results[event.caller, event.number].set_result(self.value)
                if len(self.seen) == leave_after:
                    break
        serving.cancel()
        await self.group.leave()
        return self.seen

    async def serve(self) -> None:
        async with self.group.handler(1) as requests:  # waits until the server before it has gone
            async for request in requests:  # calls that one left without an answer come again
                await request.reply(b"%d" % await self.results[request.caller, request.number])


async def ask(node: Any, words: list[str]) -> Seen:
    """Several calls are under way at a time; they are carried out in the order in which they were made."""
    calls = [node.call("calculator", word.encode(), handler=1, again=True) for word in words]
    return [(word, int(answer)) for word, answer in zip(words, await asyncio.gather(*calls), strict=True)]


async def main(node: Callable[[str], Any]) -> tuple[list[Seen], Seen]:
    async with node("ann") as ann, node("bob") as bob, node("cleo") as cleo, node("dan") as dan, node("eve") as eve:
        copies = [Calculator(await each.join("calculator")) for each in (ann, bob, cleo)]
        ends = (CALLS, 2 * CALLS, 3 * CALLS)
        running = [asyncio.create_task(copy.run(end)) for copy, end in zip(copies, ends, strict=True)]
        sums, products = [f"add {n}" for n in range(CALLS)], [f"times {n + 2}" for n in range(CALLS)]
        answers = await asyncio.gather(ask(dan, sums), ask(eve, products))
        running[2].cancel()
        return [await running[0], await running[1], copies[2].seen], answers[0] + answers[1]


if __name__ == "__main__":
    seen, told = simulate(main) if "--sim" in sys.argv else ordercast.run(main(ordercast.Node))
    print("servers agree:", seen[1] == seen[2], "who left saw the beginning:", seen[0] == seen[1][:CALLS])
    print("callers were told the same:", sorted(seen[1]) == sorted(told))
