"""Scenarios with many lightweight groups on one underlay (docs/design/roster.md), as data.

A `Scenario` says what nodes, network and faults there are. `GroupAct`s say what the program on each node does with the
groups of the underlay, one after the other. `drawn_groups` draws both from a seed, for the fuzzer: few nodes, so that a
run takes some hundredths of a second, and groups that come and go. `plain_groups` makes a demonstration of a plain
scenario. A seed gives the same scenario in every release, as in `chance.py`.

Nodes also have labelled sessions that come and go as clients of a daemon do, in most scenarios from `SESSIONS_FROM` on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ordercast.config import MAX_BLOCK, MAX_GROUP_NAME, MS, SECOND
from ordercast.errors import UsageError
from ordercast.groups.engines import EngineFactory
from ordercast.orderers import ORDERERS
from ordercast.service import parse_service
from ordercast.sim.ambush import Ambush
from ordercast.sim.faults import Fault, FaultKind, draw_aftershocks, draw_faults
from ordercast.sim.scenario import SERVICES, SITE_SERVICES, Scenario, anticipate_flags, check_orderer, node_names
from ordercast.underlay.sites import sites_engines
from ordercast.wire.block import MAX_TARGETS

MANY_GROUPS: Final = "many-groups"  # the profile of the fuzzer
UNDERLAY: Final = "floor"
COMMAND: Final = "ordercast sim --many-groups --scenario-seed"
EVENT_LIMIT: Final = 100_000
FORMED_NS: Final = 1 * SECOND
"""By then nodes that start together have found one another."""
MAX_GROUPS: Final = 10_000
"""Of a demonstration. More groups take the memory and time of a real run, and show nothing else."""
MOST_ACTS: Final = 30
"""Of a random scenario, besides those that are aimed at its faults."""
LONG_SHARE: Final = 0.08
LONG_GROUPS: Final = MAX_BLOCK // MAX_GROUP_NAME + 10
"""In some runs one node is also in so many groups with long names: their roster does not fit one block, so that seeds
have several parts."""
SESSIONS_FROM: Final = 500_000_000
"""Seeds from here on may have sessions. Those below have the scenarios that they had before there were any."""
SESSIONS_SHARE: Final = 0.8
LABELS: Final = ("s0", "s1", "s2")
SESSION_ACTS: Final = 12
"""Of one label at one node, besides those that are aimed at faults."""
LOCKS: Final = ("red", "blue")
HANDLER: Final = "2"
LARGE_BYTES: Final = MAX_BLOCK + 20_000
"""A message that does not fit a block."""
SHARE: Final = 8
"""Of so many sends of a demonstration, one goes to several groups and one to a group that its sender is not in."""


class ActKind(StrEnum):
    JOIN = "join"  # opens those of `groups` that it is not in, at once
    LEAVE = "leave"  # leaves those of `groups` that it is in, at once, but never the last of its groups
    SEND = "send"  # `count` messages to those of `groups` that it is in, in turn
    SEND_TO = "send-to"  # `count` messages, each to all of `groups`, whether it is in them or not
    LOCK = "lock"  # wants the lock `key` of a group, and gives it back after `hold_ns`
    TRY_LOCK = "try-lock"  # the same, and the first answer counts
    SERVE = "serve"  # wants the handler `key` of a group, and answers its calls for `hold_ns`
    CALL = "call"  # calls the handler `key` of a group
    OPEN = "open"  # a client connects: opens the session, and those of `groups` with it
    CLOSE = "close"  # it disconnects: its session leaves everything


@dataclass(frozen=True, slots=True)
class GroupAct:
    """What the program on one node does with some groups at a time. `session`: the label of the session that does it,
    if it is not the node's own."""

    at_ns: int
    node: str
    kind: str
    groups: tuple[str, ...]
    count: int = 1
    size: int = 100
    service: str = "AGREED"
    is_confirmed: bool = False
    key: str = ""
    hold_ns: int = 0
    session: str = ""


