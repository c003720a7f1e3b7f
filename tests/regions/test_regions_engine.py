"""Engines of regions in a small world: each row of the table of failures in docs/design/regions.md, by hand."""

# ruff: noqa: ARG005 - what drops datagrams looks at some of what it is given

from __future__ import annotations

import random
import tracemalloc

import pytest
from tests.regions.judge import judge
from tests.regions.service import SERVICE
from tests.regions.world import MARK, TOKEN_NS, Link, Place, World

from ordercast.config import MS, SECOND, GroupConfig
from ordercast.engine import Departed, Outbox, StallReason
from ordercast.orderers.regions.given import REGIONS_UNDERLAY, GivenEpoch
from ordercast.service import AGREED, FIFO, RELIABLE, UNRELIABLE
from ordercast.view import Member, group_tag, node_id
from ordercast.wire.block import pack_run
from ordercast.wire.courier import Parcel, ParcelPart, part_head
from ordercast.wire.header import Kind
from ordercast.wire.ranges import EMPTY, NumberSet
from ordercast.wire.regions import MAX_SENDERS, LaneOpening, RegionToken, TokenEntry, encode_open, encode_token
from ordercast.wire.segments import Datagram, train


def a_world(nodes: int, regions: int = 1, r: int = 2, outside: int = 0, seed: int = 1, **more: object) -> World:
    """Nodes in regions by turns; the last `outside` ones in none."""
    world = World(random.Random(seed), nodes, r, Link(), **more)  # type: ignore[arg-type]
    world.join({index: 1 + index % regions if index < nodes - outside else 0 for index in range(nodes)})
    world.run_for(300 * MS)
    return world


def send(world: World, index: int, count: int = 1) -> None:
    for _ in range(count):
        assert world.send(world.places[index])


def numbers(world: World, node: int, sender: int) -> list[int]:
    seen = world.places[node].seen
    return [number for number, _ in seen.delivered.get(world.places[sender].member.id, ())]


def rest(world: World) -> None:
    assert world.come_to_rest(), [each.engine.describe() for each in world.places]
    judge(world)


def test_blocks_reach_all_members_and_are_acknowledged_and_purged() -> None:
    world = a_world(5, regions=2, outside=1)
    send(world, 4, 3)
    assert numbers(world, 4, 4) == [], "it is in no region"
    rest(world)
    assert [numbers(world, node, 4) for node in range(4)] == [[1, 2, 3]] * 4
    assert world.places[4].seen.acked == {1: 3, 2: 3}


def test_own_messages_are_delivered_at_once_and_not_again() -> None:
    world = a_world(3)
    send(world, 0, 2)
    assert numbers(world, 0, 0) == [1, 2]
    rest(world)
    assert numbers(world, 0, 0) == [1, 2]


def test_a_node_alone_in_its_region_acknowledges_itself() -> None:
    world = a_world(1)
    send(world, 0)
    rest(world)
    assert world.places[0].seen.acked == {1: 1}


def test_without_multicast_every_member_gets_a_copy() -> None:
    world = a_world(4, has_multicast=False)
    send(world, 1)
    rest(world)
    assert all(not place.engine.listens() for place in world.places)
    assert [numbers(world, node, 1) for node in range(4)] == [[1]] * 4


def test_a_segment_that_some_members_lack_comes_from_others_and_not_from_the_sender() -> None:
    world = a_world(5, outside=1)
    world.sizes = [3_000]
    world.drops = lambda datagram, source, target: (
        datagram.kind == Kind.DATA and datagram.segment == 2 and target.index == 1 and source.index == 4
    )
    naks = Counting(world, Kind.REGION_NAK)
    send(world, 4, 2)
    rest(world)
    assert numbers(world, 1, 4) == [1, 2]
    assert not naks.seen
    counts = [place.engine.counters for place in world.places]
    assert sum(each.get("repairs", 0) for each in counts) >= 1
    assert not any(each.get("own_repairs", 0) for each in counts)


