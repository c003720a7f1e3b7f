"""`measure` and `report` over simulated runs of all orderers: tables, summary, and the page in a browser."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'ordercast[spark]'")

import pyarrow.parquet as pq
from tests.pipeline.browser import drawn, rendered, script_errors, text_of

from ordercast.cli.main import main
from ordercast.pipeline.measure.job import as_json, measure_runs, write
from ordercast.pipeline.measure.measures import Measures
from ordercast.pipeline.measure.summary import summary_lines
from ordercast.pipeline.reading import TraceRun, inspect
from ordercast.pipeline.report.job import write_report
from ordercast.pipeline.report.page import json_in_html, page_of
from ordercast.pipeline.report.timeline import ROOM, Choice, choose
from ordercast.pipeline.report.verdict import JudgedProperty, ReportVerdict
from ordercast.trace.store import read_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERERS = ("token", "sequencer", "timestamp")
HOSTILE = "</script><script>window.evil=1</script><img src=x onerror='window.evil=1'>"
MOST_BYTES = 3_000_000


class Measured(NamedTuple):
    """Three runs, measured once for all tests."""

    runs: tuple[TraceRun, ...]
    found: Measures


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("runs")
    for orderer in ORDERERS:
        words = ["--orderer", orderer, "--messages", "400", "--seed", "7", "--loss", "0.02", "--crash", "1"]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["sim", *words, "--trace", str(folder / orderer)]) == 0
    runs = inspect([folder / orderer for orderer in ORDERERS])
    return Measured(runs, measure_runs(spark, runs))


def test_totals_are_those_of_the_rows(measured: Measured) -> None:
    for run in measured.runs:
        _, rows = read_trace(run.folder)
        delivers = [row for row in rows if row.kind == "deliver"]
        (group,) = measured.found.rows("group_totals", run=run.name)
        assert group["deliveries"] == sum(row.count or 0 for row in delivers)
        once = {(row.sender, row.first): row.count or 0 for row in delivers}
        assert group["messages"] == sum(once.values())
        for member in measured.found.rows("member_totals", run=run.name):
            assert member["delivered"] == sum(row.count or 0 for row in delivers if row.node == member["node"])
        (sends,) = measured.found.rows("latency_totals", run=run.name, stage="send")
        submitted = {(row.sender, row.first): row.at_ns for row in rows if row.kind == "submit"}
        waits = [row.at_ns - submitted[row.sender, row.first] for row in delivers for _ in range(row.count or 0)]
        assert (sends["messages"], sends["min_ns"], sends["max_ns"]) == (len(waits), min(waits), max(waits))
        assert sends["mean_ns"] == pytest.approx(sum(waits) / len(waits))
        assert sends["p50_ns"] == pytest.approx(sorted(waits)[len(waits) // 2], rel=0.02)
        sent = sum(row.count or 0 for row in rows if row.kind == "tx")
        told = measured.found.rows("datagram_totals", run=run.name, direction="tx")
        assert sum(row["datagrams"] for row in told) == sent
        gaps = sum(row.count or 0 for row in rows if row.kind == "gap")
        assert sum(row["messages"] for row in measured.found.rows("repair_totals", run=run.name)) == gaps
        series = measured.found.rows("throughput_series", run=run.name)
        assert sum(row["delivered"] for row in series) == group["deliveries"]


def test_reception_is_its_two_parts(measured: Measured) -> None:
    for run in measured.runs:
        means = {row["stage"]: row["mean_ns"] for row in measured.found.rows("latency_totals", run=run.name)}
        assert means["reception"] == pytest.approx(means["t1"] + means["t2"])


def test_the_crash_is_a_view_change_of_all_survivors(measured: Measured) -> None:
    for run in measured.runs:
        (reset,) = measured.found.rows("view_totals", run=run.name, reason="reset")
        assert (reset["views"], reset["measured"]) == (1, 4)
        assert 0 < reset["max_recovery_ns"] < reset["min_ns"]


def test_only_the_token_goes_round(measured: Measured) -> None:
    rotating = {row["run"] for row in measured.found.rows("rotation_totals")}
    assert rotating == {run.name for run in measured.runs if run.info.orderer == "token"}


def test_tables_are_written_and_the_summary_names_every_run(measured: Measured, tmp_path: Path) -> None:
    write(tmp_path, measured.found, as_json(measured.found))
    for name, table in measured.found.tables.items():
        assert pq.read_table(tmp_path / f"{name}.parquet").equals(table)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [run["orderer"] for run in summary["runs"]] == list(ORDERERS)
    text = "\n".join(summary_lines(measured.found))
    for word in ("messages/s", "send to delivery", "datagrams", "view change: reset", "token round", "gap repaired"):
        assert word in text
    for run in measured.runs:
        assert run.name in text


def test_a_report_of_one_run_draws_what_was_measured(spark: SparkSession, measured: Measured, tmp_path: Path) -> None:
    run = measured.runs[0]
    found = Measures(
        (run,),
        {run.name: measured.found.spans[run.name]},
        {name: table.filter(_is_of(table, run.name)) for name, table in measured.found.tables.items()},
    )
    verdict = ReportVerdict("by hand", [JudgedProperty("integrity", 12, 0), JudgedProperty("promises", 0, 0)])
    page = write_report(spark, [run], tmp_path, verdict, title="A <b>run</b>", measured=found)
    assert page.stat().st_size < MOST_BYTES
    dom = rendered(page, tmp_path, "#t=1.1-1.3")
    assert script_errors(dom) == ""
    assert 'data-ready="1"' in dom
    text = text_of(drawn(dom))
    assert "A <b>run</b>" in text
    assert "Every guarantee held" in text
    assert "12 examined" in text
    assert "nothing to examine" in text
    (group,) = found.rows("group_totals")
    assert f"{group['messages']} messages" in text
    crashed = next(row["node"] for row in found.rows("marks") if row["kind"] == "crash")
    assert f"✕ {crashed}" in text
    assert "<script src" not in dom
    assert not re.search(r"(?:src|href)=\"(?!data:,)", dom)
    # The timeline: the window of the address, every delivery in it once, and as many lanes as nodes.
    _, rows = read_trace(run.folder)
    began_ns = found.spans[run.name].began_ns
    inside = [
        row for row in rows if row.kind == "deliver" and 1.1 <= ((row.at_ns - began_ns) // 1000) / 1e6 <= 1.3
    ]  # fmt: skip
    assert inside
    assert f'data-marks="{len(inside)}"' in dom
    assert drawn(dom).count('class="mark"') == len(inside)
    for curve in ("a", "AGREED p99"):
        assert f'data-name="{curve}"' in dom


def test_a_report_of_several_runs_compares_them(spark: SparkSession, measured: Measured, tmp_path: Path) -> None:
    evidence = {
        "run": measured.runs[1].name,
        "property": "total_order",
        "severity": "root",
        "node": HOSTILE,
        "detail": HOSTILE,
    }
    verdict = ReportVerdict("by hand", [JudgedProperty("total_order", 7, 1), JudgedProperty("fifo", 7, 0)], [evidence])
    page = write_report(spark, measured.runs, tmp_path, verdict, title=HOSTILE, measured=measured.found)
    assert page.stat().st_size < MOST_BYTES
    dom = rendered(page, tmp_path, "#run=2&by=place")
    assert script_errors(dom) == ""
    text = text_of(drawn(dom))
    assert "Guarantees were violated" in text
    assert "1 violated of 7" in text
    assert HOSTILE in text
    assert "<img" not in drawn(dom)
    assert '<section class="card verdict bad" id="verdict">' in dom
    comparison = drawn(dom).partition('id="comparison"')[2]
    for orderer in ORDERERS:
        assert f"<td>{orderer}</td>" in comparison
        assert f'data-name="{orderer} p99"' in comparison
    assert re.search(r'data-marks="[1-9]\d*"', dom)
    assert f'data-run="{measured.runs[2].name}"' in dom


def test_nothing_of_a_trace_can_end_the_data_of_the_page() -> None:
    inside = json_in_html({"text": HOSTILE + "\u2028 & @SCRIPT@"})
    assert not set(inside) & set("<>&\u2028")
    assert json.loads(inside) == {"text": HOSTILE + "\u2028 & @SCRIPT@"}
    page = page_of({"title": HOSTILE, "runs": [], "text": "@SCRIPT@"})
    assert page.count("</script>") == 3
    assert "@SCRIPT@" in page


def test_a_large_run_is_thinned_but_not_around_its_failures() -> None:
    assert choose("r", ROOM, (0, 1000), [500], ROOM) == Choice("r")
    choice = choose("r", 100 * ROOM, (0, 1_000_000), [500_000, 501_000, 900_000], ROOM)
    assert choice.every == 200
    assert choice.windows == ((499_167, 501_833), (899_167, 900_833))
    assert choose("r", 100 * ROOM, (0, 1_000_000), [], ROOM) == Choice("r", 100)


@pytest.mark.parametrize("command", ["measure", "report"])
def test_bad_input_is_named_before_spark_starts(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], measured: Measured
) -> None:
    assert main([command, str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    assert main([command, str(measured.runs[0].folder), "--out", str(tmp_path / "file")]) == 2
    assert "is a file; name a folder" in capsys.readouterr().err


def _is_of(table: Any, run: str) -> Any:
    import pyarrow.compute as pc

    return pc.equal(table.column("run"), run)
