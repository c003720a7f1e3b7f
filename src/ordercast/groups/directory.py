"""Which underlay carries a group (docs/design/overview.md section 1: groups are names, underlays do the work).

The directory is the only thing in which the systems differ from above. It gives the name of the underlay, from which
the tag of datagrams, the ids of rings and the multicast address are made. The number of a group on a shared underlay is
the roster's (docs/design/roster.md). All nodes must get the same answer.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

MAX_GROUP_NUMBER: Final = (1 << 32) - 1
"""Groups of one underlay are numbered by 32 bits on the wire."""


class Placement(NamedTuple):
    """Where a group is carried."""

    underlay: str
    is_shared: bool  # other groups may be carried there


class Directory(Protocol):
    """What a host asks. A group is carried by one underlay so far; one that covers several regions will have several
    placements."""

    def place(self, group: str) -> Placement:
        """Where a group is to be joined, or called. Raises UsageError where there is no place for it."""


class OwnDirectory:
    """One underlay for each group, with the group's name (Amoeba, RMP, TOMPA)."""

    __slots__ = ()

    def place(self, group: str) -> Placement:
        return Placement(group, False)
