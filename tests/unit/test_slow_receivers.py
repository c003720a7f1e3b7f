"""The parts of evictions and expulsions (docs/design/slow.md): clocks, requests, the way back, and the API."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.fake_engine import Exchange
from tests.unit.fake_node import FakeNode
from tests.unit.rings import VIEW, A, B, C, block_of, ring_of

from ordercast.api.expelling import find_member
from ordercast.config import MS, SECOND, GroupConfig
from ordercast.engine import Change, Departed, Outbox, StallReason
from ordercast.errors import NotMember, UsageError, WireError
from ordercast.groups.consumption import Consumption
from ordercast.groups.events import Left
from ordercast.membership.quorum.local import departed_by
from ordercast.orderers.logged.expelling import Expulsions, eviction, is_current, renewed
from ordercast.orderers.logged.in_order import InOrderDelivery
from ordercast.orderers.logged.leaving import REPEAT_NS
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.sequencer.acknowledging import Acknowledger
from ordercast.orderers.sequencer.announcing import Announcer
from ordercast.orderers.sequencer.role import BEHIND_NS, SequencerRole
from ordercast.parts.changes import next_view
from ordercast.parts.slow import SlowReceivers
from ordercast.parts.timers import Timers
from ordercast.service import AGREED, SAFE
from ordercast.underlay.returning import WayBack
from ordercast.view import MAY_RETURN, Reason, View
from ordercast.wire.ordering import Acks, decode_expulsion, encode_expulsion
from ordercast.wire.token import decode_change, encode_change

WITH_C = replace(VIEW, members=(A, B, C), numbers={A.id: 0, B.id: 0, C.id: 4})


def after(view: View, change: Change, seq: int) -> View:
    """The view that a change makes."""
    made = next_view(view, change, view.counter + 1, 8, seq, 0, view.numbers, {}, A)
    assert made is not None
    return made


# How long an application holds up the group. --------------------------------------------------------------------------


def test_the_time_counts_from_the_last_thing_that_was_received() -> None:
    slow = SlowReceivers(GroupConfig(patience_ns=SECOND))
    assert slow.look(0, {7: 10}) == []
    assert slow.look(900 * MS, {7: 10}) == []
    assert slow.look(950 * MS, {7: 11}) == []  # slow, and steady
    assert slow.look(1_900 * MS, {7: 11}) == []
    assert slow.look(1_950 * MS, {7: 11}) == [7]


def test_a_moment_with_room_ends_the_time() -> None:
    slow = SlowReceivers(GroupConfig(patience_ns=SECOND))
    slow.look(0, {7: 10, 8: 3})
    assert slow.look(500 * MS, {8: 3}) == []
    assert slow.look(SECOND, {7: 10, 8: 3}) == [8]
    assert slow.look(1_100 * MS, {}) == []
    assert slow.look(3 * SECOND, {7: 10, 8: 3}) == []


def test_an_application_that_waits_for_what_another_member_lacks_is_not_slow() -> None:
    """A message may have to be safe: until all members have it no application can receive it."""
    role = SequencerRole(WITH_C, A.id, 10, 0)
    role.is_blocked = True
    for member in (A, C):
        assert role.acknowledge(member.id, 11, 10, 11)
    assert role.holding_up(0) == {}, "B lacks it, and the history waits for B"
    role.acknowledge(B.id, 11, 11, 11)
    role.acknowledge(A.id, 11, 11, 11)
    role.note_behind(0, C.id, 10)
    assert role.holding_up(0) == {C.id: 10}


def test_only_by_its_own_word_an_application_is_slow() -> None:
    """A member that is heard may have missed that a message is safe: its application cannot receive it."""
    role = SequencerRole(WITH_C, A.id, 10, 0)
    role.is_blocked = True
    for member, consumed in ((A, 11), (B, 11), (C, 10)):
        assert role.acknowledge(member.id, 11, consumed, 11)
    assert role.holding_up(0) == {}
    assert role.lagging(0, 11) == ([], [C.id])
    role.note_behind(0, C.id, 10)
    assert role.holding_up(BEHIND_NS - 1) == {C.id: 10}
    assert role.lagging(BEHIND_NS - 1, 11) == ([C.id], [])
    assert role.holding_up(BEHIND_NS) == {}, "it would have said so again"
    role.note_behind(BEHIND_NS, C.id, 10)
    role.acknowledge(A.id, 12, 11, 12)
    role.acknowledge(C.id, 11, 11, 12)
    assert role.lagging(BEHIND_NS, 11) == ([], []), "it has consumed since"


def test_an_application_is_behind_when_it_leaves_what_it_was_given() -> None:
    ring = ring_of(A, WITH_C)
    delivery = InOrderDelivery(ring, SendWindow(ring, has_policy=False).outgoing)
    acknowledger = Acknowledger(ring, delivery, Announcer(ring, delivery), Timers())
    quiet_ns = ring.timing.ack_quiet_ns
    acknowledger.look(0)
    for seq, service in ((11, AGREED), (12, SAFE)):
        ring.log.hold(B.id, seq - 11, block_of(seq - 11, service=service))
        ring.log.assign(seq, B.id, seq - 11)
    assert len(list(ring.log.advance())) == 2
    now_ns = SECOND  # it has been at rest for long: that is not its application's time
    delivery.deliver(Outbox())
    acknowledger.look(now_ns)
    assert acknowledger.acks() == Acks(12, 10, False)
    acknowledger.look(now_ns + quiet_ns)
    assert acknowledger.acks() == Acks(12, 10, True)
    delivery.consume(11)
    acknowledger.look(now_ns + 2 * quiet_ns)
    acknowledger.look(now_ns + 3 * quiet_ns)
    assert acknowledger.acks() == Acks(12, 11, False), "the next message is SAFE, and nobody has said that it is"


def test_a_group_that_waits_evicts_nobody() -> None:
    slow = SlowReceivers(GroupConfig(slow="wait", patience_ns=SECOND))
    slow.look(0, {7: 10})
    assert slow.look(10**6 * SECOND, {7: 10}) == []


@pytest.mark.parametrize("wrong", [{"slow": "never"}, {"patience_ns": 0}, {"patience_ns": 10**18}])
def test_a_config_refuses_what_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        GroupConfig(**wrong)  # type: ignore[arg-type]


# Requests. ------------------------------------------------------------------------------------------------------------


def test_an_expulsion_is_asked_for_until_its_member_is_out_and_not_in_its_next_stay() -> None:
    ring = ring_of(A, WITH_C)
    wanted = Expulsions(ring)
    change = eviction(ring, C)
    assert change.header == b"expelled by a/0: its application has not received for 10.0 s"
    wanted.want(100, change)
    assert wanted.due(99) == []
    assert wanted.due(100) == [change]
    assert wanted.due_ns == 100 + REPEAT_NS
    ring.apply(after(WITH_C, change, 11))
    ring.apply(after(ring.view, Change(Reason.JOIN, C), 12))
    assert not is_current(ring, change)
    assert wanted.due(wanted.due_ns) == []
    assert is_current(ring, renewed(ring, change))


def test_the_last_member_is_never_expelled() -> None:
    alone = replace(VIEW, members=(A,))
    assert next_view(alone, Change(Reason.EXPEL, A), 2, 8, 11, 0, {}, {}, A) is None


def test_what_an_expelled_member_had_sent_and_is_not_ordered_is_dropped() -> None:
    """But for what a recovery has found sequence numbers for: that is of its next stay."""
    ring = ring_of(A, WITH_C)
    log = ring.log
    for number in (4, 5, 6):
        assert log.hold(C.id, number, block_of(number))
    log.assign(13, C.id, 6)
    ring.apply(after(WITH_C, Change(Reason.EXPEL, C), 11))
    assert list(log.blocks) == [(C.id, 6)]
    assert not log.hold(C.id, 7, block_of(7))


def test_what_goes_over_the_wire_is_read_back() -> None:
    change = Change(Reason.EXPEL, C, b"why", 12, serial=MAY_RETURN)
    assert decode_change(encode_change(change)) == change
    header = encode_expulsion(C.id, 12, MAY_RETURN, b"why")
    assert header.hex() == C.id.to_bytes(8, "little").hex() + "0c00000000000000" + "0100000000000000" + "0300776879"
    assert decode_expulsion(header) == (C.id, 12, MAY_RETURN, b"why")
    with pytest.raises(WireError):
        decode_expulsion(header[:-1])


# The way out and back. ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("serial", "was_leaving", "is_manual", "returning"),
    [
        (MAY_RETURN, False, False, True),
        (0, False, False, False),
        (MAY_RETURN, True, False, False),
        (1, False, True, False),
    ],
)
def test_only_an_evicted_member_comes_back(serial: int, was_leaving: bool, is_manual: bool, returning: bool) -> None:
    view = after(WITH_C, Change(Reason.EXPEL, C, b"expelled by a/0", serial=serial), 11)
    departed = departed_by(view, was_leaving, is_manual)
    assert (departed.returning, departed.is_waiting, departed.wanted) == (returning, returning, was_leaving)
    assert departed.text == "expelled by a/0"


@pytest.mark.parametrize("first", ["received", "left"])
def test_the_way_back_begins_when_nobody_needs_the_node_and_its_application_receives(first: str) -> None:
    returning = WayBack()
    assert not returning.received()  # it was never out
    returning.departed(Departed(False, False, "expelled"))
    assert not returning.is_expected
    returning.departed(Departed(False, True, "expelled", True))
    assert returning.waits_for_application
    second = "left" if first == "received" else "received"
    assert not getattr(returning, first)()
    assert getattr(returning, second)()
    assert not returning.is_expected
    returning.departed(Departed(False, True, "expelled", True))
    assert returning.cancel()
    assert not returning.cancel()
    assert not returning.left()
    assert not returning.received()


def test_an_application_has_received_when_everything_up_to_its_end_is_taken() -> None:
    consumption = Consumption()
    receipts = [consumption.add(seq, 1) for seq in (4, 5, -1)]
    consumption.on_departed()
    consumption.is_awaited = True
    for receipt in receipts:
        assert not consumption.has_news
        consumption.finish(receipt)
    assert consumption.has_news


# The API. -------------------------------------------------------------------------------------------------------------


def test_a_member_is_found_by_itself_its_name_its_life_and_its_id() -> None:
    again = replace(C, name="b", life=3, id=99)
    view = replace(WITH_C, members=(A, B, C, again))
    assert find_member(view, A, "g") is find_member(view, "a", "g") is find_member(view, A.id, "g") is A
    assert find_member(view, "b/0", "g") is B
    with pytest.raises(UsageError, match="stands for b/0, b/3"):
        find_member(view, "b", "g")
    with pytest.raises(UsageError, match="d is not in 'g'; its members are a/0, b/0, c/0, b/3"):
        find_member(view, "d", "g")
    for nonsense in (None, True, 1.5):
        with pytest.raises(UsageError, match="a member is a Member, a name or an id"):
            find_member(view, nonsense, "g")  # type: ignore[arg-type]


def test_expel_returns_with_the_view_and_fails_with_the_group() -> None:
    async def test() -> None:
        exchange, nodes = Exchange(), list[FakeNode]()
        a, b = [await FakeNode(name, exchange, nodes).join("g") for name in "ab"]
        while len(a.members) < 2:
            await asyncio.sleep(0)
        with pytest.raises(UsageError, match="a/0 is this node itself: call leave"):
            await a.expel("a")
        with pytest.raises(UsageError, match="why is a text of at most 512 bytes"):
            await a.expel("b", "x" * 513)
        await a.expel("b", "it is old")
        assert [str(member) for member in a.members] == ["a/0"]
        assert [event async for event in b][-1] == Left(False, False, "it is old")
        with pytest.raises(NotMember, match="it is old"):
            await b.expel("a")

    asyncio.run(asyncio.wait_for(test(), 20))


def test_on_the_way_back_a_node_waits_for_its_application_and_then_for_the_old_ring() -> None:
    back = WayBack()
    back.departed(Departed(False, True, "expelled", True))
    own = back.waiting("prices", C, (A, B))
    assert (own.reason, own.waiting_for) == (StallReason.NOT_RECEIVING, (str(C),))
    assert not back.received()
    others = back.waiting("prices", C, (A, B, C))
    assert (others.reason, others.waiting_for) == (StallReason.NETWORK, (str(A), str(B)))
    assert back.left()
