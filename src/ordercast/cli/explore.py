"""`ordercast explore`: small groups through every order of failures within a bound (`ordercast.explore`)."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from ordercast.cli.arguments import min_members, whole
from ordercast.config import DEFAULT_ORDERER
from ordercast.errors import UsageError
from ordercast.explore.deviations import FAMILIES, parse_path
from ordercast.explore.path import FINDINGS, Exploration, run_path
from ordercast.explore.report import as_json, summary
from ordercast.explore.scenarios import (
    DEFAULT_CRASHES,
    DEFAULT_STEPS,
    MAX_MEMBERS,
    MIN_MEMBERS,
    NAMES,
    SCENARIOS,
    find_scenario,
)
from ordercast.explore.search import MAX_JOBS, SearchResult, explore
from ordercast.orderers import ORDERERS

HELP: Final = "explore small groups through every order of failures within a bound"
DESCRIPTION: Final = (
    "Plays a scenario with 2 to 5 members and real engines again and again, each time with other failures: first with "
    "none, then with one at every point where one makes a difference, then with two, and so on. States that were seen "
    "before are not explored twice. Each state must be safe, and from the end of each path a quiet network must bring "
    "the group to rest. The first failure is shown step by step, with the command that replays it."
)
EXAMPLES: Final = f"""scenarios:
{chr(10).join(f"  {name:<12} {scenario.summary}" for name, scenario in SCENARIOS.items())}

faults:
{chr(10).join(f"  {name:<12} {text}" for name, text in FAMILIES.items())}

examples:
  ordercast explore --scenario leave --members 3 --deviations 2
      the last of three members leaves; everything that can go wrong with two failures
  ordercast explore --orderer sequencer --scenario join --deviations 2 --seconds 60 --jobs 2
      at most a minute, on two processors: the result does not depend on --jobs
  ordercast explore --scenario all --deviations 2 --seconds 60 --jobs 2
      all scenarios of the orderer, at most a minute for each
  ordercast explore --scenario leave --faults lose,late --deviations 3
      other failures: datagrams that are lost or come late
  ordercast explore --scenario leave --members 4 --variant 1 --replay "7:split:ad|bc"
      one path, step by step"""

MAX_DEVIATIONS: Final = 8
MAX_STEPS: Final = 1_000
MAX_SECONDS: Final = 1_000_000
ALL: Final = "all"
NONE: Final = "none"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast explore`."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "--orderer",
        default=DEFAULT_ORDERER,
        choices=list(ORDERERS),
        help=f"the ordering discipline ({DEFAULT_ORDERER})",
    )
    parser.add_argument("--scenario", default="leave", help="what the group does, see below, or all (leave)")
    members = whole(MIN_MEMBERS, MAX_MEMBERS)
    parser.add_argument("--members", type=members, help="members at the beginning (each scenario has its own number)")
    parser.add_argument(
        "--deviations", type=whole(0, MAX_DEVIATIONS), default=1, help="failures in one path, at most (1)"
    )
    parser.add_argument("--faults", help="kinds of failures, with commas between, or none (each scenario has its own)")
    parser.add_argument(
        "--steps",
        type=whole(1, MAX_STEPS),
        default=DEFAULT_STEPS,
        help=f"failures happen at the first so many decision points ({DEFAULT_STEPS})",
    )
    parser.add_argument(
        "--crashes",
        type=whole(0, MAX_MEMBERS),
        default=DEFAULT_CRASHES,
        help=f"crashes in one path, at most ({DEFAULT_CRASHES})",
    )
    parser.add_argument(
        "--min-members", type=min_members, default="majority", help="members that go on: a number, majority or all"
    )
    parser.add_argument("--only", help=f"findings that count, with commas between: {', '.join(FINDINGS)} (all)")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--seconds", type=whole(1, MAX_SECONDS), help="stop after this time (no limit)")
    parser.add_argument(
        "--jobs", type=whole(1, MAX_JOBS), default=1, help="processes side by side; the result is the same (1)"
    )
    parser.add_argument("--variant", type=whole(0, MAX_MEMBERS), help="play only this variant of the scenario (all)")
    parser.add_argument("--replay", metavar="PATH", help="show one path step by step, as a failure gives it")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Explore and report; 1 if a failure was found."""
    if args.scenario == ALL:
        if args.replay is not None or args.variant is not None:
            raise UsageError("--replay and --variant are for one scenario: name it with --scenario")
        names = [name for name, scenario in SCENARIOS.items() if args.orderer in scenario.orderers]
    else:
        names = [args.scenario]
    plans = [exploration(args, name) for name in names]
    if args.replay is not None:
        return _replay(plans[0], args)
    results = []
    for what in plans:
        results.append(_explore(what, args))
        if not args.json:
            print("\n".join(summary(results[-1])), flush=True)
    if args.json:
        shown = [as_json(result) for result in results]
        print(json.dumps(shown if args.scenario == ALL else shown[0], indent=2))
    return 0 if all(result.held for result in results) else 1


def _explore(what: Exploration, args: argparse.Namespace) -> SearchResult:
    is_shown = sys.stderr.isatty()

    def progress(depth: int, done: int, paths: int) -> None:
        if is_shown:
            text = f"{what.scenario}, {depth} deviations: {done:,}/{paths:,} paths"
            print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)

    found = explore(
        what,
        args.deviations,
        seconds=args.seconds,
        jobs=args.jobs,
        keep_going=args.keep_going,
        progress=progress,
    )
    if is_shown:
        print("\r" + " " * 70, end="\r", file=sys.stderr, flush=True)
    return found


def exploration(args: argparse.Namespace, name: str) -> Exploration:
    """What the flags ask for; `UsageError` where they make no sense."""
    scenario = find_scenario(name, args.orderer)
    members = scenario.members if args.members is None else args.members
    families = scenario.families
    if args.faults is not None:
        families = () if args.faults == NONE else _words(args.faults, FAMILIES, "kind of failure")
    only = () if args.only is None else _words(args.only, FINDINGS, "kind of finding")
    what = Exploration(
        name,
        args.orderer,
        NAMES[:members],
        NAMES[members : members + scenario.newcomers],
        families,
        args.steps,
        args.crashes,
        args.min_members,
        only,
        args.variant,
    )
    if args.variant is not None and args.variant >= len(what.all_variants):
        raise UsageError(f"--variant={args.variant}: the scenario has the variants 0 to {len(what.all_variants) - 1}")
    return what


def _words(text: str, known: object, what: str) -> tuple[str, ...]:
    names = list(known)  # type: ignore[call-overload]
    words = tuple(text.split(","))
    for word in words:
        if word not in names:
            raise UsageError(f"there is no {what} {word!r}; choose of {', '.join(names)}")
    return words


def _replay(what: Exploration, args: argparse.Namespace) -> int:
    notes: list[str] = []
    result = run_path(what, args.variant or 0, parse_path(args.replay), notes=notes)
    if args.json:
        findings = [{"kind": finding.kind, "text": finding.text} for finding in result.findings]
        print(json.dumps({"findings": findings, "stuck": result.stuck, "transcript": notes}, indent=2))
    else:
        print("\n".join(notes))
    return 1 if result.findings else 0
