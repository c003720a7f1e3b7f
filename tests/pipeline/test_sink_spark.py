"""The sink in Spark: members of a live group see each micro-batch once and in order, whatever dies in a commit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from tests.pipeline.archives import value_of, write
from tests.pipeline.processes import Process, member, until

from ordercast.api.transactions import BEGIN_TYPE, ROW_TYPE, Mark
from ordercast.pipeline.stream import publisher, register
from ordercast.pipeline.stream.datasource import OrdercastDataSource
from ordercast.pipeline.stream.options import sink_options
from ordercast.pipeline.stream.sink import StreamSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GROUP = f"sink-{os.getpid()}"
BATCHES, PER_BATCH = 4, 40
_names = count()


@pytest.fixture(scope="module")
def members() -> Iterator[list[Process]]:
    """Two members of the group, for all tests here."""
    with member("ann", GROUP, "follow") as ann, member("bob", GROUP, "follow") as bob:
        until(lambda: {"members": 2} in ann.lines and {"members": 2} in bob.lines, "two members meet")
        yield [ann, bob]


def batches_at(process: Process, query: str) -> list[tuple[int, list[str], list[int]]]:
    """What a member was handed over of one query, in its order."""
    return [(line["batch"], line["rows"], line["types"]) for line in process.lines if line.get("query") == query]


# Sinks that die. They are sent to Spark's processes as they are: those do not know this file. -------------------------


class DyingSource(OrdercastDataSource):
    """The same format, but the process that commits batch 2 is killed, at the moment that the option `die` names."""

    @classmethod
    def name(cls) -> str:
        return "ordercast_dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        given = dict(self.options)
        moment = given.pop("die")
        return DyingSink(sink_options(given), moment)


class DyingSink(StreamSink):
    def __init__(self, options: Any, moment: str) -> None:
        super().__init__(options)
        self.moment = moment

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId == 2:
            whole = publisher.publish_chunks  # type: ignore[attr-defined]

            async def half(group: Any, query: str, batch: int, chunks: Any, rows: int, nbytes: int, **how: Any) -> int:
                service = how["service"]
                mark = Mark(query, batch, os.urandom(16), rows, nbytes)
                await group.send(mark.pack(), service, BEGIN_TYPE)
                for payloads, type_ in chunks:
                    await group.send_many(payloads, service, ROW_TYPE + type_)
                    break
                await group.flush()  # every member has some of the rows by now
                os.kill(os.getpid(), signal.SIGKILL)
                return -1

            async def all_but_the_word(*arguments: Any, **how: Any) -> int:
                await whole(*arguments, **how)  # members hand it over, and Spark never learns
                os.kill(os.getpid(), signal.SIGKILL)
                return -1

            dying = half if self.moment == "half" else all_but_the_word
            publisher.publish_chunks = dying  # type: ignore[attr-defined]
        super().commit(messages, batchId)


# The tests. ----------------------------------------------------------------------------------------------------------


def test_rows_come_once_and_in_order_though_commits_are_killed_and_partitions_change(
    spark: SparkSession, members: list[Process], tmp_path: Path
) -> None:
    """Killed with half of the rows sent; restarted with other partitions, and killed behind the COMMIT; restarted."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(DyingSource)
    write(tmp_path / "a", range(BATCHES * PER_BATCH))

    def start(format_: str, partitions: int, **options: str) -> StreamingQuery:
        frame = (
            spark.readStream.format("ordercast")
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=str(PER_BATCH), minPartitions=str(partitions))
            .load(str(tmp_path / "a"))
        )
        writer = frame.select("value").writeStream.format(format_).options(group=GROUP, **options)
        return writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()

    first = start("ordercast_dying", 3, die="half")
    with pytest.raises(StreamingQueryException):
        first.awaitTermination()
    query = str(first.id)
    assert [batch for batch, _, _ in batches_at(members[0], query)] == [0, 1]
    second = start("ordercast_dying", 2, die="at the end")
    with pytest.raises(StreamingQueryException):
        second.awaitTermination()
    assert str(second.id) == query
    third = start("ordercast", 5)
    third.awaitTermination()
    assert third.recentProgress[0]["batchId"] == 2

    def has_all(member: Process) -> bool:
        return len(batches_at(member, query)) == BATCHES

    for each in members:
        until(partial(has_all, each), f"all batches come ({each.lines[-3:]})")
        found = batches_at(each, query)
        assert [batch for batch, _, _ in found] == list(range(BATCHES))
        assert [row for _, rows, _ in found for row in rows] == [
            value_of(position).decode() for position in range(BATCHES * PER_BATCH)
        ]
        assert not [line for line in each.lines if "stray" in line or "missed" in line]
    staged = tmp_path / "c" / "ordercast-staging"
    assert [path for path in staged.rglob("*") if path.is_file()] == []


def test_texts_with_types_and_a_whole_table_are_published(
    spark: SparkSession, members: list[Process], tmp_path: Path
) -> None:
    register(spark)
    rows = [("one", 1), ("two", 1), ("three", 9), ("vier", None)]
    frame = spark.createDataFrame(rows, "value STRING, type INT").coalesce(1)
    # As the guide has it: the group is the only option that has no default.
    staging = sink_options({"group": GROUP}).staging
    before = set(staging.glob("write-*"))
    frame.write.format("ordercast").option("group", GROUP).mode("append").save()
    assert set(staging.glob("write-*")) <= before, "nothing is left in the temporary folder"
    empty = spark.createDataFrame([], "value STRING")
    empty.write.format("ordercast").options(group=GROUP, stagingLocation=str(tmp_path)).mode("append").save()
    for each in members:
        until(partial(written, each), "the table comes")
        assert [(line["batch"], line["rows"], line["types"]) for line in written(each)] == [
            (0, ["one", "two", "three", "vier"], [1, 1, 9, 0])
        ]


def written(process: Process) -> list[dict[str, Any]]:
    return [line for line in process.lines if line.get("query", "").startswith("write-")]


@pytest.mark.parametrize(
    ("columns", "mode", "options", "complaint"),
    [
        ("'a' AS text", "append", {}, "the column value is what is published"),
        ("'a' AS value, 1 AS position", "append", {}, "the column position cannot be published"),
        ("1 AS value", "append", {}, "the column value is STRING or BINARY, not int"),
        ("'a' AS value", "overwrite", {}, "cannot be taken back"),
        ("'a' AS value", "append", {"service": "AGREED"}, "SAFE, MAJORITY or RESILIENT"),
        ("'a' AS value", "append", {"grup": "x"}, "unknown option grup"),
        ("CAST(NULL AS STRING) AS value", "append", {}, "a row has the value NULL"),
        ("'a' AS value, -1 AS type", "append", {}, "the types of rows lie between 0 and 16383"),
        ("'a' AS value", "append", {"group": "nobody-is-here"}, "A group needs members"),
    ],
)
def test_what_cannot_be_published_is_said(
    spark: SparkSession, tmp_path: Path, columns: str, mode: str, options: dict[str, str], complaint: str
) -> None:
    from pyspark.errors import PySparkException

    frame = spark.sql(f"SELECT {columns}")
    writer = frame.write.format("ordercast").mode(mode)
    options = {"group": GROUP, "stagingLocation": str(tmp_path), **options}
    with pytest.raises((AnalysisException, PySparkException), match=complaint):
        writer.options(**options).save()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
