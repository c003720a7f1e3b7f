"""Golden bytes of the datagrams of sites, as hex, so that they cannot change unnoticed.

A difference here means that daemons of two versions no longer understand each other: change `MAGIC` with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit import site_samples as sample
from tests.unit.bodies import check_body

from ordercast.config import LAN_DATAGRAM
from ordercast.errors import WireError
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind, detail_of
from ordercast.wire.intake import Intake
from ordercast.wire.segments import Datagram, Reassembly
from ordercast.wire.sites import (
    MAX_LTS,
    MAX_RANGE,
    MAX_RANGES,
    MAX_SITES,
    MAX_SKIPPED,
    MAX_TRAIN_BYTES,
    PACKET_OVERHEAD,
    STAMP_BYTES,
    LinkPacket,
    SkippedBlock,
    cut_block,
    decode_hello,
    decode_hop_ack,
    decode_hop_nak,
    decode_ranges,
    decode_site_token,
    decode_skip,
    decode_update,
    decode_wake,
    encode_hello,
    encode_hop_ack,
    encode_ranges,
    encode_site_token,
    encode_skip,
    encode_stamp,
    encode_update,
    encode_wake,
    open_packet,
    open_stamped,
    packet_head,
    packet_sends,
    position_of,
    ranges_of,
    sites_of,
)

TAG, RING, TO = 7, 0x99, ("10.0.0.1", 7_000)

GOLDEN: dict[str, tuple[bytes, str]] = {
    "packet": (
        packet_head(TAG, RING, 5, 41, sample.PACKET) + b"body",
        "c72b01020700000099000000000000000807060504030201090000000000000329000000000001050a00000000000000626f6479",
    ),
    "stamp": (encode_stamp(sample.STAMP), "030700000000000034120000000000004d000000000000000a00000000000000"),
    "skip": (
        encode_skip(sample.SKIP),
        "03000200000000000900000000000000a791000000000000020000000000000004920000000000000000000000000000",
    ),
    "update": (encode_update(sample.UPDATE), "03000000000000000a0000000000000040120000000000000012000000000000"),
    "ack": (
        encode_hop_ack(sample.ACK),
        "28000000000000001e000000000000001c0000000000000000f2052a010000000011102401000000",
    ),
    "nak": (encode_ranges(sample.RANGES), "290000000000000002000000320000000000000001000000"),
    "token": (
        encode_site_token(sample.TOKEN),
        "07000000000000003c000000000000003a000000000000000b000000000000000a00000000000000401200000000000000120000"
        "000000000c00000000000000190000000200000" + "1000000400000004000000000000000003b0000000000000002000000",
    ),
    "wake": (encode_wake(0x0102), "0201000000000000"),
    "hello": (encode_hello(sample.HELLO), "030105000c00000088776655443322110400000000000000" + "0807060504030201"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_are_as_they_were(name: str) -> None:
    made, golden = GOLDEN[name]
    assert made.hex() == golden


@pytest.mark.parametrize(
    ("decode", "made", "value"),
    [
        (decode_skip, encode_skip(sample.SKIP), sample.SKIP),
        (decode_update, encode_update(sample.UPDATE), sample.UPDATE),
        (decode_hop_ack, encode_hop_ack(sample.ACK), sample.ACK),
        (decode_hop_nak, encode_ranges(sample.RANGES[:1]), sample.RANGES[:1]),
        (decode_site_token, encode_site_token(sample.TOKEN), sample.TOKEN),
        (decode_site_token, encode_site_token(sample.RESTING), sample.RESTING),
        (decode_wake, encode_wake(258), 258),
        (decode_hello, encode_hello(sample.HELLO), sample.HELLO),
    ],
)
def test_a_body_is_read_as_it_was_written(decode: Callable[[bytes], Any], made: bytes, value: object) -> None:
    check_body(decode, made, value)


def received(*datagrams: bytes, stride: int = 0) -> list[tuple[int, int, LinkPacket]]:
    data = memoryview(b"".join(datagrams))
    return [open_packet(each) for each in Intake(TAG, {}).read(0, data, stride)]


@pytest.mark.parametrize(("packet", "seq"), [(sample.PACKET, 41), (sample.UNNUMBERED, 0)])
def test_a_packet_is_read_with_the_site_that_sent_it_over_the_link(packet: LinkPacket, seq: int) -> None:
    assert received(packet_head(TAG, RING, 5, seq, packet) + b"body") == [(5, seq, packet)]


def test_a_block_is_cut_into_packets_that_go_alone_and_make_it_whole_again() -> None:
    block = bytes(range(256)) * 20
    stamp = encode_stamp(sample.STAMP)
    packets = cut_block(9, 3 << 56 | 4, 0b11, stamp, block, LAN_DATAGRAM, priority=2)
    assert [each.size for each in packets[:-1]] == [LAN_DATAGRAM] * (len(packets) - 1)
    whole = None
    parts = Reassembly(LAN_DATAGRAM - PACKET_OVERHEAD + HEADER_BYTES)
    for each in reversed(packets):
        ((_, _, came),) = received(packet_head(TAG, RING, 1, 1, each) + bytes(each.body))
        assert (came.source, came.mask, came.priority) == (3, 0b11, 2)
        whole = parts.add((came.origin, came.number, 0), came.segment, came.last, came.stamp + came.body)
    assert whole == stamp + block
    with pytest.raises(WireError):
        cut_block(9, 4, 1, stamp, bytes(60_000), PACKET_OVERHEAD + 100)


@pytest.mark.parametrize("spare", [0, 1])
def test_a_block_that_fills_a_datagram_with_its_stamp_is_one_packet(spare: int) -> None:
    block = bytes(LAN_DATAGRAM - PACKET_OVERHEAD - STAMP_BYTES + spare)
    packets = cut_block(9, 3 << 56 | 4, 0b11, encode_stamp(sample.STAMP), block, LAN_DATAGRAM)
    assert [each.size for each in packets] == [LAN_DATAGRAM] + [PACKET_OVERHEAD + 1] * spare
    assert (packets[0].body is block) == (not spare)  # it is not copied


def test_packets_of_one_size_are_one_train_with_a_shorter_one_behind_them() -> None:
    packets = [sample.PACKET._replace(body=b"x" * size) for size in (9, 9, 9, 4, 9, 20, 20, 5, 5)]
    sends = packet_sends(TO, TAG, RING, 5, list(enumerate(packets, 1)))
    assert [(len(send.buffers) // 2, send.stride) for send in sends] == [(4, 57), (1, 0), (3, 68), (1, 0)]
    came = [each for send in sends for each in received(*map(bytes, send.buffers), stride=send.stride)]
    assert [seq for _, seq, _ in came] == list(range(1, 10))
    assert [each for _, _, each in came] == packets
    many = packet_sends(TO, TAG, RING, 5, [(1, sample.PACKET)] * 600)
    assert [len(send.buffers) // 2 for send in many] == [64] * 9 + [24]
    large = [sample.PACKET._replace(body=bytes(20_000))] * 7
    sends = packet_sends(TO, TAG, RING, 5, list(enumerate(large, 1)))
    assert [(len(send.buffers) // 2, send.stride) for send in sends] == [(3, 20_048), (3, 20_048), (1, 0)]
    assert max(sum(map(len, send.buffers)) for send in sends) <= MAX_TRAIN_BYTES


@pytest.mark.parametrize(
    "changed",
    [
        {"via": MAX_SITES},
        {"packet": sample.PACKET._replace(priority=16)},
        {"packet": sample.PACKET._replace(number=64 << 56)},
        {"packet": sample.PACKET._replace(kind=int(Kind.SKIP))},  # of several segments
        {"packet": sample.PACKET._replace(kind=int(Kind.UPDATE), segment=0, last=0), "seq": 0},
        {"body": b""},
        {"packet": sample.PACKET._replace(segment=0), "body": encode_stamp(sample.STAMP)},  # and no block
    ],
)
def test_a_packet_that_cannot_be_is_refused(changed: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"via": 5, "seq": 1, "packet": sample.PACKET, "body": b"body", **changed}
    data = packet_head(TAG, RING, fields["via"], fields["seq"], fields["packet"]) + fields["body"]
    _, kind, segment, last, _, ring, origin, number = HEADER.unpack_from(data)
    with pytest.raises(WireError):
        open_packet(Datagram(kind, segment, last, ring, origin, number, memoryview(data)[HEADER_BYTES:]))


def test_a_token_with_a_credit_that_cannot_be_is_refused() -> None:
    """Of all that a daemon believes of a token, this could keep its site from stamping anything."""
    beyond = -(1 << 30) - 1
    token = sample.TOKEN
    for bad in (token._replace(usual=beyond), token._replace(urgent=beyond), token._replace(owed=beyond)):
        with pytest.raises(WireError):
            decode_site_token(encode_site_token(bad))


def test_a_stamp_is_read_with_the_block_behind_it() -> None:
    stamp, block = open_stamped(encode_stamp(sample.STAMP) + b"block")
    assert (stamp, bytes(block)) == (sample.STAMP, b"block")
    bad = (
        encode_stamp(sample.STAMP),
        encode_stamp(sample.STAMP._replace(lts=0)) + b"x",
        encode_stamp(sample.STAMP._replace(lts=MAX_LTS + 1)) + b"x",
        encode_stamp(sample.STAMP._replace(site=64)) + b"x",
        encode_stamp(sample.STAMP._replace(rank=8)) + b"x",
        encode_stamp(sample.STAMP._replace(number=1 << 61)) + b"x",
    )
    for body in bad:
        with pytest.raises(WireError):
            open_stamped(body)


def test_positions_are_in_the_order_of_time_stamp_and_site() -> None:
    """Section 3.3: a lexicographic order of the {LTS, site id} fields of the message."""
    places = [(1, 0, 5), (1, 3, 0), (1, 3, 1), (1, 63, 59_999), (2, 0, 0), (MAX_LTS, 63, 59_999)]
    positions = [position_of(*place) for place in places]
    assert positions == sorted(set(positions))
    assert positions[-1] < 1 << 63


@pytest.mark.parametrize(
    "skip",
    [
        sample.SKIP._replace(site=64),
        sample.SKIP._replace(first=0),
        sample.SKIP._replace(blocks=()),
        sample.SKIP._replace(blocks=sample.SKIP.blocks[::-1]),  # time stamps of a site rise
        sample.SKIP._replace(blocks=tuple(SkippedBlock(lts, 0, 0) for lts in range(1, MAX_SKIPPED + 2))),
        sample.SKIP._replace(blocks=(SkippedBlock(MAX_LTS + 1, 0, 0),)),
    ],
)
def test_a_skip_that_cannot_be_is_refused(skip: Any) -> None:
    with pytest.raises(WireError):
        decode_skip(encode_skip(skip))


@pytest.mark.parametrize(
    "changed",
    [
        {"link_aru": 61},
        {"site_aru": 0x1241},
        {"site_lts": MAX_LTS + 1},
        {"number": 1 << 61},
        {"flags": 3},
        {"wanted": ((60, 62),)},  # nobody has numbered it
        {"wanted": ((5, 6), (4, 5))},
        {"wanted": ((0, 1),)},
    ],
)
def test_a_token_that_cannot_be_is_refused(changed: dict[str, Any]) -> None:
    """Figure 3.3: drop token if it is malformed."""
    with pytest.raises(WireError):
        decode_site_token(encode_site_token(sample.TOKEN._replace(**changed)))


def test_other_values_out_of_range_are_refused() -> None:
    bad: list[tuple[Callable[[bytes], Any], bytes]] = [
        (decode_update, encode_update(sample.UPDATE._replace(site=64))),
        (decode_update, encode_update(sample.UPDATE._replace(clock=MAX_LTS + 1))),
        (decode_hop_ack, encode_hop_ack(sample.ACK._replace(freed=31))),
        (decode_hop_ack, encode_hop_ack(sample.ACK._replace(aru=1 << 48))),
        (decode_ranges, encode_ranges([(1, MAX_RANGE + 2)])),
        (decode_ranges, encode_ranges([(at, at + 1) for at in range(1, 2 * MAX_RANGES + 3, 2)])),
        (decode_hop_nak, b""),
        (decode_wake, encode_wake(1 << 61)),
        (decode_hello, encode_hello(sample.HELLO._replace(site=64))),
        (decode_hello, encode_hello(sample.HELLO._replace(flags=2))),
        (decode_hello, encode_hello(sample.HELLO._replace(daemons=0))),
        (decode_hello, encode_hello(sample.HELLO._replace(counter=1 << 61))),
    ]
    for decode, body in bad:
        with pytest.raises(WireError):
            decode(body)


def test_ranges_of_numbers() -> None:
    assert ranges_of([1, 2, 3, 7, 9, 10]) == [(1, 4), (7, 8), (9, 11)]
    assert ranges_of([1, 2, 7, 9], 2) == [(1, 3), (7, 8)]
    assert ranges_of(range(1, MAX_RANGE + 3)) == [(1, MAX_RANGE + 1), (MAX_RANGE + 1, MAX_RANGE + 3)]
    assert ranges_of([]) == []


def test_sites_of_a_mask() -> None:
    assert sites_of(0) == []
    assert sites_of(1 << 63 | 0b101) == [0, 2, 63]


def test_kinds_are_known_by_a_word() -> None:
    words = [detail_of(kind) for kind in range(Kind.PACKET, Kind.FETCH + 1)]
    assert words == ["data", "skip", "update", "ack", "nak", "token", "wake", *["membership"] * 7]
