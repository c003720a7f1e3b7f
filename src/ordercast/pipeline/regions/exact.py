"""Exact regions: nodes with the same set of groups (QSM 1.3, figure 2), and the proof that they are exact.

Groups are numbered by a 64-bit hash of their names; that no two names have the same number is counted, and otherwise
they are numbered one after the other. Then each row is a name and a number. One shuffle brings the rows of a node
together, and its groups become a sorted list without duplicates: 800 bytes for a hundred groups, whatever their names.

Nodes whose lists have the same 128-bit hash are one region. That is a guess, and the proof follows: the list of every
node is compared with the list of the node that represents its region. Where lists differ, the nodes of that hash are
told apart by the lists themselves, and the proof runs again.

A region's *signature* is the xor of a 64-bit hash of each of its groups, the xor of a second hash, and their number. A
node that joins or leaves a group gets its new signature by one more xor, so it is what the next plan looks regions up
by (`changes.py`). Xor is linear: of any 130 groups two different sets of the same size have the same signature, and
somebody who chooses the names can find them. So nothing here relies on it: signatures that two regions share are
counted.

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
"""Numbers in lists of regions that are sent to every worker for the proof. More of them are shuffled instead."""

SIGNATURE: Final = ("x1", "x2", "groups")
KEYS: Final = ("k1", "k2")

SETTINGS: Final = {
    # Rows of a node are together when they are collected: to collect them in two steps, as for a shuffle, costs twice.
    "spark.sql.execution.combineAdjacentAggregation": "true",
    # Nodes of a task. Lists are collected without sorting rows; Spark's own limit is 128, and then it sorts them all.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    # Dictionaries make files small: with the usual 128 MB a hundred million rows were five tasks, the last one alone.
    "spark.sql.files.maxPartitionBytes": "32m",
}
"""For the session of a large plan. They change no result."""

Hash = Callable[[Column], Column]
Hashes = Callable[[Column], tuple[Column, Column]]


class Exact(NamedTuple):
    """Exact regions with their proof. Both frames are kept by Spark until `forget`."""

    nodes: DataFrame  # node, exact, x1, x2, groups
    groups: DataFrame  # exact, group
    proof: Exactness

    def rows(self) -> DataFrame:
        """node, group: the distinct subscriptions, which exact regions say as well."""
        return self.nodes.select("node", "exact").join(self.groups, "exact").select("node", "group")

    def forget(self) -> None:
        """Let Spark forget them."""
        self.nodes.unpersist()
        self.groups.unpersist()


class Exactness(NamedTuple):
    """What was looked at to show that regions are exact."""

    rows: int  # each was compared
    nodes: int
    regions: int
    left: int  # rows that a node has and its region's representative has not, or the other way round: 0 if exact
    collisions: int  # signatures, or hashes of lists, that stood for several sets
    resolved: int  # nodes of such signatures, told apart by their whole lists


def hash_of(group: Column) -> Column:
    """The number of a group. It may be the same for two names: `names_of` looks."""
    return F.xxhash64(group)


def both_hashes(value: Column) -> tuple[Column, Column]:
    """Two 64-bit hashes of a name or a list; each of them alone would collide by chance among 2^32 of them."""
    return F.xxhash64(value), F.xxhash64(F.lit(SECOND_SEED), value)


class Names(NamedTuple):
    """Numbers of groups, no two with the same one."""

    frame: DataFrame  # group, id
    kept: DataFrame
    number: Hash | None  # says the number of a name; None: the frame has to be asked

    def numbered(self, subscriptions: DataFrame) -> DataFrame:
        """node, id of each row."""
        if self.number is None:
            return subscriptions.join(self.frame, "group").select("node", "id")
        return subscriptions.select("node", self.number(F.col("group")).alias("id"))


def names_of(subscriptions: DataFrame, number: Hash = hash_of) -> Names:
    """All groups with their numbers."""
    kept = subscriptions.select("group").distinct().persist(StorageLevel.MEMORY_AND_DISK)
    hashed = kept.select("group", number(F.col("group")).alias("id"))
    (told,) = hashed.agg(F.count(F.lit(1)).alias("names"), F.count_distinct("id").alias("ids")).collect()
    if told["ids"] == told["names"]:
        return Names(hashed, kept, number)
    in_turn = F.row_number().over(Window.orderBy("group")).cast("long")
    return Names(kept.select("group", in_turn.alias("id")), kept, None)


def lists_of(rows: DataFrame, partitions: int, hashes: Hashes = both_hashes) -> DataFrame:
    """node, list, k1, k2: the numbers of each node's groups, ascending, each once. `rows`: node, id."""
    together = rows.repartition(partitions, "node").groupBy("node")
    # Duplicates go when all is there: a set for each node while rows come costs half as much again.
    lists = together.agg(F.collect_list("id").alias("list")).select(
        "node", F.array_distinct(F.sort_array("list")).alias("list")
    )
    first, second = hashes(F.col("list"))
    return lists.select("node", "list", first.alias("k1"), second.alias("k2"))


