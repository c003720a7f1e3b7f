"""What a set of daemons holds together of the streams of their old view: how far each of their sites can go.

P_t(s) is the longest run from 1 of the stream of s in which each block is held by one of them, or known to one of them
as a SKIP *not destined to t*. Whose SKIP it is does not matter, only its mask. clock_t(s) is the largest clock with a
sequence number inside that run, and H_t the smallest clock_t(s) over all sources.

Everything that somebody has released is stable: every daemon of the view had it, so the run goes on behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.wire.codec import MAX_NUMBER
from ordercast.wire.cuts import Cut, Due, Skip, SourceCut


class PooledStream:
    """One source, as all of them know it together."""

    __slots__ = ("_base", "_clocks", "_skips", "blocks", "site")

    def __init__(self, site: int, cuts: Sequence[SourceCut]) -> None:
        self.site = site
        self.blocks: dict[int, Due] = {}
        self._base = max([cut.released for cut in cuts])
        skips: set[Skip] = set()
        clocks: dict[int, int] = {}
        for cut in cuts:
            for seq, lts, rank, origin, mask in cut.blocks:
                self.blocks[seq] = Due(lts, site, seq, rank, origin, mask)
                clocks[seq] = max(clocks.get(seq, 0), lts)
            skips.update(cut.skips)
            for seq, clock in (*[(skip.upto, skip.lts) for skip in cut.skips], *cut.promises, (cut.prefix, cut.clock)):
                clocks[seq] = max(clocks.get(seq, 0), clock)
        self._skips = sorted(skips)
        self._clocks = sorted(clocks.items())

    def run(self, site: int) -> int:
        """P: how far the daemons of this site can go."""
        upto = self._base
        for skip in self._skips:  # by their first blocks: what begins behind a gap is followed by none that fills it
            upto = self._over_blocks(upto, skip.first)
            if skip.first <= upto + 1 <= skip.upto and not skip.mask >> site & 1:
                upto = skip.upto
        return self._over_blocks(upto, MAX_NUMBER)

    def clock(self, site: int) -> int:
        """The largest clock inside the run."""
        upto, found = self.run(site), 0
        for seq, clock in self._clocks:
            if seq > upto:
                break
            found = max(found, clock)
        return found

    def _over_blocks(self, upto: int, limit: int) -> int:
        while upto + 1 in self.blocks and upto + 1 < limit:
            upto += 1
        return upto


class Coverage:
    """All streams of the old view, as a set of daemons of that view know them together."""

    __slots__ = ("_horizons", "_sites", "stable", "streams")

    def __init__(self, cuts: Sequence[Cut]) -> None:
        self._sites = cuts[0].sites
        self.streams = [
            PooledStream(site, [cut.sources[index] for cut in cuts]) for index, site in enumerate(cuts[0].sites)
        ]
        self._horizons: dict[int, int] = {}
        # S: the smallest over all sites of the view, also those of which nobody is here, of the largest ARU known.
        self.stable = min([max([cut.arus[index] for cut in cuts]) for index in range(len(self._sites))])

    def horizon(self, site: int) -> int:
        """H_t: up to which LTS daemons of this site get everything that they are meant to have."""
        found = self._horizons.get(site)
        if found is None:
            found = self._horizons[site] = min([stream.clock(site) for stream in self.streams])
        return found

    def due(self, mask: int, above: int, horizon: int, origins: frozenset[int]) -> list[Due]:
        """Held blocks that go to one of these sites: from the LTS `above` to the horizon, and those of these origins
        beyond it."""
        return sorted(
            [
                block
                for stream in self.streams
                for block in stream.blocks.values()
                if block.mask & mask and above <= block.lts and (block.lts <= horizon or block.origin in origins)
            ]
        )
