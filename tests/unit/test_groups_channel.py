"""Channels, streams and sessions, driven pass by pass over a fake engine: several groups, and several sessions."""

from __future__ import annotations

from array import array

import pytest
from tests.unit.channels import fill, make_host, open_ports, pump, run_pass
from tests.unit.fake_engine import Exchange, events, fake, payloads

from ordercast.config import GroupConfig
from ordercast.engine import Delivery, Departed, Run, Transitional, UnknownOutcome
from ordercast.errors import (
    GroupFailed,
    LockDenied,
    OutcomeUnknown,
    Unhandled,
    UsageError,
)
from ordercast.groups.events import Batch, Left, Uncertain
from ordercast.service import AGREED, SAFE
from ordercast.trace.recorder import Recorder
from ordercast.view import Reason, View, group_tag
from ordercast.wire.block import groups_of, head_of, pack_grouped, pack_multi, pack_roster, pack_run
from ordercast.wire.header import HEADER, MAGIC, Kind

# Several groups of one session. -------------------------------------------------------------------------------------


def test_groups_of_one_underlay_have_one_engine_and_one_numbering() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    assert len(exchange.engines) == 1
    assert fake(a).group == "floor"
    assert [a.offer(b"1", AGREED), b.offer(b"2", AGREED), a.offer(b"3", AGREED)] == [0, 1, 2]
    pump(host)
    assert payloads(a) == [b"1", b"3"]
    assert payloads(b) == [b"2"]
    assert (a.counters["messages_sent"], b.counters["messages_sent"]) == (2, 1)
    assert (a.counters["messages_delivered"], b.counters["messages_delivered"]) == (2, 1)


def test_messages_of_several_groups_share_blocks() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    sent = len(fake(a).sent_blocks)
    a.offer_many([b"x"] * 10, AGREED)
    a.offer(b"y", AGREED)
    b.offer_many([b"x"] * 10, AGREED)
    a.offer(bytes(100_000), AGREED)
    run_pass(host)
    mixed, *rest = [(block, head_of(block)) for block in fake(a).sent_blocks[sent:]]
    assert groups_of(*mixed) == array("I", [a.number] * 11 + [b.number] * 10)
    assert [groups_of(block, head) for block, head in rest] == [a.number, a.number], "the two parts of a large message"
    pump(host)
    assert payloads(a) == [*[b"x"] * 10, b"y", bytes(100_000)]
    assert payloads(b) == [b"x"] * 10


def test_sends_are_resolved_by_the_underlay() -> None:
    host = make_host(Exchange())
    a, own = open_ports(host, "a", "alone")
    a.offer(b"1", AGREED)
    own.offer(b"2", AGREED)
    host.touch(a)
    host.touch(own)
    assert [underlay for underlay, _ in host.finish(0)] == ["floor", "alone"]
    assert (host.underlay_of("a"), host.underlay_of("alone")) == ("floor", "alone")
    assert host.knows("floor")
    assert not host.knows("a")
    assert len(host.underlays) == 2


def test_datagrams_come_to_the_channel_of_their_underlay() -> None:
    host = make_host(Exchange())
    a, b = open_ports(host, "a", "b")
    for name in ("floor", "a"):
        datagram = HEADER.pack(MAGIC, Kind.DATA, 0, 0, group_tag(name), 1, 2, 3)
        host.receive(0, ("127.0.0.1", 9), memoryview(datagram), 0)
    assert len(fake(a).batches) == 1
    assert host.counters["unknown_group"] == 1
    assert a.received.by_detail() == b.received.by_detail() == {"data": 1}


