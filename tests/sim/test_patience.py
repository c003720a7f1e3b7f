"""The profile of long waits: what it draws, and the judge of resets, which must see what is wrong."""

from __future__ import annotations

import pytest

from ordercast.config import MS, SECOND
from ordercast.sim.faults import FaultKind
from ordercast.sim.patience import patience_scenario
from ordercast.sim.resets import TOGETHER_NS, ResetCall, broken_resets
from ordercast.sim.scenario_json import scenario_from_json, scenario_to_json
from ordercast.trace.schema import Row

SEEDS = range(300)


def test_everything_that_takes_long_is_drawn() -> None:
    drawn = [patience_scenario(seed, "token") for seed in SEEDS]
    faults = [fault for scenario in drawn for fault in scenario.faults]
    assert {scenario.network for scenario in drawn} >= {"far", "distant", "lan"}
    assert any(fault.kind == FaultKind.PARTITION and fault.for_ns > 60 * SECOND for fault in faults)
    assert any(fault.kind == FaultKind.CUT and fault.for_ns > 60 * SECOND for fault in faults)
    assert any(use.answer_ns >= 80 * SECOND for scenario in drawn for use in scenario.locks)
    assert any(call.patience_ns > 60 * SECOND for scenario in drawn for call in scenario.calls)
    together = [{fault.value for fault in scenario.faults if fault.kind == FaultKind.RESET} for scenario in drawn]
    assert any(len(demands) > 1 for demands in together)


@pytest.mark.parametrize("orderer", ["sequencer", "timestamp"])
def test_only_groups_with_locks_get_them(orderer: str) -> None:
    assert not any(patience_scenario(seed, orderer).locks for seed in SEEDS)
    assert not any(patience_scenario(seed, orderer).calls for seed in SEEDS)


def test_a_scenario_survives_being_written_down() -> None:
    for seed in range(20):
        scenario = patience_scenario(seed, "token")
        assert scenario_from_json(scenario_to_json(scenario)) == scenario


def view(member: str, at_ns: int, size: int) -> Row:
    name, _, life = member.partition("/")
    members = tuple(f"{each}/0" for each in "abcdefg"[:size])
    return Row(name, int(life), 0, at_ns, "view", "g", view="9@a/0", members=members, detail="reset")


def test_a_reset_that_got_what_it_asked_for_is_right() -> None:
    calls = [ResetCall("a/0", 0, 3, 100 * MS, 3), ResetCall("b/0", 0, 4, 100 * MS, 0)]
    assert broken_resets(calls, [view("a/0", 100 * MS, 3), view("b/0", 100 * MS, 3)], is_untroubled=True) == []


def test_a_reset_that_was_told_of_too_few_members_is_wrong() -> None:
    assert broken_resets([ResetCall("b/0", 0, 4, 100 * MS, 3)], [], is_untroubled=False) == [
        "resets: b/0 asked for 4 members and was told that 3 are enough"
    ]


def test_a_reset_must_not_fail_where_enough_came() -> None:
    call = ResetCall("c/0", 0, 3, 100 * MS, 0)
    found = broken_resets([call], [view("c/0", 100 * MS + TOGETHER_NS, 3)], is_untroubled=True)
    assert found == ["resets: c/0 asked for 3 members and was told that there are too few, and then came 9@a/0 with 3"]
    assert broken_resets([call], [view("c/0", 101 * MS + TOGETHER_NS, 3)], is_untroubled=True) == []
    assert broken_resets([call], [view("c/0", 100 * MS, 3)], is_untroubled=False) == []


def test_a_reset_that_has_not_ended_is_not_judged() -> None:
    assert broken_resets([ResetCall("c/0", 0, 3)], [view("c/0", 0, 3)], is_untroubled=True) == []
