"""Values of the formats of sites, fixed for ever: golden bytes are made of them."""

from __future__ import annotations

from ordercast.service import AGREED_RANK, SAFE_RANK
from ordercast.wire.header import Kind
from ordercast.wire.sites import (
    ON_LINK,
    RESTS,
    BlockStamp,
    Hello,
    HopAck,
    LinkPacket,
    PrunedBlocks,
    SiteToken,
    SiteUpdate,
    SkippedBlock,
)

PACKET = LinkPacket(int(Kind.PACKET), 0x0102030405060708, 3 << 56 | 9, 0b1010, b"body", 1, 2, 1)
UNNUMBERED = PACKET._replace(is_reliable=False)
STAMP = BlockStamp(3, SAFE_RANK, 0x1234, 77, 0b1010)
SKIP = PrunedBlocks(3, 9, (SkippedBlock(0x1234, SAFE_RANK, 0b10), SkippedBlock(0x1240, AGREED_RANK, 0)))
UPDATE = SiteUpdate(3, 10, 0x1240, 0x1200)
ACK = HopAck(40, 30, 28, 5_000_000_000, 4_900_000_000)
RANGES = ((41, 43), (50, 51))
TOKEN = SiteToken(7, 60, 58, 11, 10, 0x1240, 0x1200, 12, 25, 2, 0, ((59, 61),))
RESTING = TOKEN._replace(flags=RESTS, wanted=())
HELLO = Hello(3, ON_LINK, 5, 12, 0x1122334455667788, 4, 0x0102030405060708)
