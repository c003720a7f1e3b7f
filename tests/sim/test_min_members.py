"""`min_members` has one meaning. A view that is smaller than the number recovers with all of its members, and takes no
messages.

The engine (`config.required_members`, `config.members_needed`) and the judge (`checkers.views.is_enough`,
`checkers.attendance`) read it each on their own. So a wrong rule in the engine shows in a verdict, and is not excused
by the same mistake of the judge.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from tests.sim.bug import Bug
from tests.sim.planting import planted

from ordercast.config import MS, SECOND, MinMembers, required_members
from ordercast.sim.checkers.views import is_enough, may_go_on
from ordercast.sim.faults import Fault
from ordercast.sim.run import run_scenario
from ordercast.sim.scenario import Load, Scenario

RULE = "survivors >= min(rule, previous)"  # of the engine, where `min_members` is a number
RULES: tuple[MinMembers, ...] = ("majority", "all", 1, 2, 3, 5, 1_000)
NEEDED = "max(least, bootstrap) if largest < bootstrap else least"  # of the engine: members that it takes to take part
THREE = Scenario(
    orderer="token",
    nodes=("a", "b", "c"),
    min_members=5,
    loads=tuple(Load(name, 200, interval_ns=20 * MS, start_ns=SECOND) for name in "abc"),
)
PARTED = replace(THREE, faults=(Fault(2 * SECOND, "partition", ("c",), for_ns=5 * SECOND),))
CRASHED = replace(THREE, faults=(Fault(2 * SECOND, "crash", ("c",)),))


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_a_view_smaller_than_the_number_recovers_with_all_its_members(orderer: str) -> None:
    outcome = run_scenario(replace(PARTED, orderer=orderer))
    assert outcome.held, outcome.failures
    assert outcome.is_short
    assert not outcome.stats.delivered, "three members are too few for one that asks for five"
    recovered = {frozenset(row.members or ()) for row in outcome.rows if row.kind == "view" and row.detail == "reset"}
    assert recovered == {frozenset(("a/0", "b/0", "c/0"))}, "nobody went on before the three were together again"


def test_a_view_smaller_than_the_number_does_not_go_on_without_one_of_its_members() -> None:
    outcome = run_scenario(CRASHED)
    assert outcome.held, outcome.failures
    assert outcome.is_stuck_legally


def test_the_judge_objects_to_an_engine_that_waits_for_more_members_than_there_are() -> None:
    endless = Bug("endless", "required_members", RULE, "survivors >= rule", "A view of three waits for five.", 1)
    outcome = run_scenario(PARTED, partial(planted, endless))
    assert [text for text in outcome.failures if text.startswith("not at rest")], outcome.failures


def test_the_judge_objects_to_an_engine_that_is_content_with_one_member_less() -> None:
    lax = Bug("lax", "required_members", RULE, f"{RULE} - 2", "A view of three goes on with one member.", 1)
    outcome = run_scenario(replace(PARTED, min_members=3), partial(planted, lax))
    assert [text for text in outcome.failures if "went on" in text], outcome.failures


@pytest.mark.parametrize("rule", RULES)
def test_engine_and_judge_agree_on_every_small_view(rule: MinMembers) -> None:
    for members in range(1, 8):
        for present in range(members + 1):
            for has_first in {present == members, present > 0}:
                expected = required_members(rule, members, present, has_first)
                assert is_enough(rule, members, present, has_first) is expected, (members, present, has_first)


def test_the_strictest_member_of_a_view_decides() -> None:
    view = ("a/0", "b/0", "c/0")
    assert may_go_on(view, ["a/0", "b/0"], {"a": "majority", "b": 2, "c": 1})
    assert not may_go_on(view, ["a/0", "b/0"], {"a": "majority", "b": 5, "c": 1})
    assert may_go_on(view, list(view), {"a": "majority", "b": 5, "c": 1})
