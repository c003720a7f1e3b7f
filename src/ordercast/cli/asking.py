"""What the everyday commands share: where the daemon is, a connection to it, and answers for people and programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ordercast.client.addresses import DAEMON_VARIABLE
from ordercast.client.node import ClientNode, connect
from ordercast.errors import OrdercastError, UsageError
from ordercast.runtime.running import run as run_loop

CONNECT_S: Final = 3.0
_T = TypeVar("_T")


def add_daemon(parser: argparse.ArgumentParser) -> None:
    """The flags of every command that goes through a daemon."""
    parser.add_argument(
        "--daemon",
        default=None,
        metavar="ADDRESS",
        help=f"unix:PATH or tcp://host:port, several with commas (${DAEMON_VARIABLE}, or this user's socket)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one document for each line")


def through(
    args: argparse.Namespace, work: Callable[[ClientNode], Coroutine[Any, Any, _T]], name: str | None = None
) -> _T:
    """Connect, work, and disconnect. What stands against it is bad input: a sentence that says what to do."""

    async def main() -> _T:
        async with await connect(args.daemon, name=name, timeout=CONNECT_S, reconnect=False) as node:
            return await work(node)

    try:
        return run_loop(main())
    except UsageError:
        raise
    except (TimeoutError, OrdercastError) as error:
        raise UsageError(str(error)) from error


def ask(args: argparse.Namespace, what: str, argument: str = "") -> dict[str, Any]:
    """One question to the daemon."""
    return through(args, lambda node: node.ask(what, argument))


def show(document: dict[str, Any], as_json: bool, lines: Callable[[dict[str, Any]], list[str]]) -> None:
    """An answer as JSON, or in lines."""
    print(json.dumps(document) if as_json else "\n".join(lines(document)), flush=True)


def read_payload(text: str) -> bytes:
    """A message as it is typed."""
    return text.encode(errors="surrogateescape")
