"""Names of groups on a shared underlay, looked up once for many sends (docs/guides/many-groups.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt


class Numbering(Protocol):
    """Where the groups of a session have their numbers."""

    @property
    def roster_count(self) -> int:
        """Rises when all groups get other numbers, because this node was out of the underlay."""

    def numbers_of(self, names: Sequence[str]) -> Sequence[int]:
        """The numbers of the session's groups; 0 for one that it is not in now."""

    def holds(self, numbers: npt.NDArray[np.uint32]) -> bool:
        """Whether the session is in all groups of these numbers, and stays."""


class _Lookup:
    """The names and their numbers, which the parts of a list share."""

    __slots__ = ("names", "numbering", "numbers", "roster")

    def __init__(self, names: Sequence[str], numbering: Numbering) -> None:
        self.names = names
        self.numbering = numbering
        self.numbers = np.zeros(len(names), dtype=np.uint32)
        self.roster = -1  # the numbers are those of this one


class ResolvedGroups(Sequence[str]):
    """A list of group names for `send_many`, which does not look them up again. Made by `floor.resolve`.

    It is a sequence of names, and slices of it are such lists, too. It may be kept as long as its underlay: where this
    node has left a group and joined it again, or has come back into the underlay, the names are looked up anew.
    """

    __slots__ = ("_lookup", "_start", "_stop")

    def __init__(self, names: Sequence[str], numbering: Numbering) -> None:
        self._lookup = _Lookup(tuple(names), numbering)
        self._start = 0
        self._stop = len(names)

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[str]:
        return iter(self._lookup.names[self._start : self._stop])

    def __repr__(self) -> str:
        return f"<ResolvedGroups, {len(self)} names>"

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> ResolvedGroups: ...

    def __getitem__(self, index: int | slice) -> str | ResolvedGroups:
        lookup = self._lookup
        if not isinstance(index, slice):
            return lookup.names[range(self._start, self._stop)[index]]
        start, stop, step = index.indices(len(self))
        if step != 1:
            return ResolvedGroups(list(self)[index], lookup.numbering)
        part = ResolvedGroups.__new__(ResolvedGroups)
        part._lookup = lookup
        part._start = self._start + start
        part._stop = self._start + max(start, stop)
        return part

    def numbers(self, numbering: Numbering) -> npt.NDArray[np.uint32] | None:
        """The number of each group. None: this node is not in all of them now, or the list was made elsewhere.

        Hot: once per `send_many`.
        """
        lookup = self._lookup
        if lookup.numbering is not numbering:
            return None
        if lookup.roster != numbering.roster_count:
            lookup.numbers[:] = numbering.numbers_of(lookup.names)
            lookup.roster = numbering.roster_count
        found = lookup.numbers[self._start : self._stop]
        if not numbering.holds(found):
            found[:] = numbering.numbers_of(lookup.names[self._start : self._stop])
            if not numbering.holds(found):
                return None
        return found.copy()  # the send queue keeps it
