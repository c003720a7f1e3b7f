"""The one place where a Spark session is made: workers' Python, loopback, UTC, quiet logs, a quick start.

A session belongs to the process; `stop` ends it and its Java. Jobs take `--master`. Without one they run on all cores
of this machine, or, under `spark-submit`, on the master that it was given.

A job says how many rows it reads. What takes time in a small job is planning and compiling, so it gets settings that
save both. They change no result: a job that turns out larger is only slower.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ordercast.errors import UsageError
from ordercast.pipeline.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
DEFAULT_HEAP: Final = "2g"
DUMP_TIMEOUT_S: Final = 120  # for writing the class archive when Java ends
NO_ARCHIVE: Final = "ORDERCAST_NO_CLASS_ARCHIVE"
"""An environment variable: do not write a class archive. Writing one takes longer than it saves in a single start."""

LOG_SETTINGS: Final = "log4j2.properties"
PARTITIONS: Final = "spark.sql.shuffle.partitions"
LEAST_PARTITIONS: Final = 4
SHORT_ROWS: Final = 1_000_000
"""A job that reads fewer rows is better off with Java's quick compiler alone."""

SMALL_ROWS: Final = 200_000
"""A job that reads fewer rows gets SMALL_SETTINGS."""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # Code that Spark made for a query is found again, and Java has compiled it: a job of many queries forgets none.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.columnVector.offheap.enabled": "true",  # text is looked at where it was decoded, not copied
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # what is kept is read a few times, then forgotten
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.checkpointLocation.deleteTempCheckpointOnExit": "true",
}

SMALL_SETTINGS: Final[Mapping[str, str]] = {
    # One task after the other costs less than to plan how many there should be.
    PARTITIONS: "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    # Each operator of a query takes a page of memory first, and a large page is cleared for a few rows.
    "spark.buffer.pageSize": "1m",
}
CODE_CACHE: Final = "-XX:ReservedCodeCacheSize=240m"
"""For compiled code. With the quick compiler alone Java reserves 48 MB, which one report fills."""

_archives: dict[str, tuple[Path, Path]] = {}  # application -> the class archive its Java writes, and its final name


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for files that can be made again: class archives, the Java shim."""
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ordercast"


def make_session(
    name: str,
    master: str | None = None,
    *,
    heap: str = DEFAULT_HEAP,
    settings: Mapping[str, str] | None = None,
    rows: int | None = None,
) -> SparkSession:
    """A session for a job that reads about so many rows; None: very many. `settings` go before all others."""
    try:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError("this needs Spark; install the extra: pip install 'ordercast[spark]'") from None
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    given = SparkConf()  # the settings of spark-submit
    is_short = rows is not None and rows < SHORT_ROWS
    chosen = dict(SETTINGS)
    if rows is not None and rows < SMALL_ROWS:
        chosen |= {key: value for key, value in SMALL_SETTINGS.items() if not given.contains(key)}
    chosen["spark.app.name"] = name
    if not given.contains("spark.master") or master is not None:
        chosen["spark.master"] = master or DEFAULT_MASTER
    is_local = chosen.get("spark.master", given.get("spark.master") or "").startswith("local")
    if is_local or "127.0.0.1" in chosen.get("spark.master", ""):
        chosen.update({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "SPARK_ENV_LOADED" not in os.environ:  # otherwise spark-submit has started Java already
        cache = cache_folder()
        java = find_java(cache)
        os.environ["JAVA_HOME"] = str(java.home)
        chosen["spark.driver.memory"] = heap
        chosen["spark.driver.extraJavaOptions"] = " ".join(_java_options(name, java, cache, is_short))
    chosen.update(settings or {})
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if not given.contains(PARTITIONS) and PARTITIONS not in chosen:
        # Measured on two cores. Adaptive execution joins partitions that have few rows.
        session.conf.set(PARTITIONS, str(max(LEAST_PARTITIONS, 2 * session.sparkContext.defaultParallelism)))
    return session


def stop(session: SparkSession) -> None:
    """End the session and its Java. A new class archive gets its final name."""
    name = session.sparkContext.appName or ""
    gateway: Any = session.sparkContext._gateway
    waiting = _archives.pop(name, None)
    if _has_ended(gateway):
        _forget(session)
        return
    session.stop()
    if waiting is None or gateway is None:
        return
    with suppress(OSError, subprocess.TimeoutExpired):
        from pyspark import SparkContext

        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(DUMP_TIMEOUT_S)
        SparkContext._gateway = SparkContext._jvm = None
        written, final = waiting
        written.replace(final)


def _has_ended(gateway: Any) -> bool:
    """Whether the Java that this process started is no longer there."""
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget(session: SparkSession) -> None:
    """Remove what Spark remembers of a Java that is gone, without talking to it: the next session starts another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        SparkContext._gateway = SparkContext._jvm = None
        SparkContext._active_spark_context = None
    session.sparkContext._jsc = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


@contextmanager
def session(name: str, master: str | None = None, **how: Any) -> Iterator[SparkSession]:
    """A session for as long as a job lasts."""
    made = make_session(name, master, **how)
    try:
        yield made
    finally:
        stop(made)


def _java_options(name: str, java: Java, cache: Path, is_short: bool) -> list[str]:
    options = [f"-Dlog4j2.configurationFile={Path(__file__).with_name(LOG_SETTINGS).as_uri()}", "-Xlog:disable"]
    if is_short:
        options += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", CODE_CACHE]
    else:
        options.append("-XX:+UseParallelGC")  # a tenth less CPU time than the default, which avoids pauses
    archive = _archive_of(java, cache, is_short)
    if archive.is_file():
        options.append(f"-XX:SharedArchiveFile={archive}")
    elif os.environ.get(NO_ARCHIVE) is None:
        with suppress(OSError):
            archive.parent.mkdir(parents=True, exist_ok=True)
            written = archive.with_name(f"{archive.name}.{os.getpid()}")
            _archives[name] = (written, archive)
            options.append(f"-XX:ArchiveClassesAtExit={written}")
    return options


def _archive_of(java: Java, cache: Path, is_short: bool) -> Path:
    """One for each Java and Spark: Java ignores an archive that does not fit, and it would never be made anew."""
    key = f"{java.home}/{java.version}/{metadata.version('pyspark')}/{is_short}"
    return cache / f"classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