def test_engine_is_told_what_all_ports_have_finished_with() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    fill(host, b)
    joined = exchange.seq
    for port, payload in ((a, b"1"), (b, b"2"), (a, b"3"), (a, b"4")):
        port.offer(payload, AGREED)
        pump(host)
    assert payloads(a) == [b"1", b"3", b"4"]
    pump(host)
    assert fake(a).consumed[-1] == joined + 1, "b has not taken its block, and holds as much as it may"
    assert [port.is_holding_up for port in (a, b)] == [False, True]
    assert isinstance(b.take(), Batch)
    assert b.held_bytes == 0
    assert isinstance(b.take(), Batch)
    pump(host)
    assert fake(a).consumed[-1] == joined + 1, "that of b is being read"
    assert b.take() is None
    pump(host)
    assert fake(a).consumed[-1] == joined + 4
    assert not b.is_holding_up


def test_a_port_whose_application_is_slow_holds_its_blocks_itself_up_to_a_bound() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    consumption = a.channel.consumption
    events(a)
    assert isinstance(b.take(), View)
    for number in range(20):
        b.offer(bytes(50_000) + bytes([number]), AGREED)
        a.offer(b"quick", AGREED)
        pump(host)
        assert payloads(a) == [b"quick"]
    pump(host)
    assert fake(a).consumed[-1] == exchange.seq, "nothing waits for b"
    assert 20 * 50_000 < b.held_bytes == consumption.held_bytes < 20 * 51_000
    assert not b.is_holding_up
    assert [payload[-1] for payload in payloads(b)] == list(range(20))
    assert (b.held_bytes, consumption.held_bytes) == (0, 0)


def test_what_a_port_holds_comes_in_one_order_where_its_session_receives_everything_at_one_place() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = host.attach(0, "floor", config=GroupConfig())
    a, b = open_ports(host, "a", "b")
    fill(host, b)
    wanted = [b"%d" % number for number in range(12)]
    for number, payload in enumerate(wanted):
        (a if number % 3 else b).offer(payload, AGREED)
        pump(host)
    base.stream.feed()
    assert not a.has_events
    assert not b.has_events
    assert base.is_holding_up, "some of it is in the history"
    got = [payload for payload in payloads(base) if len(payload) < 10]
    assert got == wanted
    pump(host)
    assert not base.is_holding_up
    assert (a.held_bytes, b.held_bytes, base.held_bytes, base.channel.consumption.held_bytes) == (0, 0, 0, 0)
    assert fake(a).consumed[-1] == exchange.seq


def test_of_a_block_that_mixes_groups_each_port_holds_its_share() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b, c = open_ports(host, "a", "b", "c")
    for port in (a, b, c):
        events(port)
    fill(host, b)
    before = fake(a).consumed[-1]
    for port, payload in ((a, b"1"), (b, b"2"), (a, b"3")):
        port.offer(payload, AGREED)
    pump(host)
    assert not c.has_events
    assert payloads(a) == [b"1", b"3"]
    pump(host)
    assert fake(a).consumed[-1] == before, "b has its part of the block"
    _, batch = [event for event in events(b) if isinstance(event, Batch)]
    assert [(message.payload, message.number, message.position) for message in batch.each()] == [(b"2", 2, 2)]
    pump(host)
    assert fake(a).consumed[-1] == exchange.seq
    assert not a.channel.consumption.receipts


def test_groups_without_a_port_here_are_consumed_at_once() -> None:
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    (a,) = open_ports(one, "a")
    both = open_ports(two, "a", "b")
    pump(one, two)
    events(a)
    both[1].offer(b"not for x", AGREED)
    both[1].offer(bytes(150_000), AGREED)
    pump(one, two)
    assert not a.has_events
    assert fake(a).consumed[-1] == exchange.seq
    both[0].offer(b"for x", AGREED)
    pump(one, two)
    assert payloads(a) == [b"for x"]
    assert [len(payload) for payload in payloads(both[1])] == [9, 150_000]


