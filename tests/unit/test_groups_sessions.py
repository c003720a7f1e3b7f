"""Sessions of one node on a shared underlay, over a fake engine (docs/design/roster.md)."""

from __future__ import annotations

import pytest
from tests.unit.channels import attach, come_back, make_host, messages, open_ports, pump, two_sessions, views
from tests.unit.fake_engine import Exchange, events, fake, payloads

from ordercast.config import GroupConfig
from ordercast.engine import Delivery, Run
from ordercast.errors import UsageError
from ordercast.groups.consumption import PORT_BYTES, SESSION_BYTES
from ordercast.groups.events import Answer, Batch, Left, Request
from ordercast.service import AGREED, FIFO, SAFE, UNRELIABLE
from ordercast.view import Reason, View, id_of, node_id
from ordercast.wire.block import head_of, label_of, pack_run, with_label

SECOND = 1_000_000_000


# Who they are. -------------------------------------------------------------------------------------------------------


def test_members_of_a_group_are_sessions_and_have_ids_of_their_own() -> None:
    host = make_host(Exchange())
    (own,) = open_ports(host, "a")
    (ann,), (bob,) = two_sessions(host, "a")
    last = views(events(own))[-1]
    assert [str(member) for member in last.members] == ["x/0", "ann@x/0", "bob@x/0"]
    assert [(member.name, member.life, member.label) for member in last.members] == [
        ("x", 0, ""),
        ("x", 0, "ann"),
        ("x", 0, "bob"),
    ]
    assert last.members[0] == host.me
    assert [member.id for member in last.members] == [id_of(str(member)) for member in last.members]
    assert len({member.id for member in last.members}) == 3
    assert last.members[1].id == node_id("ann@x", 0)
    assert last.member(ann.me.id) == ann.me
    assert (own.me, str(bob.me), last.subject) == (host.me, "bob@x/0", "bob@x/0")
    assert "label" not in repr(host.me), "programs that print members see what they always saw"


def test_each_session_comes_with_those_that_were_there_and_alone_at_first() -> None:
    host = make_host(Exchange())
    (ann,), (bob,) = two_sessions(host, "a")
    (own,) = open_ports(host, "a")
    pump(host)
    assert [view.came_with for view in views(events(ann))] == [
        ("ann@x/0",),
        ("ann@x/0",),
        ("ann@x/0", "bob@x/0"),
    ]
    assert [view.came_with for view in views(events(bob))] == [("bob@x/0",), ("ann@x/0", "bob@x/0")]
    assert [view.came_with for view in views(events(own))] == [("x/0",)]


def test_sessions_of_two_nodes_see_the_same_views() -> None:
    exchange = Exchange()
    one, two = make_host(exchange, "x"), make_host(exchange, "y")
    ports = [*open_ports(one, "a", session=one.open_session("ann"))]
    pump(one, two)
    ports += open_ports(two, "a", session=two.open_session("ann"))
    pump(one, two)
    ports += open_ports(two, "a", session=two.open_session("bob"))
    pump(one, two)
    last = [views(events(port))[-1] for port in ports]
    assert {view.id for view in last} == {last[0].id}
    assert [str(member) for member in last[2].members] == ["ann@x/0", "ann@y/0", "bob@y/0"]
    assert [view.came_with for view in last] == [("ann@x/0", "ann@y/0")] * 2 + [("bob@y/0",)]


@pytest.mark.parametrize("label", ["a@b", "a/b", "a\tb", "x" * 65])
def test_a_label_that_would_not_be_a_name_is_refused(label: str) -> None:
    host = make_host(Exchange())
    with pytest.raises(UsageError, match="the label of a session has"):
        host.open_session(label)
    with pytest.raises(UsageError, match="is empty"):
        host.open_session("")
    assert host.sessions == [host.session]


def test_a_label_is_unique_at_its_node() -> None:
    host = make_host(Exchange())
    ann = host.open_session("ann")
    with pytest.raises(UsageError, match="unique at its node"):
        host.open_session("ann")
    assert host.sessions == [host.session, ann]


def test_labelled_sessions_are_in_groups_of_shared_underlays_only() -> None:
    host = make_host(Exchange())
    ann = host.open_session("ann")
    with pytest.raises(UsageError, match="shared underlays only"):
        open_ports(host, "alone", session=ann)
    assert host.ports == []


def test_a_session_joins_a_group_once_and_others_may_as_well() -> None:
    host = make_host(Exchange())
    (ann,), (bob,) = two_sessions(host, "a")
    with pytest.raises(UsageError, match="the session 'ann' is in 'a' already"):
        open_ports(host, "a", session=ann.stream.session)
    assert bob.is_member


