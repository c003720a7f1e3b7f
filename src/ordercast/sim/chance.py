"""Random scenarios: everything about a run is drawn from one number, for the fuzzer.

A seed must give the same scenario in every release, because people keep failing seeds. So the order of the draws and
the names of the streams never change. What is new draws from a stream of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ordercast.config import MS, MinMembers
from ordercast.orderers import ORDERERS
from ordercast.service import RESILIENT, Service, parse_service
from ordercast.sim.churn import membership_scenario
from ordercast.sim.detecting import DETECTOR, detector_scenario
from ordercast.sim.endurance import endurance_scenario
from ordercast.sim.faults import Fault, FaultKind, draw_aftershocks, draw_faults
from ordercast.sim.gathering import gathering_scenario
from ordercast.sim.patience import patience_scenario
from ordercast.sim.restarts import restarts_scenario
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
from ordercast.sim.slow import with_slow_receivers

RANDOM_EVENT_LIMIT: Final = 500_000  # a random scenario takes some ten thousand; a storm of datagrams is a failure, too
PLAIN_SEEDS: Final = ("sequencer",)
"""Orderers whose random scenarios have only what all orderers have: they were fuzzed before there was more."""


def drawn_scenario(profile: str, seed: int, orderer: str, anticipate: bool | None = None) -> Scenario:
    """The scenario of a seed in one of the `PROFILES`."""
    draws = {
        "membership": membership_scenario,
        "patience": patience_scenario,
        "gathering": gathering_scenario,
        "restarts": restarts_scenario,
        "slow": slow_scenario,
        DETECTOR: detector_scenario,
        "endurance": endurance_scenario,
    }
    return draws.get(profile, random_scenario)(seed, orderer, anticipate)


def slow_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """A random scenario in which applications stop receiving, and members are expelled."""
    words = ["ordercast sim --profile slow --scenario-seed", str(seed), "--orderer", orderer]
    command = " ".join([*words, *anticipate_flags(anticipate)])
    return replace(with_slow_receivers(random_scenario(seed, orderer, anticipate)), command=command)


def random_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """Draw everything. Most runs are small and suffer several things at once: that is where protocols break.

    With and without anticipation a seed gives the same scenario but for that.
    """
    anticipates = check_orderer(orderer, anticipate)
    rng = random.Random(f"{orderer}/{seed}/scenario")
    names = node_names(rng.choice((2, 3, 3, 4, 4, 5, 5, 6, 7)))
    network, datagram, buffer_bytes = _draw_network(rng)
    load_ns = rng.choice((300, 1_000, 3_000, 8_000)) * MS
    begin_ns = rng.choice((0, 50, 500, 1_500)) * MS
    loads = _draw_loads(rng, orderer, names, begin_ns, load_ns)
    starts_ns, joins = _draw_starts(rng, names, begin_ns, load_ns)
    calm = rng.random() < 0.15  # some runs have no fault at all: there, nothing may go wrong for any reason
    faults: list[Fault] = list(joins)
    if not calm:
        faults += _draw_faults(rng, names, begin_ns, load_ns)
        faults += draw_aftershocks(random.Random(f"{seed}/aftershocks"), names, faults)
    recovery = "manual" if rng.random() < 0.2 else "automatic"
    if recovery == "manual" and rng.random() < 0.3:
        at_ns = begin_ns + rng.randrange(load_ns)
        faults.append(Fault(at_ns, FaultKind.RESET, tuple(rng.sample(names, rng.randrange(1, len(names))))))
    history_bytes = rng.choice((8_192, 20_000, 64_000, 1 << 20, 4 << 20))
    drawn = Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        starts_ns=starts_ns,
        network=network,
        jitter_ns=rng.choice((-1, 0, 200_000, 5 * MS)),
        loss=_draw_loss(rng),
        duplicate=rng.choice((0.0, 0.0, 0.01, 0.1)),
        reorder=rng.choice((0.0, 0.0, 0.05, 0.3)),
        has_multicast=rng.random() < 0.75,
        buffer_bytes=buffer_bytes,
        datagram=datagram,
        history_bytes=history_bytes,
        history_blocks=rng.choice((2, 4, 16, 128, 4_096)),
        resilience=rng.choice((0, 0, 0, 1, 2)),
        anticipate=anticipates,
        min_members=_draw_min_members(rng, len(names)),
        recovery=recovery,
        timing=_draw_timing(rng),
        loads=tuple(loads),
        take_delays_ns=tuple(rng.choice((0, 0, 0, 1, 20, 200)) * MS for _ in names),
        faults=_in_order(faults),
        event_limit=RANDOM_EVENT_LIMIT,
        command=" ".join(
            ["ordercast sim --scenario-seed", str(seed), "--orderer", orderer, *anticipate_flags(anticipate)]
        ),
    )
    # More from streams of their own, so that the seeds of other orderers stay what they are.
    if ORDERERS[orderer].gives_locks:
        return _with_services(random.Random(f"{orderer}/{seed}/services"), drawn, begin_ns, load_ns)
    if orderer in PLAIN_SEEDS:
        return drawn
    return _with_conditions(random.Random(f"{orderer}/{seed}/conditions"), drawn, begin_ns, load_ns)


def _with_conditions(rng: random.Random, drawn: Scenario, begin_ns: int, load_ns: int) -> Scenario:
    """Add members without multicast, demands that differ, the other flow control and partitions that last."""
    without_multicast = _draw_without_multicast(rng, drawn)
    flow = _draw_flow(rng)
    rules = _draw_strict(rng, _draw_rules(rng, drawn))
    parted = _draw_long_partition(rng, drawn, rules, drawn.nodes, begin_ns, load_ns)
    drawn = replace(
        drawn, flow=flow, rules=rules, without_multicast=without_multicast, faults=_in_order([*drawn.faults, *parted])
    )
    # The stream keeps its first name: with another one every seed would be another scenario.
    crowded = random.Random(f"{drawn.orderer}/{drawn.seed}/comings")
    return _with_joins(crowded, drawn, begin_ns) if crowded.random() < 0.15 else drawn


def _with_joins(rng: random.Random, drawn: Scenario, begin_ns: int) -> Scenario:
    """Nothing fails, and little is lost: all are in, all send, and members go and come back in the midst of it."""
    begin_ns += 1_000 * MS
    span_ns = rng.choice((50, 100, 300, 1_000)) * MS
    loads, faults = [], []
    for name in drawn.nodes:
        for _ in range(rng.choice((1, 2))):
            size = rng.choice((1, 100, 1_000, 3_000, 20_000))
            count = rng.choice((20, 60, 150)) if size < 20_000 else 4
            service = str(_draw_service(rng, drawn.orderer))
            start_ns = begin_ns + rng.randrange(span_ns // 4)
            loads.append(Load(name, count, service, size, start_ns, max(1, span_ns // count)))
        if rng.random() < 0.75:
            at_ns = begin_ns + rng.randrange(span_ns)
            faults.append(Fault(at_ns, FaultKind.LEAVE, (name,)))
            faults.append(Fault(at_ns + rng.choice((5, 50, 200)) * MS, FaultKind.REJOIN, (name,)))
    return replace(
        drawn,
        starts_ns=(),
        loads=tuple(loads),
        faults=_in_order(faults),
        loss=min(drawn.loss, 0.1),
        history_blocks=4_096,
    )


def _with_services(rng: random.Random, drawn: Scenario, begin_ns: int, load_ns: int) -> Scenario:
    """Add what orderers with locks have besides: locks, handlers, callers and their calls, members without multicast,
    and demands that differ. Each of them in a good part of the runs, and now and then all at once."""
    names = drawn.nodes
    is_calm = _is_calm(drawn)
    faults = list(drawn.faults)
    without_multicast = _draw_without_multicast(rng, drawn)
    rules = _draw_rules(rng, drawn)
    locks = _draw_locks(rng, names, begin_ns, load_ns) if rng.random() < 0.6 else []
    callers = tuple(f"caller{index}" for index in range(rng.choice((0, 0, 1, 1, 2, 3))))
    calls: list[CallPlan] = []
    for name in callers:
        calls += [_draw_calls(rng, drawn, name, begin_ns, load_ns) for _ in range(rng.choice((1, 1, 2)))]
        if not is_calm:
            faults += _draw_caller_faults(rng, name, names, begin_ns, load_ns)
        if rng.random() < 0.15:
            without_multicast = (*without_multicast, name)
    if rng.random() < 0.3:
        calls += [
            _draw_calls(rng, drawn, name, begin_ns, load_ns, is_member=True)
            for name in rng.sample(names, rng.randrange(1, min(3, len(names)) + 1))
        ]
    asked = sorted({call.handler for call in calls if call.handler >= 0})
    for handler in asked:
        # Mostly a member answers, and mostly another takes over.
        for name in rng.sample(names, rng.choice((0, 1, 2, min(3, len(names))))):
            at_ns = begin_ns + (0 if rng.random() < 0.5 else rng.randrange(load_ns))
            answer_ns = rng.choice((0, 0, 0, 1, 30, 500)) * MS if rng.random() < 0.95 else -1
            locks.append(LockUse(name, str(handler), at_ns, rng.randrange(1, load_ns + 2_000 * MS), answer_ns))
    flow = _draw_flow(rng)
    rules = _draw_strict(rng, rules)
    faults += _draw_long_partition(rng, drawn, rules, (*names, *callers), begin_ns, load_ns)
    aimed = random.Random(f"{drawn.orderer}/{drawn.seed}/aimed")
    if not is_calm and aimed.random() < 0.15:
        # The holder of a lock leaves: chance alone hits that too rarely.
        name, at_ns = aimed.choice(names), begin_ns + aimed.randrange(load_ns)
        locks.append(LockUse(name, "x", at_ns, 3_000 * MS))
        faults.append(Fault(at_ns + aimed.randrange(20, 1_000) * MS, FaultKind.LEAVE, (name,)))
    return replace(
        drawn,
        flow=flow,
        rules=rules,
        without_multicast=without_multicast,
        callers=callers,
        calls=tuple(calls),
        locks=tuple(sorted(locks, key=lambda use: use.at_ns)),
        faults=_in_order(faults),
    )


def _in_order(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at_ns))


def _is_calm(drawn: Scenario) -> bool:
    return not drawn.loss and all(fault.kind == FaultKind.JOIN for fault in drawn.faults)


def _draw_without_multicast(rng: random.Random, drawn: Scenario) -> tuple[str, ...]:
    if drawn.has_multicast and rng.random() < 0.3:
        return tuple(sorted(rng.sample(drawn.nodes, rng.randrange(1, len(drawn.nodes) + 1))))
    return ()


def _draw_rules(rng: random.Random, drawn: Scenario) -> tuple[MinMembers, ...]:
    # A reset by hand has a rule of its own, which overrides what members asked for.
    if drawn.recovery == "automatic" and rng.random() < 0.2:
        return tuple(rng.choice(("majority", "majority", 1, 2, "all")) for _ in drawn.nodes)
    return ()


def _draw_strict(rng: random.Random, rules: tuple[MinMembers, ...]) -> tuple[MinMembers, ...]:
    """One member's demand counts for all, also where that one is gone."""
    if rules and rng.random() < 0.5:
        strict = rng.randrange(len(rules))
        return tuple("majority" if index == strict else 1 for index in range(len(rules)))
    return rules


