"""What sessions of one node write into the trace, over a fake engine (docs/trace.md)."""

from __future__ import annotations

from tests.unit.channels import attach, make_host, open_ports, pump, two_sessions, views
from tests.unit.fake_engine import Exchange, events, fake, payloads

from ordercast.engine import Departed, Transitional
from ordercast.groups.events import Batch
from ordercast.service import AGREED, SAFE
from ordercast.trace.recorder import Recorder
from ordercast.view import Reason, View

SECOND = 1_000_000_000


def test_sessions_have_rows_of_their_own() -> None:
    exchange = Exchange()
    recorder = Recorder(None, "x", 0)
    host = make_host(exchange, recorder=recorder)
    open_ports(host, "a")
    (ann,), _ = two_sessions(host, "a")
    ann.offer_many([b"1", b"2"], AGREED)
    ann.watch(0, 2, AGREED)
    pump(host)
    host.close_session(ann.stream.session)
    pump(host)
    rows = recorder.rows()
    for node in ("x", "ann@x", "bob@x"):
        assert [row.n for row in rows if row.node == node] == list(range(sum(row.node == node for row in rows)))
    hers = [row for row in rows if row.node == "ann@x"]
    kinds = ["join", "view", "view", "submit", "deliver", "confirm", "leave", "leave"]
    assert [row.kind for row in hers] == kinds
    assert [row.group for row in hers[-2:]] == ["a", None], "out of the group, and then of the underlay"
    deliver = next(row for row in hers if row.kind == "deliver")
    assert (deliver.sender, deliver.first, deliver.count, deliver.prev_position) == ("ann@x/0", 0, 2, -1)
    assert deliver.view == next(row.view for row in rows if row.kind == "view" and row.group is None)
    assert next(row for row in hers if row.kind == "view").members == ("x/0", "ann@x/0")
    mine = [row for row in rows if row.node == "x"]
    assert {row.sender for row in mine if row.kind == "hold"} == {"ann@x/0"}
    assert sum(row.kind == "submit" for row in mine) == 0
    assert sum(row.kind == "deliver" for row in mine) == 1, "the node's own session is in the group as well"
    assert all(row.kind not in ("hold", "placed", "tx", "rx") for row in rows if "@" in row.node)


def test_a_message_to_several_groups_is_one_row_of_each_session_and_mixed_blocks_are_told_apart() -> None:
    exchange = Exchange()
    recorder = Recorder(None, "x", 0)
    host = make_host(exchange, recorder=recorder)
    ann = open_ports(host, "a", "b", session=host.open_session("ann"))
    (bob,) = open_ports(host, "b", session=host.open_session("bob"))
    pump(host)
    ann[0].stream.offer_to(["a", "b"], b"1", AGREED)
    ann[0].stream.offer_many_to([b"2", b"3", b"4"], AGREED, 0, [1, 1, 1], [ann[0], ann[1], ann[1]], numbered=2)
    pump(host)
    rows = [row for row in recorder.rows() if row.kind == "deliver"]
    assert [
        (row.groups or row.group, row.first, row.count, row.prev_position) for row in rows if row.node == "ann@x"
    ] == [
        (("a", "b"), 0, 1, -1),
        ("a", 1, 1, 0),
        ("b", 2, 2, 1),
    ]
    assert [
        (row.groups or row.group, row.first, row.count, row.prev_position) for row in rows if row.node == "bob@x"
    ] == [
        (("a", "b"), 0, 1, -1),
        ("b", 2, 2, 0),
    ]
    assert payloads(bob) == [b"1", b"3", b"4"]


def test_sessions_write_the_transitional_signal_of_their_groups_and_that_they_are_out() -> None:
    exchange = Exchange()
    recorder = Recorder(None, "x", 0)
    host = make_host(exchange, recorder=recorder)
    (ann,), (bob,) = two_sessions(host, "a")
    base = attach(host, bob.stream.session)
    base.stream.feed()
    pump(host)
    engine = fake(ann)
    assert engine is fake(bob)
    view = ann.channel.view
    assert view is not None
    engine.pending.append(Transitional(view.id))
    ann.offer(b"1", AGREED)
    pump(host)
    engine.pending.append(Departed(wanted=False, returning=True, text="excluded"))
    pump(host)
    rows = recorder.rows()
    for node in ("ann@x", "bob@x"):
        found = [(row.kind, row.group) for row in rows if row.node == node]
        assert found[-3:] == [("transitional", "a"), ("deliver", "a"), ("leave", None)]
    signal = next(row for row in rows if row.kind == "transitional" and row.group)
    assert ann.gone is None
    assert signal.view == [row.view for row in rows if row.kind == "view" and row.group == "a"][-1]
    assert [(row.kind, row.group) for row in rows if row.node == "x" and row.kind == "transitional"] == [
        ("transitional", None)
    ]


def test_sessions_hear_the_signal_again_in_a_view_of_their_group_on_the_way_through_a_recovery() -> None:
    """Its view still names the dead, and what follows it was brought together, too. Carl, who has joined meanwhile and
    receives in one order, was told for the whole underlay; his trace has the signal of the group."""
    exchange, recorder = Exchange(), Recorder(None, "x", 0)
    host = make_host(exchange, recorder=recorder)
    (ann,) = open_ports(host, "a", session=host.open_session("ann"))
    carl = host.open_session("carl")
    base = attach(host, carl)
    base.stream.feed()
    pump(host)
    events(ann)
    events(base)
    view = ann.channel.view
    assert view is not None
    fake(ann).pending.append(Transitional(view.id))
    open_ports(host, "a", session=carl)
    pump(host)
    ann.offer(b"1", SAFE)
    pump(host)
    heard = events(ann)
    assert [type(event) for event in heard] == [Transitional, View, Transitional, Batch]
    assert [event.view for event in heard if isinstance(event, Transitional)][1] == views(heard)[0].id
    told = events(base)
    assert [type(event) for event in told] == [Transitional, View, Batch]
    assert [event.view for event in told if isinstance(event, Transitional)] == [view.id]
    hers, his = ([row for row in recorder.rows() if row.node == f"{name}@x"] for name in ("ann", "carl"))
    signals = [("transitional", "a"), ("view", "a"), ("transitional", "a")]
    assert [(row.kind, row.group) for row in hers if row.kind in ("view", "transitional")][1:] == signals
    assert [row.kind for row in his] == ["join", "view", "transitional", "deliver"]
    assert his[2].view == his[1].view == views(heard)[0].id
    exchange.install(Reason.EXPEL, "y/0", b"")
    pump(host)
    ann.offer(b"2", SAFE)
    pump(host)
    assert [type(event) for event in events(ann)] == [Batch], "the recovery is over"
