"""The watch of a channel: when it looks, what it asks, whom it tells (docs/design/stalled.md)."""

from __future__ import annotations

import pytest
from tests.unit.channels import make_host, open_ports
from tests.unit.fake_engine import Exchange, fake

from ordercast.config import GroupConfig
from ordercast.engine import NEVER, StallReason, Waiting
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.status import Resumed, Stalled
from ordercast.groups.watching import STALL_NS, TICK_NS, TOLD_AT_ONCE, UNEXPLAINED_NS
from ordercast.service import AGREED
from ordercast.trace.recorder import Recorder

SLOW = Waiting(StallReason.NOT_RECEIVING, ("y/0",), "the application of y/0 does not receive")
LOST = Waiting(StallReason.NO_QUORUM, ("y/0", "z/0"), "1 of 3", 1, 3)


def run_until(host: Host, until_ns: int) -> None:
    """All passes that are due up to a time, and nothing else."""
    while (due_ns := host.deadline_ns()) <= until_ns:
        host.expire(due_ns)
        host.finish(due_ns)


def touch(host: Host, port: Port, now_ns: int) -> None:
    host.touch(port)
    host.finish(now_ns)


def told(port: Port) -> list[Stalled | Resumed]:
    """What the application is told of standing still; it takes everything."""
    found = []
    while (event := port.take()) is not None:
        if isinstance(event, Stalled | Resumed):
            found.append(event)
    return found


def log_of(host: Host) -> list[tuple[str, str, str]]:
    return [(line.topic, line.level, line.text) for _, line in host.take_log()]


def blocked(recorder: Recorder | None = None) -> tuple[Exchange, Host, Port]:
    """A host with one port whose message does not leave."""
    exchange = Exchange()
    host = make_host(exchange, recorder=recorder)
    port = host.open(0, "own", config=GroupConfig())
    host.finish(0)
    told(port)
    exchange.take_blocks = 0
    port.offer(b"1", AGREED)
    touch(host, port, 0)
    return exchange, host, port


def test_an_idle_group_has_no_timer() -> None:
    host = make_host(Exchange())
    (port,) = open_ports(host, "a")
    told(port)
    touch(host, port, 0)
    assert host.deadline_ns() == NEVER
    assert fake(port).questions == 0


def test_a_group_that_works_is_looked_at_and_its_engine_never_asked() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = host.open(0, "own", config=GroupConfig())
    host.finish(0)
    for step in range(40):
        port.offer(b"x", AGREED)
        touch(host, port, step * 100_000_000)
        told(port)
    run_until(host, 100 * STALL_NS)
    assert host.deadline_ns() == NEVER, "the timer goes when nothing waits any more"
    assert fake(port).questions == 0
    assert port.channel.watching.status_of(port).state == "working"


def test_after_a_second_without_progress_it_is_told_once_and_logged() -> None:
    recorder = Recorder(None, "x", 0)
    _, host, port = blocked(recorder)
    fake(port).stall = SLOW
    run_until(host, STALL_NS - 1)
    assert told(port) == []
    assert fake(port).questions == 0
    run_until(host, 30 * STALL_NS)
    assert told(port) == [Stalled(SLOW.reason, SLOW.waiting_for, 0.0, SLOW.text)]
    assert log_of(host) == [("group", "warning", f"no progress for 1.0 s: {SLOW.text}")]
    assert [(row.kind, row.detail, row.at_ns) for row in recorder.rows() if row.kind == "stalled"] == [
        ("stalled", "not_receiving: y/0", STALL_NS)
    ]
    status = port.channel.watching.status_of(port)
    assert (status.state, status.reason, status.queued, status.unconfirmed) == ("stalled", SLOW.reason, 1, 0)


def test_progress_ends_it_at_once() -> None:
    recorder = Recorder(None, "x", 0)
    exchange, host, port = blocked(recorder)
    fake(port).stall = SLOW
    run_until(host, 3 * STALL_NS)
    told(port)
    host.take_log()
    exchange.take_blocks = 1
    touch(host, port, 3 * STALL_NS + 7)
    (event,) = told(port)
    assert isinstance(event, Resumed)
    assert event.reason is SLOW.reason
    assert event.after == pytest.approx(3.0, abs=0.01)
    assert log_of(host) == [("group", "info", "goes on after 3.0 s without progress")]
    assert [row.kind for row in recorder.rows() if row.kind in ("stalled", "resumed")] == ["stalled", "resumed"]
    assert port.channel.watching.status_of(port).reason is None


