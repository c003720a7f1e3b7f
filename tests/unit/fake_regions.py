"""Regions without a protocol: a membership service in one object, and engines that send blocks once to each member.

For tests of what stands above an engine of regions. Nothing is lost on the way, so nothing is repaired; what a test
wants to go wrong it does itself (`lose`, `hold_acks`, `rooms`, `exclude`).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from struct import Struct

from ordercast.config import REGIONS_UNDERLAY, GroupConfig, Timing
from ordercast.engine import NEVER, Delivery, Departed, Joined, Note, Outbox, Send, Waiting
from ordercast.membership.given import Attending
from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.orderers.regions.upcalls import BlocksLost, Installed, LaneAcked, LaneRun, RegionUpcall
from ordercast.service import FIFO_RANK, UNRELIABLE_RANK, Service
from ordercast.view import Address, Member, group_tag
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind

TAG = group_tag(REGIONS_UNDERLAY)
BODY = Struct("<BI")  # what it is, region
DATA, ACK = 1, 2
POLL_NS = 1_000_000
LARGEST = 60_000


class FakeTable:
    """Names, numbers and regions, as of one epoch for the regions."""

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self.covered: dict[int, tuple[int, ...]] = {}
        self.known = 0  # numbers up to this one

    def number(self, name: str) -> int:
        found = self._service.numbers.get(name, 0)
        return found if found <= self.known else 0

    def name(self, number: int) -> str:
        return self._service.names[number] if 0 < number <= self.known else ""

    def regions(self, number: int) -> tuple[int, ...]:
        return self.covered.get(number, ())


class FakeService:
    """Decides at once. Nodes with the same groups are a region."""

    def __init__(self) -> None:
        self.id = 1
        self.epoch = 0
        self.numbers: dict[str, int] = {}
        self.names: list[str] = [""]
        self.wants: dict[FakeRegions, dict[str, None]] = {}
        self.views: dict[int, GivenView] = {}
        self.by_name: dict[int, GivenView] = {}  # all that there ever were
        self.covered: dict[int, tuple[int, ...]] = {}
        self._regions: dict[frozenset[str], int] = {}
        self._gone: list[int] = []  # nodes that the next epoch excludes
        self.is_held = False  # requests wait
        self.is_silent = False  # nobody finds it
        self.waiting: list[tuple[FakeRegions, str, list[str]]] = []
        self.members: dict[int, str] = {}  # all that there ever were, by their ids
        self.made: list[FakeRegions] = []  # engines, in the order of making

    def engines(self, me: Member, config: GroupConfig, _timing: Timing, _rng: Random, /) -> FakeRegions:
        engine = FakeRegions(self, me, config)
        self.members[me.id] = str(me)
        self.made.append(engine)
        return engine

    def ask(self, engine: FakeRegions, what: str, names: Sequence[str]) -> None:
        self.waiting.append((engine, what, list(names)))
        if not self.is_held:
            self.answer()

    def answer(self) -> None:
        """Carry out what was asked, as one epoch."""
        waiting, self.waiting = self.waiting, []
        for engine, what, names in waiting:
            wants = self.wants.setdefault(engine, {})
            if what == "depart":
                del self.wants[engine]
                self._gone.append(engine.me.id)
            elif what == "leave":
                for name in names:
                    wants.pop(name, None)
            else:
                for name in sorted(names):
                    if name not in self.numbers:
                        self.numbers[name] = len(self.names)
                        self.names.append(name)
                if what == "join":
                    wants.update(dict.fromkeys(names))
        self._decide()

    def exclude(self, engine: FakeRegions) -> None:
        """The service takes a node for dead, and tells it so."""
        del self.wants[engine]
        self._gone.append(engine.me.id)
        self._decide()
        engine.put_out()

    def _decide(self) -> None:
        self.epoch += 1
        gone, self._gone = tuple(self._gone), []
        members: dict[int, list[Member]] = {}
        wanted: dict[int, dict[str, None]] = {}
        mine: dict[FakeRegions, int] = {}
        for engine, wants in self.wants.items():
            if not wants:
                mine[engine] = 0
                continue
            region = self._regions.setdefault(frozenset(wants), len(self._regions) + 1)
            mine[engine] = region
            members.setdefault(region, []).append(engine.me)
            wanted[region] = wants
        before, self.views = self.views, {}
        for region, found in sorted(members.items()):
            in_order = tuple(sorted(found, key=lambda member: member.address))
            view = before.get(region)
            if view is None or view.members != in_order:
                view = GivenView(region, self.epoch << 16 | region, self.epoch, "gms/0", None, in_order)
            self.views[region] = self.by_name[view.view] = view
        covered: dict[int, list[int]] = {}
        for region, wants in sorted(wanted.items()):
            for name in wants:
                covered.setdefault(self.numbers[name], []).append(region)
        same: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.covered = {number: same.setdefault(t, t) for number, found in covered.items() if (t := tuple(found))}
        for engine, region in mine.items():
            views = tuple([view._replace() for view in self.views.values()])  # as a network brings them
            epoch = GivenEpoch(self.id, self.epoch, self.epoch, region, views, excluded=gone, is_whole=True)
            engine.given.append((epoch, self.covered, len(self.names) - 1))


class FakeRegions:
    """The engine of one node: a `RegionalEngine`."""

    def __init__(self, service: FakeService, me: Member, config: GroupConfig) -> None:
        self.service = service
        self.me = me
        self.config = config
        self.counters: dict[str, int] = {}
        self.state = Attending.SEARCHING
        self.table = FakeTable(service)
        self.given: list[tuple[GivenEpoch, dict[int, tuple[int, ...]], int]] = []
        self.views: dict[int, GivenView] = {}
        self.mine = 0
        self._upcalls: list[RegionUpcall] = []
        self._departed: Departed | None = None
        # sending
        self.rooms: dict[int, int] = {}  # bytes that a test lets leave for a region
        self.submitted: dict[int, int] = {}
        self.blocks: list[tuple[int, bytes]] = []  # all that were submitted, with their regions
        self._acked: dict[int, int] = {}
        self._out: dict[tuple[int, int], set[int]] = {}  # region and block -> who has not acknowledged it
        self._numbers: dict[int, int] = {}  # view -> its next block
        self._counts: dict[tuple[int, int], int] = {}  # view and block -> which block of the region it is
        # receiving
        self.hold_acks = False
        self._held: list[tuple[Address, bytes]] = []
        self.seq = 0
        self.consumed = -1
        self.reason: Waiting | None = None
        self._poll_ns = NEVER
        self.is_closed = False

    def supports(self, service: Service) -> bool:
        return service.rank <= FIFO_RANK

    def join(self, _now_ns: int, names: Sequence[str]) -> None:
        self.service.ask(self, "join", names)

    def leave(self, _now_ns: int, names: Sequence[str]) -> None:
        self.service.ask(self, "leave", names)

    def follow(self, _now_ns: int, names: Sequence[str]) -> None:
        self.service.ask(self, "follow", names)

    def depart(self, _now_ns: int, _out: Outbox) -> None:
        self.service.ask(self, "depart", ())
        self._departed = Departed(True, False, "left")
        self.is_closed = True

    def pending(self) -> int:
        return sum(engine is self for engine, _, _ in self.service.waiting)

    def put_out(self) -> None:
        self._departed = Departed(False, True, "excluded")
        self.is_closed = True
        self.given.clear()

    def lose(self, region: int, origin: int, first: int, count: int) -> None:
        """Blocks of a lane are lost for this node."""
        self._upcalls.append(BlocksLost(region, self.service.views[region].id, origin, first, count))

    # Sending.

    def room(self, _now_ns: int, region: int) -> tuple[int, int]:
        out = sum(each == region for each, _ in self._out)
        return max(0, self.rooms.get(region, self.config.history_bytes - LARGEST * out)), LARGEST

    def submit(self, _now_ns: int, region: int, blocks: Sequence[bytes], out: Outbox) -> int:
        view = self.views.get(region)
        if view is None:
            return 0
        for block in blocks:
            self.blocks.append((region, block))
            if region in self.rooms:
                self.rooms[region] -= len(block)
            number = 0
            count = self.submitted[region] = self.submitted.get(region, 0) + 1
            others = [member for member in view.members if member.id != self.me.id]
            if block[12] != UNRELIABLE_RANK:
                number = self._numbers.get(view.view, 1)
                self._numbers[view.view] = number + 1
                self._counts[view.view, number] = count
                if others:
                    self._out[region, count] = {member.id for member in others}
            for member in others:
                header = HEADER.pack(MAGIC, Kind.DATA, 0, 0, TAG, view.view, self.me.id, number)
                out.sends.append(Send(member.address, [header + BODY.pack(DATA, region), block], 0))
            if len(others) < len(view.members):
                self._deliver(region, view, self.me.id, number, block)
        self._tell_acked(region)
        return len(blocks)

    def _deliver(self, region: int, view: GivenView, origin: int, number: int, block: bytes) -> None:
        self.seq += 3  # tickets rise, and not by one
        delivery = Delivery(self.seq, -1, origin, number, block)
        last = self._upcalls[-1] if self._upcalls else None
        if isinstance(last, LaneRun) and last.region == region and last.view == view.id:
            last.deliveries.append(delivery)
        else:
            self._upcalls.append(LaneRun(region, view.id, [delivery]))

    def _tell_acked(self, region: int) -> None:
        out = [count for each, count in self._out if each == region]
        acked = min(out) - 1 if out else self.submitted.get(region, 0)
        if acked > self._acked.get(region, 0):
            self._acked[region] = acked
            self._upcalls.append(LaneAcked(region, acked))

    # Receiving.

    def consume(self, _now_ns: int, seq: int, _out: Outbox) -> None:
        assert seq > self.consumed
        self.consumed = seq

    def take(self) -> list[RegionUpcall]:
        upcalls, self._upcalls = self._upcalls, []
        return upcalls

    def receive(self, _now_ns: int, source: Address, data: memoryview, _stride: int, out: Outbox) -> None:
        _, _, _, _, _, ring, origin, number = HEADER.unpack_from(data)
        what, region = BODY.unpack_from(data, HEADER_BYTES)
        if what == ACK:
            count = self._counts[ring, number]
            waiting = self._out.get((region, count), set())
            waiting.discard(origin)
            if not waiting:
                self._out.pop((region, count), None)
            self._tell_acked(region)
            return
        view = self.service.by_name[ring]
        out.notes.append(Note("name", origin, detail=self.service.members[origin]))
        self._deliver(region, view, origin, number, bytes(data[HEADER_BYTES + BODY.size :]))
        if number:
            ack = HEADER.pack(MAGIC, Kind.ACK, 0, 0, TAG, ring, self.me.id, number) + BODY.pack(ACK, region)
            self._held.append((source, ack))
        self.after_batch(0, out)

    def unreachable(self, _now_ns: int, _address: Address, _quoted: bytes, _out: Outbox) -> None:
        pass

    # Driving.

    def start(self, now_ns: int, _out: Outbox) -> None:
        if self.service.is_silent:
            return
        self.state = Attending.IN
        self._upcalls.append(Joined())
        self._poll_ns = now_ns + POLL_NS

    def after_batch(self, _now_ns: int, out: Outbox) -> None:
        if not self.hold_acks:
            held, self._held = self._held, []
            out.sends += [Send(source, [ack], 0) for source, ack in held]
        if self._departed is not None:
            self._upcalls.append(self._departed)
            self._departed = None
        given, self.given = self.given, []
        for epoch, covered, known in given:
            self.views = {view.region: view for view in epoch.views}
            self.mine = epoch.mine
            self.table.covered, self.table.known = covered, known
            self._upcalls.append(Installed(epoch))
            present = {engine.me.id for engine in self.service.wants}
            for (region, count), who in list(self._out.items()):
                who &= present
                if not who:
                    del self._out[region, count]
            for region in list(self.submitted):
                self._tell_acked(region)

    def expire(self, now_ns: int, _out: Outbox) -> None:
        self._poll_ns = now_ns + POLL_NS

    def deadline_ns(self) -> int:
        return NEVER if self.is_closed else self._poll_ns

    def waiting(self, _now_ns: int) -> Waiting | None:
        return self.reason

    def is_at_rest(self) -> bool:
        return not self._out and not self.given

    @property
    def is_held_up(self) -> bool:
        return False

    def listens(self) -> frozenset[Address]:
        return frozenset()
