"""The decisions of a recovery (Amoeba section 4.2, docs/design/overview.md section 7), one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ordercast.config import MinMembers
from ordercast.membership.quorum.cuts import agree, binding, clip_assignments, may_go_on, orphans
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.ordering import Assignment
from ordercast.wire.views import Ballot, Cut, Proposal

MEMBERS = tuple(Member(node_id(name, 0), name, 0, (name, 1), 0) for name in "abcde")
A, B, C, D, E = (member.id for member in MEMBERS)
SENDER = 77


def view_of(*ids: int, prior: tuple[int, ...] = (), reason: Reason = Reason.CREATE) -> View:
    members = tuple(member for each in ids for member in MEMBERS if member.id == each)
    return View(1, "a/0", 5, 0, 1, 0, members, {}, reason, prior=prior)


WHOLE = view_of(A, B, C, D, E)


def cut(
    received: int,
    assignments: tuple[Assignment, ...] = (),
    held: tuple[tuple[int, int, int], ...] = (),
    accepted: Proposal | None = None,
) -> Cut:
    return Cut(
        received=received,
        safe=0,
        assignments=assignments,
        held=held,
        view=WHOLE,
        departed=(),
        next_block=0,
        rule="majority",
        accepted=accepted,
    )


# The agreed remainder.


def test_survivors_agree_at_least_on_what_one_of_them_received() -> None:
    remainder = agree({A: cut(33), B: cut(33), C: cut(34)})
    assert (remainder.start, remainder.received, remainder.top, remainder.upto) == (33, 34, C, 34)


def test_of_several_that_received_most_one_is_asked_whoever_coordinates() -> None:
    assert agree({A: cut(34), B: cut(34)}).top == agree({B: cut(34), A: cut(34)}).top


def test_a_place_that_one_knows_and_a_block_that_another_holds_make_a_message() -> None:
    placed = (Assignment(11, SENDER, 4, 2),)
    remainder = agree({A: cut(10, placed), B: cut(10, held=((SENDER, 4, 1),)), C: cut(10, held=((SENDER, 5, 1),))})
    assert remainder.upto == 12
    assert remainder.beyond == ((11, SENDER, 4), (12, SENDER, 5))


def test_the_remainder_ends_where_no_survivor_can_place_or_none_holds() -> None:
    assignments = (Assignment(11, SENDER, 4, 1), Assignment(13, SENDER, 6, 1))
    held = ((SENDER, 4, 3),)
    assert agree({A: cut(10, assignments, held), B: cut(9)}).upto == 11, "nobody knows place 12"
    assert agree({A: cut(10, (Assignment(11, SENDER, 4, 3),), ((SENDER, 4, 1), (SENDER, 6, 1)))}).upto == 11
    assert agree({A: cut(10, held=held)}).upto == 10, "recovery places nothing new"


# Blocks of senders that are gone.


def test_orphans_go_from_the_next_number_up_to_the_first_hole() -> None:
    cuts = {A: cut(10, held=((SENDER, 4, 2),)), B: cut(10, held=((SENDER, 5, 2), (SENDER, 8, 1)))}
    assert orphans(cuts, {SENDER: 4}, [SENDER]) == [(SENDER, 4), (SENDER, 5), (SENDER, 6)]
    assert orphans(cuts, {SENDER: 3}, [SENDER]) == []
    assert orphans(cuts, {SENDER: 4}, []) == [], "who is alive submits its own"


# Who may go on.


@pytest.mark.parametrize(
    ("rule", "survivors", "expected"),
    [
        ("majority", {A, B, C}, True),
        ("majority", {C, D, E}, True),
        ("majority", {A, B}, False),
        ("all", {A, B, C, D}, False),
        ("all", {A, B, C, D, E}, True),
        (2, {D, E}, True),
        (2, {E}, False),
        (1, {E}, True),
    ],
)
def test_survivors_must_satisfy_the_rule(rule: MinMembers, survivors: set[int], expected: bool) -> None:
    assert may_go_on([rule], WHOLE, survivors, set(), True) is expected


def test_half_goes_on_only_with_the_first_member() -> None:
    four = view_of(A, B, C, D)
    assert may_go_on(["majority"], four, {A, D}, set(), True)
    assert not may_go_on(["majority"], four, {B, C}, set(), True)


def test_every_members_rule_counts() -> None:
    assert not may_go_on(["majority", "all"], WHOLE, {A, B, C}, set(), True)
    assert may_go_on([1, "majority"], WHOLE, {A, B, C}, set(), True)


def test_while_a_change_is_uncertain_the_view_before_it_must_agree_too() -> None:
    joined = view_of(A, B, C, D, E, prior=(A, B, C, D), reason=Reason.JOIN)
    assert may_go_on(["majority"], joined, {C, D, E}, set(), True)
    assert not may_go_on(["majority"], joined, {C, D, E}, set(), False), "A and B may go on in the view before"
    assert may_go_on(["majority"], joined, {A, B, E}, set(), False)


def test_who_has_departed_cannot_be_part_of_another_quorum() -> None:
    left = view_of(A, B, prior=(A, B, C), reason=Reason.LEAVE)
    assert not may_go_on(["majority"], left, {A}, set(), False)
    assert may_go_on(["majority"], left, {A}, {C}, False)


def test_a_leader_that_ordered_its_own_leave_has_departed() -> None:
    left = view_of(B, C, prior=(A, B, C), reason=Reason.LEAVE)
    assert may_go_on(["majority"], left, {B}, set(), False)


# Which proposal binds.


def proposal(round_: int, node: int, *ids: int, fresh: bool = True) -> Proposal:
    return Proposal(Ballot(round_, 10, 0, node), fresh, 10, (), view_of(*ids))


def test_without_an_accepted_proposal_nothing_binds() -> None:
    assert binding({A: cut(10), B: cut(10)}) is None


def test_a_proposal_that_all_its_members_here_accepted_binds() -> None:
    made = proposal(1, A, A, B, C)
    assert binding({B: cut(10, accepted=made), C: cut(10, accepted=made)}) == made


def test_a_member_of_it_that_never_accepted_rules_it_out() -> None:
    made = proposal(1, A, A, B, C)
    assert binding({B: cut(10, accepted=made), C: cut(10)}) is None
    assert binding({B: cut(10, accepted=made), D: cut(10)}) == made, "D is no member of it"


def test_of_several_proposals_the_one_with_the_highest_ballot_binds() -> None:
    old, new = proposal(1, D, B, C, D), proposal(2, E, B, C, E)
    assert binding({B: cut(10, accepted=new), C: cut(10, accepted=new), A: cut(10, accepted=old)}) == new


def test_a_proposal_that_was_proposed_again_binds_whoever_else_is_here() -> None:
    again = proposal(3, D, A, B, C, fresh=False)
    assert binding({B: cut(10, accepted=again), C: cut(10)}) == again


def test_runs_are_cut_to_what_is_agreed() -> None:
    runs = [Assignment(5, SENDER, 100, 4), Assignment(9, SENDER, 200, 4)]
    assert clip_assignments(runs, 6, 10) == (Assignment(7, SENDER, 102, 2), Assignment(9, SENDER, 200, 2))
    assert clip_assignments(runs, 12, 20) == ()


def test_a_view_keeps_its_members_in_order() -> None:
    assert [WHOLE.index(member) for member in (A, C, SENDER)] == [0, 2, -1]
    assert replace(WHOLE, counter=2).rank > WHOLE.rank
