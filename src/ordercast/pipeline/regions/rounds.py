"""Merging on Spark, where there are too many regions for the driver: rounds of mutual-best pairs, as there.

Partners are found by MinHash: regions with the same least hashes of their groups in one of `BANDS` bands are likely
alike. Within a band, regions with equal keys are ordered by rate, and each is compared with the next one, so a round
looks at no more than `BANDS` pairs for each region. Two regions that share 80 % of their groups, which is what a limit
of waste of 10 % asks for, are found with a probability of 98.5 % in each round.

The same gain, the same limits. It ends when few enough regions remain for the driver, which goes on; or when a round
merges nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ordercast.pipeline.regions.costs import PlanCosts, PlanLimits

BANDS: Final = 8
ROWS: Final = 4  # hashes of a band
MOST_ROUNDS: Final = 40
EPSILON: Final = 1e-9


def merge_on_spark(
    regions: DataFrame, groups: DataFrame, costs: PlanCosts, limits: PlanLimits, enough: int
) -> tuple[DataFrame, int]:
    """first, region: which region each of the given ones is in now; and after how many rounds.

    `regions`: region, size, least. `groups`: region, group, rate.
    """
    placed = regions.select(F.col("region").alias("first"), "region").persist(StorageLevel.MEMORY_AND_DISK)
    state, held = regions, groups
    rounds = 0
    while rounds < MOST_ROUNDS and state.count() > enough:
        pairs = best_pairs(state, held, costs, limits).persist(StorageLevel.MEMORY_AND_DISK)
        if not pairs.count():
            break
        rounds += 1
        goes = pairs.select(F.col("other").alias("region"), F.col("one").alias("into"))
        old = (placed, state, held)
        placed = _moved(placed, goes).select("first", "region")
        state = _moved(state, goes).groupBy("region").agg(F.sum("size").alias("size"), F.min("least").alias("least"))
        held = _moved(held, goes).select("region", "group", "rate").distinct()
        placed, state, held = (one.persist(StorageLevel.MEMORY_AND_DISK) for one in (placed, state, held))
        for one in (placed, state, held):
            one.count()
        for one in (*old, pairs):
            if one is not regions and one is not groups:
                one.unpersist()
    return placed, rounds


def candidates(groups: DataFrame, rates: DataFrame) -> DataFrame:
    """one, other: pairs of regions that are likely alike."""
    hashes = [F.min(F.xxhash64(F.lit(number), F.col("group"))).alias(f"h{number}") for number in range(BANDS * ROWS)]
    bands = [
        F.struct(F.lit(band).alias("band"), F.xxhash64(*(f"h{band * ROWS + row}" for row in range(ROWS))).alias("key"))
        for band in range(BANDS)
    ]
    keyed = groups.groupBy("region").agg(*hashes).select("region", F.inline(F.array(*bands))).join(rates, "region")
    after = F.lead("region").over(Window.partitionBy("band", "key").orderBy("rate", "region"))
    return (
        keyed.withColumn("after", after)
        .where("after IS NOT NULL")
        .select(F.least("region", "after").alias("one"), F.greatest("region", "after").alias("other"))
        .distinct()
    )


def best_pairs(regions: DataFrame, groups: DataFrame, costs: PlanCosts, limits: PlanLimits) -> DataFrame:
    """one, other: pairs within the limits that are a gain, each the best partner of the other."""
    rates = groups.groupBy("region").agg(F.sum("rate").alias("rate"))
    known = regions.join(rates, "region")
    pairs = candidates(groups, rates)
    of_one = groups.select(F.col("region").alias("one"), "group", "rate")
    of_other = groups.select(F.col("region").alias("other"), "group")
    shared = pairs.join(of_one, "one").join(of_other, ["other", "group"]).groupBy("one", "other")
    sides = {
        side: known.select(*(F.col(name).alias(_of(name, side)) for name in known.columns)) for side in ("one", "other")
    }
    weighed = shared.agg(F.sum("rate").alias("shared")).join(sides["one"], "one").join(sides["other"], "other")
    extra = F.expr("size_one * (rate_other - shared) + size_other * (rate_one - shared)")
    gain = costs.send * F.col("shared") + costs.token - costs.recv * extra
    union = F.expr("rate_one + rate_other - shared")
    fits = union * (1 - limits.waste) <= F.least("least_one", "least_other") + EPSILON * union
    fits &= F.col("size_one") + F.col("size_other") <= limits.size
    good = weighed.withColumn("gain", gain).where(fits & (F.col("gain") > 0)).select("one", "other", "gain")
    ends = good.select("one", "other", "gain", F.explode(F.array("one", "other")).alias("end"))
    order = Window.partitionBy("end").orderBy(F.desc("gain"), "one", "other")
    best = ends.withColumn("place", F.row_number().over(order)).where("place = 1")
    return best.groupBy("one", "other").agg(F.count(F.lit(1)).alias("ends")).where("ends = 2").select("one", "other")


def _moved(frame: DataFrame, goes: DataFrame) -> DataFrame:
    """The same with regions that were merged under their new number."""
    joined = frame.join(goes, "region", "left")
    return joined.withColumn("region", F.coalesce("into", "region")).drop("into")


def _of(name: str, side: str) -> str:
    return side if name == "region" else f"{name}_{side}"
