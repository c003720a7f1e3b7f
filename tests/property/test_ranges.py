"""Bounded sets of numbers (QSM section 2.3.3) against Python's own sets, and against any bytes."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import WireError
from ordercast.parts.ranges import (
    blocks_of,
    contains,
    difference,
    from_numbers,
    from_runs,
    intersection,
    members_of,
    pieces_of,
    segments_of_blocks,
    size_of,
    truncated,
    union,
)
from ordercast.wire.ranges import MAX_RUNS, NO_LIMIT, NumberSet, decode_set, encode_set

UNIVERSE = 80
NUMBERS = st.sets(st.integers(0, UNIVERSE - 1))
MOST = st.integers(0, 12)
Operation = Callable[[NumberSet, NumberSet, int], NumberSet]
OPERATIONS: dict[str, tuple[Operation, Callable[[set[int], set[int]], set[int]]]] = {
    "union": (union, lambda a, b: a | b),
    "intersection": (intersection, lambda a, b: a & b),
    "difference": (difference, lambda a, b: a - b),
}


def made(numbers: set[int], most: int = MAX_RUNS) -> NumberSet:
    return from_numbers(sorted(numbers), most)


def check_form(found: NumberSet, most: int = MAX_RUNS) -> None:
    assert len(found.runs) <= most
    stops = [-1]
    for first, stop in found.runs:
        assert stops[-1] < first < stop <= found.limit
        stops.append(stop)


def check_says(found: NumberSet, true: set[int]) -> None:
    """Below the limit a set is exact, and it says nothing beyond."""
    said = set(members_of(found, 10_000))
    assert said == {number for number in true if number < found.limit}
    assert size_of(found) == len(said)
    assert all(contains(found, number) == (number in said) for number in range(UNIVERSE + 2))


@given(numbers=NUMBERS, most=MOST)
@settings(deadline=None)
def test_a_set_that_was_cut_off_is_exact_below_its_limit(numbers: set[int], most: int) -> None:
    found = made(numbers, most)
    check_form(found, most)
    check_says(found, numbers)
    assert found.is_truncated == (len(made(numbers).runs) > most), "it says so, and only then"
    assert not found.is_truncated or len(found.runs) == most, "no more is left out than has to be"
    assert truncated(found, most) == found


@given(
    name=st.sampled_from(sorted(OPERATIONS)),
    one=NUMBERS,
    other=NUMBERS,
    most_one=MOST,
    most_other=MOST,
    most=MOST,
)
@settings(max_examples=400, deadline=None)
def test_operations_on_sets_that_were_cut_off_stay_true(
    name: str, one: set[int], other: set[int], most_one: int, most_other: int, most: int
) -> None:
    operation, exact = OPERATIONS[name]
    left, right = made(one, most_one), made(other, most_other)
    found = operation(left, right, most)
    check_form(found, most)
    check_says(found, exact(one, other))
    if len(found.runs) < most:
        assert found.limit == min(left.limit, right.limit), "nothing is given up without need"


@given(one=NUMBERS, other=NUMBERS, most=MOST)
@settings(deadline=None)
def test_a_pull_never_names_what_the_predecessor_lacks(one: set[int], other: set[int], most: int) -> None:
    """The successor's missing numbers, less those that its predecessor reported: also where the report was cut off."""
    pull = difference(made(one), made(other, most))
    assert set(members_of(pull, 1_000)) <= one - other


@given(runs=st.lists(st.tuples(st.integers(0, UNIVERSE), st.integers(0, UNIVERSE)), max_size=40), most=MOST)
@settings(deadline=None)
def test_runs_in_any_order_become_one_set(runs: list[tuple[int, int]], most: int) -> None:
    found = from_runs(runs, most=most)
    check_form(found, most)
    check_says(found, {number for first, stop in runs for number in range(first, stop)})


@given(numbers=NUMBERS, most=st.integers(0, UNIVERSE))
@settings(deadline=None)
def test_no_more_members_are_named_than_were_asked_for(numbers: set[int], most: int) -> None:
    assert list(members_of(made(numbers), most)) == sorted(numbers)[:most]


@given(numbers=st.sets(st.integers(0, 256 * 12 - 1), max_size=60), most=MOST, block=st.integers(0, 12))
@settings(deadline=None)
def test_blocks_and_segments_are_told_apart(numbers: set[int], most: int, block: int) -> None:
    segments = made(numbers, most)
    blocks = blocks_of(segments)
    check_form(blocks)
    known = {number for number in numbers if number < segments.limit}
    assert set(members_of(blocks, 100)) == {number // 256 for number in known if number // 256 < blocks.limit}
    pieces = {segment for first, stop in pieces_of(segments, block, 100) for segment in range(first, stop)}
    assert pieces == {number % 256 for number in known if number // 256 == block and number % 256 < 100}


@given(blocks=NUMBERS, most=MOST)
@settings(deadline=None)
def test_a_block_that_did_not_come_lacks_all_its_segments(blocks: set[int], most: int) -> None:
    found = segments_of_blocks(made(blocks, most))
    check_form(found)
    assert blocks_of(found) == made(blocks, most)


@given(numbers=NUMBERS, most=MOST)
@settings(deadline=None)
def test_a_set_is_read_as_it_was_written(numbers: set[int], most: int) -> None:
    found = made(numbers, most)
    assert decode_set(encode_set(found)) == found
    assert len(encode_set(found)) == found.size


@given(body=st.binary(max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_set_in_its_one_form_or_are_refused(body: bytes) -> None:
    try:
        found = decode_set(body)
    except WireError:
        return
    check_form(found)
    assert found.limit <= NO_LIMIT
    assert encode_set(found) == body
