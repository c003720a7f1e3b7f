"""Hostile bytes at the door of a node: counted, dropped, never raised; the group works on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.wiretap import Lab, Seen, flipped

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.engine import Outbox, Refused
from ordercast.errors import UsageError
from ordercast.service import AGREED, RESILIENT
from ordercast.sim.checkers import check_all
from ordercast.underlay import Underlay
from ordercast.view import Member, Reason, View, group_tag, node_id
from ordercast.wire.block import CALLED, ENTRY, EQUAL, FRAGMENT, FRAGMENTED, HEAD, INDEXED, LAST, come_after, pack_run
from ordercast.wire.calls import CallHead, pack_call
from ordercast.wire.header import FORWARD, HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.ordering import Acks, Lead, Missing, encode_lead, encode_nak
from ordercast.wire.views import (
    Ballot,
    Proposal,
    Ring,
    decode_asking,
    encode_invite,
    encode_result,
    encode_ring,
    encode_welcome,
)

STRANGER = ("192.0.2.1", 9)
TAG = group_tag("sim")
STRIDES = (0, 1, 7, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, 100, 600, 70_000)


@pytest.fixture(scope="module")
def traffic() -> list[Seen]:
    """What crossed the wire of another group of the same name: joins, all services, losses, a leave, a recovery."""
    lab = Lab("t0", nodes="abcd")  # a seed in which the survivors know of the leave, and so may go on
    lab.form(1_234 * MS)
    lab.tap.set_model(replace(lab.tap.model, loss=0.1))
    lab.chatter()
    lab.chatter()
    lab.members[3].leave()
    lab.run(500 * MS)
    lab.world.crash(lab.members[0].view.leader.name)  # type: ignore[union-attr]
    lab.chatter()
    lab.run(5 * SECOND)
    kinds = {Kind(seen.kind).name for seen in lab.tap.seen}
    assert kinds >= {"DATA", "REQUEST", "ORDERED", "ACCEPT", "REPAIR", "NAK", "ACK", "SYNC", "HELD", "PROPOSE"}
    assert kinds >= {"FIND", "JOIN", "WELCOME", "BEACON", "INVITE", "CUT", "RESULT", "RESULT_ACK", "COMMIT"}
    return lab.tap.seen


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A group that works; afterwards it must work still, and its trace must hold."""
    lab = Lab("hostile")
    lab.form()
    views = [member.view for member in lab.members]
    yield lab
    before = [member.delivered for member in lab.members]
    for member in lab.members:
        member.send(2, AGREED, 100)
    lab.run(2 * SECOND)
    assert [member.delivered - count for member, count in zip(lab.members, before, strict=True)] == [6, 6, 6]
    assert [member.view for member in lab.members] == views, "nobody was thrown out"
    assert not lab.cluster.run_to_rest(lab.world.now_ns + 20 * SECOND)
    verdict = check_all(lab.world.rows(), clock="virtual", quiet=True)
    assert not verdict.violations, "\n".join(verdict.summary())


def test_random_bytes_are_counted_and_dropped(lab: Lab) -> None:
    rng = random.Random("noise")
    before = lab.dropped(0)
    for _ in range(500):
        data = rng.randbytes(rng.choice((0, 1, 31, 32, 33, 100, 1_400)))
        lab.inject(0, STRANGER, data, rng.choice(STRIDES))
    lab.run(MS)
    assert lab.dropped(0) >= before + 450


def test_random_bytes_behind_a_valid_header_are_counted_and_dropped(lab: Lab) -> None:
    rng = random.Random("body")
    before = lab.dropped(1)
    for kind in range(256):
        for last in (0, 1, 255):
            head = HEADER.pack(MAGIC, kind, 0, last, TAG, rng.getrandbits(64), rng.getrandbits(64), rng.getrandbits(64))
            lab.inject(1, STRANGER, head + rng.randbytes(rng.randrange(1, 200)), rng.choice(STRIDES))
    lab.run(MS)
    assert lab.dropped(1) > before + 200


