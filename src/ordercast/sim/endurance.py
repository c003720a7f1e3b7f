"""Random scenarios about groups that must not stand still: the profile `endurance` of the fuzzer.

It takes the scenarios of the other profiles, gives most nodes a folder, and has crashed nodes come back with it, or
without. Some crashes are of a process alone, some reports of that are forged, and some applications do not receive.
What is drawn here comes from streams of its own, so a seed gives the same scenario in every release, as in `chance.py`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from ordercast.config import MS
from ordercast.sim.churn import membership_scenario
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.gathering import gathering_scenario
from ordercast.sim.gone import with_reports
from ordercast.sim.restarts import restarts_scenario
from ordercast.sim.scenario import Scenario, anticipate_flags
from ordercast.sim.slow import with_slow_receivers

COMMAND: Final = "ordercast sim --profile endurance --scenario-seed"
SAFE_SHARE: Final = 0.85  # of the runs in which every node has a folder, and keeps it
FOLDER_SHARE: Final = 0.9  # of the nodes, in the others
LOST_SHARE: Final = 0.1  # of the restarts, before which the folder is lost, in the others
BACK_SHARE: Final = 0.95  # of the nodes that are down at the end, and come back
SLOW_SHARE: Final = 0.3  # of the runs in which applications do not receive
BACK_NS: Final = 4_000 * MS  # within which they come back


def endurance_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """Draw a small group, what befalls it, and how its members come back."""
    rng = random.Random(f"{orderer}/{seed}/endurance")
    draw = rng.choice((restarts_scenario, restarts_scenario, membership_scenario, gathering_scenario))
    drawn = draw(seed, orderer, anticipate)
    if draw is not restarts_scenario:
        drawn = _with_folders(drawn, rng)
    if random.Random(f"{orderer}/{seed}/endurance/folders").random() < SAFE_SHARE:
        kept = tuple(fault for fault in drawn.faults if fault.kind != FaultKind.FORGET)
        drawn = replace(drawn, folders=drawn.nodes, faults=kept)
    drawn = with_reports(_with_returns(drawn, rng))
    if drawn.recovery == "automatic" and rng.random() < SLOW_SHARE:
        drawn = with_slow_receivers(drawn)
    return replace(drawn, command=" ".join([COMMAND, str(seed), "--orderer", orderer, *anticipate_flags(anticipate)]))


def _with_folders(drawn: Scenario, rng: random.Random) -> Scenario:
    """Most nodes have a folder, and lose it rarely."""
    lost = [
        Fault(fault.at_ns - 1, FaultKind.FORGET, fault.nodes)
        for fault in drawn.faults
        if fault.kind == FaultKind.RESTART and rng.random() < LOST_SHARE
    ]
    return replace(
        drawn,
        folders=tuple(name for name in drawn.nodes if rng.random() < FOLDER_SHARE),
        faults=tuple(sorted([*drawn.faults, *lost], key=lambda fault: fault.at_ns)),
    )


def _with_returns(drawn: Scenario, rng: random.Random) -> Scenario:
    """Nodes that are down at the end come back, but for a few."""
    down: dict[str, int] = {}
    for fault in drawn.faults:
        for name in fault.nodes:
            if fault.kind in (FaultKind.CRASH, FaultKind.CRASH_STORING):
                down[name] = fault.at_ns + fault.for_ns
            elif fault.kind == FaultKind.RESTART:
                down.pop(name, None)
    back = [
        Fault(at_ns + rng.randrange(1, BACK_NS), FaultKind.RESTART, (name,))
        for name, at_ns in down.items()
        if rng.random() < BACK_SHARE
    ]
    return replace(drawn, faults=tuple(sorted([*drawn.faults, *back], key=lambda fault: fault.at_ns)))
