"""`ordercast fuzz`: many simulated runs with random faults (`ordercast.sim.fuzz`)."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from random import SystemRandom
from typing import Final

from ordercast.cli.arguments import MAX_SEED, whole
from ordercast.cli.choices import add_orderer, add_profile
from ordercast.config import REGIONS_ORDERER
from ordercast.errors import UsageError
from ordercast.sim.fuzz import MAX_JOBS, SeedResult, fuzz
from ordercast.sim.ledger import append_row, quote_row, read_ledger, row_of, this_commit, today
from ordercast.sim.many_groups import MANY_GROUPS
from ordercast.sim.scenario import PROFILES

HELP: Final = "simulate many random disasters, one for each seed"
DESCRIPTION: Final = (
    "Draws a whole scenario from each seed (nodes, messages, services, losses, faults, joins, leaves, limits), runs "
    "it and checks every guarantee. A failing seed is listed with the command that replays it."
)
EXAMPLES: Final = """examples:
  ordercast fuzz --runs 100
      a hundred random disasters, from a seed that is new each time
  ordercast fuzz --runs 100 --first-seed 0
      seeds 0 to 99, every time
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
  ordercast fuzz --orderer regions --runs 500
      nodes on regions and the replicas of their membership service: joins, moves and sends, while all of them fail
  ordercast fuzz --first-seed 5000 --runs 1000 --json
      these seeds, and the failing ones as JSON, each with the command that replays it
  ordercast fuzz --runs 1000 --ledger docs/seeds.md --quote README.md
      fresh seeds, and a row of the ledger for them"""

MAX_RUNS: Final = 100_000_000
FRESH_SEEDS: Final = 10_000_000
"""Seeds below have been run so often while code was written that they prove less."""
LAST_FRESH: Final = 1_000_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast fuzz`."""
    parser.description = DESCRIPTION
    add_orderer(parser, with_sites=True, with_regions=True)
    add_profile(parser)
    parser.add_argument(
        "--many-groups", action="store_true", help="many lightweight groups on one underlay, instead of one group"
    )
    parser.add_argument("--runs", type=whole(1, MAX_RUNS), default=1_000, help="how many seeds (1000)")
    parser.add_argument(
        "--first-seed",
        type=whole(0, MAX_SEED),
        help=f"the first of them; by default another one each time, from {FRESH_SEEDS} on, which is printed",
    )
    parser.add_argument(
        "--jobs", type=whole(1, MAX_JOBS), default=1, help="processes side by side; the result is the same (1)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--ledger", type=Path, metavar="FILE", help="append the range and its outcome to a page such as docs/seeds.md"
    )
    parser.add_argument(
        "--quote", type=Path, metavar="FILE", help="with --ledger: a page with a line that quotes the last range"
    )


def run(args: argparse.Namespace) -> int:
    """Run the seeds and report; 1 if any failed."""
    if args.many_groups and args.profile != PROFILES[0]:
        raise UsageError(f"--many-groups draws scenarios of its own: leave out --profile {args.profile}")
    if args.many_groups and args.orderer == REGIONS_ORDERER:
        raise UsageError("regions carry many groups in any case: leave out --many-groups")
    if args.quote is not None and args.ledger is None:
        raise UsageError("--quote quotes the row that --ledger appends: give both")
    if args.ledger is not None:
        read_ledger(args.ledger)  # now, and not after the runs
    first_seed = args.first_seed
    if first_seed is None:
        first_seed = SystemRandom().randrange(FRESH_SEEDS, LAST_FRESH)
        print(f"first seed {first_seed}: --first-seed {first_seed} repeats it", file=sys.stderr, flush=True)
    is_shown = sys.stderr.isatty()

    failed = 0

    def progress(done: int, last: SeedResult) -> None:
        nonlocal failed
        if not last.held:  # told at once: somebody who watches a long campaign need not wait for its end
            failed += 1
            print(f"{chr(13) if is_shown else ''}failed: {last.command}", file=sys.stderr, flush=True)
        if is_shown:
            print(f"\r{done}/{args.runs} runs, {failed} failed ", end="", file=sys.stderr, flush=True)
        elif done == args.runs or done % 100 == 0:
            print(f"{done}/{args.runs} runs, {failed} failed", file=sys.stderr, flush=True)

    found = fuzz(
        args.orderer,
        first_seed,
        args.runs,
        args.jobs,
        progress,
        anticipate=args.anticipate,
        profile=MANY_GROUPS if args.many_groups else args.profile,
    )
    if is_shown:
        print(file=sys.stderr)
    if args.ledger is not None:
        row = row_of(found, this_commit(args.ledger.absolute().parent), today())
        append_row(args.ledger, row)
        if args.quote is not None:
            quote_row(args.quote, row)
    print(json.dumps(found.as_json(), indent=2) if args.json else "\n".join(found.summary()))
    return 0 if found.held else 1
