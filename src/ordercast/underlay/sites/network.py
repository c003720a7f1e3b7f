"""The network layer of one view at one daemon: the ring of its site and, at the representative, the links to others.

Spread section 3.2. A packet that is new is handed on at once: into the ring, if it came over a link, and along the
links of its source's tree that have a site of its mask behind them. Links that have none get a SKIP in its place, made
of the first segment of the block, which comes once; so does the own site, where a packet only passes through it.

The representative of a site is its first daemon in the view. Links between representatives that both go on into the
next view keep their round trip and their bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ordercast.config import SECOND, Timing
from ordercast.engine import Outbox, To
from ordercast.errors import WireError
from ordercast.membership.components.daemons import GatherReason
from ordercast.orderers.sites.hop import HopLink, HopTerms
from ordercast.orderers.sites.passing import ALL
from ordercast.orderers.sites.ring import RingTerms, SiteRing, SiteState
from ordercast.orderers.sites.routes import SiteRoutes
from ordercast.orderers.sites.urgency import usual_bytes
from ordercast.service import SAFE_RANK
from ordercast.sites import SitesConfig
from ordercast.view import Address, Member, View
from ordercast.wire.cuts import Skip, joined
from ordercast.wire.header import Kind
from ordercast.wire.segments import Datagram
from ordercast.wire.sites import (
    MAX_SKIPPED,
    SITE_SHIFT,
    LinkPacket,
    PrunedBlocks,
    SiteUpdate,
    SkippedBlock,
    decode_hop_ack,
    decode_hop_nak,
    decode_site_token,
    decode_stamp,
    decode_wake,
    encode_hop_ack,
    encode_ranges,
    encode_skip,
    encode_update,
    open_packet,
    packet_sends,
)
from ordercast.wire.writer import DatagramWriter

MIN_BURST: Final = 4_096  # bytes that a daemon may always send when it has the token
MAX_BURST: Final = 1 << 30  # where nobody says how much its socket holds

ACK_BYTES: Final = 92  # an ACK on the line
ACK_SHARE: Final = 0.05  # of a link, for its ACKs: on a slow one they leave after more than `ack_short_ns`

LINK_KINDS: Final = frozenset((Kind.PACKET, Kind.SKIP, Kind.UPDATE))


class ViewFailure(NamedTuple):
    """Why the view cannot go on, and who is to blame, as far as that is known."""

    reason: GatherReason
    members: tuple[int, ...]


class Wiring:
    """What outlives a view: the routes, and the links whose two ends stay."""

    __slots__ = ("config", "counters", "links", "opened", "routes")

    def __init__(self, config: SitesConfig, counters: dict[str, int]) -> None:
        self.config = config
        self.counters = counters
        self.opened = 0  # links that were not there before
        self.routes = SiteRoutes(config.weights())
        self.links: dict[tuple[int, int], HopLink] = {}  # by site, and the id of the daemon at the other end

    def open(self, here: int, ends: dict[int, Member], timing: Timing) -> dict[int, HopLink]:
        """The links of the next view, to these representatives."""
        config, links = self.config, {}
        for site, end in ends.items():
            link = self.links.get((site, end.id))
            if link is not None and not link.is_dead:
                link.restart()
            else:
                ours = config.link(config.sites[here].name, config.sites[site].name)
                theirs = config.link(config.sites[site].name, config.sites[here].name)
                terms = HopTerms(
                    max(ours.bits_per_s // 8, 1),
                    ours.burst_bytes,
                    ours.window_packets,
                    peer_window=theirs.window_packets,
                )
                terms = replace(terms, ack_short_ns=_ack_short_ns(terms))
                link = HopLink(terms, timing)
                self.opened += 1
            links[site, end.id] = link
        self.links = links
        return {site: link for (site, _), link in links.items()}


class SiteNetwork:
    """Drive it: `receive` for each datagram of the view, `send_own` for each block that was stamped, `step` once in a
    pass, and when `deadline_ns` has come."""

    __slots__ = (
        "_counters",
        "_ends",
        "_here",
        "_links",
        "_mates",
        "_me",
        "_passed",
        "_pruned",
        "_routes",
        "_told",
        "_touched",
        "_writer",
        "burst_bytes",
        "is_representative",
        "is_wide",
        "ring",
        "wide_bytes",
    )

    def __init__(
        self,
        wiring: Wiring,
        here: int,
        me: Member,
        view: View,
        places: dict[int, int],
        first_lts: int,
        writer: DatagramWriter,
        timing: Timing,
    ) -> None:
        """`places`: the site of each member of the view."""
        self._here = here
        self._me = me.id
        self._writer = writer
        self._counters = wiring.counters
        self._routes = wiring.routes
        present = 0
        for site in places.values():
            present |= 1 << site
        self._routes.change_sites(present)
        heads: dict[int, Member] = {}
        for member in view.members:
            heads.setdefault(places[member.id], member)
        self._mates = {member.id: member.address for member in view.members if places[member.id] == here}
        # What one daemon sends in one visit of the token: the bursts of all must find room in a socket. Views do not
        # say what the others' hold, and a site has machines of one kind.
        share = me.buffer_bytes // 2 // len(self._mates)
        self.burst_bytes = max(share, MIN_BURST) if me.buffer_bytes else MAX_BURST
        self.is_representative = heads[here].id == me.id
        linked = self._routes.links(here) if self.is_representative else []
        self._ends = {site: heads[site] for site in linked}
        self._links = wiring.open(here, self._ends, timing)
        # The largest block to other sites. Whatever the site stamps next is delivered behind it, also inside the site.
        names = [site.name for site in wiring.config.sites]
        rates = [wiring.config.link(names[here], names[site]).bits_per_s for site in self._routes.links(here)]
        self.is_wide = True  # the last own block goes to other sites, and so will the next one, most likely
        self.wide_bytes = min([usual_bytes(rate // 8) for rate in rates], default=MAX_BURST)
        spec = wiring.config.sites[here]
        self.ring = SiteRing(
            me.id, list(self._mates), RingTerms(spec.ring_window, spec.personal_window), timing, first_lts
        )
        self._touched: dict[int, None] = dict.fromkeys(self._links)  # links that something happened to
        # SKIPs that are being made: (link, or the own site; source) -> first sequence number and blocks
        self._pruned: dict[tuple[int, int], tuple[int, list[SkippedBlock]]] = {}
        self._passed: list[PrunedBlocks] = []  # of blocks that only pass through this site
        self._told = SiteState(0, first_lts, 0)  # as the last UPDATE said

    # State

    @property
    def mates(self) -> list[Address]:
        """Where the other daemons of the site are."""
        return [address for member, address in self._mates.items() if member != self._me]

    @property
    def neighbours(self) -> list[int]:
        """The daemons that this one hears as long as they live: those of its site, and the other ends of its links."""
        return [*[member for member in self._mates if member != self._me], *[end.id for end in self._ends.values()]]

    @property
    def ends(self) -> list[Address]:
        """Where the other ends of the links are."""
        return [end.address for end in self._ends.values()]

    @property
    def link_ends(self) -> list[int]:
        """The other ends of the links that are behind; where another daemon has the links, that one."""
        if not self.is_representative:
            return [next(iter(self._mates))]
        return [self._ends[site].id for site, link in self._links.items() if link.credit[0] <= 0]

    @property
    def failure(self) -> ViewFailure | None:
        ring = self.ring
        if ring.is_lost:
            return ViewFailure(GatherReason.TOKEN_LOST, (ring.suspect,) if ring.suspect else ())
        if ring.is_overrun:
            return ViewFailure(GatherReason.TOKEN_LOST, ())
        dead = [self._ends[site].id for site, link in self._links.items() if link.is_dead]
        return ViewFailure(GatherReason.LINK_DEAD, tuple(dead)) if dead else None

    @property
    def is_at_rest(self) -> bool:
        links = self._links.values()
        is_told = not self._links or self._told == self.ring.state
        return self.ring.is_at_rest and is_told and not self._pruned and all(link.is_at_rest for link in links)

    @property
    def backlog(self) -> int:
        """Packets that wait at the fullest link."""
        return max([link.waiting for link in self._links.values()], default=0)

    def measure(self) -> None:
        """Tell the ring how much more the links take, where this daemon has them and the token."""
        if self._links and self.ring.is_holding:
            credits = [link.credit for link in self._links.values()]
            self.ring.urgency.measure(min([usual for usual, _ in credits]), min([urgent for _, urgent in credits]))

    def deadline_ns(self) -> int:
        due_ns = self.ring.deadline_ns()
        for link in self._links.values():
            due_ns = min(due_ns, link.deadline_ns())
        return due_ns

    # Inputs

    def receive(self, now_ns: int, datagram: Datagram) -> LinkPacket | None:
        """A datagram of this view; the packet, where it is new. Raises WireError on nonsense."""
        kind, origin, body = datagram.kind, datagram.origin, datagram.body
        if kind in LINK_KINDS:
            via, seq, packet = open_packet(datagram)
            if via == self._here:
                if not self.ring.on_packet(now_ns, seq, packet):
                    return None
            else:
                link = self._links.get(via)
                if link is None:
                    raise WireError("a packet of a site without a link")
                self._touched[via] = None
                if not link.received(now_ns, seq):
                    return None
                if self._is_wanted(packet) and not self.ring.queue_foreign(packet):
                    self._drop()
            self._forward(packet)
            return packet
        if kind == Kind.SITE_TOKEN:
            self.ring.on_token(now_ns, origin, decode_site_token(body))
        elif kind == Kind.WAKE:
            self.ring.on_wake(origin, decode_wake(body))
        elif kind in (Kind.HOP_ACK, Kind.HOP_NAK):
            site = next((site for site, end in self._ends.items() if end.id == origin), -1)
            if site < 0:
                raise WireError("a word about a link that is not there")
            self._touched[site] = None
            if kind == Kind.HOP_ACK:
                self._links[site].on_ack(now_ns, decode_hop_ack(body))
            else:
                self._links[site].on_nak(decode_hop_nak(body))
        return None

    def _is_wanted(self, packet: LinkPacket) -> bool:
        """Whether daemons of this site want what came over a link, or it only passes through."""
        return packet.kind != Kind.PACKET or bool(packet.mask >> self._here & 1)

    def send_own(self, packets: Sequence[LinkPacket]) -> None:
        """The packets of a block that was just stamped here, or of an UNRELIABLE one."""
        for packet in packets:
            self.ring.queue_own(packet)
            self._forward(packet)

    def _forward(self, packet: LinkPacket) -> None:
        """Along the tree of its source. Hot: once for each packet."""
        if not self._links:
            return
        source, here = packet.source, self._here
        is_bounded = packet.is_reliable or source == here  # by what is unstable, or by its own site
        for child in self._routes.next_hops(source, here, packet.mask):
            link = self._links[child]
            if is_bounded or link.passes(packet):
                link.queue(packet)
                self._touched[child] = None
            else:
                self._drop()
        if packet.kind == Kind.PACKET and packet.is_reliable and not packet.segment:
            pruned = self._routes.pruned(source, here, packet.mask)
            is_passing = not packet.mask >> here & 1
            if pruned or is_passing:
                stamp = decode_stamp(packet.stamp)
                block = SkippedBlock(stamp.lts, stamp.rank, packet.mask)
                seq = packet.number & ((1 << SITE_SHIFT) - 1)
                for child in pruned:
                    self._prune(child, source, seq, block)
                if is_passing:
                    self._prune(here, source, seq, block)

    def _drop(self) -> None:
        """An UNRELIABLE packet of another site does not go on from here."""
        self._counters["link_drops"] = self._counters.get("link_drops", 0) + 1

    def _prune(self, to: int, source: int, seq: int, block: SkippedBlock) -> None:
        first, blocks = self._pruned.get((to, source), (seq, []))
        if first + len(blocks) != seq or (len(blocks) >= MAX_SKIPPED and not self._has_skips(to)):
            self._send_skip(to, source, first, blocks)
            first, blocks = seq, []
        blocks.append(block)
        self._pruned[to, source] = (first, blocks)

    def _has_skips(self, to: int) -> bool:
        """Whether a SKIP still waits for the link: what is pruned meanwhile goes into the next one. The window of the
        source bounds how much that is."""
        return to != self._here and self._links[to].skips > 0

    def _send_skip(self, to: int, source: int, first: int, blocks: list[SkippedBlock]) -> None:
        for at in range(0, len(blocks), MAX_SKIPPED):
            self._send_one_skip(to, source, first + at, blocks[at : at + MAX_SKIPPED])

    def _send_one_skip(self, to: int, source: int, first: int, blocks: list[SkippedBlock]) -> None:
        skip = PrunedBlocks(source, first, tuple(blocks))
        body, number = encode_skip(skip), source << SITE_SHIFT | first
        if to == self._here:
            self._passed.append(skip)
            self.ring.queue_foreign(LinkPacket(Kind.SKIP, self._me, number, 1 << to, body))
            return
        below = self._routes.below(source, self._here, to)
        self._links[to].queue(LinkPacket(Kind.SKIP, self._me, number, below, body))
        self._touched[to] = None

    # Output

    def take_passed(self) -> list[PrunedBlocks]:
        """What the own streams of the representative are told in the place of blocks that only pass through its site;
        before `step`."""
        for to in {to for to, _ in self._pruned}:
            if not self._has_skips(to):
                self._send_skips(to)
        passed, self._passed = self._passed, []
        return passed

    def _send_skips(self, to: int) -> bool:
        """What was pruned for one link, or here; whether there was any."""
        sources = [source for site, source in self._pruned if site == to]
        for source in sources:
            self._send_skip(to, source, *self._pruned.pop((to, source)))
        return bool(sources)

    def step(self, now_ns: int, horizon: int, out: Outbox, *, keeps_token: bool = False) -> None:
        """End a pass, after `take_passed`: the token, an UPDATE, then what the links let pass."""
        ring, writer, sends = self.ring, self._writer, out.sends
        ring.set_horizon(horizon)
        self.measure()
        packets, controls = ring.step(now_ns, keeps_token=keeps_token)
        if packets:
            sends += packet_sends(To.ALL, writer.tag, writer.ring, self._here, packets)
        for control in controls:
            to = To.ALL if control.to == ALL else self._mates[control.to]
            sends.append(writer.control(to, control.kind, control.body))
        self._tell()
        due = [site for site, link in self._links.items() if site in self._touched or link.deadline_ns() <= now_ns]
        self._touched.clear()
        for site in due:
            link = self._links[site]
            moved, ack, missing = link.step(now_ns)
            if self._pruned and not link.skips and self._send_skips(site):
                more, later, _ = link.step(now_ns)
                moved, ack = moved + more, later or ack
            to = self._ends[site].address
            if moved:
                sends += packet_sends(to, writer.tag, writer.ring, self._here, moved)
            if missing:
                sends.append(writer.control(to, Kind.HOP_NAK, encode_ranges(missing)))
            if ack is not None:
                sends.append(writer.control(to, Kind.HOP_ACK, encode_hop_ack(ack)))

    def _tell(self) -> None:
        """UPDATE: what one visit of the token has shown, to all other sites. Also without any block: otherwise they
        could not go on without a word of us."""
        state = self.ring.state
        if not self._links or state == self._told:
            return
        self._told = state
        update = SiteUpdate(self._here, state.seq, state.clock, state.aru)
        number = self._here << SITE_SHIFT | state.seq
        packet = LinkPacket(Kind.UPDATE, self._me, number, self._routes.present, encode_update(update))
        for child in self._routes.children(self._here, self._here):
            self._links[child].queue(packet)
            self._touched[child] = None


def _ack_short_ns(terms: HopTerms) -> int:
    """How long an ACK waits: so long that ACKs take no more than their share of the link."""
    paced_ns = int(ACK_BYTES * SECOND / (terms.bytes_per_s * ACK_SHARE))
    return min(max(terms.ack_short_ns, paced_ns), terms.ack_long_ns)


def skipped_ranges(skip: PrunedBlocks) -> list[Skip]:
    """A SKIP of the wire as the streams take it: neighbours in one, as far as nothing is lost by it."""
    found: list[Skip] = []
    for seq, (lts, rank, mask) in enumerate(skip.blocks, skip.first):
        each = Skip(seq, seq, lts, mask, lts if rank >= SAFE_RANK else 0)
        both = joined(found[-1], each) if found else None
        if both is not None:
            found[-1] = both
        else:
            found.append(each)
    return found
