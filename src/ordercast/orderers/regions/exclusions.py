"""Who is excluded, and since which epoch (QSM section 2.3.2: "a node that the GMS considers as dead in the region will
be excluded by others from the protocol").

A token is computed with the exclusions of one epoch, and all members have to compute the same: an epoch that excludes
nobody does not count, since nodes that it does not concern never hear of it. A node that comes back has the same id,
and is new in views that were made since: an exclusion concerns earlier views only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

CACHED: Final = 64  # sets that were computed lately
TIMES_KEPT: Final = 8  # exclusions of one node that are remembered


class Exclusions:
    """`epoch`: the last that excluded somebody. `floor`: of tokens before it this node does not know who was excluded
    then, because it was told of several epochs at once."""

    __slots__ = ("_cache", "_since", "epoch", "floor")

    def __init__(self) -> None:
        self._since: dict[int, tuple[int, ...]] = {}  # node -> epochs
        self._cache: dict[tuple[int, int], frozenset[int]] = {}
        self.epoch = 0
        self.floor = 0

    def __len__(self) -> int:
        return len(self._since)

    def install(self, epoch: int, nodes: Sequence[int], is_gap: bool, since: Sequence[int] = ()) -> list[int]:
        """What an epoch says; for which nodes it is new. `epoch`: `GivenEpoch.exclusions`. `is_gap`: these are all
        exclusions since some time. `since`: when each of the nodes was put out; empty: now."""
        self.epoch = max(self.epoch, epoch)
        if is_gap:
            self.floor = self.epoch
        fresh = []
        for node, at in zip(nodes, since or [self.epoch] * len(nodes), strict=True):
            known = self._since.get(node, ())
            # Who was out before, came back, and is out again has two times.
            if not known or known[-1] < at:
                self._since[node] = (*known, at)[-TIMES_KEPT:]
                fresh.append(node)
        self._cache.clear()
        return fresh

    def as_of(self, epoch: int, made: int) -> frozenset[int]:
        """Who was excluded from a view that the epoch `made` has made, when `epoch` was the last."""
        found = self._cache.get((epoch, made))
        if found is None:
            if len(self._cache) > CACHED:
                self._cache.clear()
            nodes = [node for node, since in self._since.items() if any(made < each <= epoch for each in since)]
            found = self._cache[epoch, made] = frozenset(nodes)
        return found

    def out_of(self, made: int) -> frozenset[int]:
        """Who is excluded from a view by now."""
        return self.as_of(self.epoch, made)

    def prune(self, concerned: Collection[int]) -> None:
        """Forget nodes that no view or record names any more."""
        self._since = {node: since for node, since in self._since.items() if node in concerned}
        self._cache.clear()
