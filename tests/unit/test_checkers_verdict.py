"""What a verdict on a trace says, and how it is asked for."""

from __future__ import annotations

import json

import pytest
from tests.unit.broken_traces import busy
from tests.unit.trace_builder import Message, World

from ordercast.sim.checkers import MAX_VIOLATIONS, PROPERTIES, Trace, check_all, fifo, integrity


def test_violations_are_bounded_and_counted() -> None:
    world = World("a")
    for number in range(MAX_VIOLATIONS + 50):
        world.deliver("a", Message("z/0", number, 1, "RELIABLE", None))
    result = check_all(world.rows()).properties["integrity"]
    assert (len(result.violations), result.total) == (MAX_VIOLATIONS, MAX_VIOLATIONS + 50)


def test_a_verdict_can_be_read_by_people_and_machines() -> None:
    world, messages = busy()
    world.repeat(world.find("b", "deliver", messages[4])[0])
    verdict = check_all(world.rows())
    text = "\n".join(verdict.summary())
    assert "b/0 delivered b/0 #2-3 again" in text
    document = json.loads(json.dumps(verdict.as_json()))
    assert list(document["properties"]) == list(PROPERTIES)
    assert document["properties"]["integrity"]["violations"][0]["node"] == "b"


def test_a_property_that_examined_nothing_fails_where_it_was_expected() -> None:
    world, _ = busy()
    assert check_all(world.rows()).held
    verdict = check_all(world.rows(), expect=["resilience"])
    assert not verdict.held
    assert verdict.vacuous == ["resilience"]


def test_a_callers_mistake_raises() -> None:
    with pytest.raises(ValueError, match="unknown clock"):
        check_all([], clock="sundial")
    with pytest.raises(ValueError, match="unknown properties"):
        check_all([], expect=["punctuality"])


def test_each_property_can_be_judged_alone_and_rows_come_in_any_order() -> None:
    world, messages = busy()
    world.repeat(world.find("b", "deliver", messages[4])[0])
    rows = sorted(world.rows(), key=lambda row: (row.at_ns % 7, row.n))
    trace = Trace(rows)
    assert integrity.check(trace).total == 1
    assert fifo.check(trace).held
