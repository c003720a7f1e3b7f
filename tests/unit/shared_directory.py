"""A directory that puts several groups on one underlay: what the hosts of a test share."""

from __future__ import annotations

from ordercast.errors import UsageError
from ordercast.groups.directory import Placement


class SharedDirectory:
    """Groups in the order of their numbers, from 1 on; groups that it does not know have an underlay of their own."""

    def __init__(self, underlay: str, *groups: str) -> None:
        self.underlay = underlay
        self.numbers = {group: number for number, group in enumerate(groups, 1)}

    def place(self, group: str) -> Placement:
        if group == self.underlay:
            raise UsageError(f"{group!r} is an underlay here")
        number = self.numbers.get(group)
        return Placement(group, 0, False) if number is None else Placement(self.underlay, number, True)

    def group_at(self, underlay: str, number: int) -> str:
        assert underlay == self.underlay
        return next((group for group, its_number in self.numbers.items() if its_number == number), "")
