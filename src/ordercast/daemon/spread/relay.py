"""Messages of the underlay as bytes for Spread's clients: each block is encoded once, and all receivers share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ordercast.daemon.spread.encoding import encode_casts
from ordercast.daemon.spread.flavours import show
from ordercast.daemon.spread.names import private_group_of
from ordercast.errors import WireError
from ordercast.groups.events import Batch, MixedBatch
from ordercast.wire.block import open_messages

CACHE_BYTES: Final = 16 << 20
"""Encoded blocks that are kept for further receivers of the same pass. At the bound the oldest are forgotten, and
encoded again for the next receiver."""


class Relayed(NamedTuple):
    """Messages of one sender, encoded."""

    data: bytes
    messages: int
    sender: str
    is_discarding: bool  # the sender itself does not get them


class Relay:
    """Encodes batches. One for all sessions of a daemon."""

    __slots__ = ("_bytes", "_cache", "encoded", "shared")

    def __init__(self) -> None:
        self._cache: dict[tuple[str, int, int, tuple[str, ...]], Relayed] = {}
        self._bytes = 0
        # counters
        self.encoded = 0
        self.shared = 0

    def encode(self, batch: Batch) -> list[Relayed]:
        """The messages of a batch, in their order. Hot: once for each block and receiver."""
        if not isinstance(batch, MixedBatch):
            return [self._run(batch, (batch.group,))]
        if batch.is_multi:
            return [self._run(batch, tuple(batch.groups))]
        return [self._run(run, (run.group,)) for run in batch.runs()]

    def _run(self, batch: Batch, groups: tuple[str, ...]) -> Relayed:
        # Numbers of a sender rise over its life, which is a part of its name.
        key = (batch.sender, batch.first, batch.count, groups)
        found = self._cache.get(key)
        if found is not None:
            self.shared += 1
            return found
        payloads, type_ = _opened(batch)
        shown = show(groups, batch.service.rank, type_)
        data = encode_casts(shown.type, private_group_of(batch.sender), shown.hint, shown.groups, payloads)
        found = self._cache[key] = Relayed(data, len(payloads), batch.sender, shown.is_discarding)
        self.encoded += 1
        self._bytes += len(data)
        while self._bytes > CACHE_BYTES:
            oldest = next(iter(self._cache))
            self._bytes -= len(self._cache.pop(oldest).data)
        return found

    def forget(self) -> None:
        """The pass is over for all receivers: what comes next is of other blocks."""
        self._cache.clear()
        self._bytes = 0


def _opened(batch: Batch) -> tuple[Sequence[bytes], int]:
    """The messages and their type. A batch is shared with sessions that pass its block on: it stays unopened."""
    block = batch.block
    if not block or isinstance(batch, MixedBatch):
        return batch.messages, batch.type
    try:
        opened = open_messages(block)
    except WireError:
        return (), 0
    return opened.payloads, opened.type
