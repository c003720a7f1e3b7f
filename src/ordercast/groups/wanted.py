"""Which groups of a shared underlay a session is in: a table over their numbers, for whole blocks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

FIRST_NUMBERS: Final = 1_024
"""Room for so many numbers at first; it grows as numbers come."""


class WantedGroups:
    """The numbers of the groups. Numbers that were never seen are not in it."""

    __slots__ = ("_is_in",)

    def __init__(self) -> None:
        self._is_in = np.zeros(FIRST_NUMBERS, dtype=np.bool_)

    def add(self, number: int) -> None:
        if number >= len(self._is_in):
            wider = np.zeros(max(2 * len(self._is_in), number + 1), dtype=np.bool_)
            wider[: len(self._is_in)] = self._is_in
            self._is_in = wider
        self._is_in[number] = True

    def discard(self, number: int) -> None:
        if 0 <= number < len(self._is_in):
            self._is_in[number] = False

    def pick(self, groups: Sequence[int]) -> list[int] | None:
        """Which messages of a block are for one of the groups, by the group of each; None: all of them."""
        numbers = np.asarray(groups)
        is_in = self._is_in
        if len(numbers) and int(numbers.max()) >= len(is_in):
            found = np.zeros(len(numbers), dtype=np.bool_)
            known = numbers < len(is_in)
            found[known] = is_in[numbers[known]]
        else:
            found = is_in[numbers]
        if found.all():
            return None
        picked: list[int] = np.flatnonzero(found).tolist()
        return picked
