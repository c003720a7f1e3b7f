"""UNRELIABLE blocks of sites that come in segments: what is not whole in time is dropped (Spread section 3.3)."""

from __future__ import annotations

from ordercast.config import MS
from ordercast.engine import NEVER
from ordercast.underlay.sites.streams import LOOSE_NS, LooseBlocks
from ordercast.wire.header import Kind
from ordercast.wire.segments import MAX_PARTIAL
from ordercast.wire.sites import LinkPacket


def segment(number: int, at: int, last: int = 2) -> LinkPacket:
    stamp = b"stamp" if at == 0 else b""
    return LinkPacket(Kind.PACKET, 7, number, 1, b"%d" % at, at, last, is_reliable=False, stamp=stamp)


def test_a_block_is_whole_when_all_segments_have_come_in_any_order() -> None:
    loose = LooseBlocks()
    assert loose.add(0, segment(1, 2)) is None
    assert loose.add(1, segment(1, 0)) is None
    assert loose.add(2, segment(1, 0)) is None  # twice
    assert loose.add(3, segment(1, 1)) == b"stamp012"
    assert loose.due_ns == NEVER


def test_what_is_not_whole_after_a_while_is_dropped() -> None:
    loose = LooseBlocks()
    loose.add(0, segment(1, 0))
    loose.add(5 * MS, segment(2, 0))
    assert loose.due_ns == LOOSE_NS
    loose.expire(LOOSE_NS)
    assert loose.due_ns == LOOSE_NS + 5 * MS
    assert loose.add(LOOSE_NS, segment(2, 1)) is None
    assert loose.add(LOOSE_NS, segment(2, 2)) == b"stamp012"
    # The rest of the first one is the beginning of nothing.
    assert loose.add(LOOSE_NS, segment(1, 1)) is None
    assert loose.add(LOOSE_NS, segment(1, 2)) is None


def test_the_oldest_goes_where_there_are_too_many() -> None:
    loose = LooseBlocks()
    for number in range(MAX_PARTIAL + 1):
        loose.add(number, segment(number, 0))
    assert loose.due_ns == LOOSE_NS + 1
