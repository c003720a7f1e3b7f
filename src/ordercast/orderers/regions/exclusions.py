"""Who is excluded, and since which epoch (QSM section 2.3.2: "a node that the GMS considers as dead in the region will
be excluded by others from the protocol").

A token is computed with the exclusions of one epoch, and all members have to compute the same: an epoch that excludes
nobody does not count, since nodes that it does not concern never hear of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

EMPTY_SET: frozenset[int] = frozenset()


class Exclusions:
    """`epoch`: the last that excluded somebody. `floor`: of tokens before it this node does not know who was excluded
    then, because it was told of several epochs at once."""

    __slots__ = ("_cache", "_since", "epoch", "floor")

    def __init__(self) -> None:
        self._since: dict[int, int] = {}  # node -> epoch
        self._cache: dict[int, frozenset[int]] = {}
        self.epoch = 0
        self.floor = 0

    def __contains__(self, node: int) -> bool:
        return node in self._since

    def __len__(self) -> int:
        return len(self._since)

    def install(self, epoch: int, nodes: Iterable[int], is_gap: bool) -> list[int]:
        """What an epoch says; which nodes are new among them. `epoch`: `GivenEpoch.exclusions`."""
        fresh = [node for node in nodes if node not in self._since]
        self.epoch = max(self.epoch, epoch)
        if is_gap:
            self.floor = self.epoch
        for node in fresh:
            self._since[node] = self.epoch
        self._cache.clear()
        return fresh

    def as_of(self, epoch: int) -> frozenset[int]:
        """Who was excluded when this epoch was the last."""
        found = self._cache.get(epoch)
        if found is None:
            if len(self._cache) > 16:
                self._cache.clear()
            found = self._cache[epoch] = frozenset([node for node, since in self._since.items() if since <= epoch])
        return found

    def prune(self, concerned: Collection[int]) -> None:
        """Forget nodes that no view or record names any more."""
        self._since = {node: since for node, since in self._since.items() if node in concerned}
        self._cache.clear()