def test_another_rings_datagrams_are_counted_and_dropped(lab: Lab, traffic: list[Seen]) -> None:
    before = lab.dropped(2)
    shown = (Kind.FIND, Kind.HERE, Kind.JOIN, Kind.WELCOME, Kind.REFUSE, Kind.BEACON)
    for seen in traffic:
        if seen.kind not in shown:  # these are how strangers meet: another test
            lab.inject(2, STRANGER, seen.data, seen.stride)
    lab.run(MS)
    assert lab.dropped(2) > before + 100


def test_another_groups_datagrams_are_counted_and_dropped(lab: Lab, traffic: list[Seen]) -> None:
    for seen in traffic:
        data = seen.data[:4] + group_tag("another").to_bytes(4, "little") + seen.data[8:]
        lab.inject(0, STRANGER, data, seen.stride)
    assert lab.counters(0)["unknown_group"] == len(traffic)


def test_truncated_datagrams_are_counted_and_dropped(lab: Lab, traffic: list[Seen]) -> None:
    rng = random.Random("cut")
    before = lab.dropped(0)
    for seen in traffic:
        size = rng.randrange(min(len(seen.data), HEADER_BYTES + 60))
        lab.inject(0, STRANGER, seen.data[:size], 0)
    lab.run(MS)
    assert lab.dropped(0) > before


def test_trains_of_any_stride_are_read_without_harm(lab: Lab, traffic: list[Seen]) -> None:
    rng = random.Random("stride")
    trains = [seen for seen in traffic if seen.stride]
    for _ in range(300):
        lab.inject(1, STRANGER, rng.choice(trains).data, rng.choice(STRIDES))
    lab.run(MS)


def test_the_groups_own_datagrams_may_come_again_at_any_time_and_in_any_order(lab: Lab) -> None:
    lab.chatter()
    rng = random.Random("replay")
    addresses = {member.node.name: member.node.address for member in lab.members}
    ordering = [seen for seen in lab.tap.seen if seen.kind < Kind.FIND]
    for _ in range(2_000):
        seen = rng.choice(ordering)
        lab.inject(rng.randrange(3), addresses[seen.source], seen.data, seen.stride)
        if rng.random() < 0.1:
            lab.run(MS)


def test_datagrams_of_the_ring_from_strangers_do_no_harm(lab: Lab) -> None:
    """The right ring and group, the origin of nobody: neither blocks nor acknowledgements count."""
    view = lab.members[0].view
    assert view is not None
    stranger = node_id("stranger", 0)
    bodies = [
        (Kind.DATA, pack_run(0, AGREED, [b"x"])),
        (Kind.REQUEST, bytes(16) + pack_run(0, AGREED, [b"x"])),
        (Kind.ACK, (1 << 40).to_bytes(8, "little") + bytes(8)),
        (Kind.HELD, bytes(16) + view.leader.id.to_bytes(8, "little") + b"\xff" * 8),
        (Kind.NAK, encode_nak(Acks(0, 0), [Missing(0, 0, 256, 0, 0)])),
        (Kind.PROPOSE, bytes(16) + b"\2\0\0"),
    ]
    for index in range(3):
        for kind, body in bodies:
            lab.inject(index, STRANGER, HEADER.pack(MAGIC, kind, 0, 0, TAG, view.ring, stranger, 0) + body, 0)
    lab.run(10 * MS)


# From a member itself. Amoeba excludes such failures (section 4), so the group may suffer; the node must not. ---------


def from_member(lab: Lab, kind: int, body: bytes, number: int = 0) -> bytes:
    """A datagram of member b."""
    view, me = lab.members[1].view, lab.members[1].host
    assert view is not None
    assert me is not None
    return HEADER.pack(MAGIC, kind, 0, 0, TAG, view.ring, me.me.id, number) + body


