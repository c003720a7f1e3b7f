"""The way back of a member that was evicted because its application did not receive (docs/design/slow.md).

It begins when two things have happened, in any order: no member of the old ring needs this node any more, and the
application has received what was delivered before the eviction. So no more than one history waits for an application.
"""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.engine import Departed, StallReason, Upcall, Waiting
from ordercast.view import Member


class WayBack:
    __slots__ = ("_has_received", "_is_out", "is_expected")

    def __init__(self) -> None:
        self.is_expected = False  # this node was evicted, and is not on its way back yet
        self._has_received = False
        self._is_out = False

    @property
    def waits_for_application(self) -> bool:
        return self.is_expected and not self._has_received

    def departed(self, upcall: Upcall) -> None:
        """This node has just been expelled, and the application is told so."""
        if isinstance(upcall, Departed) and upcall.is_waiting:
            self.is_expected, self._has_received, self._is_out = True, False, False

    def cancel(self) -> bool:
        """The application wants to be out; whether it is."""
        was_expected, self.is_expected = self.is_expected, False
        return was_expected

    def received(self) -> bool:
        """The application has received everything; whether the way back begins now."""
        self._has_received = True
        return self._begins()

    def left(self) -> bool:
        """The old ring needs this node no more; whether the way back begins now."""
        self._is_out = True
        return self._begins()

    def waiting(self, name: str, me: Member, members: Iterable[Member]) -> Waiting:
        """For what the way back waits, while it is expected. `members`: those of the old ring."""
        if self.waits_for_application:
            text = (
                f"this node was put out of {name!r}: it comes back once its application has received what came before"
            )
            return Waiting(StallReason.NOT_RECEIVING, (str(me),), text)
        others = tuple(str(member) for member in members if member.id != me.id)
        text = f"this node was put out of {name!r}, and {' and '.join(others) or 'its last view'} may not know it yet"
        return Waiting(StallReason.NETWORK, others, text)

    def _begins(self) -> bool:
        if not (self.is_expected and self._has_received and self._is_out):
            return False
        self.is_expected = False
        return True
