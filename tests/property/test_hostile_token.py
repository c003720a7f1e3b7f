"""Hostile bytes at the door of a node in a token group: counted, dropped, never raised; the group works on.

What only the token has: tokens, New Lists, requests for them, blocks without a place, calls from outside. What is asked
of any group stands in test_hostile_datagrams.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.property.hostile import FAR, STRANGER, TAG, formed, from_member, still_works, view_of, working
from tests.property.wiretap import Lab

from ordercast.config import MS, SECOND
from ordercast.engine import Change
from ordercast.orderers.logged.delivery import MAX_RECENT
from ordercast.orderers.token.calls import MAX_NEW, MAX_WAITING
from ordercast.service import AGREED, FIFO, UNRELIABLE, Service
from ordercast.underlay import Underlay
from ordercast.underlay.luggage import Legacy
from ordercast.view import Reason, node_id
from ordercast.wire.block import CALLED, ENTRY, EQUAL, HEAD, pack_run
from ordercast.wire.calls import FIRST, NO_HANDLER, RELAY, WANTS_ACK, CallHead, encode_call, pack_call
from ordercast.wire.header import FORWARD, HEADER, MAGIC, Kind
from ordercast.wire.ordering import Acks, Assignment, Lead, Missing, encode_accept, encode_acks, encode_held, encode_nak
from ordercast.wire.token import HOLDS, HURRY, State, encode_change, encode_list, encode_state, encode_token
from ordercast.wire.views import pack_change


@pytest.fixture
def lab() -> Iterator[Lab]:
    yield from working("token")


def call(origin: int, number: int, *, flags: int = FIRST, service: Service = AGREED, payload: bytes = b"x") -> bytes:
    """A CALL of somebody outside."""
    head = CallHead(0, WANTS_ACK, NO_HANDLER, "evil/0", ("192.0.2.1", 9))
    body = encode_call(flags, "sim", pack_call(0, service, head, payload))
    return HEADER.pack(MAGIC, Kind.CALL, 0, 0, TAG, 0, origin, number) + body


def test_datagrams_of_the_ring_from_strangers_do_no_harm(lab: Lab) -> None:
    """Well-formed, the right ring, the origin of nobody: no block, no place, no pass and no request counts."""
    view, stranger = view_of(lab), node_id("stranger", 0)
    ours = [member.id for member in view.members]
    state = State(1 << 40, ours[0], view.seq, view.seq, HOLDS | HURRY, (view.seq,) * 3)
    evil = replace(view.members[0], id=stranger, name="stranger")
    bodies = [
        (Kind.DATA, pack_run(0, FIFO, [b"x"])),
        (Kind.UNRELIABLE, pack_run(0, UNRELIABLE, [b"x"])),
        (Kind.REQUEST, pack_run(0, AGREED, [b"x"])),
        (Kind.NAK, encode_nak(Acks(0, 0), [Missing(0, 0, 256, 0, 0)])),
        (Kind.STATUS, encode_acks(Acks(1, 0))),
        (Kind.ACK, encode_acks(Acks(FAR, 0))),
        (Kind.HELD, encode_held(Acks(0, 0), [(ours[0], FAR)])),
        (Kind.PROPOSE, encode_change(Change(Reason.LEAVE, view.members[0]))),
        (Kind.PROPOSE, encode_change(Change(Reason.LOCK, evil, lock="x", serial=1))),
        (Kind.PROPOSE, encode_change(Change(Reason.DISSOLVE, evil))),
        (Kind.CONFIRM, encode_state(state)),
        (Kind.SYNC, encode_state(state)),
        (Kind.TOKEN, encode_token(state, [])),
    ]
    for index in range(3):
        for kind, body in bodies:
            lab.inject(index, STRANGER, HEADER.pack(MAGIC, kind, 0, 0, TAG, view.ring, stranger, 0) + body, 0)
    lab.run(10 * MS)


def test_forwards_are_for_members_without_multicast_only(lab: Lab) -> None:
    """RMP section 3.4: nobody multiplies what a stranger, or a member that can multicast itself, sends."""
    sent = lab.tap.counters.sent
    for source in (STRANGER, lab.members[1].node.address):
        data = from_member(lab, Kind.DATA | FORWARD, pack_run(9, AGREED, [b"x"]))
        lab.inject(0, source, data, 0)
    lab.run(MS)
    assert lab.counters(0)["strange_forwards"] == 2
    assert lab.tap.counters.sent == sent


# Callers are strangers by design: what they may cost is bounded. ------------------------------------------------------


def test_calls_that_cannot_be_are_counted_and_dropped(lab: Lab) -> None:
    good = CallHead(0, WANTS_ACK, NO_HANDLER, "evil/0", ("192.0.2.1", 9))
    one = ENTRY.pack(0, 0, 0, 1)
    blocks = [
        b"",
        b"\0" * 40,
        pack_run(0, AGREED, [b"x"]),
        pack_call(0, AGREED, good._replace(handler=77), b"x"),
        pack_call(0, AGREED, good._replace(address=("example.org", 1)), b"x"),
        pack_call(0, AGREED, good._replace(needs=FAR + 1), b"x"),
        HEAD.pack(0, 1, 4, 0, EQUAL | CALLED, 1) + one + b"\xff\xff\xff\xff",
        HEAD.pack(0, 1, 9, 0, EQUAL | CALLED, 1) + one + b"\1\0\0\0x",
    ]
    before = lab.dropped(0)
    for number, block in enumerate(blocks):
        for flags in (FIRST, FIRST | RELAY, 0xFF):
            data = HEADER.pack(MAGIC, Kind.CALL, 0, 0, TAG, 0, 99, number) + encode_call(flags, "sim", block)
            lab.inject(0, STRANGER, data, 0)
    lab.run(MS)
    assert lab.dropped(0) == before + 3 * len(blocks)


def test_callers_that_never_were_cost_a_bounded_number_of_calls() -> None:
    """Who begins in the middle without the first-packet flag is nobody; those who begin are bounded until one has its
    place; and one caller may have so many waiting."""
    lab = formed("callers", "token", "ab")
    for member in lab.members:
        lab.tap.partition([[member.node.name] for member in lab.members])
    engine = lab.members[0].port.engine  # type: ignore[union-attr]
    for origin in range(1, 2_000):
        lab.inject(0, STRANGER, call(origin, 5, flags=0), 0)
    assert isinstance(engine, Underlay)
    assert engine.peak_blocks <= 1
    for origin in range(1, 2_000):
        lab.inject(1, STRANGER, call(origin, 5), 0)
    for number in range(1, 2_000):
        lab.inject(1, STRANGER, call(1, number), 0)
    lab.world.crash("a")
    lab.run(MS)
    held = lab.members[1].port.engine.peak_blocks  # type: ignore[union-attr]
    assert held <= MAX_NEW + MAX_WAITING + 16


def test_callers_of_unreliable_calls_are_remembered_in_bounded_number() -> None:
    """They are delivered on arrival and only once, whoever they are from: of the last so many callers."""
    lab = formed("loose", "token")
    for origin in range(1, MAX_RECENT + 500):
        for _ in range(2):
            lab.inject(0, STRANGER, call(origin, 0, service=UNRELIABLE), 0)
        if origin % 100 == 0:
            lab.run(10 * MS)  # the application takes them
    lab.run(SECOND)
    assert lab.members[0].delivered == MAX_RECENT + 499
    legacy = lab.members[0].port.engine.carry()  # type: ignore[union-attr]
    assert isinstance(legacy, Legacy)
    assert len(legacy.memory.recent) <= MAX_RECENT


def test_unreliable_calls_that_the_application_does_not_take_are_dropped() -> None:
    """Nothing holds up who sends them: without a bound a flood would fill the memory of a slow member."""
    lab = formed("flood", "token")
    for number in range(20_000):
        lab.inject(0, STRANGER, call(7, number, service=UNRELIABLE), 0)
    engine = lab.members[0].port.engine  # type: ignore[union-attr]
    lab.run(SECOND)
    assert 0 < lab.members[0].delivered < 10_000
    assert engine.counters["overrun_drops"] > 10_000
    assert isinstance(engine, Underlay)
    assert engine.peak_bytes < 8 << 20


# From a member itself. RMP knows no malice, so the group may suffer; the node must not. -------------------------------


FORGED = {"a pass at the end of time", "you are the site"}
"""A second token, or the end of the first. As forged places do, that may cost the group its order."""


def hostile_states(lab: Lab) -> dict[str, State]:
    view = view_of(lab)
    ids = [member.id for member in view.members]
    # Of a pass long ago: a later one would be a second token.
    good = State(0, ids[0], view.seq, view.seq, 0, (view.seq,) * 3)
    return {
        "a pass at the end of time": good._replace(turn=FAR),
        "a site that is nobody": good._replace(site=12345),
        "a place at the end of time": good._replace(highest=FAR),
        "a place a little ahead": good._replace(highest=view.seq + 500),
        "everybody holds what is not there": good._replace(highest=view.seq + 9, rows=(view.seq + 9,) * 3),
        "more rows than members": good._replace(rows=(view.seq,) * 900),
        "no rows": good._replace(rows=()),
        "a view that there is not": good._replace(view=view.seq + 7),
        "all flags": good._replace(flags=0xFFFF),
        "you are the site": good._replace(site=ids[2], turn=90, flags=HOLDS | HURRY),
    }


@pytest.mark.parametrize("kind", [Kind.SYNC, Kind.CONFIRM, Kind.TOKEN, Kind.LIST, Kind.ORDERED])
def test_a_members_broken_token_stops_nobody(kind: Kind) -> None:
    for name in hostile_states(formed("states", "token")):
        lab = formed("states", "token")
        state, view = hostile_states(lab)[name], view_of(lab)
        assignments = [Assignment(min(state.highest, FAR), view.members[1].id, 0, 1)]
        body = encode_state(state) if kind in (Kind.SYNC, Kind.CONFIRM) else encode_token(state, assignments)
        if kind == Kind.LIST:
            body = encode_list(body, pack_change(replace(view, seq=state.highest, reason=Reason.LEAVE)))
        elif kind == Kind.ORDERED:
            body = encode_list(body, pack_run(0, AGREED, [b"x"]))
        for index in (0, 2):
            lab.inject(index, lab.members[1].node.address, from_member(lab, kind, body), 0)
        lab.run(8 * SECOND)
        assert all(member.node.is_up for member in lab.members), name
        if kind in (Kind.SYNC, Kind.CONFIRM) and name not in FORGED:
            assert still_works(lab), name


def test_a_members_broken_new_lists_stop_nobody() -> None:
    lab = formed("lists", "token")
    view = view_of(lab)
    state = State(50, view.members[0].id, view.seq + 1, view.seq, 0, (view.seq,) * 3)
    token = encode_token(state, [Assignment(view.seq + 1, 0, view.seq + 1, 1)])
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
        for kind in (Kind.LIST, Kind.ORDERED):
            for index in (0, 2):
                data = from_member(lab, kind, encode_list(token, change))
                lab.inject(index, lab.members[1].node.address, data, 0)
        lab.run(2 * SECOND)
    assert all(member.node.is_up for member in lab.members)


def test_a_members_words_out_of_all_reason_stop_nobody() -> None:
    lab = formed("words", "token")
    view = view_of(lab)
    member = view.members[1]
    bodies = [
        (Kind.PROPOSE, encode_change(Change(Reason.LEAVE, view.members[0])), 0),
        (Kind.PROPOSE, encode_change(Change(Reason.JOIN, replace(member, id=3, name="n"), next_block=FAR)), 0),
        (Kind.PROPOSE, encode_change(Change(Reason.LOCK, member, lock="x", serial=(1 << 64) - 1)), 0),
        (Kind.PROPOSE, encode_change(Change(Reason.JOIN, replace(member, id=4, name="m"), callers={5: FAR})), 0),
        (Kind.UNRELIABLE, pack_run(0, AGREED, [b"x"]), 0),
        (Kind.UNRELIABLE, pack_run(0, UNRELIABLE, [b"x"]), (1 << 64) - 1),
        (Kind.UNRELIABLE, b"\0" * 30, 0),
        (Kind.DATA, pack_run(FAR, FIFO, [b"x"]), 0),
        (Kind.DATA, pack_run(0, FIFO, [b"x"]), FAR),
        (Kind.REQUEST, pack_run(0, AGREED, [b"x"]), (1 << 64) - 1),
        (Kind.NAK, encode_nak(Acks(FAR, FAR), [Missing(0, FAR, 256, 0xFFFE, 0xFFFF)] * 20), 0),
        (Kind.ACCEPT, encode_accept(Lead(FAR, 0, 0, 0), [Assignment(FAR, 1, 1, 1)]), 0),
        (Kind.ACCEPT, encode_accept(Lead(view.seq + 9, 0, 0, 0), [Assignment(view.seq + 9, 5, 5, 1)]), 0),
        (Kind.HELD, encode_held(Acks(FAR, FAR), [(view.members[0].id, FAR)]), 0),
        (Kind.STATUS, encode_acks(Acks(FAR, 0)), 0),
        (Kind.ACK, encode_acks(Acks(FAR, 0)), 0),
    ]
    for kind, body, number in bodies:
        for index in (0, 2):
            lab.inject(index, member.address, from_member(lab, kind, body, number), 0)
        lab.run(100 * MS)
    lab.run(5 * SECOND)
    assert all(each.node.is_up for each in lab.members)
