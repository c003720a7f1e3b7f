"""Random scenarios of daemons in sites, with groups that come and go: `ordercast fuzz --orderer sites`.

Sites, daemons, pipes, faults and what the programs do are drawn from a seed: partitions between sites and inside one,
cuts of one direction, crashes and restarts, pauses, pipes that lose and pipes that are narrow. The acts of the programs
are those of `many_groups.py`. A seed gives the same scenario in every release, as in `chance.py`.
"""

from __future__ import annotations

import random
from typing import Final

from ordercast.config import MS
from ordercast.sim.faults import draw_faults
from ordercast.sim.many_groups import FORMED_NS, Acts, ManyGroups
from ordercast.sim.pipes import PipeModel
from ordercast.sim.scenario import Scenario, node_names
from ordercast.sim.site_chance import draw_site_faults
from ordercast.sim.topology import Topology, plain_topology

SITES: Final = "sites"  # the orderer
COMMAND: Final = "ordercast sim --orderer sites --scenario-seed"
EVENT_LIMIT: Final = 400_000
MERGED_NS: Final = 2_500 * MS
"""By then daemons that start together have merged, over the longest pipes."""


def drawn_site_groups(seed: int) -> ManyGroups:
    """Draw everything."""
    rng = random.Random(f"sites/{seed}")
    topology = _draw_topology(rng)
    names = topology.nodes
    length_ns = rng.choice((1_500, 4_000, 8_000)) * MS
    begin_ns, end_ns = MERGED_NS, MERGED_NS + length_ns
    faults = []
    if rng.random() >= 0.15:  # in some runs nothing fails: there, no view may follow the first
        crash = rng.choice((0, 0, 1, 1, 2))
        faults += draw_faults(
            rng,
            names,
            begin_ns,
            end_ns,
            crash=crash,
            restart=rng.randrange(crash + 1),
            pause=rng.choice((0, 0, 0, 1)),
            cut=rng.choice((0, 0, 0, 1)),
            stall=rng.choice((0, 0, 0, 1)),
            lossy=rng.choice((0, 0, 0, 1)),
        )
        faults += draw_site_faults(
            rng,
            topology,
            begin_ns,
            end_ns,
            cut_pipe=rng.choice((0, 0, 1, 2)),
            partition_sites=rng.choice((0, 1, 1, 2)),
            split=rng.choice((0, 0, 0, 1)),
            lossy_pipe=rng.choice((0, 0, 1)),
            narrow_pipe=rng.choice((0, 0, 0, 1)),
        )
    scenario = Scenario(
        seed=seed,
        orderer=SITES,
        nodes=names,
        starts_ns=tuple([rng.choice((0, 0, 0, 30, 500)) * MS for _ in names]),
        network="lan",
        loss=rng.choice((0.0, 0.0, 0.01)),
        duplicate=rng.choice((0.0, 0.0, 0.05)),
        reorder=rng.choice((0.0, 0.0, 0.1)),
        datagram=rng.choice((1_400, 1_400, 9_000)),
        history_bytes=rng.choice((256_000, 1 << 20, 4 << 20)),
        min_members=1,
        topology=topology,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        event_limit=EVENT_LIMIT,
        command=f"{COMMAND} {seed}",
    )
    groups = tuple(f"g{number}" for number in range(rng.choice((2, 6, 20, 100))))
    draw = Acts(rng, scenario, groups)
    based = tuple(name for name in names if rng.random() < 0.5)
    homes = tuple(tuple(draw.some(rng.randrange(1, 5))) for _ in names)
    fed = tuple(name for name in based if rng.random() < 0.5)
    acts = tuple(draw.draw(homes, length_ns + MERGED_NS - FORMED_NS))
    return ManyGroups(scenario, groups, homes, based, fed, acts)


def _draw_topology(rng: random.Random) -> Topology:
    """One to four sites with one to three daemons each, eight daemons at most."""
    sites = rng.choice((1, 2, 2, 3, 3, 4))
    counts = [rng.choice((1, 1, 2, 3)) for _ in range(sites)]
    while sum(counts) > 8 or sum(counts) < 2:
        counts = [rng.choice((1, 1, 2, 3)) for _ in range(sites)]
    names = iter(node_names(sum(counts)))
    crews = {f"site{at}": [next(names) for _ in range(count)] for at, count in enumerate(counts)}
    pipe = PipeModel(
        latency_ns=rng.choice((1, 5, 30, 80)) * MS,
        jitter_ns=rng.choice((0, 0, 2)) * MS,
        bits_per_s=rng.choice((0, 10_000_000, 2_000_000)),
        queue_bytes=rng.choice((0, 128 << 10, 64 << 10)),
        loss=rng.choice((0.0, 0.0, 0.01, 0.03)),
        duplicate=rng.choice((0.0, 0.0, 0.02)),
        reorder=rng.choice((0.0, 0.0, 0.05)),
    )
    return plain_topology(crews, pipe)
