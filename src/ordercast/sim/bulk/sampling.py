"""Time series: numbers that are read off a world again and again while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from ordercast.config import SECOND
from ordercast.sim.bulk.world import BulkWorld


class Samples:
    """Reads each of `gauges` every `period_ns`, from now on. One event and one row for each reading.

    `rows` has (time, readings in the order of the gauges). A gauge that counts up gives a rate by `rates`.
    """

    __slots__ = ("_gauges", "_period_ns", "_world", "names", "rows")

    def __init__(self, world: BulkWorld, gauges: Mapping[str, Callable[[], float]], period_ns: int = SECOND) -> None:
        self._world = world
        self._gauges = list(gauges.values())
        self._period_ns = period_ns
        self.names = list(gauges)
        self.rows: list[tuple[int, tuple[float, ...]]] = []
        self._read(None)

    def rates(self, name: str) -> list[float]:
        """How much a gauge that counts up has risen a second, in each period."""
        column = self.names.index(name)
        values = [row[column] for _, row in self.rows]
        return [(new - old) * SECOND / self._period_ns for old, new in pairwise(values)]

    def _read(self, _: object) -> None:
        self.rows.append((self._world.now_ns, tuple(gauge() for gauge in self._gauges)))
        self._world.after(self._period_ns, self._read)
