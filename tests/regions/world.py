"""A small deterministic world of engines of regions: virtual time, a network that loses, doubles, delays and reorders
datagrams, nodes that crash, and what everybody saw. It knows datagrams and upcalls, and nothing inside of engines."""

# ruff: noqa: ARG005 - what drops datagrams looks at some of what it is given

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from tests.regions.service import FakeSource, Service

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.engine import NEVER, Departed, Outbox, Send
from ordercast.orderers.regions.upcalls import BlocksLost, Installed, LaneAcked, LaneRun
from ordercast.service import FIFO, RELIABLE, UNRELIABLE
from ordercast.service import Service as Level
from ordercast.underlay.regions.engine import RegionsEngine
from ordercast.underlay.regions.node import RegionTerms
from ordercast.view import Address, Member, node_id
from ordercast.wire.block import open_messages, pack_run
from ordercast.wire.courier import PREFIX, Parcel, ParcelPart, part_head
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind
from ordercast.wire.regions import LaneOpening, decode_open
from ordercast.wire.segments import Datagram

TOKEN_NS: Final = 100 * MS
TIMING: Final = Timing(retransmit_ns=20 * MS, retransmit_min_ns=10 * MS, retransmit_max_ns=200 * MS, tries=6)
MARK: Final = Struct("<IB")  # number of a message, its service
SEGMENT0: Final = Struct("<Q")


@dataclass(slots=True)
class Link:
    """What becomes of datagrams."""

    loss: float = 0.0
    double: float = 0.0
    slow: float = 0.0  # share that comes up to 30 ms late


@dataclass(slots=True)
class Sent:
    """A message, as its sender sent it."""

    number: int
    service: Level
    audience: frozenset[int]


@dataclass(slots=True)
class Seen:
    """What one node saw and did."""

    delivered: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # origin -> (number, rank)
    lost: list[tuple[str, int, int]] = field(default_factory=list)  # region:epoch of the view, origin, block
    blocks: dict[tuple[str, int], set[int]] = field(default_factory=dict)  # view, origin -> numbers of blocks
    sent: list[Sent] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    epoch: int = 0
    tiles: dict[int, object] = field(default_factory=dict)


class Place:
    """One node."""

    def __init__(self, index: int, engine: RegionsEngine, source: FakeSource, member: Member) -> None:
        self.index = index
        self.engine = engine
        self.source = source
        self.member = member
        self.seen = Seen()
        self.is_alive = True
        self.wake_ns = NEVER
        self.consumes = True
        self.ticket = 0


