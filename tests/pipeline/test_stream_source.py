"""The source without Spark's Java: offsets, parts and rows of archives, and what users get wrong."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from tests.pipeline.archives import BASE_NS, GROUP, hole, last_segment, open_gap, remove_first, value_of, write

from ordercast.archive.errors import ArchiveDamaged, DataLoss, ForeignFile, NoArchive, WrongGroup
from ordercast.errors import UsageError
from ordercast.pipeline.stream import slices
from ordercast.pipeline.stream.options import source_options
from ordercast.pipeline.stream.slices import spark_schema
from ordercast.pipeline.stream.source import SCHEMA, StreamReader, TableReader


def table(folder: Path, **options: str) -> TableReader:
    return TableReader(source_options({"path": str(folder), **options}, is_streaming=False))


def stream(folder: Path, **options: str) -> StreamReader:
    options = {"startingOffsets": "earliest", **options}
    return StreamReader(source_options({"path": str(folder), **options}, is_streaming=True))


def rows_of(reader: TableReader | StreamReader, parts: Any) -> list[int]:
    """Positions that tasks read, each from a copy of reader and part as they travel."""
    found: list[int] = []
    for part in parts:
        far_reader, far_part = pickle.loads(pickle.dumps((reader, part)))
        for batch in far_reader.read(far_part):
            assert batch.column("value").to_pylist() == [value_of(p) for p in batch.column("position").to_pylist()]
            found += batch.column("position").to_pylist()
    return found


def read(reader: TableReader) -> list[int]:
    return rows_of(reader, reader.partitions())


def advance(
    reader: StreamReader, start: dict[str, Any], limit: ReadLimit | None = None
) -> tuple[dict[str, Any], list[int]]:
    end = reader.latestOffset(start, limit or ReadAllAvailable())
    return end, rows_of(reader, reader.partitions(start, end))


# Columns. ------------------------------------------------------------------------------------------------------------


def test_rows_have_all_columns_and_times_lose_their_nanoseconds(tmp_path: Path) -> None:
    write(tmp_path, range(2))
    reader = table(tmp_path)
    (batch,) = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert batch.schema == spark_schema()
    assert batch.schema.names == SCHEMA.names
    row = batch.to_pylist()[1]
    time = datetime.fromtimestamp(BASE_NS // 1_000_000_000, UTC) + timedelta(microseconds=123_456 + 1_000)
    assert row == {
        "group": GROUP,
        "position": 1,
        "view": "1@ann/1",
        "sender": "ann/1",
        "number": 1,
        "service": "AGREED",
        "timestamp": time,
        "type": 3,
        "value": b"value 1",
    }


# Ranges and parts. ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 50, 1000])
def test_however_a_range_is_cut_every_row_is_read_once_and_in_order(tmp_path: Path, parts: int) -> None:
    positions = [position for position in range(20, 320) if position % 7]  # gaps are normal
    write(tmp_path, positions, segment_bytes=4_096)
    reader = table(tmp_path, minPartitions=str(parts))
    planned = reader.partitions()
    assert len(planned) >= min(parts, 300)
    assert rows_of(reader, planned) == positions


def test_batches_are_neither_small_nor_large_however_frames_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "BATCH_ROWS", 40)
    monkeypatch.setattr(slices, "BATCH_BYTES", 350)
    write(tmp_path / "small", range(100), per_frame=7)
    write(tmp_path / "large", range(100), per_frame=100)
    for name in ("small", "large"):
        reader = table(tmp_path / name)
        sizes = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]
        assert (sum(sizes), max(sizes) <= 40, len(sizes) <= 4) == (100, True, True)
        assert read(table(tmp_path / name, startingOffsets="11", endingOffsets="97")) == list(range(11, 97))


def test_parts_are_of_about_equal_size(tmp_path: Path) -> None:
    write(tmp_path, range(1_000), segment_bytes=16_384)
    reader = table(tmp_path, minPartitions="4")
    counts = [len(rows_of(reader, [part])) for part in reader.partitions()]
    assert sum(counts) == 1_000
    assert max(counts[:4]) < 2 * min(counts[:4])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(10, 60)),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(10, 60)),
        ({"startingOffsets": "20", "endingOffsets": "25"}, range(20, 25)),
        ({"startingOffsets": '{"prices": 20}', "endingOffsets": '{"prices": {"0": 25}}'}, range(20, 25)),
        ({"startingOffsets": '{"prices": -2}', "endingOffsets": '{"prices": -1}'}, range(10, 60)),
        ({"startingOffsets": "60"}, []),
        ({"STARTINGOFFSETS": "59"}, [59]),
        ({"startingTimestamp": str((BASE_NS + 30_000_000) // 1_000_000 + 1)}, range(31, 60)),
        ({"endingTimestamp": str((BASE_NS + 30_000_000) // 1_000_000)}, range(10, 30)),
    ],
)
def test_a_range_may_be_named_in_every_way_of_kafka(tmp_path: Path, options: dict[str, str], expected: Any) -> None:
    write(tmp_path, range(10, 60))
    assert read(table(tmp_path, **options)) == list(expected)


# The stream. ---------------------------------------------------------------------------------------------------------


def test_a_stream_goes_on_where_it_was_and_any_range_can_be_read_again(tmp_path: Path) -> None:
    write(tmp_path, range(30))
    reader = stream(tmp_path)
    start = reader.initialOffset()
    assert start == {"group": GROUP, "position": 0}
    middle, found = advance(reader, start)
    assert found == list(range(30))
    assert reader.latestOffset(middle, ReadAllAvailable()) == middle
    write(tmp_path, range(30, 45))
    end, more = advance(reader, middle)
    assert more == list(range(30, 45))
    # A restart plans what the log of the query says, with a new reader.
    again = stream(tmp_path)
    assert rows_of(again, again.partitions(middle, end)) == more
    assert rows_of(again, again.partitions(start, middle)) == found
    assert again.partitions(end, end) == []


def test_a_stream_begins_with_what_comes_unless_it_is_told(tmp_path: Path) -> None:
    write(tmp_path, range(30))
    reader = StreamReader(source_options({"path": str(tmp_path)}, is_streaming=True))
    start = reader.initialOffset()
    write(tmp_path, range(30, 33))
    assert reader.initialOffset() == start
    end, found = advance(reader, start)
    assert found == [30, 31, 32]
    # The query dies in its first batch. Spark asks the next reader where it begins, which is another place by now.
    write(tmp_path, range(33, 40))
    again = StreamReader(source_options({"path": str(tmp_path)}, is_streaming=True))
    assert again.initialOffset()["position"] == 40
    assert rows_of(again, again.partitions(again.initialOffset(), json.loads(json.dumps(end)))) == found
    assert advance(again, end)[1] == list(range(33, 40))


@pytest.mark.parametrize("where", ["earliest", "latest"])
def test_a_stream_may_begin_before_the_recorder_has_anything(tmp_path: Path, where: str) -> None:
    reader = stream(tmp_path, startingOffsets=where)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.reportLatestOffset() is None
    write(tmp_path, range(7, 30))
    end, found = advance(reader, start, ReadMaxRows(10))
    assert (end, found) == ({"group": GROUP, "position": 17, "from": 7}, list(range(7, 17)))
    assert rows_of(reader, reader.partitions(start, end)) == found


def test_a_limit_holds_and_available_now_ends_where_it_began(tmp_path: Path) -> None:
    write(tmp_path, range(100))
    reader = stream(tmp_path, maxOffsetsPerTrigger="30")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    reader.prepareForTriggerAvailableNow()
    write(tmp_path, range(100, 150))
    at, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        sizes.append(len(rows_of(reader, reader.partitions(at, end))))
        at = end
    assert sizes == [30, 30, 30, 10]
    assert reader.reportLatestOffset() == {"group": GROUP, "position": 150}
    assert isinstance(stream(tmp_path).getDefaultReadLimit(), ReadAllAvailable)


def test_a_torn_end_is_not_read_and_what_takes_its_place_is(tmp_path: Path) -> None:
    write(tmp_path, range(30))
    whole = last_segment(tmp_path).stat().st_size
    write(tmp_path, range(30, 40))
    with last_segment(tmp_path).open("r+b") as segment:
        segment.truncate(segment.seek(0, 2) - 50)  # a recorder in the middle of a write
    reader = stream(tmp_path)
    end, found = advance(reader, reader.initialOffset())
    assert (end["position"], found) == (30, list(range(30)))
    with last_segment(tmp_path).open("r+b") as segment:
        segment.seek(whole)
        segment.write(b"OCFR" + bytes(300))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    write(tmp_path, range(30, 50))  # the recorder recovers: the torn frame is cut off and written again
    assert advance(reader, end)[1] == list(range(30, 50))


# Losses. -------------------------------------------------------------------------------------------------------------


def test_a_hole_stops_a_query_or_is_passed_over_and_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, range(30))
    hole(tmp_path, 1_000_000)
    write(tmp_path, range(1_000_000, 1_000_030))
    reader = stream(tmp_path)
    start = reader.initialOffset()
    with pytest.raises(DataLoss, match=r"positions 30 to 999999 .* no recorder had them.*failOnDataLoss"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLoss, match="30 to 999999"):
        read(table(tmp_path))
    assert read(table(tmp_path, endingOffsets="30")) == list(range(30))
    lenient = stream(tmp_path, failOnDataLoss="false")
    end, found = advance(lenient, start, ReadMaxRows(40))
    assert found == [*range(30), *range(1_000_000, 1_000_010)]  # lost positions do not count
    assert advance(lenient, end)[1] == list(range(1_000_010, 1_000_030))
    said = capfd.readouterr().err
    assert said.count("positions 30 to 999999") == 1
    assert "passed over" in said


def test_what_retention_has_removed_stops_a_query_or_is_passed_over(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, range(300), segment_bytes=4_096)
    reader = stream(tmp_path)
    lenient = stream(tmp_path, failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned, planned_leniently = reader.partitions(start, end), lenient.partitions(start, end)
    remove_first(tmp_path)
    kept = read(table(tmp_path))
    assert 0 < len(kept) < 300
    # In the middle of a batch, and at a restart.
    with pytest.raises(DataLoss, match="not in the archive any more"):
        rows_of(reader, planned)
    assert rows_of(lenient, planned_leniently) == kept
    again = stream(tmp_path)
    with pytest.raises(DataLoss, match=r"positions 0 to .* removed by retention.*failOnDataLoss"):
        again.partitions(start, end)
    assert rows_of(lenient, lenient.partitions(start, end)) == kept
    assert "passed over" in capfd.readouterr().err


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    write(tmp_path, range(300), segment_bytes=4_096)
    sorted(tmp_path.glob("segment-*.ocl"))[1].unlink()
    with pytest.raises(DataLoss, match="segment file is missing: put it back"):
        read(table(tmp_path))


def test_nothing_is_read_behind_a_gap_that_may_still_be_filled(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, range(30))
    open_gap(tmp_path, 50)
    write(tmp_path, range(50, 60))
    reader = stream(tmp_path, failOnDataLoss="false")
    assert advance(reader, reader.initialOffset())[1] == list(range(30))
    assert read(table(tmp_path)) == list(range(30))
    assert "had not caught up" in capfd.readouterr().err
    assert read(table(tmp_path, failOnDataLoss="false")) == [*range(30), *range(50, 60)]


def test_an_archive_that_is_behind_the_query_is_waited_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """After a power failure the recorder has lost its end, and catches up on it."""
    write(tmp_path, range(30))
    reader = stream(tmp_path)
    ahead = {"group": GROUP, "position": 40}
    assert reader.latestOffset(ahead, ReadAllAvailable()) == ahead
    assert reader.latestOffset(ahead, ReadAllAvailable()) == ahead
    assert capfd.readouterr().err.count("waits for the recorder") == 1
    with pytest.raises(DataLoss, match="let the recorder catch up"):
        reader.partitions({"group": GROUP, "position": 20}, ahead)
    lenient = stream(tmp_path, failOnDataLoss="false")
    assert rows_of(lenient, lenient.partitions({"group": GROUP, "position": 20}, ahead)) == list(range(20, 30))
    write(tmp_path, range(30, 45))
    assert advance(reader, ahead)[1] == list(range(40, 45))


def test_damage_is_told_from_an_end(tmp_path: Path) -> None:
    write(tmp_path, range(30))
    reader = stream(tmp_path)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    with last_segment(tmp_path).open("r+b") as segment:
        segment.seek(300)
        segment.write(b"\xff" * 8)
    with pytest.raises(ArchiveDamaged):
        rows_of(reader, parts)


# What users get wrong. -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffset": "earliest"}, "unknown option startingOffset; there are path, group, startingOffsets"),
        ({"startingOffsets": "tomorrow"}, '"earliest", "latest", a position'),
        ({"startingOffsets": "-3"}, "a position"),
        ({"startingOffsets": '{"a": 1, "b": 2}'}, "an archive is of one group"),
        ({"startingOffsets": '{"a": 1}', "group": "b"}, "speaks of the group 'a'"),
        ({"startingOffsets": "5", "startingTimestamp": "5"}, "not both"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minPartitions": "0"}, "whole number from 1 on"),
        ({"endingOffsets": "7"}, "a stream has no end"),
        ({"maxOffsetsPerTrigger": "many"}, "whole number from 1 on, not 'many'"),
        ({"path": "s3://bucket/prices"}, "only folders of a file system"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        source_options({"path": "archive", **options}, is_streaming=True)


def test_a_batch_has_no_limit_and_needs_a_path() -> None:
    with pytest.raises(UsageError, match="endingOffsets"):
        source_options({"path": "archive", "maxOffsetsPerTrigger": "5"}, is_streaming=False)
    with pytest.raises(UsageError, match="name the archive"):
        source_options({}, is_streaming=False)


def test_what_is_no_archive_of_the_group_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "prices", range(5))
    with pytest.raises(NoArchive, match="there is no folder"):
        read(table(tmp_path / "nothing"))
    with pytest.raises(ForeignFile, match="does not belong to an archive"):
        read(table(tmp_path))
    with pytest.raises(WrongGroup, match="'prices', not of 'orders'"):
        read(table(tmp_path / "prices", group="orders"))
    with pytest.raises(UsageError, match=r"startingOffsets=6 lies beyond .* ends before 5"):
        read(table(tmp_path / "prices", startingOffsets="6"))
    with pytest.raises(UsageError, match="the range is empty"):
        read(table(tmp_path / "prices", startingOffsets="3", endingOffsets="2"))
    with pytest.raises(WrongGroup, match="choose the archive of that group"):
        stream(tmp_path / "prices").latestOffset({"group": "orders", "position": 3}, ReadAllAvailable())
    with pytest.raises(UsageError, match="checkpoint is of another source"):
        stream(tmp_path / "prices").latestOffset({"topic": {"0": 3}}, ReadAllAvailable())
    (tmp_path / "empty").mkdir()
    assert read(table(tmp_path / "empty")) == []
    with pytest.raises(UsageError, match="has no position yet"):
        read(table(tmp_path / "empty", startingOffsets="3"))
