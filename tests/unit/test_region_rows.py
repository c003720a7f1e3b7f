"""What a node of regions writes into its trace (docs/trace.md, "Regions")."""

from __future__ import annotations

from array import array

from ordercast.groups.regions.rows import RegionRows
from ordercast.orderers.regions.given import REGIONS_UNDERLAY, GivenView
from ordercast.service import FIFO, UNRELIABLE
from ordercast.trace import naming
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row
from ordercast.view import Member

NAMES = {1: "red", 2: "green", 3: "blue"}
A = Member(1, "a", 0, ("10.0.0.1", 4000))
B = Member(2, "b", 0, ("10.0.0.2", 4000))
VIEW = GivenView(7, 99, 3, "gms@a/0", None, (A, B))


def written() -> tuple[RegionRows, Recorder]:
    recorder = Recorder(None, "a", 0)
    return RegionRows(recorder, "a/0", lambda number: NAMES.get(number, "")), recorder


def test_the_underlays_are_those_of_the_trace() -> None:
    assert naming.REGIONS == REGIONS_UNDERLAY
    assert naming.is_region(naming.region_underlay(12))
    assert not naming.is_region(naming.REGIONS)


def test_a_submit_names_the_region_view_and_the_serial() -> None:
    rows, recorder = written()
    rows.submit(5, 7, VIEW.id, 10, 3, 100, FIFO, 300)
    assert recorder.rows() == [
        Row("a", 0, 0, 5, "submit", "region/7", view="3@gms@a/0", sender="a/0", first=10, count=3, service="FIFO",
            position=100, bytes=300)
    ]  # fmt: skip


def test_a_block_is_carried_in_one_row_for_each_run_of_groups() -> None:
    rows, recorder = written()
    rows.carry(5, 7, VIEW.id, 10, 4, array("I", [1, 1, 2, 9]), FIFO)
    rows.carry(6, 7, VIEW.id, 14, 2, (1, 3), FIFO)
    assert [(row.first, row.count, row.groups, row.position, row.prev_position) for row in recorder.rows()] == [
        (10, 2, ("red",), 1, 1),
        (12, 1, ("green",), 1, 1),
        (13, 1, ("#9",), 1, 1),
        (14, 2, ("red", "blue"), 2, 2),
    ]


def test_a_message_in_fragments_names_the_block_in_which_it_begins() -> None:
    rows, recorder = written()
    for count in (0, 0, 1):
        rows.carry(5, 7, VIEW.id, 10, count, 1, FIFO)
    rows.carry(5, 7, VIEW.id, 11, 1, 1, FIFO)
    assert [(row.count, row.position, row.prev_position) for row in recorder.rows()] == [
        (0, 1, 1),
        (0, 2, 1),
        (1, 3, 1),
        (1, 4, 4),
    ]


def test_blocks_are_counted_from_one_in_each_view_and_unreliable_ones_are_not() -> None:
    rows, recorder = written()
    rows.carry(5, 7, VIEW.id, 0, 1, 1, FIFO)
    rows.carry(5, 7, VIEW.id, 1, 1, 1, UNRELIABLE)
    rows.carry(5, 8, VIEW.id, 0, 1, 1, FIFO)
    rows.carry(5, 7, VIEW.id, 2, 1, 1, FIFO)
    rows.carry(5, 7, "4@gms@a/0", 3, 1, 1, FIFO)
    assert [(row.underlay, row.position) for row in recorder.rows()] == [
        ("region/7", 1),
        ("region/7", None),
        ("region/8", 1),
        ("region/7", 2),
        ("region/7", 1),
    ]


def test_only_wanted_messages_are_delivered() -> None:
    rows, recorder = written()
    rows.deliver(5, 7, VIEW.id, "b/0", 0, 5, FIFO, 30, [True, False, True, True, False])
    rows.deliver(6, 7, VIEW.id, "b/0", 5, 2, FIFO, 20)
    assert [(row.first, row.count, row.bytes) for row in recorder.rows()] == [(0, 1, 30), (2, 2, 0), (5, 2, 20)]


def test_views_joins_losses_and_confirms() -> None:
    rows, recorder = written()
    rows.join(1)
    rows.join(1, "red")
    rows.view(1, VIEW)
    rows.lost(2, 7, VIEW.id, "b/0", 4, 2)
    rows.confirm(3, 7, VIEW.id, 0, 1, FIFO)
    rows.leave(4, "red")
    rows.leave(5, text="excluded")
    found = [(row.kind, row.underlay, row.group, row.view, row.members, row.first) for row in recorder.rows()]
    assert found == [
        ("join", "regions", None, None, None, None),
        ("join", "regions", "red", None, None, None),
        ("view", "region/7", None, "3@gms@a/0", ("a/0", "b/0"), None),
        ("lost", "region/7", None, "3@gms@a/0", None, 4),
        ("confirm", "region/7", None, "3@gms@a/0", None, 0),
        ("leave", "regions", "red", None, None, None),
        ("leave", "regions", None, None, None, None),
    ]


def test_without_a_recorder_nothing_happens() -> None:
    rows = RegionRows(None, "a/0", str)
    rows.submit(5, 7, VIEW.id, 10, 3, 100, FIFO, 300)
    rows.carry(5, 7, VIEW.id, 10, 3, 1, FIFO)
    rows.deliver(5, 7, VIEW.id, "b/0", 0, 5, FIFO, 30)
    rows.view(1, VIEW)
    assert not rows.is_on
