"""The job: subscriptions in, a plan out. Also as `ordercast plan`, `python -m ordercast.pipeline.regions` and under
`spark-submit`, which takes the path of `__main__.py` in this folder.

Exit codes: 0 planned, 1 planned, but the budget of moves leaves nodes beyond the limit of waste, 2 the input cannot be
used, 3 the job failed and there is no plan.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.pipeline.failures import as_program, guarded
from ordercast.pipeline.measure.job import make_folder
from ordercast.pipeline.reading import events_of
from ordercast.pipeline.regions.costs import DEFAULT_MOVES, PlanCosts, PlanLimits
from ordercast.pipeline.regions.inputs import (
    TRACE,
    InputTable,
    open_changes,
    open_rates,
    open_subscriptions,
    partitions_for,
)
from ordercast.pipeline.regions.plan import SavedPlan, open_plan, write_plan
from ordercast.pipeline.regions.planning import Planned, PlanWishes, before_of, plan
from ordercast.trace.run import software_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ordercast.pipeline.regions.exact import Exact, Exactness
    from ordercast.pipeline.regions.traces import PacketCounts

HELP: Final = "plan regions of overlap from subscriptions, on Spark: which nodes share a multicast address"
DESCRIPTION: Final = (
    "Reads who subscribes to which group, from Parquet, CSV or traces, and finds regions of overlap: nodes with the "
    "same groups, proved exact. Regions are then merged while that is a gain and nobody receives too much that it did "
    "not want. Writes the plan as Parquet with plan.json, which a membership service loads, and a report with pictures."
)
EXAMPLES: Final = """examples:
  ordercast plan subscriptions.parquet --out ./plan
      then open ./plan/report.html; the columns are node and group
  ordercast plan ./trace --out ./plan
      from a trace: groups that nodes were in, rates that were measured, and the packets that the plan would save
  ordercast plan now.csv --previous ./plan --moves 100 --out ./next
      a plan after a plan, in which at most 100 nodes change their region
  ordercast plan changes.csv --changes --previous ./plan --out ./next
      from joins and leaves alone (columns node, group, change)"""

APP: Final = "ordercast plan"
DONE, BEYOND = 0, 1
LARGE_ROWS: Final = 20_000_000  # from so many subscriptions on Java gets more memory
LARGE_HEAP: Final = "6g"


class PlanResult(NamedTuple):
    """What the job found, for the files and the report."""

    planned: Planned
    proof: Exactness
    packets: dict[str, PacketCounts]
    rates: str  # where rates come from


def _number(text: str) -> float:
    """A number; what it may be depends on the option, and is checked with the others."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, not {text!r}")
    return value


