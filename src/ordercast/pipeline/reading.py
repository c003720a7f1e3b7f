"""Trace folders as one DataFrame: the columns of TRACE.md behind `run`, with an explicit schema.

Everything that can be wrong with a folder is said before Spark starts to work on it, by the name of what is wrong:
`inspect` reads `run.json` and the footer of each Parquet file on the driver. What only shows while rows are read (a
damaged page) comes back from Spark as an error that names the file; `explain` turns it into the same kind of word.

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

RUN: Final = "run"
NODE: Final = "node"

_PART_NAME: Final = re.compile(r"part-(?P<life>0|[1-9][0-9]{0,18})\.parquet")
_PATTERN: Final = re.compile(r"([\\*?\[\]{}])")
_FILE_IN_ERROR: Final = re.compile(r"file:/[^\s'\"]*\.parquet")


class Part(NamedTuple):
    """One Parquet file: one life of one node. What its footer says beside the number of rows may be None: unknown."""

    path: Path
    node: str
    life: int
    rows: int
    is_numbered: bool | None = None  # its row groups go from one number to the next without holes between them
    last_ns: int | None = None
    underlay: str | None = None  # the one that all its rows name

    @property
    def name(self) -> str:
        """As rows name the life."""
        return f"{self.node}/{self.life}"


class Run(NamedTuple):
    """One trace folder. `name` is its run id, with a number behind it where another folder has the same."""

    name: str
    folder: Path
    info: RunInfo
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


class Traces(NamedTuple):
    """What a job works on."""

    runs: tuple[Run, ...]
    events: DataFrame


def read_traces(spark: SparkSession, folders: Sequence[Path | str]) -> Traces:
    """The events of all these folders; `UsageError` names what cannot be used, and why."""
    runs = inspect(folders)
    return Traces(runs, events_of(spark, runs))


def inspect(folders: Sequence[Path | str]) -> tuple[Run, ...]:
    """The runs of these folders, looked at without Spark."""
    if not folders:
        raise UsageError("name at least one trace folder")
    runs: list[Run] = []
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
        runs.append(Run(name, real, info, parts))
    return tuple(runs)


def events_of(
    spark: SparkSession, runs: Iterable[Run], *, numbered: bool = False, only: Collection[int] | None = None
) -> DataFrame:
    """One row for each event: `run`, then the columns of TRACE.md.

    `numbered`: instead of run and node their numbers, `r` for the run and `m` for the part (a life of a node), in the
    order in which `runs` and their parts come. Numbers are quicker to group by than names. `only`: the parts with these
    numbers, and no other file is read. `w` is a digest of run and underlay, null where a file has several underlays.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    runs = tuple(runs)
    scan = (
        spark.read.schema(file_schema())
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .parquet(*_paths(runs, only))
    )
    # By a hash of the path as Spark spells it: a number is quicker to look up for every row than a long text.
    owners: dict[Path, tuple[str, str, int, int, str | None]] = {}
    for r, run in enumerate(runs):
        for part in run.parts:
            owners[part.path] = run.name, part.node, r, len(owners), part.underlay
    spelled = [(name.replace("file:///", "file:/", 1), *owners[_path_of(name)]) for name in scan.inputFiles()]
    named = StructType(
        [
            StructField("path", StringType(), nullable=False),
            StructField(RUN, StringType(), nullable=False),
            StructField(NODE, StringType(), nullable=False),
            StructField("r", IntegerType(), nullable=False),
            StructField("m", IntegerType(), nullable=False),
            StructField("only", StringType()),
        ]
    )
    files = spark.createDataFrame(spelled, named).withColumn("file_hash", F.xxhash64("path")).drop("path")
    if numbered:
        files = files.withColumn("w", F.when(F.col("only").isNotNull(), F.xxhash64("r", "only")))
    columns = ("r", "m", "w") if numbered else (RUN, NODE)
    return (
        scan.withColumn("file_hash", F.xxhash64(F.col("_metadata.file_path")))
        .join(F.broadcast(files), "file_hash")
        .select(*columns, *file_schema().fieldNames())
    )


