"""The job: traces in, one HTML file out. Also as `ordercast report`, `python -m ordercast.pipeline.report` and under
`spark-submit`, which takes the path of `__main__.py` in this folder.

Exit codes: 0 every guarantee held, 1 one was violated (the report says which), 2 the input cannot be used, 3 the job
failed and there is no report.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ordercast.pipeline.failures import as_program, cannot_write, guarded
from ordercast.pipeline.measure.job import make_folder, measure_runs
from ordercast.pipeline.reading import TraceRun, events_of, inspect
from ordercast.pipeline.report.verdict import JudgedProperty, ReportVerdict
from ordercast.pipeline.session import SHORT_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ordercast.pipeline.measure.measures import Measures
    from ordercast.pipeline.report.timeline import Choice

HELP: Final = "one HTML file about one run or several: verdict, figures, and the order itself"
DESCRIPTION: Final = (
    "Reads trace folders, verifies and measures them on Spark, and writes one HTML file that needs no network: the "
    "verdict, throughput and latency over time with views and crashes, latency distributions, datagrams by kind, and "
    "an order timeline in which a window can be chosen. Several runs are also compared with one another."
)
EXAMPLES: Final = """examples:
  ordercast report ./trace --out ./report
      then open ./report/report.html; exit code 0 if every guarantee held, 1 if not, 2 if a trace cannot be used, 3 if
      the job itself failed
  ordercast report runs/token runs/sequencer runs/timestamp --out ./report
      three runs compared with each other, and each of them alone
  ordercast report ./trace --out ./report --no-verify
      figures only; the report says that the guarantees were not judged"""

APP: Final = "ordercast report"
HELD, VIOLATED = 0, 1
FILE: Final = "report.html"
TITLE: Final = "Ordercast report"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.description = DESCRIPTION
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="folder of a trace")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=f"folder for {FILE}")
    parser.add_argument("--master", default=None, metavar="URL", help="Spark's master (all cores of this machine)")
    parser.add_argument("--heap", default=None, metavar="SIZE", help="memory of the driver, such as 2g")
    parser.add_argument("--title", default=TITLE, help=f"on top of the page ({TITLE})")
    parser.add_argument("--no-verify", action="store_true", help="measure only, do not judge the guarantees")
    parser.add_argument(
        "--unfinished", action="store_true", help="the runs were cut off: do not expect that every message has arrived"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The job as a program of its own."""
    return as_program(APP, EXAMPLES, configure, run, arguments)


def run(args: argparse.Namespace) -> int:
    """Do the job; its exit code. `UsageError` names what cannot be used."""
    return guarded(APP, lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    """Verify, measure, write. `UsageError` names what cannot be used."""
    from ordercast.pipeline.session import DEFAULT_HEAP, session

    runs = inspect(args.traces)  # before Spark starts: a missing file is no reason to wait for it
    make_folder(args.out)
    rows = sum(one.rows for one in runs)
    with session(APP, args.master, heap=args.heap or DEFAULT_HEAP, rows=rows) as spark:
        verdict, measured = None, None
        if not args.no_verify:
            verdict, measured = judge_and_measure(spark, runs, unfinished=args.unfinished)
        path = write_report(spark, runs, args.out, verdict, title=args.title, measured=measured)
    if verdict is not None:
        print("every guarantee held" if verdict.held else "NOT every guarantee held")
    print(f"report: {path}")
    return VIOLATED if verdict is not None and not verdict.held else HELD


def judge_and_measure(
    spark: SparkSession, runs: Sequence[TraceRun], *, unfinished: bool = False
) -> tuple[ReportVerdict, Measures]:
    """Both. Small runs at the same time: they spend their time on planning, and Spark plans one query at a time."""
    if sum(one.rows for one in runs) >= SHORT_ROWS:
        return verdict_of(spark, runs, unfinished=unfinished), measure_runs(spark, runs)
    with ThreadPoolExecutor(1) as beside:
        measuring = beside.submit(measure_runs, spark, runs)
        verdict = verdict_of(spark, runs, unfinished=unfinished)
        return verdict, measuring.result()


def verdict_of(spark: SparkSession, runs: Sequence[TraceRun], *, unfinished: bool = False) -> ReportVerdict:
    """Verify with Spark."""
    from ordercast.pipeline.verify.job import verify

    return as_verdict(verify(spark, runs, unfinished=unfinished), runs)


def as_verdict(findings: Any, runs: Sequence[TraceRun]) -> ReportVerdict:
    """What `pipeline.verify` found, as the report shows it."""
    rows = sum(one.rows for one in runs)
    return ReportVerdict(
        f"ordercast verify, on Spark: {rows:,} events of {len(runs)} run{'s' * (len(runs) > 1)}",
        [
            JudgedProperty(name, int(checked), int(findings.totals[name]), findings.not_judged.get(name, ""))
            for name, checked in findings.checked.items()
        ],
        [violation._asdict() for violation in findings.violations()],
    )


def write_report(
    spark: SparkSession,
    runs: Sequence[TraceRun],
    folder: Path,
    verdict: ReportVerdict | None,
    *,
    title: str = TITLE,
    measured: Measures | None = None,
) -> Path:
    """Measure these runs, unless that was done, and write the file; its path."""
    from ordercast.pipeline.report.content import content
    from ordercast.pipeline.report.page import page_of
    from ordercast.pipeline.report.timeline import timeline

    found = measured if measured is not None else measure_runs(spark, runs)
    choices = {choice.run: choice for choice in _choices(found)}
    rows = timeline(events_of(spark, runs), choices.values()).toArrow().to_pylist()
    document = content(found, _over_time(spark, found), rows, choices, verdict, title)
    path = folder / FILE
    try:
        new = folder / f".{FILE}.{os.getpid()}"
        new.write_text(page_of(document), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return path


def _choices(found: Measures) -> list[Choice]:
    """What the timeline shows of each run."""
    from ordercast.pipeline.report.timeline import ROOM, choose

    importance = ("crash", "transitional", "leave", "join")
    chosen = []
    for one in found.runs:
        span = found.spans[one.name]
        marks = [row for row in found.rows("marks", run=one.name) if row["kind"] in importance]
        marks.sort(key=lambda row: (importance.index(row["kind"]), row["at_ns"]))
        moments = list(dict.fromkeys(row["at_ns"] for row in marks))
        room = ROOM // len(found.runs)
        chosen.append(choose(one.name, span.delivery_rows, (span.began_ns, span.ended_ns), moments, room))
    return chosen


def _over_time(spark: SparkSession, found: Measures) -> list[dict[str, Any]]:
    """Send to delivery by run, service and bucket, all groups together."""
    from ordercast.pipeline.measure.sketches import merged, with_percentiles

    series = found.tables["latency_series"]
    groups = {(row["run"], row["group"]) for row in found.rows("group_totals")}
    if len(groups) == len(found.runs):
        return found.rows("latency_series", stage="send")
    sends = spark.createDataFrame(series).where("stage = 'send'")
    by_service = with_percentiles(merged(sends, ["run", "service", "bucket"])).drop("sketch")
    rows: list[dict[str, Any]] = by_service.toArrow().to_pylist()
    return rows
