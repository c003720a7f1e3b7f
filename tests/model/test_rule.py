"""The pure functions of the rule: views, quorums, what a coordinator reads from promises."""

from __future__ import annotations

from itertools import permutations

from tests.model.rule import (
    JOIN,
    LEAVE,
    MESSAGE,
    Entry,
    Promise,
    Proposal,
    Rules,
    basis,
    is_committed,
    is_decided,
    is_quorum,
    mask_of,
    proposals,
    subsets,
    view_after,
)

RULES = Rules()
A, B, C, D = range(4)


def quorums(rules: Rules, view: tuple[int, ...]) -> list[int]:
    return [mask for mask in subsets(mask_of(view)) if is_quorum(rules, view, mask)]


def test_newcomers_are_appended_and_the_others_keep_their_order() -> None:
    log = (Entry(JOIN, D), Entry(MESSAGE), Entry(LEAVE, A))
    assert [view_after((A, B, C), log, length) for length in range(4)] == [
        (A, B, C),
        (A, B, C, D),
        (A, B, C, D),
        (B, C, D),
    ]


def test_two_quorums_of_one_view_always_meet() -> None:
    for size in range(1, 7):
        found = quorums(RULES, tuple(range(size)))
        assert found
        assert all(left & right for left in found for right in found)


def test_half_of_a_view_is_enough_with_its_first_member_only() -> None:
    assert is_quorum(RULES, (A, B, C, D), mask_of((A, D)))
    assert not is_quorum(RULES, (A, B, C, D), mask_of((B, C)))


def test_quorums_of_consecutive_views_need_not_meet() -> None:
    """Rule 5 asks for both because of this: {b} is a quorum of {b}, and {a} one of {a, b}."""
    assert is_quorum(RULES, (A, B), mask_of([A]))
    assert is_quorum(RULES, (B,), mask_of([B]))


def test_a_number_asks_for_all_of_a_smaller_view() -> None:
    rules = Rules(min_members=3)
    assert is_quorum(rules, (A, B), mask_of((A, B)))
    assert not is_quorum(rules, (A, B), mask_of([A]))
    assert is_quorum(rules, (A, B, C, D), mask_of((B, C, D)))


def test_the_order_of_a_view_matters_by_its_first_member_alone() -> None:
    for view in permutations(range(4)):
        same = tuple(sorted(view, key=lambda node: (node != view[0], node)))
        assert quorums(RULES, view) == quorums(RULES, same)


def test_a_change_is_decided_by_the_view_before_it() -> None:
    log = (Entry(LEAVE, A),)
    assert is_decided(RULES, (A, B), log, 0, mask_of([A]))
    assert not is_decided(RULES, (A, B), log, 0, mask_of([B]))


def test_an_undecided_change_asks_for_quorums_of_both_views() -> None:
    log = (Entry(JOIN, C),)
    unsure = (Promise(A, 1, 0, 0), Promise(B, 0, 0, 0))
    assert basis(RULES, (A, B), log, unsure).needed == ((A, B), (A, B, C))
    sure = (Promise(A, 1, 1, 0), Promise(B, 0, 0, 0))
    assert basis(RULES, (A, B), log, sure).needed == ((A, B, C),)


def test_an_accepted_proposal_is_proposed_again_unchanged() -> None:
    old = Proposal(1, 0, (A, B))
    shown = (Promise(A, 1, 0, 0), Promise(C, 0, 0, 1))
    assert list(proposals(RULES, (A, B, C), (Entry(MESSAGE),), 2, shown, (old,))) == [(old, ((A, B, C),))]


def test_the_members_of_a_new_view_are_the_promisers_in_the_last_view() -> None:
    log = (Entry(LEAVE, C),)
    shown = (Promise(A, 1, 1, 0), Promise(B, 0, 0, 0), Promise(C, 1, 0, 0))
    assert list(proposals(RULES, (A, B, C), log, 1, shown, ())) == [(Proposal(1, 1, (A, B)), ((A, B),))]


def test_too_few_promises_allow_no_proposal() -> None:
    assert list(proposals(RULES, (A, B, C), (), 1, (Promise(A, 0, 0, 0),), ())) == []


def test_the_coordinator_may_be_first_in_the_new_view() -> None:
    """V2: all survivors could be the coordinator; the others keep their order behind it."""
    shown = tuple(Promise(node, 0, 0, 0) for node in (A, B, C))
    found = [proposal.members for proposal, _ in proposals(Rules(coordinator_first=True), (A, B, C), (), 1, shown, ())]
    assert found == [(A, B, C), (B, A, C), (C, A, B)]


def test_a_commit_needs_quorums_of_the_old_and_of_the_new_view() -> None:
    proposal = Proposal(1, 0, (B, C))
    assert not is_committed(RULES, proposal, 1, ((A, B, C),), mask_of([B]))
    assert not is_committed(RULES, proposal, 1, ((A, B, C),), mask_of((A, C)))
    assert is_committed(RULES, proposal, 1, ((A, B, C),), mask_of((A, B)))


def test_a_fresh_proposal_may_need_all_of_its_members_and_a_repeated_one_quorums() -> None:
    """V3."""
    rules = Rules(fresh_by_all=True)
    proposal = Proposal(1, 0, (A, B, C))
    assert not is_committed(rules, proposal, 1, ((A, B, C),), mask_of((A, B)))
    assert is_committed(rules, proposal, 2, ((A, B, C),), mask_of((A, B)))
