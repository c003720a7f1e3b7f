"""Rings that this node was in before: their stragglers are told what became of them.

Amoeba's incarnation numbers make a group ignore messages of former members (section 4.2). We answer them with the
commit that ended their ring. A node that is in the new view has only missed that; a node that is not learns that it is
out, and comes back as a new member.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.wire.header import Kind

MOST: Final = 8  # rings that are remembered; the oldest is forgotten first
EVERY_NS: Final = 10 * MS  # stragglers of one ring are answered at most this often

# What a member of an old ring sends without being behind: it was right when it was sent.
UNANSWERED: Final = frozenset({Kind.DATA, Kind.REPAIR, Kind.CUT, Kind.RESULT_ACK, Kind.COMMIT})


class PastRings:
    __slots__ = ("_commits", "_due_ns")

    def __init__(self) -> None:
        self._commits: dict[int, bytes] = {}
        self._due_ns: dict[int, int] = {}

    def add(self, ring: int, commit: bytes) -> None:
        self._commits[ring] = commit
        while len(self._commits) > MOST:
            oldest = next(iter(self._commits))
            del self._commits[oldest]
            self._due_ns.pop(oldest, None)

    def __contains__(self, ring: int) -> bool:
        return ring in self._commits

    def answer(self, now_ns: int, kind: int, ring: int) -> bytes | None:
        """The commit that ended the ring, for a datagram of it; None if it was given only just now."""
        if kind in UNANSWERED or self._due_ns.get(ring, 0) > now_ns:
            return None
        self._due_ns[ring] = now_ns + EVERY_NS
        return self._commits.get(ring)
