"""A newcomer's way into a group: find it, ask to join, or create it (docs/design/membership.md).

Amoeba keeps CreateGroup and JoinGroup apart (section 3); `create` True, False and None say which of them is meant, None
being "whichever it takes". Newcomers that start together hear each other: the lowest id creates, the others wait.

A group can also be joined through one of its members (RMP section 3.3, explicit naming): then only that one is asked,
and only what it answers counts, although others may show rings of the same name.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from ordercast.config import Demands, Timing
from ordercast.engine import NEVER, Outbox, To
from ordercast.orderers import unsupported_names
from ordercast.view import Address, Member
from ordercast.wire.header import Kind
from ordercast.wire.views import Asking, Ring, encode_asking
from ordercast.wire.writer import DatagramWriter

JOIN_TRIES: Final = 8  # requests to one leader before looking around again
MAX_ATTEMPTS: Final = 8  # of one search whose welcome is accepted
MAX_DEFERENCE: Final = 20  # times that a newcomer starts over because another with a lower id is looking as well


class Joining:
    """State from the first question to the welcome. The underlay installs what comes of it."""

    def __init__(
        self,
        group: str,
        me: Member,
        writer: DatagramWriter,
        timing: Timing,
        rng: random.Random,
        create: bool | None,
        demands: Demands,
        header: bytes,
        next_block: int,
        is_return: bool,
        ask: Sequence[Address] = (To.ANYONE,),
        called: Mapping[int, int] | None = None,
    ) -> None:
        """`ask`: who is asked for the group. Without `To.ANYONE` among them nobody else is listened to. `called`: calls
        from outside that were delivered to us in another ring."""
        self._group = group
        self._me = me
        self._writer = writer
        self._timing = timing
        self._rng = rng
        self._create = create
        self._demands = demands
        self._header = header
        self._next_block = next_block
        self._called = dict(called or {})
        self._is_return = is_return  # we were a member: the group exists, whoever answers
        self._ask_whom = ask
        self._is_explicit = To.ANYONE not in ask
        self.nonce = rng.getrandbits(63)
        self._nonces = deque([self.nonce], maxlen=MAX_ATTEMPTS)
        self._tries = 0
        self._deferred = 0
        self._ring: Ring | None = None
        self._join_tries = 0
        self._due_ns = NEVER
        # Outcome
        self.must_create = False
        self.refusal = ""

    def start(self, now_ns: int, out: Outbox) -> None:
        self._ask(now_ns, out)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._due_ns > now_ns:
            return
        if self._ring is not None and self._join_tries >= JOIN_TRIES:
            self._ring = None
            self._tries = 0
            self.nonce = self._rng.getrandbits(63)  # a new attempt: the group takes each only once
            self._nonces.append(self.nonce)
        if self._ring is not None:
            self._join(now_ns, out)
        elif self._tries < self._timing.find_tries or self._is_return:
            self._ask(now_ns, out)
        elif self._is_explicit:
            asked = " and ".join(f"{host}:{port}" for host, port in self._ask_whom)
            self._conclude(f"{asked} does not answer as a member of {self._group!r}; without contact= it is looked for")
        elif self._create is False:
            self._conclude(f"there is no group {self._group!r} here; create=None or create=True would make it")
        else:
            self.must_create = True
            self._due_ns = NEVER

    def deadline_ns(self) -> int:
        return self._due_ns

    def on_ring(self, now_ns: int, source: Address, ring: Ring, out: Outbox) -> None:
        """Somebody of the group has answered, or shown itself."""
        if self._is_explicit and source not in self._ask_whom:
            return
        if self._create is True and not self._is_return:
            self._conclude(f"a group {self._group!r} exists already; create=None or create=False would join it")
            return
        if not ring.is_working:
            self._tries = 0  # it exists, and may work again: ask on
            return
        refusal = self._demands.refusal(ring.config) or unsupported_names(ring.config)
        if refusal:
            self._conclude(refusal)
            return
        if self._ring is None or better(ring, self._ring):
            self._ring = ring
            self._join_tries = 0
            self._join(now_ns, out)

    def on_find(self, asking: Asking) -> None:
        """Another newcomer is looking: the one with the lower id goes first."""
        if self._ring is None and asking.member.id < self._me.id and self._deferred < MAX_DEFERENCE:
            self._deferred += 1
            self._tries = 0

    def is_answered_by(self, nonce: int) -> bool:
        """Whether a welcome is for one of our attempts: an earlier one may be what the group got round to."""
        return nonce in self._nonces

    @property
    def has_asked(self) -> bool:
        """Whether somebody may be about to let us in."""
        return self._join_tries > 0

    def on_refuse(self, text: str) -> None:
        self._conclude(text)

    def _ask(self, now_ns: int, out: Outbox) -> None:
        # Members other than the leader answer from the second question on, which a question to one of them is.
        body = self._asking(self._tries + self._is_explicit)
        for to in self._ask_whom:
            out.sends.append(self._writer.control(to, Kind.FIND, body))
        self._tries += 1
        slow = 1 << min(max(0, self._tries - self._timing.find_tries) // 4, 4)
        self._due_ns = now_ns + self._timing.find_ns * slow + self._rng.randrange(self._timing.find_ns // 4)

    def _join(self, now_ns: int, out: Outbox) -> None:
        if self._ring is None:
            return
        leader: Address = self._ring.leader.address
        out.sends.append(self._writer.control(leader, Kind.JOIN, self._asking(self._join_tries)))
        self._join_tries += 1
        self._due_ns = now_ns + self._timing.find_ns + self._rng.randrange(self._timing.find_ns // 4)

    def _asking(self, tries: int) -> bytes:
        return encode_asking(
            Asking(
                self._group,
                self._me,
                self.nonce,
                tries,
                self._next_block,
                self._demands,
                self._header,
                self._called,
            )
        )

    def _conclude(self, text: str) -> None:
        self.refusal = text
        self._due_ns = NEVER


def better(one: Ring, other: Ring) -> bool:
    """Which of two rings of one name goes on: the larger, then the one with the lower view id (DESIGN section 3)."""
    if one.ring == other.ring:
        return False
    return (-one.size, one.counter, one.creator) < (-other.size, other.counter, other.creator)
