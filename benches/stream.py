"""How fast Spark reads an archive: `spark.read` and `spark.readStream` of the format "ordercast", once warm.

    python benches/stream.py [--rows 5000000] [--size 100] [--master local[2]] [--repeat 5] [--folder DIR] [--json]

Writes an archive of so many messages, reads all columns of it into Spark's sink "noop" several times, and says rows per
second, and the CPU time of Spark's Java and its Python workers: on a machine that does other things as well, that is
what tells. The goal is 1 million rows a second. `--folder` keeps the archive for another time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any

from ordercast.archive.builder import FrameBuilder
from ordercast.archive.log import ArchiveLog, LogConfig
from ordercast.archive.reader import Archive
from ordercast.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL = 1_000_000
FRAME = 16_384  # messages of one frame, as a recorder writes them under load
TICKS = os.sysconf("SC_CLK_TCK")


def build(folder: Path, rows: int, size: int) -> None:
    """An archive as a recorder would write it, of one sender."""
    log = ArchiveLog.open(folder, "bench", LogConfig(fsync="never"))
    log.start(0)
    builder = FrameBuilder()
    for at in range(0, rows, FRAME):
        count = min(FRAME, rows - at)
        values = b"".join(b"%0*d" % (size, number) for number in range(at, at + count))
        view, sender = "1754000000000@ann/1754000000000000000", "ann/1754000000000000000"
        builder.add(at, view, sender, at, "AGREED", time_ns(), 0, [size] * count, values)
        log.append(builder.seal(at))
    log.close()


def read_table(spark: SparkSession, folder: Path) -> None:
    spark.read.format("ordercast").load(str(folder)).write.format("noop").mode("overwrite").save()


def read_stream(spark: SparkSession, folder: Path) -> None:
    frame = spark.readStream.format("ordercast").option("startingOffsets", "earliest").load(str(folder))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def cpu_seconds() -> float:
    """Of all processes that descend from this one: Spark's Java, its Python workers."""
    children: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(words[1]), []).append(int(entry.name))
            times[int(entry.name)] = sum(map(int, words[11:15])) / TICKS  # those that have ended, too
    found, waiting = 0.0, list(children.get(os.getpid(), ()))
    while waiting:
        process = waiting.pop()
        found += times.get(process, 0.0)
        waiting += children.get(process, ())
    return found


def measure(spark: SparkSession, folder: Path, rows: int, repeat: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, read in (("read", read_table), ("readStream", read_stream)):
        runs = []
        for _ in range(repeat + 2):  # the first two warm Java up
            start, cpu = perf_counter(), cpu_seconds()
            read(spark, folder)
            runs.append((perf_counter() - start, cpu_seconds() - cpu))
        walls = [rows / wall for wall, _ in runs[2:]]
        result[name] = {
            "rows_per_s": round(statistics.median(walls)),
            "best_rows_per_s": round(max(walls)),
            "cpu_us_per_row": round(1e6 * statistics.median(cpu for _, cpu in runs[2:]) / rows, 3),
        }
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="use this archive, or make it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ordercast-bench-"))
    try:
        if not any(folder.glob("segment-*.ocl")):
            build(folder, options.rows, options.size)
        rows = sum(len(frame) for frame in Archive(folder).frames(verify=False))
        with session("bench", options.master) as spark:
            result = measure(spark, folder, rows, options.repeat)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    result |= {"rows": rows, "size": options.size, "load": os.getloadavg()[0], "cores": os.cpu_count()}
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{rows} rows of {options.size} bytes, {options.master}, {os.cpu_count()} cores, load {result['load']:.1f}")
    for name in ("read", "readStream"):
        found = result[name]
        verdict = "reached" if found["rows_per_s"] >= GOAL else "missed"
        print(
            f"{name:>10}: {found['rows_per_s']:>9} rows/s (median), {found['best_rows_per_s']:>9} (best), "
            f"{found['cpu_us_per_row']:.2f} us of CPU a row; goal of {GOAL}: {verdict}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
