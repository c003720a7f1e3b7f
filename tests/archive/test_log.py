"""The writer: whatever happens to the process or the disk, what was recorded is there, once, and whole."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from random import Random

import pytest
from tests.archive.disk import Crash, Disk, forget, frame, frames, value_of

from ordercast.archive.builder import Sealed, seal_mark
from ordercast.archive.errors import (
    ArchiveDamaged,
    ArchiveError,
    ArchiveFull,
    ArchiveLocked,
    DataLoss,
    ForeignFile,
    NewerFormat,
    OtherLog,
    SyncFailed,
    WrongGroup,
)
from ordercast.archive.headers import HOLE
from ordercast.archive.log import MIN_SEGMENT_BYTES, ArchiveLog, Fsync, LogConfig
from ordercast.archive.reader import Archive, Epoch
from ordercast.errors import UsageError

GROUP = "orders"
SMALL = LogConfig(fsync="never", segment_bytes=MIN_SEGMENT_BYTES)


def positions(folder: Path) -> list[int]:
    """Of all messages that can be read; each has the value that it was recorded with."""
    found = []
    for record in Archive(folder).records():
        assert record.value == value_of(record.position)
        assert record.number == record.position + 100
        found.append(record.position)
    return found


def recorded(folder: Path, count: int = 8, config: LogConfig = SMALL) -> list[int]:
    """Record so many frames into a new archive, and close it; the positions."""
    log = ArchiveLog.open(folder, GROUP, config)
    log.start(0)
    for sealed in frames(0, count):
        log.append(sealed)
    log.close()
    return positions(folder)


# What is written is read. --------------------------------------------------------------------------------------------


def test_segments_are_named_by_their_first_position_and_follow_one_another(tmp_path: Path) -> None:
    found = recorded(tmp_path, 60)
    assert len(found) == 180
    archive = Archive(tmp_path)
    assert archive.bounds() == (0, found[-1] + 1)
    assert len(archive.segments) > 2
    for one, two in zip(archive.segments, archive.segments[1:], strict=False):
        assert one.stop == two.first
        assert int(two.path.stem.removeprefix("segment-")) == two.first
        assert two.path.stat().st_size <= MIN_SEGMENT_BYTES


def test_an_archive_goes_on_where_it_ended(tmp_path: Path) -> None:
    before = recorded(tmp_path, 5)
    log = ArchiveLog.open(tmp_path, GROUP, SMALL)
    assert log.words == []
    assert log.stop == before[-1] + 1
    assert log.start(before[-1] + 1) is None
    log.append(frame(log.stop, log.stop + 4, 2))
    log.close()
    assert positions(tmp_path) == [*before, before[-1] + 5, before[-1] + 6]


def test_a_segment_may_begin_with_a_frame_larger_than_it_should_be(tmp_path: Path) -> None:
    log = ArchiveLog.open(tmp_path, GROUP, SMALL)
    log.start(0)
    for at in range(3):
        log.append(frame(at, at, 1, size=10))
        assert len(log.segments) == 1
    big = frame(3, 3, 400)
    log.append(big)
    assert big.head.nbytes > MIN_SEGMENT_BYTES
    assert [segment.head.first for segment in log.segments] == [0, 3]
    log.close()


# Torn ends. ----------------------------------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_is_cut_off_with_a_word_and_nothing_else_is(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    recorded(whole, 3)
    (path,) = whole.glob("segment-*")
    data = path.read_bytes()
    ends = [at for at in range(len(data)) if data[at : at + 4] == b"OCFR"] + [len(data)]
    for size in range(len(data)):
        folder = tmp_path / "torn"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / path.name).write_bytes(data[:size])
        frames_left = sum(end <= size for end in ends[1:])
        assert len(positions(folder)) == 3 * frames_left, "a reader ends before the torn end"
        log = ArchiveLog.open(folder, GROUP, SMALL)
        assert bool(log.words) == (size not in ends), size
        if size >= ends[0]:
            assert log.stop == [0, 3, 7, 10][frames_left]
            assert (folder / path.name).stat().st_size == ends[frames_left]
            log.append(frame(log.stop, log.stop, 2))
            log.close()
            assert len(positions(folder)) == 3 * frames_left + 2
        else:
            assert log.stop is None, "there was nothing in it yet"
            log.close()


def test_zeros_behind_the_last_frame_are_a_torn_end(tmp_path: Path) -> None:
    """The file's length reached the disk before its bytes did."""
    found = recorded(tmp_path, 3)
    (path,) = tmp_path.glob("segment-*")
    with path.open("ab") as file:
        file.write(bytes(5_000))
    assert positions(tmp_path) == found
    log = ArchiveLog.open(tmp_path, GROUP, SMALL)
    assert "5000 bytes behind position 9 were cut off" in log.words[0]
    log.close()
    assert positions(tmp_path) == found