# Messages. -----------------------------------------------------------------------------------------------------------


def test_each_session_of_a_group_gets_its_own_copy_under_the_name_of_the_sender() -> None:
    exchange = Exchange()
    host, far = make_host(exchange, "x"), make_host(exchange, "y")
    (ann,), (bob,) = two_sessions(host, "a")
    (own,) = open_ports(far, "a")
    pump(host, far)
    assert [ann.offer(b"1", AGREED), bob.offer(b"2", AGREED), ann.offer(b"3", FIFO), own.offer(b"4", SAFE)] == [
        0,
        0,
        1,
        0,
    ]
    pump(host, far)
    found = [
        [(each.sender, each.number, each.payload, each.position) for each in messages(port)] for port in (ann, bob, own)
    ]
    assert found[0] == found[1] == found[2]
    assert sorted(each[:3] for each in found[0]) == [
        ("ann@x/0", 0, b"1"),
        ("ann@x/0", 1, b"3"),
        ("bob@x/0", 0, b"2"),
        ("y/0", 0, b"4"),
    ]
    assert ann.counters["messages_sent"] == 2
    assert ann.counters["messages_delivered"] == 4


def test_only_blocks_of_labelled_sessions_carry_a_label() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (own,) = open_ports(host, "a")
    (ann,), _ = two_sessions(
        host,
        "a",
    )
    before = len(fake(own).sent_blocks)
    own.offer(b"plain", AGREED)
    ann.offer(b"hers", AGREED)
    pump(host)
    blocks = fake(own).sent_blocks[before:]
    assert sorted(label_of(block) for block in blocks) == ["", "ann"]
    assert pack_run(0, AGREED, [b"plain"], own.number) in blocks
    assert with_label(pack_run(0, AGREED, [b"hers"], own.number), b"ann") in blocks


def test_messages_of_many_groups_and_to_several_go_through_one_numbering_of_the_session() -> None:
    host = make_host(Exchange())
    ann, bob = two_sessions(host, "a", "b")
    for port in (*ann, *bob):
        events(port)
    stream = ann[0].stream
    assert stream.offer_many_to([b"1", b"2"], AGREED, 0, [1, 1], ann, numbered=2) == 2
    assert stream.offer_to(["b", "a"], b"3", AGREED) == 2
    assert stream.offer_to(["c"], b"4", AGREED) == 3
    assert ann[1].offer(b"5", AGREED) == 4
    pump(host)
    assert [(each.number, each.payload) for each in messages(ann[0])] == [(0, b"1")]
    assert [(each.number, each.payload, each.groups) for each in messages(ann[1])] == [
        (1, b"2", ("b",)),
        (2, b"3", ("b", "a")),
        (4, b"5", ("b",)),
    ]
    assert [each.sender for each in messages(bob[0])] == ["ann@x/0"], "by the first of its groups that are named"
    assert [each.payload for each in messages(bob[1])] == [b"2", b"3", b"5"]


def test_confirmations_come_to_the_session_that_asked() -> None:
    host = make_host(Exchange())
    (ann,), (bob,) = two_sessions(host, "a")
    ann.offer(b"1", AGREED)
    bob.offer(b"2", AGREED)
    watch = bob.watch(0, 1, AGREED)
    flush = ann.flush()
    assert flush is not None
    pump(host)
    assert ann.take_settled() == [flush]
    assert bob.take_settled() == [watch]
    assert watch.error is None


def test_a_session_receives_all_its_groups_in_one_order() -> None:
    host = make_host(Exchange())
    session = host.open_session("ann")
    base = attach(host, session)
    base.stream.feed()
    ports = open_ports(host, "a", "b", session=session)
    (own,) = open_ports(host, "a")
    pump(host)
    ports[0].stream.offer_many_to([b"1", b"2", b"3"], AGREED, 0, [1, 1, 1], [ports[0], ports[1], ports[0]], numbered=2)
    own.offer(b"4", AGREED)
    pump(host)
    found = messages(base)
    assert sorted((each.payload, each.group, each.sender) for each in found) == [
        (b"1", "a", "ann@x/0"),
        (b"2", "b", "ann@x/0"),
        (b"3", "a", "ann@x/0"),
        (b"4", "a", "x/0"),
    ]
    assert [each.position for each in found] == sorted(each.position for each in found)
    assert payloads(ports[0]) == []
    assert sorted(payloads(own)) == [b"1", b"3", b"4"]


