"""What an engine is told of deliveries that the application has finished with, and the meters of a channel."""

from __future__ import annotations

from ordercast.engine import To
from ordercast.groups.consumption import Consumption
from ordercast.groups.directory import OwnDirectory, Placement
from ordercast.groups.rows import Meter, Rows
from ordercast.trace.recorder import Recorder
from ordercast.wire.header import Kind


def test_deliveries_are_consumed_in_their_order_whoever_finishes_first() -> None:
    consumption = Consumption()
    first, second, third = consumption.add(4, 1), consumption.add(7, 2), consumption.add(9, 1)
    consumption.finish(third)
    consumption.finish(second)
    assert consumption.take() == -1
    consumption.finish(first)
    assert consumption.take() == 4
    consumption.finish(second)
    assert consumption.take() == 9
    assert consumption.take() == -1


def test_what_no_port_gets_is_finished_with_what_stands_before_it() -> None:
    consumption = Consumption()
    consumption.pass_over(3)
    assert consumption.take() == 3
    receipt = consumption.add(5, 1)
    consumption.pass_over(6)
    assert consumption.take() == -1
    consumption.finish(receipt)
    assert consumption.take() == 6


def test_events_hold_no_buffer_but_what_comes_behind_them_waits() -> None:
    consumption = Consumption()
    view = consumption.add(-1, 1)
    consumption.finish(view)
    assert consumption.take() == -1
    view = consumption.add(-1, 1)
    consumption.pass_over(2)
    assert consumption.take() == -1
    consumption.finish(view)
    assert consumption.take() == 2


def test_leaving_ports_hold_nothing_up() -> None:
    consumption = Consumption()
    theirs, both, mine = consumption.add(1, 1), consumption.add(2, 2), consumption.add(3, 1)
    for receipt in (theirs, both):
        receipt.leaving += 1
    consumption.pass_leaving()
    assert consumption.take() == 1
    consumption.finish(both)
    consumption.finish(mine)
    consumption.pass_leaving()
    assert consumption.take() == 3


def test_after_a_departure_nothing_of_the_old_log_is_told() -> None:
    consumption = Consumption()
    receipt = consumption.add(100, 1)
    consumption.on_departed()
    consumption.finish(receipt)
    assert consumption.take() == -1
    consumption.finish(consumption.add(2, 1))
    assert consumption.take() == 2


def test_own_directory_gives_each_group_an_underlay_of_its_name() -> None:
    directory = OwnDirectory()
    assert directory.place("chat") == Placement("chat", is_shared=False)


def test_meters_tell_what_is_new_by_rising_kind() -> None:
    meter = Meter()
    assert meter.news() == []
    meter.add(Kind.SYNC, 1, 40)
    meter.add(Kind.DATA, 3, 3_000)
    assert meter.news() == [("data", 3, 3_000), ("sync", 1, 40)]
    assert meter.news() == []
    meter.add(Kind.DATA, 1, 10)
    assert meter.news() == [("data", 1, 10)]
    assert meter.by_detail() == {"data": 4, "sync": 1}
    assert (meter.total, meter.count(Kind.DATA), meter.count(Kind.NAK)) == (5, 4, 0)


def test_the_trace_tells_sites_apart_and_counters_do_not() -> None:
    far = {("10.2.0.1", 1): "west", ("10.2.0.2", 1): "west", ("10.3.0.1", 1): "north"}
    meter = Meter(far)
    meter.add(Kind.PACKET, 5, 500, ("10.3.0.1", 1))
    meter.add(Kind.PACKET, 2, 200, ("10.2.0.1", 1))
    meter.add(Kind.PACKET, 1, 100, ("10.2.0.2", 1))
    meter.add(Kind.PACKET, 4, 400, ("10.1.0.2", 1))  # of the own site
    meter.add(Kind.PACKET, 3, 300, To.ALL)
    meter.add(Kind.SITE_TOKEN, 6, 60)
    meter.add(0xFF, 1, 40, ("10.3.0.1", 1))
    assert meter.news() == [
        ("data", 7, 700),
        ("token", 6, 60),
        ("hop.data>west", 3, 300),
        ("hop.data>north", 5, 500),
        ("hop.unknown>north", 1, 40),
    ]
    meter.add(Kind.PACKET, 2, 200, ("10.2.0.2", 1))
    assert meter.news() == [("hop.data>west", 2, 200)]
    assert meter.by_detail() == {"data": 17, "token": 6, "unknown": 1}
    assert (meter.total, meter.count(Kind.PACKET), meter.count(Kind.SITE_TOKEN)) == (24, 17, 6)


def test_rows_of_groups_that_the_roster_does_not_know_name_none() -> None:
    recorder = Recorder(None, "x", 0)
    rows = Rows(recorder, "floor", "x/0", lambda number: f"floor-{number}" if number < 3 else "")
    for number in (1, 2, 3, 1):
        rows.reply(0, number, "y/0", 0)
    assert [(row.underlay, row.group) for row in recorder.rows()] == [
        ("floor", "floor-1"),
        ("floor", "floor-2"),
        ("floor", None),
        ("floor", "floor-1"),
    ]


def test_numbers_of_groups_are_looked_up_again_after_a_departure() -> None:
    recorder = Recorder(None, "x", 0)
    names = {1: "a"}
    rows = Rows(recorder, "floor", "x/0", names.__getitem__)
    rows.reply(0, 1, "y/0", 0)
    rows.leave(0, "excluded")
    names[1] = "b"  # another roster
    rows.reply(0, 1, "y/0", 1)
    assert [row.group for row in recorder.rows() if row.kind == "reply"] == ["a", "b"]
