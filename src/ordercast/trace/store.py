"""Reading a trace folder back into rows, for checkers and tests that do not need Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ordercast.trace.cells import TraceGarbled
from ordercast.trace.convert import EVENTS_FOLDER, check_node_name, load_pyarrow, parquet_schema
from ordercast.trace.run import RunInfo
from ordercast.trace.schema import COLUMNS, Row

BATCH_ROWS: Final = 1 << 14  # rows taken out of Parquet at a time

_PART_NAME: Final = re.compile(r"part-(?P<life>0|[1-9][0-9]{0,18})\.parquet")
_LISTS: Final = ("groups", "members", "came_with")


def read_trace(folder: Path) -> tuple[RunInfo, list[Row]]:
    """The run and all its rows, by node, life and n. Everything is in memory at once: `iter_rows` is for long runs."""
    return RunInfo.read(folder), list(iter_rows(folder))


def iter_rows(folder: Path) -> Iterator[Row]:
    """The rows of a trace folder by node, life and n, in bounded memory."""
    for node_folder in sorted((folder / EVENTS_FOLDER).glob("node=*")):
        node = node_folder.name.removeprefix("node=")
        check_node_name(node)
        parts: list[tuple[int, Path]] = []
        for path in node_folder.glob("*.parquet"):
            match = _PART_NAME.fullmatch(path.name)
            if match is None:
                raise TraceGarbled(f"{path} is not named part-<life>.parquet")
            parts.append((int(match["life"]), path))
        # By number: part-10 comes after part-9.
        for life, path in sorted(parts):
            yield from _rows_of_part(path, node, life)


def _rows_of_part(path: Path, node: str, life: int) -> Iterator[Row]:
    pa, pq = load_pyarrow()
    expected = 0
    try:
        with pq.ParquetFile(path) as file:
            if not file.schema_arrow.equals(parquet_schema()):
                raise TraceGarbled(f"{path} does not have the columns of a trace")
            for batch in file.iter_batches(BATCH_ROWS):
                for row in _rows_of_batch(batch, node):
                    if row.life != life or row.n != expected:
                        raise TraceGarbled(f"{path}: row {row.life}/{row.n} stands where {life}/{expected} is due")
                    expected += 1
                    yield row
    except (pa.ArrowException, OSError) as error:
        raise TraceGarbled(f"{path} cannot be read as Parquet: {error}") from error


def _rows_of_batch(batch: Any, node: str) -> Iterator[Row]:
    columns = []
    for name in COLUMNS[1:]:
        values = batch.column(name).to_pylist()
        if name in _LISTS:
            values = [None if value is None else tuple(value) for value in values]
        columns.append(values)
    for values in zip(*columns, strict=True):
        yield Row(node, *values)
