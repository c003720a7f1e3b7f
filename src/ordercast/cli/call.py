"""`ordercast call`: ask the holder of a handler, and print its answer (RMP section 3.3)."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from ordercast.cli.arguments import decimal, group_name, whole
from ordercast.cli.asking import read_payload, read_service, shown_payload
from ordercast.cli.place import Place, add_place, through
from ordercast.errors import CallTimeout, OutcomeUnknown, Unhandled
from ordercast.wire.calls import HANDLERS

HELP: Final = "call a group, through a daemon or as a node, and print the answer"
EXAMPLES: Final = """examples:
  ordercast call calculator "2 + 3" --handler 2
      through the daemon of this user
  ordercast call calculator "2 + 3" --handler 2 --embedded
      without a daemon, from outside the group
  ordercast call log "remember this" --service SAFE
      without a handler: until it is delivered"""
MAX_SECONDS: Final = 86_400.0
FAILED: Final = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast call`."""
    parser.description = (
        "Sends one message to a group whose members see it in the common order. The member that holds the handler "
        "answers, and the answer is printed. Groups of the token orderer have handlers. Exit code 1: there was no "
        "answer."
    )
    parser.add_argument("group", type=group_name, metavar="GROUP", help="the group's name")
    parser.add_argument("message", metavar="MESSAGE", help="what is asked; -: standard input, as it is")
    parser.add_argument("--handler", type=whole(0, HANDLERS - 1), default=None, help="who is to answer")
    parser.add_argument("--service", default="AGREED", help="what is promised, as SAFE (AGREED)")
    parser.add_argument("--timeout", type=decimal(0, MAX_SECONDS), default=10.0, help="seconds to wait (10)")
    add_place(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, and print."""
    service = read_service(args.service)
    payload = sys.stdin.buffer.read() if args.message == "-" else read_payload(args.message)

    async def work(place: Place) -> int:
        try:
            answer = await place.call(args.group, payload, args.handler, service, args.timeout)
        except (CallTimeout, OutcomeUnknown, Unhandled) as error:
            print(f"ordercast call: {error}", file=sys.stderr)
            return FAILED
        if args.json:
            found: dict[str, Any] = {"group": args.group, "handler": args.handler, "service": str(service)}
            print(json.dumps(found | (shown_payload(answer, "answer") if answer is not None else {})), flush=True)
        elif answer is not None:
            print(answer.decode(errors="backslashreplace"), flush=True)
        else:
            print(f"delivered to {args.group}", flush=True)
        return 0

    return through(args, work)
