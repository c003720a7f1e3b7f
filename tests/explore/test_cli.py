"""`ordercast explore`: what it takes, prints and returns."""

from __future__ import annotations

import json

import pytest

from ordercast.cli.main import main
from ordercast.explore import path
from ordercast.explore.scenarios import SCENARIOS

SMALL = ["explore", "--orderer", "sequencer", "--scenario", "leave", "--members", "2"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--scenario", "dance"], "there is no scenario 'dance'; choose one of leave,"),
        (["--scenario", "lock"], "the scenario 'lock' is for the orderer token, not 'sequencer'"),
        (["--faults", "cut,flood"], "there is no kind of failure 'flood'; choose of cut,"),
        (["--only", "luck"], "there is no kind of finding 'luck'; choose of fork,"),
        (["--variant", "3"], "--variant=3: the scenario has the variants 0 to 1"),
        (["--replay", "3:melt:a"], "'3:melt:a' is no deviation"),
        (["--replay", "0:cut:xy>z"], "cut:xy>z names no links of ab"),
        (["--replay", "500:heal"], "the run is over before 500:heal"),
    ],
)
def test_bad_input_is_refused_with_what_would_be_right(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--members", "1"], ["--members", "6"], ["--deviations", "-1"], ["--jobs", "0"]])
def test_numbers_out_of_range_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*SMALL, *words])
    assert ended.value.code == 2


def test_a_search_says_how_far_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--deviations", "0"]) == 0
    out = capsys.readouterr().out
    assert "leave, sequencer, 2 members: up to 0 deviations (cut, split, crash)" in out
    assert "no failure; the bound is explored completely" in out


def test_a_search_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--deviations", "0", "--faults", "lose", "--steps", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["held"]
    assert found["complete"]
    assert found["paths"] == [2]
    assert found["command"] == (
        "ordercast explore --orderer sequencer --scenario leave --members 2 --deviations 0 --faults lose --steps 5"
    )


def test_programs_may_act_without_any_failure(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explore", "--orderer", "sequencer", "--scenario", "cancel", "--members", "2", "--faults", "none"]
    main([*words, "--only", "livelock", "--variant", "0", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["faults"] == []
    assert found["paths"][1] > 0
    assert found["command"] == (
        "ordercast explore --orderer sequencer --scenario cancel --members 2 --only livelock --deviations 1 "
        "--faults none --variant 0"
    )


def test_all_scenarios_of_an_orderer_in_one_go(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["explore", "--orderer", "timestamp", "--scenario", "all", "--deviations", "0", "--only", "stuck", "--json"]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert [each["scenario"] for each in found] == [name for name in SCENARIOS if name != "lock"]
    assert all(each["complete"] for each in found)
    assert main(["explore", "--scenario", "all", "--replay", "1:heal"]) == 2


def test_one_path_is_shown_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--replay", "0:crash:b"]) == 0
    out = capsys.readouterr().out
    assert "b leaves" in out
    assert "[  0]  b>a PROPOSE" in out
    assert "-- crash b" in out


@pytest.mark.parametrize(("scenario", "path"), [("swap", "0:kill:a 2:split:abd|c"), ("return", "2:link:b>a 6:crash:c")])
def test_a_newcomer_keeps_its_vote_while_it_hears_members_of_a_frozen_ring(scenario: str, path: str) -> None:
    """Both paths ended stuck once: the newcomer gave up a join that was ordered and not decided."""
    command = ["explore", "--orderer", "token", "--scenario", scenario, "--members", "3", "--variant", "1"]
    assert main([*command, "--replay", path]) == 0


def test_a_failure_is_shown_with_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that has no time to come to rest is taken for stuck."""
    monkeypatch.setattr(path, "REST_TICKS", 0)
    assert main([*SMALL, "--deviations", "0"]) == 1
    out = capsys.readouterr().out
    assert "FAILURE stuck" in out
    assert "replay: ordercast explore --orderer sequencer --scenario leave --members 2 --variant 0 --replay ''" in out
    assert main([*SMALL, "--variant", "0", "--replay", "", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["findings"][0]["kind"] == "stuck"
