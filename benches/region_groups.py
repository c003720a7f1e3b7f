"""What groups on regions cost above an engine: time and memory of 100,000 joins, and messages a second with 1 and with
100,000 groups, over a bus in memory that only carries blocks. Times are the processor's, and
ratios of one run are what counts.

    .venv/bin/python -m benches.region_groups
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc
from random import Random
from time import process_time

import numpy as np
from tests.unit.fake_regions import FakeService

from ordercast.config import GroupConfig
from ordercast.groups.events import Batch
from ordercast.groups.host import Host
from ordercast.groups.regions.channel import RegionChannel
from ordercast.service import FIFO
from ordercast.view import Address

GROUPS = 100_000
MESSAGES = 400_000
SIZE = 64
CHUNK = 8_192


class Bus:
    """Two nodes whose datagrams arrive at once."""

    def __init__(self) -> None:
        self.service = FakeService()
        self.hosts = [self._host(name, number) for number, name in enumerate(("a", "b"), start=1)]
        self.regions: list[RegionChannel] = [
            host.open_regions(0, GroupConfig(orderer="regions")) for host in self.hosts
        ]
        self.now_ns = 0

    def _host(self, name: str, number: int) -> Host:
        address: Address = (f"10.0.0.{number}", 7_000)
        return Host(name, 0, address, buffer_bytes=4 << 20, rng=Random(number), regions=self.service.engines)

    def run(self) -> None:
        """Passes until nothing is on its way."""
        has_moved = True
        while has_moved:
            has_moved = False
            self.now_ns += 1_000_000
            for host, regions in zip(self.hosts, self.regions, strict=True):
                host.expire(self.now_ns)
                host.touch(regions.base)
                for _, (to, buffers, _) in host.finish(self.now_ns):
                    has_moved = True
                    other = next(each for each in self.hosts if each.me.address == to)
                    other.receive(self.now_ns, host.me.address, memoryview(b"".join(buffers)), 0)


def receive(regions: RegionChannel) -> int:
    """Everything that is here, opened."""
    count = 0
    while (event := regions.base.take()) is not None:
        if isinstance(event, Batch):
            count += len(event.messages)
    return count


def measure(groups: int, messages: int) -> tuple[float, float, float]:
    """Seconds to join, bytes for each group and node, messages a second from `send_many` to `node.batches()`."""
    bus = Bus()
    names = [f"group/{number}" for number in range(groups)]
    bus.run()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    started = process_time()
    for regions in bus.regions:
        regions.join(names)
        bus.run()
    joined_s = process_time() - started
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    sender, receiver = bus.regions
    if not all(regions.joined.is_in(name) for regions in bus.regions for name in (names[0], names[-1])):
        raise SystemExit("the joins have not ended")
    for regions in bus.regions:
        regions.feed()
    payloads = [bytes(SIZE)] * CHUNK
    lengths = [SIZE] * CHUNK
    of = np.array([sender.joined.numbers[name] for name in names], dtype=np.uint32)
    columns = [of[np.arange(start, start + CHUNK) % groups] for start in range(0, messages, CHUNK)]
    warm = min(len(columns), 1 + groups // CHUNK)  # the routes of all groups are looked up once for each epoch
    started, got = 0.0, 0
    for turn, column in enumerate([*columns[:warm], *columns]):
        if turn == warm:
            started, got = process_time(), 0
        if sender.offer_numbered(payloads, FIFO, 0, lengths, column) != CHUNK:
            raise SystemExit("the queue did not take a chunk")
        bus.run()
        got += receive(receiver)
        receive(sender)
    rate = got / (process_time() - started)
    return joined_s / 2, taken / 2 / groups, rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    args = parser.parse_args()
    _, _, few = measure(1, args.messages)
    joined_s, each, many = measure(args.groups, args.messages)
    _, _, few_again = measure(1, args.messages)
    print(f"{args.groups:,} joins of one node: {joined_s:.2f} s, {each:.0f} bytes each (with the service's tables)")
    print(f"1 group: {few:,.0f} and {few_again:,.0f} messages/s; {args.groups:,} groups: {many:,.0f} messages/s")
    print(f"ratio {many / ((few + few_again) / 2):.2f}")


if __name__ == "__main__":
    main()
