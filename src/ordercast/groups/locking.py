"""Locks and handlers of the public API on asyncio (RMP section 3.3, docs/guides/calls-and-locks.md).

Every await may be cancelled: a lock that is granted to somebody who has gone away is given back.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ordercast.errors import UsageError
from ordercast.groups.events import Request
from ordercast.groups.locks import LockRequest
from ordercast.groups.requests import Inbox

if TYPE_CHECKING:
    from ordercast.groups.group import Group


class Lock:
    """A lock of a group: `async with group.lock("name") as lock`. At most one task of one member is inside.

    Who is excluded from the group loses what it holds: `is_held` turns false, and leaving the block is silent.
    """

    def __init__(self, group: Group, key: str, timeout: float | None) -> None:
        self._group = group
        self._key = key
        self._timeout = timeout
        self._claim: LockRequest | None = None

    @property
    def key(self) -> str:
        return self._key

    @property
    def is_held(self) -> bool:
        """Whether it is ours now. What is done with it after that may meet what its next holder does."""
        return self._claim is not None and self._claim.is_held

    async def acquire(self) -> None:
        """Wait for it. TimeoutError where that takes longer than the lock's timeout; errors of the group as `send`."""
        if self._claim is not None:
            raise UsageError(f"this handle of lock {self._key!r} is in use: make one for each block")
        try:
            async with asyncio.timeout(self._timeout) as bound:
                while not self.is_held:  # lost again before this task had its turn: wait for the next
                    self._give_up()
                    await self._ask()
        except BaseException as error:
            self._give_up()
            if isinstance(error, TimeoutError) and bound.expired():
                text = f"lock {self._key!r} of {self._group.name!r} was not granted within {self._timeout} s"
                raise TimeoutError(text) from None
            raise

    def release(self) -> None:
        """Give it back; nothing where it is not held."""
        self._give_up()

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _wanted(self) -> LockRequest:
        return self._group._port.locks.claim(self._key)

    async def _ask(self) -> None:
        group = self._group
        group._check_locks()
        self._claim = claim = self._wanted()
        claim.waiter = asyncio.get_running_loop().create_future()
        group._now()
        await claim.waiter
        if claim.error is not None:
            raise claim.error

    def _give_up(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            self._group._port.locks.give_up(claim)
            if claim.inbox is not None:
                claim.inbox.close()
            self._group._now()


class Handler(Lock):
    """A handler of a group: `async with group.handler(2) as h`, then `async for request in h`.

    It yields the calls that this member must answer, from members and from outside. They are events of the group as
    well, in their place; those that were answered there are not yielded. Some task must go on receiving from the group.
    The iteration ends where the handler is lost.
    """

    def __init__(self, group: Group, handler: int, timeout: float | None) -> None:
        super().__init__(group, str(handler), timeout)
        self._inbox = Inbox()
        self._news = asyncio.Event()

    @property
    def dropped(self) -> int:
        """Requests that found no room here; their callers try again."""
        return self._inbox.dropped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Request:
        while True:
            found = self._inbox.take()
            if found is not None:
                return found[1]
            if not self.is_held:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    def _wanted(self) -> LockRequest:
        self._inbox = Inbox()
        self._group._handlers.add(self)
        return self._group._port.locks.claim(self._key, self._inbox)

    def _give_up(self) -> None:
        super()._give_up()
        self._group._handlers.discard(self)
        self._news.set()

    def _settle(self) -> None:
        """A pass has worked on the port."""
        if self._claim is not None and not self._claim.is_held and self._claim.waiter.done():
            self._inbox.close()  # lost: what waits there is no longer this member's to answer
            self._news.set()
        elif len(self._inbox):
            self._news.set()
