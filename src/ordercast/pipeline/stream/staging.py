"""Rows that wait to be published: one Arrow file for each task attempt, durable before the task says that it is done.

    STAGING/QUERY/BATCH/part-PARTITION-ATTEMPT-RANDOM.arrow

Files of attempts that failed, or of tasks that were run twice, stay until the batch, or a later one of the query, is
committed: then its folder and the older ones are removed.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple
from uuid import uuid4

from ordercast.api.transactions import MAX_ROW_TYPE
from ordercast.errors import UsageError

if TYPE_CHECKING:
    import pyarrow

CHUNK_BYTES: Final = 1 << 20


class Staged(NamedTuple):
    """What a task has put there."""

    path: str
    partition: int
    rows: int
    nbytes: int  # of the values
    crc: int  # of the file


def batch_folder(staging: Path, query: str, batch: int) -> Path:
    return staging / query / str(batch)


def stage(folder: Path, partition: int, attempt: int, batches: Iterable[pyarrow.RecordBatch]) -> Staged | None:
    """Write one partition's rows; None if there are none. Raises UsageError for rows that cannot be published."""
    import pyarrow as pa

    path = folder / f"part-{partition:05}-{attempt}-{uuid4().hex}.arrow"
    schema = pa.schema([pa.field("value", pa.binary()), pa.field("type", pa.int16())])
    rows = nbytes = 0
    is_done = False
    try:
        with ExitStack() as open_:
            sink: BinaryIO | None = None
            writer: Any = None
            for batch in batches:
                if not batch.num_rows:
                    continue
                values, types = _columns(batch)
                if sink is None:
                    folder.mkdir(parents=True, exist_ok=True)
                    sink = open_.enter_context(path.open("xb"))
                    writer = pa.ipc.new_stream(sink, schema)
                writer.write_batch(pa.RecordBatch.from_arrays([values, types], schema=schema))
                rows += len(values)
                nbytes += _bytes_of(values)
            if sink is None:
                return None
            writer.close()
            sink.flush()
            os.fsync(sink.fileno())
        _sync(folder)
        staged = Staged(str(path), partition, rows, nbytes, _crc_of(path))
        is_done = True
    except OSError as error:
        raise UsageError(f"rows cannot be staged in {folder}: {error.strerror or error}") from error
    finally:
        if not is_done:
            with suppress(OSError):
                path.unlink()
    return staged


def chunks_of(staged: Iterable[Staged]) -> Iterator[tuple[Sequence[bytes], int]]:
    """The rows in order, as lists that have one type each. Raises UsageError for a changed file."""
    import pyarrow as pa

    for part in sorted(staged, key=lambda each: each.partition):
        path = Path(part.path)
        try:
            if _crc_of(path) != part.crc:
                raise UsageError(f"{path} is not what its task wrote: is the staging folder shared, and only ours?")
            with path.open("rb") as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    values = batch.column(0).to_pylist()
                    types = batch.column(1).to_pylist()
                    at = 0
                    for type_, run in groupby(types):
                        count = sum(1 for _ in run)
                        yield values[at : at + count], type_
                        at += count
        except FileNotFoundError:
            raise UsageError(
                f"{path} is not there: the staging folder has to be one that driver and workers share "
                '(.option("stagingLocation", ...))'
            ) from None


def remove(staged: Iterable[Staged]) -> None:
    """Files of an attempt that is given up."""
    for part in staged:
        with suppress(OSError):
            os.unlink(part.path)
        with suppress(OSError):
            os.rmdir(os.path.dirname(part.path))


def clean(staging: Path, query: str, batch: int) -> None:
    """What is left of this batch and of earlier ones, when it is committed."""
    folder = staging / query
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.name.isdecimal() and int(entry.name) <= batch:
                shutil.rmtree(entry, ignore_errors=True)
        folder.rmdir()  # fails if a later batch is there already


def _columns(batch: pyarrow.RecordBatch) -> tuple[pyarrow.Array, pyarrow.Array]:
    import pyarrow as pa
    import pyarrow.compute as pc

    values = batch.column("value")
    if values.null_count:
        raise UsageError("a row has the value NULL, and a message has bytes: filter such rows out, or use coalesce()")
    values = values.cast(pa.binary())
    if "type" not in batch.schema.names:
        return values, pa.repeat(pa.scalar(0, pa.int16()), len(values))
    types = batch.column("type").fill_null(0)
    least, greatest = (value.as_py() for value in pc.min_max(types).values())
    if least < 0 or greatest > MAX_ROW_TYPE:
        raise UsageError(
            f"the types of rows lie between 0 and {MAX_ROW_TYPE}; there is one of {least if least < 0 else greatest}"
        )
    return values, types.cast(pa.int16())


def _bytes_of(values: pyarrow.Array) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(values)).as_py() or 0)


def _crc_of(path: Path) -> int:
    crc = 0
    with path.open("rb") as source:
        while data := source.read(CHUNK_BYTES):
            crc = zlib.crc32(data, crc)
    return crc


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
