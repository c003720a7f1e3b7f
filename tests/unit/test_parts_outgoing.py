"""Blocks from `submit` until they are stable: when they are sent again, and when in vain (Amoeba section 4.1)."""

from __future__ import annotations

from ordercast.config import MS, SECOND, Timing
from ordercast.engine import NEVER
from ordercast.parts.outgoing import AT_ONCE, Outgoing

ME, OTHER = 11, 22
TIMING = Timing(retransmit_ns=100 * MS, retransmit_max_ns=SECOND, tries=3)
FIRST_NS = 100 * MS


def make(*numbers: int) -> Outgoing:
    outgoing = Outgoing(ME, TIMING)
    for number in numbers:
        outgoing.keep(0, ME, number, b"%d" % number, 10)
    return outgoing


def test_a_block_is_sent_again_when_its_time_is_over() -> None:
    outgoing = make(0)
    assert outgoing.due(FIRST_NS - 1) == []
    assert outgoing.deadline_ns(0) == FIRST_NS
    assert outgoing.due(FIRST_NS) == [(ME, 0, b"0")]
    assert outgoing.due(FIRST_NS) == []


def test_each_try_waits_longer_than_the_last() -> None:
    outgoing = make(0)
    waits, now_ns = [], 0
    for _ in range(5):
        due_ns = outgoing.deadline_ns(now_ns)
        waits.append(due_ns - now_ns)
        now_ns = due_ns
        assert outgoing.due(now_ns)
    assert waits == sorted(waits)
    assert waits[1] == 2 * waits[0]
    assert waits[-1] <= SECOND


def test_tries_in_vain_are_told_and_an_order_takes_that_back() -> None:
    outgoing = make(0, 1)
    now_ns = 0
    while not outgoing.is_exhausted:
        now_ns = outgoing.deadline_ns(now_ns)
        assert outgoing.due(now_ns)
    assert outgoing.ordered(now_ns, ME, 0)
    assert not outgoing.is_exhausted


def test_a_timer_is_never_due_at_once() -> None:
    outgoing = make(0)
    assert outgoing.deadline_ns(10 * SECOND) == 10 * SECOND + MS
    assert make().deadline_ns(0) == NEVER


def test_only_so_many_are_sent_again_at_once() -> None:
    """More would add to the congestion that lost them."""
    outgoing = make(*range(AT_ONCE + 5))
    assert len(outgoing.due(FIRST_NS)) == AT_ONCE
    assert len(outgoing.due(2 * FIRST_NS)) == 5, "the others wait longer after their first try"


def test_a_block_that_has_its_order_is_not_sent_again_and_holds_the_window() -> None:
    outgoing = make(0, 1)
    assert (outgoing.bytes, outgoing.count, outgoing.has_own) == (20, 2, True)
    assert outgoing.ordered(MS, ME, 0)
    assert not outgoing.ordered(MS, ME, 0)
    assert not outgoing.ordered(MS, OTHER, 5)
    assert outgoing.own() == [(1, b"1")]
    assert outgoing.bytes == 20
    outgoing.stable(0)
    outgoing.stable(0)
    assert (outgoing.bytes, outgoing.count) == (10, 1)


def test_orphans_are_sent_again_and_cost_no_window() -> None:
    outgoing = make()
    outgoing.keep(0, OTHER, 3, b"left", 10)
    assert outgoing.has_orphans
    assert not outgoing.has_own
    assert (outgoing.bytes, outgoing.own()) == (0, [])
    assert outgoing.due(FIRST_NS) == [(OTHER, 3, b"left")]


def test_what_is_held_waits_without_being_sent_again() -> None:
    outgoing = make(0, 1, 2)
    outgoing.acknowledged(90 * MS, 2)
    assert [number for _, number, _ in outgoing.due(FIRST_NS)] == [2]


def test_the_time_follows_the_round_trip() -> None:
    outgoing = make()
    for number in range(50):
        outgoing.keep(number * SECOND, ME, number, b"", 1)
        outgoing.ordered(number * SECOND + 2 * MS, ME, number)
    outgoing.keep(100 * SECOND, ME, 50, b"", 1)
    assert outgoing.deadline_ns(100 * SECOND) - 100 * SECOND < FIRST_NS


def test_while_orders_come_those_behind_wait_for_their_turn() -> None:
    outgoing = make(0, 1)
    outgoing.due(FIRST_NS)
    outgoing.ordered(150 * MS, ME, 0)
    assert outgoing.deadline_ns(150 * MS) > 250 * MS


def test_after_a_view_change_everything_begins_anew() -> None:
    outgoing = make(0)
    now_ns = 0
    while not outgoing.is_exhausted:
        now_ns = outgoing.deadline_ns(now_ns)
        outgoing.due(now_ns)
    outgoing.restart(now_ns)
    assert not outgoing.is_exhausted
    assert outgoing.due(now_ns) == []
