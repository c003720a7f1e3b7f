"""QSM section 2.4 and figures 9 and 18 in the small: a region with hiccups (`qsm_rates.py`), second by second.

What it gives, as datagrams a second over 2,400 s of which the first 200 do not count, beside the paper's figure 9:

| nodes | 1 | 25 | 40 | 71 |
|---|---|---|---|---|
| from mu_min, lambda 0.1 | 9,896 | 8,897 | 8,045 | 5,031 |
| from full rate, lambda 0.1 | 9,999 | 9,990 | 9,981 | 9,873 |
| from mu_min, lambda 0.05 | 9,004 | 138 | 102 | 100 |
| the paper | 9,850 | - | > 8,646 | 6,500 |
"""

from __future__ import annotations

from collections import deque

import pytest
from tests.paper.qsm_rates import CAPACITY, simulate

from ordercast.parts.rate import LEAST_ALPHA, MIN_RATE, MOST_ALPHA, SAMPLES, adjusted

SECONDS = 2_400


def bursts(second: int) -> float:
    """A minute of sending, a minute of nothing."""
    return CAPACITY if second // 60 % 2 == 0 else 0.0


@pytest.mark.parametrize(("nodes", "least", "most"), [(1, 9_800, 9_950), (25, 8_500, 9_300), (71, 4_000, 6_500)])
def test_the_rate_falls_with_the_size_of_the_region(nodes: int, least: float, most: float) -> None:
    """Figure 9: 9,850 with one node, 6,500 with 71. Most of what is missing is the way up from mu_min."""
    assert least < simulate(nodes, SECONDS).mean < most


def test_rates_deviate_more_in_larger_regions() -> None:
    """Figure 18."""
    one, some, many = [simulate(nodes, SECONDS).deviation for nodes in (1, 25, 71)]
    assert one < some < many


def test_a_region_that_has_reached_its_rate_holds_it() -> None:
    """Section 3.8: a few percent of variation in the smaller system."""
    found = simulate(25, SECONDS, first=CAPACITY)
    assert found.mean > 0.99 * CAPACITY
    assert found.deviation < 0.02 * CAPACITY


def test_too_small_a_growth_coefficient_lets_a_large_region_sink_to_its_least_rate() -> None:
    """Why lambda is not 0.05: some member nearly always has a hiccup, and its mean is lower by more than that."""
    assert simulate(71, SECONDS, growth=0.05, first=CAPACITY).mean < 5 * MIN_RATE


@pytest.mark.parametrize("nodes", [1, 25])
def test_pauses_of_the_sender_take_its_rate_away_unless_the_policy_ignores_them(nodes: int) -> None:
    """The policy `demand`: a region reports what was sent, which says nothing of a sender that had nothing to send."""
    assert simulate(nodes, SECONDS, "qsm", demand=bursts, first=CAPACITY).mean < 2 * MIN_RATE
    assert simulate(nodes, SECONDS, "demand", demand=bursts, first=CAPACITY).mean > 0.45 * CAPACITY


def test_with_little_to_send_the_rate_stays_for_the_burst_that_follows() -> None:
    def mostly_little(second: int) -> float:
        return CAPACITY if second % 300 > 240 else 2_000.0

    assert simulate(25, SECONDS, "qsm", demand=mostly_little, first=CAPACITY).most < 0.5 * CAPACITY
    assert simulate(25, SECONDS, "demand", demand=mostly_little, first=CAPACITY).most > 0.9 * CAPACITY


def test_a_sender_that_always_has_more_to_send_is_treated_alike_by_both_policies() -> None:
    one, other = [simulate(25, SECONDS, policy, first=CAPACITY).mean for policy in ("qsm", "demand")]
    assert one == pytest.approx(other, rel=0.01)


def alphas(samples: int, gain: float = 1.2) -> list[float]:
    """Formula (3) around a component that sends `gain` times what it is tuned to, measured over so many intervals."""
    alpha, rates, found = 1.0, deque[float](maxlen=samples), []
    for _ in range(300):
        rates.append(gain * alpha)
        alpha = adjusted(alpha, 1.0, sum(rates) / len(rates))
        found.append(alpha)
    return found[200:]


def test_alpha_settles_where_the_actual_rate_is_that_of_the_last_interval() -> None:
    assert alphas(1) == [pytest.approx(1 / 1.2)] * 100


def test_alpha_swings_for_ever_where_it_is_a_mean_over_ten() -> None:
    """Why formula (3) does not take the actual rate "in a way similar" to the receivers' to the letter."""
    found = alphas(SAMPLES)
    assert max(found) - min(found) > 0.4
    assert min(found) >= LEAST_ALPHA
    assert max(found) <= MOST_ALPHA
