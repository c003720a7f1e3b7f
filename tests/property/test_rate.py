"""Rate control under any load: what leaves stays below what formulas (2) to (4) allow (QSM section 2.4)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.config import MS, SECOND
from ordercast.parts.rate import (
    LEAST_ALPHA,
    MAX_RATE,
    MIN_RATE,
    MOST_ALPHA,
    POLICIES,
    POOL,
    UNPACED,
    CreditPool,
    RateMeter,
    SendingRate,
    policy_of,
)

RATES = st.floats(1.0, 50_000.0)
LARGEST = 44  # datagrams of a block

# how long until it is looked at again, and how many datagrams want to leave
STEPS = st.lists(st.tuples(st.integers(0, 300 * MS), st.integers(1, LARGEST)), min_size=1, max_size=80)


@given(rate=RATES, steps=STEPS)
@settings(max_examples=150, deadline=None)
def test_no_more_leaves_than_the_pool_the_rate_and_one_block(rate: float, steps: list[tuple[int, int]]) -> None:
    credits = CreditPool(rate)
    now_ns = sent = 0
    for wait_ns, count in steps:
        now_ns += wait_ns
        credits.expire(now_ns)
        if credits.may_send:
            credits.take(now_ns, count)
            sent += count
        assert credits.level <= POOL
        assert sent <= POOL + LARGEST + rate * now_ns / SECOND + 1e-6
        assert credits.may_send or credits.deadline_ns() <= now_ns + POOL * SECOND / rate + 1


@given(counts=st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 1_000)), max_size=60))
@settings(deadline=None)
def test_a_mean_is_what_came_in_the_intervals_that_it_is_over(counts: list[tuple[int, int]]) -> None:
    meter, now_ns = RateMeter(0, samples=4), 0
    by_second: dict[int, int] = {}
    for wait_ns, count in counts:
        now_ns += wait_ns
        meter.add(now_ns, count)
        by_second[now_ns // SECOND] = by_second.get(now_ns // SECOND, 0) + count
    meter.roll(now_ns)
    over = now_ns // SECOND
    last = [by_second.get(second, 0) for second in range(max(0, over - 4), over)]
    assert meter.mean() == (sum(last) / len(last) if last else 0.0)


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2 * SECOND),
        st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
        st.integers(0, 99),
    ),
    max_size=60,
)


@given(name=st.sampled_from(POLICIES), events=EVENTS)
@settings(max_examples=150, deadline=None)
def test_rate_and_alpha_stay_within_their_bounds_whatever_is_reported(
    name: str, events: list[tuple[int, float | None, int]]
) -> None:
    sending, now_ns = SendingRate(0, policy_of(name)), 0
    for wait_ns, reported, count in events:
        now_ns += wait_ns
        sending.expire(now_ns)
        if reported is not None:
            sending.report(now_ns, reported)
        if count and sending.may_send:
            sending.take(now_ns, count)
        assert MIN_RATE <= sending.rate <= MAX_RATE
        assert LEAST_ALPHA <= sending.alpha <= MOST_ALPHA
        assert sending.deadline_ns() > now_ns
        assert sending.credits <= (POOL if sending.is_paced else UNPACED)
