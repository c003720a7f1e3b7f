"""`ordercast members`: who is in a group."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ordercast.cli.arguments import group_name
from ordercast.cli.asking import ask, show
from ordercast.cli.place import add_place

HELP: Final = "list the members of a group, as a daemon or a node sees them"
EXAMPLES: Final = """examples:
  ordercast members prices
      in the order in which they joined, as name@daemon/life
  ordercast members prices --embedded
      of a group of nodes, which is joined for a moment"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast members`."""
    parser.description = "Lists the members of a group, in the order in which they joined."
    parser.add_argument("group", type=group_name, metavar="GROUP", help="the group's name")
    add_place(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, and print. A group without members is bad input."""
    show(ask(args, "members", args.group), args.json, _lines)
    return 0


def _lines(answer: dict[str, Any]) -> list[str]:
    return [str(member) for member in answer["members"]]
