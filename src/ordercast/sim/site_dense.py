"""Dense scenarios of daemons in sites: few groups, all services, and something that happens all the time.

Where a seed of `site_groups.py` has some thirty acts, one of these has hundreds: somebody sends, joins, leaves or comes
back in every phase of every fault. So they meet what is rare elsewhere: messages of each service on the way while a
view ends, while rosters are exchanged, and while a daemon is about to join.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ordercast.config import MS
from ordercast.service import parse_service
from ordercast.sim.faults import draw_faults
from ordercast.sim.many_groups import ActKind, GroupAct, ManyGroups
from ordercast.sim.scenario import SITE_SERVICES, Scenario
from ordercast.sim.site_chance import draw_site_faults
from ordercast.sim.topology import Topology

FIRST_NS: Final = 1_500 * MS  # of the acts: many daemons have not merged yet
FAULTS_NS: Final = 2_500 * MS
LAST_NS: Final = 1_500 * MS  # of acts behind the last fault: components merge
NOTICED_NS: Final = 700 * MS
MOST_ACTS: Final = 160


def dense_groups(
    rng: random.Random, seed: int, orderer: str, topology: Topology, event_limit: int, command: str
) -> ManyGroups:
    """Draw everything but the sites."""
    names = topology.nodes
    end_ns = FAULTS_NS + rng.choice((1_000, 2_000, 4_000)) * MS
    crash = rng.choice((0, 0, 1))
    faults = draw_faults(
        rng,
        names,
        FAULTS_NS,
        end_ns,
        crash=crash,
        restart=rng.randrange(crash + 1),
        pause=rng.choice((0, 0, 0, 1)),
        stall=rng.choice((0, 0, 0, 0, 1)),
        lossy=rng.choice((0, 0, 0, 1)),
    )
    apart = draw_site_faults(
        rng,
        topology,
        FAULTS_NS,
        end_ns,
        cut_pipe=rng.choice((0, 0, 1, 2)),
        partition_sites=rng.choice((1, 2, 3)),
        split=rng.choice((0, 0, 1, 2)),
        lossy_pipe=rng.choice((0, 0, 1)),
    )
    # Most of them last until they are noticed: views end in the middle of everything.
    faults += [replace(fault, for_ns=fault.for_ns + rng.choice((0, NOTICED_NS, NOTICED_NS))) for fault in apart]
    scenario = Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        starts_ns=tuple([rng.choice((0, 0, 0, 30, 500)) * MS for _ in names]),
        network="lan",
        loss=rng.choice((0.0, 0.01, 0.03)),
        duplicate=rng.choice((0.0, 0.0, 0.05)),
        reorder=rng.choice((0.0, 0.0, 0.1)),
        datagram=rng.choice((1_400, 1_400, 9_000)),
        history_bytes=rng.choice((64_000, 256_000, 1 << 20)),
        min_members=1,
        topology=topology,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        event_limit=event_limit,
        command=command,
    )
    groups = tuple(f"g{number}" for number in range(rng.choice((2, 3, 5))))
    homes = tuple(tuple(rng.sample(groups, rng.randrange(1, len(groups)))) for _ in names)
    based = tuple(name for name in names if rng.random() < 0.5)
    fed = tuple(name for name in based if rng.random() < 0.5)
    last_ns = max([fault.at_ns + fault.for_ns for fault in faults], default=end_ns) + LAST_NS
    acts = tuple(sorted(_draw_acts(rng, names, groups, homes, last_ns), key=lambda act: act.at_ns))
    return ManyGroups(scenario, groups, homes, based, fed, acts)


def _draw_acts(
    rng: random.Random,
    names: tuple[str, ...],
    groups: tuple[str, ...],
    homes: tuple[tuple[str, ...], ...],
    last_ns: int,
) -> Iterator[GroupAct]:
    inside = {name: set(home) for name, home in zip(names, homes, strict=True)}
    step_ns = (last_ns - FIRST_NS) // MOST_ACTS
    for number in range(MOST_ACTS):
        at_ns = FIRST_NS + number * step_ns + rng.randrange(step_ns)
        node = rng.choice(names)
        mine, chance = inside[node], rng.random()
        group = (rng.choice(groups),)
        if chance < 0.12:
            mine.update(group)
            yield GroupAct(at_ns, node, ActKind.JOIN, group)
        elif chance < 0.24 and mine:
            group = (rng.choice(sorted(mine)),)
            yield GroupAct(at_ns, node, ActKind.LEAVE, group)
            if rng.random() < 0.5:  # it comes back before it is out, or just after
                yield GroupAct(at_ns + rng.randrange(60 * MS), node, ActKind.JOIN, group)
            else:
                mine.difference_update(group)
        elif chance < 0.5:
            several = tuple(rng.sample(groups, rng.choice((1, 1, min(2, len(groups))))))
            yield _send(rng, at_ns, node, ActKind.SEND_TO, several)
        elif mine:
            yield _send(rng, at_ns, node, ActKind.SEND, (rng.choice(sorted(mine)),))


def _send(rng: random.Random, at_ns: int, node: str, kind: ActKind, groups: tuple[str, ...]) -> GroupAct:
    service = rng.choice(SITE_SERVICES)
    if len(groups) > 1 and not parse_service(service).is_ordered:
        service = "SAFE"  # a message to several groups takes no less than AGREED
    size = rng.choice((20, 200, 200, 3_000))
    return GroupAct(at_ns, node, kind, groups, rng.choice((1, 2, 5, 10)), size, service, rng.random() < 0.1)
