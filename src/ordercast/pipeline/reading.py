"""Trace folders as one DataFrame: the columns of docs/trace.md behind `run`, with an explicit schema.

Errors in a folder are reported before Spark starts to work on it: `inspect` reads `run.json` and the footer of each
Parquet file on the driver. Damage that shows only while rows are read (a damaged page) comes back from Spark as an
error that names the file; `explain` turns it into the same kind of error.

Run and node are not columns of the files. Spark would take the node from the folder's name, but only for one trace at a
time, and a union of as many scans as there are runs is slow to plan. So all files are one scan, and a small table that
is sent to every worker says for each file which run and node it is of.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from ordercast.errors import UsageError
from ordercast.trace.cells import TraceGarbled
from ordercast.trace.convert import EVENTS_FOLDER, RAW_FOLDER, RAW_SUFFIX, check_node_name, load_pyarrow, parquet_schema
from ordercast.trace.run import RunInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Range = tuple[int, int]

RUN: Final = "run"
NODE: Final = "node"

_PART_NAME: Final = re.compile(r"part-.*\.parquet")
_PATTERN: Final = re.compile(r"([\\*?\[\]{}])")
_FILE_IN_ERROR: Final = re.compile(r"file:/[^\s'\"]*\.parquet")


class TracePart(NamedTuple):
    """One life of one node: mostly one file. Facts that the footers do not say are None."""

    paths: tuple[Path, ...]
    node: str
    life: int
    rows: int
    is_numbered: bool | None = None  # its row groups go from one number to the next without holes between them
    last_ns: int | None = None
    underlay: str | None = None  # the one that all its rows name
    is_alone: bool = True  # no other life is in its files
    has_long_counts: bool = False  # `count` has 64 bits

    @property
    def path(self) -> Path:
        """The first file, to name it."""
        return self.paths[0]

    @property
    def name(self) -> str:
        """As rows name the life."""
        return f"{self.node}/{self.life}"


class TraceRun(NamedTuple):
    """One trace folder. `name` is its run id, with a number behind it where another folder has the same."""

    name: str
    folder: Path
    info: RunInfo
    parts: tuple[TracePart, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


class Traces(NamedTuple):
    """What a job works on."""

    runs: tuple[TraceRun, ...]
    events: DataFrame


def read_traces(spark: SparkSession, folders: Sequence[Path | str]) -> Traces:
    """The events of all these folders; `UsageError` names what cannot be used, and why."""
    runs = inspect(folders)
    return Traces(runs, events_of(spark, runs))


def inspect(folders: Sequence[Path | str]) -> tuple[TraceRun, ...]:
    """The runs of these folders, looked at without Spark."""
    if not folders:
        raise UsageError("name at least one trace folder")
    runs: list[TraceRun] = []
    seen: dict[Path, Path] = {}
    names: set[str] = set()
    for given in map(Path, folders):
        real = given.resolve()
        if real in seen:
            raise UsageError(f"{given} is named twice")
        seen[real] = given
        info, parts = _inspect(given)
        name, number = info.run_id, 1
        while name in names:
            number += 1
            name = f"{info.run_id}#{number}"
        names.add(name)
        runs.append(TraceRun(name, real, info, parts))
    return tuple(runs)


def events_of(
    spark: SparkSession, runs: Iterable[TraceRun], *, numbered: bool = False, only: Collection[int] | None = None
) -> DataFrame:
    """One row for each event: `run`, then the columns of docs/trace.md.

    `numbered`: instead of run and node their numbers, `r` for the run and `m` for the part (a life of a node), in the
    order in which `runs` and their parts come. Numbers are quicker to group by than names. `only`: the parts with these
    numbers, and no other file is read. `w` is a digest of run and underlay, null if a file has several underlays.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

    runs = tuple(runs)
    parts = [part for run in runs for part in run.parts]
    are_alone = all(part.is_alone for part in parts)
    scan = (
        spark.read.schema(file_schema(has_long_counts=any(part.has_long_counts for part in parts)))
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .parquet(*_paths(runs, only))
    )
    # By a hash of the path as Spark spells it: a number is quicker to look up for every row than a long text.
    owners: dict[Path, list[tuple[str, str, int, int, str | None, int]]] = {}
    m = 0
    for r, run in enumerate(runs):
        for part in run.parts:
            for path in part.paths:
                owners.setdefault(path, []).append((run.name, part.node, r, m, part.underlay, part.life))
            m += 1
    spelled = [
        (name.replace("file:///", "file:/", 1), *owner)
        for name in scan.inputFiles()
        for owner in owners.get(_path_of(name), ())
    ]
    named = StructType(
        [
            StructField("path", StringType(), nullable=False),
            StructField(RUN, StringType(), nullable=False),
            StructField(NODE, StringType(), nullable=False),
            StructField("r", IntegerType(), nullable=False),
            StructField("m", IntegerType(), nullable=False),
            StructField("only", StringType()),
            StructField("of_life", LongType()),
        ]
    )
    files = spark.createDataFrame(spelled, named).withColumn("file_hash", F.xxhash64("path")).drop("path")
    if numbered:
        files = files.withColumn("w", F.when(F.col("only").isNotNull(), F.xxhash64("r", "only")))
    columns = ("r", "m", "w") if numbered else (RUN, NODE)
    if only is not None:
        files = files.where(F.col("m").isin(sorted(only)))  # their files may hold others, too
    hashed = scan.withColumn("file_hash", F.xxhash64(F.col("_metadata.file_path")))
    same = hashed["file_hash"] == files["file_hash"]
    return hashed.join(F.broadcast(files), same if are_alone else same & (hashed["life"] == files["of_life"])).select(
        *columns, *file_schema().fieldNames()
    )


