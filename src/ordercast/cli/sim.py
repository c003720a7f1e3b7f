"""`ordercast sim`: one simulated run (`sim/run.py`, with many groups `sim/many_run.py`), or the ladder of services
(`sim/ladder.py`).

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

from ordercast.cli.arguments import MAX_SEED, decimal, min_members, probability, whole
from ordercast.cli.choices import add_orderer, add_profile
from ordercast.cli.extras import need
from ordercast.cli.progress import Progress
from ordercast.config import MAX_DATAGRAM, MIN_DATAGRAM, MS, REGIONS_ORDERER, SECOND, SITES_ORDERER
from ordercast.errors import UsageError
from ordercast.sim.chance import drawn_scenario
from ordercast.sim.lab import MeasurementFailed
from ordercast.sim.ladder import ladder
from ordercast.sim.many_groups import MAX_GROUPS, UNDERLAY, ManyGroups, drawn_groups, plain_groups
from ordercast.sim.many_run import run_groups
from ordercast.sim.network import NETWORKS
from ordercast.sim.plain import plain_scenario
from ordercast.sim.regions.plain import plain_regions
from ordercast.sim.regions.plan import RegionsPlan, describe_regions, drawn_regions
from ordercast.sim.regions.run import run_regions
from ordercast.sim.run import Outcome, run_scenario
from ordercast.sim.scenario import MAX_NODES, PROFILES, SESSIONS, Scenario, check_anticipate
from ordercast.sim.scenario_json import scenario_from_json, scenario_to_json, scenario_values
from ordercast.sim.sessions.plan import describe_sessions, drawn_sessions
from ordercast.sim.sessions.run import run_sessions
from ordercast.sim.site_groups import drawn_site_groups
from ordercast.sim.tables import ladder_lines, pipe_lines
from ordercast.trace.run import RunInfo, parameters_of_sites

HELD: Final = 0
VIOLATED: Final = 1

MAX_MESSAGES: Final = 10_000_000
MAX_SIZE: Final = 64 << 20
MAX_FAULTS: Final = 1_000
MAX_SECONDS: Final = 86_400.0

HELP: Final = "run one simulated disaster in virtual time and check every guarantee"
DESCRIPTION: Final = (
    "Simulates a group in virtual time: the same protocol code as on a real network, with losses, crashes and "
    "partitions drawn from a seed. The same command always gives the same run, byte for byte. Afterwards everything "
    "must come to rest, every live member must still get messages through, and every guarantee must hold."
)
EXAMPLES: Final = """examples:
  ordercast sim --nodes 5 --messages 2000 --seed 7
      a quiet run: five members, nothing goes wrong
  ordercast sim --seed 7 --loss 0.05 --duplicate 0.01 --reorder 0.05 --crash 1 --restart 1 --pause 1 --partition 1
      a bad day; the same seed gives the same day again, byte for byte
  ordercast sim --service SAFE --size 1000 --trace /tmp/safe --json
      keep the trace, and print the result for a program
  ordercast sim --scenario-seed 42
      what `ordercast fuzz` did with seed 42
  ordercast sim --orderer timestamp --no-anticipate --senders 3
      the timestamp orderer as plain ABCAST
  ordercast sim --groups 100 --orderer token --crash 1 --trace /tmp/groups
      a hundred lightweight groups on one underlay
  ordercast sim --topology examples/wan.toml --orderer token --messages 200 --seconds 5 --partition-sites 1
      a group over three sites that fall apart and come together again; what each pipe carried
  ordercast sim --topology examples/wan.toml --orderer sites --messages 200 --seconds 5 --partition-sites 1
      the same with the orderer that knows sites: both parts go on, and merge
  ordercast sim --many-groups --scenario-seed 42
      what `ordercast fuzz --many-groups` did with seed 42
  ordercast sim --profile sessions --orderer sites --scenario-seed 42
      daemons and their clients: what `ordercast fuzz --profile sessions --orderer sites` did with seed 42
  ordercast sim --orderer regions --nodes 6 --messages 500 --loss 0.02 --crash 2 --restart 1
      nodes on regions, with a membership service of three replicas, in four overlapping groups
  ordercast sim --ladder
      what each service costs: latency and throughput of eight members"""

# Flags that are passed on to `plain_scenario` as they are.
_PLAIN: Final[tuple[tuple[str, Callable[[str], Any], str], ...]] = (
    ("nodes", whole(1, MAX_NODES), "how many members (5)"),
    ("messages", whole(0, MAX_MESSAGES), "how many messages in all (2000)"),
    ("size", whole(0, MAX_SIZE), "bytes of each message (100)"),
    ("service", str, "UNRELIABLE, RELIABLE, FIFO, CAUSAL, AGREED, RESILIENT(k), MAJORITY or SAFE (AGREED)"),
    ("senders", whole(0, MAX_NODES), "only the last so many members send (0: all)"),
    (
        "seconds",
        decimal(0, MAX_SECONDS),
        "virtual time over which messages are spread (0: 1 ms for each, at least 1 s)",
    ),
    ("loss", probability, "probability that a receiver does not get a datagram (0)"),
    ("duplicate", probability, "probability that it gets one twice (0)"),
    ("reorder", probability, "probability that it gets one late (0)"),
    ("datagram", whole(MIN_DATAGRAM, MAX_DATAGRAM), "largest datagram in bytes (1400)"),
    ("crash", whole(0, MAX_FAULTS), "so many members crash (0)"),
    ("restart", whole(0, MAX_FAULTS), "so many of them come back (0)"),
    ("pause", whole(0, MAX_FAULTS), "so many times a member stands still for a while (0)"),
    ("partition", whole(0, MAX_FAULTS), "so many times the network falls apart and heals (0)"),
    ("cut", whole(0, MAX_FAULTS), "so many times a member is not heard by some others (0)"),
    ("slow", whole(0, MAX_FAULTS), "so many times a member's processor gets slow (0)"),
    ("stall", whole(0, MAX_FAULTS), "so many times an application takes nothing for a while (0)"),
    ("leave", whole(0, MAX_FAULTS), "so many times a member leaves, and mostly comes back (0)"),
    ("cut_pipe", whole(0, MAX_FAULTS), "with --topology: so many times a site is not heard by some others (0)"),
    ("partition_sites", whole(0, MAX_FAULTS), "with --topology: so many times the sites fall apart (0)"),
    ("split", whole(0, MAX_FAULTS), "with --topology: so many times a site falls apart inside (0)"),
    ("lossy_pipe", whole(0, MAX_FAULTS), "with --topology: so many times a pipe loses a lot (0)"),
    ("narrow_pipe", whole(0, MAX_FAULTS), "with --topology: so many times a pipe has little bandwidth (0)"),
)

_SITE_FAULTS: Final = ("cut_pipe", "partition_sites", "split", "lossy_pipe", "narrow_pipe")
_NOT_OF_REGIONS: Final = ("topology", "scenario", "save", "recovery", "min_members")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast sim`."""
    parser.description = DESCRIPTION
    add_orderer(parser, with_sites=True, with_regions=True)
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=0, help="what chance is drawn from (0)")
    for name, kind, text in _PLAIN:
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=None, help=text)
    parser.add_argument("--network", choices=list(NETWORKS), default=None, help="cost model of network and CPU (lan)")
    parser.add_argument(
        "--topology", type=Path, default=None, metavar="FILE", help="sites, their nodes and the pipes between, as TOML"
    )
    parser.add_argument("--no-multicast", action="store_true", help="one transmission for each receiver")
    parser.add_argument(
        "--min-members", type=min_members, default=None, metavar="N", help="a number, majority or all (majority)"
    )
    parser.add_argument(
        "--recovery",
        choices=["automatic", "manual"],
        default=None,
        help="whether members recover by themselves, or the application calls reset (automatic)",
    )
    parser.add_argument(
        "--scenario-seed", type=whole(0, MAX_SEED), default=None, help="replay this seed of `ordercast fuzz`"
    )
    add_profile(parser)
    parser.add_argument(
        "--groups",
        type=whole(1, MAX_GROUPS),
        default=None,
        metavar="N",
        help="so many lightweight groups on one underlay, instead of one group",
    )
    parser.add_argument(
        "--many-groups", action="store_true", help="--scenario-seed is one of `ordercast fuzz --many-groups`"
    )
    parser.add_argument("--scenario", type=Path, default=None, help="run a scenario written by --save")
    parser.add_argument("--save", type=Path, default=None, help="write the scenario as JSON")
    parser.add_argument("--trace", type=Path, default=None, help="write the trace into this folder")
    parser.add_argument(
        "--ladder", action="store_true", help="latency and throughput of each service, one after the other (RMP 3.2)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate and judge, or measure; `UsageError` says what is wrong with the flags."""
    if args.ladder:
        return _run_ladder(args)
    if args.profile == SESSIONS:
        return _run_sessions(args)
    if args.orderer == REGIONS_ORDERER:
        return _run_regions(args)
    plan = groups_of(args)
    scenario = plan.scenario if plan is not None else scenario_of(args)
    if args.trace is not None:
        _check_trace(args.trace)
    if args.save is not None:
        _save(args.save, scenario)
    outcome = run_groups(plan) if plan is not None else run_scenario(scenario)
    return _tell(args, outcome, plan)


def _tell(
    args: argparse.Namespace, outcome: Outcome, plan: ManyGroups | None = None, regions: RegionsPlan | None = None
) -> int:
    """Write the trace and the report."""
    if args.trace is not None:
        try:
            write_trace(args.trace, outcome, plan)
        except OSError as error:
            raise UsageError(f"the trace cannot be written to {args.trace}: {error.strerror or error}") from error
    if args.json:
        print(json.dumps({**outcome.as_json(), **({"groups": len(plan.groups)} if plan is not None else {})}, indent=2))
    else:
        print("\n".join(report(outcome, plan, regions)))
    return HELD if outcome.held else VIOLATED


def _run_sessions(args: argparse.Namespace) -> int:
    """A seed of daemons and their clients."""
    given = [name for name, _, _ in _PLAIN if getattr(args, name) is not None]
    others = [name for name in ("scenario", "save", "topology", "groups") if getattr(args, name) is not None]
    if args.scenario_seed is None or given or others or args.many_groups:
        raise UsageError(f"--profile {SESSIONS} takes a seed and an orderer: give --scenario-seed, and nothing else")
    if args.trace is not None:
        _check_trace(args.trace)
    plan = drawn_sessions(args.scenario_seed, args.orderer)
    outcome = run_sessions(plan)
    if not args.json:
        print("\n".join(describe_sessions(plan)))
    return _tell(args, outcome)


def _run_regions(args: argparse.Namespace) -> int:
    """Nodes on regions, and replicas of their membership service: a seed, or what the flags ask for."""
    given = {name: getattr(args, name) for name, _, _ in _PLAIN if getattr(args, name) is not None}
    others = [name for name in (*_NOT_OF_REGIONS, "anticipate") if getattr(args, name) is not None]
    others += [name for name in _SITE_FAULTS if name in given]
    if others or args.many_groups or args.profile != PROFILES[0]:
        what = others[0].replace("_", "-") if others else "many-groups" if args.many_groups else "profile"
        raise UsageError(
            f"a run of regions is drawn from a seed or from flags, of which --{what} is none: leave it out"
        )
    if args.scenario_seed is not None:
        if given or args.groups is not None or args.network is not None or args.no_multicast:
            raise UsageError("a seed of regions says everything: give --scenario-seed without other parameters")
        plan = drawn_regions(args.scenario_seed)
    else:
        given |= {"network": args.network} if args.network is not None else {}
        given |= {"has_multicast": False} if args.no_multicast else {}
        given |= {"groups": args.groups} if args.groups is not None else {}
        plan = plain_regions(seed=args.seed, **given)
    if args.trace is not None:
        _check_trace(args.trace)
    outcome = run_regions(plan)
    if not args.json:
        # Of a seed that failed all is wanted. What flags ask for is thousands of sends that nobody reads.
        print("\n".join(describe_regions(plan, with_sends=args.scenario_seed is not None)))
    return _tell(args, outcome, regions=plan)


def _run_ladder(args: argparse.Namespace) -> int:
    """`--ladder` takes an orderer, its variant, a seed, a network and `--json` only."""
    _check_ladder(args)
    orderer = args.orderer
    anticipate = check_anticipate(orderer, args.anticipate)
    network = NETWORKS[args.network or "lan"]
    progress = Progress()
    try:
        rungs = ladder(
            orderer,
            anticipate=anticipate,
            network=network,
            seed=args.seed,
            progress=lambda text: progress.live([text], text),
        )
    except MeasurementFailed as error:
        print(f"ordercast sim: {error}", file=sys.stderr)
        return VIOLATED
    finally:
        progress.close()
    held = not any(rung.violations for rung in rungs)
    found = {"held": held, "orderer": orderer, "network": network.name, "ladder": [asdict(one) for one in rungs]}
    print(json.dumps(found, indent=2) if args.json else "\n".join(ladder_lines(rungs)))
    return HELD if held else VIOLATED


def _check_ladder(args: argparse.Namespace) -> None:
    others = [name for name, _, _ in _PLAIN if getattr(args, name) is not None]
    others += [name for name in ("scenario", "scenario_seed", "save", "trace") if getattr(args, name) is not None]
    others += [name for name in ("recovery", "min_members") if getattr(args, name) is not None]
    others += [name for name in ("no_multicast", "many_groups") if getattr(args, name)]
    others += ["groups"] if args.groups is not None else []
    others += ["topology"] if args.topology is not None else []
    if others:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise UsageError(f"--ladder measures each service by itself, and takes no {flags}")


def scenario_of(args: argparse.Namespace) -> Scenario:
    """The scenario that the flags of `ordercast sim` ask for; `UsageError` if they ask for nonsense."""
    given = {name: getattr(args, name) for name, _, _ in _PLAIN if getattr(args, name) is not None}
    if args.network is not None:
        given["network"] = args.network
    if args.recovery is not None:
        given["recovery"] = args.recovery
    if args.min_members is not None:
        given["min_members"] = args.min_members
    if args.no_multicast:
        given["has_multicast"] = False
    if args.topology is not None:
        if args.nodes is not None:
            raise UsageError("the daemons of the topology are the nodes: leave out --nodes")
        given["topology"] = str(args.topology)
    if args.profile != PROFILES[0] and args.scenario_seed is None:
        raise UsageError("--profile says what a seed is drawn for: give it with --scenario-seed")
    if args.scenario is not None or args.scenario_seed is not None:
        if given or (args.scenario is not None and args.scenario_seed is not None):
            raise UsageError("a scenario says everything: give --scenario or --scenario-seed without other parameters")
        if args.scenario is not None:
            if args.anticipate is not None:
                raise UsageError("a scenario says whether to anticipate: leave that out")
            return _load(args.scenario)
        return drawn_scenario(args.profile, args.scenario_seed, args.orderer, args.anticipate)
    return plain_scenario(seed=args.seed, orderer=args.orderer, anticipate=args.anticipate, **given)


def groups_of(args: argparse.Namespace) -> ManyGroups | None:
    """The scenario with many groups that the flags ask for; None: they ask for another."""
    if args.orderer == SITES_ORDERER:
        return _sites_of(args)
    if args.groups is None and not args.many_groups:
        return None
    if args.save is not None or args.scenario is not None:
        raise UsageError("scenarios with many groups are drawn from a seed or from flags: leave out --save, --scenario")
    if args.groups is None:
        if args.scenario_seed is None:
            raise UsageError("--many-groups says what a seed is drawn for: give it with --scenario-seed")
        if args.profile != PROFILES[0]:
            raise UsageError(f"--many-groups draws scenarios of its own: leave out --profile {args.profile}")
        scenario_of(args)  # says what does not go with a seed
        return drawn_groups(args.scenario_seed, args.orderer, args.anticipate)
    if args.many_groups or args.scenario_seed is not None:
        raise UsageError("--groups is a demonstration, and a seed says everything: give one of them")
    if args.recovery == "manual":
        raise UsageError("--groups shows an underlay that recovers by itself: leave out --recovery manual")
    return plain_groups(scenario_of(args), args.groups)


def _sites_of(args: argparse.Namespace) -> ManyGroups:
    """Daemons of sites: their underlay always carries lightweight groups, one where nothing is said."""
    if args.save is not None or args.scenario is not None or args.many_groups or args.profile != PROFILES[0]:
        raise UsageError("a run of sites is drawn from a seed or from flags: leave out --save, --scenario, --profile")
    if args.scenario_seed is None:
        return plain_groups(scenario_of(args), args.groups or 1)
    given = [name for name, _, _ in _PLAIN if getattr(args, name) is not None]
    if given or args.topology is not None or args.groups is not None:
        raise UsageError("a seed of sites says everything: give --scenario-seed without other parameters")
    return drawn_site_groups(args.scenario_seed)


def _load(path: Path) -> Scenario:
    try:
        return scenario_from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--scenario {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _save(path: Path, scenario: Scenario) -> None:
    try:
        path.write_text(scenario_to_json(scenario) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--save {path} cannot be written: {error.strerror or error}") from error


def _check_trace(folder: Path) -> None:
    """Say what is wrong with the folder of the trace before anything is run."""
    need("trace", "--trace")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--trace {folder} is a file, not a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"--trace {folder} is not empty: a trace needs a folder of its own")


def write_trace(folder: Path, outcome: Outcome, plan: ManyGroups | None = None) -> None:
    """Write the trace as Parquet: the same command writes the same bytes."""
    # Not at the top: Parquet is an extra, and a run without --trace must not need it.
    from ordercast.trace.convert import write_rows

    scenario = outcome.scenario
    services = sorted({load.service for load in scenario.loads})
    parameters = scenario_values(scenario)
    if plan is not None:
        services = plan.services
        parameters |= {"groups": len(plan.groups), "underlay": UNDERLAY}
    if scenario.topology is not None and scenario.orderer == SITES_ORDERER:
        # Otherwise a judge of the trace would take the run for one in which at most one part of a partition goes on.
        places = {daemon.name: daemon.site for daemon in scenario.topology.config.daemons}
        parameters = parameters_of_sites(places, parameters)
    info = RunInfo.simulated(seed=scenario.seed, orderer=scenario.orderer, services=services, parameters=parameters)
    # How it ended is no parameter, so it is not part of the name. A judge of the trace must know it.
    replace(info, parameters={**info.parameters, "quiet": outcome.is_quiet}).write(folder)
    write_rows(folder, outcome.rows)


def report(outcome: Outcome, plan: ManyGroups | None = None, regions: RegionsPlan | None = None) -> list[str]:
    """Lines for people: what happened, the verdict, and how to see it again."""
    scenario, stats = outcome.scenario, outcome.stats
    messages, faults = scenario.messages if plan is None else plan.messages, len(scenario.faults)
    if regions is not None:  # what nodes do is not in the scenario there
        messages, faults = regions.messages, regions.failures
    groups = "" if plan is None else f"{len(plan.groups)} groups on one underlay, "
    lines = [
        f"{len(scenario.nodes)} nodes on {scenario.network}, {groups}{messages} messages, "
        f"{faults} faults, {stats.virtual_ns / SECOND:.3f} s of virtual time",
        *(f"  {fault}" for fault in scenario.faults),
        f"{stats.submitted} submitted, {stats.delivered} delivered at all members together, {stats.views} views, "
        f"{stats.repairs} repairs, {stats.lost} datagrams lost, {stats.socket_drops} dropped by sockets",
        f"latency p50 {stats.latency_p50_ns / MS:.3f} ms, p99 {stats.latency_p99_ns / MS:.3f} ms; "
        f"{stats.throughput_per_s:.0f} messages/s at each receiver",
        "datagrams: " + ", ".join(f"{kind} {count}" for kind, count in sorted(stats.datagrams.items())),
    ]
    lines += pipe_lines(stats.pipes)
    if outcome.excuse is not None:
        lines.append(f"the group could not go on: {outcome.excuse}")
    if outcome.is_deserted:
        lines.append("no member was left")
    if outcome.is_short:
        lines.append("the members waited for more of them")
    if outcome.verdict is not None:
        lines += outcome.verdict.summary()
    lines += [f"FAILED: {text}" for text in outcome.failures]
    lines.append(f"digest {outcome.digest}")
    lines.append(f"replay: {outcome.command}")
    return lines
