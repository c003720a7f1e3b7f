"""Numbers of control bodies, which join the segments of a long one."""

from __future__ import annotations

from ordercast.config import MS
from ordercast.engine import To
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind
from ordercast.wire.segments import Reassembly
from ordercast.wire.writer import DatagramWriter

DATAGRAM = 512
STEP = DATAGRAM - HEADER_BYTES


def segments(writer: DatagramWriter, body: bytes) -> list[tuple[tuple[int, int, int], int, int, bytes]]:
    """What a receiver gets of a control body: key, segment, last segment and bytes."""
    _, buffers, stride = writer.control(To.ALL, Kind.LIST, body)
    train = b"".join(buffers)
    found = []
    for at in range(0, len(train), stride):
        piece = train[at : at + stride]
        _, kind, segment, last, _, _, origin, number = HEADER.unpack_from(piece)
        found.append(((kind, origin, number), segment, last, piece[HEADER_BYTES:]))
    return found


def test_segments_of_a_node_s_second_stay_in_a_ring_do_not_meet_those_of_its_first() -> None:
    stays = []
    for now_ns in (5 * MS, 6 * MS):
        writer = DatagramWriter(1, 7, DATAGRAM)
        writer.begin(now_ns)
        stays.append(writer)
    first, second = (segments(writer, word * (STEP + 9)) for writer, word in zip(stays, (b"a", b"b"), strict=True))
    received = Reassembly(DATAGRAM)
    assert received.add(*first[1]) is None  # its other segment is lost
    assert received.add(*second[0]) is None
    assert received.add(*second[1]) == b"b" * (STEP + 9)
