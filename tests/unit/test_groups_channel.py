"""Channels, streams and sessions, driven pass by pass over a fake engine: several groups, and several sessions."""

from __future__ import annotations

import random

import pytest
from tests.unit.fake_engine import Exchange, FakeEngine, events, fake, payloads
from tests.unit.shared_directory import SharedDirectory

from ordercast.config import GroupConfig
from ordercast.engine import Delivery, Departed, Note, Run, UnknownOutcome
from ordercast.errors import GroupFailed, NotMember, OutcomeUnknown, UsageError
from ordercast.groups.events import Batch, Left, Uncertain
from ordercast.groups.host import MAX_LOG, Host
from ordercast.groups.port import LEAVE_PATIENCE_NS, Port
from ordercast.groups.session import Session
from ordercast.service import AGREED, RELIABLE, SAFE
from ordercast.trace.recorder import Recorder
from ordercast.view import Reason, View, group_tag
from ordercast.wire.block import ENTRY, HEAD_BYTES, pack_grouped, pack_multi, pack_roster, pack_run
from ordercast.wire.header import HEADER, MAGIC, Kind

FLOOR = SharedDirectory("floor", "a", "b", "c")


def make_host(exchange: Exchange, name: str = "x", recorder: Recorder | None = None) -> Host:
    return Host(
        name,
        0,
        ("127.0.0.1", 1),
        buffer_bytes=1 << 20,
        rng=random.Random(1),
        recorder=recorder,
        engines=exchange,
        directory=FLOOR,
    )


def open_ports(host: Host, *groups: str, session: Session | None = None) -> list[Port]:
    ports = [host.open(0, group, config=GroupConfig(), session=session) for group in groups]
    host.finish(0)
    return ports


def run_pass(host: Host, now_ns: int = 0) -> None:
    for port in host.ports:
        host.touch(port)
    host.expire(now_ns)
    host.finish(now_ns)


def pump(*hosts: Host, now_ns: int = 0) -> None:
    for _ in range(20):
        for host in hosts:
            run_pass(host, now_ns)


def groups_of(engine: FakeEngine) -> list[int]:
    return [ENTRY.unpack_from(block, HEAD_BYTES)[0] for block in engine.sent_blocks]


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


def test_blocks_are_cut_where_the_group_changes() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    a.offer_many([b"x"] * 10, AGREED)
    a.offer(b"y", AGREED)
    b.offer_many([b"x"] * 10, AGREED)
    a.offer(bytes(100_000), AGREED)
    run_pass(host)
    assert groups_of(fake(a)) == [1, 2, 1, 1]


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
    assert host.open_channels == 2


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
    for port, payload in ((a, b"1"), (b, b"2"), (a, b"3"), (a, b"4")):
        port.offer(payload, AGREED)
    pump(host)
    assert payloads(a) == [b"1", b"3", b"4"]
    pump(host)
    assert fake(a).consumed == [], "b has not even taken the view, which stands before everything"
    assert isinstance(b.take(), View)
    pump(host)
    assert fake(a).consumed == [2], "the first block of a; that of b is still queued"
    assert isinstance(b.take(), Batch)
    pump(host)
    assert fake(a).consumed == [2], "and now it is being read"
    assert b.take() is None
    pump(host)
    assert fake(a).consumed == [2, 4]


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


def test_blocks_for_several_groups_and_roster_blocks_are_passed_over() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    events(a), events(b)
    exchange.seq += 1
    blocks = [
        pack_run(0, AGREED, [b"one", b"two"], 1),
        pack_grouped(2, AGREED, [b"one", b"two"], [1, 2]),
        pack_multi(4, AGREED, [b"one"], [1, 2]),
        pack_grouped(5, AGREED, [b"one", b"two"], [1, 2])[:40],  # its groups are not there
        pack_roster(5, b"an operation"),
    ]
    fake(a).pending.append(Run([Delivery(50 + at, at, 99, at, block) for at, block in enumerate(blocks)]))
    pump(host)
    assert payloads(a) == [b"one", b"two"]
    assert payloads(b) == []
    pump(host)
    assert fake(a).consumed[-1] == 54


def test_a_port_on_a_joined_underlay_begins_with_its_view() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    a.offer(b"before", AGREED)
    pump(host)
    (b,) = open_ports(host, "b")
    assert events(b) == [a.view]
    assert b.end_number == 1
    with pytest.raises(UsageError, match="orderer='token'"):
        host.open(0, "c", config=GroupConfig(orderer="sequencer"))
    assert host.ports == [a, b]


