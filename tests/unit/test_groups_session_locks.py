"""Locks and calls of the sessions of one node, over a fake engine (RMP section 3.3, docs/design/roster.md)."""

from __future__ import annotations

from tests.unit.channels import come_back, make_host, messages, open_ports, pump, run_pass, two_sessions
from tests.unit.fake_engine import Exchange, events, fake

from ordercast.config import GroupConfig
from ordercast.errors import LockDenied, Unhandled
from ordercast.groups.calls import Asked
from ordercast.groups.events import Answer, Request
from ordercast.groups.requests import PendingReply
from ordercast.service import AGREED
from ordercast.wire.block import label_of


def test_sessions_of_one_node_take_turns_and_the_lock_goes_back_between_them() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    first, second = ann.lock("red"), bob.lock("red")
    pump(host)
    assert (first.is_held, second.is_held) == (True, False)
    assert ann.take_settled() == [first]
    assert bob.take_settled() == []
    ann.locks.give_up(first)
    pump(host)
    assert (first.is_held, second.is_held) == (False, True)
    named = f"{ann.number}:red"
    assert [step for step in fake(ann).steps if step[1] == named] == [
        ("lock", named), ("unlock", named), ("lock", named),
    ]  # fmt: skip
    assert bob.take_settled() == [second]


def test_the_locks_of_a_session_that_leaves_are_free_for_the_others_of_its_node() -> None:
    host = make_host(Exchange())
    (ann,), (bob,) = two_sessions(host, "a")
    held, other = ann.lock("red"), ann.lock("blue")
    waiting = bob.lock("red")
    pump(host)
    assert (held.is_held, other.is_held, waiting.is_held) == (True, True, False)
    host.close_session(ann.stream.session)
    for _ in range(3):
        pump(host)
    assert ann.gone is not None
    assert (held.is_held, waiting.is_held) == (False, True)
    assert bob.view is not None
    assert list(bob.view.locks) == ["red"], "nobody wants the blue one"


def test_the_locks_of_the_last_session_of_a_node_go_back_to_the_group() -> None:
    exchange = Exchange()
    host, far = make_host(exchange), make_host(exchange, "y")
    host.attach(0, "floor", config=GroupConfig())
    far.attach(0, "floor", config=GroupConfig())
    pump(host, far)
    (ann,) = open_ports(host, "a", session=host.open_session("ann"))
    (bob,) = open_ports(far, "a", session=far.open_session("bob"))
    pump(host, far)
    held = ann.lock("red")
    pump(host, far)
    waiting = bob.lock("red")
    pump(host, far)
    assert (held.is_held, waiting.is_held) == (True, False)
    host.close_session(ann.stream.session)
    for _ in range(3):
        pump(host, far)
    assert waiting.is_held


def test_one_that_tries_once_is_denied_by_another_session_of_its_node() -> None:
    host = make_host(Exchange())
    (ann,), (bob,) = two_sessions(host, "a")
    held = ann.lock("red")
    pump(host)
    once = bob.lock("red", tries_once=True)
    pump(host)
    assert held.is_held
    assert isinstance(once.error, LockDenied)
    assert bob.take_settled() == [once]


def test_a_session_that_is_not_in_the_group_yet_gets_no_lock_of_it() -> None:
    host = make_host(Exchange())
    (ann,) = open_ports(host, "a", session=host.open_session("ann"))
    pump(host)
    late = host.open(0, "a", config=GroupConfig(), session=host.open_session("late"))
    early = late.lock("red")
    assert late.view is None
    assert not ann.locks.todo
    pump(host)
    assert late.view is not None
    assert early.is_held


def test_the_session_that_holds_the_handler_answers_and_the_one_that_asked_has_the_answer() -> None:
    host = make_host(Exchange())
    (ann,), (bob,) = two_sessions(host, "a")
    (own,) = open_ports(host, "a")
    claim = ann.serve(2)
    pump(host)
    assert claim.is_held
    for port in (ann, bob, own):
        events(port)
    asked = bob.call(b"what?", AGREED, 2)
    assert isinstance(asked, Asked)
    pump(host)
    seen = [messages(port)[0] for port in (ann, bob, own)]
    assert [(each.sender, each.must_answer) for each in seen if isinstance(each, Request)] == [
        ("bob@x/0", True), ("bob@x/0", False), ("bob@x/0", False),
    ]  # fmt: skip
    assert claim.inbox is not None
    assert len(claim.inbox) == 1
    owed = seen[0].owed if isinstance(seen[0], Request) else None
    assert isinstance(owed, PendingReply)
    assert ann.answer(owed, b"that")
    pump(host)
    assert asked.answer == b"that"
    assert (ann.take_settled()[1:], own.take_settled()) == ([], [])
    assert asked in bob.take_settled()
    answers = [messages(port)[0] for port in (ann, bob, own)]
    assert [each.answers for each in answers if isinstance(each, Answer)] == [("bob@x/0", asked.number)] * 3


def test_a_call_to_a_handler_without_a_holder_says_so_to_the_session_that_called() -> None:
    host = make_host(Exchange())
    (ann,), (bob,) = two_sessions(host, "a")
    mine, other = ann.call(b"?", AGREED, 3), bob.call(b"??", AGREED, 3)
    pump(host)
    assert isinstance(mine, Asked)
    assert isinstance(other, Asked)
    assert isinstance(mine.error, Unhandled)
    assert isinstance(other.error, Unhandled)


def test_sessions_lose_their_locks_with_the_node_and_get_those_they_wait_for_when_it_is_back() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    held, waiting = ann.lock("red"), bob.lock("red")
    pump(host)
    assert held.is_held
    come_back(exchange, host, ann)
    assert not held.is_held
    assert ann.take_settled() == [held, held], "granted, and lost"
    assert waiting.is_held


def test_a_session_with_urgent_messages_submits_before_the_others() -> None:
    """SITES section 5: what has a priority waits for no other session of its node."""
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    exchange.is_open = False
    exchange.take_blocks = 1
    for _ in range(4):
        run_pass(host)  # whose turn it is does not matter
        ann.offer(b"usual", AGREED)
        bob.offer(b"urgent", AGREED, 0, 7)
        before = len(fake(ann).sent_blocks)
        run_pass(host)
        first = fake(ann).sent_blocks[before]
        assert label_of(first) == "bob"
        run_pass(host)
