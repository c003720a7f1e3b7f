"""List Change Requests that wait for their New List (RMP section 4.3)."""

from __future__ import annotations

from dataclasses import replace

from ordercast.config import LAN_DATAGRAM, SECOND, GroupConfig, Timing
from ordercast.engine import NEVER, Change
from ordercast.orderers.logged.changes import MAX_CHANGES, key_of
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.token.pending import FORGET_NS, MAX_DONE, MISSED, YIELD_NS, ChangeRequests
from ordercast.parts.rtt import RoundTrip
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.writer import DatagramWriter

A, B, C = [Member(node_id(name, 0), name, 0, (f"10.0.0.{n}", 7_000), 1 << 20) for n, name in enumerate("abc", start=1)]
VIEW = View(1, "a/0", 7, 0, 10, 0, (A, B), {A.id: 0, B.id: 0})
JOIN = Change(Reason.JOIN, C, serial=5)
LEAVE = Change(Reason.LEAVE, B)
TIMING = Timing()
REPEAT_NS = TIMING.retransmit_ns  # no round trip is known


def make() -> ChangeRequests:
    return ChangeRequests(VIEW, TIMING, RoundTrip(TIMING))


def waiting(pending: ChangeRequests, now_ns: int = 0) -> list[Change]:
    return list(pending.waiting(now_ns))


def lock(serial: int, member: Member = B, name: str = "x", reason: Reason = Reason.LOCK) -> Change:
    return Change(reason, member, serial=serial, lock=name)


def told(change: Change, **values: object) -> View:
    view = replace(VIEW, reason=change.reason, subject=str(change.member), serial=change.serial, lock=change.lock)
    return replace(view, **values)  # type: ignore[arg-type]


def test_requests_wait_in_the_order_in_which_they_were_heard() -> None:
    pending = make()
    assert not waiting(pending)
    pending.hear(0, JOIN)
    pending.hear(1, LEAVE)
    pending.hear(2, JOIN)
    assert waiting(pending)
    assert waiting(pending, 2) == [JOIN, LEAVE]


def test_our_own_requests_are_repeated_until_they_are_answered() -> None:
    """RMP section 4.3: they "are resent periodically until this is received"."""
    pending = make()
    assert pending.due_ns == NEVER
    pending.ask(10, LEAVE)
    assert pending.repeated(10) == [LEAVE]
    assert pending.repeated(10 + REPEAT_NS - 1) == []
    assert pending.repeated(10 + REPEAT_NS) == [LEAVE]
    assert pending.repeated(10 + 3 * REPEAT_NS - 1) == []
    pending.answered(told(LEAVE, members=(A,)))
    assert not waiting(pending)
    assert pending.repeated(10 + 3 * REPEAT_NS) == []
    assert pending.due_ns == NEVER


def test_requests_of_others_are_not_repeated_by_us() -> None:
    pending = make()
    pending.hear(0, JOIN)
    assert pending.repeated(REPEAT_NS) == []


def test_what_nobody_repeats_is_forgotten() -> None:
    """A newcomer that gave up is not let in."""
    pending = make()
    pending.hear(0, JOIN)
    pending.ask(0, LEAVE)
    assert waiting(pending, FORGET_NS) == [JOIN, LEAVE]
    assert waiting(pending, FORGET_NS + 1) == [LEAVE]


def test_what_comes_rarely_is_remembered_for_longer() -> None:
    pending = make()
    pending.hear(0, JOIN)
    pending.hear(FORGET_NS, JOIN)
    assert waiting(pending, (1 + MISSED) * FORGET_NS) == [JOIN]
    assert waiting(pending, (1 + MISSED) * FORGET_NS + 1) == []


def test_ten_tries_in_vain_are_a_fault_unless_a_token_site_has_the_request() -> None:
    """RMP section 4.4."""
    pending = make()
    pending.ask(0, LEAVE)
    sent = 0
    while not pending.is_exhausted:
        sent += len(pending.repeated(pending.due_ns))
        if sent == 4:
            pending.acknowledged(pending.due_ns)
    assert sent == 4 + TIMING.tries
    pending.answered(told(LEAVE, members=(A,)))
    assert not pending.is_exhausted


def test_a_request_that_waits_at_its_own_member_is_nobodys_fault() -> None:
    pending = make()
    pending.ask(0, LEAVE)
    for _ in range(30):
        pending.repeated(pending.due_ns, is_here=True)
    assert not pending.is_exhausted
    assert pending.due_ns < 60 * SECOND


def test_a_members_request_that_comes_again_is_noted_while_it_waits() -> None:
    pending = make()
    ring = RingState(A, DatagramWriter(1, A.id, LAN_DATAGRAM), GroupConfig(), TIMING, VIEW, 0, 0, {})
    pending.on_propose(0, ring, B.id, LEAVE)
    assert pending.take_noted() == []
    pending.on_propose(1, ring, B.id, LEAVE)
    pending.on_propose(1, ring, B.id, JOIN)
    assert pending.take_noted() == [B.id]
    pending.on_propose(2, ring, B.id, LEAVE)
    pending.answered(told(LEAVE, members=(A,)))
    assert pending.take_noted() == []


