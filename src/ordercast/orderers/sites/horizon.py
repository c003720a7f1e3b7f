"""What one daemon may deliver: the streams of all sites of a view, its horizon, and the stable line.

Spread section 3.3 with the corrections that the model needed (tests/model/evs):

- The *horizon* is the smallest justified clock over all sources. Up to there every block that this site gets is here,
  so AGREED blocks are delivered up to it, in the order of positions.
- The ARU of a site is the smallest horizon of its daemons (not one ARU for each stream). The *stable line* is the
  smallest ARU of all sites. SAFE blocks are delivered up to it.
- Nobody delivers past a SAFE block above the stable line, not even a daemon that only has its SKIP: otherwise those
  that wait for it would find others of their class on the far side of the signal.
- The clock of everything that comes raises the Lamport clock, also of an UPDATE beyond the prefix.

**Window.** Two things bound memory and cuts. A site stamps only while fewer than `window` of its blocks are above the
stable line (`room`). A daemon that keeps more than `window` entries of a stream, because it has not heard of their
stability, does not report more of it (`report`). So a stream has at most `window` entries beyond the prefix and twice
as many below, and a cut is told whole. Rejected: cutting a long list short; a daemon that tells less than it has
delivered breaks its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from ordercast.errors import InvariantViolation
from ordercast.orderers.sites.stream import Held, SourceStream
from ordercast.service import FIFO_RANK, SAFE_RANK
from ordercast.wire.cuts import CUT_ENTRIES, Due, Skip, SourceCut

MIN_WINDOW: Final = 64


def window_of(sites: int) -> int:
    """How many entries a stream may have above the stable line where there are so many sites."""
    return max(CUT_ENTRIES // sites, MIN_WINDOW)


class Horizon:
    """One daemon's streams in one view. Inputs return whether they said anything new."""

    __slots__ = ("_arus", "_last", "_stable", "clock", "site", "sites", "streams", "window")

    def __init__(self, site: int, sites: Sequence[int], first_lts: int, window: int = 0) -> None:
        """`site`: of this daemon. `window`: only tests give one."""
        if site not in sites:
            raise InvariantViolation(f"a daemon of site {site} is in a view of sites {tuple(sites)}")
        self.site = site
        self.sites = tuple(sorted(sites))
        self.window = window or window_of(len(sites))
        self.streams = {each: SourceStream(each, first_lts, self.window) for each in self.sites}
        self.clock = first_lts  # Lamport's
        self._arus = dict.fromkeys(self.sites, first_lts)
        self._stable = first_lts
        self._last = (0, 0)  # LTS and site of the last ordered block that was delivered

    # ---- what comes

    def add(self, block: Held) -> bool:
        stream = self.streams.get(block.site)
        if stream is None or not block.mask >> self.site & 1:
            return False
        if block.lts > self.clock:
            self.clock = block.lts
        return stream.add(block)

    def skip(self, site: int, skip: Skip) -> bool:
        stream = self.streams.get(site)
        if stream is None or skip.mask >> self.site & 1:
            return False  # what is destined to us cannot be skipped
        if skip.lts > self.clock:
            self.clock = skip.lts
        return stream.skip(skip)

    def update(self, site: int, seq: int, clock: int, aru: int) -> bool:
        stream = self.streams.get(site)
        if stream is None:
            return False
        if clock > self.clock:
            self.clock = clock
        is_justified = stream.promise(seq, clock)
        return self.raise_aru(site, aru) or is_justified

    def raise_aru(self, site: int, aru: int) -> bool:
        """A site's ARU. That of our own comes with the token."""
        if aru <= self._arus[site]:
            return False
        self._arus[site] = aru
        self._stable = min(self._arus.values())
        return True

    def raise_stable(self, stable: int) -> bool:
        """Somebody knows that everything up to here is stable: so all ARUs are at least that."""
        if stable <= self._stable:
            return False
        self._arus = {site: max(aru, stable) for site, aru in self._arus.items()}
        self._stable = min(self._arus.values())
        return True

    def raise_clock(self, clock: int) -> None:
        """The clock of a token, or of a view that was accepted."""
        self.clock = max(self.clock, clock)

    # ---- what can be said

    @property
    def horizon(self) -> int:
        """The smallest justified clock; O(sites), so ask once in a pass."""
        return min([stream.clock for stream in self.streams.values()])

    @property
    def stable(self) -> int:
        return self._stable

    @property
    def report(self) -> int:
        """What this daemon puts into the ARU of its site: its horizon, or less while it keeps too much."""
        return min([stream.report() for stream in self.streams.values()])

    @property
    def delivered(self) -> int:
        """The LTS of the last ordered block that was delivered; 0: none was."""
        return self._last[0]

    def aru(self, site: int) -> int:
        return self._arus[site]

    def arus(self) -> tuple[int, ...]:
        return tuple([self._arus[site] for site in self.sites])

    def room(self, seq: int) -> int:
        """How many blocks our site may stamp after `seq`, the last one that its token knows of."""
        return max(self.window - (seq - self.streams[self.site].released), 0)

    def cuts(self) -> tuple[SourceCut, ...]:
        return tuple([self.streams[site].cut() for site in self.sites])

    # ---- delivery

    def take(self, limit: int) -> list[Held]:
        """What is delivered next, in order; about `limit` blocks at most. The caller delivers all of them.

        Hot: once for each block (benches/sites_order.py).
        """
        streams, stable, horizon = self.streams, self._stable, self.horizon
        taken: list[Held] = []
        heads: list[tuple[int, int]] = []
        for site, stream in streams.items():
            if stream.early:
                taken += stream.early
                stream.early = []
            if stream.queue:
                heads.append((_lts(stream.queue[0]), site))
        heapify(heads)
        while heads and len(taken) < limit:
            lts, site = heads[0]
            if lts > horizon:
                break
            stream = streams[site]
            queue = stream.queue
            head = queue[0]
            if isinstance(head, Held):
                if head.rank == SAFE_RANK and lts > stable:
                    break
                self._rise(head)
                taken.append(head)
                taken += stream.delivered(head)
            elif head.lts > stable:
                break
            queue.popleft()
            if queue:
                heapreplace(heads, (_lts(queue[0]), site))
            else:
                heappop(heads)
        for block in taken:
            block.is_delivered = True
        return taken

    def release(self) -> int:
        """Forget what is stable and delivered; returns how many blocks. Once in a pass is enough."""
        stable = self._stable
        return sum([stream.release(stable) for stream in self.streams.values()])

    # ---- recovery

    def lacking(self, dues: Iterable[Due]) -> list[Due]:
        """Which blocks of a remainder this daemon needs and does not have."""
        return [due for due in dues if due.mask >> self.site & 1 and not self.streams[due.site].has(due.seq)]

    def settle(self, dues: Iterable[Due]) -> list[Held]:
        """The blocks of a remainder, or of a part of it, that are still to be delivered here, in its order."""
        found: list[Held] = []
        for due in dues:
            if not due.mask >> self.site & 1:
                continue
            stream = self.streams[due.site]
            block = stream.held.get(due.seq)
            if block is None:
                if due.seq > stream.prefix:
                    raise InvariantViolation(f"block {due.seq} of site {due.site} was promised and is not held")
            elif not block.is_delivered:
                if block.rank > FIFO_RANK:
                    self._rise(block)
                block.is_delivered = True
                found.append(block)
        return found

    def _rise(self, block: Held) -> None:
        position = (block.lts, block.site)
        if position <= self._last:
            raise InvariantViolation(f"block {block.seq} of site {block.site} at LTS {block.lts} comes too late")
        self._last = position


def _lts(entry: Held | Skip) -> int:
    """Where an entry of a queue stands: a block at its LTS, a SKIP at its first SAFE block."""
    return entry.lts if isinstance(entry, Held) else entry.safe