ONE = ENTRY.pack(0, 0, 0, 1)
HOSTILE_BLOCKS = {
    "a fragment without its sizes": HEAD.pack(0, 1, 4, 0, FRAGMENTED | LAST, 1) + ONE,
    "a number beyond 63 bits": pack_run((1 << 63) + 5, AGREED, [b"x"]),
    "the last of all numbers": pack_run((1 << 64) - 1, AGREED, [b"x", b"y"]),
    "more messages than it holds": HEAD.pack(0, 50_000, 4, 0, EQUAL, 1) + ONE + bytes(4),
    "no messages": HEAD.pack(0, 0, 4, 0, EQUAL, 1) + ENTRY.pack(0, 0, 0, 0) + bytes(4),
    "an index that is not there": HEAD.pack(0, 5, 4, 0, INDEXED, 255) + ENTRY.pack(0, 0, 0, 0),
    "a service that nobody offers": HEAD.pack(0, 1, 6, 0, EQUAL, 1) + ONE + bytes(4),
    "a cause at the end of time": come_after(pack_run(0, RESILIENT(1), [b"x"]), (1 << 64) - 1),
    "a call without its head": HEAD.pack(0, 1, 4, 0, EQUAL | CALLED, 1) + ONE + b"\1\0\0\0x",
    "a call of two messages": HEAD.pack(0, 2, 4, 0, EQUAL | CALLED, 1) + ENTRY.pack(0, 0, 0, 2) + bytes(4),
    "a call in pieces": HEAD.pack(0, 1, 4, 0, FRAGMENTED | LAST | CALLED, 1) + ONE + FRAGMENT.pack(1, 0) + b"x",
    "a call for a handler that there is not": pack_call(0, AGREED, CallHead(0, 3, 77, "b/0", ("", 0)), b"x"),
    "a call that is to be answered to nobody": pack_call(0, AGREED, CallHead(0, 3, 0, "x", ("0.0.0.0", 1)), b"x"),
    "an answer that nobody asked for": pack_call(0, AGREED, CallHead(0, 4, 0, "b/0", ("", 0), 1, 1), b"x"),
    "a change of somebody": HEAD.pack(0, 0, 0, 0, 16, 1) + ENTRY.pack(0, 0, 0, 0),
}


@pytest.mark.parametrize("name", HOSTILE_BLOCKS)
@pytest.mark.parametrize("kind", [Kind.DATA, Kind.REPAIR, Kind.REQUEST])
def test_a_members_broken_block_stops_nobody(name: str, kind: Kind) -> None:
    lab = Lab("block")
    lab.form()
    prefix = bytes(16) if kind == Kind.REQUEST else b""
    for index in (0, 2):
        data = from_member(lab, kind, prefix + HOSTILE_BLOCKS[name])
        lab.inject(index, lab.members[1].node.address, data, 0)
    lab.run(2 * SECOND)
    assert all(member.node.is_up for member in lab.members)


def hostile_result(lab: Lab, **changes: Any) -> bytes:
    view, host = lab.members[1].view, lab.members[1].host
    assert view is not None
    assert host is not None
    ballot = Ballot(9, 5, 65_535, host.me.id)
    return encode_result(ballot, Proposal(ballot, True, 0, (), replace(view, **changes)))


def test_a_members_impossible_recovery_stops_nobody() -> None:
    lab = Lab("recovery")
    lab.form()
    host = lab.members[1].host
    assert host is not None
    ballots = [Ballot(0xFFFFFFFF, 5, 65_535, host.me.id), Ballot(1, (1 << 64) - 1, 65_535, host.me.id)]
    for index in (0, 2):
        for ballot in ballots:
            data = from_member(lab, Kind.INVITE, encode_invite(ballot, "majority", False, b""))
            lab.inject(index, lab.members[1].node.address, data, 0)
        for changes in ({"seq": 1 << 62}, {"seq": (1 << 64) - 1}, {"seq": 1, "ring": 7}):
            for kind in (Kind.RESULT, Kind.COMMIT):
                data = from_member(lab, kind, hostile_result(lab, **changes))
                lab.inject(index, lab.members[1].node.address, data, 0)
    lab.run(10 * SECOND)
    assert all(member.node.is_up for member in lab.members)


def test_a_sequencer_far_ahead_of_everybody_is_not_followed(lab: Lab) -> None:
    far = encode_lead(Lead((1 << 63) + 1, 1 << 63, 1 << 63, 65_535))
    for index in (0, 2):
        for kind in (Kind.SYNC, Kind.STATUS):
            lab.inject(index, lab.members[1].node.address, from_member(lab, kind, far), 0)


