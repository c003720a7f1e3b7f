"""A member's part in calls (RMP sections 3.3 and 4.5): which member answers, what was answered, and what comes again.

A call is delivered like any message. The member that holds its handler at that place of the order must answer; where no
handler is named, the token site acknowledges. Callers outside send again until something comes back: an answer is kept
to be sent again, an acknowledgement is repeated, and the call itself is handed over again only if the caller asked for
that. A call with a handler is acknowledged only when it comes again and has no answer yet, which tells the caller to be
patient; the answer itself is the usual acknowledgement, as in the paper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ordercast.engine import Engine, Outbox
from ordercast.errors import NotMember, OrdercastError, Unhandled, UsageError
from ordercast.groups.events import Answer, Message, Request
from ordercast.groups.locks import Locks
from ordercast.groups.requests import NOWHERE, Inbox, Incoming, PendingReply
from ordercast.service import Service
from ordercast.view import Address, Member
from ordercast.wire.calls import (
    ACKNOWLEDGED,
    ANSWERED,
    IS_ANSWER,
    NO_HANDLER,
    WANTS_ACK,
    WANTS_AGAIN,
    CallHead,
    Reply,
    encode_reply,
)

MAX_KEPT: Final = 4_096
MAX_KEPT_BYTES: Final = 8 << 20
"""Answers kept for callers that did not hear them, with the calls that have none yet; the oldest go first."""


class Asked:
    """A member here waits for the answer to its own call `number`."""

    __slots__ = ("answer", "error", "handler", "number", "waiter")

    def __init__(self, number: int, handler: int) -> None:
        self.number = number
        self.handler = handler
        self.answer: bytes | None = None
        self.error: OrdercastError | None = None
        self.waiter: Any = None  # the API's: a future


class Calls:
    """The calls of one port. Answers leave with the next pass (`send`); `settled` is for the API to take."""

    __slots__ = (
        "_asked",
        "_engine",
        "_group",
        "_kept",
        "_kept_bytes",
        "_locks",
        "_me",
        "_node",
        "_out",
        "_owner",
        "_stay",
        "_to_callers",
        "_to_group",
        "respond",
        "settled",
    )

    def __init__(
        self, group: str, me: Member, node: int, engine: Engine, locks: Locks, out: Outbox, owner: object
    ) -> None:
        """`node`: the id of the node, in whose name the session `me` sends and holds locks. `owner`: of its locks."""
        self._group = group
        self._me = me
        self._node = node
        self._owner = owner
        self._engine = engine
        self._locks = locks
        self._out = out
        self.respond: Callable[[PendingReply, bytes], Awaitable[None]] | None = None  # the API's
        # what others ask
        self._stay = 0  # counts memberships
        self._kept: dict[tuple[int, int], PendingReply] = {}  # (caller, number) -> what it is owed, oldest first
        self._kept_bytes = 0
        self._to_callers: list[PendingReply] = []  # answers that are to leave
        self._to_group: list[PendingReply] = []  # answers that were queued as messages
        # what this member asks
        self._asked: dict[int, Asked] = {}
        self.settled: list[Asked] = []

    # This member asks.

    def ask(self, number: int, handler: int) -> tuple[Asked, CallHead]:
        """The call `number` of this member is about to be queued."""
        asked = self._asked[number] = Asked(number, handler)
        return asked, CallHead(0, 0, handler, str(self._me), NOWHERE)

    def forget(self, asked: Asked) -> None:
        """Nobody waits for the answer any more."""
        self._asked.pop(asked.number, None)

    def fail(self, error: OrdercastError, stop: int | None = None) -> None:
        """Waits for an answer (to a call below `stop`) end with `error`."""
        for number in [number for number in self._asked if stop is None or number < stop]:
            self._settle(number, None, error)

    # This member is asked.

    def deliver(self, call: Incoming) -> Message:
        """A call, or an answer, at its place: what the application gets."""
        head = call.head
        if head.flags & IS_ANSWER:
            if head.asker == self._node and head.asked_by == str(self._me):
                self._settle(head.asked, call.payload, None)
            return Answer(*self._message(call), (head.asked_by, head.asked))
        if head.handler == NO_HANDLER:
            if call.is_outside and head.flags & WANTS_ACK and self._engine.answers(call.origin, call.number):
                self._acknowledge(call)
            return Request(*self._message(call), None, None)
        holder = self._locks.held_by.get(str(head.handler))
        if holder is None and call.sender == str(self._me) and not call.is_outside:
            text = f"nobody holds handler {head.handler} of {self._group!r}: the call was delivered and is not answered"
            self._settle(call.first, None, Unhandled(text))
        if holder != self._node or self._locks.owner(str(head.handler)) not in (None, self._owner):
            return Request(*self._message(call), head.handler, None)
        owed = PendingReply(call, self._stay, self.respond)
        if call.is_outside:
            self._keep(owed)
        return self._hand_over(call, owed, self._inbox(head.handler))

    def again(self, call: Incoming) -> bool:
        """A call that was delivered here comes again. Whether it is handed over once more."""
        if not call.is_outside:
            return False
        head = call.head
        owed = self._kept.get((call.origin, call.number))
        if owed is not None and owed.answer is not None:
            self._send(owed)
            return False
        is_again = False
        inbox = self._inbox(head.handler)
        if inbox is not None:
            if owed is not None and owed.request is not None and owed.is_dropped:
                inbox.put(owed, owed.request)  # not for the second time: there was no room for the first
            elif head.flags & WANTS_AGAIN and not (owed is not None and owed.is_waiting):
                if owed is None:
                    owed = PendingReply(call, self._stay, self.respond)
                    self._keep(owed)
                owed.is_again = is_again = True
                self._hand_over(call, owed, inbox)
        if head.flags & WANTS_ACK and self._engine.answers(call.origin, call.number):
            self._acknowledge(call)
        return is_again

    def answer(self, owed: PendingReply, payload: bytes) -> CallHead | None:
        """Take an answer: the head of the message that is to carry it to the group, None where it goes to a caller."""
        if owed.stay != self._stay:
            raise NotMember(f"this node was out of {self._group!r} since call {owed.first} of {owed.sender} came to it")
        if owed.answer is not None:
            if owed.is_again:
                return None  # the application has the call more than once, and its first answer counts
            raise UsageError(f"call {owed.first} of {owed.sender} has been answered: there is at most one answer")
        owed.answer = payload
        if not owed.is_outside:
            self._to_group.append(owed)
            me, asker = str(self._me), owed.sender
            return CallHead(0, IS_ANSWER, NO_HANDLER, me, NOWHERE, owed.origin, owed.first, asker)
        if self._kept.get((owed.origin, owed.number)) is owed:
            self._kept_bytes += len(payload)
            self._limit()
        self._to_callers.append(owed)
        return None

    @property
    def is_waiting(self) -> bool:
        """Whether this member waits for an answer."""
        return bool(self._asked)

    def handlers(self) -> list[int]:
        """The handlers whose answers are waited for, the longest wait first."""
        return [asked.handler for asked in self._asked.values()]

    def marks(self) -> tuple[object, ...]:
        """It changes when a call has been answered."""
        return tuple(self._asked)

    @property
    def has_answers(self) -> bool:
        return bool(self._to_callers or self._to_group)

    def send(self) -> list[PendingReply]:
        """Let the answers of this pass leave; which they were, those to the group included."""
        for owed in self._to_callers:
            self._send(owed)
        sent = self._to_callers + self._to_group
        self._to_callers, self._to_group = [], []
        return sent

    def on_gone(self) -> None:
        """This node is out: others answer now, and what was owed is void."""
        self._stay += 1
        self._kept.clear()
        self._kept_bytes = 0
        self._to_callers.clear()

    # In detail.

    def _inbox(self, handler: int) -> Inbox | None:
        """Where requests wait for the task that serves the handler here."""
        claim = self._locks.holder(str(handler))
        return claim.inbox if claim is not None else None

    def _message(self, call: Incoming) -> tuple[bytes, str, int, int, Service, int, str, str]:
        return message_of(call, self._group)

    def _hand_over(self, call: Incoming, owed: PendingReply, inbox: Inbox | None) -> Request:
        owed.request = request = Request(*self._message(call), call.head.handler, owed)
        if inbox is not None:
            inbox.put(owed, request)
        return request

    def _settle(self, number: int, answer: bytes | None, error: OrdercastError | None) -> None:
        asked = self._asked.pop(number, None)
        if asked is not None:
            asked.answer, asked.error = answer, error
            self.settled.append(asked)

    def _keep(self, owed: PendingReply) -> None:
        self._kept[owed.origin, owed.number] = owed
        self._limit()

    def _limit(self) -> None:
        while len(self._kept) > MAX_KEPT or (self._kept_bytes > MAX_KEPT_BYTES and len(self._kept) > 1):
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_bytes -= len(oldest.answer or b"")

    def _acknowledge(self, call: Incoming) -> None:
        self._reply(call.head.address, call.number, Reply(call.origin, ACKNOWLEDGED, call.position, b""))

    def _send(self, owed: PendingReply) -> None:
        self._reply(
            owed.address,
            owed.number,
            Reply(owed.origin, ANSWERED, owed.position, owed.answer or b""),
        )

    def _reply(self, to: Address, number: int, reply: Reply) -> None:
        self._engine.reply(to, number, encode_reply(reply), self._out)


def message_of(call: Incoming, group: str) -> tuple[bytes, str, int, int, Service, int, str, str]:
    """What each message of a call or an answer begins with."""
    return (call.payload, call.sender, call.first, call.position, call.service, call.type, group, call.view)


def shown_call(call: Incoming, group: str) -> Message:
    """A call, or an answer, to a session that has no part in it."""
    head = call.head
    if head.flags & IS_ANSWER:
        return Answer(*message_of(call, group), (head.asked_by, head.asked))
    return Request(*message_of(call, group), head.handler if head.handler != NO_HANDLER else None, None)
