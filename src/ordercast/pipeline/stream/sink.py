"""The sink: tasks stage their rows, the driver publishes them as one transaction. docs/design/pipeline.md, *Sink*.

Spark may call everything here again: a task, a commit after a failure, a whole batch after a restart. (query, batch)
identifies what is published, and members hand it over once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from ordercast.errors import InvariantViolation, UsageError
from ordercast.pipeline.stream.options import SinkOptions
from ordercast.pipeline.stream.publisher import publish_batch
from ordercast.pipeline.stream.staging import Staged, batch_folder, chunks_of, clean, remove, stage

if TYPE_CHECKING:
    import pyarrow

# Spark's own names, which its file sinks use, too; a test holds Spark to them.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"

COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": (StringType, BinaryType),
    "type": (ByteType, ShortType, IntegerType, LongType),
}


class StagedRows(WriterCommitMessage):
    """The result of a task."""

    def __init__(self, query: str, batch: int, staged: Staged | None) -> None:
        self.query = query
        self.batch = batch
        self.staged = staged


class StreamSink(DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch is a transaction of the query."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        context = _context()
        query = context.getLocalProperty(QUERY_PROPERTY)
        batch = context.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise InvariantViolation("this Spark does not tell its tasks the query and the batch: use 4.2 or 4.3")
        return _stage(self.options, query, int(batch), context, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _commit(self.options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        _abort(messages)


class TableSink(DataSourceArrowWriter):
    """`df.write`: one transaction of a query of its own. Written again, by hand or by a retry, it is another one."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.query = f"write-{uuid4().hex}"

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        return _stage(self.options, self.query, 0, _context(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _commit(self.options, messages, 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _abort(messages)


def check_columns(schema: StructType) -> None:
    """Raise UsageError if rows of this schema cannot be published."""
    if "value" not in schema.names:
        raise UsageError(
            f"the column value is what is published, STRING or BINARY; there are {', '.join(schema.names)}"
        )
    for field in schema.fields:
        kinds = COLUMNS.get(field.name)
        if kinds is None:
            raise UsageError(
                f"the column {field.name} cannot be published: select value (STRING or BINARY) and, if wanted, type"
            )
        if not isinstance(field.dataType, kinds):
            words = " or ".join(kind.typeName().upper() for kind in kinds)
            raise UsageError(f"the column {field.name} is {words}, not {field.dataType.simpleString()}")


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InvariantViolation("rows are written by a task")
    return context


def _stage(
    options: SinkOptions, query: str, batch: int, context: TaskContext, iterator: Iterator[pyarrow.RecordBatch]
) -> StagedRows:
    folder = batch_folder(options.staging, query, batch)
    return StagedRows(query, batch, stage(folder, context.partitionId(), context.taskAttemptId(), iterator))


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    rows = [message for message in messages if isinstance(message, StagedRows)]
    queries = {message.query for message in rows}
    if len(rows) != len(messages) or len(queries) > 1 or {message.batch for message in rows} - {batch}:
        raise InvariantViolation(f"batch {batch} was to be committed with what other batches wrote: {queries}")
    staged = [message.staged for message in rows if message.staged is not None]
    # A batch without rows is none to the members: the same batch of a restart has none either.
    for query in queries:
        if staged:
            count, nbytes = sum(part.rows for part in staged), sum(part.nbytes for part in staged)
            publish_batch(options, query, batch, lambda: chunks_of(staged), count, nbytes)
        clean(options.staging, query, batch)


def _abort(messages: Sequence[WriterCommitMessage | None]) -> None:
    remove(message.staged for message in messages if isinstance(message, StagedRows) and message.staged is not None)
