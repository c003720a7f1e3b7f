"""What `ordercast sim` and `ordercast fuzz` do; `ordercast.cli` puts them behind the command.

Exit codes: 0 everything held, 1 something was violated or failed, 2 bad input. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from ordercast.config import DEFAULT_ORDERER, MS, SECOND, MinMembers
from ordercast.errors import UsageError
from ordercast.sim.chance import random_scenario
from ordercast.sim.figures import figures, ladder
from ordercast.sim.fuzz import fuzz
from ordercast.sim.lab import MeasurementFailed
from ordercast.sim.network import NETWORKS
from ordercast.sim.plain import plain_scenario
from ordercast.sim.run import Outcome, run_scenario
from ordercast.sim.scenario import SERVICES, Scenario, check_anticipate
from ordercast.sim.scenario_json import scenario_from_json, scenario_to_json
from ordercast.sim.tables import figures_lines, ladder_lines
from ordercast.trace.run import RunInfo

HELD: Final = 0
VIOLATED: Final = 1
BAD_INPUT: Final = 2

SIM_HELP: Final = "run one simulated disaster in virtual time and check every guarantee"
SIM_DESCRIPTION: Final = (
    "Simulates a group in virtual time: the same protocol code as on a real network, with losses, crashes and "
    "partitions drawn from a seed. The same command always gives the same run, byte for byte. Afterwards everything "
    "must come to rest, every live member must still get messages through, and every property of TRACE.md must hold."
)
FUZZ_HELP: Final = "simulate many random disasters, one for each seed"
FUZZ_DESCRIPTION: Final = (
    "Draws a whole scenario from each seed (nodes, messages, services, losses, faults, joins, leaves, limits), runs it "
    "and checks every guarantee. A failing seed is listed with the command that replays it."
)

# Flags that are passed on to `plain_scenario` as they are.
_PLAIN: Final[tuple[tuple[str, Callable[[str], Any], str], ...]] = (
    ("nodes", int, "how many members (5)"),
    ("messages", int, "how many messages in all (2000)"),
    ("size", int, "bytes of each message (100)"),
    ("service", str, "UNRELIABLE, RELIABLE, FIFO, CAUSAL, AGREED, RESILIENT(k), MAJORITY or SAFE (AGREED)"),
    ("senders", int, "only the last so many members send (0: all)"),
    ("seconds", float, "virtual time over which messages are spread (0: 1 ms for each, at least 1 s)"),
    ("loss", float, "probability that a receiver does not get a datagram (0)"),
    ("duplicate", float, "probability that it gets one twice (0)"),
    ("reorder", float, "probability that it gets one late (0)"),
    ("datagram", int, "largest datagram in bytes (1400)"),
    ("crash", int, "so many members crash (0)"),
    ("restart", int, "so many of them come back (0)"),
    ("pause", int, "so many times a member stands still for a while (0)"),
    ("partition", int, "so many times the network falls apart and heals (0)"),
    ("cut", int, "so many times a member is not heard by some others (0)"),
    ("slow", int, "so many times a member's processor gets slow (0)"),
    ("stall", int, "so many times an application takes nothing for a while (0)"),
    ("leave", int, "so many times a member leaves, and mostly comes back (0)"),
)


def add_orderer(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how a group orders; `check_anticipate` judges the second."""
    parser.add_argument(
        "--orderer",
        default=DEFAULT_ORDERER,
        choices=list(SERVICES),
        help=f"the ordering discipline ({DEFAULT_ORDERER})",
    )
    parser.add_argument(
        "--anticipate",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="with the timestamp orderer: TOMPA, the default, or plain ABCAST",
    )


