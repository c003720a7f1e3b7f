"""The folder of a node: whole files, one owner, and errors that say what to do. docs/design/restarts.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ordercast.errors import UsageError
from ordercast.runtime.data_folder import DataFolder, StoreFailed


def opened(folder: Path, name: str | None = "a", life: int | None = None, now_ns: int = 100) -> DataFolder:
    return DataFolder(folder, name, "default", life, now_ns)


def test_a_life_is_above_all_that_the_folder_has_seen(tmp_path: Path) -> None:
    first = opened(tmp_path, now_ns=500)
    first.close()
    second = opened(tmp_path, now_ns=100)  # the clock was set back
    second.close()
    assert (first.life, second.life) == (500, 501)
    with pytest.raises(UsageError, match="life=501 is over"):
        opened(tmp_path, life=501)


def test_a_node_has_its_name_from_its_folder(tmp_path: Path) -> None:
    opened(tmp_path, "a").close()
    again = opened(tmp_path, None)
    again.close()
    assert again.name == "a"
    with pytest.raises(UsageError, match="belongs to the node 'a', not to 'b'"):
        opened(tmp_path, "b")


def test_an_entry_is_there_after_a_restart_until_it_is_removed(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    assert folder.get("prices") == b""
    folder.put("prices", b"what was promised")
    folder.close()
    folder = opened(tmp_path)
    assert folder.get("prices") == b"what was promised"
    assert folder.get("other") == b""
    folder.put("prices", b"")
    assert folder.get("prices") == b""
    folder.put("prices", b"")
    folder.close()


def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    with pytest.raises(UsageError, match="in use by another node"):
        opened(tmp_path)
    folder.close()
    opened(tmp_path).close()


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"", "too short"), (b"something else, from somewhere", "no file of a node"), (None, "checksum")],
    ids=["empty", "foreign", "torn"],
)
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, data: bytes | None, told: str) -> None:
    folder = opened(tmp_path)
    folder.put("prices", b"what was promised")
    [path] = tmp_path.glob("*.entry")
    path.write_bytes(path.read_bytes()[:-3] if data is None else data)
    with pytest.raises(UsageError, match=f"{told}.*Move the folder away"):
        folder.get("prices")
    folder.close()


def test_a_file_under_the_name_of_another_group_is_refused(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    folder.put("prices", b"x")
    [path] = tmp_path.glob("*.entry")
    folder.put("orders", b"y")
    [other] = set(tmp_path.glob("*.entry")) - {path}
    os.replace(other, path)
    with pytest.raises(UsageError, match="is not of 'prices'"):
        folder.get("prices")
    folder.close()


def test_a_file_that_was_not_renamed_counts_for_nothing(tmp_path: Path) -> None:
    """A crash between writing and renaming leaves the old entry."""
    folder = opened(tmp_path)
    folder.put("prices", b"old")
    [path] = tmp_path.glob("*.entry")
    (tmp_path / f"{path.name}.new").write_bytes(b"half of the n")
    assert folder.get("prices") == b"old"
    folder.put("prices", b"new")
    assert folder.get("prices") == b"new"
    folder.close()


def test_a_disk_that_takes_no_more_stops_the_node(tmp_path: Path) -> None:
    folder = opened(tmp_path / "gone")
    for path in (tmp_path / "gone").iterdir():
        path.unlink()
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreFailed, match="may not promise what it could forget"):
        folder.put("prices", b"x")
    folder.close()
