"""Hostile bytes at the door of a node in a timestamp group: counted, dropped, never raised; the group works on.

What only the timestamp orderer has: acknowledgements, decisions, bounds. What is asked of any group stands in
test_hostile_datagrams.py. Nothing is authenticated: what a member says that is possible is believed, and a forged
decision can split the log (docs/design/timestamp.md).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.property.hostile import FAR, STRANGER, TAG, formed, from_member, still_works, view_of, working
from tests.property.wiretap import Lab

from ordercast.config import MAX_MEMBERS, MS, SECOND
from ordercast.engine import Change
from ordercast.service import AGREED, CAUSAL, FIFO, RELIABLE, UNRELIABLE
from ordercast.view import Reason, View, node_id
from ordercast.wire.block import pack_run
from ordercast.wire.header import HEADER, MAGIC, Kind
from ordercast.wire.ordering import (
    Acks,
    Assignment,
    Lead,
    Missing,
    encode_accept,
    encode_acks,
    encode_held,
    encode_nak,
    encode_propose,
)
from ordercast.wire.stamps import Acked, Bound, Bounds, Decided, Next, Stamps, encode_stamps
from ordercast.wire.token import encode_change, encode_list
from ordercast.wire.views import pack_change

SPEAKING = (Kind.STAMPS, Kind.DECISION, Kind.SYNC)


@pytest.fixture
def lab() -> Iterator[Lab]:
    yield from working("timestamp")


def quiet_words(view: View) -> Stamps:
    """What a member says that has nothing to say."""
    return Stamps(view.seq, 0, view.seq, 0, 0, (view.seq,) * len(view.members))


def from_stranger(lab: Lab, kind: int, body: bytes, name: str = "stranger") -> bytes:
    return HEADER.pack(MAGIC, kind, 0, 0, TAG, view_of(lab).ring, node_id(name, 0), 0) + body


def open_block(lab: Lab) -> tuple[int, int]:
    """A block of a that waits for c: its origin and number. c is behind a partition."""
    lab.tap.partition([["a", "b"], ["c"]])
    before = lab.members[0].delivered
    lab.members[0].send(1, AGREED, 100)
    lab.run(MS)
    assert lab.members[0].delivered == before
    return node_id("a", 0), 0


# Strangers. -----------------------------------------------------------------------------------------------------------


def test_datagrams_of_the_ring_from_strangers_do_no_harm(lab: Lab) -> None:
    """Well-formed, the right ring, the origin of nobody: no block, no place, no decision and no request counts."""
    view = view_of(lab)
    ours = [member.id for member in view.members]
    stranger = replace(view.members[0], id=node_id("stranger", 0), name="stranger")
    good = quiet_words(view)
    nines = tuple(Next(k, 9) for k in range(3))
    decided = Decided(ours[0], 0, (5, ours[1]), view.seq, Bounds(5, 0, tuple(Bound(k, 0, 5, 0) for k in range(3))))
    bodies = [
        (Kind.DATA, pack_run(0, FIFO, [b"x"])),
        (Kind.UNRELIABLE, pack_run(0, UNRELIABLE, [b"x"])),
        (Kind.REQUEST, pack_run(0, AGREED, [b"x"])),
        (Kind.NAK, encode_nak(Acks(0, 0), [Missing(0, 0, 256, 0, 0)])),
        (Kind.STATUS, encode_acks(Acks(1, 0))),
        (Kind.ACK, encode_acks(Acks(FAR, 0))),
        (Kind.HELD, encode_held(Acks(0, 0), [(ours[0], FAR)])),
        (Kind.PROPOSE, encode_propose(Acks(0, 0), Reason.LEAVE, b"")),
        (Kind.PROPOSE, encode_change(Change(Reason.LEAVE, stranger))),
        *[(kind, encode_stamps(good)) for kind in SPEAKING],
        (Kind.STAMPS, encode_stamps(good._replace(acks=[Acked(ours[0], 0, (0, 0))], nexts=nines))),
        (Kind.DECISION, encode_stamps(good._replace(decisions=[decided]))),
        (Kind.SYNC, encode_stamps(good._replace(highest=view.seq + 9, rows=(view.seq + 9,) * 3))),
    ]
    for index in range(3):
        for kind, body in bodies:
            lab.inject(index, STRANGER, from_stranger(lab, kind, body), 0)
    lab.run(10 * MS)
    assert all(lab.counters(index)["strange_stamps"] > 0 for index in range(3))


def test_a_stranger_that_speaks_of_a_later_view_decides_nothing(lab: Lab) -> None:
    """A newcomer may be heard before its join is: what it may say then is of its view, not of ours."""
    view = view_of(lab)
    origin, number = open_block(lab)
    later = quiet_words(view)._replace(view=view.seq + 1)
    wrong = Decided(origin, number, (1, origin), view.seq)
    for index in (0, 1):
        before = lab.members[index].delivered
        body = encode_stamps(later._replace(decisions=[wrong]))
        lab.inject(index, STRANGER, from_stranger(lab, Kind.DECISION, body), 0)
        lab.run(10 * MS)
        assert lab.members[index].delivered == before, "c has not acknowledged it"
    lab.tap.heal()
    lab.run(SECOND)


def test_acknowledgements_of_strangers_keep_no_block_from_being_decided(lab: Lab) -> None:
    """They may be of newcomers whose join is not here yet; they are kept in bounded number and crowd out nobody."""
    view = view_of(lab)
    origin, number = open_block(lab)
    acked = Acked(origin, number, (1,))
    body = encode_stamps(quiet_words(view)._replace(view=view.seq + 1, clock=1, acks=[acked], nexts=(Next(0, 0),)))
    for each in range(100):
        lab.inject(0, STRANGER, from_stranger(lab, Kind.STAMPS, body, f"stranger{each}"), 0)
    before = [member.delivered for member in lab.members]
    lab.tap.heal()
    lab.run(SECOND)
    assert [member.delivered for member in lab.members] == [count + 1 for count in before]


# From a member itself. The paper knows no malice, so the group may suffer; the node must not. -------------------------


def hostile_words(view: View) -> dict[str, Stamps]:
    good, ids = quiet_words(view), [member.id for member in view.members]
    nobody = 12345
    return {
        "a clock at the end of time": good._replace(clock=FAR),
        "a place at the end of time": good._replace(highest=FAR),
        "a place a little ahead": good._replace(highest=view.seq + 50),
        "everybody has received what is not there": good._replace(highest=view.seq + 9, rows=(view.seq + 9,) * 3),
        "more rows than members": good._replace(rows=(view.seq,) * 900),
        "no rows": good._replace(rows=()),
        "a view that there is not": good._replace(view=view.seq + 7),
        "a view at the end of time": good._replace(view=FAR),
        "blocks that were never sent": good._replace(sent=40, decided=0),
        "blocks at the end of time": good._replace(sent=FAR, decided=FAR),
        "decisions that were never made": good._replace(sent=40, decided=40),
        "acknowledgements of nobody's blocks": good._replace(clock=9, acks=[Acked(nobody, 0, (1, 2, 3))]),
        "acknowledgements of blocks to come": good._replace(clock=9, acks=[Acked(each, 5, (1,)) for each in ids]),
        "acknowledgements at the end of time": good._replace(clock=9, acks=[Acked(each, FAR, (1,)) for each in ids]),
        "vectors of another size": good._replace(
            clock=9, acks=[Acked(ids[0], 0, (1,))], nexts=tuple(Next(k, 0) for k in range(MAX_MEMBERS))
        ),
        "vectors at the end of time": good._replace(acks=[Acked(ids[0], 0, (0,))], nexts=(Next(0, (1 << 64) - 1),)),
        "a vector twice": good._replace(acks=[Acked(ids[0], 0, (0,))], nexts=(Next(1, 1), Next(1, 2))),
        "a vector of what is not expected": good._replace(acks=[Acked(ids[0], 0, (0,))], nexts=(Next(0, FAR),)),
        "a decision on nobody's block": good._replace(decisions=[Decided(nobody, 0, (5, nobody), view.seq)]),
        "a decision on a block that is not here": good._replace(decisions=[Decided(ids[0], 3, (5, 5), view.seq)]),
        "decisions of a view that there is not": good._replace(
            decisions=[Decided(ids[0], each, (FAR, 5), view.seq + 1, Bounds(FAR, 0)) for each in range(50)]
        ),
        "bounds of members that there are not": good._replace(
            decisions=[Decided(ids[0], 0, (5, 5), view.seq, Bounds(9, 0xFFFF, (Bound(0, 0, 9, 0xFFFF),)))]
        ),
        "a bound far above its decision": good._replace(
            decisions=[Decided(ids[0], 0, (5, 5), view.seq, Bounds(0xFFFF_0000, 0))]
        ),
        "bounds for more than all": good._replace(
            decisions=[Decided(ids[0], 0, (5, 5), view.seq, Bounds(9, 0, tuple(Bound(k, 0, 9, 0) for k in range(500))))]
        ),
    }


FORGED = {"a clock at the end of time"}
"""No number comes after it. As a forged token does, it may cost the group its ring."""


@pytest.mark.parametrize("kind", [*SPEAKING, Kind.LIST])
def test_a_members_broken_words_stop_nobody(kind: Kind) -> None:
    """The group works on and comes to rest again; LIST may bring a view that nobody made, and cost the ring."""
    for name in hostile_words(view_of(formed("words", "timestamp"))):
        lab = formed("words", "timestamp")
        view = view_of(lab)
        body = encode_stamps(hostile_words(view)[name])
        if kind == Kind.LIST:
            body = encode_list(body, pack_change(replace(view, seq=view.seq + 1, reason=Reason.LEAVE)))
        for index in (0, 2):
            lab.inject(index, lab.members[1].node.address, from_member(lab, kind, body), 0)
        lab.run(8 * SECOND)
        assert all(member.node.is_up for member in lab.members), name
        if kind != Kind.LIST and name not in FORGED:
            assert still_works(lab), name
            assert not lab.cluster.run_to_rest(lab.world.now_ns + 20 * SECOND), f"{name}: that is forgotten soon"


def test_a_members_broken_words_stop_nobody_where_blocks_wait() -> None:
    """The same while a block waits for a member that is cut off, so that there is something to acknowledge."""
    for name in hostile_words(view_of(formed("open", "timestamp"))):
        lab = formed("open", "timestamp")
        view = view_of(lab)
        open_block(lab)
        body = encode_stamps(hostile_words(view)[name])
        lab.inject(0, lab.members[1].node.address, from_member(lab, Kind.STAMPS, body), 0)
        lab.run(100 * MS)
        lab.tap.heal()
        lab.run(8 * SECOND)
        assert all(member.node.is_up for member in lab.members), name


@pytest.mark.parametrize(
    "name",
    ["everybody has received what is not there", "a view that there is not", "blocks that were never sent"],
)
def test_members_come_and_go_although_somebody_spoke_of_what_is_not_there(name: str) -> None:
    """One flipped bit is enough for such a word. The first member waits for nothing that it has only heard of."""
    lab = formed("hearsay", "timestamp")
    body = encode_stamps(hostile_words(view_of(lab))[name])
    for index in (0, 2):
        lab.inject(index, lab.members[1].node.address, from_member(lab, Kind.SYNC, body), 0)
    lab.run(8 * SECOND)
    lab.members[0].leave()
    lab.run(30 * SECOND)
    assert [len(member.view.members) if member.view is not None else 0 for member in lab.members] == [0, 2, 2]


def test_a_members_broken_new_lists_stop_nobody() -> None:
    lab = formed("lists", "timestamp")
    view = view_of(lab)
    words = encode_stamps(quiet_words(view))
    changes = [
        b"",
        b"\0" * 40,
        pack_run(0, AGREED, [b"x"]),
        pack_change(replace(view, seq=view.seq + 1, ring=7)),
        pack_change(replace(view, seq=view.seq + 2)),
        pack_change(replace(view, seq=view.seq + 1, position=FAR)),
        pack_change(replace(view, seq=view.seq + 1, numbers={})),
        pack_change(replace(view, seq=view.seq + 1, members=view.members[:1], numbers={})),
    ]
    for change in changes:
        for number in (view.seq + 1, view.seq + 2, FAR):
            for index in (0, 2):
                data = from_member(lab, Kind.LIST, encode_list(words, change), number)
                lab.inject(index, lab.members[1].node.address, data, 0)
        lab.run(2 * SECOND)
    assert all(member.node.is_up for member in lab.members)


def test_a_members_words_out_of_all_reason_stop_nobody() -> None:
    lab = formed("reason", "timestamp")
    view = view_of(lab)
    member = view.members[1]
    bodies = [
        (Kind.PROPOSE, encode_propose(Acks(FAR, FAR), Reason.JOIN, b""), 0),
        (Kind.PROPOSE, encode_propose(Acks(FAR, FAR), 255, bytes(1_000)), 0),
        (Kind.UNRELIABLE, pack_run(0, UNRELIABLE, [b"x"]), 0),
        (Kind.DATA, pack_run(0, CAUSAL, [b"x"]), 0),
        (Kind.DATA, pack_run(FAR, RELIABLE, [b"x"]), 0),
        (Kind.DATA, pack_run(0, FIFO, [b"x"]), FAR),
        (Kind.DATA, pack_run(0, FIFO, [b"x"]), (1 << 64) - 1),
        (Kind.NAK, encode_nak(Acks(FAR, FAR), [Missing(0, FAR, 256, 0, 0)] * 20), 0),
        (Kind.NAK, encode_nak(Acks(FAR, FAR), [Missing(member.id, FAR, 256, 0, 0)] * 20), 0),
        (Kind.ACCEPT, encode_accept(Lead(FAR, 0, 0, 0), [Assignment(FAR, 1, 1, 1)]), 0),
        (Kind.ACCEPT, encode_accept(Lead(view.seq + 9, 0, 0, 0), [Assignment(view.seq + 9, 5, 5, 1)]), 0),
        (Kind.HELD, encode_held(Acks(FAR, FAR), [(view.members[0].id, FAR)]), 0),
        (Kind.STATUS, encode_acks(Acks(FAR, 0)), 0),
        (Kind.ACK, encode_acks(Acks(FAR, 0)), 0),
        (Kind.TOKEN, bytes(60), 0),
    ]
    for kind, body, number in bodies:
        for index in (0, 2):
            lab.inject(index, member.address, from_member(lab, kind, body, number), 0)
        lab.run(100 * MS)
    lab.run(5 * SECOND)
    assert all(each.node.is_up for each in lab.members)


# What they may cost. --------------------------------------------------------------------------------------------------


def cost_of(lab: Lab, datas: Iterator[bytes]) -> int:
    """Bytes that are kept after all these have come, in passes of a hundred."""
    tracemalloc.start()
    try:
        for count, data in enumerate(datas):
            lab.inject(0, lab.members[1].node.address, data, 0)
            if count % 100 == 99:
                lab.run(MS)
        lab.run(10 * MS)
        lab.tap.seen.clear()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_decisions_of_a_view_that_does_not_come_are_kept_in_bounded_number() -> None:
    """However many there are, and however many bounds they carry."""
    lab = formed("later", "timestamp")
    view, bounds = view_of(lab), tuple(Bound(each, each, 0, 0) for each in range(100))
    good = quiet_words(view)

    def datas() -> Iterator[bytes]:
        for number in range(4_500):
            decided = Decided(view.members[0].id, number, (number, 5), view.seq + 1, Bounds(number, 0, bounds))
            yield from_member(lab, Kind.DECISION, encode_stamps(good._replace(decisions=[decided])))

    assert cost_of(lab, datas()) < 8 << 20


def test_acknowledgements_are_kept_in_bounded_number() -> None:
    """Of blocks that are not sent, that are nobody's, or that are decided: they leave nothing behind."""
    lab = formed("acks", "timestamp")
    view = view_of(lab)
    lab.members[0].send(5, AGREED, 100)
    lab.run(SECOND)
    good = quiet_words(view)._replace(clock=5_000, nexts=(Next(0, 0),))

    def datas() -> Iterator[bytes]:
        for number in range(2_000):
            for origin in (node_id("a", 0), number):
                acked = Acked(origin, number % 10, tuple(range(64)))
                yield from_member(lab, Kind.STAMPS, encode_stamps(good._replace(acks=[acked])))

    assert cost_of(lab, datas()) < 2 << 20


def test_blocks_of_strangers_are_not_proposed_for_and_take_bounded_room() -> None:
    lab = formed("blocks", "timestamp")
    block = pack_run(0, AGREED, [bytes(400)])

    def datas() -> Iterator[bytes]:
        for origin in range(1, 5_000):
            yield HEADER.pack(MAGIC, Kind.DATA, 0, 0, TAG, view_of(lab).ring, origin, 0) + block

    assert cost_of(lab, datas()) < 2 << 20
    assert still_works(lab)