def test_a_newcomer_that_we_sponsor_is_forgotten_when_it_no_longer_asks_us() -> None:
    pending = make()
    pending.ask(0, JOIN)
    assert pending.repeated(FORGET_NS + 1) == []
    assert not waiting(pending)


def test_a_newcomers_latest_attempt_counts() -> None:
    pending = make()
    later = JOIN._replace(serial=6)
    pending.hear(0, JOIN)
    pending.hear(1, later)
    assert waiting(pending, 1) == [later]


def test_a_request_for_a_newcomer_that_came_and_left_is_late() -> None:
    pending = make()
    pending.hear(0, JOIN)
    pending.answered(told(JOIN, members=(A, B, C)))
    pending.answered(told(Change(Reason.LEAVE, C)))
    pending.hear(2, JOIN)
    assert waiting(pending, 2) == []
    again = JOIN._replace(serial=6)
    pending.hear(3, again)
    assert waiting(pending, 3) == [again]


def test_an_answer_ends_only_what_it_answers() -> None:
    pending = make()
    for change in (JOIN, LEAVE, lock(1), lock(2), lock(1, name="y")):
        pending.hear(0, change)
    pending.answered(told(lock(1)))
    assert waiting(pending) == [JOIN, LEAVE, lock(2), lock(1, name="y")]
    pending.answered(told(JOIN))
    assert waiting(pending) == [LEAVE, lock(2), lock(1, name="y")]


def test_an_answered_lock_request_is_not_heard_again() -> None:
    """Its echo would take the lock once more after it was given back."""
    pending = make()
    pending.hear(0, lock(3))
    pending.answered(told(lock(3)))
    pending.hear(1, lock(3))
    assert not waiting(pending)
    pending.hear(1, lock(4))
    assert waiting(pending, 1) == [lock(4)]


def test_a_leaver_that_comes_back_begins_its_locks_anew() -> None:
    pending = make()
    pending.answered(told(lock(3)))
    pending.answered(told(LEAVE, members=(A,)))
    pending.hear(1, lock(1))
    assert waiting(pending)


def test_a_ring_that_dissolves_answers_its_leavers() -> None:
    pending = make()
    pending.hear(0, LEAVE)
    pending.answered(told(LEAVE, reason=Reason.DISSOLVE))
    assert not waiting(pending)


def test_a_request_can_be_taken_back() -> None:
    pending = make()
    pending.ask(0, lock(1))
    pending.drop(key_of(lock(1)))
    assert not waiting(pending)
    assert pending.repeated(REPEAT_NS) == []


def test_what_waits_and_what_is_remembered_are_bounded() -> None:
    pending = make()
    for serial in range(MAX_CHANGES + 10):
        pending.hear(0, lock(serial))
    assert len(waiting(pending)) == MAX_CHANGES
    pending = make()
    for number in range(MAX_DONE + 1):
        pending.answered(told(lock(7, name=str(number))))
    pending.hear(0, lock(7, name="0"))
    pending.hear(0, lock(7, name=str(MAX_DONE)))
    assert waiting(pending) == [lock(7, name="0")], "the oldest are forgotten"


def test_a_member_lets_another_that_was_denied_a_lock_ask_before_it_asks_again() -> None:
    """Otherwise the member that hears first of a free lock would get it again and again."""
    pending = make()
    pending.answered(told(lock(1, A), locks={"x": A.id}))
    pending.answered(told(lock(1, B), locks={"x": A.id}))  # denied
    pending.answered(told(lock(2, A, reason=Reason.UNLOCK)))
    again = lock(3, A)
    pending.ask(10, again)
    assert pending.due_ns == 10 + YIELD_NS
    assert waiting(pending, 10) == []
    assert pending.repeated(10) == []
    pending.ask(11, LEAVE)
    assert pending.repeated(11) == [LEAVE]
    assert pending.due_ns == 10 + YIELD_NS
    assert waiting(pending, 10 + YIELD_NS) == [again, LEAVE]
    assert pending.repeated(10 + YIELD_NS) == [again]


def test_where_nobody_else_was_denied_a_lock_is_asked_for_at_once() -> None:
    pending = make()
    pending.answered(told(lock(1, B), locks={"x": A.id}))  # denied
    pending.answered(told(lock(2, B), locks={"x": B.id}))  # and granted later
    pending.ask(10, lock(3, A))
    assert waiting(pending, 10) == [lock(3, A)]
    pending.drop(key_of(lock(3, A)))
    pending.answered(told(lock(4, A), locks={"x": B.id}))  # we were denied ourselves
    pending.ask(11, lock(5, A))
    assert waiting(pending, 11) == [lock(5, A)]


def test_members_that_were_denied_a_lock_are_remembered_within_a_bound() -> None:
    pending = make()
    for number in range(MAX_DONE + 1):
        pending.answered(told(lock(number, B, f"l{number}"), locks={}))
    pending.ask(0, lock(1, A, "l0"))
    assert waiting(pending) == [lock(1, A, "l0")]
    pending.ask(0, lock(1, A, f"l{MAX_DONE}"))
    assert len(waiting(pending)) == 1
