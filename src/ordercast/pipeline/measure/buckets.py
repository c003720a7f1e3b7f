"""The time axis of each run: where it begins, and how wide the buckets of its time series are.

A run has at most `MAX_BUCKETS` buckets, fewer where many runs are measured at once, so that every time series stays
small however long the runs are. Widths are 1, 2 or 5 times a power of ten: a person can do sums with them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

MAX_BUCKETS: Final = 600
FEWEST_BUCKETS: Final = 60  # of each run, if there are many runs
USUAL_NS: Final = 100_000_000  # also the finest step of `tx` and `rx` rows
USUAL_BUCKETS: Final = 100  # a run too short for so many usual ones gets narrower ones
LEAST_NS: Final = 1_000_000

AXIS: Final = "run string not null, began_ns bigint not null, width_ns bigint not null"


class Span(NamedTuple):
    """From a run's first event to its last, and how much it delivered."""

    run: str
    began_ns: int
    ended_ns: int
    deliveries: int  # of messages
    delivery_rows: int
    confirmed: int  # sends that returned with their promise
    events: int
    groups: int = 1  # that messages went to, about
    group_views: int = 0  # rows of views of lightweight groups
    carried: int = 0  # rows of blocks of regions


def group_name() -> Column:
    """The group of a row; the names of its groups if it has several, the underlay's name if it has none."""
    several = F.when(F.size("groups") > 0, F.array_join("groups", "+"))
    return F.coalesce(F.col("group"), several, F.col("underlay"))


def spans(events: DataFrame) -> DataFrame:
    """One row for each run."""
    delivered = F.when(F.col("kind") == "deliver", F.col("count"))
    return events.groupBy("run").agg(
        F.min("at_ns").alias("began_ns"),
        F.max("at_ns").alias("ended_ns"),
        F.coalesce(F.sum(delivered), F.lit(0)).alias("deliveries"),
        F.count_if(F.col("kind") == "deliver").alias("delivery_rows"),
        F.coalesce(F.sum(F.when(F.col("kind") == "confirm", F.col("count"))), F.lit(0)).alias("confirmed"),
        F.count(F.lit(1)).alias("events"),
        F.approx_count_distinct(F.when(F.col("kind").isin("submit", "deliver"), group_name())).alias("groups"),
        F.count_if((F.col("kind") == "view") & F.col("group").isNotNull()).alias("group_views"),
        F.count_if(F.col("kind") == "carry").alias("carried"),
    )


def width_of(span_ns: int, runs: int = 1) -> int:
    """The width of a bucket for a run of that length, among so many runs."""
    most = max(FEWEST_BUCKETS, min(MAX_BUCKETS, 4 * MAX_BUCKETS // max(1, runs)))
    wanted = max(LEAST_NS, -(-span_ns // most))
    if span_ns < USUAL_BUCKETS * USUAL_NS:
        wanted = max(wanted, min(USUAL_NS, span_ns // USUAL_BUCKETS))
    else:
        wanted = max(wanted, USUAL_NS)
    step = LEAST_NS
    while True:
        for factor in (1, 2, 5):
            if factor * step >= wanted:
                return factor * step
        step *= 10


def axis_of(spark: SparkSession, found: list[Span]) -> DataFrame:
    """Beginning and width of each run, as a small table that goes to every worker."""
    rows = [(span.run, span.began_ns, width_of(span.ended_ns - span.began_ns, len(found))) for span in found]
    return F.broadcast(spark.createDataFrame(rows, AXIS))


def with_bucket(frame: DataFrame, axis: DataFrame, at: str = "at_ns") -> DataFrame:
    """`frame` with `bucket`, the number of the bucket that the time falls into."""
    number: Column = F.floor((F.col(at) - F.col("began_ns")) / F.col("width_ns")).cast("int")
    return frame.join(axis, "run").withColumn("bucket", number).drop("began_ns", "width_ns")


def with_time(frame: DataFrame, axis: DataFrame) -> DataFrame:
    """`frame` with `at_s`, where each bucket begins in seconds since the run began, and `width_s`."""
    width_s = F.col("width_ns") / F.lit(1e9)
    return (
        frame.join(axis, "run")
        .withColumn("at_s", F.col("bucket") * width_s)
        .withColumn("width_s", width_s)
        .drop("began_ns", "width_ns")
    )
