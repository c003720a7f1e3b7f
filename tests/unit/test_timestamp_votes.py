"""The acknowledgements of one block (TOMPA sections 3.2.2.3 and 3.2.3.1)."""

from __future__ import annotations

import pytest

from ordercast.orderers.timestamp.votes import STRANGERS, Vote, Votes
from ordercast.wire.stamps import Bound, Bounds

MEMBERS = (30, 10, 20)  # in the order of the view, which is not that of the ids
VIEW = 5


def votes_of(*votes: Vote) -> Votes:
    made = Votes()
    for member, vote in zip(MEMBERS, votes, strict=False):
        made.add(member, vote)
    return made


def test_a_block_is_complete_when_all_members_have_acknowledged_it() -> None:
    """Section 3.2.3.1: "When all hosts have acknowledged mi"."""
    votes = Votes()
    for at, member in enumerate(MEMBERS):
        assert not votes.is_complete(MEMBERS, VIEW)
        assert votes.lacking(MEMBERS) == list(MEMBERS[at:])
        votes.add(member, Vote(1, 1, VIEW, ()))
    assert votes.is_complete(MEMBERS, VIEW)
    assert votes.lacking(MEMBERS) == []


def test_the_greatest_proposal_is_decided_and_the_greater_member_among_equals() -> None:
    """Section 2.1.2; timestamps are (number, member)."""
    assert votes_of(Vote(7, 7, VIEW, ()), Vote(9, 9, VIEW, ()), Vote(8, 8, VIEW, ())).decide(MEMBERS) == (9, 10)
    assert votes_of(Vote(7, 7, VIEW, ()), Vote(9, 9, VIEW, ()), Vote(9, 9, VIEW, ())).decide(MEMBERS) == (9, 20)
    assert votes_of(Vote(9, 9, VIEW, ()), Vote(9, 9, VIEW, ()), Vote(9, 9, VIEW, ())).decide(MEMBERS) == (9, 30)


def test_who_is_no_member_does_not_decide() -> None:
    votes = votes_of(Vote(7, 7, VIEW, ()), Vote(9, 9, VIEW, ()), Vote(8, 8, VIEW, ()))
    votes.add(99, Vote(1_000, 1_000, VIEW, ()))
    assert votes.decide(MEMBERS) == (9, 10)
    assert votes.decide(MEMBERS[2:]) == (8, 20), "who has left is not asked"


def test_the_bounds_are_of_those_who_expect_the_least() -> None:
    """Section 3.2.2.3, the rule that the scan lost: per member the smallest next_mid, and with it the greatest
    ack_ts + 1 among those that reported it."""
    votes = votes_of(
        Vote(50, 50, VIEW, (5, 9, 2)),
        Vote(60, 60, VIEW, (6, 8, 2)),
        Vote(55, 55, VIEW, (5, 8, 3)),
    )
    assert votes.bounds(MEMBERS, VIEW) == Bounds(61, 1, (Bound(0, 5, 56, 2), Bound(1, 8, 61, 1), Bound(2, 2, 61, 1)))


def test_of_equal_clocks_the_bound_is_of_the_greater_member() -> None:
    votes = votes_of(*[Vote(50, 50, VIEW, (0, 0, 0))] * 3)
    assert votes.bounds(MEMBERS, VIEW) == Bounds(51, 0), "(51, 30) is more than (51, 10) and (51, 20)"


def test_the_clock_of_the_moment_makes_the_bound_and_not_the_proposal() -> None:
    """Deviation 2: one acknowledgement may be for several blocks, or be sent again later."""
    votes = votes_of(*[Vote(3, 70, VIEW, (9, 9, 9))] * 3)
    assert votes.decide(MEMBERS) == (3, 30)
    assert votes.bounds(MEMBERS, VIEW) == Bounds(71, 0)


def test_who_acknowledges_again_is_believed_in_what_it_says_last() -> None:
    votes = votes_of(*[Vote(3, 3, VIEW, (1, 1, 1))] * 3)
    votes.add(10, Vote(3, 40, VIEW, (7, 7, 7)))
    assert votes.bounds(MEMBERS, VIEW) == Bounds(41, 1, tuple(Bound(k, 1, 4, 0) for k in range(3)))
    for member in (20, 30):
        votes.add(member, Vote(3, 30, VIEW, (7, 7, 7)))
    assert votes.bounds(MEMBERS, VIEW) == Bounds(41, 1)


