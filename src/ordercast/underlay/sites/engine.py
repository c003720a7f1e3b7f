"""The engine of `sites`: one view after the other, each with its network and its streams (docs/design/sites.md).

Datagrams of the present view go to its network layer, what that hands on to the streams, and what these may deliver up.
The membership (`membership/components`) takes the daemon from view to view. Blocks are taken from the application only
while this daemon has the token of its site: each is stamped at once, and none waits here for the next view.
"""

# ruff: noqa: ARG002 - an engine has every input of the contract, and this one needs not all that they bring

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ordercast.config import (
    MAX_BLOCK,
    MAX_PRIORITY,
    AlonePolicy,
    Demands,
    GroupConfig,
    MinMembers,
    RecoveryMode,
    Timing,
)
from ordercast.engine import NEVER, Departed, Joined, Note, Outbox, Run, Transitional, Waiting
from ordercast.errors import UsageError, WireError
from ordercast.membership.components.daemons import Daemon, Daemons
from ordercast.membership.components.installing import ComponentInstall
from ordercast.membership.components.membership import KINDS, ComponentsMembership
from ordercast.orderers.orderer import Suspicion, SuspicionReason
from ordercast.orderers.sites.brake import Brake
from ordercast.orderers.sites.interests import DeclaredInterests, Interests, group_key
from ordercast.parts.probing import Probing
from ordercast.service import AGREED_RANK, MAJORITY_RANK, RELIABLE_RANK, RESILIENT_RANK, UNRELIABLE_RANK, Service
from ordercast.sites import SitesConfig
from ordercast.underlay.checks import check_header
from ordercast.underlay.sites.blocking import held_up
from ordercast.underlay.sites.network import SiteNetwork, Wiring
from ordercast.underlay.sites.streams import INTEREST_KEYS, INTEREST_NUMBER, ViewStreams, encode_interest
from ordercast.underlay.sites.watching import FAREWELL, SiteWatch
from ordercast.view import Address, Member, View, group_tag
from ordercast.wire.block import FRAGMENTED, ROSTER, groups_of, head_of
from ordercast.wire.cuts import Due
from ordercast.wire.header import Kind
from ordercast.wire.intake import Intake
from ordercast.wire.segments import Datagram
from ordercast.wire.sites import PACKET_OVERHEAD, SITE_SHIFT, STAMP_BYTES, BlockStamp, cut_block
from ordercast.wire.writer import DatagramWriter

MIN_ROOM: Final = 16_384  # bytes; while own blocks are not stable, the token is not asked for less
MAX_BACKLOG: Final = 16_384  # packets that wait at one link before this site stamps nothing more

INSTEAD: Final = "sites has neither locks nor calls from outside: use a group with orderer='token' for them"


def sites_engines(sites: SitesConfig, fingerprint: int | None = None) -> SitesFactory:
    """What makes engines of `sites` for the daemons of one configuration. `fingerprint`: of the configuration as it was
    written, where hosts were looked up since; two machines may find different addresses for one name."""
    return SitesFactory(sites, sites.fingerprint() if fingerprint is None else fingerprint)


class SitesFactory:
    """Makes a `SitesEngine`; to be given to a `Host`."""

    __slots__ = ("_fingerprint", "_sites")

    def __init__(self, sites: SitesConfig, fingerprint: int) -> None:
        self._sites = sites
        self._fingerprint = fingerprint

    def __call__(
        self,
        name: str,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        rng: random.Random,
        /,
        *,
        create: bool | None = None,
        min_members: MinMembers = "majority",
        recovery: RecoveryMode = "automatic",
        demands: Demands = Demands(),  # noqa: B008 - frozen
        header: bytes = b"",
        next_block: int = 0,
        contact: Address | None = None,
        alone: AlonePolicy = "create",
    ) -> SitesEngine:
        return SitesEngine(name, me, config, timing, rng, self._sites, next_block, self._fingerprint)


