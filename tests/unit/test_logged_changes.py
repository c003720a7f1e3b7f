"""Changes that wait to be ordered, and the view that one of them makes."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.rings import VIEW, A, B, C, D, ring_of

from ordercast.engine import Change
from ordercast.orderers.logged.changes import MAX_CHANGES, PendingChanges, key_of, order_change
from ordercast.view import GROUP_ORIGIN, Reason
from ordercast.wire.views import open_change

JOINED = replace(VIEW, counter=2, seq=20, members=(A, B, C), reason=Reason.JOIN, subject="c/0")


def test_changes_are_ordered_one_by_one_as_they_were_asked_for() -> None:
    changes = PendingChanges(0, {})
    assert not changes
    assert not changes.is_due(10, {}), "nothing waits"
    for change in (Change(Reason.JOIN, C), Change(Reason.JOIN, D)):
        assert changes.add(change)
    assert changes.is_due(10, {})
    assert changes.first.member == C
    assert (changes.take().member, changes.take().member) == (C, D)
    assert not changes


def test_a_change_may_go_before_those_that_wait() -> None:
    changes = PendingChanges(0, {})
    changes.add(Change(Reason.JOIN, C))
    changes.add(Change(Reason.LEAVE, B), goes_first=True)
    assert [change.member for change in changes] == [B, C]


def test_a_request_that_is_repeated_keeps_its_turn_and_counts_as_asked_last() -> None:
    changes = PendingChanges(0, {})
    for header in (b"one", b"two", b"three"):
        changes.add(Change(Reason.JOIN, C, header))
        changes.add(Change(Reason.LEAVE, B), goes_first=True)
    assert changes.take().member == B
    assert changes.take() == Change(Reason.JOIN, C, b"three")
    assert not changes


def test_locks_of_one_member_wait_side_by_side() -> None:
    changes = PendingChanges(0, {})
    for serial in (1, 2):
        changes.add(Change(Reason.LOCK, B, lock="door", serial=serial))
    assert [change.serial for change in changes] == [1, 2]
    changes.drop(key_of(changes.first))
    assert [change.serial for change in changes] == [2]


def test_the_next_change_waits_until_all_have_the_last() -> None:
    changes = PendingChanges(0, {})
    changes.add(Change(Reason.LEAVE, B))
    assert changes.is_due(0, {})
    changes.applied(JOINED)
    assert changes.last_seq == 20
    assert not changes.is_due(19, {})
    assert changes.is_due(20, {})


def test_nobody_comes_or_goes_before_what_survivors_send_again_is_received() -> None:
    """Block numbers below which all come again."""
    changes = PendingChanges(0, {1: 5, 2: 3})
    changes.add(Change(Reason.LEAVE, B))
    assert changes.is_awaited(2)
    assert not changes.is_due(10, {1: 5, 2: 2})
    assert not changes.is_due(10, {1: 4, 2: 2})
    assert changes.is_due(10, {1: 5, 2: 3})
    assert changes.is_due(10, {}), "it is not asked again"
    assert not changes.is_awaited(2)


def test_a_change_shows_that_what_was_awaited_has_come() -> None:
    """The member that ordered it has waited for that."""
    changes = PendingChanges(0, {1: 5})
    changes.add(Change(Reason.LEAVE, B))
    changes.applied(JOINED)
    assert changes.is_due(20, {1: 0})


def test_a_sender_without_a_number_is_not_awaited() -> None:
    changes = PendingChanges(0, {9: 5})
    changes.add(Change(Reason.LEAVE, B))
    assert changes.is_due(10, {1: 0, 2: 0})


def test_changes_that_wait_are_bounded_in_number() -> None:
    """Beyond the bound newcomers are not heard and ask again."""
    changes = PendingChanges(0, {})
    taken = [changes.add(Change(Reason.JOIN, replace(C, id=100 + me))) for me in range(MAX_CHANGES + 50)]
    assert sum(taken) == MAX_CHANGES
    assert changes.add(Change(Reason.JOIN, replace(C, id=100))), "one that waits may be repeated"
    assert len(changes.items()) == MAX_CHANGES


def test_a_join_is_the_next_entry_of_the_log() -> None:
    ring = ring_of(A)
    block = order_change(ring, 0, Change(Reason.JOIN, C, next_block=7), ring.log.next_number, {}, after=A.id)
    assert block is not None
    view = open_change(block)
    assert [member.name for member in view.members] == ["a", "c", "b"]
    assert (view.seq, view.numbers[C.id]) == (VIEW.seq + 1, 7)
    assert view.counter > VIEW.counter
    (entry,) = ring.log.advance()
    assert (entry.origin, entry.seq, entry.is_change) == (GROUP_ORIGIN, VIEW.seq + 1, True)


def test_a_change_that_changes_nothing_leaves_the_log_alone() -> None:
    ring = ring_of(A)
    assert order_change(ring, 0, Change(Reason.JOIN, B), ring.log.next_number, {}) is None
    assert order_change(ring, 0, Change(Reason.LEAVE, C), ring.log.next_number, {}) is None
    assert list(ring.log.advance()) == []
