"""A join that was given up: this node takes its request back, and stands by until nobody can order it any more.

A member may have ordered the join already. Then this node is in the view and has a vote there. If it went silent, the
others would have to recover from a failure, and might even wait for its vote. So it becomes a member all the same,
without a word to its application, and leaves in order.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import SECOND
from ordercast.engine import NEVER, Outbox
from ordercast.membership.quorum.joining import Joining
from ordercast.membership.quorum.local import LocalMember
from ordercast.view import Address
from ordercast.wire.header import Kind
from ordercast.wire.views import encode_withdrawal

FORGET_NS: Final = 2 * SECOND  # a request that nobody repeats is forgotten everywhere after this time


class Withdrawing:
    __slots__ = ("_asked", "_due_ns", "_joining", "_local", "_nonces", "_stop_ns")

    def __init__(self, local: LocalMember, joining: Joining) -> None:
        self._local = local
        self._joining = joining
        self._nonces = joining.nonces
        self._asked = set(joining.asked)  # members that have not confirmed it
        self._due_ns = NEVER
        self._stop_ns = NEVER

    def start(self, now_ns: int, out: Outbox) -> None:
        self._stop_ns = now_ns + self._local.timing.linger_ns
        self._tell(now_ns, out)

    def accept(self, nonce: int) -> bool:
        """Whether a welcome is for what we have given up. This node's next search knows these attempts too, and each is
        accepted once."""
        return nonce in self._nonces and self._joining.accept(nonce)

    def on_confirmed(self, now_ns: int, source: Address, nonces: list[int]) -> None:
        """A member will not order it. Others may have heard of it, and forget it soon."""
        if nonces == self._nonces and source in self._asked:
            self._asked.discard(source)
            if not self._asked:
                self._due_ns = NEVER
                self._stop_ns = min(self._stop_ns, now_ns + FORGET_NS)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._due_ns <= now_ns:
            self._tell(now_ns, out)

    def is_over(self, now_ns: int) -> bool:
        """Whether nobody can let us in any more, as far as we know."""
        return self._stop_ns <= now_ns

    def deadline_ns(self) -> int:
        return min(self._due_ns, self._stop_ns)

    def _tell(self, now_ns: int, out: Outbox) -> None:
        body = encode_withdrawal(self._local.name, self._nonces, is_answer=False)
        for address in sorted(self._asked):
            out.sends.append(self._local.writer.control(address, Kind.WITHDRAW, body))
        self._due_ns = now_ns + self._local.timing.find_ns if self._asked else NEVER
