"""What waits for one client's socket: counted in messages, as Spread counts, and in bytes (section 8).

Chunks are shared with other clients, and are not copied while they wait.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WRITE_BYTES: Final = 256 << 10
"""Bytes that are written at once."""


class SocketQueue:
    """Encoded messages in their order. `is_blocked`: the socket takes nothing at present."""

    __slots__ = ("_chunks", "_writing", "_writing_bytes", "is_blocked", "messages", "over_since", "waiting_bytes")

    def __init__(self) -> None:
        self._chunks: deque[tuple[bytes, int]] = deque()
        self._writing = 0  # messages of what was written last, which the socket may not have taken whole
        self._writing_bytes = 0
        self.messages = 0  # that wait, those included
        self.waiting_bytes = 0
        self.is_blocked = False
        self.over_since: float | None = None  # since when more wait than may

    def add(self, data: bytes, messages: int) -> None:
        self._chunks.append((data, messages))
        self.messages += messages
        self.waiting_bytes += len(data)

    def take(self) -> bytes:
        """What to write next; empty: nothing. It counts as waiting until `unblock` or the next call."""
        self._written()
        chunks = self._chunks
        if not chunks:
            return b""
        data, count = chunks.popleft()
        parts, size = [data], len(data)
        while chunks and size + len(chunks[0][0]) <= WRITE_BYTES:
            data, more = chunks.popleft()
            parts.append(data)
            size += len(data)
            count += more
        self._writing, self._writing_bytes = count, size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def block(self) -> None:
        self.is_blocked = True

    def unblock(self) -> None:
        self.is_blocked = False
        self._written()

    def settle(self) -> None:
        """Everything that `take` gave has left, unless the socket is blocked."""
        if not self.is_blocked:
            self._written()

    def clear(self) -> None:
        self._chunks.clear()
        self.messages = self.waiting_bytes = self._writing = self._writing_bytes = 0

    def is_over(self, most: int, now: float, grace_s: float) -> bool:
        """Whether more than `most` messages have waited for longer than the grace."""
        if self.messages <= most:
            self.over_since = None
            return False
        if self.over_since is None:
            self.over_since = now
        return now - self.over_since >= grace_s

    def _written(self) -> None:
        self.messages -= self._writing
        self.waiting_bytes -= self._writing_bytes
        self._writing = self._writing_bytes = 0
