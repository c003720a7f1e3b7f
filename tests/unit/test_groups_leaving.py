"""Ports that leave groups of a shared underlay, and nodes that leave the underlay, over a fake engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.channels import come_back, fill, make_host, open_ports, pump, run_pass
from tests.unit.fake_engine import Exchange, events, fake, payloads

from ordercast.config import MAX_BLOCK, GroupConfig
from ordercast.engine import Departed, Failed
from ordercast.errors import (
    NotMember,
    UsageError,
)
from ordercast.groups.events import Left
from ordercast.groups.port import LEAVE_PATIENCE_NS, Port
from ordercast.service import AGREED
from ordercast.view import Reason, View
from ordercast.wire.block import head_of, pack_run


def test_the_underlay_is_left_with_its_last_port() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    exchange.is_open = False
    a.offer(b"last words", AGREED)
    host.leave(a)
    b.offer(b"later", AGREED)
    pump(host)
    assert a.gone is None, "what it sent is under way"
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert a.gone == Left(wanted=True, returning=False, text="left", group="a")
    assert exchange.members, "b is still there"
    assert host.ports == [b]
    assert payloads(a) == [b"last words"]
    with pytest.raises(NotMember):
        a.check(1, AGREED, 0)
    blocks = b.channel.next_block
    host.leave(b, b"bye")
    pump(host)
    assert not exchange.members
    assert (host.ports, host.port("b"), b.is_member) == ([], None, False)
    (again,) = open_ports(host, "b")
    assert again.end_number == 2, "the numbering goes on"
    assert fake(again).options["next_block"] == blocks


def test_ports_that_leave_together_leave_the_underlay() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b, c = open_ports(host, "a", "b", "c")
    for port in (a, b, c):
        host.leave(port)
    pump(host)
    assert [port.gone is not None for port in (a, b, c)] == [True] * 3
    assert not exchange.members
    assert not host.underlays


def test_a_base_port_keeps_the_node_in_the_underlay() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = host.attach(0, "floor", config=GroupConfig())
    (a,) = open_ports(host, "a")
    host.leave(a)
    pump(host)
    assert a.gone is not None
    assert exchange.members
    assert base.is_member
    host.leave(base)
    pump(host)
    assert not exchange.members
    assert base.gone is not None
    assert events(base) == [Left(wanted=True, returning=False, text="left")]


def test_detaching_leaves_open_groups_alone() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = host.attach(0, "floor", config=GroupConfig())
    base.stream.feed()
    (a,) = open_ports(host, "a")
    host.leave(base)
    pump(host)
    assert base.gone is not None
    assert a.is_member
    a.offer(b"1", AGREED)
    pump(host)
    assert payloads(a) == [b"1"], "it receives for itself again"
    host.attach(0, "floor", config=GroupConfig())
    a.offer(b"2", AGREED)
    pump(host)
    assert payloads(a) == [b"2"], "until it is asked for something else"
    host.leave(a)
    pump(host)
    assert exchange.members
    host.leave(host.ports[0])
    pump(host)
    assert not exchange.members


def test_a_base_port_that_nobody_receives_from_holds_nothing_up() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    host.attach(0, "floor", config=GroupConfig())
    (a,) = open_ports(host, "a")
    exchange.fail("y is silent")
    pump(host)
    host.reset(0, a, 1)
    pump(host)
    a.offer(b"1", AGREED)
    pump(host)
    assert payloads(a) == [b"1"]
    pump(host)
    assert fake(a).consumed[-1] == exchange.seq


def test_a_base_port_that_receives_for_its_session_hears_of_the_underlay_once() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = host.attach(0, "floor", config=GroupConfig())
    base.stream.feed()
    a, b = open_ports(host, "a", "b")
    pump(host)
    assert [event.group for event in events(base) if isinstance(event, View)] == ["", "a", "b"]
    exchange.fail("y is silent")
    fake(a).pending.append(Departed(wanted=False, returning=True, text="excluded"))
    pump(host)
    failed, left = events(base)
    assert isinstance(failed, Failed)
    assert left == Left(wanted=False, returning=True, text="excluded")
    exchange.install(Reason.CREATE, "x/0", b"", [fake(a)])
    pump(host)
    assert a.is_member
    events(base)
    host.leave(a)
    pump(host)
    assert events(base) == [Left(wanted=True, returning=False, text="left", group="a")]
    assert host.take_news()
    for port in (b, base):
        host.leave(port)
    pump(host)
    assert [event for event in events(base) if isinstance(event, Left)][-1].group == ""
    assert not a.has_events


def test_a_leave_before_the_join_is_ordered_takes_the_session_out_after_it() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    exchange.is_open = False
    b = host.open(0, "b", config=GroupConfig())
    b.offer(b"nobody hears it", AGREED)
    watch = b.watch(0, 1, AGREED)
    pump(host)
    host.leave(b)
    pump(host)
    assert b.gone is not None, "it was in no group"
    assert a.take_settled() == [watch]
    assert isinstance(watch.error, NotMember)
    exchange.is_open = True
    exchange.order()
    a.offer(b"1", AGREED)
    pump(host)
    assert a.channel.shared is not None
    members = {name: len(record.members) for name, record in a.channel.shared.roster.groups.items()}
    assert members == {"a": 1, "b": 0}, "the name is there for its message"
    assert payloads(a) == [b"1"], "which holds up nobody"


def test_a_group_that_is_opened_again_while_its_first_join_is_under_way() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    exchange.is_open = False
    b = host.open(0, "b", config=GroupConfig())
    pump(host)
    host.leave(b)
    pump(host)
    again = host.open(0, "b", config=GroupConfig())
    pump(host)
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert b.gone is not None
    assert again.is_member
    assert again.gone is None
    again.offer(b"1", AGREED)
    pump(host)
    assert payloads(again) == [b"1"]
    assert a.channel.shared is not None
    assert a.channel.shared.is_at_rest


def test_in_an_underlay_that_has_failed_a_group_is_left_at_once_and_the_roster_hears_later() -> None:
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    a, b = open_ports(one, "a", "b")
    (other,) = open_ports(two, "a")
    pump(one, two)
    exchange.fail("z is silent")
    exchange.is_open = False
    pump(one, two)
    one.leave(a)
    pump(one, two)
    assert a.gone is not None
    one.reset(0, b, 1)
    pump(one, two)
    exchange.is_open = True
    exchange.order()
    pump(one, two)
    assert other.view is not None
    assert [str(member) for member in other.view.members] == ["y/0"]


def test_an_ordered_leave_is_taken_back_where_the_underlay_fails() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    exchange.is_open = False
    host.leave(a, is_ordered=True)
    pump(host)
    assert a.is_leaving
    exchange.fail("z is silent")
    pump(host)
    assert not a.is_leaving
    host.reset(0, b, 1)
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert a.gone is None
    assert a.is_member, "the leave was out, and it has come back"
    lefts = [event for event in events(a) if isinstance(event, Left)]
    assert [left.returning for left in lefts] == [True]


def test_a_port_that_leaves_does_not_come_back_with_its_node() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    exchange.is_open = False
    host.leave(a)
    pump(host)
    assert a.gone is None
    come_back(exchange, host, b)
    assert a.gone is not None
    assert a.gone.wanted
    assert b.is_member
    assert b.channel.shared is not None
    assert list(b.channel.shared.roster.groups) == ["b"]


def test_what_a_port_that_left_has_not_taken_holds_no_buffers() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    events(b)
    fill(host, a)
    a.offer(b"1", AGREED)
    pump(host)
    assert fake(a).consumed[-1] < exchange.seq
    host.leave(a)
    pump(host)
    assert fake(a).consumed[-1] == exchange.seq
    assert (a.held_bytes, a.channel.consumption.held_bytes) == (0, 0)
    assert payloads(a)[1:] == [b"1"]
    b.offer(b"2", AGREED)
    pump(host)
    events(b)
    pump(host)
    assert fake(b).consumed[-1] == exchange.seq


@pytest.mark.parametrize(("header", "operations"), [(b"", 0), (b"bye", 2)])
def test_all_groups_are_left_at_once_unless_they_are_told_something(header: bytes, operations: int) -> None:
    exchange = Exchange()
    host, other = make_host(exchange, "x"), make_host(exchange, "y")
    ports = open_ports(host, "a", "b", "c")
    (seen,) = open_ports(other, "a")
    pump(host, other)
    engine = fake(ports[0])
    blocks = len(engine.sent_blocks)
    for port in ports:
        host.leave(port, header)
    pump(host, other)
    assert [port.gone is not None and port.gone.wanted for port in ports] == [True] * 3
    assert not host.underlays
    assert len(engine.sent_blocks) - blocks <= operations
    assert seen.view is not None
    assert [member.name for member in seen.view.members] == ["y"]
    assert seen.view.header == header


def test_a_node_that_detaches_and_says_why_leaves_all_groups_at_once_and_each_of_them_sees_it() -> None:
    exchange = Exchange()
    host, other = make_host(exchange, "x"), make_host(exchange, "y")
    base = host.attach(0, "floor", config=GroupConfig())
    ports = open_ports(host, "a", "b")
    (seen,) = open_ports(other, "a")
    pump(host, other)
    blocks = len(fake(base).sent_blocks)
    for port in ports:
        host.leave(port)
    host.leave(base, b"bye")
    pump(host, other)
    assert not host.underlays
    assert len(fake(base).sent_blocks) == blocks
    assert seen.view is not None
    assert ([member.name for member in seen.view.members], seen.view.header) == (["y"], b"bye")


def test_a_node_that_detaches_says_why_also_where_a_group_is_told_something_else() -> None:
    exchange = Exchange()
    host, other = make_host(exchange, "x"), make_host(exchange, "y")
    session = host.open_session("s")
    base = host.attach(0, "floor", config=GroupConfig())
    host.attach(0, "floor", config=GroupConfig(), session=session)
    port = host.open(0, "a", config=GroupConfig(), underlay="floor", session=session)
    watcher = other.attach(0, "floor", config=GroupConfig())
    pump(host, other)
    host.leave(base, b"stopped")
    host.leave(port, b"lost")
    host.close_session(session, b"")
    pump(host, other)
    assert not host.underlays
    assert watcher.view is not None
    assert ([member.name for member in watcher.view.members], watcher.view.header) == (["y"], b"stopped")


def test_a_leave_that_is_held_up_is_not_waited_for_forever() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, _ = open_ports(host, "a", "b")
    exchange.take_blocks = 0
    a.offer(b"1", AGREED)
    host.leave(a)
    pump(host)
    assert host.deadline_ns() <= LEAVE_PATIENCE_NS
    exchange.take_blocks = 1
    exchange.room_bytes = 0
    a.stream.ready.clear()
    pump(host, now_ns=LEAVE_PATIENCE_NS - 1)
    assert a.gone is None
    exchange.room_bytes = 1 << 20
    pump(host, now_ns=LEAVE_PATIENCE_NS)
    assert a.gone is not None


def send_one(port: Port, payload: bytes) -> None:
    port.offer(payload, AGREED)


def send_a_batch(port: Port, payload: bytes) -> None:
    """By the numbers of its groups, as `send_many` does."""
    ports = [port, port.stream.ports["b"], port]
    port.stream.offer_many_to([payload, b"", b""], AGREED, 0, [len(payload), 0, 0], ports, numbered=2)


def send_to_several(port: Port, payload: bytes) -> None:
    port.stream.offer_to(["b", port.group], payload, AGREED)


def send_a_block(port: Port, payload: bytes) -> None:
    """As a client of a daemon does."""
    block = pack_run(0, AGREED, [payload], 0, 0, 0)
    assert port.queue.offer_block(block, head_of(block), port)


SENDS = (send_one, send_a_batch, send_to_several, send_a_block)


@pytest.mark.parametrize("send", SENDS)
@pytest.mark.parametrize("size", [1_000, 30_000, 200_000])
def test_what_waits_while_its_session_leaves_a_group_reaches_those_who_make_it_anew(
    send: Callable[[Port, bytes], None], size: int
) -> None:
    """The group ends with the leave, and comes back under another number before the message is submitted."""
    if send is send_a_block and size > MAX_BLOCK:
        pytest.skip("a client cuts it")
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    a, b = open_ports(one, "a", "b")
    open_ports(two, "c")
    pump(one, two)
    exchange.is_open = False
    b.offer(bytes(200_000), AGREED)  # holds up what is behind it
    pump(one)
    send(a, b"!".ljust(size, b"."))
    one.leave(a)
    pump(one, now_ns=0)
    pump(one, now_ns=LEAVE_PATIENCE_NS)
    (made,) = open_ports(two, "a")
    exchange.is_open = True
    exchange.order()
    pump(one, two, now_ns=LEAVE_PATIENCE_NS)
    assert a.gone is not None
    assert made.is_member
    assert b"!".ljust(size, b".") in payloads(made)
    assert a.channel.shared is not None
    assert a.channel.shared.is_at_rest


@pytest.mark.parametrize("send", SENDS)
def test_nothing_goes_under_the_number_of_a_group_whose_leave_is_on_its_way(
    send: Callable[[Port, bytes], None],
) -> None:
    """The leave overtakes a message that has to wait for room, and the group is made anew between the two."""
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    (a, _), _ = open_ports(one, "a", "b"), open_ports(two, "c")
    pump(one, two)
    exchange.is_open, exchange.room_bytes = False, 64
    send(a, b"!".ljust(1_000, b"."))
    one.leave(a)
    pump(one, now_ns=0)
    pump(one, now_ns=LEAVE_PATIENCE_NS)
    assert exchange.waiting, "the leave is out"
    (made,) = open_ports(two, "a")
    pump(two)
    exchange.room_bytes = 1 << 20
    pump(one, now_ns=LEAVE_PATIENCE_NS)
    exchange.is_open = True
    exchange.order()
    pump(one, two, now_ns=LEAVE_PATIENCE_NS)
    assert b"!".ljust(1_000, b".") in payloads(made)


def test_a_large_message_begins_again_where_its_group_was_made_anew_under_it() -> None:
    """Its first fragments went to the group that its session has left since."""
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    (a, _), _ = open_ports(one, "a", "b"), open_ports(two, "c")
    pump(one, two)
    exchange.room_bytes = exchange.largest = 1_000
    a.offer(bytes(200_000), AGREED)
    run_pass(one)
    assert a.queue.has_begun
    exchange.room_bytes, exchange.is_open = 64, False
    one.leave(a)
    pump(one, now_ns=0)
    pump(one, now_ns=LEAVE_PATIENCE_NS)
    (made,) = open_ports(two, "a")
    exchange.room_bytes, exchange.is_open = 1 << 20, True
    exchange.order()
    pump(one, two, now_ns=LEAVE_PATIENCE_NS)
    assert payloads(made) == [bytes(200_000)]


def test_a_name_that_was_read_before_the_leave_does_not_count_behind_it() -> None:
    """It was asked for while the join was under way, and the join has taken its place."""
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    (b,), _ = open_ports(one, "b"), open_ports(two, "c")
    pump(one, two)
    exchange.is_open = False
    a = one.open(0, "a", config=GroupConfig())
    b.stream.offer_to(["a", "b"], b"1", AGREED)
    pump(one)  # the join and the name are out
    join, name = exchange.waiting
    exchange.waiting[:], exchange.is_open = [join], True
    exchange.order()
    exchange.is_open = False
    pump(one)
    assert a.is_member
    exchange.room_bytes = 64
    b.stream.offer_to(["a", "b"], bytes(1_000), AGREED)
    one.leave(a)
    pump(one, now_ns=0)
    pump(one, now_ns=LEAVE_PATIENCE_NS)
    first, *leaving = exchange.waiting  # the leave, and a name behind it
    exchange.waiting[:], exchange.is_open = [name, first], True
    exchange.order()
    exchange.waiting[:], exchange.is_open = leaving, False
    pump(one, now_ns=LEAVE_PATIENCE_NS)
    (made,) = open_ports(two, "a")
    pump(two)
    exchange.room_bytes = 1 << 20
    pump(one, now_ns=LEAVE_PATIENCE_NS)
    exchange.is_open = True
    exchange.order()
    pump(one, two, now_ns=LEAVE_PATIENCE_NS)
    assert bytes(1_000) in payloads(made)


def test_messages_wait_for_a_leave_that_is_taken_back_and_ordered_after_all() -> None:
    """The group ends with it, and is made anew before the session is back."""
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    (a, b), _ = open_ports(one, "a", "b"), open_ports(two, "c")
    pump(one, two)
    exchange.is_open = False
    one.leave(a, is_ordered=True)
    pump(one)
    exchange.fail("z is silent")
    pump(one, two)
    one.reset(0, b, 1)
    pump(one, two)
    (made,) = open_ports(two, "a")
    pump(two)
    a.offer(b"1", AGREED)
    pump(one)
    exchange.is_open = True
    exchange.order()
    pump(one, two)
    assert a.is_member
    assert payloads(made) == [b"1"]


def test_a_group_is_not_opened_on_an_underlay_that_is_being_left() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    fake(a).leave = lambda *_: None  # type: ignore[method-assign]  # the leave takes its time
    host.leave(a)
    run_pass(host)
    with pytest.raises(UsageError, match="wait until it is out"):
        open_ports(host, "b")
