"""A member's own leave: how long it may wait to be ordered, and how long a leaver serves members that need it.

A leave is a change like any other, and comes after what the leaver has sent (Amoeba section 3, RMP section 4.3). Where
a member does not consume, nothing is ordered, and that may last. A leave must not: when nothing has moved for
`linger_ns`, or after `LONGEST` times that, the leaver goes without it. For the others that is a crash, and they recover
from it. After its leave it stays for `linger_ns`. A member that does not know of the leave, and is still heard, may
need its vote or its log: then it stays until that one is silent for `linger_ns`, within the same bound. A member that
was evicted stays for all of that time if nobody answers it: it does not want to go, and in a small view the others may
not go on without its word.
"""

from __future__ import annotations

from typing import Final

from ordercast.engine import NEVER, Change
from ordercast.orderers import LoggedOrderer
from ordercast.view import Member, Reason

LONGEST: Final = 10  # times the patience without progress: the bound where the group moves, but slowly


class LeavePatience:
    """`header`: of the leave that was asked for, if any."""

    __slots__ = ("_heard_ns", "_orderer", "_patience_ns", "_received", "_served_ns", "_stop_ns", "due_ns", "header")

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns = patience_ns
        self.header: bytes | None = None
        self._orderer: LoggedOrderer | None = None  # that is to order our leave
        self._received = 0  # its log at the last look
        self._stop_ns = NEVER
        self.due_ns = NEVER  # when to look next; NEVER also while a recovery has our leave wait, within its own bound
        self._heard_ns = 0  # after our leave: the last word of a member that does not know of it
        self._served_ns = 0  # when our time to serve was over for the first time

    @property
    def is_asked(self) -> bool:
        """Whether this node wants to leave."""
        return self.header is not None

    def propose(self, now_ns: int, me: Member, orderer: LoggedOrderer) -> None:
        """Ask for our leave, or again in the next ring: the bound counts from the first time."""
        orderer.propose(now_ns, Change(Reason.LEAVE, me, self.header or b""))
        self._stop_ns = min(self._stop_ns, now_ns + LONGEST * self._patience_ns)
        self._orderer = orderer
        self._look_again(now_ns, orderer.log.received)

    def is_over(self, now_ns: int) -> bool:
        """Whether it is time to go without."""
        orderer = self._orderer
        if now_ns < self.due_ns or orderer is None:
            return False
        if orderer.has_left:
            self.due_ns = NEVER
            return False
        if orderer.log.received == self._received or now_ns >= self._stop_ns:
            return True
        self._look_again(now_ns, orderer.log.received)
        return False

    def serve(self, now_ns: int, comes_back: bool) -> int:
        """We are out: until when to serve, unless a quorum knows that before."""
        self._served_ns = now_ns if comes_back else 0
        return now_ns + (LONGEST if comes_back else 1) * self._patience_ns

    def heard(self, now_ns: int) -> None:
        """We have left, and a member speaks that may not know it."""
        self._heard_ns = now_ns

    def serve_until(self, now_ns: int) -> int:
        """Our time to serve is over: until when to stay all the same."""
        self._served_ns = self._served_ns or now_ns
        return min(self._heard_ns + self._patience_ns, self._served_ns + (LONGEST - 1) * self._patience_ns)

    def _look_again(self, now_ns: int, received: int) -> None:
        self._received = received
        self.due_ns = min(now_ns + self._patience_ns, self._stop_ns)
