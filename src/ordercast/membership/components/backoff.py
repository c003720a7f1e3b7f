"""How long this daemon keeps away from daemons with which it has just failed to stay together.

Without it a one-way cut livelocks: both sides hear enough to merge, and too little to stay merged. The wait doubles
with each failure, up to a bound. It is forgotten when nothing failed for long.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER

FIRST_NS: Final = 500 * MS
MOST_NS: Final = 16 * SECOND
FORGET_NS: Final = 60 * SECOND  # without a failure since the last wait was over


class _Away(NamedTuple):
    failures: int
    until_ns: int


class Backoff:
    """By index of the configuration, so there are never more entries than daemons."""

    __slots__ = ("_away", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._away: dict[int, _Away] = {}

    def failed(self, now_ns: int, index: int) -> None:
        """This daemon and `index` were to be in one view, and are not."""
        away = self._away.get(index, _Away(0, 0))
        if now_ns < away.until_ns:
            return  # the same failure, told in another way
        failures = 0 if now_ns - away.until_ns > FORGET_NS else away.failures
        wait_ns = min(FIRST_NS << min(failures, 16), MOST_NS)
        self._away[index] = _Away(failures + 1, now_ns + wait_ns + self._rng.randrange(wait_ns // 4))

    def forget(self, index: int) -> None:
        """A new life of the daemon has not failed."""
        self._away.pop(index, None)

    def mask(self, now_ns: int) -> int:
        """The daemons that are kept away from now."""
        mask = 0
        for index, away in self._away.items():
            if now_ns < away.until_ns:
                mask |= 1 << index
        return mask

    def deadline_ns(self, now_ns: int) -> int:
        """When the next wait is over."""
        return min([away.until_ns for away in self._away.values() if away.until_ns > now_ns], default=NEVER)
