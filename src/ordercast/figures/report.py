"""The one form of all figures: what a paper claims beside what we measure, tables, and pictures as data.

A report is data. It is printed for people, as Markdown for `docs/figures.md`, or as JSON; `drawing.py` makes files of
its pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from textwrap import wrap
from typing import Any, Final

from ordercast.sim.tables import aligned

WIDTH: Final = 118
Cell = str | int | float
Cells = tuple[str, ...]


class ClaimStatus(Enum):
    """What comes of a claim. `docs/figures.md` says what each word means."""

    REPRODUCED = "reproduced"
    FITTED = "fitted"  # a free number of the model, or the network, was chosen for it
    PARTLY = "partly"
    DIFFERS = "differs"
    NOT_MEASURED = "not measured"


class CurveKind(Enum):
    """Where the points of a curve come from."""

    MEASURED = "measured"
    MODEL = "model"
    PAPER = "paper"


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of a paper with a number in it, and ours."""

    section: str
    what: str
    paper: str
    ours: str
    finding: ClaimStatus
    why: str = ""  # they differ, or what was chosen so that they do not


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Numbers of several runs."""

    title: str
    columns: Cells
    rows: tuple[Cells, ...]
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart, or the points of one."""

    name: str
    points: tuple[tuple[float, float], ...]
    kind: CurveKind = CurveKind.MEASURED


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel of a picture."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    y_most: float = 0.0  # 0: what the curves need
    is_log: bool = False  # x, which then must be above 0


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels side by side in one file."""

    name: str  # of the file, without its suffix
    caption: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class PaperReport:
    """All figures of one paper."""

    paper: str
    title: str
    about: str  # how it was measured
    claims: tuple[Claim, ...]
    tables: tuple[FigureTable, ...]
    pictures: tuple[Picture, ...]
    violations: int  # that judges found in the runs: with any, nothing here counts

    @property
    def held(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        return {
            "held": self.held,
            "violations": self.violations,
            "paper": self.paper,
            "title": self.title,
            "about": self.about,
            "claims": [{**asdict(claim), "finding": claim.finding.value} for claim in self.claims],
            "tables": [asdict(table) for table in self.tables],
            "pictures": [_picture_json(picture) for picture in self.pictures],
        }


def cells(values: Iterable[Cell], digits: int = 2) -> Cells:
    """Values as they are printed; numbers with a fraction get so many digits."""
    return tuple(f"{value:.{digits}f}" if isinstance(value, float) else str(value) for value in values)


def text_lines(report: PaperReport) -> list[str]:
    """For people at a terminal."""
    lines = [report.title, "", *wrap(report.about, WIDTH)]
    for claim in report.claims:
        lines += ["", f"{claim.what} ({claim.section}): {claim.finding.value}"]
        for word, text in (("paper", claim.paper), ("ours", claim.ours), ("why", claim.why)):
            if text:
                lines += wrap(text, WIDTH, initial_indent=f"  {word:<7}", subsequent_indent=" " * 9)
    for table in report.tables:
        lines += ["", table.title, *wrap(table.notes, WIDTH), *aligned([table.columns, *table.rows])]
    return [*lines, "", _verdict(report)]


def markdown_lines(report: PaperReport, images: str) -> list[str]:
    """For `docs/figures.md`; `images` is the folder of the pictures, as a link from there."""
    lines = [f"## {report.title}", "", *wrap(report.about, WIDTH), ""]
    lines += _markdown_table(
        ("section", "what", "paper", "ours", "finding", "why"),
        [(one.section, one.what, one.paper, one.ours, one.finding.value, one.why) for one in report.claims],
    )
    for picture in report.pictures:
        lines += ["", f"![{picture.caption}]({images}/{picture.name}.svg)"]
    for table in report.tables:
        lines += ["", f"### {table.title}", ""]
        if table.notes:
            lines += [*wrap(table.notes, WIDTH), ""]
        lines += _markdown_table(table.columns, table.rows)
    return [*lines, "", _verdict(report)]


def markdown_row(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [markdown_row(columns), "|" + "---|" * len(columns), *(markdown_row(row) for row in rows)]


def _verdict(report: PaperReport) -> str:
    if report.held:
        return "Every run was judged, and every guarantee held."
    return f"FAILED: {report.violations} violations, or datagrams that sockets dropped."


def _picture_json(picture: Picture) -> dict[str, Any]:
    return {
        "name": picture.name,
        "caption": picture.caption,
        "charts": [
            {
                **asdict(chart),
                "curves": [{**asdict(curve), "kind": curve.kind.value} for curve in chart.curves],
            }
            for chart in picture.charts
        ],
    }
