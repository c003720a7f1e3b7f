"""While urgent messages are about, a daemon whose clients are behind keeps the token for a moment (SITES section 5).

An ordered block is delivered behind everything that was stamped before it. Where clients receive less than their site
stamps, that is all that waits for them: megabytes at their daemon, at which priority has no say any more. So while
messages with a priority are about, as little as possible is stamped ahead:

- A daemon with a client that is behind keeps the token, for `KEEP_NS` at most in each visit, and stamps urgent blocks
  only. What others send waits with its sender, and its order is open: an urgent message overtakes it there.
- What one daemon stamps in one visit is `BURST_BYTES` at most, so that the token and the processes have short turns.
- It is `SWIFT_BYTES` at most where its last visit was less than `SWIFT_NS` ago. An urgent message waits for a turn of
  the token or two, and where processors are saturated each takes as long as the work on what was stamped in it. Where
  turns take longer, processes wait for a processor, and each turn has to carry more: with less in each, the rate there
  was a third lower.

Without urgent messages nothing of this happens: queues at receivers are what makes processes work in long turns, and so
fast. Rejected: telling of receivers on the token, as `urgency.py` tells of links. It would reach senders a round later,
and every daemon would have to write into the same field.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER
from ordercast.orderers.sites.urgency import Hold

ABOUT_NS: Final = 1 * SECOND  # after the last urgent block that was seen here
KEEP_NS: Final = 100 * MS  # of one visit: a client that takes a burst within this time does not fall behind further
LOOK_NS: Final = 2 * MS  # between two looks at the clients
BURST_BYTES: Final = 256 << 10
SWIFT_NS: Final = 4 * MS
SWIFT_BYTES: Final = 144 << 10
"""Some of the largest blocks, and at least a quarter of one more: what is left over has to be worth a block for every
session (`SMALL_SHARE`). Otherwise it goes to one that sends little, and behind that it is the same other session's turn
again (`SharedGroups.in_turn`)."""


class Brake:
    """One daemon's part. `hear` of urgent blocks, and set `is_behind`; then `is_on` before anything is stamped,
    `stamped` for each block, and `keeps_token` once in a round while the token is here, or `passed`."""

    __slots__ = (
        "_about_ns",
        "_burst_bytes",
        "_due_ns",
        "_pass_bytes",
        "_pass_ns",
        "_since_ns",
        "hold",
        "is_behind",
    )

    def __init__(self) -> None:
        self.hold = Hold()  # what links do to this daemon
        self.is_behind = False  # a client of this daemon is
        self._about_ns = 0  # urgent messages count as being about until then
        self._since_ns = 0  # since when this visit is kept; 0: it is not
        self._due_ns = NEVER  # when to look again
        self._pass_ns = 0  # of the last pass that stamped something
        self._pass_bytes = 0  # which it has stamped
        self._burst_bytes = BURST_BYTES  # and what it might stamp

    def hear(self, now_ns: int) -> None:
        """An urgent block was stamped here, or has come."""
        self._about_ns = now_ns + ABOUT_NS

    def burst(self, now_ns: int, usual: int) -> int:
        """What may be stamped in one visit. Hot: once for each session that has something."""
        if now_ns >= self._about_ns:
            return usual
        return min(usual, self._burst_bytes if now_ns == self._pass_ns else self._next_burst(now_ns))

    def is_on(self, now_ns: int) -> bool:
        """Whether only urgent blocks may be stamped now."""
        return self._is_keeping(now_ns) or self._is_spent(now_ns)

    def stamped(self, now_ns: int, size: int) -> None:
        """Hot: once for each block."""
        if now_ns != self._pass_ns:
            self._burst_bytes = self._next_burst(now_ns)
            self._pass_ns, self._pass_bytes = now_ns, 0
        self._pass_bytes += size

    def keeps_token(self, now_ns: int, is_alone: bool) -> bool:
        """Whether the token stays here. A daemon that is alone in its site has it for good: there a visit is what one
        pass stamps, and another pass is asked for, since no token comes to begin it."""
        if is_alone and now_ns == self._pass_ns:
            self._since_ns = 0
        keeps = self._is_keeping(now_ns)
        self._due_ns = NEVER
        if keeps:
            self._due_ns = min(now_ns + LOOK_NS, self._since_ns + KEEP_NS)
        elif is_alone and self._is_spent(now_ns):
            self._due_ns = now_ns + 1
        return keeps

    def passed(self) -> None:
        """The token is elsewhere."""
        self._since_ns, self._due_ns = 0, NEVER

    def expire(self, now_ns: int) -> None:
        """What is due is looked at in this pass, if there is a view to look in."""
        if now_ns >= self._due_ns:
            self._due_ns = NEVER
        if self.hold.is_over(now_ns):
            self.hold.end()

    def deadline_ns(self) -> int:
        return min(self._due_ns, self.hold.deadline_ns())

    def _next_burst(self, now_ns: int) -> int:
        """Of a pass that has stamped nothing yet."""
        return SWIFT_BYTES if now_ns - self._pass_ns < SWIFT_NS else BURST_BYTES

    def _is_keeping(self, now_ns: int) -> bool:
        if not self.is_behind or now_ns >= self._about_ns:
            self._since_ns = 0
            return False
        if not self._since_ns:
            self._since_ns = now_ns
        return now_ns < self._since_ns + KEEP_NS

    def _is_spent(self, now_ns: int) -> bool:
        """Whether this pass has stamped what one visit may: clients are looked at between two passes."""
        return now_ns < self._about_ns and now_ns == self._pass_ns and self._pass_bytes >= self._burst_bytes
