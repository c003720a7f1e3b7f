"""Parts of rate control (QSM section 2.4): meters, policies, credits, one sender."""

from __future__ import annotations

import pytest

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER
from ordercast.errors import InvariantViolation, UsageError
from ordercast.parts.rate import (
    GROWTH,
    HIGH,
    LOW,
    MAX_RATE,
    MIN_RATE,
    MOST_ALPHA,
    POLICIES,
    POOL,
    SAMPLES,
    STEP,
    CreditPool,
    RateMeter,
    SendingRate,
    fair_share,
    first_rate_of,
    policy_of,
)


def test_the_least_rate_is_shared_by_those_that_send() -> None:
    """Formula (1)."""
    assert fair_share(900.0, 3) == 300.0
    assert fair_share(900.0, 0) == 900.0


def test_a_mean_is_over_the_intervals_that_are_over() -> None:
    meter = RateMeter(0)
    meter.add(100 * MS, 50)
    assert (meter.mean(), meter.intervals, meter.next_ns) == (0.0, 0, SECOND)
    meter.add(SECOND, 70)
    assert meter.mean() == 50.0
    meter.roll(2 * SECOND)
    assert (meter.mean(), meter.mean(1)) == (60.0, 70.0)


def test_old_intervals_leave_the_mean() -> None:
    meter = RateMeter(0)
    meter.add(0, 1_000)
    for second in range(1, SAMPLES + 1):
        meter.roll(second * SECOND)
        assert meter.mean() == 1_000 / second
    meter.roll((SAMPLES + 1) * SECOND)
    assert meter.mean() == 0.0


def test_a_long_silence_is_as_many_empty_intervals_as_the_mean_has() -> None:
    meter = RateMeter(0)
    meter.add(0, 1_000)
    assert meter.roll(10**6 * SECOND) == 10**6
    assert (meter.mean(), meter.intervals) == (0.0, SAMPLES)


def test_a_mean_over_nothing_is_our_own_mistake() -> None:
    with pytest.raises(InvariantViolation):
        RateMeter(0, 0)


def test_the_papers_policy_is_a_little_faster_than_the_report() -> None:
    """Formula (2)."""
    policy = policy_of("qsm")
    assert policy.rate(5_000.0, 1_000.0) == (1 + GROWTH) * 1_000
    assert policy.rate(5_000.0, 0.0) == MIN_RATE


def test_an_unknown_policy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="'window', 'demand', 'qsm'"):
        policy_of("tcp")
    assert all(policy_of(name) is not None for name in POLICIES)


def test_the_policy_of_demand_ignores_reports_of_a_pause() -> None:
    policy = policy_of("demand")
    policy.sent(1_000.0, 0.0, 0.0)
    assert policy.rate(1_000.0, 0.0) == 1_000.0


def test_the_policy_of_demand_takes_reports_of_a_sender_that_used_its_rate() -> None:
    policy = policy_of("demand")
    for _ in range(SAMPLES):
        policy.sent(1_000.0, 1_000.0, 1_000.0)
    assert policy.rate(1_000.0, 500.0) == pytest.approx((1 + GROWTH) * 500)


def test_the_policy_of_demand_falls_when_less_is_received_than_was_sent() -> None:
    policy = policy_of("demand")
    policy.sent(1_000.0, 200.0, 200.0)
    assert policy.rate(1_000.0, 100.0) == pytest.approx((1 + GROWTH) * 500)
    assert policy.rate(1_000.0, 190.0) == 1_000.0


def test_the_policy_of_a_window_has_no_rate_until_a_member_falls_behind() -> None:
    """Then it is formula (2) of what that member received, until there was no loss for as long as a mean is over."""
    policy = policy_of("window")
    policy.sent(MAX_RATE, 1_000.0, 1_000.0)
    assert policy.rate(MAX_RATE, 950.0) == MAX_RATE
    assert policy.rate(MAX_RATE, 500.0) == pytest.approx((1 + GROWTH) * 500)
    for _ in range(SAMPLES - 1):
        policy.sent(550.0, 500.0, 500.0)
        assert policy.rate(550.0, 500.0) == 550.0
    policy.sent(550.0, 500.0, 500.0)
    assert policy.rate(550.0, 500.0) == MAX_RATE


