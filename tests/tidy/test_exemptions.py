"""Judges exempt nobody: a difference that a judge makes between orderers hides a bug of one of them.

What must be left out nevertheless stands in the table of docs/known-problems.md, with its file and its reason. The same
holds for tests that are expected to fail.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "known-problems.md"
HEADING: Final = "## Exemptions of the checks"
JUDGES: Final = (
    "src/ordercast/sim/run.py",
    "src/ordercast/sim/lives.py",
    "src/ordercast/sim/checkers",
    "src/ordercast/pipeline/verify",
)
ORDERERS: Final = frozenset(("sequencer", "token", "timestamp"))
# In two pieces, so that this file does not contain what it looks for.
EXPECTED_TO_FAIL: Final = "xf" + "ail"


def exempted(page: str) -> set[str]:
    """The files that the table names in its first column."""
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([^`]+\.py)`", row)}


def differences(source: str) -> Iterator[tuple[int, str]]:
    """Where a judge looks at the orderer: comparisons with the field of a scenario, and names of orderers."""
    tree = ast.parse(source)
    texts = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in ORDERERS and id(node) not in texts:
            yield node.lineno, f"names the {node.value}"
        elif isinstance(node, ast.Compare | ast.Match | ast.Subscript):
            for each in ast.walk(node):
                if isinstance(each, ast.Attribute) and each.attr == "orderer":
                    yield each.lineno, "decides by the orderer"


def judges() -> list[Path]:
    paths = [ROOT / name for name in JUDGES]
    return sorted(path for each in paths for path in (each.rglob("*.py") if each.is_dir() else [each]))


def test_no_judge_makes_a_difference_between_orderers() -> None:
    known = exempted(PAGE.read_text(encoding="utf-8"))
    found = [
        f"{name}:{line}: {text}"
        for path in judges()
        if (name := path.relative_to(ROOT).as_posix()) not in known
        for line, text in differences(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "an exemption in a judge is a bug with a lid on it; see docs/known-problems.md"


def test_no_test_is_expected_to_fail() -> None:
    known = exempted(PAGE.read_text(encoding="utf-8"))
    found = [
        name
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in known
        and EXPECTED_TO_FAIL in path.read_text(encoding="utf-8")
    ]
    assert found == []


def test_every_exemption_is_of_a_file_that_exists() -> None:
    assert [name for name in sorted(exempted(PAGE.read_text(encoding="utf-8"))) if not (ROOT / name).is_file()] == []


# The checks catch what is planted. -----------------------------------------------------------------------------------


def test_a_judge_that_spares_an_orderer_is_caught() -> None:
    planted = (
        '"""Of the token."""\ndef f(scenario):\n    return scenario.loss < 0.1 and scenario.orderer != "sequencer"\n'
    )
    assert list(differences(planted)) == [(3, "decides by the orderer"), (3, "names the sequencer")]
    assert list(differences('def f(s):\n    return {"x": 1}[s.orderer]\n')) == [(2, "decides by the orderer")]
    assert list(differences('def f(s):\n    """token"""\n    return f"{s.orderer}/{s.seed}"\n')) == []


def test_the_table_of_exemptions_is_read() -> None:
    table = "| where | exempts |\n|---|---|\n| `f` in `src/a/b.py` | x `src/c.py` |\n"
    assert exempted(f"# P\n\n{HEADING}\n\n{table}\n## Next\n| `d.py` |\n") == {"src/a/b.py"}
