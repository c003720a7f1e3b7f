"""Random scenarios about forged reports: the profile `detector` of the fuzzer.

A small group sends a little, so that members often wait for each other and probe each other. Nothing fails. A forger
tells them again and again that processes are gone. It hears all multicasts, and now and then a switch floods a probe,
so that it knows one nonce. Nobody may be suspected (docs/design/detector.md).
"""

from __future__ import annotations

import random
from typing import Final

from ordercast.config import MS
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.scenario import SERVICES, Load, Scenario, anticipate_flags, check_orderer, node_names

DETECTOR: Final = "detector"
COMMAND: Final = "ordercast sim --profile detector --scenario-seed"
BEGIN_NS: Final = 1_000 * MS
APART_NS: Final = 2_500 * MS  # between two forgeries about one member to another: a living one speaks meanwhile
ROUNDS: Final = 3
EVENT_LIMIT: Final = 300_000


def detector_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """Draw a group in which nothing fails, and what it is told."""
    anticipates = check_orderer(orderer, anticipate)
    rng = random.Random(f"{orderer}/{seed}/{DETECTOR}")
    names = node_names(rng.choice((3, 3, 4, 5)))
    services = [name for name in ("AGREED", "SAFE") if name in SERVICES[orderer]]
    loads = []
    for name in names:
        interval_ns = rng.choice((40, 90, 150)) * MS
        count = int(ROUNDS * APART_NS // interval_ns)
        loads.append(Load(name, count, rng.choice(services), 100, BEGIN_NS + rng.randrange(50 * MS), interval_ns))
    faults = []
    for deceived in names:
        for other in names:
            if other != deceived:
                first_ns = BEGIN_NS + rng.randrange(APART_NS)
                faults += [
                    Fault(first_ns + index * APART_NS, FaultKind.FORGE, (deceived,), (other,), value=1.0)
                    for index in range(ROUNDS)
                ]
    return Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        network=rng.choice(("lan", "lan", "ideal")),
        loss=rng.choice((0.0, 0.0, 0.01)),
        anticipate=anticipates,
        loads=tuple(loads),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        event_limit=EVENT_LIMIT,
        command=" ".join([COMMAND, str(seed), "--orderer", orderer, *anticipate_flags(anticipate)]),
    )
