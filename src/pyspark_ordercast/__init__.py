"""Spark looks for packages named `pyspark_*` with a `DefaultSource`: this is how it finds the format "ordercast"."""

from ordercast.pipeline.stream.datasource import OrdercastDataSource as DefaultSource

__all__ = ["DefaultSource"]