def _paths(runs: Sequence[TraceRun], only: Collection[int] | None) -> list[str]:
    if only is None:
        return [_literal(run.folder / EVENTS_FOLDER) for run in runs]
    parts = [part for run in runs for part in run.parts]
    return sorted({_literal(path) for number in only for path in parts[number].paths})


def file_schema(*, has_long_counts: bool = False) -> StructType:
    """The columns of a part file as Spark's types: those of `trace.convert.parquet_schema`, in its order."""
    from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

    kinds: dict[str, Any] = {
        "string": StringType(),
        "int64": LongType(),
        "int32": LongType() if has_long_counts else IntegerType(),
        "list": ArrayType(StringType(), containsNull=False),
    }
    return StructType(
        [
            StructField(field.name, kinds[str(field.type).partition("<")[0]], nullable=field.nullable)
            for field in parquet_schema()
        ]
    )


def event_schema() -> StructType:
    """The schema of `events_of`."""
    from pyspark.sql.types import StringType, StructField, StructType

    first = [StructField(RUN, StringType(), nullable=False), StructField(NODE, StringType(), nullable=False)]
    return StructType(first + file_schema().fields)


def explain(error: Exception) -> UsageError | None:
    """What Spark's error says about the input; None if it is not about the input."""
    text = str(error)
    is_about_files = any(
        word in text
        for word in (
            "FAILED_READ_FILE",
            "CANNOT_READ_FILE",
            "Encountered error while reading file",
            "is not a Parquet file",
            "PATH_NOT_FOUND",
            "FileNotFoundException",
        )
    )
    if not is_about_files:
        return None
    found = _FILE_IN_ERROR.search(text)
    what = _path_of(found[0]) if found else "a file of the trace"
    return UsageError(f"{what} cannot be read: it is damaged, or was removed")


def _inspect(folder: Path) -> tuple[RunInfo, tuple[TracePart, ...]]:
    if not folder.exists():
        raise UsageError(f"{folder} does not exist")
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; name the folder of a trace")
    try:
        info = RunInfo.read(folder)
    except (TraceGarbled, FileNotFoundError) as error:
        raise UsageError(str(error)) from error
    events = folder / EVENTS_FOLDER
    if not events.is_dir():
        if any((folder / RAW_FOLDER).glob(f"*{RAW_SUFFIX}")):
            raise UsageError(f"{folder} has only raw files: turn them into Parquet first (ordercast.trace.convert)")
        raise UsageError(f"{folder} has no folder {EVENTS_FOLDER}: nothing was recorded, or it was not converted")
    parts: list[TracePart] = []
    nodes = 0
    for node_folder in sorted(events.iterdir()):
        if node_folder.name.startswith((".", "_")):
            continue
        if not node_folder.is_dir() or not node_folder.name.startswith("node="):
            raise UsageError(f"{node_folder} does not belong into a trace: it is not a folder node=<name>")
        nodes += 1
        parts.extend(_parts_of(node_folder))
    if not nodes:
        raise UsageError(f"{events} is empty: no node=<name>/part-*.parquet in it")
    if not parts:
        raise UsageError(f"{events} holds no events: all its files are empty")
    return info, tuple(parts)


