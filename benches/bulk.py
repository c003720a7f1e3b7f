"""What the bulk simulation costs by itself: a reception, an event, a node (docs/design/simulator.md, "Bulk").

One sender floods, all others listen, on the QSM paper's machines. The engine does next to nothing (`silent`), or opens
and delivers every block to a program (`flood`), so that what is measured is the world. Losses and hiccups are those of
the figures.

    python benches/bulk.py --nodes 200,1000 --receptions 2000000
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ordercast.config import SECOND
from ordercast.engine import NEVER, Outbox, Send, To
from ordercast.service import FIFO
from ordercast.sim.bulk import BulkNode, BulkWorld, Hiccups, HiccupSchedule, LoadProgram, ReadyBlocks
from ordercast.sim.bulk.flood import FloodEngine
from ordercast.sim.network import NETWORKS, PENTIUM
from ordercast.sim.world import Machine, World
from ordercast.view import Address
from ordercast.wire.block import pack_run

ADDRESS: Address = ("239.1.0.1", 7_000)
STEP_NS = SECOND
DATAGRAM = bytes([0xC7, 1]) + bytes(78)


class SilentStack:
    """The same in the ordinary world: the first node sends datagrams of the same size as fast as it can."""

    __slots__ = ("_is_sending",)

    def __init__(self, is_sending: bool) -> None:
        self._is_sending = is_sending

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        pass

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:
        pass

    def expire(self, now_ns: int) -> None:
        pass

    def finish(self, now_ns: int) -> Sequence[tuple[str, Send]]:  # noqa: ARG002
        return [("bulk", Send(To.ALL, [DATAGRAM], 0))] * 16 if self._is_sending else []

    def deadline_ns(self) -> int:
        return 0 if self._is_sending else NEVER

    def audience(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def copies(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002
        return []

    def unrest(self) -> list[str]:
        return []


def measure_ordinary(nodes: int, receptions: int, model: str, loss: float) -> float:
    """Microseconds of CPU for a reception in the world of `sim/world.py`."""
    world = World(1, replace(NETWORKS[model], loss=loss), event_limit=1 << 40)

    def boot(node: Machine) -> SilentStack:
        world.listen(node, "bulk")
        return SilentStack(node.index == 0)

    for index in range(nodes):
        world.add(f"n{index}", boot)
        world.start(f"n{index}")
    spent = time.process_time()
    arrived = 0
    while arrived < receptions:
        world.run_until(world.now_ns + STEP_NS // 200)
        # Nothing received means that the node has spun: its timer is overdue on purpose.
        world.nodes["n0"].spins = 0
        arrived = sum(node.arrived for node in world.nodes.values())
    return (time.process_time() - spent) * 1e6 / arrived


class SilentEngine:
    """A flood whose receivers do nothing."""

    __slots__ = ("_flood", "deadline_ns", "expire", "is_at_rest", "listens", "room", "start", "submit")

    def __init__(self, flood: FloodEngine) -> None:
        self._flood = flood
        self.deadline_ns = flood.deadline_ns
        self.listens = flood.listens
        self.submit = flood.submit
        self.room = flood.room
        self.start = flood.start
        self.expire = flood.expire
        self.is_at_rest = flood.is_at_rest

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        pass

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        self._flood.after_batch(now_ns, out)

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        pass

    def waits_for_application(self) -> bool:
        return False


def measure(nodes: int, receptions: int, model: str, loss: float, is_silent: bool, senders: int) -> tuple[float, str]:
    """Microseconds of CPU for a reception, and all of it in words."""
    hears = frozenset((ADDRESS,))

    def boot(node: BulkNode) -> FloodEngine | SilentEngine:
        flood = FloodEngine(node.index, hears, ADDRESS)
        return SilentEngine(flood) if is_silent else flood

    world = BulkWorld(1, NETWORKS[model])
    for index in range(nodes):
        name = f"n{index}"
        blocks: Callable[[int], list[bytes]] | None = None
        if index < senders:
            blocks = ReadyBlocks([pack_run(0, FIFO, [bytes(8)])])
        program = LoadProgram(world, name, blocks) if index < senders or not is_silent else None
        world.add(name, boot, program=program)
        if loss:
            world.lose(name, "bench", loss)
    HiccupSchedule(world, Hiccups(0.02))
    world.start_all()
    began = time.perf_counter()
    spent = time.process_time()
    while world.receptions < receptions:
        world.run_until(world.now_ns + STEP_NS // 20)
    wall, spent = time.perf_counter() - began, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    each_us = spent * 1e6 / world.receptions
    return each_us, (
        f"{nodes:5} nodes, {senders} senders, {'silent' if is_silent else 'flood':6} {world.now_ns / SECOND:7.2f} s "
        f"virtual: {world.receptions:,} receptions in {spent:.2f} s of CPU ({wall:.2f} s): "
        f"{each_us:.2f} us each, {world.events / spent:,.0f} events/s, "
        f"{world.receptions / world.events:.1f} receptions per event, {peak:.0f} MB"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="200,1000")
    parser.add_argument("--receptions", type=int, default=1_000_000)
    parser.add_argument("--model", default=PENTIUM.name, choices=list(NETWORKS))
    parser.add_argument("--loss", type=float, default=0.001)
    parser.add_argument("--ordinary", action="store_true", help="also in the ordinary world, for comparison")
    parser.add_argument("--senders", type=int, default=1)
    args = parser.parse_args(arguments)
    for nodes in map(int, args.nodes.split(",")):
        for is_silent in (True, False):
            each_us, text = measure(nodes, args.receptions, args.model, args.loss, is_silent, args.senders)
            print(text, flush=True)
            if is_silent and args.ordinary:
                ordinary_us = measure_ordinary(nodes, args.receptions // 10, args.model, args.loss)
                ratio = ordinary_us / each_us
                print(f"{nodes:5} nodes in sim/world.py: {ordinary_us:.2f} us each, {ratio:.1f} times as much")


if __name__ == "__main__":
    main()