def regions_of(lists: DataFrame, keys: tuple[str, ...] = KEYS) -> DataFrame:
    """exact, the keys, list: nodes with the same keys are one region, with the list of its first node."""
    found = lists.groupBy(*keys).agg(F.min("node").alias("node"))
    numbered = found.withColumn("exact", F.row_number().over(Window.orderBy("node")) - 1)
    return lists.select("node", "list").join(F.broadcast(numbered), "node").select("exact", *keys, "list")


def prove(lists: DataFrame, regions: DataFrame, keys: tuple[str, ...] = KEYS) -> Exactness:
    """Compare the list of each node with that of its region."""
    (count, pairs) = regions.agg(F.count(F.lit(1)), F.coalesce(F.sum(F.size("list")), F.lit(0))).first() or (0, 0)
    compared = _compared(lists, F.broadcast(regions) if pairs <= MOST_SENT else regions, keys)
    (told,) = compared.agg(
        F.sum("groups").alias("rows"), F.count(F.lit(1)).alias("nodes"), F.sum("left").alias("left")
    ).collect()
    return Exactness(told["rows"] or 0, told["nodes"], count, told["left"] or 0, 0, 0)


def find_exact(
    subscriptions: DataFrame, partitions: int, number: Hash = hash_of, hashes: Hashes = both_hashes
) -> Exact:
    """Steps (1) to (4): lists of nodes, exact regions, proof, region x group. Other hashes are for tests."""
    names = names_of(subscriptions, number)
    lists = lists_of(names.numbered(subscriptions), partitions, hashes).persist(StorageLevel.MEMORY_AND_DISK)
    keys: tuple[str, ...] = KEYS
    regions = regions_of(lists).persist(StorageLevel.MEMORY_AND_DISK)
    proof = prove(lists, regions)
    guess = None
    if proof.left:
        guess, keys = lists, (*KEYS, "whole")
        lists = _with_whole_lists(lists, regions).persist(StorageLevel.MEMORY_AND_DISK)
        regions.unpersist()
        regions = regions_of(lists, keys).persist(StorageLevel.MEMORY_AND_DISK)
        proof = prove(lists, regions, keys)
    groups = regions.select("exact", F.explode("list").alias("id")).join(names.frame, "id").select("exact", "group")
    groups = groups.persist(StorageLevel.MEMORY_AND_DISK)
    signed = regions.drop("list").join(signatures(groups), "exact").persist(StorageLevel.MEMORY_AND_DISK)
    nodes = lists.select("node", *keys).join(F.broadcast(signed), list(keys)).select("node", "exact", *SIGNATURE)
    nodes = nodes.persist(StorageLevel.MEMORY_AND_DISK)
    proof = proof._replace(**_shared(signed, nodes))
    for frame in (names.kept, lists, regions, signed, guess):
        if frame is not None:
            frame.unpersist()
    return Exact(nodes, groups, proof)


def signatures(groups: DataFrame) -> DataFrame:
    """exact, x1, x2, groups; `groups`: exact, group, distinct."""
    first, second = both_hashes(F.col("group"))
    return groups.groupBy("exact").agg(
        F.bit_xor(first).alias("x1"), F.bit_xor(second).alias("x2"), F.count(F.lit(1)).cast("int").alias("groups")
    )


def _compared(lists: DataFrame, regions: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """exact, groups, left: for each node how many groups it has, and how many its region has not, or has besides."""
    held = F.coalesce("held", F.array().cast("array<long>"))
    differ = F.size(F.array_except("list", held)) + F.size(F.array_except(held, "list"))
    return lists.join(regions.withColumnRenamed("list", "held"), list(keys), "left").select(
        "exact",
        F.size("list").alias("groups"),
        F.when(F.col("list") != held, differ).otherwise(0).alias("left"),
    )


def _with_whole_lists(lists: DataFrame, regions: DataFrame) -> DataFrame:
    """Where lists of the same keys differ, the list is a key, too."""
    wrong = _compared(lists, regions, KEYS).where("left > 0").select("exact").distinct()
    doubtful = regions.join(wrong, "exact").select(*KEYS, F.lit(True).alias("is_doubtful"))
    none = F.array().cast("array<long>")
    return lists.join(F.broadcast(doubtful), list(KEYS), "left").select(
        "node", "list", *KEYS, F.when(F.col("is_doubtful"), F.col("list")).otherwise(none).alias("whole")
    )


def _shared(signed: DataFrame, nodes: DataFrame) -> dict[str, int]:
    """How many signatures and hashes stand for several regions, and how many nodes are in these."""
    doubtful = None
    collisions = 0
    for keys in (SIGNATURE, KEYS):
        several = signed.groupBy(*keys).agg(F.count(F.lit(1)).alias("regions")).where("regions > 1")
        found = several.count()
        if found:
            collisions += found
            some = signed.join(several, list(keys)).select("exact")
            doubtful = some if doubtful is None else doubtful.unionByName(some)
    resolved = nodes.join(doubtful, "exact", "left_semi").count() if doubtful is not None else 0
    return {"collisions": collisions, "resolved": resolved}
