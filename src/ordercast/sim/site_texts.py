"""What a datagram of sites says, in a few words: for transcripts. Nothing that depends on a clock."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.errors import WireError
from ordercast.underlay.sites.streams import INTEREST_NUMBER
from ordercast.wire.block import ROSTER, head_of, roster_body, service_of
from ordercast.wire.components import decode_gather
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind
from ordercast.wire.roster import Operation
from ordercast.wire.segments import Datagram
from ordercast.wire.sites import (
    RESTS,
    SEEN,
    SITE_SHIFT,
    LinkPacket,
    decode_site_token,
    decode_skip,
    decode_stamp,
    open_packet,
)


def site_text(data: bytes, sites: Sequence[str]) -> str:
    """Of one datagram. `sites`: their names, in the order of the configuration. Empty: there is nothing to add."""
    _, kind, segment, last, _, ring, origin, number = HEADER.unpack_from(data)
    body = memoryview(data)[HEADER_BYTES:]
    try:
        if kind in (Kind.PACKET, Kind.SKIP, Kind.UPDATE):
            _, _, packet = open_packet(Datagram(kind, segment, last, ring, origin, number, body))
            return _packet_text(packet, sites)
        if kind == Kind.SITE_TOKEN:
            token = decode_site_token(body)
            return {RESTS: "rests", SEEN: "seen"}.get(token.flags, "asks again" if token.wanted else "")
        if kind == Kind.GATHER:
            return decode_gather(body).step.name.lower()
    except WireError:
        return "that nobody can read"
    return ""


def _packet_text(packet: LinkPacket, sites: Sequence[str]) -> str:
    source = sites[packet.source] if packet.source < len(sites) else "nowhere"
    seq = packet.number & ((1 << SITE_SHIFT) - 1)
    if packet.kind == Kind.UPDATE:
        return f"of {source}"
    if packet.kind == Kind.SKIP:
        skip = decode_skip(packet.body)
        count = len(skip.blocks)
        return f"of {source} {skip.first}" + (f" to {skip.first + count - 1}" if count > 1 else "")
    if packet.segment:
        return f"{source} {seq}, part {packet.segment + 1}"
    return f"{source} {seq}: {_block_text(packet)}"


def _block_text(packet: LinkPacket) -> str:
    if decode_stamp(packet.stamp).number == INTEREST_NUMBER:
        return "interest"
    block = bytes(packet.body)
    head = head_of(block)
    if head.flags & ROSTER:
        return Operation(roster_body(block, head)[0]).name.lower()
    return f"{head.count} {service_of(head.rank, 0)}"
