"""The job as its users start it: by the command, as a module, under spark-submit on a cluster; and what it answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.pipeline.cluster import START_S, cluster
from tests.pipeline.traces import busy, order_swap, write

from ordercast.cli.main import main as ordercast
from ordercast.errors import UsageError
from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify import __main__ as module
from ordercast.pipeline.verify.findings import COLUMNS, PROPERTIES
from ordercast.pipeline.verify.job import around, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "good", busy()[0].rows())


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write(tmp_path / "bad", order_swap().rows())


def test_unusable_input_is_named_before_spark_starts(
    tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = good / "events" / "node=b" / "part-0.parquet"
    assert ordercast(["verify", str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    part.write_bytes(part.read_bytes()[:-3])
    for start in (main, lambda words: ordercast(["verify", *words])):
        assert start([str(good)]) == 2
        assert f"{part} is torn" in capsys.readouterr().err
    part.unlink()
    part.parent.rmdir()
    for place in ("nonsense", "good:b:1", "other:a/0:1", "good:z/0:1"):
        assert main([str(good), "--around", place]) == 2
        assert capsys.readouterr().err.startswith("ordercast verify: ")
    assert main([str(good), "--out", str(good / "run.json")]) == 2


def test_the_command_prints_and_keeps(tmp_path: Path, good: Path, bad: Path) -> None:
    """In a process of its own, as a user has it."""
    words = [sys.executable, "-m", "ordercast.cli.main", "verify", str(good), str(bad), "--master", "local[2]"]
    done = subprocess.run(
        [*words, "--json", "--out", str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""  # neither Spark nor Java has a word to say
    found = json.loads(done.stdout)
    assert list(found) == ["properties", "runs"]
    assert list(found["properties"]) == list(PROPERTIES)
    assert found["properties"]["total_order"]["violations"] == 1
    assert found["runs"] == ["good", "bad"]
    table = pq.read_table(tmp_path / "out" / "violations.parquet")
    assert table.column_names == list(COLUMNS)
    (row,) = table.to_pylist()
    assert (row["run"], row["property"], row["node"], row["other_node"]) == ("bad", "total_order", "c/0", "a/0")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["held"] is False


def test_the_events_around_a_violation_are_shown(spark: SparkSession, bad: Path) -> None:
    (run,) = inspect([bad])
    lines = around(spark, run, "c", 0, 6)
    marked = [line for line in lines if line.startswith(">")]
    assert len(marked) == 1
    assert " 6 " in marked[0]
    assert len(lines) > 1
    with pytest.raises(UsageError, match="c/0 of run bad has no event near 5000"):
        around(spark, run, "c", 0, 5_000)


def test_the_same_job_on_a_standalone_cluster(good: Path, bad: Path) -> None:
    """A master and two workers from the pip package, on loopback; the job under spark-submit."""
    with cluster(good.parent) as (master, home, environ):
        words = [str(home / "bin" / "spark-submit"), "--master", master, "--conf", "spark.executor.memory=512m"]
        words += ["--conf", "spark.ui.enabled=false", str(module.__file__), str(good), str(bad), "--json"]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=START_S * 4)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert {name: each["violations"] for name, each in found["properties"].items() if each["violations"]} == {
        "total_order": 1
    }
