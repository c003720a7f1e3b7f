"""The phases of an underlay: joining, member, leaving, closed; and what its application and its log are told."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import pytest

from ordercast.config import SECOND, GroupConfig, Timing
from ordercast.engine import NEVER, Departed, Joined, Outbox, Refused, Reset, To, UnknownOutcome
from ordercast.errors import UsageError
from ordercast.membership.past import PastRings
from ordercast.membership.policy import DepartureCause, Dissolved
from ordercast.membership.quorum.joining import MAX_ATTEMPTS
from ordercast.parts.memory import DeliveryMemory
from ordercast.service import AGREED, SAFE
from ordercast.underlay import Underlay
from ordercast.underlay.luggage import Legacy
from ordercast.underlay.vacancy import Vacancy
from ordercast.view import Address, Member, View, group_tag, node_id
from ordercast.wire.block import pack_run
from ordercast.wire.header import HEADER, Kind

LIMIT_NS = 60 * SECOND


def member(name: str) -> Member:
    return Member(node_id(name, 0), name, 0, (f"10.0.0.{ord(name)}", 7_000))


class Node:
    def __init__(self, name: str, orderer: str, create: bool | None, *, shared: bool = False) -> None:
        self.me, config = member(name), GroupConfig(orderer, shared=shared)
        self.engine = Underlay("floor", self.me, config, Timing(), random.Random(name), create=create)
        self.out = Outbox()
        self.upcalls: list[object] = []
        self.notes: list[str] = []


class Wire:
    """Nodes on a network without delay or loss. Nodes in `cut` hear nothing and are not heard."""

    def __init__(self, orderer: str, *, shared: bool = False) -> None:
        self.orderer = orderer
        self.shared = shared
        self.nodes: list[Node] = []
        self.cut: set[str] = set()
        self.now_ns = 0

    def add(self, name: str, create: bool | None = None) -> Node:
        node = Node(name, self.orderer, create, shared=self.shared)
        self.nodes.append(node)
        node.engine.start(self.now_ns, node.out)
        return node

    def settle(self) -> None:
        """Until nothing is on its way. What engines are told, they take at once."""
        for _ in range(10_000):
            flying = []
            for node in self.nodes:
                node.engine.after_batch(self.now_ns, node.out)
                flying += [(node, send) for send in node.out.sends]
                node.upcalls += node.out.upcalls
                node.notes += [note.detail for note in node.out.notes if note.kind == "membership"]
                node.out.sends.clear()
                node.out.upcalls.clear()
                node.out.notes.clear()
            if not flying:
                return
            for sender, (to, buffers, stride) in flying:
                for node in self.targets(sender, to):
                    node.engine.receive(self.now_ns, sender.me.address, memoryview(b"".join(buffers)), stride, node.out)
        raise AssertionError("the network does not come to rest")

    def targets(self, sender: Node, to: Address) -> Iterator[Node]:
        for node in self.nodes:
            is_meant = to == node.me.address or to in (To.ALL, To.ANYONE, To.MULTICAST)
            if node is not sender and is_meant and not self.cut & {node.me.name, sender.me.name}:
                yield node

    def run(self, node: Node, until: type) -> object:
        """Until the node is told something of that kind; that."""
        limit_ns = self.now_ns + LIMIT_NS
        self.settle()
        while not any(isinstance(upcall, until) for upcall in node.upcalls):
            self.now_ns = min(each.engine.deadline_ns() for each in self.nodes)
            assert self.now_ns < limit_ns, node.engine.describe()
            for each in self.nodes:
                each.engine.expire(self.now_ns, each.out)
            self.settle()
        return next(upcall for upcall in node.upcalls if isinstance(upcall, until))


def names(engine: Underlay) -> list[str]:
    assert engine.view is not None
    return [each.name for each in engine.view.members]


ORDERERS = pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])


@ORDERERS
def test_a_node_creates_another_joins_and_leaves(orderer: str) -> None:
    wire = Wire(orderer)
    ann = wire.add("a")
    assert ann.engine.room(0) == (0, 0)
    assert ann.engine.audience() == []
    assert "joining" in ann.engine.describe()
    wire.run(ann, Joined)
    bob = wire.add("b", create=False)
    wire.run(bob, View)
    assert names(ann.engine) == names(bob.engine) == ["a", "b"]
    assert bob.engine.room(wire.now_ns)[0] > 0
    assert ann.engine.audience() == [bob.me.address]
    bob.engine.leave(wire.now_ns, b"bye", bob.out)
    assert wire.run(bob, Departed) == Departed(True, False, "left")
    assert bob.engine.room(wire.now_ns) == (0, 0)
    assert bob.engine.is_at_rest()
    while not bob.engine.is_closed:
        wire.now_ns = min(node.engine.deadline_ns() for node in wire.nodes)
        for node in wire.nodes:
            node.engine.expire(wire.now_ns, node.out)
        wire.settle()
    assert bob.engine.deadline_ns() == NEVER
    assert names(ann.engine) == ["a"]
    assert bob.notes[-1] == "left"
    assert [note.partition(";")[0].partition(": ")[2] for note in ann.notes] == [
        "create of a/0",
        "join of b/0",
        "leave of b/0",
    ]


@ORDERERS
def test_a_member_that_is_cut_off_is_excluded_with_the_reason_and_comes_back(orderer: str) -> None:
    wire = Wire(orderer)
    ann = wire.add("a")
    wire.run(ann, Joined)
    bob = wire.add("b", create=False)
    wire.run(bob, View)
    for node in wire.nodes:
        node.upcalls.clear()
        node.notes.clear()
    wire.cut = {"b"}
    assert bob.engine.submit(wire.now_ns, [pack_run(0, SAFE, [b"unknown"])], bob.out) == 1
    wire.run(ann, View)
    assert names(ann.engine) == ["a"]
    assert ann.notes[0].startswith("b/0 is suspected: ")
    wire.cut = set()
    assert wire.run(bob, Departed) == Departed(False, True, "the group was re-formed without this node")
    assert UnknownOutcome(0, 1) in bob.upcalls
    assert bob.engine.counters["exclusions"] == 1
    wire.run(bob, View)
    assert names(bob.engine) == ["a", "b"]


@ORDERERS
def test_of_two_rings_that_meet_one_dissolves_into_the_other(orderer: str) -> None:
    wire = Wire(orderer)
    ann = wire.add("a")
    wire.run(ann, Joined)
    wire.cut = {"a"}
    bob = wire.add("b")
    wire.run(bob, Joined)
    bob.upcalls.clear()
    wire.cut = set()
    departed = wire.run(bob, Departed)
    assert departed == Departed(False, True, "this ring of the group joins a larger one")
    wire.run(bob, View)
    assert names(ann.engine) == names(bob.engine) == ["a", "b"]
    assert "the ring has ended: this ring of the group joins a larger one" in bob.notes


@ORDERERS
@pytest.mark.parametrize("shared", [False, True])
def test_what_is_under_way_goes_along_into_another_ring_unless_its_groups_have_other_numbers_there(
    orderer: str, shared: bool
) -> None:
    wire = Wire(orderer, shared=shared)
    bob = wire.add("b")
    wire.run(bob, Joined)
    cleo = wire.add("c", create=False)
    wire.run(cleo, View)
    # Not the member that orders: with a sequencer the first one, with the token the newcomer.
    sender, other = (cleo, bob) if orderer == "sequencer" else (bob, cleo)
    wire.cut = {other.me.name}
    assert sender.engine.submit(wire.now_ns, [pack_run(0, SAFE, [b"x"])], sender.out) == 1
    wire.settle()
    sender.engine._end(wire.now_ns, Dissolved(DepartureCause.DISSOLVED), sender.out)
    lost = [upcall for upcall in sender.out.upcalls if isinstance(upcall, UnknownOutcome)]
    assert lost == ([UnknownOutcome(0, 1)] if shared else [])
    assert [number for number, _ in sender.engine._luggage.backlog] == ([] if shared else [0])


def test_a_search_that_may_not_create_ends_closed() -> None:
    wire = Wire("token")
    node = wire.add("a", create=False)
    refused = wire.run(node, Refused)
    assert isinstance(refused, Refused)
    assert node.engine.is_closed
    assert node.engine.view is None
    assert "closed, working, no view" in node.engine.describe()


def test_outside_a_ring_nothing_is_taken() -> None:
    node = Node("a", "token", None)
    engine, out = node.engine, node.out
    assert engine.submit(0, [pack_run(0, AGREED, [b"x"])], out) == 0
    engine.lock(0, "door", out)
    engine.consume(0, 5, out)
    assert not engine.waits_for_application()
    assert not engine.answers(1, 1)
    assert not engine.is_ordering
    engine.reset(0, 1, b"", out)
    assert out.upcalls == [Reset(0, "this node is not a member", 1)]
    assert out.sends == []


def test_what_was_delivered_is_carried_to_the_next_membership() -> None:
    engine = Node("a", "token", None).engine
    assert engine.carry() is None
    legacy = Legacy(DeliveryMemory(called={7: 3}), {5: (Kind.COMMIT, b"next")}, deque([9], MAX_ATTEMPTS))
    engine.inherit(legacy)
    assert engine.carry() == legacy


def test_a_ring_of_before_is_known_to_the_next_membership_and_says_nothing_of_its_own_end() -> None:
    past = PastRings()
    past.add_ended(5, "floor")
    assert past.is_over
    later = PastRings()
    later.inherit(past.endings())
    assert 5 in later
    assert not later.is_over


def test_the_tag_of_datagrams_comes_from_the_name_of_the_underlay() -> None:
    node = Node("a", "token", None)
    node.engine.start(0, node.out)
    assert node.engine.name == "floor"
    assert HEADER.unpack_from(b"".join(node.out.sends[0].buffers))[4] == group_tag("floor")


@pytest.mark.parametrize("name", ["", "x" * 300])
def test_a_name_out_of_range_is_the_callers_mistake(name: str) -> None:
    with pytest.raises(UsageError, match="bytes"):
        Underlay(name, member("a"), GroupConfig("token"), Timing(), random.Random(1))


def test_a_vacancy_takes_nothing_and_wants_nothing() -> None:
    memory, out = DeliveryMemory(called={7: 3}), Outbox()
    vacancy = Vacancy(member("a"), memory)
    vacancy.on_data(0, 1, 2, b"block", False, out)
    vacancy.on_segment(0, 1, 2, 0, 1, memoryview(b"segment"), False, out)
    vacancy.on_control(0, 8, ("10.0.0.1", 1), 1, 2, memoryview(b"body"), out)
    vacancy.after_batch(0, out)
    vacancy.expire(0, out)
    vacancy.recover(5, out)
    vacancy.abandon(out)
    assert out == Outbox()
    assert vacancy.memory() is memory
    assert vacancy.deadline_ns() == NEVER
    assert (vacancy.room(0), vacancy.submit(0, [b"block"], out), vacancy.is_busy) == ((0, 0), 0, False)
    assert vacancy.undelivered() == vacancy.next_block
    assert (vacancy.suspects(0), vacancy.take_views(), vacancy.leftovers()) == ([], [], [])
    assert not any((vacancy.standing().leads, vacancy.standing().orders, vacancy.standing().admits))
