"""DuckDB as the second engine: the same SQL over the same files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from ordercast.pipeline.reading import TraceRun
from ordercast.pipeline.verify.engine import EVENTS, ORDINARY, Record
from ordercast.trace.convert import parquet_schema

COLUMNS = ", ".join(f'"{name}"' for name in parquet_schema().names)
TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}


class DuckEngine:
    """What `SparkEngine` is, in DuckDB's dialect."""

    def __init__(self, runs: Sequence[TraceRun]) -> None:
        self._db = duckdb.connect()
        self._names: dict[str, str] = {}
        parts = []
        m = 0
        for r, run in enumerate(runs):
            for part in run.parts:
                for path in part.paths:
                    name = str(path).replace("'", "''")
                    files = f"read_parquet('{name}', hive_partitioning = false)"
                    parts.append(f"SELECT {r} AS r, {m} AS m, {COLUMNS} FROM {files} WHERE life = {part.life}")
                m += 1
        self._name("events")
        self._db.execute(f"CREATE VIEW oc_events AS {' UNION ALL '.join(parts)}")
        self.define(
            "ev_whole",
            EVENTS.format(
                group='"group"',
                join="array_to_string(list_sort(groups), chr(31))",
                count='"count"',
                world=self.digest("r", "underlay"),
            ),
            keep=True,
        )
        self.define("ev", ORDINARY.format(source="{ev_whole}"))

    def define(self, name: str, sql: str, *, keep: bool = False) -> None:
        text = sql.format(**self._names)
        self._name(name)
        self._db.execute(f"CREATE OR REPLACE {'TABLE' if keep else 'VIEW'} oc_{name} AS {text}")

    def only(self, name: str, lives: Collection[int]) -> None:
        self.define(name, f"SELECT * FROM {{ev}} WHERE m IN ({', '.join(map(str, sorted(lives))) or '-1'})")

    def load(self, name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None:
        schema = pa.schema([(column, TYPES[kind]) for column, kind in columns])
        arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
        table = pa.Table.from_arrays(arrays, schema=schema)
        self._name(name)
        self._db.register("given", table)
        self._db.execute(f"CREATE OR REPLACE TABLE oc_{name} AS SELECT * FROM given")
        self._db.unregister("given")

    def rows(self, sql: str) -> list[Record]:
        cursor = self._db.execute(sql.format(**self._names))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]

    def columns(self, sql: str) -> dict[str, Any]:
        table = self._db.sql(sql.format(**self._names)).to_arrow_table()
        return {name: table[name].to_numpy() for name in table.column_names}

    def begin(self, sql: str) -> Callable[[], list[Record]]:
        found = self.rows(sql)
        return lambda: found

    def digest(self, *columns: str) -> str:
        return f"hash({', '.join(columns)}) // 2"

    def each_number(self, first: str, stop: str) -> str:
        return f"unnest(range({first}, {stop}))"

    def each_name(self, column: str) -> str:
        return f"unnest(string_split({column}, chr(31)))"

    def close(self) -> None:
        self._db.close()

    def _name(self, name: str) -> None:
        self._names[name] = f"oc_{name}"


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value
