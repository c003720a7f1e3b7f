"""Events as frames of the native protocol. A block is encoded once, whatever the number of clients that get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

from ordercast.engine import Failed, Transitional
from ordercast.groups.events import Answer, Batch, CallBatch, Left, MixedBatch, PortEvent, Request, Uncertain
from ordercast.groups.requests import NOWHERE
from ordercast.groups.status import Resumed, Stalled
from ordercast.view import View
from ordercast.wire.block import FRAGMENT_OVERHEAD, MAX_TARGETS, pack_fragment, pack_multi, pack_run
from ordercast.wire.call_frames import OWED
from ordercast.wire.calls import IS_ANSWER, NO_HANDLER, CallHead, pack_call
from ordercast.wire.daemon_frames import (
    LeftNotice,
    StallNotice,
    UncertainNotice,
    ViewWriter,
    delivery_names,
    encode_deliver,
    encode_failed,
    encode_left,
    encode_resumed,
    encode_stalled,
    encode_transitional,
    encode_uncertain,
)
from ordercast.wire.frames import VERSION

SHARED_FRAMES: Final = 64
"""Frames that are kept for the other clients that get the same block; the oldest go first."""

PART_BYTES: Final = 48 << 10
"""Of a large message in one frame."""

CALLS_VERSION: Final = 2
"""Since then clients are told what is a call."""

MAX_NAMES_KEPT: Final = 1_024
"""Heads of deliveries that are kept; at the bound all are forgotten and made anew."""


class EventEncoder:
    """One for all clients of a daemon."""

    __slots__ = ("_clock_s", "_names", "_shared", "_views", "_writer")

    def __init__(self, clock_s: Callable[[], float] = monotonic) -> None:
        """`clock_s`: that of the node, in seconds."""
        self._clock_s = clock_s
        # The batch is kept with its frame, so that no other object has its id.
        self._shared: dict[int, tuple[PortEvent, Sequence[bytes]]] = {}
        self._names: dict[tuple[str, str, str], bytes] = {}
        # Each session has a view of its own, but most of those that a change makes are the same.
        self._views: dict[tuple[object, ...], tuple[View, bytes]] = {}
        self._writer = ViewWriter()

    def frames(self, event: PortEvent, version: int = VERSION) -> Iterator[bytes]:
        """The frames of an event, each made when it is asked for. `version`: that the client speaks."""
        if version < CALLS_VERSION:
            if isinstance(event, CallBatch):
                return iter((self._opened(event),))
            if isinstance(event, View) and event.lock:
                return iter((self._writer.frame(replace(event, lock="")),))
        if not isinstance(event, Batch):
            return iter((self._other(event),))
        found = self._shared.get(id(event))
        if found is not None:
            return iter(found[1])
        if event.block:
            frames = [self._block(event)]
        elif isinstance(event, CallBatch):
            frames = [self._call(event)]
        elif isinstance(event, MixedBatch) and not event.is_multi:
            frames = [self._opened(run) for run in event.runs() if run.messages]
        elif event.count == 1 and event.messages and len(event.messages[0]) > PART_BYTES:
            return self._parts(event)
        else:
            frames = [self._opened(event)] if event.messages else []
        if len(self._shared) >= SHARED_FRAMES:
            del self._shared[next(iter(self._shared))]
        self._shared[id(event)] = (event, frames)
        return iter(frames)

    def forget(self) -> None:
        """Nobody else gets what is kept."""
        self._shared.clear()
        self._views.clear()

    def _block(self, batch: Batch) -> bytes:
        """Unopened. Hot: once for each block."""
        if isinstance(batch, MixedBatch):
            names = delivery_names(batch.view, batch.sender, batch.table)
            # The position of the block's first message, which is the batch's: all messages are in it.
            return encode_deliver(names, batch.position, batch.block)
        return encode_deliver(self._names_of(batch), batch.position, batch.block)

    def _call(self, batch: CallBatch) -> bytes:
        """A call, or an answer. The heads that travelled are for the daemons."""
        message = batch.message
        head = CallHead(0, 0, NO_HANDLER, batch.sender, NOWHERE)
        if isinstance(message, Answer):
            asked_by, asked = message.answers or ("", 0)
            head = head._replace(flags=IS_ANSWER, asked=asked, asked_by=asked_by)
        elif isinstance(message, Request):
            handler = message.handler if message.handler is not None else NO_HANDLER
            head = head._replace(flags=OWED if message.must_answer else 0, handler=handler)
        block = pack_call(batch.first, batch.service, head, message.payload, batch.type, 1)
        return encode_deliver(self._names_of(batch), batch.position, block)

    def _opened(self, batch: Batch) -> bytes:
        if isinstance(batch, MixedBatch):  # to several groups
            table = dict(enumerate(dict.fromkeys(batch.groups), 1))
            names = delivery_names(batch.view, batch.sender, table)
            block = pack_multi(batch.first, batch.service, batch.messages, list(table), batch.type)
            return encode_deliver(names, batch.position, block)
        block = pack_run(batch.first, batch.service, batch.messages, 1, batch.type)
        return encode_deliver(self._names_of(batch), batch.position, block)

    def _parts(self, batch: Batch) -> Iterator[bytes]:
        """A large message. Its frames are not kept: they are many."""
        payload = batch.messages[0]
        if isinstance(batch, MixedBatch):
            table = dict(enumerate(list(dict.fromkeys(batch.groups))[:MAX_TARGETS], 1))
            names, targets = delivery_names(batch.view, batch.sender, table), list(table)
        else:
            names, targets = self._names_of(batch), []
        step = PART_BYTES - FRAGMENT_OVERHEAD
        for start in range(0, len(payload), step):
            stop = min(start + step, len(payload))
            group = 0 if targets else 1
            block = pack_fragment(batch.first, batch.service, group, batch.type, payload, start, stop, 0, targets)
            yield encode_deliver(names, batch.position, block)

    def _names_of(self, batch: Batch) -> bytes:
        """A client needs no number where there is one group only."""
        key = (batch.view, batch.sender, batch.group)
        names = self._names.get(key)
        if names is None:
            if len(self._names) >= MAX_NAMES_KEPT:
                self._names.clear()
            names = self._names[key] = delivery_names(batch.view, batch.sender, {0: batch.group})
        return names

    def _view(self, view: View) -> bytes:
        # Locks change within a view. Those of all sessions change together.
        locks = (view.reason, view.lock, tuple(view.tokens.items())) if view.locks or view.lock else ()
        key = (view.group, view.counter, view.creator, id(view.came_with), *locks)
        found = self._views.get(key)
        if found is None:
            if len(self._views) >= SHARED_FRAMES:
                del self._views[next(iter(self._views))]
            found = self._views[key] = (view, self._writer.frame(view))
        return found[1]

    def _other(self, event: PortEvent) -> bytes:
        if isinstance(event, View):
            return self._view(event)
        if isinstance(event, Left):
            return encode_left(LeftNotice(event.wanted, event.returning, event.text, event.group))
        if isinstance(event, Transitional):
            return encode_transitional(event)
        if isinstance(event, Uncertain):
            return encode_uncertain(UncertainNotice(event.first, event.count, event.group, event.text))
        if isinstance(event, Failed):
            return encode_failed(event)
        if isinstance(event, Stalled):
            return encode_stalled(
                StallNotice(
                    event.reason, event.waiting_for, self._clock_s() - event.since, event.text, event.have, event.need
                )
            )
        if isinstance(event, Resumed):
            return encode_resumed(event.reason, event.after)
        raise TypeError(f"no frame for {event!r}")
