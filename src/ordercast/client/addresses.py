"""Where a daemon is, as people write it: `unix:PATH` or `tcp://host:port`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from ordercast.errors import UsageError

DAEMON_PORT: Final = 4810
"""TCP port of the native protocol where nothing else is said."""

DAEMON_VARIABLE: Final = "ORDERCAST_DAEMON"
"""The environment variable that says where the daemon is; several, with commas between them."""

SOCKET_NAME: Final = "ordercast.sock"


class DaemonAddress(NamedTuple):
    """A unix socket, or a host and a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"tcp://{self.host}:{self.port}"


def default_socket() -> Path:
    """Where the daemon of this user listens if nothing else is said."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if folder:
        return Path(folder) / SOCKET_NAME
    return Path(f"/tmp/ordercast-{os.getuid()}") / SOCKET_NAME


def parse_address(text: object) -> DaemonAddress:
    """Read one address. Raises UsageError."""
    if isinstance(text, str):
        kind, _, rest = text.partition(":")
        if kind == "unix" and rest:
            return DaemonAddress(path=rest.removeprefix("//"))
        if kind == "tcp" and rest.startswith("//"):
            host, _, port = rest[2:].rpartition(":")
            if host and port.isdecimal() and 0 < int(port) < 1 << 16:
                return DaemonAddress(host=checked_host(host.strip("[]")), port=int(port))
            if rest[2:] and not host:
                return DaemonAddress(host=checked_host(rest[2:].strip("[]")), port=DAEMON_PORT)
    raise UsageError(f"a daemon is at 'unix:PATH' or at 'tcp://host:port', not at {text!r}")


def checked_host(host: str) -> str:
    """The name or address of a host. Raises UsageError where it can be none: to ask for it would raise anything."""
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise UsageError(f"{host!r} is no name of a host: it has a part that is empty or too long") from error
    return host


def parse_addresses(given: object) -> list[DaemonAddress]:
    """Read one address, or several; None: the environment says it, or the usual socket."""
    if given is None:
        given = os.environ.get(DAEMON_VARIABLE) or f"unix:{default_socket()}"
    if isinstance(given, str):
        given = [text.strip() for text in given.split(",")]
    texts = list(given) if isinstance(given, Iterable) else [given]
    addresses = [parse_address(text) for text in texts if text]
    if not addresses:
        raise UsageError("say where the daemon is: connect('unix:PATH') or connect('tcp://host:port')")
    return addresses
