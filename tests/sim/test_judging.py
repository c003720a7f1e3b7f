"""Judges of whole runs can fail: needless recoveries, excuses and their counts, and the profile that aims at them."""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import replace

import pytest

from ordercast.cli import fuzz as fuzz_command
from ordercast.cli import sim
from ordercast.cli.sim import report, scenario_of
from ordercast.config import MS, SECOND
from ordercast.errors import UsageError
from ordercast.sim.chance import slow_scenario
from ordercast.sim.checkers.stalled import LateApplication
from ordercast.sim.checkers.stuck import Excuse, Trouble
from ordercast.sim.churn import membership_scenario
from ordercast.sim.cluster import Cluster
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.fuzz import FuzzReport, SeedResult, fuzz, run_seed
from ordercast.sim.lives import late_applications, life_spans, troubles_of
from ordercast.sim.run import is_steady, needless_evictions, needless_recoveries, run_scenario
from ordercast.sim.scenario import Load, Scenario
from ordercast.sim.scenario_json import scenario_from_json, scenario_to_json
from ordercast.sim.toy import ToyEngines
from ordercast.trace.schema import Row

ORDERERS = ("sequencer", "token", "timestamp")
THREE = Scenario(orderer="token", nodes=("a", "b", "c"), loads=(Load("b", 5, start_ns=SECOND),))


def row(kind: str, view: str, detail: str | None = None) -> Row:
    return Row("a", 0, 0, 0, kind, "sim", view=view, detail=detail)


# Needless recoveries. ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orderer", ORDERERS)
@pytest.mark.parametrize(
    ("faults", "steady"),
    [
        ((), True),
        ((Fault(SECOND, "join", ("c",)), Fault(SECOND + MS, "leave", ("c",))), True),
        ((Fault(SECOND, "leave", ("a",)), Fault(2 * SECOND, "rejoin", ("a",))), True),
        ((Fault(SECOND, "pause", ("a",), for_ns=169 * MS), Fault(SECOND, "leave", ("b",))), True),
        ((Fault(SECOND, "cut", ("a",), ("b",), for_ns=300 * MS),), True),
        ((Fault(SECOND, "stall", ("a",), for_ns=9 * SECOND),), True),
        ((Fault(SECOND, "pause", ("a",), for_ns=2 * SECOND),), False),
        (
            (Fault(SECOND, "pause", ("a",), for_ns=300 * MS), Fault(SECOND, "cut", ("a",), ("b",), for_ns=300 * MS)),
            False,
        ),
        ((Fault(SECOND, "crash", ("a",)),), False),
        ((Fault(SECOND, "slow", ("a",), value=100, for_ns=MS),), False),
        ((Fault(SECOND, "reset", ("a",)),), False),
    ],
)
def test_a_run_is_steady_where_nothing_fails_whichever_its_orderer(
    orderer: str, faults: tuple[Fault, ...], steady: bool
) -> None:
    assert is_steady(replace(THREE, orderer=orderer, faults=faults)) is steady


def test_a_run_with_much_loss_is_not_steady() -> None:
    assert is_steady(replace(THREE, loss=0.1))
    assert not is_steady(replace(THREE, loss=0.2))


def test_a_recovery_where_nothing_failed_is_a_failure() -> None:
    peace = [row("view", "1@a/0", "create"), row("view", "2@a/0", "join"), row("view", "3@a/0", "lock")]
    assert needless_recoveries(peace, []) == []
    assert "from or to 2@a/0" in needless_recoveries([*peace, row("transitional", "2@a/0")], [])[0]
    assert "from or to 4@b/0" in needless_recoveries([*peace, row("view", "4@b/0", "reset")], [])[0]
    assert "b/0 saw the group fail" in needless_recoveries(peace, ["b/0"])[0]


