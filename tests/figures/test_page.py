"""`docs/figures.md` quotes what the command prints: all rows of the quick figures stand on it, number for number."""

from __future__ import annotations

import re

import pytest
from tests.figures.measured import quick_reports
from tests.figures.page import IMAGES, PAGE, part, replaced

from ordercast.cli.figures import PAPERS
from ordercast.figures import qsm
from ordercast.figures.qsm import QsmFigures
from ordercast.figures.qsm_report import qsm_report
from ordercast.figures.region_lab import RegionFound
from ordercast.figures.report import ClaimStatus, CurveKind, PaperReport, markdown_row

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


# QSM: most of its runs take too long for a test, so that a page which lacks some is found by its form. ----------------


LEFT = (qsm.FULL.large(1_000),)  # docs/known-problems.md says so,
PARTIAL = ("qsm-time",)  # and what this picture lacks


@pytest.fixture(scope="module")
def invented() -> PaperReport:
    """All runs of the full plan that the page has, with numbers out of the air."""
    wanted = dict.fromkeys([run for figure in qsm.FIGURES for run in qsm.FULL.runs(figure)])
    rates = {run: [1.0] * run.seconds for run in wanted if run not in LEFT}
    found = {run: RegionFound(each, each, {}, 0.0, [1.0, 0.1]) for run, each in rates.items()}
    return qsm_report(QsmFigures(qsm.FULL, found=found))


def test_every_run_of_qsm_has_its_row_and_every_claim_its_number(invented: PaperReport) -> None:
    text = part(PAGE_TEXT, "qsm")
    for table in invented.tables:
        rows = [line.split(" | ") for line in section(text, table.title).splitlines() if line.startswith("| ")][1:]
        assert [row[0].removeprefix("| ") for row in rows] == [row[0] for row in table.rows], table.title
    missing = [claim.what for claim in invented.claims if claim.finding is ClaimStatus.NOT_MEASURED]
    assert re.findall(r"\| ([^|]+) \| [^|]+ \|  \| not measured \|", text) == missing


def test_the_pictures_of_qsm_have_every_point(invented: PaperReport) -> None:
    """They are drawn with the page: one that was left over from fewer runs has fewer points."""
    for picture in [each for each in invented.pictures if each.name not in PARTIAL]:
        svg = (IMAGES / f"{picture.name}.svg").read_text(encoding="utf-8")
        drawn = [each.count("<use ") for each in re.findall(r"<g clip-path[^>]*>\s*((?:<use [^>]*>\s*)+)</g>", svg)]
        curves = [curve for chart in picture.charts for curve in chart.curves if curve.points]
        marked = [len(each.points) for each in curves if each.kind is not CurveKind.PAPER or len(each.points) == 1]
        assert drawn == marked, picture.name


def section(text: str, title: str) -> str:
    return text.split(f"### {title}\n", 1)[-1].split("\n### ", 1)[0]
