"""Host and port, driven pass by pass without network or clock (docs/design/host.md)."""

from __future__ import annotations

import random

import pytest
from tests.unit.fake_engine import Exchange, events, fake, payloads

from ordercast.config import GroupConfig
from ordercast.engine import NEVER, Departed, UnknownOutcome
from ordercast.errors import (
    GroupFailed,
    MessageTooLarge,
    NotMember,
    OutcomeUnknown,
    UnsupportedService,
    UsageError,
)
from ordercast.groups.events import Batch, Left, Uncertain
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.queue import QUEUE_BYTES
from ordercast.service import AGREED, RELIABLE, RESILIENT, SAFE, UNRELIABLE
from ordercast.trace.recorder import Recorder
from ordercast.view import Reason, View, group_tag
from ordercast.wire.block import head_of
from ordercast.wire.header import HEADER, MAGIC, Kind


def make_host(exchange: Exchange, name: str = "a", recorder: Recorder | None = None) -> Host:
    return Host(
        name,
        0,
        ("127.0.0.1", 1),
        buffer_bytes=1 << 20,
        rng=random.Random(1),
        recorder=recorder,
        engines=exchange,
    )


def open_port(host: Host, group: str = "g", config: GroupConfig | None = None) -> Port:
    port = host.open(0, group, config=config or GroupConfig())
    host.finish(0)
    return port


def pump(*hosts: Host, now_ns: int = 0) -> None:
    """Passes until nobody has anything more to do."""
    for _ in range(50):
        for host in hosts:
            for port in host.ports:
                host.touch(port)
            host.expire(now_ns)
            host.finish(now_ns)


def test_messages_sent_between_two_passes_leave_as_one_block() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    for index in range(100):
        assert port.offer(b"%d" % index, AGREED) == index
    port.offer_many([b"x" * 10] * 50, AGREED)
    host.touch(port)
    sends = host.finish(0)
    assert len(sends) == 1
    assert sends[0][0] == "g"
    assert head_of(fake(port).sent_blocks[0]).count == 150
    assert payloads(port) == [b"%d" % index for index in range(100)] + [b"x" * 10] * 50


def test_blocks_hold_one_service_and_one_type_and_keep_their_order() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    sent = [(b"1", AGREED, 0), (b"2", SAFE, 0), (b"3", SAFE, 7), (b"4", SAFE, 7), (b"5", RESILIENT(2), 7)]
    for payload, service, type_ in sent:
        port.offer(payload, service, type_)
    host.touch(port)
    host.finish(0)
    got = [
        (message.payload, message.service, message.type)
        for event in events(port)
        if isinstance(event, Batch)
        for message in event.each()
    ]
    assert got == sent
    assert len(fake(port).sent_blocks) == 4


@pytest.mark.parametrize("largest", [120, 1_000, 60_000])
@pytest.mark.parametrize("seed", range(5))
def test_any_mixture_of_sizes_arrives_whole_and_in_order(largest: int, seed: int) -> None:
    rng = random.Random(seed)
    exchange = Exchange()
    exchange.largest = largest
    host = make_host(exchange)
    port = open_port(host)
    sent: list[bytes] = []
    got: list[bytes] = []
    for _ in range(60):
        size = rng.choice([0, 1, 10, 100, 100, 100, 1_000, 5_000])
        many = [rng.randbytes(rng.choice([size, size, rng.randrange(200)])) for _ in range(rng.choice([1, 1, 5, 50]))]
        service = rng.choice([AGREED, AGREED, SAFE])
        exchange.room_bytes = rng.choice([100, 1_000, 1 << 20])
        if len(many) == 1:
            assert port.offer(many[0], service) == len(sent)
        else:
            assert port.offer_many(many, service) == len(many)
        sent += many
        host.touch(port)
        host.finish(0)
        got += payloads(port)
    exchange.room_bytes = 1 << 20
    for _ in range(2_000):
        host.touch(port)
        host.finish(0)
        got += payloads(port)
    assert got == sent
    assert max(map(len, fake(port).sent_blocks)) <= largest


def test_large_message_flows_through_a_small_window_and_frees_it_on_the_way() -> None:
    """Nothing of it is queued for the application before it is whole, so its fragments are consumed at once."""
    exchange = Exchange()
    exchange.room_bytes = 64_000
    host = make_host(exchange)
    port = open_port(host)
    events(port)
    message = random.Random(3).randbytes(16 << 20)
    port.offer(b"before", AGREED)
    port.offer(message, AGREED)
    host.touch(port)
    host.finish(0)
    assert payloads(port) == [b"before"]
    blocks = 0
    while not port.has_events:
        host.touch(port)
        host.finish(0)
        assert blocks < len(fake(port).sent_blocks), "each pass sends on"
        blocks = len(fake(port).sent_blocks)
    assert fake(port).consumed[-1] >= 250
    port.offer(b"behind", AGREED)
    pump(host)
    assert payloads(port) == [message, b"behind"]


