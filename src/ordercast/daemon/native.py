"""One connection that speaks Ordercast's own protocol: frames to a seat and back (docs/protocol-client.md).

No socket and no loop: bytes come by `receive`, and leave by a `ByteSink`. A client that sends what no client sends is
told so by CLOSE, and disconnected. Its bytes never raise, and take no memory beyond the bounds below.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from ordercast.config import MAX_BLOCK
from ordercast.daemon.backlog import Backlog, OpenedMessage
from ordercast.daemon.calls import TooLate, settled_frames
from ordercast.daemon.encoding import CALLS_VERSION, EventEncoder
from ordercast.daemon.seat import Seats, SessionSeat
from ordercast.errors import GroupFailed, NotMember, OrdercastError, UsageError, WireError
from ordercast.groups.events import CallBatch
from ordercast.groups.watches import Watch
from ordercast.service import RESILIENT_RANK
from ordercast.wire.block import (
    CALLED,
    CHANGE,
    ENTRY,
    FRAGMENTED,
    GROUPED,
    HEAD_BYTES,
    MULTI,
    ROSTER,
    Head,
    head_of,
    open_messages,
)
from ordercast.wire.call_frames import decode_lock, decode_unlock
from ordercast.wire.client_frames import (
    ClientHello,
    GroupHandles,
    LeaveHandles,
    Question,
    WatchRange,
    decode_count,
    decode_hello,
    decode_join,
    decode_leave,
    decode_name,
    decode_query,
    decode_watch,
    encode_ping,
)
from ordercast.wire.daemon_frames import (
    Confirmation,
    Credit,
    QueryReply,
    Refusal,
    SendOutcome,
    Welcome,
    encode_answer,
    encode_close,
    encode_confirm,
    encode_credit,
    encode_refused,
    encode_welcome_frame,
    ranks_of,
    sample_services,
)
from ordercast.wire.endings import Ending, SessionEnd
from ordercast.wire.fragments import Assembler
from ordercast.wire.frames import MAX_CLIENT_FRAME, PREFIX_BYTES, VERSION, FrameBuffer, FrameKind

MAX_HANDLES: Final = 1 << 17
"""Groups that one connection has named. At the bound it is closed."""

MAX_WATCHES: Final = 1 << 16
"""Confirmations that one client waits for. At the bound it is disconnected."""

MAX_QUESTIONS: Final = 16
"""Questions of one client that have no answer yet. At the bound it is disconnected."""

WRITE_BYTES: Final = 256 << 10
"""Bytes that wait in the socket's buffer of this process before no more events are taken."""

LAG_SHARE: Final = 8
"""A client for which this part of the limit of its session waits gets no credit: it is to receive first."""

CREDIT_SHARE: Final = 4
"""A client is told of its credit when this part of its window has become free."""


class ByteSink(Protocol):
    """Where bytes to the client go."""

    def send(self, frames: Sequence[bytes]) -> None: ...

    def pending_bytes(self) -> int:
        """That have not left this process."""

    def close(self) -> None:
        """After what was sent."""


class NativeHouse(Protocol):
    """What all connections of a daemon share."""

    @property
    def seats(self) -> Seats: ...

    @property
    def encoder(self) -> EventEncoder: ...

    def new_label(self) -> str: ...

    def new_secret(self) -> bytes: ...

    def answer(self, question: Question) -> str:
        """As JSON."""

    def told(self, text: str, *, is_warning: bool = False) -> None:
        """Write a line to the log."""


