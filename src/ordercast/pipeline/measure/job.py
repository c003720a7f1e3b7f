"""The job: traces in, tables out. Also as `ordercast measure`, `python -m ordercast.pipeline.measure` and under
`spark-submit`, which takes the path of `__main__.py` in this folder.

Exit codes: 0 measured, 2 the input cannot be used, 3 the job failed and there are no new tables.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ordercast.errors import UsageError
from ordercast.pipeline.failures import as_program, cannot_write, guarded
from ordercast.pipeline.reading import TraceRun, Traces, events_of, inspect
from ordercast.trace.convert import load_pyarrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ordercast.pipeline.measure.measures import Measures

HELP: Final = "measure throughput, latencies, datagrams, repairs and view changes over traces, on Spark"
DESCRIPTION: Final = (
    "Reads trace folders, of real and simulated runs, and measures: messages and bytes per second of each member and "
    "group; latencies by service, from send and from reception to delivery, the latter in two parts; datagrams by kind "
    "for each message; how long repairs and view changes took; how fast the token goes round. Of very many groups the "
    "busiest have figures of their own, and the rest have theirs together. Time series and totals "
    "are written as Parquet, one file for each table; the totals are printed."
)
EXAMPLES: Final = """examples:
  ordercast measure ./trace --out ./measured
      one run: a summary here, the tables in ./measured; exit code 2 if the trace cannot be used, 3 if the job failed
  ordercast measure runs/* --out ./measured --json | jq '.runs[].latency'
      many runs at once, for a program
  ordercast measure ./trace --out ./measured --master spark://127.0.0.1:7077
      on a cluster; its workers must see the trace under the same path"""

APP: Final = "ordercast measure"
DONE = 0
SUMMARY: Final = "summary.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.description = DESCRIPTION
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="folder of a trace")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the tables")
    parser.add_argument("--master", default=None, metavar="URL", help="Spark's master (all cores of this machine)")
    parser.add_argument("--heap", default=None, metavar="SIZE", help="memory of the driver, such as 2g")
    parser.add_argument("--json", action="store_true", help="print the totals as one JSON document")


def main(arguments: Sequence[str] | None = None) -> int:
    """The job as a program of its own."""
    return as_program(APP, EXAMPLES, configure, run, arguments)


def run(args: argparse.Namespace) -> int:
    """Do the job; its exit code. `UsageError` names what cannot be used."""
    return guarded(APP, lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    """Measure, write, print. `UsageError` names what cannot be used."""
    from ordercast.pipeline.session import DEFAULT_HEAP, session

    runs = inspect(args.traces)  # before Spark starts: a missing file is no reason to wait for it
    make_folder(args.out)
    rows = sum(one.rows for one in runs)
    with session(APP, args.master, heap=args.heap or DEFAULT_HEAP, rows=rows) as spark:
        found = measure_runs(spark, runs)
    summary = as_json(found)
    write(args.out, found, summary)
    if args.json:
        print(json.dumps(summary, indent=2))
    else:
        from ordercast.pipeline.measure.summary import summary_lines

        print("\n".join([*summary_lines(found), "", f"tables: {args.out}"]))
    return DONE


def measure_runs(spark: SparkSession, runs: Sequence[TraceRun]) -> Measures:
    """Measure these runs with Spark."""
    from ordercast.pipeline.measure.measures import measure
    from ordercast.pipeline.measure.quiet import hush

    hush(spark)
    return measure(spark, Traces(tuple(runs), events_of(spark, runs)))


def make_folder(folder: Path) -> None:
    """The folder for results, before anything is computed for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"--out {folder} is a file; name a folder") from None
    except OSError as error:
        raise UsageError(f"--out {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--out {folder} cannot be written to")


def write(folder: Path, found: Measures, summary: dict[str, Any]) -> None:
    """Each table as one Parquet file. They are small: the driver writes them, whatever the cluster can reach."""
    _, pq = load_pyarrow()
    try:
        for name, table in found.tables.items():
            new = folder / f".{name}.parquet.{os.getpid()}"
            pq.write_table(table, new, compression="zstd")
            new.replace(folder / f"{name}.parquet")
        (folder / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write(folder, error) from error


def as_json(found: Measures) -> dict[str, Any]:
    """The totals for a program, run by run."""
    runs = []
    for one in found.runs:
        span = found.spans[one.name]
        totals = {
            name: [_without(row, "run", "curve") for row in found.rows(table, run=one.name)]
            for name, table in (
                ("groups", "group_totals"),
                ("members", "member_totals"),
                ("latency", "latency_totals"),
                ("datagrams", "datagram_totals"),
                ("links", "link_totals"),
                ("repairs", "repair_totals"),
                ("views", "view_totals"),
                ("group_views", "group_view_totals"),
                ("rotation", "rotation_totals"),
                ("regions", "region_totals"),
                ("waste", "region_waste"),
            )
            if table in found.tables
        }
        info = asdict(one.info)
        told = {key: info[key] for key in ("orderer", "source", "clock", "seed", "services", "started")}
        seconds = (span.ended_ns - span.began_ns) / 1e9
        width_s = found.width_ns(one.name) / 1e9
        runs.append({"run": one.name, **told, "seconds": seconds, "events": span.events, "bucket_s": width_s, **totals})
    return {"runs": runs}


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}
