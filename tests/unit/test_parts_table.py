"""Who is known to hold what (RMP section 4.2, and MaxN of section 3.2)."""

from __future__ import annotations

from dataclasses import replace

from ordercast.parts.table import REMEMBERED, Table
from ordercast.view import Member, Reason, View

A, B, C, D = [Member(me, name, 0, (f"10.0.0.{me}", 7_000), 1 << 20) for me, name in enumerate("abcd", start=1)]
VIEW = View(1, "a/0", 7, 0, 10, 0, (A, B, C), {1: 0, 2: 0, 3: 0})
LEFT = replace(VIEW, counter=2, seq=20, members=(A, B), reason=Reason.LEAVE, subject="c/0")
JOINED = replace(VIEW, counter=2, seq=20, members=(A, D, B, C), reason=Reason.JOIN, subject="d/0")


def table(me: Member = A) -> Table:
    return Table(VIEW, me.id, 4)


def test_what_all_hold_is_safe() -> None:
    known = table()
    assert known.safe == 4
    known.learn(B.id, 12)
    assert known.safe == 4
    known.learn(C.id, 11)
    assert known.safe == 10, "we hold only what was there when the view began"
    known.learn(A.id, 30)
    assert known.safe == 11


def test_a_row_never_goes_back() -> None:
    known = table()
    known.learn(B.id, 12)
    known.learn(B.id, 5)
    assert known.row(B.id) == 12


def test_strangers_have_no_row() -> None:
    known = table()
    known.learn(D.id, 50)
    assert known.row(D.id) == 0
    assert known.others == [B.id, C.id]


def test_another_members_table_tells_of_all_but_ourselves() -> None:
    known = table()
    assert known.merge(VIEW.seq, (99, 12, 13))
    assert known.rows() == (10, 12, 13)


def test_tables_of_views_that_are_not_known_or_too_long_say_nothing() -> None:
    known = table()
    assert not known.merge(5, (50, 50, 50))
    assert not known.merge(VIEW.seq, (50, 50, 50, 50, 50))
    assert known.rows() == (10, 4, 4)


def test_the_table_of_the_next_view_waits_for_it() -> None:
    """A New List carries the table as of the view that it brings."""
    known = table()
    assert not known.merge(JOINED.seq, (19, 20, 19, 18))
    known.apply(JOINED)
    assert known.rows() == (10, 20, 19, 18)


def test_a_newcomer_holds_what_was_there_when_it_came() -> None:
    known = table()
    known.apply(JOINED)
    assert known.row(D.id) == JOINED.seq
    assert known.rows() == (10, 20, 4, 4), "in the order of the view"


def test_holders_are_others_that_have_everything_up_to_a_sequence_number() -> None:
    known = table()
    known.learn(B.id, 12)
    assert (known.holders(12), known.holders(4), known.holders(13)) == (1, 2, 0)


def test_a_leaver_counts_until_it_is_known_to_know_its_leave() -> None:
    """RMP section 4.3: a leaver stays until it has seen the list without it."""
    known = table()
    known.learn(A.id, 20)
    known.learn(B.id, 20)
    known.apply(LEFT)
    assert known.leaver == C.id
    assert known.safe == 4
    assert known.round == 20, "passing the token brings nothing about that is not there"
    known.learn(C.id, 19)
    assert known.leaver == C.id
    known.learn(C.id, 20)
    assert (known.leaver, known.safe) == (0, 20)
    assert known.holders(20) == 1, "it is no member any more"


def test_a_shorter_table_says_that_the_leaver_knows() -> None:
    known = table()
    known.apply(LEFT)
    assert known.merge(LEFT.seq, (20, 20))
    assert known.leaver == 0


def test_a_leaver_goes_on_telling_the_others_that_it_knows() -> None:
    known = table(C)
    known.apply(LEFT)
    known.learn(C.id, 20)
    assert known.rows() == (4, 4, 20)


def test_a_leaver_that_comes_back_has_seen_its_leave() -> None:
    known = table()
    known.apply(LEFT)
    known.apply(replace(LEFT, counter=3, seq=30, members=(A, B, C), reason=Reason.JOIN, subject="c/0"))
    assert known.leaver == 0
    assert known.row(C.id) == 30


def test_max_n_is_of_the_largest_view_that_has_something_unstable() -> None:
    """RMP section 3.2."""
    known = table()
    known.apply(JOINED)
    known.apply(replace(JOINED, counter=3, seq=30, members=(A, B), reason=Reason.RESET))
    assert known.max_n == 4
    for member in (A, B, C, D):
        known.learn(member.id, 30)
    assert known.max_n == 2


def test_lists_of_old_views_are_forgotten() -> None:
    known = table()
    for step in range(1, REMEMBERED + 1):
        known.apply(replace(VIEW, counter=1 + step, seq=10 + step))
    assert not known.merge(VIEW.seq, (1, 1, 1))
    assert known.merge(VIEW.seq + 1, (1, 1, 1))
