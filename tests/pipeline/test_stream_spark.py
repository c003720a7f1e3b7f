"""The source in Spark: found by its name, with triggers and limits, and through kills behind a live recorder."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.archives import hole, value_of, write
from tests.pipeline.processes import driver, member, recorder, until
from tests.pipeline.stream_driver import copy

from ordercast.archive.reader import Archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def test_spark_finds_the_format_by_its_name_and_reads_a_table(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a", range(200), segment_bytes=4_096)
    frame = spark.read.format("ordercast").option("minPartitions", "3").load(str(tmp_path / "a"))
    assert frame.dtypes == [
        ("group", "string"),
        ("position", "bigint"),
        ("view", "string"),
        ("sender", "string"),
        ("number", "bigint"),
        ("service", "string"),
        ("timestamp", "timestamp"),
        ("type", "smallint"),
        ("value", "binary"),
    ]
    rows = frame.selectExpr("position", "value", "year(timestamp) AS year").orderBy("position").collect()
    assert [(row.position, bytes(row.value), row.year) for row in rows] == [(n, value_of(n), 2025) for n in range(200)]
    some = spark.read.format("ordercast").options(startingOffsets="10", endingOffsets='{"prices": 13}')
    assert sorted(row.position for row in some.load(str(tmp_path / "a")).collect()) == [10, 11, 12]


def test_available_now_reads_all_in_batches_of_the_limit(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a", range(100))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    assert batches(spark, tmp_path, **options) == [30, 30, 30, 10]
    write(tmp_path / "a", range(100, 120))
    assert batches(spark, tmp_path, **options) == [20]  # the same checkpoint: on from there


def test_what_is_wrong_is_said_by_the_query(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException, StreamingQueryException

    with pytest.raises(AnalysisException, match="unknown option startoffsets; there are path, group, startingOffsets"):
        spark.read.format("ordercast").option("startOffsets", "0").load(str(tmp_path / "a")).count()
    with pytest.raises(AnalysisException, match="there is no folder"):
        spark.read.format("ordercast").load(str(tmp_path / "a")).count()
    write(tmp_path / "a", range(10))
    hole(tmp_path / "a", 20)
    write(tmp_path / "a", range(20, 30))
    with pytest.raises(StreamingQueryException, match="positions 10 to 19 are not in the archive"):
        batches(spark, tmp_path, startingOffsets="earliest")
    assert batches(spark, tmp_path, startingOffsets="earliest", failOnDataLoss="false") == [20]


def test_the_program_of_the_guide_runs(spark: SparkSession, tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "streams.md"
    (program,) = re.findall(r"```py\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, str(guide), "exec"), names)
    write(tmp_path / "a", range(10), values=lambda position: b"alarm" if position == 3 else b"all is well")
    frame = names["alarms"](names["prices"](spark, str(tmp_path / "a")))
    assert frame.columns == ["value"]
    writer = frame.writeStream.format("memory").queryName("guide")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [row.value for row in spark.table("guide").collect()] == ["alarm"]


def test_a_query_that_is_killed_three_times_reads_every_message_of_a_live_group_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two members send, one records; the driver is killed once, the query two times, each in the middle of a batch."""
    archive, output, checkpoint = tmp_path / "archive", tmp_path / "output", tmp_path / "checkpoint"
    paths = (str(archive), str(output), str(checkpoint))
    group, count = f"live-{os.getpid()}", 1_500  # fifteen batches at least
    with recorder(group, archive) as recording:
        until(lambda: list(archive.glob("segment-*")) or not recording.is_alive, "the recorder joins")
        with (
            member("ann", group, "send", "0", str(count), "150") as ann,
            member("bob", group, "send", "0", str(count), "150") as bob,
        ):
            until(lambda: end_of(archive) > 100, "members send")
            with driver(*paths) as killed:
                until(lambda: is_in_a_batch(checkpoint, 2) or not killed.is_alive, "the driver has read two batches")
                assert killed.is_alive
            for _ in range(2):
                done = len(numbers(checkpoint / "commits"))
                query: StreamingQuery = copy(spark, *paths)
                until(partial(is_in_a_batch, checkpoint, done + 1), "the query has read one batch more")
                query.stop()
            until(lambda: not ann.is_alive and not bob.is_alive, "all is sent")
        until(lambda: messages_in(archive) == 2 * count, "all is recorded")
        copy(spark, *paths, availableNow=True).awaitTermination()
        recording.interrupt()
    rows = spark.read.parquet(str(output)).orderBy("position").collect()
    expected = list(Archive(archive).records())
    assert [(row.position, row.sender, bytes(row.value)) for row in rows] == [
        (record.position, record.sender, record.value) for record in expected
    ]
    for name in ("ann", "bob"):
        mine = [bytes(row.value).decode() for row in rows if row.sender.startswith(name)]
        assert mine == [f"{name} {number}" for number in range(count)]


def batches(spark: SparkSession, folder: Path, **options: str) -> list[int]:
    """Rows of each batch of a query over what there is now."""
    frame = spark.readStream.format("ordercast").options(**options).load(str(folder / "a"))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


def is_in_a_batch(checkpoint: Path, done: int) -> bool:
    """Whether so many batches are done, and another one has begun."""
    begun, committed = numbers(checkpoint / "offsets"), numbers(checkpoint / "commits")
    return len(committed) >= done and len(begun) > len(committed)


def end_of(folder: Path) -> int:
    bounds = Archive(folder).bounds()
    return bounds[1] if bounds else 0


def messages_in(folder: Path) -> int:
    return sum(len(frame) for frame in Archive(folder).frames())
