"""Messages larger than a block: cut by the sender (`groups/queue.py`), put together in order at each receiver.

Fragments are ordered like any block, so per origin they arrive in order and without holes; what can happen is that a
sender disappears between two of them, or that a hostile one lies about sizes. Memory is bounded by `max_message` per
open message, and allocated as parts arrive, never from what a header claims.

Each session of an origin has its own messages. An honest origin has one open at a time, whatever its sessions; more
can be left of sessions that ended.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from ordercast.errors import WireError
from ordercast.service import Service
from ordercast.wire.block import Part, label_of, open_part

MAX_OPEN: Final = 4
"""Open messages of one origin. At the bound the oldest one is dropped."""


class Whole(NamedTuple):
    """A message put together again."""

    first: int
    service: Service
    group: int
    type: int
    payload: bytes
    targets: tuple[int, ...] = ()  # its groups, where they are several


class Assembler:
    """Open fragmented messages, one per origin and session at most."""

    __slots__ = ("_max_message", "_parts", "_retired", "dropped")

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._parts: dict[int, dict[str, list[Part]]] = {}  # origin -> label of the session -> what has come
        self._retired: set[int] = set()
        self.dropped = 0

    def add(self, origin: int, block: bytes) -> Whole | None:
        """Take the next fragment of an origin; the message when it is whole. Raises WireError on a lie."""
        part, label = open_part(block), label_of(block)
        if part.size > self._max_message:
            self._drop(origin, label)
            raise WireError("fragmented message exceeds the group's max_message")
        if part.offset == 0:
            self._drop(origin, label)
            opened = self._parts.setdefault(origin, {})
            if len(opened) >= MAX_OPEN:
                del opened[next(iter(opened))]
                self.dropped += 1
            parts = opened[label] = [part]
        else:
            parts = self._parts.get(origin, {}).get(label, [])
            last = parts[-1] if parts else None
            if last is None or (last.first, last.size, last.offset + len(last.payload)) != (
                part.first,
                part.size,
                part.offset,
            ):
                self._drop(origin, label)
                raise WireError("fragment does not continue its message")
            parts.append(part)
        if not part.is_last:
            return None
        self._forget(origin, label)
        payload = b"".join([each.payload for each in parts])
        return Whole(part.first, part.service, part.group, part.type, payload, part.targets)

    def retire(self, present: Collection[int]) -> None:
        """At a view: messages of origins that are gone for two views can never be completed any more.

        Two, because the coordinator may submit the rest of a gone sender's message in the view that removes it.
        """
        for origin in self._retired - set(present):
            self.dropped += len(self._parts.pop(origin, ()))
        self._retired = {origin for origin in self._parts if origin not in present}

    def drop_to(self, group: int) -> list[tuple[int, str]]:
        """Forget what has come of ordered messages to this group; whose they were, as origin and label. The others are
        delivered without regard to the order, so some members may have them whole already."""
        found = [
            (origin, label)
            for origin, opened in self._parts.items()
            for label, (part, *_) in opened.items()
            if part.service.is_ordered and (part.group == group or group in part.targets)
        ]
        for origin, label in found:
            self._drop(origin, label)
        return found

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def _drop(self, origin: int, label: str) -> None:
        if label in self._parts.get(origin, ()):
            self._forget(origin, label)
            self.dropped += 1

    def _forget(self, origin: int, label: str) -> None:
        opened = self._parts[origin]
        del opened[label]
        if not opened:
            del self._parts[origin]
