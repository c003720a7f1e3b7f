"""The demo in short, between real processes: a crash, a recovery, a guest, and the verdict."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ordercast.cli import proof
from ordercast.cli.demo import ROLES
from ordercast.cli.main import main
from ordercast.sim.checkers import PROPERTIES
from ordercast.trace.run import RunInfo


def test_every_guarantee_is_examined_and_holds_when_the_token_site_is_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = demo(["--seconds", "2"], tmp_path / "trace", capfd)
    assert result["orderer"] == "token"
    assert len(result["calls"]) == 2
    before, after = (call["answered_by"] for call in result["calls"])
    assert before == result["killed"]
    assert after in result["delivered"]


def test_the_sequencer_is_killed_where_there_is_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = demo(["--seconds", "1", "--orderer", "sequencer"], tmp_path / "trace", capfd)
    assert result["orderer"] == "sequencer"
    assert result["calls"] == []


def test_the_first_member_is_killed_where_all_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = demo(["--seconds", "1", "--orderer", "timestamp"], tmp_path / "trace", capfd)
    assert (result["orderer"], result["anticipate"]) == ("timestamp", True)
    assert result["calls"] == []
    assert RunInfo.read(tmp_path / "trace").parameters["anticipate"] is True


def test_two_sites_go_on_apart_and_merge(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "trace"
    code = main(["demo", "--no-spark", "--trace", str(folder), "--json", "--seconds", "2", "--orderer", "sites"])
    shown = capfd.readouterr()
    assert code == 0, shown.out + shown.err
    result: dict[str, Any] = json.loads(shown.out)
    assert result["held"]
    assert set(result["verdict"]["properties"]) == set(PROPERTIES)
    assert all(count > 0 for count in result["ordered_apart"].values())
    assert set(result["delivered"]) == {"ann", "bob", "cleo", "dan"}
    info = RunInfo.read(folder)
    assert info.orderer == "sites"
    assert info.partitions == "continue"
    assert info.parameters["sites"]["cleo"] == "west"


def test_most_messages_may_ask_for_less(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "trace"
    result = demo(["--seconds", "1", "--service", "fifo"], folder, capfd)
    assert result["service"] == "FIFO"
    assert RunInfo.read(folder).services[0] == "FIFO"


def demo(arguments: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The result of a demo that went well, as demos do; without Spark, which takes its time to start."""
    code = main(["demo", "--no-spark", "--trace", str(folder), "--json", *arguments])
    shown = capfd.readouterr()
    assert code == 0, shown.out + shown.err
    result: dict[str, Any] = json.loads(shown.out)
    assert result["report"] is None
    assert set(result["verdict"]["properties"]) == set(PROPERTIES)
    check(result, folder, shown.err)
    return result


def check(result: dict[str, Any], folder: Path, told: str) -> None:
    assert result["held"]
    assert result["same_messages"]
    assert all(found["checked"] for found in result["verdict"]["properties"].values())
    assert result["killed"] not in result["delivered"]
    assert len(result["stood_still_ms"]) == 3
    assert max(result["stood_still_ms"].values()) < 20_000
    assert result["confirmed"] > 0
    assert result["promises_broken"] == 0
    assert RunInfo.read(folder).clock == "one-host"
    assert len(list((folder / "events").glob("node=*/part-*.parquet"))) == 5
    assert f"killed {result['killed']}, {ROLES[result['orderer']]}" in told


def test_spark_judges_the_demo_and_draws_a_report(tmp_path: Path) -> None:
    """In a process of its own: a session of Spark belongs to its process, and other tests have one."""
    pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'ordercast[spark]'")
    folder = tmp_path / "trace"
    command = [sys.executable, "-m", "ordercast.cli.main", "demo", "--seconds", "2", "--trace", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    check(result, folder, done.stderr)
    assert "Spark" in result["verdict"]["by"]
    assert set(result["verdict"]["properties"]) == set(PROPERTIES) - {"well_formed"}
    assert result["report"] == str(folder / "report.html")
    page = Path(result["report"]).read_text(encoding="utf-8")
    assert "Ordercast demo" in page
    assert RunInfo.read(folder).run_id in page


def test_without_spark_the_demo_says_who_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "missing", lambda _: ["pyspark"])
    monkeypatch.setattr(proof, "convert", lambda *_, **__: None)
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["sim", "--messages", "100", "--trace", str(tmp_path / "trace")]) == 0
    said: list[str] = []
    found = proof.prove(tmp_path / "trace", {}, with_spark=True, say=said.append)
    assert "Spark is not installed" in found.by
    assert "there is no report" in said[0]
    assert found.report is None
    assert found.properties["total_order"].word == "held"


def test_an_interrupted_demo_ends_with_130_and_leaves_no_member_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ordercast.cli.main", "demo", "--trace", str(tmp_path / "trace")]
    # What a shell starts in the background ignores interrupts, and so does what that starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        demo = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with demo:
        assert demo.stderr is not None
        assert demo.stdout is not None
        for line in demo.stderr:
            if "all of them send" in line:
                break
        demo.send_signal(signal.SIGINT)
        # The members have inherited standard error: it ends when the last of them has.
        said = demo.stderr.read()
        assert demo.stdout.read() == ""
    assert demo.returncode == 130
    assert said.splitlines()[-1] == "ordercast demo: interrupted"


def test_regions_go_on_without_a_member_and_without_a_leader(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "trace"
    code = main(["demo", "--no-spark", "--trace", str(folder), "--json", "--seconds", "1", "--orderer", "regions"])
    shown = capfd.readouterr()
    assert code == 0, shown.out + shown.err
    result = json.loads(shown.out)
    assert result["held"]
    assert result["blocks_lost"] == 0
    assert {result["killed"]["member"], result["killed"]["leader"]} < {"dan", "eve", "fay", "gus"}
    examined = result["verdict"]["properties"]
    for name in ("fifo", "group_fifo", "regional", "region_views", "liveness", "promises"):
        assert (examined[name]["result"], examined[name]["violations"]) == ("held", 0), name
    assert RunInfo.read(folder).orderer == "regions"