def test_a_block_that_a_whole_partition_lacks_is_sent_again() -> None:
    world = a_world(3, outside=1)
    begin_ns = world.now_ns
    world.drops = lambda datagram, source, target: (
        datagram.kind == Kind.DATA and datagram.number == 1 and world.now_ns < begin_ns + 50 * MS
    )
    send(world, 2, 2)
    rest(world)
    assert numbers(world, 0, 2) == [1, 2]
    counts = world.places[2].engine.counters
    assert counts["own_repairs"] == counts["repairs"] >= 1


def test_the_last_block_that_nobody_has_is_sent_again() -> None:
    """An unacknowledged tail."""
    world = a_world(3, outside=1)
    begin_ns = world.now_ns
    world.drops = lambda datagram, source, target: datagram.kind == Kind.DATA and world.now_ns < begin_ns + 50 * MS
    send(world, 2)
    world.run_for(TOKEN_NS)
    assert numbers(world, 0, 2) == []
    rest(world)
    counts = world.places[2].engine.counters
    assert counts["retransmissions"] >= counts["tails_repeated"] >= 1


def test_members_that_have_a_block_together_get_it_whole() -> None:
    """NAKs name segments: nobody lacks all of it, so nobody asks the sender."""
    world = a_world(3, outside=1)
    world.sizes = [2_000]
    world.drops = lambda datagram, source, target: (
        datagram.kind == Kind.DATA and datagram.number == 1 and datagram.segment % 2 == target.index
    )
    send(world, 2, 2)
    rest(world)
    assert numbers(world, 0, 2) == numbers(world, 1, 2) == [1, 2]


def test_a_member_that_stops_is_accused_and_rings_go_on_without_it() -> None:
    world = a_world(4)
    world.crash(2)
    send(world, 0)
    world.run_for(5 * SECOND)
    dead = world.places[2].member.id
    assert any(accused.node == dead for place in world.places for accused in place.source.accused)
    rest(world)


def test_when_the_leader_stops_another_member_starts_tokens() -> None:
    world = a_world(4)
    world.crash(0)
    send(world, 1)
    world.run_for(3 * SECOND)
    assert world.places[1].engine.counters["silences"] >= 1
    assert any(accused.node == world.places[0].member.id for accused in world.places[1].source.accused)
    rest(world)


def test_what_only_one_member_has_of_a_dead_sender_reaches_all() -> None:
    world = a_world(5, outside=1)
    world.drops = lambda datagram, source, target: (
        datagram.kind == Kind.DATA and datagram.number == 2 and target.index != 3
    )
    send(world, 4, 2)
    world.run_for(10 * MS)
    world.crash(4)
    world.exclude(4)
    rest(world)
    assert [numbers(world, node, 4) for node in range(4)] == [[1, 2]] * 4


def test_what_nobody_has_of_a_dead_sender_is_lost_for_all() -> None:
    world = a_world(5, outside=1)
    world.drops = lambda datagram, source, target: datagram.kind == Kind.DATA and datagram.number == 2
    send(world, 4, 3)
    world.run_for(10 * MS)
    world.crash(4)
    world.exclude(4)
    rest(world)
    sender = world.places[4].member.id
    for place in world.places[:4]:
        assert place.seen.lost == [("1:1", sender, 2)]
        assert numbers(world, place.index, 4) == [1, 3]


def test_an_end_that_nobody_has_of_a_dead_sender_does_not_exist() -> None:
    world = a_world(4, outside=1)
    world.drops = lambda datagram, source, target: datagram.kind == Kind.DATA and datagram.number == 2
    send(world, 3, 2)
    world.run_for(10 * MS)
    world.crash(3)
    world.exclude(3)
    rest(world)
    assert not world.places[0].seen.lost
    assert numbers(world, 0, 3) == [1]


def test_a_member_that_moves_finishes_its_old_view_first() -> None:
    """FIFO over views: OPEN of the next view waits for what is missing of the one before."""
    world = a_world(5, regions=2, outside=1)
    world.drops = lambda datagram, source, target: (
        datagram.kind == Kind.DATA and datagram.number == 1 and target.index == 0 and datagram.ring == 1_001
    )
    send(world, 4, 2)
    world.move(0, 2)
    world.run_for(400 * MS)
    send(world, 4)
    rest(world)
    assert numbers(world, 0, 4) == [1, 2, 3]