def _draw_flow(rng: random.Random) -> str:
    return "slow-start" if rng.random() < 0.8 else "open"


def _draw_long_partition(
    rng: random.Random,
    drawn: Scenario,
    rules: tuple[MinMembers, ...],
    names: Sequence[str],
    begin_ns: int,
    load_ns: int,
) -> list[Fault]:
    """Long enough to be noticed on both sides: only one of them may go on."""
    if _is_calm(drawn) or rng.random() >= (0.7 if rules else 0.25):
        return []
    side = tuple(rng.sample(names, rng.randrange(1, len(names))))
    at_ns = begin_ns + rng.randrange(load_ns)
    return [Fault(at_ns, FaultKind.PARTITION, side, for_ns=rng.randrange(1_500, 7_000) * MS)]


def _draw_locks(rng: random.Random, names: Sequence[str], begin_ns: int, load_ns: int) -> list[LockUse]:
    """Few locks and many members that want them, mostly for a short time."""
    keys = rng.sample(("x", "y", "2", "lock of a longer name", "7"), rng.choice((1, 1, 2, 3)))
    longest_ns = rng.choice((5, 50, 500, 2_000)) * MS
    return [
        LockUse(
            rng.choice(names),
            rng.choice(keys),
            begin_ns + rng.randrange(load_ns),
            rng.randrange(longest_ns) if rng.random() < 0.9 else 0,
        )
        for _ in range(rng.choice((1, 3, 6, 12)))
    ]


