"""Rings that this node was in before: their stragglers are told what became of them, and can still get their log.

Amoeba's incarnation numbers make a group ignore messages of former members (section 4.2). We answer them with the
commit that ended their ring. A node that is in the new view has only missed that, and fetches what it lacks of the old
log; a node that is not learns that it is out, and comes back as a new member. Members that were excluded answer too.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER, Outbox
from ordercast.orderers import LoggedOrderer
from ordercast.view import Address
from ordercast.wire.header import Kind
from ordercast.wire.views import encode_ended
from ordercast.wire.writer import DatagramWriter

MOST: Final = 8  # rings that are remembered; the oldest is forgotten first
EVERY_NS: Final = 10 * MS  # stragglers of one ring are answered at most this often
KEEP_NS: Final = 10 * SECOND  # so long a ring that works keeps the last log for members that were not heard in it

# What a member of an old ring sends without being behind: it was right when it was sent.
UNANSWERED: Final = frozenset({Kind.DATA, Kind.REPAIR, Kind.CUT, Kind.RESULT_ACK, Kind.COMMIT, Kind.ENDED})


class PastRings:
    """How each ring ended, and the log of the last one until all members of the next have it."""

    __slots__ = ("_awaited", "_due_ns", "_endings", "_kept", "_kept_ring", "_stop_ns", "is_over")

    def __init__(self) -> None:
        self._endings: dict[int, tuple[Kind, bytes]] = {}
        self._due_ns: dict[int, int] = {}
        self.is_over = False  # the last ring ended in order, and nothing follows it
        self._kept: LoggedOrderer | None = None
        self._kept_ring = 0
        self._awaited: set[int] = set()  # members of the new ring that were not heard in it
        self._stop_ns = NEVER

    def __contains__(self, ring: int) -> bool:
        return ring in self._endings

    def add(self, ring: int, commit: bytes) -> None:
        """The ring has ended with the commit of the next view."""
        self._end(ring, Kind.COMMIT, commit)

    def add_ended(self, ring: int, name: str) -> None:
        """The ring of the underlay `name` has ended in order, and nothing follows it."""
        self._end(ring, Kind.ENDED, encode_ended(name))

    def _end(self, ring: int, kind: Kind, body: bytes) -> None:
        # A straggler of an earlier ring is not in what follows this one, whatever it was in before.
        for older in self._endings:
            self._endings[older] = (kind, body)
        self._endings[ring] = (kind, body)
        self.is_over = kind == Kind.ENDED
        self.drop_log()
        while len(self._endings) > MOST:
            oldest = next(iter(self._endings))
            del self._endings[oldest]
            self._due_ns.pop(oldest, None)

    def endings(self) -> dict[int, tuple[Kind, bytes]]:
        """How rings ended, for the next engine of this node: members of old rings may ask it when it has come back."""
        return dict(self._endings)

    def last(self) -> tuple[int, bytes]:
        """The last ring that ended with a commit, and that; (0, nothing) where there is none."""
        ring = next(reversed(self._endings), 0)
        kind, body = self._endings.get(ring, (Kind.ENDED, b""))
        return (ring, body) if kind == Kind.COMMIT else (0, b"")

    def inherit(self, endings: dict[int, tuple[Kind, bytes]]) -> None:
        self._endings = dict(endings)

    # The log of the last ring

    def keep_log(self, now_ns: int, ring: int, orderer: LoggedOrderer, members: set[int]) -> None:
        """`members` of the new ring may still need it."""
        if members:
            self._kept, self._kept_ring, self._awaited = orderer, ring, set(members)
            self._stop_ns = now_ns + KEEP_NS

    def drop_log(self) -> None:
        self._kept = None
        self._awaited = set()
        self._stop_ns = NEVER

    @property
    def is_keeping(self) -> bool:
        return self._kept is not None

    def heard(self, member: int) -> None:
        """A member is in the new ring: it has everything before it."""
        self._awaited.discard(member)
        if not self._awaited:
            self.drop_log()

    def expire(self, now_ns: int, is_frozen: bool = False) -> None:
        """`is_frozen`: the new ring has failed. It may need a member that lacks the old log, whenever that is back."""
        if self._stop_ns <= now_ns:
            if is_frozen and self.is_keeping:
                self._stop_ns = now_ns + KEEP_NS
            else:
                self.drop_log()

    def deadline_ns(self) -> int:
        return self._stop_ns

    # Stragglers

    def answer(
        self,
        now_ns: int,
        writer: DatagramWriter,
        source: Address,
        kind: int,
        ring: int,
        origin: int,
        body: bytes | memoryview,
        out: Outbox,
    ) -> None:
        """A datagram of a ring that has ended. The answer is how it ended, unless that was said only just now. A
        request for a part of its log is served."""
        if kind == Kind.NAK and self._kept is not None and ring == self._kept_ring and body:
            current, writer.ring = writer.ring, ring
            try:
                self._kept.on_control(now_ns, kind, source, origin, 0, memoryview(body), out)
            finally:
                writer.ring = current
            return
        if kind in UNANSWERED or self._due_ns.get(ring, 0) > now_ns:
            return
        ending = self._endings.get(ring)
        if ending is not None:
            self._due_ns[ring] = now_ns + EVERY_NS
            out.sends.append(writer.control(source, ending[0], ending[1], ring))
