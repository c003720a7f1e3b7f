"""Bugs of links, routes and rings of the orderer sites: each is one mutation."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.site_groups import SITES, WIDE_FROM


def _in_network(
    name: str, function: str, old: str | tuple[str, ...], new: str | tuple[str, ...], breaks: str, bound: int
) -> Bug:
    return Bug(name, function, old, new, breaks, bound, SITES)


def _over_others(
    name: str, function: str, old: str | tuple[str, ...], new: str | tuple[str, ...], breaks: str, bound: int
) -> Bug:
    """Where links have different weights, and windows are small."""
    return Bug(name, function, old, new, breaks, bound, SITES, first_seed=WIDE_FROM)


SITES_NETWORK_BUGS: Final[tuple[Bug, ...]] = (
    # Links
    _in_network(
        "nothing is asked for over a link",
        "HopReceiver.to_ask",
        "ranges = ranges_of(due, MAX_RANGES)",
        "ranges = ranges_of(due[:0], MAX_RANGES)",
        "A packet that is lost between sites stays lost.",
        64,
    ),
    _in_network(
        "requests over a link are not answered",
        "HopLink.on_nak",
        "self._sender.asked(ranges)",
        "",
        "A packet that is lost between sites stays lost, until the link is declared dead.",
        64,
    ),
    _in_network(
        "only the last packet that is asked for is sent again",
        "HopSender.asked",
        "max(first, self.other_aru + 1)",
        "max(stop - 1, self.other_aru + 1)",
        "A run of lost packets comes one by one, or never.",
        64,
    ),
    _in_network(
        "an ACK does not say what was sent last",
        "HopLink.on_ack",
        "receiver.sent_up_to(ack.max_sent)",
        "",
        "The loss of the last packet is never noticed.",
        64,
    ),
    _in_network(
        "an ACK frees one packet too many",
        "HopSender.acknowledged",
        ("range(self.other_aru + 1, aru + 1)", "del self._open[seq]"),
        ("range(self.other_aru + 1, min(aru + 1, self.highest) + 1)", "self._open.pop(seq, None)"),
        "A packet is asked for that is not kept any more.",
        64,
    ),
    _in_network(
        "the aru of a link passes over gaps",
        "HopReceiver.received",
        "aru < highest and aru + 1 not in missing",
        "aru < highest",
        "The sender forgets packets that have not come.",
        64,
    ),
    _in_network(
        "ACKs end while packets are out",
        "HopLink._make_ack",
        "NEVER if self.is_at_rest else now_ns + self._terms.ack_long_ns",
        "NEVER",
        "The loss of the last packet, or of its ACK, is never noticed.",
        64,
    ),
    _in_network(
        "an ACK that was lost is not said again",
        "HopLink.on_ack",
        "ack.freed < self._told",
        "ack.freed < 0",
        "The other end never learns that everything has come.",
        64,
    ),
    _in_network(
        "a link goes on with the numbers of the view before",
        "HopReceiver.restart",
        "self.highest = self.aru = 0",
        "",
        "The packets of the next view are taken for old ones.",
        32,
    ),
    _over_others(
        "the window of a link is not kept",
        "HopSender.send",
        "self.highest - self.other_aru < self.window",
        "self.highest - self.other_aru < MAX_WINDOW",
        "The other end does not believe that so much was sent.",
        64,
    ),
    # Routes
    _in_network(
        "trees stay as they are when sites are lost",
        "SiteRoutes.change_sites",
        "present == self.present",
        "present & self.present == present",
        "Packets are sent to sites that are not in the view.",
        32,
    ),
    _in_network(
        "a pruned site is told nothing",
        "SiteRoutes.pruned",
        "not below & mask",
        "not below",
        "A site that a block is not for waits for it.",
        32,
    ),
    _in_network(
        "what came through the ring is not forwarded",
        "SiteNetwork.receive",
        "self._forward(packet)",
        "if via != self._here:\n    self._forward(packet)",
        "Only blocks of representatives leave their site.",
        32,
    ),
    _over_others(
        "a packet goes no farther than to the next site",
        "SiteRoutes.next_hops",
        "below & mask",
        "1 << child & mask",
        "Sites behind another one get only what that one wants.",
        64,
    ),
    _over_others(
        "what came over a link is not forwarded",
        "SiteNetwork.receive",
        "self._forward(packet)",
        "if via == self._here:\n    self._forward(packet)",
        "Sites behind another one get nothing.",
        64,
    ),
    _over_others(
        "an UPDATE goes no farther than to the next site",
        "SiteNetwork._tell",
        "self._routes.present",
        "sum([1 << each for each in self._routes.links(self._here)])",
        "Sites behind another one do not learn how far a source is.",
        64,
    ),
    _over_others(
        "a block that passes through a site leaves a gap there",
        "SiteNetwork._forward",
        "if is_passing:\n    self._prune(here, source, seq, block)",
        "",
        "The site waits for a block that is not for it.",
        64,
    ),
    _over_others(
        "a SKIP goes no farther than to the next site",
        "SiteNetwork._send_skip",
        "below = self._routes.below(source, self._here, to)",
        "below = 1 << to",
        "Sites behind another one wait for a block that is not for them.",
        64,
    ),
    _over_others(
        "packets take the tree of the site that forwards them",
        "SiteNetwork._forward",
        "source, here = packet.source, self._here",
        "source, here = self._here, self._here",
        "Packets go back to where they came from, and around.",
        64,
    ),
    _in_network(
        "a SKIP is coalesced over blocks that were sent",
        "SiteNetwork._prune",
        "first + len(blocks) != seq or len(blocks) >= MAX_SKIPPED",
        "len(blocks) >= MAX_SKIPPED",
        "A site skips a block that it gets, and waits for one that was skipped.",
        64,
    ),
    _in_network(
        "a SKIP does not say which blocks are SAFE",
        "skipped_ranges",
        "is_safe = rank >= SAFE_RANK",
        "is_safe = rank > SAFE_RANK",
        "A site delivers past a SAFE block that is not stable.",
        128,
    ),
    # Rings
    _in_network(
        "requests on the token are not answered",
        "SiteRing._resend",
        "held[:allowed]",
        "held[:0]",
        "A packet that is lost inside a site stays lost.",
        64,
    ),
    _in_network(
        "daemons do not ask for what they lack",
        "SiteRing._visit",
        "store.missing()",
        "store.missing()[:0]",
        "A packet that is lost inside a site stays lost.",
        64,
    ),
    _in_network(
        "a daemon that lacks packets does not want the token",
        "_wants",
        "packets.aru < packets.highest",
        "packets.aru > packets.highest",
        "The last packet that is lost inside a site stays lost.",
        128,
    ),
    _in_network(
        "a token that rests does not say how far the ring is",
        "SiteRing._hear_of",
        "self._packets.highest = max(self._packets.highest, token.link_seq)",
        "",
        "The loss of the last packet inside a site is never noticed.",
        128,
    ),
    _in_network(
        "packets of a ring are freed after one round",
        "SiteRing._visit",
        "min(link_aru, last.link_aru)",
        "link_aru",
        "A daemon asks for a packet that nobody has any more.",
        64,
    ),
    _in_network(
        "who lowers an ARU does not say so",
        "merged_aru",
        "return mine, me",
        "return mine, modifier",
        "Another daemon raises it again: what one daemon lacks counts as held by all.",
        64,
    ),
    _in_network(
        "everybody raises an ARU",
        "merged_aru",
        "modifier in (me, NOBODY)",
        "modifier in (me, NOBODY, modifier)",
        "What one daemon lacks counts as held by all.",
        64,
    ),
    _in_network(
        "both ARUs have one modifier",
        "SiteRing._visit",
        "token.site_modifier",
        "token.link_modifier",
        "One that lacks no packet raises the ARU of one that lacks blocks.",
        128,
    ),
    _in_network(
        "the ARU of a site is believed after one round",
        "SiteRing._visit",
        "min(site_aru, last.site_aru)",
        "site_aru",
        "SAFE: a message is delivered before all daemons of a site hold it.",
        128,
    ),
    _in_network(
        "a daemon owns up to its clock, not to its horizon",
        "SiteRing._visit",
        "min(self._horizon, self.clock)",
        "self.clock",
        "SAFE: a message is delivered before all daemons hold it.",
        64,
    ),
    _in_network(
        "the clock of a token is not taken over",
        "SiteRing._accept",
        "self.clock = max(self.clock, token.site_lts)",
        "",
        "Two daemons of a site stamp alike.",
        32,
    ),
    _in_network(
        "the sequence of a site is not taken over with the token",
        "SiteRing._accept",
        "self.site_seq = token.site_seq",
        "",
        "Two blocks of a site have one sequence number.",
        32,
    ),
    _in_network(
        "stamps are not above what was heard",
        "SiteRing.hear_clock",
        "self.clock = max(self.clock, clock)",
        "",
        "CAUSAL: an answer is ordered before its question.",
        32,
    ),
    _in_network(
        "an UPDATE has the clock of now, not that of the visit",
        "SiteRing.state",
        "self._last.site_lts",
        "self.clock",
        "Another daemon of the site stamps below what was promised.",
        32,
    ),
    _in_network(
        "a token without a sign is not passed again",
        "TokenWatch.repeat",
        "return [awaited.control]",
        "return []",
        "A lost token stays lost, and one that rests is not woken.",
        32,
    ),
    _in_network(
        "a token that was passed before is taken again",
        "SiteRing.on_token",
        "token.number < self._expected",
        "token.number < self._expected - len(self._members)",
        "Two daemons have the token.",
        128,
    ),
    _in_network(
        "a token that rests does not hear",
        "SiteRing.on_wake",
        "self._is_woken = True",
        "self._is_woken = False",
        "A daemon with messages waits for a token that rests.",
        32,
    ),
)
