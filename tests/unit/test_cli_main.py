"""The command line: what it teaches, and how it answers bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.archive.reader import Record
from ordercast.cli import demo, replay
from ordercast.cli.main import COMMANDS, EPILOG, main

BAD_INPUT = 2


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said to these arguments, which must be refused with one line and nothing on standard output."""
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    assert code == BAD_INPUT
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    return shown.err


@pytest.mark.parametrize("command", list(COMMANDS))
def test_help_teaches_by_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "examples:" in shown
    assert f"ordercast {command}" in shown


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("ordercast ")


def test_no_command_is_answered_with_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert "demo, sim, fuzz, explore, bench" in refusal([], capsys)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["dmeo"], "choose from"),
        (["demo", "--sekonds", "3"], "--help"),
        (["demo", "--seconds", "0"], "expected a number from 1 to 600"),
        (["demo", "--seconds", "soon"], "--help"),
        (["demo", "--host", "10.0.0.1"], "--insecure"),
        (["demo", "--host", "localhost:x"], "no port"),
        (["sim", "--topology", "gone.toml"], "gone.toml cannot be read: No such file"),
        (["sim", "--topology", "gone.toml", "--nodes", "3"], "leave out --nodes"),
        (["sim", "--cut-pipe", "1"], "cut-pipe is a fault of sites: give a topology"),
        (["sim", "--topology", "gone.toml", "--ladder"], "takes no --topology"),
        (["sim", "--orderer", "sites"], "the orderer sites needs sites: give a topology"),
        (["sim", "--orderer", "sites", "--scenario-seed", "3", "--crash", "1"], "a seed of sites says everything"),
        (["sim", "--orderer", "sites", "--many-groups"], "drawn from a seed or from flags"),
        (["demo", "--orderer", "sites", "--pause", "1", "--loss", "0.1"], "leave out --pause, --loss"),
        (["demo", "--orderer", "sites", "--service", "MAJORITY"], "the orderer sites gives"),
        (["sim", "--topology", "gone.toml", "--scenario-seed", "3"], "without other parameters"),
        (["demo", "--hosts", "127.0.0.1,127.0.0.2"], "5 addresses are needed"),
        (["demo", "--peers", "127.0.0.1:7401"], "5 addresses are needed"),
        (["demo", "--peers", *["127.0.0.1:7401"] * 5], "names an address twice"),
        (["demo", "--exec-prefix", "ip netns exec {name}"], "only {n} is replaced"),
        (["demo", "--exec-prefix", "'half a quote"], "cannot be read"),
        (["demo", "--pause", "-1"], "--pause: expected"),
        (["bench", "--members", "1"], "--members: expected"),
        (["bench", "--size", "3"], "--size: expected"),
        (["bench", "--seconds", "nan"], "--seconds: expected"),
        (["bench", "--datagram", "100000"], "--datagram: expected"),
        (["bench", "--service", "PERFECT"], "choose one of"),
        (["bench", "--orderer", "sequencer", "--service", "CAUSAL"], "sequencer gives"),
        (["bench", "--service", "RESILIENT"], "RESILIENT(2)"),
        (["bench", "--senders", "2"], "--help"),
        (["bench", "--orderer", "dice"], "sequencer"),
        (["demo", "--orderer", "dice"], "token"),
        (["demo", "--service", "PERFECT"], "choose one of"),
        (["demo", "--orderer", "sequencer", "--service", "MAJORITY"], "sequencer gives"),
        (["sim", "--orderer", "dice"], "sequencer"),
        (["fuzz", "--runs", "many"], "--help"),
        (["demo", "--orderer", "token", "--no-anticipate"], "a choice of timestamp only"),
        (["bench", "--anticipate"], "a choice of timestamp only"),
        (["sim", "--orderer", "sequencer", "--no-anticipate"], "a choice of timestamp only"),
    ],
)
def test_bad_input_is_answered_with_what_to_do(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hint in refusal(arguments, capsys)


def test_a_trace_folder_that_is_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert "folder of its own" in refusal(["demo", "--trace", str(tmp_path)], capsys)


def test_the_module_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ordercast.cli.main", "bench", "--members", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == BAD_INPUT
    assert "--members: expected" in done.stderr


def test_the_length_of_the_demo_is_told_once() -> None:
    """One measured number, in both helps, the Makefile and the README."""
    root = Path(__file__).resolve().parents[2]
    lines = {
        "Makefile": [line for line in (root / "Makefile").read_text().splitlines() if line.startswith("demo:")],
        "README.md": [line for line in (root / "README.md").read_text().splitlines() if line.startswith("make demo")],
        "ordercast --help": [line for line in EPILOG.splitlines() if "ordercast demo" in line],
        "ordercast demo --help": demo.EXAMPLES.splitlines()[2:3],
    }
    for where, told in lines.items():
        assert len(told) == 1, where
        assert demo.LENGTH in told[0], where


def test_replay_prints_the_columns_that_its_help_promises() -> None:
    record = Record("g", 7, "1@ann/1", "ann/1", 3, "AGREED", 1_700_000_000_000_000_000, 5, b"tea")
    assert replay.line_of(record) == "7 2023-11-14T22:13:20.000Z ann/1 3 AGREED type 5 tea\n"
    assert replay.line_of(record._replace(type=0)).split()[5:] == ["tea"]
    assert "position, time (UTC), sender, its number, service, type if any, value" in replay.EXAMPLES


def test_a_mistake_in_a_topology_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wan.toml"
    path.write_text('[[site]]\nname = "east"\n', encoding="utf-8")
    assert f"{path}:2: site east has no daemons" in refusal(["sim", "--topology", str(path)], capsys)


def test_a_run_over_sites_shows_its_pipes_and_is_repeated_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = str(Path(__file__).parents[2] / "examples" / "wan.toml")
    saved = str(tmp_path / "wan.json")
    words = ["sim", "--topology", example, "--messages", "8", "--orderer", "token", "--cut-pipe", "1", "--save", saved]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "\neast>west " in shown
    assert f"--topology {example}" in shown
    assert main(["sim", "--scenario", saved]) == 0
    again = capsys.readouterr().out

    def digest(text: str) -> str:
        return next(line for line in text.splitlines() if line.startswith("digest "))

    assert digest(again) == digest(shown)
