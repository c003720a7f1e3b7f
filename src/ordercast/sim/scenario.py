"""A scenario is everything that a simulated run depends on, as data: it can be written down, read back and run again.

`scenario_json.py` writes and reads one, `plain.py` fills one in from the few parameters that a person types, and
`chance.py`, `churn.py`, `patience.py` and `gathering.py` draw one from a seed. The last five leave a `command`
in it that replays the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ordercast.config import MS, SECOND, GroupConfig, MinMembers, Timing
from ordercast.errors import UsageError
from ordercast.orderers import ORDERERS
from ordercast.sim.faults import OF_SITES, Fault, FaultKind
from ordercast.sim.network import NETWORKS, NetworkModel
from ordercast.sim.topology import Topology

MAX_NODES: Final = 200
EVENT_LIMIT: Final = 3_000_000
NAMES: Final = "abcdefghijklmnopqrstuvwxyz"

# What each orderer can be asked for (docs/design/overview.md section 3); RESILIENT stands for every k.
SERVICES: Final[dict[str, tuple[str, ...]]] = {
    "sequencer": ("RELIABLE", "FIFO", "AGREED", "RESILIENT", "SAFE"),
    "token": ("UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "AGREED", "RESILIENT", "MAJORITY", "SAFE"),
    "timestamp": ("RELIABLE", "FIFO", "AGREED", "RESILIENT", "MAJORITY", "SAFE"),
}
SITE_SERVICES: Final = ("UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "AGREED", "SAFE")
"""Of `sites`, whose scenarios have a topology (`site_groups.py`)."""
SESSIONS: Final = "sessions"
"""The profile of daemons and their clients, which has scenarios of its own (`sim/sessions/plan.py`)."""
PROFILES: Final = ("all", "membership", "patience", "gathering", "restarts", "slow", "detector", "endurance")
"""What random scenarios are about: everything (`chance.py`), joins, leaves and failures around them (`churn.py`), long
waits (`patience.py`), groups that are too small (`gathering.py`), restarts with and without a folder
(`restarts.py`), members that do not receive (`slow.py`), forged reports of dead processes
(`detecting.py`), or all that a group must endure (`endurance.py`)."""
PATIENCE_NS: Final = 8 * SECOND
"""An application gives a call up after this, unless its plan says otherwise."""
ANTICIPATING: Final = ("timestamp",)
"""Orderers of which there are two variants: with anticipation (TOMPA) and without (ABCAST)."""


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
class CallPlan:
    """Calls that one node makes, as a caller outside the group or as a member: `burst` at once, every `interval_ns`.

    `handler`: the lock whose holder is to answer, -1: none. With `wants_again` a call that comes again and has no
    answer is handed over again. A call without `wants_ack` is sent and forgotten. `to`: the member that the call is
    sent to and that passes it on. Without it the call goes to the group's name. The application gives a call up after
    `patience_ns`.
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
    patience_ns: int = PATIENCE_NS


