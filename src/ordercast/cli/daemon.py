"""`ordercast daemon`: one process that does the ordering for the programs of its machine (docs/guides/daemon.md)."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any, Final

from ordercast.daemon.config import CLIENT_KEYS, NODE_KEYS, SLOW, SPREAD_KEYS, DaemonConfig, load_daemon_config
from ordercast.daemon.daemon import OrdercastDaemon, check_daemon, check_node
from ordercast.daemon.notify import notify
from ordercast.daemon.spread.settings import SOCKET_FOLDER, SPREAD_PORT
from ordercast.orderers import ORDERERS
from ordercast.runtime.running import run as run_loop

HELP: Final = "run a daemon, to which light clients connect"
DESCRIPTION: Final = (
    "One daemon for each machine does the ordering, and any number of programs connect to it, over a unix socket or "
    "TCP. CONFIG is a configuration of sites, with a table [clients]. Without it a daemon is alone on loopback, so "
    "that clients of one machine work without any configuration. A file whose name ends with .conf is a spread.conf: "
    "programs written for Spread connect to such a daemon, or to one with --spread. Every flag has an environment "
    "variable: ORDERCAST_LISTEN for --listen, and so on. Flags count before variables, and both before the file."
)
EXAMPLES: Final = """examples:
  ordercast daemon
      alone on loopback; ordercast.connect() finds it
  ordercast daemon wan.toml --name e1 --insecure
      the daemon e1 of a configuration of sites
  ordercast daemon --orderer token --listen 127.0.0.1:4810 --unix none
      daemons on one network that find each other by multicast; clients by TCP only
  ordercast daemon --spread
      programs written for Spread connect as well, to port 4803 and to the socket /tmp/4803
  ordercast daemon spread.conf
      the daemon of this machine in a configuration of Spread
  ordercast daemon wan.toml --name e1 --check
      say what it would do, and end"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast daemon`."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "config", nargs="?", type=Path, default=None, metavar="CONFIG", help="the configuration: TOML, or a spread.conf"
    )
    parser.add_argument("--check", action="store_true", help="check the configuration, show it, and end")
    parser.add_argument("--name", default=None, help="which daemon of CONFIG this is; without sites the node's name")
    parser.add_argument("--site", default=None, help="the site of CONFIG that this daemon is in, as a safeguard")
    parser.add_argument("--orderer", default=None, metavar="NAME", help=f"sites, {', '.join(ORDERERS)} (sites)")
    parser.add_argument("--underlay", default=None, metavar="NAME", help="the underlay that carries all groups")
    parser.add_argument("--host", default=None, help="the node's address, where the orderer is not sites (127.0.0.1)")
    parser.add_argument("--port", default=None, help="its UDP port; 0: a free one (0)")
    parser.add_argument(
        "--peers",
        default=None,
        metavar="LIST",
        help="other daemons, host:port with commas, without multicast",
    )
    parser.add_argument("--unix", default=None, metavar="PATH", help="the socket for clients; none: no such socket")
    parser.add_argument(
        "--listen", action="append", default=None, metavar="HOST:PORT", help="let clients in by TCP; none: do not"
    )
    parser.add_argument(
        "--spread",
        nargs="?",
        const=f"127.0.0.1:{SPREAD_PORT}",
        default=None,
        metavar="HOST:PORT",
        help=f"let clients of Spread in (127.0.0.1:{SPREAD_PORT}); none: do not",
    )
    parser.add_argument(
        "--spread-dir",
        default=None,
        metavar="DIR",
        help=f"of Spread's unix socket, which has the port as its name ({SOCKET_FOLDER}); none: no such socket",
    )
    parser.add_argument("--session-limit", default=None, metavar="BYTES", help="that may wait for one client (8MiB)")
    parser.add_argument("--total-limit", default=None, metavar="BYTES", help="that may wait for all clients (48MiB)")
    parser.add_argument("--max-sessions", default=None, metavar="N", help="clients at a time (4096)")
    parser.add_argument("--patience", default=None, metavar="TIME", help="how long more may wait for one client (1s)")
    parser.add_argument("--slow", default=None, choices=SLOW, help="what becomes of a client that does not receive")
    parser.add_argument(
        "--insecure",
        action="store_true",
        default=None,
        help="allow other interfaces than loopback: nothing is encrypted yet",
    )
    parser.add_argument("--trace", default=None, metavar="DIR", help="write a trace of the node and its sessions")
    parser.add_argument("--json", action="store_true", help="print what is printed as JSON")


def run(args: argparse.Namespace) -> int:
    """Check, or run until SIGTERM."""
    flags = {word: getattr(args, word) for word in (*NODE_KEYS, *CLIENT_KEYS, *SPREAD_KEYS)}
    config = load_daemon_config(args.config, flags)
    for warning in config.warnings:
        print(f"ordercast daemon: {warning}", file=sys.stderr)
    if args.check:
        check_daemon(config)
        check_node(config)
        _show(described(config), args.json, "the configuration is right")
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    run_loop(_serve(config, args.json))
    return 0


async def _serve(config: DaemonConfig, as_json: bool) -> None:
    daemon = OrdercastDaemon(config)
    await daemon.start()
    try:
        assert daemon.node is not None
        ready = {"daemon": str(daemon.node.member), "clients": daemon.addresses, **described(config)}
        _show(ready, as_json, f"ready: {daemon.node.member} lets clients in at {' and '.join(daemon.addresses)}")
        notify(f"READY=1\nSTATUS=clients connect to {' '.join(daemon.addresses)}")
        await daemon.run()
    finally:
        notify("STOPPING=1")
        await daemon.stop()


def described(config: DaemonConfig) -> dict[str, Any]:
    """A configuration for people and programs."""
    limits, spread = config.limits, config.spread
    return {
        "name": config.name,
        "orderer": config.orderer,
        "underlay": config.underlay,
        "sites": [site.name for site in config.sites.sites] if config.sites is not None else [],
        "daemons": [each.name for each in config.sites.daemons] if config.sites is not None else [],
        "unix": config.unix,
        "listen": [f"{host}:{port}" for host, port in config.listen],
        "spread": [f"{port}@{host}" for host, port in spread.listen] if spread is not None else [],
        "session_limit": limits.session_bytes,
        "total_limit": limits.total_bytes,
        "max_sessions": limits.max_sessions,
        "patience_s": limits.patience_ns / 1e9,
        "slow": "block" if limits.is_blocking else "disconnect",
    }


def _show(document: dict[str, Any], as_json: bool, line: str) -> None:
    if as_json:
        print(json.dumps(document), flush=True)
        return
    print(f"ordercast daemon: {line}", flush=True)
    for word, value in document.items():
        if word not in ("daemon", "clients"):
            print(f"  {word.replace('_', ' '):14} {_plain(value)}", flush=True)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
