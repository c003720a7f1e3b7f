"""Which underlay carries a group (docs/design/overview.md section 1: groups are names, underlays do the work).

The directory is the only thing in which the systems differ from above. It gives the name of the underlay, from which
the tag of datagrams, the ids of rings and the multicast address are made, and the number under which the group stands
in the entries of blocks on that underlay. All nodes must get the same answer.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

MAX_GROUP_NUMBER: Final = (1 << 32) - 1
"""Groups of one underlay are numbered by 32 bits on the wire. A group with a greater number is not opened."""


class Placement(NamedTuple):
    """Where a group is carried."""

    underlay: str
    number: int  # of the group, on that underlay
    is_shared: bool  # other groups may be carried there


class Directory(Protocol):
    """What a host asks. A group is carried by one underlay so far; one that covers several regions will have several
    placements."""

    def place(self, group: str) -> Placement:
        """Where a group is to be joined, or called. Raises UsageError where there is no place for it."""

    def group_at(self, underlay: str, number: int) -> str:
        """The group with a number on a shared underlay; "" if it is not known. Traces name groups by it."""


class OwnDirectory:
    """One underlay for each group, with the group's name (Amoeba, RMP, TOMPA)."""

    __slots__ = ()

    def place(self, group: str) -> Placement:
        return Placement(group, 0, False)

    def group_at(self, underlay: str, number: int) -> str:  # noqa: ARG002 - there is one
        return underlay
