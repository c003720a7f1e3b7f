"""The judge of groups that stand still (`ordercast.sim.checkers.stuck`), on histories made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sim.histories import History, group

from ordercast.sim.checkers.records import FOREVER
from ordercast.sim.checkers.stuck import Excuse, LifeSpan

TOO_FEW, JOIN, LEAVE, PROPOSAL = Excuse


# Each case: what it is, its history, and the excuse that there is.
Case = tuple[str, Callable[[], History], Excuse | None]

LAST_VIEW: list[Case] = [
    ("everybody is up", lambda: group("a b c"), None),
    ("two of three", lambda: group("a b c").crash("a", 500), None),
    ("one of three", lambda: group("a b c").crash("a b", 500), TOO_FEW),
    ("half with the first member", lambda: group("a b c d").crash("c d", 500), None),
    ("half without the first member", lambda: group("a b c d").crash("a b", 500), TOO_FEW),
    ("the first of two", lambda: group("a b").crash("b", 500), None),
    ("the second of two", lambda: group("a b").crash("a", 500), TOO_FEW),
    ("all are asked for, and one is gone", lambda: group("a b c", "all").crash("c", 500), TOO_FEW),
    ("all are asked for, and all are there", lambda: group("a b c", "all"), None),
    ("so many as asked for", lambda: group("a b c d e", 2).crash("a b c", 500), None),
    ("one less than asked for", lambda: group("a b c d e", 3).crash("a b c", 500), TOO_FEW),
    ("more are asked for than the view has: all of it", lambda: group("a b", 5), None),
    ("the same, and one is gone", lambda: group("a b", 5).crash("a", 500), TOO_FEW),
    (
        "one member asks for all, and it is that one which is gone",
        lambda: group("a b c", {"a": 1, "b": 1, "c": "all"}).crash("c", 500),
        TOO_FEW,
    ),
    (
        "the last view was installed by a dead life only",
        lambda: group("a b c").view("a b", "reset", by="a", at=900).crash("a", 950),
        TOO_FEW,
    ),
    (
        "a member that does not know of its exclusion stands alone",
        lambda: group("a b c").view("a b", "reset", at=900).crash("a b", 950),
        TOO_FEW,
    ),
    (
        "a member whose welcome was lost is up all the same",
        lambda: group("a b c").start("d", 200).view("a b c d", by="a b c", at=300).crash("a", 320),
        None,
    ),
]

OUTSIDE: list[Case] = [
    ("nobody was ever in", lambda: History().start("a b"), None),
    ("newcomers and no member that is up", lambda: group("a b").start("c d", 300).crash("a b", 500), None),
    ("newcomers and one member that may not go on", lambda: group("a b").start("c d", 300).crash("a", 500), TOO_FEW),
    (
        "the only member that is up is leaving: its leave is bounded, and then the newcomers are alone",
        lambda: group("a b").start("c", 300).crash("a", 500).leave("b", 600),
        None,
    ),
    (
        "one of two groups can go on, and the other has to come to it",
        lambda: group("a b").start("c d").view("c d", "create").crash("a d", 500),
        None,
    ),
    (
        "neither of two groups can",
        lambda: group("a b").start("c d").view("c d", "create").crash("a c", 500),
        TOO_FEW,
    ),
    (
        "two parts that may both go on by their rule must find one another",
        lambda: group("a b", 1).view("a", "reset", by="a", at=900).view("b", "reset", by="b", at=900),
        None,
    ),
]

JOINS: list[Case] = [
    (
        "only dead lives know that the newcomer is in",
        lambda: group("a b").start("x", 200).view("a b x", by="a", at=300).crash("a", 310),
        JOIN,
    ),
    (
        "the newcomer knows",
        lambda: group("a b").start("x", 200).view("a b x", by="a x", at=300).crash("a", 310),
        None,
    ),
    ("a newcomer died as well", lambda: group("a b").start("x", 200).crash("x", 400).crash("b", 450), JOIN),
    ("a newcomer is up", lambda: group("a b").start("x", 200).crash("b", 450), None),
    (
        "a newcomer that is up asks for more than the others",
        lambda: group("a b c", {"x": "all"}).start("x", 200).crash("c", 450),
        JOIN,
    ),
    (
        "a newcomer asked when the others had long been recovering",
        lambda: group("a b c", {"x": "all"}).crash("c", 450).start("x", 9_000),
        None,
    ),
    (
        "a newcomer died long before, and the group was whole and at peace since",
        lambda: group("a b").start("x", 200).crash("x", 400).crash("b", 60_000),
        None,
    ),
    (
        "a newcomer died before the last view was made, and nobody orders its join any more",
        lambda: (
            group("a b").start("x", 200).crash("x", 300).start("c", 9_000).view("a b c", at=9_100).crash("c", 9_200)
        ),
        None,
    ),
    (
        "a member that was excluded and comes back dies",
        lambda: (
            group("a b c").view("a b", "reset", by="a b", at=900).gone("c", 1_000).crash("c", 1_200).crash("b", 1_300)
        ),
        JOIN,
    ),
    (
        "a member that has left and died asks for nothing",
        lambda: group("a b c").leave("c", 500, 520).view("a b", "leave", at=510).crash("c", 1_200).crash("b", 1_300),
        None,
    ),
]

CANCELLED: list[Case] = [
    (
        "a cancelled join is ordered later, and its node is up",
        lambda: group("a b", "all").start("x", 200).leave("x", 430, 430).view("a b x", by="a b", at=2_000),
        None,
    ),
    (
        "the same with a pause that is shorter than any suspicion",
        lambda: (
            group("a b", "all")
            .start("x", 200)
            .leave("x", 430, 430)
            .trouble("b", 650, 820)
            .view("a b x", by="a b", at=2_000)
        ),
        None,
    ),
    (
        "its node crashed",
        lambda: group("a b", "all").start("x", 200).leave("x", 430, 430).crash("x", 2_500).view("a b x", at=2_000),
        TOO_FEW,
    ),
    (
        "nobody heard of it for long",
        lambda: (
            group("a b", "all")
            .start("x", 200)
            .leave("x", 430, 430)
            .trouble("a", 420, 9_000)
            .view("a b x", by="a b", at=9_100)
        ),
        TOO_FEW,
    ),
    (
        "it may have been ordered, and nobody heard of it for long",
        lambda: group("a b", "all").start("x", 200).leave("x", 430, 430).trouble("a", 420, 9_000),
        JOIN,
    ),
    ("it may have been ordered", lambda: group("a b", "all").start("x", 200).leave("x", 430, 430), None),
    (
        "it joins again, which gives back no vote that it had promised",
        lambda: group("a b", "all").start("x", 200).leave("x", 430, 430).rejoin("x", 500).trouble("a", 420, 9_000),
        JOIN,
    ),
    (
        "it joins again, and was heard",
        lambda: group("a b", "all").start("x", 200).leave("x", 430, 430).rejoin("x", 500),
        None,
    ),
]


def two_groups() -> History:
    """One member of three is left of one group, a newcomer comes in, and another group of the name dissolves."""
    history = group("a b z").start("c d").view("c d", at=150).crash("b z", 290)
    return history.start("x", 300).came("x", 400).gone("c", 900).gone("d", 900)


LEAVES: list[Case] = [
    (
        "a newcomer came into a view that nobody installed, and was restarted: it waits for the others of the group",
        lambda: group("a b").crash("b", 290).start("c", 300).came("c", 400).crash("a c", 900).restart("c", 3_000),
        TOO_FEW,
    ),
    (
        "a newcomer came in while nobody was there: it is in no group",
        lambda: group("a b").crash("a b", 200).start("c", 300).came("c", 400).crash("c", 900).restart("c", 3_000),
        None,
    ),
    (
        "a newcomer came in while the members of another group stood still: it is in the group that could let it in",
        lambda: two_groups().pause("c d", 250, 800),
        TOO_FEW,
    ),
    (
        "a newcomer came in while the members of another group were cut off: it is in the group that could let it in",
        lambda: two_groups().partition("c d", 250, 800),
        TOO_FEW,
    ),
    (
        "it was cut off with them: they may have let it in, and they can go on",
        lambda: two_groups().partition("a b", 250, 800),
        None,
    ),
    (
        "they were cut off too late: they may have let it in before",
        lambda: two_groups().partition("c d", 350, 800),
        None,
    ),
    (
        "they may have let it in: then it has to come where they can go on",
        lambda: two_groups().trouble("c d", 250, 800),
        None,
    ),
    (
        "a newcomer that came in was put out before it was restarted",
        lambda: group("a b").start("c", 300).came("c", 400).gone("c", 500).crash("a b c", 900).restart("c", 3_000),
        None,
    ),
    (
        "a newcomer that only another member saw come in was restarted: it waits for the others of that view",
        lambda: group("b a").start("c", 300).view("b a c", by="a", at=500).crash("a b c", 900).restart("c", 3_000),
        TOO_FEW,
    ),
    (
        "the same, but nobody saw it come in: it may have kept nothing",
        lambda: group("b a").start("c", 300).crash("a b c", 900).restart("c", 3_000),
        None,
    ),
    (
        "a restarted member was given up by its application, and restarted again: it still waits for the others",
        lambda: (
            group("c b a")
            .crash("a b c", 900)
            .restart("a", 1_000)
            .leave("a+", 2_000, 2_000)
            .crash("a+", 2_010)
            .restart("a+", 3_000)
        ),
        TOO_FEW,
    ),
    (
        "a leaver crashed and was restarted: the view without it may be decided, and the first of that is gone",
        lambda: group("b c a").leave("b", 900).crash("b c", 910).restart("b", 2_000),
        LEAVE,
    ),
    (
        "the same, and the one that is up is the first of the view without the leaver",
        lambda: group("b a c").leave("b", 900).crash("b c", 910).restart("b", 2_000),
        None,
    ),
    (
        "a member that did not ask to leave was restarted",
        lambda: group("b c a").crash("b c", 910).restart("b", 2_000),
        None,
    ),
    (
        "the last other member left while one was down, and served no longer when that one was restarted",
        lambda: group("b a").crash("a", 900).leave("b", 1_800, 1_800).restart("a", 8_200),
        LEAVE,
    ),
    (
        "it still served, and told it",
        lambda: group("b a").crash("a", 900).leave("b", 1_800, 1_800).restart("a", 3_000),
        None,
    ),
    (
        "a third member was up, and knows",
        lambda: group("b a c").crash("a", 900).leave("b", 1_800, 1_800).restart("a", 8_200),
        None,
    ),
    (
        "only dead lives know that the member has left",
        lambda: group("a b c d").view("a b c", "leave", by="a", at=500).crash("a d", 510),
        LEAVE,
    ),
    (
        "one that is up knows",
        lambda: group("a b c d").view("a b c", "leave", by="a b", at=500).crash("a d", 510),
        None,
    ),
    ("the leaver counts until its leave is known to be decided", lambda: group("y b c d").crash("c d", 500), None),
    ("it may have been ordered by dead lives", lambda: group("y b c d").leave("y", 490).crash("c d", 500), LEAVE),
    ("it was asked for long after the crashes", lambda: group("y b c d").leave("y", 9_000).crash("c d", 500), None),
    (
        "a leaver that is out was not needed: the view without it is decided",
        lambda: group("a b c d").leave("d", 500, 600).crash("a", 30_000),
        None,
    ),
    (
        "a leaver that was not answered for long counts as crashed",
        lambda: group("a b c d").leave("d", 500, 4_000).crash("a", 600),
        LEAVE,
    ),
    (
        "a leaver that was out at once cannot have given up, whatever crashed",
        lambda: group("a b c d").leave("d", 500, 540).crash("a", 600),
        None,
    ),
    (
        "a leaver of a group that has not worked for long still has to wait for an answer",
        lambda: group("c e b d", "all").trouble("b d", 2_500, 9_000).leave("d", 7_900, 7_900),
        None,
    ),
    (
        "it has waited in vain",
        lambda: group("c e b d", "all").trouble("b d", 2_500, 9_000).leave("d", 5_900, 8_900),
        LEAVE,
    ),
    (
        "it has waited in vain, and asked again in the meantime",
        lambda: (
            group("c e b d", "all")
            .trouble("b d", 2_500, 9_000)
            .leave("d", 5_900)
            .rejoin("d", 8_300)
            .leave("d", 8_500, 8_900)
        ),
        LEAVE,
    ),
    (
        "a crash that the last view has behind it explains nothing",
        lambda: (
            group("c a b")
            .crash("a", 780)
            .view("c b", "reset", by="c b", at=3_900)
            .start("y", 3_950)
            .view("c b y", at=4_000)
            .leave("y", 4_090, 4_091)
            .view("c b", "leave", by="b", at=4_091, name="last")
            .crash("b", 4_092)
        ),
        None,
    ),
    (
        "where recovery is manual it can",
        lambda: group("a b c d", is_manual=True).leave("d", 500, 540).crash("a", 490),
        LEAVE,
    ),
    (
        "where recovery is manual it can, and a view that was proposed before names it later",
        lambda: (
            group("a b c d", is_manual=True)
            .crash("d", 490)
            .leave("c", 18_000, 18_000)
            .rejoin("c", 19_000)
            .view("c a", "reset", by="a", at=19_100)
        ),
        LEAVE,
    ),
    (
        "the one that knew of the leave died, and the leaver was out at once: somebody who is up must know",
        lambda: group("c b y").leave("y", 500, 535).view("c b", "leave", by="b", at=510).crash("b", 540),
        None,
    ),
    (
        "a leaver that joins again does not vote in the view that it left",
        lambda: group("y b").leave("y", 500, 510).rejoin("y", 510).crash("b", 520),
        None,
    ),
    (
        "a leaver that is out makes too few of the last view",
        lambda: group("a b c", "all").leave("c", 500, 600).crash("a", 30_000),
        TOO_FEW,
    ),
    (
        "a leave never makes too few of those that stay",
        lambda: group("a b c d").leave("d", 490).crash("c d", 500),
        None,
    ),
]

PROPOSALS: list[Case] = [
    (
        "only dead lives know of the view that a recovery made",
        lambda: group("a b c d e").view("a b c", "reset", by="a", at=2_000).crash("a d e", 2_010),
        PROPOSAL,
    ),
    (
        "one that is up knows",
        lambda: group("a b c d e").view("a b c", "reset", by="a b", at=2_000).crash("a d e", 2_010),
        None,
    ),
    (
        "one was cut off, the other two began to recover, and one of these died",
        lambda: group("a b c").trouble("c", 1_000, 3_000).crash("a", 2_600),
        PROPOSAL,
    ),
    (
        "the cut was too short for anybody to be suspected",
        lambda: group("a b c").trouble("c", 1_000, 1_300).crash("a", 1_250),
        None,
    ),
    (
        "the death came before anybody could be suspected",
        lambda: group("a b c").trouble("c", 1_000, 1_400).crash("a", 1_200),
        None,
    ),
    (
        "the one that died may have made the proposal, and comes first in it",
        lambda: group("a b c").trouble("c", 1_000, 3_000).crash("b", 2_600),
        PROPOSAL,
    ),
    (
        "everything was over long before the death",
        lambda: group("a b c").trouble("c", 1_000, 3_000).crash("a", 60_000),
        None,
    ),
    (
        "the view is younger than the cut",
        lambda: group("a b c").trouble("c", 1_000, 3_000).start("d", 5_000).view("a b c d", at=5_100).crash("a", 5_200),
        None,
    ),
    (
        "the view is younger than that cut, and the next one began just before the death",
        lambda: (
            group("a b c")
            .trouble("c", 1_000, 3_000)
            .start("d", 4_000)
            .view("a b c d", at=4_100)
            .trouble("b c", 4_200, 6_000)
            .crash("a", 4_400)
        ),
        None,
    ),
    (
        "a member that left and joins again has not died",
        lambda: (
            group("c b e d", 5)
            .trouble("b e d", 2_500, 9_000)
            .leave("d", 7_930, 7_930)
            .leave("b", 7_940, 7_940)
            .rejoin("b", 7_940)
        ),
        None,
    ),
    (
        "two crashed at once, and nobody was away",
        lambda: group("a b c d e").crash("a b", 2_000),
        None,
    ),
    (
        "two more crashes in the recovery from the first leave a proposal of six with four alive",
        lambda: group("a b c d e f g").crash("g", 1_000).crash("a b", 2_400),
        None,
    ),
    (
        "the same with two that were away: of the proposed four two are alive, without the first",
        lambda: group("a b c d e f g").crash("g", 1_000).trouble("e f", 1_000, 3_000).crash("a b", 2_400),
        PROPOSAL,
    ),
]


def named(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("history", "excuse"), [case[1:] for case in cases], ids=[case[0] for case in cases])


@named(LAST_VIEW)
def test_a_group_stands_still_only_where_too_few_of_its_last_view_are_up(
    history: Callable[[], History], excuse: Excuse | None
) -> None:
    assert history().excuse() == excuse


@named(OUTSIDE)
def test_lives_without_a_view_are_no_excuse(history: Callable[[], History], excuse: Excuse | None) -> None:
    assert history().excuse() == excuse


@named(JOINS)
def test_a_join_excuses_only_if_its_asker_is_dead_or_asks_for_more(
    history: Callable[[], History], excuse: Excuse | None
) -> None:
    assert history().excuse() == excuse


@named(CANCELLED)
def test_a_cancelled_join_excuses_only_if_it_was_not_heard(
    history: Callable[[], History], excuse: Excuse | None
) -> None:
    assert history().excuse() == excuse


@named(LEAVES)
def test_a_leave_excuses_only_if_the_leaver_was_needed_and_is_gone(
    history: Callable[[], History], excuse: Excuse | None
) -> None:
    assert history().excuse() == excuse


@named(PROPOSALS)
def test_a_proposal_excuses_only_after_a_failure_within_a_recovery(
    history: Callable[[], History], excuse: Excuse | None
) -> None:
    assert history().excuse() == excuse


def test_a_life_that_is_up_has_no_end() -> None:
    assert LifeSpan("a/0", 0).is_up
    assert not LifeSpan("a/0", 0, FOREVER - 1).is_up