def test_large_messages_of_two_sessions_go_one_after_the_other() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    events(ann), events(bob)
    exchange.room_bytes = 30_000
    ann.offer(b"a" * 200_000, AGREED)
    bob.offer(b"b" * 200_000, AGREED)
    bob.offer(b"small", AGREED)
    for _ in range(5):
        pump(host)
    blocks = [block for block in fake(ann).sent_blocks if head_of(block).count == 0 and label_of(block)]
    labels = [label_of(block) for block in blocks]
    assert len(labels) > 8
    assert labels == sorted(labels) or labels == sorted(labels, reverse=True), "they are not mixed"
    for port in (ann, bob):
        assert sorted((len(payload), payload[:1]) for payload in payloads(port)) == [
            (5, b"s"),
            (200_000, b"a"),
            (200_000, b"b"),
        ]
    assert host.ports[0].counters["dropped_fragments"] == 0


def test_a_message_that_just_fits_a_block_goes_with_the_label_as_well() -> None:
    for size in range(59_900, 60_010, 7):
        exchange = Exchange()
        host = make_host(exchange)
        (ann,), _ = two_sessions(host, "a")
        ann.offer(bytes(size), AGREED)
        ann.stream.offer_to(["a", "b"], bytes(size), AGREED)
        for _ in range(3):
            pump(host)
        assert [len(payload) for payload in payloads(ann)] == [size, size]
        assert max(map(len, fake(ann).sent_blocks)) <= exchange.largest


def test_sessions_take_turns() -> None:
    """One that has always something to send does not keep the others from sending."""
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    events(ann), events(bob)
    exchange.take_blocks = 1
    exchange.room_bytes = 1_000
    ann.offer_many([b"a" * 500] * 300, AGREED)
    bob.offer_many([b"b" * 500] * 300, AGREED)
    for _ in range(3):
        pump(host)
    found = payloads(bob)
    first_fifty = [payload[:1] for payload in found[:50]]
    assert 10 <= first_fifty.count(b"a") <= 40


def test_sessions_see_calls_and_answers_of_the_others_and_locks_in_their_views() -> None:
    host = make_host(Exchange())
    (own,) = open_ports(host, "a")
    (ann,), (bob,) = two_sessions(host, "a")
    claim = own.serve(2)
    pump(host)
    assert claim.is_held
    events(own), events(bob)
    assert views(events(ann))[-1].locks == {"2": host.me.id}
    assert ann.is_member
    assert not ann.is_waiting
    own.call(b"what?", AGREED, 2)
    pump(host)
    (mine,), (request,) = messages(own), messages(ann)
    assert isinstance(mine, Request)
    assert mine.must_answer
    assert isinstance(request, Request)
    assert (request.payload, request.handler, request.must_answer, request.sender) == (b"what?", 2, False, "x/0")
    assert own.answer(mine.owed, b"that")  # type: ignore[arg-type]
    pump(host)
    (answer,) = messages(ann)
    assert isinstance(answer, Answer)
    assert (answer.payload, answer.answers) == (b"that", ("x/0", 0))
    assert [type(each) for each in messages(bob)] == [Request, Answer]


def test_a_session_that_leaves_does_not_take_the_locks_of_the_node_with_it() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (own,) = open_ports(host, "a")
    (ann,), _ = two_sessions(host, "a")
    claim = own.lock("red")
    pump(host)
    assert claim.is_held
    host.leave(ann)
    pump(host)
    assert ann.gone is not None
    assert exchange.locks
    assert claim.is_held
    assert ("unlock", f"{own.number}:red") not in fake(own).steps
    host.leave(own)
    pump(host)
    assert not exchange.locks, "with the node's own session they go, although bob is still there"


def test_an_unreliable_message_of_a_session_comes_to_the_others() -> None:
    exchange = Exchange()
    exchange.has_unreliable = True
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    ann.offer(b"1", UNRELIABLE)
    watch = ann.watch(0, 1, UNRELIABLE)
    pump(host)
    assert [(each.sender, each.payload, each.position) for each in messages(bob)] == [("ann@x/0", b"1", -1)]
    assert ann.take_settled() == [watch], "its label says which session has sent it"
    assert (watch.error, watch.position) == (None, -1)


# Open and close. -----------------------------------------------------------------------------------------------------


def test_a_session_that_is_closed_leaves_its_groups_in_order_after_what_it_sent() -> None:
    host = make_host(Exchange())
    ann, bob = two_sessions(host, "a", "b")
    for port in bob:
        events(port)
    ann[0].offer(b"last words", AGREED)
    host.close_session(ann[0].stream.session, b"bye")
    assert len(host.sessions) == 2
    pump(host)
    found = events(bob[0])
    assert [type(event) for event in found] == [Batch, View]
    view = views(found)[0]
    assert (view.reason, view.subject, view.header) == (Reason.LEAVE, "ann@x/0", b"bye")
    assert [str(member) for member in view.members] == ["bob@x/0"]
    assert [port.gone is not None for port in (*ann, *bob)] == [True, True, False, False]
    assert isinstance(events(ann[1])[-1], Left)
    assert ann[0].stream.session.streams == {}
    with pytest.raises(UsageError, match="has been closed"):
        open_ports(host, "a", session=ann[0].stream.session)
    with pytest.raises(UsageError, match="has been closed"):
        attach(host, ann[0].stream.session)


