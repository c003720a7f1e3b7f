"""Golden bytes of the datagrams of regions and couriers, as hex, so that they cannot change unnoticed.

A difference here means that nodes of two versions no longer understand each other: change `MAGIC` with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit import region_samples as sample
from tests.unit.bodies import check_body

from ordercast.config import LAN_DATAGRAM
from ordercast.errors import InvariantViolation, WireError
from ordercast.wire.courier import OVERHEAD_BYTES, decode_courier_ack, encode_courier_ack, open_part, part_head
from ordercast.wire.header import Kind, detail_of
from ordercast.wire.intake import Intake
from ordercast.wire.ranges import EMPTY, MAX_RUNS, NumberSet
from ordercast.wire.regions import (
    MAX_EARLIER,
    MAX_LANE_BLOCKS,
    MAX_SENDERS,
    MAX_TOKEN_RUNS,
    SEEN,
    EarlierView,
    TokenEntry,
    decode_accused,
    decode_ack,
    decode_close,
    decode_drained,
    decode_numbers,
    decode_open,
    decode_token,
    encode_accused,
    encode_ack,
    encode_close,
    encode_drained,
    encode_numbers,
    encode_open,
    encode_token,
    fits_token,
)

TAG = 7

GOLDEN: dict[str, tuple[bytes, str]] = {
    "part": (
        part_head(TAG, sample.PART) + b"body",
        "c746010207000000990000000000000055000000000000000700000000000000080706050403020118171615141312110300"
        "00002400000002000104626f6479",
    ),
    "courier ack": (
        encode_courier_ack(sample.COURIER_ACK),
        "080706050403020118171615141312110300000020000000240000000200000002000000000000004000000000000000",
    ),
    "open": (
        encode_open(sample.OPENING),
        "0c00000000000000020000000500616c6963650300000000000000080031302e302e302e37581b0500000077000000000000"
        "0028000000000000000600000078000000000000000100000000000000",
    ),
    "close": (
        encode_close(sample.CLOSING),
        "29000000000000000c00000000000000",
    ),
    "token": (
        encode_token(sample.TOKEN),
        "0c000000000000000b000000000000000a000000000000007a26000003000200020000000000000008070605040302010903"
        "000000000000320000000000000028000000000000001e00000000000000340000000000000000000000000000002c000000"
        "0000000021000000000000000000000000000010020001040000000000000200000000050000000000000001000000000000"
        "0000001002000104000000000000020000000005000000000000000100000807060504030202033400000000000009000000"
        "0000000005000000000000000400000000000000090000000000000000000000000000000500000000000000040000000000"
        "0000000000000000001002000400000000000000020000000900000000000000010000000000000000000010020004000000"
        "000000000200000009000000000000000100000080000000000000000100010000000000000001000000",
    ),
    "resting token": (
        encode_token(sample.RESTING),
        "0c000000000000000c000000000000000c0000000000000000000000000000000000000000000000",
    ),
    "ack": (
        encode_ack(sample.ACK),
        "2c0000000000000021000000000000000c000000000000003d13000002000100",
    ),
    "segments": (
        encode_numbers(sample.SEGMENTS),
        "00000000000000100200010400000000000002000000000500000000000000010000",
    ),
    "drained": (
        encode_drained(0x0102),
        "0201000000000000",
    ),
    "accused": (
        encode_accused(sample.ACCUSED),
        "080706050403020199000000000000000c0000000000000002000000",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_are_as_they_were(name: str) -> None:
    made, golden = GOLDEN[name]
    assert made.hex() == golden


@pytest.mark.parametrize(
    ("decode", "made", "value"),
    [
        (decode_courier_ack, encode_courier_ack(sample.COURIER_ACK), sample.COURIER_ACK),
        (decode_open, encode_open(sample.OPENING), sample.OPENING),
        (decode_close, encode_close(sample.CLOSING), sample.CLOSING),
        (decode_token, encode_token(sample.TOKEN), sample.TOKEN),
        (decode_token, encode_token(sample.RESTING), sample.RESTING),
        (decode_ack, encode_ack(sample.ACK), sample.ACK),
        (decode_numbers, encode_numbers(sample.SEGMENTS), sample.SEGMENTS),
        (decode_drained, encode_drained(258), 258),
        (decode_accused, encode_accused(sample.ACCUSED), sample.ACCUSED),
    ],
)
def test_a_body_is_read_as_it_was_written(decode: Callable[[bytes], Any], made: bytes, value: object) -> None:
    check_body(decode, made, value)


def test_a_segment_in_a_parcel_passes_the_intake_with_its_place_in_the_block() -> None:
    data = part_head(TAG, sample.PART) + b"body"
    (datagram,) = Intake(TAG, {}).read(0, memoryview(data), 0)
    assert open_part(datagram) == sample.PART


def test_a_segment_of_a_block_fits_a_parcel() -> None:
    """Blocks are cut into segments that leave room for the prefix: a repair is the same bytes."""
    assert len(part_head(TAG, sample.PART)) == OVERHEAD_BYTES == 60
    assert LAN_DATAGRAM - OVERHEAD_BYTES == 1_340


def many(count: int, runs: int = 0) -> tuple[TokenEntry, ...]:
    lack = NumberSet(tuple((2 * each, 2 * each + 1) for each in range(runs)))
    return tuple(TokenEntry(sender, SEEN, lack=lack) for sender in range(count))


def test_a_token_has_a_bounded_number_of_entries_and_of_runs() -> None:
    full = sample.TOKEN._replace(entries=many(MAX_SENDERS, 4))
    assert decode_token(encode_token(full)) == full
    for entries in (many(MAX_SENDERS + 1), many(MAX_TOKEN_RUNS // MAX_RUNS + 1, MAX_RUNS)):
        with pytest.raises(InvariantViolation):
            encode_token(sample.TOKEN._replace(entries=entries))


def test_the_largest_token_fits_the_parts_of_a_parcel() -> None:
    assert len(encode_token(sample.TOKEN._replace(entries=many(MAX_SENDERS, 4)))) < 256 * 1_340
    assert fits_token(sample.TOKEN.entries, len(encode_token(sample.TOKEN)))
    assert not fits_token(sample.TOKEN.entries, len(encode_token(sample.TOKEN)) - 1)


def spoilt(body: bytes, at: int, value: int, size: int = 1) -> bytes:
    return body[:at] + value.to_bytes(size, "little") + body[at + size :]


TOKEN = encode_token(sample.TOKEN)
ONE_ENTRY = encode_token(sample.TOKEN._replace(entries=(sample.ENTRY,)))
HOSTILE: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "a token that is cleaner than its epoch": (decode_token, spoilt(TOKEN, 8, 13)),
    "a place that no ring has": (decode_token, spoilt(TOKEN, 28, 0xFFFF, 2)),
    "a token with more entries than it holds": (decode_token, spoilt(TOKEN, 32, 1_000, 2)),
    "senders that do not rise": (
        decode_token,
        encode_token(sample.TOKEN._replace(entries=(sample.DYING, sample.ENTRY))),
    ),
    "an entry with unknown flags": (decode_token, spoilt(TOKEN, 48, 16)),
    "an entry with an eighth set": (decode_token, spoilt(TOKEN, 49, 0x83)),
    "a count out of all reason": (decode_token, spoilt(TOKEN, 56, MAX_LANE_BLOCKS + 1, 8)),
    "an empty set": (decode_token, spoilt(ONE_ENTRY, 120, 0, 10)[:130] + ONE_ENTRY[144:]),
    "an opening with a view twice": (
        decode_open,
        encode_open(sample.OPENING._replace(earlier=(EarlierView(1, 2, 3), EarlierView(2, 2, 3)))),
    ),
    "an opening with a view without blocks": (
        decode_open,
        encode_open(sample.OPENING._replace(earlier=(EarlierView(1, 2, 0),))),
    ),
    "an opening by nobody": (decode_open, encode_open(sample.OPENING._replace(name=""))),
    "an opening with too many views": (decode_open, spoilt(encode_open(sample.OPENING), 8, MAX_EARLIER + 1, 4)),
    "a final count out of all reason": (decode_close, spoilt(encode_close(sample.CLOSING), 0, 1 << 60, 8)),
    "an acknowledgement with unknown flags": (decode_ack, spoilt(encode_ack(sample.ACK), 30, 2)),
    "an accusation of nobody": (decode_accused, spoilt(encode_accused(sample.ACCUSED), 0, 0, 8)),
    "an accusation without a reason": (decode_accused, spoilt(encode_accused(sample.ACCUSED), 24, 0)),
    "a request for nothing": (decode_numbers, b"\0\0\0\0\0\0\0\x10\0\0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_honest_node_says_is_refused(name: str) -> None:
    decode, body = HOSTILE[name]
    with pytest.raises(WireError):
        decode(body)


def test_what_would_be_refused_is_not_sent() -> None:
    with pytest.raises(InvariantViolation):
        encode_numbers(EMPTY)
    with pytest.raises(InvariantViolation):
        encode_open(sample.OPENING._replace(earlier=tuple([EarlierView(1, at, 1) for at in range(MAX_EARLIER + 1)])))


def test_every_kind_of_regions_has_a_word_in_traces() -> None:
    words = {detail_of(kind) for kind in Kind if kind >= Kind.COURIER_ACK}
    assert {"push", "pull", "pulled", "token", "ack", "nak"} < words
    assert "unknown" not in words
