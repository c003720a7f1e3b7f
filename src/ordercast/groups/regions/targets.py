"""Groups that messages on regions are for: by name, or by number and so by route."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ordercast.membership.given import NumberedGroups


class CurrentTable:
    """The table of the engine that a node has now: there is another one after an exclusion."""

    __slots__ = ("table",)

    def __init__(self, table: NumberedGroups) -> None:
        self.table = table

    def number(self, name: str) -> int:
        return self.table.number(name)

    def name(self, number: int) -> str:
        return self.table.name(number)

    def regions(self, number: int) -> tuple[int, ...]:
        return self.table.regions(number)


class NamedTarget:
    """A group that messages wait for, by its name. Its number is the service's of now; 0: not known."""

    __slots__ = ("_table", "messages_sent", "name")

    def __init__(self, name: str, table: NumberedGroups) -> None:
        self.name = name
        self._table = table
        self.messages_sent = 0

    @property
    def number(self) -> int:
        return self._table.number(self.name)

    @number.setter
    def number(self, number: int) -> None:
        raise AttributeError(f"the service numbers groups, not the caller ({number})")

    def lose(self, first: int, count: int) -> None:
        """What waits for a group of regions is not lost with a membership."""


class NamedGroups:
    """Groups that all messages of an item go to. Messages to the same ones share blocks."""

    __slots__ = ("_table", "names")

    def __init__(self, names: Sequence[str], table: NumberedGroups) -> None:
        self.names = tuple(names)
        self._table = table

    def numbers(self) -> list[int] | None:
        """None: not all of them have one yet."""
        found = [self._table.number(name) for name in self.names]
        return found if all(found) else None

    def lose(self, first: int, count: int) -> None:
        """What waits for groups of regions is not lost with a membership."""


class RouteNumbers:
    """Which regions the groups of a column cover. It remembers a number for each group, until the next epoch."""

    __slots__ = ("_ids", "_regions", "_sets", "_table")

    def __init__(self, table: NumberedGroups) -> None:
        self._table = table
        self._ids = np.zeros(0, dtype=np.int32)  # by the number of a group; 0: not looked up yet
        self._sets: dict[tuple[int, ...], int] = {}  # sets of regions -> their number here
        self._regions: list[tuple[int, ...]] = [()]

    def clear(self) -> None:
        self._ids = np.zeros(0, dtype=np.int32)
        self._sets.clear()
        self._regions = [()]

    def regions(self, number: int) -> tuple[int, ...]:
        return self._table.regions(number)

    def of_all(self, numbers: npt.NDArray[np.uint32]) -> list[tuple[tuple[int, ...], npt.NDArray[np.intp] | None]]:
        """The routes of messages to groups of these numbers, and which messages have each; None: all of them."""
        places = np.asarray(numbers, dtype=np.intp)
        most = int(places.max(initial=0))
        if most >= len(self._ids):
            self._ids = np.pad(self._ids, (0, most + 1 + most // 2 - len(self._ids)))
        ids = self._ids.take(places)
        if not ids.all():
            for number in np.unique(places[ids == 0]).tolist():
                self._ids[number] = self._id_of(self._table.regions(number))
            ids = self._ids.take(places)
        first = int(ids[0])
        if (ids == first).all():
            return [(self._regions[first], None)]
        return [(self._regions[each], np.flatnonzero(ids == each)) for each in np.unique(ids).tolist()]

    def _id_of(self, regions: tuple[int, ...]) -> int:
        found = self._sets.get(regions)
        if found is None:
            found = self._sets[regions] = len(self._regions)
            self._regions.append(regions)
        return found
