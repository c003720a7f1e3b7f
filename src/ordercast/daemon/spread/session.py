"""One client of Spread at this daemon: its connection on one side, a seat of the daemon on the other.

The private group `#name#daemon` is a group that only this session is in. The client is accepted when the session is in
it, so that what others send to a name that they have just learned arrives.

Requests are carried out in their order. The connection is not read while one of them waits: for room in the send
queue, where a group is joined or left whose last leave or join is still under way, or where the client is behind with
reading and is about to be disconnected. So a fast client is held back by TCP.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import Final, cast

from ordercast.daemon.seat import SessionSeat
from ordercast.daemon.spread.desk import SpreadDesk
from ordercast.daemon.spread.flavours import address
from ordercast.daemon.spread.frames import AnyRequest, Disconnect, FrameDecoder, JoinGroup, SpreadCast
from ordercast.daemon.spread.handshake import Handshake, Reject, ShakePhase, SpreadHello
from ordercast.daemon.spread.membership import Memberships
from ordercast.daemon.spread.names import MAX_GROUP, is_legal, private_group
from ordercast.daemon.spread.socket_queue import SocketQueue
from ordercast.engine import Transitional
from ordercast.errors import OrdercastError, UnsupportedService, UsageError
from ordercast.groups.events import Batch, Left
from ordercast.view import View
from ordercast.wire.endings import Ending, SessionEnd

RETRY_S: Final = 0.02
"""How soon a name is looked at again whose last session is on its way out."""

NAME_S: Final = 2.0
"""How long a client waits for such a name before it is told that it is taken."""

CLOSE_S: Final = 1.0
"""How long a client may take to read what it is told last."""

END_S: Final = 3.0
"""How long requests that a client sent before it closed may wait for their turn."""

_log: Final = logging.getLogger("ordercast.daemon")


class SpreadSession(asyncio.Protocol):
    """A connection from its first byte to its end."""

    def __init__(self, desk: SpreadDesk) -> None:
        self._desk = desk
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None  # of the state that the connection is in
        # connecting
        self._handshake: Handshake | None = None
        self._label = ""  # reserved, or of the session
        self._name_until = 0.0
        self._accept = b""  # to be sent when the session is in its private group
        # connected
        self._seat: SessionSeat | None = None
        self._private = ""  # its private group
        self._decoder: FrameDecoder | None = None
        self._memberships: Memberships | None = None  # None: the client does not want them
        self._requests: deque[AnyRequest] = deque()  # read and not carried out: those of one read at most
        self._joining: set[str] = set()
        self._leaving: set[str] = set()
        self._out = SocketQueue()
        self._has_failed = False  # a request of it was passed over
        # the end
        self._ending: Ending | None = None  # the client is gone: what it has requested is carried out first
        self._is_closed = False

    # The connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        settings = self._desk.settings
        self._transport.set_write_buffer_limits(0)
        is_full = self._desk.is_full
        self._desk.visitors[self] = None
        host = self.host
        self._handshake = Handshake(settings.auth, settings.access.admits(host), settings.version)
        if is_full:
            limit = settings.max_sessions
            self._refuse(Reject.QUOTA, f"there are {limit} clients: raise max_sessions, or use another daemon")
            return
        self._set_timer(settings.hello_s, self._end_of_patience)

    def data_received(self, data: bytes) -> None:
        if self._is_closed or self._ending is not None:
            return
        if self._decoder is not None:
            self._requests.extend(self._decoder.receive(data))
            self._work()
        elif self._handshake is not None and self._handshake.phase is not ShakePhase.REJECTED:
            self._shake(self._handshake.receive(data))

    def eof_received(self) -> bool:
        if self._decoder is None and self._handshake is not None and not self._is_closed:
            self._tell_last(self._handshake.end())
            return True  # it is closed when that has been read, or soon
        if self._seat is not None and self._ending is None and not self._is_closed:
            self._end(Ending(SessionEnd.LOST, "it closed its connection"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._set_timer(0, None)
        self._desk.visitors.pop(self, None)
        self._desk.blocked.pop(self, None)
        self._out.clear()
        if self._seat is None:
            self._desk.release(self._label)
            return
        if self._seat.ending is None and self._ending is None:
            self._end(Ending(SessionEnd.LOST, f"its connection was lost: {exc}" if exc else "it closed its connection"))

    def pause_writing(self) -> None:
        self._out.block()
        self._desk.blocked[self] = None

    def resume_writing(self) -> None:
        self._out.unblock()
        self._desk.blocked.pop(self, None)
        self._flush()
        if self._requests:
            self._work()

    @property
    def host(self) -> str | None:
        """The address of the client; None: it came by the unix socket."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return peer[0] if isinstance(peer, tuple) else None

    # Connecting.

    def _shake(self, answer: bytes) -> None:
        handshake = self._handshake
        if handshake is None:
            return
        if handshake.phase is ShakePhase.NAMING and handshake.hello is not None:
            self._name_until = self._loop.time() + NAME_S
            self._pause_reading()
            self._find_name(handshake.hello.name)
        elif handshake.phase is ShakePhase.ACCEPTED:
            self._open(answer)
        elif handshake.phase is ShakePhase.REJECTED:
            self._tell_last(answer)
        elif answer:
            self._write(answer)

    def _find_name(self, name: bytes) -> None:
        handshake, desk = self._handshake, self._desk
        if handshake is None or self._is_closed:
            return
        label = desk.reserve(name)
        if label is not None and desk.is_leaving(label):
            if self._loop.time() < self._name_until:
                self._set_timer(RETRY_S, lambda: self._find_name(name))
                return
            label = None
        if label is None:
            self._refuse(Reject.NOT_UNIQUE, f"the private name {name.decode('latin-1')!r} is taken")
            return
        self._label = label
        self._set_timer(desk.settings.choice_s, self._end_of_patience)
        answer = handshake.assign(private_group(label, desk.daemon))
        if handshake.phase is ShakePhase.CHOICE:
            self._write(answer)
            self._resume_reading()
        else:
            self._shake(answer)

    def _open(self, accept: bytes) -> None:
        """The client is authenticated: it gets its session, and is accepted when that is in its private group."""
        handshake, desk = self._handshake, self._desk
        if handshake is None or handshake.hello is None:
            return
        self._set_timer(0, None)
        self._pause_reading()
        try:
            self._seat = desk.seats.open(self._label, self)
        except UsageError as error:
            self._refuse(Reject.QUOTA, str(error))
            return
        desk.release(self._label)
        self._accept = accept
        self._private = handshake.private_group.decode()
        if handshake.hello.wants_membership:
            me = str(self._seat.member)
            self._memberships = Memberships(me, desk.order, has_sets=handshake.hello.has_view_sets)
        self._decoder = FrameDecoder(handshake.private_group, desk.settings.max_message)
        self._seat.join(self._private)
        self._log_accept(handshake.hello)

    def _accepted(self) -> None:
        handshake, decoder = self._handshake, self._decoder
        if handshake is None or decoder is None:
            return
        self._desk.counters["accepted"] += 1
        self._out.add(self._accept, 0)
        self._accept = b""
        self._handshake = None
        self._resume_reading()
        rest = handshake.take_rest()
        if rest:
            self._requests.extend(decoder.receive(rest))

    def _refuse(self, code: Reject, text: str) -> None:
        handshake = self._handshake
        if handshake is not None:
            self._tell_last(handshake.reject(code, text), code)

    def _tell_last(self, answer: bytes, code: Reject | None = None) -> None:
        """Tell a client that it does not get in, and close. It is read from until it has closed, too: closing before
        would make the kernel drop what it is told."""
        transport, handshake = self._transport, self._handshake
        if transport is None or self._is_closed:
            return
        if code is None and answer:
            code = Reject(int.from_bytes(answer[-1:], "big", signed=True))
        self._desk.count_reject(code)
        self._desk.release(self._label)
        reason = handshake.reason if handshake is not None else ""
        _log.info("a client of Spread from %s was refused: %s", self.host or "the unix socket", reason)
        if answer:
            self._write(answer)
        self._is_closed = True
        self._resume_reading()
        if answer and not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()
            self._set_timer(CLOSE_S, transport.abort)
        else:
            transport.close()

    def _end_of_patience(self) -> None:
        if self._handshake is not None:
            self._tell_last(self._handshake.end())

    def _log_accept(self, hello: SpreadHello) -> None:
        version = f"{hello.version // 10_000}.{hello.version // 100 % 100}.{hello.version % 100}"
        _log.info("%s connected from %s with Spread %s", self._private, self.host or "the unix socket", version)

    # Requests.

    def _work(self) -> None:
        """Carry out what was read, as far as it may be now."""
        requests, seat = self._requests, self._seat
        if seat is None or seat.ending is not None:
            requests.clear()
            return
        while requests and self._accept == b"" and not self._is_behind:
            request = requests[0]
            try:
                if not self._carry_out(seat, request):
                    break
            except OrdercastError as error:
                self._pass_over(error)
            if requests:
                requests.popleft()
        decoder = self._decoder
        if not requests and decoder is not None and decoder.fault and self._ending is None:
            self._desk.counters["faults"] += 1
            self._end(Ending(SessionEnd.PROTOCOL, f"it sent {decoder.fault}"))
        if self._ending is not None:
            if not requests:
                self._leave()
        elif requests:
            self._pause_reading()
        else:
            self._resume_reading()

    def _carry_out(self, seat: SessionSeat, request: AnyRequest) -> bool:
        """False: not yet."""
        if isinstance(request, SpreadCast):
            return self._send(seat, request)
        if isinstance(request, Disconnect):
            self._requests.clear()
            self._end(Ending(SessionEnd.CLOSED, "it disconnected"))
            return True
        if not is_legal(request.group, MAX_GROUP):
            return True  # the libraries do not let such names pass; a leave of the own private group is one
        group = request.group.decode()
        if isinstance(request, JoinGroup):
            if group in self._leaving:
                return False
            if not seat.has(group):
                seat.join(group)
                self._joining.add(group)
            return True
        if group in self._joining:
            return False
        if seat.has(group):
            seat.leave(group)
            self._leaving.add(group)
        return True

    def _pass_over(self, error: OrdercastError) -> None:
        """A request cannot be carried out. Spread answers none, so the log has it: the first one of each client."""
        self._desk.counters["passed_over"] += 1
        if not self._has_failed:
            self._has_failed = True
            _log.warning("a request of %s was passed over: %s", self._private, error)

    def _send(self, seat: SessionSeat, request: SpreadCast) -> bool:
        """Hot: once for each run of messages that are alike."""
        addressed = address(request.type, request.hint, request.groups)
        if addressed is None:
            return True
        room = seat.room
        if room <= 0:
            return False
        groups, service, type_ = addressed
        bodies = request.bodies
        if sum(map(len, bodies)) > room:
            bodies = bodies[: 1 + bisect_right(list(accumulate(map(len, bodies))), room)]  # and one message more
        try:
            if len(groups) == 1 and seat.has(groups[0]):
                taken = seat.send_many(bodies, groups, service, type_)
            else:
                taken = seat.send_all(bodies, groups, service, type_)
        except UnsupportedService:
            stronger = address(request.type, request.hint, request.groups, has_service=False)
            if stronger is None:
                return True
            taken = seat.send_all(bodies, *stronger)
        if taken < len(request.bodies):
            self._requests[0] = request._replace(bodies=request.bodies[taken:])
            return False
        return True

    # Events.

    def settle(self) -> None:
        """A pass has brought something."""
        seat = self._seat
        if seat is None:
            return
        out, relay, me = self._out, self._desk.relay, str(seat.member)
        while (event := seat.take()) is not None:
            if self._is_closed:
                continue
            if isinstance(event, Batch):
                for relayed in relay.encode(event):
                    if relayed.messages and not (relayed.is_discarding and relayed.sender == me):
                        out.add(relayed.data, relayed.messages)
            else:
                self._on_change(event)
        self._work()
        self._flush()
        seat.note_lag(self._out.waiting_bytes)
        self._desk.settle()

    def _on_change(self, event: object) -> None:
        memberships, out = self._memberships, self._out
        if isinstance(event, View):
            if event.group == self._private:
                self._accepted()
            elif event.group:
                self._joining.discard(event.group)
                if memberships is not None:
                    out.add(memberships.on_view(event), 1)
            elif memberships is not None:
                memberships.on_underlay(event)
        elif isinstance(event, Left):
            self._on_left(event)
        elif isinstance(event, Transitional) and memberships is not None:
            for _, data in memberships.on_transitional(event):
                out.add(data, 1)

    def _on_left(self, left: Left) -> None:
        group, memberships, out = left.group, self._memberships, self._out
        if left.returning:
            # The daemon is out of the underlay and comes back: to the client its groups part, and merge.
            for _, data in memberships.on_transitional(Transitional("")) if memberships is not None else ():
                out.add(data, 1)
        elif group == self._private and not left.wanted and self._ending is None:
            self._end(Ending(SessionEnd.KICKED, f"it is out of its private group: {left.text}"))
        elif group and group != self._private:
            self._joining.discard(group)
            self._leaving.discard(group)
            if memberships is not None:
                out.add(memberships.on_left(group), 1)

    def ended(self, ending: Ending) -> None:
        """The daemon has closed the seat."""
        if self._ending is None:
            self._ending = ending
            _log.info("%s was disconnected (%s): %s", self._private, ending.why, ending.text)
        self._close_connection()

    # Writing.

    def _flush(self) -> None:
        out, transport = self._out, self._transport
        if transport is None or self._is_closed or transport.is_closing():
            out.clear()  # `connection_lost` follows, if it has not been
            return
        while not out.is_blocked and not transport.is_closing() and (data := out.take()):
            transport.write(data)  # `pause_writing` is called from within where the socket takes no more
        out.settle()
        if out.is_blocked:
            self._check_pace()
        else:
            out.over_since = None

    def _check_pace(self) -> None:
        """Disconnect a client that does not receive (section 8)."""
        settings, out = self._desk.settings, self._out
        if self._is_closed or self._seat is None:
            return
        if out.waiting_bytes > settings.max_bytes:
            self.put_out(f"{out.waiting_bytes} bytes wait for it, and {settings.max_bytes} may")
        elif out.is_over(settings.max_messages, self._loop.time(), settings.grace_s):
            self.put_out(f"{out.messages} messages wait for it, and {settings.max_messages} may")
        elif out.over_since is not None and self._timer is None:
            self._set_timer(settings.grace_s, self._check_again)

    @property
    def _is_behind(self) -> bool:
        """More waits for the client than may: it has to read before it sends."""
        return self._out.is_blocked and self._out.messages > self._desk.settings.max_messages

    def _check_again(self) -> None:
        self._timer = None
        self._check_pace()

    @property
    def waiting_bytes(self) -> int:
        return self._out.waiting_bytes

    def put_out(self, text: str) -> None:
        if self._ending is None and self._seat is not None:
            self._desk.counters["kicked"] += 1
            self._requests.clear()
            self._end(Ending(SessionEnd.SLOW, f"it did not receive: {text}"))
            if self._transport is not None:
                self._transport.abort()

    def hang_up(self) -> None:
        """The daemon takes no more clients: those that have a session are told by it."""
        if self._seat is None and self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._is_closed and not self._transport.is_closing():
            self._transport.write(data)

    # The end.

    def _end(self, ending: Ending) -> None:
        """The session ends, after what its client has requested."""
        self._ending = ending
        _log.info("%s left (%s): %s", self._private, ending.why, ending.text)
        if self._requests:
            self._set_timer(END_S, self._leave)
            self._work()
        else:
            self._leave()

    def _leave(self) -> None:
        self._requests.clear()
        if self._seat is not None and self._ending is not None:
            self._seat.close(*self._ending)
        self._close_connection()

    def _close_connection(self) -> None:
        transport = self._transport
        self._out.clear()
        if transport is None or self._is_closed:
            return
        self._is_closed = True
        transport.close()
        self._set_timer(CLOSE_S, transport.abort)

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._is_closed and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()

    def _set_timer(self, delay_s: float, action: Callable[[], None] | None) -> None:
        """The one timer of the connection; None: no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if action is not None:
            self._timer = self._loop.call_later(delay_s, action)
