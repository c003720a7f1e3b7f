"""`ordercast compare latency`: small runs of the real engines, the table, the figure, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ordercast.cli.main import main
from ordercast.sim.compare import compare, measure
from ordercast.sim.comparison import SATURATED, Comparison, ComparisonPlan, PlannedRun, Variant, parse_variant
from ordercast.sim.lab import Lab
from ordercast.sim.plots import draw
from ordercast.sim.tables import comparison_lines

BOTH = (Variant("timestamp"), Variant("timestamp", anticipate=False))
SMALL = ["compare", "latency", "--orderers", "token", "--nodes", "2", "--messages", "10", "--load", "1000"]
ALL = (Variant("sequencer"), Variant("token"), *BOTH)


@pytest.fixture(scope="module")
def small() -> Comparison:
    return compare(ComparisonPlan(ALL, (3,), (2_000.0, SATURATED), messages=60))


def test_the_same_messages_are_measured_on_each_orderer(small: Comparison) -> None:
    assert small.held
    assert small.events > 0
    assert [point.orderer for point in small.points[:4]] == [str(variant) for variant in ALL]
    for first in (0, 4):
        points = small.points[first : first + 4]
        assert len({point.messages for point in points}) == 1
        # Each message at both receivers; of each of the three senders the first tenth is left out.
        messages = points[0].messages
        assert {point.deliveries for point in points} == {2 * (messages - 3 * int(messages / 3 * 0.1))}


def test_the_parts_make_up_the_whole(small: Comparison) -> None:
    for point in small.points:
        assert point.t1.mean_us + point.t2.mean_us == pytest.approx(point.latency.mean_us)
        assert point.latency.p50_us <= point.latency.p95_us
        assert point.from_submit.mean_us > point.latency.mean_us
        assert sum(point.datagrams_by_kind.values()) == pytest.approx(point.datagrams_per_message)


def test_the_place_of_sequencer_and_token_is_the_last_thing_they_wait_for(small: Comparison) -> None:
    assert [point.t2.mean_us for point in small.points[:2]] == [0, 0]


def test_an_idle_message_takes_a_multicast_acknowledgements_and_a_decision() -> None:
    """TOMPA section 1 counts 3N messages for one; a multicast is one here, and nobody acknowledges to itself."""
    (tompa, abcast) = compare(ComparisonPlan(BOTH, (4,), (200.0,), messages=40)).points
    for point in (tompa, abcast):
        assert point.datagrams_by_kind["data"] == 1
        assert point.datagrams_by_kind["ack"] == pytest.approx(3, abs=0.1)
        assert point.datagrams_by_kind["decision"] == pytest.approx(1, abs=0.1)


def test_anticipation_cuts_the_second_part_where_datagrams_are_late() -> None:
    (reduction,) = compare(ComparisonPlan(BOTH, (4,), (5_000.0,), messages=400, reorder=0.05)).reductions()
    assert reduction.t2 > 10
    assert reduction.latency > 0


def test_the_result_is_the_same_again_and_with_several_jobs() -> None:
    plan = ComparisonPlan(
        (Variant("token"), Variant("sequencer")), (2,), (2_000.0,), messages=20, seeds=2, jitter_ms=0.5
    )
    told: list[tuple[int, int]] = []
    alone = compare(plan, progress=lambda done, runs, _text: told.append((done, runs)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert compare(plan, jobs=2).as_json() == alone.as_json()
    assert [len(point.seed_means_us) for point in alone.points] == [2, 2]


def test_only_some_may_send_and_services_may_be_strong() -> None:
    plan = ComparisonPlan((Variant("token"),), (3,), (1_000.0,), senders=1, messages=30, service="SAFE")
    (found,) = compare(plan).points
    assert (found.messages, found.deliveries) == (30, 2 * 27)
    assert found.t2.mean_us > 0


def test_delays_may_be_exponential() -> None:
    plan = ComparisonPlan(BOTH[:1], (2,), (1_000.0,), messages=20, spread_ms=0.5)
    assert plan.troubles() == ["exponential delays of 0.5 ms on average"]
    (late,) = compare(plan).points
    (plain,) = compare(ComparisonPlan(BOTH[:1], (2,), (1_000.0,), messages=20)).points
    assert late.from_submit.mean_us > plain.from_submit.mean_us + 500


def test_a_violation_fails_the_comparison(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Lab, "violations", lambda _self: 2)
    assert main(SMALL) == 1
    assert "FAILED" in capsys.readouterr().out


def test_a_group_that_does_not_deliver_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ordercast.sim import compare as module

    monkeypatch.setattr(module, "LIMIT_NS", -(1 << 60))
    assert main(SMALL) == 1
    assert "were not delivered" in capsys.readouterr().err


def test_one_run_is_a_pure_function() -> None:
    plan = ComparisonPlan((Variant("timestamp"),), (3,), (2_000.0,), messages=30)
    run = PlannedRun(parse_variant("timestamp"), 3, 2_000.0, 4)
    assert measure(plan, run) == measure(plan, run)


def test_the_table_says_what_was_measured(small: Comparison) -> None:
    lines = comparison_lines(small)
    assert lines[0].startswith("AGREED, 100 bytes, all sending; lan, 30 us a hop and up to 10 us more")
    assert sum("timestamp:no-anticipate" in line for line in lines) == 2
    assert any(line.startswith("what anticipation saves") for line in lines)
    assert lines[-1].startswith("every guarantee held: 8 runs")


@pytest.mark.parametrize(("name", "magic"), [("figure.svg", b"<?xml"), ("figure.png", b"\x89PNG")])
def test_the_figure_is_the_same_file_again(small: Comparison, name: str, magic: bytes, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "again").mkdir()
    for path in (tmp_path / name, tmp_path / "again" / name):
        draw(small, path)
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_the_figure_names_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan = ComparisonPlan(BOTH, (2, 3), (1_000.0,), messages=20)
    draw(compare(plan), tmp_path / "figure.svg")
    figure = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for word in (
        "timestamp:no-anticipate",
        "t1: until its sequence number is known",
        "members",
        "datagrams per message",
    ):
        assert word in figure
    assert "mean latency (µs)" in figure


def test_the_command_prints_json_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    words = "compare latency --orderers timestamp,timestamp:no-anticipate --nodes 2,3 --load 1000,4000 --messages 20"
    out = tmp_path / "latency.svg"
    assert main([*words.split(), "--json", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    found: dict[str, Any] = json.loads(shown.out)
    assert found["held"]
    assert len(found["points"]) == 8
    assert len(found["reductions_percent"]) == 4
    assert found["parameters"]["jitter_ms"] == 0.01
    assert out.is_file()
    assert "8/8 runs" in shown.err or "figure:" in shown.err


def test_a_figure_without_matplotlib_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with without("matplotlib", monkeypatch):
        assert main(["compare", "latency", "--out", str(tmp_path / "figure.png")]) == 2
    shown = capsys.readouterr()
    assert shown.err == "ordercast compare: --out needs matplotlib: pip install 'ordercast[plot]'\n"
    assert not list(tmp_path.iterdir())


@contextmanager
def without(module: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, module, None)
        yield


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--orderers dice", "there is no orderer 'dice'; choose some of sequencer, token, timestamp"),
        ("--orderers token,,sequencer", "with commas between them"),
        ("--orderers token:no-anticipate", "there is no variant 'no-anticipate' of token"),
        ("--orderers timestamp:fast", "there is no variant 'fast' of timestamp"),
        ("--orderers token,token", "names a value twice"),
        ("--nodes 0", "--nodes lies between 2 and 64, not 0"),
        ("--nodes 5,many", "--nodes takes whole numbers, not 'many'"),
        ("--load 0", "a load is a number of messages per second"),
        ("--load busy", "or light, medium, heavy, saturated, not 'busy'"),
        ("--load nan", "a load is a number"),
        ("--service LOUD", "unknown service"),
        ("--service MAJORITY", "the sequencer gives"),
        ("--senders 9", "--senders lies between 0 and 5"),
        ("--messages 0", "--messages: expected"),
        ("--jobs 0", "--jobs: expected"),
        ("--network moon", "--help"),
        ("--out figure.pdf", "neither .png nor .svg"),
        ("--out nowhere/at/all.png", "there is no folder nowhere/at"),
    ],
)
def test_bad_input_is_named_and_exits_with_2(words: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["compare", "latency", *words.split()])
    except SystemExit as ended:
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    assert code == 2
    assert hint in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""


def test_a_figure_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "figure.png"
    folder.mkdir()
    assert main(["compare", "latency", "--out", str(folder)]) == 2
    assert "is a folder" in capsys.readouterr().err
