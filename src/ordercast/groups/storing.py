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


def restore(store: Store | None, underlay: str, engine: GroupEngine) -> None:
    """Give an engine that is about to start what an earlier life of the node kept."""
    if store is not None:
        try:
            engine.restore(store.get(underlay))
        except WireError as error:
            raise UsageError(
                f"what this node kept of {underlay!r} cannot be read ({error}): another version wrote it. Start that "
                "version, or remove the folder; then this node counts as new, and its former life as crashed"
            ) from error


def keep(store: Store, worked: Iterable[Driven]) -> None:
    """Store what has changed in a pass, before anything of it leaves. `worked`: what the pass worked on."""
    for driven in worked:
        if isinstance(driven, Channel):
            entry = driven.engine.durable()
            if entry is not None:
                store.put(driven.underlay, entry)
