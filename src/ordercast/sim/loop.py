"""An asyncio event loop in virtual time: where another loop would wait for sockets, this one lets the world go on.

`asyncio.sleep(3600)` takes no time at all, and one seed gives one run: callbacks run in the order in which they became
ready, between two events of the world. Programs see `loop.time()` as virtual seconds. There are no sockets, threads or
signals in here; a program that needs them is not one that can be simulated.
"""

from __future__ import annotations

import asyncio
from asyncio import base_events
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from ordercast.config import SECOND
from ordercast.engine import NEVER
from ordercast.errors import OrdercastError
from ordercast.sim.world import World

DEFAULT_LIMIT_NS: Final = 3_600 * SECOND

T = TypeVar("T")


class SimulationStuck(OrdercastError):
    """The program waits for something that cannot happen, or did not within the virtual time it was given."""


class _WorldSelector:
    """Stands where a loop asks its sockets: `select` lets events of the world happen instead of waiting."""

    __slots__ = ("_limit_ns", "_loop", "_world")

    def __init__(self, loop: VirtualTimeLoop, world: World, limit_ns: int) -> None:
        self._loop = loop
        self._world = world
        self._limit_ns = limit_ns

    def select(self, timeout: float | None) -> list[Any]:
        world = self._world
        if timeout is not None and timeout <= 0:
            return []
        # Rounded up: a timer that is due a fraction of a nanosecond later would otherwise be waited for in vain.
        until_ns = NEVER if timeout is None else world.now_ns + int(timeout * SECOND) + 1
        limit_ns = min(until_ns, self._limit_ns)
        ready = self._loop.ready_callbacks
        while not ready:
            if timeout is None and not world.has_events:
                raise SimulationStuck("the program waits, and nothing is left in the world that could happen")
            if not world.step(limit_ns):
                if world.now_ns >= self._limit_ns:
                    raise SimulationStuck(f"the program has not ended by {self._limit_ns / SECOND:g} s of virtual time")
                break
        return []

    def close(self) -> None:
        """Nothing to close; the loop asks."""


class VirtualTimeLoop(base_events.BaseEventLoop):
    """Runs callbacks between the events of one world.

    It builds on `BaseEventLoop`, whose few hooks (`_selector`, `_process_events`, `_write_to_self`) have been the same
    since Python 3.4, instead of on `SelectorEventLoop`, which opens a pair of real sockets for itself.
    """

    def __init__(self, world: World, limit_ns: int = DEFAULT_LIMIT_NS) -> None:
        super().__init__()
        self.world = world
        self._selector = _WorldSelector(self, world, limit_ns)
        self._clock_resolution = 1 / SECOND

    @property
    def ready_callbacks(self) -> Any:
        return self._ready  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.world.now_ns / SECOND

    def _process_events(self, event_list: list[Any]) -> None:
        """No sockets, no events."""

    def _write_to_self(self) -> None:
        """Nobody but this thread can want to wake the loop."""


def run_in_world(
    world: World,
    program: Coroutine[Any, Any, T],
    limit_ns: int = DEFAULT_LIMIT_NS,
    loop: VirtualTimeLoop | None = None,
) -> T:
    """Run a program to its end in virtual time; what it left running is cancelled, as `asyncio.run` does."""
    loop = loop if loop is not None else VirtualTimeLoop(world, limit_ns)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(program)
    finally:
        try:
            _cancel_rest(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_rest(loop: VirtualTimeLoop) -> None:
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    if rest:
        with suppress(SimulationStuck):
            loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