@dataclass(frozen=True, slots=True)
class LockUse:
    """A node wants a lock at `at_ns`, waits for it, keeps it for `hold_ns` and gives it back. The locks "0" to "5" are
    the handler locks: the holder of one answers the calls that name it, `answer_ns` after it got them; -1: never."""

    node: str
    lock: str
    at_ns: int
    hold_ns: int
    answer_ns: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """All parameters of a run.

    These are more than 25 fields on purpose. The record is written as one flat object, to files (`scenario_json.py`)
    and to the `run.json` of a trace, whose run id is made of it. Sub-records would change both.
    """

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
    bootstrap: int = 1  # the group begins to work once a view has had so many members
    without_multicast: tuple[str, ...] = ()  # nodes without multicast, where the others have it
    recovery: str = "automatic"
    slow: str = "evict"  # what becomes of members that do not receive
    patience_ns: int = 10 * SECOND
    folders: tuple[str, ...] = ()  # nodes that keep over restarts what they have promised
    topology: Topology | None = None  # which nodes are in which site, and the pipes between them; None: one place
    # local timing, as factors of the defaults
    timing: tuple[tuple[str, float], ...] = ()
    # what happens
    loads: tuple[Load, ...] = ()
    take_delays_ns: tuple[int, ...] = ()  # how long each application leaves events in the queue; none: not at all
    callers: tuple[str, ...] = ()  # nodes that never join
    calls: tuple[CallPlan, ...] = ()
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
        if self.slow not in ("evict", "wait"):
            raise UsageError(f"slow is evict or wait, not {self.slow!r}")
        if self.rules and len(self.rules) != len(self.nodes):
            raise UsageError(f"rules are one for each of the {len(self.nodes)} nodes, or none; got {len(self.rules)}")
        known = {*self.nodes, *self.callers}
        if len(known) != len(self.nodes) + len(self.callers):
            raise UsageError("no two nodes or callers have the same name")
        plans: tuple[Load | CallPlan | LockUse, ...] = (*self.loads, *self.calls, *self.locks)
        named = {
            *self.without_multicast,
            *self.folders,
            *(plan.node for plan in plans),
            *(call.to for call in self.calls if call.to),
        }
        if not named <= known:
            raise UsageError(f"there is no node {', '.join(sorted(named - known))} in this scenario")

        self._check_places(known)

    def _check_places(self, known: set[str]) -> None:
        """Nodes have their places in the topology, and faults of sites name what it has."""
        topology = self.topology
        for fault in self.faults:
            if topology is None and (fault.kind in OF_SITES or fault.kind == FaultKind.SPLIT):
                raise UsageError(f"{fault.kind} is a fault of sites: give the scenario a topology")
        if topology is None:
            return
        homeless = sorted(known.difference(topology.nodes))
        if homeless:
            raise UsageError(f"{', '.join(homeless)} is in no site of the topology; add a [[daemon]] for each node")
        sites = [site.name for site in topology.config.sites]
        for fault in self.faults:
            unknown = [name for name in (*fault.nodes, *fault.others) if fault.kind in OF_SITES and name not in sites]
            if unknown:
                raise UsageError(f"{fault.kind} names {unknown[0]!r}, which is no site; choose of {', '.join(sites)}")
            if fault.kind == FaultKind.NARROW_PIPE and fault.value < 1:
                raise UsageError(f"narrow-pipe divides the bandwidth by its value: 1 or more, not {fault.value}")
            if fault.kind == FaultKind.LOSSY_PIPE and not 0 <= fault.value <= 1:
                raise UsageError(f"the value of lossy-pipe is a probability, not {fault.value}")

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
            bootstrap=self.bootstrap,
            slow="wait" if self.slow == "wait" else "evict",
            patience_ns=self.patience_ns,
        )

    def node_timing(self) -> Timing:
        base = Timing()
        return replace(base, **{name: int(getattr(base, name) * factor) for name, factor in self.timing})


def check_orderer(orderer: str, anticipate: bool | None) -> bool:
    """Whether a group of this orderer anticipates; `UsageError` where there is no such orderer, or no such choice."""
    if orderer not in SERVICES or orderer not in ORDERERS:
        raise UsageError(f"there is no orderer {orderer!r} yet; choose one of {', '.join(SERVICES)}")
    return check_anticipate(orderer, anticipate)


def check_anticipate(orderer: str, anticipate: bool | None) -> bool:
    """Whether a group anticipates: what was asked for, or the default; `UsageError` where there is no choice."""
    if anticipate is not None and orderer not in ANTICIPATING:
        raise UsageError(f"whether to anticipate is a choice of {' and '.join(ANTICIPATING)} only, not of {orderer}")
    return anticipate is not False


def node_names(count: int) -> tuple[str, ...]:
    """a, b, c, … z, a1, b1, …"""
    return tuple(NAMES[index % 26] + (str(index // 26) if index >= 26 else "") for index in range(count))


def anticipate_flags(anticipate: bool | None) -> list[str]:
    """The flags that a command needs besides the orderer."""
    return ["--no-anticipate"] if anticipate is False else []
