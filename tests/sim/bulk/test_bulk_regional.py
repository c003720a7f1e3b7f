"""Engines of regions in the bulk simulation, as far as their contract goes: lanes, upcalls, addresses, given views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from ordercast.config import MS, SECOND, GroupConfig
from ordercast.engine import NEVER, Delivery, Joined, Outbox, Send, Waiting
from ordercast.errors import InvariantViolation
from ordercast.membership.given import Attending
from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.orderers.regions.upcalls import Installed, LaneAcked, LaneRun, RegionUpcall
from ordercast.service import FIFO, Service
from ordercast.sim.bulk import BulkNode, BulkWorld, LoadProgram, ReadyBlocks
from ordercast.sim.bulk.regional import GivenTable, GivenViews, RegionalNode
from ordercast.sim.network import NetworkModel
from ordercast.view import Address, Member, node_id
from ordercast.wire.block import head_of, pack_run
from ordercast.wire.courier import Parcel
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.regions import Accusation, Accused

LINK = NetworkModel("link", latency_ns=10_000, pass_ns=1_000, send_ns=10_000, receive_ns=5_000)


def address_of(region: int) -> Address:
    return (f"239.7.0.{region}", 7_000)


class PlainRegions:
    """A fake engine of regions: blocks go to the address of their region, and members deliver them."""

    def __init__(self, me: Member, source: GivenViews, left: int = 1 << 40) -> None:
        self.me = me
        self.source = source
        self.left = dict.fromkeys(range(1, 9), left)
        self.submitted: list[tuple[int, int]] = []  # region, first number
        self.views: dict[int, GivenView] = {}
        self.has_epoch = False
        self.config = GroupConfig()
        self.counters: dict[str, int] = {}
        self._up: list[RegionUpcall] = [Joined()]
        self._seq = 0
        self.consumed = 0

    @property
    def state(self) -> Attending:
        return self.source.state

    @property
    def table(self) -> GivenTable:
        return GivenTable({})

    def supports(self, service: Service) -> bool:
        return service == FIFO

    def join(self, now_ns: int, names: Sequence[str]) -> None: ...

    def leave(self, now_ns: int, names: Sequence[str]) -> None: ...

    def follow(self, now_ns: int, names: Sequence[str]) -> None: ...

    def depart(self, now_ns: int, out: Outbox) -> None: ...

    def pending(self) -> int:
        return 0

    def room(self, now_ns: int, region: int) -> tuple[int, int]:  # noqa: ARG002
        return (self.left[region] if self.has_epoch else 0), 1_400

    def submit(self, now_ns: int, region: int, blocks: Sequence[bytes], out: Outbox) -> int:  # noqa: ARG002
        for block in blocks:
            self.left[region] -= len(block)
            self.submitted.append((region, head_of(block).first))
            header = HEADER.pack(MAGIC, Kind.DATA, 0, 0, region, 0, self.me.id, len(self.submitted))
            out.sends.append(Send(address_of(region), [header, block], 0))
            self._up.append(LaneAcked(region, len(self.submitted)))
        return len(blocks)

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:  # noqa: ARG002
        self.consumed = seq

    def take(self) -> list[RegionUpcall]:
        up, self._up = self._up, []
        return up

    def start(self, now_ns: int, out: Outbox) -> None: ...

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:  # noqa: ARG002
        _, _, _, _, region, _, origin, number = HEADER.unpack_from(data)
        self._seq += 1
        delivery = Delivery(self._seq, -1, origin, number, bytes(data[HEADER_BYTES:]))
        self._up.append(LaneRun(region, "1@gms", [delivery]))

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None: ...

    def after_batch(self, now_ns: int, out: Outbox) -> None:  # noqa: ARG002
        for epoch in self.source.take_epochs():
            self.has_epoch = True
            self.views = {view.view: view for view in epoch.views if self.me in view.members}
            self._up.append(Installed(epoch))

    def expire(self, now_ns: int, out: Outbox) -> None: ...

    def deadline_ns(self) -> int:
        return NEVER

    def waiting(self, now_ns: int) -> Waiting | None:  # noqa: ARG002
        return None

    def is_at_rest(self) -> bool:
        return True

    @property
    def is_closed(self) -> bool:
        return False

    @property
    def is_held_up(self) -> bool:
        return False

    def listens(self) -> frozenset[Address]:
        return frozenset([view.address for view in self.views.values() if view.address is not None])


class Regions:
    """Six nodes, two regions of three; the sender s is in none and has a lane to both."""

    def __init__(self, *, left: int = 1 << 40, limit: int = 100) -> None:
        self.world = world = BulkWorld(1, LINK)
        self.engines: dict[str, PlainRegions] = {}
        self.sources: dict[str, GivenViews] = {}
        self.programs: dict[str, LoadProgram] = {}
        self.left = left
        self.others: list[object] = []
        blocks = ReadyBlocks([pack_run(0, FIFO, [b"x" * 8])] * 2)
        for name in ("s", "a1", "a2", "a3", "b1", "b2", "b3"):
            is_sender = name == "s"
            program = LoadProgram(world, name, blocks if is_sender else None, limit=limit)
            self.programs[name] = program
            world.add(name, self._boot, program=program)
        self.programs["s"].on_other = lambda _, upcall: self.others.append(upcall)
        world.start_all()
        world.run_until(world.now_ns)

    def epoch(self, number: int, moved: str = "") -> GivenEpoch:
        views = []
        for region, letter in ((1, "a"), (2, "b")):
            names = [name for name in self.world.nodes if name[0] == letter and name != moved]
            members = tuple(self._member(self.world[name]) for name in names)
            views.append(GivenView(region, 10 * number + region, number, "gms", address_of(region), members))
        return GivenEpoch(1, number, 0, 1, tuple(views), is_whole=True)

    def _member(self, node: BulkNode) -> Member:
        return Member(node_id(node.name, 0), node.name, 0, node.address)

    def _boot(self, node: BulkNode) -> RegionalNode:
        source = self.sources[node.name] = GivenViews(self.epoch(1))
        engine = self.engines[node.name] = PlainRegions(self._member(node), source, self.left)
        return RegionalNode(engine, (1, 2))


def test_a_message_goes_once_to_each_lane_and_reaches_the_members_of_its_region() -> None:
    """The sender has room when the first epoch is installed, at the end of a pass. No timer wakes it then."""
    regions = Regions()
    regions.world.run_until(SECOND)
    assert regions.engines["s"].submitted == [(lane, number) for number in range(100) for lane in (1, 2)]
    assert regions.programs["s"].submitted == 100
    for name in ("a1", "a2", "a3", "b1", "b2", "b3"):
        assert regions.programs[name].taken == 100
        assert regions.engines[name].consumed == 99  # the last is given back with the next pass
    assert regions.programs["s"].taken == 0
    assert regions.world.listeners(address_of(1)) == ["a1", "a2", "a3"]


def test_a_program_sees_what_regions_say_besides_deliveries() -> None:
    regions = Regions(limit=2)
    regions.world.run_until(SECOND)
    assert Counter(type(each) for each in regions.others) == {Joined: 1, LaneAcked: 4, Installed: 1}


def test_a_message_waits_until_all_lanes_have_room() -> None:
    regions = Regions(left=0)
    sender = regions.engines["s"]
    size = len(pack_run(0, FIFO, [b"x" * 8]))
    sender.left[1] = 10 * size
    regions.world.run_until(MS)
    assert sender.submitted == []
    sender.left[2] = 3 * size
    regions.world.wake(regions.world["s"])
    regions.world.run_until(SECOND)
    assert sender.submitted == [(lane, number) for number in range(3) for lane in (1, 2)]


def test_a_node_that_moves_hears_its_new_region_and_no_longer_the_old_one() -> None:
    regions = Regions(limit=0)
    world = regions.world
    for name, source in regions.sources.items():
        source.give(regions.epoch(2, moved="a2"))
        world.wake(world[name])
    world.run_until(MS)
    assert world.listeners(address_of(1)) == ["a1", "a3"]


def test_given_views_remember_accusations_and_have_no_service() -> None:
    source = GivenViews(GivenEpoch(1, 1, 0, 1), GivenTable({5: (1, 2)}))
    accused = Accused(7, 11, 1, Accusation.PARCEL)
    source.accuse(MS, accused)
    source.confirm(MS, 3)
    assert (source.accused, source.confirmed) == ([(MS, accused)], 3)
    assert [epoch.number for epoch in source.take_epochs()] == [1]
    assert source.take_epochs() == []
    assert (source.table.number("5"), source.table.name(5), source.table.regions(5)) == (5, "5", (1, 2))
    assert (source.table.number("6"), source.table.name(6), source.table.regions(6)) == (0, "", ())
    with pytest.raises(InvariantViolation, match="there is none"):
        source.on_parcel(0, 1, Parcel(Kind.CLOSE, 0, 0, 0, b""))
    source.depart(MS)
    assert source.state is Attending.LEFT