def test_old_views_are_forgotten_and_late_tokens_and_questions_are_answered() -> None:
    world = a_world(4)
    send(world, 0)
    world.exclude(3)
    send(world, 1)
    rest(world)
    assert all(len(place.engine.listens()) == 1 for place in world.places[:3])


def test_a_leader_does_not_forget_an_old_view_before_all_others_can() -> None:
    """What is repaired last is purged by the round that ends everything: the others do not know it yet."""
    world = a_world(7, outside=1)
    world.drops = lambda datagram, source, target: (
        datagram.kind == Kind.DATA and datagram.number == 1 and target.index == 2
    )
    send(world, 5)
    world.move(6, 1)
    rest(world)
    assert [place.engine.counters.get("silences", 0) for place in world.places[:6]] == [0] * 6, "nobody had to wait"


def test_an_epoch_that_comes_late_does_not_lose_the_first_blocks_of_the_next_view() -> None:
    world = a_world(4)
    world.places[1].source.tell(world.now_ns, GivenEpoch(SERVICE, 0, 0, 1))  # nothing new
    world.exclude(3)
    source = world.places[1].source
    source.under_way = [(world.now_ns + 80 * MS, epoch) for _, epoch in source.under_way]
    world.places[0].source.under_way = [(world.now_ns, epoch) for _, epoch in world.places[0].source.under_way]
    world.touch_all()
    world.run_for(1 * MS)
    send(world, 0)
    world.run_for(81 * MS)
    assert numbers(world, 1, 0) == [1]
    rest(world)


def test_reliable_messages_are_delivered_as_they_come() -> None:
    world = a_world(3, outside=1)
    world.drops = lambda datagram, source, target: (
        datagram.kind == Kind.DATA and datagram.number == 1 and target.index == 0
    )
    send(world, 2)
    assert world.send(world.places[2], RELIABLE)
    world.run_for(5 * MS)
    assert numbers(world, 0, 2) == [2]
    rest(world)
    assert numbers(world, 0, 2) == [2, 1]


def test_unreliable_messages_need_no_lane_and_come_at_most_once() -> None:
    world = a_world(3, outside=1)
    world.link = Link(double=1.0)
    assert world.send(world.places[2], UNRELIABLE)
    world.run_for(300 * MS)
    assert numbers(world, 0, 2) == [1]
    assert world.places[2].seen.acked == {1: 1}
    rest(world)


def test_an_application_that_does_not_receive_stops_the_senders() -> None:
    world = a_world(3, config=GroupConfig(datagram=1_400, history_bytes=16_384))
    world.sizes = [4_000]
    world.places[1].consumes = False
    sent = 0
    for _ in range(400):
        sent += world.send(world.places[0])
        world.run_for(10 * MS)
    assert sent < 60, "four histories and what members hold"
    assert world.places[1].engine.counters["overrun_drops"] > 0
    waiting = world.places[0].engine.waiting(world.now_ns)
    assert waiting is None or waiting.reason == StallReason.NETWORK
    world.places[1].consumes = True
    world.touch(world.places[1])
    rest(world)
    assert numbers(world, 1, 0) == list(range(1, sent + 1))


def test_a_member_with_a_gap_takes_more_than_one_history() -> None:
    """Cachers acknowledge what another partition lacks: so much more may be out. A member that dropped what waits for a
    gap would get it block by block."""
    world = a_world(5, outside=1, config=GroupConfig(datagram=1_400, history_bytes=16_384))
    world.sizes = [1_000]
    begin_ns = world.now_ns
    world.drops = lambda datagram, source, target: (
        target.index == 1
        and datagram.number == 2
        and world.now_ns < begin_ns + 2 * SECOND
        and datagram.kind != Kind.PULL
    )
    sent = 0
    for _ in range(100):
        sent += world.send(world.places[4])
        world.run_for(20 * MS)
    assert sent > 40, "more than two histories"
    assert numbers(world, 1, 4) == [1]
    rest(world)
    assert not any(place.engine.counters.get("overrun_drops") for place in world.places)
    assert numbers(world, 1, 4) == list(range(1, sent + 1))


