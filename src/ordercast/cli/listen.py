"""`ordercast listen`: what comes to groups, as lines."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any, Final

from ordercast.cli.arguments import decimal, group_name, whole
from ordercast.cli.asking import shown_payload
from ordercast.cli.place import Place, add_place, through
from ordercast.engine import Failed, Transitional
from ordercast.groups.events import Event, Left, Message, Uncertain
from ordercast.view import View

HELP: Final = "join groups, through a daemon or as a node, and print what comes"
EXAMPLES: Final = """examples:
  ordercast listen prices
      messages and views, until Ctrl-C
  ordercast listen prices trades --count 10 --json
      ten messages of two groups, in their one order, as JSON
  ordercast listen prices --embedded
      without a daemon: as a member like any node"""
MAX_COUNT: Final = 1 << 40
MAX_SECONDS: Final = 86_400.0 * 365


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast listen`."""
    parser.description = "Joins groups and prints messages and views, in the order that all members share."
    parser.add_argument("groups", nargs="+", type=group_name, metavar="GROUP", help="the groups' names")
    parser.add_argument("--count", type=whole(1, MAX_COUNT), default=None, help="end after so many messages")
    parser.add_argument("--seconds", type=decimal(0, MAX_SECONDS), default=None, help="end after so many seconds")
    add_place(parser)


def run(args: argparse.Namespace) -> int:
    """Print until the end."""

    async def work(place: Place) -> int:
        count = 0
        try:
            async with asyncio.timeout(args.seconds):
                async for event in place.listen(list(dict.fromkeys(args.groups))):
                    if isinstance(event, View) and not event.group and _is_shared(args):
                        continue  # of the daemons themselves
                    print(json.dumps(described(event)) if args.json else _line(event), flush=True)
                    count += isinstance(event, Message)
                    if count == args.count:
                        break
        except TimeoutError:
            pass
        return 0

    return through(args, work)


def _is_shared(args: argparse.Namespace) -> bool:
    """Whether the groups are lightweight ones, so that the underlay has views of its own."""
    return not args.embedded or args.underlay is not None or args.sites is not None


def described(event: Event) -> dict[str, Any]:
    """An event for a program. A payload that is no UTF-8 is hexadecimal."""
    if isinstance(event, Message):
        found: dict[str, Any] = {"event": "message", "groups": list(event.groups), "sender": event.sender}
        found |= {"number": event.number, "position": event.position, "service": str(event.service)}
        found |= {"type": event.type, "view": event.view}
        return found | shown_payload(event.payload, "payload")
    if isinstance(event, View):
        members = list(map(str, event.members))
        found = {"event": "view", "group": event.group, "id": event.id, "members": members}
        found |= {"reason": event.reason.name.lower(), "subject": event.subject}
        return found | {"header": event.header.decode(errors="backslashreplace"), "came_with": list(event.came_with)}
    if isinstance(event, Left):
        return {"event": "left", "group": event.group, "returning": event.returning, "text": event.text}
    if isinstance(event, Transitional):
        return {"event": "transitional", "group": event.group, "view": event.view}
    if isinstance(event, Uncertain):
        return {"event": "uncertain", "group": event.group, "first": event.first, "count": event.count}
    text = event.text if isinstance(event, Failed) else str(event)
    return {"event": type(event).__name__.lower(), "text": text}


def _line(event: Event) -> str:
    if isinstance(event, Message):
        return f"{','.join(event.groups)}  {event.sender}  {event.payload.decode(errors='backslashreplace')}"
    if isinstance(event, View):
        header = f" ({event.header.decode(errors='backslashreplace')})" if event.header else ""
        names = ", ".join(map(str, event.members))
        return f"{event.group}  -- {event.reason.name.lower()} {event.subject}{header}: {names}"
    found = described(event)
    group = found.get("group") or "*"
    return f"{group}  -- {found['event']}: {found.get('text', '')}"
