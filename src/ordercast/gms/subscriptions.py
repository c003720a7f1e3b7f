"""Who is in which group, as the service knows it: what `ordercast plan` begins from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ordercast.gms.directory import RegionDirectory
from ordercast.parts.runs import Runs, numbers_of


class ServedSubscriptions(NamedTuple):
    """As of an epoch. Nodes that are in no group are left out, and so are groups that nodes only send to."""

    epoch: int
    names: list[str]  # of groups, by number; 0 is none
    nodes: tuple[tuple[str, Runs], ...]  # name, numbers of its groups; in the order of names

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Node and group."""
        for node, groups in self.nodes:
            for number in numbers_of(groups):
                yield node, self.names[number]


def subscriptions_of(directory: RegionDirectory) -> ServedSubscriptions:
    """It shares nothing that changes, so that another thread may read it."""
    nodes = sorted((state.member.name, state.groups) for state in directory.nodes.values() if state.groups)
    return ServedSubscriptions(directory.epoch, ["", *directory.names.all], tuple(nodes))
