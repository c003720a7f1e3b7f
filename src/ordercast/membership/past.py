"""Rings that this node was in before: their stragglers are told what became of them.

Amoeba's incarnation numbers make a group ignore messages of ex-members (section 4.2). We answer them with the commit
that ended their ring: who is in it has only missed that, who is not learns that it is out, and comes back as new.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS

MOST: Final = 8
EVERY_NS: Final = 10 * MS  # at most this often is a straggler of one ring answered


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

    def answer(self, now_ns: int, ring: int) -> bytes | None:
        """The commit that ended the ring, unless it was given only just now."""
        if self._due_ns.get(ring, 0) > now_ns:
            return None
        self._due_ns[ring] = now_ns + EVERY_NS
        return self._commits.get(ring)
