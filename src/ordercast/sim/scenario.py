"""A scenario is everything that a simulated run depends on, as data: it can be written down, read back and run again.

`random_scenario(seed, orderer)` draws all of it from one number, for the fuzzer; `plain_scenario` fills it in from the
few parameters that a person types. Both leave a `command` in it that replays the run.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from ordercast.config import MS, SECOND, GroupConfig, MinMembers, Timing
from ordercast.errors import UsageError
from ordercast.orderers import ORDERERS
from ordercast.service import RESILIENT, Service, parse_service
from ordercast.sim.faults import Fault, FaultKind, draw_aftershocks, draw_faults
from ordercast.sim.network import NETWORKS, NetworkModel

MAX_NODES: Final = 200
EVENT_LIMIT: Final = 3_000_000
RANDOM_EVENT_LIMIT: Final = 500_000  # a random scenario takes some ten thousand; a storm of datagrams is a failure, too
NAMES: Final = "abcdefghijklmnopqrstuvwxyz"

# What each orderer can be asked for (DESIGN section 3); RESILIENT stands for every k.
SERVICES: Final[dict[str, tuple[str, ...]]] = {
    "sequencer": ("RELIABLE", "FIFO", "AGREED", "RESILIENT", "SAFE"),
    "token": ("UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "AGREED", "RESILIENT", "MAJORITY", "SAFE"),
    "timestamp": ("RELIABLE", "FIFO", "AGREED", "RESILIENT", "MAJORITY", "SAFE"),
}
ANTICIPATING: Final = ("timestamp",)
"""Orderers of which there are two variants: with anticipation (TOMPA) and without (ABCAST)."""
PLAIN_SEEDS: Final = ("sequencer",)
"""Orderers whose random scenarios have only what all have: they were fuzzed before there was more."""


@dataclass(frozen=True, slots=True)
class Load:
    """Messages that one node sends: `burst` at once, every `interval_ns`, from `start_ns` on."""

    node: str
    count: int
    service: str = "AGREED"
    size: int = 100
    start_ns: int = 0
    interval_ns: int = 10 * MS
    burst: int = 1
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls that one node makes, a caller beside the group or a member of it: `burst` at once, every `interval_ns`.

    `handler`: the lock whose holder is to answer, -1: none. With `wants_again` a call that comes again and has no
    answer is handed over again. A call without `wants_ack` is sent and forgotten. `to`: the member that it is sent to,
    which passes it on; otherwise the group's name is enough.
    """

    node: str
    count: int
    service: str = "AGREED"
    size: int = 100
    start_ns: int = 0
    interval_ns: int = 50 * MS
    burst: int = 1
    handler: int = -1
    wants_ack: bool = True
    wants_again: bool = False
    to: str = ""


