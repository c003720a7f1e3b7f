"""What a daemon is told before it starts: flags, environment variables, a TOML file, defaults, in this order.

The file is a configuration of sites (docs/guides/sites.md) with three more tables, `[node]`, `[clients]` and
`[spread]`. Without `[[site]]` and `[[daemon]]` in it, or without a file, a daemon of `sites` is alone on loopback. A
file whose name ends with `.conf` is a `spread.conf` (docs/guides/moving-from-spread.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ordercast.client.addresses import DAEMON_PORT, default_socket
from ordercast.config import SITES_ORDERER, SITES_UNDERLAY
from ordercast.daemon.seat import Limits
from ordercast.daemon.spread.config import SpreadConfig, own_daemon, read_spread, spread_of_conf
from ordercast.errors import UsageError
from ordercast.groups.consumption import HELD_BYTES, SESSION_BYTES
from ordercast.orderers import ORDERERS
from ordercast.sites import DaemonSpec, Site, SitesConfig, load_spread_conf
from ordercast.sites.reading import read_sites
from ordercast.sites.tables import TomlTable, read_text
from ordercast.sites.units import parse_bytes, parse_duration

NODE_KEYS: Final = ("name", "site", "orderer", "underlay", "host", "port", "peers", "insecure", "trace")
SPREAD_KEYS: Final = ("spread", "spread_dir")  # of flags; the table has more
SPREAD_SUFFIX: Final = ".conf"
CLIENT_KEYS: Final = ("unix", "listen", "session_limit", "total_limit", "max_sessions", "slow", "patience")
SLOW: Final = ("disconnect", "block")
UNDERLAY: Final = "ordercast"
"""The underlay of daemons that have another orderer than `sites`."""
LOOPBACK: Final = "127.0.0.1"
MAX_SESSIONS: Final = 65_536
NONE: Final = "none"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """All of it, checked."""

    name: str | None = None
    site: str | None = None
    orderer: str = SITES_ORDERER
    underlay: str = SITES_UNDERLAY
    sites: SitesConfig | None = None
    """None with `orderer="sites"`: alone on loopback."""
    host: str = LOOPBACK
    """Of the node, where the orderer is not `sites`."""
    port: int = 0
    peers: tuple[str, ...] = ()
    insecure: bool = False
    trace: str | None = None
    unix: str | None = None
    """The path of the socket for clients; None: there is none."""
    listen: tuple[tuple[str, int], ...] = ()
    """Addresses for clients over TCP."""
    limits: Limits = field(default_factory=Limits)
    spread: SpreadConfig | None = None
    """Where clients of Spread connect; None: they cannot."""
    warnings: tuple[str, ...] = ()
    """What of the file was passed over."""


def load_daemon_config(
    path: str | Path | None, flags: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> DaemonConfig:
    """Read the file, and what flags and environment say instead. `flags`: by their names, None where not given."""
    environment = os.environ if environment is None else environment
    path = path if path is not None else environment.get("ORDERCAST_CONFIG")
    conf = load_spread_conf(path) if path and str(path).endswith(SPREAD_SUFFIX) else None
    root = TomlTable.document(read_text(path) if path and conf is None else "", str(path or "no file"))
    node, clients = root.table("node"), root.table("clients")
    node.only(NODE_KEYS, "[node]")
    clients.only(CLIENT_KEYS, "[clients]")
    has_sites = "site" in root or "daemon" in root
    sites = conf.sites if conf is not None else read_sites(root) if has_sites else None

    def pick(word: str, table: TomlTable, default: _T, parse: Callable[[object], _T]) -> _T:
        """From a flag, a variable, the file, or the default."""
        given = flags.get(word)
        where, value = f"--{word.replace('_', '-')}", given
        if given is None or given == []:
            variable = f"ORDERCAST_{word.upper()}"
            where, value = variable, environment.get(variable)
            if value is None:
                return table.read(word, default, parse)
        try:
            return parse(value)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from error

    orderer = pick("orderer", node, SITES_ORDERER, _orderer)
    if sites is not None and orderer != SITES_ORDERER:
        raise UsageError(
            f"{path} has sites, which the {orderer} orderer knows nothing of: leave out the one or the other"
        )
    session = pick("session_limit", clients, Limits().session_bytes, parse_bytes)
    total = pick("total_limit", clients, Limits().total_bytes, parse_bytes)
    is_blocking = pick("slow", clients, "disconnect", _slow) == "block"
    _check_limits(session, total)
    limits = Limits(
        session_bytes=session,
        total_bytes=total,
        patience_ns=pick("patience", clients, Limits().patience_ns, parse_duration),
        is_blocking=is_blocking,
        max_sessions=pick("max_sessions", clients, Limits().max_sessions, _whole(1, MAX_SESSIONS)),
    )
    nobody: tuple[str, ...] = ()
    host, peers = pick("host", node, LOOPBACK, _text), pick("peers", node, nobody, _texts)
    if orderer == SITES_ORDERER and (host != LOOPBACK or peers):
        raise UsageError(
            "host and peers are for daemons with another orderer, such as --orderer token; where the daemons of sites "
            "are, [[daemon]] of the file says"
        )
    site = pick("site", node, None, _optional)
    if site is not None and sites is None:
        raise UsageError(f"site {site!r} says where a daemon is in a configuration of sites: give its file, or no site")
    unix = pick("unix", clients, str(default_socket()), _text)
    name = pick("name", node, None, _optional)
    if conf is None:
        spread = read_spread(root, flags, environment)
    else:
        name = name if name is not None else own_daemon(conf.sites)
        spread = spread_of_conf(conf, name, flags, environment)
    return DaemonConfig(
        name=name,
        site=site,
        orderer=orderer,
        underlay=pick("underlay", node, SITES_UNDERLAY if orderer == SITES_ORDERER else UNDERLAY, _text),
        sites=sites,
        host=host,
        port=pick("port", node, 0, _whole(0, 65_535)),
        peers=peers,
        insecure=pick("insecure", node, False, _yes),
        trace=pick("trace", node, None, _optional),
        unix=None if unix == NONE else unix,
        listen=pick("listen", clients, ((LOOPBACK, DAEMON_PORT),), _addresses),
        limits=limits,
        spread=spread,
        warnings=conf.warnings if conf is not None else (),
    )


def lone_site(name: str, port: int) -> SitesConfig:
    """One daemon, alone on loopback."""
    return SitesConfig((Site("local", 0),), (DaemonSpec(name, "local", "127.0.0.1", port),))


def _check_limits(session: int, total: int) -> None:
    if not 65_536 <= session <= SESSION_BYTES // 2:
        raise UsageError(
            f"the limit of a session lies between 64KiB and {SESSION_BYTES // 2} bytes, got {session}: beyond that a "
            "client that does not receive would hold up all others"
        )
    if not session <= total <= HELD_BYTES:
        raise UsageError(
            f"the limit of all sessions lies between that of one, {session}, and {HELD_BYTES} bytes, got {total}"
        )


def _orderer(value: object) -> str:
    names = (SITES_ORDERER, *ORDERERS)
    if value not in names:
        raise ValueError(f"no orderer is called {value!r}; there are {', '.join(names)}")
    return str(value)


def _slow(value: object) -> str:
    if value not in SLOW:
        raise ValueError(f"a client that does not receive is {' or '.join(SLOW)}: not {value!r}")
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"a text is wanted, not {value!r}")
    return value


def _optional(value: object) -> str | None:
    return _text(value)


def _texts(value: object) -> tuple[str, ...]:
    values = value.split(",") if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ValueError(f"a list of texts is wanted, not {value!r}")
    return tuple([each.strip() for each in values if each.strip()])


def _yes(value: object) -> bool:
    words: dict[object, bool] = {True: True, False: False, "1": True, "0": False, "yes": True, "no": False}
    if value not in words:
        raise ValueError(f"yes or no is wanted, not {value!r}")
    return words[value]


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most} is wanted, not {value!r}")
        return number

    return read


def _addresses(value: object) -> tuple[tuple[str, int], ...]:
    """`host:port`, or several; `none` for none."""
    texts = _texts(value)
    return tuple([_address(text) for text in texts if text != NONE])


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon and not text.isdecimal():  # to the system 4810 would be the address 0.0.18.202
        return text, DAEMON_PORT
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{text!r} is no address for clients; write host:port, as in 127.0.0.1:{DAEMON_PORT}")
    return host.strip("[]"), int(port)
