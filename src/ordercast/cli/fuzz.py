"""`ordercast fuzz`: many simulated runs with random faults (`ordercast.sim.fuzz`)."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from ordercast.cli.arguments import MAX_SEED, whole
from ordercast.cli.choices import add_orderer, add_profile
from ordercast.errors import UsageError
from ordercast.sim.fuzz import MAX_JOBS, fuzz
from ordercast.sim.many_groups import MANY_GROUPS
from ordercast.sim.scenario import PROFILES

HELP: Final = "simulate many random disasters, one for each seed"
DESCRIPTION: Final = (
    "Draws a whole scenario from each seed (nodes, messages, services, losses, faults, joins, leaves, limits), runs "
    "it and checks every guarantee. A failing seed is listed with the command that replays it."
)
EXAMPLES: Final = """examples:
  ordercast fuzz --runs 100
      a hundred random disasters, seeds 0 to 99
  ordercast fuzz --runs 2000 --jobs 2
      the same on two processors: the result does not depend on --jobs
  ordercast fuzz --orderer token --runs 100
      the token orderer, with locks, calls from outside and members without multicast
  ordercast fuzz --orderer timestamp --no-anticipate --runs 100
      the timestamp orderer as plain ABCAST; the same seeds have the same disasters with anticipation
  ordercast fuzz --profile membership --runs 1000
      small groups, and many joins, leaves, cuts and crashes around them
  ordercast fuzz --many-groups --orderer token --runs 500
      programs that come into many groups of one underlay, send there and leave them, while nodes and links fail
  ordercast fuzz --first-seed 5000 --runs 1000 --json
      other seeds, and the failing ones as JSON, each with the command that replays it"""

MAX_RUNS: Final = 100_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast fuzz`."""
    parser.description = DESCRIPTION
    add_orderer(parser)
    add_profile(parser)
    parser.add_argument(
        "--many-groups", action="store_true", help="many lightweight groups on one underlay, instead of one group"
    )
    parser.add_argument("--runs", type=whole(1, MAX_RUNS), default=1_000, help="how many seeds (1000)")
    parser.add_argument("--first-seed", type=whole(0, MAX_SEED), default=0, help="the first of them (0)")
    parser.add_argument(
        "--jobs", type=whole(1, MAX_JOBS), default=1, help="processes side by side; the result is the same (1)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the seeds and report; 1 if any failed."""
    if args.many_groups and args.profile != PROFILES[0]:
        raise UsageError(f"--many-groups draws scenarios of its own: leave out --profile {args.profile}")
    is_shown = sys.stderr.isatty()

    def progress(done: int, runs: int, failed: int) -> None:
        if is_shown:
            print(f"\r{done}/{runs} runs, {failed} failed ", end="", file=sys.stderr, flush=True)
        elif done == runs or done % 100 == 0:
            print(f"{done}/{runs} runs, {failed} failed", file=sys.stderr, flush=True)

    found = fuzz(
        args.orderer,
        args.first_seed,
        args.runs,
        args.jobs,
        progress,
        anticipate=args.anticipate,
        profile=MANY_GROUPS if args.many_groups else args.profile,
    )
    if is_shown:
        print(file=sys.stderr)
    print(json.dumps(found.as_json(), indent=2) if args.json else "\n".join(found.summary()))
    return 0 if found.held else 1
