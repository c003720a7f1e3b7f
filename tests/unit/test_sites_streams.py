"""The streams of one view of sites: from packets to blocks, where much is under way (`underlay/sites/streams.py`)."""

from __future__ import annotations

from ordercast.engine import Outbox
from ordercast.orderers.sites.interests import Interests
from ordercast.service import AGREED_RANK
from ordercast.underlay.sites.streams import INTEREST_NUMBER, ViewStreams, encode_interest
from ordercast.wire.segments import MAX_PARTIAL
from ordercast.wire.sites import SITE_SHIFT, BlockStamp, LinkPacket, cut_block, encode_stamp

HERE, THERE = 0, 1
ME, OTHER = 5, 7
BOTH = 0b11
DATAGRAM = 1_400
FIRST_LTS = 1


def streams_of(sites: int = 2) -> ViewStreams:
    """At a daemon of site 0, in a view with another one in site 1, and more sites."""
    places = {ME: HERE, OTHER: THERE} | {100 + site: site for site in range(2, sites)}
    return ViewStreams(ME, HERE, places, FIRST_LTS, Interests(), ())


def long_block(seq: int, keys: int = 250) -> list[LinkPacket]:
    """The packets of a block of the other daemon: an INTEREST, which needs no head."""
    stamp = BlockStamp(THERE, AGREED_RANK, FIRST_LTS + seq, INTEREST_NUMBER, BOTH)
    block = encode_interest(range(keys))
    return cut_block(OTHER, THERE << SITE_SHIFT | seq, BOTH, encode_stamp(stamp), block, DATAGRAM)


def test_no_block_is_put_out_of_which_only_some_segments_have_come() -> None:
    """The link and the ring have acknowledged its other segments: they never come again, and everybody would wait."""
    streams, count = streams_of(), MAX_PARTIAL + 100
    out = Outbox()
    for seq in range(1, count + 1):
        streams.take(0, long_block(seq)[0], out)
    for seq in range(1, count + 1):
        streams.take(0, long_block(seq)[1], out)
    assert streams.horizon.streams[THERE].prefix == count
    assert streams.is_at_rest


def test_segments_that_nobody_may_have_sent_yet_are_not_kept() -> None:
    streams = streams_of()
    window = streams.horizon.window
    out = Outbox()
    streams.take(0, long_block(window + 1)[0], out)
    assert streams.is_at_rest
    streams.take(0, long_block(window)[0], out)
    assert not streams.is_at_rest


def test_a_segment_of_a_block_that_is_here_is_not_kept() -> None:
    streams = streams_of()
    out = Outbox()
    for packet in long_block(1):
        streams.take(0, packet, out)
    streams.take(0, long_block(1)[0], out)
    assert streams.is_at_rest
