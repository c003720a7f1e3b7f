"""Groups that wait for members, in the simulator: what the profile draws, and what single cases come to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from tests.sim.gathering_bugs import GATHERING_BUGS
from tests.sim.planting import planted

from ordercast.config import MS, SECOND
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.fuzz import fuzz
from ordercast.sim.gathering import gathering_scenario
from ordercast.sim.run import run_scenario
from ordercast.sim.scenario import Load, LockUse, Scenario
from ordercast.sim.scenario_json import scenario_from_json, scenario_to_json

ORDERERS = ("token", "sequencer", "timestamp")
WAITING = Scenario(
    nodes=("a", "b", "c"),
    bootstrap=3,
    starts_ns=(0, SECOND, 4 * SECOND),
    loads=tuple(Load(name, 20, interval_ns=20 * MS, start_ns=2 * SECOND, is_confirmed=True) for name in "ab"),
)


def test_everything_about_small_groups_is_drawn() -> None:
    drawn = [gathering_scenario(seed, "token") for seed in range(300)]
    assert any(scenario.bootstrap > len(scenario.nodes) for scenario in drawn)
    assert any(isinstance(rule := scenario.min_members, int) and rule > len(scenario.nodes) for scenario in drawn)
    assert any(scenario.bootstrap > 1 and isinstance(scenario.min_members, int) for scenario in drawn)
    kinds = {fault.kind for scenario in drawn for fault in scenario.faults}
    assert kinds >= {"leave", "crash", "rejoin", "restart", "join", "pause", "partition"}
    assert any(scenario.calls for scenario in drawn)
    for scenario in drawn[:20]:
        assert scenario_from_json(scenario_to_json(scenario)) == scenario
    assert not any(gathering_scenario(seed, "sequencer").locks for seed in range(50))


@pytest.mark.parametrize("orderer", ORDERERS)
def test_the_first_seeds_hold(orderer: str) -> None:
    found = fuzz(orderer, 10_700_000, 8, profile="gathering")
    assert found.held, "\n".join(found.summary())


@pytest.mark.parametrize("orderer", ORDERERS)
def test_nothing_is_sent_before_the_third_member_and_everything_after(orderer: str) -> None:
    outcome = run_scenario(replace(WAITING, orderer=orderer))
    assert outcome.held, outcome.failures
    assert outcome.is_quiet
    assert min(row.at_ns for row in outcome.rows if row.kind == "submit") > 4 * SECOND
    assert sum(row.count or 0 for row in outcome.rows if row.kind == "confirm") == 40


@pytest.mark.parametrize("needs", [{"bootstrap": 4}, {"bootstrap": 1, "min_members": 4}])
@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_group_that_never_has_enough_members_waits_and_is_told_from_one_that_is_stuck(
    orderer: str, needs: dict[str, int]
) -> None:
    outcome = run_scenario(replace(WAITING, orderer=orderer, **needs))  # type: ignore[arg-type]
    assert outcome.held, outcome.failures
    assert outcome.is_short
    assert not outcome.is_stuck_legally
    assert outcome.as_json()["short"] is True
    assert not outcome.stats.delivered


@pytest.mark.parametrize("orderer", ORDERERS)
def test_two_parts_that_begin_apart_send_nothing_until_they_meet(orderer: str) -> None:
    """The reason for a bootstrap: otherwise each part would begin by itself, and one of them would have to end."""
    apart = Fault(0, FaultKind.PARTITION, ("a",), for_ns=6 * SECOND)
    outcome = run_scenario(replace(WAITING, orderer=orderer, starts_ns=(0, 0, 0), faults=(apart,)))
    assert outcome.held, outcome.failures
    assert outcome.is_quiet
    sizes = {row.view: len(row.members or ()) for row in outcome.rows if row.kind == "view"}
    assert {sizes[row.view] for row in outcome.rows if row.kind == "deliver"} == {3}


def test_members_that_leave_do_not_take_the_tokens_with_them() -> None:
    """Grants before and after a crash of the member that creates the views, of two locks: every token is larger."""
    wanted = ((3, "a", "x"), (4, "b", "x"), (5, "c", "y"), (14, "b", "x"), (15, "c", "x"))
    uses = tuple(LockUse(name, lock, at * SECOND, 300 * MS) for at, name, lock in wanted)
    held = LockUse("b", "z", 5 * SECOND, 20 * SECOND)
    scenario = replace(
        WAITING,
        orderer="token",
        starts_ns=(),
        locks=(*uses, held),
        faults=(Fault(8 * SECOND, FaultKind.CRASH, ("a",)),),
    )
    outcome = run_scenario(scenario)
    assert outcome.held, outcome.failures
    assert outcome.stats.locks == 6


def test_an_engine_that_loses_its_beginning_is_not_excused_as_too_small() -> None:
    bug = next(bug for bug in GATHERING_BUGS if bug.name == "a recovery forgets that the group has begun")
    scenario = replace(WAITING, starts_ns=(), faults=(Fault(2200 * MS, FaultKind.CRASH, ("c",)),))
    assert run_scenario(scenario).is_quiet
    outcome = run_scenario(scenario, partial(planted, bug))
    assert [text for text in outcome.failures if text.startswith("not at rest")], outcome.failures
