"""Real daemons and their clients, some of them killed and all of them cut apart: Spark finds that every guarantee held,
of the daemons and of each session.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.daemon.client_house import run_clients

from ordercast.pipeline.reading import inspect
from ordercast.pipeline.verify.findings import PROPERTIES
from ordercast.pipeline.verify.job import verify
from ordercast.trace.convert import convert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLIENTS = 12


def test_spark_finds_that_sessions_of_daemons_keep_every_guarantee(spark: SparkSession, tmp_path: Path) -> None:
    house = run_clients(tmp_path, CLIENTS)
    assert house.clients.disagreements() == []
    convert(tmp_path, crashed=house.daemons.crashed)
    runs = inspect([tmp_path])
    nodes = {part.node for part in runs[0].parts}
    assert {"d1", "d2", "d3"} < nodes
    assert len([node for node in nodes if "@" in node]) >= CLIENTS
    findings = verify(spark, runs)
    assert findings.violations() == []
    assert findings.not_judged == {}
    assert all(findings.checked[name] for name in PROPERTIES), findings.checked