@dataclass(frozen=True, slots=True)
class ManyGroups:
    """A scenario, and what its programs do with the groups of one underlay.

    Each of `based` also has a place in the underlay itself, and those of them that are `fed` receive all of their
    groups there in one order. `homes`: the groups that each life of a node begins with. `labels`: those of the
    sessions of all nodes, of which `fed_labels` receive in one order as well. `ambushes`: nodes that crash in a phase
    of a view change.
    """

    scenario: Scenario
    groups: tuple[str, ...]
    homes: tuple[tuple[str, ...], ...]
    based: tuple[str, ...] = ()
    fed: tuple[str, ...] = ()
    acts: tuple[GroupAct, ...] = ()
    labels: tuple[str, ...] = ()
    fed_labels: tuple[str, ...] = ()
    ambushes: tuple[Ambush, ...] = ()

    @property
    def engines(self) -> EngineFactory | None:
        """What makes the engines, where daemons are in sites; None: the usual."""
        topology = self.scenario.topology
        return sites_engines(topology.config) if topology is not None and self.has_components else None

    @property
    def has_components(self) -> bool:
        """Every part of a partition goes on, and parts merge."""
        return self.scenario.orderer == "sites"

    @property
    def last_ns(self) -> int:
        """When everything that comes from outside has happened."""
        acts_ns = [act.at_ns + act.hold_ns for act in self.acts]
        return max([self.scenario.last_ns, *acts_ns, *[ambush.last_ns for ambush in self.ambushes]])

    @property
    def services(self) -> list[str]:
        return sorted({act.service for act in self.acts if act.kind in (ActKind.SEND, ActKind.SEND_TO)})

    @property
    def messages(self) -> int:
        return sum(act.count for act in self.acts if act.kind in (ActKind.SEND, ActKind.SEND_TO))


# Random ones. --------------------------------------------------------------------------------------------------------


def drawn_groups(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> ManyGroups:
    """Draw everything. With and without anticipation a seed gives the same scenario."""
    anticipates = check_orderer(orderer, anticipate)
    rng = random.Random(f"{orderer}/{seed}/many-groups")
    names = node_names(rng.choice((2, 3, 3, 3, 4, 4, 5)))
    length_ns = rng.choice((300, 1_500, 3_000, 6_000)) * MS
    starts_ns, faults = _draw_starts(rng, names, length_ns)
    if rng.random() >= 0.2:  # in some runs nothing fails: there, no recovery may happen
        faults += _draw_faults(rng, names, length_ns)
        faults += draw_aftershocks(rng, names, faults)
    scenario = Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        starts_ns=starts_ns,
        network=rng.choice(("lan", "lan", "lan", "ideal")),
        loss=rng.choice((0.0, 0.0, 0.01, 0.05)),
        duplicate=rng.choice((0.0, 0.0, 0.0, 0.05)),
        reorder=rng.choice((0.0, 0.0, 0.0, 0.1)),
        has_multicast=rng.random() < 0.85,
        datagram=rng.choice((1_400, 1_400, 1_400, 9_000)),
        history_bytes=rng.choice((64_000, 1 << 20, 4 << 20)),
        anticipate=anticipates,
        min_members=rng.choice((1, 1, 1, 2, "majority", "majority")),
        without_multicast=(rng.choice(names),) if rng.random() < 0.1 else (),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        event_limit=EVENT_LIMIT,
        command=" ".join([COMMAND, str(seed), "--orderer", orderer, *anticipate_flags(anticipate)]),
    )
    groups = tuple(f"g{number}" for number in range(rng.choice((2, 6, 6, 20, 20, 60, 200))))
    based = tuple(name for name in names if rng.random() < 0.5)
    draw = Acts(rng, scenario, groups)
    homes = tuple(tuple(draw.some(rng.randrange(1, 5))) for _ in names)
    fed = tuple(name for name in based if rng.random() < 0.5)
    acts = tuple(draw.draw(homes, length_ns))
    more = random.Random(f"{orderer}/{seed}/many-groups/long")
    if more.random() < LONG_SHARE:
        long = tuple(f"{number:0{MAX_GROUP_NAME}}" for number in range(LONG_GROUPS))
        loner = more.randrange(len(names))
        homes = tuple(home + long if at == loner else home for at, home in enumerate(homes))
        groups += long
    plan = ManyGroups(scenario, groups, homes, based, fed, acts)
    clients = random.Random(f"{orderer}/{seed}/many-groups/sessions")
    if seed < SESSIONS_FROM or clients.random() >= SESSIONS_SHARE:
        return plan
    return with_sessions(clients, plan, length_ns)


