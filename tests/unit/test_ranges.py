"""Bounded sets of numbers: their bounds, and hostile ones (QSM section 2.3.3)."""

from __future__ import annotations

import pytest

from ordercast.errors import InvariantViolation, WireError
from ordercast.parts.ranges import EMPTY, from_numbers, from_runs, intersection, members_of, truncated, union
from ordercast.wire.ranges import (
    MAX_RUN,
    MAX_RUNS,
    NO_LIMIT,
    SET_HEAD,
    SET_RUN,
    NumberSet,
    decode_set,
    encode_set,
)


def test_every_second_number_is_cut_off_after_so_many_runs_and_says_where() -> None:
    found = from_numbers(range(0, 1_000, 2))
    assert (len(found.runs), found.limit, found.is_truncated) == (MAX_RUNS, 2 * MAX_RUNS, True)


def test_a_long_list_is_not_read_to_its_end() -> None:
    source = iter(range(0, 1 << 40, 2))
    from_numbers(source)
    assert next(source) < 4 * MAX_RUNS


def test_numbers_that_fall_are_our_own_mistake() -> None:
    with pytest.raises(InvariantViolation):
        from_numbers([3, 1])


def test_a_run_that_the_wire_cannot_name_ends_the_set() -> None:
    found = from_runs([(5, 6), (10, 20 + MAX_RUN), (1 << 50, (1 << 50) + 1)])
    assert found == NumberSet(((5, 6), (10, 10 + MAX_RUN)), 10 + MAX_RUN)
    assert decode_set(encode_set(found)) == found


def test_sets_that_agree_only_beyond_a_limit_have_nothing_in_common_that_is_known() -> None:
    one, other = NumberSet(((0, 1),), 5), from_runs([(7, 9)])
    assert intersection(one, other) == NumberSet((), 5)
    assert union(one, other) == NumberSet(((0, 1),), 5)


def test_a_run_of_four_billion_is_named_one_by_one_only_as_far_as_asked() -> None:
    assert list(members_of(NumberSet(((7, 7 + MAX_RUN),)), 3)) == [7, 8, 9]


def test_a_set_that_was_not_truncated_is_not_sent() -> None:
    long = from_numbers(range(0, 1_000, 2), most=500)
    with pytest.raises(InvariantViolation):
        encode_set(long)
    assert decode_set(encode_set(truncated(long, MAX_RUNS))).limit == 2 * MAX_RUNS


def test_the_bytes_of_a_set_are_as_they_were() -> None:
    body = encode_set(NumberSet(((1, 3), (0x102, 0x105)), 0x200))
    assert body.hex() == "00020000000000000200" + "010000000000000002000000" + "020100000000000003000000"
    assert encode_set(EMPTY).hex() == "0000000000000010" + "0000"


HOSTILE = {
    "an empty run": SET_HEAD.pack(NO_LIMIT, 1) + SET_RUN.pack(1, 0),
    "runs that fall": SET_HEAD.pack(NO_LIMIT, 2) + SET_RUN.pack(9, 1) + SET_RUN.pack(3, 1),
    "runs that touch": SET_HEAD.pack(NO_LIMIT, 2) + SET_RUN.pack(3, 1) + SET_RUN.pack(4, 1),
    "a run beyond the limit": SET_HEAD.pack(10, 1) + SET_RUN.pack(9, 2),
    "a limit out of all reason": SET_HEAD.pack(NO_LIMIT + 1, 0),
    "too many runs": SET_HEAD.pack(NO_LIMIT, MAX_RUNS + 1)
    + b"".join(SET_RUN.pack(2 * each, 1) for each in range(MAX_RUNS + 1)),
    "runs that are not there": SET_HEAD.pack(NO_LIMIT, 60),
    "bytes left over": SET_HEAD.pack(NO_LIMIT, 0) + b"\0",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_set_is_refused(name: str) -> None:
    with pytest.raises(WireError):
        decode_set(HOSTILE[name])
