"""The quorum rule, case by case (docs/design/membership.md). Properties of it are in `tests/property`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.quorums import LAST_SEQ, A, B, C, D, E, F, G, cut_of, joined, left, member_of, proposal_of, view_of

from ordercast.config import MinMembers
from ordercast.membership.quorum.cuts import Answers
from ordercast.membership.quorum.rule import (
    are_quorums,
    binding,
    electorate,
    electorate_before,
    holders_known,
    is_committed,
    is_decided,
    is_of_earlier_stay,
    is_open,
    is_plain,
    may_go,
    needed,
)
from ordercast.view import Reason
from ordercast.wire.returns import Returned

# Quorums of one view


@pytest.mark.parametrize(
    ("rule", "present", "expected"),
    [
        ("majority", {A, B, C}, True),
        ("majority", {C, D, E}, True),
        ("majority", {A, B}, False),
        ("all", {A, B, C, D}, False),
        ("all", {A, B, C, D, E}, True),
        (2, {D, E}, True),
        (2, {E}, False),
        (1, {E}, True),
        (1, set(), False),
        (9, {A, B, C, D}, False),
        (9, {A, B, C, D, E}, True),
    ],
)
def test_a_quorum_meets_the_rule_of_the_view(rule: MinMembers, present: set[int], expected: bool) -> None:
    view = view_of("abcde", rules=dict.fromkeys("abcde", rule))
    assert electorate(view).is_quorum(present) is expected


@pytest.mark.parametrize(
    ("names", "present", "expected"),
    [("abcd", {A, D}, True), ("abcd", {B, C}, False), ("ab", {A}, True), ("ab", {B}, False), ("ba", {B}, True)],
)
def test_half_is_a_quorum_only_with_the_first_member(names: str, present: set[int], expected: bool) -> None:
    assert electorate(view_of(names)).is_quorum(present) is expected


def test_others_that_are_present_do_not_count() -> None:
    assert not electorate(view_of("abc")).is_quorum({A, D, E})


def test_the_rule_of_every_member_has_to_be_met() -> None:
    """RMP section 4.4: also that of a member that is gone."""
    assert not electorate(view_of("abcde", rules={"e": "all"})).is_quorum({A, B, C, D})
    assert electorate(view_of("abcde", rules={"e": 1})).is_quorum({A, B, C})
    assert not electorate(view_of("abcde", rules={"e": 1})).is_quorum({A, B})
    assert not electorate(view_of("abcde", rules={"a": 4, "b": 2})).is_quorum({A, B, C})


# Changes without a failure


@pytest.mark.parametrize(
    ("names", "prior", "holders", "expected"),
    [
        ("ab", "abc", {A, B}, True),
        ("ab", "abc", {B, C}, True),
        ("ab", "abc", {A}, False),
        ("b", "ab", {B}, False),
        ("b", "ab", {A}, True),
        ("bc", "abc", {B}, False),
        ("bc", "abc", {B, C}, True),
    ],
    ids=["two", "the-leaver-counts", "one", "the-second-alone", "the-first-leaves", "one-of-three", "without-it"],
)
def test_a_leave_is_decided_by_a_quorum_of_the_view_before_it(
    names: str, prior: str, holders: set[int], expected: bool
) -> None:
    assert is_decided(left(names, prior), holders) is expected


def test_a_newcomer_has_no_vote_on_its_own_join() -> None:
    view = joined("abcd", "abc")
    assert not is_decided(view, {A, D})
    assert is_decided(view, {A, B})


def test_the_rules_of_the_view_before_decide() -> None:
    view = left("bc", "abc", rules={"a": "all"})
    assert view.members[0].min_members == "majority"
    assert not is_decided(view, {B, C})
    assert is_decided(view, {A, B, C})


def test_the_first_view_of_a_ring_is_decided() -> None:
    view = view_of("abc", reason=Reason.RESET)
    assert not is_open(view)
    assert is_decided(view, set())
    assert is_open(left("ab", "abc"))


def test_a_change_is_held_by_its_orderer_and_its_receiver() -> None:
    assert holders_known(left("ab", "abc", creator="b"), A) == {A, B}


@pytest.mark.parametrize(
    ("names", "prior", "creator", "expected"),
    [
        ("ab", "a", "a", True),
        ("abc", "ab", "a", True),
        ("abc", "ab", "b", False),
        ("abcd", "abc", "a", False),
        ("abcd", "abc", "b", False),
        ("ab", "abc", "a", True),
        ("abc", "abcd", "a", True),
        ("abc", "abcd", "b", False),
        ("a", "ab", "a", True),
        ("a", "ab", "b", True),
        ("b", "ab", "b", True),
    ],
    ids=[
        "one-and-a-newcomer",
        "the-first-orders",
        "the-second-orders: its newcomer does not know",
        "the-newcomer-has-no-vote",
        "nor-where-another-orders",
        "two-of-three",
        "half-with-the-first",
        "half-without-the-first",
        "the-first-of-two-orders",
        "the-second-orders-its-leave",
        "the-second-orders-the-leave-of-the-first",
    ],
)
def test_nothing_is_said_where_all_know_by_themselves(names: str, prior: str, creator: str, expected: bool) -> None:
    view = (joined if len(names) > len(prior) else left)(names, prior, creator)
    assert is_plain(view) is expected


# After a failure: the views whose quorums are needed


def test_a_change_that_is_known_to_be_decided_needs_only_the_view_that_it_made() -> None:
    view = joined("abcde", "abcd")
    cuts = {C: cut_of(view), D: cut_of(view, LAST_SEQ), E: cut_of(view)}
    assert needed(cuts, view) == [electorate(view)]
    assert are_quorums(needed(cuts, view), set(cuts))


def test_a_change_in_doubt_needs_the_view_before_as_well() -> None:
    view = joined("abcde", "abcd")
    cuts = {C: cut_of(view), D: cut_of(view, LAST_SEQ - 1), E: cut_of(view)}
    assert needed(cuts, view) == [electorate(view), electorate_before(view)]
    assert not are_quorums(needed(cuts, view), {C, D, E}), "A and B may go on in the view before"
    assert are_quorums(needed(cuts, view), {A, B, E})


def test_a_leave_from_a_view_of_two_in_doubt_needs_the_leaver() -> None:
    """In {a, b}, a is a quorum and may go on without the leave that b ordered."""
    view = left("b", "ab", creator="b")
    cuts = {B: cut_of(view)}
    assert not are_quorums(needed(cuts, view), {B})
    assert are_quorums(needed(cuts, view), {A, B})
    assert are_quorums(needed({B: cut_of(view, LAST_SEQ)}, view), {B})


def test_the_first_view_of_a_ring_needs_its_own_quorum_only() -> None:
    view = view_of("abc", reason=Reason.RESET)
    assert needed({A: cut_of(view)}, view) == [electorate(view)]


def test_nobody_that_has_departed_counts() -> None:
    view = left("ab", "abc")
    cuts = {A: cut_of(view)}
    assert not are_quorums(needed(cuts, view), {A}), "B and C may have gone on before the leave"


# After a failure: the proposal that binds


def test_without_an_accepted_proposal_nothing_binds() -> None:
    view = view_of("abcde")
    assert binding({A: cut_of(view), B: cut_of(view)}) is None


def test_a_proposal_that_all_its_members_here_accepted_binds() -> None:
    view, made = view_of("abcde"), proposal_of(1, "a", "abc")
    assert binding({B: cut_of(view, accepted=made), C: cut_of(view, accepted=made)}) == made
    assert binding({B: cut_of(view, accepted=made), D: cut_of(view)}) == made, "D is no member of it"


def test_a_fresh_proposal_does_not_bind_where_its_coordinator_promises() -> None:
    view, made = view_of("abcde"), proposal_of(1, "a", "abc")
    assert binding({A: cut_of(view, accepted=made), B: cut_of(view, accepted=made)}) is None


def test_a_fresh_proposal_does_not_bind_where_a_member_of_it_never_accepted() -> None:
    view, made, older = view_of("abcde"), proposal_of(2, "a", "abc"), proposal_of(1, "d", "bcd")
    assert binding({B: cut_of(view, accepted=made), C: cut_of(view)}) is None
    assert binding({B: cut_of(view, accepted=made), C: cut_of(view, accepted=older)}) is None


def test_a_fresh_proposal_of_restarted_members_binds_neither_its_coordinator_nor_one_that_never_accepted() -> None:
    """The proposal names their new lives, and they promise by the ids that they have in the ring."""
    view, made = view_of("abcde"), proposal_of(1, "f", "fgc")  # f and g are lives of a and b
    one = Returned("g", made.ballot, member_of("f"), 0, (A, F), view, True, made)
    two = Returned("g", made.ballot, member_of("g"), 0, (B, G), view, True, None)
    accepted, silent = cut_of(view, accepted=made), cut_of(view)
    assert binding({A: accepted, D: silent}, [one]) is None, "its coordinator promises"
    assert binding({C: accepted, B: silent}, [two]) is None, "a member of it has not accepted"
    assert binding({C: accepted, B: accepted, D: silent}, [two._replace(accepted=made)]) == made
    assert binding({C: accepted, D: silent}) == made


def test_a_repeated_proposal_binds_whoever_else_is_here() -> None:
    view, again = view_of("abcde"), proposal_of(3, "d", "abc", fresh=False)
    assert binding({B: cut_of(view, accepted=again), C: cut_of(view), D: cut_of(view)}) == again


def test_of_several_proposals_the_one_with_the_highest_ballot_binds() -> None:
    view, old, new = view_of("abcde"), proposal_of(1, "d", "bcd"), proposal_of(2, "e", "bce")
    cuts = {A: cut_of(view, accepted=old), B: cut_of(view, accepted=new), C: cut_of(view, accepted=new)}
    assert binding(cuts) == new


# After a failure: commit


def test_a_fresh_proposal_waits_for_all_members_of_its_view() -> None:
    made, old = proposal_of(1, "a", "abc"), [electorate(view_of("abcde"))]
    assert not is_committed(made, old, {A, B, D, E})
    assert is_committed(made, old, {A, B, C})


def test_a_repeated_proposal_needs_quorums_of_the_old_view_and_of_its_own() -> None:
    again, old = proposal_of(2, "d", "abc", fresh=False), [electorate(view_of("abcde"))]
    assert is_committed(again, old, {B, C, D})
    assert not is_committed(again, old, {B, C}), "no quorum of the old view"
    assert not is_committed(again, old, {C, D, E}), "no quorum of its own"


def test_a_commit_needs_the_view_before_a_change_in_doubt() -> None:
    base = joined("abcde", "abcd")
    made = proposal_of(1, "c", "cde")
    both = [electorate(base), electorate_before(base)]
    assert is_committed(made, both[:1], {C, D, E})
    assert not is_committed(made, both, {C, D, E})
    assert is_committed(made, both, {A, C, D, E})


# Leaving


def test_a_leaver_may_go_when_a_quorum_of_the_view_without_it_knows() -> None:
    view = left("abc", "abcd")
    assert not may_go(view, {A})
    assert not may_go(view, {A, D}), "it does not count itself"
    assert may_go(view, {B, C})


# Two stays of one node in a ring


def test_the_vote_of_a_leaver_is_none_of_the_member_that_it_is_again() -> None:
    """What it says knows nothing of what it has promised and accepted since."""
    gone, back = left("ab", "abc"), replace(joined("abc", "ab"), seq=LAST_SEQ + 1)
    assert is_of_earlier_stay(C, gone, back)
    assert is_of_earlier_stay(C, gone, replace(left("ab", "abc"), seq=LAST_SEQ + 2)), "it has left again"
    assert not is_of_earlier_stay(C, gone, gone), "while its leave is not decided it votes"
    assert not is_of_earlier_stay(C, back, back)
    assert not is_of_earlier_stay(C, gone, replace(joined("abd", "ab"), seq=LAST_SEQ + 1)), "it has no vote there"
    answers = Answers({A: cut_of(back), C: cut_of(gone)}, 0)
    assert answers.forget_earlier_stays(back)
    assert set(answers.votes) == {A}
    assert not answers.forget_earlier_stays(back)
