"""The command `ordercast`. One module for each sub-command: `HELP`, `EXAMPLES`, `configure(parser)`, `run(args)`.

Exit codes: 0 everything held, 1 something was violated or failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Protocol

from ordercast.cli import (
    bench,
    call,
    compare,
    daemon,
    demo,
    explore,
    figures,
    fuzz,
    gms,
    groups,
    listen,
    measure,
    members,
    plan,
    record,
    replay,
    report,
    send,
    sim,
    sites,
    status,
    verify,
)
from ordercast.errors import UsageError
from ordercast.trace.run import software_version

HELD: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130

DESCRIPTION: Final = (
    "Group communication: every member sees the same messages, joins, leaves and failures in the same order."
)
EPILOG: Final = f"""start here:
  ordercast demo                    four processes, a crash, a recovery and the proof; {demo.LENGTH}
  ordercast sim --seed 7 --crash 1  the same protocol in virtual time, with faults drawn from a seed
  ordercast COMMAND --help          what a command does, with examples

exit codes: 0 everything held, 1 something was violated or failed, 2 bad input"""


class Module(Protocol):
    """What a sub-command's module has."""

    HELP: str
    EXAMPLES: str

    @property
    def configure(self) -> Callable[[argparse.ArgumentParser], None]: ...

    @property
    def run(self) -> Callable[[argparse.Namespace], int]: ...


COMMANDS: Final[dict[str, Module]] = {
    "demo": demo,
    "sim": sim,
    "fuzz": fuzz,
    "explore": explore,
    "bench": bench,
    "compare": compare,
    "figures": figures,
    "verify": verify,
    "measure": measure,
    "report": report,
    "plan": plan,
    "record": record,
    "replay": replay,
    "sites": sites,
    "daemon": daemon,
    "gms": gms,
    "status": status,
    "groups": groups,
    "members": members,
    "send": send,
    "listen": listen,
    "call": call,
}


class _CommandParser(argparse.ArgumentParser):
    """Answers bad input with one sentence instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; `{self.prog} --help` shows what it takes\n")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = _CommandParser(prog="ordercast", description=DESCRIPTION, epilog=EPILOG, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"ordercast {software_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        # Not abbreviated: a flag added later must not change what a shortened one means.
        sub = commands.add_parser(name, help=module.HELP, formatter_class=raw, allow_abbrev=False)
        module.configure(sub)
        sub.epilog = module.EXAMPLES
        sub.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.error(f"choose a command: {', '.join(COMMANDS)}")
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except UsageError as error:
        print(f"ordercast {args.command}: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(f"ordercast {args.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python would complain again while it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