def test_the_policy_of_a_window_looks_at_what_a_member_received_of_all_senders() -> None:
    """Beside a light sender the fair share is half of what a heavy one sends, and nothing is lost."""
    policy = policy_of("window")
    policy.sent(MAX_RATE, 1_000.0, 1_000.0)
    assert policy.rate(MAX_RATE, 501.0, 2) == MAX_RATE
    assert policy.rate(MAX_RATE, 300.0, 2) == pytest.approx((1 + GROWTH) * 600)


def test_a_sender_without_a_rate_needs_no_credits_and_no_timer() -> None:
    sending = SendingRate(0, policy_of("window"), first_rate_of("window"))
    sending.take(0, 10 * int(POOL))
    assert (sending.may_send, sending.deadline_ns()) == (True, NEVER)
    assert sending.credits > POOL
    sending.take(SECOND, 1_000)
    sending.take(2 * SECOND, 1_000)
    sending.take(3 * SECOND, 1_000)
    assert sending.report(3 * SECOND, 10.0)
    sending.take(3 * SECOND, 10 * int(POOL))
    assert not sending.may_send
    assert sending.deadline_ns() < NEVER


def test_a_lane_that_is_younger_than_its_view_does_not_take_a_longer_mean_for_a_loss() -> None:
    """Receivers have counted for ten seconds, and the sender for one."""
    sending = SendingRate(0, policy_of("demand"), 1_000.0)
    sending.take(0, 900)
    sending.expire(SECOND)
    assert sending.report(SECOND, 90.0)
    assert sending.rate == 1_000.0


def test_credits_come_back_when_they_are_below_the_low_mark() -> None:
    """Formula (4): C_high - c credits, at most Delta_max, at the rate."""
    credits = CreditPool(100.0)
    credits.take(0, int(POOL - LOW))
    assert credits.deadline_ns() == NEVER
    credits.take(0, 1)
    wait_ns = int(min(HIGH - LOW + 1, STEP) * SECOND / 100)
    assert credits.deadline_ns() == wait_ns
    credits.expire(wait_ns)
    assert credits.level == LOW - 1 + STEP
    assert credits.deadline_ns() < NEVER, "until the high mark is reached"
    credits.expire(credits.deadline_ns())
    assert (credits.level, credits.deadline_ns()) == (HIGH, NEVER)


def test_a_timer_that_is_late_brings_what_the_time_was_worth_and_no_more_than_the_pool() -> None:
    credits = CreditPool(100.0)
    credits.take(0, 60)
    credits.expire(credits.deadline_ns() - 1)
    assert credits.level == 4
    credits.expire(500 * MS)
    assert credits.level == pytest.approx(54)
    credits.expire(100 * SECOND)
    assert credits.level == POOL


def test_a_block_may_take_more_than_there_is_and_the_next_one_waits() -> None:
    credits = CreditPool(100.0)
    credits.take(0, 200)
    assert not credits.may_send
    credits.expire(credits.deadline_ns())
    assert not credits.may_send


def test_a_report_out_of_all_reason_is_not_believed() -> None:
    sending = SendingRate(0, policy_of("qsm"))
    assert not sending.report(0, MAX_RATE * 2)
    assert not sending.report(0, -1.0)
    assert not sending.report(0, float("nan"))
    assert (sending.rate, sending.reports) == (MIN_RATE, 0)
    assert sending.report(0, MAX_RATE)
    assert sending.rate == MAX_RATE


def test_a_sender_that_sends_less_than_it_may_does_not_wind_up() -> None:
    """Formula (3) with its clamp: a pause makes alpha no larger than it may be."""
    sending = SendingRate(0, policy_of("qsm"), 1_000.0)
    for second in range(50):
        sending.take(second * SECOND, 1)
    assert sending.alpha == MOST_ALPHA
    sending.expire(500 * SECOND)
    assert sending.alpha == MOST_ALPHA


@pytest.mark.parametrize("late_ns", [0, 5 * MS])
def test_a_sender_reaches_the_rate_that_it_is_tuned_to(late_ns: int) -> None:
    """Formulas (3) and (4) together, with timers that fire late."""
    sending = SendingRate(0, policy_of("qsm"), 2_000.0)
    now_ns = sent = 0
    while now_ns < 20 * SECOND:
        while sending.may_send:
            sending.take(now_ns, 1)
            sent += now_ns >= 10 * SECOND
        now_ns = max(now_ns + 1, sending.deadline_ns() + late_ns)
        sending.expire(now_ns)
    assert sent / 10 == pytest.approx(2_000, rel=0.05)
    assert sending.actual == pytest.approx(2_000, rel=0.05)
    assert sending.credits == int(sending.credits) >= 0
