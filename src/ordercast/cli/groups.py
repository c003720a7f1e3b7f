"""`ordercast groups`: the groups that a daemon knows."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ordercast.cli.asking import add_daemon, ask, show

HELP: Final = "list the groups that a daemon knows, with the number of their members"
EXAMPLES: Final = """examples:
  ordercast groups
      all groups with members, of all daemons that this one sees
  ordercast groups --json
      the same for a program"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast groups`."""
    parser.description = "Lists the groups of a daemon's underlay that have members, wherever these are."
    add_daemon(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, and print."""
    show(ask(args, "groups"), args.json, _lines)
    return 0


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [f"{each['members']:6}  {each['name']}" for each in answer["groups"]] or ["no group has members"]
    if answer["count"] > len(answer["groups"]):
        lines.append(f"... {answer['count']} in all")
    return lines
