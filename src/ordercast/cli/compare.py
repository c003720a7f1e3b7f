"""`ordercast compare`: several orderers under the same load, in the simulator (`ordercast.sim.compare`)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ordercast.cli.arguments import MAX_SEED, decimal, whole
from ordercast.cli.extras import need
from ordercast.cli.progress import Progress
from ordercast.errors import UsageError
from ordercast.sim.compare import MAX_JOBS, compare
from ordercast.sim.comparison import (
    LOADS,
    MAX_CHANCE,
    MAX_JITTER_MS,
    MAX_MESSAGES,
    MAX_NODES,
    MAX_SEEDS,
    MAX_SIZE,
    WORDS,
    Comparison,
    ComparisonPlan,
    parse_load,
    parse_variant,
)
from ordercast.sim.lab import MeasurementFailed
from ordercast.sim.network import NETWORKS
from ordercast.sim.plots import FORMATS, draw
from ordercast.sim.tables import comparison_lines

HELP: Final = "measure several orderers under the same load, in virtual time"
DESCRIPTION: Final = (
    "Runs the same messages on each orderer in the simulator and tells how long a message waits at its receivers, "
    "from reception to delivery, and how many datagrams it takes. The wait has two parts, as in the TOMPA paper "
    "(2.3): t1 until the receiver knows the message's sequence number, and t2 from then to the delivery. With the "
    "sequencer and the token a number counts as known when all before it are known, too: their t2 is only what "
    "services stronger than AGREED wait for. All datagrams of all members count, a multicast once. Arrivals at each "
    "sender are a Poisson process, drawn from the seed and the same for each orderer; only what is sent to a formed "
    "group counts. Every run is judged: exit code 1 if any guarantee was violated."
)
EXAMPLES: Final = """examples:
  ordercast compare latency
      all orderers, five members, light load
  ordercast compare latency --load light,medium,heavy,saturated --out latency.svg
      over the load, and as a figure (SVG or PNG)
  ordercast compare latency --orderers timestamp,timestamp:no-anticipate --nodes 3,5,8,12,20 --load medium --loss 0.001
      TOMPA against ABCAST over the size of the group, where now and then a datagram is lost
  ordercast compare latency --orderers sequencer,token --service SAFE --load 500,5000 --seeds 5 --json
      what SAFE waits for; five seeds together, as JSON"""

ORDERERS: Final = "sequencer,token,timestamp,timestamp:no-anticipate"
BAR: Final = 24
T = TypeVar("T")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast compare`."""
    parser.description = DESCRIPTION
    words = "; ".join(f"{network} {', '.join(f'{load:g}' for load in loads)}" for network, loads in LOADS.items())
    parser.add_argument("what", choices=["latency"], help="what is compared: reception-to-delivery latency")
    parser.add_argument("--orderers", default=ORDERERS, metavar="A,B,…", help=f"which ({ORDERERS})")
    parser.add_argument("--nodes", default="5", metavar="N,…", help="members, one or several sizes (5)")
    parser.add_argument(
        "--load",
        default=WORDS[0],
        metavar="LOAD,…",
        help=f"messages per second of all senders together, one or several; or {', '.join(WORDS)} (light). The first "
        f"three are by network: {words}. A saturated group gets everything at once",
    )
    parser.add_argument(
        "--senders", type=whole(0, MAX_NODES), default=0, help="only the last so many members send (0: all)"
    )
    parser.add_argument(
        "--messages", type=whole(1, MAX_MESSAGES), default=1_000, help="in each run, of all senders together (1000)"
    )
    parser.add_argument("--size", type=whole(0, MAX_SIZE), default=100, help="bytes of each message (100)")
    parser.add_argument("--service", default="AGREED", help="what each message asks for (AGREED)")
    parser.add_argument("--network", default="lan", choices=list(NETWORKS), help="cost model of network and CPU (lan)")
    parser.add_argument(
        "--jitter-ms",
        type=decimal(0, MAX_JITTER_MS),
        default=-1.0,
        help="each datagram takes up to so much longer (what the network has)",
    )
    parser.add_argument(
        "--spread-ms",
        type=decimal(0, MAX_JITTER_MS),
        default=0.0,
        help="each datagram takes so much longer on average, exponentially distributed (0)",
    )
    parser.add_argument(
        "--loss", type=decimal(0, MAX_CHANCE), default=0.0, help="probability that a receiver loses a datagram (0)"
    )
    parser.add_argument(
        "--reorder", type=decimal(0, MAX_CHANCE), default=0.0, help="probability that it gets one up to 2 ms late (0)"
    )
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=0, help="the first seed (0)")
    parser.add_argument("--seeds", type=whole(1, MAX_SEEDS), default=1, help="so many seeds, put together (1)")
    parser.add_argument(
        "--jobs", type=whole(1, MAX_JOBS), default=1, help="processes side by side; the result is the same (1)"
    )
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="draw a figure: FILE.png or FILE.svg")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")


def run(args: argparse.Namespace) -> int:
    """Compare and report."""
    plan = plan_of(args)
    if args.out is not None:
        check_out(args.out)
    progress = Progress()

    def tell(done: int, runs: int, text: str) -> None:
        full = BAR * done // runs
        line = f"{done}/{runs} runs: {text}"
        progress.live([f"[{'#' * full}{'.' * (BAR - full)}] {line}"], line)

    try:
        found = compare(plan, args.jobs, tell)
    except MeasurementFailed as error:
        print(f"ordercast compare: {error}", file=sys.stderr)
        return 1
    finally:
        progress.close()
    print(json.dumps(found.as_json(), indent=2) if args.json else "\n".join(comparison_lines(found)))
    if args.out is not None:
        write(args.out, found)
    return 0 if found.held else 1


def plan_of(args: argparse.Namespace) -> ComparisonPlan:
    """The plan that the flags ask for; `UsageError` says what is wrong with them."""
    return ComparisonPlan(
        variants=_several("orderers", args.orderers, parse_variant),
        nodes=_several("nodes", args.nodes, _number),
        loads=_several("load", args.load, lambda word: parse_load(word, args.network)),
        senders=args.senders,
        messages=args.messages,
        size=args.size,
        service=args.service,
        network=args.network,
        jitter_ms=args.jitter_ms,
        spread_ms=args.spread_ms,
        loss=args.loss,
        reorder=args.reorder,
        seed=args.seed,
        seeds=args.seeds,
    )


def check_out(out: Path) -> None:
    """Say what is wrong with the figure before anything is measured."""
    need("plot", "--out")
    if out.suffix.lower() not in FORMATS:
        raise UsageError(f"--out {out} is neither {' nor '.join(FORMATS)}: the name says what is written")
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder, not a file")
    if not out.parent.is_dir():
        raise UsageError(f"--out {out} cannot be written: there is no folder {out.parent}")
    try:
        is_new = not out.exists()
        out.open("ab").close()
        if is_new:
            out.unlink()
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written: {error.strerror}") from error


def write(out: Path, found: Comparison) -> None:
    try:
        draw(found, out)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written: {error.strerror or error}") from error
    print(f"figure: {out}", file=sys.stderr)


def _several(what: str, words: str, read: Callable[[str], T]) -> tuple[T, ...]:
    given = [word.strip() for word in words.split(",")]
    if not all(given):
        raise UsageError(f"--{what} takes values with commas between them, not {words!r}")
    return tuple(read(word) for word in given)


def _number(word: str) -> int:
    if not word.isdecimal():
        raise UsageError(f"--nodes takes whole numbers, not {word!r}")
    return int(word)
