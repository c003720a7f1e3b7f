"""Messages and bytes per second, of each member and of each group.

A row of a trace stands for `count` messages, and counts so. A member's rate is what it delivered over the time from its
first delivery to its last; a group's is what anybody delivered, each message once, over the time from the group's first
submit to its last delivery.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ordercast.pipeline.measure.buckets import group_name, with_bucket


def throughput_series(events: DataFrame, axis: DataFrame) -> DataFrame:
    """What each member sent and delivered in each bucket, by group."""
    rows = events.where(F.col("kind").isin("submit", "deliver")).withColumn("group", group_name())
    is_sent = F.col("kind") == "submit"
    sums = [
        F.coalesce(F.sum(F.when(chosen, F.col(column))), F.lit(0)).alias(name)
        for name, chosen, column in (
            ("sent", is_sent, "count"),
            ("sent_bytes", is_sent, "bytes"),
            ("delivered", ~is_sent, "count"),
            ("delivered_bytes", ~is_sent, "bytes"),
        )
    ]
    return with_bucket(rows, axis).groupBy("run", "group", "node", "bucket").agg(
        *sums,
        F.min(F.when(is_sent, F.col("at_ns"))).alias("first_sent_ns"),
        F.min(F.when(~is_sent, F.col("at_ns"))).alias("first_delivered_ns"),
        F.max(F.when(~is_sent, F.col("at_ns"))).alias("last_delivered_ns"),
    )  # fmt: skip


def member_totals(series: DataFrame) -> DataFrame:
    """Of each member in each group, over the whole run."""
    found = series.groupBy("run", "group", "node").agg(
        F.sum("sent").alias("sent"),
        F.sum("sent_bytes").alias("sent_bytes"),
        F.sum("delivered").alias("delivered"),
        F.sum("delivered_bytes").alias("delivered_bytes"),
        F.min("first_delivered_ns").alias("first_ns"),
        F.max("last_delivered_ns").alias("last_ns"),
    )
    return _with_rates(found, "delivered", "delivered_bytes").drop("first_ns", "last_ns")


def group_totals(series: DataFrame, delivered: DataFrame) -> DataFrame:
    """Of each group, over the whole run; `delivered` is what `latency.messages` found."""
    found = series.groupBy("run", "group").agg(
        F.countDistinct(F.when(F.col("delivered") > 0, F.col("node"))).alias("members"),
        F.sum("sent").alias("sent"),
        F.sum("delivered").alias("deliveries"),
        F.least(F.min("first_sent_ns"), F.min("first_delivered_ns")).alias("first_ns"),
        F.max("last_delivered_ns").alias("last_ns"),
    )
    joined = found.join(delivered, ["run", "group"], "left").fillna(0, ["messages", "bytes"])
    return _with_rates(joined, "messages", "bytes").drop("first_ns", "last_ns")


def _with_rates(frame: DataFrame, count: str, size: str) -> DataFrame:
    """One delivery alone has no rate: null."""
    seconds = (F.col("last_ns") - F.col("first_ns")) / F.lit(1e9)
    return (
        frame.withColumn("seconds", F.coalesce(seconds, F.lit(0.0)))
        .withColumn("messages_per_s", F.when(F.col("seconds") > 0, F.col(count) / F.col("seconds")))
        .withColumn("bytes_per_s", F.when(F.col("seconds") > 0, F.col(size) / F.col("seconds")))
    )