def _parts_of(folder: Path) -> list[TracePart]:
    node = folder.name.removeprefix("node=")
    try:
        check_node_name(node)
    except ValueError as error:
        raise UsageError(f"{folder}: {error}") from error
    files: list[_File] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")):
            continue  # temporary files of a writer, which Spark ignores, too
        if _PART_NAME.fullmatch(path.name) is None:
            raise UsageError(f"{path} is not named part-*.parquet")
        files.append(_file_of(path))
    if not files:
        raise UsageError(f"{folder} is empty: it has no part-*.parquet")
    lives = sorted({life for file in files for life in file.lives})
    return [_life_of(node, life, [file for file in files if life in file.lives]) for life in lives]


class _File(NamedTuple):
    """What the footer of a file says, checked; None or empty if it does not say it."""

    path: Path
    lives: dict[int, int]  # with their numbers of rows
    numbers: list[Range] | None  # of each row group that has all between its least and greatest
    last_ns: int | None
    underlays: frozenset[str | None]
    has_long_counts: bool


def _life_of(node: str, life: int, files: list[_File]) -> TracePart:
    due, numbers = 0, sorted(one for file in files for one in file.numbers or [])
    is_numbered: bool | None = all(file.numbers is not None and len(file.lives) == 1 for file in files) or None
    for first, stop in numbers if is_numbered else ():
        is_numbered = is_numbered and first == due
        due = stop
    times = [file.last_ns for file in files]
    underlays = {name for file in files for name in file.underlays}
    return TracePart(
        tuple(file.path for file in files),
        node,
        life,
        sum(file.lives[life] for file in files),
        is_numbered,
        max(time for time in times if time is not None) if is_numbered and None not in times else None,
        underlays.pop() if len(underlays) == 1 else None,
        all(len(file.lives) == 1 for file in files),
        any(file.has_long_counts for file in files),
    )


def _file_of(path: Path) -> _File:
    pa, pq = load_pyarrow()
    if path.stat().st_size == 0:
        raise UsageError(f"{path} is empty: not even a Parquet footer is in it")
    try:
        with pq.ParquetFile(path) as file:
            schema, footer = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} is torn or not Parquet: {error}") from error
    wanted = parquet_schema()
    wrong = _difference(schema, wanted)
    if wrong is not None:
        raise UsageError(f"{path} has an unknown schema: {wrong}")
    numbers: list[Range] | None = []
    lives: dict[int, int] | None = {}
    last_ns: int | None = 0
    underlays: set[str | None] = set()
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        n, life, when, underlay = (_bounds(group.column(places[name])) for name in ("n", "life", "at_ns", "underlay"))
        is_whole = n is not None and n[1] - n[0] == group.num_rows - 1
        numbers = [*numbers, (n[0], n[1] + 1)] if numbers is not None and n is not None and is_whole else None
        last_ns = max(last_ns, when[1]) if last_ns is not None and when is not None else None
        underlays |= set(underlay or ("", None))
        if lives is not None and life is not None and life[0] == life[1]:
            lives[life[0]] = lives.get(life[0], 0) + group.num_rows
        else:
            lives = None
    if lives is None:
        counted = pq.read_table(path, columns=["life"], partitioning=None)["life"].value_counts().to_pylist()
        lives = {one["values"]: one["counts"] for one in counted if one["values"] is not None}
    long = str(schema.field("count").type) == "int64"
    return _File(path.resolve(), lives, numbers, last_ns, frozenset(underlays), long)


def _bounds(column: Any) -> tuple[Any, Any] | None:
    """The least and greatest value of a column of a row group, if it says so and has no nulls."""
    found = column.statistics
    if found is None or not found.has_min_max or not found.has_null_count or found.null_count:
        return None
    return found.min, found.max


def _difference(found: Any, wanted: Any) -> str | None:
    """How a schema differs from that of a trace. The order of columns and whether they may have nulls do not count:
    other programs write traces, too."""
    missing = [name for name in wanted.names if name not in found.names]
    if missing:
        return f"column {missing[0]} is missing"
    extra = [name for name in found.names if name not in (*wanted.names, NODE, RUN)]
    if extra:
        return f"column {extra[0]} is none of a trace"
    for field in wanted:
        other = found.field(field.name)
        if _kind_of(other.type) != _kind_of(field.type) and not (field.name == "count" and str(other.type) == "int64"):
            return f"column {field.name} is {other.type}, not {field.type}"
    return None


def _kind_of(kind: Any) -> str:
    """The type as Parquet has it: there are several Arrow types for text and for lists of it."""
    pa, _ = load_pyarrow()
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {_kind_of(kind.value_type)}"
    return "string" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else str(kind)


def _literal(path: Path) -> str:
    """A path in which Hadoop sees no pattern."""
    return _PATTERN.sub(r"\\\1", str(path))


def _path_of(uri: str) -> Path:
    return Path(unquote(re.sub("^file:/+", "/", uri)))
