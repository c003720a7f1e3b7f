"""Fresh seeds, and the ledger of those that were run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ordercast.cli.fuzz import FRESH_SEEDS
from ordercast.cli.main import main as command
from ordercast.errors import UsageError
from ordercast.sim.fuzz import FuzzReport, SeedResult
from ordercast.sim.ledger import QUOTE, LedgerRow, append_row, quote_row, read_ledger, row_of, this_commit

ROOT = Path(__file__).resolve().parents[2]
HEAD = "# Seeds\n\n| date | commit | profile | orderer | first seed | runs | failed | ends |\n" + 8 * "|---" + "|\n"
QUIET = SeedResult(0, (), "run it", "", 1, 1, 1, 0, 0, 0, 1, True, None, False, False, 1, 0.0)


def report(*failed: int, runs: int = 10) -> FuzzReport:
    found = FuzzReport("timestamp", 10_000_000, runs, anticipate=False, profile="membership")
    for seed in range(10_000_000, 10_000_000 + runs):
        failures = ("broken",) if seed in failed else ()
        found.results.append(replace(QUIET, seed=seed, failures=failures, is_quiet=not failures))
    return found


def test_the_readme_quotes_the_last_row_of_the_ledger() -> None:
    rows = read_ledger(ROOT / "docs" / "seeds.md")
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith(QUOTE)] == [rows[-1].as_quote()]
    assert all(int(row.first_seed) >= FRESH_SEEDS and re.fullmatch(r"[0-9a-f]{7,}\+?", row.commit) for row in rows)


def test_a_range_becomes_a_row_with_the_first_seeds_that_failed() -> None:
    row = row_of(report(), "0123abc", "2026-03-01")
    assert row.as_line() == (
        "| 2026-03-01 | 0123abc | membership | timestamp (ABCAST) | 10000000 | 10 | 0 | 10 quiet |"
    )
    assert row.as_quote() == (
        "**Fuzzed**: 10 simulations with random faults (`timestamp (ABCAST)`, `membership`, seeds 10,000,000 to "
        "10,000,009), 0 failed. Commit 0123abc, 2026-03-01. [All ranges](docs/seeds.md)"
    )
    many = row_of(report(10_000_001, 10_000_003, 10_000_005, 10_000_007), "0123abc", "2026-03-01")
    assert many.failed == "4: 10000001, 10000003, 10000005, …"
    assert many.ends == "6 quiet"


def test_rows_are_appended_and_the_last_is_quoted(tmp_path: Path) -> None:
    ledger, readme = tmp_path / "seeds.md", tmp_path / "README.md"
    ledger.write_text(HEAD, encoding="utf-8")
    readme.write_text(f"# Name\n\n{QUOTE}nothing yet\n\nMore.\n", encoding="utf-8")
    rows = [row_of(report(), "0123abc", f"2026-03-0{day}") for day in (1, 2)]
    for row in rows:
        append_row(ledger, row)
        quote_row(readme, row)
    assert read_ledger(ledger) == rows
    assert readme.read_text(encoding="utf-8") == f"# Name\n\n{rows[1].as_quote()}\n\nMore.\n"


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    with pytest.raises(UsageError, match="cannot be read as a ledger of seeds"):
        read_ledger(page)
    for text in ("# Seeds\n", f"{HEAD}| one | two |\n"):
        page.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match="is no ledger of seeds"):
            append_row(page, LedgerRow(*"abcdefgh"))
    with pytest.raises(UsageError, match="must have one line that begins with"):
        quote_row(page, LedgerRow("", "", "", "", "1", "1", "0", ""))
    assert this_commit(tmp_path) == "unknown"


def test_fuzz_draws_a_fresh_seed_prints_it_and_records_the_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed is chosen here, so that the test does the same each time."""
    drawn: list[tuple[int, int]] = []

    class Chosen:
        def randrange(self, first: int, stop: int) -> int:
            drawn.append((first, stop))
            return 10_000_017

    monkeypatch.setattr("ordercast.cli.fuzz.SystemRandom", Chosen)
    ledger = tmp_path / "seeds.md"
    ledger.write_text(HEAD, encoding="utf-8")
    assert command(["fuzz", "--runs", "2", "--ledger", str(ledger)]) == 0
    assert "first seed 10000017: --first-seed 10000017 repeats it" in capsys.readouterr().err
    assert command(["fuzz", "--runs", "2", "--first-seed", "10000017", "--ledger", str(ledger)]) == 0
    assert len(drawn) == 1, "a seed that is given is not drawn"
    assert drawn[0][0] == FRESH_SEEDS == 10_000_000
    first, second = read_ledger(ledger)
    assert first == second
    assert (first.first_seed, first.runs, first.failed, first.commit) == ("10000017", "2", "0", "unknown")
    assert command(["fuzz", "--quote", "README.md"]) == 2
    assert command(["fuzz", "--ledger", str(tmp_path / "none.md")]) == 2
