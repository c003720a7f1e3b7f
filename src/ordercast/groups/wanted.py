"""Which groups of a shared underlay a session is in: a table over their numbers, for whole blocks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

FIRST_NUMBERS: Final = 1_024
"""Room for so many numbers at first. It grows to both sides as numbers come: those of a roster begin anywhere, and
follow one another."""


class WantedGroups:
    """The numbers of the groups. Numbers that were never seen are not in it."""

    __slots__ = ("_first", "_is_in")

    def __init__(self) -> None:
        self._first = 0  # the number that the table begins with
        self._is_in = np.zeros(0, dtype=np.bool_)

    @property
    def table_bytes(self) -> int:
        return len(self._is_in)

    def add(self, number: int) -> None:
        size = len(self._is_in)
        if not size:
            self._first = max(0, number - FIRST_NUMBERS // 2)
            self._is_in = np.zeros(FIRST_NUMBERS, dtype=np.bool_)
        elif not self._first <= number < self._first + size:
            first = max(0, min(self._first, number - size // 2))
            stop = max(self._first + size, number + size // 2)
            wider = np.zeros(stop - first, dtype=np.bool_)
            wider[self._first - first : self._first - first + size] = self._is_in
            self._first, self._is_in = first, wider
        self._is_in[number - self._first] = True

    def discard(self, number: int) -> None:
        if 0 <= number - self._first < len(self._is_in):
            self._is_in[number - self._first] = False

    def clear(self) -> None:
        """Another roster follows, with other numbers."""
        self._is_in = np.zeros(0, dtype=np.bool_)

    def pick(self, groups: Sequence[int]) -> list[int] | None:
        """Which messages of a block are for one of the groups, by the group of each; None: all of them."""
        at = np.asarray(groups, dtype=np.int64) - self._first
        known = (at >= 0) & (at < len(self._is_in))
        found = np.zeros(len(at), dtype=np.bool_)
        found[known] = self._is_in[at[known]]
        if found.all():
            return None
        picked: list[int] = np.flatnonzero(found).tolist()
        return picked
