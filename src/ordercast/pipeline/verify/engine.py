"""What the checks need of a SQL engine, and Spark as one.

The checks are SQL text that two engines understand, Spark here and DuckDB in the tests, so that an error of an engine
does not pass for a property of a trace. Where the dialects differ the text is made by a method of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

from ordercast.pipeline.reading import TraceRun, events_of
from ordercast.trace.naming import REGIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Record = dict[str, Any]

PREFIX: Final = "ordercast_"  # of the names of temporary views, which keeps them apart from those of a caller's session


class SqlEngine(Protocol):
    """Runs SQL. Names of tables are written in braces: `FROM {sub}`."""

    def define(self, name: str, sql: str, *, keep: bool = False) -> None:
        """Name the result; `keep` it if it is read more than once."""

    def only(self, name: str, lives: Collection[int]) -> None:
        """Name the rows of `ev` of these lives, without reading the others."""

    def load(self, name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None:
        """Name a small table; the types are `int`, `bigint` and `string`."""

    def rows(self, sql: str) -> list[Record]:
        """Run it, and bring the result here: small."""

    def columns(self, sql: str) -> dict[str, Any]:
        """Run it, and bring the result here as arrays of numbers: for what may have millions of rows."""

    def begin(self, sql: str) -> Callable[[], list[Record]]:
        """Start it in the background; call the returned function to wait for the result. It fills cores that another
        query leaves idle while it plans, or builds what it sends to every worker."""

    def digest(self, *columns: str) -> str:
        """A 64-bit number, signed, that stands for these values; the same for equal ones."""

    def each_number(self, first: str, stop: str) -> str:
        """In a SELECT: one row for each number of `[first, stop)`, which is not empty."""

    def each_name(self, column: str) -> str:
        """In a SELECT: one row for each name of a target."""

    def close(self) -> None:
        """Forget all tables."""


class SparkEngine:
    """Spark, over the files of these runs."""

    def __init__(self, spark: SparkSession, runs: Sequence[TraceRun]) -> None:
        self._spark = spark
        self._runs = runs
        self._names: dict[str, str] = {}
        self._kept: list[DataFrame] = []
        self._beside = ThreadPoolExecutor(1, "verify")
        self._define_events("ev", None)

    def define(self, name: str, sql: str, *, keep: bool = False) -> None:
        frame = self._spark.sql(sql.format(**self._names))
        if keep:
            from pyspark import StorageLevel

            frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
            self._kept.append(frame)
        self._name(name, frame)

    def only(self, name: str, lives: Collection[int]) -> None:
        self._define_events(name, lives)

    def load(self, name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None:
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        schema = ", ".join(f"{column} {kind}" for column, kind in columns)
        self._name(name, F.broadcast(self._spark.createDataFrame(list(map(tuple, rows)), schema)))

    def rows(self, sql: str) -> list[Record]:
        found: list[Record] = self._arrow(sql).to_pylist()
        return found

    def columns(self, sql: str) -> dict[str, Any]:
        table = self._arrow(sql)
        return {name: table[name].to_numpy() for name in table.column_names}

    def begin(self, sql: str) -> Callable[[], list[Record]]:
        return self._beside.submit(self.rows, sql).result

    def digest(self, *columns: str) -> str:
        return f"xxhash64({', '.join(columns)})"

    def each_number(self, first: str, stop: str) -> str:
        return f"explode(sequence({first}, {stop} - 1))"

    def each_name(self, column: str) -> str:
        return f"explode(split({column}, chr(31)))"

    def close(self) -> None:
        self._beside.shutdown(cancel_futures=True)
        for frame in self._kept:
            frame.unpersist()
        for name in self._names.values():
            self._spark.catalog.dropTempView(name)

    def _arrow(self, sql: str) -> Any:
        return self._spark.sql(sql.format(**self._names)).toArrow()

    def _define_events(self, name: str, lives: Collection[int] | None) -> None:
        self._name(f"{name}_files", events_of(self._spark, self._runs, numbered=True, only=lives))
        words = {
            "group": "`group`",
            "join": "array_join(array_sort(`groups`), chr(31))",
            "count": "`count`",
            "world": "coalesce(w, xxhash64(r, underlay))",
        }
        self.define(f"{name}_whole", EVENTS.format(**words).replace("{events}", f"{{{name}_files}}"))
        self.define(name, ORDINARY.format(source=f"{{{name}_whole}}"))

    def _name(self, name: str, frame: DataFrame) -> None:
        self._names[name] = PREFIX + name
        frame.createOrReplaceTempView(PREFIX + name)


# Short names, since the checks use them on every line: m the life (a number), r the run, u the underlay, w a digest of
# both, vw the view, tgt its target (of several groups the names, sorted, with `history.BETWEEN` between them), [a, b)
# the numbers, svc the service as 256 * rank + k, pos and prev the positions.
EVENTS: Final = """
SELECT m, r, n, at_ns, kind, underlay AS u, {world} AS w, view AS vw, members, came_with, sender, first AS a,
  first + {count} AS b,
  CASE service WHEN 'AGREED' THEN 1024 WHEN 'SAFE' THEN 1792 WHEN 'FIFO' THEN 512 WHEN 'MAJORITY' THEN 1536
    WHEN 'RELIABLE' THEN 256 WHEN 'CAUSAL' THEN 768 WHEN 'UNRELIABLE' THEN 0
    ELSE CASE WHEN service LIKE 'RESILIENT(%)'
      THEN 1280 + CAST(substr(service, 11, length(service) - 11) AS INT) END END AS svc,
  CASE WHEN `groups` IS NULL THEN coalesce({group}, '') ELSE {join} END AS tgt,
  position AS pos, prev_position AS prev, service, detail,
  CASE WHEN underlay = '@' OR underlay LIKE 'region/%' THEN 1 ELSE 0 END AS is_regional
FROM {{events}}
""".replace("`groups`", "groups").replace("@", REGIONS)

# Rows of regions have tables of their own (`region_facts.py`).
ORDINARY: Final = "SELECT * FROM {source} WHERE is_regional = 0"
