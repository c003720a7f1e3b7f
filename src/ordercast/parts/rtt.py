"""Round-trip estimator: smoothed mean and deviation (Jacobson), and the back-off of timers. RMP section 4.6.

All packets that require an acknowledgement have their timers from here: data, passes of the token, requests for
changes, NACKs, joins, welcomes, calls. Data have an estimator of their own, since their acknowledgement waits for a
sequence number; the rest of a ring shares one.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import Timing

MAX_SHIFT: Final = 6  # doublings that outlast the packet whose timer expired


class RoundTrip:
    __slots__ = ("_backed_off_ns", "_deviation_ns", "_first_ns", "_max_ns", "_mean_ns", "_min_ns", "_shift")

    def __init__(self, timing: Timing, first_ns: int = 0) -> None:
        """`first_ns`: the first timeout before a round trip is known, if not the usual one."""
        self._first_ns = first_ns or timing.retransmit_ns
        self._max_ns = timing.retransmit_max_ns
        self._min_ns = timing.retransmit_min_ns
        self._mean_ns = 0
        self._deviation_ns = 0
        self._shift = 0
        self._backed_off_ns = -1  # when it last rose because one of many had no answer

    def sample(self, took_ns: int) -> None:
        """One round trip of something that was sent once (Karn: never of something sent again)."""
        self._shift = 0
        if not self._mean_ns:
            self._mean_ns, self._deviation_ns = took_ns, took_ns // 2
            return
        error = took_ns - self._mean_ns
        self._mean_ns += error // 8
        self._deviation_ns += (abs(error) - self._deviation_ns) // 4

    def expired(self) -> None:
        """A timer has run out. Others begin with the doubled time, until something that was sent once tells how long it
        takes now: where times have grown, only that ends the sending of everything twice (Karn's algorithm)."""
        self._shift = min(self._shift + 1, MAX_SHIFT)

    def expired_one(self, now_ns: int, sent_ns: int) -> None:
        """The timer of one of many has run out, sent at `sent_ns`. What had left before the last back-off tells
        nothing new: if each loss of the same moment doubled the time, a handful would make it a second."""
        if sent_ns >= self._backed_off_ns:
            self.expired()
            self._backed_off_ns = now_ns

    def is_late(self, took_ns: int) -> bool:
        """Whether an answer could have come by now, as far as that is known."""
        return took_ns >= self._mean_ns

    def timeout_ns(self, tries: int, first_ns: int = 0) -> int:
        """How long to wait after `tries` earlier attempts: doubled each time, clamped.

        `first_ns`: where no round trip is known, instead of the usual first timeout."""
        return min(self._base_ns(first_ns) << min(max(tries, self._shift), 16), self._max_ns)

    def patience_ns(self, tries: int, first_ns: int, most_ns: int) -> int:
        """The same for what others wait for and is asked for without an end: at most `most_ns`, or twice what an
        answer takes where that is more."""
        return min(self.timeout_ns(tries, first_ns), max(most_ns, 2 * self._base_ns(first_ns)))

    def _base_ns(self, first_ns: int) -> int:
        base = self._mean_ns + 4 * self._deviation_ns if self._mean_ns else (first_ns or self._first_ns)
        return max(base, self._min_ns)