def test_what_cannot_be_read_of_blocks_for_several_groups_is_passed_over() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    events(a), events(b)
    blocks = [
        pack_run(0, AGREED, [b"one", b"two"], 1),
        pack_grouped(2, AGREED, [b"three", b"four"], [1, 2]),
        pack_multi(4, AGREED, [b"five"], [1, 2]),
        pack_grouped(5, AGREED, [b"one", b"two"], [1, 2])[:40],  # its groups are not there
        pack_roster(5, b"no operation"),
        pack_multi(5, AGREED, [b"six"], [7, 8]),  # groups that there are not
    ]
    fake(a).pending.append(Run([Delivery(50 + at, 2 * at, 99, at, block) for at, block in enumerate(blocks)]))
    pump(host)
    got = [message for event in events(a) if isinstance(event, Batch) for message in event.each()]
    assert [(message.payload, message.groups) for message in got] == [
        (b"one", ("a",)),
        (b"two", ("a",)),
        (b"three", ("a",)),
        (b"five", ("a", "b")),
    ]
    assert payloads(b) == [b"four"], "a message to several groups comes to a session once"
    pump(host)
    assert fake(a).consumed[-1] == 55
    assert a.counters["unreadable_blocks"] == 1
    assert a.channel.shared is not None
    assert a.channel.shared.roster.unreadable == 1


def test_a_port_on_a_joined_underlay_begins_with_a_view_of_its_group() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    a.offer(b"before", AGREED)
    pump(host)
    b = host.open(0, "b", config=GroupConfig(), header=b"hello")
    assert b.view is None
    pump(host)
    (view,) = events(b)
    assert isinstance(view, View)
    assert (view.group, view.reason, view.header, view.came_with) == ("b", Reason.JOIN, b"hello", ("x/0",))
    assert view == b.view
    assert b.end_number == 1
    assert host.ports == [a, b]


def test_a_name_is_a_shared_underlay_or_a_group_and_not_both() -> None:
    host = make_host(Exchange())
    (a, own) = open_ports(host, "a", "alone")
    with pytest.raises(UsageError, match="as a group of its own"):
        host.open(0, "d", config=GroupConfig(), underlay="alone")
    with pytest.raises(UsageError, match="as a group of its own"):
        host.attach(0, "alone", config=GroupConfig())
    assert host.ports == [a, own]


def test_messages_offered_before_the_join_is_ordered_wait_for_it() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    exchange.is_open = False
    b = host.open(0, "b", config=GroupConfig())
    assert [b.offer(b"1", AGREED), a.offer(b"2", AGREED)] == [0, 1]
    b.offer_many([b"3", b"4"], AGREED)
    pump(host)
    assert b.number < 0
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert isinstance(b.take(), View), "first it is in"
    assert payloads(b) == [b"1", b"3", b"4"]
    assert payloads(a) == [b"2"]


def test_confirmed_sends_and_flushes_are_the_sessions() -> None:
    exchange = Exchange()
    exchange.is_open = False
    recorder = Recorder(None, "x", 0)
    host = make_host(exchange, recorder=recorder)
    a, b = open_ports(host, "a", "b")
    first = a.watch(a.offer(b"1", AGREED), 1, AGREED)
    second = b.watch(b.offer(b"2", SAFE), 2, SAFE)
    flush = a.flush()
    pump(host)
    assert a.take_settled() == []
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert b.take_settled() == [first, second, flush]
    confirms = [(row.underlay, row.group, row.first) for row in recorder.rows() if row.kind == "confirm"]
    assert confirms == [("floor", "a", 0), ("floor", "b", 1)]


def test_failure_and_reset_reach_every_group_of_the_underlay() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    exchange.fail("y is silent")
    pump(host)
    for port in (a, b):
        with pytest.raises(GroupFailed, match=f"'{port.group}' has failed"):
            port.check(1, AGREED, 0)
    host.reset(0, b, 1)
    pump(host)
    assert [len(port.resets) for port in (a, b)] == [1, 1]
    a.check(1, AGREED, 0)