class NativeConnection:
    """One client. A `SeatUser` once its HELLO has been answered."""

    __slots__ = (
        "_assembler",
        "_backlog",
        "_coming",
        "_consumed",
        "_delivered",
        "_frames",
        "_granted",
        "_greeting",
        "_handles",
        "_hello",
        "_house",
        "_out",
        "_pong",
        "_questions",
        "_received",
        "_sent",
        "_sink",
        "_watched",
        "_watches",
        "is_over",
        "name",
        "seat",
        "secret",
    )

    def __init__(self, house: NativeHouse, sink: ByteSink, name: str) -> None:
        """`name`: of the connection, for the log."""
        self._house = house
        self._sink = sink
        self.name = name
        self.seat: SessionSeat | None = None
        self.secret = b""
        self.is_over = False
        self._greeting = ClientHello(VERSION, "", b"", 0)  # of the client that was let in
        self._hello: ClientHello | None = None  # its label is still being left
        self._frames = FrameBuffer(MAX_CLIENT_FRAME)
        self._out: list[bytes] = []  # frames of this turn
        # from the client
        self._handles: dict[int, str] = {}  # groups that it has named
        self._backlog = Backlog()
        self._assembler: Assembler | None = None  # one large message
        self._received = 0  # bytes of SEND frames
        self._granted = 0
        self._delivered = 0  # as the client knows it
        self._watches = 0  # that it waits for
        self._watched = 0  # all watches are below this number
        # to the client
        self._pong: int | None = None  # its last PING that has no answer
        self._questions: deque[Question] = deque()
        self._coming: Iterator[bytes] = iter(())  # frames of the event that was taken last
        self._sent = 0  # bytes of event frames
        self._consumed = 0

    @property
    def is_open(self) -> bool:
        """Whether its HELLO has come."""
        return self.seat is not None or self._hello is not None

    # What the connection brings.

    def receive(self, data: bytes) -> None:
        """Bytes of the client. Hot: once for each read of its socket."""
        if self.is_over:
            return
        try:
            for kind, body in self._frames.feed(data):
                if kind == FrameKind.SEND:
                    self._on_send(body)
                else:
                    self._on_frame(kind, body)
                if self._has_ended:
                    return
        except OrdercastError as error:  # a WireError, or what the seat has against it
            self._break(error)
            return
        self.settle()

    def lost(self, text: str) -> None:
        """The connection has ended."""
        if not self.is_over:
            self.is_over = True
            if self.seat is not None:
                self._house.told(f"session {self.seat.label!r} ({self.name}) was lost: {text}")
                self.seat.close(SessionEnd.LOST, text)

    @property
    def _has_ended(self) -> bool:
        return self.is_over

    # What the daemon brings.

    def settle(self) -> None:
        if self.is_over:
            return
        if self.seat is None:
            if self._hello is not None:
                self._greet(self._hello)
                self._flush()
            return
        try:
            self._offer_backlog()
        except OrdercastError as error:
            self._break(error)
            return
        if self._has_ended:  # by a BYE that has waited
            return
        for watch in self.seat.take_settled():
            self._confirm(watch)
        if self.seat.uses_calls:
            self._out += settled_frames(self.seat.calls)
        if self._pong is not None:
            self._out.append(encode_ping(self._pong, FrameKind.PONG))
            self._pong = None
        while self._questions and self._sink.pending_bytes() < WRITE_BYTES:
            question = self._questions.popleft()
            self._out.append(encode_answer(QueryReply(question.id, self._house.answer(question))))
            self._flush()
        while self._pump(self.seat):
            pass  # each round gives the socket WRITE_BYTES: the window of the client bounds them
        self.seat.note_lag(self._sent - self._consumed)
        self._grant()  # what waits for the client counts: behind the events that it has just been given
        self._flush()

    def ended(self, ending: Ending) -> None:
        self.is_over = True
        label = self.seat.label if self.seat is not None else ""
        self._house.told(f"session {label!r} ({self.name}) was put out ({ending.why}): {ending.text}", is_warning=True)
        self._out.append(encode_close(ending.why, ending.text))
        self._flush()
        self._sink.close()

    # Frames.

    def _on_frame(self, kind: int, body: bytes) -> None:
        if self.seat is None:
            if kind != FrameKind.HELLO or self._hello is not None:
                raise WireError("the first frame is to be a HELLO, and nothing follows before its answer")
            self._greet(decode_hello(body))
            return
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise WireError(f"no client sends frames of kind {kind} here")
        if kind in _ORDERED and self._backlog:
            self._backlog.add_request(kind, body)
        else:
            handler(self, self.seat, body)

    def _greet(self, hello: ClientHello) -> None:
        """Open the session. A label that is just being left is waited for."""
        seats, house = self._house.seats, self._house
        self._hello = None
        if not 1 <= hello.version <= VERSION:
            text = f"this daemon speaks versions 1 to {VERSION}, the client version {hello.version}"
            self._refuse(Refusal.VERSION, text)
            return
        former = seats.named(hello.label) if hello.label else None
        if former is not None and hello.secret and isinstance(former.user, NativeConnection):
            if former.user.secret == hello.secret:
                seats.put_out(former, SessionEnd.REPLACED, "the same client has connected again")
            former = seats.named(hello.label)
        if former is not None:
            text = f"this daemon has a session {hello.label!r} already: give the client another name"
            self._refuse(Refusal.LABEL_TAKEN, text)
            return
        if hello.label and seats.is_leaving(hello.label):
            self._hello = hello
            seats.wait_for(hello.label, self)
            return
        if len(seats) >= seats.limits.max_sessions:
            self._refuse(Refusal.FULL, f"this daemon has {len(seats)} sessions, and takes no more")
            return
        try:
            seat = seats.open(hello.label or house.new_label(), self)
        except UsageError as error:
            self._refuse(Refusal.USAGE, str(error))
            return
        self.seat, self.secret, self._greeting = seat, house.new_secret(), hello
        self._granted = seats.window_bytes
        self._delivered = self._watched = seat.next_number
        self._assembler = Assembler(seat.config.max_message)
        engine = seat.base.engine
        self._out.append(
            encode_welcome_frame(
                Welcome(
                    self._greeting.version,
                    seat.label,
                    seats.host.me,
                    seat.underlay,
                    seat.config,
                    ranks_of([engine.supports(service) for service in sample_services()]),
                    seat.next_number,
                    self._granted,
                    MAX_BLOCK - len(seat.label.encode()),
                    self.secret,
                    seat.has_locks,
                )
            )
        )
        view = seat.daemons
        if view is not None:
            self._event(house.encoder.frames(view, self._greeting.version))
        house.told(f"session {seat.label!r} has connected from {self.name}")

    def _refuse(self, code: Refusal, text: str) -> None:
        self.is_over = True
        self._house.told(f"no session for {self.name}: {text}", is_warning=True)
        self._out.append(encode_refused(code, text))
        self._flush()
        self._sink.close()

    def _on_join(self, seat: SessionSeat, body: bytes) -> None:
        joins: GroupHandles = decode_join(body)
        self._name(joins.groups)
        for _, name in joins.groups:
            if not seat.has(name):
                seat.join(name, joins.header)

    def _on_name(self, _seat: SessionSeat, body: bytes) -> None:
        self._name(decode_name(body).groups)

    def _name(self, groups: Sequence[tuple[int, str]]) -> None:
        for handle, name in groups:
            if self._handles.setdefault(handle, name) != name:
                raise WireError(f"handle {handle} is that of another group")
        if len(self._handles) > MAX_HANDLES:
            raise WireError(f"a client names at most {MAX_HANDLES} groups")

    def _on_leave(self, seat: SessionSeat, body: bytes) -> None:
        leaves: LeaveHandles = decode_leave(body)
        for handle in leaves.handles:
            name = self._group(handle)
            if seat.has(name):
                seat.leave(name, leaves.header)

    def _on_watch(self, seat: SessionSeat, body: bytes) -> None:
        wanted: WatchRange = decode_watch(body)
        if self._watches >= MAX_WATCHES:
            raise WireError(f"a client waits for at most {MAX_WATCHES} confirmations")
        if wanted.service is None:
            if seat.flush(wanted.stop) is None:
                flushed = Confirmation(wanted.stop, wanted.stop, None, SendOutcome.DELIVERED, -1, "")
                self._out.append(encode_confirm(flushed))
                return
        else:
            if wanted.first < max(self._watched, seat.next_number):
                raise WireError("a watch of messages that were sent before, or are watched already")
            self._watched = wanted.stop
            seat.watch(wanted.first, wanted.stop, wanted.service)
        self._watches += 1

    def _on_consumed(self, _seat: SessionSeat, body: bytes) -> None:
        consumed = decode_count(body)
        if not self._consumed <= consumed <= self._sent:
            raise WireError("a client has consumed what was never sent to it")
        self._consumed = consumed

    def _on_lock(self, seat: SessionSeat, body: bytes) -> None:
        ask = decode_lock(body)
        name = self._group(ask.handle)
        seat.calls.lock(ask.id, name, ask.key, ask.tries_once)

    def _on_unlock(self, seat: SessionSeat, body: bytes) -> None:
        seat.calls.unlock(decode_unlock(body))

    def _on_ping(self, _seat: SessionSeat, body: bytes) -> None:
        self._pong = decode_count(body)

    def _on_query(self, _seat: SessionSeat, body: bytes) -> None:
        if len(self._questions) >= MAX_QUESTIONS:
            raise WireError(f"a client asks at most {MAX_QUESTIONS} questions at a time")
        self._questions.append(decode_query(body))

    def _on_bye(self, seat: SessionSeat, _body: bytes) -> None:
        self.is_over = True
        self._house.told(f"session {seat.label!r} ({self.name}) has left")
        seat.close(SessionEnd.CLOSED)
        self._out.append(encode_close(SessionEnd.CLOSED, ""))
        self._flush()
        self._sink.close()

    # Sends.

    def _on_send(self, block: bytes) -> None:
        """Hot: once for each block of the client."""
        if self.seat is None:
            raise WireError("the first frame is to be a HELLO")
        self._received += len(block) + PREFIX_BYTES
        if self._received > self._granted:
            raise WireError(f"{self._received} bytes were sent, and the credit was {self._granted}")
        head = head_of(block)
        if head.flags & (CHANGE | ROSTER) or (head.flags & CALLED and self._greeting.version < CALLS_VERSION):
            raise WireError("a client sends messages and fragments only")
        self._backlog.add_block(block, head)
        if len(self._backlog.frames) == 1:
            self._offer_backlog()

    def _offer_backlog(self) -> None:
        """Give the seat what it has room for, and carry out what came behind, in order. While the underlay has failed
        everything waits."""
        seat, backlog = self.seat, self._backlog
        if seat is None:
            return
        try:
            while True:
                while backlog.opened:
                    message = backlog.opened[0]
                    if seat.send(message.payload, message.groups, message.service, message.type, message.priority) < 0:
                        return
                    backlog.drop_opened()
                if not backlog.frames:
                    return
                kind, body, head = backlog.frames[0]
                if head is None:
                    backlog.drop_frame()
                    _HANDLERS[kind](self, seat, body)
                    if self.is_over:
                        return
                    continue
                if not self._offer(seat, body, head):
                    return
                backlog.drop_frame()
        except GroupFailed:
            return

    def _offer(self, seat: SessionSeat, block: bytes, head: Head) -> bool:
        """One block. Messages of a block that is opened go through `_opened`."""
        flags = head.flags
        if head.first != seat.next_number:
            raise WireError(f"message {head.first} was sent, and number {seat.next_number} is next")
        priority = head.k if head.rank != RESILIENT_RANK else 0
        if flags & CALLED:
            name = self._group(ENTRY.unpack_from(block, HEAD_BYTES)[0])
            return (seat.is_ready(name) or not seat.has(name)) and seat.calls.offer(name, block, head)
        if flags & FRAGMENTED:
            whole = self._assembler.add(0, block) if self._assembler is not None else None
            if whole is not None:
                names = [self._group(handle) for handle in whole.targets or (whole.group,)]
                self._backlog.add_opened(OpenedMessage(whole.payload, names, whole.service, whole.type, priority))
            return True
        if not flags & (GROUPED | MULTI):
            name = self._group(ENTRY.unpack_from(block, HEAD_BYTES)[0])
            if seat.has(name):
                return seat.is_ready(name) and seat.send_block(block, name)
        messages = open_messages(block)
        service, type_ = messages.service, messages.type
        if not isinstance(messages.groups, int) and not flags & MULTI:
            each = [self._group(handle) for handle in messages.groups]
            taken = 0
            if all(seat.is_ready(name) for name in dict.fromkeys(each)):
                taken = seat.send_many(messages.payloads, each, service, type_, priority)
                if not taken:
                    return False
            for payload, name in zip(messages.payloads[taken:], each[taken:], strict=True):
                self._backlog.add_opened(OpenedMessage(payload, (name,), service, type_, priority))
            return True
        handles = (messages.groups,) if isinstance(messages.groups, int) else messages.groups
        names = [self._group(handle) for handle in handles]
        taken = 0
        if len(names) > 1 or not seat.has(names[0]):
            taken = seat.send_all(messages.payloads, names, service, type_, priority)
            if not taken:
                return False
        for payload in messages.payloads[taken:]:
            self._backlog.add_opened(OpenedMessage(payload, names, service, type_, priority))
        return True

    def _group(self, handle: int) -> str:
        name = self._handles.get(handle)
        if name is None:
            raise WireError(f"handle {handle} has no group: name it by JOIN or NAME")
        return name

    # What the client is told.

    def _confirm(self, watch: Watch) -> None:
        self._watches -= 1
        outcome, error = SendOutcome.DELIVERED, watch.error
        if error is not None:
            outcome = SendOutcome.UNKNOWN
            if isinstance(error, NotMember):
                outcome = SendOutcome.NOT_MEMBER
            elif isinstance(error, GroupFailed):
                outcome = SendOutcome.FAILED
        text = str(error) if error is not None else ""
        told = Confirmation(watch.first, watch.stop, watch.service, outcome, watch.position, text)
        self._out.append(encode_confirm(told))

    def _grant(self) -> None:
        """Tell of credit, and of what is delivered: when there is much of it, or nothing is under way any more."""
        seat = self.seat
        if seat is None:
            return
        free = seat.room - self._backlog.message_bytes
        if seat.held_bytes > self._house.seats.limits.session_bytes // LAG_SHARE:
            free = 0  # who sends faster than it receives would only be disconnected for it
        total = max(self._granted, self._received + max(0, free))
        delivered = seat.delivered_number
        is_much = (total - self._granted) * CREDIT_SHARE >= self._house.seats.window_bytes
        is_quiet = delivered > self._delivered and delivered == seat.next_number and not self._backlog.message_bytes
        if is_much or is_quiet:
            self._granted, self._delivered = total, delivered
            self._out.append(encode_credit(Credit(total, delivered)))

    def _pump(self, seat: SessionSeat) -> bool:
        """Send events, as far as the client and the socket take them. Whether there may be more: the socket has taken
        what it was given."""
        sink, window = self._sink, self._greeting.window
        room = WRITE_BYTES - sink.pending_bytes()
        while self._sent - self._consumed < window and room > 0:
            frame = next(self._coming, None)
            if frame is None:
                event = seat.take()
                if event is None:
                    self._flush()
                    return False
                if isinstance(event, CallBatch):
                    seat.calls.owe(event.message)
                self._coming = self._house.encoder.frames(event, self._greeting.version)
                continue
            self._out.append(frame)
            self._sent += len(frame)
            room -= len(frame)
        self._flush()
        return self._sent - self._consumed < window and sink.pending_bytes() < WRITE_BYTES

    def _event(self, frames: Iterator[bytes]) -> None:
        for frame in frames:
            self._out.append(frame)
            self._sent += len(frame)

    def _flush(self) -> None:
        """One write for everything of this turn."""
        if self._out:
            frames, self._out = self._out, []
            self._sink.send(frames)

    def _break(self, error: OrdercastError) -> None:
        """The client has sent what no client sends. One that has answered too late is not to blame: it comes back."""
        self.is_over = True
        text, why = str(error), SessionEnd.LOST if isinstance(error, TooLate) else SessionEnd.PROTOCOL
        label = f"session {self.seat.label!r}" if self.seat is not None else "a connection"
        self._house.told(f"{label} ({self.name}) was disconnected: {text}", is_warning=True)
        self._out.append(encode_close(why, text))
        self._flush()
        if self.seat is not None:
            self.seat.close(why, text)
        self._sink.close()


_ORDERED: Final = frozenset((FrameKind.JOIN, FrameKind.LEAVE, FrameKind.LOCK, FrameKind.UNLOCK, FrameKind.BYE))
"""Requests that are carried out behind the messages that were sent before them."""

_HANDLERS: Final[dict[int, Callable[[NativeConnection, SessionSeat, bytes], None]]] = {
    FrameKind.JOIN: NativeConnection._on_join,
    FrameKind.NAME: NativeConnection._on_name,
    FrameKind.LEAVE: NativeConnection._on_leave,
    FrameKind.WATCH: NativeConnection._on_watch,
    FrameKind.CONSUMED: NativeConnection._on_consumed,
    FrameKind.PING: NativeConnection._on_ping,
    FrameKind.QUERY: NativeConnection._on_query,
    FrameKind.BYE: NativeConnection._on_bye,
    FrameKind.LOCK: NativeConnection._on_lock,
    FrameKind.UNLOCK: NativeConnection._on_unlock,
}
