"""A thread that runs an event loop, and calls from other threads that wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ordercast.errors import NotMember, UsageError
from ordercast.runtime.node import loop_factory
from ordercast.runtime.udp.options import OUT_OF_DESCRIPTORS, out_of_descriptors

_T = TypeVar("_T")


class LoopThread:
    """It runs from the beginning until `stop`."""

    __slots__ = ("_loop", "_thread")

    def __init__(self) -> None:
        try:
            factory = loop_factory()
            self._loop = factory() if factory is not None else asyncio.new_event_loop()
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise out_of_descriptors(error) from error
            raise
        self._thread = threading.Thread(target=self._run, name="ordercast", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def call(self, call: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Run a coroutine on the loop and wait for it."""
        if not self._thread.is_alive():
            call.close()
            raise NotMember("this node has been closed")
        if threading.current_thread() is self._thread:
            call.close()
            raise UsageError("blocking calls cannot be made from the node's own thread")

        async def bounded() -> _T:
            bound = asyncio.timeout(timeout)
            try:
                async with bound:
                    return await call
            except TimeoutError:
                if not bound.expired():
                    raise  # the call's own
                raise TimeoutError(f"the call was not done within {timeout} s") from None

        future: Future[_T] = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def read(self, read: Callable[[], _T]) -> _T:
        """Call something on the loop's thread, where no state changes meanwhile."""

        async def call() -> _T:
            return read()

        return self.call(call())

    def stop(self) -> None:
        """End the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
