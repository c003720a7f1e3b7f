"""A region planner in plain Python, slow and plain to see, that the real one is compared with."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations

from ordercast.pipeline.regions.costs import PlanCosts, PlanLimits

Rows = set[tuple[str, str]]
Tiles = frozenset[frozenset[str]]


def sets_of(rows: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for node, group in rows:
        found[node].add(group)
    return {node: frozenset(groups) for node, groups in found.items()}


def exact_tiles(rows: Iterable[tuple[str, str]]) -> Tiles:
    """Nodes with the same set of groups."""
    found: dict[frozenset[str], set[str]] = defaultdict(set)
    for node, groups in sets_of(rows).items():
        found[groups].add(node)
    return frozenset(map(frozenset, found.values()))


def tiles_of(regions: Mapping[str, int]) -> Tiles:
    found: dict[int, set[str]] = defaultdict(set)
    for node, region in regions.items():
        found[region].add(node)
    return frozenset(map(frozenset, found.values()))


def wastes(tiles: Tiles, rows: Iterable[tuple[str, str]], rates: Mapping[str, float]) -> dict[str, float]:
    """Of each node, the share of what it receives that it does not want."""
    sets = sets_of(rows)
    found = {}
    for tile in tiles:
        received = sum(rates[group] for group in frozenset().union(*(sets[node] for node in tile)))
        for node in tile:
            wanted = sum(rates[group] for group in sets[node])
            found[node] = (received - wanted) / received if received else 0.0
    return found


def gainful_pairs(
    tiles: Tiles, rows: Iterable[tuple[str, str]], rates: Mapping[str, float], costs: PlanCosts, limits: PlanLimits
) -> list[tuple[frozenset[str], frozenset[str], float]]:
    """Pairs that share a group, could be merged within the limits, and would gain something."""
    sets = sets_of(rows)
    found = []
    for one, other in combinations(tiles, 2):
        of_one, of_other = (frozenset().union(*(sets[node] for node in tile)) for tile in (one, other))
        if not of_one & of_other:
            continue
        shared = sum(rates[group] for group in of_one & of_other)
        extra = len(one) * sum(rates[group] for group in of_other - of_one)
        extra += len(other) * sum(rates[group] for group in of_one - of_other)
        gain = costs.send * shared + costs.token - costs.recv * extra
        both = frozenset({one | other})
        if gain <= 1e-6 or len(one | other) > limits.size:
            continue
        if max(wastes(both, rows, rates)[node] for node in one | other) <= limits.waste - 1e-6:
            found.append((one, other, gain))
    return found


def random_rows(rng: random.Random, nodes: int, groups: int) -> Rows:
    """Nodes with interests that are alike: some of a few sets, with groups more or less."""
    names = [f"g{number}" for number in range(groups)]
    kinds = [rng.sample(names, rng.randint(1, groups)) for _ in range(max(1, nodes // 4))]
    rows: Rows = set()
    for number in range(nodes):
        chosen = set(rng.choice(kinds))
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            chosen ^= {rng.choice(names)}
        rows |= {(f"n{number}", group) for group in chosen or {names[0]}}
    return rows


def figure_two() -> list[tuple[str, str]]:
    """A tiling of the size of figure 2 of the QSM paper: 18 nodes in 300 groups overlap in 7 regions.

    Three blocks of a hundred groups, A, B and C, as three circles that overlap: a region for each way to be in some of
    them, with 4, 3, 3, 2, 2, 2 and 2 nodes. The figure gives counts only; which node is where is ours.
    """
    regions = {"A": 4, "B": 3, "C": 3, "AB": 2, "BC": 2, "AC": 2, "ABC": 2}
    rows, number = [], 0
    for blocks, size in regions.items():
        for _ in range(size):
            number += 1
            rows += [(f"node-{number:02}", f"{block}-{at:02}") for block in blocks for at in range(100)]
    return rows
