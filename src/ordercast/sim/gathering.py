"""Random scenarios about groups that are too small: the profile `gathering` of the fuzzer.

Groups wait for their `bootstrap` or for `min_members`. Members come one by one, or in two parts that find each other
later. Messages, locks and calls are there from the beginning, so that they have to wait. Members leave and crash while
the group is still too small, and after it was large enough. A seed gives the same scenario in every release, as in
`chance.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from ordercast.config import MS, SECOND, MinMembers
from ordercast.orderers import ORDERERS
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.scenario import (
    SERVICES,
    CallPlan,
    Load,
    LockUse,
    Scenario,
    anticipate_flags,
    check_orderer,
    node_names,
)

COMMAND: Final = "ordercast sim --profile gathering --scenario-seed"
EVENT_LIMIT: Final = 600_000
CALLER: Final = "caller0"


def gathering_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """Draw a small group and how it gathers. With and without anticipation a seed gives the same scenario."""
    anticipates = check_orderer(orderer, anticipate)
    rng = random.Random(f"{orderer}/{seed}/gathering")
    names = node_names(rng.choice((2, 3, 3, 4, 4, 5)))
    bootstrap, min_members = _draw_needs(rng, len(names))
    gap_ns = rng.choice((0, 20 * MS, 700 * MS, 2 * SECOND))
    starts_ns = tuple(index * gap_ns + rng.randrange(50) * MS for index in range(len(names)))
    gathered_ns = starts_ns[-1] + rng.choice((200, 1_000, 3_000)) * MS
    faults = _draw_faults(rng, names, gathered_ns)
    if rng.random() < 0.3:
        # One more comes into a group that may have shrunk.
        names, starts_ns = node_names(len(names) + 1), (*starts_ns, -1)
        faults.append(Fault(gathered_ns + rng.randrange(1_000, 8_000) * MS, FaultKind.JOIN, (names[-1],)))
    leaves_ns = [fault.at_ns for fault in faults if fault.kind == FaultKind.LEAVE]
    has_locks = ORDERERS[orderer].gives_locks
    calls = _draw_calls(rng) if has_locks and rng.random() < 0.3 else ()
    return Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        starts_ns=starts_ns,
        network=rng.choice(("lan", "lan", "ideal")),
        loss=rng.choice((0.0, 0.0, 0.01, 0.05)),
        has_multicast=rng.random() < 0.85,
        anticipate=anticipates,
        min_members=min_members,
        bootstrap=bootstrap,
        loads=_draw_loads(rng, orderer, names, gathered_ns, leaves_ns),
        callers=(CALLER,) if calls else (),
        calls=calls,
        locks=_draw_locks(rng, names, gathered_ns, leaves_ns) if has_locks else (),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        event_limit=EVENT_LIMIT,
        command=" ".join([COMMAND, str(seed), "--orderer", orderer, *anticipate_flags(anticipate)]),
    )


def _draw_needs(rng: random.Random, nodes: int) -> tuple[int, MinMembers]:
    """`bootstrap` and `min_members`: often as many as there are, sometimes one more than will ever come."""
    dice = rng.random()
    if dice < 0.45:
        return rng.randrange(2, nodes + 1), rng.choice(("majority", "majority", "majority", 1, "all"))
    if dice < 0.75:
        return 1, rng.randrange(2, nodes + 1)
    if dice < 0.9:
        return rng.randrange(2, nodes + 1), rng.randrange(1, nodes + 1)
    return (nodes + 1, "majority") if rng.random() < 0.5 else (1, nodes + 1)


def _draw_loads(
    rng: random.Random, orderer: str, names: Sequence[str], gathered_ns: int, leaves_ns: Sequence[int]
) -> tuple[Load, ...]:
    """They begin before the group is complete, and go on while members come and go. Some are under way at a leave."""
    loads = []
    for name in rng.sample(names, rng.randrange(1, len(names) + 1)):
        service = rng.choice(("AGREED", "AGREED", *SERVICES[orderer]))
        start_ns = rng.randrange(gathered_ns)
        count = rng.choice((1, 5, 20))
        interval_ns = max(MS, (gathered_ns + 6 * SECOND - start_ns) // count)
        is_confirmed = rng.random() < 0.7
        service = "RESILIENT(1)" if service == "RESILIENT" else service
        loads.append(Load(name, count, service, rng.choice((10, 100, 3_000)), start_ns, interval_ns, 1, is_confirmed))
    for at_ns in leaves_ns:
        start_ns = max(0, at_ns - rng.randrange(5 * MS))
        loads.append(Load(rng.choice(names), 10, "AGREED", 100, start_ns, MS // 2, 1, is_confirmed=True))
    return tuple(loads)


def _draw_locks(
    rng: random.Random, names: Sequence[str], gathered_ns: int, leaves_ns: Sequence[int]
) -> tuple[LockUse, ...]:
    """Some are asked for at the time of a leave, so that the two meet."""
    uses = []
    for name in names:
        for _ in range(rng.choice((0, 1, 2))):
            at_ns = rng.randrange(gathered_ns + 6 * SECOND)
            uses.append(LockUse(name, rng.choice("xy"), at_ns, rng.choice((1, 100, 2_000)) * MS))
    for at_ns in leaves_ns:
        uses += [LockUse(name, name, max(0, at_ns + rng.randrange(-MS, 2 * MS)), MS) for name in names]
    return tuple(sorted(uses, key=lambda use: use.at_ns))


def _draw_calls(rng: random.Random) -> tuple[CallPlan, ...]:
    return (CallPlan(CALLER, rng.choice((1, 5)), start_ns=rng.randrange(2_000) * MS, interval_ns=SECOND),)


def _draw_faults(rng: random.Random, names: Sequence[str], gathered_ns: int) -> list[Fault]:
    faults: list[Fault] = []
    if rng.random() < 0.3:
        # Two parts begin apart: each makes the group, and they meet.
        part = tuple(rng.sample(names, rng.randrange(1, len(names))))
        faults.append(Fault(0, FaultKind.PARTITION, part, for_ns=gathered_ns // 2 + rng.randrange(1, 3_000) * MS))
    now_ns = gathered_ns + rng.randrange(2_000) * MS if rng.random() < 0.6 else rng.randrange(gathered_ns)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(names)
        kind = rng.choice((FaultKind.LEAVE, FaultKind.LEAVE, FaultKind.CRASH, FaultKind.PAUSE, FaultKind.PARTITION))
        if kind in (FaultKind.PAUSE, FaultKind.PARTITION):
            faults.append(Fault(now_ns, kind, (name,), for_ns=rng.choice((300, 2_000, 4_000)) * MS))
        else:
            faults.append(Fault(now_ns, kind, (name,)))
            if rng.random() < 0.4:
                back = FaultKind.REJOIN if kind is FaultKind.LEAVE else FaultKind.RESTART
                faults.append(Fault(now_ns + rng.choice((50, 1_000, 5_000)) * MS, back, (name,)))
        now_ns += rng.choice((10, 500, 3_000)) * MS
    return faults
