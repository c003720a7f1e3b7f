"""The judge of what members say about standing still (`ordercast.sim.checkers.stalled`), on histories made by hand."""

from __future__ import annotations

import pytest
from tests.sim.histories import History, group

from ordercast.config import MS, SECOND
from ordercast.sim.checkers.stalled import LateApplication, stall_failures

END_NS = 60 * SECOND


def judged(history: History, *, is_stuck: bool = True, late: tuple[LateApplication, ...] = ()) -> list[str]:
    return stall_failures(history.rows, list(history.lives.values()), history.troubles, late, END_NS, is_stuck=is_stuck)


def test_everybody_that_waits_has_told_so() -> None:
    history = group("a b c").crash("a b", 500).stalled("c", 3_000, "no_quorum: a/0, b/0")
    assert judged(history) == []


def test_a_member_that_stands_alone_and_says_nothing_is_found() -> None:
    (text,) = judged(group("a b c").crash("a b", 500))
    assert text.startswith("stalled: c/0 is in a b c since")


def test_one_of_two_that_wait_is_silent() -> None:
    history = group("a b c d e").crash("a b c", 500).stalled("d", 3_000, "no_quorum: a/0, b/0, c/0")
    (text,) = judged(history)
    assert "e/0" in text


def test_a_member_that_says_that_it_goes_on_and_does_not_is_found() -> None:
    history = group("a b c").crash("a b", 500).stalled("c", 3_000, "network: a/0").resumed("c", 4_000)
    (text,) = judged(history)
    assert "c/0" in text


def test_a_newcomer_that_waits_outside_has_to_say_so() -> None:
    history = group("a b c").start("d", 1_000).crash("a b", 500).stalled("c", 3_000, "no_quorum: a/0, b/0")
    (text,) = judged(history)
    assert text.startswith("stalled: d/0 is outside since 1.000 s")
    assert judged(history.stalled("d", 3_000, "join: c/0")) == []


def test_what_happened_just_before_the_end_need_not_be_told_yet() -> None:
    history = group("a b c").start("d", 59_000).crash("a b", 500).stalled("c", 3_000, "no_quorum: a/0, b/0")
    assert judged(history) == []


def test_a_group_that_is_whole_waits_for_nothing() -> None:
    assert judged(group("a b c")) == []


def test_a_run_that_goes_on_owes_no_report() -> None:
    assert judged(group("a b c").crash("a b", 500), is_stuck=False) == []


def test_a_wait_without_a_reason_is_a_failure_in_every_run() -> None:
    history = group("a b c").stalled("b", 3_000, "unexplained")
    (text,) = judged(history, is_stuck=False)
    assert "b/0 has waited for 5 s at 3.000 s and knows no reason" in text


@pytest.mark.parametrize(
    ("begin", "end", "is_fair"), [(0, 5_000, True), (2_000, 2_900, True), (3_500, 9_000, False), (0, -1_000, False)]
)
def test_an_application_is_blamed_only_while_it_is_late(begin: int, end: int, is_fair: bool) -> None:
    history = group("a b c").stalled("b", 3_000, "not_receiving: c/0")
    late = (LateApplication("c", begin * MS, end * MS), LateApplication("a", 0, 9_000 * MS))
    assert (judged(history, is_stuck=False, late=late) == []) is is_fair


def test_a_member_is_missing_only_if_it_is_down_in_trouble_or_left_behind() -> None:
    told = "no_quorum: c/0"
    (text,) = judged(group("a b c").stalled("b", 3_000, told), is_stuck=False)
    assert "blames c/0, which did nothing wrong" in text
    assert judged(group("a b c").crash("c", 2_000).stalled("b", 3_000, told), is_stuck=False) == []
    assert judged(group("a b c").trouble("c", 1_000, 2_000).stalled("b", 3_000, told), is_stuck=False) == []
    gone_on = group("a b c").stalled("b", 3_000, told).view("a b", "reset", by="b", at=3_500)
    assert judged(gone_on, is_stuck=False) == []
    assert judged(group("a b c").gone("c", 2_500).stalled("b", 3_000, told), is_stuck=False) == []


def test_a_reporter_without_a_view_may_miss_a_member_that_has_left() -> None:
    """It was restarted, so neither of them has a view: only one of them has gone."""
    told = "no_quorum: c/0"
    outside = group("a b c").start("d", 2_000)
    assert judged(outside.gone("c", 2_500).stalled("d", 3_000, told), is_stuck=False) == []
    newcomers = group("a b").start("c d", 2_000).stalled("d", 3_000, told)
    assert len(judged(newcomers, is_stuck=False)) == 1
