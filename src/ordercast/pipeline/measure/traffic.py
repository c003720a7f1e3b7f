"""Datagrams by kind, and what their rows tell of the token.

`tx` and `rx` rows say how many datagrams of a kind a node sent and received since its last such row, at most one row
for 100 ms: a time series of them is no finer than that. A multicast is sent once and received by many. On an underlay
of sites a row says which other site its datagrams go to or come from (`hop.data>EAST`): they count as their kind, and
once more for the two sites.

*Token rotation*: a pass of the token is one `token` datagram (or several, where it is sent again). The passes are not
in the trace one by one; a row that stands for `count` of them, and the time since the row before, give the mean
interval between two passes by the same member, which is how long the token takes to come round. When a group rests so
does the token, and the interval across a rest is long: the median says how fast it goes round, the greatest how long it
rested.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ordercast.pipeline.measure.buckets import with_bucket

HOP: Final = r"^hop\.([^>]*)>(.*)$"
"""The detail of datagrams to or from another site: their kind, and the site."""


def datagram_series(events: DataFrame, axis: DataFrame) -> DataFrame:
    """Datagrams of each node in each bucket, by direction (`tx`, `rx`) and kind."""
    rows = events.where(F.col("kind").isin("tx", "rx")).select(
        "run",
        "node",
        F.col("kind").alias("direction"),
        F.regexp_replace(F.coalesce("detail", F.lit("")), HOP, "$1").alias("kind"),
        "at_ns",
        "count",
        "bytes",
    )
    return with_bucket(rows, axis).groupBy("run", "node", "direction", "kind", "bucket").agg(
        F.coalesce(F.sum("count"), F.lit(0)).alias("datagrams"), F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes")
    )  # fmt: skip


def datagram_totals(series: DataFrame, groups: DataFrame) -> DataFrame:
    """Of each run: all sent for each message that was delivered, and all received for each delivery at a member.

    `groups` is what `throughput.group_totals` found.
    """
    over = groups.groupBy("run").agg(F.sum("messages").alias("messages"), F.sum("deliveries").alias("deliveries"))
    base = F.when(F.col("direction") == "tx", F.col("messages")).otherwise(F.col("deliveries"))
    return (
        series.groupBy("run", "direction", "kind")
        .agg(F.sum("datagrams").alias("datagrams"), F.sum("bytes").alias("bytes"))
        .join(over, "run", "left")
        .withColumn("per_message", F.when(base > 0, F.col("datagrams") / base))
        .drop("messages", "deliveries")
    )


def link_totals(events: DataFrame) -> DataFrame:
    """Datagrams of each node to other sites (`tx`) and from them (`rx`), by the other site and kind."""
    return (
        events.where(F.col("kind").isin("tx", "rx") & F.col("detail").rlike(HOP))
        .groupBy(
            "run",
            "node",
            F.col("kind").alias("direction"),
            F.regexp_extract("detail", HOP, 2).alias("site"),
            F.regexp_extract("detail", HOP, 1).alias("kind"),
        )
        .agg(
            F.coalesce(F.sum("count"), F.lit(0)).alias("datagrams"), F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes")
        )
    )


def rotations(events: DataFrame) -> DataFrame:
    """Of each row that tells of passes but a node's first: the mean interval between them, `messages` of it."""
    life = Window.partitionBy("run", "underlay", "node", "life").orderBy("n")
    rows = (
        events.where("kind = 'tx' and detail = 'token' and `count` > 0")
        .select("run", "underlay", "node", "life", "n", "at_ns", F.col("count").alias("messages"))
        .withColumn("since_ns", F.col("at_ns") - F.lag("at_ns").over(life))
    )
    mean = F.floor(F.col("since_ns") / F.col("messages")).alias("rotation_ns")
    return rows.where("since_ns is not null").select("run", "node", "at_ns", "messages", mean)
