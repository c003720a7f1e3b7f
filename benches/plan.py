"""What it costs to find the exact regions of very many subscriptions, and to prove them exact.

    python benches/plan.py make DIR [--rows 100000000] [--nodes 1000000] [--groups 10000] [--sets 20000]
    python benches/plan.py run DIR [--master 'local[2]'] [--heap 6g]

`make` writes Parquet with text columns `node` and `group`. Each node has one of so many sets of groups, drawn with a
skew (half of the nodes share the first 2 % of the sets), its rows lie scattered over all files, and one row of 100 is
there twice. `run` does steps (1) to (4) of the planner, everything before merging, and prints wall time, CPU
seconds of Java and of each stage's tasks, and the counts that the proof gives. CPU seconds of tasks depend least on
what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.pipeline.session import session

FILES = 16
TWICE = 100  # one row in so many stands twice
SEED = 7


def make(args: argparse.Namespace) -> None:
    """Column by column, as dictionaries: without a Python object for each row."""
    rng = np.random.default_rng(SEED)
    each = -(-args.rows // args.nodes) + 1  # a few draws of a set meet: the rows that remain are counted by `run`
    few = max(1, args.sets // 50)
    is_common = rng.random(args.nodes) < 0.5
    chosen = np.where(is_common, rng.integers(0, few, args.nodes), rng.integers(0, args.sets, args.nodes))
    sets = rng.integers(0, args.groups, (args.sets, each), dtype=np.int32)
    names = pa.array([f"node-{number:07}" for number in range(args.nodes)])
    groups = pa.array([f"group-{number:05}" for number in range(args.groups)])
    args.folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema(
        [("node", pa.dictionary(pa.int32(), pa.string())), ("group", pa.dictionary(pa.int32(), pa.string()))]
    )
    for number, columns in enumerate(np.array_split(np.arange(each), FILES)):
        with pq.ParquetWriter(args.folder / f"part-{number:02}.parquet", schema, compression="zstd") as file:
            for at in columns:
                order = rng.permutation(args.nodes).astype(np.int32)
                order = np.concatenate([order, order[: args.nodes // TWICE]])
                of_rows = [pa.DictionaryArray.from_arrays(order, names)]
                of_rows.append(pa.DictionaryArray.from_arrays(sets[chosen[order], at], groups))
                file.write_table(pa.Table.from_arrays(of_rows, schema=schema))


def run(args: argparse.Namespace) -> None:
    from ordercast.pipeline.regions.exact import SETTINGS, find_exact
    from ordercast.pipeline.regions.inputs import open_subscriptions, partitions_for

    began = time.monotonic()
    found = open_subscriptions([args.folder])
    with session("bench plan", args.master, heap=args.heap, rows=found.rows_guess, settings=SETTINGS) as spark:
        started = time.monotonic()
        found.check(spark)
        exact = find_exact(found.frame(spark), partitions_for(found.rows_guess))
        pairs = exact.groups.count()
        ended = time.monotonic()
        told: dict[str, Any] = {
            "rows_read": found.rows_guess,
            **exact.proof._asdict(),
            "region_x_group": pairs,
            "session_s": round(started - began, 1),
            "wall_s": round(ended - started, 1),
            "java_cpu_s": round(cpu_of_java(spark), 1),
            "tasks_cpu_s": round(sum(stage["cpu_s"] for stage in stages_of(spark)), 1),
            "stages": [stage for stage in stages_of(spark) if stage["cpu_s"] >= 1],
            "load": os.getloadavg(),
        }
    print(json.dumps(told, indent=2))


def cpu_of_java(spark: Any) -> float:
    """CPU seconds of the driver's Java, which in local mode does all the work; its start is included."""
    words = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def stages_of(spark: Any) -> list[dict[str, Any]]:
    """What Spark says of each stage that ran."""
    context, gateway = spark.sparkContext._jsc.sc(), spark.sparkContext._gateway
    none = gateway.new_array(gateway.jvm.double, 0)
    listed = context.statusStore().stageList(None, False, False, none, gateway.jvm.java.util.ArrayList())
    stages = [listed.apply(place) for place in range(listed.size())]
    return [
        {
            "stage": stage.stageId(),
            "tasks": stage.numCompleteTasks(),
            "cpu_s": round(stage.executorCpuTime() / 1e9, 1),
            "gc_s": round(stage.jvmGcTime() / 1e3, 1),
            "shuffled_mb": stage.shuffleWriteBytes() >> 20,
            "spilled_mb": stage.memoryBytesSpilled() >> 20,
        }
        for stage in sorted(stages, key=lambda one: one.stageId())
        if stage.numCompleteTasks()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making, running = commands.add_parser("make"), commands.add_parser("run")
    for one in (making, running):
        one.add_argument("folder", type=Path)
        one.add_argument("--master", default="local[2]")
        one.add_argument("--heap", default="6g")
    making.add_argument("--rows", type=int, default=100_000_000)
    making.add_argument("--nodes", type=int, default=1_000_000)
    making.add_argument("--groups", type=int, default=10_000)
    making.add_argument("--sets", type=int, default=20_000)
    making.set_defaults(do=make)
    running.set_defaults(do=run)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
