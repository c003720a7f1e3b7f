"""Keeps a library of Spark's from talking on the terminal."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from pyspark.sql import SparkSession

TALKER: Final = "org.apache.datasketches.memory.internal.ResourceImpl"


def hush(spark: SparkSession) -> None:
    """Load what the sketches use while nobody listens: it warns of the Java version, once, on standard error.

    It is about memory outside of Java's, which Spark's sketches do not use. Where this does not work the warning is
    shown, and nothing else is different.
    """
    with suppress(Exception):
        jvm: Any = spark.sparkContext._jvm
        shown = jvm.java.lang.System.err
        jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
        try:
            jvm.java.lang.Class.forName(TALKER)
        finally:
            jvm.java.lang.System.setErr(shown)
