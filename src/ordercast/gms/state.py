"""What the directory knows, as immutable records: nodes, regions, ended views, and what one epoch changed."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.orderers.regions.given import GivenView
from ordercast.parts.runs import NOTHING, Runs, touches
from ordercast.view import Address, Member


class NodeState(NamedTuple):
    """One registration of a node."""

    member: Member
    born: int  # the epoch of the registration
    request: int  # the last request that was applied
    refusal: str = ""  # why it was refused; empty: it was not
    is_back: bool = False  # this life of the node has been registered before: its lanes may be in views that go on
    region: int = 0  # 0: it is in no group
    groups: Runs = NOTHING  # that it is in
    follows: Runs = NOTHING  # that it sends to
    interest: Runs = NOTHING  # both
    linger: tuple[int, ...] = ()  # views that it may have lanes in, of groups that it is no longer interested in
    leaving: int = 0  # the epoch in which it departed; it goes when that is settled


class RegionState(NamedTuple):
    """A region as of an epoch."""

    groups: Runs  # of its members
    label: int  # of the plan that placed them; 0: none, the region is exact
    view: GivenView


class EndedViews(NamedTuple):
    """Views that an epoch ended, until all who may have lanes in them have confirmed it."""

    epoch: int
    views: tuple[GivenView, ...]
    concerned: frozenset[int]  # nodes that saw them
    addresses: tuple[Address, ...]  # that are free then


class EpochRecord(NamedTuple):
    """What an epoch changed: before and after. `affected`: the nodes that have to hear of it."""

    epoch: int
    settled: int
    nodes: dict[int, tuple[NodeState | None, NodeState | None]]
    regions: dict[int, tuple[RegionState | None, RegionState | None]]
    excluded: tuple[int, ...]
    affected: frozenset[int]


class EpochOutcome(NamedTuple):
    """What the replica is told of an epoch that it applied."""

    epoch: int
    affected: tuple[int, ...]  # living nodes that have to hear of it
    excluded: tuple[Member, ...]  # nodes that are out, or gone as they wished
    touched: tuple[int, ...]  # regions with a new view


def sees(node: NodeState, region: int, state: RegionState) -> bool:
    """Whether a node has to know a region: it is in it, may send to it, or may have a lane there."""
    return region == node.region or state.view.view in node.linger or touches(node.interest, state.groups)


def place_of(member: Member) -> tuple[tuple[int, ...], int, int]:
    """The order of members of a view: by address. An id breaks ties, which no honest nodes have."""
    host, port = member.address
    return tuple([int(part) for part in host.split(".")]), port, member.id
