"""What stands in the place of the engine: streams of one view with blocks of a few bytes, and what was delivered."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ordercast.errors import WireError
from ordercast.membership.components.daemons import Frozen
from ordercast.orderers.sites.horizon import Horizon
from ordercast.orderers.sites.stream import Held
from ordercast.wire.cuts import Due

STAMP: Final = Struct("<BQQBQQ")


class StubStreams:
    """One daemon's streams in one view."""

    def __init__(self, site: int, sites: Sequence[int], first_lts: int, is_synced: bool) -> None:
        self.horizon = Horizon(site, sites, first_lts)
        self.is_synced = is_synced
        self.is_frozen = False
        self.before: list[tuple[int, int, int, int]] = []  # (site, seq, rank, mask) before the signal
        self.after: list[tuple[int, int, int, int]] = []
        self.stamped: list[tuple[int, int]] = []
        self.heard_ns: dict[int, int] = {}  # by id

    def deliver(self, blocks: Sequence[Held], is_after: bool = False) -> None:
        into = self.after if is_after else self.before
        into += [(block.site, block.seq, block.rank, block.mask) for block in blocks]

    # What the membership asks for

    def freeze(self) -> Frozen:
        self.is_frozen = True
        h = self.horizon
        return Frozen(h.sites, h.cuts(), h.arus(), h.delivered, h.clock, self.is_synced)

    def raise_clock(self, clock: int) -> None:
        self.horizon.raise_clock(clock)

    def lacking(self, dues: Sequence[Due]) -> list[Due]:
        return self.horizon.lacking(dues)

    def packet(self, site: int, seq: int) -> bytes | None:
        stream = self.horizon.streams.get(site)
        block = stream.held.get(seq) if stream is not None else None
        if block is None:
            return None
        head = STAMP.pack(site, seq, block.lts, block.rank, block.origin, block.mask)
        return head + block.data

    def take_packet(self, site: int, seq: int, packet: bytes) -> bool:
        if len(packet) < STAMP.size:
            raise WireError("a packet is too short")
        its_site, its_seq, lts, rank, origin, mask = STAMP.unpack_from(packet)
        if (its_site, its_seq) != (site, seq):
            raise WireError("another packet")
        return self.horizon.add(Held(site, seq, lts, rank, origin, mask, packet[STAMP.size :]))
