"""The table of the groups that a session is in."""

from __future__ import annotations

from array import array
from random import Random

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
