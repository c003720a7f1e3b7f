"""A directory that puts several groups on one underlay: what the hosts of a test share."""

from __future__ import annotations

from ordercast.errors import UsageError
from ordercast.groups.directory import Placement


class SharedDirectory:
    """Groups that it does not know have an underlay of their own."""

    def __init__(self, underlay: str, *groups: str) -> None:
        self.underlay = underlay
        self.groups = groups

    def place(self, group: str) -> Placement:
        if group == self.underlay:
            raise UsageError(f"{group!r} is an underlay here")
        return Placement(self.underlay, True) if group in self.groups else Placement(group, False)
