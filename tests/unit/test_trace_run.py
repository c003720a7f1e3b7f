"""run.json: docs/trace.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.trace.cells import TraceGarbled
from ordercast.trace.run import FILE_NAME, RunInfo


def simulated(**changes: Any) -> RunInfo:
    asked: dict[str, Any] = {"seed": 1, "orderer": "sequencer", "services": ["AGREED"], "parameters": {"loss": 0.1}}
    return RunInfo.simulated(**(asked | changes))


def observed(**changes: Any) -> RunInfo:
    known: dict[str, Any] = {
        "run_id": "r1",
        "started": "2026-01-02T03:04:05+00:00",
        "source": "network",
        "clock": "one-host",
        "seed": None,
        "orderer": "token",
        "services": ("SAFE", "RESILIENT(2)"),
        "parameters": {"members": 4},
        "software_version": "0.1.0",
        "clock_offset_ns": -5,
    }
    return RunInfo(**(known | changes))


@pytest.mark.parametrize("run", [simulated(), observed()])
def test_a_run_comes_back_as_it_was_written(run: RunInfo, tmp_path: Path) -> None:
    run.write(tmp_path / "new folder")
    assert RunInfo.read(tmp_path / "new folder") == run


def test_a_simulated_run_is_named_by_its_parameters_and_starts_at_the_epoch() -> None:
    run = simulated()
    assert run == simulated()
    assert run.started == "1970-01-01T00:00:00+00:00"
    assert (run.source, run.clock, run.clock_offset_ns) == ("sim", "virtual", 0)
    others = [simulated(seed=2), simulated(orderer="token"), simulated(services=["SAFE"]), simulated(parameters={})]
    assert len({run.run_id, *(other.run_id for other in others)}) == 5


def test_the_order_in_which_parameters_are_given_does_not_matter(tmp_path: Path) -> None:
    one = simulated(parameters={"a": 1, "b": {"c": 2, "d": 3}})
    other = simulated(parameters={"b": {"d": 3, "c": 2}, "a": 1})
    assert one.run_id == other.run_id
    assert one.write(tmp_path / "1").read_bytes() == other.write(tmp_path / "2").read_bytes()


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), object()])
def test_parameters_that_json_cannot_say_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="JSON"):
        simulated(parameters={"x": value})


@pytest.mark.parametrize("changes", [{"source": "dream"}, {"clock": "sundial"}])
def test_an_unknown_source_or_clock_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes.values()))):
        observed(**changes)


def test_a_folder_without_a_run_is_not_a_trace(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a trace"):
        RunInfo.read(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"seed": "1"}, {"services": [1]}, {"parameters": []}, {"clock": "sundial"}, {"extra": 1}, {"seed": True}],
)
def test_a_run_with_a_wrong_value_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = observed().write(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(TraceGarbled):
        RunInfo.read(tmp_path)


@settings(deadline=None)
@given(
    data=st.binary(max_size=200) | st.recursive(st.integers(), st.lists).map(lambda value: json.dumps(value).encode())
)
def test_hostile_bytes_raise_only_what_is_announced(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / FILE_NAME).write_bytes(data)
    with pytest.raises(TraceGarbled):
        RunInfo.read(folder)
