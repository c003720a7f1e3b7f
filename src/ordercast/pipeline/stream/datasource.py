"""What Spark knows by the name "ordercast": it makes readers and writers from checked options."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ordercast.errors import UsageError
from ordercast.pipeline.stream import FORMAT
from ordercast.pipeline.stream.options import sink_options, source_options
from ordercast.pipeline.stream.sink import StreamSink, TableSink, check_columns
from ordercast.pipeline.stream.source import SCHEMA, StreamReader, TableReader


class OrdercastDataSource(DataSource):
    """An archive to read, a group to write to."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        _check_schema(schema)
        return TableReader(source_options(self.options, is_streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        _check_schema(schema)
        return StreamReader(source_options(self.options, is_streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise UsageError('what a group was sent cannot be taken back: use .mode("append")')
        check_columns(schema)
        return TableSink(sink_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise UsageError('what a group was sent cannot be taken back: use .outputMode("append") or "update"')
        check_columns(schema)
        return StreamSink(sink_options(self.options))


def _check_schema(schema: StructType) -> None:
    if schema != SCHEMA:
        raise UsageError(f"the columns of an archive are {SCHEMA.simpleString()}: leave .schema(...) out")
