"""What ended a job that has no result: a full disk, a Java that was killed, too little memory.

Such an end says nothing about the traces. So it has an exit code of its own, 3, and one sentence that says what
happened and what to do. What is wrong with the input is a `UsageError` and exit code 2 (`reading.explain`).
"""

from __future__ import annotations

import argparse
import errno
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ordercast.errors import OrdercastError, UsageError
from ordercast.pipeline.reading import explain

UNUSABLE: Final = 2
FAILED: Final = 3

FULL: Final = ("No space left on device", "Disk quota exceeded")
MEMORY: Final = ("OutOfMemoryError", "SparkOutOfMemoryError", "Cannot allocate memory")
ENDED: Final = (
    "Answer from Java side is empty",
    "Error while sending or receiving",
    "An error occurred while trying to connect to the Java server",
    "Error while receiving",
    "JAVA_GATEWAY_EXITED",
    "Java gateway process exited",
)
GIVEN_UP: Final = "Job aborted due to stage failure"
STOPPED: Final = ("Cannot call methods on a stopped SparkContext", "SparkContext was shut down")


class JobFailed(OrdercastError):
    """The job has no result, and its input is not the reason."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn the errors of Spark, Java and the disk into `UsageError` and `JobFailed`; others pass."""
    try:
        yield
    except (OrdercastError, BrokenPipeError):
        raise  # the reader of our standard output may go away: that is no failure of the job
    except Exception as error:
        # A full disk, or a dead Java, also leaves files that cannot be read: it goes first.
        found = failure_of(error) or explain(error)
        if found is None:
            raise
        raise found from error


def as_program(
    app: str,
    examples: str,
    configure: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None,
) -> int:
    """A job as a program of its own; its exit code."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=app, epilog=examples, formatter_class=raw, allow_abbrev=False)
    configure(parser)
    try:
        return run(parser.parse_args(arguments))
    except UsageError as error:
        print(f"{app}: {error}", file=sys.stderr)
        return UNUSABLE


def guarded(app: str, work: Callable[[], int]) -> int:
    """Do the work of a job; its exit code. A job that fails says why on standard error, and returns FAILED."""
    root = logging.getLogger()
    root.addFilter(_is_not_of_py4j)
    try:
        with explained():
            return work()
    except JobFailed as error:
        print(f"{app}: {error}", file=sys.stderr)
    except (OrdercastError, BrokenPipeError):
        raise
    except Exception:
        # An error of ours. Python would end with 1, which is the exit code for a violated guarantee.
        traceback.print_exc()
        print(f"{app}: the job failed with an unexpected error, shown above; there is no result", file=sys.stderr)
    finally:
        root.removeFilter(_is_not_of_py4j)
    return FAILED


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """The bridge to Java logs a traceback for each call to a Java that is gone; the sentence says it once."""
    return "py4j" not in record.pathname


def failure_of(error: BaseException) -> JobFailed | None:
    """What ended the job, by the text of an error and of those that caused it; None if it is something else."""
    errors = list(_chain(error))
    text = "\n".join(f"{type(one).__name__}: {one}" for one in errors)
    is_full = any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in errors)
    if is_full or any(word in text for word in FULL):
        return JobFailed(
            "the disk is full, so there is no result: make room, or let Spark write elsewhere (SPARK_LOCAL_DIRS=FOLDER)"
        )
    if any(word in text for word in MEMORY):
        return JobFailed("Java ran out of memory, so there is no result: give it more, as in --heap 4g")
    if any(word in text for word in (*ENDED, *STOPPED)) or any(_is_lost_connection(one) for one in errors):
        return JobFailed(
            "Spark's Java ended before the job did, so there is no result: start the job again, and if the system "
            "killed Java because memory was short, make memory free or choose a smaller --heap"
        )
    if GIVEN_UP in text and explain(error if isinstance(error, Exception) else Exception(text)) is None:
        line = next(line for line in text.splitlines() if GIVEN_UP in line)
        return JobFailed(f"Spark gave the job up, so there is no result: {line[line.index(GIVEN_UP) :][:300]}")
    return None


def cannot_write(folder: Path, error: OSError) -> OrdercastError:
    """What to raise if results cannot be written to `--out`."""
    return failure_of(error) or UsageError(f"--out {folder} cannot be written to: {error.strerror or error}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_lost_connection(error: BaseException) -> bool:
    """The driver talks to Java over a socket of its own; no other connection is made in a job."""
    return isinstance(error, (ConnectionError, EOFError)) or type(error).__name__ == "Py4JNetworkError"
