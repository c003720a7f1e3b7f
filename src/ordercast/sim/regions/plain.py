"""The scenario of `ordercast sim --orderer regions` with its flags: a person gives a few, the rest is filled in."""

from __future__ import annotations

import random
import shlex
from typing import Any, Final

from ordercast.config import MS, SECOND
from ordercast.errors import UsageError
from ordercast.sim.faults import FaultKind, draw_faults
from ordercast.sim.regions.plan import (
    BEGIN_NS,
    EVENT_LIMIT,
    REGIONS,
    REPLICAS,
    Deed,
    RegionAct,
    RegionNodePlan,
    RegionsPlan,
)
from ordercast.sim.scenario import Scenario, node_names

SERVICES: Final = ("UNRELIABLE", "RELIABLE", "FIFO")
MAX_NODES: Final = 60
SHARE: Final = 5  # of so many messages of a node, one goes to a group that it is not in
_DONE: Final = {
    FaultKind.CRASH: Deed.CRASH,
    FaultKind.STALL: Deed.STALL,
    FaultKind.LEAVE: Deed.DETACH,
}
"""Faults that are acts of nodes here."""


def plain_regions(
    *,
    seed: int = 0,
    nodes: int = 5,
    groups: int = 4,
    messages: int = 2_000,
    size: int = 100,
    service: str = "FIFO",
    senders: int = 0,
    seconds: float = 0.0,
    network: str = "lan",
    loss: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    datagram: int = 1_400,
    crash: int = 0,
    restart: int = 0,
    pause: int = 0,
    partition: int = 0,
    cut: int = 0,
    slow: int = 0,
    stall: int = 0,
    leave: int = 0,
    has_multicast: bool = True,
) -> RegionsPlan:
    """Nodes in overlapping halves of the groups, and three replicas of the service. `messages` are spread evenly over
    all nodes (or the last `senders` of them) and over `seconds` of virtual time; faults of nodes, and of the network
    between nodes and replicas, fall into that time. The replicas themselves do not crash.
    """
    given = dict(locals())
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(f"a run of regions has between 1 and {MAX_NODES} nodes, got {nodes}")
    if crash > nodes or restart > crash:
        raise UsageError(f"{crash} of {nodes} nodes cannot crash and {restart} of them restart")
    if senders > nodes:
        raise UsageError(f"{senders} nodes cannot send: there are {nodes}")
    if service not in SERVICES:
        raise UsageError(f"the orderer {REGIONS} gives {', '.join(SERVICES)}, not {service}")
    names = node_names(nodes)
    all_groups = tuple(f"g{number}" for number in range(groups))
    half = max(1, (groups + 1) // 2)
    plans = tuple(
        RegionNodePlan(name, tuple(all_groups[(index % 3 + step) % groups] for step in range(half)), 0)
        for index, name in enumerate(names)
    )
    load_ns = int(seconds * SECOND) or max(SECOND, messages * MS)
    begin_ns = BEGIN_NS + SECOND
    acts: list[RegionAct] = []
    speakers = names[-senders:] if senders else names
    for at in range(messages):
        name = speakers[at % len(speakers)]
        turn, mine = at // len(speakers), plans[names.index(name)].groups
        group = all_groups[turn % groups] if turn % SHARE == 1 else mine[turn % len(mine)]
        kind = Deed.SEND if group in mine else Deed.SEND_TO
        acts.append(RegionAct(begin_ns + at * load_ns // max(1, messages), name, kind, (group,), 1, size, service))
    counts = {"crash": crash, "restart": restart, "stall": stall, "leave": leave}
    rng = random.Random(f"{seed}/faults")
    drawn = draw_faults(rng, names, begin_ns, begin_ns + load_ns, **counts)
    back = {fault.nodes[0]: fault.at_ns for fault in drawn if fault.kind == FaultKind.RESTART}
    for fault in drawn:
        if fault.kind in _DONE:
            name = fault.nodes[0]
            down_ns = back.get(name, fault.at_ns) - fault.at_ns if fault.kind == FaultKind.CRASH else SECOND
            acts.append(RegionAct(fault.at_ns, name, _DONE[FaultKind(fault.kind)], for_ns=fault.for_ns or down_ns))
    faults = draw_faults(
        rng,
        (*REPLICAS, *names),
        begin_ns,
        begin_ns + load_ns,
        pause=pause,
        partition=partition,
        cut=cut,
        slow=slow,
    )
    scenario = Scenario(
        seed=seed,
        orderer=REGIONS,
        nodes=(*REPLICAS, *names),
        network=network,
        loss=loss,
        duplicate=duplicate,
        reorder=reorder,
        has_multicast=has_multicast,
        datagram=datagram,
        faults=tuple(faults),
        event_limit=max(EVENT_LIMIT, messages * nodes * 100),
        command=_command(given),
    )
    return RegionsPlan(scenario, plans, REPLICAS, tuple(sorted(acts, key=lambda act: act.at_ns)))


def _command(given: dict[str, Any]) -> str:
    defaults = plain_regions.__kwdefaults__ or {}
    words = ["ordercast", "sim", "--orderer", REGIONS]
    for name, value in given.items():
        if name == "has_multicast":
            words += [] if value else ["--no-multicast"]
        elif value != defaults[name] or name == "seed":
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
