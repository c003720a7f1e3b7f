"""The page `docs/figures.md` and its pictures: `python -m tests.figures.page --write [PAPER …]` writes them anew.

It takes some minutes, and those of qsm half an hour. `--keep FILE` goes on with qsm after a stop, and with `--no-more`
the page gets what FILE has. `tests/figures/test_page.py` measures some rows again, with the numbers that the page must
quote.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from pathlib import Path
from typing import Final

from ordercast.cli.figures import PAPERS
from ordercast.cli.main import main
from ordercast.figures import qsm
from ordercast.figures.drawing import draw
from ordercast.figures.qsm import QsmFigures
from ordercast.figures.qsm_report import qsm_report
from ordercast.figures.report import markdown_lines

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "figures.md"
IMAGES: Final = ROOT / "docs" / "img"


def mark(paper: str) -> tuple[str, str]:
    """What stands before and behind the part of a paper."""
    return f"<!-- ordercast figures {paper} --markdown -->\n", f"<!-- end of {paper} -->\n"


def part(page: str, paper: str) -> str:
    begin, end = mark(paper)
    return page.split(begin, 1)[1].split(end, 1)[0]


def replaced(page: str, paper: str, text: str) -> str:
    begin, end = mark(paper)
    before, rest = page.split(begin, 1)
    return before + begin + text + end + rest.split(end, 1)[1]


def command(paper: str, *flags: str) -> str:
    """What `ordercast figures` prints as Markdown."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["figures", paper, "--markdown", *flags])
    if code:
        raise SystemExit(code)
    return out.getvalue()


def kept(path: Path) -> str:
    """The part of qsm from runs that were measured before: the rest is said not to be measured."""
    known = qsm.load(path)
    wanted = dict.fromkeys([run for figure in qsm.FIGURES for run in qsm.FULL.runs(figure)])
    report = qsm_report(QsmFigures(qsm.FULL, found={run: known[run] for run in wanted if run in known}))
    for picture in report.pictures:
        draw(picture, IMAGES)
    return "\n".join(markdown_lines(report, "img")) + "\n"


def write(papers: list[str], keep: Path | None = None, *, is_all: bool = True) -> None:
    for paper in papers:
        if paper == "qsm" and keep is not None and not is_all:
            PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), paper, kept(keep)), encoding="utf-8")
            continue
        flags = ["--jobs", "2"] if paper in ("tompa", "qsm") else []
        if paper == "qsm" and keep is not None:
            flags += ["--keep", str(keep)]
        text = command(paper, "--out", str(IMAGES), *flags)
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), paper, text), encoding="utf-8")
        print(f"{paper}: written", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="write the page and the pictures anew")
    parser.add_argument("papers", nargs="*", choices=[*PAPERS, []], help="only these")
    parser.add_argument("--keep", type=Path, default=None, help="qsm: runs that were measured before, and new ones")
    parser.add_argument("--no-more", action="store_true", help="qsm: only what --keep has")
    given = parser.parse_args()
    if given.no_more and given.keep is None:
        parser.error("--no-more needs --keep FILE: it has the runs that the page gets")
    write(given.papers or list(PAPERS), given.keep, is_all=not given.no_more)
