"""Channels with several sessions, names from outside and notes, driven pass by pass over a fake engine."""

from __future__ import annotations

import pytest
from tests.unit.channels import attach, fill, make_host, open_ports, pump, run_pass
from tests.unit.fake_engine import Exchange, events, fake, payloads

from ordercast.config import SECOND
from ordercast.engine import Note
from ordercast.errors import (
    MessageTooLarge,
    UsageError,
)
from ordercast.groups.driven import LogLine
from ordercast.groups.events import Batch
from ordercast.groups.host import MAX_LOG
from ordercast.groups.session import Session
from ordercast.service import AGREED, RELIABLE


def test_sessions_of_one_node_have_their_own_numbers_events_and_waits() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    other = host.open_session("other")
    (mine,) = open_ports(host, "a")
    theirs, alone = open_ports(host, "c", "b", session=other)
    assert len(exchange.engines) == 1
    events(mine), events(theirs), events(alone)
    fill(host, theirs)
    assert [mine.offer(b"1", AGREED), theirs.offer(b"2", AGREED), alone.offer(b"3", AGREED)] == [0, 1, 2]
    watch = alone.watch(2, 3, AGREED)
    pump(host)
    assert mine.take_settled() == []
    assert theirs.take_settled() == [watch]
    assert payloads(mine) == [b"1"]
    pump(host)
    before = fake(mine).consumed[-1]
    assert payloads(theirs)[1:] == [b"2"]
    assert payloads(alone) == [b"3"]
    pump(host)
    assert before < exchange.seq, "it waits for the session that does not receive"
    assert fake(mine).consumed[-1] == exchange.seq


def test_a_message_to_several_groups_comes_once_to_each_session() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (mine,) = open_ports(host, "a")
    theirs, alone = open_ports(host, "c", "b", session=host.open_session("other"))
    mine.stream.offer_to(["b", "a", "c"], b"1", AGREED)
    mine.stream.offer_to(["c", "a"], bytes(70_000), AGREED)
    pump(host)
    assert [len(payload) for payload in payloads(mine)] == [1, 70_000]
    assert [len(payload) for payload in payloads(alone)] == [1], "by the first of its groups that the message names"
    assert [len(payload) for payload in payloads(theirs)] == [70_000]
    with pytest.raises(UsageError, match="1 to 255 groups"):
        mine.stream.offer_to([], b"", AGREED)
    with pytest.raises(MessageTooLarge):
        mine.stream.offer_to(["b"], bytes(1 << 28), AGREED)


def test_a_session_without_a_label_uses_a_shared_underlay_once() -> None:
    host = make_host(Exchange())
    (mine,) = open_ports(host, "a")
    with pytest.raises(UsageError, match="another session of this node"):
        open_ports(host, "b", session=Session())
    assert host.ports == [mine]


def test_a_session_that_ends_leaves_the_others_in() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    other = host.open_session("other")
    (mine,) = open_ports(host, "a")
    (theirs,) = open_ports(host, "b", session=other)
    theirs.offer(b"1", AGREED)
    pump(host)
    host.leave(theirs)
    pump(host)
    assert theirs.gone is not None
    assert other.ports == {}
    assert other.numbers == {"floor": 1}
    assert mine.is_member
    mine.offer(b"2", RELIABLE)
    pump(host)
    assert payloads(mine) == [b"2"]


def test_a_group_with_an_underlay_of_its_own_may_have_several_sessions_of_one_node() -> None:
    host = make_host(Exchange())
    (mine,) = open_ports(host, "alone")
    (theirs,) = open_ports(host, "alone", session=Session())
    theirs.offer(b"1", AGREED)
    pump(host)
    assert payloads(mine) == payloads(theirs) == [b"1"]


def test_news_name_ports_that_something_happened_to_and_no_others() -> None:
    host = make_host(Exchange())
    a, b, c = open_ports(host, "a", "b", "c")
    assert host.take_news() == [a, b, c]
    run_pass(host)
    assert host.take_news() == []
    host.leave(a)
    pump(host)
    assert host.take_news() == [a]
    b.offer(b"1", AGREED)
    watch = c.watch(c.offer(b"2", AGREED), 2, AGREED)
    pump(host)
    assert host.take_news() == [b, c]
    assert b.take_settled() == [watch]
    run_pass(host)
    assert host.take_news() == []


def test_a_group_that_is_sent_to_from_outside_keeps_its_number() -> None:
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    a, b = open_ports(one, "a", "b")
    (c,) = open_ports(two, "c")
    pump(one, two)
    c.stream.offer_to(["b"], b"1", AGREED)
    pump(one, two)
    assert payloads(b) == [b"1"]
    number = b.number
    exchange.is_open = False
    c.stream.offer_to(["b"], b"2", AGREED)
    pump(two)
    under_way = exchange.waiting.pop()  # it is ordered late
    exchange.is_open = True
    one.leave(b)
    pump(one, two)
    (again,) = open_ports(one, "b")
    pump(one, two)
    assert again.number == number, "the sender from outside holds it"
    exchange.waiting.append(under_way)
    exchange.order()
    pump(one, two)
    assert payloads(again) == [b"2"]
    assert a.is_member


