"""Very many groups on one underlay: what one pass does, and what the trace shows of blocks that mix them."""

from __future__ import annotations

import pytest
from tests.unit.channels import make_host, pump
from tests.unit.fake_engine import Exchange, events, fake

from ordercast.config import GroupConfig
from ordercast.engine import Departed
from ordercast.groups.consumption import EVENT_BYTES, HELD_BYTES, PORT_EVENTS, Consumption
from ordercast.groups.events import MixedBatch
from ordercast.groups.shared import PASS_CHANGES
from ordercast.groups.stream import MAX_RUNS, MIXED, row_runs
from ordercast.service import AGREED
from ordercast.trace.recorder import Recorder
from ordercast.view import Reason

MANY = 3 * PASS_CHANGES


def test_a_view_of_the_underlay_comes_to_very_many_groups_over_several_passes() -> None:
    """Between them others hear of this node."""
    exchange = Exchange()
    x, y = make_host(exchange, "x"), make_host(exchange, "y")
    bases = [host.attach(0, "floor", config=GroupConfig()) for host in (x, y)]
    pump(x, y)
    names = [f"g{number}" for number in range(MANY)]
    ports = x.open_many(bases[0], names)
    y.open_many(bases[1], names)
    pump(x, y)
    assert all(port.view is not None and len(port.view.members) == 2 for port in ports)
    exchange.members.remove(fake(bases[1]))
    exchange.install(Reason.RESET, "y/0", b"")
    ports[0].offer(b"after it", AGREED)
    told: list[int] = []
    while not told or told[-1] < MANY:
        x.touch(bases[0])
        x.finish(0)
        told.append(sum(port.view is not None and len(port.view.members) == 1 for port in ports))
        assert bases[0].channel.deadline_ns == 0 or told[-1] == MANY, "the next pass follows at once"
    assert told == [PASS_CHANGES, 2 * PASS_CHANGES, MANY]
    pump(x)
    assert [event.payload for event in events(ports[0])[-1].each()] == [b"after it"]  # type: ignore[union-attr]


def test_what_is_about_the_nodes_own_membership_waits_for_no_pass() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    base = host.attach(0, "floor", config=GroupConfig())
    ports = host.open_many(base, [f"g{number}" for number in range(MANY)])
    pump(host)
    exchange.install(Reason.RESET, "y/0", b"")
    fake(base).pending.append(Departed(wanted=False, returning=True, text="excluded"))
    host.touch(base)
    host.finish(0)
    assert all(port.view is None for port in ports)
    assert base.channel.shared is not None
    assert not base.channel.shared.is_behind


@pytest.mark.parametrize("count", [MAX_RUNS, MAX_RUNS + 1])
def test_a_block_of_very_many_groups_is_one_row_that_names_none(count: int) -> None:
    recorder = Recorder(None, "x", 0)
    host = make_host(Exchange(), recorder=recorder)
    base = host.attach(0, "floor", config=GroupConfig())
    base.stream.feed()
    ports = host.open_many(base, [f"g{number}" for number in range(count)])
    pump(host)
    events(base)
    base.queue.offer_many([b"x"] * count, AGREED, 0, None, base, ports)
    pump(host)
    batch = next(event for event in events(base) if isinstance(event, MixedBatch))
    assert list(batch.groups) == [port.group for port in ports]
    recorder.flush()
    rows = [row for row in recorder.rows() if row.kind in ("submit", "deliver")]
    if count > MAX_RUNS:
        assert [(row.kind, row.group, row.first, row.count) for row in rows] == [
            ("submit", None, 0, count),
            ("deliver", None, 0, count),
        ]
    else:
        assert [row.group for row in rows if row.kind == "deliver"] == [port.group for port in ports]
        assert [row.count for row in rows] == [1] * (2 * count)
    assert sum(row.bytes or 0 for row in rows) == 2 * count


def test_runs_of_one_group_are_rows_of_their_own_unless_there_are_too_many() -> None:
    assert row_runs([5, 5, 7, 5]) == [(5, 0, 2), (7, 2, 3), (5, 3, 4)]
    assert row_runs(list(range(100))) == [(MIXED, 0, 100)]


def test_each_port_has_room_for_its_first_views() -> None:
    consumption = Consumption()
    assert consumption.has_room(HELD_BYTES)
    assert not consumption.has_room(HELD_BYTES + 1)
    consumption.ports = 10
    assert consumption.has_room(HELD_BYTES + 10 * PORT_EVENTS * EVENT_BYTES)