def test_a_run_is_judged_for_needless_recoveries() -> None:
    """The pause is long enough to be noticed; a scenario that calls it short must fail."""
    paused = replace(
        THREE,
        faults=(Fault(2 * SECOND, "pause", ("c",), for_ns=400 * MS),),
        timing=(("suspect_busy_ns", 0.1), ("heartbeat_busy_ns", 0.1), ("suspect_rest_ns", 0.05)),
    )
    outcome = run_scenario(paused)
    assert [text for text in outcome.failures if text.startswith("steadiness")], outcome.failures


def test_a_newcomer_is_not_suspected_for_a_question_of_a_sequencer_that_is_out() -> None:
    """The application of c stands still, and the history fills: a asks, and is put out. One heartbeat of d is lost."""
    faults = (
        Fault(1_900 * MS, "stall", ("c",), for_ns=8 * SECOND),
        Fault(1_900 * MS, "stall", ("b",), for_ns=SECOND),
        Fault(2_900 * MS, "expel", ("a",), ("b",)),
        Fault(4 * SECOND, "join", ("d",)),
        Fault(5_600 * MS, "cut", ("d",), ("b", "c"), for_ns=450 * MS),
    )
    scenario = Scenario(
        orderer="sequencer",
        nodes=("a", "b", "c", "d"),
        starts_ns=(0, 800 * MS, 900 * MS, -1),
        history_bytes=8_192,
        loads=(Load("a", 20, "AGREED", 3_000, 2 * SECOND, 5 * MS),),
        faults=faults,
    )
    assert is_steady(scenario)
    outcome = run_scenario(scenario)
    assert outcome.held, outcome.failures
    assert outcome.is_quiet
    asked = [each for each in outcome.rows if (each.node, each.kind, each.detail) == ("a", "tx", "status")]
    assert asked, "a has asked"


def test_a_leave_that_does_not_end_is_a_failure() -> None:
    """The toy engine never leaves."""
    toys = replace(THREE, faults=(Fault(2 * SECOND, "leave", THREE.nodes),))
    outcome = run_scenario(toys, engines=ToyEngines(toys.nodes))
    assert outcome.is_deserted
    assert "leave: c/0 asked to leave at 2.000 s and is not out" in outcome.failures


# Excuses. ------------------------------------------------------------------------------------------------------------


def test_a_run_that_may_stand_still_says_why() -> None:
    outcome = run_scenario(replace(THREE, faults=(Fault(2 * SECOND, "crash", ("a", "b")),)))
    assert outcome.held, outcome.failures
    assert outcome.excuse is Excuse.TOO_FEW
    assert outcome.is_stuck_legally
    assert json.loads(json.dumps(outcome.as_json()))["stuck"] == "too few of the last view"
    assert "the group could not go on: too few of the last view" in report(outcome)


def test_a_stall_without_an_end_lasts_until_everything_is_healed() -> None:
    stalls = [Fault(5 * MS, FaultKind.STALL, ("a",)), Fault(6 * MS, FaultKind.STALL, ("b",), for_ns=2 * MS)]
    late = late_applications(stalls, "ab", (), 90 * MS)
    assert late == [LateApplication("a", 5 * MS, 90 * MS), LateApplication("b", 6 * MS, 8 * MS)]


def test_faults_that_last_are_troubles_of_the_members_that_they_may_silence() -> None:
    faults = (
        Fault(1, "pause", ("a",), for_ns=2),
        Fault(2, "cut", ("a",), ("b", "caller"), for_ns=2),
        Fault(3, "partition", ("a", "caller"), for_ns=2),
        Fault(4, "partition", ("caller",), for_ns=2),
        Fault(5, "crash", ("a",)),
        Fault(6, "leave", ("a",)),
    )
    assert troubles_of(faults, "abc") == [
        Trouble(1, 3, frozenset("a")),
        Trouble(2, 4, frozenset("ab")),
        Trouble(3, 5, frozenset("abc")),
    ]