def test_another_reason_is_told_when_it_lasts() -> None:
    _, host, port = blocked()
    engine = fake(port)
    engine.stall = SLOW
    run_until(host, STALL_NS)
    engine.stall = LOST
    run_until(host, 2 * STALL_NS)
    engine.stall = SLOW  # a recovery that came to nothing at once
    run_until(host, 4 * STALL_NS)
    assert [event.reason for event in told(port)] == [SLOW.reason]
    engine.stall = LOST
    run_until(host, 7 * STALL_NS)
    (event,) = told(port)
    assert isinstance(event, Stalled)
    assert (event.reason, event.have, event.need, event.since) == (LOST.reason, 1, 3, 0.0)


def test_they_overtake_what_was_received_and_are_bounded() -> None:
    exchange, host, port = blocked()
    engine = fake(port)
    for turn in range(50):
        engine.stall = SLOW if turn % 2 else LOST
        run_until(host, (2 + 3 * turn) * STALL_NS)
    assert port.notices is not None
    assert len(port.notices) == 1
    exchange.take_blocks = 1
    touch(host, port, 200 * STALL_NS)
    assert len(port.notices) == 2
    assert port.has_events
    assert isinstance(port.take(), Stalled), "before the message that was received meanwhile"
    assert isinstance(port.take(), Resumed)


def test_a_wait_of_five_seconds_without_a_reason_is_reported_as_a_bug() -> None:
    recorder = Recorder(None, "x", 0)
    _, host, port = blocked(recorder)
    run_until(host, UNEXPLAINED_NS + TICK_NS)
    assert told(port) == []
    ((topic, level, text),) = log_of(host)
    assert (topic, level) == ("group", "warning")
    assert text.endswith("no reason is known: please report this")
    assert [row.detail for row in recorder.rows() if row.kind == "stalled"] == ["unexplained"]
    run_until(host, 4 * UNEXPLAINED_NS)
    assert log_of(host) == [], "once"


def test_a_ring_that_does_not_work_counts_although_nothing_is_sent() -> None:
    host = make_host(Exchange())
    (port,) = open_ports(host, "a")
    told(port)
    fake(port).is_working = False
    fake(port).stall = LOST
    touch(host, port, 0)
    assert port.channel.watching.status_of(port).state == "recovering"
    run_until(host, 2 * STALL_NS)
    assert [event.reason for event in told(port)] == [StallReason.NO_QUORUM]


def test_a_group_below_its_bootstrap_says_so() -> None:
    _, host, port = blocked()
    fake(port).stall = Waiting(StallReason.BOOTSTRAP, (), "the group begins with 3 members, and has 1", 1, 3)
    run_until(host, 2 * STALL_NS)
    (event,) = told(port)
    assert isinstance(event, Stalled)
    assert (event.reason, event.have, event.need) == (StallReason.BOOTSTRAP, 1, 3)


