"""Spread section 3.2, routing and pruning: one test for each rule."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from ordercast.errors import InvariantViolation
from ordercast.orderers.sites.routes import SiteRoutes
from ordercast.wire.sites import sites_of

# The sites of section 4: JHU, UCSB, Rutgers. UCSB is far from both.
JHU, UCSB, RUTGERS = 0, 1, 2
PAPER = ((0, 7, 1), (7, 0, 8), (1, 8, 0))


def weights_of(rng: Random, count: int, most: int = 5) -> list[list[int]]:
    """Few different lengths, so that there are many ties."""
    return [[0 if a == b else rng.randint(1, most) for b in range(count)] for a in range(count)]


def reached(routes: SiteRoutes, source: int, mask: int) -> list[int]:
    """Where a packet of a source for these sites comes, in the order of forwarding."""
    found, waiting = [], [source]
    while waiting:
        here = waiting.pop(0)
        found.append(here)
        waiting += routes.next_hops(source, here, mask)
    return found


def test_every_source_has_a_tree_of_shortest_paths() -> None:
    """Section 3.2: trees are built by applying Dijkstra's shortest-path algorithm, one rooted at each site."""
    for seed in range(20):
        rng = Random(seed)
        count = rng.randint(2, 9)
        weights = weights_of(rng, count)
        routes = SiteRoutes(weights)
        routes.change_sites((1 << count) - 1)
        shortest = [row[:] for row in weights]
        for via, a, b in product(range(count), repeat=3):
            shortest[a][b] = min(shortest[a][b], shortest[a][via] + shortest[via][b])
        for source in range(count):
            lengths = {source: 0}
            for here in reached(routes, source, -1):
                for child in routes.children(source, here):
                    assert child not in lengths  # a tree: each site has one parent
                    lengths[child] = lengths[here] + weights[here][child]
            assert lengths == dict(enumerate(shortest[source]))


def test_the_trees_of_two_sources_may_differ() -> None:
    """Section 3.1: an optimized tree per source site is more efficient than a shared tree."""
    routes = SiteRoutes(PAPER)
    routes.change_sites(0b111)
    assert routes.children(JHU, JHU) == [UCSB, RUTGERS]
    assert routes.children(UCSB, UCSB) == [JHU, RUTGERS]  # 8 either way: fewer links
    assert routes.children(RUTGERS, RUTGERS) == [JHU, UCSB]
    far = SiteRoutes(((0, 7, 1), (7, 0, 20), (1, 20, 0)))
    far.change_sites(0b111)
    assert (far.children(UCSB, UCSB), far.children(UCSB, JHU)) == ([JHU], [RUTGERS])
    assert far.links(RUTGERS) == [JHU]


def test_ties_go_to_fewer_links_and_then_to_the_parent_with_the_lower_number() -> None:
    """All daemons must compute the same trees."""
    square = SiteRoutes(((0, 1, 1, 2), (1, 0, 9, 1), (1, 9, 0, 1), (2, 1, 1, 0)))
    square.change_sites(0b1111)
    assert square.children(0, 0) == [1, 2, 3]  # 3 directly: as short as over 1 or 2, with one link
    longer = SiteRoutes(((0, 1, 1, 9), (1, 0, 9, 1), (1, 9, 0, 1), (9, 1, 1, 0)))
    longer.change_sites(0b1111)
    assert (longer.children(0, 1), longer.children(0, 2)) == ([3], [])


def test_all_daemons_compute_the_same_trees_whatever_came_before() -> None:
    for seed in range(10):
        rng = Random(seed)
        weights = weights_of(rng, 8, 2)
        one, other = SiteRoutes(weights), SiteRoutes(weights)
        other.change_sites(rng.randrange(1, 256))
        present = rng.randrange(1, 256)
        for routes in (one, other):
            routes.change_sites(present)
        pairs = [(source, here) for source in sites_of(present) for here in sites_of(present)]
        assert [one.children(*pair) for pair in pairs] == [other.children(*pair) for pair in pairs]


