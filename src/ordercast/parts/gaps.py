"""What is missing, since when, and when to complain about it next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from ordercast.engine import NEVER

K = TypeVar("K", int, tuple[int, int])

MAX_BACKOFF_NS: Final = 400_000_000


class _Gap:
    __slots__ = ("due_ns", "tries", "wait_ns")

    def __init__(self, due_ns: int, wait_ns: int) -> None:
        self.due_ns = due_ns
        self.wait_ns = wait_ns
        self.tries = 0


class Gaps(Generic[K]):
    """The owner says what is missing now (a bounded list, oldest first); this remembers what was asked for when."""

    __slots__ = ("_delay_ns", "_gaps", "_retry_ns")

    def __init__(self, delay_ns: int, retry_ns: int) -> None:
        self._gaps: dict[K, _Gap] = {}
        self._delay_ns = delay_ns
        self._retry_ns = retry_ns

    def update(self, missing: Iterable[K], now_ns: int) -> tuple[list[K], list[K]]:
        """Compare with what was missing before: what is newly missing, what has come."""
        gaps = self._gaps
        current = dict.fromkeys(missing)
        new = [key for key in current if key not in gaps]
        gone = [key for key in gaps if key not in current]
        for key in gone:
            del gaps[key]
        for key in new:
            gaps[key] = _Gap(now_ns + self._delay_ns, self._retry_ns)
        return new, gone

    def due(self, now_ns: int) -> list[K]:
        """What to ask for now; each is asked again later, with back-off."""
        found = []
        for key, gap in self._gaps.items():
            if gap.due_ns <= now_ns:
                found.append(key)
                gap.due_ns = now_ns + gap.wait_ns
                gap.wait_ns = min(2 * gap.wait_ns, MAX_BACKOFF_NS)
                gap.tries += 1
        return found

    def postpone(self, key: K, due_ns: int) -> None:
        """It was not asked for after all."""
        gap = self._gaps[key]
        gap.due_ns = due_ns
        gap.wait_ns = max(self._retry_ns, gap.wait_ns // 2)
        gap.tries -= 1

    def tries(self, key: K) -> int:
        """How often it was due."""
        return self._gaps[key].tries

    def clear(self) -> list[K]:
        gone = list(self._gaps)
        self._gaps.clear()
        return gone

    def deadline_ns(self) -> int:
        if not self._gaps:
            return NEVER
        return min([gap.due_ns for gap in self._gaps.values()])

    def __iter__(self) -> Iterator[K]:
        return iter(self._gaps)

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def __len__(self) -> int:
        return len(self._gaps)
