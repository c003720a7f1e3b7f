"""Scenarios of daemons and their clients as data, drawn from a seed: `ordercast fuzz --profile sessions`.

Daemons are killed, stopped, paused and cut off from one another. Clients speak either protocol; they join, leave, send,
stop receiving, stop altogether, are killed, and lose their streams in every way a stream can end. A seed gives the same
scenario as long as this file is as it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ordercast.config import MAX_PRIORITY, MS, SECOND, GroupConfig
from ordercast.daemon.seat import Limits
from ordercast.daemon.spread.settings import SpreadSettings
from ordercast.errors import UsageError
from ordercast.sim.faults import Fault, FaultKind, draw_faults
from ordercast.sim.pipes import PipeModel
from ordercast.sim.scenario import SESSIONS, Scenario, node_names
from ordercast.sim.sessions.streams import StreamModel
from ordercast.sim.site_chance import draw_site_faults
from ordercast.sim.topology import Topology, plain_topology

ORDERERS: Final = ("sites", "token")
COMMAND: Final = f"ordercast sim --profile {SESSIONS} --orderer"
EVENT_LIMIT: Final = 600_000
FORMED_NS: Final = 2_500 * MS
"""By then daemons that start together have found one another."""
MOST_ACTS: Final = 70
KIB: Final = 1 << 10
LARGE_BYTES: Final = 90_000
"""A message that does not fit a block."""
TOKEN_SERVICES: Final = ("UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "AGREED", "AGREED", "RESILIENT(1)", "SAFE")
SITE_SERVICES: Final = ("RELIABLE", "FIFO", "CAUSAL", "AGREED", "AGREED", "SAFE")
URGENT_FROM: Final = 1_620_000_000
"""From this seed on native clients of sites send urgent messages, too. Earlier ones are as they were."""


class Did(StrEnum):
    """What a client does, or what happens to it."""

    JOIN = "join"
    LEAVE = "leave"
    SEND = "send"  # `count` messages to one of its groups, one by one
    SEND_MANY = "send-many"  # the same at once
    SEND_EACH = "send-each"  # `count` messages at once, each to another of those of `groups` that it is in
    SEND_TO = "send-to"  # one message to all of `groups`, whether it is in them or not
    PRIVATE = "private"  # to the private groups of clients of Spread
    STALL = "stall"  # receives nothing for `for_ns`
    CLOSE = "close"  # disconnects in order, and comes back after `for_ns`
    KILL = "kill"  # -9, and started again after `for_ns`
    PAUSE = "pause"  # stands still for `for_ns`
    CUT = "cut"  # its stream says nothing any more: half-open
    RESET = "reset"  # its stream is broken
    ASK = "ask"  # asks its daemon about itself
    # Of daemons.
    KILL_DAEMON = "kill-daemon"  # -9 of the process, started again after `for_ns`
    KILL_MACHINE = "kill-machine"  # the whole machine, started again after `for_ns`
    STOP_DAEMON = "stop-daemon"  # SIGTERM, started again after `for_ns`
    PAUSE_DAEMON = "pause-daemon"


OF_DAEMONS: Final = frozenset((Did.KILL_DAEMON, Did.KILL_MACHINE, Did.STOP_DAEMON, Did.PAUSE_DAEMON))
SENDING: Final = frozenset((Did.SEND, Did.SEND_MANY, Did.SEND_EACH, Did.SEND_TO))
DISTURBING: Final = frozenset((Did.STALL, Did.CLOSE, Did.KILL, Did.PAUSE, Did.CUT, Did.RESET))


@dataclass(frozen=True, slots=True)
class ClientAct:
    """One thing that one client, or one daemon, does or suffers."""

    at_ns: int
    who: str
    kind: Did
    groups: tuple[str, ...] = ()
    count: int = 1
    size: int = 100
    service: str = "AGREED"
    is_confirmed: bool = False
    for_ns: int = 0
    priority: int = 0

    def __str__(self) -> str:
        groups = f" {','.join(self.groups)}" if self.groups else ""
        sent = f" {self.count} x {self.size} {self.service}" if self.kind.startswith("send") else ""
        sent += f" priority {self.priority}" if self.priority else ""
        time = f" for {self.for_ns / MS:.0f} ms" if self.for_ns else ""
        return f"{self.at_ns / MS:.3f} ms: {self.who} {self.kind}{groups}{sent}{time}"


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client."""

    name: str
    is_spread: bool
    daemons: tuple[str, ...]  # in the order in which it tries them
    groups: tuple[str, ...]  # that it joins first, in each of its lives
    start_ns: int
    is_fed: bool = False  # receives all its groups in one order
    window: int = 2 << 20
    wants_membership: bool = True  # of a client of Spread
    is_big: bool = False  # a client of Spread on a machine of the other byte order


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Everything of one run."""

    scenario: Scenario
    clients: tuple[ClientPlan, ...]
    acts: tuple[ClientAct, ...]
    limits: Limits
    spread: SpreadSettings
    streams: tuple[StreamModel, ...]  # of which each stream is one

    @property
    def last_ns(self) -> int:
        ends = [act.at_ns + act.for_ns for act in self.acts]
        return max([FORMED_NS, self.scenario.last_ns, *ends, *[client.start_ns for client in self.clients]])

    @property
    def is_calm(self) -> bool:
        """Whether nothing happens to daemons and the network between them."""
        return not self.scenario.faults and not any(act.kind in OF_DAEMONS for act in self.acts)

    @property
    def is_swift(self) -> bool:
        """Whether streams and windows are such that a client gets everything soon that is not held up by another."""
        streams = all(each.latency_ns <= 1 * MS and each.buffer_bytes >= 16 * KIB for each in self.streams)
        windows = min([self.limits.least_window_bytes, *[client.window for client in self.clients]])
        return streams and windows >= 16 * KIB and not self.limits.is_blocking

    @property
    def config(self) -> GroupConfig:
        return self.scenario.group_config()


def drawn_sessions(seed: int, orderer: str = "sites") -> SessionPlan:
    """Draw everything."""
    if orderer not in ORDERERS:
        raise UsageError(f"daemons of the profile sessions have the orderer {' or '.join(ORDERERS)}, not {orderer}")
    rng = random.Random(f"{orderer}/{seed}/sessions")
    topology = _draw_topology(rng) if orderer == "sites" else None
    names = topology.nodes if topology is not None else node_names(rng.choice((3, 3, 4)))
    length_ns = rng.choice((1_000, 3_000, 6_000)) * MS
    limits = _draw_limits(rng)
    groups = tuple(f"g{number}" for number in range(rng.choice((1, 2, 4, 8))))
    clients = tuple(_draw_clients(rng, names, groups))
    is_calm = rng.random() < 0.3
    acts: list[ClientAct] = []
    faults: list[Fault] = []
    if not is_calm:
        acts += _draw_daemon_acts(rng, names, length_ns, orderer)
        if topology is not None:
            faults = _draw_site_faults(rng, topology, length_ns)
        elif not acts and rng.random() < 0.6:
            faults = _draw_token_faults(rng, names, length_ns)
    draw = _Acts(
        rng, clients, groups, TOKEN_SERVICES if orderer == "token" else SITE_SERVICES, [act.at_ns for act in acts]
    )
    acts += draw.draw(length_ns)
    scenario = Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        network="lan",
        loss=rng.choice((0.0, 0.0, 0.0, 0.01)),
        reorder=rng.choice((0.0, 0.0, 0.05)),
        datagram=rng.choice((1_400, 9_000)),
        history_bytes=rng.choice((1 << 20, 4 << 20)),
        min_members=1 if topology is not None else "majority",
        topology=topology,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        event_limit=EVENT_LIMIT,
        command=f"{COMMAND} {orderer} --scenario-seed {seed}",
    )
    spread = SpreadSettings(
        max_messages=rng.choice((10, 100, 1_000)),
        grace_s=rng.choice((0.0, 0.3, 2.0)),
        max_bytes=rng.choice((150_000, 400_000, 16 << 20)),
        total_bytes=rng.choice((300_000, 64 << 20)),
    )
    streams = tuple([_draw_stream(rng) for _ in range(rng.choice((1, 1, 3)))])
    ordered = tuple(sorted(acts, key=lambda act: act.at_ns))
    if topology is not None and seed >= URGENT_FROM:
        ordered = _with_priorities(random.Random(f"{orderer}/{seed}/urgent"), ordered)
    return SessionPlan(scenario, clients, ordered, limits, spread, streams)


def describe_sessions(plan: SessionPlan) -> list[str]:
    """Lines for people: who is there, and what they do."""
    lines = [
        f"{client.name}: {'Spread' if client.is_spread else 'native'}, at {', '.join(client.daemons)}, in "
        f"{', '.join(client.groups)}"
        for client in plan.clients
    ]
    return [*lines, str(plan.limits), *map(str, plan.acts)]


def _draw_topology(rng: random.Random) -> Topology:
    crews = rng.choice(
        (
            {"A": ["a1", "a2"]},
            {"A": ["a1"], "B": ["b1"]},
            {"A": ["a1", "a2"], "B": ["b1"]},
            {"A": ["a1"], "B": ["b1"], "C": ["c1"]},
            {"A": ["a1", "a2"], "B": ["b1", "b2"]},
        )
    )
    latency_ns = rng.choice((1, 5, 30)) * MS
    pipe = PipeModel(
        latency_ns=latency_ns, bits_per_s=100_000_000, queue_bytes=1 << 20, loss=rng.choice((0.0, 0.0, 0.001))
    )
    return plain_topology(crews, pipe)


def _draw_limits(rng: random.Random) -> Limits:
    session = rng.choice((20, 60, 200, 8 * KIB)) * KIB
    window = rng.choice((16, 64, 256, KIB)) * KIB
    return Limits(
        session_bytes=session,
        patience_ns=rng.choice((0, 0, 200 * MS, 1 * SECOND)),
        total_bytes=max(session, rng.choice((100, 400, 48 * KIB)) * KIB),
        is_blocking=rng.random() < 0.12,
        window_bytes=window,
        windows_bytes=rng.choice((window, 128 << 20)),
        least_window_bytes=min(window, rng.choice((16, 64)) * KIB),
    )


def _draw_clients(rng: random.Random, names: tuple[str, ...], groups: tuple[str, ...]) -> Iterator[ClientPlan]:
    for number in range(rng.choice((2, 3, 4, 5, 7))):
        is_spread = rng.random() < 0.35
        at = rng.randrange(len(names))
        daemons = names[at:] + names[:at]
        if is_spread or rng.random() < 0.4:
            daemons = daemons[:1]
        yield ClientPlan(
            f"{'s' if is_spread else 'n'}{number}",
            is_spread,
            daemons,
            tuple(rng.sample(groups, rng.randint(1, min(3, len(groups))))),
            FORMED_NS + rng.choice((0, 0, 0, 300, 1_500)) * MS + rng.randrange(MS),
            is_fed=rng.random() < 0.4,
            window=rng.choice((3 * KIB, 20 * KIB, 200 * KIB, 2 << 20)),
            wants_membership=rng.random() < 0.85,
            is_big=rng.random() < 0.3,
        )


def _draw_stream(rng: random.Random) -> StreamModel:
    return StreamModel(
        latency_ns=rng.choice((20_000, 50_000, 1 * MS, 20 * MS)),
        jitter_ns=rng.choice((0, 100_000, 5 * MS)),
        buffer_bytes=rng.choice((2, 16, 64, 256)) * KIB,
        chunk_bytes=rng.choice((1, 7, 48, 1_000, 65_536, 256 * KIB)),
    )


def _draw_daemon_acts(rng: random.Random, names: tuple[str, ...], length_ns: int, orderer: str) -> list[ClientAct]:
    count = rng.choice((0, 1, 1, 2)) if orderer == "sites" else rng.choice((0, 1))
    kinds = (Did.KILL_DAEMON, Did.KILL_DAEMON, Did.KILL_MACHINE, Did.STOP_DAEMON, Did.PAUSE_DAEMON)
    return [
        ClientAct(
            FORMED_NS + rng.randrange(length_ns),
            rng.choice(names),
            kind,
            for_ns=rng.choice((100, 600, 2_000, 4_000)) * MS + rng.randrange(MS),
        )
        for kind in [rng.choice(kinds) for _ in range(count)]
    ]


def _draw_site_faults(rng: random.Random, topology: Topology, length_ns: int) -> list[Fault]:
    end_ns = FORMED_NS + length_ns
    faults = draw_site_faults(
        rng,
        topology,
        FORMED_NS,
        end_ns,
        cut_pipe=rng.choice((0, 0, 0, 1)),
        partition_sites=rng.choice((0, 1, 1)),
        split=rng.choice((0, 0, 0, 1)),
        lossy_pipe=rng.choice((0, 0, 0, 1)),
    )
    return faults + draw_faults(rng, topology.nodes, FORMED_NS, end_ns, lossy=rng.choice((0, 0, 0, 1)))


def _draw_token_faults(rng: random.Random, names: tuple[str, ...], length_ns: int) -> list[Fault]:
    """One daemon is cut off, and comes back: the others are a majority."""
    at_ns = FORMED_NS + rng.randrange(length_ns)
    for_ns = rng.choice((100, 1_500, 4_000)) * MS
    return [Fault(at_ns, FaultKind.PARTITION, (rng.choice(names),), for_ns=for_ns)]


def _with_priorities(rng: random.Random, acts: tuple[ClientAct, ...]) -> tuple[ClientAct, ...]:
    """In two of three scenarios some sends are urgent."""
    share = rng.choice((0.0, 0.1, 0.5))
    return tuple(
        [
            replace(act, priority=rng.choice((1, 10, MAX_PRIORITY)))
            if act.who.startswith("n") and act.kind in SENDING and rng.random() < share
            else act
            for act in acts
        ]
    )


class _Acts:
    """What clients do, one act after the other."""

    __slots__ = ("_clients", "_groups", "_large", "_rng", "_services", "_times")

    def __init__(
        self,
        rng: random.Random,
        clients: tuple[ClientPlan, ...],
        groups: tuple[str, ...],
        services: tuple[str, ...],
        times: list[int],
    ) -> None:
        """`times`: when something happens to daemons. Acts are aimed at these moments, too."""
        self._rng = rng
        self._clients = clients
        self._groups = groups
        self._services = services
        self._times = times
        self._large = 2

    def draw(self, length_ns: int) -> list[ClientAct]:
        rng = self._rng
        times: list[int] = []
        at_ns = FORMED_NS + 50 * MS
        while at_ns < FORMED_NS + length_ns and len(times) < MOST_ACTS:
            times.append(at_ns)
            at_ns += rng.choice((0, 0, 1, 5, 20, 60, 200)) * MS + rng.randrange(MS)
        for begin_ns in self._times:
            times += [begin_ns + rng.choice((1, 50, 1_300)) * rng.randrange(MS) for _ in range(rng.randrange(6))]
        return [self._act(at, rng.choice(self._clients)) for at in times]

    def _act(self, at_ns: int, client: ClientPlan) -> ClientAct:
        rng, name = self._rng, client.name
        chance = rng.random()
        if chance < 0.10:
            return ClientAct(at_ns, name, Did.JOIN, (rng.choice(self._groups),))
        if chance < 0.18:
            return ClientAct(at_ns, name, Did.LEAVE, (rng.choice(self._groups),))
        if chance < 0.36:
            return self._trouble(at_ns, name)
        if chance < 0.38:
            return ClientAct(at_ns, name, Did.ASK)
        size = rng.choice((0, 10, 100, 100, 1_000, 5_000))
        if self._large and rng.random() < 0.05:
            self._large -= 1
            size = LARGE_BYTES
        service, is_confirmed = rng.choice(self._services), rng.random() < 0.3
        if chance < 0.5:
            names = tuple(rng.sample(self._groups, rng.randint(1, min(4, len(self._groups)))))
            return ClientAct(at_ns, name, Did.SEND_TO, names, 1, size, service, is_confirmed)
        if chance < 0.56:
            return ClientAct(at_ns, name, Did.PRIVATE, (), 1, min(size, 1_000), "AGREED", is_confirmed)
        group: tuple[str, ...] = (rng.choice(self._groups),)
        count = 1 if size == LARGE_BYTES else rng.choice((1, 1, 5, 30, 100))
        kind = rng.choice((Did.SEND, Did.SEND_MANY))
        if kind is Did.SEND_MANY and rng.random() < 0.25:
            kind, group = Did.SEND_EACH, tuple(rng.sample(self._groups, min(3, len(self._groups))))
        return ClientAct(at_ns, name, kind, group, count, size, service, is_confirmed)

    def _trouble(self, at_ns: int, name: str) -> ClientAct:
        rng = self._rng
        kind = rng.choice(
            (Did.STALL, Did.STALL, Did.STALL, Did.PAUSE, Did.CLOSE, Did.KILL, Did.KILL, Did.RESET, Did.RESET, Did.CUT)
        )
        if kind is Did.CUT and rng.random() < 0.7:
            kind = Did.RESET  # a cut takes long to be noticed
        for_ns = rng.choice((5, 100, 1_000, 3_000)) * MS if kind not in (Did.CUT, Did.RESET) else 0
        return ClientAct(at_ns, name, kind, for_ns=for_ns)
