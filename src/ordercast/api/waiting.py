"""Futures of tasks that wait, and how they are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ordercast.api.seat import Waited


def wake(waiter: asyncio.Future[None] | None) -> None:
    """Let a task go on, unless nothing waits or the wait was cancelled."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def wake_all(settled: Iterable[Waited]) -> None:
    """Let the tasks go on that waited for what is settled."""
    for waited in settled:
        wake(waited.waiter)
