"""How the logs of the survivors become one (Amoeba section 4.2, docs/design/overview.md section 7), step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ordercast.config import MinMembers, keeps_others_out
from ordercast.membership.quorum.cuts import agree, clip_assignments, orphans
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.ordering import Assignment
from ordercast.wire.views import Cut

MEMBERS = tuple(Member(node_id(name, 0), name, 0, (name, 1), 0) for name in "abcde")
A, B, C, D, E = (member.id for member in MEMBERS)
SENDER = 77


WHOLE = View(1, "a/0", 5, 0, 1, 0, MEMBERS, {}, Reason.CREATE)


def cut(
    received: int,
    assignments: tuple[Assignment, ...] = (),
    held: tuple[tuple[int, int, int], ...] = (),
) -> Cut:
    return Cut(received, 0, assignments, held, WHOLE, 0, None)


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


@pytest.mark.parametrize(
    ("rules", "members", "expected"),
    [
        (["majority"], 5, True),
        (["all"], 4, True),
        ([3], 5, True),
        ([2], 4, False),
        ([2], 5, False),
        ([1, "majority"], 5, True),
        ([1], 1, True),
    ],
)
def test_whether_another_part_of_the_view_may_go_on(rules: list[MinMembers], members: int, expected: bool) -> None:
    assert keeps_others_out(rules, members) is expected


# Runs.


def test_runs_are_cut_to_what_is_agreed() -> None:
    runs = [Assignment(5, SENDER, 100, 4), Assignment(9, SENDER, 200, 4)]
    assert clip_assignments(runs, 6, 10) == (Assignment(7, SENDER, 102, 2), Assignment(9, SENDER, 200, 2))
    assert clip_assignments(runs, 12, 20) == ()


def test_a_view_keeps_its_members_in_order() -> None:
    assert [WHOLE.index(member) for member in (A, C, SENDER)] == [0, 2, -1]
    assert replace(WHOLE, counter=2).rank > WHOLE.rank
