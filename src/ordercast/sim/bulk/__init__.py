"""Hundreds to thousands of engines in virtual time, cheaply: a world that counts, and writes no trace.

See docs/design/simulator.md, "Bulk". An engine is anything that has the methods of `BulkEngine`; every `Engine` does.
It may send to addresses of nodes, to multicast addresses, and to `To.ALL`, which is all nodes. If it has `listens()`,
it hears the multicast addresses that this returns.

    world = BulkWorld(seed=1, model=PENTIUM)
    for index in range(200):
        name = f"n{index}"
        world.add(name, boot, program=LoadProgram(world, name))   # boot(node) -> engine: node.address, node.life
    blocks = ReadyBlocks([pack_run(0, FIFO, [b"x" * 8])])
    world["n0"].program = load = LoadProgram(world, "n0", blocks)  # as fast as `room` permits; or per_s=1_000
    HiccupSchedule(world, Hiccups(0.02))
    BulkFaults(world, [Fault(5 * SECOND, FaultKind.CRASH, ("n7",))])
    samples = Samples(world, {"taken": lambda: world["n1"].program.taken})
    world.start_all()
    world.run_until(60 * SECOND)
    samples.rates("taken")                          # messages a second, second by second
    world["n0"].tally.control_share()               # of what n0 sent and received
    world["n0"].tally.by_detail()                   # datagrams by the words of the trace
    world["n3"].tally.sent[Kind.REGION_TOKEN]       # by kind

With `BulkWorld(1, PENTIUM, stands_for=20)` a datagram with a block takes as much of processors, ports and socket
buffers as twenty, for long figures: rates are divided by 20, and control costs what it does. An engine of regions runs
as a `RegionalNode`, with views that `GivenViews` hands it (`regional.py`).
"""

from ordercast.sim.bulk.faults import BulkFaults, Hiccups, HiccupSchedule
from ordercast.sim.bulk.load import LoadProgram, ReadyBlocks
from ordercast.sim.bulk.node import BulkEngine, BulkNode, MulticastListener, Program, Want
from ordercast.sim.bulk.sampling import Samples
from ordercast.sim.bulk.tally import DATA_KINDS, NodeTally
from ordercast.sim.bulk.world import BulkWorld

__all__ = [
    "DATA_KINDS",
    "BulkEngine",
    "BulkFaults",
    "BulkNode",
    "BulkWorld",
    "HiccupSchedule",
    "Hiccups",
    "LoadProgram",
    "MulticastListener",
    "NodeTally",
    "Program",
    "ReadyBlocks",
    "Samples",
    "Want",
]
