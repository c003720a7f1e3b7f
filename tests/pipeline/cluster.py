"""A standalone cluster of Spark on this machine, from the pip package: a master and two workers on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from ordercast.pipeline.java import find_java
from ordercast.pipeline.session import cache_folder

START_S: Final = 120.0
WORKER_MB: Final = 1_100  # an executor has 1 GB, unless it is told otherwise


class Cluster(NamedTuple):
    master: str  # spark://...
    home: Path  # of Spark
    environ: dict[str, str]  # for spark-submit


@contextmanager
def cluster(folder: Path, *, worker_mb: int = WORKER_MB) -> Iterator[Cluster]:
    """It is there as long as the block lasts. What it says is in `folder`/cluster.log."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    environ = {
        **os.environ,
        "JAVA_HOME": str(find_java(cache_folder()).home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    port = free_port()
    start = [home / "bin" / "spark-class"]
    url = f"spark://127.0.0.1:{port}"
    local = ["--host", "127.0.0.1", "--webui-port"]
    running: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "cluster.log").open("wb") as log:
            words = ["org.apache.spark.deploy.master.Master", "--port", str(port), *local, str(free_port())]
            running.append(subprocess.Popen([*start, *words], env=environ, stdout=log, stderr=log))
            wait_for_port(port)
            for name in ("one", "two"):
                words = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", f"{worker_mb}m"]
                words += [*local, str(free_port()), "--work-dir", str(folder / name), url]
                running.append(subprocess.Popen([*start, *words], env=environ, stdout=log, stderr=log))
            yield Cluster(url, home, environ)
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(START_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the master of the cluster did not start")
