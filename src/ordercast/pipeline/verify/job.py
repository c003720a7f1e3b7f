"""The job: traces in, verdict out. Also as `ordercast verify`, `python -m ordercast.pipeline.verify` and under
`spark-submit`, which takes the path of `__main__.py` in this folder.

Exit codes: 0 everything held, 1 something was violated, 2 the input cannot be used, 3 the job failed (a full disk, a
Java that was killed): there is no verdict.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ordercast.errors import UsageError
from ordercast.pipeline.failures import as_program, cannot_write, guarded
from ordercast.pipeline.reading import TraceRun, event_schema, events_of, inspect
from ordercast.pipeline.verify import integrity, liveness, order, promises, regions, resilience, views
from ordercast.pipeline.verify.engine import SparkEngine, SqlEngine
from ordercast.pipeline.verify.facts import gather
from ordercast.pipeline.verify.findings import COLUMNS, ROOT, Findings, ViolationRow
from ordercast.pipeline.verify.history import Rules
from ordercast.pipeline.verify.region_facts import gather_regions
from ordercast.pipeline.verify.sessions import seat_sessions
from ordercast.trace.schema import CONTINUE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELP: Final = "prove or refute the guarantees over the traces of any number of runs, on Spark"
DESCRIPTION: Final = (
    "Reads trace folders, of real and simulated runs, and judges eight properties: integrity, fifo, causal, "
    "total_order, virtual_synchrony, resilience, liveness and promises; of regions three more. "
    "Violations come with the smallest evidence found, root causes before their consequences."
)
EXAMPLES: Final = """examples:
  ordercast verify ./trace
      one run; exit code 0 if everything held, 1 if not, 2 if the trace cannot be used, 3 if the job itself failed
  ordercast verify runs/* --json | jq .properties.total_order
      many runs at once, for a program
  ordercast verify ./trace --out ./verdict
      keep the violations as a Parquet table, and a summary
  ordercast verify ./trace --around 3f2c8e1a90b7d654:b/0:812
      the events of member b, life 0, around its event 812, as a violation names them
  ordercast verify ./trace --master spark://127.0.0.1:7077
      on a cluster; its workers must see the trace under the same path"""

APP: Final = "ordercast verify"
HELD, VIOLATED = 0, 1
SHOWN: Final = 40
NEIGHBOURHOOD: Final = 8  # events before and after, with --around
TABLE: Final = "violations.parquet"
SUMMARY: Final = "summary.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.description = DESCRIPTION
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="folder of a trace")
    parser.add_argument("--master", default=None, metavar="URL", help="Spark's master (all cores of this machine)")
    parser.add_argument("--heap", default=None, metavar="SIZE", help="memory of the driver, such as 2g")
    parser.add_argument("--json", action="store_true", help="print the verdict as one JSON document")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help=f"write {TABLE} and {SUMMARY} there")
    parser.add_argument(
        "--unfinished", action="store_true", help="the runs were cut off: do not expect that every message has arrived"
    )
    parser.add_argument("--around", default=None, metavar="RUN:NODE:N", help="show the events near that one instead")


def main(arguments: Sequence[str] | None = None) -> int:
    """The job as a program of its own."""
    return as_program(APP, EXAMPLES, configure, run, arguments)


def run(args: argparse.Namespace) -> int:
    """Do the job; its exit code. `UsageError` names what cannot be used."""
    return guarded(APP, lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    """Judge, print, write; the exit code. `UsageError` names what cannot be used."""
    from ordercast.pipeline.session import DEFAULT_HEAP, session

    runs = inspect(args.traces)  # before Spark starts: a missing file is no reason to wait for it
    place = _place(args.around, runs) if args.around is not None else None
    if args.out is not None:
        _check_out(args.out)
    rows = sum(one.rows for one in runs)
    with session(APP, args.master, heap=args.heap or DEFAULT_HEAP, rows=rows) as spark:
        if place is not None:
            print("\n".join(around(spark, *place)))
            return HELD
        findings = verify(spark, runs, unfinished=args.unfinished)
        if args.out is not None:
            write(args.out, runs, findings)
    print(
        json.dumps(as_json(runs, findings), indent=2) if args.json else "\n".join(report(args.traces, runs, findings))
    )
    return HELD if findings.held else VIOLATED


def verify(spark: SparkSession, runs: Sequence[TraceRun], *, unfinished: bool = False) -> Findings:
    """Judge all runs with Spark."""
    engine = SparkEngine(spark, runs)
    try:
        return judge(engine, runs, unfinished=unfinished)
    finally:
        engine.close()


def judge(engine: SqlEngine, runs: Sequence[TraceRun], *, unfinished: bool = False) -> Findings:
    """Judge all runs: the checks in the order in which faults cause one another."""
    quiet = [not unfinished and bool(run.info.parameters.get("quiet", True)) for run in runs]
    facts = gather(engine, runs, quiet, [rules_of(run) for run in runs])
    seat_sessions(facts)
    findings = Findings()
    begun = resilience.begin(facts)
    integrity.check(facts, findings)
    order.check(facts, findings)
    views.check(facts, findings)
    resilience.check(facts, findings, begun)
    found = gather_regions(facts)
    if found is not None:
        findings.has_regions = True
        regions.check(facts, findings, found)
    settled = liveness.settle(facts, findings)
    lost = liveness.find_lost(facts, findings, settled)
    promises.check(facts, findings, settled, lost)
    liveness.check(facts, findings, settled, lost)
    return findings


def rules_of(run: TraceRun) -> Rules:
    """The `min_members` of the run's members: one for all, or one for each node, as `run.json` says. It is 1 where
    every part of a partition goes on."""
    given = run.info.parameters
    if run.info.partitions == CONTINUE:
        return 1
    nodes, rules = given.get("nodes"), given.get("rules")
    if isinstance(nodes, list) and isinstance(rules, list) and rules and len(nodes) == len(rules):
        return dict(zip(nodes, rules, strict=True))
    rule = given.get("min_members", "majority")
    return rule if isinstance(rule, (str, int)) and not isinstance(rule, bool) else "majority"


def as_json(runs: Sequence[TraceRun], findings: Findings) -> dict[str, Any]:
    """The verdict for a program."""
    return {
        "properties": {
            name: {"checked": int(findings.checked[name]), "violations": findings.totals[name]}
            for name in findings.judged
        },
        "runs": [run.name for run in runs],
    }


def report(folders: Sequence[Path], runs: Sequence[TraceRun], findings: Findings) -> list[str]:
    """The verdict for people."""
    rows = sum(run.rows for run in runs)
    lines = [f"{'held' if findings.held else 'VIOLATED'}: {rows} rows of {len(runs)} run{'s' * (len(runs) != 1)}"]
    for name in findings.judged:
        total = findings.totals[name]
        state = f"VIOLATED {total} time{'s' * (total != 1)}" if total else "held"
        note = f"; {findings.not_judged[name]}" if name in findings.not_judged else ""
        lines.append(f"  {name}: {state}, {findings.checked[name]} examined{note}")
    found = findings.violations()
    folder_of = {run.name: folder for run, folder in zip(runs, folders, strict=True)}
    for one in found[:SHOWN]:
        lines += ["", f"{one.severity}: {one.property} in run {one.run}, view {one.view or '-'}"]
        lines.append(f"  {one.message or '-'}: {one.detail}")
        if one.n is not None:
            words = ["ordercast", "verify", str(folder_of[one.run]), "--around", f"{one.run}:{one.node}:{one.n}"]
            lines.append(f"  look: {shlex.join(words)}")
    if len(found) > SHOWN:
        lines += ["", f"and {len(found) - SHOWN} more; --out keeps them all"]
    return lines


def write(folder: Path, runs: Sequence[TraceRun], findings: Findings) -> None:
    """The table of violations as Parquet, and the verdict."""
    from ordercast.trace.convert import load_pyarrow

    pa, pq = load_pyarrow()
    found = findings.violations()
    columns = {name: pa.array([getattr(one, name) for one in found], pa.string()) for name in COLUMNS}
    text = json.dumps({"held": findings.held, **as_json(runs, findings)}, indent=2)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / TABLE)
        (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write(folder, error) from error


def around(spark: SparkSession, run: TraceRun, node: str, life: int, n: int) -> list[str]:
    """The events of a node near one of them."""
    near = (
        events_of(spark, [run])
        .where(f"node = '{node}' AND life = {life} AND n BETWEEN {n - NEIGHBOURHOOD} AND {n + NEIGHBOURHOOD}")
        .orderBy("n")
        .toArrow()
        .to_pylist()
    )
    if not near:
        raise UsageError(f"{node}/{life} of run {run.name} has no event near {n}")
    lines = []
    hidden = ("run", "node", "life", "n", "at_ns", "kind")
    names = [name for name in event_schema().fieldNames() if name not in hidden]
    for row in near:
        words = " ".join(f"{name}={_short(row[name])}" for name in names if row[name] is not None)
        mark = ">" if row["n"] == n else " "
        lines.append(f"{mark} {row['n']:>8} {row['at_ns']:>15} {row['kind']:<12} {words}")
    return lines


def _short(value: Any) -> str:
    return f"[{' '.join(value)}]" if isinstance(value, list) else str(value)


def _place(text: str, runs: Sequence[TraceRun]) -> tuple[TraceRun, str, int, int]:
    words = text.rsplit(":", 2)
    node, slash, life = words[1].partition("/") if len(words) == 3 else ("", "", "")
    if len(words) != 3 or not slash or not life.isdigit() or not words[2].isdigit():
        raise UsageError(f"--around takes RUN:NODE/LIFE:N, as a violation names it, not {text!r}")
    run = next((run for run in runs if run.name == words[0]), None)
    if run is None:
        raise UsageError(f"no run {words[0]!r} here; there are {', '.join(run.name for run in runs)}")
    if not any((part.node, part.life) == (node, int(life)) for part in run.parts):
        raise UsageError(f"run {run.name} has no {words[1]}")
    return run, node, int(life), int(words[2])


def _check_out(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; name a folder")


__all__ = ["ROOT", "ViolationRow", "as_json", "configure", "judge", "main", "run", "verify"]
