"""One Spark session for all tests of the pipeline: starting it costs more than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ordercast.pipeline.session import NO_ARCHIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Every process of these tests that ends while there is no class archive would write one.
os.environ[NO_ARCHIVE] = "1"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores of this machine, with the settings of small jobs."""
    pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'ordercast[spark]'")
    from ordercast.pipeline.session import make_session, stop

    session = make_session("tests", "local[2]", rows=1_000)
    try:
        yield session
    finally:
        stop(session)
