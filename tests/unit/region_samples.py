"""Values of the formats of regions and couriers, fixed for ever: golden bytes are made of them."""

from __future__ import annotations

from ordercast.wire.courier import CourierAck, Parcel, ParcelPart
from ordercast.wire.header import Kind
from ordercast.wire.ranges import NumberSet
from ordercast.wire.regions import (
    CLOSED,
    DEAD,
    REPORTED,
    SEEN,
    Accusation,
    Accused,
    EarlierView,
    LaneClosing,
    LaneOpening,
    RegionAck,
    RegionToken,
    TokenEntry,
)

BLOCKS = NumberSet(((4, 6), (9, 10)))
CUT_OFF = NumberSet(((1, 2),), 0x80)
SEGMENTS = NumberSet(((0x401, 0x403), (0x500, 0x600)))
PART = ParcelPart(
    0x0102030405060708, 0x1112131415161718, 3, 0x24, 2, 1, 4, Parcel(int(Kind.PUSH), 0x99, 0x55, 7, b"body", 1, 2)
)
COURIER_ACK = CourierAck(0x0102030405060708, 0x1112131415161718, 3, 0x20, 0x24, 1 << 70 | 2)
OPENING = LaneOpening(12, "alice", 3, ("10.0.0.7", 7_000), (EarlierView(5, 0x77, 40), EarlierView(6, 0x78, 1)))
CLOSING = LaneClosing(41, 12)
ENTRY = TokenEntry(0x0102030405060708, SEEN | REPORTED, 50, 40, 30, 52, 0, 44, 33, SEGMENTS, SEGMENTS)
DYING = TokenEntry(0x0202030405060708, SEEN | DEAD, 9, 5, 4, 9, 0, 5, 4, lack=BLOCKS, candidates=BLOCKS, lost=CUT_OFF)
TOKEN = RegionToken(12, 11, 10, 9_850, 3, 2, (ENTRY, DYING))
RESTING = RegionToken(12, 12, 12, 0, 0, 0)
ACK = RegionAck(44, 33, 12, 4_925, 2, CLOSED)
ACCUSED = Accused(0x0102030405060708, 0x99, 12, Accusation.SILENCE)
