"""Locks, handlers and calls of one session of a daemon (RMP section 3.3), as its adapter has them.

The underlay knows which node holds a lock. The sessions of a daemon take turns, as the tasks of a program do, and a
lock goes back to the group between two of them (`groups/locks.py`). What a session held is given back when it is out
of the group, however it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ordercast.config import MAX_BLOCK
from ordercast.errors import GroupFailed, LockDenied, NotMember, OutcomeUnknown, Unhandled, UsageError, WireError
from ordercast.groups.calls import Asked
from ordercast.groups.events import Message, Request
from ordercast.groups.locks import LockRequest
from ordercast.groups.port import Port
from ordercast.groups.requests import NOWHERE, PendingReply
from ordercast.groups.watches import Watch
from ordercast.service import AGREED, Service
from ordercast.wire.block import Head, service_of, type_of
from ordercast.wire.call_frames import CallEnd, CallOutcome, Grant, GrantOutcome, encode_answered, encode_grant
from ordercast.wire.calls import IS_ANSWER, NO_HANDLER, CallHead, open_call, pack_call

if TYPE_CHECKING:
    from ordercast.daemon.seat import SessionSeat

MAX_CLAIMS: Final = 4_096
"""Locks that one session holds or waits for. At the bound it is disconnected."""

MAX_ASKED: Final = 4_096
"""Calls of one session that wait for their answers. Beyond it the oldest ends: a client does not say of which calls it
awaits no answer any more, and an answer may never come."""

MAX_OWED: Final = 4_096
"""Answers that one session owes. Beyond it the oldest can no longer be given."""


_OUTCOMES: Final = {
    NotMember: CallOutcome.NOT_MEMBER,
    GroupFailed: CallOutcome.FAILED,
    Unhandled: CallOutcome.UNHANDLED,
}


class TooLate(NotMember):
    """An answer came when it was no longer this session's to give: its daemon has been out of the underlay since."""


class SessionClaim(NamedTuple):
    """A lock that a session has asked for, under an id of its own."""

    port: Port
    request: LockRequest


