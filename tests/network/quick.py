"""What tests between real nodes share: short timers, names of their own, and an end however they go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from itertools import count
from typing import Any

from ordercast import Timing, run
from ordercast.config import MS, SECOND

# A member counts as dead sooner here, so that crashes do not make the tests slow; but not so soon that a busy machine
# does it.
QUICK = Timing(
    heartbeat_busy_ns=20 * MS,
    suspect_busy_ns=700 * MS,
    heartbeat_rest_ns=30 * MS,
    suspect_rest_ns=900 * MS,
    find_ns=20 * MS,
    invite_ns=20 * MS,
    recovery_wait_ns=200 * MS,
    linger_ns=200 * MS,
)
# Nobody counts as dead, however long a busy machine lets it wait: for tests that nobody fails in.
PATIENT = replace(QUICK, suspect_busy_ns=600 * SECOND, suspect_rest_ns=600 * SECOND)
Test = Callable[..., Coroutine[Any, Any, None]]
_numbers = count()


def within(seconds: float) -> Callable[[Test], Callable[..., None]]:
    """Run a test on a loop of its own, and fail it if it takes longer."""

    def on_loop(test: Test) -> Callable[..., None]:
        @wraps(test)
        def call(*arguments: Any, **named: Any) -> None:
            run(asyncio.wait_for(test(*arguments, **named), seconds))

        return call

    return on_loop


def fresh() -> str:
    """A group name that no other test, and no other run on this host, has."""
    return f"test-{os.getpid()}-{next(_numbers)}"