def test_names_are_asked_for_again_when_their_group_is_gone() -> None:
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    (a,) = open_ports(one, "a")
    (c,) = open_ports(two, "c")
    pump(one, two)
    c.stream.offer_to(["b"], b"1", AGREED)
    pump(one, two)
    (b,) = open_ports(two, "b")
    pump(one, two)
    two.leave(b)
    pump(one, two)
    assert c.channel.shared is not None
    assert c.channel.shared.roster.find("b") is None, "its namer was in it, and has left it"
    c.stream.offer_to(["b"], b"2", AGREED)
    c.stream.offer_to(["a"], b"3", AGREED)
    pump(one, two)
    assert payloads(a) == [b"3"]
    assert c.channel.shared.roster.find("b") is not None, "it holds the name again"


@pytest.mark.parametrize("is_named_before", [False, True])
def test_a_name_holds_its_group_although_a_join_of_it_is_given_up(is_named_before: bool) -> None:
    """The session is in the group for a while, and leaves it at once because its port has ended."""
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    pump(host)
    if is_named_before:
        a.stream.offer_to(["b"], b"0", AGREED)
        pump(host)
    exchange.is_open = False
    (b,) = open_ports(host, "b")
    if not is_named_before:
        a.stream.offer_to(["b", "a"], b"1", AGREED)
    pump(host)
    host.leave(b)  # it is not in yet, and so out at once
    pump(host)
    exchange.is_open = True
    exchange.order()
    pump(host)
    if is_named_before:
        a.stream.offer_to(["b", "a"], b"1", AGREED)
    pump(host)
    assert [message.groups for event in events(a) if isinstance(event, Batch) for message in event.each()] == [
        ("b", "a")
    ]
    assert a.channel.shared is not None
    record = a.channel.shared.roster.find("b")
    assert record is not None, "its sender holds it"
    assert (record.members, record.namers) == ((), ((host.me.id, ""),))


def test_a_name_that_a_closed_session_asked_for_does_not_put_the_next_one_of_its_label_out() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = attach(host, host.session)
    pump(host)
    session = host.open_session("ann")
    hers = attach(host, session)
    pump(host)
    exchange.is_open = False
    hers.stream.offer_to(["c"], b"1", AGREED)  # its name is under way when the session goes
    pump(host)
    host.close_session(session)
    pump(host)
    pump(host, now_ns=4 * SECOND)
    assert hers.gone is not None
    (again,) = open_ports(host, "c", session=host.open_session("ann"))  # and so is the join of the next one
    pump(host, now_ns=4 * SECOND)
    exchange.is_open = True
    exchange.order()
    pump(host, now_ns=4 * SECOND)
    assert [type(event).__name__ for event in events(again)] == ["View"]
    host.leave(again)
    pump(host, now_ns=4 * SECOND)
    assert base.channel.shared is not None
    assert base.channel.shared.roster.groups == {}


def test_messages_name_groups_that_have_ended_when_they_are_opened() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    pump(host)
    events(a), events(b)
    a.stream.offer_to(["a", "b"], b"1", AGREED)
    pump(host)
    host.leave(b)
    pump(host)
    assert a.channel.shared is not None
    assert a.channel.shared.roster.find("b") is None
    (batch,) = [event for event in events(a) if isinstance(event, Batch)]
    assert [message.groups for message in batch.each()] == [("a", "b")]


def test_messages_to_several_groups_are_ordered() -> None:
    host = make_host(Exchange())
    (a,) = open_ports(host, "a")
    with pytest.raises(UsageError, match="AGREED or stronger, got RELIABLE"):
        a.stream.offer_to(["a", "b"], b"1", RELIABLE)
    assert a.stream.offer_to(["b"], b"1", RELIABLE) == 0


def test_membership_notes_are_kept_for_the_drivers_log_and_bounded() -> None:
    host = make_host(Exchange())
    (a,) = open_ports(host, "a")
    a.channel.out.notes.append(Note("membership", 0, detail="y is suspected: silent for 1.3 s"))
    run_pass(host)
    assert host.has_log
    assert host.take_log() == [("floor", LogLine("membership", "info", "y is suspected: silent for 1.3 s"))]
    assert not host.has_log
    a.channel.out.notes += [Note("membership", 0, detail=f"{number}") for number in range(MAX_LOG + 5)]
    run_pass(host)
    assert [line.text for _, line in host.take_log()] == [f"{number}" for number in range(5, MAX_LOG + 5)]
