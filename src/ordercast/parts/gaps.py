"""What is missing, since when, and when to complain about it next (RMP section 4.6: NACKs back off like any packet)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from ordercast.engine import NEVER
from ordercast.parts.rtt import RoundTrip

K = TypeVar("K", int, tuple[int, int])


class _Gap:
    __slots__ = ("asked_again_ns", "asked_ns", "due_ns", "tries")

    def __init__(self, due_ns: int) -> None:
        self.due_ns = due_ns
        self.asked_ns = 0  # for the first time
        self.asked_again_ns = 0  # for the last time
        self.tries = 0


class Gaps(Generic[K]):
    """The owner says what is missing now (a bounded list, oldest first); this remembers what was asked for when."""

    __slots__ = ("_delay_ns", "_gaps", "_max_ns", "_retry_ns", "_rtt")

    def __init__(self, delay_ns: int, retry_ns: int, max_ns: int, rtt: RoundTrip) -> None:
        """`retry_ns`: between the first two questions, while no round trip is known. `max_ns`: between any two, where
        answers do not take longer. Deliveries of a whole group may wait for one answer."""
        self._gaps: dict[K, _Gap] = {}
        self._delay_ns = delay_ns
        self._retry_ns = retry_ns
        self._max_ns = max_ns
        self._rtt = rtt

    def update(self, missing: Iterable[K], now_ns: int, is_answer: bool = False) -> tuple[list[K], list[K]]:
        """Compare with what was missing before: what is newly missing, what has come.

        `is_answer`: what has come was sent because we asked, and not only late."""
        gaps = self._gaps
        current = dict.fromkeys(missing)
        new = [key for key in current if key not in gaps]
        gone = [key for key in gaps if key not in current]
        took_ns = 0
        for key in gone:
            gap = gaps.pop(key)
            if is_answer and gap.tries == 1:
                took_ns = max(took_ns, now_ns - gap.asked_ns)
        if took_ns:
            self._rtt.sample(took_ns)
        for key in new:
            gaps[key] = _Gap(now_ns + self._delay_ns)
        return new, gone

    def due(self, now_ns: int) -> list[K]:
        """What to ask for now; each is asked again later, with back-off."""
        found = [key for key, gap in self._gaps.items() if gap.due_ns <= now_ns]
        asked_ns = max([gap.asked_again_ns for key in found if (gap := self._gaps[key]).tries], default=-1)
        if asked_ns >= 0:
            self._rtt.expired_one(now_ns, asked_ns)
        for key in found:
            gap = self._gaps[key]
            if not gap.tries:
                gap.asked_ns = now_ns
            gap.asked_again_ns = now_ns
            gap.due_ns = now_ns + self._rtt.patience_ns(gap.tries, self._retry_ns, self._max_ns)
            gap.tries += 1
        return found

    def postpone(self, key: K, due_ns: int) -> None:
        """It was not asked for after all."""
        gap = self._gaps[key]
        gap.due_ns = due_ns
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
