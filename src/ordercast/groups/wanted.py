"""The groups of a shared underlay that a session is in: a table over their numbers, for whole blocks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

FIRST_NUMBERS: Final = 1_024
"""Room for so many numbers at first. It grows to both sides as numbers come: those of a roster begin anywhere, and
follow one another."""


class WantedGroups:
    """The numbers of the groups, and how many messages went to each. Numbers that were never seen are not in it."""

    __slots__ = ("_before", "_is_in", "_sent")

    def __init__(self) -> None:
        # The first and the last entry are for all numbers that lie beyond them. Number 0 is no group's.
        self._before = 0  # the number of the first entry
        self._is_in = np.zeros(2, dtype=np.bool_)
        self._sent = np.zeros(2, dtype=np.int64)

    @property
    def table_bytes(self) -> int:
        return self._is_in.nbytes + self._sent.nbytes

    def add(self, number: int) -> None:
        size = len(self._is_in) - 2
        if not size:
            self._before = max(0, number - FIRST_NUMBERS // 2)
            self._is_in = np.zeros(FIRST_NUMBERS + 2, dtype=np.bool_)
            self._sent = np.zeros(FIRST_NUMBERS + 2, dtype=np.int64)
        elif not 0 < number - self._before <= size:
            before = max(0, min(self._before, number - size // 2))
            stop = max(self._before + size, number + size // 2)
            room = (self._before - before, stop - self._before - size)
            self._is_in = np.pad(self._is_in, room)
            self._sent = np.pad(self._sent, room)
            self._before = before
        self._is_in[number - self._before] = True

    def discard(self, number: int) -> None:
        if self._has_entry(number):
            self._is_in[number - self._before] = False

    def clear(self) -> None:
        """Another roster follows, with other numbers."""
        self._is_in = np.zeros(2, dtype=np.bool_)
        self._sent = np.zeros(2, dtype=np.int64)

    def holds(self, numbers: npt.NDArray[np.uint32]) -> bool:
        """Whether all of these are numbers of the groups."""
        found = self._is_in.take(self._places(numbers), mode="clip")
        return int(np.count_nonzero(found)) == len(found)

    def pick(self, groups: Sequence[int]) -> list[int] | None:
        """Which messages of a block are for one of the groups, by the group of each; None: all of them.

        Hot: once per block that mixes groups.
        """
        found = self._is_in.take(self._places(groups), mode="clip")
        if np.count_nonzero(found) == len(found):
            return None
        picked: list[int] = np.flatnonzero(found).tolist()
        return picked

    def count(self, numbers: npt.NDArray[np.uint32]) -> None:
        """One message went to each of these, which are numbers of the groups and may come several times."""
        np.add.at(self._sent, self._places(numbers), 1)

    def take_count(self, number: int) -> int:
        """How many messages went to a group since the last call of this."""
        if not self._has_entry(number):
            return 0
        at = number - self._before
        sent, self._sent[at] = int(self._sent[at]), 0
        return sent

    def _has_entry(self, number: int) -> bool:
        return 0 < number - self._before < len(self._is_in) - 1

    def _places(self, numbers: Sequence[int] | npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
        """Where groups stand in the table. To look up other integers than these takes five times as long. Most rosters
        begin with 1, and nothing is to be subtracted."""
        places = np.asarray(numbers, dtype=np.intp)
        return places - self._before if self._before else places