def test_a_packet_goes_only_where_a_site_below_wants_it() -> None:
    """Section 3.2, pruning: packets are not forwarded to child links which have no members interested in the packet."""
    line = SiteRoutes(((0, 1, 9, 9), (1, 0, 1, 9), (9, 1, 0, 1), (9, 9, 1, 0)))
    line.change_sites(0b1111)
    assert reached(line, 0, 0b0100) == [0, 1, 2]
    assert (line.next_hops(0, 0, 0b0100), line.pruned(0, 0, 0b0100)) == ([1], [])
    assert (line.next_hops(0, 2, 0b0100), line.pruned(0, 2, 0b0100)) == ([], [3])
    assert line.next_hops(0, 0, 0b0001) == []


def test_every_site_that_wants_a_packet_gets_it_once_and_no_leaf_gets_it_for_nothing() -> None:
    """Section 3.2: every site that is interested is guaranteed to get it."""
    for seed in range(30):
        rng = Random(seed)
        count = rng.randint(2, 12)
        routes = SiteRoutes(weights_of(rng, count))
        routes.change_sites((1 << count) - 1)
        source, mask = rng.randrange(count), rng.randrange(1 << count)
        found = reached(routes, source, mask)
        assert len(found) == len(set(found))
        assert set(sites_of(mask)) <= {*found, source}
        for here in found[1:]:
            assert mask >> here & 1 or routes.next_hops(source, here, mask)


def test_below_a_child_lie_exactly_the_sites_that_are_reached_through_it() -> None:
    routes = SiteRoutes(weights_of(Random(3), 10))
    routes.change_sites((1 << 10) - 1)
    for source, here in product(range(10), repeat=2):
        masks = [routes.below(source, here, child) for child in routes.children(source, here)]
        assert sum(masks) == (1 << 10) - 1 - (1 << source) if source == here else not sum(masks) & 1 << here
        assert all(sum(masks) & mask == mask for mask in masks)
    assert routes.below(0, 0, 0) == 0


def test_trees_are_computed_anew_only_when_the_set_of_sites_changes() -> None:
    """Section 1: a daemon disconnection or connection does not pay the heavy cost of changing wide area routes."""
    routes = SiteRoutes(PAPER)
    assert routes.change_sites(0b111)
    assert not routes.change_sites(0b111)
    assert routes.computed == 1
    assert routes.change_sites(0b011)
    assert routes.computed == 2
    assert (routes.children(JHU, JHU), routes.links(RUTGERS), routes.links(JHU)) == ([UCSB], [], [UCSB])


def test_a_site_that_is_gone_is_on_no_path() -> None:
    line = SiteRoutes(((0, 1, 9), (1, 0, 1), (9, 1, 0)))
    line.change_sites(0b111)
    assert line.children(0, 0) == [1]
    line.change_sites(0b101)
    assert line.children(0, 0) == [2]


def test_links_join_both_ends() -> None:
    """A hop is bi-directional, also where only one of its directions is on a tree."""
    for seed in range(10):
        routes = SiteRoutes(weights_of(Random(seed), 9))
        routes.change_sites(0b111111111)
        for here in range(9):
            assert all(here in routes.links(other) for other in routes.links(here))
            used = {child for source in range(9) for child in routes.children(source, here)}
            assert used <= set(routes.links(here))


def test_as_many_sites_as_a_mask_has_bits_have_trees() -> None:
    weights = weights_of(Random(1), 64, 9)
    routes = SiteRoutes(weights)
    routes.change_sites((1 << 64) - 1)
    assert sorted(reached(routes, 63, (1 << 64) - 1)) == list(range(64))
    with pytest.raises(InvariantViolation):
        SiteRoutes(weights_of(Random(1), 65))
    with pytest.raises(InvariantViolation):
        SiteRoutes(PAPER).change_sites(0b1000)
