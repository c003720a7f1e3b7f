"""Scenarios of nodes on regions as data, drawn from a seed: `ordercast fuzz --orderer regions`.

Nodes join groups, leave them, move between sets of them, and send to groups that they are in or not. Nodes and replicas
of the membership service crash, are stopped and come back; networks lose, double, reorder and fall apart. Some acts are
aimed at who leads the service, or a region, at that moment. A seed gives the same scenario as long as this file is not
changed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ordercast.config import MS, SECOND, GroupConfig
from ordercast.errors import UsageError
from ordercast.sim.faults import Fault, draw_faults
from ordercast.sim.scenario import PROFILES, Scenario, node_names

REGIONS: Final = "regions"  # the orderer
COMMAND: Final = "ordercast sim --scenario-seed"
EVENT_LIMIT: Final = 400_000
REPLICAS: Final = ("r1", "r2", "r3")
BEGIN_NS: Final = 2 * SECOND
"""By then a service that is not disturbed has begun, and most nodes are in it."""
MOST_ACTS: Final = 40
LARGE_BYTES: Final = 90_000
"""A message that does not fit a block."""
SERVICES: Final = ("UNRELIABLE", "RELIABLE", "FIFO", "FIFO", "FIFO", "FIFO")
PARTITIONED: Final = 10  # members of a region from which on it has several partitions

SERVICE_LEADER: Final = "*service"
"""Of an act: the replica that leads the service at that moment."""
REGION_LEADER: Final = "*region"
"""A node that leads its region at that moment."""


class Deed(StrEnum):
    """What a node does, or what happens to it."""

    JOIN = "join"  # those of `groups` that it is not in, one by one
    JOIN_MANY = "join-many"  # the same with one request
    LEAVE = "leave"
    LEAVE_MANY = "leave-many"
    MOVE = "move"  # leaves the first half of `groups` and joins the other one, at once
    DETACH = "detach"  # leaves all groups and the service in order, and comes back after `for_ns`
    SEND = "send"  # `count` messages to one of its groups, one by one
    SEND_MANY = "send-many"  # the same at once
    SEND_EACH = "send-each"  # `count` messages at once, each to another of those of `groups` that it is in
    SEND_TO = "send-to"  # `count` messages to all of `groups`, whether it is in them or not
    FLUSH = "flush"  # waits for everything that it has sent
    STALL = "stall"  # its application receives nothing for `for_ns`
    CRASH = "crash"  # of the machine; started again after `for_ns`, or never
    KILL = "kill"  # of the process: the kernel of its machine says so
    CLOSE = "close"  # the node leaves everything and stops, and is started again after `for_ns`
    # Of replicas of the service.
    CRASH_REPLICA = "crash-replica"  # started again after `for_ns`
    STOP_REPLICA = "stop-replica"  # in order
    CRASH_SERVICE = "crash-service"  # all replicas at once: the next service is another one


OF_REPLICAS: Final = frozenset((Deed.CRASH_REPLICA, Deed.STOP_REPLICA, Deed.CRASH_SERVICE))
SENDING: Final = frozenset((Deed.SEND, Deed.SEND_MANY, Deed.SEND_EACH, Deed.SEND_TO))
FAILING: Final = frozenset((Deed.STALL, Deed.CRASH, Deed.KILL, Deed.CRASH_REPLICA, Deed.CRASH_SERVICE))


@dataclass(frozen=True, slots=True)
class RegionAct:
    """One thing that one node, or one replica, does or suffers."""

    at_ns: int
    who: str
    kind: Deed
    groups: tuple[str, ...] = ()
    count: int = 1
    size: int = 100
    service: str = "FIFO"
    is_confirmed: bool = False
    for_ns: int = 0

    def __str__(self) -> str:
        groups = f" {','.join(self.groups)}" if self.groups else ""
        sent = f" {self.count} x {self.size} {self.service}" if self.kind in SENDING else ""
        sent += " confirmed" if self.is_confirmed else ""
        time = f" for {self.for_ns / MS:.0f} ms" if self.for_ns else ""
        return f"{self.at_ns / MS:.3f} ms: {self.who} {self.kind}{groups}{sent}{time}"


@dataclass(frozen=True, slots=True)
class RegionNodePlan:
    """One node."""

    name: str
    groups: tuple[str, ...]  # that it joins first, in each of its lives
    start_ns: int
    is_fed: bool = False  # receives all its groups at one place
    is_batched: bool = False  # there, and blocks as they come
    brings_service: bool = False  # has a replica with it, where one is missing


@dataclass(frozen=True, slots=True)
class RegionsPlan:
    """Everything of one run."""

    scenario: Scenario
    nodes: tuple[RegionNodePlan, ...]
    replicas: tuple[str, ...]  # machines that have nothing but a replica
    acts: tuple[RegionAct, ...]

    @property
    def last_ns(self) -> int:
        ends = [act.at_ns + act.for_ns for act in self.acts]
        return max([BEGIN_NS, self.scenario.last_ns, *ends, *[node.start_ns for node in self.nodes]])

    @property
    def messages(self) -> int:
        """How many are sent."""
        return sum(act.count for act in self.acts if act.kind in SENDING)

    @property
    def failures(self) -> int:
        """How many there are, of nodes and of the network."""
        return len(self.scenario.faults) + sum(act.kind in FAILING for act in self.acts)

    @property
    def config(self) -> GroupConfig:
        return self.scenario.group_config()


def check_profile(profile: str) -> None:
    """`UsageError` if scenarios of regions are not drawn for this profile."""
    if profile != PROFILES[0]:
        raise UsageError(f"scenarios of regions are about everything: leave out the profile {profile}")


def drawn_regions(seed: int) -> RegionsPlan:
    """Draw everything."""
    rng = random.Random(f"regions/{seed}")
    count = rng.choice((2, 3, 3, 4, 4, 5, 6, 8)) if rng.random() < 0.85 else rng.choice((10, 11, 12))
    names = node_names(count)
    groups = tuple(f"g{number}" for number in range(rng.choice((1, 2, 3, 4, 6))))
    length_ns = rng.choice((2_000, 4_000, 8_000)) * MS
    is_embedded = rng.random() < 0.25
    replicas = () if is_embedded else REPLICAS
    nodes = _draw_nodes(rng, names, groups, is_embedded=is_embedded)
    draw = _Acts(rng, names, groups, replicas or names)
    faults: list[Fault] = []
    acts: list[RegionAct] = []
    if rng.random() >= 0.1:  # in some runs nothing fails
        acts += draw.failures(length_ns)
        everybody = (*replicas, *names)
        faults = draw_faults(
            rng,
            everybody,
            BEGIN_NS,
            BEGIN_NS + length_ns,
            pause=rng.choice((0, 0, 0, 1, 1, 2)),
            partition=rng.choice((0, 0, 0, 1)),
            cut=rng.choice((0, 0, 0, 1)),
            slow=rng.choice((0, 0, 0, 0, 1)),
            lossy=rng.choice((0, 0, 0, 1)),
        )
    acts += draw.work(length_ns, [act.at_ns for act in acts] + [fault.at_ns for fault in faults])
    has_multicast = rng.random() < 0.92
    without = tuple(name for name in names if rng.random() < 0.3) if has_multicast and rng.random() < 0.12 else ()
    scenario = Scenario(
        seed=seed,
        orderer=REGIONS,
        nodes=(*replicas, *names),
        network=rng.choice(("lan", "lan", "lan", "ideal")),
        loss=rng.choice((0.0, 0.0, 0.01, 0.03, 0.1)),
        duplicate=rng.choice((0.0, 0.0, 0.02)),
        reorder=rng.choice((0.0, 0.0, 0.05, 0.3)),
        has_multicast=has_multicast,
        without_multicast=without,
        buffer_bytes=rng.choice((256 << 10, 4 << 20, 4 << 20)),
        datagram=rng.choice((600, 1_400, 1_400, 9_000)),
        history_bytes=rng.choice((64 << 10, 1 << 20, 4 << 20)),
        faults=tuple(faults),
        event_limit=EVENT_LIMIT,
        command=f"{COMMAND} {seed} --orderer {REGIONS}",
    )
    return RegionsPlan(scenario, nodes, replicas, tuple(sorted(acts, key=lambda act: act.at_ns)))


def describe_regions(plan: RegionsPlan, *, with_sends: bool = True) -> list[str]:
    """Lines for people: who is there, and what they do; on request without what is sent, which may be very long."""
    lines = [
        f"{node.name}: in {', '.join(node.groups)}"
        + (", all at one place" if node.is_fed else "")
        + (", with a replica" if node.brings_service else "")
        for node in plan.nodes
    ]
    return [*lines, *(str(act) for act in plan.acts if with_sends or act.kind not in SENDING)]


def _draw_nodes(
    rng: random.Random, names: Sequence[str], groups: Sequence[str], *, is_embedded: bool
) -> tuple[RegionNodePlan, ...]:
    """A few sets of groups, so that regions have several members."""
    sets = [tuple(rng.sample(groups, rng.randint(1, len(groups)))) for _ in range(rng.choice((1, 1, 2, 3)))]
    if len(names) >= PARTITIONED:
        sets = sets[:1] * 5 + sets  # one region with several partitions
    with_service = set(names) if is_embedded and rng.random() < 0.6 else set(names[:3]) if is_embedded else set()
    is_late = rng.random() < 0.4
    return tuple(
        RegionNodePlan(
            name,
            rng.choice(sets),
            rng.choice((0, 0, 700, 1_500, 3_000, 5_000)) * MS + rng.randrange(MS) if is_late else rng.randrange(MS),
            is_fed=rng.random() < 0.4,
            is_batched=rng.random() < 0.5,
            brings_service=name in with_service,
        )
        for name in names
    )


class _Acts:
    """What nodes do and suffer, one act after the other."""

    __slots__ = ("_groups", "_large", "_names", "_replicas", "_rng")

    def __init__(
        self, rng: random.Random, names: tuple[str, ...], groups: tuple[str, ...], replicas: tuple[str, ...]
    ) -> None:
        self._rng = rng
        self._names = names
        self._groups = groups
        self._replicas = replicas
        self._large = 3

    def failures(self, length_ns: int) -> list[RegionAct]:
        """Crashes of nodes and replicas."""
        rng = self._rng
        found: list[RegionAct] = []
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            who = rng.choice((REGION_LEADER, *self._names, *self._names))
            kind = rng.choice((Deed.CRASH, Deed.CRASH, Deed.KILL, Deed.CLOSE))
            found.append(RegionAct(self._when(length_ns), who, kind, for_ns=self._down()))
            if rng.random() < 0.3:  # another one at about the same time: members that keep the same blocks
                at_ns = found[-1].at_ns + rng.choice((0, 1, 300, 1_500)) * rng.randrange(MS)
                found.append(RegionAct(at_ns, rng.choice(self._names), Deed.CRASH, for_ns=self._down()))
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            who = rng.choice((SERVICE_LEADER, SERVICE_LEADER, *self._replicas))
            kind = rng.choice((Deed.CRASH_REPLICA, Deed.CRASH_REPLICA, Deed.CRASH_REPLICA, Deed.STOP_REPLICA))
            found.append(RegionAct(self._when(length_ns), who, kind, for_ns=rng.choice((50, 1_000, 4_000)) * MS))
        if rng.random() < 0.05:
            for_ns = rng.choice((50, 1_000, 8_000)) * MS
            found.append(RegionAct(self._when(length_ns), SERVICE_LEADER, Deed.CRASH_SERVICE, for_ns=for_ns))
        return found

    def work(self, length_ns: int, failures_ns: Sequence[int]) -> list[RegionAct]:
        """Joins, leaves, moves and sends: at any time, and at the times of failures."""
        rng = self._rng
        times: list[int] = []
        at_ns = rng.choice((BEGIN_NS // 2, BEGIN_NS, BEGIN_NS))
        while at_ns < BEGIN_NS + length_ns and len(times) < MOST_ACTS:
            times.append(at_ns)
            at_ns += rng.choice((0, 0, 1, 20, 100, 300, 900)) * MS + rng.randrange(MS)
        for begin_ns in failures_ns:
            times += [begin_ns + rng.choice((-1, 1, 50, 1_300)) * rng.randrange(MS) for _ in range(rng.randrange(6))]
        return [self._act(max(0, at), rng.choice(self._names)) for at in times]

    def _when(self, length_ns: int) -> int:
        return BEGIN_NS + self._rng.randrange(length_ns)

    def _down(self) -> int:
        return self._rng.choice((0, 50, 1_000, 4_000, 7_000)) * MS

    def _some(self, most: int) -> tuple[str, ...]:
        return tuple(self._rng.sample(self._groups, self._rng.randint(1, min(most, len(self._groups)))))

    def _act(self, at_ns: int, name: str) -> RegionAct:
        rng = self._rng
        chance = rng.random()
        if chance < 0.14:
            kind = rng.choice(
                (
                    Deed.JOIN,
                    Deed.JOIN,
                    Deed.JOIN_MANY,
                    Deed.LEAVE,
                    Deed.LEAVE,
                    Deed.LEAVE_MANY,
                    Deed.MOVE,
                )
            )
            return RegionAct(at_ns, name, kind, self._some(2 if kind in (Deed.JOIN, Deed.LEAVE) else 6))
        if chance < 0.17:
            return RegionAct(at_ns, name, Deed.STALL, for_ns=rng.choice((5, 300, 2_000)) * MS)
        if chance < 0.18:
            return RegionAct(at_ns, name, Deed.DETACH, for_ns=rng.choice((5, 1_000)) * MS)
        if chance < 0.20:
            return RegionAct(at_ns, name, Deed.FLUSH)
        size = rng.choice((0, 10, 100, 100, 1_000, 5_000))
        if self._large and rng.random() < 0.04:
            self._large -= 1
            size = LARGE_BYTES
        service, is_confirmed = rng.choice(SERVICES), rng.random() < 0.2
        count = 1 if size == LARGE_BYTES else rng.choice((1, 1, 5, 30, 100))
        if chance < 0.4:
            return RegionAct(at_ns, name, Deed.SEND_TO, self._some(4), min(count, 5), size, service, is_confirmed)
        if chance < 0.5:
            return RegionAct(at_ns, name, Deed.SEND_EACH, self._groups, count, size, service)
        kind = rng.choice((Deed.SEND, Deed.SEND_MANY))
        if is_confirmed and kind is Deed.SEND:
            count = min(count, 5)  # one after the other, and each may wait for the next token
        return RegionAct(at_ns, name, kind, (rng.choice(self._groups),), count, size, service, is_confirmed)
