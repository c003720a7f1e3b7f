"""Locks, handlers, calls and members without multicast in simulated runs of the token orderer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.sim.bug import Bug
from tests.sim.planting import planted
from tests.unit.wrapped_engine import WrappedEngine

from ordercast.config import MS, SECOND
from ordercast.sim.faults import Fault
from ordercast.sim.run import Outcome, run_scenario
from ordercast.sim.scenario import SERVICES, CallPlan, Load, LockUse, Scenario
from ordercast.trace.schema import Row
from ordercast.underlay import Underlay

BASE = Scenario(orderer="token", nodes=("a", "b", "c", "d"), loads=(Load("a", 20, start_ns=SECOND),))
CALLING = replace(BASE, callers=("x", "y"))


def held(scenario: Scenario) -> Outcome:
    outcome = run_scenario(scenario)
    assert outcome.held, "\n".join(outcome.failures)
    assert outcome.is_quiet
    return outcome


def of_kind(outcome: Outcome, *kinds: str) -> list[Row]:
    return sorted((row for row in outcome.rows if row.kind in kinds), key=lambda row: (row.at_ns, row.n))


def test_a_lock_goes_from_one_who_wants_it_to_the_next() -> None:
    uses = tuple(LockUse(name, "x", SECOND, 50 * MS) for name in "abcd")
    outcome = held(replace(BASE, locks=uses))
    rows = of_kind(outcome, "lock", "unlock")
    assert [row.kind for row in rows] == ["lock", "unlock"] * 4
    assert {row.node for row in rows} == set("abcd")
    assert all(left.node == right.node for left, right in zip(rows[::2], rows[1::2], strict=True))
    assert outcome.stats.locks == 4


def test_a_lock_outlives_its_holder() -> None:
    uses = (LockUse("d", "x", SECOND, 60 * SECOND), LockUse("b", "x", 1_100 * MS, 50 * MS))
    outcome = held(replace(BASE, locks=uses, faults=(Fault(1_500 * MS, "crash", ("d",)),)))
    granted = [(row.node, row.at_ns) for row in of_kind(outcome, "lock")]
    assert [name for name, _ in granted] == ["d", "b"]
    assert granted[1][1] > 1_500 * MS


def test_several_locks_at_once() -> None:
    uses = tuple(LockUse(name, key, SECOND, 20 * MS) for name in "abcd" for key in ("x", "7", "a longer name"))
    assert held(replace(BASE, locks=uses)).stats.locks == 12


@pytest.mark.parametrize("service", [*(name for name in SERVICES["token"] if name != "RESILIENT"), "RESILIENT(2)"])
def test_calls_from_outside_are_acknowledged_with_every_service(service: str) -> None:
    outcome = held(
        replace(CALLING, calls=(CallPlan("x", 5, service, start_ns=SECOND), CallPlan("y", 3, service, burst=3)))
    )
    assert outcome.stats.calls == 10  # two of them are the probe
    assert outcome.stats.answers == 10
    assert len([row for row in outcome.rows if row.kind == "deliver" and row.sender == "x/0"]) == 4 * 6


def test_the_holder_of_the_handler_answers_and_nobody_else() -> None:
    locks = (LockUse("c", "2", SECOND, 3 * SECOND, answer_ns=10 * MS),)
    outcome = held(replace(CALLING, locks=locks, calls=(CallPlan("x", 6, start_ns=1_200 * MS, handler=2, burst=6),)))
    replies = of_kind(outcome, "reply")
    assert [row.node for row in replies] == ["c"] * 6
    assert sorted(row.first or 0 for row in replies) == list(range(6))
    assert outcome.stats.answers == 6 + 2


def test_calls_are_answered_by_whoever_has_the_handler_at_their_place() -> None:
    locks = (LockUse("c", "2", SECOND, 300 * MS), LockUse("d", "2", 1_050 * MS, 2 * SECOND))
    outcome = held(replace(CALLING, locks=locks, calls=(CallPlan("x", 20, start_ns=1_200 * MS, handler=2),)))
    assert {row.node for row in of_kind(outcome, "reply")} == {"c", "d"}


def test_a_call_to_a_handler_that_nobody_holds_is_given_up() -> None:
    outcome = held(replace(CALLING, calls=(CallPlan("x", 2, start_ns=SECOND, handler=5),)))
    assert not of_kind(outcome, "reply")
    assert outcome.stats.answers == 2  # the probe's


def test_calls_without_acknowledgement_are_sent_and_forgotten() -> None:
    outcome = held(replace(CALLING, calls=(CallPlan("y", 8, start_ns=SECOND, wants_ack=False, burst=8),)))
    assert outcome.stats.answers == 2
    assert len(of_kind(outcome, "confirm")) == 2


def test_a_call_goes_through_one_member_that_passes_it_on() -> None:
    outcome = held(replace(CALLING, calls=(CallPlan("x", 3, start_ns=SECOND, to="b"),), without_multicast=("x",)))
    assert outcome.stats.answers == 5


def test_a_members_own_call_is_answered_to_the_whole_group() -> None:
    locks = (LockUse("c", "0", SECOND, 2 * SECOND),)
    outcome = held(replace(BASE, locks=locks, calls=(CallPlan("b", 3, start_ns=1_200 * MS, handler=0),)))
    assert outcome.stats.answers == 3
    answers = [row for row in outcome.rows if row.kind == "deliver" and row.sender == "c/0"]
    assert len(answers) == 4 * (3 + 1)  # the probe's is one


@pytest.mark.parametrize("without_multicast", [("b",), ("a", "c"), ("a", "b", "c"), ("a", "b", "c", "d"), ("x", "d")])
def test_members_and_callers_without_multicast_are_reached_all_the_same(without_multicast: tuple[str, ...]) -> None:
    calls = (CallPlan("x", 5, start_ns=SECOND), CallPlan("y", 5, start_ns=SECOND))
    outcome = held(
        replace(
            CALLING, without_multicast=without_multicast, calls=calls, loads=tuple(Load(name, 20) for name in "abcd")
        )
    )
    assert outcome.stats.answers == 12


def test_one_member_that_asks_for_a_majority_keeps_the_smaller_part_from_going_on() -> None:
    """RMP section 4.4: the largest minimum that any member asked for."""
    parted = (Fault(2 * SECOND, "partition", ("a", "b"), for_ns=6 * SECOND),)
    loads = tuple(Load(name, 400, interval_ns=20 * MS, start_ns=SECOND) for name in "abcd")
    outcome = held(replace(BASE, rules=("majority", 1, 1, 1), faults=parted, loads=loads))
    parts = {row.came_with for row in of_kind(outcome, "view") if row.detail == "reset"}
    assert len(parts) == 1


def test_a_part_that_goes_on_against_the_rule_is_found_out() -> None:
    """The same, where engines ignore what they were asked for: the fork of the views is seen."""

    def careless(*args: Any, **options: Any) -> Underlay:
        return Underlay(*args, **{**options, "min_members": 1})

    parted = (Fault(2 * SECOND, "partition", ("a", "b"), for_ns=6 * SECOND),)
    loads = tuple(Load(name, 400, interval_ns=20 * MS, start_ns=SECOND) for name in "abcd")
    outcome = run_scenario(replace(BASE, faults=parted, loads=loads), engines=careless)
    assert any("two parts of sim went on" in text for text in outcome.failures), outcome.failures


def test_an_engine_that_holds_more_than_its_history_allows_is_found_out() -> None:
    class Greedy(WrappedEngine):
        peak_bytes = 1 << 30

    outcome = run_scenario(BASE, engines=Greedy)
    assert [text for text in outcome.failures if text.startswith("buffers:")]
    assert outcome.stats.peak_bytes == 1 << 30


def test_a_lock_that_nobody_gives_back_is_found_out() -> None:
    forgetful = Bug("forgetful", "Locks.give_up", "lock = self._locks.get(claim.key)", "lock = None", "locks", 1)
    outcome = run_scenario(replace(BASE, locks=(LockUse("b", "x", SECOND, MS),)), partial(planted, forgetful))
    assert [text for text in outcome.failures if text.startswith("locks: at rest")]


def test_one_seed_with_locks_and_calls_gives_one_trace() -> None:
    uses = (LockUse("a", "2", SECOND, SECOND), LockUse("b", "2", SECOND, SECOND))
    scenario = replace(
        CALLING, locks=uses, calls=(CallPlan("x", 20, start_ns=SECOND, handler=2),), loss=0.1, without_multicast=("c",)
    )
    assert run_scenario(scenario).digest == run_scenario(scenario).digest