@dataclass(frozen=True, slots=True)
class LockUse:
    """A node wants a lock at `at_ns`, waits for it, keeps it for `hold_ns` and gives it back. The locks "0" to "5" are
    the handler locks: who holds one answers the calls that name it, `answer_ns` after it got them; -1: never."""

    node: str
    lock: str
    at_ns: int
    hold_ns: int
    answer_ns: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """All parameters of a run."""

    seed: int = 0
    orderer: str = "sequencer"
    nodes: tuple[str, ...] = ("a", "b", "c", "d", "e")
    starts_ns: tuple[int, ...] = ()  # when each node starts; none: all at 0. -1: only when a `join` fault says so
    # network
    network: str = "lan"
    jitter_ns: int = -1  # -1: the network's own
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    has_multicast: bool = True
    buffer_bytes: int = 4 << 20
    # group
    datagram: int = 1_400
    history_bytes: int = 4 << 20
    history_blocks: int = 4_096
    resilience: int = 0
    flow: str = "slow-start"
    anticipate: bool = True
    min_members: MinMembers = "majority"
    rules: tuple[MinMembers, ...] = ()  # what each node asks for instead; the largest of a view's members holds
    without_multicast: tuple[str, ...] = ()  # nodes without multicast, where the others have it
    recovery: str = "automatic"
    # local timing, as factors of the defaults
    timing: tuple[tuple[str, float], ...] = ()
    # what happens
    loads: tuple[Load, ...] = ()
    take_delays_ns: tuple[
        int, ...
    ] = ()  # how long each node's application leaves events in the queue; none: not at all
    callers: tuple[str, ...] = ()  # nodes that never join
    calls: tuple[Calls, ...] = ()
    locks: tuple[LockUse, ...] = ()
    faults: tuple[Fault, ...] = ()
    # how it is run and replayed
    event_limit: int = EVENT_LIMIT
    command: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.nodes) <= MAX_NODES:
            raise UsageError(f"a run has between 1 and {MAX_NODES} nodes, got {len(self.nodes)}")
        if self.network not in NETWORKS:
            raise UsageError(f"there is no network {self.network!r}; choose one of {', '.join(NETWORKS)}")
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} is a probability from 0 up to, not including, 1; got {getattr(self, name)}")
        if self.recovery not in ("automatic", "manual"):
            raise UsageError(f"recovery is automatic or manual, not {self.recovery!r}")
        if self.rules and len(self.rules) != len(self.nodes):
            raise UsageError(f"rules are one for each of the {len(self.nodes)} nodes, or none; got {len(self.rules)}")
        known = {*self.nodes, *self.callers}
        if len(known) != len(self.nodes) + len(self.callers):
            raise UsageError("no two nodes or callers have the same name")
        plans: tuple[Load | Calls | LockUse, ...] = (*self.loads, *self.calls, *self.locks)
        named = {*self.without_multicast, *(plan.node for plan in plans), *(call.to for call in self.calls if call.to)}
        if not named <= known:
            raise UsageError(f"there is no node {', '.join(sorted(named - known))} in this scenario")

    @property
    def messages(self) -> int:
        return sum(load.count for load in self.loads)

    @property
    def last_ns(self) -> int:
        """When everything that comes from outside has happened."""
        ends = [load.start_ns + -(-load.count // load.burst) * load.interval_ns for load in self.loads]
        ends += [call.start_ns + -(-call.count // call.burst) * call.interval_ns for call in self.calls]
        ends += [use.at_ns + use.hold_ns for use in self.locks]
        ends += [fault.at_ns + fault.for_ns for fault in self.faults]
        return max([*ends, *self.starts_ns], default=0)

    @property
    def rule_of(self) -> dict[str, MinMembers]:
        """What each member asks for, by its name."""
        return dict(zip(self.nodes, self.rules or (self.min_members,) * len(self.nodes), strict=True))

    def network_model(self) -> NetworkModel:
        model = replace(
            NETWORKS[self.network],
            loss=self.loss,
            duplicate=self.duplicate,
            reorder=self.reorder,
            has_multicast=self.has_multicast,
        )
        return model if self.jitter_ns < 0 else replace(model, jitter_ns=self.jitter_ns)

    def group_config(self) -> GroupConfig:
        return GroupConfig(
            orderer=self.orderer,
            resilience=self.resilience,
            max_members=max(64, len(self.nodes)),
            history_bytes=self.history_bytes,
            history_blocks=self.history_blocks,
            datagram=self.datagram,
            flow=self.flow,
            anticipate=self.anticipate,
        )

    def node_timing(self) -> Timing:
        base = Timing()
        return replace(base, **{name: int(getattr(base, name) * factor) for name, factor in self.timing})

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """Read what `to_json` wrote; `UsageError` names what does not belong there."""
        try:
            values: dict[str, Any] = json.loads(text)
            if not isinstance(values, dict):
                raise UsageError("a scenario is a JSON object")
            unknown = sorted(values.keys() - {field.name for field in fields(cls)})
            if unknown:
                raise UsageError(f"a scenario has no {', '.join(unknown)}")
            for name in ("nodes", "starts_ns", "take_delays_ns", "rules", "without_multicast", "callers"):
                if name in values:
                    values[name] = tuple(values[name])
            if "timing" in values:
                values["timing"] = tuple((str(name), float(factor)) for name, factor in values["timing"])
            if "loads" in values:
                values["loads"] = tuple(Load(**load) for load in values["loads"])
            if "calls" in values:
                values["calls"] = tuple(Calls(**call) for call in values["calls"])
            if "locks" in values:
                values["locks"] = tuple(LockUse(**use) for use in values["locks"])
            if "faults" in values:
                values["faults"] = tuple(
                    Fault(**{**fault, "nodes": tuple(fault["nodes"]), "others": tuple(fault.get("others", ()))})
                    for fault in values["faults"]
                )
            return cls(**values)
        except (json.JSONDecodeError, TypeError, KeyError) as error:
            raise UsageError(f"this is no scenario: {error}") from error


def check_anticipate(orderer: str, anticipate: bool | None) -> bool:
    """Whether a group anticipates: what was asked for, or the default; `UsageError` where there is no choice."""
    if anticipate is not None and orderer not in ANTICIPATING:
        raise UsageError(f"whether to anticipate is a choice of {' and '.join(ANTICIPATING)} only, not of {orderer}")
    return anticipate is not False


def node_names(count: int) -> tuple[str, ...]:
    """a, b, c, … z, a1, b1, …"""
    return tuple(NAMES[index % 26] + (str(index // 26) if index >= 26 else "") for index in range(count))


def plain_scenario(
    *,
    seed: int = 0,
    orderer: str = "sequencer",
    nodes: int = 5,
    messages: int = 2_000,
    size: int = 100,
    service: str = "AGREED",
    senders: int = 0,
    seconds: float = 0.0,
    network: str = "lan",
    loss: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    datagram: int = 1_400,
    crash: int = 0,
    restart: int = 0,
    pause: int = 0,
    partition: int = 0,
    cut: int = 0,
    slow: int = 0,
    stall: int = 0,
    leave: int = 0,
    min_members: MinMembers = "majority",
    recovery: str = "automatic",
    has_multicast: bool = True,
    anticipate: bool | None = None,
) -> Scenario:
    """The scenario of the command's flags: `messages` spread evenly over all nodes (or the last `senders` of them, so
    that a single sender is not the first member) and over `seconds` of virtual time (0: a millisecond for each
    message, a second at least); faults fall into that time."""
    given = dict(locals())
    if messages < 0 or size < 0:
        raise UsageError("messages and size cannot be negative")
    if crash > nodes or restart > crash:
        raise UsageError(f"of {nodes} nodes at most {nodes} crash, and no more restart than crash")
    asked = str(parse_service(service)).partition("(")[0]
    if asked not in SERVICES.get(orderer, ()):
        raise UsageError(f"the {orderer} gives {', '.join(SERVICES.get(orderer, ()))}, not {asked}")
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(f"a run has between 1 and {MAX_NODES} nodes, got {nodes}")
    anticipates = check_anticipate(orderer, anticipate)
    names = node_names(nodes)
    load_ns = int(seconds * SECOND) or max(SECOND, messages * MS)
    speakers = names[-senders:] if senders else names
    counts = [messages // len(speakers) + (index < messages % len(speakers)) for index in range(len(speakers))]
    begin_ns = SECOND  # by then the group has formed
    loads = tuple(
        Load(name, count, service, size, begin_ns + index * 10_000, max(1, load_ns // count))
        for index, (name, count) in enumerate(zip(speakers, counts, strict=True))
        if count
    )
    faults = draw_faults(
        random.Random(f"{seed}/faults"),
        names,
        begin_ns,
        begin_ns + load_ns,
        crash=crash,
        restart=restart,
        pause=pause,
        partition=partition,
        cut=cut,
        slow=slow,
        stall=stall,
        leave=leave,
    )
    return Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        network=network,
        loss=loss,
        duplicate=duplicate,
        reorder=reorder,
        has_multicast=has_multicast,
        datagram=datagram,
        anticipate=anticipates,
        min_members=min_members,
        recovery=recovery,
        loads=loads,
        faults=tuple(faults),
        event_limit=max(EVENT_LIMIT, messages * nodes * 100),
        command=_command(given),
    )


def _command(given: dict[str, Any]) -> str:
    defaults = plain_scenario.__kwdefaults__ or {}
    words = ["ordercast", "sim"]
    for name, value in given.items():
        flag = name.replace("_", "-")
        if name == "has_multicast":
            words += [] if value else ["--no-multicast"]
        elif name == "anticipate":
            words += _anticipate_words(value)
        elif value != defaults[name] or name in ("seed", "orderer"):
            words += [f"--{flag}", str(value)]
    return shlex.join(words)


def _anticipate_words(anticipate: bool | None) -> list[str]:
    """The flag that a command needs besides the orderer."""
    return ["--no-anticipate"] if anticipate is False else []


# Chance. ----------------------------------------------------------------------------------------------------------


def random_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """Draw everything. Most runs are small and suffer several things at once: that is where protocols break.

    With and without anticipation a seed gives the same scenario but for that.
    """
    if orderer not in SERVICES or orderer not in ORDERERS:
        raise UsageError(f"there is no orderer {orderer!r} yet; choose one of {', '.join(SERVICES)}")
    anticipates = check_anticipate(orderer, anticipate)
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
            ["ordercast sim --scenario-seed", str(seed), "--orderer", orderer, *_anticipate_words(anticipate)]
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
    calls: list[Calls] = []
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
        # Mostly somebody answers, and mostly another takes over.
        for name in rng.sample(names, rng.choice((0, 1, 2, min(3, len(names))))):
            at_ns = begin_ns + (0 if rng.random() < 0.5 else rng.randrange(load_ns))
            answer_ns = rng.choice((0, 0, 0, 1, 30, 500)) * MS if rng.random() < 0.95 else -1
            locks.append(LockUse(name, str(handler), at_ns, rng.randrange(1, load_ns + 2_000 * MS), answer_ns))
    flow = _draw_flow(rng)
    rules = _draw_strict(rng, rules)
    faults += _draw_long_partition(rng, drawn, rules, (*names, *callers), begin_ns, load_ns)
    aimed = random.Random(f"{drawn.orderer}/{drawn.seed}/aimed")
    if not is_calm and aimed.random() < 0.15:
        # Who holds a lock leaves: chance alone hits that too rarely.
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
    """Few locks and many who want them, most of them for a short time."""
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
) -> Calls:
    """Of a caller any kind of call; a member's are always to a handler: without one they are messages like others."""
    # A call is one block, and never cut: no larger than buffers of that size can take from several at once.
    is_roomy = drawn.buffer_bytes > 200_000 and drawn.history_bytes >= 64_000
    size = rng.choice((0, 10, 100, 100, 1_000, 3_000, 20_000))
    count = rng.choice((1, 3, 10, 30))
    burst = rng.choice((1, 1, 3, count))
    wants_ack = rng.random() < 0.85 or is_member
    handlers = (0, 2, 5) if is_member else (-1, -1, 0, 2, 5)
    return Calls(
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
    """Callers die, stand still and are cut off like everybody else."""
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