class World:
    def __init__(
        self,
        rng: random.Random,
        nodes: int,
        partition_members: int,
        link: Link,
        config: GroupConfig | None = None,
        has_multicast: bool = True,
        policy: str = "demand",
    ) -> None:
        self.terms = RegionTerms(token_ns=TOKEN_NS, rate_policy=policy)
        self.rng = rng
        self.link = link
        self.now_ns = SECOND
        self.config = config or GroupConfig(orderer="token", datagram=512, history_bytes=65_536)
        self.service = Service(partition_members, has_multicast)
        self.places: list[Place] = []
        self.by_id: dict[int, Place] = {}
        self.by_address: dict[Address, Place] = {}
        self.ever_excluded: set[int] = set()
        # What was on the wire: (view, origin, block) -> number of the message, or what OPEN says
        self.content: dict[tuple[int, int, int], int | LaneOpening] = {}
        self.departures: dict[int, list[Departed]] = {}
        self.taps: list[Callable[[bytes], None]] = []  # they hear every datagram
        self.connections: dict[tuple[int, int], int] = {}  # of couriers, as the wire shows them
        self.sizes = [1]
        self.drops: Callable[[Datagram, Place, Place], bool] = lambda datagram, source, target: False
        self.datagrams = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        for _ in range(nodes):
            self.make_node()

    # Nodes

    def make_node(self) -> Place:
        index = len(self.places)
        name = f"n{index:02}"
        member = Member(node_id(name, 1), name, 1, (f"10.0.0.{index + 1}", 7_000), has_multicast=True)
        place = self._make_engine(index, member)
        self.places.append(place)
        return place

    def _make_engine(self, index: int, member: Member) -> Place:
        source = FakeSource(member.id, lambda: self.rng.choice((1, 5, 20, 150)) * MS)
        engine = RegionsEngine(member, self.config, TIMING, source, self.terms)
        place = Place(index, engine, source, member)
        self.by_id[member.id] = self.by_address[member.address] = place
        return place

    def come_back(self, index: int, region: int) -> None:
        """A node that was excluded is new, with the same id and another engine."""
        old = self.places[index]
        old.is_alive = False
        self.places[index] = self._make_engine(index, old.member)
        self.service.excluded.remove(old.member.id)
        del self.service.sources[old.member.id]
        self.ever_excluded.discard(old.member.id)
        self.join({index: region})

    def join(self, regions: dict[int, int]) -> None:
        """Nodes by index come into regions; 0: into none, to send."""
        joined = [(self.places[index].member, self.places[index].source) for index in regions]
        moves = {self.places[index].member.id: region for index, region in regions.items()}
        self.service.change(self.now_ns, moves, joined=joined)
        for index in regions:
            self.touch(self.places[index])
        self.touch_all()

    def move(self, index: int, region: int) -> None:
        self.service.change(self.now_ns, {self.places[index].member.id: region})
        self.touch_all()

    def exclude(self, index: int) -> None:
        node = self.places[index].member.id
        if node not in self.ever_excluded:
            self.ever_excluded.add(node)
            self.service.change(self.now_ns, excluded=[node])
            self.touch_all()

    def crash(self, index: int) -> None:
        self.places[index].is_alive = False

    def is_up(self, place: Place) -> bool:
        """It lives, and was never out."""
        return place.is_alive and place.member.id not in self.ever_excluded

    def touch_all(self) -> None:
        for place in self.places:
            self._arm(place)

    # Sending

    def send(self, place: Place, service: Level = FIFO) -> bool:
        """One message to all regions that the node knows, if all of them have room."""
        seen = place.seen
        regions = sorted(seen.tiles)
        if not regions or not place.is_alive or place.engine.is_closed:
            return False
        if any(place.engine.room(self.now_ns, region)[0] <= 0 for region in regions):
            self.touch(place)
            return False
        number = len(seen.sent) + 1
        size = self.rng.choice(self.sizes)
        block = pack_run(number, service, [MARK.pack(number, service.rank) + bytes(size)])
        out = Outbox()
        for region in regions:
            assert place.engine.submit(self.now_ns, region, [block], out) == 1
            seen.taken[region] = seen.taken.get(region, 0) + 1
        audience = frozenset(
            member.id
            for region in regions
            for member in self.service.views[seen.tiles[region]].members  # type: ignore[index]
        )
        seen.sent.append(Sent(number, service, audience))
        self._end_pass(place, out)
        return True

    # Passes

    def touch(self, place: Place) -> None:
        """Let a node look at its timers."""
        if place.is_alive:
            out = Outbox()
            place.engine.expire(self.now_ns, out)
            self._end_pass(place, out)

    def _receive(self, place: Place, source: Address, data: bytes, stride: int) -> None:
        if place.is_alive:
            out = Outbox()
            place.engine.receive(self.now_ns, source, memoryview(data), stride, out)
            self._end_pass(place, out)

    def deliver(self, place: Place, source: Place, data: bytes) -> None:
        """A datagram that was kept back."""
        self._receive(place, source.member.address, data, 0)

    def push(self, source: Place, target: Place, data: bytes) -> None:
        """The block of a datagram comes from another member, as a PUSH that its courier sends much later. It does not
        know of it: acknowledgements are strange to it, until it begins a new connection."""
        _, _, segment, last, tag, ring, origin, number = HEADER.unpack_from(data)
        parcel = Parcel(Kind.PUSH, ring, origin, number, data[HEADER_BYTES:], segment, last)
        connection = self.connections.get((source.member.id, target.member.id), 1)
        part = ParcelPart(source.member.id, target.member.id, connection, 900, 899, 0, 0, parcel)
        self._receive(target, source.member.address, part_head(tag, part) + bytes(parcel.body), 0)

    def _end_pass(self, place: Place, out: Outbox) -> None:
        place.engine.after_batch(self.now_ns, out)
        self._hear(place)
        for send in out.sends:
            self._transmit(place, send)
        if place.consumes and place.ticket:
            place.engine.consume(self.now_ns, place.ticket, Outbox())
            place.ticket = 0
        self._arm(place)

    def _arm(self, place: Place) -> None:
        due_ns = max(self.now_ns, min(place.engine.deadline_ns(), place.source.deadline_ns()))
        if due_ns < place.wake_ns or place.wake_ns < self.now_ns:
            place.wake_ns = due_ns
            if due_ns < NEVER:
                self.at(due_ns, lambda: self._wake(place, due_ns))

    def _wake(self, place: Place, due_ns: int) -> None:
        if place.wake_ns == due_ns:
            place.wake_ns = NEVER
            self.touch(place)

    def _hear(self, place: Place) -> None:
        seen = place.seen
        for upcall in place.engine.take():
            match upcall:
                case LaneRun(region, view, deliveries):
                    name = f"{region}:{view.partition('@')[0]}"
                    for delivery in deliveries:
                        assert delivery.seq > place.ticket
                        place.ticket = delivery.seq
                        payload = open_messages(delivery.block).payloads[0]
                        number, rank = MARK.unpack_from(payload)
                        seen.delivered.setdefault(delivery.origin, []).append((number, rank))
                        seen.blocks.setdefault((name, delivery.origin), set()).add(delivery.number)
                case BlocksLost(region, view, origin, first, count):
                    name = f"{region}:{view.partition('@')[0]}"
                    seen.lost += [(name, origin, block) for block in range(first, first + count)]
                case Departed():
                    self.departures.setdefault(place.index, []).append(upcall)
                case LaneAcked(region, count):
                    assert count > seen.acked.get(region, 0)
                    seen.acked[region] = count
                case Installed(epoch):
                    assert epoch.number > seen.epoch
                    seen.epoch = epoch.number
                    tiles = (
                        {}
                        if epoch.is_whole
                        else {region: view for region, view in seen.tiles.items() if view not in epoch.ended}
                    )
                    seen.tiles = {**tiles, **{view.region: view.view for view in epoch.views}}

    # Network

    def _transmit(self, place: Place, send: Send) -> None:
        data = b"".join(bytes(each) for each in send.buffers)
        stride = send.stride or len(data)
        self._note(data, stride)
        if send.to in self.by_address:
            targets = [self.by_address[send.to]]
        else:
            targets = [each for each in self.places if send.to in each.engine.listens() and each is not place]
        source = place.member.address
        for target in targets:
            pieces = [data[at : at + stride] for at in range(0, len(data), stride)]
            self.datagrams += len(pieces)
            for tap in self.taps:
                for piece in pieces:
                    tap(piece)
            fates = [[] if self._is_dropped(piece, place, target) else self._fate() for piece in pieces]
            if all(fate == [0] for fate in fates):
                self._later(target, source, data, stride, 0)
                continue
            for piece, fate in zip(pieces, fates, strict=True):
                for late_ns in fate:
                    self._later(target, source, piece, 0, late_ns)

    def _is_dropped(self, piece: bytes, source: Place, target: Place) -> bool:
        """By a script."""
        _, kind, segment, last, _, ring, origin, number = HEADER.unpack_from(piece)
        body = memoryview(piece)[HEADER_BYTES:]
        return self.drops(Datagram(kind, segment, last, ring, origin, number, body), source, target)

    def _fate(self) -> list[int]:
        """How late each copy comes; none: it is lost."""
        link, rng = self.link, self.rng
        if rng.random() < link.loss:
            return []
        late = rng.randrange(30) * MS if rng.random() < link.slow else 0
        return [late, rng.randrange(200) * MS] if rng.random() < link.double else [late]

    def _later(self, target: Place, source: Address, data: bytes, stride: int, late_ns: int) -> None:
        at_ns = self.now_ns + 200_000 + self.rng.randrange(300_000) + late_ns
        self.at(at_ns, lambda: self._receive(target, source, data, stride))

    def _note(self, data: bytes, stride: int) -> None:
        """What blocks say, as the wire shows it."""
        _, kind, segment, _, _, ring, origin, number = HEADER.unpack_from(data)
        if kind > Kind.COURIER_ACK:
            sender, to, connection, *_ = PREFIX.unpack_from(data, HEADER_BYTES)
            self.connections[sender, to] = connection
        elif kind == Kind.DATA and not segment and (ring, origin, number) not in self.content:
            if number:
                at = HEADER_BYTES + 24 + 12 + 4
                self.content[ring, origin, number] = MARK.unpack_from(data, at)[0]
            else:
                parts = [data[at + HEADER_BYTES : at + stride] for at in range(0, len(data), stride)]
                self.content[ring, origin, number] = decode_open(b"".join(parts))

    # Time

    def at(self, at_ns: int, act: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (at_ns, self._serial, act))

    def run_until(self, until_ns: int) -> None:
        while self._heap and self._heap[0][0] <= until_ns:
            self.now_ns, _, act = heapq.heappop(self._heap)
            act()
        self.now_ns = max(self.now_ns, until_ns)

    def run_for(self, duration_ns: int) -> None:
        self.run_until(self.now_ns + duration_ns)

    def settle(self) -> None:
        """The service does its part: accusations of dead nodes, and confirmations."""
        for index, place in enumerate(self.places):
            if not place.is_alive and place.member.id in self.service.members:
                accusers = [
                    other for other in self.places if any(a.node == place.member.id for a in other.source.accused)
                ]
                if accusers:
                    self.exclude(index)
        self.service.settle(self.now_ns)
        self.touch_all()

    def come_to_rest(self, most_ns: int = 60 * SECOND) -> bool:
        """Nothing is lost any more, and all who are dead are excluded."""
        self.link = Link()
        for index, place in enumerate(self.places):
            if not place.is_alive and place.member.id in self.service.members:
                self.exclude(index)
        end_ns = self.now_ns + most_ns
        while self.now_ns < end_ns:
            self.settle()
            self.run_for(17 * MS)
            if self.is_at_rest():
                return True
        return False

    def is_at_rest(self) -> bool:
        return all(
            place.engine.is_at_rest() and not place.source.under_way and place.seen.epoch == self.service.number
            for place in self.places
            if self.is_up(place) and place.member.id in self.service.members
        ) and not any(self.service.settled < end for end in self.service.ends.values())


LEVELS: Final = (FIFO, FIFO, FIFO, RELIABLE, UNRELIABLE)