def _draw_calls(
    rng: random.Random, drawn: Scenario, name: str, begin_ns: int, load_ns: int, *, is_member: bool = False
) -> CallPlan:
    """Of a caller any kind of call; a member's are always to a handler: without one they are messages like others."""
    # A call is one block, and never cut: no larger than buffers of that size can take from several at once.
    is_roomy = drawn.buffer_bytes > 200_000 and drawn.history_bytes >= 64_000
    size = rng.choice((0, 10, 100, 100, 1_000, 3_000, 20_000))
    count = rng.choice((1, 3, 10, 30))
    burst = rng.choice((1, 1, 3, count))
    wants_ack = rng.random() < 0.85 or is_member
    handlers = (0, 2, 5) if is_member else (-1, -1, 0, 2, 5)
    return CallPlan(
        name,
        count,
        str(_draw_service(rng, drawn.orderer)),
        size if is_roomy else min(size, 1_000),
        begin_ns + rng.randrange(load_ns // 2),
        max(1, load_ns // 2 // -(-count // burst)),
        burst,
        rng.choice(handlers) if wants_ack else -1,
        wants_ack,
        rng.random() < 0.3,
        rng.choice(drawn.nodes) if rng.random() < 0.2 and not is_member else "",
    )


def _draw_caller_faults(
    rng: random.Random, name: str, members: Sequence[str], begin_ns: int, load_ns: int
) -> list[Fault]:
    """Callers die, stand still and are cut off like members."""
    at_ns = begin_ns + rng.randrange(load_ns)
    how_long_ns = rng.randrange(MS, rng.choice((200, 2_000, 6_000)) * MS)
    dice = rng.random()
    if dice < 0.15:
        faults = [Fault(at_ns, FaultKind.CRASH, (name,))]
        return [*faults, Fault(at_ns + how_long_ns, FaultKind.RESTART, (name,))] if rng.random() < 0.6 else faults
    if dice < 0.25:
        return [Fault(at_ns, FaultKind.PAUSE, (name,), for_ns=how_long_ns)]
    if dice < 0.45:
        # Replies are lost, or calls: the two are different.
        ends = ((name,), tuple(members))
        source, target = ends if rng.random() < 0.5 else ends[::-1]
        return [Fault(at_ns, FaultKind.CUT, source, target, for_ns=how_long_ns)]
    if dice < 0.55:
        return [Fault(at_ns, FaultKind.LOSSY, (name,), value=rng.choice((0.2, 0.5, 0.9)), for_ns=how_long_ns)]
    return []


def _draw_network(rng: random.Random) -> tuple[str, int, int]:
    network = rng.choice(("ideal", "loopback", "lan", "lan", "lan"))
    if network == "lan" or rng.random() < 0.5:
        datagram = rng.choice((512, 1_000, 1_400, 1_400))
    else:
        datagram = rng.choice((8_000, 62_000))
    # A socket buffer below a few blocks cannot work with whole blocks as datagrams; real ones are 208 KB and more.
    small = 32 << 10 if datagram <= 1_400 else 212_992
    return network, datagram, rng.choice((small, 212_992, 4 << 20))


def _draw_loss(rng: random.Random) -> float:
    if rng.random() < 0.1:
        return rng.choice((0.2, 0.3))
    return rng.choice((0.0, 0.0, 0.01, 0.05, 0.1))


def _draw_min_members(rng: random.Random, nodes: int) -> MinMembers:
    dice = rng.random()
    if dice < 0.65:
        return "majority"
    if dice < 0.72:
        return "all"
    return rng.randrange(1, nodes + 1) if dice < 0.85 else 1


def _draw_timing(rng: random.Random) -> tuple[tuple[str, float], ...]:
    if rng.random() < 0.5:
        return ()
    names = ("ack_quiet_ns", "nak_delay_ns", "nak_retry_ns", "retransmit_ns", "find_ns", "invite_ns", "beacon_ns")
    return tuple((name, rng.choice((0.3, 3.0))) for name in names if rng.random() < 0.3)


def _draw_loads(rng: random.Random, orderer: str, names: Sequence[str], begin_ns: int, load_ns: int) -> list[Load]:
    # One service for all, or any: orders between services break only where they meet.
    kinds = [_draw_service(rng, orderer) for _ in range(rng.choice((1, 1, 2, 4)))]
    speakers = rng.sample(list(names), rng.randrange(1, len(names) + 1))
    loads: list[Load] = []
    for name in speakers:
        for _ in range(rng.choice((1, 1, 2))):
            size = rng.choice((0, 1, 10, 100, 100, 100, 1_000, 3_000))
            count = rng.choice((1, 10, 40, 40, 100))
            dice = rng.random()
            if dice < 0.05:
                size, count = rng.choice((70_000, 200_000)), 1
            elif dice < 0.15:
                size, count = rng.choice((10_000, 40_000)), rng.randrange(1, 5)
            burst = rng.choice((1, 1, 3, count))
            loads.append(
                Load(
                    name,
                    count,
                    str(rng.choice(kinds)),
                    size,
                    begin_ns + rng.randrange(load_ns // 2),
                    max(1, load_ns // 2 // -(-count // burst)),
                    burst,
                    rng.random() < 0.2,
                )
            )
    return loads


def _draw_service(rng: random.Random, orderer: str) -> Service:
    name = rng.choice(("AGREED", *SERVICES[orderer]))
    return RESILIENT(rng.choice((1, 1, 2, 3))) if name == "RESILIENT" else parse_service(name)


def _draw_starts(
    rng: random.Random, names: Sequence[str], begin_ns: int, load_ns: int
) -> tuple[tuple[int, ...], list[Fault]]:
    """Together, one after the other, or some only in the middle of the run."""
    dice = rng.random()
    spread_ns = 0 if dice < 0.3 else rng.choice((5, 100, 1_000)) * MS
    starts = [0 if not spread_ns else rng.randrange(spread_ns) for _ in names]
    joins: list[Fault] = []
    if len(names) > 2 and rng.random() < 0.4:
        for index in rng.sample(range(1, len(names)), rng.randrange(1, len(names) - 1)):
            starts[index] = -1
            joins.append(Fault(begin_ns + rng.randrange(load_ns), FaultKind.JOIN, (names[index],)))
    return tuple(starts), joins


def _draw_faults(rng: random.Random, names: Sequence[str], begin_ns: int, load_ns: int) -> list[Fault]:
    def some(chance: float, most: int = 2) -> int:
        return rng.randrange(1, most + 1) if rng.random() < chance else 0

    # Mostly few enough crashes for the group to go on; now and then, none is left to.
    most = max(1, (len(names) - 1) // 2) if rng.random() < 0.9 else len(names)
    crash = some(0.5, most)
    return draw_faults(
        rng,
        names,
        begin_ns + load_ns // 10 if rng.random() < 0.8 else 0,
        begin_ns + load_ns,
        crash=crash,
        restart=rng.randrange(crash + 1),
        pause=some(0.3),
        partition=some(0.25),
        cut=some(0.2),
        slow=some(0.2),
        stall=some(0.25),
        lossy=some(0.2),
        leave=some(0.3),
        longest_ns=rng.choice((200, 2_000, 8_000)) * MS,
    )
