"""A join that was given up: it is taken back until no member can order it (`membership.quorum.withdrawing`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.quorums import Party, local_member, member_of, view_of

from ordercast.config import LAN_DATAGRAM, Demands, GroupConfig, Timing
from ordercast.engine import NEVER, Outbox
from ordercast.membership.policy import Newcomer
from ordercast.membership.quorum.admission import Admission
from ordercast.membership.quorum.joining import Joining, new_attempts
from ordercast.membership.quorum.local import Wishes
from ordercast.membership.quorum.withdrawing import FORGET_NS, Withdrawing
from ordercast.view import Address, Reason
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.views import Asking, Ring, decode_withdrawal
from ordercast.wire.writer import DatagramWriter

TIMING = Timing()


class Newcoming:
    """A newcomer that has asked members to let it in, and gives up."""

    def __init__(self, *asked: str, attempts: int = 1) -> None:
        me = member_of("x")
        self.local = local = local_member(me, DatagramWriter(1, me.id, LAN_DATAGRAM), TIMING)
        self.out = Outbox()
        self.attempts = new_attempts()
        self.joining = Joining(local, Wishes(), Newcomer(0, {}), attempts=self.attempts)
        self.joining.start(0, self.out)
        for size, name in enumerate(asked, 2):
            ring = Ring("g", size, 1, f"{name}/0", size, True, member_of(name), GroupConfig("token"))
            self.joining.on_ring(self.joining.deadline_ns(), member_of(name).address, ring, self.out)
            while member_of(name).address not in self.joining.asked:  # the one before does not answer
                self.joining.expire(self.joining.deadline_ns(), self.out)
                self.joining.on_ring(self.joining.deadline_ns(), member_of(name).address, ring, self.out)
        while len(self.joining.nonces) < attempts:
            self.joining.expire(self.joining.deadline_ns(), self.out)
        self.out.sends.clear()
        self.withdrawing = Withdrawing(local, self.joining)
        self.withdrawing.start(0, self.out)

    def told(self) -> list[Address]:
        found = []
        for to, buffers, _ in self.out.sends:
            data = b"".join(buffers)
            assert data[1] == Kind.WITHDRAW
            assert decode_withdrawal(data[HEADER_BYTES:]) == ("g", self.joining.nonces, False)
            found.append(to)
        self.out.sends.clear()
        return found


def address(name: str) -> Address:
    return member_of(name).address


def test_every_member_that_was_asked_is_told_until_it_confirms() -> None:
    x = Newcoming("a", "b")
    withdrawing = x.withdrawing
    assert x.told() == [address("a"), address("b")]
    withdrawing.on_confirmed(1, address("a"), x.joining.nonces)
    withdrawing.expire(1, x.out)
    assert x.told() == [], "it is not due yet"
    due_ns = withdrawing.deadline_ns()
    assert due_ns == TIMING.find_ns
    withdrawing.expire(due_ns, x.out)
    assert x.told() == [address("b")]


def test_it_stands_by_until_others_have_forgotten_it_too() -> None:
    x = Newcoming("a")
    x.withdrawing.on_confirmed(5, address("a"), x.joining.nonces)
    assert x.withdrawing.deadline_ns() == 5 + FORGET_NS
    assert not x.withdrawing.is_over(4 + FORGET_NS)
    assert x.withdrawing.is_over(5 + FORGET_NS)
    x.told()
    x.withdrawing.expire(4 + FORGET_NS, x.out)
    assert x.told() == []


def test_without_an_answer_it_gives_up_in_the_end() -> None:
    x = Newcoming("a")
    now_ns, told = 0, 0
    while not x.withdrawing.is_over(now_ns):
        now_ns = x.withdrawing.deadline_ns()
        assert now_ns < NEVER
        x.withdrawing.expire(now_ns, x.out)
        told += len(x.told())
    assert now_ns == TIMING.linger_ns
    assert told > 2


def test_the_confirmation_of_a_stranger_or_of_another_attempt_is_none() -> None:
    x = Newcoming("a")
    x.withdrawing.on_confirmed(5, address("b"), x.joining.nonces)
    x.withdrawing.on_confirmed(5, address("a"), [1])
    x.told()
    x.withdrawing.expire(TIMING.find_ns, x.out)
    assert x.told() == [address("a")]


def test_each_attempt_is_taken_back() -> None:
    x = Newcoming("a", attempts=2)
    first, second = x.joining.nonces
    assert first != second
    assert not x.withdrawing.accept(1)
    assert x.withdrawing.accept(first)
    assert x.withdrawing.accept(second)
    assert not x.withdrawing.accept(second), "each once"


def test_a_welcome_is_taken_by_the_search_that_was_given_up_or_by_the_next_one_never_by_both() -> None:
    x = Newcoming("a")
    given_up = x.joining.nonce
    later = Joining(x.local, Wishes(), Newcomer(0, {}), attempts=x.attempts)
    assert not x.withdrawing.accept(later.nonce), "that one was not given up"
    assert x.withdrawing.accept(given_up)
    assert not later.accept(given_up), "this node is in by it already, and may have voted"
    y = Newcoming("a")
    later = Joining(y.local, Wishes(), Newcomer(0, {}), attempts=y.attempts)
    assert later.accept(y.joining.nonce)
    assert not y.withdrawing.accept(y.joining.nonce)


# The member's side


def asking(nonce: int) -> Asking:
    return Asking("g", member_of("x"), nonce, 0, 0, Demands(), b"")


def is_taken_back(admission: Admission, party: Party, nonces: list[int]) -> bool:
    """Whether x is told that its request will not be ordered."""
    party.out.sends.clear()
    admission.on_withdraw(address("x"), member_of("x").id, nonces, party.orderer, party.out)
    for to, buffers, _ in party.out.sends:
        assert to == address("x")
        assert decode_withdrawal(b"".join(buffers)[HEADER_BYTES:]) == ("g", nonces, True)
    return len(party.out.sends) == 1


def test_a_join_that_was_taken_back_is_not_ordered() -> None:
    ann = Party("a", view_of("a"))
    admission = Admission(ann.local)
    admission.on_join(0, address("x"), asking(7), GroupConfig("sequencer"), ann.orderer, ann.out)
    assert is_taken_back(admission, ann, [6, 7])
    assert admission.is_over(asking(7)), "a request that comes late leads to nothing"
    ann.orderer.after_batch(0, ann.out)
    assert ann.orderer.take_views() == []


def test_a_join_that_was_ordered_already_is_not_confirmed_to_be_off() -> None:
    ann = Party("a", view_of("a"))
    admission = Admission(ann.local)
    admission.on_join(0, address("x"), asking(7), GroupConfig("sequencer"), ann.orderer, ann.out)
    ann.orderer.after_batch(0, ann.out)
    assert len(ann.orderer.take_views()) == 1
    assert not is_taken_back(admission, ann, [7])


def test_a_request_that_never_arrived_is_confirmed_to_be_off() -> None:
    ann = Party("a", view_of("a"))
    assert is_taken_back(Admission(ann.local), ann, [])


@pytest.mark.parametrize("sent_since", [0, 1])
def test_a_welcome_to_an_earlier_search_is_taken_once_also_if_something_was_sent_since(sent_since: int) -> None:
    me = member_of("x")
    local = local_member(me, DatagramWriter(1, me.id, LAN_DATAGRAM), TIMING)
    attempts = new_attempts()
    earlier = Joining(local, Wishes(), Newcomer(7, {}), attempts=attempts)
    now = Joining(local, Wishes(), Newcomer(7 + sent_since, {}), attempts=attempts)
    view = replace(earlier.first_view(1), reason=Reason.JOIN)
    assert now.accept(earlier.nonce)
    assert now.suits(view, GroupConfig("token")) is not bool(sent_since)
    assert not now.accept(earlier.nonce)
    assert not now.accept(now.nonce + 1)


@pytest.mark.parametrize(
    ("wishes", "is_return", "suits"),
    [
        (Wishes(), False, True),
        (Wishes(header=b"other"), False, False),
        (Wishes(is_shared=True), False, False),
        (Wishes(demands=Demands(max_members=3)), False, False),
        (Wishes(create=True), False, False),
        (Wishes(create=True), True, True),
    ],
)
def test_a_view_on_terms_of_an_earlier_search_suits_only_where_they_are_the_same(
    wishes: Wishes, is_return: bool, suits: bool
) -> None:
    me = member_of("x")
    local = local_member(me, DatagramWriter(1, me.id, LAN_DATAGRAM), TIMING)
    view = replace(Joining(local, Wishes(), Newcomer(7, {})).first_view(1), reason=Reason.JOIN)
    now = Joining(local, wishes, Newcomer(7, {}), is_return)
    assert now.suits(view, GroupConfig("token")) is suits
    stricter = replace(view, members=(replace(me, min_members=3),))
    assert not now.suits(stricter, GroupConfig("token"))
