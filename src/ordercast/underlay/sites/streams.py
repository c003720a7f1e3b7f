"""The streams of one view at one daemon: from packets to blocks, from blocks to deliveries (Spread section 3.3).

A block is whole when all of its segments are there. It enters the stream of its source (`Horizon`), which says when it
is delivered. RELIABLE blocks are delivered as soon as they are whole, UNRELIABLE ones without entering a stream.

INTEREST travels as a block of the stream without a block number. It counts from its receipt on, and nothing is
delivered for it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Sequence
from sys import byteorder
from typing import Final

from ordercast.config import SECOND
from ordercast.engine import NEVER, Delivery, Note, Outbox
from ordercast.errors import WireError
from ordercast.membership.components.daemons import Frozen
from ordercast.orderers.sites.horizon import Horizon
from ordercast.orderers.sites.interests import Interests
from ordercast.orderers.sites.progress import ExchangeProgress
from ordercast.orderers.sites.stream import Held
from ordercast.parts.recent import Recent
from ordercast.service import FIFO_RANK, RELIABLE_RANK, UNRELIABLE_RANK
from ordercast.underlay.sites.network import skipped_ranges
from ordercast.wire.block import FRAGMENTED, ROSTER, Head, head_of, roster_body
from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.components import MAX_PACKET
from ordercast.wire.cuts import CUT_ENTRIES, Due
from ordercast.wire.header import Kind
from ordercast.wire.segments import MAX_PARTIAL, Reassembly
from ordercast.wire.sites import (
    SITE_SHIFT,
    STAMP_BYTES,
    BlockStamp,
    LinkPacket,
    PrunedBlocks,
    decode_skip,
    decode_stamp,
    decode_update,
    encode_stamp,
    open_stamped,
    position_of,
)

INTEREST_NUMBER: Final = MAX_NUMBER
"""In the place of a block number: the block has the keys of groups, 64 bits each."""
UNNUMBERED: Final = -1  # block number of what is UNRELIABLE
INTEREST_KEYS: Final = 7_000  # in one of them
TAKE_BLOCKS: Final = 512  # delivered in one round of a pass
MAX_PARTS: Final = CUT_ENTRIES  # blocks of streams of which segments have come: the windows of all sources are no more
MAX_PARTS_BYTES: Final = MAX_PARTS * MAX_PACKET
LOOSE_NS: Final = 1 * SECOND  # after its first segment an UNRELIABLE block that is not whole is dropped
_SEQ_MASK: Final = (1 << SITE_SHIFT) - 1


def encode_interest(keys: Sequence[int]) -> bytes:
    column = array("Q", keys)
    if byteorder == "big":
        column.byteswap()
    return column.tobytes()


def decode_interest(body: bytes | memoryview) -> list[int]:
    if not body or len(body) % 8 or len(body) > 8 * INTEREST_KEYS:
        raise WireError("interest of odd size")
    column = array("Q")
    column.frombytes(bytes(body))
    if byteorder == "big":
        column.byteswap()
    return column.tolist()


class LooseBlocks:
    """UNRELIABLE blocks of which segments have come. What is lost of them never comes: after a while the rest goes
    (Spread section 3.3). They are kept apart from the others, none of which may be put out."""

    __slots__ = ("_parts", "_since_ns")

    def __init__(self) -> None:
        self._parts = Reassembly(0)
        self._since_ns: dict[tuple[int, int, int], int] = {}  # the oldest first

    def add(self, now_ns: int, packet: LinkPacket) -> bytes | None:
        """The whole block with its stamp, once nothing is missing."""
        key = (packet.origin, packet.number, 0)
        part = packet.body if packet.segment else packet.stamp + packet.body
        self._since_ns.setdefault(key, now_ns)
        if len(self._since_ns) > MAX_PARTIAL:
            self._drop_oldest()
        whole = self._parts.add(key, packet.segment, packet.last, part)
        if whole is not None:
            self._since_ns.pop(key, None)
        return whole

    def expire(self, now_ns: int) -> None:
        while self.due_ns <= now_ns:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        key = next(iter(self._since_ns))
        del self._since_ns[key]
        self._parts.forget(key)

    @property
    def due_ns(self) -> int:
        return next(iter(self._since_ns.values())) + LOOSE_NS if self._since_ns else NEVER


class ViewStreams:
    """What `membership/components` asks for as `OldStreams`, and what the engine delivers from."""

    __slots__ = (
        "_daemons",
        "_interests",
        "_own",
        "_parts",
        "_recent",
        "_unordered",
        "dropped",
        "fetched",
        "horizon",
        "is_behind",
        "loose",
        "me",
        "own_bytes",
        "progress",
        "roster_lts",
    )

    def __init__(
        self,
        me: int,
        here: int,
        places: dict[int, int],
        first_lts: int,
        interests: Interests,
        rosters: Sequence[Sequence[int]],
    ) -> None:
        """`places`: the site of each daemon of the view."""
        self.me = me
        self._daemons = places
        self._interests = interests
        self.horizon = Horizon(here, sorted(set(places.values())), first_lts)
        # Sites may have datagrams of different sizes. Links and the ring have acknowledged these segments: they do not
        # come again, so none may be put out, and what no window lets out is not kept.
        self._parts = Reassembly(0, MAX_PARTS, MAX_PARTS_BYTES)
        self.loose = LooseBlocks()
        self._recent: dict[int, Recent] = {}  # UNRELIABLE blocks that came; by origin, bounded by the view
        self._unordered: list[Held] = []  # whole, and delivered with this pass
        self.is_behind = False  # the application has not taken what was delivered
        self.dropped = 0  # UNRELIABLE blocks, because of that
        self.fetched = Outbox()  # notes about blocks that came in a recovery
        self.roster_lts = first_lts  # of the last roster block that was delivered; those of the view are above
        self.progress = ExchangeProgress()
        self.progress.begin(rosters)
        # Own blocks above the stable line: LTS and bytes
        self._own: deque[tuple[int, int]] = deque()
        self.own_bytes = 0

    # What comes

    def take(self, now_ns: int, packet: LinkPacket, out: Outbox) -> None:
        """A packet that is new. Raises WireError on nonsense."""
        kind = packet.kind
        if kind == Kind.PACKET:
            self._on_segment(now_ns, packet, out)
        elif kind == Kind.SKIP:
            self.skip(decode_skip(packet.body))
        else:
            update = decode_update(packet.body)
            if update.site != packet.source:
                raise WireError("an update of another source")
            self.horizon.update(update.site, update.seq, update.clock, update.aru)

    def skip(self, skip: PrunedBlocks) -> None:
        for each in skipped_ranges(skip):
            self.horizon.skip(skip.site, each)

    def _on_segment(self, now_ns: int, packet: LinkPacket, out: Outbox) -> None:
        """Hot: once for each packet (`ordercast bench --orderer sites --size 1000`)."""
        if not packet.mask >> self.horizon.site & 1:
            return  # it only passes through this site
        origin, number = packet.origin, packet.number
        if packet.last:
            if packet.is_reliable:
                if not self._is_awaited(origin, number):
                    return
                part = packet.body if packet.segment else packet.stamp + packet.body
                whole = self._parts.add((origin, number, 1), packet.segment, packet.last, part)
            else:
                whole = self.loose.add(now_ns, packet)
            if whole is None:
                return
            stamp, block = open_stamped(whole)
        else:
            stamp, block = decode_stamp(packet.stamp), bytes(packet.body)  # no copy: it has its own
        site = stamp.site
        if self._daemons.get(origin) != site or number >> SITE_SHIFT != site or stamp.mask != packet.mask:
            raise WireError("a block of another daemon than the one that stamped it")
        seq = number & _SEQ_MASK
        if packet.is_reliable:
            self._enter(origin, seq, stamp, block, _head_of_stamped(stamp, block), out)
            return
        if stamp.rank != UNRELIABLE_RANK:
            raise WireError("a block that may get lost, and must not")
        recent = self._recent.setdefault(origin, Recent())
        if recent.is_new(seq) and not self._is_late(stamp):
            head = head_of(block)
            if self.is_behind:  # nothing holds up their sender
                self.dropped += head.count
            else:
                self._deliver_at_once(origin, stamp, block, head, out)

    def _is_awaited(self, origin: int, number: int) -> bool:
        """Whether segments of this block are kept: its origin may have stamped it by now, and it is not here."""
        site = number >> SITE_SHIFT
        stream = self.horizon.streams.get(site)
        return stream is not None and self._daemons.get(origin) == site and stream.awaits(number & _SEQ_MASK)

    def _enter(self, origin: int, seq: int, stamp: BlockStamp, block: bytes, head: Head | None, out: Outbox) -> bool:
        """`head`: of the block; None: it is an INTEREST."""
        site, rank, lts, number, mask, after = stamp
        if rank == UNRELIABLE_RANK:
            raise WireError("an UNRELIABLE block in a stream")
        held = Held(site, seq, lts, rank, origin, mask, block)
        held.number = number
        held.after = after
        if head is None:
            keys = decode_interest(block)
            if not self.horizon.add(held):
                return False
            for key in keys:
                self._interests.received(origin, key, lts)
            return True
        if rank > FIFO_RANK:
            held.is_roster = head.flags & ROSTER > 0
            if not self.horizon.add(held):
                return False
            out.notes.append(Note("hold", origin, block, head=head))
            out.notes.append(Note("placed", origin, block, position_of(lts, site), head=head))
            return True
        held.is_late = self._is_late(stamp)
        # The fragments of a large message are put together in their order. An application that is behind gets nothing
        # at once: what waits in a stream holds up its source in the end.
        may_be_early = not (self.is_behind or held.is_late or head.flags & FRAGMENTED)
        is_early = rank == RELIABLE_RANK and may_be_early
        held.is_delivered = is_early
        if not self.horizon.add(held):
            return False
        out.notes.append(Note("hold", origin, block, head=head))
        if is_early:
            self._unordered.append(held)
        return True

    def _is_late(self, stamp: BlockStamp) -> bool:
        """Whether a weak block cannot be delivered yet: its groups may have other numbers here, or this daemon is about
        to join one of them, and the places of both decide whether the message is for it. It waits for its place then;
        an UNRELIABLE one is dropped."""
        is_joining = self._interests.awaited(self.me) > 0
        return is_joining or not self.progress.is_complete or stamp.after > self.roster_lts

    def _deliver_at_once(self, origin: int, stamp: BlockStamp, block: bytes, head: Head, out: Outbox) -> None:
        held = Held(stamp.site, 0, 0, stamp.rank, origin, stamp.mask, block)
        held.number = UNNUMBERED
        out.notes.append(Note("hold", origin, block, head=head))
        self._unordered.append(held)

    # What this daemon sends

    def enter_own(
        self, origin: int, seq: int, stamp: BlockStamp, block: bytes, head: Head | None, out: Outbox
    ) -> bytes:
        """A block that this daemon has just stamped; its stamp, as it travels."""
        self._enter(origin, seq, stamp, block, head, out)
        size = STAMP_BYTES + len(block)
        self._own.append((stamp.lts, size))
        self.own_bytes += size
        return encode_stamp(stamp)

    def enter_unreliable(self, origin: int, stamp: BlockStamp, block: bytes, head: Head, out: Outbox) -> bytes:
        self._deliver_at_once(origin, stamp, block, head, out)
        return encode_stamp(stamp)

    # Deliveries

    def deliveries(self, ticket: int, may_order: bool) -> list[Delivery]:
        """What is delivered next; `ticket` is the sequence number of the first. Without `may_order` only what cannot
        wait: the application is behind."""
        blocks, self._unordered = self._unordered, []
        if may_order:
            blocks += self.horizon.take(TAKE_BLOCKS)
        return self._delivered(blocks, ticket)

    def settle(self, dues: Sequence[Due], ticket: int) -> list[Delivery]:
        """A part of the remainder of the view, at its end."""
        blocks, self._unordered = self._unordered, []
        blocks += self.horizon.settle(dues)
        return self._delivered(blocks, ticket)

    def _delivered(self, blocks: Sequence[Held], ticket: int) -> list[Delivery]:
        """Hot: once for each block."""
        found: list[Delivery] = []
        for held in blocks:
            number, block = held.number, held.data
            if number == INTEREST_NUMBER:
                continue
            if held.is_roster:
                self.progress.on_body(held.origin, roster_body(block, head_of(block)))
                self.roster_lts = held.lts
            position = position_of(held.lts, held.site) if held.rank > FIFO_RANK else -1
            found.append(Delivery(ticket, position, held.origin, number, block))
            ticket += 1
        return found

    def release(self) -> None:
        """Forget what is stable; once in a pass."""
        self.horizon.release()
        stable, own = self.horizon.stable, self._own
        while own and own[0][0] <= stable:
            self.own_bytes -= own.popleft()[1]

    # What holds up the view

    @property
    def oldest_own(self) -> int:
        """The LTS of the oldest own block that is not stable; 0: all are."""
        return self._own[0][0] if self._own else 0

    def daemons_of(self, sites: Collection[int]) -> list[int]:
        return [daemon for daemon, site in self._daemons.items() if site in sites]

    # What the membership asks

    def freeze(self) -> Frozen:
        horizon = self.horizon
        return Frozen(
            horizon.sites,
            horizon.cuts(),
            horizon.arus(),
            horizon.delivered,
            horizon.clock,
            self.progress.is_complete,
        )

    def raise_clock(self, clock: int) -> None:
        self.horizon.raise_clock(clock)

    def lacking(self, dues: Sequence[Due]) -> list[Due]:
        return self.horizon.lacking(dues)

    def packet(self, site: int, seq: int) -> bytes | None:
        stream = self.horizon.streams.get(site)
        held = stream.held.get(seq) if stream is not None else None
        if held is None:
            return None
        stamp = BlockStamp(held.site, held.rank, held.lts, held.number, held.mask, held.after)
        # A block knows who stamped it, and its stamp does not say so.
        return b"".join((held.origin.to_bytes(8, "little"), encode_stamp(stamp), held.data))

    def take_packet(self, site: int, seq: int, packet: bytes) -> bool:
        if len(packet) <= 8:
            raise WireError("a fetched block without a stamp")
        origin = int.from_bytes(packet[:8], "little")
        stamp, block = open_stamped(packet[8:])
        if self._daemons.get(origin) != stamp.site or stamp.site != site:
            raise WireError("a fetched block of another source")
        return self._enter(origin, seq, stamp, block, _head_of_stamped(stamp, block), self.fetched)

    def take_notes(self) -> list[Note]:
        """Of blocks that were fetched: they are written before the pass says that they are here."""
        notes, self.fetched.notes = self.fetched.notes, []
        return notes

    @property
    def is_at_rest(self) -> bool:
        horizon = self.horizon
        is_complete = all(stream.prefix == stream.highest for stream in horizon.streams.values())
        return not self._unordered and not len(self._parts) and is_complete and not self._own


def _head_of_stamped(stamp: BlockStamp, block: bytes) -> Head | None:
    """The head of a block of a stream; None: it is an INTEREST, which has none."""
    return head_of(block) if stamp.number != INTEREST_NUMBER else None
