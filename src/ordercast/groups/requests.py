"""Calls as they reach a member, and what waits for the task that serves a handler there (RMP section 3.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.groups.events import NO_POSITION, Request
from ordercast.service import Service
from ordercast.view import Address, id_of
from ordercast.wire.block import ENTRY, HEAD_BYTES, head_of, service_of
from ordercast.wire.calls import CallHead, open_call

INBOX_REQUESTS: Final = 1_024
"""Requests that wait for a handler's application. Beyond it newcomers are dropped and counted: callers try again."""

NOWHERE: Final[Address] = ("", 0)  # of a member's call: it is answered to the group


class Incoming(NamedTuple):
    """A call as it comes from the engine, opened."""

    origin: int
    number: int  # of a caller outside: counts its calls
    position: int  # -1: none
    sender: str
    first: int  # number of its message
    service: Service
    type: int
    view: str
    head: CallHead
    payload: bytes

    @property
    def is_outside(self) -> bool:
        return self.head.address != NOWHERE


def read_call(origin: int, number: int, position: int, block: bytes, view: str, names: dict[int, str]) -> Incoming:
    """Open the block of a call. A caller outside gives its name, which counts if its id follows from it."""
    head, payload = open_call(block)
    front = head_of(block)
    sender = names.get(origin)
    if sender is None:
        sender = head.caller if id_of(head.caller) == origin else f"{origin:016x}"
    service = service_of(front.rank, front.k)
    type_ = ENTRY.unpack_from(block, HEAD_BYTES)[1]
    shown_at = position if service.is_ordered else NO_POSITION
    return Incoming(origin, number, shown_at, sender, front.first, service, type_, view, head, payload)


class PendingReply:
    """An answer that this member owes: to the caller at `address`, or to the whole group."""

    __slots__ = (
        "_respond",
        "address",
        "answer",
        "first",
        "is_again",
        "is_dropped",
        "is_waiting",
        "number",
        "origin",
        "position",
        "request",
        "sender",
        "stay",
    )

    def __init__(
        self, call: Incoming, stay: int, respond: Callable[[PendingReply, bytes], Awaitable[None]] | None
    ) -> None:
        self._respond = respond
        self.stay = stay  # the membership in which it was incurred: it ends with that
        self.origin = call.origin
        self.number = call.number
        self.first = call.first
        self.sender = call.sender
        self.address = call.head.address
        self.position = call.position
        self.answer: bytes | None = None
        self.request: Request | None = None
        self.is_waiting = False  # in an inbox
        self.is_dropped = False  # there was no room in it
        self.is_again = False  # handed over more than once

    @property
    def is_outside(self) -> bool:
        return self.address != NOWHERE

    async def give(self, payload: bytes) -> None:
        if self._respond is None:
            raise UsageError("there is no event loop: answer by Port.answer")
        await self._respond(self, payload)


class Inbox:
    """Requests for the task that serves one handler, in their order."""

    __slots__ = ("_requests", "dropped", "is_closed", "waiter")

    def __init__(self) -> None:
        self._requests: deque[tuple[PendingReply, Request]] = deque()
        self.dropped = 0
        self.is_closed = False
        self.waiter: Any = None  # the API's: a future

    def __len__(self) -> int:
        return len(self._requests)

    def put(self, owed: PendingReply, request: Request) -> bool:
        if len(self._requests) >= INBOX_REQUESTS:
            # Those that were answered on their way through the group's events need no room.
            self._requests = deque(item for item in self._requests if item[0].answer is None)
        if self.is_closed or len(self._requests) >= INBOX_REQUESTS:
            owed.is_dropped = True
            self.dropped += 1
            return False
        owed.is_waiting, owed.is_dropped = True, False
        self._requests.append((owed, request))
        return True

    def take(self) -> tuple[PendingReply, Request] | None:
        """The next request that has no answer yet."""
        while self._requests:
            owed, request = self._requests.popleft()
            owed.is_waiting = False
            if owed.answer is None:
                return owed, request
        return None

    def close(self) -> None:
        self.is_closed = True
        for owed, _ in self._requests:
            owed.is_waiting = False
        self._requests.clear()
