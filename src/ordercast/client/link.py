"""The connection of a client on asyncio: it is made, lost, and made again, to the next daemon of a list."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Final, Protocol, cast

from ordercast.client.addresses import DaemonAddress
from ordercast.client.half_open import end_when_alone
from ordercast.client.session import ClientSession
from ordercast.errors import JoinRefused, NotMember, OrdercastError, UsageError, WireError
from ordercast.groups.status import Stalled
from ordercast.wire.client_frames import encode_ping
from ordercast.wire.daemon_frames import Refusal, Welcome, decode_close, decode_refused, decode_welcome_frame
from ordercast.wire.endings import SessionEnd
from ordercast.wire.frames import MAX_DAEMON_FRAME, FrameBuffer, FrameKind, frame

TRY_S: Final = 5.0
"""How long one try to connect may take, its HELLO included."""

LEAST_PAUSE_S: Final = 0.05
MOST_PAUSE_S: Final = 2.0
"""Between two rounds over all daemons: doubled from the one to the other."""

PING_S: Final = 5.0
"""A daemon that has been silent for so long is asked whether it is there."""

DEAD_S: Final = 20.0
"""One that has been silent for so long is given up, and the connection is made anew."""

SOCKET_BYTES: Final = 1 << 20
"""Asked of the kernel for what is on its way to the daemon."""

_FINAL: Final = frozenset((SessionEnd.PROTOCOL, SessionEnd.KICKED, SessionEnd.REPLACED))
"""After these a client does not come back by itself."""

_log = logging.getLogger("ordercast.client")
_group_log = logging.getLogger("ordercast.group")


class SessionListener(Protocol):
    """What is told when something has come: the groups that the application has open."""

    def settle(self) -> None: ...

    def fail(self, error: OrdercastError) -> None: ...


class DaemonLink(asyncio.Protocol):
    """One connection. It ends with `closed`, which says why."""

    def __init__(self, keeper: LinkKeeper) -> None:
        loop = asyncio.get_running_loop()
        self._keeper = keeper
        self._frames = FrameBuffer(MAX_DAEMON_FRAME)
        self._transport: asyncio.Transport | None = None
        self._heard_s = loop.time()
        self._ping: asyncio.TimerHandle | None = None
        self._stalled: Stalled | None = None  # that the log has
        self._loop = loop
        self.opened: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[tuple[str, str]] = loop.create_future()  # the word and the text of a CLOSE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        self._transport = transport
        transport.set_write_buffer_limits(high=4 << 20)  # credit bounds what is written
        found = transport.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
            if found.family != socket.AF_UNIX:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end_when_alone(found)
        transport.write(self._keeper.session.hello())
        self._ping = self._loop.call_later(PING_S, self._on_ping)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        session = self._keeper.session
        try:
            for kind, body in self._frames.feed(data):
                if not self.opened.done():
                    self._on_first(kind, body)
                elif kind == FrameKind.CLOSE:
                    self._end(*decode_close(body))
                elif not self.closed.done():
                    session.on_frame(kind, body)
        except WireError as error:
            self._end(SessionEnd.LOST, f"the daemon sent what no daemon sends: {error}")
        if session.stalled is not self._stalled:
            self._log_stall(session)
        self._keeper.came()

    def connection_lost(self, error: Exception | None) -> None:
        if self._ping is not None:
            self._ping.cancel()
        self._end(SessionEnd.LOST, str(error) if error is not None else "the daemon has closed the connection")

    @property
    def is_open(self) -> bool:
        """Whether the daemon has answered, and the connection has not ended since."""
        is_closing = self._transport is None or self._transport.is_closing()
        return self.opened.done() and not self.closed.done() and not is_closing

    def write(self, frames: Sequence[bytes]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(frames)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _log_stall(self, session: ClientSession) -> None:
        """Here and not in the session, which also runs in the simulator, where nothing is logged. The daemon logs it as
        well, but the program that waits is this one."""
        before, self._stalled = self._stalled, session.stalled
        stalled, underlay = session.stalled, session.terms.underlay
        if stalled is None:
            lasted_s = self._loop.time() - before.since if before is not None else 0.0
            _group_log.info("%s in %r: goes on after %.1f s without progress", session.member, underlay, lasted_s)
            return
        lasted_s, text = self._loop.time() - stalled.since, stalled.text
        _group_log.warning("%s in %r: no progress for %.1f s: %s", session.member, underlay, lasted_s, text)

    def _on_first(self, kind: int, body: bytes) -> None:
        if kind == FrameKind.WELCOME:
            welcome = decode_welcome_frame(body)
            self.opened.set_result(None)
            self._keeper.on_opened(self, welcome)
        elif kind == FrameKind.REFUSED:
            code, text = decode_refused(body)
            if code == Refusal.LABEL_TAKEN:
                self._keeper.session.on_label_taken()
            kinds = {Refusal.USAGE: UsageError, Refusal.VERSION: UsageError, Refusal.LABEL_TAKEN: JoinRefused}
            self._refuse(kinds.get(code, NotMember)(text))  # type: ignore[call-overload]
        else:
            self._refuse(NotMember("the other end is no daemon of Ordercast"))

    def _refuse(self, error: OrdercastError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()
        self._end(SessionEnd.LOST, str(error))

    def _end(self, why: str, text: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(NotMember(text))
            self.opened.exception()
        if not self.closed.done():
            self.closed.set_result((why, text))
        if self._transport is not None:
            self._transport.close()

    def _on_ping(self) -> None:
        silent_s = self._loop.time() - self._heard_s
        if silent_s >= DEAD_S:
            self._end(SessionEnd.LOST, f"the daemon has not answered for {DEAD_S:g} s")
            self.abort()
            return
        if silent_s >= PING_S:
            self.write([encode_ping(1)])
        self._ping = self._loop.call_later(PING_S, self._on_ping)


class LinkKeeper:
    """Keeps one session connected. It is the session's `ClientDriver`."""

    def __init__(self, addresses: Sequence[DaemonAddress], label: str, reconnect: bool, window: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._addresses = list(addresses)
        self._reconnect = reconnect
        self._listener: SessionListener | None = None
        self._link: DaemonLink | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_woken = False
        self._is_warm = False
        self.is_closed = False
        self._is_leaving = False
        self.session = ClientSession(label, self, window)
        self.address: DaemonAddress | None = None  # of the present connection, or of the last one

    # Connecting.

    async def start(self, timeout: float | None) -> None:
        """The first connection. Raises what stands against it."""
        error: Exception = NotMember("no daemon was tried")
        try:
            async with asyncio.timeout(timeout):
                pause_s = LEAST_PAUSE_S
                while True:
                    for address in self._addresses:
                        try:
                            await self._connect(address)
                            return
                        except (UsageError, JoinRefused):
                            raise
                        except (OSError, OrdercastError) as failed:
                            error = failed
                    if timeout is None:
                        break
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, MOST_PAUSE_S)
        except TimeoutError:
            pass
        places = " and ".join(map(str, self._addresses))
        raise NotMember(f"no daemon answers at {places} ({_reason(error)}): start one with `ordercast daemon`")

    def run(self, listener: SessionListener) -> None:
        """Follow the connection from here on, and tell `listener` of what comes."""
        self._listener = listener
        self._task = self._loop.create_task(self._keep())
        self.came()

    async def _connect(self, address: DaemonAddress) -> None:
        link = DaemonLink(self)
        try:
            async with asyncio.timeout(TRY_S):
                if address.path:
                    await self._loop.create_unix_connection(lambda: link, address.path)
                else:
                    await self._loop.create_connection(lambda: link, address.host, address.port)
                await link.opened
        except BaseException as error:
            # On a busy machine time may be up when the answer is here, and only this task has not run again.
            if not (isinstance(error, TimeoutError) and link.is_open):
                link.abort()
                if self._link is link:
                    self.session.on_lost(f"the connection to {address} was given up", self.now_s())
                raise
        self.address = address

    def on_opened(self, link: DaemonLink, welcome: Welcome) -> None:
        """The daemon has answered: from now on everything goes there. This may be before the task that connects runs
        again, and what the session says at once, its joins, must not go to the connection that is lost."""
        self._link = link
        self.session.on_welcome(welcome)

    async def _keep(self) -> None:
        while not self.is_closed and self._link is not None:
            why, text = await self._link.closed
            if self._has_stopped:
                return
            where = self.address
            self.session.on_lost(f"the connection to the daemon at {where} is lost: {text}", self.now_s())
            self.came()
            if not self._reconnect or why in _FINAL:
                self.stop(NotMember(f"this client has been disconnected ({why}): {text}"))
                return
            _log.warning("%s: the connection to %s is lost: %s", self.session.label, where, text)
            if why == SessionEnd.SLOW:
                await self._wait_for_application()
            await self._connect_again()

    @property
    def _has_stopped(self) -> bool:
        return self.is_closed or self._is_leaving

    async def _wait_for_application(self) -> None:
        """The daemon has put this client out because it did not receive: it comes back when it does."""
        while self.session.has_events and not self.is_closed:
            await asyncio.sleep(LEAST_PAUSE_S)

    async def _connect_again(self) -> None:
        """Without end: the same daemon first, then the others, in turn."""
        if self.address in self._addresses:
            at = self._addresses.index(self.address)
            self._addresses = self._addresses[at:] + self._addresses[:at]
        pause_s = LEAST_PAUSE_S
        while not self.is_closed:
            for address in self._addresses:
                try:
                    await self._connect(address)
                except (OSError, OrdercastError, TimeoutError) as failed:
                    self.session.waits_for = f"no daemon answers at {address}: {_reason(failed)}"
                    continue
                _log.info("%s: connected to %s again", self.session.label, address)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    # Ending.

    async def say_goodbye(self) -> None:
        """End the session in order."""
        link = self._link
        self._is_leaving = True
        if link is not None and not link.closed.done():
            link.write([*self.session.pump(), frame(FrameKind.BYE)])
            await asyncio.wait([link.closed], timeout=1.0)

    def stop(self, error: OrdercastError) -> None:
        """Stop at once: all tasks that wait, and every later call, learn `error`."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._link is not None:
            self._link.close()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if self._listener is not None:
            self._listener.fail(error)

    # What the session asks for.

    def now_s(self) -> float:
        return self._loop.time()  # which is time.monotonic(), or virtual time

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._on_woken)

    def hurry(self) -> None:
        if self._is_warm or self.is_closed:
            self.wake()
            return
        self._is_warm = True
        self._loop.call_soon(self._cool)
        self._write()

    def came(self) -> None:
        """Something has come: what it allows leaves, and the tasks that waited for it go on."""
        self._write()
        if self._listener is not None:
            self._listener.settle()

    def _on_woken(self) -> None:
        self._is_woken = False
        self.came()

    def _cool(self) -> None:
        self._is_warm = False

    def _write(self) -> None:
        frames = self.session.pump()
        if frames and self._link is not None:
            self._link.write(frames)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
