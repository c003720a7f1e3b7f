"""What a plan is made from: subscriptions, rates, changes. Parquet, CSV or traces; errors name the file and the column.

| table | columns |
|---|---|
| subscriptions | `node`, `group`: text or whole numbers, which become text; any further columns are ignored |
| rates | `group`, `rate`: messages a second, not negative |
| changes | `node`, `group`, `change`: `join` or `leave` |

A table is a file, several files, or a folder of them, all Parquet or all CSV with a first line of names. The state of a
membership service is subscriptions in the first form. Footers and first lines are looked at before Spark starts; what
shows only in rows (an empty cell, a line with too few cells) is counted by `check`, and then looked for in its file.
Footers of Parquet mostly say that no cell is empty: then `check` reads no rows.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.pipeline.reading import TraceRun, events_of, inspect
from ordercast.trace.convert import load_pyarrow
from ordercast.trace.run import FILE_NAME as RUN_FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET, CSV, TRACE = "parquet", "csv", "trace"
SUFFIXES: Final = {".parquet": PARQUET, ".csv": CSV}
BYTES_OF_A_LINE: Final = 16  # a guess at how many rows a CSV file has
ROWS_OF_A_PARTITION: Final = 250_000  # few enough that the nodes of a task stay in the caches of its processor
MOST_HEADER: Final = 1 << 16  # bytes of the first line of a CSV file
BROKEN: Final = "_broken_line"
CHANGES: Final = ("join", "leave")

TEXT, NUMBER = "text or whole numbers", "numbers"


class InputTable(NamedTuple):
    """Files of one kind, checked as far as that goes without reading rows."""

    kind: str
    files: tuple[Path, ...]
    wanted: dict[str, str]  # column -> TEXT or NUMBER
    names: tuple[str, ...]  # of CSV: all columns
    rows_guess: int
    runs: tuple[TraceRun, ...] = ()
    is_full: bool = False  # footers say that no wanted cell is empty

    def frame(self, spark: SparkSession) -> DataFrame:
        """The wanted columns, text or double; of traces, the groups that nodes were in."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        if self.kind == TRACE:
            from ordercast.pipeline.regions.traces import memberships

            return memberships(events_of(spark, self.runs))
        types = {name: "double" if kind == NUMBER else "string" for name, kind in self.wanted.items()}
        return self._scan(spark).select(*(F.col(f"`{name}`").cast(kind).alias(name) for name, kind in types.items()))

    def check(self, spark: SparkSession) -> None:
        """`UsageError` where a cell of a wanted column is empty, no number, negative, or a line is broken."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        if self.kind == TRACE:
            return
        faults = self._faults()
        if self.is_full and all(fault.startswith("empty ") for fault in faults):
            return
        rows = self._scan(spark)
        (counted,) = rows.agg(*(F.count_if(fault).alias(name) for name, fault in faults.items())).collect()
        for name, fault in faults.items():
            if counted[name]:
                # With the wanted columns: Spark refuses a query that looks at nothing but broken lines.
                wanted = [F.col(f"`{column}`") for column in self.wanted]
                where = rows.where(fault).select(F.col("_metadata.file_path"), *wanted).first()
                raise UsageError(_sentence(name, counted[name], where[0] if where else "?"))

    def _scan(self, spark: SparkSession) -> DataFrame:
        paths = [str(path) for path in self.files]
        if self.kind == PARQUET:
            return spark.read.parquet(*paths)
        from pyspark.sql.types import StringType, StructField, StructType

        schema = StructType([StructField(name, StringType()) for name in (*self.names, BROKEN)])
        reader = spark.read.schema(schema).option("header", "true").option("columnNameOfCorruptRecord", BROKEN)
        # All columns are read, also where a query wants few: otherwise Spark does not see that a line is too short.
        return reader.option("enforceSchema", "true").option("columnPruning", "false").csv(paths)

    def _faults(self) -> dict[str, Any]:
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        found = {}
        if self.kind == CSV:
            found["line"] = F.col(BROKEN).isNotNull()
        for name, kind in self.wanted.items():
            cell = F.col(f"`{name}`")
            found[f"empty {name}"] = cell.isNull() | (cell.cast("string") == "")
            if kind == NUMBER:
                number = cell.try_cast("double")
                found[f"number {name}"] = cell.isNotNull() & (
                    number.isNull() | F.isnan(number) | (number < 0) | (number == float("inf"))
                )
            if name == "change":
                found[f"word {name}"] = cell.isNotNull() & ~cell.isin(*CHANGES)
        return found


def open_subscriptions(paths: Sequence[Path]) -> InputTable:
    """subscriptions(node, group)."""
    if any((path / RUN_FILE).is_file() for path in paths):
        runs = inspect(paths)
        return InputTable(TRACE, tuple(run.folder for run in runs), {}, (), sum(run.rows for run in runs), runs)
    return _open(paths, {"node": TEXT, "group": TEXT}, "subscriptions")


def open_changes(paths: Sequence[Path]) -> InputTable:
    """changes(node, group, change)."""
    return _open(paths, {"node": TEXT, "group": TEXT, "change": TEXT}, "changes")


def open_rates(path: Path) -> InputTable:
    """rates(group, rate)."""
    return _open([path], {"group": TEXT, "rate": NUMBER}, "rates")


def partitions_for(rows: int, least: int = 1) -> int:
    """So many that a task collects the rows of few nodes. A sixth as many cost half as much processor time again."""
    return max(least, -(-rows // ROWS_OF_A_PARTITION))


def _open(paths: Sequence[Path], wanted: dict[str, str], what: str) -> InputTable:
    files = [file for path in paths for file in _files_of(path, what)]
    kinds = {SUFFIXES[file.suffix.lower()] for file in files}
    if len(kinds) > 1:
        raise UsageError(f"{what} are of one kind, Parquet or CSV: {files[0]} and others are of both")
    (kind,) = kinds
    rows, is_full = 0, kind == PARQUET
    names: tuple[str, ...] = ()
    for file in files:
        if kind == PARQUET:
            more, has_all = _look_at_parquet(file, wanted)
            rows, is_full = rows + more, is_full and has_all
        else:
            header = _csv_names(file, wanted)
            if names and header != names:
                raise UsageError(f"{file}: its first line differs from that of {files[0]}: {', '.join(header)}")
            names = header
            rows += file.stat().st_size // BYTES_OF_A_LINE
    return InputTable(kind, tuple(files), wanted, names, rows, is_full=is_full)


def _files_of(path: Path, what: str) -> list[Path]:
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    if path.is_file():
        if path.suffix.lower() not in SUFFIXES:
            raise UsageError(f"{path} is neither .parquet nor .csv: name a file of {what}, or a folder of them")
        return [path.resolve()]
    found = sorted(
        file.resolve()
        for file in path.iterdir()
        if file.suffix.lower() in SUFFIXES and not file.name.startswith((".", "_"))
    )
    if not found:
        raise UsageError(f"{path} has neither {RUN_FILE} (a trace) nor files .parquet or .csv ({what})")
    return found


def _look_at_parquet(file: Path, wanted: dict[str, str]) -> tuple[int, bool]:
    """Its rows, and whether its footer says that no wanted cell is empty."""
    pa, pq = load_pyarrow()
    try:
        with pq.ParquetFile(file) as opened:
            schema, metadata = opened.schema_arrow, opened.metadata
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{file} is torn or not Parquet: {error}") from error
    for name, kind in wanted.items():
        if name not in schema.names:
            raise UsageError(f"{file}: column {name} is missing; it has {', '.join(schema.names) or 'none'}")
        held = schema.field(name).type
        if pa.types.is_dictionary(held):
            held = held.value_type
        is_whole = pa.types.is_integer(held)
        is_text = pa.types.is_string(held) or pa.types.is_large_string(held)
        fits = is_whole or pa.types.is_floating(held) if kind == NUMBER else is_whole or is_text
        if not fits:
            raise UsageError(f"{file}: column {name} is {held}; it has to be {kind}")
    return int(metadata.num_rows), _is_full(metadata, wanted)


def _is_full(metadata: Any, wanted: Collection[str]) -> bool:
    """Whether statistics of all parts of a file say that no cell is null or an empty text. False also if they are not
    there."""
    for part in range(metadata.num_row_groups):
        group = metadata.row_group(part)
        columns = [group.column(place) for place in range(group.num_columns)]
        found = [column.statistics for column in columns if column.path_in_schema in wanted]
        if len(found) < len(wanted):
            return False
        for told in found:
            if (
                told is None
                or not told.has_null_count
                or told.null_count
                or not told.has_min_max
                or told.min in ("", b"")
            ):
                return False
    return True


def _csv_names(file: Path, wanted: dict[str, str]) -> tuple[str, ...]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            line = opened.readline(MOST_HEADER)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    names = tuple(name.strip() for name in next(csv.reader([line]), []))
    if not any(names):
        raise UsageError(f"{file} is empty: its first line names the columns {', '.join(wanted)}")
    for name in wanted:
        if names.count(name) != 1:
            how = "is missing" if name not in names else "stands there twice"
            raise UsageError(f"{file}: column {name} {how} in its first line: {', '.join(names)}")
    if len(set(names)) < len(names):
        raise UsageError(f"{file}: a column stands twice in its first line: {', '.join(names)}")
    return names


def _sentence(fault: str, count: int, uri: str) -> str:
    from urllib.parse import unquote

    file = unquote(uri.removeprefix("file://").replace("file:", ""))
    kind, _, name = fault.partition(" ")
    rows = f"{count:,} row{'s' * (count > 1)}"
    if kind == "line":
        return f"{file}: {rows} (in all files) have too few or too many cells"
    if kind == "empty":
        return f"{file}: column {name} is empty in {rows} (in all files)"
    if kind == "number":
        return f"{file}: column {name} is no number, or negative, in {rows} (in all files)"
    return f"{file}: column {name} is neither {' nor '.join(CHANGES)} in {rows} (in all files)"