def _paths(runs: Sequence[Run], only: Collection[int] | None) -> list[str]:
    if only is None:
        return [_literal(run.folder / EVENTS_FOLDER) for run in runs]
    parts = [part for run in runs for part in run.parts]
    return [_literal(parts[number].path) for number in sorted(only)]


def file_schema() -> StructType:
    """The columns of a part file as Spark's types: those of `trace.convert.parquet_schema`, in its order."""
    from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

    kinds: dict[str, Any] = {
        "string": StringType(),
        "int64": LongType(),
        "int32": IntegerType(),
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
    """What Spark's error says about the input; None where it is not about the input."""
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
    return UsageError(f"{what} cannot be read: it is damaged, or was taken away")


def _inspect(folder: Path) -> tuple[RunInfo, tuple[Part, ...]]:
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
    parts: list[Part] = []
    for node_folder in sorted(events.iterdir()):
        if node_folder.name.startswith((".", "_")):
            continue
        if not node_folder.is_dir() or not node_folder.name.startswith("node="):
            raise UsageError(f"{node_folder} does not belong into a trace: it is not a folder node=<name>")
        parts.extend(_parts_of(node_folder))
    if not parts:
        raise UsageError(f"{events} is empty: no node=<name>/part-<life>.parquet in it")
    if not any(part.rows for part in parts):
        raise UsageError(f"{events} holds no events: all its files are empty")
    return info, tuple(parts)


def _parts_of(folder: Path) -> list[Part]:
    node = folder.name.removeprefix("node=")
    try:
        check_node_name(node)
    except ValueError as error:
        raise UsageError(f"{folder}: {error}") from error
    found: list[Part] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")):
            continue  # of who writes or wrote here: Spark passes these over, too
        match = _PART_NAME.fullmatch(path.name)
        if match is None:
            raise UsageError(f"{path} is not named part-<life>.parquet")
        found.append(Part(path.resolve(), node, int(match["life"]), *_footer_of(path)))
    if not found:
        raise UsageError(f"{folder} is empty: it has no part-<life>.parquet")
    return sorted(found, key=lambda part: part.life)


def _footer_of(path: Path) -> tuple[int, bool | None, int | None, str | None]:
    """What the footer says, which is checked: rows, whether they are numbered without holes, the greatest time, and the
    underlay if it is one."""
    pa, pq = load_pyarrow()
    if path.stat().st_size == 0:
        raise UsageError(f"{path} is empty: not even a Parquet footer is in it")
    try:
        with pq.ParquetFile(path) as file:
            schema, footer = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} is torn or not Parquet: {error}") from error
    wanted = parquet_schema()
    if not schema.equals(wanted):
        raise UsageError(f"{path} has an unknown schema: {_difference(schema, wanted)}")
    due, last_ns, numbers, times = 0, 0, wanted.get_field_index("n"), wanted.get_field_index("at_ns")
    is_numbered, underlays = True, set()
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        number, when = group.column(numbers).statistics, group.column(times).statistics
        if number is None or when is None or not number.has_min_max or not when.has_min_max:
            return int(footer.num_rows), None, None, None
        is_numbered &= (number.min, number.max) == (due, due + group.num_rows - 1)
        due += group.num_rows
        last_ns = max(last_ns, when.max)
        named = group.column(wanted.get_field_index("underlay")).statistics
        underlays |= {named.min, named.max} if named is not None and named.has_min_max else {"", None}
    return int(footer.num_rows), is_numbered, last_ns, underlays.pop() if len(underlays) == 1 else None


def _difference(found: Any, wanted: Any) -> str:
    missing = [name for name in wanted.names if name not in found.names]
    if missing:
        return f"column {missing[0]} is missing"
    extra = [name for name in found.names if name not in wanted.names]
    if extra:
        return f"column {extra[0]} is none of a trace"
    for field in wanted:
        other = found.field(field.name)
        if other.type != field.type:
            return f"column {field.name} is {other.type}, not {field.type}"
        if other.nullable != field.nullable:
            return f"column {field.name} {'may' if other.nullable else 'must not'} be null"
    return "its columns are in another order"


def _literal(path: Path) -> str:
    """A path in which Hadoop sees no pattern."""
    return _PATTERN.sub(r"\\\1", str(path))


def _path_of(uri: str) -> Path:
    return Path(unquote(re.sub("^file:/+", "/", uri)))
