"""Whether and where a daemon takes clients of Spread: the table `[spread]` of its file, or a `spread.conf`.

Without either, and without `--spread`, the daemon does not take any.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ordercast.daemon.spread.access import METHODS, AccessList, AuthRules, load_access
from ordercast.daemon.spread.frames import MAX_TOTAL_EVER
from ordercast.daemon.spread.settings import SOCKET_FOLDER, SPREAD_PORT, SpreadSettings
from ordercast.errors import UsageError
from ordercast.sites import SitesConfig, SpreadConf
from ordercast.sites.tables import TomlTable
from ordercast.sites.units import parse_bytes, parse_duration
from ordercast.view import Address

LOOPBACK: Final = "127.0.0.1"
NONE: Final = "none"
KEYS: Final = (
    "listen",
    "unix_dir",
    "auth",
    "required_auth",
    "access",
    "max_sessions",
    "max_message",
    "max_messages",
    "grace",
    "session_limit",
    "total_limit",
)
ACCESS_FILE: Final = "spread.access_ip"
ACCESS_FOLDERS: Final = (".", "/etc")
"""Where the list of addresses is looked for if the configuration does not name it, as Spread does."""

MAX_CLIENTS: Final = 65_536


@dataclass(frozen=True, slots=True)
class SpreadConfig:
    """Where clients of Spread connect, and on what terms."""

    listen: tuple[Address, ...] = ((LOOPBACK, SPREAD_PORT),)
    """TCP addresses."""
    folder: str | None = SOCKET_FOLDER
    """Of the unix socket, which has the first port as its name; None: there is none."""
    settings: SpreadSettings = field(default_factory=SpreadSettings)

    @property
    def socket_port(self) -> int | None:
        """The name of the unix socket; None: there is none."""
        return self.listen[0][1] if self.folder is not None and self.listen else None


def read_spread(root: TomlTable, flags: Mapping[str, Any], environment: Mapping[str, str]) -> SpreadConfig | None:
    """From the table `[spread]`, and what `--spread` and `--spread-dir`, or their variables, say instead."""
    table = root.table("spread")
    table.only(KEYS, "[spread]")
    given = flags.get("spread") or environment.get("ORDERCAST_SPREAD")
    if given == NONE or (given is None and "spread" not in root):
        return None
    usual_listen: tuple[Address, ...] = ((LOOPBACK, SPREAD_PORT),)
    listen = table.read("listen", usual_listen, _addresses)
    if given is not None:
        try:
            listen = _addresses(given)
        except ValueError as error:
            raise UsageError(f"--spread: {error}") from error
    folder = flags.get("spread_dir") or environment.get("ORDERCAST_SPREAD_DIR") or table.text("unix_dir", SOCKET_FOLDER)
    usual = SpreadSettings()
    auth = AuthRules(table.read("auth", ("NULL",), _methods), table.read("required_auth", (), _methods))
    settings = SpreadSettings(
        auth=auth,
        access=_access(auth, table.text("access", "")),
        max_sessions=table.whole("max_sessions", usual.max_sessions, 1, MAX_CLIENTS),
        max_message=table.read("max_message", usual.max_message, _bytes),
        max_messages=table.whole("max_messages", usual.max_messages, 1, 1_000_000),
        grace_s=table.read("grace", usual.grace_s, lambda value: parse_duration(value) / 1e9),
        max_bytes=table.read("session_limit", usual.max_bytes, parse_bytes),
        total_bytes=table.read("total_limit", usual.total_bytes, parse_bytes),
    )
    return SpreadConfig(listen, None if folder == NONE else folder, settings)


def spread_of_conf(
    conf: SpreadConf, name: str, flags: Mapping[str, Any], environment: Mapping[str, str]
) -> SpreadConfig | None:
    """What a `spread.conf` says of the daemon of this name."""
    given = flags.get("spread") or environment.get("ORDERCAST_SPREAD")
    if given == NONE:
        return None
    daemon = conf.sites.daemon(name)
    hosts = conf.client_hosts.get(name, (daemon.host,))
    listen = tuple([(host, daemon.port) for host in dict.fromkeys(hosts)])
    if "0.0.0.0" in hosts:
        listen = (("0.0.0.0", daemon.port),)  # it takes the others' clients as well
    if given is not None:
        try:
            listen = _addresses(given)
        except ValueError as error:
            raise UsageError(f"--spread: {error}") from error
    folder = flags.get("spread_dir") or environment.get("ORDERCAST_SPREAD_DIR") or SOCKET_FOLDER
    auth = AuthRules(conf.allowed_methods, conf.required_methods)
    settings = SpreadSettings(auth=auth, access=_access(auth, ""), max_messages=conf.max_session_messages)
    return SpreadConfig(listen, None if folder == NONE else folder, settings)


def own_daemon(sites: SitesConfig, port: int = 0) -> str:
    """The first daemon of a configuration whose address is this machine's, as Spread finds its own entry."""
    for daemon in sites.daemons:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
            try:
                probe.bind((daemon.host, port))
            except OSError:
                continue
            return daemon.name
    names = ", ".join([daemon.name for daemon in sites.daemons])
    raise UsageError(f"no daemon of the file has an address of this machine: give --name, one of {names}")


def _access(auth: AuthRules, path: str) -> AccessList:
    """The list of addresses, where the method IP needs one. Without a file nobody is admitted by it."""
    if "IP" not in auth.offered:
        return AccessList()
    if path:
        return load_access(path)
    for folder in ACCESS_FOLDERS:
        found = Path(folder) / ACCESS_FILE
        if found.is_file():
            return load_access(found)
    return AccessList()


def _methods(value: object) -> tuple[str, ...]:
    values = value.split() if isinstance(value, str) else value
    if not isinstance(values, list) or not all(each in METHODS for each in values):
        raise ValueError(f"a list of authentication methods is wanted, of {' and '.join(METHODS)}, not {value!r}")
    return tuple(values)


def _bytes(value: object) -> int:
    size = parse_bytes(value)
    if not 1_000 <= size <= MAX_TOTAL_EVER:
        raise ValueError(f"a limit of messages lies between 1000 and {MAX_TOTAL_EVER} bytes, not at {size}")
    return size


def _addresses(value: object) -> tuple[Address, ...]:
    """`host:port`, `port`, `port@host` as Spread writes it, or several."""
    values = value.split(",") if isinstance(value, str) else value
    if not isinstance(values, list) or not values or not all(isinstance(each, str) for each in values):
        raise ValueError(f"addresses are written as 127.0.0.1:{SPREAD_PORT}, not {value!r}")
    return tuple([_address(each.strip()) for each in values])


def _address(text: str) -> Address:
    port, at, host = text.partition("@")
    if not at:
        host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65_536):
        raise ValueError(f"{text!r} is no address for clients of Spread; write 127.0.0.1:{SPREAD_PORT}")
    return host.strip("[]") or LOOPBACK, int(port)