def test_a_torn_end_of_an_older_segment_is_a_gap_to_be_caught_up_on(tmp_path: Path) -> None:
    """Without fsync a failure of the power may take away the end of any segment."""
    found = recorded(tmp_path, 60)
    first = min(tmp_path.glob("segment-*"))
    os.truncate(first, first.stat().st_size - 5)
    archive = Archive(tmp_path)
    with pytest.raises(DataLoss, match="the segment file before them has a torn end"):
        list(archive.frames())
    for _ in range(2):  # it is known also when the recorder is started again before the gap is filled
        log = ArchiveLog.open(tmp_path, GROUP, SMALL)
        ((begin, stop),) = log.gaps
        log.close()
    assert archive.bounds() == (0, begin), "a reader waits for the recorder"
    log = ArchiveLog.open(tmp_path, GROUP, SMALL)
    filler = log.fill(begin)
    filler.append(frame(begin, begin, stop - begin))
    filler.finish()
    log.close()
    assert positions(tmp_path) == sorted({*found, *range(begin, stop)})


def test_damage_in_front_of_good_frames_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    recorded(tmp_path, 3)
    (path,) = tmp_path.glob("segment-*")
    data = bytearray(path.read_bytes())
    second = data.index(b"OCFR", data.index(b"OCFR") + 4)
    for place in (second + 1, second + 100):
        bad = data.copy()
        bad[place] ^= 0xFF
        path.write_bytes(bad)
        with pytest.raises(ArchiveDamaged, match=r"is damaged at byte \d+: the frames from position 7 on are whole"):
            ArchiveLog.open(tmp_path, GROUP, SMALL)
        assert path.read_bytes() == bad
        with pytest.raises(ArchiveDamaged):
            list(Archive(tmp_path).records())


# Crashes at every step. ----------------------------------------------------------------------------------------------


def work(folder: Path, disk: Disk, fsync: Fsync, appended: list[int]) -> ArchiveLog:
    """Rotation, a gap that is filled, a hole, retention: everything that changes files. `appended` is acknowledged."""
    config = LogConfig(fsync=fsync, segment_bytes=MIN_SEGMENT_BYTES, keep_bytes=4 * MIN_SEGMENT_BYTES)
    log = ArchiveLog.open(folder, GROUP, config, disk)
    try:
        if log.stop is None:
            log.start(0)
        for sealed in frames(log.stop or 0, 20, each=8):
            _append(log, sealed, appended)
        begin = log.stop or 0
        log.start(begin + 20)
        _append(log, frame(begin + 20, begin + 20, 5), appended)
        filler = log.fill(begin)
        filler.append(frame(begin, begin + 2, 6))
        filler.append(seal_mark(HOLE, begin + 8, begin + 20, 1))
        filler.finish()
        appended += range(begin + 2, begin + 8)
        for sealed in frames(log.stop or 0, 24, each=8):
            _append(log, sealed, appended)
    except BaseException:
        forget(log)
        raise
    return log


def _until_crash(folder: Path, disk: Disk, fsync: Fsync, appended: list[int]) -> None:
    work(folder, disk, fsync, appended).close()
    raise Crash  # the last step of all was a part of closing


def _append(log: ArchiveLog, sealed: Sealed, appended: list[int]) -> None:
    log.append(sealed)
    appended += range(sealed.head.first, sealed.head.last + 1)


def readable(folder: Path) -> tuple[set[int], list[int]]:
    """What can be read although there are holes and gaps, and that in order."""
    found = [record.position for record in Archive(folder).records(fail_on_loss=False)]
    assert found == sorted(set(found)), "once, and in order"
    return set(found), found


@pytest.mark.parametrize("fsync", ["always", "never"])
def test_a_process_killed_at_any_step_loses_nothing_that_was_recorded(tmp_path: Path, fsync: Fsync) -> None:
    _crash_everywhere(tmp_path, fsync, power=False)


def test_power_lost_at_any_step_loses_nothing_that_was_recorded_with_fsync_always(tmp_path: Path) -> None:
    _crash_everywhere(tmp_path, "always", power=True)


