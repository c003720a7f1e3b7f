"""What random scenarios say about dead processes: some crashes leave the machine alive, and reports may be forged.

Drawn from a stream of its own, so that everything else of a seed stays what it was before there were probes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from ordercast.config import MS
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.scenario import Scenario

PROCESS_SHARE: Final = 0.5  # of crashes in which only the process is gone
FORGED_SHARE: Final = 0.3  # of runs in which somebody forges reports
FROM_NS: Final = 500 * MS
MOST_FORGED: Final = 4


def with_reports(drawn: Scenario) -> Scenario:
    """The scenario, with the machines that survive a crash and the forged reports added."""
    rng = random.Random(f"{drawn.orderer}/{drawn.seed}/reports")
    faults = [
        replace(fault, value=1.0) if fault.kind == FaultKind.CRASH and rng.random() < PROCESS_SHARE else fault
        for fault in drawn.faults
    ]
    if rng.random() < FORGED_SHARE and len(drawn.nodes) > 1:
        for _ in range(rng.randrange(1, MOST_FORGED + 1)):
            deceived, *others = rng.sample(drawn.nodes, rng.randrange(2, len(drawn.nodes) + 1))
            at_ns = rng.randrange(FROM_NS, max(drawn.last_ns, FROM_NS + 1) + 1)
            faults.append(Fault(at_ns, FaultKind.FORGE, (deceived,), tuple(others)))
    return replace(drawn, faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)))
