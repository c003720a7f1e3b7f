"""Bodies of the datagrams of sites (Spread section 3; docs/design/sites.md has the table of kinds).

A *packet* is what a link numbers: one segment of a stamped block (PACKET), a SKIP or an UPDATE. Behind the usual header
it has 16 bytes that only this link means: which site sent it over the link, its priority, its sequence number there,
and the sites that it is for. So any segment goes on alone, at once: a forwarder writes a new head before the same body.
A packet without a number (sequence 0) is not repeated (UNRELIABLE). Inside a site the link is the ring, and the sending
site is the own one.

A block travels behind its stamp. The header of all of its segments names the daemon that stamped it (`origin`) and
`site << 56 | site_seq` (`number`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ordercast.config import MAX_MEMBERS
from ordercast.engine import Send
from ordercast.errors import WireError
from ordercast.service import RANK_NAMES
from ordercast.view import Address
from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.header import HEADER_BYTES, MAGIC, MAX_SEGMENTS, Kind
from ordercast.wire.segments import Datagram

Buffer = bytes | bytearray | memoryview

MAX_SITES: Final = 64  # destination masks have a bit for each
PRIORITIES: Final = 16  # of packets: 0 is the usual one, 15 the most urgent
MAX_CREDIT: Final = 1 << 30  # bytes; links that take more are not behind
MAX_LINK_SEQ: Final = (1 << 48) - 1  # a million packets a second for nine years
MAX_SITE_SEQ: Final = (1 << 56) - 1
MAX_LTS: Final = (1 << 39) - 1  # a position, LTS << 24, stays below 2^63
MAX_RANGES: Final = 64  # ranges of sequence numbers in one HOP_NAK, or that one token asks for
MAX_RANGE: Final = 65_535  # numbers in one of them
MAX_SKIPPED: Final = 64  # blocks that one SKIP names
MAX_TRAIN: Final = 64  # packets in one train; every kernel that cuts up trains takes so many
MAX_TRAIN_BYTES: Final = 65_493  # a longer train is refused by the kernel, and then copied and cut up by us

SITE_SHIFT: Final = 56
PRIORITY_SHIFT: Final = 48

# The header, then sending site << 56 | priority << 48 | link sequence, and the mask of destination sites.
PACKET_HEAD: Final = Struct("<BBBBIQQQQQ")
LINK: Final = Struct("<QQ")  # the latter part alone
LINK_BYTES: Final = LINK.size
PACKET_OVERHEAD: Final = PACKET_HEAD.size
STAMP: Final = Struct("<BBHIQQQ")  # site, rank, LTS of the roster (high, low), LTS, block number, destination sites
STAMP_BYTES: Final = STAMP.size
SKIP_HEAD: Final = Struct("<BBH4xQ")  # source, unused, blocks, first site sequence
SKIPPED: Final = Struct("<QQ")  # LTS << 3 | rank, destination sites
UPDATE: Final = Struct("<B7xQQQ")  # source, site sequence, clock, ARU
HOP_ACK: Final = Struct("<QQQQQ")  # received up to, sent up to, freed up to, clock of the sender, echo of the other's
RANGE: Final = Struct("<QI")  # first, count
# number, link_seq, link_aru and its modifier, site_seq, site_lts, site_aru and its modifier; flow control, quiet
# visits, flags, ranges that follow; what may still be stamped (usual, urgent), owed, visits for which blocks wait, and
# whose turn it is
SITE_TOKEN: Final = Struct("<QQQQQQQQIHBBiiiHH")
WAKE: Final = Struct("<Q")
HELLO: Final = Struct("<BBHIQQQ")  # site, flags, index of the daemon, daemons, configuration, view counter, coordinator
if (PACKET_OVERHEAD, LINK_BYTES, STAMP_BYTES, SKIP_HEAD.size, SKIPPED.size, UPDATE.size) != (48, 16, 32, 16, 16, 32):
    raise AssertionError("packets of sites have fixed sizes on the wire")
if (HOP_ACK.size, RANGE.size, SITE_TOKEN.size, WAKE.size, HELLO.size) != (40, 12, 88, 8, 32):
    raise AssertionError("the control bodies of sites have fixed sizes on the wire")
if PACKET_OVERHEAD != HEADER_BYTES + LINK_BYTES:
    raise AssertionError("the head of a packet is the header and what the link says")

RESTS: Final = 1  # of a token: it has not been passed but rests at the daemon that says so
SEEN: Final = 2  # it has not been passed to the reader: an answer to one that passes it again
ON_LINK: Final = 1  # of a HELLO: to the other end of a link, not to a daemon outside of the view


# Packets. ------------------------------------------------------------------------------------------------------------


class LinkPacket(NamedTuple):
    """What a link numbers; `body` is its own copy or a part of a block that is kept. `stamp` leaves before the body:
    stamp and block are never one piece of memory, as the block alone is handed on."""

    kind: int  # PACKET, SKIP or UPDATE
    origin: int
    number: int  # source site << 56 | site sequence
    mask: int  # destination sites; of SKIP and UPDATE all those that are to hear of it
    body: Buffer
    segment: int = 0
    last: int = 0
    priority: int = 0
    is_reliable: bool = True
    stamp: bytes = b""  # of the first segment of a block

    @property
    def source(self) -> int:
        """The site whose stream it is of."""
        return self.number >> SITE_SHIFT

    @property
    def size(self) -> int:
        """Bytes of its datagram."""
        return PACKET_OVERHEAD + len(self.stamp) + len(self.body)


Numbered = tuple[int, LinkPacket]  # link sequence (0: none) and packet


def packet_head(tag: int, ring: int, via: int, seq: int, packet: LinkPacket) -> bytes:
    """What leaves before the body of a packet that site `via` sends over a link: 48 bytes, and the stamp."""
    kind, origin, number, mask, _, segment, last, priority, _, stamp = packet
    link = via << SITE_SHIFT | priority << PRIORITY_SHIFT | seq
    return PACKET_HEAD.pack(MAGIC, kind, segment, last, tag, ring, origin, number, link, mask) + stamp


def open_packet(datagram: Datagram) -> tuple[int, int, LinkPacket]:
    """The site that sent it over the link, its link sequence (0: none), and the packet with a copy of its body. Hot:
    the one copy of a block on its way from the socket to the application is made here."""
    kind, segment, last, _, origin, number, data = datagram
    if len(data) <= LINK_BYTES:
        raise WireError("packet shorter than its prefix")
    link, mask = LINK.unpack_from(data)
    via, priority, seq = link >> SITE_SHIFT, link >> PRIORITY_SHIFT & 0xFF, link & MAX_LINK_SEQ
    if via >= MAX_SITES or priority >= PRIORITIES or number >> SITE_SHIFT >= MAX_SITES:
        raise WireError("packet of no site, or without a priority")
    if kind != Kind.PACKET and (last or not seq):
        raise WireError("only blocks have segments, and only blocks may get lost")
    at, stamp = LINK_BYTES, b""
    if kind == Kind.PACKET and not segment:
        at += STAMP_BYTES
        stamp = bytes(data[LINK_BYTES:at])
        if len(data) <= at:
            raise WireError("stamp without a block")
    return via, seq, LinkPacket(kind, origin, number, mask, bytes(data[at:]), segment, last, priority, seq > 0, stamp)


def cut_block(
    origin: int,
    number: int,
    mask: int,
    stamp: bytes,
    block: bytes,
    datagram: int,
    priority: int = 0,
    is_reliable: bool = True,
) -> list[LinkPacket]:
    """The packets of one block behind its stamp: all but the last fill a datagram."""
    step = datagram - PACKET_OVERHEAD
    size = STAMP_BYTES + len(block)
    kind = int(Kind.PACKET)
    if size <= step:
        return [LinkPacket(kind, origin, number, mask, block, 0, 0, priority, is_reliable, stamp)]
    last = (size - 1) // step
    if last >= MAX_SEGMENTS:
        raise WireError(f"{size} bytes need more than {MAX_SEGMENTS} datagrams of {datagram}")
    view = memoryview(block)
    at = step - STAMP_BYTES
    packets = [LinkPacket(kind, origin, number, mask, view[:at], 0, last, priority, is_reliable, stamp)]
    for segment in range(1, last + 1):
        part = view[at : at + step]
        packets.append(LinkPacket(kind, origin, number, mask, part, segment, last, priority, is_reliable))
        at += step
    return packets


def packet_sends(to: Address, tag: int, ring: int, via: int, packets: Iterable[Numbered]) -> list[Send]:
    """Transmissions of packets, in order: those of one size in a row, with a shorter one after them, are a train, as
    far as one call takes it."""
    sends: list[Send] = []
    buffers: list[Buffer] = []
    stride = most = 0  # of the train that is being made; `most`: buffers that it may have
    for seq, packet in packets:
        size = packet.size
        if buffers and (size > stride or len(buffers) >= most):
            sends.append(Send(to, buffers, stride if len(buffers) > 2 else 0))
            buffers = []
        if not buffers:
            stride = size
            most = 2 * min(MAX_TRAIN, MAX_TRAIN_BYTES // size)
        buffers.append(packet_head(tag, ring, via, seq, packet))
        buffers.append(packet.body)
        if size < stride:
            sends.append(Send(to, buffers, stride))
            buffers = []
    if buffers:
        sends.append(Send(to, buffers, stride if len(buffers) > 2 else 0))
    return sends


# Stamps. -------------------------------------------------------------------------------------------------------------


class BlockStamp(NamedTuple):
    """What orders a block, before its bytes. `number`: the block number of the daemon that stamped it. `after`: the LTS
    of the last roster block which that daemon had delivered: the groups of the block have the numbers of then."""

    site: int
    rank: int
    lts: int
    number: int
    mask: int
    after: int = 0


def encode_stamp(stamp: BlockStamp) -> bytes:
    """The prefix of a block; its bytes follow."""
    site, rank, lts, number, mask, after = stamp
    return STAMP.pack(site, rank, after >> 32, after & 0xFFFFFFFF, lts, number, mask)


def decode_stamp(data: Buffer) -> BlockStamp:
    if len(data) != STAMP_BYTES:
        raise WireError("stamp of odd size")
    site, rank, high, low, lts, number, mask = STAMP.unpack_from(data)
    if site >= MAX_SITES or rank >= len(RANK_NAMES) or number > MAX_NUMBER:
        raise WireError("stamp out of range")
    if not 0 < lts <= MAX_LTS:
        raise WireError("time stamp out of range")
    return BlockStamp(site, rank, lts, number, mask, high << 32 | low)


def open_stamped(body: bytes) -> tuple[BlockStamp, bytes]:
    """The stamp, and the block behind it."""
    if len(body) <= STAMP_BYTES:
        raise WireError("stamp without a block")
    return decode_stamp(body[:STAMP_BYTES]), body[STAMP_BYTES:]


def position_of(lts: int, site: int, offset: int = 0) -> int:
    """The position of the message at `offset` of a block: the order of (LTS, site), as section 3.3 has it."""
    return lts << 24 | site << 16 | offset


# SKIP and UPDATE. ----------------------------------------------------------------------------------------------------


class SkippedBlock(NamedTuple):
    """A block that was pruned: what a recovery has to know of it, and whether it is SAFE."""

    lts: int
    rank: int
    mask: int


class PrunedBlocks(NamedTuple):
    """Consecutive blocks of a source, the first of which has the site sequence `first`."""

    site: int
    first: int
    blocks: tuple[SkippedBlock, ...]

    @property
    def stop(self) -> int:
        return self.first + len(self.blocks)


def encode_skip(skip: PrunedBlocks) -> bytes:
    parts = [SKIP_HEAD.pack(skip.site, 0, len(skip.blocks), skip.first)]
    parts.extend([SKIPPED.pack(lts << 3 | rank, mask) for lts, rank, mask in skip.blocks])
    return b"".join(parts)


def decode_skip(body: Buffer) -> PrunedBlocks:
    if len(body) < SKIP_HEAD.size:
        raise WireError("skip too short")
    site, _, count, first = SKIP_HEAD.unpack_from(body)
    if not 0 < count <= MAX_SKIPPED or len(body) != SKIP_HEAD.size + count * SKIPPED.size:
        raise WireError("skip of odd size")
    if site >= MAX_SITES or not 0 < first <= MAX_SITE_SEQ - count:
        raise WireError("skip out of range")
    blocks = []
    before = 0
    for stamped, mask in SKIPPED.iter_unpack(memoryview(body)[SKIP_HEAD.size :]):
        lts = stamped >> 3
        if not before < lts <= MAX_LTS:
            raise WireError("time stamps of a site that do not rise")
        before = lts
        blocks.append(SkippedBlock(lts, stamped & 7, mask))
    return PrunedBlocks(site, first, tuple(blocks))


class SiteUpdate(NamedTuple):
    """One visit of the token: up to `seq` the site has stamped, later stamps are above `clock`; its daemons have
    everything up to `aru`."""

    site: int
    seq: int
    clock: int
    aru: int


def encode_update(update: SiteUpdate) -> bytes:
    return UPDATE.pack(*update)


def decode_update(body: Buffer) -> SiteUpdate:
    if len(body) != UPDATE.size:
        raise WireError("update of odd size")
    update = SiteUpdate(*UPDATE.unpack_from(body))
    if update.site >= MAX_SITES or update.seq > MAX_SITE_SEQ or max(update.clock, update.aru) > MAX_LTS:
        raise WireError("update out of range")
    return update


# Links. --------------------------------------------------------------------------------------------------------------


class HopAck(NamedTuple):
    """Figure 3.2: the receiver's aru and the sender's highest sequence number, of one end of a link.

    `freed`: the aru of the other end, as this one knows it: where it is behind, an acknowledgement was lost.
    `clock_ns`: when it leaves, by the clock of its sender; `echo_ns`: the other end's clock, as of the last
    acknowledgement from there, and the time since (0: none has come since the last echo). Both ends measure their round
    trip by these.
    """

    aru: int
    max_sent: int
    freed: int
    clock_ns: int
    echo_ns: int


def encode_hop_ack(ack: HopAck) -> bytes:
    return HOP_ACK.pack(*ack)


def decode_hop_ack(body: Buffer) -> HopAck:
    if len(body) != HOP_ACK.size:
        raise WireError("acknowledgement of odd size")
    ack = HopAck(*HOP_ACK.unpack_from(body))
    if max(ack.aru, ack.max_sent) > MAX_LINK_SEQ or ack.freed > ack.max_sent:
        raise WireError("acknowledgement out of range")
    return ack


Range = tuple[int, int]  # first, stop


def ranges_of(numbers: Iterable[int], most: int = MAX_RANGES) -> list[Range]:
    """Rising numbers as half-open ranges, the first `most` of them."""
    ranges: list[Range] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number and number - ranges[-1][0] < MAX_RANGE:
            ranges[-1] = (ranges[-1][0], number + 1)
        elif len(ranges) >= most:
            break
        else:
            ranges.append((number, number + 1))
    return ranges


def encode_ranges(ranges: Iterable[Range]) -> bytes:
    return b"".join([RANGE.pack(first, stop - first) for first, stop in ranges])


def decode_ranges(body: Buffer) -> tuple[Range, ...]:
    """Ranges that rise and do not touch what is before them."""
    if len(body) % RANGE.size or len(body) > MAX_RANGES * RANGE.size:
        raise WireError("ranges of odd size")
    ranges = []
    least = 1
    for first, count in RANGE.iter_unpack(body):
        if first < least or not 0 < count <= MAX_RANGE or first + count > MAX_LINK_SEQ:
            raise WireError("range of sequence numbers out of range")
        least = first + count
        ranges.append((first, least))
    return tuple(ranges)


def decode_hop_nak(body: Buffer) -> tuple[Range, ...]:
    """What is missing at the other end; `encode_ranges` makes it."""
    if not len(body):
        raise WireError("a request for nothing")
    return decode_ranges(body)


# The token of a site. ------------------------------------------------------------------------------------------------


class SiteToken(NamedTuple):
    """The fields of section 3.2, with two ARU modifiers (0: nobody has lowered it), and what makes it rest.

    `number` counts passes; the daemon at `number % members` of the ring has it. `quiet`: how many daemons in a row had
    nothing to do with it. `wanted`: half-open ranges of link sequences that are asked for again (the rtr list). The
    last five: who may stamp while the links are behind (`orderers/sites/urgency.py`).
    """

    number: int
    link_seq: int = 0
    link_aru: int = 0
    link_modifier: int = 0
    site_seq: int = 0
    site_lts: int = 0
    site_aru: int = 0
    site_modifier: int = 0
    flow_control: int = 0
    quiet: int = 0
    flags: int = 0
    wanted: tuple[Range, ...] = ()
    usual: int = MAX_CREDIT
    urgent: int = MAX_CREDIT
    owed: int = 0
    rest: int = 0
    turn: int = 0


def encode_site_token(token: SiteToken) -> bytes:
    return SITE_TOKEN.pack(*token[:11], len(token.wanted), *token[12:]) + encode_ranges(token.wanted)


def decode_site_token(body: Buffer) -> SiteToken:
    if len(body) < SITE_TOKEN.size:
        raise WireError("token of a site too short")
    fields = SITE_TOKEN.unpack_from(body)
    wanted, count = decode_ranges(memoryview(body)[SITE_TOKEN.size :]), fields[11]
    usual, urgent, owed, rest, turn = fields[12:]
    token = SiteToken(*fields[:11])._replace(wanted=wanted, usual=usual, urgent=urgent, owed=owed, rest=rest, turn=turn)
    if len(wanted) != count or token.flags > SEEN or token.number > MAX_NUMBER:
        raise WireError("token of a site of odd size, or with unknown flags")
    if not token.link_aru <= token.link_seq <= MAX_LINK_SEQ or (wanted and wanted[-1][1] > token.link_seq + 1):
        raise WireError("link sequence of a token out of range")
    if token.site_seq > MAX_SITE_SEQ or not token.site_aru <= token.site_lts <= MAX_LTS:
        raise WireError("site sequence of a token out of range")
    if max(map(abs, token[12:15])) > MAX_CREDIT:
        raise WireError("credit of a token out of range")
    return token


def encode_wake(number: int) -> bytes:
    """The last number of the token that a daemon knows, which wants it."""
    return WAKE.pack(number)


def decode_wake(body: Buffer) -> int:
    if len(body) != WAKE.size:
        raise WireError("wake of odd size")
    number: int = WAKE.unpack_from(body)[0]
    if number > MAX_NUMBER:
        raise WireError("number of a token out of range")
    return number


# Components. ---------------------------------------------------------------------------------------------------------


class Hello(NamedTuple):
    """A component shows itself: a daemon of it, how many daemons it has, its view's counter, and its coordinator.

    `configuration` is the fingerprint of the sites' configuration: daemons whose fingerprints differ do not merge.
    """

    site: int
    flags: int
    daemon: int  # its index in the configuration
    daemons: int
    configuration: int
    counter: int
    coordinator: int


def encode_hello(hello: Hello) -> bytes:
    return HELLO.pack(*hello)


def decode_hello(body: Buffer) -> Hello:
    if len(body) != HELLO.size:
        raise WireError("hello of odd size")
    hello = Hello(*HELLO.unpack_from(body))
    if hello.site >= MAX_SITES or hello.flags > ON_LINK or not 0 < hello.daemons <= MAX_MEMBERS:
        raise WireError("hello out of range")
    if hello.counter > MAX_NUMBER:
        raise WireError("view counter out of range")
    return hello


def sites_of(mask: int) -> Sequence[int]:
    """The sites of a mask, in rising order."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
