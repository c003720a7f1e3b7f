"""The table of the groups that a session is in."""

from __future__ import annotations

from array import array
from random import Random

import numpy as np

from ordercast.groups.wanted import WantedGroups


def test_messages_of_wanted_groups_are_picked() -> None:
    wanted = WantedGroups()
    assert wanted.pick(array("I", [1, 2])) == []
    wanted.add(2)
    assert wanted.pick(array("I", [2, 2])) is None
    assert wanted.pick(array("I", [1, 2, 3, 2, (1 << 32) - 1])) == [1, 3]
    wanted.discard(2)
    wanted.discard(77_000)
    assert wanted.pick(array("I", [2])) == []


def test_numbers_may_begin_anywhere_and_grow_to_both_sides() -> None:
    rng = Random(5)
    first = (1 << 31) - 3
    wanted, numbers = WantedGroups(), set()
    for _ in range(2_000):
        number = first + rng.randint(-40_000, 40_000)
        numbers.add(number)
        wanted.add(number)
    asked = [first + offset for offset in range(-50_000, 50_000, 7)]
    assert wanted.pick(asked) == [at for at, number in enumerate(asked) if number in numbers]
    assert wanted.table_bytes < 2_000_000, "a table over the numbers that there are, not from 0 on"
    wanted.clear()
    assert wanted.pick(asked) == []


def test_numbers_of_other_groups_are_not_held() -> None:
    wanted = WantedGroups()
    for number in range(1, 3_000):
        wanted.add(number)
    wanted.discard(7)
    assert wanted.holds(np.array([1, 2_999, 8, 1], dtype=np.uint32))
    for other in (0, 7, 3_000, 1 << 20, (1 << 32) - 1):
        assert not wanted.holds(np.array([1, other], dtype=np.uint32))


def test_messages_are_counted_by_number_while_the_table_grows() -> None:
    wanted = WantedGroups()
    first = 1 << 20
    wanted.add(first)
    wanted.count(np.array([first, first], dtype=np.uint32))
    for number in (first + 5_000, first - 9_000):
        wanted.add(number)
        wanted.count(np.array([number, first], dtype=np.uint32))
    assert [wanted.take_count(first + offset) for offset in (0, 5_000, -9_000, 1)] == [4, 1, 1, 0]
    assert wanted.take_count(first) == 0
    assert [wanted.take_count(number) for number in (-1, 0, (1 << 32) - 1)] == [0, 0, 0]