def test_a_region_that_does_not_acknowledge_is_named() -> None:
    world = a_world(3)
    world.crash(1)
    send(world, 0)
    world.run_for(1 * SECOND)
    waiting = world.places[0].engine.waiting(world.now_ns)
    assert waiting is not None
    assert waiting.reason == StallReason.NETWORK
    assert "region 1 has not acknowledged" in waiting.text


def test_an_excluded_node_departs() -> None:
    world = a_world(3)
    place = world.places[2]
    heard = listen(world, place)
    world.exclude(2)
    world.run_for(300 * MS)
    assert place.engine.is_closed
    assert place.engine.room(world.now_ns, 1)[0] == 0
    assert heard == [Departed(False, True, "the membership service has excluded this node")]


def test_an_excluded_node_comes_back_with_its_id_and_another_engine() -> None:
    world = a_world(4)
    send(world, 3, 2)
    send(world, 0)
    world.exclude(3)
    world.run_for(500 * MS)
    world.come_back(3, 1)
    world.run_for(500 * MS)
    send(world, 3, 2)
    assert world.send(world.places[3], UNRELIABLE)
    send(world, 0, 2)
    assert world.come_to_rest(), [each.engine.describe() for each in world.places]
    heard = numbers(world, 0, 3)
    assert [number for number in heard if number != 3] == [1, 2, 1, 2]
    assert 3 in heard
    assert numbers(world, 3, 0) == [2, 3]
    assert world.places[3].seen.acked == {1: 3}


def test_another_service_makes_a_node_depart() -> None:
    world = a_world(2)
    place = world.places[1]
    heard = listen(world, place)
    place.source.tell(world.now_ns, GivenEpoch(SERVICE + 1, 9, 0, 0, is_whole=True))
    world.touch_all()
    world.run_for(300 * MS)
    assert heard == [Departed(False, True, "the membership service is another one")]


def test_a_node_leaves_when_its_lanes_are_acknowledged() -> None:
    world = a_world(3)
    place = world.places[2]
    send(world, 2)
    heard = listen(world, place)
    place.engine.depart(world.now_ns, Outbox())
    world.touch(place)
    assert place.engine.room(world.now_ns, 1)[0] == 0
    assert not place.engine.is_closed
    world.run_for(500 * MS)
    assert heard == [Departed(True, False, "left")]
    assert place.engine.is_at_rest()


def test_a_leaver_takes_part_in_its_old_view_until_the_service_lets_it_go() -> None:
    world = a_world(3)
    place = world.places[2]
    place.source.is_slow_to_leave = True
    send(world, 0)
    heard = listen(world, place)
    place.engine.depart(world.now_ns, Outbox())
    world.touch(place)
    world.run_for(300 * MS)
    assert place.source.has_asked_to_leave
    world.move(2, 0)
    world.run_for(1 * SECOND)
    assert not heard
    world.exclude(2)
    world.run_for(300 * MS)
    assert heard == [Departed(True, False, "left")]
    rest(world)


@pytest.mark.parametrize("service", [UNRELIABLE, RELIABLE, FIFO])
def test_weak_services_are_given_and_no_others(service: object) -> None:
    engine = a_world(1).places[0].engine
    assert engine.supports(service)  # type: ignore[arg-type]
    assert not engine.supports(AGREED)


