"""Rows that wait to be published: what a task leaves, what the driver takes, and what is cleaned up."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast.errors import UsageError
from ordercast.pipeline.stream.options import sink_options
from ordercast.pipeline.stream.staging import Staged, batch_folder, chunks_of, clean, remove, stage
from ordercast.service import RESILIENT, SAFE


def batch(values: Sequence[Any], types: Sequence[Any] | None = None) -> Any:
    columns = {"value": pa.array(values)}
    if types is not None:
        columns["type"] = pa.array(types, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def rows_of(staged: list[Staged]) -> list[tuple[bytes, int]]:
    return [(row, type_) for rows, type_ in chunks_of(staged) for row in rows]


def staged_in(folder: Path, partition: int, attempt: int, *batches: Any) -> Staged:
    found = stage(folder, partition, attempt, batches)
    assert found is not None
    return found


def test_rows_come_by_partition_and_row_with_their_types(tmp_path: Path) -> None:
    folder = batch_folder(tmp_path, "query", 3)
    two = staged_in(folder, 2, 8, batch(["e"]))
    one = staged_in(folder, 1, 7, batch([b"a", b"b"], [5, 5]), batch([], []), batch([b"c", b"d"], [5, None]))
    assert (one.rows, one.nbytes) == (4, 4)
    assert rows_of([two, one]) == [(b"a", 5), (b"b", 5), (b"c", 5), (b"d", 0), (b"e", 0)]
    assert [len(rows) for rows, _ in chunks_of([one])] == [2, 1, 1]


def test_a_partition_without_rows_leaves_nothing(tmp_path: Path) -> None:
    assert stage(tmp_path / "q" / "0", 0, 0, iter([])) is None
    assert stage(tmp_path / "q" / "0", 0, 0, [batch(pa.array([], pa.string()))]) is None
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_is_run_twice_is_published_once(tmp_path: Path) -> None:
    folder = batch_folder(tmp_path, "query", 0)
    staged_in(folder, 0, 1, batch(["lost"]))  # its task died before it could say so
    again = staged_in(folder, 0, 2, batch(["a"]))
    assert rows_of([again]) == [(b"a", 0)]
    clean(tmp_path, "query", 0)
    assert not folder.exists()


def test_cleaning_takes_earlier_batches_of_the_query_and_no_others(tmp_path: Path) -> None:
    for query, number in (("one", 0), ("one", 1), ("one", 2), ("two", 0)):
        staged_in(batch_folder(tmp_path, query, number), 0, 0, batch(["a"]))
    (tmp_path / "one" / "notes.txt").write_text("not ours", encoding="utf-8")
    clean(tmp_path, "one", 1)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["2", "notes.txt"]
    assert (tmp_path / "two" / "0").is_dir()
    clean(tmp_path, "nobody", 5)


def test_what_is_given_up_is_removed(tmp_path: Path) -> None:
    folder = batch_folder(tmp_path, "query", 0)
    staged = [staged_in(folder, number, number, batch(["a"])) for number in range(2)]
    remove(staged[:1])
    assert len(list(folder.iterdir())) == 1
    remove(staged)
    assert not folder.exists()


def test_a_file_that_is_not_what_was_written_is_not_published(tmp_path: Path) -> None:
    one = staged_in(tmp_path, 0, 0, batch(["a", "b"]))
    with Path(one.path).open("r+b") as file:
        file.seek(-20, 2)
        file.write(b"x")
    with pytest.raises(UsageError, match="not what its task wrote"):
        rows_of([one])
    Path(one.path).unlink()
    with pytest.raises(UsageError, match="one that driver and workers share"):
        rows_of([one])


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (([b"a", None], None), "the value NULL"),
        (([b"a"], [-1]), "there is one of -1"),
        (([b"a"], [20_000]), "there is one of 20000"),
    ],
)
def test_rows_that_cannot_be_published_are_refused(tmp_path: Path, rows: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        stage(tmp_path, 0, 0, [batch(*rows)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be staged"):
        stage(tmp_path / "file" / "0", 0, 0, [batch(["a"])])


def test_options_of_the_sink(tmp_path: Path) -> None:
    options = sink_options({"group": "prices", "checkpointLocation": f"file://{tmp_path}/c", "peers": "a:1, b:2"})
    assert options.staging == tmp_path / "c" / "ordercast-staging"
    assert (options.service, options.peers, options.create, options.multicast) == (SAFE, ("a:1", "b:2"), False, None)
    options = sink_options({"group": "prices"})
    assert options.staging == Path(tempfile.gettempdir()) / f"ordercast-staging-{os.getuid()}"
    given = {"group": "prices", "stagingLocation": "here", "service": "resilient(2)", "create": "TRUE", "port": "4000"}
    options = sink_options({**given, "multicast": "false", "timeout": "5"})
    assert (options.service, options.create, options.port, options.timeout_s) == (RESILIENT(2), None, 4000, 5.0)
    assert (options.staging, options.multicast) == (Path.cwd() / "here", False)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "name the group"),
        ({"group": "prices", "path": "x", "service": "FIFO"}, "SAFE, MAJORITY or RESILIENT"),
        ({"group": "prices", "path": "x", "service": "sure"}, "unknown service"),
        ({"group": "prices", "path": "x", "timeout": "0"}, "seconds above 0"),
        ({"group": "prices", "path": "x", "port": "-1"}, "whole number"),
        ({"group": "prices", "path": "hdfs://host/x"}, "only folders"),
        ({"group": "prices", "path": "x", "topic": "y"}, "unknown option topic"),
    ],
)
def test_options_of_the_sink_that_cannot_be(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        sink_options(given)
