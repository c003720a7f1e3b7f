"""Bugs of the streams of sites: what one daemon holds, delivers, forgets and reports. Each is one mutation.

They are planted into runs of the whole engine (`ordercast fuzz --orderer sites`). Where the model has a switch for the
same rule, `tests/model/evs/rules.py` names it.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug
from tests.sim.sites_bug import dense_bug, sites_bug

SITES_STREAM_BUGS: Final[tuple[Bug, ...]] = (
    # What comes
    sites_bug(
        "an UPDATE counts before the blocks that it speaks of are here",
        "SourceStream.promise",
        "seq <= self.prefix",
        "seq <= self.highest",
        "A block below the clock of the UPDATE is still to come.",
        16,
    ),
    sites_bug(
        "the prefix of a stream passes over gaps",
        "SourceStream.add",
        "seq == self.prefix + 1",
        "seq > self.prefix",
        "Blocks that come late are dropped.",
        16,
    ),
    sites_bug(
        "two blocks of a visit have one LTS",
        "SiteRing.stamp",
        "self.clock += 1",
        "self.clock += self.site_seq & 1",
        "Two blocks have one position.",
        16,
    ),
    dense_bug(
        "parts of UNRELIABLE blocks are kept for good",
        "SitesEngine.expire",
        "self._streams.loose.expire(now_ns)",
        "",
        "One that has lost a part keeps the engine from rest for good.",
        16,
    ),
    # Delivery
    sites_bug(
        "the horizon is that of the source that is furthest",
        "Horizon.horizon",
        "min([stream.clock for stream in self.streams.values()])",
        "max([stream.clock for stream in self.streams.values()])",
        "Blocks of other sites come too late.",
        16,
    ),
    sites_bug(
        "the horizon leaves out the own site",
        "Horizon.horizon",
        "min([stream.clock for stream in self.streams.values()])",
        "min([stream.clock for site, stream in self.streams.items() if site != self.site or len(self.sites) == 1])",
        "Blocks of the own site come too late.",
        16,
    ),
    sites_bug(
        "SAFE is delivered at the horizon",
        "Horizon.take",
        "head.rank == SAFE_RANK and lts > stable",
        "head.rank == SAFE_RANK and lts > horizon",
        "SAFE: a message is delivered before all daemons hold it.",
        16,
    ),
    sites_bug(
        "the stable line is the greatest ARU",
        "Horizon.raise_aru",
        "self._stable = min(self._arus.values())",
        "self._stable = max(self._arus.values())",
        "SAFE: a message is delivered before all sites hold it.",
        32,
    ),
    sites_bug(
        "FIFO does not wait for ordered messages of the same sender",
        "SourceStream._append",
        "last is None",
        "last is None or last.rank >= 0",
        "FIFO: a message overtakes one that was sent before it.",
        32,
    ),
    sites_bug(
        "what waits behind an ordered block is forgotten with it",
        "Horizon.take",
        "taken += stream.delivered(head)",
        "stream.delivered(head)",
        "FIFO messages behind an ordered one are lost.",
        32,
    ),
    sites_bug(
        "RELIABLE messages are delivered on arrival and at their place",
        "ViewStreams._enter",
        "held.is_delivered = is_early",
        "held.is_delivered = False",
        "They come twice.",
        16,
    ),
    sites_bug(
        "positions do not name the site",
        "ViewStreams._delivered",
        "position_of(held.lts, held.site)",
        "position_of(held.lts, 0)",
        "Blocks of two sites have one position.",
        16,
    ),
    # Stability
    sites_bug(
        "a site reports how far its own stream is",
        "Horizon.report",
        "min([stream.report() for stream in self.streams.values()])",
        "self.streams[self.site].report()",
        "SAFE: a message is delivered before all daemons hold what is before it.",
        32,
    ),
    sites_bug(
        "blocks are forgotten when they are delivered",
        "Horizon.release",
        "stable = self._stable",
        "stable = self.horizon",
        "Others lack them when the view ends.",
        64,
        is_slow=True,
    ),
    # The end of a view
    sites_bug(
        "a daemon that has shown its cut goes on",
        "SitesEngine.after_batch",
        "if not membership.is_working:\n    out.notes += streams.take_notes()\n    return",
        "",
        "It delivers what its class does not.",
        64,
    ),
    sites_bug(
        "what follows the signal is not delivered",
        "SitesEngine._install",
        "self._settle(streams, after, out)",
        "",
        "Messages that a class holds are lost.",
        16,
    ),
    sites_bug(
        "the signal comes in front of the whole remainder",
        "SitesEngine._install",
        (
            "self._settle(streams, before, out)",
            "self._settle(streams, after, out)",
        ),
        (
            "",
            "self._settle(streams, (*before, *after), out)",
        ),
        "A class that others were part of hears it at another place.",
        32,
    ),
    sites_bug(
        "the signal comes behind the whole remainder",
        "SitesEngine._install",
        (
            "self._settle(streams, before, out)",
            "self._settle(streams, after, out)",
        ),
        (
            "self._settle(streams, (*before, *after), out)",
            "",
        ),
        "SAFE: a message counts as held by all, and only a class holds it.",
        64,
    ),
    sites_bug(
        "blocks of a remainder are delivered a second time",
        "Horizon.settle",
        "not block.is_delivered",
        "block.rank >= 0",
        "Positions fall.",
        16,
    ),
    sites_bug(
        "blocks that were fetched are not kept",
        "ViewStreams.take_packet",
        "return self._enter(origin, seq, stamp, block, _head_of_stamped(stamp, block), self.fetched)",
        "return True",
        "A view cannot end.",
        64,
        is_slow=True,
    ),
    sites_bug(
        "blocks are fetched without their origin",
        "ViewStreams.packet",
        "held.origin.to_bytes(8, 'little')",
        "self.me.to_bytes(8, 'little')",
        "The holder counts as the sender.",
        16,
    ),
)
