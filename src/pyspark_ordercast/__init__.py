"""Spark looks for packages named `pyspark_*` and their `DefaultSource`: so it knows the format "ordercast"."""

from ordercast.pipeline.stream.datasource import OrdercastDataSource as DefaultSource

__all__ = ["DefaultSource"]
