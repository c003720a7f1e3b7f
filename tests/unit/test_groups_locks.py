"""What one member wants and holds of locks, view by view (RMP sections 3.3 and 4.3)."""

from __future__ import annotations

from ordercast.errors import GroupFailed, LockDenied
from ordercast.groups.locks import EAGER_TRIES, Locks, Step
from ordercast.view import Member, Reason, View, node_id

ME = node_id("me", 0)
OTHER = node_id("other", 0)
ASK = Step("door", is_release=False)
RELEASE = Step("door", is_release=True)


def view(locks: dict[str, int], reason: Reason = Reason.JOIN) -> View:
    members = (Member(ME, "me", 0, ("127.0.0.1", 1)), Member(OTHER, "other", 0, ("127.0.0.1", 2)))
    return View(1, "me/0", 1, 0, 0, 0, members, {}, reason, locks=locks)


def take(locks: Locks) -> list[Step]:
    steps, locks.todo = locks.todo, []
    return steps


def inside(**held: int) -> Locks:
    locks = Locks(ME)
    locks.on_view(view(held))
    return locks


def test_a_free_lock_is_asked_for_once_and_held_by_the_view_that_says_so() -> None:
    locks = inside()
    claim = locks.claim("door")
    assert take(locks) == [ASK]
    locks.on_view(view({}))  # somebody joined meanwhile
    assert take(locks) == []
    assert locks.on_view(view({"door": ME}, Reason.LOCK)) == ["door"]
    assert claim.is_held
    assert locks.settled == [claim]
    assert locks.on_view(view({"door": ME})) == []


def test_a_lock_that_is_held_elsewhere_is_asked_for_when_a_view_shows_it_free() -> None:
    locks = inside(door=OTHER)
    claim = locks.claim("door")
    assert take(locks) == []
    locks.on_view(view({}, Reason.UNLOCK))
    assert take(locks) == [ASK]
    locks.on_view(view({"door": OTHER}, Reason.LOCK))  # another one was faster
    locks.on_denied("door")
    assert take(locks) == []
    locks.on_view(view({}, Reason.LEAVE))
    assert take(locks) == [ASK]
    locks.on_view(view({"door": ME}, Reason.LOCK))
    assert claim.is_held


def test_claims_of_one_member_are_served_in_turn_with_the_group_between_them() -> None:
    locks = inside()
    first, second = locks.claim("door"), locks.claim("door")
    assert take(locks) == [ASK]
    locks.on_view(view({"door": ME}, Reason.LOCK))
    assert (first.is_held, second.is_held) == (True, False)
    locks.give_up(first)
    assert take(locks) == [RELEASE]
    locks.on_view(view({}, Reason.UNLOCK))
    assert take(locks) == [ASK]
    locks.on_view(view({"door": ME}, Reason.LOCK))
    assert (first.is_held, second.is_held) == (False, True)
    assert locks.settled == [first, second]


def test_a_claim_that_is_given_up_before_its_request_left_leaves_nothing_behind() -> None:
    locks = inside()
    locks.give_up(locks.claim("door"))
    assert take(locks) == []
    assert locks.is_at_rest
    assert locks.on_view(view({})) == []


def test_a_grant_that_nobody_wants_any_more_is_given_back() -> None:
    locks = inside()
    claim = locks.claim("door")
    take(locks)
    locks.give_up(claim)
    assert not locks.is_at_rest  # the answer is still to come
    assert locks.on_view(view({"door": ME}, Reason.LOCK)) == ["door"]
    assert take(locks) == [RELEASE]
    assert not claim.is_held
    locks.on_view(view({}, Reason.UNLOCK))
    assert locks.is_at_rest


def test_a_grant_whose_request_was_forgotten_is_given_back() -> None:
    locks = inside()
    assert locks.on_view(view({"door": ME}, Reason.LOCK)) == ["door"]
    assert take(locks) == [RELEASE]


def test_a_grant_goes_to_the_next_claim_where_the_first_was_given_up() -> None:
    locks = inside()
    first, second = locks.claim("door"), locks.claim("door")
    take(locks)
    locks.give_up(first)
    locks.on_view(view({"door": ME}, Reason.LOCK))
    assert second.is_held
    assert take(locks) == []