def _draw_starts(rng: random.Random, names: Sequence[str], length_ns: int) -> tuple[tuple[int, ...], list[Fault]]:
    """Most nodes start together. Some come when groups have been made, and need the roster."""
    starts_ns: list[int] = []
    joins: list[Fault] = []
    for index, name in enumerate(names):
        if index and rng.random() < 0.25:
            starts_ns.append(-1)
            joins.append(Fault(FORMED_NS + rng.randrange(length_ns), FaultKind.JOIN, (name,)))
        else:
            starts_ns.append(rng.choice((0, 0, 0, 30, 500)) * MS)
    return tuple(starts_ns), joins


def _draw_faults(rng: random.Random, names: Sequence[str], length_ns: int) -> list[Fault]:
    crash = rng.choice((0, 0, 1, 1, 2))
    return draw_faults(
        rng,
        names,
        FORMED_NS,
        FORMED_NS + length_ns,
        crash=crash,
        restart=rng.randrange(crash + 1),
        pause=rng.choice((0, 0, 0, 1)),
        partition=rng.choice((0, 0, 1, 1)),
        cut=rng.choice((0, 0, 0, 1)),
        stall=rng.choice((0, 0, 0, 1)),
        lossy=rng.choice((0, 0, 0, 0, 1)),
        leave=rng.choice((0, 0, 0, 1)),
    )


