"""The README's example runs as it stands, and does what the README says of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

README = Path(__file__).parents[2] / "README.md"
GUIDES = README.parent / "docs" / "guides"


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def output_of(program: str) -> str:
    # In a process of its own: the program ends its loop and its nodes, or it hangs here. Its group has its own name,
    # since whoever else runs it on this machine at this time would be in the group.
    program = re.sub(r'\.(join|call)\("(\w+)"', rf'.\1("\2 {uuid4()}"', program)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_both_members_of_the_readme_print_the_same_messages_in_the_same_order() -> None:
    (program,) = python_blocks(README)
    assert output_of(program).splitlines() == ["[b'tea 3', b'tea 4']"] * 2


def test_the_programs_of_the_guides_run() -> None:
    programs = [program for path in sorted(GUIDES.glob("*.md")) for program in python_blocks(path)]
    assert programs
    for program in programs:
        assert output_of(program)
