"""Which links a packet takes (Spread section 3.2): a tree of shortest paths for each source site.

Dijkstra's algorithm over the complete graph with configured weights, among the sites that are present. All daemons have
the same configuration and the same view, so they compute the same trees: ties go to the path with fewer links, then to
the parent with the lower number. The trees change only when the set of sites does; a daemon that comes or goes inside a
site changes nothing.

A set of sites is a bit mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.errors import InvariantViolation
from ordercast.wire.sites import MAX_SITES, sites_of

_NOWHERE: Final = 1 << 62  # farther than every path

Branch = tuple[int, int]  # a child, and the mask of the sites below it, itself included


class SiteRoutes:
    __slots__ = ("_branches", "_links", "_weights", "computed", "present")

    def __init__(self, weights: Sequence[Sequence[int]]) -> None:
        """`weights[a][b]`: the length of the way from site a to site b, at least 1."""
        if len(weights) > MAX_SITES:
            raise InvariantViolation(f"{len(weights)} sites; a mask has room for {MAX_SITES}")
        self._weights = weights
        self.present = 0  # the sites that there are trees for
        self.computed = 0  # times that trees were computed
        self._branches: dict[tuple[int, int], tuple[Branch, ...]] = {}  # (source, site) -> its children in that tree
        self._links: dict[int, int] = {}  # site -> mask of the sites that it has a link with

    def change_sites(self, present: int) -> bool:
        """The sites of the next view; whether the trees have changed with them."""
        if present >> len(self._weights):
            raise InvariantViolation(f"sites {present:b} of {len(self._weights)}")
        if present == self.present:
            return False
        self.present = present
        self.computed += 1
        self._branches.clear()
        self._links = dict.fromkeys(sites_of(present), 0)
        for source in sites_of(present):
            self._grow(source)
        return True

    def links(self, here: int) -> Sequence[int]:
        """The sites that `here` has a link with: its parents and children in any of the trees."""
        return sites_of(self._links.get(here, 0))

    def children(self, source: int, here: int) -> list[int]:
        """The sites that `here` forwards to in the tree of `source`."""
        return [child for child, _ in self._branches.get((source, here), ())]

    def below(self, source: int, here: int, child: int) -> int:
        """The sites that are reached through a child, itself included; 0 where it is none."""
        for other, mask in self._branches.get((source, here), ()):
            if other == child:
                return mask
        return 0

    def next_hops(self, source: int, here: int, mask: int) -> list[int]:
        """The children below which a site of `mask` lies: where a packet goes."""
        # Hot: once for each packet that a site forwards.
        return [child for child, below in self._branches.get((source, here), ()) if below & mask]

    def pruned(self, source: int, here: int, mask: int) -> list[int]:
        """The other children: they get a SKIP in its place."""
        return [child for child, below in self._branches.get((source, here), ()) if not below & mask]

    def _grow(self, source: int) -> None:
        """The tree of one source."""
        sites = sites_of(self.present)
        distance = dict.fromkeys(sites, (_NOWHERE, 0, 0))  # length, links, parent: compared in this order
        distance[source] = (0, 0, source)
        order: list[int] = []  # as their paths become known, so parents come before their children
        waiting = list(sites)
        while waiting:
            nearest = min(waiting, key=lambda site: (distance[site], site))
            waiting.remove(nearest)
            order.append(nearest)
            length, links, _ = distance[nearest]
            row = self._weights[nearest]
            for site in waiting:
                distance[site] = min(distance[site], (length + row[site], links + 1, nearest))
        below = {site: 1 << site for site in sites}
        children: dict[int, list[int]] = {site: [] for site in sites}
        for site in reversed(order[1:]):
            parent = distance[site][2]
            below[parent] |= below[site]
            children[parent].append(site)
            self._links[parent] |= 1 << site
            self._links[site] |= 1 << parent
        for site, found in children.items():
            if found:
                self._branches[source, site] = tuple([(child, below[child]) for child in sorted(found)])
