"""Whether a group works for its member, and a wait for that: `await group.ready()`."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Final

from ordercast.api.seat import Seat

LOOK_S: Final = 0.1
"""How often a task that waits looks again. What it waits for may happen to an underlay, of which its group hears
nothing."""


class Readiness:
    """The tasks that wait until one group works."""

    __slots__ = ("_news", "_seat")

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._news = asyncio.Event()

    def settle(self) -> None:
        """A pass has worked on the group."""
        self._news.set()

    def lacks(self) -> str:
        """What keeps the group from working, as the end of a sentence; empty if it works."""
        seat = self._seat
        if seat.view is None:
            return "this node is not in it yet"
        if seat.failure is not None:
            return f"it has failed ({seat.failure}): call reset()"
        if not seat.is_working:
            return "a recovery is under way"
        short = seat.short_of()
        return f"it has {short[0]} of the {short[1]} members that it needs" if short is not None else ""

    async def wait(self, timeout: float | None) -> None:
        """Return when the group works; TimeoutError says what it lacks. Raises where this node is out for good."""
        seat, time = self._seat, asyncio.get_running_loop().time
        stop = time() + timeout if timeout is not None else math.inf
        while lacking := self.lacks():
            if seat.error is not None or seat.gone is not None or seat.is_leaving:
                seat.check_open()
            if time() >= stop:
                raise TimeoutError(f"{seat.group!r} is not ready after {timeout} s: {lacking}")
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(LOOK_S, stop - time()))