def test_power_lost_at_any_step_leaves_a_readable_archive_with_fsync_never(tmp_path: Path) -> None:
    _crash_everywhere(tmp_path, "never", power=True)


def _crash_everywhere(tmp_path: Path, fsync: Fsync, power: bool) -> None:
    disk = Disk()
    everything: list[int] = []
    work(tmp_path / "whole", disk, fsync, everything).close()
    assert {"create", "write", "rename", "remove"} <= set(disk.steps)
    assert ("sync" in disk.steps) == (fsync == "always")
    rng = Random(5)
    for step in range(len(disk.steps)):
        folder = tmp_path / str(step)
        appended: list[int] = []
        crashing = Disk(crash_at=step)
        with pytest.raises(Crash):
            _until_crash(folder, crashing, fsync, appended)
        if power:
            crashing.lose_power(rng)
        log = ArchiveLog.open(folder, GROUP, LogConfig(fsync=fsync, segment_bytes=MIN_SEGMENT_BYTES))
        found, _ = readable(folder)
        kept = {position for position in appended if log.first is not None and position >= log.first}
        if not power or fsync == "always":
            assert kept <= found, (step, disk.steps[step], sorted(kept - found))
        assert found <= set(everything)
        # It goes on: the gap of this crash is filled, and more is appended.
        if log.stop is None:
            log.start(0)
        for begin, stop in log.gaps:
            log.declare_hole(begin, stop)
        log.append(frame(log.stop or 0, log.stop or 0, 3))
        log.close()
        again, _ = readable(folder)
        assert found < again, (step, disk.steps[step])
        shutil.rmtree(folder)


# Full disks. ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 100, 130, 200, 500, 4_000, 4_100, 4_200, 4_300])
def test_a_full_disk_is_said_loses_nothing_and_recording_goes_on_when_there_is_room(tmp_path: Path, room: int) -> None:
    disk = Disk(room=room)
    log = ArchiveLog.open(tmp_path, GROUP, SMALL, disk)
    refusals = 0
    expected: list[int] = []
    while log.stop is None:
        try:
            log.start(0)
        except ArchiveFull:
            assert list(tmp_path.glob("segment-*")) == [], "nothing half made is left"
            refusals += 1
            disk.room += 64
    for sealed in frames(0, 40):
        while log.stop == sealed.head.begin:
            try:
                log.append(sealed)
            except ArchiveFull:
                assert positions(tmp_path) == expected, "what was recorded before is whole"
                refusals += 1
                disk.room += 300
        expected += range(sealed.head.first, sealed.head.last + 1)
    log.close()
    assert refusals
    assert positions(tmp_path) == expected
    log = ArchiveLog.open(tmp_path, GROUP, SMALL)
    assert log.words == [], "a full disk left nothing to repair"
    log.close()


def test_a_full_disk_is_called_so(tmp_path: Path) -> None:
    log = ArchiveLog.open(tmp_path, GROUP, SMALL, Disk(room=200))
    log.start(0)
    with pytest.raises(ArchiveFull, match="cannot be written: No space left on device") as caught:
        log.append(frame(0, 0, 9))
    assert caught.value.errno == errno.ENOSPC
    log.close()


def test_a_fsync_that_fails_ends_recording(tmp_path: Path) -> None:
    disk = Disk()
    log = ArchiveLog.open(tmp_path, GROUP, LogConfig(fsync="always"), disk)
    log.start(0)
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(SyncFailed, match="cannot be made durable: Input/output error"):
        log.append(frame(0, 0, 1))
    disk.sync_error = None
    log.close()


def test_a_gap_that_the_disk_has_no_room_for_is_begun_anew(tmp_path: Path) -> None:
    disk = Disk()
    log = ArchiveLog.open(tmp_path, GROUP, SMALL, disk)
    log.start(0)
    log.append(frame(0, 0, 3))
    assert log.start(20) == (3, 20)
    disk.room = 400
    filler = log.fill(3)
    filler.append(frame(3, 3, 1))
    with pytest.raises(ArchiveFull):
        filler.append(frame(4, 4, 9))
    assert filler.at == 3
    assert log.gaps == [(3, 20)]
    disk.room = 10_000
    filler.append(frame(3, 3, 17))
    filler.finish()
    assert log.gaps == []
    log.close()
    assert positions(tmp_path) == list(range(20))


# Retention. ----------------------------------------------------------------------------------------------------------


