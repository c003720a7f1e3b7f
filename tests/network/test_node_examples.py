"""The examples of docs/api.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

API = Path(__file__).parents[2] / "docs" / "api.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", API.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs(example: str) -> None:
    # In a process of its own: an example ends its loop, its threads and its nodes, or it hangs here.
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_documented() -> None:
    import ordercast

    text = API.read_text(encoding="utf-8")
    shown = set(re.findall(r"`[^`\n]*`", text))
    words = {word for code in shown for word in re.findall(r"\w+", code)}
    assert set(ordercast.__all__) - words == set()
