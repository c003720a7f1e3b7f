"""What the judge takes for enough members, by hand."""

from __future__ import annotations

import pytest

from ordercast.pipeline.verify.history import Rules, is_strict, may_go_on

VIEW = ("a/0", "b/0", "c/0")


@pytest.mark.parametrize(
    ("rules", "present", "enough"),
    [
        ("majority", 2, True),
        ("majority", 1, False),
        ("all", 3, True),
        ("all", 2, False),
        (1, 1, True),
        (2, 1, False),
        (5, 3, True),  # a number larger than the view: all members of the view
        (5, 2, False),
        ({"a": 1, "b": 5, "c": 1}, 3, True),  # each member asks for itself, and all must be content
        ({"a": 1, "b": 5, "c": 1}, 2, False),
    ],
)
def test_a_number_larger_than_the_view_means_all_of_its_members(rules: Rules, present: int, enough: bool) -> None:
    assert may_go_on(VIEW, list(VIEW[:present]), rules) is enough


def test_half_of_a_view_goes_on_with_its_first_member_only() -> None:
    four = (*VIEW, "d/0")
    assert may_go_on(four, ["a/0", "d/0"], "majority")
    assert not may_go_on(four, ["b/0", "d/0"], "majority")


@pytest.mark.parametrize(("rules", "strict"), [("majority", True), ("all", True), (1, False), (2, True), (5, True)])
def test_at_most_one_part_goes_on_where_a_rule_asks_for_more_than_half(rules: Rules, strict: bool) -> None:
    assert is_strict(VIEW, rules) is strict
