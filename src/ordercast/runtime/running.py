"""`ordercast.run`: a program that leaves its groups in order when it is told to stop.

SIGTERM is what systemd, containers and operators send, and SIGINT comes from the keyboard. Without a handler the first
one ends the process at once, and the other members have to find out. Here the first signal cancels the program's main
task. What it has opened with `async with` is closed on the way, and nodes that are open afterwards are closed here. A
second signal stops at once, as a crash would.

Handlers are Python's own and not the loop's: a second signal ends also a program whose loop is blocked.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

from ordercast.client.node import ClientNode, open_clients
from ordercast.errors import UsageError
from ordercast.runtime.node import Node, loop_factory, open_nodes

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
LEAVE_WITHIN_S: Final = 10.0
"""How long a program may take to end after a signal. systemd and containers kill after 90 s and 10 s by default."""
ENDED_BY: Final = 128
"""A program that a signal ended has the exit code of a shell: this and the signal's number."""

_log = logging.getLogger("ordercast.node")
_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T], *, debug: bool | None = None, leave_within: float = LEAVE_WITHIN_S) -> _T:
    """`asyncio.run`, on uvloop where it is installed, that leaves all groups in order at SIGTERM and SIGINT.

    The first signal cancels `main`. After it, and after any other end of `main`, nodes that are still open leave their
    groups. All this may take `leave_within` seconds. Then the program ends: with exit code 0 after SIGTERM, with
    KeyboardInterrupt after SIGINT, with exit code 1 if it took longer. A second signal stops at once, without leaving:
    exit code 128 and the signal's number. Where `main` returns all the same, its result is returned. `debug`: on
    asyncio's own loop, which can tell more. Signals reach the main thread only; in other threads this is `asyncio.run`
    that closes nodes.
    """
    if not isinstance(leave_within, int | float) or not leave_within > 0:
        main.close()
        raise UsageError(f"leave_within is a number of seconds above 0, not {leave_within!r}")
    with asyncio.Runner(debug=debug, loop_factory=None if debug else loop_factory()) as runner:
        return _Stopping(runner, leave_within).run(main)


def _open_ones(loop: asyncio.AbstractEventLoop) -> list[Node | ClientNode]:
    """What is to be closed: clients first, whose daemon may be one of the nodes."""
    return [*open_clients(loop), *open_nodes(loop)]


class _Stopping:
    """One program, and the signals that it gets."""

    __slots__ = ("_former", "_loop", "_runner", "_signal", "_stop", "_within_s")

    def __init__(self, runner: asyncio.Runner, within_s: float) -> None:
        self._runner = runner
        self._within_s = within_s
        self._loop = runner.get_loop()
        self._stop = asyncio.Event()
        self._signal: signal.Signals | None = None  # the first that came
        self._former: dict[signal.Signals, Any] = {}

    def run(self, main: Coroutine[Any, Any, _T]) -> _T:
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            task, ending = self._runner.run(self._supervise(main))
        finally:
            self._give_signals_back()
        if ending is not None:
            raise ending  # here, and not in the loop, which would be left in the middle of its work
        return task.result()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Between two instructions of the main thread."""
        if self._signal is None:
            self._signal = signal.Signals(number)
            self._loop.call_soon_threadsafe(self._stop.set)
            return
        for node in _open_ones(self._loop):
            node.abort()
        self._give_signals_back()
        raise SystemExit(ENDED_BY + number)

    def _give_signals_back(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}

    async def _supervise(self, main: Coroutine[Any, Any, _T]) -> tuple[asyncio.Task[_T], BaseException | None]:
        """The program, and what it is to end with instead of its own result."""
        task = self._loop.create_task(main)
        stop = self._loop.create_task(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        try:
            async with asyncio.timeout(self._within_s):
                if not task.done():
                    _log.info("%s: the program ends, and leaves its groups", self._told)
                    task.cancel()
                    await asyncio.wait((task,))
                await asyncio.gather(*(node.close() for node in _open_ones(self._loop)))
        except TimeoutError:
            names = ", ".join(str(node.member) for node in _open_ones(self._loop)) or "the program"
            _log.warning("%s: %s did not end within %g s, and is stopped", self._told, names, self._within_s)
            for node in _open_ones(self._loop):
                node.abort()
            if not task.done() or task.cancelled():
                return task, SystemExit(1)
        if not task.cancelled() or self._signal is None:
            return task, None
        is_pythons = self._former.get(self._signal) is signal.default_int_handler
        return task, KeyboardInterrupt() if is_pythons else SystemExit(0)  # as it would have been without us

    @property
    def _told(self) -> str:
        return self._signal.name if self._signal is not None else "end"
