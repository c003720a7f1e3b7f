"""Keeps one of Spark's libraries from printing on the terminal."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from pyspark.sql import SparkSession

TALKER: Final = "org.apache.datasketches.memory.internal.ResourceImpl"


def hush(spark: SparkSession) -> None:
    """Load a class of the sketches while standard error is off: it prints a warning about the Java version once.

    The warning is about memory outside of Java's heap, which Spark's sketches do not use. If this does not work, the
    warning is shown, and nothing else changes.
    """
    with suppress(Exception):
        jvm: Any = spark.sparkContext._jvm
        shown = jvm.java.lang.System.err
        jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
        try:
            jvm.java.lang.Class.forName(TALKER)
        finally:
            jvm.java.lang.System.setErr(shown)