def _whole(text: str) -> int:
    value = _number(text)
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"expected a whole number, not {text!r}")
    return int(value)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    costs, limits = PlanCosts(), PlanLimits()
    parser.description = DESCRIPTION
    parser.add_argument(
        "subscriptions",
        nargs="+",
        type=Path,
        metavar="SUBSCRIPTIONS",
        help="files .parquet or .csv, a folder of them, or folders of traces",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the plan")
    parser.add_argument("--rates", type=Path, metavar="FILE", help="columns group and rate, in messages a second")
    parser.add_argument("--previous", type=Path, metavar="PLAN", help="folder of the plan that is in force")
    parser.add_argument("--changes", action="store_true", help="SUBSCRIPTIONS are joins and leaves since --previous")
    parser.add_argument(
        "--moves",
        type=_number,
        default=DEFAULT_MOVES,
        metavar="N",
        help="nodes that may move; below 1 a share (%(default)s)",
    )
    parser.add_argument("--no-merge", action="store_true", help="exact regions only")
    parser.add_argument("--addresses", type=_whole, default=limits.addresses, help="multicast addresses (%(default)s)")
    parser.add_argument("--size", type=_whole, default=limits.size, help="most nodes of a region (%(default)s)")
    parser.add_argument(
        "--waste", type=_number, default=limits.waste, help="most of what a node receives unwanted (%(default)s)"
    )
    parser.add_argument("--cost-send", type=_number, default=costs.send, help="of a message sent again (%(default)s)")
    parser.add_argument("--cost-recv", type=_number, default=costs.recv, help="of an unwanted message (%(default)s)")
    parser.add_argument("--cost-token", type=_number, default=costs.token, help="of a region, a second (%(default)s)")
    parser.add_argument("--master", default=None, metavar="URL", help="Spark's master (all cores of this machine)")
    parser.add_argument("--heap", default=None, metavar="SIZE", help="memory of the driver, such as 2g")
    parser.add_argument("--json", action="store_true", help="print plan.json instead of a summary")


def main(arguments: Sequence[str] | None = None) -> int:
    """The job as a program of its own."""
    return as_program(APP, EXAMPLES, configure, run, arguments)


def run(args: argparse.Namespace) -> int:
    """Do the job; its exit code. `UsageError` names what cannot be used."""
    return guarded(APP, lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    from ordercast.pipeline.regions.exact import SETTINGS
    from ordercast.pipeline.session import DEFAULT_HEAP, SMALL_ROWS, session

    # Before Spark starts: a missing column is no reason to wait for it.
    wishes = wishes_of(args)
    previous = open_plan(args.previous) if args.previous else None
    if args.changes and previous is None:
        raise UsageError("--changes needs --previous: the plan that they change")
    given = open_changes(args.subscriptions) if args.changes else open_subscriptions(args.subscriptions)
    rates = open_rates(args.rates) if args.rates else None
    make_folder(args.out)
    rows = given.rows_guess
    heap = args.heap or (LARGE_HEAP if rows >= LARGE_ROWS else DEFAULT_HEAP)
    settings = SETTINGS if rows >= SMALL_ROWS else None
    with session(APP, args.master, heap=heap, rows=rows, settings=settings) as spark:
        result = make_plan(spark, given, rates, wishes, previous)
    document = write_result(args.out, result, wishes, [str(path) for path in args.subscriptions], previous)
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        from ordercast.pipeline.regions.page import summary_lines

        print("\n".join([*summary_lines(document), "", f"plan: {args.out}"]))
    return BEYOND if document["result"]["over_limit_nodes"] else DONE


def wishes_of(args: argparse.Namespace) -> PlanWishes:
    """What the flags ask for."""
    if not 0 <= args.moves < float("inf"):
        raise UsageError(f"--moves is {args.moves}; it has to be a number of nodes, or a share of them below 1")
    costs = PlanCosts(args.cost_send, args.cost_recv, args.cost_token)
    return PlanWishes(costs, PlanLimits(args.addresses, args.size, args.waste), args.moves, not args.no_merge)


def make_plan(
    spark: SparkSession,
    given: InputTable,
    rates: InputTable | None,
    wishes: PlanWishes,
    previous: SavedPlan | None = None,
) -> PlanResult:
    """The plan. What is wrong inside of files is a `UsageError`, too."""
    from ordercast.pipeline.regions.changes import change_exact
    from ordercast.pipeline.regions.exact import find_exact

    for table in (given, rates):
        if table is not None:
            table.check(spark)
    frame = given.frame(spark)
    exact: Exact
    if previous is not None and "change" in given.wanted:
        known = spark.read.parquet(str(previous.path("nodes"))).drop("region")
        exact = change_exact(known, spark.read.parquet(str(previous.path("exact_groups"))), frame)
    else:
        exact = find_exact(frame, partitions_for(given.rows_guess))
    if not exact.proof.nodes:
        raise UsageError(f"{given.files[0]}: no node is in any group, so there is nothing to plan")
    rates_by_group, source = _rates(spark, given, rates, previous)
    before = before_of(previous.table("nodes"), previous.table("regions")) if previous else None
    planned = plan(spark, exact.nodes.toArrow(), exact.groups.toArrow(), rates_by_group, wishes, before)
    packets = _packets(spark, given, exact.rows(), planned.tables) if given.kind == TRACE else {}
    exact.forget()
    return PlanResult(planned, exact.proof, packets, source)


def write_result(
    folder: Path, result: PlanResult, wishes: PlanWishes, sources: list[str], previous: SavedPlan | None
) -> dict[str, Any]:
    """The plan and its report; what plan.json says."""
    from ordercast.pipeline.regions.page import write_report

    document = write_plan(folder, result.planned.tables, as_document(result, wishes, sources, previous))
    write_report(folder, document, result.planned)
    return document


def as_document(
    result: PlanResult, wishes: PlanWishes, sources: list[str], previous: SavedPlan | None
) -> dict[str, Any]:
    """What plan.json says, but for the files."""
    planned, proof = result.planned, result.proof
    merged, changes = planned.merged, planned.changes
    regions = planned.tables["regions"]
    several = sum(nodes > 1 for nodes in regions["nodes"].to_pylist())
    given = regions["address"].drop_null().length()
    return {
        "software": software_version(),
        "sources": sources,
        "rates": result.rates,
        "limits": asdict(wishes.limits),
        "costs": asdict(wishes.costs),
        "is_merged": wishes.is_merged,
        "exact": {
            "regions": proof.regions,
            "nodes": proof.nodes,
            "rows_proved": proof.rows,
            "rows_left": proof.left,
            "collided_signatures": proof.collisions,
            "nodes_told_apart": proof.resolved,
        },
        "result": {
            "regions": regions.num_rows,
            "waste": merged.steps[-1][1],
            "worst_waste": max(regions["worst_waste"].to_pylist()),
            "addresses": given,
            "regions_without_address": several - given,
            "over_limit_nodes": merged.over,
            "rounds": len(merged.steps) - 1 + planned.spark_rounds,
        },
        "points": [{"limit": limit, "regions": count, "waste": waste} for limit, count, waste in planned.points],
        "packets": {
            name: {**one._asdict(), "per_message": round(one.per_message, 3)} for name, one in result.packets.items()
        },
        "previous": {
            "hash": previous.document["hash"],
            "budget": planned.budget if wishes.is_merged else None,
            **{key: value for key, value in changes._asdict().items() if key != "flows"},
        }
        if previous is not None and changes is not None
        else None,
    }


def _rates(
    spark: SparkSession, given: InputTable, rates: InputTable | None, previous: SavedPlan | None
) -> tuple[dict[str, float] | None, str]:
    if rates is not None:
        frame, source = rates.frame(spark), str(rates.files[0].name)
    elif given.kind == TRACE:
        from ordercast.pipeline.regions.traces import rates_of

        frame, source = rates_of(events_of(spark, given.runs)), "trace"
    elif previous is not None and previous.document.get("rates") not in (None, "none"):
        known = previous.table("region_groups")
        pairs = zip(known["group"].to_pylist(), known["rate"].to_pylist(), strict=True)
        return dict(pairs), "previous plan"
    else:
        return None, "none"
    found = frame.toArrow()
    names = found["group"].to_pylist()
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(sorted(names)) if at and sorted(names)[at - 1] == name)
        raise UsageError(f"{source}: column group: {twice} has two rates")
    return dict(zip(names, found["rate"].to_pylist(), strict=True)), source


def _packets(
    spark: SparkSession, given: InputTable, rows: DataFrame, tables: dict[str, pa.Table]
) -> dict[str, PacketCounts]:
    """What the messages of the trace would cost in three layouts."""
    from ordercast.pipeline.regions.traces import PacketCounts, lanes_of_groups, lanes_of_one_region, packets_of

    nodes, held = tables["nodes"].select(["node", "region"]), tables["region_groups"].select(["group", "region"])
    planned = tuple(spark.createDataFrame(table).withColumnRenamed("region", "lane") for table in (nodes, held))
    layouts = {
        "one region": lanes_of_one_region(rows),
        "a region for each group": lanes_of_groups(rows),
        "plan": planned,
    }
    events = events_of(spark, given.runs)
    found = {}
    for name, (members, lanes) in layouts.items():
        (row,) = packets_of(events, rows, members, lanes).collect()
        found[name] = PacketCounts(**row.asDict())
    return found
