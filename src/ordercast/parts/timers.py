"""A table of timers: one slot per reason, cleared before its handler runs."""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from ordercast.engine import NEVER

T = TypeVar("T", bound=Enum)


class Timers(Generic[T]):
    """Deadlines by name. Small on purpose: a handful of slots, scanned."""

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        self._deadlines: dict[T, int] = {}

    def set(self, timer: T, at_ns: int) -> None:
        self._deadlines[timer] = at_ns

    def set_earlier(self, timer: T, at_ns: int) -> None:
        """Arm, unless it is due even before that."""
        if self._deadlines.get(timer, NEVER) > at_ns:
            self._deadlines[timer] = at_ns

    def clear(self, timer: T) -> None:
        self._deadlines.pop(timer, None)

    def clear_all(self) -> None:
        self._deadlines.clear()

    def is_set(self, timer: T) -> bool:
        return timer in self._deadlines

    def due(self, now_ns: int) -> list[T]:
        """The timers whose time has come, earliest first, already cleared."""
        if self.deadline_ns() > now_ns:
            return []
        found = sorted((at_ns, index) for index, at_ns in enumerate(self._deadlines.values()) if at_ns <= now_ns)
        names = list(self._deadlines)
        due = [names[index] for _, index in found]
        for timer in due:
            del self._deadlines[timer]
        return due

    def deadline_ns(self) -> int:
        return min(self._deadlines.values()) if self._deadlines else NEVER
