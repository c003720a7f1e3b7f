"""`ordercast status`: what a daemon says of itself and of its sessions."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ordercast.cli.asking import ask, show
from ordercast.cli.place import add_place

HELP: Final = "show a daemon's sessions, queues and the daemons that it sees, or an underlay"
EXAMPLES: Final = """examples:
  ordercast status
      the daemon of this user
  ordercast status --daemon tcp://127.0.0.1:4810 --json
      another one, for a program
  ordercast status --embedded --underlay floor
      a shared underlay, as a node of its own sees it"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast status`."""
    parser.description = "Asks a daemon for its view, its sessions, what waits for them, and how earlier ones ended."
    add_place(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, and print."""
    show(ask(args, "status"), args.json, _lines)
    return 0


def _lines(status: dict[str, Any]) -> list[str]:
    if "peers" in status:
        asked = ", ".join(status["peers"])
        return [f"node      {status['node']}", f"peers     {asked}", f"groups    {status['groups']}"]
    limits = status["limits"]
    ended = ", ".join([f"{count} {why}" for why, count in status["ended"].items()]) or "none"
    lines = [
        f"daemon    {status['daemon']} at {status['address']}",
        f"underlay  {status['underlay']} ({status['orderer']}), {status['state']}, view {status['view'] or '-'}",
        *([f"          {status['text']}"] if status.get("text") else []),
        f"daemons   {', '.join(status['daemons']) or '-'}",
        f"groups    {status['groups']}",
        f"sessions  {status['sessions']} of {limits['max_sessions']}; ended: {ended}",
        f"waiting   {status['held_bytes']} bytes of {limits['total_bytes']}, {limits['session_bytes']} for a session",
    ]
    if status["session_list"]:
        lines += ["", f"{'session':40} {'groups':>6} {'lag bytes':>10} {'queued':>8} {'unconfirmed':>11} {'sent':>10}"]
    lines += [
        f"{each['name']:40} {each['groups']:6} {each['held_bytes']:10} {each['queued_messages']:8} "
        f"{each['unconfirmed']:11} {each['sent']:10}"
        for each in status["session_list"]
    ]
    return lines
