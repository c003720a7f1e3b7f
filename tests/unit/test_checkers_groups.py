"""Lightweight groups: what the form of rows, and the holders of messages, mean on a shared underlay.

Faults that both judges find are in tests/pipeline/group_traces.py.
"""

from __future__ import annotations

import pytest
from tests.unit.broken_traces import assert_only
from tests.unit.trace_builder import Message, World

from ordercast.sim.checkers import check_all

CLIENTS = ("x@a", "y@b")


def daemons() -> World:
    """Three nodes, and clients of two of them in group g."""
    world = World(*"abc")
    for name in CLIENTS:
        world.event(name, "start", underlay="")
    world.view(10, CLIENTS, came={name: [name] for name in CLIENTS}, group="g")
    return world


def send(world: World, service: str, held: str, later: str = "") -> Message:
    """The client of a sends; it is delivered when these nodes hold it and know its sequence number."""
    message = world.submit("x@a", 1, service, group="g")
    world.hold(held, message)
    world.placed(held, message)
    world.deliver(["x@a"], message, view="1@a/0")
    world.hold(later, message)
    world.placed(later, message)
    world.deliver(["y@b"], message, view="1@a/0")
    return message


@pytest.mark.parametrize(
    ("service", "held", "later"),
    [("SAFE", "ab", "c"), ("MAJORITY", "ab", "c"), ("MAJORITY", "ac", "b"), ("RESILIENT(1)", "ac", "b")],
)
def test_the_nodes_of_the_members_hold_it_or_enough_of_the_underlay(service: str, held: str, later: str) -> None:
    world = daemons()
    send(world, service, held, later)
    verdict = check_all(world.rows(), expect=["resilience"])
    assert verdict.held, "\n".join(verdict.summary())


@pytest.mark.parametrize(
    ("service", "held", "later"),
    [("SAFE", "ac", "b"), ("MAJORITY", "a", "bc"), ("RESILIENT(1)", "a", "bc"), ("RESILIENT(2)", "a", "bc")],
)
def test_too_few_nodes_hold_it(service: str, held: str, later: str) -> None:
    """The daemon of the client that delivers is not another one."""
    world = daemons()
    send(world, service, held, later)
    assert_only(world, "resilience")


def test_after_the_signal_of_its_group_a_client_waits_for_those_that_come_along() -> None:
    world = daemons()
    message = world.submit("x@a", 1, "SAFE", group="g")
    world.hold("a", message)
    world.placed("a", message)
    world.event("x@a", "transitional", group="g", view="10@x@a/0")
    world.deliver(["x@a"], message, view="1@a/0")
    world.view(11, ["x@a"], group="g")
    assert check_all(world.rows(), quiet=False).held


def test_a_row_names_a_group_twice() -> None:
    world = World(*"ab")
    for group in "gh":
        world.view(10, "ab", came={"a": "a", "b": "b"}, group=group)
    message = world.send("a", "ab", groups=("g", "h"))
    world.find("b", "deliver", message)[0].columns["groups"] = ("g", "h", "g")
    assert_only(world, "well_formed")


def test_positions_go_on_when_a_member_leaves_one_of_its_groups() -> None:
    world = World(*"ab")
    world.view(10, "ab", came={"a": "a", "b": "b"}, group="g")
    world.view(11, "ab", came={"a": "a", "b": "b"}, group="h")
    world.send("a", "ab", group="g")
    world.leave("b", group="g")
    world.view(12, "a", group="g", at="a")
    last = world.send("a", "ab", group="h")
    assert check_all(world.rows()).held
    rows = [
        row._replace(prev_position=-1) if (row.node, row.kind, row.first) == ("b", "deliver", last.first) else row
        for row in world.rows()
    ]
    assert [name for name, result in check_all(rows).properties.items() if result.total] == ["well_formed"]


def test_a_session_holds_nothing() -> None:
    world = daemons()
    message = send(world, "AGREED", "abc")
    world.hold(["y@b"], message)
    assert_only(world, "well_formed")


def test_a_session_whose_daemon_is_not_in_the_trace_is_judged_without_its_views() -> None:
    world = World(*"ab")
    for name in ("x@c", "y@a"):
        world.event(name, "start", underlay="")
    world.view(10, ("x@c", "y@a"), came={"x@c": ["x@c"], "y@a": ["y@a"]}, group="g")
    message = world.submit("x@c", 1, group="g")
    world.hold("ab", message)
    world.deliver(["x@c", "y@a"], message, view="1@a/0")
    assert check_all(world.rows()).held
    world.repeat(world.find("x@c", "deliver", message)[0])
    assert_only(world, "integrity")


def test_a_caller_may_be_called_like_a_session() -> None:
    """It may give up at any time: nothing is owed because it called."""
    world = World(*"ab")
    world.event("x@a", "start", underlay="")
    world.submit("x@a", 1)
    assert check_all(world.rows()).held
