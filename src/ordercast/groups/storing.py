"""What a node must not forget over a restart, and when it is stored (docs/design/restarts.md).

A pass is: drain, process, store, write the trace, send. So a vote, a promise or an acknowledgement leaves only when
what it promises is on disk. What is stored changes with views and recoveries, never with a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ordercast.errors import UsageError, WireError
from ordercast.groups.channel import Channel
from ordercast.groups.driven import Driven
from ordercast.groups.engines import GroupEngine


class Store(Protocol):
    """One entry for each underlay. `put` returns when it is on disk; an empty entry is none."""

    def get(self, underlay: str) -> bytes: ...

    def put(self, underlay: str, entry: bytes) -> None: ...


class Entries:
    """The entries of one node. The engine of a membership that is over may vote on beside the next one of the same
    underlay, and both have one entry: the last one of those that have anything to keep.

    What the other one keeps from then on is lost with this life. That takes its vote away, and nothing else: the next
    life does not know that there was one, as after a restart without a folder.
    """

    __slots__ = ("_owners", "_store")

    def __init__(self, store: Store | None) -> None:
        """None: the node has no folder, and keeps nothing."""
        self._store = store
        self._owners: dict[str, Channel] = {}  # underlay -> of this life, whose entry is on disk

    def restore(self, underlay: str, engine: GroupEngine) -> None:
        """Give an engine that is about to start what an earlier life of the node kept. An entry of this life is that of
        an engine which still votes: nobody takes its place."""
        if self._store is None or underlay in self._owners:
            return
        try:
            engine.restore(self._store.get(underlay))
        except WireError as error:
            raise UsageError(
                f"what this node kept of {underlay!r} cannot be read ({error}): another version wrote it. Start that "
                "version, or remove the folder; then this node counts as new, and its former life as crashed"
            ) from error

    def keep(self, worked: Iterable[Driven]) -> None:
        """Store what has changed in a pass, before anything of it leaves. `worked`: what the pass worked on."""
        for driven in worked:
            if isinstance(driven, Channel):
                entry = driven.engine.durable()
                if entry is not None and self._store is not None:
                    self._put(self._store, driven, entry)

    def __bool__(self) -> bool:
        """Whether anything is kept."""
        return self._store is not None

    def _put(self, store: Store, channel: Channel, entry: bytes) -> None:
        underlay = channel.underlay
        owner = self._owners.get(underlay, channel)
        if owner.order > channel.order or (owner is not channel and not entry):
            return
        store.put(underlay, entry)
        if entry:
            self._owners[underlay] = channel
        else:
            self._owners.pop(underlay, None)
