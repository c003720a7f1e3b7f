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
from tests.pipeline.region_traces import planned
from tests.pipeline.traces import write as write_trace
from tests.unit.trace_builder import World

from ordercast.cli.main import main
from ordercast.pipeline.measure.groups import MOST_GROUPS
from ordercast.pipeline.measure.job import as_json, measure_runs, write
from ordercast.pipeline.measure.measures import Measures
from ordercast.pipeline.measure.summary import summary_lines
from ordercast.pipeline.reading import TraceRun, inspect
from ordercast.pipeline.report.job import write_report
from ordercast.pipeline.report.page import json_in_html, page_of
from ordercast.pipeline.report.timeline import ROOM, Choice, choose
from ordercast.pipeline.report.verdict import JudgedProperty, ReportVerdict
from ordercast.trace.schema import Row
from ordercast.trace.store import read_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERERS = ("token", "sequencer", "timestamp")
HOSTILE = "</script><script>window.evil=1</script><img src=x onerror='window.evil=1'>"
MOST_BYTES = 3_000_000
GROUPS = 120


class Measured(NamedTuple):
    """Three runs, one with very many groups, and one with regions, measured once for all tests."""

    runs: tuple[TraceRun, ...]
    found: Measures
    many: Measures
    planned: Measures


def many_groups() -> list[Row]:
    """A shared underlay: of 120 groups each has one message more than the one before it."""
    world = World(*"ab")
    for number in range(GROUPS):
        world.view(10 + number, "ab", came={name: name for name in "ab"}, group=f"g{number}")
        world.send("a", "ab", number + 1, group=f"g{number}")
    return world.rows()


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("runs")
    for orderer in ORDERERS:
        words = ["--orderer", orderer, "--messages", "400", "--seed", "7", "--loss", "0.02", "--crash", "1"]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["sim", *words, "--trace", str(folder / orderer)]) == 0
    write_trace(folder / "many", many_groups())
    write_trace(folder / "planned", planned().world.rows())
    runs = inspect([folder / name for name in (*ORDERERS, "many", "planned")])
    found = measure_runs(spark, runs)
    return Measured(runs[:-2], _only(found, *runs[:-2]), _only(found, runs[-2]), _only(found, runs[-1]))


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
    found = _only(measured.found, run)
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


def test_of_very_many_groups_the_busiest_have_figures_of_their_own(
    spark: SparkSession, measured: Measured, tmp_path: Path
) -> None:
    groups = measured.many.rows("group_totals")
    rest = f"({GROUPS - MOST_GROUPS} other groups)"
    assert {row["group"] for row in groups} == {rest, *(f"g{number}" for number in range(GROUPS - MOST_GROUPS, GROUPS))}
    assert sum(row["messages"] for row in groups) == GROUPS * (GROUPS + 1) // 2
    assert sum(row["deliveries"] for row in groups) == GROUPS * (GROUPS + 1)
    (others,) = (row for row in groups if row["group"] == rest)
    assert others["messages"] == (GROUPS - MOST_GROUPS) * (GROUPS - MOST_GROUPS + 1) // 2
    for name, table in measured.many.tables.items():
        if "group" in table.column_names:
            assert set(table.column("group").to_pylist()) == {row["group"] for row in groups}, name
    assert sum(row["messages"] for row in measured.many.rows("latency_totals", stage="send")) == GROUPS * (GROUPS + 1)
    (views,) = measured.many.rows("group_view_totals")
    assert (views["views"], views["groups"], views["installed"]) == (GROUPS, GROUPS, 2 * GROUPS)
    text = "\n".join(summary_lines(measured.many))
    assert f"group g{GROUPS - 1} " in text
    assert f"group g{GROUPS - MOST_GROUPS} " not in text
    assert f"group {rest}" in text
    page = write_report(spark, list(measured.many.runs), tmp_path, None, measured=measured.many)
    dom = rendered(page, tmp_path, "")
    assert script_errors(dom) == ""
    table = drawn(dom).partition('id="groups"')[2].partition("</section>")[0]
    assert f"<td>{rest}</td>" in table
    assert f"<td>g{GROUPS - MOST_GROUPS}</td>" in table
    assert table.count("<tr>") == MOST_GROUPS + 2


def test_of_regions_waste_control_and_repairs_are_counted(measured: Measured) -> None:
    """Worked out by hand from what `planned` says."""
    found = measured.planned
    waste = {row["node"]: (row["received"], row["delivered"], row["wasted"]) for row in found.rows("region_waste")}
    assert waste == {"a": (20, 20, 0), "b": (22, 16, 6), "d": (12, 6, 6)}
    (total,) = found.rows("region_totals")
    assert (total["regions"], total["blocks"], total["carried"], total["lost_blocks"]) == (1, 5, 34, 1)
    assert (total["tokens"], total["pushed"], total["pulls"], total["pulled"]) == (4, 3, 2, 2)
    assert (total["data_bytes"], total["control_bytes"], total["control_share"]) == (9_000, 1_000, 0.1)
    assert (total["received"], total["wasted"]) == (54, 12)
    assert total["waste_share"] == pytest.approx(12 / 54)
    text = "\n".join(summary_lines(found))
    for word in ("repairs by push", "messages received and not wanted", "22.2 %", "at d in region/1", "10.0 %"):
        assert word in text
    (run,) = as_json(found)["runs"]
    assert run["regions"][0]["tokens"] == 4
    assert [row["node"] for row in run["waste"]] == ["a", "b", "d"]
    assert measured.found.rows("region_totals") == []


def test_a_report_of_regions_shows_them(spark: SparkSession, measured: Measured, tmp_path: Path) -> None:
    found = measured.planned
    page = write_report(spark, found.runs, tmp_path, None, title="planned", measured=found)
    dom = rendered(page, tmp_path, "")
    assert script_errors(dom) == ""
    text = text_of(drawn(dom))
    for word in ("repairs by push", "received and not wanted", "22.2 %", "nodes with waste"):
        assert word in text


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


def _only(found: Measures, *runs: TraceRun) -> Measures:
    """What was found of these runs."""
    names = [run.name for run in runs]
    tables = {name: table.filter(_is_of(table, names)) for name, table in found.tables.items()}
    return Measures(runs, {name: found.spans[name] for name in names}, tables)


def _is_of(table: Any, runs: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(table.column("run"), value_set=pa.array(runs))
