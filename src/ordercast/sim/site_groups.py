"""Random scenarios of daemons in sites, with groups that come and go: `ordercast fuzz --orderer sites`.

Sites, daemons, pipes, faults and what the programs do are drawn from a seed: partitions between sites and inside one,
cuts of one direction, crashes and restarts, pauses, pipes that lose and pipes that are narrow. The acts of the programs
are those of `many_groups.py`. A seed gives the same scenario in every release, as in `chance.py`.

Below `WIDE_FROM` all links have one weight, so that every site sends to every other one itself. From there on weights
differ, and trees have inner sites; pipes differ, windows of rings and links are small, and nodes have sessions. Seeds
from `DENSE_FROM` on are those of `site_dense.py`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from ordercast.config import MS
from ordercast.sim.faults import draw_faults
from ordercast.sim.many_groups import FORMED_NS, Acts, ManyGroups, with_sessions
from ordercast.sim.pipes import PipeModel
from ordercast.sim.scenario import Scenario, node_names
from ordercast.sim.site_chance import draw_site_faults
from ordercast.sim.site_dense import dense_groups
from ordercast.sim.topology import SitePipe, Topology, plain_topology
from ordercast.sites import LinkSpec, SitesConfig

SITES: Final = "sites"  # the orderer
COMMAND: Final = "ordercast sim --orderer sites --scenario-seed"
EVENT_LIMIT: Final = 400_000
MERGED_NS: Final = 2_500 * MS
"""By then daemons that start together have merged, over the longest pipes."""
WIDE_FROM: Final = 500_000_000
"""Seeds from here on have wide scenarios. Those below have the ones that they had before there were any."""
DENSE_FROM: Final = 900_000_000
"""Seeds from here on have dense scenarios."""
DETOUR: Final = 10  # times the weight of the others: a link that trees avoid


def drawn_site_groups(seed: int) -> ManyGroups:
    """Draw everything."""
    if seed >= DENSE_FROM:
        return _dense(random.Random(f"sites/{seed}/dense"), seed)
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
    plan = ManyGroups(scenario, groups, homes, based, fed, acts)
    return plan if seed < WIDE_FROM else _wide(random.Random(f"sites/{seed}/wide"), plan, length_ns)


def _dense(rng: random.Random, seed: int) -> ManyGroups:
    topology = _draw_topology(rng)
    if rng.random() < 0.5:
        topology = _widened(rng, topology)
    return dense_groups(rng, seed, SITES, topology, EVENT_LIMIT, f"{COMMAND} {seed}")


def _wide(rng: random.Random, plan: ManyGroups, length_ns: int) -> ManyGroups:
    """The same acts and faults where links differ and windows are small, and with sessions."""
    scenario = plan.scenario
    if scenario.topology is not None:
        scenario = replace(scenario, topology=_widened(rng, scenario.topology))
    plan = replace(plan, scenario=scenario)
    return with_sessions(rng, plan, length_ns + MERGED_NS - FORMED_NS) if rng.random() < 0.5 else plan


def _widened(rng: random.Random, topology: Topology) -> Topology:
    config = topology.config
    sites = []
    for site in config.sites:
        personal = rng.choice((2, 4, 60))
        sites.append(replace(site, personal_window=personal, ring_window=max(personal, rng.choice((4, 16, 240)))))
    names = [site.name for site in sites]
    links: list[LinkSpec] = []
    pipes: list[SitePipe] = []
    weights = {(a, b): rng.choice((1, 2, 3, DETOUR, DETOUR)) for a in names for b in names if a < b}
    for each in topology.pipes:
        source, target = each.source, each.target
        pipe = replace(each.model, latency_ns=rng.choice((1, 5, 30, 80)) * MS, loss=rng.choice((0.0, 0.0, 0.01, 0.03)))
        pipes.append(replace(each, model=pipe))
        weight = weights[min(source, target), max(source, target)]
        if rng.random() < 0.2:  # a way back over other links
            weight = rng.choice((1, 2, DETOUR))
        rate = min(pipe.bits_per_s or 10_000_000, 10_000_000)
        burst, window = rng.choice((1_500, 16_384, 65_536)), rng.choice((4, 16, 256))
        links.append(LinkSpec(source, target, weight, rate, burst, window))
    return replace(topology, config=SitesConfig(tuple(sites), config.daemons, tuple(links)), pipes=tuple(pipes))


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
