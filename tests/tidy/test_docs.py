"""Documents are true as far as a program can tell: links lead somewhere, named files exist, nothing is left over."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ordercast"
ROOMS = ("docs", "src", "tests", "benches", "examples")

# In two pieces each, so that this file does not contain what it looks for.
LEFT_OVER = ("/wo" + "rk/", "/fa" + "rm/", "TO" + "DO")
LOCK = "requirements.lock"

_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_NAMED = re.compile(r"`((?:[a-z_]+/)*(?:[a-z_]+\.(?:py|md)|[a-z_]+/))`")


def tracked() -> list[Path]:
    """The files that git has."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        found = subprocess.run(words, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in sorted(filter(None, found.split("\0"))) if (path := ROOT / name).is_file()]


def broken_links(path: Path, text: str) -> list[str]:
    """Relative links of a document that lead nowhere: no such file, or no such heading in it."""
    broken = []
    for target in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        if not there.exists():
            broken.append(target)
        elif anchor and there.suffix == ".md":
            content = text if there == path else there.read_text(encoding="utf-8")
            if anchor not in {anchor_of(heading) for heading in _HEADING.findall(_CODE.sub("", content))}:
                broken.append(target)
    return broken


def anchor_of(heading: str) -> str:
    """The anchor that the usual renderers make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def missing_files(text: str) -> list[str]:
    """Files and folders named in backticks that are neither below the source nor below the root."""
    return [name for name in _NAMED.findall(text) if not (SOURCE / name).exists() and not (ROOT / name).exists()]


def left_over(text: str) -> list[str]:
    return [word for word in LEFT_OVER if word in text]


DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.md"))])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_resolve(path: Path) -> None:
    assert broken_links(path, path.read_text(encoding="utf-8")) == []


def test_every_file_that_the_architecture_names_exists() -> None:
    assert missing_files((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")) == []


def test_the_map_of_the_architecture_leaves_no_module_out() -> None:
    """A new module gets its line in the map, or belongs to a folder that has one."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.split("## The map", 1)[1].split("\n## ", 1)[0]
    named = set(_NAMED.findall(section))
    rooms = {name for name in named if name.endswith("/")} | {"cli/"}  # the commands have helpers of their own
    missing = [
        name
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "__init__.py"
        and (name := path.relative_to(SOURCE).as_posix()) not in named
        and not any(name.startswith(room) for room in rooms)
    ]
    assert missing == []


def test_nothing_of_one_machine_and_nothing_unfinished_is_left_in_tracked_files() -> None:
    found = []
    for path in tracked():
        if path.name == LOCK:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {word}" for word in left_over(text)]
    assert found == []


# The checks catch what is planted. -----------------------------------------------------------------------------------


def test_a_link_that_leads_nowhere_is_caught(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# Who may `go`, and how\n", encoding="utf-8")
    text = "[a](there.md) [b](gone.md) [c](there.md#who-may-go-and-how) [d](there.md#nobody) [e](https://example.org/x)"
    assert broken_links(tmp_path / "here.md", text) == ["gone.md", "there.md#nobody"]
    assert broken_links(tmp_path / "here.md", "```\n[a](gone.md)\n```\n") == []


def test_a_named_file_that_is_not_there_is_caught() -> None:
    assert missing_files("`engine.py`, `wire/block.py`, `docs/api.md`, `sim/checkers/`") == []
    assert missing_files("`engines.py` and `wire/gone.py` and `attic/`") == ["engines.py", "wire/gone.py", "attic/"]


def test_a_path_of_a_machine_is_caught() -> None:
    assert left_over(f"see {LEFT_OVER[0]}main") == [LEFT_OVER[0]]
    assert left_over("# " + LEFT_OVER[2] + ": later") == [LEFT_OVER[2]]
    assert left_over("all done, and the work goes on") == []