def test_a_view_takes_new_senders_however_many_it_has_had() -> None:
    """Those that are out, and whose blocks everybody has had, are forgotten. What comes late of them is not taken for
    new."""
    world = a_world(1)
    place = world.places[0]

    def deliver(sender: Member, number: int, body: bytes) -> None:
        buffers, stride = train(Kind.DATA, group_tag(REGIONS_UNDERLAY), 1_001, sender.id, number, body, 1_400)
        world.deliver(place, Place(-1, place.engine, place.source, sender), b"".join(buffers))
        assert not stride

    def begin(sender: Member) -> None:
        deliver(sender, 0, encode_open(LaneOpening(1, sender.name, 1, sender.address)))
        deliver(sender, 1, pack_run(1, FIFO, [MARK.pack(1, FIFO.rank)]))

    def a_sender(number: int) -> Member:
        name = f"s{number}"
        return Member(node_id(name, 1), name, 1, ("10.0.1.1", 1_000 + number))

    senders = [a_sender(number) for number in range(MAX_SENDERS + 1)]
    for sender in senders[:-1]:
        begin(sender)
    begin(senders[-1])
    assert place.engine.counters["crowded_senders"] == 2
    world.service.change(world.now_ns, excluded=[sender.id for sender in senders[:-1]])
    world.touch_all()
    world.run_for(6 * TOKEN_NS)
    begin(senders[-1])
    begin(senders[0])
    world.run_for(6 * TOKEN_NS)
    assert all(place.seen.delivered[sender.id] == [(1, FIFO.rank)] for sender in senders)


def test_a_token_that_small_datagrams_do_not_hold_is_passed_on_with_less() -> None:
    """It would take more datagrams of 512 bytes than a parcel has."""
    world = a_world(3, r=5)
    world.run_for(SECOND)
    place, leader = world.places[1], world.places[0]
    world.drops = lambda datagram, source, target: source is leader
    sets = [NumberSet(((5, 6),), 1 << 40) if bit < 3 else EMPTY._replace(limit=1 << 40) for bit in range(7)]
    entries = tuple([TokenEntry(sender, 1, 0, 0, 0, 9, 0, 0, 0, *sets) for sender in range(1, MAX_SENDERS + 1)])
    body = encode_token(RegionToken(0, 0, 0, 0, 1, 0, entries))
    passed = Counting(world, Kind.REGION_TOKEN)
    parcel = Parcel(Kind.REGION_TOKEN, 1_001, leader.member.id, 1 << 20, body)
    part = ParcelPart(leader.member.id, place.member.id, 1 << 20, 1, 0, 0, 0, parcel)
    world.deliver(place, leader, part_head(group_tag(REGIONS_UNDERLAY), part) + body)
    assert passed.seen > 100


def test_blocks_of_views_that_nobody_knows_take_little_memory() -> None:
    place = a_world(1).places[0]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for ring in range(1_000_000, 1_040_000):
        buffers, _ = train(Kind.DATA, group_tag(REGIONS_UNDERLAY), ring, 5, 1, b"x", 1_400)
        place.engine.receive(SECOND, ("10.0.9.9", 9), memoryview(b"".join(buffers)), 0, Outbox())
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken < 4 << 20


def test_a_region_that_is_not_known_takes_nothing() -> None:
    world = a_world(2)
    engine = world.places[0].engine
    assert engine.room(world.now_ns, 9)[0] == 0
    assert engine.submit(world.now_ns, 9, [pack_run(1, FIFO, [b"x"])], Outbox()) == 0


def test_a_node_at_rest_sends_a_token_a_second_and_little_else() -> None:
    world = a_world(4)
    rest(world)
    before = world.datagrams
    world.run_for(10 * TOKEN_NS)
    # A ring of one partition of four members has five hops, each with an acknowledgement; r = 2 makes two partitions.
    assert world.datagrams - before <= 11 * 2 * 8


class Counting:
    """How many datagrams of a kind there were."""

    def __init__(self, world: World, kind: Kind) -> None:
        self.seen = 0
        self._drops, self._kind = world.drops, kind
        world.drops = self._look

    def _look(self, datagram: Datagram, source: Place, target: Place) -> bool:
        self.seen += datagram.kind == self._kind
        return self._drops(datagram, source, target)


def listen(world: World, place: Place) -> list[Departed]:
    heard: list[Departed] = []
    world.departures[place.index] = heard
    return heard
