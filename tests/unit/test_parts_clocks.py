"""The parts that keep time: timers, gaps, round trips."""

from __future__ import annotations

from enum import Enum, auto
from itertools import pairwise

from ordercast.config import MS, SECOND, Timing
from ordercast.engine import NEVER
from ordercast.parts.gaps import Gaps
from ordercast.parts.rtt import RoundTrip
from ordercast.parts.timers import Timers

TIMING = Timing()


class Timer(Enum):
    ONE = auto()
    TWO = auto()
    THREE = auto()


def test_due_timers_come_earliest_first_and_cleared() -> None:
    timers: Timers[Timer] = Timers()
    timers.set(Timer.ONE, 30)
    timers.set(Timer.TWO, 10)
    timers.set(Timer.THREE, 40)
    assert timers.deadline_ns() == 10
    assert timers.due(9) == []
    assert timers.due(30) == [Timer.TWO, Timer.ONE]
    assert not timers.is_set(Timer.ONE)
    assert timers.due(30) == []
    assert timers.deadline_ns() == 40


def test_a_timer_is_put_off_by_set_but_only_brought_forward_by_set_earlier() -> None:
    timers: Timers[Timer] = Timers()
    timers.set_earlier(Timer.ONE, 20)
    timers.set_earlier(Timer.ONE, 50)
    assert timers.deadline_ns() == 20
    timers.set_earlier(Timer.ONE, 10)
    assert timers.deadline_ns() == 10
    timers.set(Timer.ONE, 50)
    assert timers.deadline_ns() == 50


def test_cleared_timers_never_come() -> None:
    timers: Timers[Timer] = Timers()
    timers.set(Timer.ONE, 1)
    timers.set(Timer.TWO, 2)
    timers.clear(Timer.ONE)
    timers.clear(Timer.THREE)
    assert timers.due(5) == [Timer.TWO]
    timers.set(Timer.ONE, 1)
    timers.clear_all()
    assert timers.deadline_ns() == NEVER


def test_a_gap_is_reported_once_and_asked_for_after_some_patience() -> None:
    gaps: Gaps[int] = Gaps(2, 10, SECOND, RoundTrip(TIMING))
    assert gaps.update([5, 6], 100) == ([5, 6], [])
    assert gaps.update([5, 6], 101) == ([], [])
    assert gaps.due(101) == []
    assert gaps.deadline_ns() == 102
    assert gaps.due(102) == [5, 6]


def test_a_gap_that_closes_in_time_is_never_asked_for() -> None:
    gaps: Gaps[int] = Gaps(2, 10, SECOND, RoundTrip(TIMING))
    gaps.update([5, 6], 100)
    assert gaps.update([6], 101) == ([], [5])
    assert gaps.due(200) == [6]
    assert gaps.clear() == [6]
    assert not gaps
    assert gaps.deadline_ns() == NEVER


def test_a_gap_is_asked_for_again_with_longer_and_longer_waits() -> None:
    gaps: Gaps[int] = Gaps(0, 20 * MS, 200 * MS, RoundTrip(TIMING))
    gaps.update([1], 0)
    asked: list[int] = []
    now_ns = 0
    while len(asked) < 10:
        if gaps.due(now_ns):
            asked.append(now_ns)
        now_ns = gaps.deadline_ns()
    waits = [later - sooner for sooner, later in pairwise(asked)]
    assert waits == [min(20 * MS << tries, 200 * MS) for tries in range(9)]


def test_gaps_that_are_asked_for_one_after_the_other_do_not_double_each_others_times() -> None:
    """A burst of losses is one sign that times have grown. With a doubling for each, the sixth gap of it would be asked
    for again after a second."""
    rtt = RoundTrip(TIMING)
    gaps: Gaps[int] = Gaps(0, 20 * MS, SECOND, rtt)
    for gap in range(6):
        gaps.update(range(gap + 1), gap * MS)
        assert gaps.due(gap * MS) == [gap]
    for gap in range(6):
        assert gaps.due((20 + gap) * MS) == [gap]
    assert gaps.deadline_ns() == 60 * MS, "twice the time"
    gaps.update([9], 50 * MS)
    assert gaps.due(50 * MS) == [9]
    assert gaps.deadline_ns() == 90 * MS


def test_where_answers_take_long_they_are_waited_for() -> None:
    rtt = RoundTrip(TIMING)
    rtt.sample(200 * MS)
    gaps: Gaps[int] = Gaps(0, 20 * MS, 200 * MS, rtt)
    gaps.update([1], 0)
    asked = [0, 600, 1800, 3000]
    for at_ms, next_ms in pairwise(asked):
        assert gaps.due(at_ms * MS) == [1]
        assert gaps.deadline_ns() == next_ms * MS


def test_the_answer_to_a_question_tells_the_round_trip_and_what_was_only_late_does_not() -> None:
    """RMP section 4.6: NACKs require positive acknowledgment, and have their timers from it."""
    rtt = RoundTrip(TIMING)
    gaps: Gaps[int] = Gaps(0, 20 * MS, 200 * MS, rtt)
    gaps.update([1, 2], 0)
    assert gaps.due(0) == [1, 2]
    gaps.update([1], 1 * MS)
    assert rtt.timeout_ns(0) == TIMING.retransmit_ns, "it was late"
    gaps.update([], 200 * MS, is_answer=True)
    assert rtt.timeout_ns(0) == 600 * MS, "the mean and four deviations"
    gaps.update([3], 300 * MS)
    assert gaps.due(300 * MS) == [3]
    assert gaps.deadline_ns() == 900 * MS


def test_a_timer_that_ran_out_slows_the_others_until_something_that_was_sent_once_is_answered() -> None:
    """Karn's algorithm: where times have grown, only that ends the sending of everything twice."""
    rtt = RoundTrip(TIMING)
    rtt.expired()
    rtt.expired()
    assert rtt.timeout_ns(0) == 4 * TIMING.retransmit_ns
    assert rtt.timeout_ns(3) == 8 * TIMING.retransmit_ns
    assert rtt.is_late(0), "nothing is known"
    rtt.sample(100 * MS)
    assert rtt.timeout_ns(0) == 300 * MS
    assert not rtt.is_late(99 * MS)


def test_before_the_first_round_trip_the_first_timeout_counts() -> None:
    rtt = RoundTrip(TIMING)
    assert [rtt.timeout_ns(tries) for tries in (0, 1, 2)] == [60 * MS, 120 * MS, 240 * MS]


def test_timeouts_follow_mean_and_deviation_and_are_clamped() -> None:
    rtt = RoundTrip(TIMING)
    for _ in range(200):
        rtt.sample(40 * MS)
    assert 40 * MS <= rtt.timeout_ns(0) <= 50 * MS
    for took in (10, 100, 10, 100, 10, 100):
        rtt.sample(took * MS)
    assert rtt.timeout_ns(0) > 100 * MS
    assert rtt.timeout_ns(30) == 2 * SECOND
    fast = RoundTrip(TIMING)
    fast.sample(1_000)
    assert fast.timeout_ns(0) == TIMING.retransmit_min_ns