class SitesEngine:
    __slots__ = (
        "_brake",
        "_consumed",
        "_daemons",
        "_declared",
        "_here",
        "_intake",
        "_is_closed",
        "_membership",
        "_network",
        "_next_block",
        "_rng",
        "_sites",
        "_streams",
        "_ticket",
        "_timing",
        "_unreliable",
        "_watch",
        "_wiring",
        "_writer",
        "config",
        "counters",
        "interests",
        "me",
        "name",
        "view",
    )

    def __init__(
        self,
        name: str,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        rng: random.Random,
        sites: SitesConfig,
        next_block: int = 0,
        fingerprint: int = 0,
    ) -> None:
        self.name = name
        self.me = me
        self.config = config
        self.counters: dict[str, int] = {}
        self.view: View | None = None
        self.interests = Interests()
        self._timing = timing
        self._rng = rng
        self._sites = sites
        self._here = sites.site_of(me.name).index
        self._daemons = Daemons(
            [Daemon(each.name, sites.site(each.site).index, each.address) for each in sites.daemons], fingerprint
        )
        self._writer = DatagramWriter(group_tag(name), me.id, config.datagram)
        self._intake = Intake(self._writer.tag, self.counters)
        self._wiring = Wiring(sites, self.counters)
        self._watch = SiteWatch(timing, self._writer, Probing(self._writer, timing, rng, self.counters))
        self._membership: ComponentsMembership | None = None
        self._network: SiteNetwork | None = None
        self._streams: ViewStreams | None = None
        # Sending
        self._next_block = next_block
        self._unreliable = 0  # number of the next UNRELIABLE block
        self._brake = Brake()
        self._declared = DeclaredInterests()  # of the present view
        # Delivering
        self._ticket = 1
        self._consumed = 0
        # Life
        self._is_closed = False

    # The application

    def start(self, now_ns: int, out: Outbox) -> None:
        self._writer.begin(now_ns)
        self._membership = membership = ComponentsMembership(
            self.name, self.me, self._daemons, self._writer, self._timing, self._rng, now_ns
        )
        membership.start(now_ns, out)
        self._follow(now_ns, out)

    def supports(self, service: Service) -> bool:
        return service.rank not in (RESILIENT_RANK, MAJORITY_RANK)

    @property
    def gives_locks(self) -> bool:
        return False

    @property
    def interest(self) -> SitesEngine:
        return self

    @property
    def far_daemons(self) -> dict[Address, str]:
        return self._sites.far_daemons(self._sites.sites[self._here].name)

    def room(self, now_ns: int) -> tuple[int, int]:
        network, streams = self._network, self._streams
        if network is None or streams is None or not self.is_working:
            return 0, 0
        ring = network.ring
        blocks = streams.horizon.room(ring.site_seq)
        unstable = self.config.history_bytes - streams.own_bytes
        is_full = unstable <= 0 or (streams.own_bytes > 0 and unstable < min(MIN_ROOM, self.config.history_bytes // 4))
        is_stuck = blocks <= 0 or is_full or self._is_behind
        if not ring.is_holding:
            # A token with nothing to stamp would go around as fast as it can, for as long as a slow site is waited for.
            if not is_stuck and self._brake.hold.is_over(now_ns):
                ring.want()
            return 0, 0
        if is_stuck or network.backlog >= MAX_BACKLOG:
            return 0, 0
        step = self.config.datagram - PACKET_OVERHEAD
        burst = min(self._brake.burst(now_ns, network.burst_bytes), ring.share * step)
        # No visit has room for more than its share: blocks that are larger would wait for it for good.
        largest = min(MAX_BLOCK, 256 * step - STAMP_BYTES, burst)
        if network.is_wide:
            largest = min(largest, network.wide_bytes)
        return min(ring.room * step, unstable, burst - ring.queued_bytes), largest

    def after(self) -> int:
        return 0

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        """Stamp and send, in order, as far as the token is here. Hot: once for each block."""
        network, streams = self._network, self._streams
        if network is None or streams is None or not self.is_working or not network.ring.is_holding:
            return 0
        self._stamp_interests(out)
        network.measure()
        ring, taken = network.ring, 0
        urgency, elsewhere = ring.urgency, self._wiring.routes.present & ~(1 << self._here)
        here, me, datagram = self._here, self.me.id, self.config.datagram
        brake = self._brake
        is_braking = brake.is_on(now_ns)
        for block in blocks:
            head = head_of(block)
            if taken and (ring.room <= 0 or streams.horizon.room(ring.site_seq) <= 0):
                break
            if head.flags & ROSTER:
                mask = self._wiring.routes.present
            else:
                groups = groups_of(block, head)
                numbers = (groups,) if isinstance(groups, int) else groups
                mask = (self.interests.mask(numbers) & self._wiring.routes.present) | 1 << here
            priority = min(head.k, MAX_PRIORITY)
            network.is_wide = mask & elsewhere > 0
            if priority:
                brake.hear(now_ns)
            elif is_braking and not head.flags & ROSTER:
                break
            if network.is_wide and not head.flags & ROSTER:
                if not urgency.may_stamp(priority):
                    self._brake.hold.wait(now_ns, priority)
                    if not priority:
                        urgency.hold()
                    break
                urgency.stamped(priority, len(block))
                self._brake.hold.end()
            is_whole = not head.flags & FRAGMENTED  # a large message needs all of its fragments
            if head.rank == UNRELIABLE_RANK and is_whole:
                self._unreliable += 1
                stamp = BlockStamp(here, head.rank, 1, self._unreliable, mask, streams.roster_lts)
                prefix = streams.enter_unreliable(me, stamp, block, head, out)
                number, is_reliable = here << SITE_SHIFT | self._unreliable, False
            else:
                ring.hear_clock(streams.horizon.clock)
                seq, lts = ring.stamp()
                stamp = BlockStamp(here, max(head.rank, RELIABLE_RANK), lts, self._next_block, mask, streams.roster_lts)
                self._next_block += 1
                prefix = streams.enter_own(me, seq, stamp, block, head, out)
                number, is_reliable = here << SITE_SHIFT | seq, True
            network.send_own(cut_block(me, number, mask, prefix, block, datagram, priority, is_reliable))
            brake.stamped(now_ns, len(block))
            taken += 1
        return taken

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        self._consumed = max(self._consumed, seq)
        if self._streams is not None:
            self._streams.is_behind = self._is_behind

    @property
    def _is_behind(self) -> bool:
        """Whether the application has not taken what is delivered."""
        return self._ticket - 1 - self._consumed >= self.config.history_blocks

    def waits_for_application(self) -> bool:
        return self._is_behind

    def leave(self, now_ns: int, header: bytes, out: Outbox) -> None:
        check_header(header)
        if self._is_closed:
            return
        if self._network is not None and self.view is not None:
            for member in self.view.members:
                if member.id != self.me.id:
                    out.sends.append(self._writer.control(member.address, Kind.SYNC, FAREWELL))
        self._is_closed = True
        self.view = None
        out.upcalls.append(Departed(True, False, "left"))

    def expel(self, now_ns: int, member: int, why: str, out: Outbox) -> None:
        raise UsageError("nobody is expelled from an underlay of sites: stop the daemon instead")

    def resume(self, now_ns: int, out: Outbox) -> None:
        pass

    def reset(self, now_ns: int, min_members: MinMembers, header: bytes, out: Outbox) -> None:
        raise UsageError("components of sites go on by themselves: there is nothing to reset")

    def lock(self, now_ns: int, lock: str, out: Outbox) -> None:
        raise UsageError(INSTEAD)

    def unlock(self, now_ns: int, lock: str, out: Outbox) -> None:
        raise UsageError(INSTEAD)

    def wait_for_others(self, is_waiting: bool) -> None:
        pass

    def answers(self, origin: int, number: int) -> bool:
        return False

    def reply(self, to: Address, number: int, body: bytes, out: Outbox) -> None:
        raise UsageError(INSTEAD)

    def carry(self) -> object:
        return None

    def inherit(self, memory: object) -> None:
        pass

    def durable(self) -> bytes | None:
        return None

    def restore(self, entry: bytes) -> None:
        pass

    # Interest

    def declare(self, names: Sequence[str]) -> None:
        self._declared.want(names)
        if self._declared.is_waiting and self._network is not None:
            self._network.ring.want()

    def is_stable(self, name: str) -> bool:
        lts = self._declared.lts_of(name)
        return lts is not None and self._streams is not None and lts <= self._streams.horizon.stable

    def hurry(self, priority: int) -> None:
        self._brake.hold.hurry(priority)

    def lag(self, is_behind: bool) -> None:
        self._brake.is_behind = is_behind

    def _stamp_interests(self, out: Outbox) -> None:
        network, streams = self._network, self._streams
        if network is None or streams is None or not self._declared.is_waiting:
            return
        ring, here, me = network.ring, self._here, self.me.id
        everyone = self._wiring.routes.present
        while self._declared.is_waiting and streams.horizon.room(ring.site_seq) > 0:
            names = self._declared.take(INTEREST_KEYS)
            ring.hear_clock(streams.horizon.clock)
            seq, lts = ring.stamp()
            stamp = BlockStamp(here, AGREED_RANK, lts, INTEREST_NUMBER, everyone)
            block = encode_interest([group_key(name) for name in names])
            prefix = streams.enter_own(me, seq, stamp, block, None, out)
            network.send_own(cut_block(me, here << SITE_SHIFT | seq, everyone, prefix, block, self.config.datagram))
            self._declared.stamped(names, lts)

    # The pass

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        if self._is_closed:
            return
        for datagram in self._intake.read(now_ns, data, stride):
            try:
                self._on_datagram(now_ns, datagram, out)
            except WireError:
                self._intake.reject()

    def _on_datagram(self, now_ns: int, datagram: Datagram, out: Outbox) -> None:
        membership, network, streams = self._membership, self._network, self._streams
        kind, ring, origin = datagram.kind, datagram.ring, datagram.origin
        if membership is None or network is None or streams is None or (origin == self.me.id and kind in KINDS):
            return
        if kind in KINDS:
            self._watch.heard(origin, now_ns)
            membership.on_control(now_ns, kind, ring, origin, datagram.body, out)
            self.counters["strange_sites"] = membership.tally["strangers"]
            self._follow(now_ns, out)
        elif ring != self._writer.ring:
            membership.on_stranger(now_ns, ring, origin, out)
            self._follow(now_ns, out)
        elif kind == Kind.SYNC:
            body = bytes(datagram.body)
            self._watch.beaten(origin, now_ns, body)
            if body == FAREWELL:
                membership.on_suspects(now_ns, [Suspicion(origin, SuspicionReason.SILENCE)], out)
                self._follow(now_ns, out)
        elif kind == Kind.PROBE:
            pass  # by another port than everything else: its process lives, and no more is known of the way
        elif membership.is_working:
            self._watch.detector.heard(origin, now_ns)
            packet = network.receive(now_ns, datagram)
            if packet is not None:
                if packet.priority:
                    self._brake.hear(now_ns)
                streams.take(now_ns, packet, out)
                network.ring.hear_clock(streams.horizon.clock)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None:
        membership = self._membership
        if self._is_closed or membership is None:
            return
        gone = self._watch.unreachable(now_ns, address, quoted, out)
        if gone:
            membership.on_suspects(now_ns, gone, out)
            self._follow(now_ns, out)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        network, streams, membership = self._network, self._streams, self._membership
        if self._is_closed or network is None or streams is None or membership is None:
            return
        if not membership.is_working:
            out.notes += streams.take_notes()
            return
        ring, horizon = network.ring, streams.horizon
        keeps_token = False
        if ring.is_holding:
            self._stamp_interests(out)
            keeps_token = self._brake.keeps_token(now_ns, ring.is_alone)
        else:
            self._brake.passed()
        for skip in network.take_passed():
            streams.skip(skip)
        ring.hear_clock(horizon.clock)
        horizon.update(self._here, *ring.state)
        network.step(now_ns, horizon.report, out, keeps_token=keeps_token)
        horizon.update(self._here, *ring.state)
        self._deliver(streams, out)
        streams.release()
        failure = network.failure
        if failure is not None:
            membership.on_failure(now_ns, failure.reason, failure.members, out)
            self._follow(now_ns, out)
        self._watch.work(not self._is_quiet, now_ns)

    def _deliver(self, streams: ViewStreams, out: Outbox) -> None:
        found = streams.deliveries(self._ticket, not self._is_behind)
        if found:
            self._ticket += len(found)
            out.upcalls.append(Run(found))
        streams.is_behind = self._is_behind
        if streams.dropped:
            self.counters["overrun_drops"] = self.counters.get("overrun_drops", 0) + streams.dropped
            streams.dropped = 0

    def expire(self, now_ns: int, out: Outbox) -> None:
        membership, network = self._membership, self._network
        if self._is_closed or membership is None or network is None:
            return
        self._brake.expire(now_ns)
        self._intake.expire(now_ns)
        if self._streams is not None:
            self._streams.loose.expire(now_ns)
        membership.expire(now_ns, out)
        self._follow(now_ns, out)
        if membership.is_working:
            suspicions = self._watch.silent(now_ns)
            if suspicions:
                membership.on_suspects(now_ns, suspicions, out)
                self._follow(now_ns, out)
        if membership.is_working and self.view is not None:
            self._watch.probe(now_ns, self.view, out)
        network = self._network or network
        self._watch.beat(now_ns, bool(network.mates), network.ends, out)

    def deadline_ns(self) -> int:
        network, membership = self._network, self._membership
        if self._is_closed or network is None or membership is None:
            return NEVER
        due_ns = min(membership.deadline_ns(), self._intake.due_ns, self._brake.deadline_ns())
        if self._streams is not None:
            due_ns = min(due_ns, self._streams.loose.due_ns)
        if membership.is_working:
            due_ns = min(due_ns, network.deadline_ns())
        return min(due_ns, self._watch.deadline_ns(membership.is_working))

    # Views

    def _follow(self, now_ns: int, out: Outbox) -> None:
        """Carry out what the membership has decided."""
        membership = self._membership
        install = membership.take() if membership is not None else None
        while install is not None and membership is not None:
            self._install(now_ns, membership, install, out)
            install = membership.take()

    def _install(self, now_ns: int, membership: ComponentsMembership, install: ComponentInstall, out: Outbox) -> None:
        streams, former = self._streams, self.view
        was_synced = True
        if install.result is not None and streams is not None and former is not None:
            out.notes += streams.take_notes()
            before, after = install.result.remainder
            self._settle(streams, before, out)
            out.upcalls.append(Transitional(former.id, came_with=install.view.came_with))
            self._settle(streams, after, out)
            was_synced = streams.progress.is_complete
        places = {member.id: self._sites.site_of(member.name).index for member in install.view.members}
        components = tuple(
            [tuple([str(each) for each in self._named(old.members, install.view)]) for old in install.came_from]
        )
        # Every part of a view goes on: what is delivered after the signal is held by a part only, and is not confirmed.
        view = replace(
            install.view,
            members=tuple([replace(member, min_members=1) for member in install.view.members]),
            rosters=install.roster_groups,
            components=components if len(components) > 1 else (),
        )
        out.notes += [Note("name", member.id, detail=str(member)) for member in view.members]
        if former is None:
            out.upcalls.append(Joined())
        self.view = view
        out.upcalls.append(view)
        self.interests.place(places)
        self._writer.ring = view.ring
        self._declared = DeclaredInterests()
        self._brake.hold.end()
        self._streams = streams = ViewStreams(
            self.me.id, self._here, places, install.first_lts, self.interests, install.roster_groups
        )
        streams.is_behind = self._is_behind
        self._network = SiteNetwork(
            self._wiring,
            self._here,
            self.me,
            view,
            places,
            install.first_lts,
            self._writer,
            self._timing,
        )
        self.counters["routes_computed"] = self._wiring.routes.computed
        self.counters["links_opened"] = self._wiring.opened
        self._watch = SiteWatch(self._timing, self._writer, self._watch.probing, now_ns, self._network.neighbours)
        membership.installed(now_ns, streams, was_synced, out)

    def _named(self, ids: Sequence[int], view: View) -> tuple[str, ...]:
        return tuple([str(member) for member in view.members if member.id in ids])

    def _settle(self, streams: ViewStreams, dues: Sequence[Due], out: Outbox) -> None:
        found = streams.settle(dues, self._ticket)
        if found:
            self._ticket += len(found)
            out.upcalls.append(Run(found))

    # Questions

    @property
    def is_working(self) -> bool:
        return not self._is_closed and self._membership is not None and self._membership.is_working

    def short_of(self) -> tuple[int, int] | None:
        return None

    @property
    def _is_quiet(self) -> bool:
        network, streams = self._network, self._streams
        return network is not None and streams is not None and network.is_at_rest and streams.is_at_rest

    def is_at_rest(self) -> bool:
        if self._is_closed:
            return True
        return self.is_working and self._is_quiet and not self._declared.is_waiting and self._intake.is_empty

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_ordering(self) -> bool:
        return self._network is not None and self._network.ring.is_holding

    def waiting(self, now_ns: int) -> Waiting | None:
        membership, network, streams, view = self._membership, self._network, self._streams, self.view
        if membership is None or network is None or streams is None or view is None or not membership.is_working:
            return membership.waiting() if membership is not None else None
        waits_for_links = self._brake.hold.deadline_ns() < NEVER
        return held_up(self.me, view, network, streams, is_behind=self._is_behind, waits_for_links=waits_for_links)

    def audience(self) -> list[Address]:
        return self._network.mates if self._network is not None else []

    def copies(self) -> list[Address]:
        return []

    @property
    def ttl(self) -> int:
        return self.me.ttl

    def describe(self) -> str:
        """One line for people: where this engine is."""
        view = self.view.id if self.view is not None else "no view"
        state = self._membership.state.name if self._membership is not None else "not started"
        return f"{view}, {state.lower()}"
