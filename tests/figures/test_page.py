"""`docs/figures.md` quotes what the command prints: all rows of the quick figures stand on it, number for number."""

from __future__ import annotations

import re

import pytest
from tests.figures.measured import quick_reports
from tests.figures.page import IMAGES, PAGE, part, replaced

from ordercast.cli.figures import PAPERS
from ordercast.figures.report import markdown_row

PAGE_TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", list(PAPERS))
def test_the_page_has_the_rows_that_the_command_prints(paper: str) -> None:
    """If a change is meant to change them: `make figures`, and say why."""
    text = part(PAGE_TEXT, paper)
    missing = [
        f"{table.title}: {row}"
        for table in quick_reports()[paper].tables
        for row in table.rows
        if markdown_row(row) not in section(text, table.title)
    ]
    assert not missing, "docs/figures.md does not have these rows: " + "; ".join(missing)


@pytest.mark.parametrize("paper", list(PAPERS))
def test_the_page_has_the_pictures_of_the_command(paper: str) -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(img/([a-z-]+)\.svg\)", part(PAGE_TEXT, paper))
    assert pictures == [picture.name for picture in quick_reports()[paper].pictures]
    assert all((IMAGES / f"{name}.svg").read_text(encoding="utf-8").startswith("<?xml") for name in pictures)


def test_nothing_on_the_page_was_measured_in_a_run_that_failed() -> None:
    assert PAGE_TEXT.count("every guarantee held") == len(PAPERS)
    assert "FAILED" not in PAGE_TEXT


def test_a_part_is_replaced_and_the_rest_stays() -> None:
    changed = replaced(PAGE_TEXT, "rmp", "new\n")
    assert part(changed, "rmp") == "new\n"
    assert part(changed, "amoeba") == part(PAGE_TEXT, "amoeba")
    assert replaced(changed, "rmp", part(PAGE_TEXT, "rmp")) == PAGE_TEXT


def section(text: str, title: str) -> str:
    return text.split(f"### {title}\n", 1)[-1].split("\n### ", 1)[0]