def test_messages_lost_with_the_membership_are_named_by_group() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    events(a), events(b)
    exchange.is_open = False
    first = fake(a).next_block
    a.offer_many([b"1"] * 3, AGREED)
    b.offer_many([b"2"] * 2, AGREED)
    a.offer(b"3", SAFE)
    a.stream.offer_to(["b", "a"], b"4", AGREED)
    watch = b.watch(3, 5, AGREED)
    pump(host)
    exchange.waiting.clear()
    fake(a).pending += [UnknownOutcome(first, first + 3), Departed(wanted=False, returning=True, text="excluded")]
    pump(host)
    assert events(a) == [
        Uncertain(0, 3, "a"),
        Uncertain(5, 1, "a"),
        Left(wanted=False, returning=True, text="excluded", group="a"),
    ]
    assert events(b) == [
        Uncertain(3, 2, "b"),
        Uncertain(6, 1, "b"),
        Left(wanted=False, returning=True, text="excluded", group="b"),
    ]
    assert b.take_settled() == [watch]
    assert isinstance(watch.error, OutcomeUnknown)
    exchange.is_open = True
    b.offer(b"5", AGREED)
    exchange.install(Reason.CREATE, "x/0", b"", [fake(a)])
    pump(host)
    assert payloads(b) == [b"5"]


def test_what_waits_while_the_node_is_out_goes_to_its_groups_whatever_their_numbers_are_then() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b, c = open_ports(host, "a", "b", "c")
    numbers = a.number, b.number, c.number
    host.leave(a)
    pump(host)
    exchange.room_bytes = 0  # what is offered now stays in the queue
    c.offer(b"1", AGREED)
    b.offer(b"2", AGREED)
    c.offer(bytes(70_000), AGREED)
    b.stream.offer_to(["c", "b"], b"3", AGREED)
    fake(b).pending.append(Departed(wanted=False, returning=True, text="excluded"))
    pump(host)
    exchange.room_bytes = 1 << 20
    exchange.install(Reason.CREATE, "x/0", b"", [fake(b)])
    pump(host)
    assert (b.number, c.number) != numbers[1:]
    got_b, got_c = payloads(b), payloads(c)
    assert got_b == [b"2"]
    assert got_c == [b"1", bytes(70_000), b"3"]


def test_blocks_that_were_packed_before_the_node_was_out_are_made_anew() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    events(a), events(b)
    exchange.take_blocks = 0  # the engine takes nothing that has been packed
    for payload in (b"1", b"2"):
        b.offer(payload, AGREED)
    a.offer(b"3", SAFE)
    b.call(b"4", AGREED, 1)
    b.stream.offer_to(["a", "b"], b"5", AGREED)
    b.offer(bytes(70_000), AGREED)
    pump(host)
    assert b.stream.ready
    assert b.stream.queue.end_number == 6
    host.leave(a)
    fake(b).pending.append(Departed(wanted=False, returning=True, text="excluded"))
    pump(host)
    assert a.gone is not None
    assert not b.stream.ready
    assert (b.stream.queue.next_number, b.stream.queue.end_number) == (0, 6)
    exchange.take_blocks = 100
    exchange.install(Reason.CREATE, "x/0", b"", [fake(b)])
    pump(host)
    got = [message for event in events(b) if isinstance(event, Batch) for message in event.each()]
    assert [(message.number, len(message.payload)) for message in got] == [(0, 1), (1, 1), (3, 1), (4, 1), (5, 70_000)]


def test_locks_of_lightweight_groups_are_named_by_group_and_key() -> None:
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    a, b = open_ports(one, "a", "b")
    (other,) = open_ports(two, "a")
    pump(one, two)
    for port in (a, b):
        port.check_locks()
    mine, second = a.lock("key"), b.lock("key")
    pump(one, two)
    assert mine.is_held
    assert second.is_held, "another group, another lock"
    assert a.view is not None
    assert a.view.locks == {"key": one.me.id}
    theirs = other.lock("key")
    once = other.lock("key", tries_once=True)
    pump(one, two)
    assert not theirs.is_held
    assert isinstance(once.error, LockDenied)
    one.leave(a)
    pump(one, two)
    assert theirs.is_held, "what a session holds in a group goes back when it leaves the group"
    assert exchange.locks == {f"{other.number}:key": two.me.id, f"{b.number}:key": one.me.id}