def test_a_group_below_its_bootstrap_says_so_although_nothing_waits() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = host.open(0, "own", config=GroupConfig(bootstrap=2))
    host.finish(0)
    told(port)
    fake(port).stall = Waiting(StallReason.BOOTSTRAP, (), "the group begins with 2 members, and has 1", 1, 2)
    run_until(host, STALL_NS // 2)
    assert told(port) == []
    run_until(host, 2 * STALL_NS)
    assert [event.reason for event in told(port)] == [StallReason.BOOTSTRAP]
    assert port.channel.watching.status_of(port).state == "stalled"
    other = make_host(exchange, "b")
    other.open(2 * STALL_NS, "own", config=GroupConfig(bootstrap=2))
    fake(port).stall = None
    run_until(host, 4 * STALL_NS)
    assert [type(event) for event in told(port)] == [Resumed]
    assert port.channel.watching.due_ns == NEVER, "enough members, and nothing waits: nobody looks any more"


def test_an_application_that_holds_up_the_others_is_named_in_its_own_log() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    port = host.open(0, "own", config=GroupConfig())
    host.finish(0)
    port.offer(b"x", AGREED)
    touch(host, port, 0)  # delivered here, and not received; the fake engine always waits for the application
    run_until(host, 4 * STALL_NS)
    assert log_of(host) == [
        (
            "group",
            "warning",
            "the application on this node has received nothing for 1.0 s, and the other members wait for it",
        )
    ]
    assert told(port) == []
    touch(host, port, 4 * STALL_NS)
    run_until(host, 6 * STALL_NS)
    assert log_of(host) == [("group", "info", "the application on this node receives again")]
    assert host.deadline_ns() == NEVER


def test_the_own_application_is_not_blamed_for_what_it_has_just_been_given() -> None:
    _, host, port = blocked()
    own = Waiting(StallReason.NOT_RECEIVING, (str(port.channel.me),), "the application of this node does not receive")
    fake(port).stall = SLOW
    run_until(host, STALL_NS)
    assert [event.waiting_for for event in told(port) if isinstance(event, Stalled)] == [SLOW.waiting_for]
    fake(port).stall = own
    port.channel.consumption.add(7, 1)  # the group goes on, and hands something over
    run_until(host, 3 * STALL_NS)
    assert told(port) == [], "a look finds it just given; another one, that there is another reason, which has to last"
    run_until(host, 5 * STALL_NS)
    assert [event.waiting_for for event in told(port) if isinstance(event, Stalled)] == [own.waiting_for]


def test_an_application_that_takes_everything_between_two_looks_is_not_blamed() -> None:
    """Each look finds something that it has only just been given."""
    _, host, port = blocked()
    own = Waiting(StallReason.NOT_RECEIVING, (str(port.channel.me),), "the application of this node does not receive")
    fake(port).stall = own
    consumption = port.channel.consumption
    while (due_ns := host.deadline_ns()) <= 20 * STALL_NS:
        receipt = consumption.add(due_ns, 1)
        host.expire(due_ns)
        host.finish(due_ns)
        consumption.finish(receipt)
        touch(host, port, due_ns + 1)
    assert [event for event in told(port) if isinstance(event, Stalled)] == []


def test_a_look_that_comes_late_blames_nobody() -> None:
    """The process itself stood still, or its application kept the loop for long."""
    _, host, port = blocked()
    fake(port).stall = SLOW
    host.expire(60 * STALL_NS)
    host.finish(60 * STALL_NS)
    assert told(port) == []
    run_until(host, 62 * STALL_NS)
    assert len(told(port)) == 1


def test_very_many_ports_are_told_a_part_at_a_time() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = host.attach(0, "floor", config=GroupConfig())
    host.finish(0)
    names = [f"g{number}" for number in range(2 * TOLD_AT_ONCE + 5)]
    ports = host.open_many(base, names)
    while host.deadline_ns() <= 0:
        host.expire(0)
        host.finish(0)
    exchange.take_blocks = 0
    fake(base).stall = SLOW
    ports[0].offer(b"1", AGREED)
    touch(host, ports[0], 0)
    channel, passes = base.channel, 0
    while any(port.notices is None for port in ports):
        due_ns = host.deadline_ns()
        host.expire(due_ns)
        host.finish(due_ns)
        passes += any(port.notices is not None for port in ports)
    assert passes >= 3
    assert base.notices is not None
    assert channel.watching.stalled is SLOW
    assert fake(base).questions <= 2, "one question for all of them"


def test_a_port_that_is_gone_is_told_nothing_more() -> None:
    exchange, host, port = blocked()
    fake(port).stall = SLOW
    run_until(host, 2 * STALL_NS)
    assert port.notices
    exchange.take_blocks = 1
    host.leave(port)
    for now_ns in range(3 * STALL_NS, 3 * STALL_NS + 20):
        touch(host, port, now_ns)
    assert port.gone is not None
    assert port.notices is None
    assert port.channel.watching.status_of(port).state == "left"
    assert not [event for event in told(port) if isinstance(event, Stalled)]
