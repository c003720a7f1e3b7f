"""Who of a site stamps while its links are behind: urgent blocks first, with a floor for the rest (SITES section 5).

An ordered block is delivered behind everything that its site has stamped before it, whatever overtakes what on a link.
So priority has to count before the stamp: where the links of the site are behind, what goes to other sites waits with
its sender, and its order is open. The representative writes on the token how much more they take (`usual`, `urgent`),
daemons that stamp subtract from it. Blocks of priority 0 stop at the first bound, others at the second.

The floor: while blocks of priority 0 wait (`rest`), urgent ones count what they stamp (`owed`). When that is DEBT, they
wait until the others have had a quarter of it. Nobody saves up: without anybody who waits there is no debt.

Among daemons with blocks of priority 0 the one that had to wait has the next turn (`turn`): otherwise the first one
behind the representative would have it for good.

Blocks that stay in the site never wait here. Before the stamp all urgent blocks are alike; the queues of links know all
priorities. Rejected: letting urgent blocks overtake those of their own sender, which would break its order.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.config import MS
from ordercast.engine import NEVER
from ordercast.parts.priorities import REST
from ordercast.wire.sites import MAX_CREDIT

USUAL_S: Final = 0.05  # of a link's rate: bytes that may wait for it, and blocks of priority 0 are still stamped
URGENT_S: Final = 0.15  # the same for others
MIN_CREDIT: Final = 4_096  # a slow link has something to send all the same
DEBT: Final = 16_384  # bytes of urgent blocks, while others wait, until these have their turn
HOLD_NS: Final = 20 * MS  # between two tries to stamp, while the links of the site are behind


class SiteCredit(NamedTuple):
    """What a token says of it."""

    usual: int = MAX_CREDIT  # bytes to other sites that may still be stamped; less than 0: too many have been
    urgent: int = MAX_CREDIT
    owed: int = 0
    rest: int = 0  # visits until it is forgotten that blocks of priority 0 wait
    turn: int = 0  # the daemon that stamps the next block of priority 0, by its place in the ring from 1 on; 0: anyone


def usual_bytes(bytes_per_s: int) -> int:
    """What may wait for a link that is not behind."""
    return max(int(bytes_per_s * USUAL_S), MIN_CREDIT)


def credit_of(waiting: int, bytes_per_s: int) -> tuple[int, int]:
    """How much more a link takes for which so many bytes wait: usual, and urgent."""
    usual = usual_bytes(bytes_per_s) - waiting
    urgent = max(int(bytes_per_s * URGENT_S), 2 * MIN_CREDIT) - waiting
    return _bounded(usual), _bounded(urgent)


class Urgency:
    """One daemon's part: `take` a token, `measure` at the representative, `may_stamp`, `stamped` and `hold` for blocks
    to other sites, then `passed` for the token that goes on."""

    __slots__ = ("_daemons", "_has_stamped", "_is_holding", "_me", "_owed", "_rest", "_turn", "_urgent", "_usual")

    def __init__(self, index: int, daemons: int) -> None:
        """`index`: of this daemon in the ring."""
        self._me = index + 1
        self._daemons = daemons
        self._usual = self._urgent = MAX_CREDIT
        self._owed = 0
        self._rest = 0
        self._turn = 0
        # Of this visit
        self._is_holding = False  # blocks of priority 0 wait here
        self._has_stamped = False  # one of them

    def take(self, credit: SiteCredit) -> None:
        """A token comes. Who made it up may have written anything: it goes on in bounds."""
        self._usual, self._urgent, self._owed = [_bounded(each) for each in credit[:3]]
        self._rest = credit.rest if 0 <= credit.rest <= self._daemons else 0
        self._turn = credit.turn if 0 <= credit.turn <= self._daemons else 0
        self._is_holding = self._has_stamped = False
        if not self._rest:
            self._owed = 0

    def measure(self, usual: int, urgent: int) -> None:
        """The representative sees its links."""
        self._usual, self._urgent = usual, urgent

    def may_stamp(self, priority: int) -> bool:
        """Whether a block to other sites may be stamped now."""
        is_due = (self._rest > 0 or self._is_holding) and self._owed >= DEBT  # it is the turn of the rest
        if priority:
            return self._urgent > 0 and not is_due
        return self._turn in (0, self._me) and (self._usual > 0 or (is_due and self._urgent > 0))

    def stamped(self, priority: int, size: int) -> None:
        self._usual = _bounded(self._usual - size)
        self._urgent = _bounded(self._urgent - size)
        if not priority:
            self._is_holding = False
            self._has_stamped = True
            if self._turn == self._me:
                self._turn = 0
            if self._owed > 0:
                self._owed = _bounded(self._owed - REST * size)
        elif self._rest or self._is_holding:
            self._owed = _bounded(self._owed + size)

    def hold(self) -> None:
        """Blocks of priority 0 wait here."""
        self._is_holding = True

    def passed(self) -> SiteCredit:
        """What goes on with the token."""
        if self._is_holding:
            self._rest = self._daemons
            if not self._turn and not self._has_stamped:
                self._turn = self._me
        elif self._rest:
            self._rest -= 1
        if self._turn == self._me and not self._is_holding:
            self._turn = 0
        return SiteCredit(self._usual, self._urgent, self._owed, self._rest, self._turn)


class Hold:
    """The links of the site are behind: blocks of this daemon wait, and the token is not asked for."""

    __slots__ = ("_priority", "_until_ns")

    def __init__(self) -> None:
        self._until_ns = 0  # 0: nothing waits
        self._priority = 0  # of the blocks

    def wait(self, now_ns: int, priority: int) -> None:
        """A block of this priority may not be stamped yet."""
        self._until_ns, self._priority = now_ns + HOLD_NS, priority

    def end(self) -> None:
        self._until_ns = self._priority = 0

    def hurry(self, priority: int) -> None:
        """A block of this priority comes: a more urgent one does not wait for the others."""
        if priority > self._priority:
            self._until_ns = 0

    def is_over(self, now_ns: int) -> bool:
        return now_ns >= self._until_ns

    def deadline_ns(self) -> int:
        return self._until_ns or NEVER


def _bounded(credit: int) -> int:
    return max(-MAX_CREDIT, min(credit, MAX_CREDIT))
