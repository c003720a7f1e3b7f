"""How many datagrams a broadcast costs at which rate: the table in docs/design/sequencer.md (Amoeba sections 4.1, 5).

A sequencer group with default timing in virtual time, on a network without loss. One member, which is not
the sequencer, sends small AGREED messages at an even rate; the others are quiet, so that nothing they say can ride on
data. Every datagram is counted, a multicast once: requests, ordered messages, acknowledgements, heartbeats, beacons.
`at rest` is what the same group sends in the same time when nobody broadcasts. The delay is from the send to the
delivery at the sender.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import quantiles
from typing import NamedTuple

from ordercast.api.group import Group
from ordercast.config import LAN_DATAGRAM, GroupConfig
from ordercast.service import AGREED, Service
from ordercast.sim.api import Simulation, simulate
from ordercast.sim.network import ETHERNET_10, LAN, NetworkModel

SIZES = (4, 16, 60)
RATES = (10, 100, 1_000)
SECONDS = {10: 20, 100: 10, 1_000: 3}
PAYLOAD = bytes(100)
NETWORKS = {model.name: model for model in (LAN, ETHERNET_10)}
_readers: list[asyncio.Task[None]] = []


class BroadcastCost(NamedTuple):
    members: int
    rate: int
    datagrams: float  # per broadcast
    at_rest: float  # of them: sent anyway
    kinds: dict[str, float]  # per broadcast
    p50_ms: float
    p99_ms: float


async def form(node: Simulation, members: int, config: GroupConfig) -> list[Group]:
    groups = []
    for index in range(members):
        made = node(f"n{index:03}", config=config)
        groups.append(await made.join("cost", orderer="sequencer"))
    _readers.extend(asyncio.create_task(drain(group)) for group in groups)
    while any(len(group.members) < members for group in groups):
        await asyncio.sleep(0.1)
    await asyncio.sleep(5)
    return groups


async def drain(group: Group) -> None:
    async for _ in group.batches():
        pass


async def broadcast(group: Group, service: Service, delays_s: list[float]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await group.send(PAYLOAD, service, confirm=True)
    delays_s.append(loop.time() - began)


def cost_of(
    members: int,
    rate: int,
    seconds: float,
    *,
    service: Service = AGREED,
    network: NetworkModel = LAN,
    config: GroupConfig | None = None,
) -> BroadcastCost:
    """`rate` broadcasts a second for so many seconds of virtual time."""

    async def program(node: Simulation) -> BroadcastCost:
        groups = await form(node, members, config or GroupConfig(datagram=LAN_DATAGRAM))
        counters, loop = node.world.network.counters, asyncio.get_running_loop()
        before = dict(counters.sent_by_kind)
        await asyncio.sleep(seconds)
        idle = sum(counters.sent_by_kind.values()) - sum(before.values())
        total = int(rate * seconds)
        tasks, delays_s = [], list[float]()
        start, before = loop.time(), dict(counters.sent_by_kind)
        for number in range(total):
            tasks.append(asyncio.create_task(broadcast(groups[1], service, delays_s)))
            await asyncio.sleep(start + (number + 1) / rate - loop.time())
        sent = {kind: count - before.get(kind, 0) for kind, count in counters.sent_by_kind.items()}
        await asyncio.gather(*tasks)
        kinds = {kind: count / total for kind, count in sent.items() if count}
        cuts = quantiles(delays_s, n=100)
        return BroadcastCost(members, rate, sum(kinds.values()), idle / total, kinds, 1e3 * cuts[49], 1e3 * cuts[98])

    return simulate(program, network=network, seed="cost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rates", type=int, nargs="+", default=RATES)
    parser.add_argument("--network", choices=NETWORKS, default=LAN.name)
    parser.add_argument("--kinds", action="store_true", help="show what was sent")
    given = parser.parse_args()
    print("| members | broadcasts / s | datagrams per broadcast | of these at rest | delay p50, p99 ms |")
    print("|---|---|---|---|---|")
    for members in given.members:
        for rate in given.rates:
            cost = cost_of(members, rate, SECONDS.get(rate, 10), network=NETWORKS[given.network])
            print(
                f"| {members} | {rate:,} | {cost.datagrams:.2f} | {cost.at_rest:.2f} "
                f"| {cost.p50_ms:.2f}, {cost.p99_ms:.2f} |",
                flush=True,
            )
            if given.kinds:
                print("  ", {kind: round(count, 3) for kind, count in sorted(cost.kinds.items())}, flush=True)


if __name__ == "__main__":
    main()