def test_a_label_is_free_when_its_session_is_out_and_its_numbers_go_on() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    ann.offer_many([b"1", b"2"], AGREED)
    pump(host)
    host.close_session(ann.stream.session)
    with pytest.raises(UsageError, match="still leaving its groups"):
        host.open_session("ann")
    pump(host)
    again = host.open_session("ann")
    (port,) = open_ports(host, "a", session=again)
    pump(host)
    events(bob)
    assert port.offer(b"3", AGREED) == 2
    pump(host)
    assert [(each.sender, each.number, each.payload) for each in messages(bob)] == [("ann@x/0", 2, b"3")]


def test_a_session_that_never_sent_leaves_nothing_behind() -> None:
    host = make_host(Exchange())
    session = host.open_session("ann")
    host.close_session(session)
    with pytest.raises(UsageError, match="no session that open_session"):
        host.close_session(session)
    with pytest.raises(UsageError, match="no session that open_session"):
        host.close_session(host.session)
    assert host.open_session("ann") is not session


def test_the_last_session_that_goes_takes_the_node_out_of_the_underlay() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    host.close_session(ann.stream.session)
    pump(host)
    assert exchange.members
    host.close_session(bob.stream.session)
    pump(host)
    assert not exchange.members
    assert host.underlays == []
    assert [port.gone is not None for port in (ann, bob)] == [True, True]


def test_a_base_port_keeps_the_node_in_while_sessions_come_and_go() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = attach(host, host.session)
    host.finish(0)
    for turn in range(3):
        (ann,) = open_ports(host, "a", session=host.open_session("ann"))
        pump(host)
        assert ann.offer(b"1", AGREED) == turn
        pump(host)
        assert payloads(ann) == [b"1"]
        host.close_session(ann.stream.session)
        pump(host)
    assert base.is_member
    assert host.ports == [base]


def test_a_join_that_is_given_up_by_a_close_is_taken_back() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    attach(host, host.session)
    pump(host)
    exchange.is_open = False
    (ann,) = open_ports(host, "a", session=host.open_session("ann"))
    pump(host)
    host.close_session(ann.stream.session)
    pump(host)
    assert ann.gone is not None
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert host.ports[0].channel.shared is not None
    assert host.ports[0].channel.shared.roster.groups == {}


def test_a_session_that_ends_in_the_middle_of_a_large_message_completes_it() -> None:
    """Others would wait for its end, and let nobody join."""
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    events(bob)
    exchange.room_bytes = 50_000
    exchange.is_open = False
    ann.offer(b"a" * 400_000, AGREED)
    ann.offer(b"never sent", AGREED)
    host.touch(ann)
    host.finish(0)
    assert ann.stream.queue.has_begun
    exchange.room_bytes = 200
    host.close_session(ann.stream.session)
    pump(host)
    pump(host, now_ns=4 * SECOND)
    exchange.is_open = True
    exchange.order()
    pump(host, now_ns=8 * SECOND)
    assert ann.gone is not None
    with pytest.raises(UsageError, match="still leaving"):
        host.open_session("ann")
    exchange.room_bytes = 50_000
    for _ in range(3):
        pump(host, now_ns=8 * SECOND)
    assert [len(payload) for payload in payloads(bob)] == [400_000]
    (port,) = open_ports(host, "a", session=host.open_session("ann"))
    assert port.offer(b"2", AGREED) == 1, "the number of what was never sent is free"


# The node comes back. ------------------------------------------------------------------------------------------------


def test_all_sessions_of_a_node_that_was_out_join_again() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (own,) = open_ports(host, "a")
    (ann,), (bob,) = two_sessions(host, "a")
    ann.offer(b"1", AGREED)
    pump(host)
    for port in (own, ann, bob):
        events(port)
    come_back(exchange, host, own)
    for port in (own, ann, bob):
        found = events(port)
        assert isinstance(found[0], Left)
        assert found[0].returning
        assert [str(member) for member in views(found)[-1].members] == ["x/0", "ann@x/0", "bob@x/0"]
    assert ann.offer(b"2", AGREED) == 1
    pump(host)
    assert [(each.sender, each.number) for each in messages(bob)] == [("ann@x/0", 1)]


