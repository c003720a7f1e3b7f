"""Exact regions after joins and leaves, from the previous plan: only the nodes that they touch are looked at.

A join or a leave changes a signature by one xor. A touched node whose new signature belongs to a known region is in
that region; other signatures are new regions. The proof looks up the rows of touched nodes: the others were proved when
the previous plan was made. A join of a group that the node is in, and a leave of one that it is not in, change nothing.
"""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ordercast.errors import UsageError
from ordercast.pipeline.regions.exact import SIGNATURE, Exact, Exactness, both_hashes


def change_exact(nodes: DataFrame, groups: DataFrame, changes: DataFrame) -> Exact:
    """`nodes` and `groups` are those of `Exact`; `changes`: node, group, change."""
    said = changes.groupBy("node", "group").agg(
        F.min("change").alias("change"), F.count_distinct("change").alias("words")
    )
    said = said.persist(StorageLevel.MEMORY_AND_DISK)
    both = said.where("words > 1").first()
    if both is not None:
        raise UsageError(f"node {both['node']} both joins and leaves group {both['group']}: changes have no order")
    touched = said.select("node").distinct()
    before = nodes.join(touched, "node", "left_semi").join(groups, "exact").select("node", "group")
    before = before.persist(StorageLevel.MEMORY_AND_DISK)
    pair = ["node", "group"]
    came = said.where("change = 'join'").select(pair).join(before, pair, "left_anti").withColumn("step", F.lit(1))
    went = said.where("change = 'leave'").select(pair).join(before, pair, "left_semi").withColumn("step", F.lit(-1))
    steps = came.unionByName(went).persist(StorageLevel.MEMORY_AND_DISK)
    rows = before.unionByName(came.select(pair)).join(went, pair, "left_anti").persist(StorageLevel.MEMORY_AND_DISK)

    signed = _signed(nodes, steps).persist(StorageLevel.MEMORY_AND_DISK)
    known = nodes.groupBy(*SIGNATURE).agg(F.min("exact").alias("known"))
    (top,) = nodes.agg(F.coalesce(F.max("exact"), F.lit(-1))).first() or (-1,)
    moved = signed.where("is_touched").join(known, list(SIGNATURE), "left")
    new = moved.where("known IS NULL").groupBy(*SIGNATURE).agg(F.min("node").alias("representative"))
    new = new.withColumn("new", F.row_number().over(Window.orderBy("representative")) + top)
    new = new.persist(StorageLevel.MEMORY_AND_DISK)
    placed = moved.join(new.drop("representative"), list(SIGNATURE), "left").select(
        "node", F.coalesce("known", "new").cast("int").alias("exact"), *SIGNATURE
    )
    result = signed.where("NOT is_touched").select("node", "exact", *SIGNATURE).unionByName(placed)
    result = result.persist(StorageLevel.MEMORY_AND_DISK)
    added = rows.join(new.select(F.col("representative").alias("node"), "new"), "node").select(
        F.col("new").cast("int").alias("exact"), "group"
    )
    used = result.select("exact").distinct()
    kept = groups.unionByName(added).join(used, "exact", "left_semi").persist(StorageLevel.MEMORY_AND_DISK)
    proof = _prove(rows, result, placed, kept)
    for frame in (said, before, steps, rows, signed, new):
        frame.unpersist()
    if proof.left:
        raise UsageError(
            f"signatures of {proof.collisions} regions collided with those of the previous plan: "
            "plan from all subscriptions, without --changes; that tells such nodes apart"
        )
    return Exact(result, kept, proof)


def _signed(nodes: DataFrame, steps: DataFrame) -> DataFrame:
    """All nodes that are in any group, with their new signatures."""
    first, second = both_hashes(F.col("group"))
    delta = steps.groupBy("node").agg(
        F.bit_xor(first).alias("d1"), F.bit_xor(second).alias("d2"), F.sum("step").cast("int").alias("more")
    )
    joined = nodes.join(delta, "node", "full_outer")

    def changed(name: str, by: str) -> Column:
        return F.coalesce(F.col(name), F.lit(0)).bitwiseXOR(F.coalesce(F.col(by), F.lit(0)))

    return joined.select(
        "node",
        "exact",
        changed("x1", "d1").alias("x1"),
        changed("x2", "d2").alias("x2"),
        (F.coalesce("groups", F.lit(0)) + F.coalesce("more", F.lit(0))).cast("int").alias("groups"),
        F.col("more").isNotNull().alias("is_touched"),
    ).where("groups > 0")


def _prove(rows: DataFrame, nodes: DataFrame, placed: DataFrame, groups: DataFrame) -> Exactness:
    """Rows of touched nodes that their region does not have, and touched nodes whose number of groups is another."""
    looked = rows.join(placed.select("node", "exact"), "node")
    left = looked.join(F.broadcast(groups), ["exact", "group"], "left_anti").select("exact")
    counted = rows.groupBy("node").agg(F.count(F.lit(1)).alias("found"))
    short = placed.join(counted, "node", "left").where("found IS NULL OR found <> groups").select("exact")
    found = left.unionByName(short).agg(F.count(F.lit(1)).alias("left"), F.count_distinct("exact").alias("collisions"))
    told = nodes.agg(F.count(F.lit(1)).alias("nodes"), F.count_distinct("exact").alias("regions"))
    looked_up = placed.agg(F.coalesce(F.sum("groups"), F.lit(0)).alias("rows"))
    (row,) = found.crossJoin(told).crossJoin(looked_up).collect()
    return Exactness(row["rows"], row["nodes"], row["regions"], row["left"], row["collisions"], 0)