class SessionCalls:
    """The locks and calls of one session. Made when it first uses them, or is first asked."""

    __slots__ = ("_asked", "_claims", "_ids", "_owed", "_ports", "_seat", "answered", "settled")

    def __init__(self, seat: SessionSeat) -> None:
        self._seat = seat
        self._ports: dict[Port, None] = {}  # of groups whose locks or calls it has used
        self._claims: dict[int, SessionClaim] = {}
        self._ids: dict[LockRequest, int] = {}
        self._asked: dict[Asked, Port | None] = {}  # the oldest first; None: to a group that the session is not in
        self._owed: dict[tuple[str, int], tuple[Port, PendingReply]] = {}  # by caller and number, the oldest first
        # what has come to an end, for the adapter to take
        self.settled: list[tuple[int, LockRequest]] = []
        self.answered: list[Asked] = []

    # Locks.

    def lock(self, id_: int, group: str, key: str, tries_once: bool) -> None:
        """Want a lock; it comes back in `settled` when it is held, lost or denied."""
        if id_ in self._claims:
            raise WireError(f"lock {id_} is in use")
        if len(self._claims) >= MAX_CLAIMS:
            raise WireError(f"a client asks for at most {MAX_CLAIMS} locks at a time")
        try:
            port = self._port(group)
        except (GroupFailed, NotMember) as error:  # since the client has asked
            refused = LockRequest(key)
            refused.error = error
            self.settled.append((id_, refused))
            return
        request = port.lock(key, tries_once)
        self._claims[id_] = SessionClaim(port, request)
        self._ids[request] = id_
        self._seat.touch(port)

    def unlock(self, id_: int) -> None:
        """Give a lock back, or want it no longer. One that was lost meanwhile is not there any more."""
        claim = self._claims.pop(id_, None)
        if claim is not None:
            self._ids.pop(claim.request, None)
            claim.port.locks.give_up(claim.request)
            self._seat.touch(claim.port)

    def holder(self, request: LockRequest) -> str:
        """Who holds the lock that was denied, where that is known."""
        id_ = self._ids.get(request)
        view = self._claims[id_].port.view if id_ is not None else None
        return view.holder(request.key) if view is not None else ""

    # Calls.

    def offer(self, group: str, block: bytes, head: Head) -> bool:
        """A call, or an answer, as the client has packed it. False: there is no room."""
        call, payload = open_call(block)
        if call.flags & IS_ANSWER:
            return self.answer(call.asked_by, call.asked, payload)
        return self.call(group, payload, service_of(head.rank, head.k), call.handler, type_of(block))

    def call(self, group: str, payload: bytes, service: Service, handler: int, type_: int) -> bool:
        """Ask the holder of a handler. False: there is no room."""
        if handler == NO_HANDLER:
            raise WireError("a call names a handler")
        base = self._seat.base
        port: Port | None = None
        self._check_size(CallHead(0, 0, handler, str(base.me), NOWHERE), payload)
        if self._seat.has(group):
            port = self._port(group)
            port.check(len(payload), service, type_)
            asked = port.call(payload, service, handler, type_)
        else:
            asked = base.stream.call_outside(group, payload, service, handler, type_)
        if asked is None:
            return False
        self._asked[asked] = port
        if len(self._asked) > MAX_ASKED:
            self._give_up(next(iter(self._asked)))
        self._seat.touch(base)
        return True

    def _give_up(self, asked: Asked) -> None:
        """Wait for an answer no longer."""
        port = self._asked.pop(asked)
        calls = port.calls if port is not None else self._seat.base.stream.outside
        if calls is not None:
            calls.forget(asked)
        asked.error = OutcomeUnknown(f"{MAX_ASKED} later calls of this client have no answer either")
        self.answered.append(asked)

    def owe(self, message: Message) -> None:
        """The session is told of a call, and may be the one that is to answer."""
        owed = message.owed if isinstance(message, Request) else None
        port = self._seat.base.stream.ports.get(message.group)
        if port is None or not isinstance(owed, PendingReply):
            return
        self._owed[owed.sender, owed.first] = (port, owed)
        while len(self._owed) > MAX_OWED:
            del self._owed[next(iter(self._owed))]

    def answer(self, caller: str, number: int, payload: bytes) -> bool:
        """Answer a call. False: there is no room. Raises TooLate where it is."""
        found = self._owed.get((caller, number))
        if found is None:
            raise TooLate(f"this session owes no answer to call {number} of {caller}, or not any more")
        port, owed = found
        head = CallHead(0, IS_ANSWER, NO_HANDLER, str(port.me), NOWHERE, owed.origin, owed.first, owed.sender)
        self._check_size(head, payload)
        try:
            if not port.answer(owed, payload):
                return False
        except (NotMember, UsageError) as error:
            raise TooLate(str(error)) from error
        del self._owed[caller, number]
        self._seat.touch(port)
        return True

    # What has come to an end.

    def take(self) -> Sequence[Watch]:
        """Sort what the ports have settled; waits for messages are told of by whoever asks first."""
        watches: list[Watch] = []
        for port in [self._seat.base, *self._ports]:
            for each in port.take_settled():
                if isinstance(each, Watch):
                    watches.append(each)
                elif isinstance(each, Asked):
                    if each in self._asked:
                        del self._asked[each]
                        self.answered.append(each)
                elif each in self._ids:
                    self.settled.append((self._ids[each], each))
            if port.gone is not None:
                self._ports.pop(port, None)
        return watches

    def forget(self, id_: int) -> None:
        """The adapter has told its client that it does not have this lock: the id is free."""
        claim = self._claims.pop(id_, None)
        if claim is not None:
            self._ids.pop(claim.request, None)

    # In detail.

    def _port(self, group: str) -> Port:
        port = self._seat.base.stream.ports.get(group)
        if port is None or port.is_leaving:
            raise NotMember(f"this session is not in {group!r}: join it first")
        port.check_locks()
        self._ports[port] = None
        return port

    def _check_size(self, head: CallHead, payload: bytes) -> None:
        size = len(pack_call(0, AGREED, head, payload)) + len(self._seat.label.encode())
        if size > MAX_BLOCK:
            raise WireError(f"a call, like an answer, fits one block: this one would have {size} bytes")


def settled_frames(calls: SessionCalls) -> list[bytes]:
    """What the client is told of its locks and calls."""
    frames: list[bytes] = []
    settled, calls.settled = calls.settled, []
    for id_, request in settled:
        outcome, text = GrantOutcome.HELD, ""
        if request.error is not None:
            outcome, text = GrantOutcome.NOT_MEMBER, str(request.error)
            if isinstance(request.error, LockDenied):
                outcome, text = GrantOutcome.DENIED, calls.holder(request)
            elif isinstance(request.error, GroupFailed):
                outcome = GrantOutcome.FAILED
        elif not request.is_held:
            outcome = GrantOutcome.LOST
        frames.append(encode_grant(Grant(id_, outcome, request.token, text)))
        if outcome != GrantOutcome.HELD:
            calls.forget(id_)
    answered, calls.answered = calls.answered, []
    for asked in answered:
        end, error = CallOutcome.ANSWERED, asked.error
        if error is not None:
            end = next((kind for each, kind in _OUTCOMES.items() if isinstance(error, each)), CallOutcome.UNKNOWN)
        text = str(error) if error is not None else ""
        frames.append(encode_answered(CallEnd(asked.number, end, text, asked.answer or b"")))
    return frames
