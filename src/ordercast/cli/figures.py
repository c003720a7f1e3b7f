"""`ordercast figures`: what the papers report, measured again in the simulator, beside their numbers.

Exit codes: 0 every run held every guarantee (whether or not a number is the paper's), 1 a run failed or a guarantee was
violated, 2 bad input. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from ordercast.cli.arguments import MAX_SEED, whole
from ordercast.cli.extras import need
from ordercast.cli.progress import Progress
from ordercast.errors import UsageError
from ordercast.figures import amoeba, qsm, rmp, spread, tompa
from ordercast.figures.amoeba_report import amoeba_report
from ordercast.figures.drawing import draw
from ordercast.figures.qsm_report import qsm_report
from ordercast.figures.report import PaperReport, markdown_lines, text_lines
from ordercast.figures.rmp_report import rmp_report
from ordercast.figures.spread_report import spread_report
from ordercast.figures.tompa_report import tompa_report
from ordercast.sim.compare import MAX_JOBS
from ordercast.sim.comparison import MAX_SEEDS
from ordercast.sim.lab import MeasurementFailed

HELP: Final = "measure again what the papers report, with their numbers beside ours"
DESCRIPTION: Final = (
    "Repeats the measurements of the Amoeba paper (section 5), of the RMP paper (section 5), of the TOMPA paper "
    "(section 4), of the Spread paper (section 4) or of the QSM paper (figures 1 and 9 to 20) in the simulator. Prints "
    "each claim with the paper's number, ours, and the reason where they differ, then the tables. The same command "
    "always prints the same. Every run is judged."
)
EXAMPLES: Final = """examples:
  ordercast figures amoeba --quick
      the sequencer against section 5 of its paper, with fewer points; seconds
  ordercast figures rmp --out pictures
      figures 5.1 to 5.3 of RMP, and as pictures (SVG); a minute
  ordercast figures tompa --jobs 2 --json
      what anticipation saves on several networks, for a program; some minutes
  ordercast figures spread --quick
      hops against a ring over a wide area, misrouting, pruning, and the LAN beside a slow link; seconds
  ordercast figures qsm --figure 13 --figure 15 --jobs 2 --keep qsm.jsonl
      partitions and token rates of QSM; what was measured is kept, and not measured again"""

Tell = Callable[[str], None]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast figures`."""
    parser.description = DESCRIPTION
    parser.add_argument("paper", choices=list(PAPERS), help="whose figures")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer points, each with the same numbers as without it; qsm: small regions for a short time",
    )
    parser.add_argument("--seed", type=whole(0, MAX_SEED - MAX_SEEDS), default=None, help="what chance is drawn from")
    parser.add_argument(
        *("--jobs",),
        type=whole(1, MAX_JOBS),
        default=1,
        help="tompa and qsm: processes side by side; the result is the same (1)",
    )
    parser.add_argument(
        *("--figure",),
        type=whole(min(qsm.FIGURES), max(qsm.FIGURES)),
        choices=qsm.FIGURES,
        action="append",
        help="qsm: only this one; may be given again",
    )
    parser.add_argument(
        "--keep", type=Path, default=None, metavar="FILE", help="qsm: append each run to it, and take what it has"
    )
    parser.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="write the pictures into it, as SVG")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print everything as one JSON document")
    form.add_argument("--markdown", action="store_true", help="print it as docs/figures.md has it")


def run(args: argparse.Namespace) -> int:
    """Measure, print and draw."""
    if args.jobs != 1 and args.paper not in ("tompa", "qsm"):
        raise UsageError(f"--jobs is for tompa and qsm, not for {args.paper}: its runs come one after the other")
    if args.paper != "qsm" and (args.figure is not None or args.keep is not None):
        raise UsageError(f"--figure and --keep are for qsm, not for {args.paper}: its figures take seconds to minutes")
    if args.out is not None:
        check_out(args.out)
    progress = Progress()
    try:
        report = PAPERS[args.paper](args, lambda text: progress.live([text], text))
    except MeasurementFailed as error:
        progress.close()
        print(f"ordercast figures: {error}", file=sys.stderr)
        return 1
    finally:
        progress.close()
    if args.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print("\n".join(markdown_lines(report, "img") if args.markdown else text_lines(report)))
    if args.out is not None:
        write(args.out, report)
    return 0 if report.held else 1


def check_out(folder: Path) -> None:
    """Say what is wrong with the folder of the pictures before anything is measured."""
    need("plot", "--out")
    if not folder.is_dir():
        raise UsageError(f"--out {folder} is {'a file' if folder.exists() else 'not there'}: it takes a folder")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--out {folder} cannot be written")


def write(folder: Path, report: PaperReport) -> None:
    try:
        for picture in report.pictures:
            print(f"picture: {draw(picture, folder)}", file=sys.stderr)
    except OSError as error:
        raise UsageError(f"--out {folder} cannot be written: {error.strerror or error}") from error


def _amoeba(args: argparse.Namespace, tell: Tell) -> PaperReport:
    plan = amoeba.QUICK if args.quick else amoeba.FULL
    return amoeba_report(amoeba.amoeba_figures(plan if args.seed is None else replace(plan, seed=args.seed), tell))


def _rmp(args: argparse.Namespace, tell: Tell) -> PaperReport:
    plan = rmp.QUICK if args.quick else rmp.FULL
    return rmp_report(rmp.rmp_figures(plan if args.seed is None else replace(plan, seed=args.seed), tell))


def _tompa(args: argparse.Namespace, tell: Tell) -> PaperReport:
    plan = tompa.QUICK if args.quick else tompa.FULL
    plan = plan if args.seed is None else replace(plan, seed=args.seed)
    return tompa_report(tompa.tompa_figures(plan, args.jobs, tell))


def _spread(args: argparse.Namespace, tell: Tell) -> PaperReport:
    plan = spread.QUICK if args.quick else spread.FULL
    return spread_report(spread.spread_figures(plan if args.seed is None else replace(plan, seed=args.seed), tell))


def _qsm(args: argparse.Namespace, tell: Tell) -> PaperReport:
    plan = qsm.QUICK if args.quick else qsm.FULL
    plan = plan if args.seed is None else replace(plan, seed=args.seed)
    return qsm_report(qsm.qsm_figures(plan, args.figure or qsm.FIGURES, args.jobs, tell, args.keep))


PAPERS: Final[dict[str, Callable[[argparse.Namespace, Tell], PaperReport]]] = {
    "amoeba": _amoeba,
    "rmp": _rmp,
    "tompa": _tompa,
    "spread": _spread,
    "qsm": _qsm,
}
