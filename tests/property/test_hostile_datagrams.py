"""Hostile bytes at the door of a node, whatever its orderer: counted, dropped, never raised; the group works on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.hostile import (
    CALLED_BY,
    FAR,
    MEETING,
    ORDERERS,
    STRANGER,
    STRIDES,
    TAG,
    formed,
    from_member,
    traffic_of,
    view_of,
    working,
)
from tests.property.wiretap import Lab, Seen, flipped

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.engine import Outbox, Refused
from ordercast.errors import UsageError
from ordercast.service import AGREED, RESILIENT
from ordercast.underlay import Underlay
from ordercast.view import Member, Reason, View, group_tag, node_id
from ordercast.wire.block import (
    CALLED,
    ENTRY,
    EQUAL,
    FRAGMENT,
    FRAGMENTED,
    GROUPED,
    HEAD,
    LAST,
    MULTI,
    ROSTER,
    come_after,
    pack_grouped,
    pack_multi,
    pack_roster,
    pack_run,
)
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


@pytest.fixture(params=ORDERERS)
def orderer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def traffic(orderer: str) -> list[Seen]:
    return traffic_of(orderer)


@pytest.fixture
def lab(orderer: str) -> Iterator[Lab]:
    yield from working(orderer)


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


def test_random_bytes_in_the_name_of_a_stranger_in_the_ring_do_no_harm(lab: Lab) -> None:
    """The right ring, the origin of nobody, any kind of the ordering."""
    rng = random.Random("ring")
    ring, stranger = view_of(lab).ring, node_id("stranger", 0)
    before = [lab.dropped(index) for index in range(3)]
    for _ in range(40):
        for kind in range(1, Kind.FIND):
            head = HEADER.pack(MAGIC, kind, 0, 0, TAG, ring, stranger, rng.choice((0, 7, FAR)))
            for index in range(3):
                lab.inject(index, STRANGER, head + rng.randbytes(rng.randrange(1, 120)), 0)
    lab.run(10 * MS)
    assert all(lab.dropped(index) > before[index] + 100 for index in range(3))


def test_another_rings_datagrams_are_counted_and_dropped(lab: Lab, traffic: list[Seen]) -> None:
    before = lab.dropped(2)
    for seen in traffic:
        if seen.kind not in MEETING:
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
    """Old words about places and views change nothing, old blocks are not delivered again."""
    lab.chatter()
    rng = random.Random("replay")
    addresses = {member.node.name: member.node.address for member in lab.members}
    ordering = [seen for seen in lab.tap.seen if seen.kind < Kind.FIND]
    for _ in range(2_000):
        seen = rng.choice(ordering)
        lab.inject(rng.randrange(3), addresses[seen.source], seen.data, seen.stride)
        if rng.random() < 0.1:
            lab.run(MS)


# From a member itself. Amoeba excludes such failures (section 4), so the group may suffer; the node must not. ---------


ONE = ENTRY.pack(0, 0, 0, 1)
HOSTILE_BLOCKS = {
    "a fragment without its sizes": HEAD.pack(0, 1, 4, 0, FRAGMENTED | LAST, 1) + ONE,
    "a number beyond 63 bits": pack_run((1 << 63) + 5, AGREED, [b"x"]),
    "the last of all numbers": pack_run((1 << 64) - 1, AGREED, [b"x", b"y"]),
    "more messages than it holds": HEAD.pack(0, 50_000, 4, 0, EQUAL, 1) + ONE + bytes(4),
    "no messages": HEAD.pack(0, 0, 4, 0, EQUAL, 1) + ENTRY.pack(0, 0, 0, 0) + bytes(4),
    "several entries": HEAD.pack(0, 2, 4, 0, EQUAL, 2) + ONE * 2 + bytes(4),
    "groups that are not there": HEAD.pack(0, 5, 4, 0, GROUPED, 1) + ENTRY.pack(0, 0, 0, 5),
    "groups that nobody knows": pack_grouped(0, AGREED, [b"x", b"y"], [7, (1 << 32) - 1]),
    "a list of groups that is not there": HEAD.pack(0, 1, 4, 0, MULTI | EQUAL, 1) + ONE + b"\xff\xff\xff\xff",
    "a list of groups that nobody knows": pack_multi(0, AGREED, [b"x"], [7, (1 << 32) - 1]),
    "an operation on a roster that there is not": pack_roster(0, b"x"),
    "an operation on the roster with messages": HEAD.pack(0, 1, 4, 0, ROSTER, 1) + ONE,
    "an operation on the roster in no order": HEAD.pack(0, 0, 2, 0, ROSTER, 1) + ENTRY.pack(0, 0, 0, 0),
    "a change that is a call": HEAD.pack(0, 1, 4, 0, 16 | CALLED | EQUAL, 1) + ONE,
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
def test_a_members_broken_block_stops_nobody(name: str, kind: Kind, orderer: str) -> None:
    lab = formed("block", orderer)
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


def test_a_members_impossible_recovery_stops_nobody(orderer: str) -> None:
    lab = formed("recovery", orderer)
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


@pytest.mark.parametrize(("first", "stop"), [(1, 2), (5, 9), (9, 5), (255, 256), (0xFFFE, 0xFFFF), (7, 7)])
def test_a_request_for_segments_that_a_block_has_not_stops_nobody(orderer: str, first: int, stop: int) -> None:
    """There is nothing to send, and nothing is sent."""
    lab = formed("segments", orderer)
    lab.tap.partition([["a"], ["b", "c"]])  # what a sends stays with it
    lab.members[0].send(3, AGREED, 100)
    lab.run(10 * MS)
    origin, seq = node_id("a", 0), view_of(lab).seq
    for missing in (Missing(origin, 0, 3, first, stop), Missing(0, seq, 4, first, stop)):
        body = encode_nak(Acks(0, 0), [missing])
        lab.inject(0, lab.members[1].node.address, from_member(lab, Kind.NAK, body), 0)
        lab.run(MS)
    assert lab.members[0].node.is_up


def test_truncated_datagrams_stop_nobody(orderer: str, traffic: list[Seen]) -> None:
    """In the name of a member, behind a header that is right: some of what is left may still parse."""
    rng = random.Random("cut")
    lab = formed("cut", orderer)
    before = lab.dropped(0)
    ring = view_of(lab).ring.to_bytes(8, "little")
    for seen in traffic:
        if seen.kind < Kind.FIND:
            data = seen.data[:8] + ring + seen.data[16:]
            lab.inject(0, STRANGER, data[: rng.randrange(min(len(data), HEADER_BYTES + 60))], 0)
    lab.run(10 * SECOND)
    assert all(member.node.is_up for member in lab.members)
    assert lab.dropped(0) > before


@pytest.mark.parametrize("seed", range(4))
def test_bits_that_flip_on_the_wire_stop_nobody(orderer: str, seed: int) -> None:
    """One datagram in twenty is spoiled on its way; UDP's checksum would have caught it. The nodes stay up, and what
    they keep stays bounded."""
    lab = Lab(f"spoil/{seed}", orderer=orderer, callers=CALLED_BY.get(orderer, ""))
    lab.form()
    lab.tap.spoil = 0.05
    for _ in range(5):
        lab.chatter()
    lab.tap.spoil = 0
    lab.run(30 * SECOND)
    assert all(member.node.is_up for member in lab.members)
    assert sum(lab.dropped(index) for index in range(3) if lab.members[index].port is not None) > 0


def test_real_datagrams_with_flipped_bits_stop_nobody(orderer: str, traffic: list[Seen]) -> None:
    """In the name of the members of the ring that they reach, behind a header that is right."""
    rng = random.Random("flip")
    lab = formed("flip", orderer)
    view = view_of(lab)
    ring, origins = view.ring.to_bytes(8, "little"), [member.id for member in view.members]
    before = lab.dropped(0)
    for seen in traffic:
        if seen.kind >= Kind.FIND or seen.stride:
            continue
        body = flipped(seen.data[HEADER_BYTES:], rng)
        data = seen.data[:8] + ring + rng.choice(origins[1:]).to_bytes(8, "little") + seen.data[24:32] + body
        lab.inject(0, lab.members[1].node.address, data, 0)
        if rng.random() < 0.05:
            lab.run(MS)
    lab.run(20 * SECOND)
    assert all(member.node.is_up for member in lab.members)
    assert lab.dropped(0) > before


# Only the sequencer's. ------------------------------------------------------------------------------------------------


@pytest.fixture
def sequenced() -> Iterator[Lab]:
    yield from working("sequencer")


def test_datagrams_of_the_ring_from_strangers_do_no_harm(sequenced: Lab) -> None:
    """The right ring and group, the origin of nobody: neither blocks nor acknowledgements count."""
    lab, view = sequenced, view_of(sequenced)
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


def test_a_sequencer_far_ahead_of_everybody_is_not_followed(sequenced: Lab) -> None:
    lab = sequenced
    leads = (Lead((1 << 63) + 1, 1 << 63, 1 << 63, 65_535), Lead(FAR // 2, 0, 0, 1))
    for index in (0, 2):
        for lead in leads:
            for kind in (Kind.SYNC, Kind.STATUS):
                lab.inject(index, lab.members[1].node.address, from_member(lab, kind, encode_lead(lead)), 0)
    lab.run(SECOND)
    other = next(index for index in (0, 2) if lab.members[index].node.name != view_of(lab).leader.name)
    lab.inject(other, lab.members[1].node.address, from_member(lab, Kind.STATUS, encode_lead(leads[1])), 0)
    lab.run(5 * SECOND)
    assert all(member.port.engine.is_at_rest() for member in lab.members if member.port is not None)


# The engine alone. ---------------------------------------------------------------------------------------------------

ME = Member(node_id("me", 0), "me", 0, ("10.0.0.1", 7_000), 1 << 20)
WIRE_TAG = group_tag("g").to_bytes(4, "little")


def alone(orderer: str) -> tuple[Underlay, Outbox]:
    """An engine that has created its group."""
    engine, out = Underlay("g", ME, GroupConfig(orderer), Timing(), random.Random(1), create=True), Outbox()
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
    orderer=st.sampled_from(ORDERERS),
)
@settings(max_examples=400, deadline=None)
def test_an_engine_takes_any_bytes_at_all(
    datas: list[bytes], stride: int, is_ours: bool, kind: int, orderer: str
) -> None:
    engine, out = alone(orderer)
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
def test_a_group_of_another_version_is_refused_and_stops_nobody(words: dict[str, Any]) -> None:
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


def test_an_engine_takes_real_datagrams_with_flipped_bits(orderer: str, traffic: list[Seen]) -> None:
    rng = random.Random("flip")
    engine, out = alone(orderer)
    assert engine.view is not None
    ring = engine.view.ring.to_bytes(8, "little")
    for seen in traffic:
        data = seen.data[:4] + WIRE_TAG + ring + seen.data[16:]
        engine.receive(2 * SECOND, STRANGER, memoryview(flipped(data, rng)), seen.stride, out)
        engine.after_batch(2 * SECOND, out)
    assert engine.counters["malformed"] > 0
