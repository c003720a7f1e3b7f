"""Partitions and rings of a region view. QSM sections 2.3.1 and 2.3.2."""

from __future__ import annotations

from ordercast.orderers.regions.exclusions import Exclusions
from ordercast.orderers.regions.given import GivenView
from ordercast.orderers.regions.partitions import (
    Stop,
    answered_by,
    leader_of,
    partition_count,
    partition_of,
    partitions_of,
    ring_of,
)
from ordercast.view import Member


def a_view(nodes: int, partition_members: int) -> GivenView:
    members = tuple(Member(each, f"n{each}", 1, ("h", each)) for each in range(1, nodes + 1))
    return GivenView(1, 11, 1, "gms", None, members, (), partition_members)


def test_partitions_have_at_least_r_members_in_round_robin_order() -> None:
    view = a_view(7, 2)
    assert partition_count(view) == 3
    assert partitions_of(view, ()) == ((1, 4, 7), (2, 5), (3, 6))
    assert [partition_of(view, each) for each in (1, 2, 6, 99)] == [0, 1, 2, -1]


def test_a_small_region_is_one_partition() -> None:
    assert partitions_of(a_view(3, 5), ()) == ((1, 2, 3),)


def test_exclusions_leave_the_others_where_they_are() -> None:
    view = a_view(6, 2)
    assert partitions_of(view, {1, 2}) == ((4,), (5,), (3, 6))
    assert leader_of(partitions_of(view, {1, 4})) == 2
    assert leader_of(partitions_of(view, {1, 2, 3, 4, 5, 6})) == 0


def test_a_ring_goes_through_the_starters_partition_then_the_others_and_back() -> None:
    ring = ring_of(((1, 4), (2, 5)), 4)
    assert ring == (
        Stop(4, 0, is_first=True),
        Stop(1, 0),
        Stop(4, 0, is_return=True),
        Stop(2, 1, is_first=True),
        Stop(5, 1),
        Stop(2, 1, is_return=True),
        Stop(4, 0, is_end=True),
    )


def test_a_ring_skips_partitions_without_members_and_an_excluded_starter_has_none() -> None:
    assert [stop.node for stop in ring_of(((), (2, 5)), 5)] == [5, 2, 5, 5]
    assert ring_of(((), (2, 5)), 1) == ()


def test_everybody_answers_for_blocks_of_a_partition_without_members() -> None:
    assert answered_by(((1,), (), (3,)), 0) == (True, True, False)


def test_exclusions_are_known_by_epoch() -> None:
    exclusions = Exclusions()
    assert exclusions.install(3, [7], False) == [7]
    assert exclusions.install(5, [8], False) == [8]
    assert exclusions.as_of(4, 1) == {7}
    assert exclusions.as_of(5, 1) == {7, 8} == exclusions.out_of(1)
    assert (exclusions.epoch, exclusions.floor) == (5, 0)


def test_after_a_gap_tokens_of_before_cannot_be_followed() -> None:
    exclusions = Exclusions()
    exclusions.install(9, [7, 8], True)
    assert (exclusions.epoch, exclusions.floor) == (9, 9)
    assert exclusions.install(9, [7, 8], True) == []
    exclusions.prune({8})
    assert exclusions.out_of(1) == {8}


def test_a_node_that_came_back_is_excluded_from_earlier_views_alone() -> None:
    exclusions = Exclusions()
    exclusions.install(3, [7], False)
    assert exclusions.out_of(2) == {7}
    assert exclusions.out_of(3) == frozenset()
    exclusions.install(8, [7], False)
    assert exclusions.as_of(7, 4) == frozenset()
    assert exclusions.as_of(7, 2) == exclusions.as_of(8, 4) == {7}