class Acts:
    """What programs do, one act after the other. Some groups are popular: the first ones."""

    __slots__ = ("_gives_locks", "_groups", "_large", "_orderer", "_rng", "_scenario", "_served", "_within")

    def __init__(self, rng: random.Random, scenario: Scenario, groups: tuple[str, ...]) -> None:
        self._rng = rng
        self._scenario = scenario
        self._orderer = scenario.orderer
        self._gives_locks = scenario.orderer in ORDERERS and ORDERERS[scenario.orderer].gives_locks
        self._groups = groups
        self._within: dict[str, set[str]] = {}  # the groups that a program is in, as far as its own acts decide
        self._served: dict[str, int] = {}  # groups whose handler somebody may hold, and until when
        self._large = 2  # messages larger than a block that may still be drawn

    def some(self, count: int) -> list[str]:
        """Different groups. Half of them are among the first fifth, whatever their number."""
        size = len(self._groups)
        chosen = {int(size * self._rng.random() ** 2.3): None for _ in range(2 * count)}
        return [self._groups[at] for at in list(chosen)[: min(count, size)]]

    def draw(self, homes: Sequence[Sequence[str]], length_ns: int) -> Iterator[GroupAct]:
        rng, nodes = self._rng, self._scenario.nodes
        self._within = {name: set(home) for name, home in zip(nodes, homes, strict=True)}
        for at_ns in self._times(length_ns):
            yield from self._act(at_ns, rng.choice(nodes))

    def _times(self, length_ns: int) -> list[int]:
        """Many follow one another at once. Others are aimed at failures, and at the recoveries from them."""
        rng = self._rng
        times: list[int] = []
        at_ns = FORMED_NS - rng.choice((0, 0, 900 * MS))  # some begin before the underlay is there
        while at_ns < FORMED_NS + length_ns and len(times) < MOST_ACTS:
            times.append(at_ns)
            at_ns += rng.choice((0, 0, 1, 1, 3, 10, 30, 100, 300)) * MS + rng.randrange(MS)
        for fault in self._scenario.faults:
            begin_ns = rng.choice((fault.at_ns, fault.at_ns + fault.for_ns, fault.at_ns + 1_300 * MS))
            times += [begin_ns + rng.choice((2, 20, 500)) * rng.randrange(MS) for _ in range(rng.randrange(4))]
        return sorted(times)

    def session(self, node: str, label: str, length_ns: int) -> Iterator[GroupAct]:
        """What one session of a node does: it comes, joins, sends, leaves, goes and comes back."""
        rng = self._rng
        times: list[int] = []
        at_ns = FORMED_NS - rng.choice((0, 500 * MS)) + rng.choice((0, 0, length_ns // 2))
        while at_ns < FORMED_NS + length_ns and len(times) < SESSION_ACTS:
            times.append(at_ns)
            at_ns += rng.choice((0, 1, 1, 5, 30, 100, 400)) * MS + rng.randrange(MS)
        for fault in self._scenario.faults:
            begin_ns = rng.choice((fault.at_ns, fault.at_ns + fault.for_ns, fault.at_ns + 1_300 * MS))
            times += [begin_ns + rng.choice((2, 20, 500)) * rng.randrange(MS) for _ in range(rng.randrange(3))]
        mine: set[str] | None = None  # None: it is closed
        for at_ns in sorted(times):
            if mine is None:
                groups = self.some(rng.randrange(1, 5))
                mine = set(groups)
                act = GroupAct(at_ns, node, ActKind.OPEN, tuple(groups))
            else:
                act = self._session_act(at_ns, node, mine)
                if act.kind == ActKind.CLOSE:
                    mine = None
            yield replace(act, session=label)

    def _session_act(self, at_ns: int, node: str, mine: set[str]) -> GroupAct:
        rng, chance = self._rng, self._rng.random()
        if chance < 0.15:
            return GroupAct(at_ns, node, ActKind.CLOSE, ())
        if chance < 0.3 or (chance < 0.45 and not mine):
            groups = self.some(rng.choice((1, 1, 3)))
            mine.update(groups)
            return GroupAct(at_ns, node, ActKind.JOIN, tuple(groups))
        if chance < 0.4 and mine:
            groups = rng.sample(sorted(mine), rng.randrange(1, len(mine) + 1))
            mine.difference_update(groups)
            return GroupAct(at_ns, node, ActKind.LEAVE, tuple(groups))
        is_large = self._draw_large(0.1)
        size = LARGE_BYTES if is_large else rng.randrange(200)
        if chance < 0.6 or not mine:
            return self._send(at_ns, node, ActKind.SEND_TO, self.some(rng.choice((1, 1, 2, 3))), 1, size)
        groups = rng.sample(sorted(mine), rng.randrange(1, min(6, len(mine)) + 1))
        return self._send(at_ns, node, ActKind.SEND, groups, 1 if is_large else rng.choice((1, 1, 4, 10)), size)

    def _act(self, at_ns: int, node: str) -> Iterator[GroupAct]:
        rng, mine = self._rng, self._within[node]
        chance = rng.random()
        if chance < 0.2:
            groups = self.some(1 if rng.random() < 0.6 else rng.randrange(2, 30))
            mine.update(groups)
            yield GroupAct(at_ns, node, ActKind.JOIN, tuple(groups))
        elif chance < 0.38 and mine:
            count = 1 if rng.random() < 0.6 else rng.randrange(1, len(mine) + 1)
            groups = rng.sample(sorted(mine), count)
            mine.difference_update(groups)
            yield GroupAct(at_ns, node, ActKind.LEAVE, tuple(groups))
            if rng.random() < 0.3:  # it comes back before it is out, or just after
                mine.update(groups)
                yield GroupAct(at_ns + rng.randrange(5 * MS), node, ActKind.JOIN, tuple(groups))
        elif chance < 0.55 and self._gives_locks:
            yield self._lock(at_ns, node)
        elif chance < 0.75:
            groups = self.some(rng.choice((1, 1, 2, 3, 8)))
            size = LARGE_BYTES if self._draw_large(0.1) else rng.randrange(200)
            yield self._send(at_ns, node, ActKind.SEND_TO, groups, rng.choice((1, 1, 1, 3)), size)
        elif mine:
            groups = rng.sample(sorted(mine), rng.randrange(1, min(6, len(mine)) + 1))
            is_large = self._draw_large(0.05)
            count = 1 if is_large else rng.choice((1, 1, 4, 10))
            size = LARGE_BYTES if is_large else rng.randrange(200)
            yield self._send(at_ns, node, ActKind.SEND, groups, count, size)

    def _send(self, at_ns: int, node: str, kind: ActKind, groups: list[str], count: int, size: int) -> GroupAct:
        is_confirmed, service = self._rng.random() < 0.2, self._service()
        if len(groups) > 1 and kind is ActKind.SEND_TO and not parse_service(service).is_ordered:
            service = "AGREED"  # a message to several groups takes no less
        return GroupAct(at_ns, node, kind, tuple(groups), count, size, service, is_confirmed)

    def _draw_large(self, chance: float) -> bool:
        is_large = self._rng.random() < chance and self._large > 0
        self._large -= is_large
        return is_large

    def _service(self) -> str:
        if self._rng.random() < 0.5:
            return "AGREED"
        service = self._rng.choice(SERVICES.get(self._orderer, SITE_SERVICES))
        return "RESILIENT(1)" if service == "RESILIENT" else service

    def _lock(self, at_ns: int, node: str) -> GroupAct:
        rng = self._rng
        popular = self._groups[:3]
        group = (rng.choice([name for name in popular if name in self._within[node]] or popular),)
        kind = rng.choice((ActKind.LOCK, ActKind.LOCK, ActKind.TRY_LOCK, ActKind.SERVE, ActKind.CALL, ActKind.CALL))
        if kind is ActKind.CALL:
            served = [
                name for name, until_ns in self._served.items() if until_ns > at_ns and name in self._within[node]
            ]
            return GroupAct(at_ns, node, kind, (rng.choice(served),) if served else group, key=HANDLER)
        if kind is ActKind.SERVE:
            hold_ns = rng.choice((50, 1_000, 4_000)) * MS
            self._served[group[0]] = at_ns + hold_ns
            return GroupAct(at_ns, node, kind, group, key=HANDLER, hold_ns=hold_ns)
        return GroupAct(at_ns, node, kind, group, key=rng.choice(LOCKS), hold_ns=rng.choice((0, 5, 50, 1_500)) * MS)


def with_sessions(rng: random.Random, plan: ManyGroups, length_ns: int) -> ManyGroups:
    """The same, where nodes have sessions that come and go. They use the same groups as the nodes themselves."""
    scenario = plan.scenario
    draw = Acts(rng, scenario, tuple(group for group in plan.groups if len(group) < MAX_GROUP_NAME))
    acts: list[GroupAct] = []
    for node in scenario.nodes:
        for label in LABELS[: rng.choice((0, 1, 1, 2, 3))]:
            acts += draw.session(node, label, length_ns)
    fed = tuple(label for label in LABELS if rng.random() < 0.4)
    together = sorted((*plan.acts, *acts), key=lambda act: act.at_ns)
    return replace(plan, acts=tuple(together), labels=LABELS, fed_labels=fed)


# Plain ones. ---------------------------------------------------------------------------------------------------------


def plain_groups(scenario: Scenario, count: int) -> ManyGroups:
    """A demonstration: the loads of a plain scenario, sent to so many groups in turn.

    Every node is in all groups but a share of them. Some messages go to several groups, and some to one that their
    sender is not in.
    """
    if not 1 <= count <= MAX_GROUPS:
        raise UsageError(f"a simulation has between 1 and {MAX_GROUPS} groups, got {count}")
    nodes = scenario.nodes
    groups = tuple(f"g{number}" for number in range(count))
    homes = tuple(
        tuple(group for at, group in enumerate(groups) if len(nodes) == 1 or (at + index) % len(nodes) or count == 1)
        for index in range(len(nodes))
    )
    acts: list[GroupAct] = []
    for load in scenario.loads:
        mine = homes[nodes.index(load.node)]
        for number in range(load.count):
            at_ns = load.start_ns + number // load.burst * load.interval_ns
            if number % SHARE == 1 and parse_service(load.service).is_ordered:
                kind, several = ActKind.SEND_TO, min(3, count, MAX_TARGETS)
                chosen = tuple(groups[(number + step) % count] for step in range(several))
            elif number % SHARE == 5:
                kind, chosen = ActKind.SEND_TO, (groups[number % count],)
            else:
                kind, chosen = ActKind.SEND, (mine[number % len(mine)],)
            acts.append(GroupAct(at_ns, load.node, kind, chosen, 1, load.size, load.service))
    command = f"{scenario.command} --groups {count}"
    return ManyGroups(
        replace(scenario, command=command),
        groups,
        homes,
        based=nodes[::2],
        fed=nodes[::4],
        acts=tuple(sorted(acts, key=lambda act: act.at_ns)),
    )
