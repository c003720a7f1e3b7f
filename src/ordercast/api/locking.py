"""Locks and handlers of the public API on asyncio (RMP section 3.3, docs/guides/calls-and-locks.md).

Every await may be cancelled: a lock that is granted after its task has gone away is given back.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from ordercast.api.seat import Seat
from ordercast.errors import LockDenied, UsageError
from ordercast.groups.events import Request
from ordercast.groups.locks import LockRequest
from ordercast.groups.requests import Inbox


class LockHolder(str):
    """The member that holds a lock, as name/life, with the fencing token of its grant. Of a client of a daemon, the
    daemon: which of its clients has the lock, only the daemon knows."""

    __slots__ = ("token",)

    token: int

    def __new__(cls, member: str, token: int) -> Self:
        holder = super().__new__(cls, member)
        holder.token = token
        return holder


class Lock:
    """A lock of a group: `async with group.lock("name") as lock`. At most one task of one member is inside.

    A member that is excluded from the group loses its locks: `is_held` turns false, and leaving the block is silent.
    """

    def __init__(self, seat: Seat, key: str, timeout: float | None) -> None:
        self._seat = seat
        self._key = key
        self._timeout = timeout
        self._request: LockRequest | None = None
        self._token = 0  # of the last grant

    def __repr__(self) -> str:
        state = "held" if self.is_held else "not held"
        return f"<{type(self).__name__} {self._key!r} of {self._seat.group!r}, {state}>"

    @property
    def key(self) -> str:
        """The name of the lock; of a handler, its number as text."""
        return self._key

    @property
    def is_held(self) -> bool:
        """Whether this member holds it now. Once this is false, the next holder may be at work."""
        return self._request is not None and self._request.is_held

    @property
    def token(self) -> int:
        """The fencing token of the grant: larger than that of every grant of any lock of the group before. It stays
        when the lock is lost, so that what this holder still has under way can be told from the work of the next one.
        """
        if not self._token:
            raise UsageError(f"{self._title} has no token: it has not been granted to this handle")
        return self._token

    async def acquire(self) -> None:
        """Wait for it. TimeoutError after the lock's timeout; the other errors are those of `send`.

        With a timeout of 0 the group is asked once, and its answer is the outcome: the lock is held, or `LockDenied`
        names the holder. That takes as long as the answer does.
        """
        if self._request is not None:
            raise UsageError(f"this handle of {self._title} is in use: make one handle for each block")
        tries_once = self._timeout == 0
        try:
            async with asyncio.timeout(None if tries_once else self._timeout) as bound:
                while not self.is_held:  # lost again before this task had its turn: wait for the next grant
                    self._give_up()
                    await self._ask(tries_once)
        except BaseException as error:
            self._give_up()
            holder = self._holder()
            if isinstance(error, LockDenied):
                holder = holder or error.holder
                why = f"is held by {holder}" if holder else f"was denied: {self._why_denied()}"
                raise LockDenied(f"{self._title} of {self._seat.group!r} {why}", holder) from None
            if isinstance(error, TimeoutError) and bound.expired():
                why = f": {holder} holds it" if holder else f": {self._why_denied()}" if self._is_short else ""
                text = f"{self._title} of {self._seat.group!r} was not granted within {self._timeout} s{why}"
                raise TimeoutError(text) from None
            raise

    def release(self) -> None:
        """Give it back; nothing happens where it is not held."""
        self._give_up()

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def _title(self) -> str:
        return f"lock {self._key!r}"

    def _holder(self) -> str:
        """The member that holds it as of the newest view, as name/life; empty if none does."""
        view = self._seat.view
        return view.holder(self._key) if view is not None else ""

    @property
    def _is_short(self) -> bool:
        return self._seat.short_of() is not None

    def _why_denied(self) -> str:
        short = self._seat.short_of()
        if short is None:
            return "the group holds as many locks as there may be"
        return f"the group has {short[0]} of the {short[1]} members that it needs to grant locks"

    def _want(self, tries_once: bool) -> LockRequest:
        return self._seat.lock(self._key, tries_once)

    async def _ask(self, tries_once: bool) -> None:
        seat = self._seat
        seat.check_locks()
        self._request = request = self._want(tries_once)
        request.waiter = asyncio.get_running_loop().create_future()
        seat.hurry()
        await request.waiter
        if request.error is not None:
            raise request.error
        self._token = request.token

    def _give_up(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            self._seat.give_up(request)
            if request.inbox is not None:
                request.inbox.close()
            self._seat.hurry()


class Handler(Lock):
    """A handler of a group: `async with group.handler(2) as h`, then `async for request in h`.

    It yields the calls that this member must answer, from members and from outside. They are events of the group as
    well, in their order; calls that were answered there are not yielded. Some task must go on receiving from the group.
    The iteration ends when the handler is lost.
    """

    def __init__(self, seat: Seat, handlers: set[Handler], handler: int, timeout: float | None) -> None:
        """`handlers`: those of the group that are held or waited for; this one enters itself."""
        super().__init__(seat, str(handler), timeout)
        self._handlers = handlers
        self._handler = handler
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

    def _settle(self) -> None:
        """A pass has worked on the group: requests may have come, or the handler may be lost."""
        if self._request is not None and not self._request.is_held and self._request.waiter.done():
            self._inbox.close()  # what waits there is no longer this member's to answer
            self._news.set()
        elif len(self._inbox):
            self._news.set()

    @property
    def _title(self) -> str:
        return f"handler {self._handler}"

    def _want(self, tries_once: bool) -> LockRequest:
        self._handlers.add(self)
        request = self._seat.serve(self._handler, tries_once)
        self._inbox = request.inbox if request.inbox is not None else Inbox()
        return request

    def _give_up(self) -> None:
        super()._give_up()
        self._handlers.discard(self)
        self._news.set()
