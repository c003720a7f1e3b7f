"""Forwarding and copies for members without multicast (RMP section 3.4), part by part."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.unit.quorums import local_member

from ordercast.config import LAN_DATAGRAM, GroupConfig, Timing
from ordercast.engine import NEVER, Outbox, To
from ordercast.membership.policy import Newcomer
from ordercast.membership.quorum.joining import Joining
from ordercast.membership.quorum.local import Wishes
from ordercast.underlay import Underlay
from ordercast.underlay.routes import MulticastRoutes
from ordercast.view import Address, Member, View, group_tag, node_id
from ordercast.wire.header import FORWARD, HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.segments import train, without_mark
from ordercast.wire.views import Ring
from ordercast.wire.writer import DatagramWriter

LINGER_NS = 1_000
DATA = int(Kind.DATA)


def member(name: str, ttl: int = 1) -> Member:
    """Capitals have no multicast."""
    address = (f"10.0.0.{ord(name)}", 7_000)
    return Member(node_id(name, 0), name, 0, address, has_multicast=name.islower(), ttl=ttl)


def view_of(names: str) -> View:
    return View(1, "a/0", 1, 0, 0, 0, tuple(map(member, names)), {})


def address_of(name: str) -> Address:
    return member(name).address


def reach_of(name: str, names: str) -> tuple[MulticastRoutes, DatagramWriter]:
    writer = DatagramWriter(1, node_id(name, 0), LAN_DATAGRAM)
    reach = MulticastRoutes(member(name), writer, LINGER_NS)
    reach.begin(0, view_of(names))
    return reach, writer


# The datagram writer.


def test_what_is_for_all_goes_to_one_member_with_the_mark() -> None:
    writer = DatagramWriter(1, 2, LAN_DATAGRAM)
    writer.set_relays([address_of("b")])
    long = bytes(3 * LAN_DATAGRAM)
    sends = [
        writer.control(To.ALL, Kind.ACCEPT, b"x"),
        writer.control(To.ALL, Kind.ACCEPT, long),
        writer.block(To.ALL, Kind.DATA, 2, 0, b"x"),
        writer.block(To.ALL, Kind.DATA, 2, 0, long),
        writer.prefixed(To.ALL, Kind.REQUEST, 0, b"p", b"x"),
        writer.ordered(To.ALL, 0, b"p", b"x"),
        writer.repair(To.ALL, 2, 0, long, 0, 0),
        writer.repair(To.ALL, 2, 0, long, 1, 3),
    ]
    for send in sends:
        data = b"".join(send.buffers)
        assert send.to == address_of("b")
        assert all(data[at + 1] & FORWARD for at in range(0, len(data), send.stride or len(data)))
    for to in (address_of("c"), To.ANYONE):
        assert writer.control(to, Kind.ACCEPT, b"x").to == to
        assert not writer.block(to, Kind.DATA, 2, 0, b"x").buffers[0][1] & FORWARD
        assert not writer.repair(to, 2, 0, long, 1, 2).buffers[0][1] & FORWARD


def test_retransmissions_take_one_forwarder_after_the_other() -> None:
    writer = DatagramWriter(1, 2, LAN_DATAGRAM)
    writer.next_via()
    assert writer.via is None
    writer.set_relays([address_of(name) for name in "bcd"])
    used: list[Address | None] = []
    for _ in range(4):
        used.append(writer.via)
        writer.next_via()
    assert used == [address_of(name) for name in "bcdb"]
    assert writer.via == address_of("c")
    writer.set_relays([address_of("d"), address_of("c")])
    assert writer.via == address_of("c")  # who does it well goes on
    writer.set_relays([address_of("d")])
    writer.next_via()
    assert writer.via == address_of("d")
    writer.set_relays([])
    assert writer.via is None
    assert writer.control(To.ALL, Kind.ACCEPT, b"x").to == To.ALL


# Routes.


@pytest.mark.parametrize(
    ("me", "names", "copies", "via"),
    [
        ("a", "abc", "", None),
        ("a", "abCD", "CD", None),
        ("C", "abCD", "D", "a"),
        ("C", "aBCd", "B", "d"),
        ("B", "aBCd", "C", "d"),
        ("A", "ABC", "BC", None),
    ],
)
def test_views_tell_who_gets_copies_and_who_forwards(me: str, names: str, copies: str, via: str | None) -> None:
    reach, writer = reach_of(me, names)
    assert reach.copies == [address_of(name) for name in copies]
    assert writer.via == (None if via is None else address_of(via))


def test_who_left_gets_copies_for_a_while() -> None:
    reach, _ = reach_of("a", "abCD")
    reach.apply(100, view_of("abD"))
    reach.apply(200, view_of("ab"))
    assert reach.copies == [address_of("C"), address_of("D")]
    assert reach.due_ns == 100 + LINGER_NS
    reach.apply(300, view_of("abD"))
    assert reach.copies == [address_of("D"), address_of("C")]
    reach.expire(100 + LINGER_NS)
    assert reach.copies == [address_of("D")]
    assert reach.due_ns == NEVER
    reach.begin(5_000, view_of("ab"))
    assert reach.copies == []


def test_the_ttl_is_the_largest_that_was_asked_for() -> None:
    reach, _ = reach_of("a", "ab")
    assert reach.ttl == 1
    view = view_of("ab")
    reach.apply(0, replace(view, members=(*view.members, member("c", ttl=9))))
    assert reach.ttl == 9
    reach.clear()
    assert reach.ttl == 1


# Marks.


def marked(origin: int, number: int, body: bytes, mark: int = FORWARD) -> tuple[bytes, int]:
    buffers, stride = train(DATA | mark, 7, 8, origin, number, body, 600)
    return b"".join(buffers), stride


@pytest.mark.parametrize("size", [1, 568, 569, 5 * 568, 5 * 568 + 1])
def test_a_train_loses_its_marks(size: int) -> None:
    data, stride = marked(1, 2, bytes(size))
    plain = without_mark(memoryview(data), stride or len(data), FORWARD)
    assert plain is not None
    assert bytes(plain) == marked(1, 2, bytes(size), 0)[0]


def test_trains_of_several_kinds_or_senders_are_taken_apart_by_others() -> None:
    one, stride = marked(1, 2, bytes(2 * 568))
    for other in (marked(2, 2, bytes(568))[0], marked(1, 3, bytes(568), 0)[0]):
        assert without_mark(memoryview(one + other), stride, FORWARD) is None
    assert without_mark(memoryview(one + bytes(HEADER_BYTES - 1)), stride, FORWARD) is None


# The underlay.


class Group:
    """One engine that made its group alone, and then let in who has no multicast."""

    def __init__(self, name: str = "a") -> None:
        self.me = member(name)
        self.engine = Underlay(
            "g", self.me, GroupConfig("sequencer", datagram=600), Timing(), random.Random(1), create=True
        )
        self.out = Outbox()
        self.now_ns = 0
        self.engine.start(0, self.out)
        while self.engine.view is None:
            self.now_ns = self.engine.deadline_ns()
            self.engine.expire(self.now_ns, self.out)
        for newcomer in "BC":
            asking = Underlay("g", member(newcomer), GroupConfig("sequencer"), Timing(), random.Random(2), create=False)
            asked, joined = Outbox(), Outbox()
            asking.start(self.now_ns, asked)
            here = self.hear(newcomer, asked)
            asking.receive(self.now_ns, self.me.address, here, 0, joined)
            self.hear(newcomer, joined)
        self.out.sends.clear()
        assert [each.name for each in self.view.members] == ["a", "B", "C"]

    @property
    def view(self) -> View:
        assert self.engine.view is not None
        return self.engine.view

    def hear(self, name: str, said: Outbox) -> memoryview:
        self.out.sends.clear()
        for send in said.sends:
            self.engine.receive(self.now_ns, address_of(name), memoryview(b"".join(send.buffers)), 0, self.out)
        self.engine.after_batch(self.now_ns, self.out)
        return memoryview(b"".join(self.out.sends[0].buffers))

    def forward(self, source: Address, data: bytes, stride: int = 0) -> list[tuple[Address, bytes, int]]:
        self.out.sends.clear()
        self.engine.receive(self.now_ns, source, memoryview(data), stride, self.out)
        return [(send.to, b"".join(send.buffers), send.stride) for send in self.out.sends]

    def head(self, segment: int = 0, last: int = 0, mark: int = FORWARD, ring: int | None = None) -> bytes:
        ring = self.view.ring if ring is None else ring
        return HEADER.pack(MAGIC, DATA | mark, segment, last, group_tag("g"), ring, member("B").id, 0)


def test_a_member_is_served_and_the_others_get_the_same_without_the_mark() -> None:
    group = Group()
    plain = group.head(mark=0) + bytes(50)
    assert group.forward(address_of("B"), group.head() + bytes(50)) == [
        (To.MULTICAST, plain, 0),
        (address_of("C"), plain, 0),
    ]
    assert group.engine.counters["forwarded"] == 1


def test_a_train_is_forwarded_as_a_train() -> None:
    group = Group()
    body = bytes(568)
    train_ = b"".join(group.head(segment, 3) + body for segment in range(3))
    plain = b"".join(group.head(segment, 3, mark=0) + body for segment in range(3))
    assert group.forward(address_of("C"), train_, 600) == [
        (To.MULTICAST, plain, 600),
        (address_of("B"), plain, 600),
    ]
    assert group.engine.counters["forwarded"] == 3


def test_of_a_mixed_train_each_datagram_finds_its_way() -> None:
    group = Group()
    body = bytes(568)
    mixed = group.head(0, 3, mark=0) + body + group.head(1, 3) + body
    plain = group.head(1, 3, mark=0) + body
    assert group.forward(address_of("B"), mixed, 600) == [(To.MULTICAST, plain, 0), (address_of("C"), plain, 0)]
    assert group.engine.counters["forwarded"] == 1


def test_strangers_and_other_rings_are_not_served() -> None:
    group = Group()
    datagram = group.head() + bytes(50)
    assert group.forward(("10.9.9.9", 7_000), datagram) == []
    assert group.forward(group.me.address, datagram) == []
    assert group.engine.counters["strange_forwards"] == 2
    assert group.forward(address_of("B"), group.head(ring=12_345) + bytes(50)) == []
    assert group.engine.counters["foreign"] == 1
    assert "forwarded" not in group.engine.counters


# Joining through a member (section 3.3).


def test_only_the_contact_is_asked_and_only_its_answer_counts() -> None:
    writer = DatagramWriter(1, member("n").id, LAN_DATAGRAM)
    contact = address_of("b")
    local = local_member(member("n"), writer, Timing())
    joining = Joining(local, Wishes(create=False), Newcomer(0, {}), ask=[contact])
    out = Outbox()
    joining.start(0, out)
    assert [(send.to, send.buffers[0][1]) for send in out.sends] == [(contact, Kind.FIND)]
    ring = Ring("g", 5, 1, "a/0", 3, True, member("a"), GroupConfig())
    joining.on_ring(1, address_of("a"), ring, out)
    assert len(out.sends) == 1
    joining.on_ring(2, contact, ring, out)
    assert [(send.to, send.buffers[0][1]) for send in out.sends[1:]] == [(address_of("a"), Kind.JOIN)]
