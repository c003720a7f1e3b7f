"""How one task receives: events of a seat one by one, blocks opened into messages, and what is left of a block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from ordercast.api.seat import Seat
from ordercast.api.waiting import wake
from ordercast.errors import NotMember, UsageError
from ordercast.groups.events import Batch, Event, Message, PortEvent

_NOTHING: Final[Iterator[Message]] = iter(())


class EventReader:
    """The receiving end of one group. One task at a time may wait for an event."""

    __slots__ = ("_batch", "_consumer", "_loop", "_seat", "handed", "messages")

    def __init__(self, seat: Seat, loop: asyncio.AbstractEventLoop) -> None:
        self._seat = seat
        self._loop = loop
        self._consumer: asyncio.Future[None] | None = None
        self._batch: Batch | None = None  # its messages are being handed out one by one
        # `Group.__anext__` takes messages from here without a call of its own, and counts them.
        self.messages: Iterator[Message] = iter(())
        self.handed = 0

    @property
    def has_events(self) -> bool:
        """Whether the next event is here already."""
        return self._seat.has_events or (self._batch is not None and self.handed < len(self._batch.messages))

    @property
    def has_ended(self) -> bool:
        """The final `Left` was taken."""
        seat = self._seat
        return seat.gone is not None and not seat.has_events and seat.error is None

    def check_failed(self) -> None:
        """Raise if the group has failed and everything that was received before is taken. Amoeba section 4.2."""
        if self._seat.failure is not None and not self.has_events:
            self._seat.check_open()

    async def next_event(self) -> Event:
        """The next event, blocks opened."""
        while True:
            message = next(self.messages, None)
            if message is not None:
                self.handed += 1
                return message
            event = await self.next()
            if not isinstance(event, Batch):
                return event
            self._batch, self.handed, self.messages = event, 0, event.each()

    def take_rest(self) -> Batch | None:
        """What is left of the block whose messages were handed out one by one."""
        batch, handed = self._batch, self.handed
        if batch is None or handed >= len(batch.messages):
            return None
        self._close_batch()
        return batch.after(handed)

    async def next(self) -> PortEvent:
        """The next event of the seat. The application has finished with what it took before."""
        if self._consumer is not None:
            raise UsageError(
                f"another task is receiving from {self._seat.group!r}: only one task at a time may receive"
            )
        self._close_batch()
        seat = self._seat
        while True:
            event = seat.take()
            if event is not None:
                return event
            if seat.error is not None:
                raise seat.error
            if seat.gone is not None:
                raise NotMember(f"this node is no longer in {seat.group!r}: {seat.gone.text}")
            self._consumer = self._loop.create_future()
            try:
                await self._consumer
            finally:
                self._consumer = None

    def settle(self) -> None:
        """Something has changed: the task that waits may have an event, or has to learn of the end."""
        if self._consumer is not None:
            seat = self._seat
            if seat.has_events or seat.gone is not None or seat.error is not None:
                wake(self._consumer)

    def _close_batch(self) -> None:
        self._batch, self.handed, self.messages = None, 0, _NOTHING
