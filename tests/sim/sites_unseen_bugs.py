"""Mutations of the engine of sites that no random run has objected to so far, each with the reason.

Where the model has a switch for the same rule (`tests/model/evs/rules.py`), its name is given.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.site_groups import SITES

SITES_UNSEEN: Final[tuple[Bug, ...]] = (
    Bug(
        "only the last packet that is asked for is sent again",
        "HopSender.asked",
        "max(first, self.other_aru + 1)",
        "max(stop - 1, self.other_aru + 1)",
        "Latency only: the others are asked for again. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "the aru of a link passes over gaps",
        "HopReceiver.received",
        "aru < highest and aru + 1 not in missing",
        "aru < highest",
        "Rare: the link is declared dead, and the next view brings what was lost. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "an ACK that was lost is not said again",
        "HopLink.on_ack",
        "ack.freed < self._told",
        "ack.freed < 0",
        "Latency only: the next packet of the link has another one. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "a SKIP is coalesced over blocks that were sent",
        "SiteNetwork._prune",
        "first + len(blocks) != seq or (len(blocks) >= MAX_SKIPPED and not self._has_skips(to))",
        "len(blocks) >= MAX_SKIPPED and not self._has_skips(to)",
        "Rare: one pass has to prune two blocks of a site and send the one between them. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "a SKIP does not say which blocks are SAFE",
        "skipped_ranges",
        "lts if rank >= SAFE_RANK else 0",
        "lts if rank > SAFE_RANK else 0",
        (
            "Rare: a view must end between two daemons of which one has passed over the block. The model "
            "has it: skipped_safe."
        ),
        0,
        SITES,
    ),
    Bug(
        "a daemon that lacks packets does not want the token",
        "_wants",
        "packets.aru < packets.highest",
        "packets.aru > packets.highest",
        "Rare: the last packet of a ring must be lost, and nothing else wake its token. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "a token that rests does not say how far the ring is",
        "SiteRing._hear_of",
        "self._packets.highest = max(self._packets.highest, token.link_seq)",
        "",
        "Rare: the last packet of a ring must be lost at a daemon that no token reaches. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "who lowers an ARU does not say so",
        "merged_aru",
        "return mine, me",
        "return mine, modifier",
        (
            "Rare: three daemons of a site must differ in one round, and a view end before the next. None "
            "of 40 seeds caught it."
        ),
        0,
        SITES,
    ),
    Bug(
        "both ARUs have one modifier",
        "SiteRing._visit",
        "token.site_modifier",
        "token.link_modifier",
        "Rare: a daemon must lack packets and another one blocks, in one round. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "an UPDATE that came early is forgotten",
        "SourceStream._advance",
        "self.clock = max(self.clock, self._promises.pop(seq))",
        "self._promises.pop(seq)",
        "Mostly latency: the next UPDATE says as much. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "the clock of an UPDATE does not raise the clock here",
        "Horizon.update",
        "if clock > self.clock:\n    self.clock = clock",
        "",
        "Rare: the model needs a script for it (raise_clock). None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "packets of the view before are taken",
        "SitesEngine._on_datagram",
        "ring != self._writer.ring",
        "ring != self._writer.ring and kind not in (Kind.PACKET, Kind.SKIP, Kind.UPDATE)",
        (
            "Rare: numbers of links and streams must fit those of the next view. None of 40 seeds caught "
            "it; the model has it: view_ids."
        ),
        0,
        SITES,
    ),
    Bug(
        "a daemon delivers past a SAFE block that is not for it",
        "Horizon.take",
        "head.lts > stable",
        "head.lts > horizon",
        (
            "Rare: a view must end while one daemon has passed over the block. None of 40 seeds caught it; "
            "the model has it: skipped_safe."
        ),
        0,
        SITES,
    ),
    Bug(
        "weak messages do not wait for a join",
        "ViewStreams._is_late",
        "is_joining or not self.progress.is_complete or stamp.after > self.roster_lts",
        "not self.progress.is_complete or stamp.after > self.roster_lts",
        (
            "Rare: a message must overtake the join that it follows. None of 40 seeds caught it; the model "
            "has it: keep_weak."
        ),
        0,
        SITES,
    ),
    Bug(
        "weak messages do not wait for an exchange",
        "ViewStreams._is_late",
        "is_joining or not self.progress.is_complete or stamp.after > self.roster_lts",
        "is_joining or stamp.after > self.roster_lts",
        "Rare: a message must overtake the last roster of an exchange. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "weak messages overtake the roster that their groups are in",
        "ViewStreams._is_late",
        "is_joining or not self.progress.is_complete or stamp.after > self.roster_lts",
        "is_joining or not self.progress.is_complete",
        "Rare: a message must overtake the roster block that its numbers are from. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "what is stable stays counted",
        "ViewStreams.release",
        "self.own_bytes -= own.popleft()[1]",
        "own.popleft()",
        "Rare: a daemon must send more than its history takes in one view. None of 40 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "a leave ends interests that were stamped after it",
        "Interests.left",
        "known >> 1 > lts",
        "known >> 1 > max(lts, known)",
        (
            "Rare: an INTEREST must overtake the LEAVE before it. None of 40 seeds caught it; the model has "
            "it: leave_ends_earlier."
        ),
        0,
        SITES,
    ),
    Bug(
        "the end of an exchange clears the interests of its view",
        "Interests.exchange_done",
        "known > _JOINED",
        "known < _JOINED",
        "Rare: the model needs a script for it (keep_interest). None of 32 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "a join does not wait for a leave of its node",
        "Regrouping._presence_in",
        "Presence.STAYING if any(not port.is_leaving for port in ports) else Presence.LEAVING",
        "Presence.STAYING",
        (
            "Rare: a message must be stamped between the LEAVE and the JOIN. None of 27 seeds caught it; "
            "the model has it: leaving_is_gone."
        ),
        0,
        SITES,
    ),
    Bug(
        "interests of the last view count",
        "SitesEngine._install",
        "self._declared = DeclaredInterests()",
        "",
        "Harmless: a join that waits declares again after a view, and declaring forgets what was stamped before.",
        0,
        SITES,
    ),
    Bug(
        "who rests does not answer a daemon that waits",
        "SiteWatch.beaten",
        "self._is_asked = self._is_asked or body == WAITING",
        "",
        (
            "Rare: WAKEs and a heartbeat of the same moment must be lost. "
            "tests/scripts/sites_wakes_are_lost.script catches it."
        ),
        0,
        SITES,
    ),
    Bug(
        "a join relies on an interest that a leave has ended",
        "DeclaredInterests.want",
        "self._stamped.pop(name, None)",
        "",
        (
            "Rare: a message must be stamped behind the second join of a daemon in one view. "
            "None of 16 seeds caught it; tests/sim/test_sites_rejoin.py does."
        ),
        0,
        SITES,
    ),
    Bug(
        "groups that were touched behind the signal get no view",
        "ExchangeRoster._go_on",
        "touched.items()",
        "list(touched.items())[:0]",
        (
            "Rare: an operation of the roster must stand behind a signal. None of 40 seeds caught it; the "
            "model has it: late_changes."
        ),
        0,
        SITES,
    ),
    Bug(
        "came_with does not remember an exchange that was interrupted",
        "ExchangeRoster.on_view",
        "came if self._merge is None else self._together & came",
        "came",
        "Rare: a view must end in the middle of an exchange that others go on with. None of 35 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "the id of a group's view does not name the view below",
        "GroupViews.make",
        "view.id if self._by_position else view.creator",
        "view.creator",
        (
            "Rare: two components must make a view at one position. None of 23 seeds caught it; the model "
            "has it: group_view_id."
        ),
        0,
        SITES,
    ),
    Bug(
        "the horizon of a class is that of the site that is furthest",
        "_result",
        "horizon = min([coverage.horizon(cut.site) for cut in part])",
        "horizon = max([coverage.horizon(cut.site) for cut in part])",
        "Rare: the sites of a class must reach differently far. None of 20 seeds caught it; the model has it: cover.",
        0,
        SITES,
    ),
    Bug(
        "a class is not split",
        "_unbound",
        "furthest > min([coverage.horizon(cut.site) for cut in rest])",
        "furthest < 0",
        (
            "Rare: a member must have delivered what its class cannot reach. None of 20 seeds caught it; "
            "the model has it: split."
        ),
        0,
        SITES,
    ),
    Bug(
        "a SKIP helps every site",
        "PooledStream.run",
        "not skip.mask >> site & 1",
        "skip.mask >= 0",
        (
            "Rare: nobody of a class may hold a block that others of it have skipped. None of 20 seeds "
            "caught it; the model has it: masked."
        ),
        0,
        SITES,
    ),
    Bug(
        "the signal does not stand before what lies beyond the horizon",
        "signal_index",
        "block.lts > horizon or (block.rank >= SAFE_RANK and block.lts > stable)",
        "block.rank >= SAFE_RANK and block.lts > stable",
        "Rare: the first block beyond H must not be SAFE and have no SAFE one before it. None of 9 seeds caught it.",
        0,
        SITES,
    ),
    Bug(
        "rosters are those of the lineage though the class is in sync",
        "roster_groups",
        "any(by_daemon[member].is_synced for member in members)",
        "all(by_daemon[member].is_synced for member in members) and len(lineages) == 1",
        "Nothing but an exchange more: those of one class tell the same. The check against the model objects.",
        0,
        SITES,
    ),
    Bug(
        "a cut says that its daemon is in sync",
        "ViewStreams.freeze",
        "self.progress.is_complete",
        "True",
        ("Rare: a view must end before an exchange is complete. None of 9 seeds caught it; the model has it: lineage."),
        0,
        SITES,
    ),
    Bug(
        "a daemon is not bound any more when it promises again",
        "TakingPart.promise",
        "self.proposal = self.result = self.fetching = None",
        "self.proposal = self.result = self.fetching = self.bound = None",
        "Rare: a round must be broken off when some have installed its view. tests/components catches it.",
        0,
        SITES,
    ),
)
