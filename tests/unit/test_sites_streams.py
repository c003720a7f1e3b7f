"""The streams of one view of sites: from packets to blocks, where much is under way (`underlay/sites/streams.py`)."""

from __future__ import annotations

from tests.unit.rings import block_of

from ordercast.engine import Outbox
from ordercast.orderers.sites.interests import Interests
from ordercast.service import AGREED_RANK, RELIABLE, UNRELIABLE, Service
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


def weak_block(seq: int, service: Service) -> list[LinkPacket]:
    """The packet of a short block of the other daemon."""
    is_reliable = service is not UNRELIABLE
    stamp = BlockStamp(THERE, service.rank, FIRST_LTS + seq, seq, BOTH)
    block = block_of(seq, service=service)
    number = THERE << SITE_SHIFT | seq
    return cut_block(OTHER, number, BOTH, encode_stamp(stamp), block, DATAGRAM, is_reliable=is_reliable)


def test_an_application_that_does_not_receive_gets_no_more_reliable_messages() -> None:
    """They wait for nothing, but something has to bound them: its site says no more of their source, which stops."""
    streams = streams_of(sites=64)
    window = streams.horizon.window
    streams.is_behind = True
    out = Outbox()
    for seq in range(1, 2 * window + 1):
        (packet,) = weak_block(seq, RELIABLE)
        streams.take(0, packet, out)
    assert streams.deliveries(1, may_order=False) == []
    assert streams.horizon.streams[THERE].report() <= FIRST_LTS + window
    streams.is_behind = False
    assert len(streams.deliveries(1, may_order=True)) == 2 * window
    (packet,) = weak_block(2 * window + 1, RELIABLE)
    streams.take(0, packet, out)
    assert len(streams.deliveries(1, may_order=False)) == 1, "it waits for nothing"


def test_an_application_that_does_not_receive_loses_unreliable_messages() -> None:
    streams = streams_of()
    out = Outbox()
    for seq in range(1, 11):
        streams.is_behind = seq > 4
        (packet,) = weak_block(seq, UNRELIABLE)
        streams.take(0, packet, out)
    assert len(streams.deliveries(1, may_order=False)) == 4
    assert streams.dropped == 6