def test_a_lock_that_is_granted_to_a_port_that_has_ended_goes_back() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, _ = open_ports(host, "a", "b")
    a.lock("key")
    number = a.number
    host.leave(a)
    run_pass(host)
    exchange.locks[f"{number}:key"] = host.me.id
    pump(host)
    assert a.gone is not None
    exchange.install(Reason.LOCK, "x/0", b"")
    pump(host)
    assert not exchange.locks


def test_requests_for_locks_are_made_again_after_a_recovery() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    exchange.locks[f"{a.number}:key"] = 99
    exchange.install(Reason.LOCK, "y/0", b"")
    pump(host)
    claim = a.lock("key", tries_once=True)
    fake(a).lock = lambda *_: None  # type: ignore[method-assign]  # the request is lost
    pump(host)
    assert claim.error is None
    del fake(a).lock
    exchange.install(Reason.RESET, "y/0", b"")
    pump(host)
    assert isinstance(claim.error, LockDenied)


def test_a_port_that_begins_to_use_locks_knows_those_of_its_group() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    exchange.locks[f"{a.number}:key"] = 99
    exchange.install(Reason.LOCK, "y/0", b"")
    pump(host)
    exchange.locks.clear()
    exchange.install(Reason.UNLOCK, "y/0", b"")
    pump(host)
    claim = a.lock("key")
    pump(host)
    assert claim.is_held


def test_calls_between_members_of_a_lightweight_group() -> None:
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    a, b = open_ports(one, "a", "b")
    (other,) = open_ports(two, "a")
    pump(one, two)
    served = other.serve(3)
    pump(one, two)
    assert served.is_held
    asked, unhandled = a.call(b"what?", AGREED, 3), b.call(b"anybody?", AGREED, 3)
    pump(one, two)
    assert served.inbox is not None
    taken = served.inbox.take()
    assert taken is not None
    assert (taken[1].payload, taken[1].group) == (b"what?", "a")
    assert other.answer(taken[0], b"that")
    pump(one, two)
    assert asked is not None
    assert asked.answer == b"that"
    assert unhandled is not None
    assert isinstance(unhandled.error, Unhandled), "the handler of another group is another one"
    with pytest.raises(UsageError, match="only members can send"):
        two.caller("b", datagram=1_400)


def test_ports_hear_of_a_recovery_with_the_first_thing_that_follows_it() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b, c = open_ports(host, "a", "b", "c")
    views = {port.group: port.view.id for port in (a, b, c) if port.view is not None}
    for port in (a, b, c):
        events(port)
    exchange.is_open = False
    for port, payload in ((a, b"1"), (b, b"2"), (a, b"3")):
        port.offer(payload, AGREED)
    pump(host)
    fake(a).pending.append(Transitional("underlay", ""))
    pump(host)
    assert not a.has_events, "nothing has followed yet"
    exchange.is_open = True
    exchange.order()
    exchange.install(Reason.RESET, "y/0", b"")
    pump(host)
    for port in (a, b):
        signal, batch = events(port)
        assert signal == Transitional(views[port.group], port.group)
        assert isinstance(batch, Batch)
    assert not c.has_events, "it got nothing that the recovery brought together, and its members are the same"
    a.offer(b"4", AGREED)
    pump(host)
    assert [type(event) for event in events(a)] == [Batch]


def test_a_long_seed_goes_on_over_a_view_that_comes_between() -> None:
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    names = [f"{number:05}".ljust(200, "-") for number in range(2_000)]
    for name in names:
        one.open(0, name, config=GroupConfig(), underlay="floor")
    pump(one)
    exchange.room_bytes = 0  # parts of the seed wait
    (other,) = open_ports(two, "a")
    pump(one, two)
    exchange.install(Reason.LOCK, "x/0", b"")
    pump(one, two)
    exchange.room_bytes = 1 << 20
    pump(one, two)
    assert other.is_member
    assert other.channel.shared is not None
    assert len(other.channel.shared.roster.groups) == len(names) + 1
