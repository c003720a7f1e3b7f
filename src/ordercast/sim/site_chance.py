"""Sites drawn from a seed, and their faults: cut, lossy and narrow pipes, partitions between sites and inside one.

A partition heals at once or, as often, one pipe after the other: then each direction is a cut of its own, and for a
while some sites reach each other only through others, or in one direction only.
"""

from __future__ import annotations

import random
from typing import Final

from ordercast.config import MS
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.pipes import Direction, PipeModel
from ordercast.sim.topology import WAN, Topology, plain_topology
from ordercast.sites import LinkSpec
from ordercast.sites.config import MIN_RATE

SITE_NAMES: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MIRRORED_SHARE: Final = 0.7  # of pipes that are like the one back
LOSSES: Final = (0.1, 0.3, 0.7)
DIVISORS: Final = (2.0, 10.0, 100.0)


def draw_topology(rng: random.Random, *, least_sites: int = 2, most_sites: int = 4, most_nodes: int = 3) -> Topology:
    """Sites of 1 to `most_nodes` nodes each, at most 26 of them: a1, a2, … are in site A, and so on. Pipes differ, some
    of them in their two directions; weights follow the latency, more or less."""
    names = SITE_NAMES[: rng.randint(least_sites, most_sites)]
    crews = {name: [f"{name.lower()}{number}" for number in range(1, rng.randint(1, most_nodes) + 1)] for name in names}
    pipes: dict[Direction, PipeModel] = {}
    links: list[LinkSpec] = []
    for source in names:
        for target in names:
            if source == target:
                continue
            pipe = _draw_pipe(rng)
            if rng.random() < MIRRORED_SHARE:
                pipe = pipes.get((target, source), pipe)
            pipes[source, target] = pipe
            weight = 1 + pipe.latency_ns // (10 * MS) + rng.randrange(2)
            links.append(LinkSpec(source, target, weight, max(MIN_RATE, pipe.bits_per_s)))
    return plain_topology(crews, WAN, pipes, network=rng.choice(("lan", "ideal")), links=links)


def _draw_pipe(rng: random.Random) -> PipeModel:
    return PipeModel(
        latency_ns=rng.choice((1, 10, 40, 90)) * MS,
        jitter_ns=rng.choice((0, 0, 1, 10)) * MS,
        bits_per_s=rng.choice((1, 5, 20, 100)) * 1_000_000,
        queue_bytes=rng.choice((16, 64, 256)) << 10,
        loss=rng.choice((0.0, 0.0, 0.001, 0.02)),
        duplicate=rng.choice((0.0, 0.0, 0.01)),
        reorder=rng.choice((0.0, 0.0, 0.01)),
    )


def draw_site_faults(
    rng: random.Random,
    topology: Topology,
    from_ns: int,
    to_ns: int,
    *,
    cut_pipe: int = 0,
    partition_sites: int = 0,
    split: int = 0,
    lossy_pipe: int = 0,
    narrow_pipe: int = 0,
    longest_ns: int = 3_000 * MS,
) -> list[Fault]:
    """So many faults of each kind at random times, sites and nodes. A topology without two sites has no pipes, and one
    without a site of two nodes has nothing to split: such faults are left out."""
    sites = [site.name for site in topology.config.sites]
    crews = [topology.nodes_of([name]) for name in sites]
    crews = [crew for crew in crews if len(crew) > 1]
    faults: list[Fault] = []

    def when() -> int:
        return rng.randrange(from_ns, max(to_ns, from_ns + 1))

    def how_long() -> int:
        # Short ones matter as much as long ones: half of all stay below a tenth of the longest.
        return rng.randrange(MS, longest_ns // (10 if rng.random() < 0.5 else 1))

    if len(sites) > 1:
        for _ in range(cut_pipe):
            source, *targets = rng.sample(sites, rng.randrange(2, len(sites) + 1))
            faults.append(Fault(when(), FaultKind.CUT_PIPE, (source,), tuple(targets), for_ns=how_long()))
        for _ in range(partition_sites):
            side = tuple(rng.sample(sites, rng.randrange(1, len(sites))))
            at_ns = when()
            if rng.random() < 0.5:
                faults.append(Fault(at_ns, FaultKind.PARTITION_SITES, side, for_ns=how_long()))
                continue
            faults += [
                Fault(at_ns, FaultKind.CUT_PIPE, (source,), (target,), for_ns=how_long())
                for source in sites
                for target in sites
                if (source in side) != (target in side)
            ]
        for kind, times, values in (
            (FaultKind.LOSSY_PIPE, lossy_pipe, LOSSES),
            (FaultKind.NARROW_PIPE, narrow_pipe, DIVISORS),
        ):
            for _ in range(times):
                source, target = rng.sample(sites, 2)
                faults.append(Fault(when(), kind, (source,), (target,), rng.choice(values), how_long()))
    if crews:
        for _ in range(split):
            crew = rng.choice(crews)
            side = tuple(rng.sample(crew, rng.randrange(1, len(crew))))
            rest = tuple(name for name in crew if name not in side)
            faults.append(Fault(when(), FaultKind.SPLIT, side, rest, for_ns=how_long()))
    return sorted(faults, key=lambda fault: fault.at_ns)