@pytest.mark.parametrize("number", [1, -1, 1 << 32])
def test_a_group_without_a_number_of_its_own_is_not_opened(number: int) -> None:
    directory = SharedDirectory("floor", "a")
    directory.numbers["odd"] = number
    host = Host("x", 0, ("127.0.0.1", 1), buffer_bytes=1, rng=random.Random(1), engines=Exchange(), directory=directory)
    (a,) = open_ports(host, "a")
    with pytest.raises(UsageError, match="number"):
        open_ports(host, "odd")
    assert host.ports == [a]


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
    a.offer_many([b"1"] * 3, AGREED)
    b.offer_many([b"2"] * 2, AGREED)
    a.offer(b"3", SAFE)
    watch = b.watch(3, 5, AGREED)
    pump(host)
    exchange.waiting.clear()
    fake(a).pending += [UnknownOutcome(0, 3), Departed(wanted=False, returning=True, text="excluded")]
    pump(host)
    left = Left(wanted=False, returning=True, text="excluded")
    assert events(a) == [Uncertain(0, 3), Uncertain(5, 1), left]
    assert events(b) == [Uncertain(3, 2), left]
    assert b.take_settled() == [watch]
    assert isinstance(watch.error, OutcomeUnknown)
    exchange.is_open = True
    exchange.install(Reason.JOIN, "x/0", b"", [fake(a)])
    b.offer(b"4", AGREED)
    pump(host)
    assert payloads(b) == [b"4"]


def test_locks_and_calls_need_an_underlay_of_their_own() -> None:
    host = make_host(Exchange())
    a, own = open_ports(host, "a", "alone")
    with pytest.raises(UsageError, match="shares the underlay 'floor'"):
        a.check_locks()
    own.check_locks()
    with pytest.raises(UsageError, match="only members can send"):
        host.caller("b", datagram=1_400)


# Leaving. -----------------------------------------------------------------------------------------------------------


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
    assert a.gone == Left(wanted=True, returning=False, text="left")
    assert exchange.members, "b is still there"
    assert host.ports == [b]
    assert payloads(a) == [b"last words"]
    with pytest.raises(NotMember):
        a.check(1, AGREED, 0)
    host.leave(b, b"bye")
    pump(host)
    assert not exchange.members
    assert (host.ports, host.port("b"), b.is_member) == ([], None, False)
    (again,) = open_ports(host, "b")
    assert again.end_number == 2, "the numbering goes on"
    assert fake(again).options["next_block"] == 2


def test_what_a_port_that_left_has_not_taken_holds_no_buffers() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    events(b)
    a.offer(b"1", AGREED)
    pump(host)
    assert fake(a).consumed == []
    host.leave(a)
    pump(host)
    assert fake(a).consumed == [2]
    assert payloads(a) == [b"1"]
    b.offer(b"2", AGREED)
    pump(host)
    events(b)
    pump(host)
    assert fake(b).consumed == [2, 3]


def test_a_leave_that_is_held_up_is_not_waited_for_forever() -> None:
    exchange = Exchange()
    exchange.is_open = False
    host = make_host(exchange)
    a, _ = open_ports(host, "a", "b")
    a.offer(b"1", AGREED)
    host.leave(a)
    pump(host)
    assert host.deadline_ns() == LEAVE_PATIENCE_NS
    pump(host, now_ns=LEAVE_PATIENCE_NS)
    assert a.gone is not None


def test_a_group_is_not_opened_on_an_underlay_that_is_being_left() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    fake(a).leave = lambda *_: None  # type: ignore[method-assign]  # the leave takes its time
    host.leave(a)
    run_pass(host)
    with pytest.raises(UsageError, match="wait until it is out"):
        open_ports(host, "b")


# Several sessions. --------------------------------------------------------------------------------------------------


def test_sessions_of_one_node_have_their_own_numbers_events_and_waits() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    other = Session()
    (mine,) = open_ports(host, "a")
    theirs, alone = open_ports(host, "a", "b", session=other)
    assert len(exchange.engines) == 1
    events(mine), events(theirs), events(alone)
    assert [mine.offer(b"1", AGREED), theirs.offer(b"2", AGREED), alone.offer(b"3", AGREED)] == [0, 0, 1]
    watch = alone.watch(1, 2, AGREED)
    pump(host)
    assert mine.take_settled() == []
    assert theirs.take_settled() == [watch]
    assert payloads(mine) == [b"1", b"2"]
    pump(host)
    before = fake(mine).consumed[-1:]
    assert payloads(theirs) == [b"1", b"2"]
    assert payloads(alone) == [b"3"]
    pump(host)
    assert before == []
    assert fake(mine).consumed == [exchange.seq]


def test_a_session_that_ends_leaves_the_others_in() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    other = Session()
    (mine,) = open_ports(host, "a")
    (theirs,) = open_ports(host, "a", session=other)
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
    assert payloads(mine) == [b"1", b"2"]


def test_news_name_ports_that_ended_once() -> None:
    host = make_host(Exchange())
    a, b = open_ports(host, "a", "b")
    assert host.take_news() == [a, b]
    host.leave(a)
    run_pass(host)
    run_pass(host)
    assert host.take_news() == [b, a]
    run_pass(host)
    assert host.take_news() == [b]


def test_membership_notes_are_kept_for_the_drivers_log_and_bounded() -> None:
    host = make_host(Exchange())
    (a,) = open_ports(host, "a")
    a.channel.out.notes.append(Note("membership", 0, detail="y is suspected: silent for 1.3 s"))
    run_pass(host)
    assert host.has_log
    assert host.take_log() == [("floor", "y is suspected: silent for 1.3 s")]
    assert not host.has_log
    a.channel.out.notes += [Note("membership", 0, detail=f"{number}") for number in range(MAX_LOG + 5)]
    run_pass(host)
    assert [text for _, text in host.take_log()] == [f"{number}" for number in range(5, MAX_LOG + 5)]
