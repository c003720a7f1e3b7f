"""One Spark session for all tests of the pipeline: starting it costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores of this machine, two tasks at a time, few partitions: what small frames need."""
    pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'ordercast[spark]'")
    from ordercast.pipeline.session import make_session, stop

    session = make_session(
        "tests",
        "local[2]",
        rows=1_000,
        settings={"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"},
    )
    try:
        yield session
    finally:
        stop(session)
