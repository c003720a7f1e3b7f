"""Distances between losses are distributed as draws for each datagram are."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from ordercast.engine import NEVER
from ordercast.sim.bulk.skips import Skips

CHI_SQUARE = 27.88  # exceeded in one of 1,000 cases with nine degrees of freedom, and less often with fewer


def naive_distances(rng: random.Random, rate: float, count: int) -> list[int]:
    found: list[int] = []
    passed = 0
    while len(found) < count:
        if rng.random() < rate:
            found.append(passed)
            passed = 0
        else:
            passed += 1
    return found


def chi_square(observed: list[int], expected: list[float]) -> float:
    return sum((seen - due) ** 2 / due for seen, due in zip(observed, expected, strict=True))


@pytest.mark.parametrize("rate", [0.3, 0.05, 0.01])
def test_distances_have_the_geometric_distribution(rate: float) -> None:
    """Ten classes of about the same probability, as the distribution has it."""
    count = 20_000
    skips = Skips(random.Random(f"skips/{rate}"), rate)
    drawn = Counter(min(int((1 - (1 - rate) ** skips.draw()) * 10), 9) for _ in range(count))
    weights: dict[int, float] = defaultdict(float)
    for distance in range(20_000):
        weights[min(int((1 - (1 - rate) ** distance) * 10), 9)] += rate * (1 - rate) ** distance
    filled = sorted(weights)
    value = chi_square([drawn[each] for each in filled], [weights[each] * count for each in filled])
    assert value < CHI_SQUARE


@pytest.mark.parametrize("rate", [0.5, 0.02])
def test_skips_and_naive_draws_have_the_same_mean_and_variance(rate: float) -> None:
    count = 20_000
    skips = Skips(random.Random("a"), rate)
    ours = [skips.draw() for _ in range(count)]
    theirs = naive_distances(random.Random("b"), rate, count)
    mean, variance = (1 - rate) / rate, (1 - rate) / rate**2
    for sample in (ours, theirs):
        average = sum(sample) / count
        assert abs(average - mean) < 4 * (variance / count) ** 0.5
        spread = sum((each - average) ** 2 for each in sample) / count
        assert spread == pytest.approx(variance, rel=0.08)


def test_neighbouring_distances_have_nothing_to_do_with_each_other() -> None:
    skips = Skips(random.Random("pairs"), 0.1)
    drawn = [skips.draw() for _ in range(20_000)]
    mean = sum(drawn) / len(drawn)
    covariance = sum((one - mean) * (other - mean) for one, other in pairwise(drawn)) / len(drawn)
    assert abs(covariance) < 4 * 90 / len(drawn) ** 0.5  # the variance is (1 - p) / p^2 = 90


def test_nothing_is_lost_at_rate_0_and_everything_at_rate_1() -> None:
    assert Skips(random.Random(1), 0.0).draw() == NEVER
    assert [Skips(random.Random(1), 1.0).draw() for _ in range(3)] == [0, 0, 0]


def test_causes_of_loss_are_independent_of_each_other() -> None:
    skips = Skips(random.Random(1))
    skips.change("uniform", 0.1)
    skips.change("hiccup", 0.5)
    assert skips.rate == pytest.approx(0.55)
    skips.change("hiccup", 0.0)
    assert skips.rate == pytest.approx(0.1)
    skips.change("uniform", 0.0)
    assert skips.draw() == NEVER


def test_a_burst_loses_the_same_share_in_a_row() -> None:
    skips = Skips(random.Random("burst"))
    skips.change("hiccup", 0.4, burst=20)
    lost: list[bool] = []
    while len(lost) < 200_000:
        lost += [False] * skips.draw() + [True]
    assert sum(lost) / len(lost) == pytest.approx(0.4, abs=0.02)
    text = "".join("x" if each else "." for each in lost)
    runs = [len(run) for run in text.split(".") if run][:-1]
    assert all(run % 20 == 0 for run in runs)


def test_a_burst_ends_with_its_cause() -> None:
    skips = Skips(random.Random("burst"))
    skips.change("hiccup", 0.5, burst=20)
    skips.draw()
    skips.change("hiccup", 0.0)
    assert skips.draw() == NEVER
