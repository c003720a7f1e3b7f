"""Joins and leaves that wait to be ordered (docs/design/timestamp.md, Joins and leaves)."""

from __future__ import annotations

from dataclasses import replace

from ordercast.engine import Change
from ordercast.orderers.timestamp.changes import MAX_CHANGES, Changes
from ordercast.view import Member, Reason, View

A, B, C, D = [Member(me, name, 0, (f"10.0.0.{me}", 7_000), 1 << 20) for me, name in enumerate("abcd", start=1)]
VIEW = View(1, "a/0", 7, 0, 10, 0, (A, B), {1: 0, 2: 0})
JOINED = replace(VIEW, counter=2, seq=20, members=(A, B, C), reason=Reason.JOIN, subject="c/0")


def test_changes_are_ordered_one_by_one_as_they_were_asked_for() -> None:
    changes = Changes(VIEW)
    assert not changes
    assert not changes.is_due(10, {}), "nothing waits"
    for change in (Change(Reason.JOIN, C), Change(Reason.JOIN, D)):
        changes.propose(change)
    assert changes
    assert changes.is_due(10, {})
    assert (changes.take().member, changes.take().member) == (C, D)
    assert not changes


def test_leaves_go_first_and_wait_for_no_long_message() -> None:
    """Nobody comes in the middle of a long message; its sender may go, and with it the end that others wait for."""
    changes = Changes(VIEW)
    changes.propose(Change(Reason.JOIN, C))
    assert changes.waits_for_long
    changes.propose(Change(Reason.LEAVE, B))
    assert not changes.waits_for_long
    assert changes.take().member == B
    assert changes.waits_for_long


def test_who_asks_again_is_not_let_in_twice() -> None:
    changes = Changes(VIEW)
    for _ in range(3):
        changes.propose(Change(Reason.JOIN, C, b"another header"))
        changes.propose(Change(Reason.LEAVE, B))
    assert [changes.take().member, changes.take().member] == [B, C]
    assert not changes


def test_the_next_change_waits_until_all_have_the_last() -> None:
    changes = Changes(VIEW)
    changes.propose(Change(Reason.LEAVE, B))
    changes.applied(JOINED)
    assert changes.last == 20
    assert not changes.is_due(19, {})
    assert changes.is_due(20, {})


def test_who_begins_with_a_join_waits_until_all_have_that_one() -> None:
    changes = Changes(JOINED)
    changes.propose(Change(Reason.LEAVE, B))
    assert not changes.is_due(19, {})
    assert changes.is_due(20, {})
    reset = Changes(replace(JOINED, reason=Reason.RESET))
    reset.propose(Change(Reason.LEAVE, B))
    assert reset.is_due(0, {}), "survivors have agreed on it"


def test_a_change_that_has_come_is_not_ordered_again() -> None:
    """Another member may have ordered it; what waits besides is kept."""
    changes = Changes(VIEW)
    changes.propose(Change(Reason.JOIN, C))
    changes.propose(Change(Reason.LEAVE, B))
    changes.applied(JOINED)
    assert changes.take().member == B
    assert not changes


def test_nobody_comes_or_goes_before_what_survivors_send_again_is_received() -> None:
    """`awaited` of the view: block numbers below which all come again."""
    changes = Changes(replace(VIEW, reason=Reason.RESET, awaited={1: 5, 2: 3}))
    changes.propose(Change(Reason.LEAVE, B))
    assert not changes.is_due(10, {1: 5, 2: 2})
    assert not changes.is_due(10, {1: 4, 2: 2})
    assert changes.is_due(10, {1: 5, 2: 3})
    assert changes.is_due(10, {}), "it is not asked again"


def test_a_change_shows_that_what_was_awaited_has_come() -> None:
    """Whoever ordered it has waited for that."""
    changes = Changes(replace(VIEW, reason=Reason.RESET, awaited={1: 5}))
    changes.propose(Change(Reason.LEAVE, B))
    changes.applied(JOINED)
    assert changes.is_due(20, {1: 0})


def test_who_is_no_sender_any_more_is_not_awaited() -> None:
    changes = Changes(replace(VIEW, reason=Reason.RESET, awaited={9: 5}))
    changes.propose(Change(Reason.LEAVE, B))
    assert changes.is_due(10, {1: 0, 2: 0})


def test_changes_that_wait_are_bounded_in_number() -> None:
    """Beyond the bound newcomers are not heard and ask again."""
    changes = Changes(VIEW)
    for me in range(MAX_CHANGES + 50):
        changes.propose(Change(Reason.JOIN, replace(C, id=100 + me)))
    count = 0
    while changes:
        changes.take()
        count += 1
    assert count == MAX_CHANGES