def test_large_message_begins_again_when_a_member_joins_in_the_middle() -> None:
    """A joiner cannot have its beginning, and nobody may deliver what another member of the view does not."""
    exchange = Exchange()
    exchange.room_bytes = 1_000
    exchange.largest = 1_000
    one = make_host(exchange, "a")
    port = open_port(one)
    port.offer(bytes(5_000), AGREED)
    port.offer(b"behind", AGREED)
    one.touch(port)
    one.finish(0)
    assert 0 < len(fake(port).sent_blocks) < 6
    exchange.is_open = False
    pump(one)
    assert exchange.waiting, "the end of it is in flight"
    two = make_host(exchange, "b")
    late = open_port(two)
    exchange.is_open = True
    exchange.order()
    pump(one, two)
    assert payloads(port) == payloads(late) == [bytes(5_000), b"behind"]
    assert late.counters["dropped_fragments"] > 0


def test_large_message_that_is_wholly_ordered_behind_a_join_comes_once() -> None:
    exchange = Exchange()
    exchange.room_bytes = exchange.largest = 1_000
    one = make_host(exchange, "a")
    port = open_port(one)
    exchange.is_open = False
    port.offer(bytes(5_000), AGREED)
    pump(one)
    two = make_host(exchange, "b")
    late = open_port(two)
    exchange.is_open = True
    exchange.order()
    pump(one, two)
    assert payloads(port) == payloads(late) == [bytes(5_000)]


def test_queue_takes_no_more_than_its_bound_and_loses_nothing() -> None:
    exchange = Exchange()
    exchange.room_bytes = 0
    host = make_host(exchange)
    port = open_port(host)
    taken = port.offer_many([bytes(1_000)] * 5_000, AGREED)
    assert QUEUE_BYTES <= taken * 1_000 <= QUEUE_BYTES + 1_000
    assert not port.has_room
    assert port.offer(b"", AGREED) == -1
    assert port.offer_many([b""], AGREED) == 0
    exchange.room_bytes = 1 << 22
    pump(host)
    assert len(payloads(port)) == taken
    assert port.has_room


def test_blocks_that_the_engine_refuses_are_offered_again_first() -> None:
    exchange = Exchange()
    exchange.take_blocks = 1
    host = make_host(exchange)
    port = open_port(host)
    for index in range(6):
        port.offer(b"%d" % index, AGREED, index)
    pump(host)
    assert payloads(port) == [b"%d" % index for index in range(6)]


def test_blocks_are_consumed_when_the_application_asks_for_what_follows() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    port.offer(b"1", AGREED)
    port.offer(b"2", SAFE)
    host.touch(port)
    host.finish(0)
    assert isinstance(port.take(), View)
    assert isinstance(port.take(), Batch)
    host.touch(port)
    host.finish(0)
    assert fake(port).consumed == [], "a view is nothing to consume, and the block is still being read"
    assert isinstance(port.take(), Batch)
    host.touch(port)
    host.finish(0)
    assert fake(port).consumed == [2]
    assert port.take() is None
    host.touch(port)
    host.finish(0)
    assert fake(port).consumed == [2, 3]


def test_confirmed_send_settles_with_the_position_of_its_first_message() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    port.offer(b"before", AGREED)
    first = port.end_number
    port.offer_many([b"x"] * 3, AGREED)
    watch = port.watch(first, first + 3, AGREED)
    exchange.is_open = False
    pump(host)
    assert port.settled == []
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert port.settled == [watch]
    assert (watch.error, watch.position) == (None, 1)


def test_flush_waits_for_what_was_sent_before_it_and_no_more() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    assert port.flush() is None
    port.offer(b"1", AGREED)
    watch = port.flush()
    exchange.is_open = False
    pump(host)
    port.offer(b"2", AGREED)
    pump(host)
    exchange.is_open = True
    exchange.order()
    assert port.settled == []
    pump(host)
    assert port.settled == [watch]


