"""The one form of all figures: as text, Markdown and JSON, as pictures, and what the command refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.figures.measured import quick_reports

from ordercast.cli import figures as command
from ordercast.cli.main import main
from ordercast.figures.drawing import draw, panels
from ordercast.figures.report import (
    Chart,
    Claim,
    ClaimStatus,
    Curve,
    CurveKind,
    FigureTable,
    PaperReport,
    Picture,
    cells,
    markdown_lines,
    text_lines,
)
from ordercast.sim.lab import MeasurementFailed

SMALL = PaperReport(
    "some",
    "Some paper",
    "How it was measured.",
    (
        Claim("5", "a number", "2", "3", ClaimStatus.DIFFERS, "because"),
        Claim("6", "another", "1", "", ClaimStatus.NOT_MEASURED),
    ),
    (FigureTable("Numbers", ("n", "ms"), (("1", "2.00"), ("16", "2.50")), "Of runs."),),
    (
        Picture(
            "some",
            "A picture",
            (
                Chart(
                    "chart",
                    "members",
                    "ms",
                    (
                        Curve("ours", ((1.0, 2.0), (2.0, 3.0))),
                        Curve("ours: model", ((1.0, 2.0), (2.0, 2.5)), CurveKind.MODEL),
                        Curve("paper", ((1.0, 1.0),), CurveKind.PAPER),
                        Curve("paper's limit", ((0.0, 4.0), (2.0, 4.0)), CurveKind.PAPER),
                    ),
                ),
            ),
        ),
    ),
    0,
)


def test_text_has_the_papers_number_beside_ours_and_the_reason() -> None:
    lines = text_lines(SMALL)
    at = lines.index("a number (5): differs")
    assert lines[at + 1 : at + 4] == ["  paper  2", "  ours   3", "  why    because"]
    assert lines[lines.index("Numbers") + 1 :][:4] == ["Of runs.", " n    ms", " 1  2.00", "16  2.50"]
    assert lines[-1] == "Every run was judged, and every guarantee held."


def test_markdown_has_tables_and_pictures() -> None:
    lines = markdown_lines(SMALL, "img")
    assert "| 5 | a number | 2 | 3 | differs | because |" in lines
    assert "| 16 | 2.50 |" in lines
    assert "![A picture](img/some.svg)" in lines


def test_json_has_everything() -> None:
    found = json.loads(json.dumps(SMALL.as_json()))
    assert found["held"] is True
    assert [claim["finding"] for claim in found["claims"]] == ["differs", "not measured"]
    assert found["tables"][0]["rows"] == [["1", "2.00"], ["16", "2.50"]]
    assert found["pictures"][0]["charts"][0]["curves"][1]["kind"] == "model"


def test_a_violation_spoils_all_numbers() -> None:
    spoiled = replace(SMALL, violations=2)
    assert not spoiled.held
    assert text_lines(spoiled)[-1].startswith("FAILED: 2 violations")


def test_numbers_are_printed_with_so_many_digits() -> None:
    assert cells((3, 2.0, "x", 1.236)) == ("3", "2.00", "x", "1.24")
    assert cells((2.06,), digits=1) == ("2.1",)


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, second = (draw(SMALL.pictures[0], folder) for folder in (tmp_path, tmp_path / "again"))
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text(encoding="utf-8")
    assert all(word in text for word in ("ours: model", "members", "chart"))


def test_no_more_than_three_panels_stand_side_by_side() -> None:
    assert [panels(charts) for charts in range(1, 8)] == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 3), (3, 3)]


def test_points_far_apart_are_spaced_logarithmically_and_each_is_named(tmp_path: Path) -> None:
    groups = Chart(
        "groups", "groups", "ms", (Curve("ours", ((2.0, 50.0), (256.0, 50.0), (8192.0, 40.0))),), is_log=True
    )
    text = draw(Picture("groups", "A picture", (groups,) * 4), tmp_path).read_text(encoding="utf-8")
    assert [text.count(f">{place}</text>") for place in (2, 256, 8192)] == [4, 4, 4]


# The command. ---------------------------------------------------------------------------------------------------------


def test_the_command_prints_json_and_draws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(command.PAPERS, "rmp", lambda _args, _tell: quick_reports()["rmp"])
    assert main(["figures", "rmp", "--quick", "--json", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["paper"] == "rmp"
    assert [path.name for path in tmp_path.iterdir()] == ["rmp.svg"]
    assert "picture: " in shown.err


def test_the_command_measures_with_the_seed_that_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "rmp", "--quick", "--seed", "3", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("## RMP, section 5\n")


def test_a_violation_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(command.PAPERS, "amoeba", lambda _args, _tell: replace(SMALL, violations=1))
    assert main(["figures", "amoeba"]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_a_run_that_fails_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_args: object, _tell: object) -> PaperReport:
        raise MeasurementFailed("of 3 broadcasts 2 were delivered")

    monkeypatch.setitem(command.PAPERS, "amoeba", fail)
    assert main(["figures", "amoeba"]) == 1
    assert "ordercast figures: of 3 broadcasts 2 were delivered" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("figures", "the following arguments are required: paper"),
        ("figures totem", "invalid choice: 'totem'"),
        ("figures rmp --seed -1", "expected a whole number from 0"),
        ("figures rmp --seed x", "expected a whole number from 0"),
        ("figures tompa --jobs 0", "expected a whole number from 1 to 64"),
        ("figures rmp --json --markdown", "not allowed with argument"),
        ("figures rmp --network lan", "unrecognized arguments"),
    ],
)
def test_bad_arguments_are_exit_code_2(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == 2
    assert error in capsys.readouterr().err


def test_bad_input_is_refused_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for words, error in (
        (["rmp", "--jobs", "2"], "--jobs is for tompa and qsm, not for rmp"),
        (["rmp", "--figure", "9"], "--figure and --keep are for qsm, not for rmp"),
        (["spread", "--keep", "runs"], "--figure and --keep are for qsm, not for spread"),
        (["rmp", "--out", str(tmp_path / "gone")], "is not there: it takes a folder"),
        (["rmp", "--out", str(tmp_path / "file")], "is a file: it takes a folder"),
    ):
        assert main(["figures", *words]) == 2
        assert error in capsys.readouterr().err
