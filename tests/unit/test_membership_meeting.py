"""Rings of one name that meet (docs/design/overview.md section 3): which of them goes on, and what a member says to the
other."""

from __future__ import annotations

import pytest
from tests.unit.quorums import local_member

from ordercast.config import LAN_DATAGRAM, GroupConfig, Timing
from ordercast.engine import NEVER, Outbox, To
from ordercast.membership.quorum.local import Wishes
from ordercast.membership.quorum.meeting import Meeting, MeetingAnswer, better, meet
from ordercast.view import Member, node_id
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind
from ordercast.wire.views import Ring, decode_ring
from ordercast.wire.writer import DatagramWriter


def member(name: str) -> Member:
    return Member(node_id(name, 0), name, 0, (f"10.0.0.{ord(name)}", 7_000))


def ring(number: int, size: int, counter: int = 1, creator: str = "a/0") -> Ring:
    return Ring("g", number, counter, creator, size, True, member("l"), GroupConfig("token"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ring(1, 3), ring(2, 2)),
        (ring(1, 2, counter=4), ring(2, 2, counter=5)),
        (ring(1, 2, creator="a/0"), ring(2, 2, creator="b/0")),
    ],
)
def test_of_two_rings_the_larger_goes_on_then_the_one_with_the_lower_view_id(one: Ring, other: Ring) -> None:
    assert better(one, other)
    assert not better(other, one)


def test_a_ring_is_not_better_than_itself() -> None:
    assert not better(ring(1, 3), ring(1, 2))


@pytest.mark.parametrize(
    ("ours", "leads", "is_beacon", "is_from_leader", "answer"),
    [
        (1, False, True, True, MeetingAnswer.TELL_LEADER),
        (1, False, False, True, MeetingAnswer.NOTHING),
        (3, True, True, True, MeetingAnswer.SHOW_OURS),
        (3, True, False, True, MeetingAnswer.SHOW_OURS),
        (1, True, True, True, MeetingAnswer.ASK_ITS_LEADER),
        (1, True, True, False, MeetingAnswer.ASK_ITS_LEADER),
        (1, True, False, False, MeetingAnswer.ASK_ITS_LEADER),
        (1, True, False, True, MeetingAnswer.DISSOLVE),
    ],
)
def test_only_the_word_of_the_other_leader_dissolves_a_ring(
    ours: int, leads: bool, is_beacon: bool, is_from_leader: bool, answer: MeetingAnswer
) -> None:
    assert meet(ring(1, ours), ring(2, 2), leads, is_beacon, is_from_leader) is answer


def test_a_beacon_goes_to_all_and_to_the_contact_and_is_due_again() -> None:
    me, contact, timing = member("a"), ("10.0.0.99", 7_000), Timing()
    local = local_member(me, DatagramWriter(1, me.id, LAN_DATAGRAM), timing)
    meeting, out = Meeting(local, Wishes(contact=contact)), Outbox()
    assert meeting.due_ns == NEVER
    meeting.show(5, To.ANYONE, ring(1, 3), out)
    assert [send.to for send in out.sends] == [contact, To.ANYONE]
    assert meeting.due_ns == 5 + timing.beacon_ns
    data = b"".join(out.sends[0].buffers)
    assert HEADER.unpack_from(data)[1] == Kind.BEACON
    assert decode_ring(data[HEADER_BYTES:]) == ring(1, 3)


def test_a_beacon_to_one_ring_does_not_move_the_next_one_for_all() -> None:
    me = member("a")
    local = local_member(me, DatagramWriter(1, me.id, LAN_DATAGRAM), Timing())
    meeting, out = Meeting(local, Wishes()), Outbox()
    meeting.show(5, member("b").address, ring(1, 3), out)
    assert [send.to for send in out.sends] == [member("b").address]
    assert meeting.due_ns == NEVER
