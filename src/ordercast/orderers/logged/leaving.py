"""Members that leave: our own leave from the request until we may go, and the last member that left."""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.engine import Change
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.table import Table
from ordercast.view import Address, Member, Reason

LOOK_NS: Final = 10 * MS  # between two looks whether own blocks still hold up our leave
REPEAT_NS: Final = 100 * MS  # between two requests


class Leaving:
    __slots__ = ("_header", "_last", "_ring", "is_asked", "is_retired")

    def __init__(self, ring: RingState) -> None:
        self._ring = ring
        self.is_asked = False  # we want to leave: nothing more is submitted until our leave is received
        self._header = b""  # of our leave
        self._last: Member | None = None  # the member that left last
        self.is_retired = False  # we led or ordered, and our own leave or the end of the ring is ordered

    def takes(self, change: Change) -> bool:
        """Whether the change is our own leave, which waits for our own blocks."""
        if change.reason != Reason.LEAVE or change.member.id != self._ring.me.id:
            return False
        self.is_asked = True
        self._header = change.header
        return True

    def request(self) -> Change | None:
        """Our leave as a change; None if it is not wanted (any more)."""
        if not self.is_asked or self._ring.has_left:
            return None
        return Change(Reason.LEAVE, self._ring.me, self._header)

    def applied(self) -> Member | None:
        """A view is applied: the member that it is without."""
        self._last = self._ring.leaver or self._last
        return self._ring.leaver

    def received(self) -> None:
        """Our own leave, or the end of the ring, is received."""
        self.is_retired = True
        self.is_asked = False

    def leavers(self, table: Table) -> tuple[Address, ...]:
        """Where the last leaver is, while it may need what comes before its leave."""
        return (self._last.address,) if table.leaver and self._last is not None else ()
