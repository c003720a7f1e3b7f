"""A member's own leave: how long it may wait to be ordered, and how long a leaver serves members that need it.

A leave is a change like any other, and comes after what the leaver has sent (Amoeba section 3, RMP section 4.3). Where
a member does not consume, or the ring is frozen, nothing is ordered, and that may last. A leave must not: when nothing
has moved for `linger_ns`, or after `LONGEST` times that, the application is out without it. The engine is not. The
others may need its vote: it serves on without a word to the application, and leaves in order once that is possible. So
does a leaver until enough members know of its leave. Both end after `LONGEST` times `linger_ns`. For the others that is
a crash.
"""

from __future__ import annotations

from typing import Final

from ordercast.engine import NEVER, Change
from ordercast.membership.policy import Silence
from ordercast.orderers import LoggedOrderer
from ordercast.view import Member, Reason

LONGEST: Final = 10  # times the patience without progress: the bound where the group moves, but slowly


class LeavePatience:
    """`header`: of the leave that was asked for, if any."""

    __slots__ = ("_orderer", "_patience_ns", "_received", "_stop_ns", "due_ns", "header")

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns = patience_ns
        self.header: bytes | None = None
        self._orderer: LoggedOrderer | None = None  # that is to order our leave
        self._received = 0  # its log at the last look
        self._stop_ns = NEVER
        self.due_ns = NEVER  # when to look next; NEVER also while a recovery has our leave wait, within its own bound

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

    def retired(self, now_ns: int, reason: Reason) -> int:
        """The last change that we received takes us out, or ends the ring: until when to wait for its decision."""
        # Nobody here waits for that where it is against our will, and the others may need our vote for longer.
        is_against_will = reason in (Reason.DISSOLVE, Reason.EXPEL) and not self.is_asked
        return now_ns + (LONGEST if is_against_will else 1) * self._patience_ns

    def freeze(self, now_ns: int, silence: Silence, has_failed: bool) -> int:
        """The ring is frozen, and our leave cannot be ordered now: until when to wait for what it recovers to.

        Where no application waits for it, that is longer: the others may need our vote. `has_failed`: with manual
        recovery the leave of an application fails like every other call, and it may leave again.
        """
        self.due_ns = NEVER
        if has_failed and silence is Silence.NONE:
            self.header, self._orderer, self._stop_ns = None, None, NEVER
            return NEVER
        return now_ns + (LONGEST if silence.is_unwanted else 1) * self._patience_ns

    def serve(self, now_ns: int) -> int:
        """We are out, or our application is: until when to serve, unless a quorum knows of our leave before."""
        self.due_ns = NEVER
        return now_ns + LONGEST * self._patience_ns

    def give_up(self, now_ns: int) -> int:
        """Our application is out, and we are not: what the others recover to is to order our leave."""
        self.header = self.header or b""
        return self.serve(now_ns)

    def _look_again(self, now_ns: int, received: int) -> None:
        self._received = received
        self.due_ns = min(now_ns + self._patience_ns, self._stop_ns)
