"""Ordered groups as Spark streams: a source over an archive, and a sink that publishes to a live group.

`spark.readStream.format("ordercast")` finds it by itself where this package is installed (`pyspark_ordercast`);
`register` is for sessions that look for no data sources, and for classes of one's own that derive from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "ordercast"


def register(spark: SparkSession) -> None:
    """Make the format "ordercast" known to a session."""
    from ordercast.pipeline.stream.datasource import OrdercastDataSource

    spark.dataSource.register(OrdercastDataSource)
