"""Locks, handlers and calls of a client (RMP section 3.3): what it holds, waits for, and has been asked.

The daemon has the order and knows the holders (`daemon/calls.py`). A call, like an answer, is a message of the client
with a number of its own, and goes through the send queue. When the connection is lost the session's locks are, too, and
nobody knows of calls that were on their way; what is still wanted is asked for on the next connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ordercast.api.seat import Waited
from ordercast.errors import (
    GroupFailed,
    LockDenied,
    MessageTooLarge,
    NotMember,
    OrdercastError,
    OutcomeUnknown,
    Unhandled,
    UsageError,
)
from ordercast.groups.calls import Asked, message_of, shown_call
from ordercast.groups.events import CallBatch, Request
from ordercast.groups.locks import LockRequest
from ordercast.groups.requests import NOWHERE, Inbox, Incoming, PendingReply
from ordercast.service import AGREED, Service
from ordercast.wire.block import Head, service_of, type_of
from ordercast.wire.call_frames import (
    OWED,
    CallOutcome,
    GrantOutcome,
    LockAsk,
    decode_answered,
    decode_grant,
    encode_lock,
    encode_unlock,
)
from ordercast.wire.calls import IS_ANSWER, NO_HANDLER, CallHead, open_call, pack_call

if TYPE_CHECKING:
    from ordercast.client.seats import CalledGroup, ClientSeat
    from ordercast.client.session import ClientSession

MAX_CLAIMS: Final = 4_096
"""Locks that one client holds or waits for: more than that a daemon does not take."""

MAX_ASKED: Final = 4_096
"""Calls of one client whose answers are awaited: of more than that a daemon gives up the oldest."""

_CALL_ERRORS: Final[dict[CallOutcome, type[OrdercastError]]] = {
    CallOutcome.NOT_MEMBER: NotMember,
    CallOutcome.FAILED: GroupFailed,
    CallOutcome.UNHANDLED: Unhandled,
}


class ClientCalls:
    """The locks and calls of one client, over all its connections."""

    __slots__ = ("_asked", "_claims", "_ids", "_next_id", "_out", "_released", "_session", "settled")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._claims: dict[int, tuple[LockRequest, ClientSeat]] = {}
        self._ids: dict[LockRequest, int] = {}
        self._next_id = 1
        self._asked: dict[int, tuple[Asked, ClientSeat]] = {}  # by number of the message
        self._out: list[bytes] = []  # requests for locks that are to leave
        self._released: list[bytes] = []  # behind what was sent while they were held
        self.settled: list[Waited] = []

    # What the API asks for.

    def claim(self, seat: ClientSeat, key: str, inbox: Inbox | None, tries_once: bool) -> LockRequest:
        """Want a lock, or with an `inbox` a handler."""
        if len(self._claims) >= MAX_CLAIMS:
            raise UsageError(f"a client has, or waits for, at most {MAX_CLAIMS} locks")
        request = LockRequest(key, inbox, tries_once, seat)
        id_, self._next_id = self._next_id, self._next_id % 0xFFFF_FFFF + 1
        self._claims[id_] = (request, seat)
        self._ids[request] = id_
        if self._session.is_connected:
            self._tell(id_, request, seat)
        return request

    def give_up(self, request: LockRequest) -> None:
        id_ = self._ids.pop(request, None)
        request.is_held = False
        if id_ is not None:
            del self._claims[id_]
            if self._session.is_connected:
                self._released.append(encode_unlock(id_))

    def call(
        self,
        seat: ClientSeat,
        payload: bytes,
        service: Service,
        handler: int,
        type_: int,
        target: CalledGroup | None = None,
    ) -> Asked | None:
        """Queue a call; None: the queue is full. `target`: a group that the client is not in."""
        queue = self._session.queue
        if not queue.has_room:
            return None
        if len(self._asked) >= MAX_ASKED:
            raise UsageError(f"a client waits for the answers of at most {MAX_ASKED} calls: wait for some of them")
        head = CallHead(0, 0, handler, str(seat.member), NOWHERE)
        self._check_size(head, payload, "a call")
        asked = Asked(queue.end_number, handler)
        self._asked[asked.number] = (asked, seat)
        queue.offer_call(payload, service, type_, head, target or seat)
        return asked

    def forget(self, asked: Asked) -> None:
        """No task waits for the answer any more."""
        self._asked.pop(asked.number, None)

    def answer(self, seat: ClientSeat, owed: PendingReply, payload: bytes) -> bool:
        """Answer a call; False: the queue is full."""
        if seat.view is None or seat.is_leaving or owed.stay != seat.stay:
            raise NotMember(f"this node was out of {seat.group!r} since call {owed.first} of {owed.sender} came to it")
        if owed.answer is not None:
            raise UsageError(f"call {owed.first} of {owed.sender} has been answered: there is at most one answer")
        queue = self._session.queue
        if not queue.has_room:
            return False
        head = CallHead(0, IS_ANSWER, NO_HANDLER, str(seat.member), NOWHERE, owed.origin, owed.first, owed.sender)
        self._check_size(head, payload, "an answer")
        owed.answer = payload
        queue.offer_call(payload, AGREED, 0, head, seat)
        return True

    def _check_size(self, head: CallHead, payload: bytes, what: str) -> None:
        over = len(pack_call(0, AGREED, head, payload)) - self._session.terms.block_bytes
        if over > 0:
            raise MessageTooLarge(
                f"{what} of {len(payload)} bytes exceeds {len(payload) - over}: it has to fit one block"
            )

    # The connection.

    def on_welcome(self, step: int) -> None:
        """Another connection, where what has not left has numbers that are larger by `step`. Groups are joined again,
        and locks that are still wanted are asked for behind that."""
        asked = [each for each, _ in self._asked.values()]
        for each in asked:
            each.number += step
        self._asked = {each.number: (each, seat) for each, seat in self._asked.values()}
        for id_, (request, seat) in self._claims.items():
            self._tell(id_, request, seat)

    def on_lost(self, number: int, text: str) -> None:
        """The connection is lost, and all locks with it. Calls below `number` were on their way."""
        self._out.clear()
        self._released.clear()
        for request, _ in [each for each in self._claims.values() if each[0].is_held]:
            self._lose(request)
        error = OutcomeUnknown(f"the connection was lost before the answer came: {text}")
        for asked, _ in [each for each in self._asked.values() if each[0].number < number]:
            self._end_call(asked, None, error)

    def end_seat(self, seat: ClientSeat, error: OrdercastError) -> None:
        """The client is out of a group for good."""
        for request, _ in [each for each in self._claims.values() if each[1] is seat]:
            self._end_claim(request, error)
        for asked, _ in [each for each in self._asked.values() if each[1] is seat]:
            self._end_call(asked, None, error)

    def fail(self, error: OrdercastError) -> None:
        """All waits end."""
        for request, _ in list(self._claims.values()):
            self._end_claim(request, error)
        for asked, _ in list(self._asked.values()):
            self._end_call(asked, None, error)

    # What leaves.

    def pump(self, out: list[bytes]) -> None:
        """Requests for locks."""
        out += self._out
        self._out.clear()

    def pump_released(self, out: list[bytes]) -> None:
        """Locks that are given back: behind the messages that were sent while they were held."""
        out += self._released
        self._released.clear()

    def _tell(self, id_: int, request: LockRequest, seat: ClientSeat) -> None:
        self._out.append(encode_lock(LockAsk(id_, seat.number, request.tries_once, request.key)))

    # What comes.

    def deliver(self, seat: ClientSeat, block: bytes, head: Head, sender: str, position: int, view: str) -> CallBatch:
        """A call, or an answer, as the application gets it."""
        call, payload = open_call(block)
        service = service_of(head.rank, head.k)
        came = Incoming(0, 0, position, sender, head.first, service, type_of(block), view, call, payload)
        if call.flags & OWED:
            owed = PendingReply(came, seat.stay, seat.respond)
            owed.request = request = Request(*message_of(came, seat.group), call.handler, owed)
            inbox = self._inbox(seat, str(call.handler))
            if inbox is not None:
                inbox.put(owed, request)
            return CallBatch(request)
        return CallBatch(shown_call(came, seat.group))

    def _inbox(self, seat: ClientSeat, key: str) -> Inbox | None:
        """Where requests wait for the task that serves a handler."""
        for request, other in self._claims.values():
            if other is seat and request.key == key and request.is_held:
                return request.inbox
        return None

    def on_grant(self, body: bytes) -> None:
        id_, outcome, token, text = decode_grant(body)
        request, seat = self._claims.get(id_, (None, None))
        if request is None or seat is None:
            return  # it was given up meanwhile
        self._session.note(seat)
        if outcome == GrantOutcome.HELD:
            request.is_held, request.token = True, token
            self.settled.append(request)
        elif outcome == GrantOutcome.LOST:
            self._lose(request)
        elif outcome == GrantOutcome.DENIED:
            self._end_claim(request, LockDenied(f"lock {request.key!r} is not free", text))
        else:
            self._end_claim(request, GroupFailed(text) if outcome == GrantOutcome.FAILED else NotMember(text))

    def on_answered(self, body: bytes) -> None:
        number, outcome, text, answer = decode_answered(body)
        asked, _ = self._asked.get(number, (None, None))
        if asked is not None and outcome == CallOutcome.ANSWERED:
            self._end_call(asked, answer, None)
        elif asked is not None:
            self._end_call(asked, None, _CALL_ERRORS.get(outcome, OutcomeUnknown)(text))

    # In detail.

    def _lose(self, request: LockRequest) -> None:
        request.is_held = False
        id_ = self._ids.pop(request)
        _, seat = self._claims.pop(id_)
        self._session.note(seat)
        self.settled.append(request)

    def _end_claim(self, request: LockRequest, error: OrdercastError) -> None:
        if not request.is_held:
            request.error = error
        self._lose(request)

    def _end_call(self, asked: Asked, answer: bytes | None, error: OrdercastError | None) -> None:
        self._asked.pop(asked.number, None)
        asked.answer, asked.error = answer, error
        self.settled.append(asked)
