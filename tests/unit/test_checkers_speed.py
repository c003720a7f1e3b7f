"""Thousands of seeds are judged in a sitting, and real runs have some hundred thousand rows: checkers must be quick.

Lines that are executed are counted, and not seconds: a busy machine does not change them. Twice the rows may take twice
the lines and a little more. What a single call into C does with a long list is not seen.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from tests.unit.trace_builder import World

from ordercast.sim.checkers import check_all
from ordercast.trace.schema import Row

MOST = 2.3
"""Times the lines for twice the rows: 4 where every row is compared with every other one."""


def busy_trace(messages: int, service: str, nodes: str = "abcd") -> list[Row]:
    """Blocks of 500 messages, delivered by all members, with a new view after each tenth of them."""
    world = World(*nodes)
    for index in range(messages):
        if index and index % (messages // 10) == 0:
            world.view(1 + index // (messages // 10), nodes)
        world.send(nodes[index % len(nodes)], nodes, 500, service)
    return world.rows()


def grouped_trace(number: int) -> list[Row]:
    """A group view for each of so many groups and member, and messages round robin; every view of the underlay has all
    groups."""
    world = World(*"abcd")
    members = [("ab", "bc", "cd", "abd")[each % 4] for each in range(number)]
    for each, names in enumerate(members):
        world.view(100 + each, names, came={name: name for name in names}, group=f"g{each}")
    for index in range(4 * number):
        if index and index % (number // 10) == 0:
            world.view(1 + index // (number // 10), "abcd")
        names = members[index % number]
        world.send(names[index // number % 2], names, group=f"g{index % number}")
    return world.rows()


def lines_to_judge(rows: list[Row]) -> int:
    """How many lines of Python it takes to judge a legal trace."""
    count = 0

    def count_lines(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001
        nonlocal count
        count += event == "line"
        return count_lines

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        verdict = check_all(rows)
    finally:
        sys.settrace(before)
    assert verdict.held, "\n".join(verdict.summary())
    return count


@pytest.mark.parametrize("service", ["FIFO", "AGREED", "SAFE"])
def test_a_long_trace_is_judged_in_linear_time(service: str) -> None:
    few, many = (lines_to_judge(busy_trace(messages, service)) for messages in (600, 1200))
    assert many / few < MOST


def test_very_many_groups_are_judged_in_linear_time() -> None:
    few, many = (lines_to_judge(grouped_trace(number)) for number in (200, 400))
    assert many / few < MOST
