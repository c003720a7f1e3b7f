"""The recorder and the cells it writes: docs/trace.md, and what may happen to a file between a kill and its reader."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.service import AGREED_RANK, RESILIENT_RANK
from ordercast.trace import recorder as recorder_module
from ordercast.trace.cells import CELL_BYTES, MAX_DEFINITION_BYTES, CellReader
from ordercast.trace.recorder import (
    DELIVER,
    HOLD,
    MAX_DETAIL_BYTES,
    MIN_BUFFER_BYTES,
    START,
    STOP,
    TRAFFIC_INTERVAL_NS,
    VIEW,
    Recorder,
    TraceGarbled,
    TraceWriteFailed,
    Traffic,
    decode,
)
from ordercast.trace.schema import Row


def a_recorder_with_every_column() -> Recorder:
    recorder = Recorder(None, "a", 3)
    underlay = recorder.string("ring")
    view = recorder.string("1@a/3")
    members = recorder.strings(["a/3", "b/0"])
    recorder.row(START, 10)
    recorder.row(VIEW, 11, underlay, view=view, members=members, came_with=recorder.strings(["a/3"]))
    recorder.row(
        DELIVER,
        12,
        underlay,
        recorder.string("prices"),
        view,
        recorder.string("b/0"),
        0,
        500,
        RESILIENT_RANK,
        2,
        7,
        -1,
        50_000,
        recorder.detail("first block"),
        groups=recorder.strings(["prices", "trades"]),
    )
    recorder.row(HOLD, 13, underlay, rank=AGREED_RANK, groups=recorder.strings([]))
    return recorder


ROWS_WITH_EVERY_COLUMN = [
    Row("a", 3, 0, 10, "start", ""),
    Row("a", 3, 1, 11, "view", "ring", view="1@a/3", members=("a/3", "b/0"), came_with=("a/3",)),
    Row(
        node="a",
        life=3,
        n=2,
        at_ns=12,
        kind="deliver",
        underlay="ring",
        group="prices",
        groups=("prices", "trades"),
        view="1@a/3",
        sender="b/0",
        first=0,
        count=500,
        service="RESILIENT(2)",
        position=7,
        prev_position=-1,
        bytes=50_000,
        detail="first block",
    ),
    Row("a", 3, 3, 13, "hold", "ring", groups=(), service="AGREED"),
]


def rows_of_file(path: Path, node: str = "a", life: int = 0) -> list[Row]:
    return list(decode(path.read_bytes(), node, life))


def test_all_columns_come_back_with_their_nulls_and_lists() -> None:
    assert a_recorder_with_every_column().rows() == ROWS_WITH_EVERY_COLUMN


def test_the_same_calls_give_the_same_bytes() -> None:
    assert a_recorder_with_every_column().dump() == a_recorder_with_every_column().dump()


def test_a_buffer_that_is_used_again_leaves_nothing_of_old_rows_in_new_definitions(tmp_path: Path) -> None:
    path = tmp_path / "a-0.oct"
    recorder = Recorder(path, "a", 0)
    recorder.flush()
    for _ in range(5):
        recorder.row(HOLD, -1, first=-1, count=1, nbytes=-1)
    recorder.flush()
    recorder.string("x")
    recorder.close()
    assert path.read_bytes()[-CELL_BYTES + 13 :] == bytes(CELL_BYTES - 13)


def test_rows_are_in_the_file_after_a_flush_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "a-0.oct"
    recorder = Recorder(path, "a", 0)
    recorder.row(START, 1)
    assert path.read_bytes() == b""
    recorder.flush()
    assert [row.kind for row in rows_of_file(path)] == ["start"]
    recorder.close()


def test_a_file_and_memory_hold_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a-0.oct"
    in_file, in_memory = Recorder(path, "a", 0), Recorder(None, "a", 0)
    for recorder in (in_file, in_memory):
        recorder.row(START, 1, recorder.string("ring"))
        recorder.flush()
        recorder.row(STOP, 2)
    in_file.close()
    assert path.read_bytes() == in_memory.dump()


@pytest.mark.parametrize("in_file", [True, False])
def test_a_pass_longer_than_the_buffer_loses_nothing(tmp_path: Path, in_file: bool) -> None:
    path = tmp_path / "a-0.oct"
    recorder = Recorder(path if in_file else None, "a", 0, buffer_bytes=MIN_BUFFER_BYTES)
    rows = 3 * MIN_BUFFER_BYTES // CELL_BYTES
    for at_ns in range(rows):
        recorder.row(HOLD, at_ns, recorder.string(f"u{at_ns % 50}"))
    if in_file:
        recorder.close()
    found = rows_of_file(path) if in_file else recorder.rows()
    assert [(row.n, row.at_ns, row.underlay) for row in found] == [(i, i, f"u{i % 50}") for i in range(rows)]


def test_a_life_is_not_recorded_twice_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a-0.oct"
    Recorder(path, "a", 0).close()
    with pytest.raises(FileExistsError):
        Recorder(path, "a", 0)


def test_a_descriptor_stays_open_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "a-0.oct"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    recorder = Recorder(fd, "a", 0)
    recorder.row(START, 1)
    recorder.close()
    os.close(fd)
    assert len(rows_of_file(path)) == 1


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:100]))
    path = tmp_path / "a-0.oct"
    recorder = Recorder(path, "a", 0)
    for at_ns in range(20):
        recorder.row(HOLD, at_ns)
    recorder.close()
    assert [row.at_ns for row in rows_of_file(path)] == list(range(20))


def test_a_full_disk_is_said_once_and_leaves_a_readable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    path = tmp_path / "a-0.oct"
    recorder = Recorder(path, "a", 0)
    recorder.row(START, 1)
    recorder.flush()

    room = [150]

    def write_until_full(fd: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real_write(fd, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(os, "write", write_until_full)
    for at_ns in range(2, 5):
        recorder.row(HOLD, at_ns)
    with pytest.raises(TraceWriteFailed, match="a/0 ends here") as caught:
        recorder.flush()
    assert caught.value.errno == errno.ENOSPC
    room[0] = 1 << 20
    recorder.row(STOP, 6)
    recorder.flush()
    recorder.close()
    assert [row.kind for row in rows_of_file(path)] == ["start", "hold"]
    assert recorder.rows_lost == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_device_raises_from_the_row_that_meets_it() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    recorder = Recorder(fd, "a", 0, buffer_bytes=MIN_BUFFER_BYTES)
    for at_ns in range(MIN_BUFFER_BYTES // CELL_BYTES - 2):  # beside the header and the name of the node
        recorder.row(HOLD, at_ns)
    with pytest.raises(TraceWriteFailed):
        recorder.row(HOLD, 1)
    recorder.flush()
    os.close(fd)


def test_a_long_name_goes_over_several_cells() -> None:
    recorder = Recorder(None, "a", 0)
    name = "é" * (MAX_DEFINITION_BYTES // 2)
    recorder.row(HOLD, 1, recorder.string(name))
    assert recorder.rows()[0].underlay == name
    with pytest.raises(ValueError, match="too long to record"):
        recorder.string(name + "x")


def test_a_view_of_ten_thousand_members_is_recorded() -> None:
    recorder = Recorder(None, "a", 0)
    members = tuple(f"n{i}/0" for i in range(10_000))
    recorder.row(VIEW, 1, members=recorder.strings(members))
    assert recorder.rows()[0].members == members


def test_details_beyond_the_bound_are_null_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_DETAILS", 3)
    recorder = Recorder(None, "a", 0)
    for i in range(5):
        recorder.row(HOLD, i, detail=recorder.detail(f"detail {i}"))
    recorder.row(HOLD, 5, detail=recorder.detail("detail 0"))
    found = [row.detail for row in recorder.rows()]
    assert found == ["detail 0", "detail 1", "detail 2", None, None, "detail 0"]
    assert recorder.details_dropped == 2


def test_names_beyond_the_bound_are_still_recorded_and_old_ids_stay_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_NAMES", 10)
    recorder = Recorder(None, "a", 0)
    kept = recorder.string("kept by the caller")
    for i in range(35):
        recorder.row(HOLD, i, kept, sender=recorder.string(f"s{i}/0"), members=recorder.strings([f"s{i}/0", "a/0"]))
    found = recorder.rows()
    assert [row.sender for row in found] == [f"s{i}/0" for i in range(35)]
    assert found[34].members == ("s34/0", "a/0")
    assert {row.underlay for row in found} == {"kept by the caller"}


def test_a_long_detail_is_cut_at_a_character() -> None:
    recorder = Recorder(None, "a", 0)
    recorder.row(HOLD, 1, detail=recorder.detail("x" + "é" * MAX_DETAIL_BYTES))
    assert recorder.rows()[0].detail == "x" + "é" * ((MAX_DETAIL_BYTES - 1) // 2)


def test_every_torn_end_gives_the_rows_before_it() -> None:
    data = a_recorder_with_every_column().dump()
    for stop in range(len(data) + 1):
        found = list(decode(data[:stop], "a", 3))
        assert found == ROWS_WITH_EVERY_COLUMN[: len(found)]
    assert found == ROWS_WITH_EVERY_COLUMN


def test_a_definition_torn_in_its_middle_is_dropped() -> None:
    recorder = Recorder(None, "a", 0)
    recorder.row(START, 1)
    whole = len(recorder.dump())
    recorder.string("x" * 300)
    data = recorder.dump()
    for stop in range(whole, len(data)):
        assert [row.kind for row in decode(data[:stop], "a", 0)] == ["start"]


def test_a_file_read_in_pieces_of_any_size_gives_the_same_rows() -> None:
    recorder = a_recorder_with_every_column()
    recorder.row(HOLD, 20, recorder.string("y" * 1000))
    data, expected = recorder.dump(), recorder.rows()
    for size in (1, 7, CELL_BYTES - 1, CELL_BYTES, CELL_BYTES + 1, 500):
        reader = CellReader("a", 3)
        found = [row for at in range(0, len(data), size) for row in reader.to_rows(reader.feed(data[at : at + size]))]
        assert found == expected
        assert reader.torn_bytes == 0


@pytest.mark.parametrize(("node", "life"), [("b", 3), ("a", 4)])
def test_the_trace_of_another_node_or_life_is_refused(node: str, life: int) -> None:
    data = a_recorder_with_every_column().dump()
    with pytest.raises(TraceGarbled):
        list(decode(data, node, life))


def test_a_row_missing_in_the_middle_is_noticed() -> None:
    recorder = Recorder(None, "a", 0)
    for at_ns in range(3):
        recorder.row(HOLD, at_ns)
    data = recorder.dump()
    with pytest.raises(TraceGarbled, match="missing or out of order"):
        list(decode(data[: -2 * CELL_BYTES] + data[-CELL_BYTES:], "a", 0))


@settings(deadline=None)
@given(st.binary(max_size=1000))
def test_hostile_bytes_raise_only_what_is_announced(data: bytes) -> None:
    try:
        found = list(decode(data, "a", 3))
    except TraceGarbled:
        return
    assert found == []


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_a_damaged_trace_is_refused_or_read_but_never_breaks_the_reader(data: st.DataObject) -> None:
    damaged = bytearray(a_recorder_with_every_column().dump())
    for _ in range(data.draw(st.integers(1, 4))):
        cell = data.draw(st.integers(0, len(damaged) // CELL_BYTES - 1))
        # The first bytes of a cell carry tags, codes and ids: that is where damage does most.
        at = data.draw(st.integers(0, 40)) if data.draw(st.booleans()) else data.draw(st.integers(0, CELL_BYTES - 1))
        damaged[cell * CELL_BYTES + at] = data.draw(st.integers(0, 255))
    try:
        found = list(decode(bytes(damaged), "a", 3))
    except TraceGarbled:
        return
    assert len(found) <= len(ROWS_WITH_EVERY_COLUMN)


def test_traffic_is_one_row_per_direction_and_detail_in_a_tenth_of_a_second() -> None:
    recorder = Recorder(None, "a", 0)
    traffic = Traffic(recorder.string("ring"))
    assert not traffic.due(0)
    traffic.sent("data", 60_000, 44)
    traffic.sent("data", 1_000)
    traffic.received("ack", 40)
    assert traffic.due(5)
    traffic.emit(recorder, 5)
    traffic.sent("token", 30)
    assert not traffic.due(4 + TRAFFIC_INTERVAL_NS)
    assert traffic.due(5 + TRAFFIC_INTERVAL_NS)
    traffic.emit(recorder, 5 + TRAFFIC_INTERVAL_NS)
    assert not traffic.due(1 << 60)
    assert [(row.kind, row.underlay, row.detail, row.count, row.bytes) for row in recorder.rows()] == [
        ("tx", "ring", "data", 45, 61_000),
        ("rx", "ring", "ack", 1, 40),
        ("tx", "ring", "token", 1, 30),
    ]


def test_kinds_of_traffic_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_TRAFFIC_KINDS", 2)
    recorder, traffic = Recorder(None, "a", 0), Traffic()
    for detail in ("data", "ack", "x", "y", "data"):
        traffic.received(detail, 10)
    traffic.emit(recorder, 1)
    assert [(row.detail, row.count) for row in recorder.rows()] == [("data", 2), ("ack", 1), ("other", 2)]
