"""Waste on partial overlap: eight nodes with five sets of groups, which a plan puts into three regions, on loopback.

`ordercast plan` makes the plan (on Spark) and says what it will cost. `ordercast gms --plan` loads it. One more node,
which is in none of the groups, sends as many messages to each. What nodes receive and do not want is counted where it
is dropped. The nodes are on sockets of their own, in one process.

    .venv/bin/python -m benches.region_waste
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import ordercast

SETS: Final = {
    **dict.fromkeys("ab", range(40)),
    "c": range(36),
    **dict.fromkeys("de", range(30, 80)),
    "f": range(33, 80),
    **dict.fromkeys("gh", range(60, 100)),
}
"""Groups of each node: c and f want a little less than those that they are put together with."""

COMMAND: Final = (sys.executable, "-c", "import sys; from ordercast.cli.main import main; sys.exit(main())")
SIZE: Final = 100
TIMEOUT_S: Final = 300.0


def name_of(group: int) -> str:
    return f"topic {group}"


def plan_of(folder: Path) -> dict[str, float]:
    """What the plan says; it lies in `folder`."""
    subscriptions = folder / "subscriptions.csv"
    with subscriptions.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("node", "group"))
        writer.writerows([(node, name_of(group)) for node, groups in SETS.items() for group in groups])
    arguments = ("plan", str(subscriptions), "--out", str(folder / "plan"), "--json")
    said = subprocess.run((*COMMAND, *arguments), stdout=subprocess.PIPE, check=True)
    result: dict[str, float] = json.loads(said.stdout)["result"]
    return result


async def measure(folder: Path, rounds: int) -> dict[str, tuple[int, int]]:
    """Of each node: messages that it wanted and got, and those that it got and did not want."""
    async with asyncio.timeout(TIMEOUT_S):
        service = await asyncio.create_subprocess_exec(
            *COMMAND, "gms", "--plan", str(folder / "plan"), "--json", "--port", "0", "--name", "service",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert service.stdout is not None
            where = json.loads(await service.stdout.readline())["address"]
            nodes = {name: ordercast.Node(name, gms=[where]) for name in SETS}
            for name, node in nodes.items():
                await node.join_many(map(name_of, SETS[name]), orderer="regions")
            return await _send(ordercast.Node("sender", gms=[where]), nodes, rounds)
        finally:
            service.kill()
            await service.wait()


async def _send(sender: ordercast.Node, nodes: dict[str, ordercast.Node], rounds: int) -> dict[str, tuple[int, int]]:
    got = dict.fromkeys(nodes, 0)

    async def receive(name: str) -> None:
        async for event in nodes[name].batches():
            if isinstance(event, ordercast.Batch):
                got[name] += len(event)

    readers = [asyncio.create_task(receive(name)) for name in nodes]
    regions = await sender.attach("regions")
    groups = [name_of(group) for group in range(max(max(each) for each in SETS.values()) + 1)]
    for name in groups:
        await regions.send(bytes(SIZE), groups=[name], confirm=True)  # it knows all regions from here on
    while any(got[name] < len(SETS[name]) for name in nodes):
        await asyncio.sleep(0.05)
    handles = {name: await node.attach("regions") for name, node in nodes.items()}
    before = {name: (got[name], handle.stats["unwanted_messages"]) for name, handle in handles.items()}
    for _ in range(rounds):
        for name in groups:
            await regions.send(bytes(SIZE), groups=[name])
    await regions.flush()
    while any(got[name] - before[name][0] < rounds * len(SETS[name]) for name in nodes):
        await asyncio.sleep(0.05)
    found = {
        name: (got[name] - before[name][0], handle.stats["unwanted_messages"] - before[name][1])
        for name, handle in handles.items()
    }
    for reader in readers:
        reader.cancel()
    for node in (sender, *nodes.values()):
        node.abort()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="messages to each group")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        planned = plan_of(folder)
        found = ordercast.run(measure(folder, args.rounds))
    wanted, unwanted = (sum(each) for each in zip(*found.values(), strict=True))
    print(f"planned: {planned['regions']} regions, waste {planned['waste']:.4f}, at most {planned['worst_waste']:.4f}")
    print(f"measured: waste {unwanted / (wanted + unwanted):.4f} of {wanted + unwanted:,} messages")
    for name, (some, others) in found.items():
        print(f"  {name}: {some:,} wanted, {others:,} not: {others / (some + others):.4f}")


if __name__ == "__main__":
    main()