def test_the_oldest_segments_go_beyond_a_size(tmp_path: Path) -> None:
    config = LogConfig(fsync="never", segment_bytes=MIN_SEGMENT_BYTES, keep_bytes=3 * MIN_SEGMENT_BYTES)
    log = ArchiveLog.open(tmp_path, GROUP, config)
    log.start(0)
    for sealed in frames(0, 100):
        log.append(sealed)
        assert log.total_bytes <= 4 * MIN_SEGMENT_BYTES
    first = log.first
    assert first is not None
    assert first > 0
    log.close()
    assert positions(tmp_path)[0] >= first
    with pytest.raises(DataLoss, match=f"positions 0 to {first - 1} are not in the archive; they were removed"):
        list(Archive(tmp_path).frames(0))


def test_what_is_older_than_asked_for_goes_but_never_the_segment_that_is_written(tmp_path: Path) -> None:
    recorded(tmp_path, 60)  # timestamps are the positions
    log = ArchiveLog.open(tmp_path, GROUP, LogConfig(fsync="never", segment_bytes=MIN_SEGMENT_BYTES, keep_age_ns=50))
    segments = log.segments
    assert len(segments) >= 3
    removed = log.retain(now_ns=segments[0].last_ns + 51)
    assert removed == [segments[0]]
    assert log.retain(now_ns=1 << 60) == list(segments[1:-1])
    assert log.segments == segments[-1:]
    log.close()


# What does not belong there. -----------------------------------------------------------------------------------------


def test_a_second_recorder_is_refused(tmp_path: Path) -> None:
    log = ArchiveLog.open(tmp_path, GROUP)
    with pytest.raises(ArchiveLocked, match=f"process {os.getpid()} records into"):
        ArchiveLog.open(tmp_path, GROUP)
    log.close()
    ArchiveLog.open(tmp_path, GROUP).close()


def test_a_foreign_file_is_named_and_left_alone(tmp_path: Path) -> None:
    recorded(tmp_path, 3)
    (tmp_path / "notes.txt").write_text("dear diary", encoding="utf-8")
    (tmp_path / ".hidden").write_text("the system's", encoding="utf-8")
    for attempt in (lambda: ArchiveLog.open(tmp_path, GROUP), lambda: Archive(tmp_path).bounds()):
        with pytest.raises(ForeignFile, match=r"notes\.txt in .* does not belong to an archive"):
            attempt()
    assert Archive(tmp_path, strict=False).bounds() == (0, 10)
    (tmp_path / "notes.txt").rename(tmp_path / "segment-00000000000000000099.ocl")
    with pytest.raises(ForeignFile, match="is named like a segment of an archive and is none"):
        ArchiveLog.open(tmp_path, GROUP)
    assert (tmp_path / "segment-00000000000000000099.ocl").read_text(encoding="utf-8") == "dear diary"


def test_the_archive_of_another_group_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "one", 3)
    with pytest.raises(WrongGroup, match="is of the group 'orders', not of 'prices'"):
        ArchiveLog.open(tmp_path / "one", "prices")
    with pytest.raises(WrongGroup):
        Archive(tmp_path / "one", group="prices").bounds()
    recorded(tmp_path / "two", 60)
    late = max((tmp_path / "two").glob("segment-*"))
    shutil.copy(late, tmp_path / "one")
    for attempt in (lambda: ArchiveLog.open(tmp_path / "one", GROUP), lambda: Archive(tmp_path / "one").bounds()):
        with pytest.raises(WrongGroup, match="is of another archive than the segments before it"):
            attempt()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path, 3)
    (path,) = tmp_path.glob("segment-*")
    data = bytearray(path.read_bytes())
    data[8] = 3
    path.write_bytes(data)
    for attempt in (lambda: ArchiveLog.open(tmp_path, GROUP), lambda: Archive(tmp_path).bounds()):
        with pytest.raises(NewerFormat, match="has format 3"):
            attempt()