# The engine alone. ---------------------------------------------------------------------------------------------------

ME = Member(node_id("me", 0), "me", 0, ("10.0.0.1", 7_000), 1 << 20)
WIRE_TAG = group_tag("g").to_bytes(4, "little")


def alone() -> tuple[Underlay, Outbox]:
    """An engine that has created its group."""
    engine, out = Underlay("g", ME, GroupConfig(), Timing(), random.Random(1), create=True), Outbox()
    engine.start(0, out)
    for now_ns in range(0, SECOND, 50 * MS):
        engine.expire(now_ns, out)
        engine.after_batch(now_ns, out)
    assert engine.view is not None
    return engine, out


@given(
    datas=st.lists(st.binary(max_size=400), max_size=8),
    stride=st.sampled_from(STRIDES),
    is_ours=st.booleans(),
    kind=st.integers(0, 255),
)
@settings(max_examples=200, deadline=None)
def test_an_engine_takes_any_bytes_at_all(datas: list[bytes], stride: int, is_ours: bool, kind: int) -> None:
    engine, out = alone()
    ring = engine.view.ring.to_bytes(8, "little") if engine.view is not None else b""
    for data in datas:
        if is_ours:
            data = bytes((MAGIC, kind, 0, 0)) + WIRE_TAG + ring + data
        engine.receive(2 * SECOND, STRANGER, memoryview(data), stride, out)
        engine.after_batch(2 * SECOND, out)
    engine.expire(3 * SECOND, out)
    engine.after_batch(3 * SECOND, out)
    if not Kind.SUSPECT <= kind & ~FORWARD < Kind.CALL:
        assert engine.room(3 * SECOND)[0] > 0, "it works on"


@pytest.mark.parametrize("words", [{"orderer": "later"}, {"flow": "later"}])
def test_a_group_of_another_version_is_refused_and_stops_nobody(words: dict[str, str]) -> None:
    """Its parameters name what this version has not: neither a ring nor a welcome may bring a newcomer down."""
    engine, out = Underlay("g", ME, GroupConfig(), Timing(), random.Random(1), create=False), Outbox()
    engine.start(0, out)
    asked = decode_asking(b"".join(out.sends[0].buffers)[HEADER_BYTES:])
    config = replace(GroupConfig(), **words)
    leader = Member(node_id("b", 0), "b", 0, ("10.0.0.2", 7_000), 1 << 20)
    view = View(1, "b/0", 5, 0, 1, 0, (leader, ME), {ME.id: 0, leader.id: 0}, Reason.JOIN)

    def hear(kind: Kind, body: bytes) -> None:
        data = HEADER.pack(MAGIC, kind, 0, 0, group_tag("g"), 5, leader.id, 0) + body
        engine.receive(MS, leader.address, memoryview(data), 0, out)
        engine.after_batch(MS, out)

    hear(Kind.WELCOME, encode_welcome("g", asked.nonce, config, view))
    assert engine.counters["malformed"] == 1
    assert engine.view is None
    hear(Kind.HERE, encode_ring(Ring("g", 5, 1, "b/0", 1, True, leader, config)))
    assert [upcall for upcall in out.upcalls if isinstance(upcall, Refused) and "'later'" in upcall.text]
    with pytest.raises(UsageError, match="'later'"):
        Underlay("g", ME, config, Timing(), random.Random(1))


def test_an_engine_takes_real_datagrams_with_flipped_bits(traffic: list[Seen]) -> None:
    rng = random.Random("flip")
    engine, out = alone()
    assert engine.view is not None
    ring = engine.view.ring.to_bytes(8, "little")
    for seen in traffic:
        data = seen.data[:4] + WIRE_TAG + ring + seen.data[16:]
        engine.receive(2 * SECOND, STRANGER, memoryview(flipped(data, rng)), seen.stride, out)
        engine.after_batch(2 * SECOND, out)
    assert engine.counters["malformed"] > 0
