"""Weighted percentiles by KLL sketches: Spark's own, small, and two of them make one of both.

A row of a trace stands for `messages` messages, and a sketch takes one value at a time, so a row is given that many
times. What many messages would take is bounded: above `MOST_SAMPLES` a row counts once for each `unit` of its messages,
and by its hash for the rest, always the same. Messages, mean, least and greatest are exact in any case.

The error of a rank is that of the sketch: about 0.3 % for `SKETCH_K`, so that the 99th percentile that is told lies
between the true 98.7th and 99.3rd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

SKETCH_K: Final = 1000
MOST_SAMPLES: Final = 4_000_000  # beyond these chance adds less than a hundredth of what the sketch errs
PERCENTILES: Final = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}
CURVE: Final = (0.0, 0.001, 0.005, *(percent / 100 for percent in range(1, 100)), 0.995, 0.999, 0.9995, 0.9999, 1.0)
"""The ranks of a distribution that is drawn."""


def unit_of(messages: int) -> int:
    """How many messages one sample stands for."""
    return max(1, -(-messages // MOST_SAMPLES))


def sketched(frame: DataFrame, keys: Sequence[str], values: Sequence[str], unit: int = 1) -> DataFrame:
    """One row for each of `keys` and `stage`, the name of a value: exact sums and a sketch.

    `frame` has the keys, the values (null where there is none) and `messages`.
    """
    hashed = F.pmod(F.xxhash64(*keys, *values), F.lit(unit))
    samples = F.floor((F.col("messages") + hashed) / F.lit(unit)).cast("int")
    given = frame.withColumn("samples", samples).where("messages > 0")
    copies = F.sequence(F.lit(1), F.greatest(F.col("samples"), F.lit(1)))
    weight = F.col("messages") / F.greatest(F.col("samples"), F.lit(1))
    repeated = given.select(*keys, *values, "samples", weight.alias("weight"), F.explode(copies).alias("copy"))
    found = repeated.groupBy(*keys).agg(*(part for value in values for part in _parts_of(value)))
    stages = F.array(
        *(
            F.struct(
                F.lit(value.removesuffix("_ns")).alias("stage"),
                *(
                    F.col(f"{value}_{part}").alias(part)
                    for part in ("messages", "total_ns", "min_ns", "max_ns", "sketch")
                ),
            )
            for value in values
        )
    )
    one = found.select(*keys, F.explode(stages).alias("one")).select(*keys, "one.*")
    return one.where("messages > 0").withColumn("messages", F.round("messages").cast("bigint"))


def merged(series: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Sketches put together, of `with_percentiles`: one row for each of `keys` and `stage`."""
    return series.groupBy(*keys, "stage").agg(
        F.sum("messages").alias("messages"),
        F.sum(F.col("mean_ns") * F.col("messages")).alias("total_ns"),
        F.min("min_ns").alias("min_ns"),
        F.max("max_ns").alias("max_ns"),
        F.kll_merge_agg_bigint("sketch", F.lit(SKETCH_K)).alias("sketch"),
    )


def with_percentiles(frame: DataFrame) -> DataFrame:
    """`frame` with mean and percentiles read out of its sketches, which stay."""
    # Where few of very many messages fall into a bucket, none of them may have become a sample.
    has_some = F.kll_sketch_get_n_bigint("sketch") > 0
    ranks = F.array(*map(F.lit, PERCENTILES.values()))
    read = F.when(has_some, F.kll_sketch_get_quantile_bigint("sketch", ranks))
    return (
        frame.withColumn("mean_ns", F.col("total_ns") / F.col("messages"))
        .withColumn("read", read)
        .withColumns({name: F.col("read")[index] for index, name in enumerate(PERCENTILES)})
        .drop("read", "total_ns")
    )


def with_curve(frame: DataFrame) -> DataFrame:
    """`frame` with `curve`, the values at the ranks of `CURVE`."""
    has_some = F.kll_sketch_get_n_bigint("sketch") > 0
    ranks = F.array(*map(F.lit, CURVE))
    return frame.withColumn("curve", F.when(has_some, F.kll_sketch_get_quantile_bigint("sketch", ranks)))


def _parts_of(value: str) -> list[Column]:
    column = F.col(value)
    weight = F.when(column.isNotNull(), F.col("weight"))
    return [
        F.coalesce(F.sum(weight), F.lit(0.0)).alias(f"{value}_messages"),
        F.sum(column * weight).alias(f"{value}_total_ns"),
        F.min(column).alias(f"{value}_min_ns"),
        F.max(column).alias(f"{value}_max_ns"),
        F.kll_sketch_agg_bigint(F.when(F.col("samples") > 0, column), F.lit(SKETCH_K)).alias(f"{value}_sketch"),
    ]
