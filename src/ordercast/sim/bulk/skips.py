"""Losses without a draw for each datagram: how many get through before the next one is lost.

Where each datagram is lost with the probability p, independently of the others, the number that gets through before the
next loss is geometrically distributed. One draw then stands for 1/p datagrams. The distribution has no memory, so that
a change of p may draw anew at any time. Losses may also come in bursts of a given length, with such distances between.
"""

from __future__ import annotations

import math
from random import Random

from ordercast.engine import NEVER


class Skips:
    """A stream of distances between events that happen with a given probability, whose causes add up."""

    __slots__ = ("_burst", "_causes", "_left", "_rng", "_scale", "rate")

    def __init__(self, rng: Random, rate: float = 0.0) -> None:
        self._rng = rng
        self._causes: dict[str, float] = {}
        self._scale = 0.0
        self._burst = 1  # losses in a row
        self._left = 0  # of the burst that has begun
        self.rate = 0.0  # of all causes together
        self._set(rate)

    def change(self, cause: str, rate: float, burst: int = 1) -> None:
        """One of several independent causes has this probability from now on. Whoever holds a distance draws anew.
        `burst`: so many are lost in a row, whatever the cause; the share that is lost stays what it is."""
        self._burst = burst
        if rate > 0:
            self._causes[cause] = rate
        else:
            self._causes.pop(cause, None)
        left = 1.0
        for each in self._causes.values():
            left *= 1.0 - each
        self._set(1.0 - left)

    def draw(self) -> int:
        """How many get through before the next that does not."""
        if self._left:
            self._left -= 1
            return 0
        if self.rate <= 0.0:
            return NEVER
        if self.rate >= 1.0:
            return 0
        self._left = self._burst - 1
        return int(math.log(1.0 - self._rng.random()) * self._scale)

    def _set(self, rate: float) -> None:
        self.rate = rate
        self._left = 0
        begins = rate / (rate + self._burst * (1.0 - rate)) if 0.0 < rate < 1.0 else 0.0  # a burst, with the next one
        self._scale = 1.0 / math.log1p(-begins) if begins else 0.0