def test_names_that_a_closed_session_had_asked_for_are_given_back() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = attach(host, host.session)
    pump(host)
    session = host.open_session("ann")
    hers = attach(host, session)
    pump(host)
    assert hers.stream.offer_to(["b"], b"1", AGREED) == 0
    pump(host)
    shared = base.channel.shared
    assert shared is not None
    assert shared.roster.groups["b"].namers == ((host.me.id, "ann"),)
    exchange.is_open = False
    hers.stream.offer_to(["c"], b"2", AGREED)  # its name is under way when the session goes
    pump(host)
    host.close_session(session)
    pump(host)
    pump(host, now_ns=4 * SECOND)
    assert hers.gone is not None
    exchange.is_open = True
    exchange.order()
    pump(host, now_ns=4 * SECOND)
    assert shared.roster.groups == {}


# One slow session. ---------------------------------------------------------------------------------------------------


def test_a_session_that_does_not_receive_holds_so_much_and_then_holds_up_the_underlay() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    ann, bob = two_sessions(host, *"abc")
    session = ann[0].stream.session
    ann += [host.open(0, f"g{at}", config=GroupConfig(), session=session, underlay="floor") for at in range(6)]
    pump(host)
    for port in (*ann, *bob):
        events(port)
    stream = ann[0].stream
    block = bytes(50_000)
    for port in ann:
        while port.held_bytes + 50_064 <= PORT_BYTES and stream.held_bytes + 50_064 <= SESSION_BYTES:
            assert port.offer(block, AGREED) >= 0
            pump(host)
            for other in bob:
                events(other)
    assert stream.held_bytes <= SESSION_BYTES < stream.held_bytes + 100_000
    assert not any(port.is_holding_up for port in ann)
    before = stream.held_bytes
    assert bob[0].offer(block, AGREED) >= 0
    pump(host)
    assert ann[0].is_holding_up
    assert stream.held_bytes == before
    assert not any(port.is_holding_up for port in bob if not port.has_events)
    assert bob[0].stream.held_bytes <= 60_000, "what another session holds is its own account"
    for port in (*ann, *bob):
        events(port)
        port.finish_taken()
    pump(host)
    assert (stream.held_bytes, bob[0].stream.held_bytes, ann[0].channel.consumption.held_bytes) == (0, 0, 0)


def test_a_session_that_receives_in_one_order_holds_as_much_on_its_own_account() -> None:
    host = make_host(Exchange())
    session = host.open_session("ann")
    base = attach(host, session)
    base.stream.feed()
    (port,) = open_ports(host, "a", session=session)
    pump(host)
    for _ in range(20):
        port.offer(bytes(50_000), AGREED)
        pump(host)
    assert base.held_bytes == base.stream.held_bytes > 20 * 50_000
    assert not base.is_holding_up
    events(base)
    base.finish_taken()
    assert base.stream.held_bytes == 0


def test_the_log_names_the_session_that_the_others_wait_for() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), (bob,) = two_sessions(host, "a")
    for _ in range(100):
        bob.offer(bytes(50_000), AGREED)
        pump(host)
        events(bob)
        bob.finish_taken()
    assert ann.is_holding_up
    host.take_log()
    for tick in range(12):
        pump(host, now_ns=tick * SECOND // 2)
    texts = [line.text for _, line in host.take_log()]
    assert any("the session 'ann' of this node has received nothing" in text for text in texts), texts


# Hostile bytes. ------------------------------------------------------------------------------------------------------


def test_a_block_with_a_label_that_nobody_may_have_is_counted_and_passed_over() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), _ = two_sessions(host, "a")
    events(ann)
    for label in (b"a@b", b"\xff", b"x/y"):
        exchange.seq += 1
        block = with_label(pack_run(0, AGREED, [b"hi"], ann.number), label)
        fake(ann).pending.append(Run([Delivery(exchange.seq, exchange.position, 77, 0, block)]))
    pump(host)
    assert events(ann) == []
    assert ann.counters["unreadable_blocks"] == 3
    assert fake(ann).consumed[-1] == exchange.seq


def test_a_session_of_a_sender_that_nobody_knows_has_the_number_of_its_node() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (ann,), _ = two_sessions(host, "a")
    events(ann)
    exchange.seq += 1
    block = with_label(pack_run(0, AGREED, [b"hi"], ann.number), b"eve")
    fake(ann).pending.append(Run([Delivery(exchange.seq, exchange.position, 77, 0, block)]))
    pump(host)
    assert [each.sender for each in messages(ann)] == ["eve@000000000000004d"]
