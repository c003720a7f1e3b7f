"""Calls of one group: messages that name a handler, and the wait for the answer of its holder (RMP section 3.3)."""

from __future__ import annotations

import asyncio

from ordercast.api.checks import Payload, as_bytes, check_call, check_handler, check_timeout
from ordercast.api.seat import Seat
from ordercast.api.sending import SendTurns
from ordercast.errors import CallTimeout, InvariantViolation
from ordercast.groups.calls import Asked
from ordercast.service import RELIABLE, UNRELIABLE, Service


class Calling:
    """What a `Group` calls by."""

    __slots__ = ("_loop", "_seat", "_sending")

    def __init__(self, seat: Seat, sending: SendTurns, loop: asyncio.AbstractEventLoop) -> None:
        self._seat = seat
        self._sending = sending
        self._loop = loop

    async def call(self, payload: Payload, handler: int, service: Service, type_: int, timeout: float | None) -> bytes:
        """Ask, and return the answer."""
        check_timeout(timeout)
        payload, service = self._checked(payload, handler, service, type_)
        seat = self._seat
        asked: Asked | None = None
        try:
            async with asyncio.timeout(timeout) as bound:
                asked = await self._sending.take(lambda: seat.call(payload, service, handler, type_))
                asked.waiter = self._loop.create_future()
                seat.hurry()
                await asked.waiter
        except BaseException as error:
            if asked is not None:
                seat.forget_call(asked)
            if isinstance(error, TimeoutError) and bound.expired():
                text = f"the holder of handler {handler} of {seat.group!r} has not answered within {timeout} s"
                raise CallTimeout(f"{text}: the call may or may not have been carried out") from None
            raise
        if asked.error is not None:
            raise asked.error
        if asked.answer is None:
            raise InvariantViolation("a call was settled without an answer and without an error")
        return asked.answer

    async def request(self, payload: Payload, handler: int, service: Service, type_: int) -> int:
        """Ask, and do not wait; the number of the message."""
        payload, service = self._checked(payload, handler, service, type_)
        seat = self._seat
        asked = await self._sending.take(lambda: seat.call(payload, service, handler, type_))
        seat.forget_call(asked)
        seat.hurry()
        return asked.number

    def _checked(self, payload: Payload, handler: int, service: Service, type_: int) -> tuple[bytes, Service]:
        """What a message that names a handler has: its payload, and its service."""
        payload = as_bytes(payload)
        check_handler(handler)
        check_call(len(payload), "a call")
        if service == UNRELIABLE:
            service = RELIABLE  # the order decides who must answer, and UNRELIABLE messages are not in it
        self._seat.check_locks()  # first: another service would not help
        self._seat.check(len(payload), service, type_)
        return payload, service