def test_a_missing_segment_is_named_and_is_a_gap_only_if_that_is_asked_for(tmp_path: Path) -> None:
    recorded(tmp_path, 60)
    second = sorted(tmp_path.glob("segment-*"))[1]
    archive = Archive(tmp_path)
    archive.refresh()
    first, stop = archive.segments[1].first, archive.segments[1].stop
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(DataLoss, match=f"positions {first} to {stop - 1} is missing .*--refill"):
        ArchiveLog.open(tmp_path, GROUP, SMALL)
    with pytest.raises(DataLoss, match=f"positions {first} to {stop - 1} are not .* a segment file is missing"):
        list(Archive(tmp_path).frames())
    log = ArchiveLog.open(tmp_path, GROUP, LogConfig(segment_bytes=MIN_SEGMENT_BYTES, refill=True))
    assert log.gaps == [(first, stop)]
    assert "other recorders are asked for it" in log.words[0]
    log.close()
    second.write_bytes(kept)
    ArchiveLog.open(tmp_path, GROUP, SMALL).close()


def test_a_group_that_counts_from_the_beginning_again_is_another_log(tmp_path: Path) -> None:
    recorded(tmp_path, 3)
    log = ArchiveLog.open(tmp_path, GROUP)
    with pytest.raises(OtherLog, match=r"ends before position 10, and .* go on at position 2: .* \(--new-epoch\)"):
        log.start(2)
    log.close()


def test_a_new_epoch_goes_on_behind_the_old_one_and_survives_a_restart(tmp_path: Path) -> None:
    """Positions of the second epoch are the group's plus 10; only its segments have the newer format."""
    recorded(tmp_path, 3)
    log = ArchiveLog.open(tmp_path, GROUP)
    assert (log.base, log.stop) == (0, 10)
    assert log.begin_epoch(4) == (10, 14), "the group was at its position 4 already"
    log.append(frame(14, 14, 3))
    log.close()
    log = ArchiveLog.open(tmp_path, GROUP)
    assert (log.base, log.stop, log.gaps) == (10, 17, [(10, 14)])
    filler = log.fill(10)
    filler.append(frame(10, 10, 4))
    filler.finish()
    assert [segment.head.base for segment in log.segments] == [0, 10, 10]
    # A gap of an epoch that is over cannot be filled any more.
    log.start(20)
    assert log.begin_epoch(0) is None
    assert (log.base, log.stop, log.gaps) == (20, 20, [])
    # Nothing was recorded in this epoch: the next one takes its file.
    assert log.begin_epoch(0) is None
    assert (log.base, log.stop) == (20, 20)
    log.close()
    archive = Archive(tmp_path)
    assert archive.bounds() == (0, 20)
    assert archive.epochs == [Epoch(0, 0, 10), Epoch(10, 10, 20), Epoch(20, 20, 20)]
    assert [(loss.begin, loss.stop, loss.reason) for loss in archive.losses] == [(17, 20, "hole")]
    old, new = min(tmp_path.glob("segment-*")), max(tmp_path.glob("segment-*"))
    assert (old.read_bytes()[8], new.read_bytes()[8]) == (1, 2)


@pytest.mark.parametrize(
    "wrong", [{"fsync": "often"}, {"interval_ms": 0}, {"segment_bytes": 5}, {"keep_bytes": -1}, {"keep_age_ns": -1}]
)
def test_a_setting_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        LogConfig(**wrong)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot hold an archive"):
        ArchiveLog.open(tmp_path / "file", GROUP)


# Left behind. --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 2, 3, 20, 41, 50])
def test_a_tail_that_only_this_member_had_is_moved_away_and_can_be_filled(tmp_path: Path, at: int) -> None:
    found = recorded(tmp_path, 30)
    end = found[-1] + 1
    log = ArchiveLog.open(tmp_path, GROUP, SMALL)
    moved = log.fork(at, end)
    assert moved
    assert log.stop == at
    assert positions(tmp_path) == [position for position in found if position < at]
    assert log.start(end + 5) == (at, end + 5)
    log.append(frame(end + 5, end + 5, 1))
    filler = log.fill(at)
    filler.append(frame(at, at, end + 5 - at))
    filler.finish()
    log.close()
    ArchiveLog.open(tmp_path, GROUP, SMALL).close()
    assert positions(tmp_path) == [position for position in found if position < at] + list(range(at, end + 6))
    aside: set[int] = set()
    for path in moved:
        other = tmp_path.parent / "aside"
        shutil.rmtree(other, ignore_errors=True)
        other.mkdir()
        shutil.copy(path, other / f"segment-{path.stem.split('-')[1]}.ocl")
        aside |= set(positions(other))
    assert aside == {position for position in found if position >= at}


def test_every_error_of_the_archive_has_a_name() -> None:
    assert all(issubclass(each, ArchiveError) for each in (ArchiveFull, DataLoss, SyncFailed, WrongGroup))
