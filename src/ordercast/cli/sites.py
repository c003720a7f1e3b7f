"""`ordercast sites`: what a configuration of sites says, and whether its daemons can reach each other.

Exit codes: 0 everything that was asked answered, 1 something did not, 2 bad input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ordercast.cli.arguments import decimal
from ordercast.cli.extras import need
from ordercast.cli.reach import Reach, probe, reach_lines
from ordercast.errors import UsageError
from ordercast.figures.routes import RouteTree, draw_trees, route_trees, tree_lines
from ordercast.sites import SitesConfig, load_sites

SECONDS: Final = 3.0
MAX_SECONDS: Final = 3_600.0
FORMATS: Final = (".svg", ".png")

HELP: Final = "check a configuration of sites, and show the routes between them"
DESCRIPTION: Final = (
    "`show` reads a configuration of sites and prints the tree on which the packets of each site travel, with "
    "distances. `check` also asks daemons whether they answer. It stands in for those daemons of the file that this "
    "machine has the addresses of and that do not run, and asks all others from there; daemons at work answer, and so "
    "do other checks. For a check between machines, run it with --daemon on each of them at the same time."
)
EXAMPLES: Final = """examples:
  ordercast sites show examples/wan.toml
      sites, daemons, and the routes from each site
  ordercast sites show examples/wan.toml --picture routes.svg
      the same as a picture
  ordercast sites check wan.toml
      every pair of daemons that this machine can stand in for
  ordercast sites check wan.toml --daemon e1 --seconds 60 --insecure
      on the machine of e1, before the daemons are started; the same on the others with their names"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast sites`."""
    parser.description = DESCRIPTION
    parser.add_argument("action", choices=["check", "show"], help="what to do with the file")
    parser.add_argument("file", type=Path, metavar="FILE", help="the configuration, as TOML")
    parser.add_argument("--daemon", default=None, metavar="NAME", help="check: ask from this daemon only, and stay")
    parser.add_argument(
        "--seconds",
        type=decimal(0.1, MAX_SECONDS),
        default=None,
        help=f"check: how long a daemon may take to answer ({SECONDS:g})",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="check: allow other interfaces than loopback: nothing is encrypted yet"
    )
    parser.add_argument(
        "--picture", type=Path, default=None, metavar="FILE", help="also draw the routes: FILE.svg or FILE.png"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")


def run(args: argparse.Namespace) -> int:
    """Show or check; `UsageError` says what is wrong with the file or the flags."""
    config = load_sites(args.file)
    if args.picture is not None:
        if args.picture.suffix not in FORMATS:
            raise UsageError(f"--picture {args.picture} is neither {' nor '.join(FORMATS)}")
        need("plot", "--picture")
    trees = route_trees(config)
    reach = _check(args, config)
    if args.picture is not None:
        try:
            draw_trees(trees, args.picture)
        except OSError as error:
            raise UsageError(f"--picture {args.picture} cannot be written: {error.strerror or error}") from error
    seconds = SECONDS if args.seconds is None else args.seconds
    if args.json:
        print(json.dumps(as_json(config, trees, reach), indent=2))
    else:
        print("\n".join(report(str(args.file), config, trees, reach, seconds)))
    return 0 if reach is None or reach.is_whole else 1


def _check(args: argparse.Namespace, config: SitesConfig) -> Reach | None:
    """What `check` finds; None with `show`, which asks nobody."""
    if args.action == "show":
        given = {"--daemon": args.daemon, "--seconds": args.seconds, "--insecure": args.insecure or None}
        for flag, value in given.items():
            if value is not None:
                raise UsageError(f"{flag} is for check: `show` asks no daemon")
        return None
    if args.daemon is not None:
        config.daemon(args.daemon)
    if len(config.daemons) < 2:
        raise UsageError("the configuration has one daemon: there is nobody to ask")
    seconds = SECONDS if args.seconds is None else args.seconds
    return asyncio.run(probe(config, args.daemon, seconds, insecure=args.insecure))


def report(
    file: str, config: SitesConfig, trees: list[RouteTree], reach: Reach | None, seconds: float = SECONDS
) -> list[str]:
    """Lines for people."""
    lines = [f"{file}: {len(config.sites)} sites, {len(config.daemons)} daemons"]
    for site in config.sites:
        daemons = ", ".join([f"{each.name} {each.host}:{each.port}" for each in config.daemons_of(site.name)])
        how = f"multicast {site.multicast[0]}:{site.multicast[1]}" if site.multicast is not None else "copies"
        lines.append(f"  {site.name} ({how}): {daemons or 'no daemon'}")
    lines.append("routes, with the distance from the source")
    lines += [f"  {line}" for line in tree_lines(trees)]
    if reach is not None:
        lines += reach_lines(reach, seconds)
        asked = len(reach.pairs)
        lines.append(f"{asked - len(reach.silent)} of {asked} pairs answered")
    return lines


def as_json(config: SitesConfig, trees: list[RouteTree], reach: Reach | None) -> dict[str, Any]:
    """The same for programs."""
    result: dict[str, Any] = {
        "sites": {site.name: [each.name for each in config.daemons_of(site.name)] for site in config.sites},
        "fingerprint": config.fingerprint(),
        "routes": {tree.source: [asdict(step) for step in tree.steps] for tree in trees},
    }
    if reach is not None:
        result["pairs"] = [asdict(pair) for pair in reach.pairs]
        result["not_asked_from"] = reach.absent
        result["no_multicast"] = reach.deaf
        result["whole"] = reach.is_whole
    return result