def configure_sim(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast sim`."""
    parser.description = SIM_DESCRIPTION
    add_orderer(parser)
    parser.add_argument("--seed", type=int, default=0, help="what chance is drawn from (0)")
    for name, kind, text in _PLAIN:
        parser.add_argument(f"--{name}", type=kind, default=None, help=text)
    parser.add_argument("--network", choices=list(NETWORKS), default=None, help="cost model of network and CPU (lan)")
    parser.add_argument("--no-multicast", action="store_true", help="one transmission for each receiver")
    parser.add_argument("--min-members", default=None, help="a number, majority or all (majority)")
    parser.add_argument("--recovery", choices=["automatic", "manual"], default=None, help="who calls reset (automatic)")
    parser.add_argument("--scenario-seed", type=int, default=None, help="replay this seed of `ordercast fuzz`")
    parser.add_argument("--scenario", type=Path, default=None, help="run a scenario written by --save")
    parser.add_argument("--save", type=Path, default=None, help="write the scenario as JSON")
    parser.add_argument("--trace", type=Path, default=None, help="write the trace into this folder")
    parser.add_argument(
        "--ladder", action="store_true", help="latency and throughput of each service, one after the other (RMP 3.2)"
    )
    parser.add_argument(
        "--figures", action="store_true", help="figures 5.1 to 5.3 of the RMP paper: the numbers that a plot needs"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def configure_fuzz(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast fuzz`."""
    parser.description = FUZZ_DESCRIPTION
    add_orderer(parser)
    parser.add_argument("--runs", type=int, default=1_000, help="how many seeds (1000)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side; the result is the same (1)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run_sim(args: argparse.Namespace) -> int:
    if args.ladder or args.figures:
        return _run_measurements(args)
    try:
        scenario = scenario_of(args)
        if args.trace is not None and args.trace.exists() and any(args.trace.iterdir()):
            raise UsageError(f"{args.trace} is not empty; a trace needs a folder of its own")
    except (UsageError, ValueError, OSError) as error:
        print(f"ordercast sim: {error}", file=sys.stderr)
        return BAD_INPUT
    if args.save is not None:
        args.save.write_text(scenario_to_json(scenario) + "\n", encoding="utf-8")
    outcome = run_scenario(scenario)
    if args.trace is not None:
        try:
            write_trace(args.trace, outcome)
        except OSError as error:
            reason = error.strerror or error
            print(f"ordercast sim: the trace cannot be written to {args.trace}: {reason}", file=sys.stderr)
            return BAD_INPUT
    if args.json:
        print(json.dumps(outcome.as_json(), indent=2))
    else:
        print("\n".join(report(outcome)))
    return HELD if outcome.held else VIOLATED


def _run_measurements(args: argparse.Namespace) -> int:
    """`--ladder` and `--figures`: they take an orderer, its variant, a seed, a network and `--json` only."""
    is_shown = sys.stderr.isatty()

    def progress(text: str) -> None:
        print(f"\r\x1b[K{text}" if is_shown else text, end="" if is_shown else "\n", file=sys.stderr, flush=True)

    try:
        _check_measurements(args)
        orderer = args.orderer
        anticipate = check_anticipate(orderer, args.anticipate)
        if args.ladder:
            network = NETWORKS[args.network or "lan"]
            rungs = ladder(orderer, anticipate=anticipate, network=network, seed=args.seed, progress=progress)
            held = not any(rung.violations for rung in rungs)
            found = {
                "held": held,
                "orderer": orderer,
                "network": network.name,
                "ladder": [asdict(one) for one in rungs],
            }
            lines = ladder_lines(rungs)
        else:
            network = NETWORKS[args.network or "ethernet"]
            drawn = figures(orderer, anticipate=anticipate, network=network, seed=args.seed, progress=progress)
            held = drawn.held
            found = {"orderer": orderer, "network": network.name, **drawn.as_json()}
            lines = figures_lines(drawn)
    except UsageError as error:
        print(f"ordercast sim: {error}", file=sys.stderr)
        return BAD_INPUT
    except MeasurementFailed as error:
        print(f"ordercast sim: {error}", file=sys.stderr)
        return VIOLATED
    if is_shown:
        progress("")
    print(json.dumps(found, indent=2) if args.json else "\n".join(lines))
    return HELD if held else VIOLATED


def _check_measurements(args: argparse.Namespace) -> None:
    if args.ladder and args.figures:
        raise UsageError("--ladder and --figures are two measurements: give one of them")
    others = [name for name, _, _ in _PLAIN if getattr(args, name) is not None]
    others += [name for name in ("scenario", "scenario_seed", "save", "trace") if getattr(args, name) is not None]
    others += [name for name in ("recovery", "min_members") if getattr(args, name) is not None]
    others += ["no_multicast"] if args.no_multicast else []
    if others:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise UsageError(f"--ladder and --figures measure what the paper measured, and take no {flags}")


def run_fuzz(args: argparse.Namespace) -> int:
    is_shown = sys.stderr.isatty()

    def progress(done: int, runs: int, failed: int) -> None:
        if is_shown:
            print(f"\r{done}/{runs} runs, {failed} failed ", end="", file=sys.stderr, flush=True)
        elif done == runs or done % 100 == 0:
            print(f"{done}/{runs} runs, {failed} failed", file=sys.stderr, flush=True)

    try:
        found = fuzz(args.orderer, args.first_seed, args.runs, args.jobs, progress, anticipate=args.anticipate)
    except UsageError as error:
        print(f"ordercast fuzz: {error}", file=sys.stderr)
        return BAD_INPUT
    if is_shown:
        print(file=sys.stderr)
    print(json.dumps(found.as_json(), indent=2) if args.json else "\n".join(found.summary()))
    return HELD if found.held else VIOLATED


def scenario_of(args: argparse.Namespace) -> Scenario:
    """The scenario that the flags of `ordercast sim` ask for; `UsageError` if they ask for nonsense."""
    given = {name: getattr(args, name) for name, _, _ in _PLAIN if getattr(args, name) is not None}
    if args.network is not None:
        given["network"] = args.network
    if args.recovery is not None:
        given["recovery"] = args.recovery
    if args.min_members is not None:
        given["min_members"] = _min_members(args.min_members)
    if args.no_multicast:
        given["has_multicast"] = False
    if args.scenario is not None or args.scenario_seed is not None:
        if given or (args.scenario is not None and args.scenario_seed is not None):
            raise UsageError("a scenario says everything: give --scenario or --scenario-seed without other parameters")
        if args.scenario is not None:
            if args.anticipate is not None:
                raise UsageError("a scenario says whether to anticipate: leave that out")
            return scenario_from_json(args.scenario.read_text(encoding="utf-8"))
        return random_scenario(args.scenario_seed, args.orderer, args.anticipate)
    return plain_scenario(seed=args.seed, orderer=args.orderer, anticipate=args.anticipate, **given)


def write_trace(folder: Path, outcome: Outcome) -> None:
    """The trace of TRACE.md: the same command writes the same bytes."""
    # Not at the top: Parquet is an extra, and a run without --trace must not need it.
    from ordercast.trace.convert import write_rows

    scenario = outcome.scenario
    services = sorted({load.service for load in scenario.loads})
    parameters = asdict(scenario)
    info = RunInfo.simulated(seed=scenario.seed, orderer=scenario.orderer, services=services, parameters=parameters)
    # How it ended is no parameter, so it is not part of the name; whoever judges the trace must know it.
    replace(info, parameters={**info.parameters, "quiet": outcome.is_quiet}).write(folder)
    write_rows(folder, outcome.rows)


def report(outcome: Outcome) -> list[str]:
    """Lines for people: what happened, the verdict, and how to see it again."""
    scenario, stats = outcome.scenario, outcome.stats
    lines = [
        f"{len(scenario.nodes)} nodes on {scenario.network}, {scenario.messages} messages, "
        f"{len(scenario.faults)} faults, {stats.virtual_ns / SECOND:.3f} s of virtual time",
        *(f"  {fault}" for fault in scenario.faults),
        f"{stats.submitted} submitted, {stats.delivered} delivered at all members together, {stats.views} views, "
        f"{stats.repairs} repairs, {stats.lost} datagrams lost, {stats.socket_drops} dropped by sockets",
        f"latency p50 {stats.latency_p50_ns / MS:.3f} ms, p99 {stats.latency_p99_ns / MS:.3f} ms; "
        f"{stats.throughput_per_s:.0f} messages/s at each receiver",
        "datagrams: " + ", ".join(f"{kind} {count}" for kind, count in sorted(stats.datagrams.items())),
    ]
    if outcome.is_stuck_legally:
        lines.append("the group could not go on: too few members of its last view were left")
    if outcome.is_deserted:
        lines.append("nobody was left")
    if outcome.verdict is not None:
        lines += outcome.verdict.summary()
    lines += [f"FAILED: {text}" for text in outcome.failures]
    lines.append(f"digest {outcome.digest}")
    lines.append(f"replay: {outcome.command}")
    return lines


def _min_members(word: str) -> MinMembers:
    if word == "majority":
        return "majority"
    if word == "all":
        return "all"
    if not word.isdigit() or not int(word):
        raise UsageError(f"min-members is a number from 1 on, majority or all, not {word!r}")
    return int(word)
