"""What random scenarios of sites really contain: `python -m tests.sim.site_census FIRST COUNT`.

Counts runs in which something happened, over COUNT seeds from FIRST on.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ordercast.config import MS
from ordercast.sim.ambush import AmbushPhase, phase_of
from ordercast.sim.application import HostStack
from ordercast.sim.faults import FaultKind
from ordercast.sim.many_groups import ActKind, ManyGroups
from ordercast.sim.many_run import run_groups
from ordercast.sim.run import Outcome
from ordercast.sim.site_groups import CUTS, MERGED_NS, drawn_site_groups
from ordercast.sim.world import Machine, World

RACE_NS = 250 * MS  # a join so close to the begin or end of a cut races it


def census(seeds: range) -> tuple[Counter[str], list[str]]:
    """In how many runs there was what, and the failures of all."""
    found: Counter[str] = Counter()
    failures: list[str] = []
    for seed in seeds:
        plan = drawn_site_groups(seed)
        phases: set[str] = set()
        outcome = run_groups(plan, lambda phases=phases: _noting(phases))  # type: ignore[misc]
        found.update({*planned(plan), *phases, *_happened(outcome), "runs"})
        failures += [f"{seed}: {text}" for text in outcome.failures[:1]]
    return found, failures


def planned(plan: ManyGroups) -> Iterator[str]:
    """What a scenario has before it is run."""
    scenario = plan.scenario
    yield from (f"fault {fault.kind}" for fault in scenario.faults)
    cuts = [at for each in scenario.faults if each.kind in CUTS for at in (each.at_ns, each.at_ns + each.for_ns)]
    joins = [act.at_ns for act in plan.acts if act.kind in (ActKind.JOIN, ActKind.OPEN)]
    if any(abs(join - cut) < RACE_NS for join in joins for cut in cuts):
        yield "join that races a cut"
    yield f"groups {len(plan.groups)}"
    widest = max([len(act.groups) for act in plan.acts if act.kind == ActKind.SEND_TO], default=0)
    if widest >= 8:
        yield "message to 8 groups or more"
    if widest >= 100:
        yield "message to 100 groups"
    if plan.labels:
        yield "sessions"
    if scenario.topology is not None and len({link.weight for link in scenario.topology.config.links}) > 1:
        yield "weights that differ"
    if any(fault.kind == FaultKind.RESTART for fault in scenario.faults) or any(each.down_ns for each in plan.ambushes):
        yield "restart"


def _happened(outcome: Outcome) -> Iterator[str]:
    """From the views of daemons: how many parts there were, how many of them met, and what was left at the end."""
    now: dict[str, str] = {}
    came_from: dict[str, set[str]] = {}
    most = 1
    rows = [row for row in outcome.rows if "@" not in row.node and (row.kind == "crash" or row.group is None)]
    for row in sorted(rows, key=lambda row: row.at_ns):
        if row.kind == "crash":
            now.pop(row.node, None)
        elif row.kind == "view" and row.view is not None:
            if row.at_ns > MERGED_NS:
                came_from.setdefault(row.view, set()).add(now.get(row.node, row.node))
            now[row.node] = row.view
            most = max(most, len(set(now.values()))) if row.at_ns > MERGED_NS else most
    yield f"{min(most, 4)} views at a time"
    for count in range(2, 1 + max([len(each) for each in came_from.values()], default=0)):
        yield f"merge of {count}"
    yield f"end with {len(set(now.values()))} views"


@contextmanager
def _noting(phases: set[str]) -> Iterator[None]:
    """Notes what the victim of a crash was doing, and what others were."""
    crash: Callable[..., None] = World.crash

    def noted(self: World, name: str, is_process: bool = False) -> None:
        for node in self.nodes.values() if self.nodes[name].is_up else ():
            phase = _phase(node)
            if phase in tuple(AmbushPhase):
                phases.add(f"crash of one that is {phase}" if node.name == name else f"crash while others are {phase}")
        crash(self, name, is_process)

    World.crash = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        World.crash = crash  # type: ignore[method-assign]


def _phase(node: Machine) -> str:
    stack = node.stack
    ports = stack.host.ports if isinstance(stack, HostStack) else []
    return phase_of(ports[0].channel) if ports else ""


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:3])
    counted, failed = census(range(first, first + count))
    for what, times in sorted(counted.items()):
        print(f"{times:6} {what}")
    print(*failed, sep="\n")
