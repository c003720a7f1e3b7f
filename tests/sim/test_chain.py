"""The judge of chains (`ordercast.sim.checkers.chain`), on histories made by hand."""

from __future__ import annotations

from tests.sim.histories import group


def test_views_that_follow_one_another_are_a_chain() -> None:
    history = group("a b c").start("d").view("a b c d", by="a b c", at=200).view("a b d", "leave", by="a b d", at=300)
    assert history.view("a d", "reset", at=900).branches() == []


def test_a_view_that_some_members_skip_is_on_the_chain() -> None:
    history = group("a b c").view("b c a", "lock", by="a", at=200)
    assert history.view("a b", "reset", by="a", at=300).view("a b", "reset", by="b", at=300).branches() == []


def test_two_recoveries_of_one_view_are_two_branches() -> None:
    history = group("a b c d").view("a b", "reset", at=900).view("c d", "reset", at=900)
    [text] = history.branches()
    assert "view a b c d was followed by a b (reset: a/0 b/0; at a/0 b/0) and by c d" in text


def test_a_join_that_the_others_never_knew_of_is_a_branch() -> None:
    """A view is installed only when it is decided: no failure can leave one behind."""
    history = group("a b c").start("x").view("a b c x", by="a", at=200).view("b c", "reset", at=900)
    assert len(history.branches()) == 1


def test_parts_that_may_both_go_on_by_their_rule_are_no_branches() -> None:
    history = group("a b c d", 2).view("a b", "reset", at=900).view("c d", "reset", at=900)
    assert history.branches() == []
    assert group("a b c d", 3).view("a b", "reset", at=900).view("c d", "reset", at=900).branches()


def test_a_member_that_left_and_came_back_does_not_tie_its_views_together() -> None:
    history = group("a b c").gone("c", 500).view("a b", "leave", by="a b", at=510)
    history.start("d").view("c d", "create", at=600)
    assert history.branches() == []
