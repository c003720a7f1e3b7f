"""Calls of a session to groups of its shared underlay that it is not in (RMP section 4.5, on a shared underlay).

The session's node is in the underlay, and gets every block of it. So such a call needs no datagrams of its own: it is a
message of the session, in order with the others. The holder of the handler answers to the group, and the node sees the
answer pass by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ordercast.errors import OrdercastError, OutcomeUnknown, Unhandled
from ordercast.groups.addressing import NamedGroup
from ordercast.groups.calls import Asked
from ordercast.groups.checks import no_locks
from ordercast.groups.requests import NOWHERE, Incoming
from ordercast.service import Service
from ordercast.wire.calls import IS_ANSWER, NO_HANDLER, CallHead

if TYPE_CHECKING:
    from ordercast.groups.stream import Stream


class OpenCalls:
    """The calls of one session that have no answer yet. The send queue and those who wait bound them."""

    __slots__ = ("_asked", "_stream", "settled")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._asked: dict[int, tuple[Asked, str]] = {}  # by number of the message, with the name of the group
        self.settled: list[Asked] = []

    def call(self, group: str, payload: bytes, service: Service, handler: int, type_: int) -> Asked | None:
        """Queue a call; None: the queue is full. Raises what stands against it."""
        stream = self._stream
        channel, queue = stream.channel, stream.queue
        if channel.shared is None or not channel.engine.gives_locks:
            raise no_locks(group, channel.engine.config.orderer)
        channel.check_message(len(payload), service, type_, group)
        if not queue.has_room:
            return None
        target = NamedGroup(channel.shared.address(stream, [group]))
        asked = Asked(queue.end_number, handler)
        self._asked[asked.number] = (asked, group)
        queue.offer_call(payload, service, type_, CallHead(0, 0, handler, str(stream.me), NOWHERE), target)
        return asked

    def forget(self, asked: Asked) -> None:
        """Nobody waits for the answer any more."""
        self._asked.pop(asked.number, None)

    def on_answer(self, call: Incoming) -> None:
        """An answer to a call of this session has passed by."""
        self._end(call.head.asked, call.payload, None)

    def on_delivered(self, number: int, handler: int, group: int, locks: Mapping[str, int]) -> None:
        """A call of this session is at its place in the order. `locks`: of the underlay there."""
        if number in self._asked and f"{group}:{handler}" not in locks:
            name = self._asked[number][1]
            text = f"nobody holds handler {handler} of {name!r}: the call was delivered and is not answered"
            self._end(number, None, Unhandled(text))

    def on_departed(self) -> None:
        """The node is out of the underlay: answers come where it no longer is. What is queued leaves later."""
        name = self._stream.channel.underlay
        for number in [number for number in self._asked if number < self._stream.lowest_unsent]:
            text = f"this node was out of {name!r} before the answer to its call came"
            self._end(number, None, OutcomeUnknown(text))

    def fail(self, error: OrdercastError) -> None:
        for number in list(self._asked):
            self._end(number, None, error)

    def _end(self, number: int, answer: bytes | None, error: OrdercastError | None) -> None:
        asked, _ = self._asked.pop(number, (None, ""))
        if asked is not None:
            asked.answer, asked.error = answer, error
            self.settled.append(asked)


def pass_by(streams: Mapping[str, Stream], me: int, call: Incoming, group: int, locks: Mapping[str, int]) -> None:
    """A call, or an answer, of the underlay: sessions that have called from outside may wait for it."""
    head = call.head
    if head.flags & IS_ANSWER and head.asker == me:
        caller, number = head.asked_by, head.asked
    elif call.origin == me and not call.is_outside and head.handler != NO_HANDLER:
        caller, number = call.sender, call.first
    else:
        return
    for stream in streams.values():
        if stream.outside is not None and str(stream.me) == caller:
            if head.flags & IS_ANSWER:
                stream.outside.on_answer(call)
            else:
                stream.outside.on_delivered(number, head.handler, group, locks)
            if stream.outside.settled and stream.base is not None:
                stream.channel.note(stream.base)
