"""The stream of one source site as one daemon has it (Spread section 3.3): blocks and SKIPs, gapless up to a prefix.

Blocks are born ordered: the token of their site gives each a sequence number and an LTS, and both rise together. The
network loses and overtakes. Three things are kept of each stream:

- the *prefix*: up to which sequence number each block is held, or known as a SKIP that is not destined to this site;
- the *justified clock*: the largest clock of a block, SKIP or UPDATE with a sequence number inside the prefix. An
  UPDATE beyond it does not count yet: a block below its clock may still be missing. Everything that comes later has a
  larger LTS than the justified clock, so that the stream is complete up to there;
- what is *kept*: entries of the prefix, until they are delivered and stable. Others may need them in a recovery.

A block costs O(1) amortised, messages nothing (benches/sites_order.py). Memory: at most `window` entries beyond the
prefix. What is kept below it is bounded by what this daemon reports (`report`), see `horizon.py`.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final

from ordercast.service import FIFO_RANK, SAFE_RANK
from ordercast.wire.cuts import MAX_PROMISES, Listed, Skip, SourceCut, joined

MAX_GAPS: Final = 64  # that one call lists; the others are listed when these are closed


class Held:
    """A block that this daemon has. `data` is the block's bytes; nothing here looks into them, nor at what the owner
    notes of them."""

    __slots__ = (
        "after",
        "data",
        "followers",
        "is_delivered",
        "is_late",
        "is_roster",
        "lts",
        "mask",
        "number",
        "origin",
        "rank",
        "seq",
        "site",
    )

    def __init__(self, site: int, seq: int, lts: int, rank: int, origin: int, mask: int, data: bytes = b"") -> None:
        self.site = site
        self.seq = seq
        self.lts = lts
        self.rank = rank
        self.origin = origin
        self.mask = mask
        self.data = data
        self.is_delivered = False
        self.is_late = False  # a weak one that has to wait for its place all the same
        self.followers: list[Held] = []  # FIFO ones of the same origin that wait for this one only
        # The owner's
        self.number = 0  # block number of the origin
        self.after = 0  # the LTS of the last roster block before it, as its stamp says
        self.is_roster = False

    def listed(self) -> Listed:
        return Listed(self.seq, self.lts, self.rank, self.origin, self.mask)

    def as_skip(self) -> Skip:
        """What those get that it does not go to, a forwarder on its way included."""
        return Skip(self.seq, self.seq, self.lts, self.mask, self.lts if self.rank >= SAFE_RANK else 0)


class SourceStream:
    __slots__ = (
        "_ahead",
        "_kept",
        "_promises",
        "_tails",
        "clock",
        "early",
        "held",
        "highest",
        "prefix",
        "queue",
        "released",
        "site",
        "window",
    )

    def __init__(self, site: int, first_lts: int, window: int) -> None:
        self.site = site
        self.window = window
        self.prefix = 0  # inclusive
        self.clock = first_lts  # the justified one
        self.highest = 0  # the highest sequence number that anybody spoke of
        self.released = 0  # inclusive
        self.held: dict[int, Held] = {}  # by sequence number, also beyond the prefix
        # Inside the prefix
        self.queue: deque[Held | Skip] = deque()  # ordered blocks that wait, and SKIPs with SAFE blocks
        self.early: list[Held] = []  # FIFO blocks that wait for nothing
        self._kept: deque[Held | Skip] = deque()  # everything above `released`, by sequence number
        self._tails: dict[int, Held] = {}  # the last ordered block of each origin in the queue
        # Beyond it
        self._ahead: list[tuple[int, Skip]] = []  # a heap
        self._promises: dict[int, int] = {}

    def add(self, block: Held) -> bool:
        """Take a block. False: it was here before, or is beyond the window, which no sender of ours exceeds."""
        seq = block.seq
        if seq <= self.prefix or seq in self.held or seq > self.prefix + self.window:
            return False
        self.held[seq] = block
        if seq > self.highest:
            self.highest = seq
        if seq == self.prefix + 1:
            self._append(block)
            if self.highest > seq or self._promises:
                self._advance()
        return True

    def skip(self, skip: Skip) -> bool:
        """Take a SKIP. False: it says nothing new, or is beyond the window."""
        if skip.upto <= self.prefix or skip.upto < skip.first or skip.first > self.prefix + self.window:
            return False
        heappush(self._ahead, (skip.first, skip))
        if len(self._ahead) > 2 * self.window:  # more than there are sequence numbers: the same ones again and again
            self._ahead = sorted(set(self._ahead))[: self.window]
        self.highest = max(self.highest, skip.upto)
        if skip.first <= self.prefix + 1:
            self._advance()
        return True

    def promise(self, seq: int, clock: int) -> bool:
        """Take an UPDATE: everything after block `seq` has an LTS above `clock`. False: it justifies nothing yet."""
        self.highest = max(self.highest, seq)
        if seq <= self.prefix:
            if clock <= self.clock:
                return False
            self.clock = clock
            return True
        promises = self._promises
        if clock > promises.get(seq, 0):
            promises[seq] = clock
        if len(promises) > MAX_PROMISES:  # the blocks justify nearly as much, and the newest says the most in the end
            del promises[min(promises)]
        return False

    def report(self) -> int:
        """Up to which LTS this daemon owns up to being complete: its clock, as long as it keeps less than a window.
        Otherwise the site's ARU would let senders go on, and nothing would bound what is kept."""
        if len(self._kept) <= self.window:
            return self.clock
        return min(self.clock, self._kept[self.window - 1].lts)

    def delivered(self, block: Held) -> list[Held]:
        """An ordered block was delivered: FIFO blocks that have waited for it, to be delivered right behind it."""
        if self._tails.get(block.origin) is block:
            del self._tails[block.origin]
        followers, block.followers = block.followers, []
        return followers

    def release(self, stable: int) -> int:
        """Forget what is stable and delivered; returns how many blocks."""
        kept, held = self._kept, self.held
        count = 0
        while kept and kept[0].lts <= stable:
            entry = kept[0]
            if isinstance(entry, Held):
                if not entry.is_delivered:
                    break
                del held[entry.seq]
                self.released = entry.seq
                count += 1
            else:
                self.released = entry.upto
            kept.popleft()
        return count

    def has(self, seq: int) -> bool:
        """Whether nothing of this block is missing here: it is held, skipped, or was released."""
        return seq <= self.prefix or seq in self.held

    def awaits(self, seq: int) -> bool:
        """Whether `add` would take this block."""
        return self.prefix < seq <= self.prefix + self.window and seq not in self.held

    def missing(self) -> list[tuple[int, int]]:
        """What is missing between the prefix and the highest known sequence number, as half-open ranges."""
        found: list[tuple[int, int]] = []
        spans = [(first, skip.upto + 1) for first, skip in self._ahead]
        spans += [(seq, seq + 1) for seq in self.held if seq > self.prefix]
        spans.append((self.highest + 1, self.highest + 1))
        first = self.prefix + 1
        for start, stop in sorted(spans):
            if start > first:
                found.append((first, start))
                if len(found) == MAX_GAPS:
                    break
            first = max(first, stop)
        return found

    def cut(self) -> SourceCut:
        skips = [entry for entry in self._kept if not isinstance(entry, Held)]
        skips += [skip for _, skip in sorted(set(self._ahead))]
        return SourceCut(
            self.site,
            self.released,
            self.prefix,
            self.clock,
            tuple([self.held[seq].listed() for seq in sorted(self.held)]),
            tuple(skips),
            tuple(sorted(self._promises.items())),
        )

    # ---- helpers

    def _advance(self) -> None:
        """Go on over everything that follows without a gap, and count the UPDATEs that this justifies."""
        ahead, held = self._ahead, self.held
        while True:
            if ahead and ahead[0][0] <= self.prefix + 1:
                self._append_skip(heappop(ahead)[1])
                continue
            block = held.get(self.prefix + 1)
            if block is None:
                break
            self._append(block)
        if self._promises:
            for seq in [seq for seq in self._promises if seq <= self.prefix]:
                self.clock = max(self.clock, self._promises.pop(seq))

    def _append(self, block: Held) -> None:
        """The block behind the prefix is there."""
        self.prefix = block.seq
        if block.lts > self.clock:
            self.clock = block.lts
        self._kept.append(block)
        if block.rank > FIFO_RANK or block.is_late:
            self._tails[block.origin] = block
            self.queue.append(block)
        elif not block.is_delivered:  # a weaker one may have been delivered on arrival
            last = self._tails.get(block.origin)
            if last is None:
                self.early.append(block)
            else:
                last.followers.append(block)

    def _append_skip(self, skip: Skip) -> None:
        if skip.upto <= self.prefix:
            return
        if skip.first <= self.prefix:  # told twice, in other pieces: what is left of it
            skip = skip._replace(first=self.prefix + 1, safe=skip.safe and max(skip.safe, self.clock))
        self.prefix = skip.upto
        self.clock = max(self.clock, skip.lts)
        last = self._kept[-1] if self._kept else None
        both = joined(last, skip) if last is not None and not isinstance(last, Held) else None
        if both is not None:
            self._kept[-1] = both
        else:
            self._kept.append(skip)
        if skip.safe:
            self.queue.append(skip)
