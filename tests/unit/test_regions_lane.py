"""A lane of a sender, and what comes up from lanes."""

from __future__ import annotations

from ordercast.config import SECOND
from ordercast.engine import NEVER
from ordercast.orderers.regions.delivery import Deliveries
from ordercast.orderers.regions.given import GivenView
from ordercast.orderers.regions.lane import LaneWindow, RegionLane
from ordercast.orderers.regions.upcalls import BlocksLost, LaneRun
from ordercast.parts.ranges import from_numbers
from ordercast.parts.rate import SendingRate, policy_of
from ordercast.view import Member
from ordercast.wire.regions import CLOSED, RegionAck

VIEW = GivenView(3, 11, 1, "gms", None, (Member(1, "a", 1, ("h", 1)),))
OTHER = VIEW._replace(view=12, epoch=2)


def a_lane(blocks: int, size: int = 100) -> RegionLane:
    lane = RegionLane(VIEW, SendingRate(0, policy_of("qsm"), 1_000.0), LaneWindow(1 << 20, 1 << 20, 1_000, 1))
    for number in range(blocks):
        assert lane.add(0, bytes(size), number - 1, 1, SECOND) == number
    return lane


def an_ack(ack: int, purge: int = 0, flags: int = 0) -> RegionAck:
    return RegionAck(ack, purge, 1, 100, 1, flags)


def test_an_ack_frees_blocks_and_tells_the_first_that_is_open() -> None:
    lane = a_lane(3)
    assert lane.first_open == 0
    assert lane.on_ack(5, an_ack(2, 1), SECOND)
    assert (sorted(lane.kept), lane.first_open, lane.unacked_bytes, lane.unpurged_bytes) == ([2], 1, 100, 200)
    assert lane.tail_ns == 5 + SECOND
    assert lane.on_ack(6, an_ack(3, 3), SECOND)
    assert (lane.first_open, lane.tail_ns, lane.is_stable) == (-1, NEVER, True)


def test_an_ack_that_cannot_be_true_is_ignored() -> None:
    lane = a_lane(2)
    assert not lane.on_ack(5, an_ack(3), SECOND)
    assert not lane.on_ack(5, an_ack(0, 3), SECOND)
    assert len(lane.kept) == 2


def test_room_is_what_credits_history_and_purge_leave() -> None:
    lane = a_lane(2)
    assert lane.room(1_000, 10, 10) == 62 * 10
    assert lane.room(250, 10, 10) == 50
    assert lane.room(1_000, 2, 10) == 0
    lane.on_ack(5, an_ack(2), SECOND)
    assert lane.room(60, 10, 10) == 40, "four times the history may wait for purge"


def test_a_nak_is_answered_with_what_is_kept_and_gone() -> None:
    lane = a_lane(4, 25)
    lane.on_ack(5, an_ack(1), SECOND)
    answer = lane.answer(0, 2, from_numbers([0, 256, 258]), 10)
    assert answer.blocks == [(2, bytes(25), ((0, 1), (2, 3)))]
    assert answer.gone == from_numbers([0])
    assert lane.answer(1, 2, from_numbers([512]), 10).blocks == [], "there is no block 5"


def test_a_lane_is_settled_when_closed_and_done_when_everybody_has_everything() -> None:
    lane = a_lane(2)
    lane.on_ack(1, an_ack(2, 1, CLOSED), SECOND)
    assert not lane.is_closed, "it was not closing"
    lane.end(2, 7)
    assert lane.room(1_000, 10, 10) == 0
    lane.on_ack(3, an_ack(2, 1, CLOSED), SECOND)
    assert lane.is_settled
    assert not lane.is_done
    lane.on_ack(4, an_ack(2, 2, CLOSED), SECOND)
    assert lane.is_done


def test_a_view_that_has_drained_ends_a_lane() -> None:
    lane = a_lane(2)
    lane.end(2, 7)
    lane.drain()
    assert lane.is_done
    assert lane.tail_ns == NEVER


def test_deliveries_of_a_view_are_one_run_and_consumed_by_ticket() -> None:
    up = Deliveries()
    up.deliver(VIEW, 5, 1, b"abc")
    up.deliver(VIEW, 6, 1, b"de")
    up.lose(VIEW, 5, 2)
    up.lose(VIEW, 5, 3)
    up.deliver(VIEW, 5, 4, b"f")
    up.deliver(OTHER, 5, 1, b"g")
    first, lost, second, third = up.take()
    assert isinstance(first, LaneRun)
    assert [(each.seq, each.origin, each.number) for each in first.deliveries] == [(1, 5, 1), (2, 6, 1)]
    assert lost == BlocksLost(3, "1@gms", 5, 2, 2)
    assert isinstance(second, LaneRun)
    assert isinstance(third, LaneRun)
    assert (second.view, third.view) == ("1@gms", "2@gms")
    up.consume(2)
    assert up.lag_bytes == 2
    assert up.take() == []
