"""Merging of regions against a planner in plain Python. No Spark."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest
from tests.pipeline.planner import exact_tiles, gainful_pairs, random_rows, sets_of, tiles_of, wastes

from ordercast.errors import UsageError
from ordercast.pipeline.regions.costs import PlanCosts, PlanLimits
from ordercast.pipeline.regions.merging import UNLIMITED, Merged, Units, merge, sweep
from ordercast.pipeline.regions.tiling import NOTHING

SEEDS = 60


def units_of(
    rows: set[tuple[str, str]], rates: Mapping[str, float], was: Mapping[str, int] | None = None
) -> tuple[Units, list[list[str]]]:
    """Units of these rows, and the nodes of each."""
    before = was or {}
    groups = sorted(rates)
    sets = sets_of(rows)
    key_of = {node: (tuple(sorted(sets[node])), before.get(node, NOTHING)) for node in sets}
    keys = sorted(set(key_of.values()))
    nodes = [sorted(node for node in sets if key_of[node] == key) for key in keys]
    numbers = {group: number for number, group in enumerate(groups)}
    return (
        Units(
            np.array([len(one) for one in nodes]),
            [np.array(sorted(numbers[group] for group in key[0])) for key in keys],
            np.array([key[1] for key in keys]),
            np.array([rates[group] for group in groups], dtype=np.float64),
        ),
        nodes,
    )


def regions_of(found: Merged, nodes: list[list[str]]) -> dict[str, int]:
    return {node: int(region) for region, some in zip(found.regions, nodes, strict=True) for node in some}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_merged_plan_keeps_the_limits_and_leaves_no_gain(seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng, rng.randint(1, 24), rng.randint(1, 12))
    rates = {group: rng.choice((0.0, 0.5, 1.0, 1.0, 7.0)) for group in sorted({row[1] for row in rows})}
    costs = PlanCosts(rng.choice((0.5, 1.0, 4.0)), rng.choice((0.0, 0.1, 1.0)), rng.choice((0.0, 1.0)))
    limits = PlanLimits(UNLIMITED, rng.choice((3, 8, 2_000)), rng.choice((0.0, 0.1, 0.3, 0.6)))
    # Exact regions beyond the size were cut before; here none is.
    if max(map(len, exact_tiles(rows))) > limits.size:
        limits = PlanLimits(UNLIMITED, 2_000, limits.waste)
    units, nodes = units_of(rows, rates)
    found = merge(units, costs, limits)
    tiles = tiles_of(regions_of(found, nodes))
    assert all(any(exact <= tile for tile in tiles) for exact in exact_tiles(rows))
    assert max(map(len, tiles)) <= limits.size
    worst = wastes(tiles, rows, rates)
    assert max(worst.values()) <= limits.waste + 1e-6
    assert (found.moves, found.over) == (0, 0)
    assert gainful_pairs(tiles, rows, rates, costs, limits) == []
    assert found.steps[0][0] == len(units.sizes)
    assert found.steps[-1][0] == len(tiles)


def test_what_is_received_anyway_is_merged_and_strangers_are_not() -> None:
    alike = {("a", f"g{number}") for number in range(20)} | {("b", f"g{number}") for number in range(19)}
    rows = alike | {("c", "h")}
    units, nodes = units_of(rows, dict.fromkeys((group for _, group in rows), 1.0))
    found = regions_of(merge(units, PlanCosts(), PlanLimits()), nodes)
    assert found["a"] == found["b"] != found["c"]
    strict = regions_of(merge(units, PlanCosts(), PlanLimits(waste=0.04)), nodes)  # b would waste a twentieth
    assert len(set(strict.values())) == 3


def test_too_few_addresses_merge_what_costs_least() -> None:
    """Three regions of two nodes; two of them are alike, but merging them is no gain."""
    rows = {(f"{kind}{number}", group) for kind in "ab" for number in (1, 2) for group in ("g", "h", "i", f"of {kind}")}
    rows |= {(f"c{number}", "far") for number in (1, 2)}
    rates = {group: 1.0 for _, group in rows} | {"of a": 100.0, "of b": 100.0}
    units, nodes = units_of(rows, rates)
    costs, limits = PlanCosts(recv=1.0), PlanLimits(waste=0.6)
    assert len(set(regions_of(merge(units, costs, limits), nodes).values())) == 3
    forced = regions_of(merge(units, costs, PlanLimits(addresses=2, waste=0.6)), nodes)
    assert forced["a1"] == forced["b1"] != forced["c1"]
    # Where the limit of waste forbids it, addresses are missing instead.
    assert len(set(regions_of(merge(units, costs, PlanLimits(addresses=2)), nodes).values())) == 3


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_plan_after_a_plan_keeps_to_its_budget(seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng, rng.randint(2, 24), rng.randint(2, 12))
    rates = {f"g{number}": 1.0 for number in range(12)}
    limits = PlanLimits(UNLIMITED, 2_000, 0.3)
    units, nodes = units_of(rows, rates)
    was = regions_of(merge(units, PlanCosts(), limits), nodes)
    changed = set(rows)
    for _ in range(rng.randint(0, 6)):
        changed ^= {(f"n{rng.randint(0, 25)}", f"g{rng.randint(0, 11)}")}
    if not changed:
        return
    again, nodes = units_of(changed, rates, was)
    for budget in (0, 2, UNLIMITED):
        found = merge(again, PlanCosts(), limits, budget)
        regions = {node: found.keeps[region] for node, region in regions_of(found, nodes).items()}
        moved = [node for node in regions if node in was and regions[node] != was[node]]
        assert len(moved) == found.moves <= budget
        over = [
            waste for waste in wastes(tiles_of(regions_of(found, nodes)), changed, rates).values() if waste > 0.3 + 1e-6
        ]
        assert found.over == len(over)
        assert found.over == 0 or budget != UNLIMITED
        kept = [one for one in found.keeps if one != NOTHING]
        assert len(kept) == len(set(kept))


def test_one_node_with_other_interests_leaves_and_not_the_ten_around_it() -> None:
    rows = {(f"n{node}", f"g{group}") for node in range(11) for group in range(10)}
    rows |= {("n10", f"h{group}") for group in range(5)}
    rates = {group: 1.0 for _, group in rows}
    units, nodes = units_of(rows, rates, {f"n{node}": 7 for node in range(11)})
    found = merge(units, PlanCosts(), PlanLimits(), 5)
    regions = regions_of(found, nodes)
    assert (found.moves, found.over) == (1, 0)
    assert {regions[f"n{node}"] for node in range(10)} == {found.keeps.index(7)}
    assert merge(units, PlanCosts(), PlanLimits(), 0).over == 10


def test_a_looser_limit_leaves_fewer_regions() -> None:
    rows = random_rows(random.Random(5), 60, 30)
    units, _ = units_of(rows, {group: 1.0 for _, group in rows})
    points = sweep(units, PlanCosts(), PlanLimits())
    assert points[0][1] == len(exact_tiles(rows))
    assert points[0][2] == 0
    assert points[-1][1] < points[0][1]
    assert all(waste <= limit + 1e-6 for limit, _, waste in points)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: PlanLimits(size=0), "--size is 0"),
        (lambda: PlanLimits(waste=1.5), "--waste is 1.5"),
        (lambda: PlanLimits(addresses=-1), "--addresses is -1"),
        (lambda: PlanCosts(send=-1.0), "the cost send is -1.0"),
        (lambda: PlanCosts(token=float("nan")), "the cost token is nan"),
    ],
)
def test_limits_and_costs_that_mean_nothing_are_refused(make: object, text: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=text):
        make()
