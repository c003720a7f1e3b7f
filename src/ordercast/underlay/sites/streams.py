"""The streams of one view at one daemon: from packets to blocks, from blocks to deliveries (Spread section 3.3).

A block is whole when all of its segments are there. It enters the stream of its source (`Horizon`), which says when it
is delivered. RELIABLE blocks are delivered as soon as they are whole, UNRELIABLE ones without entering a stream.

INTEREST travels as a block of the stream without a block number. It counts from its receipt on, and nothing is
delivered for it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from sys import byteorder
from typing import Final

from ordercast.engine import Delivery, Note, Outbox
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
from ordercast.wire.cuts import Due
from ordercast.wire.header import Kind
from ordercast.wire.segments import Reassembly
from ordercast.wire.sites import (
    SITE_SHIFT,
    STAMP_BYTES,
    BlockStamp,
    LinkPacket,
    PrunedBlocks,
    decode_skip,
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


class ViewStreams:
    """What `membership/components` asks for as `OldStreams`, and what the engine delivers from."""

    __slots__ = (
        "_daemons",
        "_interests",
        "_own",
        "_parts",
        "_recent",
        "_unordered",
        "fetched",
        "horizon",
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
        self._parts = Reassembly(0)  # sites may have datagrams of different sizes
        self._recent: dict[int, Recent] = {}  # UNRELIABLE blocks that came; by origin, bounded by the view
        self._unordered: list[tuple[int, Held]] = []  # whole, and delivered with this pass; with the block's number
        self.fetched = Outbox()  # notes about blocks that came in a recovery
        self.roster_lts = first_lts  # of the last roster block that was delivered; those of the view are above
        self.progress = ExchangeProgress()
        self.progress.begin(rosters)
        # Own blocks above the stable line: LTS and bytes
        self._own: deque[tuple[int, int]] = deque()
        self.own_bytes = 0

    # What comes

    def take(self, packet: LinkPacket, out: Outbox) -> None:
        """A packet that is new. Raises WireError on nonsense."""
        kind = packet.kind
        if kind == Kind.PACKET:
            self._on_segment(packet, out)
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

    def _on_segment(self, packet: LinkPacket, out: Outbox) -> None:
        if not packet.mask >> self.horizon.site & 1:
            return  # it only passes through this site
        body: bytes | None
        if packet.last:
            key = (packet.origin, packet.number, int(packet.is_reliable))
            body = self._parts.add(key, packet.segment, packet.last, packet.body)
        else:
            body = bytes(packet.body)
        if body is None:
            return
        stamp = self._check(packet.origin, packet.number, packet.mask, body)
        if packet.is_reliable:
            self._enter(packet.origin, packet.number & _SEQ_MASK, stamp, body, out)
            return
        if stamp.rank != UNRELIABLE_RANK:
            raise WireError("a block that may get lost, and must not")
        recent = self._recent.setdefault(packet.origin, Recent())
        if recent.is_new(packet.number & _SEQ_MASK) and not self._is_late(stamp):
            self._deliver_at_once(Held(stamp.site, 0, 0, stamp.rank, packet.origin, stamp.mask, body), out)

    def _check(self, origin: int, number: int, mask: int, body: bytes) -> BlockStamp:
        """What every block of the view has in common."""
        stamp, _ = open_stamped(body)
        if self._daemons.get(origin) != stamp.site or number >> SITE_SHIFT != stamp.site or stamp.mask != mask:
            raise WireError("a block of another daemon than the one that stamped it")
        return stamp

    def _enter(self, origin: int, seq: int, stamp: BlockStamp, body: bytes, out: Outbox) -> bool:
        held = Held(stamp.site, seq, stamp.lts, stamp.rank, origin, stamp.mask, body)
        if stamp.rank == UNRELIABLE_RANK:
            raise WireError("an UNRELIABLE block in a stream")
        if stamp.number == INTEREST_NUMBER:
            keys = decode_interest(body[STAMP_BYTES:])
            if not self.horizon.add(held):
                return False
            for key in keys:
                self._interests.received(origin, key, stamp.lts)
            return True
        held.is_late = stamp.rank <= FIFO_RANK and self._is_late(stamp)
        head = head_of(memoryview(body)[STAMP_BYTES:])
        # The fragments of a large message are put together in their order.
        is_early = stamp.rank == RELIABLE_RANK and not held.is_late and not head.flags & FRAGMENTED
        held.is_delivered = is_early
        if not self.horizon.add(held):
            return False
        self._note(held, head, out)
        if is_early:
            self._unordered.append((stamp.number, held))
        return True

    def _is_late(self, stamp: BlockStamp) -> bool:
        """Whether a weak block cannot be delivered yet: its groups may have other numbers here, or this daemon is about
        to join one of them, and the places of both decide whether the message is for it. It waits for its place then;
        an UNRELIABLE one is dropped."""
        is_joining = self._interests.awaited(self.me) > 0
        return is_joining or not self.progress.is_complete or stamp.after > self.roster_lts

    def _note(self, held: Held, head: Head, out: Outbox) -> None:
        block = memoryview(held.data)[STAMP_BYTES:]
        out.notes.append(Note("hold", held.origin, block, head=head))
        if held.rank > FIFO_RANK:
            out.notes.append(Note("placed", held.origin, block, position_of(held.lts, held.site), head=head))

    def _deliver_at_once(self, held: Held, out: Outbox) -> None:
        block = memoryview(held.data)[STAMP_BYTES:]
        out.notes.append(Note("hold", held.origin, block, head=head_of(block)))
        self._unordered.append((UNNUMBERED, held))

    # What this daemon sends

    def enter_own(self, origin: int, seq: int, stamp: BlockStamp, block: bytes, out: Outbox) -> bytes:
        """A block that this daemon has just stamped; with its stamp, as it travels. The bytes are one copy."""
        body = encode_stamp(stamp) + block
        self._enter(origin, seq, stamp, body, out)
        self._own.append((stamp.lts, len(body)))
        self.own_bytes += len(body)
        return body

    def enter_unreliable(self, origin: int, stamp: BlockStamp, block: bytes, out: Outbox) -> bytes:
        body = encode_stamp(stamp) + block
        self._deliver_at_once(Held(stamp.site, 0, 0, stamp.rank, origin, stamp.mask, body), out)
        return body

    # Deliveries

    def deliveries(self, ticket: int, may_order: bool) -> list[Delivery]:
        """What is delivered next; `ticket` is the sequence number of the first. Without `may_order` only what cannot
        wait: the application is behind."""
        found = [_delivery(0, number, held) for number, held in self._unordered]
        self._unordered = []
        if may_order:
            for held in self.horizon.take(TAKE_BLOCKS):
                self._add(found, held)
        return [each._replace(seq=ticket + at) for at, each in enumerate(found)]

    def settle(self, dues: Sequence[Due], ticket: int) -> list[Delivery]:
        """A part of the remainder of the view, at its end."""
        found = [_delivery(0, number, held) for number, held in self._unordered]
        self._unordered = []
        for held in self.horizon.settle(dues):
            self._add(found, held)
        return [each._replace(seq=ticket + at) for at, each in enumerate(found)]

    def _add(self, found: list[Delivery], held: Held) -> None:
        stamp, block = open_stamped(held.data)
        if stamp.number == INTEREST_NUMBER:
            return
        head = head_of(block)
        if head.flags & ROSTER and held.rank > FIFO_RANK:
            self.progress.on_body(held.origin, roster_body(bytes(block), head))
            self.roster_lts = held.lts
        found.append(_delivery(0, stamp.number, held))

    def release(self) -> None:
        """Forget what is stable; once in a pass."""
        self.horizon.release()
        stable, own = self.horizon.stable, self._own
        while own and own[0][0] <= stable:
            self.own_bytes -= own.popleft()[1]

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
        # A block knows who stamped it, and its stamp does not say so.
        return held.origin.to_bytes(8, "little") + held.data if held is not None else None

    def take_packet(self, site: int, seq: int, packet: bytes) -> bool:
        if len(packet) <= 8:
            raise WireError("a fetched block without a stamp")
        origin, body = int.from_bytes(packet[:8], "little"), packet[8:]
        stamp, _ = open_stamped(body)
        if self._daemons.get(origin) != stamp.site or stamp.site != site:
            raise WireError("a fetched block of another source")
        return self._enter(origin, seq, stamp, body, self.fetched)

    def take_notes(self) -> list[Note]:
        """Of blocks that were fetched: they are written before the pass says that they are here."""
        notes, self.fetched.notes = self.fetched.notes, []
        return notes

    @property
    def is_at_rest(self) -> bool:
        horizon = self.horizon
        is_complete = all(stream.prefix == stream.highest for stream in horizon.streams.values())
        return not self._unordered and not len(self._parts) and is_complete and not self._own


def _delivery(seq: int, number: int, held: Held) -> Delivery:
    position = position_of(held.lts, held.site) if held.rank > FIFO_RANK else -1
    return Delivery(seq, position, held.origin, number, held.data[STAMP_BYTES:])
