"""Reading: by position, by time, behind a recorder, and what is said where something is not there."""

from __future__ import annotations

import pickle
from pathlib import Path
from threading import Thread

import pytest
from tests.archive.disk import frame, frames

from ordercast.archive.builder import seal_mark
from ordercast.archive.errors import DataLoss, NoArchive
from ordercast.archive.headers import HOLE
from ordercast.archive.log import MIN_SEGMENT_BYTES, ArchiveLog, LogConfig
from ordercast.archive.reader import Archive, Loss

CONFIG = LogConfig(fsync="never", segment_bytes=MIN_SEGMENT_BYTES)


@pytest.fixture
def log(tmp_path: Path) -> ArchiveLog:
    log = ArchiveLog.open(tmp_path / "archive", "orders", CONFIG)
    log.start(0)
    return log


def test_by_position_any_range_has_exactly_its_messages(log: ArchiveLog) -> None:
    for sealed in frames(0, 60):
        log.append(sealed)
    archive = Archive(log.folder)
    everything = [record.position for record in archive.records()]
    assert len(everything) == 180
    for first in range(0, 210, 7):
        for stop in (first, first + 1, first + 13, 500):
            found = [record.position for record in archive.records(first, stop)]
            assert found == [position for position in everything if first <= position < stop]
    log.close()


def test_by_time_the_first_message_at_or_after_it(log: ArchiveLog) -> None:
    times = {}
    begin = 0
    for number in range(100):
        sealed = frame(begin, begin, 2, at_ns=1_000 + 10 * number)
        log.append(sealed)
        times[1_000 + 10 * number] = begin
        begin += 2
    archive = Archive(log.folder)
    assert archive.position_at(0) == 0
    assert archive.position_at(10_000) == 200
    for time_ns, position in times.items():
        assert archive.position_at(time_ns) == position
        assert archive.position_at(time_ns - 1) == position
    log.close()


def test_a_reader_sees_what_is_appended_and_never_half_a_frame(log: ArchiveLog) -> None:
    archive = Archive(log.folder)
    assert archive.bounds() == (0, 0)
    assert list(archive.frames()) == []
    seen: list[int] = []
    for sealed in frames(0, 50):
        data = sealed.tobytes()
        path = log.segments[-1].path
        with path.open("ab") as file:  # as a write that is under way
            file.write(data[:-1])
        before = archive.bounds()
        assert before is not None
        assert before[1] == sealed.head.begin
        with path.open("r+b") as file:
            file.truncate(log.segments[-1].size)
        log.append(sealed)
        assert archive.bounds() == (0, sealed.head.stop)
        seen += [record.position for record in archive.records(sealed.head.begin)]
    assert seen == [record.position for record in Archive(log.folder).records()]
    log.close()


def test_following_gives_every_message_once_while_it_is_recorded(log: ArchiveLog) -> None:
    wanted = [position for sealed in frames(0, 120) for position in range(sealed.head.first, sealed.head.last + 1)]
    seen: list[int] = []

    def follow() -> None:
        for each in Archive(log.folder).follow(poll_s=0.001):
            seen.extend(record.position for record in each.records())
            if len(seen) >= len(wanted):
                return

    thread = Thread(target=follow)
    thread.start()
    for sealed in frames(0, 120):
        log.append(sealed)
    thread.join(timeout=20)
    assert seen == wanted
    log.close()


def test_following_from_the_middle_of_a_frame_cuts_off_what_is_before(log: ArchiveLog) -> None:
    log.append(frame(0, 0, 10))
    for each in Archive(log.folder).follow(4):
        assert [record.position for record in each.records()] == [4, 5, 6, 7, 8, 9]
        break
    log.close()


def test_a_gap_is_waited_for_and_a_hole_is_reported(log: ArchiveLog) -> None:
    log.append(frame(0, 0, 5))
    log.start(10)
    log.append(frame(10, 10, 5))
    archive = Archive(log.folder)
    assert archive.bounds() == (0, 5), "the recorder may still fill it"
    assert [record.position for record in archive.records()] == [0, 1, 2, 3, 4]
    assert archive.losses == [Loss(5, 10, "open")]
    assert archive.wait(5, timeout_s=0) is None
    lost: list[Loss] = []
    kept = [record.position for record in archive.records(fail_on_loss=False, on_loss=lost.append)]
    assert kept == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert lost == [Loss(5, 10, "open")]
    filler = log.fill(5)
    filler.append(frame(5, 5, 2))
    filler.append(seal_mark(HOLE, 7, 10, 1))
    filler.finish()
    assert archive.wait(5, timeout_s=0) == 15
    with pytest.raises(
        DataLoss, match="positions 7 to 9 are not in the archive; the archive says that no recorder had"
    ):
        list(archive.records())
    assert [record.position for record in archive.records(0, 7)] == [0, 1, 2, 3, 4, 5, 6]
    assert [record.position for record in archive.records(10)] == [10, 11, 12, 13, 14]
    lost.clear()
    assert len(list(archive.records(8, fail_on_loss=False, on_loss=lost.append))) == 5
    assert lost == [Loss(8, 10, "hole")]
    log.close()


def test_a_reader_notices_that_an_end_was_moved_away(log: ArchiveLog) -> None:
    """A member that was left behind: what was read there is not the group's."""
    for sealed in frames(0, 30):
        log.append(sealed)
    archive = Archive(log.folder)
    bounds = archive.bounds()
    assert bounds is not None
    log.fork(50, bounds[1])
    assert archive.bounds() == (0, 50)
    for _ in range(20):
        stop = log.stop or 0
        log.append(frame(stop, stop, 7, sender="b/2"))
    assert {record.sender for record in archive.records(50)} == {"b/2"}
    assert [record.position for record in archive.records(50)] == list(range(50, 190))
    log.close()


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoArchive, match="there is no folder"):
        Archive(tmp_path / "nowhere").bounds()
    assert Archive(tmp_path).bounds() is None
    with pytest.raises(NoArchive, match="holds no segment of an archive yet"):
        _ = Archive(tmp_path).group
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NoArchive, match="is no folder"):
        Archive(tmp_path / "file").bounds()
    assert Archive(tmp_path / "nowhere").wait(0, timeout_s=0) is None


def test_an_archive_can_be_pickled(log: ArchiveLog) -> None:
    log.append(frame(0, 0, 5))
    archive = Archive(log.folder)
    archive.refresh()
    again = pickle.loads(pickle.dumps(archive))
    assert [record.position for record in again.records()] == [0, 1, 2, 3, 4]
    assert again.archive_id == archive.archive_id != ""
    log.close()
