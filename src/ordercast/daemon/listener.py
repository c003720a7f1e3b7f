"""The sockets of a daemon: unix sockets and TCP on asyncio. One `asyncio.Protocol` for each connection."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from ordercast.client.half_open import end_when_alone
from ordercast.daemon.hub import Hub
from ordercast.daemon.native import WRITE_BYTES, NativeConnection
from ordercast.errors import UsageError

HELLO_S: Final = 5.0
"""How long a connection may take to say HELLO."""

SPARE_CONNECTIONS: Final = 256
"""Connections beyond `max_sessions`, which have not said HELLO yet. At the bound a new one is closed."""

CLOSE_S: Final = 1.0
"""How long a connection that is closed may take to receive the rest. Then it is cut."""

UNREAD_BYTES: Final = 4 * WRITE_BYTES
"""Bytes that wait for a client before nothing more is read from it."""

SOCKET_BYTES: Final = 1 << 20
"""Asked of the kernel for what is on its way to a client; it may give less. On a busy machine client and daemon run in
turns, and a turn moves at most so much."""

BACKLOG: Final = 512
"""Connections that wait to be accepted."""


class Connection(Protocol):
    """What speaks a protocol on one connection, whatever it is."""

    is_over: bool

    @property
    def is_open(self) -> bool:
        """Whether its client has been let in."""

    def receive(self, data: bytes) -> None: ...

    def settle(self) -> None: ...

    def lost(self, text: str) -> None: ...


class ClientSocket(asyncio.Protocol):
    """One accepted connection. It is the `ByteSink` of what speaks on it."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_deaf = False  # the client has much to receive before it is heard again

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        self._transport = transport
        if not self._listener.admit(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_BYTES - 1, low=WRITE_BYTES // 4)
        _tune(transport.get_extra_info("socket"), self._listener.is_blocking)
        self._connection = self._listener.speak(self, _name_of(transport))
        self._timer = self._loop.call_later(HELLO_S, self._on_silence)

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.receive(data)
            # A client that asks and does not receive the answers is not heard any more until it does.
            transport = self._transport
            if transport is None or transport.is_closing() or self._is_deaf:
                return
            if self.pending_bytes() > UNREAD_BYTES:
                self._is_deaf = True
                transport.pause_reading()

    def pause_writing(self) -> None:
        """`pending_bytes` tells it."""

    def resume_writing(self) -> None:
        if self._is_deaf and self._transport is not None and not self._transport.is_closing():
            self._is_deaf = False
            self._transport.resume_reading()
        if self._connection is not None:
            self._connection.settle()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.lost(str(error) if error is not None else "the client has closed the connection")

    # What the connection calls.

    def send(self, frames: Sequence[bytes]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(frames)  # uvloop copies none of them

    def pending_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(CLOSE_S, transport.abort)

    # In detail.

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _on_silence(self) -> None:
        if self._connection is not None and not self._connection.is_open and self._transport is not None:
            self._transport.abort()


class Listener:
    """Accepts connections, and counts them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._servers: list[asyncio.Server] = []
        self._sockets: set[ClientSocket] = set()
        self._paths: list[Path] = []
        self.addresses: list[str] = []  # as clients write them

    def __len__(self) -> int:
        return len(self._sockets)

    async def listen_unix(self, path: str | Path, mode: int = 0o660) -> None:
        """Listen on a unix socket. A file that a dead daemon has left is removed; one of a living daemon is not."""
        where = Path(path)
        await _make_way(where)
        loop = asyncio.get_running_loop()
        try:
            where.parent.mkdir(parents=True, exist_ok=True)
            server = await loop.create_unix_server(self._accept, str(where), backlog=BACKLOG)
            os.chmod(where, mode)
        except OSError as error:
            raise UsageError(f"no socket can be made at {where}: {error.strerror or error}") from error
        self._servers.append(server)
        self._paths.append(where)
        self.addresses.append(f"unix:{where}")

    async def listen_tcp(self, host: str, port: int) -> None:
        """Listen on an address of this machine; port 0 takes a free one."""
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
        except OSError as error:
            text = f"no client can be waited for at {host}:{port}: {error.strerror or error}"
            raise UsageError(f"{text}; choose another address with --listen") from error
        self._servers.append(server)
        for each in server.sockets:
            address = each.getsockname()
            self.addresses.append(f"tcp://{address[0]}:{address[1]}")

    async def close(self) -> None:
        """Accept no more, and close what is open after what it was sent."""
        for server in self._servers:
            server.close()
        for path in self._paths:
            path.unlink(missing_ok=True)
        for each in list(self._sockets):
            each.close()
        deadline = asyncio.get_running_loop().time() + CLOSE_S
        while self._sockets and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for each in list(self._sockets):
            each.abort()

    # What the sockets call.

    @property
    def is_blocking(self) -> bool:
        """The underlay waits for clients that do not receive."""
        return self._hub.seats.limits.is_blocking

    def admit(self, client: ClientSocket) -> bool:
        if len(self._sockets) >= self._hub.seats.limits.max_sessions + SPARE_CONNECTIONS:
            self._hub.seats.refused += 1
            return False
        self._sockets.add(client)
        return True

    def forget(self, client: ClientSocket) -> None:
        self._sockets.discard(client)

    def speak(self, client: ClientSocket, name: str) -> Connection:
        return NativeConnection(self._hub, client, name)

    def _accept(self) -> ClientSocket:
        return ClientSocket(self)


async def _make_way(path: Path) -> None:
    """Remove the socket of a daemon that is gone."""
    try:
        found = path.lstat()
    except OSError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise UsageError(f"{path} is there, and is no socket: choose another path")
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except ConnectionRefusedError:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            text = f"the socket {path} of a daemon that is gone cannot be removed: {error.strerror or error}"
            raise UsageError(f"{text}; remove it, or choose another path with --unix") from error
    except OSError as error:
        raise UsageError(f"the socket {path} is there, and cannot be used: {error.strerror or error}") from error
    else:
        writer.close()
        raise UsageError(f"another daemon listens at {path}: stop it, or choose another path with --unix")


def _name_of(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple) and len(peer) >= 2:
        return f"{peer[0]}:{peer[1]}"
    found = transport.get_extra_info("socket")
    if found is not None and hasattr(socket, "SO_PEERCRED"):
        try:
            pid = int.from_bytes(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")
        except OSError:
            return "a unix socket"
        return f"process {pid}"
    return "a unix socket"


def _tune(found: socket.socket | None, is_blocking: bool) -> None:
    """`is_blocking`: no client is disconnected for not receiving."""
    if found is None:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    if found.family == socket.AF_UNIX:
        return
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end_when_alone(found, may_stand=is_blocking)
