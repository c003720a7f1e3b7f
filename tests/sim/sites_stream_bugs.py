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
        64,
    ),
    sites_bug(
        "an UPDATE that came early is forgotten",
        "SourceStream._advance",
        "self.clock = max(self.clock, self._promises.pop(seq))",
        "self._promises.pop(seq)",
        "Nobody goes on when a site is idle.",
        64,
    ),
    sites_bug(
        "the prefix of a stream passes over gaps",
        "SourceStream.add",
        "seq == self.prefix + 1",
        "seq > self.prefix",
        "Blocks that come late are dropped.",
        32,
    ),
    sites_bug(
        "the clock of an UPDATE does not raise the clock here",
        "Horizon.update",
        "if clock > self.clock:\n    self.clock = clock",
        "",
        "A site stamps below what another one knows of it.",
        64,
    ),
    sites_bug(
        "two blocks of a visit have one LTS",
        "SiteRing.stamp",
        "self.clock += 1",
        "self.clock += self.site_seq & 1",
        "Two blocks have one position.",
        32,
    ),
    sites_bug(
        "packets of the view before are taken",
        "SitesEngine._on_datagram",
        "ring != self._writer.ring",
        "ring != self._writer.ring and kind not in (Kind.PACKET, Kind.SKIP, Kind.UPDATE)",
        "A stream has blocks of two views.",
        64,
    ),
    # Delivery
    sites_bug(
        "the horizon is that of the source that is furthest",
        "Horizon.horizon",
        "min([stream.clock for stream in self.streams.values()])",
        "max([stream.clock for stream in self.streams.values()])",
        "Blocks of other sites come too late.",
        32,
    ),
    sites_bug(
        "the horizon leaves out the own site",
        "Horizon.horizon",
        "min([stream.clock for stream in self.streams.values()])",
        "min([stream.clock for site, stream in self.streams.items() if site != self.site or len(self.sites) == 1])",
        "Blocks of the own site come too late.",
        32,
    ),
    sites_bug(
        "SAFE is delivered at the horizon",
        "Horizon.take",
        "head.rank == SAFE_RANK and lts > stable",
        "head.rank == SAFE_RANK and lts > horizon",
        "SAFE: a message is delivered before all daemons hold it.",
        32,
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
        "a daemon delivers past a SAFE block that is not for it",
        "Horizon.take",
        "head.lts > stable",
        "head.lts > horizon",
        "Those that wait for it find others of their class on the far side of the signal.",
        64,
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
        32,
    ),
    sites_bug(
        "positions do not name the site",
        "ViewStreams._delivered",
        "position_of(held.lts, held.site)",
        "position_of(held.lts, 0)",
        "Blocks of two sites have one position.",
        32,
    ),
    sites_bug(
        "weak messages do not wait for a join",
        "ViewStreams._is_late",
        "is_joining or not self.progress.is_complete or stamp.after > self.roster_lts",
        "not self.progress.is_complete or stamp.after > self.roster_lts",
        "A newcomer does not get FIFO messages that were sent behind its join.",
        64,
    ),
    sites_bug(
        "weak messages do not wait for an exchange",
        "ViewStreams._is_late",
        "is_joining or not self.progress.is_complete or stamp.after > self.roster_lts",
        "is_joining or stamp.after > self.roster_lts",
        "They are delivered to the groups that had their numbers before.",
        64,
    ),
    sites_bug(
        "weak messages overtake the roster that their groups are in",
        "ViewStreams._is_late",
        "is_joining or not self.progress.is_complete or stamp.after > self.roster_lts",
        "is_joining or not self.progress.is_complete",
        "They are delivered to groups that do not know their newest members.",
        64,
    ),
    # Stability
    sites_bug(
        "a site reports how far its own stream is",
        "Horizon.report",
        "min([stream.report() for stream in self.streams.values()])",
        "self.streams[self.site].report()",
        "SAFE: a message is delivered before all daemons hold what is before it.",
        64,
    ),
    sites_bug(
        "blocks are forgotten when they are delivered",
        "Horizon.release",
        "stable = self._stable",
        "stable = self.horizon",
        "Others lack them when the view ends.",
        64,
    ),
    sites_bug(
        "what is stable stays counted",
        "ViewStreams.release",
        "self.own_bytes -= own.popleft()[1]",
        "own.popleft()",
        "A daemon that has sent as much as its history takes sends nothing more.",
        64,
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
        64,
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
        64,
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
        64,
    ),
    sites_bug(
        "blocks that were fetched are not kept",
        "ViewStreams.take_packet",
        "return self._enter(origin, seq, stamp, block, _head_of_stamped(stamp, block), self.fetched)",
        "return True",
        "A view cannot end.",
        64,
    ),
    sites_bug(
        "blocks are fetched without their origin",
        "ViewStreams.packet",
        "held.origin.to_bytes(8, 'little')",
        "self.me.to_bytes(8, 'little')",
        "The holder counts as the sender.",
        64,
    ),
)
