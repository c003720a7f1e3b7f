"""Daemons with the real membership over a network of virtual time: directed links that lose, delay and are cut,
crashes, restarts. The engine is a stub: a token for each site and view, blocks that reach random subsets, heartbeats.

`run(seed)` draws a whole run; the judges (`judge.py`) see only what the stubs saw, never what the membership computed
with.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from tests.components.judge import Judge, Left, Violation
from tests.components.streams import StubStreams

from ordercast.config import MS, SECOND, Timing
from ordercast.engine import Outbox
from ordercast.errors import WireError
from ordercast.membership.components.daemons import Daemon, Daemons
from ordercast.membership.components.installing import ComponentInstall
from ordercast.membership.components.membership import KINDS, ComponentsMembership
from ordercast.membership.components.taking_part import ComponentState
from ordercast.orderers.orderer import Suspicion, SuspicionReason
from ordercast.orderers.sites.stream import Held
from ordercast.service import AGREED, FIFO, SAFE
from ordercast.view import Member, View, group_tag, node_id
from ordercast.wire.cuts import Skip
from ordercast.wire.intake import Intake
from ordercast.wire.writer import DatagramWriter

NAME: Final = "wan"
TICK_NS: Final = 20 * MS  # of the stub: token, transfer, heartbeats
SUSPECT_NS: Final = 600 * MS
DATAGRAM: Final = 512
TIMING: Final = Timing(invite_ns=30 * MS, invite_tries=5, recovery_wait_ns=300 * MS, beacon_ns=200 * MS)
Key = tuple[str, int]  # a view by its id, and a site


class Token:
    """Of one site in one view."""

    def __init__(self, holder: int, clock: int) -> None:
        self.holder, self.seq, self.clock = holder, 0, clock
        self.reports: dict[int, int] = {}


class Node:
    """One life of a daemon."""

    def __init__(self, world: World, index: int, life: int) -> None:
        daemon = world.configured[index]
        self.world, self.index, self.life, self.site = world, index, life, daemon.site
        self.member = Member(node_id(daemon.name, life), daemon.name, life, daemon.address, has_multicast=False)
        self.tag = group_tag(NAME)
        self.writer = DatagramWriter(self.tag, self.member.id, DATAGRAM)
        self.wire_counters: dict[str, int] = {}
        self.intake = Intake(self.tag, self.wire_counters)
        self.rng = random.Random(f"{world.seed} {daemon.name} {life}")
        self.membership = ComponentsMembership(
            NAME, self.member, Daemons(world.configured), self.writer, TIMING, self.rng, world.now_ns
        )
        self.is_alive = True
        self.view: View | None = None
        self.streams = StubStreams(self.site, (self.site,), 1, True)
        self.wake_ns = -1
        out = Outbox()
        self.membership.start(world.now_ns, out)
        self.finish(out)

    def __str__(self) -> str:
        return str(self.member)

    @property
    def is_working(self) -> bool:
        return self.is_alive and self.membership.state is ComponentState.WORKING

    def is_in(self, view: View) -> bool:
        return self.view is not None and self.view.id == view.id

    # Inputs

    def receive(self, data: bytes, stride: int) -> None:
        if not self.is_alive:
            return
        out = Outbox()
        now_ns = self.world.now_ns
        for datagram in self.intake.read(now_ns, memoryview(data), stride):
            if datagram.kind not in KINDS:
                continue
            try:
                self.membership.on_control(now_ns, datagram.kind, datagram.ring, datagram.origin, datagram.body, out)
            except WireError:
                self.world.malformed += 1
            self.finish(out)
        self.wake()

    def expire(self) -> None:
        if self.is_alive and self.membership.deadline_ns() <= self.world.now_ns:
            out = Outbox()
            self.membership.expire(self.world.now_ns, out)
            self.finish(out)
        self.wake_ns = -1
        self.wake()

    def suspect(self, ids: list[int]) -> None:
        out = Outbox()
        suspicions = [Suspicion(each, SuspicionReason.SILENCE) for each in ids]
        self.membership.on_suspects(self.world.now_ns, suspicions, out)
        self.finish(out)
        self.wake()

    def heartbeat(self, ring: int, origin: int) -> None:
        if not self.is_alive or self.view is None:
            return
        if ring == self.view.ring:
            self.streams.heard_ns[origin] = self.world.now_ns
        else:
            out = Outbox()
            self.membership.on_stranger(self.world.now_ns, ring, origin, out)
            self.finish(out)

    def wake(self) -> None:
        due_ns = max(self.membership.deadline_ns(), self.world.now_ns + 1)
        if self.is_alive and (self.wake_ns < 0 or due_ns < self.wake_ns):
            self.wake_ns = due_ns
            self.world.at(due_ns, self.expire)

    def finish(self, out: Outbox) -> None:
        """Transitions first, then datagrams leave."""
        self.world.judge.saw(self)
        if self.membership.state is self.world.trap:
            self.world.trap = None
            self.world.spring()
        install = self.membership.take()
        while install is not None:
            self._install(install, out)
            install = self.membership.take()
        for note in out.notes:
            self.world.log.append((self.world.now_ns, str(self), note.detail))
        for send in out.sends:
            self.world.send(self.index, send.to, b"".join(map(bytes, send.buffers)), send.stride)
        out.sends.clear()
        out.notes.clear()

    def _install(self, install: ComponentInstall, out: Outbox) -> None:
        world, old, streams = self.world, self.view, self.streams
        was_synced = True
        if install.result is not None and old is not None:
            remainder = install.result.remainder
            streams.deliver(streams.horizon.settle(remainder.before))
            streams.deliver(streams.horizon.settle(remainder.after), True)
            was_synced = streams.is_synced or world.is_class_synced(old, install.came_from[0].members)
            world.judge.left(self, Left(old, install, streams, was_synced))
        sites = sorted({world.site_of(member) for member in install.view.members})
        self.view = install.view
        self.streams = StubStreams(self.site, sites, install.first_lts, len(install.roster_groups) == 1)
        self.streams.heard_ns = dict.fromkeys([member.id for member in install.view.members], world.now_ns)
        for site in sites:
            holder = next(member.id for member in install.view.members if world.site_of(member) == site)
            world.tokens.setdefault((install.view.id, site), Token(holder, install.first_lts))
        world.judge.installed(self, install)
        self.membership.installed(world.now_ns, self.streams, was_synced, out)


class World:
    def __init__(self, seed: int, sites: list[int]) -> None:
        self.seed, self.rng = seed, random.Random(f"world {seed}")
        self.configured = [Daemon(f"d{i}", site, (f"10.0.{site}.{i + 1}", 4_803)) for i, site in enumerate(sites)]
        self.addresses = {daemon.address: index for index, daemon in enumerate(self.configured)}
        self.now_ns = 0
        self._heap: list[tuple[int, int, object]] = []
        self._serial = 0
        self.cuts: set[tuple[int, int]] = set()  # (from, to)
        self.loss = 0.0
        self.deaf: set[tuple[int, int]] = set()  # (from, to): heartbeats are lost, and nothing else
        self.trap: ComponentState | None = None  # when a daemon gets into this state, a fault happens
        self.large_loss = 0.0  # of datagrams of a train: what a path with a small MTU does
        self.late = 0.0  # how many come late, and how many twice
        self.delay_ns = (100_000, 3 * MS)
        self.is_busy = True  # blocks are stamped
        self.tokens: dict[Key, Token] = {}
        self.malformed = 0
        self.sent = 0
        self.tap: list[bytes] | None = None  # every datagram that is sent
        self.at_datagram: dict[int, Callable[[], bool]] = {}  # what happens when it is sent; True: it is lost
        self.log: list[tuple[int, str, str]] = []
        self.judge = Judge()
        self.by_id: dict[int, Node] = {}
        self.nodes: list[Node] = []
        for index in range(len(sites)):
            self.nodes.append(self._begin(index, 0))
        self.at(TICK_NS, self._tick)

    # Time

    def at(self, at_ns: int, call: object) -> None:
        self._serial += 1
        heappush(self._heap, (at_ns, self._serial, call))

    def run_until(self, at_ns: int) -> None:
        while self._heap and self._heap[0][0] <= at_ns:
            self.now_ns, _, call = heappop(self._heap)
            call()  # type: ignore[operator]
        self.now_ns = at_ns

    def run_for(self, for_ns: int) -> None:
        self.run_until(self.now_ns + for_ns)

    # Faults

    def _begin(self, index: int, life: int) -> Node:
        node = Node(self, index, life)
        self.by_id[node.member.id] = node
        node.wake()
        return node

    def crash(self, index: int) -> None:
        self.nodes[index].is_alive = False

    def restart(self, index: int) -> None:
        self.crash(index)
        self.nodes[index] = self._begin(index, self.nodes[index].life + 1)

    def partition(self, *parts: list[int]) -> None:
        side = {index: place for place, part in enumerate(parts) for index in part}
        everyone = range(len(self.nodes))
        self.cuts |= {(a, b) for a in everyone for b in everyone if side.get(a, -1) != side.get(b, -1)}

    def heal(self) -> None:
        self.cuts.clear()
        self.deaf.clear()

    def spring(self) -> None:
        """A fault in the middle of a round."""
        everyone = list(range(len(self.nodes)))
        if self.rng.random() < 0.3:
            self.crash(self.rng.choice(everyone))
        else:
            part = [each for each in everyone if self.rng.random() < 0.5]
            self.partition(part, [each for each in everyone if each not in part])
            if self.rng.random() < 0.5:
                self.at(self.now_ns + self.rng.randint(1, 400) * MS, self.heal)

    # The network

    def send(self, source: int, to: tuple[str, int], data: bytes, stride: int) -> None:
        target = self.addresses[to]
        if target == source:
            raise Violation(f"d{source} sends to itself")
        step = stride or len(data)
        for at in range(0, len(data), step):
            self.sent += 1
            if self.tap is not None:
                self.tap.append(data[at : at + step])
            event = self.at_datagram.pop(self.sent, None)
            if event is not None and event():
                continue
            lost = self.large_loss if stride else 0.0
            if (source, target) in self.cuts or self.rng.random() < max(self.loss, lost):
                continue
            piece = data[at : at + step]
            for _ in range(2 if self.rng.random() < self.late else 1):  # what is late may come twice
                delay_ns = self.rng.randint(*self.delay_ns)
                if self.rng.random() < self.late:
                    delay_ns *= self.rng.choice((10, 100, 500))
                self.at(self.now_ns + delay_ns, lambda piece=piece: self._arrive(target, piece))

    def _arrive(self, target: int, piece: bytes) -> None:
        self.nodes[target].receive(piece, len(piece))

    def hears(self, source: Node, target: Node) -> bool:
        return source.is_alive and target.is_alive and (source.index, target.index) not in self.cuts

    # The engine's stub

    def site_of(self, member: Member) -> int:
        return self.configured[int(member.name[1:])].site

    def is_class_synced(self, old: View, members: tuple[int, ...]) -> bool:
        return any(self.judge.was_synced.get((old.id, member), False) for member in members)

    def _tick(self) -> None:
        """Tokens, transfers, heartbeats, suspicions."""
        self.at(self.now_ns + TICK_NS, self._tick)
        rng = self.rng
        live = [node for node in self.nodes if node.is_alive]
        for node in live:
            view = node.view
            if view is None:
                continue
            for member in view.members:
                other = self.nodes[int(member.name[1:])]
                if other is node or (node.index, other.index) in self.cuts or not other.is_alive:
                    continue
                if rng.random() >= self.loss and (node.index, other.index) not in self.deaf:
                    other.heartbeat(view.ring, node.member.id)
        for node in live:
            if node.is_working and node.view is not None:
                self._work(node, node.view)
        for node in live:
            if node.is_working and node.view is not None:
                silent = [
                    each.id
                    for each in node.view.members
                    if each.id != node.member.id and self.now_ns - node.streams.heard_ns[each.id] > SUSPECT_NS
                ]
                if silent:
                    node.suspect(silent)

    def _work(self, node: Node, view: View) -> None:
        rng, streams = self.rng, node.streams
        horizon = streams.horizon
        token = self.tokens[view.id, node.site]
        if token.holder == node.member.id:
            horizon.raise_clock(token.clock)
            token.clock = horizon.clock
            for _ in range(rng.choice((0, 0, 1, 2)) if self.is_busy else 0):
                if horizon.room(token.seq):
                    self._stamp(node, token)
            token.reports[node.member.id] = horizon.report
            peers = [each.id for each in view.members if self.site_of(each) == node.site]
            aru = min([token.reports.get(peer, 0) for peer in peers])
            horizon.update(node.site, token.seq, token.clock, aru)
            following = self.by_id[peers[(peers.index(node.member.id) + 1) % len(peers)]]
            if self.hears(node, following) and following.is_working and following.is_in(view):
                token.holder = following.member.id
        others = [
            each
            for each in self.nodes
            if each is not node and each.is_working and each.view is not None and each.view.id == view.id
        ]
        for other in others:
            if self.hears(other, node) and rng.random() < 0.6:
                self._transfer(other, node)
        streams.deliver(horizon.take(rng.choice((1, 4, 64))))
        if rng.random() < 0.3:
            horizon.release()
        if not streams.is_synced and rng.random() < 0.03:
            streams.is_synced = True
        self.judge.note_synced(node)

    def _stamp(self, node: Node, token: Token) -> None:
        rng, horizon = self.rng, node.streams.horizon
        token.seq += 1
        horizon.clock += 1
        token.clock = horizon.clock
        mask = 1 << node.site
        for site in horizon.sites:
            if rng.random() < 0.7:
                mask |= 1 << site
        rank = rng.choice((AGREED, AGREED, SAFE, FIFO)).rank
        data = bytes(rng.choice((10, 10, 10, 2_000)))
        horizon.add(Held(node.site, token.seq, horizon.clock, rank, node.member.id, mask, data))
        node.streams.stamped.append((node.site, token.seq))

    def _transfer(self, source: Node, target: Node) -> None:
        """Some of what one has of the streams gets to the other, in any order."""
        rng, mine, yours = self.rng, target.streams.horizon, source.streams.horizon
        for site in mine.sites:
            if rng.random() < 0.4:
                continue
            theirs, ours = yours.streams[site], mine.streams[site]
            for seq, block in list(theirs.held.items()):
                if not ours.has(seq) and rng.random() < 0.8:
                    if block.mask >> target.site & 1:
                        mine.add(Held(site, seq, block.lts, block.rank, block.origin, block.mask, block.data))
                    else:
                        safe = block.lts if block.rank == SAFE.rank else 0
                        mine.skip(site, Skip(seq, seq, block.lts, block.mask, safe))
            for skip in theirs.cut().skips:
                if rng.random() < 0.8:
                    mine.skip(site, skip)
            if rng.random() < 0.7:
                mine.update(site, theirs.prefix, theirs.clock, yours.aru(site))

    # Coming to rest

    def is_one(self) -> bool:
        """Whether all live daemons work in one view, and nobody else is in it."""
        live = [node for node in self.nodes if node.is_alive]
        ids = sorted(node.member.id for node in live)
        return all(
            node.is_working and node.view is not None and sorted(each.id for each in node.view.members) == ids
            for node in live
        )

    def until_one(self, within_ns: int) -> int:
        """How long it takes until there is one component. Violation: it takes longer than this."""
        begin_ns = self.now_ns
        while not self.is_one():
            if self.now_ns - begin_ns > within_ns:
                states = [(str(node), node.membership.state.name, node.view and node.view.id) for node in self.nodes]
                raise Violation(f"no single component after {within_ns / SECOND} s: {states}")
            self.run_for(TICK_NS)
        return self.now_ns - begin_ns