def test_requests_that_a_recovery_may_have_lost_are_made_again() -> None:
    locks = inside(old=ME)
    locks.todo.clear()
    locks = inside()
    held = locks.claim("old")
    locks.on_view(view({"old": ME}, Reason.LOCK))
    locks.give_up(held)
    locks.claim("door")
    take(locks)
    locks.on_view(view({"old": ME}, Reason.RESET))
    assert take(locks) == [Step("old", is_release=True, is_again=True), ASK]


def test_a_request_that_a_recovery_did_not_lose_is_answered_all_the_same() -> None:
    locks = inside()
    claim = locks.claim("door")
    take(locks)
    locks.on_view(view({}, Reason.RESET))
    assert take(locks) == [ASK]
    locks.on_view(view({"door": ME}, Reason.LOCK))  # the first request's
    assert claim.is_held
    locks.on_denied("door")  # the second one's
    assert claim.is_held


def test_what_was_held_is_lost_with_the_membership_and_what_was_wanted_is_asked_for_again() -> None:
    locks = inside()
    held, wanted = locks.claim("door"), locks.claim("gate")
    locks.on_view(view({"door": ME, "gate": OTHER}, Reason.LOCK))
    locks.settled.clear()
    locks.on_gone()
    assert not held.is_held
    assert locks.settled == [held]
    locks.give_up(held)  # silent
    assert take(locks) == []
    locks.on_view(view({"door": OTHER}))
    assert take(locks) == [Step("gate", is_release=False)]
    assert not wanted.is_held


def test_nothing_is_asked_before_this_node_is_in() -> None:
    locks = Locks(ME)
    locks.claim("door")
    assert take(locks) == []
    locks.on_view(view({}))
    assert take(locks) == [ASK]


def test_a_group_that_denies_a_free_lock_is_not_asked_without_end() -> None:
    locks = inside()
    locks.claim("door")
    asked = 0
    while take(locks):
        asked += 1
        locks.on_denied("door")
    assert asked == EAGER_TRIES
    locks.on_view(view({}))
    assert take(locks) == [ASK]


def test_whoever_waits_learns_of_a_failure_and_who_holds_goes_on() -> None:
    locks = inside()
    held, waits = locks.claim("door"), locks.claim("door")
    locks.on_view(view({"door": ME}, Reason.LOCK))
    error = GroupFailed("down")
    locks.fail(error)
    assert (held.error, held.is_held, waits.error) == (None, True, error)
    locks.give_up(held)
    take(locks)
    locks.on_view(view({}, Reason.UNLOCK))
    assert take(locks) == []
    assert locks.is_at_rest


def test_a_claim_that_tries_once_asks_also_where_a_view_shows_a_holder() -> None:
    locks = inside(door=OTHER)
    once = locks.claim("door", tries_once=True)
    assert take(locks) == [ASK]
    assert locks.is_waiting
    locks.on_denied("door")
    assert isinstance(once.error, LockDenied)
    assert locks.settled == [once]
    assert take(locks) == []
    assert not locks.is_waiting


def test_a_grant_to_another_task_here_denies_claims_that_try_once() -> None:
    locks = inside()
    first, once = locks.claim("door"), locks.claim("door", tries_once=True)
    assert take(locks) == [ASK]
    locks.on_view(view({"door": ME}, Reason.LOCK))
    assert first.is_held
    assert isinstance(once.error, LockDenied)
    late = locks.claim("door", tries_once=True)
    assert isinstance(late.error, LockDenied)
    assert not locks.is_waiting


def test_a_denial_leaves_the_claims_that_wait() -> None:
    locks = inside(door=OTHER)
    patient, once = locks.claim("door"), locks.claim("door", tries_once=True)
    assert take(locks) == [ASK]
    locks.on_denied("door")
    assert once.error is not None
    assert patient.error is None
    assert locks.is_waiting
    locks.on_view(view({}, Reason.UNLOCK))
    assert take(locks) == [ASK]
