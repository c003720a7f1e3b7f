"""What regions cost: waste, control traffic, tokens and repairs (QSM sections 2.3 and 3; docs/trace.md, "Regions").

*Waste* is what a node received and did not want. The sender says what its blocks carried (`carry`), and everybody in
the view receives all of it; what a node delivers is what it wants. So of each node and region: received is what others
carried in the views that it installed, less what was lost; wasted is what of that it did not deliver. Of a life that
ended, what came after the last number that it delivered of a lane does not count: it may never have got it. UNRELIABLE
messages do not count, since nobody knows whether they arrived.

*Control* is every datagram on the underlay `regions` that is no `data`: tokens, ACKs, NAKs, pushes and pulls, the
courier's own, and those of the membership service. Repairs among receivers are `push` (unasked, to the predecessor) and
`pulled` (the answer to a `pull`); what senders send again is `data`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ordercast.trace.naming import REGIONS

IS_REGION: Final = "underlay like 'region/%'"
IS_RELIABLE: Final = "coalesce(service, '') != 'UNRELIABLE'"

_LANE: Final = ("run", "underlay", "view", "sender")
_MEMBER: Final = ("run", "underlay", "view", "node", "life")


def waste(events: DataFrame) -> DataFrame:
    """By run, region and node: messages received, delivered and wasted."""
    member = F.concat_ws("/", F.col("node"), F.col("life").cast("string"))
    carried = events.where(f"kind = 'carry' and `count` > 0 and {IS_REGION} and {IS_RELIABLE}").select(
        *_LANE, "first", F.col("count").cast("bigint").alias("count"), F.col("position").alias("block")
    )
    installed = (
        events.where(f"kind = 'view' and {IS_REGION}")
        .groupBy(*_MEMBER)
        .agg(F.min("n").alias("n"))
        .withColumn("member", member)
        .drop("n")
    )
    ended = (
        events.where(f"kind in ('crash', 'stop') or (kind = 'leave' and underlay = '{REGIONS}' and `group` is null)")
        .select("run", "node", "life")
        .distinct()
        .withColumn("has_ended", F.lit(True))
    )
    got = (
        events.where(f"kind = 'deliver' and {IS_REGION} and {IS_RELIABLE}")
        .groupBy(*_LANE, "node", "life")
        .agg(F.sum("count").alias("delivered"), F.max(F.col("first") + F.col("count")).alias("last"))
    )
    gone = (
        events.where(f"kind = 'lost' and `count` > 0 and {IS_REGION}")
        .select(*_LANE, "node", "life", F.explode(F.sequence("first", F.col("first") + F.col("count") - 1)))
        .withColumnRenamed("col", "block")
        .distinct()
        .withColumn("is_lost", F.lit(True))
    )
    received = (
        carried.join(F.broadcast(installed), ["run", "underlay", "view"])
        .where("sender != member")
        .join(F.broadcast(ended), ["run", "node", "life"], "left")
        .join(got.select(*_LANE, "node", "life", "last"), [*_LANE, "node", "life"], "left")
        .join(gone, [*_LANE, "node", "life", "block"], "left")
        .where("is_lost is null and (has_ended is null or first < coalesce(last, 0))")
        .groupBy("run", "underlay", "node")
        .agg(F.sum("count").alias("received"))
    )
    wanted = (
        got.withColumn("member", member)
        .where("sender != member")
        .groupBy("run", "underlay", "node")
        .agg(F.sum("delivered").alias("delivered"))
    )
    found = received.join(wanted, ["run", "underlay", "node"], "left").fillna(0, ["delivered"])
    wasted = F.greatest(F.col("received") - F.col("delivered"), F.lit(0))
    return found.select(
        "run",
        F.col("underlay").alias("region"),
        "node",
        "received",
        "delivered",
        wasted.alias("wasted"),
        F.when(F.col("received") > 0, wasted / F.col("received")).alias("share"),
    )


def region_totals(events: DataFrame, wasted: DataFrame) -> DataFrame:
    """One row for each run that has regions; `wasted` is what `waste` found."""
    lanes = events.where(f"kind = 'carry' and {IS_REGION}").groupBy("run").agg(
        F.countDistinct("underlay").alias("regions"),
        F.countDistinct("underlay", "view", "sender", "position").alias("blocks"),
        F.coalesce(F.sum("count"), F.lit(0)).alias("carried"),
    )  # fmt: skip
    sent = events.where(f"kind = 'tx' and underlay = '{REGIONS}'").groupBy("run").agg(
        _sum("detail = 'data'", "count").alias("data_datagrams"),
        _sum("detail = 'data'", "bytes").alias("data_bytes"),
        _sum("detail != 'data'", "count").alias("control_datagrams"),
        _sum("detail != 'data'", "bytes").alias("control_bytes"),
        *(
            _sum(f"detail = '{kind}'", "count").alias(name)
            for kind, name in (
                ("token", "tokens"),
                ("ack", "acks"),
                ("nak", "naks"),
                ("push", "pushed"),
                ("pull", "pulls"),
                ("pulled", "pulled"),
            )
        ),
    )  # fmt: skip
    lost = events.where(f"kind = 'lost' and {IS_REGION}").groupBy("run").agg(F.sum("count").alias("lost_blocks"))
    share = wasted.groupBy("run").agg(F.sum("received").alias("received"), F.sum("wasted").alias("wasted"))
    found = lanes.join(sent, "run", "left").join(lost, "run", "left").join(share, "run", "left")
    counts = [name for name in found.columns if name != "run"]
    all_bytes = F.col("data_bytes") + F.col("control_bytes")
    return (
        found.fillna(0, counts)
        .withColumn("control_share", F.when(all_bytes > 0, F.col("control_bytes") / all_bytes))
        .withColumn("waste_share", F.when(F.col("received") > 0, F.col("wasted") / F.col("received")))
    )


def _sum(condition: str, column: str) -> Column:
    return F.coalesce(F.sum(F.when(F.expr(condition), F.col(column))), F.lit(0))
