"""Views, failures and repairs: when they came, and how long they took.

A *view change* at a member lasts from its last delivery before the change to its first in the view. Where the change
was a failure, deliveries after the `transitional` signal belong to the recovery, and do not count as before. In a group
that is idle at that time the wait for the next message is part of it. `recovery` is the part from `transitional` on.

A *repair* lasts from `gap` to the `repaired` of the same number.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

MOST_OF_A_GAP: Final = 10_000  # numbers of one row that are looked at: more at once is no loss, but a mistake

IS_UNDERLAYS: Final = "(`group` is null or `group` = underlay)"  # a row that is about no lightweight group

_LIFE: Final = ("run", "underlay", "node", "life")


def view_changes(events: DataFrame) -> DataFrame:
    """One row for each view of an underlay at each member, in its order `n`."""
    views = events.where("kind = 'view' and `group` is null").select(
        *_LIFE, "n", "at_ns", "view", F.col("detail").alias("reason"), F.size("members").alias("members")
    )
    signals = (
        events.where(f"kind = 'transitional' and {IS_UNDERLAYS}")
        .groupBy(*_LIFE, "view")
        .agg(F.min("n").alias("signal_n"), F.min("at_ns").alias("transitional_ns"))
    )
    # Deliveries name their view, so that they need no sorting: one aggregation, and a window over views alone.
    delivered = (
        events.where("kind = 'deliver'")
        .select(*_LIFE, "view", "n", "at_ns", "count")
        .join(F.broadcast(signals), [*_LIFE, "view"], "left")
        .groupBy(*_LIFE, "view")
        .agg(
            F.min("at_ns").alias("first_ns"),
            F.max(F.when(F.col("signal_n").isNull() | (F.col("n") < F.col("signal_n")), F.col("at_ns"))).alias(
                "last_ns"
            ),
            F.sum("count").alias("delivered"),
        )
    )
    ended = signals.select(*_LIFE, "view", F.col("transitional_ns").alias("signal_ns"))
    order = Window.partitionBy(*_LIFE).orderBy("n")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    after = order.rowsBetween(0, Window.unboundedFollowing)
    joined = views.join(delivered, [*_LIFE, "view"], "left").join(ended, [*_LIFE, "view"], "left")
    found = joined.select(
        *_LIFE,
        "n",
        "at_ns",
        "view",
        "reason",
        "members",
        F.coalesce("delivered", F.lit(0)).alias("delivered"),
        F.last("last_ns", ignorenulls=True).over(before).alias("before_ns"),
        F.lag("signal_ns").over(order).alias("signal_ns"),
        F.first("first_ns", ignorenulls=True).over(after).alias("after_ns"),
    )
    return found.select(
        *_LIFE,
        "n",
        "at_ns",
        "view",
        "reason",
        "members",
        "delivered",
        (F.col("after_ns") - F.col("before_ns")).alias("change_ns"),
        (F.col("after_ns") - F.col("signal_ns")).alias("recovery_ns"),
    )


def view_totals(changes: DataFrame) -> DataFrame:
    """Of each run and reason: how many views, and how long the change took at members."""
    return changes.groupBy("run", "reason").agg(
        F.countDistinct("underlay", "view").alias("views"),
        F.count("change_ns").alias("measured"),
        F.min("change_ns").alias("min_ns"),
        F.expr("percentile(change_ns, 0.5)").cast("bigint").alias("p50_ns"),
        F.max("change_ns").alias("max_ns"),
        F.max("recovery_ns").alias("max_recovery_ns"),
    )


def repairs(events: DataFrame) -> DataFrame:
    """One row for each gap: `repair_ns` until it was repaired; `open_ns`, a 0, if it never was."""
    last = F.least(F.col("count"), F.lit(MOST_OF_A_GAP)) - 1
    is_gap = F.col("kind").isin("gap", "repaired") & F.col("first").isNotNull() & (F.col("count") > 0)
    rows = events.where(is_gap).select(
        *_LIFE,
        "n",
        "at_ns",
        "kind",
        F.col("group"),
        F.col("sender"),
        F.col("detail"),
        F.explode(F.sequence(F.col("first"), F.col("first") + last)).alias("number"),
    )
    same = Window.partitionBy(*_LIFE, "group", "sender", "detail", "number").orderBy("n")
    paired = rows.withColumns({"next": F.lead("kind").over(same), "next_ns": F.lead("at_ns").over(same)})
    took = F.when(F.col("next") == "repaired", F.col("next_ns") - F.col("at_ns"))
    is_open = F.when(took.isNull(), F.lit(0).cast("bigint"))
    return paired.where("kind = 'gap'").select(
        "run", "node", "at_ns", F.lit(1).alias("messages"), took.alias("repair_ns"), is_open.alias("open_ns")
    )


def marks(events: DataFrame) -> DataFrame:
    """Marks for curves: crashes, joins and leaves of underlays. Those of lightweight groups are too many to mark."""
    is_mark = F.col("kind").isin("start", "stop", "crash", "join", "leave", "transitional")
    return events.where(is_mark & F.expr(IS_UNDERLAYS)).select("run", "node", "life", "n", "at_ns", "kind", "underlay")
