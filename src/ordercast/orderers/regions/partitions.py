"""Partitions of a view and the way of a token through them, as pure functions (QSM sections 2.3.1 and 2.3.2).

The partition of a member is its index in the *original* list mod p, whoever was excluded since: blocks that are stable
at the cachers of before would be absent at others (docs/design/regions.md, deviation 6).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ordercast.orderers.regions.given import GivenView


class Stop(NamedTuple):
    """One visit of a token: at whom, of which partition, and whether it is the first there, back there, or at its
    end."""

    node: int
    partition: int
    is_first: bool = False
    is_return: bool = False
    is_end: bool = False


Partitions = tuple[tuple[int, ...], ...]  # living members of each, in the order of their addresses


def partition_count(view: GivenView) -> int:
    return max(1, len(view.members) // view.partition_members)


def partition_of(view: GivenView, node: int) -> int:
    """-1: no member."""
    count = partition_count(view)
    for index, member in enumerate(view.members):
        if member.id == node:
            return index % count
    return -1


def partitions_of(view: GivenView, excluded: Collection[int]) -> Partitions:
    count = partition_count(view)
    found: list[list[int]] = [[] for _ in range(count)]
    for index, member in enumerate(view.members):
        if member.id not in excluded:
            found[index % count].append(member.id)
    return tuple([tuple(each) for each in found])


def leader_of(partitions: Partitions) -> int:
    """The first member of the first partition that has living ones; 0: there is nobody."""
    for each in partitions:
        if each:
            return each[0]
    return 0


def ring_of(partitions: Partitions, starter: int) -> tuple[Stop, ...]:
    """The whole way of a token. A starter that is not among the living has no ring."""
    own = -1
    for index, each in enumerate(partitions):
        if starter in each:
            own = index
    if own < 0:
        return ()
    path: list[Stop] = []
    for step in range(len(partitions)):
        index = (own + step) % len(partitions)
        ring = partitions[index]
        if index == own:
            at = ring.index(starter)
            ring = ring[at:] + ring[:at]
        for place, node in enumerate(ring):
            path.append(Stop(node, index, is_first=not place))
        if ring:
            path.append(Stop(ring[0], index, is_return=True))
    path.append(Stop(starter, own, is_end=True))
    return tuple(path)


def answered_by(partitions: Partitions, partition: int) -> tuple[bool, ...]:
    """For which blocks (by their number mod p) a member of this partition answers: those of its own, and of partitions
    that nobody is left of."""
    return tuple([index == partition or not each for index, each in enumerate(partitions)])
