"""Round-trip estimator: smoothed mean and deviation (Jacobson), as RMP section 4.6 asks; retransmission from both."""

from __future__ import annotations

from typing import Final

MIN_TIMEOUT_NS: Final = 20_000_000  # a busy peer on one core may well take this long to be scheduled


class RoundTrip:
    __slots__ = ("_deviation_ns", "_first_ns", "_max_ns", "_mean_ns")

    def __init__(self, first_ns: int, max_ns: int) -> None:
        self._first_ns = first_ns
        self._max_ns = max_ns
        self._mean_ns = 0
        self._deviation_ns = 0

    def sample(self, took_ns: int) -> None:
        """One round trip of something that was sent once (Karn: never of something sent again)."""
        if not self._mean_ns:
            self._mean_ns, self._deviation_ns = took_ns, took_ns // 2
            return
        error = took_ns - self._mean_ns
        self._mean_ns += error // 8
        self._deviation_ns += (abs(error) - self._deviation_ns) // 4

    def timeout_ns(self, tries: int) -> int:
        """How long to wait after `tries` earlier attempts: doubled each time, clamped."""
        base = self._mean_ns + 4 * self._deviation_ns if self._mean_ns else self._first_ns
        return min(max(base, MIN_TIMEOUT_NS) << min(tries, 16), self._max_ns)
