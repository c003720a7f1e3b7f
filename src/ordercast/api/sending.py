"""How the tasks of one group take turns to send: one at a time, in the order of the calls, while the queue is full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from ordercast.api.seat import Seat
from ordercast.api.waiting import wake
from ordercast.errors import MessageTooLarge
from ordercast.groups.watches import Watch
from ordercast.service import Service

CHUNK_MESSAGES: Final = 16_384
"""Messages that `send_many` offers at once, so that a very long list is not sliced over and over."""

_T = TypeVar("_T")


class SendTurns:
    """The turns of one group. `in_turn` counts the tasks that have a turn or wait for one."""

    __slots__ = ("_lock", "_loop", "_room", "_seat", "in_turn")

    def __init__(self, seat: Seat, loop: asyncio.AbstractEventLoop) -> None:
        self._seat = seat
        self._loop = loop
        self._lock = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self.in_turn = 0

    async def offer(self, payload: bytes, service: Service, type_: int, priority: int = 0) -> int:
        """Queue a message: its number."""
        self._seat.check(len(payload), service, type_)
        if priority:
            self._seat.check_priority(priority)

        def offer() -> int | None:
            number = self._seat.offer(payload, service, type_, priority)
            return number if number >= 0 else None

        return await self.take(offer)

    async def offer_many(
        self, items: list[bytes], lengths: list[int], service: Service, type_: int, confirm: bool, priority: int = 0
    ) -> Watch | None:
        """Queue messages that follow one another. With `confirm` a watch for all of them."""
        seat = self._seat
        seat.check(0, service, type_)
        if priority:
            seat.check_priority(priority)
        longest = seat.config.max_message
        if sum(lengths) > longest and max(lengths) > longest:
            raise MessageTooLarge(
                f"{max(lengths)} bytes exceed max_message={longest}, set when {seat.group!r} was created"
            )
        watch: Watch | None = None
        self.in_turn += 1
        try:
            async with self._lock:
                if confirm:
                    watch = seat.watch(seat.end_number, seat.end_number + len(items), service)
                start = 0
                while start < len(items):
                    await self._wait_for_room()
                    stop = start + CHUNK_MESSAGES
                    start += seat.offer_many(items[start:stop], service, type_, lengths[start:stop], priority)
                    seat.wake()
        except BaseException:
            if watch is not None:
                seat.forget(watch)
            raise
        finally:
            self.in_turn -= 1
        return watch

    async def take(self, offer: Callable[[], _T | None]) -> _T:
        """Call `offer` in turn until it returns something; None says that the queue is full."""
        self.in_turn += 1
        try:
            async with self._lock:
                while True:
                    await self._wait_for_room()
                    taken = offer()
                    if taken is not None:
                        return taken
        finally:
            self.in_turn -= 1

    async def outcome(self, watch: Watch) -> None:
        """Wait until messages are delivered here, or raise what became of them."""
        if watch.error is None and (watch.remaining or watch.service is None):
            watch.waiter = self._loop.create_future()
            try:
                await watch.waiter
            except BaseException:
                self._seat.forget(watch)
                raise
        if watch.error is not None:
            raise watch.error

    def settle(self) -> None:
        """Something has changed: the task whose turn it is may go on, or has to learn that the group failed."""
        if self._room is not None:
            seat = self._seat
            if seat.has_room or seat.failure is not None or seat.gone is not None or seat.error is not None:
                wake(self._room)

    async def _wait_for_room(self) -> None:
        seat = self._seat
        seat.check_open()
        while not seat.has_room:
            self._room = self._loop.create_future()
            seat.expect_room(True)
            try:
                await self._room
            finally:
                self._room = None
                seat.expect_room(False)
            seat.check_open()
