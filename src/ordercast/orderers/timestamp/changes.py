"""Joins and leaves of a timestamp group: what waits, and when the first member may order it (design note)."""

from __future__ import annotations

from collections import deque
from typing import Final

from ordercast.engine import Change
from ordercast.view import Reason, View

MAX_CHANGES: Final = 1_024  # beyond it newcomers are not heard and ask again


class Changes:
    __slots__ = ("_awaited", "_waiting", "last")

    def __init__(self, view: View) -> None:
        self._waiting: deque[Change] = deque()
        self._awaited = dict(view.awaited)  # origin -> blocks below this come again before anybody comes or goes
        self.last = view.seq if view.reason in (Reason.JOIN, Reason.LEAVE) else 0  # place of the last change

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def propose(self, change: Change) -> None:
        """Leaves go first: a newcomer may wait for the end of a long message that its sender ends by leaving."""
        for at, each in enumerate(self._waiting):
            if (each.reason, each.member.id) == (change.reason, change.member.id):
                self._waiting[at] = change  # asked again: who has given up one attempt is in the next
                return
        if len(self._waiting) >= MAX_CHANGES:
            return
        if change.reason == Reason.LEAVE:
            self._waiting.appendleft(change)
        else:
            self._waiting.append(change)

    def applied(self, view: View) -> None:
        """A change has been received; what waited with an earlier first member is asked for again."""
        self.last = view.seq
        self._awaited = {}
        self._waiting = deque([each for each in self._waiting if str(each.member) != view.subject])

    def is_due(self, safe: int, numbers: dict[int, int]) -> bool:
        """Whether the next one may be ordered: all have the last one, and what survivors send again is received."""
        if not self._waiting or safe < self.last:
            return False
        if self._awaited:
            self._awaited = {
                origin: number for origin, number in self._awaited.items() if numbers.get(origin, number) < number
            }
        return not self._awaited

    @property
    def waits_for_long(self) -> bool:
        """Whether no long message may be half received at the next one: nobody comes in the middle, or goes on."""
        return self._waiting[0].reason != Reason.LEAVE

    def take(self) -> Change:
        return self._waiting.popleft()
