"""A job that has no result is told from one that found a violation: exit code 3 and one sentence."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from tests.archive.tmpfs import mounted
from tests.pipeline.traces import busy, write

from ordercast.errors import UsageError
from ordercast.pipeline.failures import FAILED, cannot_write, failure_of, guarded

PATIENCE_S = 120.0
SMALL_BYTES = 48 << 10


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (RuntimeError("java.io.IOException: No space left on device"), "the disk is full"),
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), "ran out of memory"),
        (ConnectionRefusedError(111, "Connection refused"), "Java ended before the job did"),
        (RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), "Java ended before the job did"),
        (RuntimeError("Job aborted due to stage failure: Task 3 failed 4 times"), "Spark gave the job up"),
    ],
)
def test_what_ended_a_job_is_one_sentence(error: Exception, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        try:
            raise error
        finally:
            raise ValueError("and then something else went wrong, too")

    assert guarded("ordercast verify", work) == FAILED == 3
    said = capsys.readouterr().err
    assert said.startswith("ordercast verify: ")
    assert sentence in said
    assert said.count("\n") == 1


def test_other_errors_are_not_taken_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    def ends_with(error: BaseException) -> Any:
        def work() -> int:
            raise error

        return work

    with pytest.raises(UsageError):
        guarded("job", ends_with(UsageError("no such trace")))
    with pytest.raises(UsageError, match=r"b\.parquet cannot be read"):
        guarded("job", ends_with(RuntimeError("[FAILED_READ_FILE] file:/a/b.parquet")))
    with pytest.raises(BrokenPipeError):
        guarded("job", ends_with(BrokenPipeError()))
    capsys.readouterr()
    # An error of ours keeps its traceback, and does not pass for a violated guarantee either.
    assert guarded("job", ends_with(KeyError("ours"))) == FAILED
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("job: the job failed with an unexpected error, shown above; there is no result\n")
    assert failure_of(KeyError("ours")) is None


def test_a_full_disk_under_out_is_no_bad_input() -> None:
    assert "the disk is full" in str(cannot_write(Path("x"), OSError(errno.ENOSPC, "No space left on device")))
    refused = cannot_write(Path("x"), OSError(errno.EACCES, "Permission denied"))
    assert isinstance(refused, UsageError)
    assert "--out x cannot be written to: Permission denied" in str(refused)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "trace", busy()[0].rows())


def java_of(job: int) -> int:
    """The Java that runs Spark for a process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if parent == job and b"org.apache.spark.deploy.SparkSubmit" in words:
                return int(entry.name)
    raise AssertionError("no Java runs Spark")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds Java by /proc")
def test_a_job_whose_java_is_killed_ends_with_3_and_one_sentence(trace: Path, tmp_path: Path) -> None:
    """A report verifies and measures in two threads: both lose their Java."""
    words = [sys.executable, "-m", "ordercast.cli.main", "report", str(trace), "--master", "local[1]"]
    words += ["--out", str(tmp_path / "out")]
    local = tmp_path / "local"
    environ = {**os.environ, "SPARK_LOCAL_DIRS": str(local)}
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        try:
            end = monotonic() + PATIENCE_S
            while not list(local.glob("blockmgr-*/*")):  # Spark has written something: it works
                assert job.poll() is None
                assert monotonic() < end
                sleep(0.05)
            os.kill(java_of(job.pid), signal.SIGKILL)
            out, said = job.communicate(timeout=PATIENCE_S)
        finally:
            job.kill()
    assert (job.returncode, out) == (3, ""), said
    assert said.startswith("ordercast report: Spark's Java ended before the job did, so there is no result")
    assert said.count("\n") == 1, said


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a few pages."""
    with mounted(tmp_path / "small", SMALL_BYTES) as folder:
        yield folder


def test_a_job_on_a_full_disk_ends_with_3_and_one_sentence(trace: Path, full_disk: Path) -> None:
    words = [sys.executable, "-m", "ordercast.cli.main", "verify", str(trace), "--master", "local[1]"]
    environ = {**os.environ, "SPARK_LOCAL_DIRS": str(full_disk)}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert done.stderr.startswith("ordercast verify: the disk is full, so there is no result: make room")
    assert done.stderr.count("\n") == 1, done.stderr