def test_a_partition_that_no_other_one_ends_has_two_sides() -> None:
    faults = (
        Fault(1, "partition", ("a",), for_ns=2),
        Fault(4, "partition", ("a", "b"), for_ns=4),
        Fault(6, "partition", ("c",), for_ns=5),
        Fault(7, "cut", ("a",), ("c",), for_ns=1),
    )
    sides = [trouble.side for trouble in troubles_of(faults, "abc")]
    assert sides == [frozenset("a"), frozenset(), frozenset(), frozenset()]


def test_the_lives_of_a_run_have_their_wishes() -> None:
    seen: list[Cluster] = []
    faults = (
        Fault(2 * SECOND, "leave", ("c",)),
        Fault(3 * SECOND, "rejoin", ("c",)),
        Fault(4 * SECOND, "crash", ("b",)),
        Fault(5 * SECOND, "restart", ("b",)),
    )
    outcome = run_scenario(replace(THREE, faults=faults), watch=seen.append)
    lives = {life.member: life for life in life_spans(seen[0].members, outcome.rows)}
    assert set(lives) == {"a/0", "b/0", "b/1", "c/0"}
    assert [wish.is_join for wish in lives["c/0"].wishes] == [True, False, True]
    assert lives["b/0"].ended_ns // SECOND == 4
    assert not lives["b/0"].is_wanted
    assert lives["b/1"].is_up
    assert lives["b/1"].is_wanted


def test_excuses_and_failures_are_counted_by_kind() -> None:
    found = FuzzReport("token", 0, 4, profile="membership")
    quiet = SeedResult(0, (), "run it", "", 1, 1, 1, 0, 0, 0, 1, True, None, False, False, 1, 0.0)
    found.results = [
        quiet,
        replace(quiet, is_quiet=False, excuse=Excuse.JOIN),
        replace(quiet, is_quiet=False, excuse=Excuse.TOO_FEW),
        replace(quiet, is_quiet=False, failures=("not at rest at 110 s: b/0", "liveness: more")),
    ]
    values = json.loads(json.dumps(found.as_json()))
    assert values["profile"] == "membership"
    assert values["ends"] == {"quiet": 1, "stuck_legally": 2, "deserted": 0, "short": 0}
    assert values["stuck"] == {
        "too few of the last view": 1,
        "a join under way": 1,
        "a leave under way": 0,
        "a proposal under way": 0,
    }
    assert values["failed_by_kind"] == {"not at rest": 1}
    text = "\n".join(found.summary())
    assert "stuck: 1 too few of the last view, 1 a join under way, 0 a leave under way" in text
    assert "failed: 1 not at rest" in text


# The profile. --------------------------------------------------------------------------------------------------------


def sim_args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    sim.configure(parser)
    return parser.parse_args(words)


def test_scenarios_about_membership_have_what_the_profile_promises() -> None:
    scenarios = [membership_scenario(seed, "token") for seed in range(400)]
    assert all(scenario_from_json(scenario_to_json(scenario)) == scenario for scenario in scenarios)
    assert all(membership_scenario(scenario.seed, "token") == scenario for scenario in scenarios[:20])
    sizes = [len(scenario.nodes) for scenario in scenarios]
    assert set(sizes) == {2, 3, 4, 5, 6, 7}
    assert sum(size <= 5 for size in sizes) > 300
    kinds = {fault.kind for scenario in scenarios for fault in scenario.faults}
    assert kinds == {"crash", "restart", "pause", "partition", "cut", "lossy", "leave", "rejoin", "join"}
    assert {scenario.min_members for scenario in scenarios} >= {"majority", "all", 1, 2, 3}
    assert any(len(set(scenario.rules)) > 1 for scenario in scenarios)
    assert {scenario.recovery for scenario in scenarios} == {"automatic", "manual"}
    assert any(scenario.locks for scenario in scenarios)
    assert 30 < sum(is_steady(scenario) for scenario in scenarios) < 120
    assert max(scenario.messages for scenario in scenarios) <= 30
    assert not any(set(fault.nodes) & set(fault.others) for scenario in scenarios for fault in scenario.faults)


