"""Which of Amoeba's two methods for which block size: the measurement behind `PB_LIMIT` (docs/design/sequencer.md).

Four nodes in one process on loopback, one sender that is not the sequencer, one confirmed message at a time, each size
by method 1 (PB) and by method 2 (BB), in turns within one run. One process, so that the figure is the processor time
that all four members spend for one broadcast, whatever the scheduler does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from contextlib import suppress
from typing import Any

from ordercast import Group, Node
from ordercast.groups.events import Batch
from ordercast.orderers.sequencer import Sequencer
from ordercast.underlay import Underlay

SIZES = (100, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 50_000)
NEVER_PB, ALWAYS_PB = -1, 1 << 30


async def drain(group: Group) -> None:
    async for event in group.batches():
        if isinstance(event, Batch):
            len(event.messages)


async def spend(group: Group, underlay: Underlay, size: int, limit: int, rounds: int) -> float:
    """Microseconds of processor time for one broadcast."""
    orderer = underlay._orderer
    assert isinstance(orderer, Sequencer)
    orderer._sender.pb_limit = limit
    payload = b"x" * size
    for _ in range(10):
        await group.send(payload, confirm=True)
    began = time.process_time_ns()
    for _ in range(rounds):
        await group.send(payload, confirm=True)
    return (time.process_time_ns() - began) / rounds / 1e3


async def measure(rounds: int, repeats: int, datagram: int | None) -> None:
    underlays = []

    def engines(*args: Any, **options: Any) -> Underlay:
        underlays.append(Underlay(*args, **options))
        return underlays[-1]

    nodes = [Node(f"n{number}", datagram=datagram, engines=engines) for number in range(4)]
    groups = []
    for node in nodes:
        await node.__aenter__()
        groups.append(await node.join("methods", orderer="sequencer"))
    readers = [asyncio.create_task(drain(group)) for group in groups]
    gc.freeze()
    print("| bytes | PB us | BB us | PB / BB |\n|---|---|---|---|")
    for size in SIZES:
        pairs = [
            [await spend(groups[1], underlays[1], size, limit, rounds) for limit in (ALWAYS_PB, NEVER_PB)]
            for _ in range(repeats)
        ]
        one, two = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| {size} | {one:.0f} | {two:.0f} | {one / two:.2f} |", flush=True)
    for reader in readers:
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader
    for node in nodes:
        await node.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="broadcasts per measurement (200)")
    parser.add_argument("--repeats", type=int, default=5, help="measurements per method, of which the median (5)")
    parser.add_argument("--datagram", type=int, default=None, help="largest datagram (a whole block on loopback)")
    options = parser.parse_args()
    asyncio.run(measure(options.rounds, options.repeats, options.datagram))


if __name__ == "__main__":
    main()
