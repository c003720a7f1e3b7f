"""What the membership service decides, as far as one node is concerned: region views and epochs (QSM section 2.2).

docs/design/regions.md has the words. `ordercast.membership.given` is what a node hears them from.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.config import REGIONS_UNDERLAY as REGIONS_UNDERLAY
from ordercast.view import Address, Member

PARTITION_MEMBERS: Final = 5  # R of QSM section 2.3


class GivenView(NamedTuple):
    """One immutable view of a region. Nodes that moved or were excluded since are still in the list."""

    region: int  # from 1 on; never used again within one service
    view: int  # 64 bits, its name on the wire: `ring` of headers. 0 is none
    epoch: int  # that made it
    leader: str  # of the service: the view is called epoch@leader
    address: Address | None  # multicast; None: copies by unicast
    members: tuple[Member, ...]  # in the order of their addresses
    parents: tuple[int, ...] = ()  # views that it comes from, by their names on the wire
    partition_members: int = PARTITION_MEMBERS

    @property
    def id(self) -> str:
        return f"{self.epoch}@{self.leader}"


class RegionGroups(NamedTuple):
    """What an epoch changes in the groups of a region: half-open runs of group numbers."""

    region: int
    added: tuple[tuple[int, int], ...] = ()
    removed: tuple[tuple[int, int], ...] = ()


class GivenEpoch(NamedTuple):
    """One decision of the service, as far as it concerns one node. Epochs of a node come in order; some that do not
    concern it are passed over. `is_whole`: a snapshot, and what it does not name is gone. After a gap it names in
    `views` and in `ended` those views of this node, too, that have ended meanwhile and are not settled: it owes its
    part in them. `excluded` nodes are gone from views of earlier epochs; a view of this epoch, or of a later one, that
    has one of them has it as new."""

    service: int  # 64 bits: which service; of another one nothing of before holds, and the node is new to it
    number: int
    settled: int  # all living nodes have confirmed the epochs up to it
    mine: int  # the region of this node; 0: none
    views: tuple[GivenView, ...] = ()  # that hold from now on
    ended: tuple[int, ...] = ()  # views that hold no longer, by their names on the wire
    excluded: tuple[int, ...] = ()  # nodes, by id
    groups: tuple[RegionGroups, ...] = ()
    is_whole: bool = False
    exclusions: int = 0
    """The last epoch up to this one that excluded anybody: it names what a token knows of exclusions. Every node is
    told of every epoch that excludes somebody, so all have the same number. 0: this one if it excludes somebody, else
    what was known before."""
    since: tuple[int, ...] = ()
    """Of a snapshot: the epochs that put out the `excluded` nodes, of each the last one. Some of them may be back, and
    in views that were made since. Empty: it was this epoch, or `exclusions`."""
