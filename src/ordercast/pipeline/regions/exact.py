"""Exact regions: nodes with the same set of groups (QSM 1.3, figure 2), and the proof that they are exact.

A node's *signature* is the xor of a 64-bit hash of each of its groups, the xor of a second hash, and their number. It
needs one shuffle of the rows and no sorting, and a node that joins or leaves a group gets its new signature by one more
xor. Nodes with the same signature are one region.

Xor is linear: of any 130 groups two different sets of the same size have the same xor of both hashes, and somebody who
chooses the names can find them. So a signature is a guess, and the proof follows: every row of every node is looked up
among the groups of the node that represents its region. Sets of equal size of which one is part of the other are equal,
so no row may be left. Where rows are left, the nodes of that signature are told apart by their sorted lists of groups.

Numbers of exact regions go by the name of their first node, so the same rows give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

SECOND_SEED: Final = 0x5EED
MOST_SENT: Final = 4_000_000
"""Rows of region x group that are sent to every worker for the proof. More of them are shuffled instead."""

SIGNATURE: Final = ("x1", "x2", "groups")

SETTINGS: Final = {
    # What Spark keeps stays partitioned by node, and Spark knows it: the proof joins rows with nodes without a shuffle.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false",
    # Names repeat: as dictionaries they take a fraction of the memory.
    "spark.sql.inMemoryColumnarStorage.compressed": "true",
    # Dictionaries make files small: with the usual 128 MB a hundred million rows were five tasks, the last one alone.
    "spark.sql.files.maxPartitionBytes": "32m",
}
"""For the session of a large plan. They change no result."""

Hashes = Callable[[Column], tuple[Column, Column]]


class Exact(NamedTuple):
    """Exact regions with their proof. All three frames are kept by Spark until `forget`."""

    rows: DataFrame | None  # node, group: distinct; None where only touched nodes were looked at
    nodes: DataFrame  # node, exact, x1, x2, groups
    groups: DataFrame  # exact, group
    proof: Exactness

    def forget(self) -> None:
        """Let Spark forget them."""
        for frame in (self.rows, self.nodes, self.groups):
            if frame is not None:
                frame.unpersist()


class Exactness(NamedTuple):
    """What was looked at to show that regions are exact."""

    rows: int  # each was looked up
    nodes: int
    regions: int
    left: int  # rows that their region's representative does not have: 0, or signatures collided
    collisions: int  # signatures that stood for several sets
    resolved: int  # nodes of such signatures, told apart by their whole lists


def both_hashes(group: Column) -> tuple[Column, Column]:
    """Two 64-bit hashes of a name; each of them alone would collide by chance among 2^32 sets."""
    return F.xxhash64(group), F.xxhash64(F.lit(SECOND_SEED), group)


def distinct_rows(subscriptions: DataFrame, partitions: int) -> DataFrame:
    """Each (node, group) once. Rows of a node end up together, so that what follows shuffles no row again."""
    return subscriptions.repartition(partitions, "node").select("node", "group").distinct()


def signatures(rows: DataFrame, hashes: Hashes = both_hashes) -> DataFrame:
    """node, x1, x2, groups; `rows` are distinct."""
    first, second = hashes(F.col("group"))
    return rows.groupBy("node").agg(
        F.bit_xor(first).alias("x1"), F.bit_xor(second).alias("x2"), F.count(F.lit(1)).cast("int").alias("groups")
    )


def regions_of(signed: DataFrame, keys: tuple[str, ...] = SIGNATURE) -> DataFrame:
    """exact, representative, and the keys: nodes with the same keys are one region."""
    found = signed.groupBy(*keys).agg(F.min("node").alias("representative"))
    return found.withColumn("exact", F.row_number().over(Window.orderBy("representative")) - 1)


def groups_of(rows: DataFrame, regions: DataFrame) -> DataFrame:
    """exact, group: what the representative of each region is in."""
    chosen = regions.select("exact", F.col("representative").alias("node"))
    return rows.join(F.broadcast(chosen), "node").select("exact", "group")


def rows_left(rows: DataFrame, nodes: DataFrame, groups: DataFrame, *, is_small: bool = True) -> DataFrame:
    """node, group, exact of every row that its region's representative does not have."""
    placed = rows.join(nodes.select("node", "exact").hint("shuffle_hash"), "node")
    return placed.join(F.broadcast(groups) if is_small else groups, ["exact", "group"], "left_anti")


def find_exact(subscriptions: DataFrame, partitions: int, hashes: Hashes = both_hashes) -> Exact:
    """Steps (1) to (4): distinct rows, signatures, exact regions, proof, region x group."""
    rows = distinct_rows(subscriptions, partitions).persist(StorageLevel.MEMORY_AND_DISK)
    signed = signatures(rows, hashes).persist(StorageLevel.MEMORY_AND_DISK)
    exact = _numbered(rows, signed, SIGNATURE)
    proof = prove(rows, exact.nodes, exact.groups)
    if proof.left:
        exact, proof = _told_apart(rows, signed, exact, proof)
    signed.unpersist()
    return Exact(rows, exact.nodes, exact.groups, proof)


def prove(rows: DataFrame, nodes: DataFrame, groups: DataFrame) -> Exactness:
    """Look every row up. Which rows are left is `rows_left`."""
    pairs = groups.count()
    left = rows_left(rows, nodes, groups, is_small=pairs <= MOST_SENT).agg(
        F.count(F.lit(1)).alias("left"), F.count_distinct("exact").alias("collisions")
    )
    told = nodes.agg(
        F.sum("groups").alias("rows"), F.count(F.lit(1)).alias("nodes"), F.count_distinct("exact").alias("regions")
    )
    (found,) = left.crossJoin(told).collect()
    return Exactness(found["rows"] or 0, found["nodes"], found["regions"], found["left"], found["collisions"], 0)


class _Numbered(NamedTuple):
    nodes: DataFrame
    groups: DataFrame


def _numbered(rows: DataFrame, signed: DataFrame, keys: tuple[str, ...]) -> _Numbered:
    regions = regions_of(signed, keys).persist(StorageLevel.MEMORY_AND_DISK)
    nodes = signed.join(F.broadcast(regions), list(keys)).select("node", "exact", *SIGNATURE)
    groups = groups_of(rows, regions)
    kept = _Numbered(nodes.persist(StorageLevel.MEMORY_AND_DISK), groups.persist(StorageLevel.MEMORY_AND_DISK))
    kept.groups.count()
    kept.nodes.count()
    regions.unpersist()
    return kept


def _told_apart(rows: DataFrame, signed: DataFrame, guess: _Numbered, proof: Exactness) -> tuple[_Numbered, Exactness]:
    """Regions again, where the nodes of collided signatures are known by their whole lists of groups."""
    collided = rows_left(rows, guess.nodes, guess.groups).select("exact").distinct()
    doubtful = guess.nodes.join(F.broadcast(collided), "exact", "left_semi").select("node")
    lists = (
        rows.join(doubtful, "node", "left_semi")
        .groupBy("node")
        .agg(F.to_json(F.array_sort(F.collect_list("group"))).alias("list"))
    )
    whole = signed.join(lists, "node", "left").withColumn("list", F.coalesce("list", F.lit("")))
    exact = _numbered(rows, whole.persist(StorageLevel.MEMORY_AND_DISK), (*SIGNATURE, "list"))
    again = prove(rows, exact.nodes, exact.groups)
    resolved = doubtful.count()
    guess.nodes.unpersist()
    guess.groups.unpersist()
    whole.unpersist()
    return exact, again._replace(left=again.left, collisions=proof.collisions, resolved=resolved)
