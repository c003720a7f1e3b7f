"""Random scenarios about restarts: the profile `restarts` of the fuzzer.

Members crash, alone, together or all of them, and come back with their folder, without it, or not at all. Some crash
between storing and sending. Other failures, joins and leaves happen around that. A seed gives the same scenario in
every release, as in `chance.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from ordercast.config import MS
from ordercast.orderers import ORDERERS
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.scenario import SERVICES, Load, LockUse, Scenario, anticipate_flags, check_orderer, node_names

COMMAND: Final = "ordercast sim --profile restarts --scenario-seed"
FORMED_NS: Final = 700 * MS  # by then the first members have found one another
EVENT_LIMIT: Final = 400_000
FOLDER_SHARE: Final = 0.9  # of the nodes that have a folder
LOST_SHARE: Final = 0.15  # of the restarts before which the folder is lost
GONE_SHARE: Final = 0.15  # of the crashes that nobody comes back from


def restarts_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """Draw a small group and its restarts. With and without anticipation a seed gives the same scenario."""
    anticipates = check_orderer(orderer, anticipate)
    rng = random.Random(f"{orderer}/{seed}/restarts")
    names = node_names(rng.choice((1, 2, 3, 3, 3, 3, 4, 4, 5, 5, 6)))
    later = rng.randrange(0, len(names) - 1) if len(names) > 2 and rng.random() < 0.3 else 0
    gap_ns = rng.choice((0, 5, 20)) * MS
    starts_ns = tuple(at * gap_ns if at < len(names) - later else -1 for at in range(len(names)))
    faults = [
        Fault(FORMED_NS + rng.randrange(3_000) * MS, FaultKind.JOIN, (name,)) for name in names[len(names) - later :]
    ]
    now_ns = FORMED_NS + rng.randrange(500) * MS
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        now_ns = _blow(rng, names, now_ns, faults)
    end_ns = now_ns + rng.choice((0, 500, 3_000)) * MS
    dice = rng.random()
    return Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        starts_ns=starts_ns,
        network=rng.choice(("lan", "lan", "ideal")),
        jitter_ns=rng.choice((-1, -1, 200_000, 5 * MS)),
        loss=rng.choice((0.0, 0.0, 0.0, 0.01, 0.05)),
        duplicate=rng.choice((0.0, 0.0, 0.0, 0.02)),
        reorder=rng.choice((0.0, 0.0, 0.0, 0.1)),
        has_multicast=rng.random() < 0.85,
        anticipate=anticipates,
        min_members="majority" if dice < 0.8 else "all" if dice < 0.9 else rng.randrange(1, len(names) + 1),
        folders=tuple(name for name in names if rng.random() < FOLDER_SHARE),
        loads=_draw_loads(rng, orderer, names, end_ns),
        locks=_draw_locks(rng, names, end_ns) if ORDERERS[orderer].gives_locks and rng.random() < 0.3 else (),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        event_limit=EVENT_LIMIT,
        command=" ".join([COMMAND, str(seed), "--orderer", orderer, *anticipate_flags(anticipate)]),
    )


def _blow(rng: random.Random, names: Sequence[str], now_ns: int, faults: list[Fault]) -> int:
    """Some crash and come back, and perhaps something else happens meanwhile; when the next blow may come."""
    most = len(names) if rng.random() < 0.5 else max(1, len(names) // 2 + 1)
    victims = rng.sample(list(names), rng.randrange(1, most + 1))
    spread_ns = rng.choice((0, 1, 30, 1_500)) * MS
    away_ns = rng.choice((30, 300, 2_000, 8_000)) * MS
    last_ns = now_ns
    for name in victims:
        at_ns = now_ns + rng.randrange(spread_ns + 1)
        if rng.random() < 0.25:
            for_ns = rng.randrange(1, 2_000) * MS
            faults.append(Fault(at_ns, FaultKind.CRASH_STORING, (name,), for_ns=for_ns))
            at_ns += for_ns
        else:
            faults.append(Fault(at_ns, FaultKind.CRASH, (name,)))
        if rng.random() < GONE_SHARE:
            continue
        back_ns = at_ns + 1 + rng.randrange(away_ns)
        if rng.random() < LOST_SHARE:
            faults.append(Fault(back_ns - 1, FaultKind.FORGET, (name,)))
        faults.append(Fault(back_ns, FaultKind.RESTART, (name,)))
        last_ns = max(last_ns, back_ns)
    if rng.random() < 0.4 and len(names) > 1:
        faults.append(_other(rng, names, now_ns + rng.randrange(max(last_ns - now_ns, 1) + 500 * MS)))
    return now_ns + rng.randrange(max(last_ns - now_ns, MS)) + rng.choice((5, 100, 1_500, 6_000)) * MS


def _other(rng: random.Random, names: Sequence[str], at_ns: int) -> Fault:
    lasting_ns = rng.randrange(*rng.choice(((5, 300), (300, 3_000), (3_000, 9_000)))) * MS
    some = tuple(rng.sample(list(names), rng.randrange(1, len(names))))
    kind = rng.choice((FaultKind.PARTITION, FaultKind.CUT, FaultKind.PAUSE, FaultKind.LEAVE))
    if kind is FaultKind.LEAVE:
        return Fault(at_ns, kind, some[:1])
    others = tuple(name for name in names if name not in some) if kind is FaultKind.CUT else ()
    return Fault(at_ns, kind, some, others, for_ns=lasting_ns)


def _draw_loads(rng: random.Random, orderer: str, names: Sequence[str], end_ns: int) -> tuple[Load, ...]:
    loads = []
    for name in rng.sample(list(names), rng.randrange(1, min(3, len(names)) + 1)):
        count = rng.choice((3, 10, 40))
        service = rng.choice(("AGREED", "AGREED", "SAFE", *SERVICES[orderer]))
        start_ns = FORMED_NS + rng.randrange(500) * MS
        loads.append(
            Load(
                name,
                count,
                "RESILIENT(1)" if service == "RESILIENT" else service,
                rng.choice((10, 100, 3_000)),
                start_ns,
                max(1, (end_ns - start_ns) // count),
                is_confirmed=rng.random() < 0.5,
            )
        )
    return tuple(loads)


def _draw_locks(rng: random.Random, names: Sequence[str], end_ns: int) -> tuple[LockUse, ...]:
    return tuple(
        LockUse(
            rng.choice(names),
            rng.choice(("x", "2")),
            rng.randrange(FORMED_NS, max(end_ns, FORMED_NS + 1)),
            rng.randrange(rng.choice((5, 500, 2_000)) * MS),
        )
        for _ in range(rng.choice((1, 2, 4)))
    )
