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
