"""Commands without the packages that they need: they say which extra to install, before they run anything, exit 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.cli.extras import EXTRAS, missing, need
from ordercast.errors import UsageError

PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, Hidden())
from ordercast.cli.main import main
sys.exit(main({arguments!r}))
"""


def without(hidden: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where these packages are not installed."""
    program = PROGRAM.format(hidden=hidden, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("hidden", "extra", "arguments"),
    [
        (("pyarrow",), "trace", ["sim", "--messages", "5", "--trace", "{}/trace"]),
        (("pyarrow",), "trace", ["demo", "--trace", "{}/trace"]),
        (("pyspark", "pandas", "pyarrow"), "spark", ["verify", "{}"]),
        (("pyspark",), "spark", ["measure", "{}", "--out", "{}/out"]),
        (("pandas",), "spark", ["report", "{}", "--out", "{}/out"]),
        (("pyarrow",), "spark", ["verify", "{}"]),
        (("matplotlib",), "plot", ["compare", "latency", "--out", "{}/figure.svg"]),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    hidden: tuple[str, ...], extra: str, arguments: list[str], tmp_path: Path
) -> None:
    done = without(hidden, *(word.replace("{}", str(tmp_path)) for word in arguments))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert f"pip install 'ordercast[{extra}]'" in done.stderr
    assert all(name in done.stderr for name in hidden)
    assert list(tmp_path.iterdir()) == [], "nothing was run"


@pytest.mark.parametrize("command", ["verify", "measure", "report", "sim", "compare", "demo"])
def test_help_needs_no_extra(command: str) -> None:
    done = without(("pyarrow", "pyspark", "pandas", "matplotlib"), command, "--help")
    assert done.returncode == 0, done.stderr
    assert "examples:" in done.stdout


def test_a_simulation_without_a_trace_needs_no_extra() -> None:
    done = without(("pyarrow", "pyspark", "pandas", "matplotlib"), "sim", "--nodes", "2", "--messages", "4")
    assert done.returncode == 0, done.stderr


def test_what_is_installed_is_not_missed() -> None:
    for extra in EXTRAS:
        assert missing(extra) == []
        need(extra, "this test")


def test_only_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"^a report needs pandas: pip install"):
        need("spark", "a report")
