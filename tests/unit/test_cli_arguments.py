"""Numbers and names on the command line: every option says what is wrong and what is expected, before anything runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ordercast.cli.arguments import decimal, group_name, min_members, probability, whole
from ordercast.cli.main import build_parser, main

BAD_INPUT = 2
WHOLE = "expected a whole number from"
NUMBER = "expected a number from"
CHANCE = "expected a probability"


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    assert (code, shown.out) == (BAD_INPUT, "")
    assert len(shown.err.splitlines()) == 1
    return shown.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("sim --nodes -1", "--nodes: expected a whole number from 1 to 200, not '-1'"),
        ("sim --nodes 2.5", f"--nodes: {WHOLE}"),
        ("sim --nodes 201", f"--nodes: {WHOLE}"),
        ("sim --messages -3", f"--messages: {WHOLE}"),
        ("sim --size -1", f"--size: {WHOLE}"),
        ("sim --senders -1", f"--senders: {WHOLE}"),
        ("sim --senders 6", "6 members cannot send: the group has 5"),
        ("sim --seconds -1", f"--seconds: {NUMBER}"),
        ("sim --seconds nan", f"--seconds: {NUMBER}"),
        ("sim --seconds inf", f"--seconds: {NUMBER}"),
        ("sim --loss 1", f"--loss: {CHANCE}"),
        ("sim --duplicate -0.1", f"--duplicate: {CHANCE}"),
        ("sim --reorder nan", f"--reorder: {CHANCE}"),
        ("sim --datagram 10", f"--datagram: {WHOLE}"),
        ("sim --crash -1", f"--crash: {WHOLE}"),
        ("sim --crash 6", "6 members cannot crash: the group has 5"),
        ("sim --crash 1 --restart 2", "2 members cannot restart: 1 of them crash"),
        ("sim --pause -1", f"--pause: {WHOLE}"),
        ("sim --partition -1", f"--partition: {WHOLE}"),
        ("sim --cut -1", f"--cut: {WHOLE}"),
        ("sim --slow -1", f"--slow: {WHOLE}"),
        ("sim --stall -1", f"--stall: {WHOLE}"),
        ("sim --leave -1", f"--leave: {WHOLE}"),
        ("sim --seed -1", f"--seed: {WHOLE}"),
        ("sim --scenario-seed x", f"--scenario-seed: {WHOLE}"),
        ("sim --min-members 0", "--min-members: expected a whole number from 1 to 1,000, majority or all"),
        ("sim --scenario /nowhere/at/all.json", "--scenario /nowhere/at/all.json cannot be read"),
        ("sim --save /nowhere/at/all.json", "--save /nowhere/at/all.json cannot be written"),
        ("fuzz --runs 0", f"--runs: {WHOLE}"),
        ("fuzz --first-seed -1", f"--first-seed: {WHOLE}"),
        ("fuzz --jobs 65", "--jobs: expected a whole number from 1 to 64, not '65'"),
        ("bench --members 1", f"--members: {WHOLE}"),
        ("bench --members many", f"--members: {WHOLE}"),
        ("bench --size 3", f"--size: {WHOLE}"),
        ("bench --seconds 0", f"--seconds: {NUMBER}"),
        ("bench --datagram 70000", f"--datagram: {WHOLE}"),
        ("demo --seconds 0", "--seconds: expected a number from 1 to 600, not '0'"),
        ("demo --seconds soon", f"--seconds: {NUMBER}"),
        ("demo --pause -1", f"--pause: {NUMBER}"),
        ("demo --loss 1", f"--loss: {CHANCE}"),
        ("compare latency --nodes x", "--nodes takes whole numbers"),
        ("compare latency --senders -1", f"--senders: {WHOLE}"),
        ("compare latency --messages 0", f"--messages: {WHOLE}"),
        ("compare latency --size -1", f"--size: {WHOLE}"),
        ("compare latency --jitter-ms -1", f"--jitter-ms: {NUMBER}"),
        ("compare latency --loss 0.5", f"--loss: {NUMBER}"),
        ("compare latency --reorder x", f"--reorder: {NUMBER}"),
        ("compare latency --seed -1", f"--seed: {WHOLE}"),
        ("compare latency --seeds 0", f"--seeds: {WHOLE}"),
        ("compare latency --jobs 0", f"--jobs: {WHOLE}"),
        ("figures qsm --figure 21", f"--figure: {WHOLE}"),
        ("record g --out o --fsync-interval 0", f"--fsync-interval: {WHOLE}"),
        ("record g --out o --patience -1", f"--patience: {NUMBER}"),
        ("record g --out o --segment-bytes many", "--segment-bytes is a size"),
        ("record g --out o --keep-age 3x", "--keep-age is a time"),
        ("replay o --from -1", f"--from: {WHOLE}"),
        ("replay o --to x", f"--to: {WHOLE}"),
    ],
)
def test_a_number_that_cannot_be_is_refused(words: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hint in refusal(words.split(), capsys)


def test_every_numeric_option_is_checked() -> None:
    """An option whose type is plain int or float takes anything: each has a range instead."""
    (commands,) = (each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    bare = [
        f"{name} {'/'.join(action.option_strings)}"
        for name, parser in commands.choices.items()
        for action in parser._actions
        if action.type in (int, float)
    ]
    assert bare == []


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "\x1b[31mred", "a\x7f", "\x85", ""])
@pytest.mark.parametrize("words", [["record", "{}", "--out", "o"], ["replay", "o", "--into", "{}"]])
def test_a_group_name_with_control_characters_is_refused(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refusal([word.replace("{}", name) for word in words], capsys)
    assert "name" in told
    assert told[:-1].isprintable(), "the answer itself has none"


def test_what_is_right_is_taken() -> None:
    assert whole(1, 5)("5") == 5
    assert decimal(0, 1)("0.25") == 0.25
    assert probability("0") == 0
    assert (min_members("7"), min_members("all"), min_members("majority")) == (7, "all", "majority")
    assert group_name("Aufträge/7 ☂") == "Aufträge/7 ☂"


def test_the_folder_of_a_trace_is_checked_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert "is a file" in refusal(["sim", "--trace", str(file)], capsys)
    assert "not empty" in refusal(["sim", "--trace", str(tmp_path)], capsys)
