"""Random scenarios of daemons in sites, with groups that come and go: `ordercast fuzz --orderer sites`.

Sites, daemons, pipes, faults and what the programs do are drawn from a seed: partitions between sites and inside one,
cuts of one direction, crashes and restarts, pauses, pipes that lose and pipes that are narrow. The acts of the programs
are those of `many_groups.py`. A seed gives the same scenario in every release, as in `chance.py`.

Below `WIDE_FROM` all links have one weight, so that every site sends to every other one itself. From there on weights
differ, and trees have inner sites; pipes differ, windows of rings and links are small, and nodes have sessions.

From `RICH_FROM` on these also have what chance alone rarely makes: crashes inside the phases of a view change, three
or four parts that heal together or one after the other, joins at the very moment of a cut, and messages to as many as
a hundred groups. Seeds from `DENSE_FROM` on are those of `site_dense.py`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from ordercast.config import MS
from ordercast.sim.ambush import Ambush, AmbushPhase
from ordercast.sim.faults import Fault, FaultKind, draw_faults
from ordercast.sim.many_groups import FORMED_NS, ActKind, Acts, GroupAct, ManyGroups, with_sessions
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
RICH_FROM: Final = 600_000_000
"""Seeds from here on have rich scenarios, which are wide as well."""
DENSE_FROM: Final = 900_000_000
"""Seeds from here on have dense scenarios."""
CUTS: Final = frozenset((FaultKind.CUT, FaultKind.CUT_PIPE, FaultKind.PARTITION_SITES, FaultKind.SPLIT))
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
    if seed < WIDE_FROM:
        return plan
    more = random.Random(f"sites/{seed}/rich")
    if seed >= RICH_FROM and plan.scenario.faults:
        plan = _divided(more, plan, end_ns)
    plan = _wide(random.Random(f"sites/{seed}/wide"), plan, length_ns)
    return plan if seed < RICH_FROM else _enriched(more, plan, end_ns)


def _divided(rng: random.Random, plan: ManyGroups, end_ns: int) -> ManyGroups:
    """The same, where the daemons are also divided into three or four parts, across sites or inside them."""
    scenario = plan.scenario
    names = scenario.nodes
    if len(names) < 3 or rng.random() < 0.3:
        return plan
    count = rng.choice((3, 3, 4))
    part = {name: at if at < count else rng.randrange(count) for at, name in enumerate(rng.sample(names, len(names)))}
    at_ns = rng.randrange(MERGED_NS, end_ns)
    for_ns = rng.randrange(500, 4_000) * MS
    heals_together = rng.random() < 0.6
    cuts: list[Fault] = []
    for one in sorted(set(part.values())):
        for other in sorted(set(part.values()) - {one}):
            lasts_ns = for_ns if heals_together else rng.randrange(500, 4_000) * MS
            others = tuple([name for name in names if part[name] == other])
            cuts += [
                Fault(at_ns, FaultKind.CUT, (name,), others, for_ns=lasts_ns) for name in names if part[name] == one
            ]
    faults = sorted((*scenario.faults, *cuts), key=lambda fault: fault.at_ns)
    return replace(plan, scenario=replace(scenario, faults=tuple(faults)))


def _enriched(rng: random.Random, plan: ManyGroups, end_ns: int) -> ManyGroups:
    """The same with ambushes, with joins where a cut begins or ends, and with messages to very many groups."""
    scenario, groups = plan.scenario, plan.groups
    names = scenario.nodes
    ambushes: list[Ambush] = []
    for phase in rng.sample(list(AmbushPhase), rng.choice((0, 1, 1, 2, 3))) if scenario.faults else ():
        at_ns = rng.randrange(MERGED_NS, end_ns)
        delay_ns = rng.choice((0, 0, 1, 5, 30)) * rng.randrange(1, MS)
        down_ns = rng.choice((0, 1, 50, 1_000)) * rng.randrange(1, 2 * MS)
        ambushes.append(Ambush(at_ns, end_ns + 3_000 * MS, rng.choice(names), phase, delay_ns, down_ns))
    acts = list(plan.acts)
    for fault in [fault for fault in scenario.faults if fault.kind in CUTS]:
        for begin_ns in (fault.at_ns, fault.at_ns + fault.for_ns):
            if rng.random() < 0.25:
                at_ns = max(0, begin_ns + rng.choice((0, 1, 20, 200)) * rng.randrange(-MS, MS))
                chosen = tuple(rng.sample(groups, rng.randrange(1, min(6, len(groups)) + 1)))
                acts.append(GroupAct(at_ns, rng.choice(names), ActKind.JOIN, chosen))
    for _ in range(rng.choice((0, 2, 5))):
        at_ns = rng.randrange(MERGED_NS, end_ns)
        chosen = tuple(rng.sample(groups, len(groups) - rng.choice((0, 0, len(groups) // 2))))
        service = rng.choice(("AGREED", "AGREED", "SAFE"))
        acts.append(GroupAct(at_ns, rng.choice(names), ActKind.SEND_TO, chosen, rng.choice((1, 3)), 50, service))
    acts.sort(key=lambda act: act.at_ns)
    return replace(plan, acts=tuple(acts), ambushes=tuple(ambushes))


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
