"""Which groups have figures of their own, where a trace has very many.

A shared underlay may carry a hundred thousand groups. A row for each of them, member and bucket would be more than the
trace itself. So of each run the groups with the most deliveries keep their names, `MOST_GROUPS` of them, and all others
are one: `(99,970 other groups)`. Sums over groups are those of the whole run either way.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ordercast.pipeline.measure.buckets import group_name
from ordercast.pipeline.measure.changes import IS_UNDERLAYS

MOST_GROUPS: Final = 30


def busiest(events: DataFrame, most: int = MOST_GROUPS) -> DataFrame:
    """The groups of each run that keep their names, and `others`, the name of the rest; small."""
    counts = (
        events.where(F.col("kind").isin("submit", "deliver"))
        .groupBy("run", group_name().alias("group"))
        .agg(F.sum(F.when(F.col("kind") == "deliver", F.col("count")).otherwise(0)).alias("deliveries"))
    )
    run = Window.partitionBy("run")
    place = F.row_number().over(run.orderBy(F.col("deliveries").desc(), "group"))
    ranked = counts.withColumns({"place": place, "all": F.count("*").over(run)})
    rest = F.format_number(F.col("all") - most, 0)
    return ranked.where(F.col("place") <= most).select(
        "run", "group", F.when(F.col("all") > most, F.concat(F.lit("("), rest, F.lit(" other groups)"))).alias("others")
    )


def is_rest(group: str | None) -> bool:
    """Whether this stands for the groups that have no figures of their own."""
    return group is not None and group.startswith("(") and group.endswith(" other groups)")


def folded(events: DataFrame, kept: DataFrame) -> DataFrame:
    """The rows with their own group, or with the name of the rest; `kept` is what `busiest` found."""
    named = F.broadcast(kept.select("run", F.col("group").alias("target"), F.lit(True).alias("is_kept")))
    rest = F.broadcast(kept.groupBy("run").agg(F.max("others").alias("others")))
    own_name = F.when(F.col("is_kept") | F.col("others").isNull(), F.col("target")).otherwise(F.col("others"))
    return (
        events.withColumn("target", group_name())
        .join(named, ["run", "target"], "left")
        .join(rest, "run", "left")
        .withColumn("group", own_name)
        .withColumn("groups", F.lit(None).cast("array<string>"))
        .select(*events.columns)
    )


def view_totals(events: DataFrame) -> DataFrame:
    """Views of lightweight groups by run and reason: how many, of how many groups, and how often installed."""
    return (
        events.where(f"kind = 'view' and not {IS_UNDERLAYS}")
        .groupBy("run", F.col("detail").alias("reason"))
        .agg(
            F.countDistinct("underlay", "group", "view").alias("views"),
            F.countDistinct("underlay", "group").alias("groups"),
            F.count("*").alias("installed"),
        )
    )