def test_watches_fail_when_the_group_fails_and_calls_raise_until_a_view_comes() -> None:
    """Amoeba section 3: all outstanding calls return an error; ResetGroup makes the group whole again."""
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    exchange.is_open = False
    port.offer(b"1", AGREED)
    watch = port.watch(0, 1, AGREED)
    pump(host)
    exchange.fail("b is silent")
    pump(host)
    assert port.settled == [watch]
    assert isinstance(watch.error, GroupFailed)
    with pytest.raises(GroupFailed, match="b is silent"):
        port.check(1, AGREED, 0)
    host.reset(0, port, 2)
    pump(host)
    assert [reset.size for reset in port.resets] == [0]
    host.reset(0, port, 1, b"again")
    pump(host)
    assert port.resets[-1].size == 1
    port.check(1, AGREED, 0)
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert payloads(port) == [b"1"]


def test_messages_lost_by_exclusion_are_named_and_their_senders_told() -> None:
    """docs/design/overview.md section 7: an excluded sender learns OutcomeUnknown, never silence."""
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    events(port)
    exchange.is_open = False
    port.offer_many([b"1"] * 5, AGREED)
    port.offer(b"6", SAFE)
    watch = port.watch(5, 6, SAFE)
    pump(host)
    exchange.waiting.clear()
    fake(port).pending += [UnknownOutcome(0, 2), Departed(wanted=False, returning=True, text="excluded")]
    pump(host)
    assert events(port) == [Uncertain(0, 6), Left(wanted=False, returning=True, text="excluded")]
    assert port.settled == [watch]
    assert isinstance(watch.error, OutcomeUnknown)
    port.offer(b"7", AGREED)
    pump(host)
    assert len(fake(port).sent_blocks) == 2, "nothing is submitted while the node is out"


def test_large_message_cut_off_by_exclusion_is_given_up_whole() -> None:
    exchange = Exchange()
    exchange.room_bytes = exchange.largest = 1_000
    exchange.is_open = False
    host = make_host(exchange)
    port = open_port(host)
    port.offer(bytes(3_000), AGREED)
    port.offer(b"next", AGREED)
    host.touch(port)
    host.finish(0)
    exchange.waiting.clear()
    fake(port).pending += [UnknownOutcome(0, 100), Departed(wanted=False, returning=True, text="excluded")]
    pump(host)
    exchange.is_open = True
    exchange.install(Reason.JOIN, "a/0", b"", [fake(port)])
    pump(host)
    found = events(port)
    assert Uncertain(0, 1) in found
    batches = [event for event in found if isinstance(event, Batch)]
    assert [(batch.first, list(batch)) for batch in batches] == [(1, [b"next"])]


def test_large_message_whose_end_was_never_submitted_begins_again_after_exclusion() -> None:
    exchange = Exchange()
    exchange.room_bytes = exchange.largest = 1_000
    host = make_host(exchange)
    port = open_port(host)
    port.offer(bytes(10_000), AGREED)
    host.touch(port)
    host.finish(0)
    assert 0 < len(fake(port).sent_blocks) < 10
    exchange.is_open = False
    host.touch(port)
    host.finish(0)
    exchange.waiting.clear()
    fake(port).pending += [UnknownOutcome(0, 100), Departed(wanted=False, returning=True, text="excluded")]
    host.touch(port)
    host.finish(0)
    exchange.is_open = True
    exchange.install(Reason.JOIN, "a/0", b"", [fake(port)])
    pump(host)
    found = events(port)
    assert not any(isinstance(event, Uncertain) for event in found)
    batches = [event for event in found if isinstance(event, Batch)]
    assert [(batch.first, list(batch)) for batch in batches] == [(0, [bytes(10_000)])]


def test_leave_waits_until_everything_sent_is_delivered() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    exchange.is_open = False
    port.offer(b"last words", AGREED)
    host.leave(port, b"bye")
    pump(host)
    assert exchange.members
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert not exchange.members
    assert host.ports == []
    found = events(port)
    assert found[-1] == Left(wanted=True, returning=False, text="left")
    assert list(found[-2]) == [b"last words"]  # type: ignore[arg-type]
    with pytest.raises(NotMember):
        port.check(1, AGREED, 0)


def test_numbers_go_on_when_a_group_is_left_and_joined_again() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = open_port(host)
    port.offer_many([b"x"] * 7, AGREED)
    pump(host)
    host.leave(port)
    pump(host)
    again = open_port(host)
    assert fake(again).options["next_block"] == 1
    assert again.offer(b"y", AGREED) == 7


def test_a_refused_join_says_why() -> None:
    exchange = Exchange()
    exchange.refuse = "no such group"
    port = open_port(make_host(exchange))
    assert port.refusal == "no such group"


