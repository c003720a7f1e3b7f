"""Thousands of seeds are judged in a sitting, and real runs have some hundred thousand rows: checkers must be quick.

The bounds are several times what was measured, so that a busy machine does not fail them and a quadratic step does.
"""

from __future__ import annotations

import time

import pytest
from tests.unit.trace_builder import World

from ordercast.sim.checkers import check_all
from ordercast.trace.schema import Row

LEAST_ROWS_PER_SECOND = 25_000


def busy_trace(messages: int, service: str, nodes: str = "abcd") -> list[Row]:
    """Blocks of 500 messages, delivered by all members, with a new view after each thousand blocks."""
    world = World(*nodes)
    for index in range(messages):
        if index and index % 1000 == 0:
            world.view(1 + index // 1000, nodes)
        world.send(nodes[index % len(nodes)], nodes, 500, service)
    return world.rows()


@pytest.mark.parametrize("service", ["FIFO", "AGREED", "SAFE"])
def test_a_long_trace_is_judged_in_linear_time(service: str) -> None:
    rows = busy_trace(2000, service)
    began = time.process_time()
    verdict = check_all(rows)
    took = time.process_time() - began
    assert verdict.held, "\n".join(verdict.summary())
    assert len(rows) / took > LEAST_ROWS_PER_SECOND


def test_very_many_groups_are_judged_in_linear_time() -> None:
    """A group view for each group and member, and messages round robin; every view of the underlay has all groups."""
    world = World(*"abcd")
    members = [("ab", "bc", "cd", "abd")[number % 4] for number in range(1000)]
    for number, names in enumerate(members):
        world.view(100 + number, names, came={name: name for name in names}, group=f"g{number}")
    for index in range(4000):
        if index and index % 100 == 0:
            world.view(1 + index // 100, "abcd")
        names = members[index % 1000]
        world.send(names[index // 1000 % 2], names, group=f"g{index % 1000}")
    rows = world.rows()
    began = time.process_time()
    verdict = check_all(rows)
    took = time.process_time() - began
    assert verdict.held, "\n".join(verdict.summary())
    assert len(rows) / took > LEAST_ROWS_PER_SECOND
