"""Where Spread's clients connect: a TCP port, and the unix socket that has the port as its name (section 2)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ordercast.client.half_open import end_when_alone
from ordercast.daemon.seat import Seats
from ordercast.daemon.spread.desk import SpreadDesk
from ordercast.daemon.spread.membership import MemberOrder
from ordercast.daemon.spread.session import SpreadSession
from ordercast.daemon.spread.settings import SOCKET_FOLDER, SPREAD_PORT, SpreadSettings
from ordercast.errors import UsageError

BACKLOG: Final = 1_024
SOCKET_BYTES: Final = 200 << 10
"""Buffers of a client's socket, as Spread enlarges them."""

SOCKET_MODE: Final = 0o666


class SpreadListener:
    """The places where clients connect to one daemon."""

    __slots__ = ("_paths", "_servers", "desk")

    def __init__(self, seats: Seats, settings: SpreadSettings | None = None, daemons: Sequence[str] = ()) -> None:
        """`daemons`: in the order of the configuration, which is that of lists of members."""
        self.desk = SpreadDesk(seats, settings if settings is not None else SpreadSettings(), MemberOrder(daemons))
        self._servers: list[asyncio.Server] = []
        self._paths: list[Path] = []

    async def listen(self, host: str = "127.0.0.1", port: int = SPREAD_PORT) -> None:
        """Take clients at a TCP port."""
        try:
            server = await asyncio.get_running_loop().create_server(
                self._connect, host, port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            text = f"clients of Spread cannot be taken at {host}:{port}: {error.strerror or error}"
            raise UsageError(f"{text}; choose another address with --spread") from error
        self._servers.append(server)
        for each in server.sockets:
            # Connections have the options of the socket that accepts them.
            end_when_alone(each, may_stand=True)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)

    async def listen_unix(self, port: int = SPREAD_PORT, folder: str | Path = SOCKET_FOLDER) -> Path:
        """Take clients at the unix socket of a port; where it is."""
        path = Path(folder) / str(port)
        _remove_stale(path)
        try:
            server = await asyncio.get_running_loop().create_unix_server(self._connect, path, backlog=BACKLOG)
            path.chmod(SOCKET_MODE)
        except OSError as error:
            raise UsageError(f"clients of Spread cannot be taken at {path}: {error.strerror or error}") from error
        self._servers.append(server)
        self._paths.append(path)
        return path

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The TCP addresses at which clients are taken."""
        found = [each.getsockname() for server in self._servers for each in server.sockets]
        return [(name[0], name[1]) for name in found if isinstance(name, tuple)]

    def close(self) -> None:
        """Take no more clients. Those that are connected are the daemon's to end (`Seats.stop`)."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for path in self._paths:
            with contextlib.suppress(OSError):
                path.unlink()
        self._paths.clear()
        for visitor in list(self.desk.visitors):
            visitor.hang_up()

    def _connect(self) -> SpreadSession:
        return SpreadSession(self.desk)


def _remove_stale(path: Path) -> None:
    """A socket that nobody listens at any more is removed; one that is in use, and any other file, is not."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise UsageError(f"{path} is a file and no socket: remove it, or choose another folder or port")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"{path} cannot be looked at: {error.strerror or error}; choose another folder with --spread-dir"
        ) from error
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                text = f"the socket {path} of a daemon that is gone cannot be removed: {error.strerror or error}"
                raise UsageError(f"{text}; remove it, or choose another folder with --spread-dir") from error
            return
        except OSError as error:
            raise UsageError(f"{path} cannot be used: {error.strerror or error}") from error
    raise UsageError(f"another daemon takes clients at {path}: choose another port or folder")
