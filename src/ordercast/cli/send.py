"""`ordercast send`: messages to groups, from the command line or from standard input."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from ordercast.cli.arguments import group_name, whole
from ordercast.cli.asking import read_payload, read_service
from ordercast.cli.place import Place, add_place, through
from ordercast.config import MAX_PRIORITY
from ordercast.errors import UsageError
from ordercast.groups.checks import TYPE_MAX, TYPE_MIN

HELP: Final = "send messages to groups, through a daemon or as a node"
EXAMPLES: Final = """examples:
  ordercast send prices "EURUSD 1.09"
      one message, and wait until it is delivered
  tail -f ticks.txt | ordercast send prices -
      one message for each line
  ordercast send prices,trades --service SAFE closing
      one message to two groups
  ordercast send prices hello --embedded
      without a daemon: the node joins the group for a moment"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast send`."""
    parser.description = (
        "Sends messages to one or several groups, whose members get them once each; the sender need not be a member. "
        "It ends when all are delivered."
    )
    parser.add_argument("groups", metavar="GROUPS", help="the names of the groups, with commas between them")
    parser.add_argument("messages", nargs="+", metavar="MESSAGE", help="a message each; -: one for each line of input")
    parser.add_argument("--service", default="AGREED", help="what is promised, as SAFE (AGREED)")
    parser.add_argument("--type", type=whole(TYPE_MIN, TYPE_MAX), default=0, help="a number that goes with it (0)")
    parser.add_argument(
        "--priority", type=whole(0, MAX_PRIORITY), default=0, help=f"up to {MAX_PRIORITY}: expedite it (0)"
    )
    add_place(parser)


def run(args: argparse.Namespace) -> int:
    """Send, and wait for the last."""
    try:
        groups = [group_name(each) for each in args.groups.split(",") if each]
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error)) from error
    if not groups:
        raise UsageError("name at least one group")
    service = read_service(args.service)

    async def work(place: Place) -> int:
        count, position = 0, None
        for message in args.messages:
            for text in sys.stdin if message == "-" else [message]:
                payload = read_payload(text.removesuffix("\n"))
                position = await place.send(payload, groups, service, args.type, args.priority)
                count += 1
        answer = {"sent": count, "groups": groups, "service": str(service), "position": position}
        print(json.dumps(answer) if args.json else f"{count} delivered to {', '.join(groups)}", flush=True)
        return 0

    return through(args, work)