def test_scenarios_about_membership_cancel_joins() -> None:
    def cancels(scenario: Scenario) -> bool:
        joins = {fault.nodes: fault.at_ns for fault in scenario.faults if fault.kind == "join"}
        return any(
            fault.kind == "leave" and 0 <= fault.at_ns - joins.get(fault.nodes, SECOND * 1_000) < 300 * MS
            for fault in scenario.faults
        )

    assert sum(cancels(membership_scenario(seed)) for seed in range(300)) > 20


def test_the_seeds_about_membership_stay_what_they_are() -> None:
    """What was fuzzed once can be replayed."""
    told = hashlib.sha256()
    for seed in range(10_000_000, 10_000_020):
        values = json.loads(scenario_to_json(membership_scenario(seed, "token")))
        assert values.pop("bootstrap") == 1, "it came later"
        assert (values.pop("slow"), values.pop("patience_ns")) == ("evict", 10 * SECOND), "they came later"
        told.update(json.dumps(values, sort_keys=True).encode())
    assert told.hexdigest()[:16] == "65493cf12c26f519"


def test_scenarios_about_slow_receivers_stop_applications_and_expel_members() -> None:
    scenarios = [slow_scenario(seed, "token") for seed in range(60)]
    kinds = [{fault.kind for fault in scenario.faults} for scenario in scenarios]
    assert all("stall" in each for each in kinds)
    assert 10 < sum("expel" in each for each in kinds) < 50
    assert sum(is_steady(scenario) for scenario in scenarios) > 20
    assert {scenario.slow for scenario in scenarios} == {"evict", "wait"}
    assert scenario_from_json(scenario_to_json(scenarios[0])) == scenarios[0]
    assert slow_scenario(7, "token") == slow_scenario(7, "token")


def test_an_eviction_of_a_member_that_received_is_a_failure() -> None:
    """The judge, on a run in which a member is evicted: with another reason for the fault it objects."""
    scenario = replace(
        Scenario(seed=1, orderer="sequencer", nodes=("a", "b", "c"), history_bytes=8_192, patience_ns=SECOND),
        loads=(Load("a", 100, "AGREED", 200, SECOND, 5 * MS),),
        faults=(Fault(SECOND, "stall", ("c",), (), 0.0, 4 * SECOND),),
    )
    outcome = run_scenario(scenario)
    assert outcome.held, outcome.failures
    assert [row.node for row in outcome.rows if row.kind == "leave"] == ["c"]
    assert needless_evictions(outcome.rows, scenario) == []
    calm = replace(scenario, faults=())
    assert [text.split(" at ")[0] for text in needless_evictions(outcome.rows, calm)] == ["eviction: c"]


def test_a_seed_about_membership_is_replayed_by_its_command() -> None:
    drawn = membership_scenario(7, "timestamp", anticipate=False)
    expected = "ordercast sim --profile membership --scenario-seed 7 --orderer timestamp --no-anticipate"
    assert drawn.command == expected
    assert scenario_of(sim_args(*expected.split()[2:])) == drawn
    with pytest.raises(UsageError, match="give it with --scenario-seed"):
        scenario_of(sim_args("--profile", "membership"))


def test_the_fuzzer_takes_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    fuzz_command.configure(parser)
    args = parser.parse_args(["--profile", "membership", "--orderer", "token", "--runs", "2", "--json"])
    fuzz_command.run(args)
    values = json.loads(capsys.readouterr().out)
    assert (values["profile"], values["runs"]) == ("membership", 2)
    assert run_seed("token", 1, profile="membership").command.startswith("ordercast sim --profile membership")
    with pytest.raises(UsageError, match="there is no profile 'other'"):
        fuzz("token", profile="other")
