"""The planner as its users start it: on a standalone cluster, and between two runs of a membership service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from tests.pipeline.cluster import START_S, cluster
from tests.pipeline.planner import exact_tiles, figure_two, tiles_of

from ordercast.pipeline.regions.plan import open_plan, placement_of

COMMAND = [sys.executable, "-m", "ordercast.cli.main", "plan"]


def test_the_same_command_on_a_standalone_cluster(tmp_path: Path) -> None:
    given = tmp_path / "figure2.csv"
    given.write_text("node,group\n" + "".join(f"{node},{group}\n" for node, group in figure_two()))
    with cluster(tmp_path) as (master, _, environ):
        words = [*COMMAND, str(given), "--out", str(tmp_path / "plan"), "--master", master, "--heap", "512m"]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=START_S * 4)
        assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "18 nodes, 7 exact regions; proved by 2,800 rows, 0 left over" in done.stdout
    assert tiles_of(placement_of(tmp_path / "plan")) == exact_tiles(figure_two())
    assert pq.read_table(open_plan(tmp_path / "plan").path("regions")).num_rows == 7
    executors = list(tmp_path.glob("[ot][nw][eo]/app-*/*/stderr"))
    assert len(executors) == 2, "both workers had a part of it"
