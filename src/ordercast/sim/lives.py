"""What judges of a standstill are told of a run: the lives of its nodes, what they asked for, and what failed when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from ordercast.config import SECOND
from ordercast.sim.checkers.records import FOREVER
from ordercast.sim.checkers.restarts import Expulsion
from ordercast.sim.checkers.stalled import LateApplication
from ordercast.sim.checkers.stuck import LifeSpan, Trouble, Wish
from ordercast.sim.faults import OF_SITES, Fault, FaultKind
from ordercast.sim.topology import Topology
from ordercast.trace.schema import Row

LASTING: Final = frozenset(
    (
        FaultKind.PAUSE,
        FaultKind.SLOW,
        FaultKind.CUT,
        FaultKind.PARTITION,
        FaultKind.LOSSY,
        FaultKind.STALL,
        FaultKind.SPLIT,
        *OF_SITES,
    )
)
"""Faults in which members may not answer for a while. A crash is the end of a life, and the rest are wishes."""

ORDERED_NS: Final = 5 * SECOND
"""So long after it was asked for an expulsion may be ordered: it waits for what stands before it."""


class Wisher(Protocol):
    """An application on a node, through all its lives."""

    @property
    def wishes(self) -> dict[int, list[Wish]]: ...

    @property
    def is_wanted(self) -> bool: ...


def life_spans(
    members: Mapping[str, Wisher], rows: Iterable[Row], heirs: Mapping[str, set[int]] | None = None
) -> list[LifeSpan]:
    """All lives of all members, in the order of the trace. `members`: the applications by the names of their nodes.
    `heirs`: of each node the lives that began with what the one before had kept."""
    began: dict[tuple[str, int], int] = {}
    ended: dict[tuple[str, int], int] = {}
    for row in rows:
        if row.node not in members:
            continue
        if row.kind == "start":
            began[row.node, row.life] = row.at_ns
        elif row.kind == "crash":
            ended[row.node, row.life] = row.at_ns
    lives: list[LifeSpan] = []
    for (name, life), began_ns in began.items():
        member = members[name]
        wishes = tuple(member.wishes.get(life, ()))
        is_wanted = (name, life) not in ended and member.is_wanted
        former = f"{name}/{life - 1}" if heirs and life in heirs.get(name, ()) else ""
        ended_ns = ended.get((name, life), FOREVER)
        lives.append(LifeSpan(f"{name}/{life}", began_ns, ended_ns, wishes, is_wanted, former))
    return lives


def late_applications(
    faults: Sequence[Fault], nodes: Sequence[str], delays_ns: Sequence[int], healed_ns: int
) -> list[LateApplication]:
    """The times in which applications did not receive: because they were told so, always do it late, or stood still.
    A fault without an end lasts until `healed_ns`, when everything works again."""
    late = [LateApplication(node, 0, FOREVER) for node, delay_ns in zip(nodes, delays_ns, strict=False) if delay_ns > 0]
    for fault in faults:
        if fault.kind in (FaultKind.STALL, FaultKind.PAUSE, FaultKind.SLOW):
            end_ns = fault.at_ns + fault.for_ns if fault.for_ns else healed_ns
            late += [LateApplication(node, fault.at_ns, end_ns) for node in fault.nodes]
    return late


def possible_expulsions(faults: Sequence[Fault], patience_ns: int | None, healed_ns: int) -> list[Expulsion]:
    """The times in which members may have been put out: because their applications did not receive for `patience_ns`
    (None: the group waits for them), or because another asked for it."""
    found: list[Expulsion] = []
    for fault in faults:
        end_ns = fault.at_ns + fault.for_ns if fault.for_ns else healed_ns
        if fault.kind == FaultKind.EXPEL:
            found += [Expulsion(node, fault.at_ns, fault.at_ns + ORDERED_NS, True) for node in fault.nodes]
        elif fault.kind == FaultKind.STALL and patience_ns is not None and end_ns - fault.at_ns >= patience_ns:
            found += [Expulsion(node, fault.at_ns + patience_ns, end_ns + ORDERED_NS) for node in fault.nodes]
    return found


def troubles_of(faults: Sequence[Fault], nodes: Iterable[str], topology: Topology | None = None) -> list[Trouble]:
    """The times in which faults may have kept nodes from answering."""
    everybody = frozenset(nodes)
    partitions = [fault for fault in faults if fault.kind == FaultKind.PARTITION]
    troubles: list[Trouble] = []
    for fault in faults:
        names = (*fault.nodes, *fault.others)
        if fault.kind in OF_SITES and topology is not None:
            names = topology.nodes_of(names)
        named, side = everybody.intersection(names), frozenset[str]()
        if fault.kind in (FaultKind.PARTITION, FaultKind.PARTITION_SITES):
            # Another partition meanwhile replaces this one, or ends it.
            is_alone = not any(_overlap(fault, other) for other in partitions if other is not fault)
            side = named if fault.kind == FaultKind.PARTITION and is_alone else side
            # Each side is kept from the other, and either may be the one that is left out.
            named = everybody if named < everybody and named else frozenset()
        if fault.kind in LASTING and named:
            is_pause = fault.kind is FaultKind.PAUSE
            troubles.append(Trouble(fault.at_ns, fault.at_ns + fault.for_ns, named, is_pause, side))
    return troubles


def _overlap(fault: Fault, other: Fault) -> bool:
    """Whether one of them begins before the other is over."""
    return fault.at_ns <= other.at_ns + other.for_ns and other.at_ns <= fault.at_ns + fault.for_ns
