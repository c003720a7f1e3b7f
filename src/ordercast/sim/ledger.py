"""The ledger of seeds: which ranges the fuzzer ran, on which commit and date, and what they came to.

It is a page, `docs/seeds.md`, that ends with a table; a row is appended to it. The README quotes the last row in a line
of its own.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ordercast.errors import UsageError
from ordercast.sim.fuzz import FuzzReport

QUOTE: Final = "**Fuzzed**: "
"""How the line begins that quotes the ledger."""
MAX_NAMED: Final = 3
"""Seeds that failed, in a row; of more the number says enough."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One range of seeds. All columns are text, as they stand in the table."""

    date: str
    commit: str
    profile: str
    orderer: str
    first_seed: str
    runs: str
    failed: str  # how many, with the first of them
    ends: str  # how the runs ended that held

    def as_line(self) -> str:
        return "| " + " | ".join(getattr(self, each.name) for each in fields(self)) + " |"

    def as_quote(self) -> str:
        """The line of the README."""
        last = int(self.first_seed) + int(self.runs) - 1
        return (
            f"{QUOTE}{int(self.runs):,} simulations with random faults (`{self.orderer}`, `{self.profile}`, seeds "
            f"{int(self.first_seed):,} to {last:,}), {self.failed} failed. Commit {self.commit}, {self.date}. "
            "[All ranges](docs/seeds.md)"
        )


def row_of(report: FuzzReport, commit: str, date: str) -> LedgerRow:
    """What a run of the fuzzer comes to."""
    failed = [str(result.seed) for result in report.failed]
    named = f": {', '.join(failed[:MAX_NAMED])}{', …' if len(failed) > MAX_NAMED else ''}" if failed else ""
    orderer = report.orderer if report.anticipate is not False else f"{report.orderer} (ABCAST)"
    ends = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in report.as_json()["ends"].items() if count)
    numbers = str(report.first_seed), str(len(report.results)), f"{len(failed)}{named}"
    return LedgerRow(date, commit, report.profile, orderer, *numbers, ends)


def read_ledger(path: Path) -> list[LedgerRow]:
    """All rows of a page; `UsageError` if it is no ledger."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read as a ledger of seeds: {error.strerror}") from error
    head = next((at for at, line in enumerate(lines) if line.startswith("|---")), None)
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[(head or 0) + 1 :] if line]
    if head is None or any(len(row) != len(fields(LedgerRow)) for row in cells):
        raise UsageError(f"{path} is no ledger of seeds: it must end with a table of {len(fields(LedgerRow))} columns")
    return [LedgerRow(*row) for row in cells]


def append_row(path: Path, row: LedgerRow) -> None:
    """Add a row at the end of a page."""
    read_ledger(path)
    with path.open("a", encoding="utf-8") as page:
        page.write(f"{row.as_line()}\n")


def quote_row(path: Path, row: LedgerRow) -> None:
    """Let the line of a page that quotes the ledger quote this row."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    places = [at for at, line in enumerate(lines) if line.startswith(QUOTE)]
    if len(places) != 1:
        raise UsageError(f"{path} must have one line that begins with {QUOTE!r}, and has {len(places)}")
    lines[places[0]] = f"{row.as_quote()}\n"
    path.write_text("".join(lines), encoding="utf-8")


def this_commit(folder: Path) -> str:
    """The commit that is checked out, with a + where files differ from it; "unknown" outside of a repository."""
    try:
        commit = _git(folder, "rev-parse", "--short=9", "HEAD")
        # The ledger itself, and the line that quotes it, change with each row.
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", "src")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()
