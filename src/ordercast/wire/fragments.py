"""Messages larger than a block: cut by the sender (`groups/queue.py`), put together in order at each receiver.

Fragments are ordered like any block, so per origin they arrive in order and without holes; what can happen is that a
sender disappears between two of them, or that a hostile one lies about sizes. Memory is bounded by `max_message` per
origin, and allocated as parts arrive, never from what a header claims.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ordercast.errors import WireError
from ordercast.service import Service
from ordercast.wire.block import Part, open_part


class Whole(NamedTuple):
    """A message put together again."""

    first: int
    service: Service
    group: int
    type: int
    payload: bytes
    targets: tuple[int, ...] = ()  # its groups, where they are several


class Assembler:
    """Open fragmented messages, one per origin at most."""

    __slots__ = ("_max_message", "_parts", "_retired", "dropped")

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._parts: dict[int, list[Part]] = {}
        self._retired: set[int] = set()
        self.dropped = 0

    def add(self, origin: int, block: bytes) -> Whole | None:
        """Take the next fragment of an origin; the message when it is whole. Raises WireError on a lie."""
        part = open_part(block)
        if part.size > self._max_message:
            self._drop(origin)
            raise WireError("fragmented message exceeds the group's max_message")
        if part.offset == 0:
            self._drop(origin)
            parts = self._parts[origin] = [part]
        else:
            parts = self._parts.get(origin, [])
            last = parts[-1] if parts else None
            if last is None or (last.first, last.size, last.offset + len(last.payload)) != (
                part.first,
                part.size,
                part.offset,
            ):
                self._drop(origin)
                raise WireError("fragment does not continue its message")
            parts.append(part)
        if not part.is_last:
            return None
        del self._parts[origin]
        payload = b"".join([each.payload for each in parts])
        return Whole(part.first, part.service, part.group, part.type, payload, part.targets)

    def retire(self, present: Collection[int]) -> None:
        """At a view: messages of origins that are gone for two views can never be completed any more.

        Two, because the coordinator may submit the rest of a gone sender's message in the view that removes it.
        """
        for origin in self._retired - set(present):
            self._drop(origin)
        self._retired = {origin for origin in self._parts if origin not in present}

    def drop_to(self, group: int) -> list[int]:
        """Forget what has come of ordered messages to this group; whose they were. The others are delivered without
        regard to the order, so some members may have them whole already."""
        found = [
            origin
            for origin, (part, *_) in self._parts.items()
            if part.service.is_ordered and (part.group == group or group in part.targets)
        ]
        for origin in found:
            self._drop(origin)
        return found

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def _drop(self, origin: int) -> None:
        if self._parts.pop(origin, None) is not None:
            self.dropped += 1


def _continues(last: Part, part: Part) -> bool:
    return (last.first, last.size, last.offset + len(last.payload)) == (part.first, part.size, part.offset)
