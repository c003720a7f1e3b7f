"""A token bucket: how much may leave at once, and how much over time (Spread section 3.2; Turner's leaky bucket).

In any time of T seconds no more than `burst + rate * T` bytes leave. What is larger than the whole bucket leaves when
the bucket is full, and is paid for afterwards: otherwise it could never leave.
"""

from __future__ import annotations

from ordercast.config import SECOND
from ordercast.errors import InvariantViolation


class Bucket:
    __slots__ = ("_at_ns", "_burst", "_level", "_rate")

    def __init__(self, bytes_per_s: int, burst_bytes: int) -> None:
        if bytes_per_s < 1 or burst_bytes < 1:
            raise InvariantViolation(f"a bucket of {burst_bytes} bytes that gets {bytes_per_s} bytes a second")
        self._rate = bytes_per_s
        self._burst = burst_bytes * SECOND
        self._level = self._burst  # in billionths of a byte, so that nothing is lost by rounding
        self._at_ns = 0

    def take(self, now_ns: int, size: int) -> bool:
        """Whether `size` bytes may leave now; if so, they have."""
        if now_ns > self._at_ns:
            self._level = min(self._level + (now_ns - self._at_ns) * self._rate, self._burst)
            self._at_ns = now_ns
        wanted = size * SECOND
        if self._level < min(wanted, self._burst):
            return False
        self._level -= wanted
        return True

    def ready_ns(self, size: int) -> int:
        """When `size` bytes may leave, if nothing else does before."""
        lacking = min(size * SECOND, self._burst) - self._level
        return self._at_ns + max(0, -(-lacking // self._rate))