def test_mistakes_raise_at_the_call() -> None:
    host = make_host(Exchange())
    port = open_port(host, config=GroupConfig(max_message=1_000))
    with pytest.raises(UnsupportedService):
        port.check(1, UNRELIABLE, 0)
    with pytest.raises(MessageTooLarge):
        port.check(1_001, AGREED, 0)
    with pytest.raises(UsageError):
        port.check(1, AGREED, 1 << 15)
    with pytest.raises(UsageError):
        open_port(host)
    with pytest.raises(UsageError):
        open_port(host, "")
    with pytest.raises(UsageError):
        host.leave(port, bytes(2_000))


def datagram(group: str, body: bytes = b"") -> bytes:
    return HEADER.pack(MAGIC, Kind.DATA, 0, 0, group_tag(group), 1, 2, 3) + body


def test_datagrams_go_to_their_group_and_hostile_ones_are_counted() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    one, two = open_port(host, "one"), open_port(host, "two")
    source = ("127.0.0.1", 9)
    host.receive(0, source, memoryview(datagram("one")), 0)
    host.receive(0, source, memoryview(b""), 0)
    host.receive(0, source, memoryview(bytes(100)), 10)
    host.receive(0, source, memoryview(datagram("three")), 32)
    train = datagram("one", b"a") + datagram("two", b"b") + datagram("one", b"c")
    host.receive(0, source, memoryview(train), 33)
    short = datagram("two", b"1234") + datagram("two", b"4321")[:7]
    host.receive(0, source, memoryview(short), 36)
    assert fake(one).batches == [datagram("one"), datagram("one", b"a"), datagram("one", b"c")]
    assert fake(two).batches == [datagram("two", b"b"), short]
    assert host.counters == {"malformed": 2, "unknown_group": 1, "mixed_trains": 1}


def test_random_bytes_never_raise() -> None:
    host = make_host(Exchange())
    open_port(host, "one")
    open_port(host, "two")
    rng = random.Random(5)
    for _ in range(2_000):
        data = rng.randbytes(rng.randrange(200))
        if rng.random() < 0.7:
            data = datagram(rng.choice(["one", "two", "x"])) + data
        host.receive(0, ("127.0.0.1", 9), memoryview(data), rng.randrange(-1, 250))
    host.finish(0)


def test_only_ports_that_are_due_are_expired() -> None:
    host = make_host(Exchange())
    ports = [open_port(host, name) for name in ("a", "b", "c")]
    assert host.deadline_ns() == NEVER
    for port, deadline in zip(ports, (30, 10, 20), strict=True):
        fake(port).deadline = deadline
        host.touch(port)
    host.finish(0)
    assert host.deadline_ns() == 10
    fake(ports[1]).deadline = 50
    host.touch(ports[1])
    host.finish(1)
    assert host.deadline_ns() == 20
    host.expire(25)
    host.finish(25)
    assert [fake(port).expired for port in ports] == [[], [], [25]]
    assert host.deadline_ns() == 30


def test_trace_tells_what_happened_in_order() -> None:
    exchange = Exchange()
    recorder = Recorder(None, "a", 0)
    host = make_host(exchange, recorder=recorder)
    host.start(0)
    port = open_port(host)
    port.offer_many([b"xy"] * 3, AGREED)
    port.watch(0, 3, AGREED)
    port.offer(bytes(200_000), SAFE)
    port.offer(b"z", RELIABLE)
    pump(host, now_ns=5)
    host.leave(port)
    pump(host, now_ns=9)
    host.close(10)
    rows = [row for row in recorder.rows() if row.kind not in ("tx", "rx")]
    assert [row.kind for row in rows][:3] == ["start", "join", "view"]
    assert [row.kind for row in rows][-2:] == ["leave", "stop"]
    for first in (0, 3, 4):
        kinds = [row.kind for row in rows if row.first == first and row.kind != "confirm"]
        assert kinds == ["submit", "hold", "deliver"]
    view = rows[2]
    assert (view.view, view.members, view.came_with) == ("1@a/0", ("a/0",), ("a/0",))
    delivered = [row for row in rows if row.kind == "deliver"]
    assert [(row.sender, row.first, row.count, row.service, row.bytes) for row in delivered] == [
        ("a/0", 0, 3, "AGREED", 6),
        ("a/0", 3, 1, "SAFE", 200_000),
        ("a/0", 4, 1, "RELIABLE", 1),
    ]
    assert [(row.position, row.prev_position) for row in delivered] == [(0, -1), (3, 2), (None, None)]
    confirm = next(row for row in rows if row.kind == "confirm")
    assert (confirm.first, confirm.count, confirm.position) == (0, 3, 0)
    assert [row.n for row in recorder.rows()] == list(range(len(recorder.rows())))
    assert any(row.kind == "tx" and row.detail == "data" for row in recorder.rows())
