"""A token on its way: passed again, or woken where it rests, until there is a sign of it (Spread section 3.2).

The token is never made anew inside a view: the two halves of a ring that split could both do so. One that gives no sign
after so many tries is lost, and ends the view.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.config import Timing
from ordercast.engine import NEVER
from ordercast.parts.rtt import RoundTrip
from ordercast.wire.header import Kind
from ordercast.wire.sites import encode_wake

PATIENT: Final = 2  # doublings of the timeout before a token that goes around is asked for
ALL: Final = 0  # as a destination: all daemons of the site


class RingControl(NamedTuple):
    """A control datagram to one daemon of the site, or to ALL of them."""

    to: int
    kind: int
    body: bytes


class _Awaited:
    """What was said, and is said again until there is a sign."""

    __slots__ = ("control", "due_ns", "link_seq", "sent_ns", "tries")

    def __init__(self, control: RingControl, link_seq: int, now_ns: int, due_ns: int) -> None:
        self.control = control
        self.link_seq = link_seq  # who numbers a packet beyond this has the token, or has had it since
        self.sent_ns = now_ns
        self.due_ns = due_ns
        self.tries = 0


class TokenWatch:
    """At most one of both is awaited: a daemon that has passed the token and has had no sign of it does not wake it."""

    __slots__ = ("_passed", "_rtt", "_tries", "_wake", "_wake_ns", "is_lost", "retries", "suspect")

    def __init__(self, timing: Timing, wake_ns: int, tries: int) -> None:
        self._rtt = RoundTrip(timing)
        self._wake_ns = wake_ns
        self._tries = tries
        self._passed: _Awaited | None = None
        self._wake: _Awaited | None = None
        self.is_lost = False  # for good
        self.suspect = ALL  # the daemon that gave no sign; ALL: nobody did
        self.retries = 0  # times that a token was passed again

    @property
    def has_passed(self) -> bool:
        """Whether there is no sign yet of the token that we passed."""
        return self._passed is not None

    def passed(self, now_ns: int, control: RingControl, link_seq: int) -> None:
        """The token has just left."""
        self._passed = _Awaited(control, link_seq, now_ns, now_ns + self._rtt.timeout_ns(0))
        self._wake = None

    def progress(self, now_ns: int) -> None:
        """There is a sign that the token we passed has come, or that it goes around."""
        passed = self._passed
        if passed is not None and not passed.tries:
            self._rtt.sample(max(1, now_ns - passed.sent_ns))
        self._passed = self._wake = None

    def numbered(self, now_ns: int, seq: int) -> None:
        """A packet has come. Only a holder gives numbers."""
        passed, wake = self._passed, self._wake
        if (passed is not None and seq > passed.link_seq) or (wake is not None and seq > wake.link_seq):
            self.progress(now_ns)

    def want(self, now_ns: int, resting_at: int, known: int, is_urgent: bool, link_seq: int) -> None:
        """This daemon has something for the token to do. `resting_at`: where it is; ALL: it goes around.

        Where it rests, a daemon with packets wakes it now. Otherwise others may have the same reason to wake it, and it
        is given a moment; and a token that goes around should come by itself."""
        wake = self._wake
        if wake is None:
            wait_ns = self._wake_ns if resting_at != ALL else self._rtt.timeout_ns(PATIENT)
            control = RingControl(resting_at, Kind.WAKE, encode_wake(known))
            wake = self._wake = _Awaited(control, link_seq, now_ns, now_ns + wait_ns)
        if is_urgent and not wake.tries and wake.control.to != ALL:
            wake.due_ns = now_ns

    def want_nothing(self) -> None:
        self._wake = None

    def repeat(self, now_ns: int) -> list[RingControl]:
        """What is to be said now."""
        awaited = self._passed or self._wake
        if awaited is None or awaited.due_ns > now_ns:
            return []
        awaited.tries += 1
        if awaited.tries > self._tries:
            self.is_lost = True
            self.suspect = awaited.control.to
            awaited.due_ns = NEVER
            return []
        if awaited is self._passed:
            self._rtt.expired()
            self.retries += 1
        awaited.due_ns = now_ns + self._rtt.timeout_ns(awaited.tries)
        return [awaited.control]

    def deadline_ns(self) -> int:
        awaited = self._passed or self._wake
        return awaited.due_ns if awaited is not None else NEVER
