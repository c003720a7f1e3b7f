"""`ordercast groups`: the groups that a daemon knows."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ordercast.cli.asking import ask, show
from ordercast.cli.place import add_place

HELP: Final = "list the groups that a daemon, an underlay or nodes have, with the number of their members"
EXAMPLES: Final = """examples:
  ordercast groups
      all groups with members, of all daemons that this one sees
  ordercast groups --json
      the same for a program
  ordercast groups --embedded --peers 10.0.0.1:4711
      the groups that a node is in"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast groups`."""
    parser.description = "Lists the groups of a daemon's underlay that have members, wherever these are."
    add_place(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, and print."""
    show(ask(args, "groups"), args.json, _lines)
    return 0


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [f"{_count(each['members'])}  {each['name']}" for each in answer["groups"]] or ["no group has members"]
    if answer["count"] > len(answer["groups"]):
        lines.append(f"... {answer['count']} in all")
    return lines


def _count(members: int | None) -> str:
    """A node that was asked names its groups, and no more."""
    return f"{members:6}" if members is not None else f"{'-':>6}"