def test_a_vote_of_a_later_view_keeps_a_block_open_until_we_have_that_view() -> None:
    """docs/design/timestamp.md, Joins and leaves: the members of that view are not known here."""
    votes = votes_of(Vote(7, 7, VIEW, (0, 0, 0)), Vote(9, 9, VIEW + 1, (0, 0, 0)), Vote(8, 8, VIEW, (0, 0, 0)))
    assert not votes.is_complete(MEMBERS, VIEW)
    assert votes.lacking(MEMBERS) == [], "nobody has to be asked again"
    assert votes.is_complete(MEMBERS, VIEW + 1)
    assert votes.decide(MEMBERS) == (9, 10)


def test_votes_of_an_earlier_view_count_and_give_no_bounds() -> None:
    votes = votes_of(Vote(7, 7, VIEW - 1, (0, 0, 0)), Vote(9, 9, VIEW, (0, 0, 0)), Vote(8, 8, VIEW, (0, 0, 0)))
    assert votes.is_complete(MEMBERS, VIEW)
    assert votes.decide(MEMBERS) == (9, 10)
    assert votes.bounds(MEMBERS, VIEW) is None


@pytest.mark.parametrize("nexts", [(), (1,), (1, 2), (1, 2, 3, 4)])
def test_vectors_that_are_missing_or_of_another_size_give_no_bounds(nexts: tuple[int, ...]) -> None:
    votes = votes_of(Vote(7, 7, VIEW, (0, 0, 0)), Vote(9, 9, VIEW, (0, 0, 0)), Vote(8, 8, VIEW, nexts))
    assert votes.is_complete(MEMBERS, VIEW)
    assert votes.decide(MEMBERS) == (9, 10)
    assert votes.bounds(MEMBERS, VIEW) is None


def test_what_a_member_acknowledged_in_an_earlier_stay_is_forgotten() -> None:
    """docs/design/timestamp.md, Joins and leaves: who is back has an empty queue, and proposes anew."""
    votes = votes_of(*[Vote(7, 7, VIEW, (0, 0, 0))] * 3)
    votes.admit(10, VIEW + 2)
    votes.admit(77, VIEW + 2)
    assert votes.lacking(MEMBERS) == [10]
    assert not votes.is_complete(MEMBERS, VIEW + 2)
    votes.add(10, Vote(9, 9, VIEW + 2, (0, 0, 0)))
    assert votes.is_complete(MEMBERS, VIEW + 2)


def test_what_a_newcomer_acknowledged_before_its_join_was_known_counts_from_then_on() -> None:
    votes = votes_of(*[Vote(7, 7, VIEW, (0, 0, 0))] * 3)
    members = (*MEMBERS, 40)
    votes.add_early(40, Vote(9, 9, VIEW + 1, (0, 0, 0, 0)))
    assert votes.lacking(members) == [40]
    assert votes.is_complete(MEMBERS, VIEW), "it is no member yet"
    votes.admit(40, VIEW + 1)
    assert votes.is_complete(members, VIEW + 1)
    assert votes.decide(members) == (9, 40)


def test_what_a_newcomer_acknowledged_in_an_earlier_stay_does_not_count() -> None:
    """A late word of its first stay, which comes between two views."""
    votes = Votes()
    votes.add_early(40, Vote(9, 9, VIEW, (0, 0, 0, 0)))
    votes.admit(40, VIEW + 1)
    assert votes.lacking([40]) == [40]
    votes.admit(40, VIEW + 2)
    assert votes.lacking([40]) == [40], "nor later"


def test_strangers_are_kept_in_bounded_number_and_crowd_out_no_member() -> None:
    """A newcomer may acknowledge before its join is known here; more than a few such are not believed."""
    votes = Votes()
    for stranger in range(1_000, 3_000):
        votes.add_early(stranger, Vote(1, 1, VIEW + 1, ()))
    for member in MEMBERS:
        votes.add(member, Vote(1, 1, VIEW, ()))
    assert votes.is_complete(MEMBERS, VIEW)
    for stranger in range(1_000, 3_000):
        votes.admit(stranger, VIEW + 1)
    assert 2_000 - len(votes.lacking(range(1_000, 3_000))) == STRANGERS
