"""Traces as one DataFrame, and a clear word for each thing that can be wrong with a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.errors import UsageError
from ordercast.pipeline.reading import event_schema, explain, inspect, read_traces
from ordercast.pipeline.verify.job import verify
from ordercast.trace.convert import parquet_schema, write_rows
from ordercast.trace.run import RunInfo
from ordercast.trace.schema import COLUMNS, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(folder: Path, seed: int = 1, nodes: str = "ab") -> Path:
    info = RunInfo.simulated(seed=seed, orderer="token", services=("AGREED",), parameters={})
    info.write(folder)
    rows = [Row(node, 0, n, 10 + n, kind, "u") for node in nodes for n, kind in enumerate(("start", "stop"))]
    view = Row("a", 1, 0, 20, "view", "u", members=("a/1",), came_with=("a/1",), view="1@a/1")
    write_rows(folder, [*rows, view])
    return folder


def test_two_runs_are_one_frame_with_run_and_node(spark: SparkSession, tmp_path: Path) -> None:
    one, two = write(tmp_path / "one"), write(tmp_path / "two", seed=2, nodes="abc")
    traces = read_traces(spark, [one, two])
    assert traces.events.columns == ["run", *COLUMNS]
    assert traces.events.columns == event_schema().fieldNames()
    found = {
        (row.run, row.node, row.life, row["count"])
        for row in traces.events.groupBy("run", "node", "life").count().collect()
    }
    first, second = (run.name for run in traces.runs)
    lives = [("a", 0, 2), ("b", 0, 2), ("a", 1, 1)]
    assert found == {(first, *life) for life in lives} | {(second, *life) for life in [*lives, ("c", 0, 2)]}
    view = traces.events.where("kind = 'view'").first()
    assert view is not None
    assert view.members == ["a/1"]
    assert [run.rows for run in traces.runs] == [5, 7]


def test_odd_names_of_folders_are_no_patterns(spark: SparkSession, tmp_path: Path) -> None:
    folder = write(tmp_path / "a [b]{c}* %20 é+@")
    (folder / "events" / "node=b").rename(folder / "events" / "node=x@y+z")
    traces = read_traces(spark, [folder])
    assert sorted(row.node for row in traces.events.select("node").distinct().collect()) == ["a", "x@y+z"]


def test_the_same_run_in_two_folders_has_two_names(tmp_path: Path) -> None:
    one, two = inspect([write(tmp_path / "one"), write(tmp_path / "two")])
    assert two.name == f"{one.name}#2"


def _remove(*parts: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder.joinpath(*parts)
        if path.is_dir():
            for each in sorted(path.rglob("*"), reverse=True):
                each.unlink() if each.is_file() else each.rmdir()
            path.rmdir()
        else:
            path.unlink()

    return change


def _part(folder: Path) -> Path:
    return folder / "events" / "node=b" / "part-0.parquet"


def _empty_file(folder: Path) -> None:
    _part(folder).write_bytes(b"")


def _torn(folder: Path) -> None:
    _part(folder).write_bytes(_part(folder).read_bytes()[:-7])


def _foreign(folder: Path) -> None:
    _part(folder).write_bytes(b"PAR1 this is not what it says")


def _another_schema(folder: Path) -> None:
    table = pq.read_table(_part(folder), partitioning=None)
    pq.write_table(table.drop_columns(["prev_position"]), _part(folder))


def _another_type(folder: Path) -> None:
    schema = parquet_schema()
    at = schema.get_field_index("first")
    pq.write_table(pa.table(schema.empty_table()).cast(schema.set(at, pa.field("first", pa.float64()))), _part(folder))


def _one_column_more(folder: Path) -> None:
    table = pq.read_table(_part(folder), partitioning=None)
    pq.write_table(table.append_column("mood", pa.array(["fine"] * len(table))), _part(folder))


def _no_rows(folder: Path) -> None:
    for path in folder.rglob("*.parquet"):
        pq.write_table(parquet_schema().empty_table(), path)


def _stray(folder: Path) -> None:
    (_part(folder).parent / "notes.txt").write_text("hello")


def _bad_json(folder: Path) -> None:
    (folder / "run.json").write_text("{")


@pytest.mark.parametrize(
    ("change", "names", "says"),
    [
        (_remove(), "trace", "does not exist"),
        (_remove("run.json"), "trace", "has no run.json"),
        (_bad_json, "run.json", "is not JSON"),
        (_remove("events"), "trace", "has no folder events"),
        (_remove("events", "node=b", "part-0.parquet"), "node=b", "is empty"),
        (_empty_file, "part-0.parquet", "is empty"),
        (_torn, "part-0.parquet", "torn or not Parquet"),
        (_foreign, "part-0.parquet", "torn or not Parquet"),
        (_another_schema, "part-0.parquet", "unknown schema: column prev_position is missing"),
        (_another_type, "part-0.parquet", "unknown schema: column first is double, not int64"),
        (_one_column_more, "part-0.parquet", "unknown schema: column mood is none of a trace"),
        (_no_rows, "events", "holds no events"),
        (_stray, "notes.txt", "is not named part-*.parquet"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, change: Callable[[Path], None], names: str, says: str) -> None:
    folder = write(tmp_path / "trace")
    change(folder)
    with pytest.raises(UsageError) as caught:
        inspect([folder])
    assert names in str(caught.value)
    assert says in str(caught.value)


def _by_duckdb(path: Path) -> None:
    """All columns may be null, integers are as wide as it likes, the file has another name."""
    new = path.with_name(f"part-0000{path.stem[-1]}-by-duckdb.parquet")
    duckdb.execute(
        f"COPY (SELECT * REPLACE (\"count\"::BIGINT AS \"count\"), 'x' AS node FROM read_parquet('{path}', "
        f"hive_partitioning = false)) TO '{new}' (FORMAT parquet)"
    )
    path.unlink()


def _in_another_order(path: Path) -> None:
    table = pq.read_table(path, partitioning=None)
    nullable = pa.schema([field.with_nullable(True) for field in table.schema])
    pq.write_table(table.cast(nullable).select(sorted(table.column_names)), path, write_statistics=False)


def _in_two_files(path: Path) -> None:
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.slice(1), path.with_name(f"part-{path.stem[-1]}-a.parquet"))
    pq.write_table(table.slice(0, 1), path)


def _two_lives_in_one(path: Path) -> None:
    table = pq.read_table(path, partitioning=None)
    other = path.with_name("part-all.parquet")
    if other.exists():
        table = pa.concat_tables([pq.read_table(other, partitioning=None), table])
    pq.write_table(table, other)
    path.unlink()


def test_traces_that_others_wrote_read_the_same(spark: SparkSession, tmp_path: Path) -> None:
    plain = write(tmp_path / "plain")
    folders = []
    for rewrite in (_by_duckdb, _in_another_order, _in_two_files, _two_lives_in_one):
        folder = write(tmp_path / rewrite.__name__)
        for path in sorted(folder.rglob("*.parquet")):
            rewrite(path)
        folders.append(folder)
    (whole,), others = inspect([plain]), inspect(folders)
    for run in others:
        assert [(part.name, part.rows) for part in run.parts] == [(part.name, part.rows) for part in whole.parts]
        assert all(part.is_numbered in (True, None) for part in run.parts)
    traces = read_traces(spark, [plain, *folders])
    rows: dict[str, list[str]] = {}
    for row in traces.events.toArrow().to_pylist():
        rows.setdefault(row.pop("run"), []).append(repr(row))
    assert len(rows) == 5
    assert all(sorted(each) == sorted(rows[whole.name]) for each in rows.values())
    checked = verify(spark, [whole]).checked
    assert verify(spark, others).checked == {name: 4 * count for name, count in checked.items()}


def test_rows_that_are_missing_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    folder = write(tmp_path / "trace")
    table = pq.read_table(_part(folder), partitioning=None)
    pq.write_table(table.slice(1), _part(folder))
    assert not inspect([folder])[0].parts[2].is_numbered
    with pytest.raises(UsageError, match="events are missing or there twice"):
        verify(spark, inspect([folder]))


def test_a_folder_named_twice_and_none_at_all(tmp_path: Path) -> None:
    folder = write(tmp_path / "trace")
    with pytest.raises(UsageError, match="named twice"):
        inspect([folder, folder / "."])
    with pytest.raises(UsageError, match="at least one"):
        inspect([])


def test_a_damaged_page_is_named_when_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = write(tmp_path / "trace")
    damaged = bytearray(_part(folder).read_bytes())
    damaged[4:200] = bytes(196)
    _part(folder).write_bytes(damaged)
    traces = read_traces(spark, [folder])
    with pytest.raises(Exception, match="READ_FILE") as caught:
        traces.events.selectExpr("max(n)", "max(kind)", "max(life)", "max(at_ns)").collect()
    word = explain(caught.value)
    assert word is not None
    assert str(_part(folder)) in str(word)
    assert explain(ValueError("something else")) is None
