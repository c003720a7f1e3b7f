"""Random scenarios about members that do not receive: applications that stop for longer than the group's patience, or
until the end of the run, and members that are expelled (docs/design/slow.md).

`with_slow_receivers` adds them to any scenario, from a stream of its own: a seed gives the same in every release.
"""

from __future__ import annotations

import random
from dataclasses import replace

from ordercast.config import MS, SECOND
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.scenario import SERVICES, Load, Scenario

FORMED_NS = 500 * MS  # most groups have formed by then, and others form meanwhile
CALM = 0.5  # of the runs have no other fault: there an eviction must do without a recovery


def with_slow_receivers(drawn: Scenario) -> Scenario:
    """The scenario with little patience, a small history, load that fills it, and applications that stop."""
    rng = random.Random(f"{drawn.orderer}/{drawn.seed}/slow")
    names = drawn.nodes
    patience_ns = rng.choice((500, 1_000, 2_500)) * MS
    is_calm = rng.random() < CALM
    faults = [fault for fault in drawn.faults if not is_calm or fault.kind == FaultKind.JOIN]
    begin_ns = max([FORMED_NS, *drawn.starts_ns]) + rng.randrange(500) * MS
    for _ in range(rng.choice((1, 1, 2, 3))):
        at_ns = begin_ns + rng.randrange(3_000) * MS
        # Shorter than the patience, longer, and until everything is healed.
        for_ns = rng.choice((patience_ns // 2, 2 * patience_ns, 4 * patience_ns, 10 * SECOND, 0))
        faults.append(Fault(at_ns, FaultKind.STALL, (rng.choice(names),), (), 0.0, for_ns))
    if rng.random() < 0.4:
        for _ in range(rng.choice((1, 2))):
            asker, *others = rng.sample(names, len(names))
            if others:
                at_ns = begin_ns + rng.randrange(5_000) * MS
                faults.append(Fault(at_ns, FaultKind.EXPEL, (rng.choice(others),), (asker,)))
    loads = list(drawn.loads)
    for name in rng.sample(names, rng.randrange(1, len(names) + 1)):
        service = rng.choice(("AGREED", *SERVICES[drawn.orderer]))
        loads.append(
            Load(
                name,
                rng.choice((40, 120)),
                "RESILIENT(1)" if service == "RESILIENT" else service,
                rng.choice((100, 1_000, 3_000)),
                begin_ns + rng.randrange(2_000) * MS,
                rng.choice((5, 50)) * MS,
                burst=rng.choice((1, 4)),
                is_confirmed=rng.random() < 0.2,
            )
        )
    return replace(
        drawn,
        patience_ns=patience_ns,
        slow="evict" if rng.random() < 0.9 else "wait",
        history_bytes=min(drawn.history_bytes, rng.choice((8_192, 20_000, 64_000))),
        loads=tuple(loads),
        loss=min(drawn.loss, 0.05) if is_calm else drawn.loss,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
    )
