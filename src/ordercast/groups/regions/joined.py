"""The groups that a node is in, or on its way into or out of: a row in tables of numbers for each, and no object."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.groups.wanted import WantedGroups
from ordercast.membership.given import NumberedGroups

NOT_IN = 0
"""The number of a group that was asked for, and that this node is not in yet."""


class JoinedGroups:
    """By name and by number. What the engine's table says is taken over after each epoch."""

    __slots__ = ("_names", "joining", "leaving", "numbers", "wanted")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}  # by name, in the order of joining; NOT_IN: on its way in
        self.wanted = WantedGroups()
        self.joining: dict[str, None] = {}
        self.leaving: dict[str, None] = {}  # the service was told
        self._names: dict[int, str] | None = None  # by number, once somebody asks

    def join(self, names: Sequence[str]) -> None:
        for name in names:
            self.numbers[name] = NOT_IN
            self.joining[name] = None

    def leave(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self.numbers:
                self.joining.pop(name, None)
                self.leaving[name] = None

    def is_in(self, name: str) -> bool:
        return self.numbers.get(name, NOT_IN) != NOT_IN

    def came_in(self, table: NumberedGroups, mine: int) -> list[tuple[str, int]]:
        """The groups that this node has come into, with their numbers: the service has numbered them, and they cover
        this node's region."""
        found: list[tuple[str, int]] = []
        if not mine or not self.joining:
            return found
        number_of, regions_of, add = table.number, table.regions, self.wanted.add
        for name in self.joining:
            number = number_of(name)
            if number and mine in regions_of(number):
                found.append((name, number))
        for name, number in found:
            del self.joining[name]
            self.numbers[name] = number
            add(number)
        if found:
            self._names = None
        return found

    def went_out(self, table: NumberedGroups, mine: int, *, is_answered: bool) -> list[str]:
        """The groups that this node is out of. `is_answered`: by the service, to everything that it was asked."""
        if not self.leaving:
            return []
        found = [
            name
            for name in self.leaving
            if is_answered or not (number := table.number(name)) or mine not in table.regions(number)
        ]
        for name in found:
            del self.leaving[name]
            self.drop(name)
        return found

    def drop(self, name: str) -> None:
        number = self.numbers.pop(name, NOT_IN)
        self.joining.pop(name, None)
        if number:
            self.wanted.discard(number)
            self._names = None

    def depart(self) -> None:
        """This node is out of the service, and comes back: the groups get numbers anew."""
        self.wanted = WantedGroups()
        self._names = None
        self.joining = dict.fromkeys(self.numbers)
        self.numbers = dict.fromkeys(self.numbers, NOT_IN)

    def clear(self) -> None:
        """This node is out of everything for good."""
        self.depart()
        self.numbers.clear()
        self.joining.clear()

    def name(self, number: int) -> str:
        """The name of a group that this node is in; empty: there is none."""
        if self._names is None:
            self._names = {found: name for name, found in self.numbers.items() if found}
        return self._names.get(number, "")
