"""The folder of a simulated node (`Node(data_dir=...)`): it outlives the lives of the node, unless it is lost."""

from __future__ import annotations

from collections.abc import Callable


class SimFolder:
    """What a node has on disk. A put is whole or has not happened: a real one is written beside, and renamed.

    `is_deadly`: the node crashes at the next put, after it is on disk and before anything of the pass has left.
    """

    __slots__ = ("_clock", "_entries", "has_struck", "history", "is_deadly", "puts")

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self._entries: dict[str, bytes] = {}
        self.history: list[tuple[int, bytes]] = []  # what was put and when, for judges
        self.is_deadly = False
        self.has_struck = False
        self.puts = 0

    def get(self, underlay: str) -> bytes:
        return self._entries.get(underlay, b"")

    def put(self, underlay: str, entry: bytes) -> None:
        self.puts += 1
        if entry:
            self._entries[underlay] = entry
            self.history.append((self._clock(), entry))
        else:
            self._entries.pop(underlay, None)
        self.has_struck = self.has_struck or self.is_deadly

    def begin(self) -> None:
        """A new life of the node."""
        self.is_deadly = self.has_struck = False

    def lose(self) -> None:
        """The disk is gone, or somebody has removed the folder."""
        self._entries.clear()

    def __bool__(self) -> bool:
        """Whether there is something in it."""
        return bool(self._entries)
