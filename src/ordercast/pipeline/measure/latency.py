"""How long messages take, by service.

- `send`: from the submit to the delivery, at every member, the sender included.
- `reception`: from the moment a member holds a message (`hold`) to its delivery, at every member but the sender. It has
  two parts, as in section 2.3 of the TOMPA paper: `t1` until the message's final place is known (`placed`), `t2` from
  then to the delivery. A place that is known before the message arrives counts from the arrival. A message that is
  delivered before it has a place has no `t2`.

`send` compares clocks of two nodes. If a run's clock is `many`, only deliveries at the sender count for it.

Rows of one message at different nodes mostly have the same numbers, because a block is one row everywhere. Then they
are joined by sender, first number and count, in one aggregation and one join. docs/trace.md does not promise that. So
`messages`, which counts them, also says how many do not fit. If there are any, the job goes on with `aligned` rows,
which are cut wherever another row of the same sender begins or ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ordercast.pipeline.measure.buckets import group_name

KINDS: Final = ("submit", "hold", "placed", "deliver")
STAGES: Final = ("send_ns", "reception_ns", "t1_ns", "t2_ns")
CHUNK: Final = 256  # numbers of one sender whose cuts are looked up together

_SENDER: Final = ("run", "underlay", "sender")


def ranged(events: DataFrame) -> DataFrame:
    """The rows that say something of messages, with what is needed of them; `sender` is never null."""
    sender = F.coalesce(F.col("sender"), F.concat_ws("/", F.col("node"), F.col("life").cast("string")))
    return (
        events.where(F.col("kind").isin(*KINDS) & F.col("first").isNotNull() & (F.col("count") > 0))
        .withColumn("group", group_name())
        .select(
            "run",
            "underlay",
            sender.alias("sender"),
            "first",
            F.col("count").cast("bigint").alias("count"),
            "kind",
            "node",
            "life",
            "at_ns",
            "group",
            "service",
            "bytes",
        )
    )


def messages(rows: DataFrame) -> DataFrame:
    """Of each group, what anybody delivered: each message once. Where `misfits` is not 0 the rows are not aligned.

    Submits and deliveries name the group of their messages. The `hold` of a block of several groups does not.
    """
    delivered = F.when(F.col("kind") == "deliver", F.col("count"))
    named = F.max(F.when(F.col("kind").isin("submit", "deliver"), F.col("group")))
    once = rows.groupBy(*_SENDER, "first").agg(
        F.coalesce(named, F.max("group")).alias("group"),
        F.max(delivered).alias("messages"),
        F.max(F.when(F.col("kind") == "deliver", F.col("bytes"))).alias("bytes"),
        F.max(F.col("kind") == "submit").alias("is_submitted"),
        F.min("count").alias("least"),
        F.max("count").alias("most"),
    )
    fits = (F.col("least") == F.col("most")) & (F.col("is_submitted") | F.col("messages").isNull())
    return once.groupBy("run", "group").agg(
        F.coalesce(F.sum("messages"), F.lit(0)).alias("messages"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        F.count_if(~fits).alias("misfits"),
    )


def aligned(rows: DataFrame) -> DataFrame:
    """The same messages in rows that are equal or apart: cut where any row of their sender begins or ends."""
    stop = F.col("first") + F.col("count")
    chunk = F.floor(F.col("cut") / F.lit(CHUNK))
    cuts = (
        rows.select(*_SENDER, F.explode(F.array(F.col("first"), stop)).alias("cut"))
        .withColumn("chunk", chunk)
        .groupBy(*_SENDER, "chunk")
        .agg(F.sort_array(F.collect_set("cut")).alias("cuts"))
    )
    chunks = F.sequence(F.floor(F.col("first") / F.lit(CHUNK)), F.floor((stop - 1) / F.lit(CHUNK)))
    spread = rows.withColumn("chunk", F.explode(chunks)).join(cuts, [*_SENDER, "chunk"], "left")
    low = F.greatest(F.col("first"), F.col("chunk") * CHUNK)
    high = F.least(stop, (F.col("chunk") + 1) * CHUNK)
    inside = spread.withColumns({"low": low, "high": high}).withColumn(
        "cuts", F.filter(F.coalesce("cuts", F.array()), lambda cut: (cut > F.col("low")) & (cut < F.col("high")))
    )
    ends = F.concat(F.col("cuts"), F.array("high"))
    begins = F.concat(F.array("low"), F.col("cuts"))
    pieces = inside.withColumn("piece", F.explode(F.arrays_zip(begins.alias("low"), ends.alias("high"))))
    length = F.col("piece.high") - F.col("piece.low")
    return pieces.withColumn("bytes", (F.col("bytes") * length / F.col("count")).cast("bigint")).select(
        *(
            F.col("piece.low").alias("first")
            if name == "first"
            else length.alias("count")
            if name == "count"
            else F.col(name)
            for name in rows.columns
        )
    )


def delays(rows: DataFrame, far_clocks: Sequence[str] = ()) -> DataFrame:
    """One row for each range of messages that a member delivered: its delays, null where the trace has none.

    `far_clocks` are the runs whose nodes have clocks that cannot be compared.
    """
    message = [*_SENDER, "first", "count"]
    at_member = (
        rows.where("kind != 'submit'")
        .groupBy(*message, "node", "life")
        .agg(
            _earliest("hold").alias("held_ns"),
            _earliest("placed").alias("placed_ns"),
            _earliest("deliver").alias("at_ns"),
            F.max(F.when(F.col("kind") == "deliver", F.col("group"))).alias("group"),
            F.max(F.when(F.col("kind") == "deliver", F.col("service"))).alias("service"),
        )
        .where("at_ns is not null")
    )
    sent = rows.where("kind = 'submit'").groupBy(*message).agg(F.min("at_ns").alias("sent_ns"))
    is_own = F.col("sender") == F.concat_ws("/", F.col("node"), F.col("life").cast("string"))
    is_comparable = is_own | ~F.col("run").isin(*far_clocks) if far_clocks else F.lit(True)
    known = F.least(F.greatest(F.coalesce("placed_ns", "at_ns"), F.col("held_ns")), F.col("at_ns"))
    foreign = at_member.join(sent, message, "left").withColumns({"is_own": is_own, "known_ns": known})

    def elsewhere(delay: Column) -> Column:
        return F.when(~F.col("is_own") & F.col("held_ns").isNotNull(), delay)

    return foreign.select(
        "run",
        "group",
        "service",
        "at_ns",
        F.col("count").alias("messages"),
        F.when(is_comparable, F.col("at_ns") - F.col("sent_ns")).alias("send_ns"),
        elsewhere(F.col("at_ns") - F.col("held_ns")).alias("reception_ns"),
        elsewhere(F.col("known_ns") - F.col("held_ns")).alias("t1_ns"),
        elsewhere(F.col("at_ns") - F.col("known_ns")).alias("t2_ns"),
    )


def _earliest(kind: str) -> Column:
    """A hold is written again when a block is submitted again in another view: the first counts."""
    return F.min(F.when(F.col("kind") == kind, F.col("at_ns")))
