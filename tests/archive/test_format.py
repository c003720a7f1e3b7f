"""The file format: golden bytes, any frame alone, columns in place, and bytes that nobody wrote."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.archive.disk import frame

from ordercast.archive.arrow import to_arrow
from ordercast.archive.builder import FrameBuilder, Sealed, seal_mark
from ordercast.archive.errors import ArchiveDamaged, ForeignFile, NewerFormat
from ordercast.archive.frame import Frame, Record
from ordercast.archive.headers import (
    EMPTY,
    HOLE,
    MAX_SERVICES,
    SegmentHead,
    open_frame_head,
    open_segment_head,
    pack_frame_head,
    pack_segment_head,
    segment_name,
)
from ordercast.errors import InvariantViolation

HEAD = SegmentHead("orders", bytes(range(16)), 42, 40, 1_700_000_000_000_000_000)


def opened(sealed: Sealed) -> Frame:
    data = sealed.tobytes()
    head = open_frame_head(data)
    assert head == sealed.head
    assert head.nbytes == len(data)
    made = Frame("orders", head, data)
    made.check()
    return made


def small() -> Sealed:
    builder = FrameBuilder()
    builder.add(5, "1@a/1", "a/1", 0, "AGREED", 1_000, 3, [3, 2], b"abcde")
    builder.add(9, "1@a/1", "b/1", 7, "SAFE", 2_000, [1, -2], [0, 1], b"z")
    return builder.seal(4)


# Golden bytes: a change here makes archives unreadable, and needs a new version. -------------------------------------


def test_the_header_of_a_segment_has_these_bytes() -> None:
    packed = pack_segment_head(HEAD)
    assert packed.hex() == (
        "4f43415243484956" "0100" "8000" "0600" "0000" "000102030405060708090a0b0c0d0e0f"
        "2a00000000000000" "2800000000000000" "00002a36fe9c9717"
        "b6ac70df" "00000000" "6f7264657273" + "00" * 58
    )  # fmt: skip
    assert open_segment_head(packed, "x") == HEAD._replace(nbytes=128)
    assert segment_name(42) == "segment-00000000000000000042.ocl"


def test_the_header_of_a_later_epoch_has_its_base_behind_the_name() -> None:
    later = HEAD._replace(base=40)
    packed = pack_segment_head(later)
    assert (packed[8], len(packed)) == (2, 128)
    assert packed[64:78] == b"orders" + (40).to_bytes(8, "little")
    assert open_segment_head(packed, "x") == later._replace(nbytes=128)
    torn = bytearray(packed)
    torn[70] ^= 1
    assert open_segment_head(bytes(torn), "x") is None


def test_a_shifted_frame_has_the_same_messages_at_other_positions() -> None:
    for sealed in (frame(5, 7, 4), seal_mark(HOLE, 5, 9, 1)):
        made = Frame("orders", sealed.head, sealed.tobytes())
        moved = made.shifted(100)
        moved.check()
        assert (moved.begin, moved.stop) == (made.begin + 100, made.stop + 100)
        assert list(moved.records()) == [each._replace(position=each.position + 100) for each in made.records()]
        assert moved.shifted(-100).sealed().tobytes() == sealed.tobytes()


def test_a_frame_has_these_bytes() -> None:
    assert small().tobytes().hex() == (
        "4f434652" "01" "01" "0000" "c0000000" "04000000" "06000000" "1f000000" "0100" "0200" "0200" "0000"
        "0400000000000000" "0b00000000000000" "0500000000000000" "0a00000000000000"
        "e803000000000000" "d007000000000000" "0fbbd6fb" "29316c7a" "0000000000000000"
        "0500000000000000" "0600000000000000" "0900000000000000" "0a00000000000000"  # positions
        "0000000000000000" "0100000000000000" "0700000000000000" "0800000000000000"  # numbers
        "e803000000000000" "e803000000000000" "d007000000000000" "d007000000000000"  # timestamps
        "00000000" "03000000" "05000000" "05000000" "06000000" "00000000"  # offsets
        "0000" "0000" "0000" "0000"  # views
        "0000" "0000" "0100" "0100"  # senders
        "0300" "0300" "0100" "feff"  # types
        "00" "00" "01" "01" "00000000"  # services
        "6162636465" "7a" "0000"  # values
        "0500" "3140612f31" "0300" "612f31" "0300" "622f31" "0600" "414752454544" "0400" "53414645" "00"
    )  # fmt: skip


def test_a_hole_has_these_bytes() -> None:
    assert seal_mark(HOLE, 7, 9, 5).tobytes().hex() == (
        "4f434652" "02" "01" "0000" + "00" * 24 + "0700000000000000" "0900000000000000" + "ff" * 16 +
        "0500000000000000" "0500000000000000" "00000000" "9ef3bb5a" "0000000000000000"
    )  # fmt: skip


# Frames. -------------------------------------------------------------------------------------------------------------


def test_what_was_added_is_read_again() -> None:
    made = opened(small())
    assert list(made.records()) == [
        Record("orders", 5, "1@a/1", "a/1", 0, "AGREED", 1_000, 3, b"abc"),
        Record("orders", 6, "1@a/1", "a/1", 1, "AGREED", 1_000, 3, b"de"),
        Record("orders", 9, "1@a/1", "b/1", 7, "SAFE", 2_000, 1, b""),
        Record("orders", 10, "1@a/1", "b/1", 8, "SAFE", 2_000, -2, b"z"),
    ]
    assert (made.begin, made.stop, len(made)) == (4, 11, 4)
    assert [record.position for record in made.records(6, 10)] == [6, 9]
    assert list(made.records(7, 9)) == []


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.binary(max_size=9), min_size=1, max_size=5), st.integers(0, 2)),
        min_size=1,
        max_size=5,
    ),
    st.data(),
)
@settings(max_examples=80, deadline=None)
def test_a_cut_has_exactly_the_messages_of_its_range(
    runs: list[tuple[int, list[bytes], int]], data: st.DataObject
) -> None:
    builder, position = FrameBuilder(), 10
    for gap, values, who in runs:
        position += gap
        lengths = [len(value) for value in values]
        builder.add(position, f"v{who}", f"s{who}", 0, "AGREED", position, who, lengths, b"".join(values))
        position += len(values)
    whole = opened(builder.seal(8))
    begin = data.draw(st.integers(8, whole.stop - 1))
    stop = data.draw(st.integers(begin + 1, whole.stop))
    part = opened(whole.cut(begin, stop))
    assert (part.begin, part.stop) == (begin, stop)
    assert list(part.records()) == list(whole.records(begin, stop))
    assert part.head.kind == EMPTY or part.head.count


def test_arrow_wraps_the_columns_where_they_lie() -> None:
    pa = pytest.importorskip("pyarrow")
    made = opened(small())
    batch = to_arrow(made, 6, 10)
    assert batch.schema.names == [
        "group",
        "position",
        "view",
        "sender",
        "number",
        "service",
        "timestamp",
        "type",
        "value",
    ]
    assert batch["position"].to_pylist() == [6, 9]
    assert batch["value"].to_pylist() == [b"de", b""]
    assert batch["sender"].to_pylist() == ["a/1", "b/1"]
    assert batch["service"].to_pylist() == ["AGREED", "SAFE"]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [1_000, 2_000]
    assert batch["type"].to_pylist() == [3, 1]
    batch.validate(full=True)
    whole = pa.py_buffer(made.data)
    for name in ("position", "number", "timestamp", "type", "value"):
        assert whole.address <= batch[name].buffers()[-1].address < whole.address + whole.size, name
    assert to_arrow(opened(seal_mark(EMPTY, 3, 4, 0))).num_rows == 0


def test_a_frame_holds_no_more_services_than_its_index_can_name() -> None:
    builder = FrameBuilder()
    for number in range(MAX_SERVICES):
        assert builder.fits(1, 1)
        builder.add(number, "v", "s", number, f"RESILIENT({number})", 0, 0, [1], b"x")
    assert not builder.fits(1, 1)
    services = [record.service for record in opened(builder.seal(0)).records()]
    assert services == [f"RESILIENT({number})" for number in range(MAX_SERVICES)]


def test_positions_that_go_back_are_our_own_mistake() -> None:
    builder = FrameBuilder()
    builder.add(5, "v", "s", 0, "AGREED", 0, 0, [1], b"x")
    with pytest.raises(InvariantViolation):
        builder.add(5, "v", "s", 1, "AGREED", 0, 0, [1], b"x")


# Bytes that nobody wrote. --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [small(), seal_mark(HOLE, 7, 9, 5)], ids=["messages", "hole"])
def test_one_changed_bit_anywhere_in_a_frame_is_noticed(sealed: Sealed) -> None:
    data = sealed.tobytes()
    unused = range(88, 96)  # of the header
    for place in set(range(len(data))) - set(unused):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        head = open_frame_head(changed)
        assert head is None or not Frame("orders", head, bytes(changed)).is_intact, place


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_no_frame(data: bytes) -> None:
    assert open_frame_head(data) is None
    assert open_frame_head(b"OCFR" + data) is None


def test_a_frame_that_contradicts_itself_is_refused_although_its_checksums_are_right() -> None:
    """As a faulty peer could send it."""
    made = opened(frame(0, 0, 3))
    columns = bytearray(made.data)
    columns[96 : 96 + 8], columns[104 : 104 + 8] = columns[104 : 104 + 8], columns[96 : 96 + 8]
    head = made.head._replace(body_crc=zlib.crc32(columns[96:]))
    forged = pack_frame_head(head) + columns[96:]
    reread = open_frame_head(forged)
    assert reread is not None
    with pytest.raises(ArchiveDamaged, match="contradicts itself"):
        Frame("orders", reread, bytes(forged)).check()


def test_every_cut_of_a_segment_header_is_torn_and_not_foreign() -> None:
    packed = pack_segment_head(HEAD)
    for size in range(len(packed)):
        assert open_segment_head(packed[:size], "x") is None, size
    for place in range(16, 60):
        changed = bytearray(packed)
        changed[place] ^= 1
        assert open_segment_head(bytes(changed), "x") is None, place


def test_a_foreign_file_and_a_newer_format_are_named() -> None:
    with pytest.raises(ForeignFile, match="notes is named like a segment"):
        open_segment_head(b"dear diary", "notes")
    newer = bytearray(pack_segment_head(HEAD))
    newer[8] = 9
    with pytest.raises(NewerFormat, match="x has format 9, and this version of Ordercast reads up to 2"):
        open_segment_head(bytes(newer), "x")
