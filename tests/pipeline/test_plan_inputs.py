"""What is wrong with the input of `ordercast plan` is said before Spark starts: exit code 2, the file, the column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'ordercast[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.cli.main import main
from ordercast.pipeline.regions.inputs import open_subscriptions


def csv(text: str, name: str = "s.csv") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return make


def parquet(**columns: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pq.write_table(pa.table(columns), folder / "s.parquet")
        return folder / "s.parquet"

    return make


def both(folder: Path) -> Path:
    csv("node,group\na,g\n")(folder)
    parquet(node=["a"], group=["g"])(folder)
    return folder


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder / "nothing", "nothing does not exist"),
        (lambda folder: folder, "has neither run.json (a trace) nor files .parquet or .csv"),
        (csv("", "s.txt"), "s.txt is neither .parquet nor .csv"),
        (csv(""), "s.csv is empty: its first line names the columns node, group"),
        (csv("node,topic\na,g\n"), "s.csv: column group is missing in its first line: node, topic"),
        (csv("node,group,node\n"), "s.csv: column node stands there twice"),
        (csv("x", "s.parquet"), "s.parquet is torn or not Parquet"),
        (parquet(node=["a"], topic=["g"]), "s.parquet: column group is missing; it has node, topic"),
        (parquet(node=["a"], group=[0.5]), "s.parquet: column group is double; it has to be text or whole numbers"),
        (both, "are of one kind, Parquet or CSV"),
    ],
)
def test_a_bad_file_ends_with_2_and_its_name(
    make: Callable[[Path], Path], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    assert main(["plan", str(make(given)), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.startswith("ordercast plan: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("columns", "is_full"),
    [
        ({"node": ["a", "b"], "group": [1, 2]}, True),
        ({"node": ["a", "b"], "group": ["g", "h"], "more": [None, 1]}, True),
        ({"node": ["a", ""], "group": ["g", "h"]}, False),
        ({"node": ["a", "b"], "group": ["g", None]}, False),
    ],
)
def test_footers_say_whether_a_cell_is_empty(columns: dict[str, object], is_full: bool, tmp_path: Path) -> None:
    path = parquet(**columns)(tmp_path)
    assert open_subscriptions([path]).is_full == is_full
    pq.write_table(pa.table(columns), path, write_statistics=False)
    assert not open_subscriptions([path]).is_full


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--changes"], "--changes needs --previous"),
        (["--previous", "."], "is no plan: it has no plan.json"),
        (["--waste", "2"], "--waste is 2.0; it is a share"),
        (["--size", "5000"], "--size is 5000"),
        (["--moves", "-1"], "--moves is -1.0"),
        (["--rates", "missing.csv"], "missing.csv does not exist"),
    ],
)
def test_flags_that_mean_nothing_are_refused(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = csv("node,group\na,g\n")(tmp_path)
    assert main(["plan", str(given), "--out", str(tmp_path / "out"), *words]) == 2
    assert says in capsys.readouterr().err
