"""Scenarios, runs and their judgement, with the toy engine in the place of a protocol."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
from tests.sim.bug import Bug
from tests.sim.planting import planted
from tests.unit.shared_directory import SharedDirectory

from ordercast.config import MS, SECOND
from ordercast.errors import UsageError
from ordercast.sim.application import is_intact, payload
from ordercast.sim.chance import random_scenario
from ordercast.sim.checkers import check_all
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.faults import Fault
from ordercast.sim.network import IDEAL
from ordercast.sim.plain import plain_scenario
from ordercast.sim.run import Outcome, run_scenario
from ordercast.sim.scenario import PATIENCE_NS, SERVICES, Load, Scenario
from ordercast.sim.scenario_json import scenario_from_json, scenario_to_json
from ordercast.sim.toy import ToyEngines

DIGEST_PROGRAM = """
from ordercast.sim.run import run_scenario
from ordercast.sim.plain import plain_scenario
from ordercast.sim.toy import ToyEngines
scenario = plain_scenario(seed=11, messages=60, nodes=4, loss=0.1, duplicate=0.1, reorder=0.1, pause=1)
print(run_scenario(scenario, engines=ToyEngines(scenario.nodes)).digest)
"""


# What a scenario had before there were locks and calls
OLD_FIELDS = [
    "seed",
    "orderer",
    "nodes",
    "starts_ns",
    "network",
    "jitter_ns",
    "loss",
    "duplicate",
    "reorder",
    "has_multicast",
    "buffer_bytes",
    "datagram",
    "history_bytes",
    "history_blocks",
    "resilience",
    "min_members",
    "recovery",
    "timing",
    "loads",
    "take_delays_ns",
    "faults",
    "event_limit",
    "command",
]


def run(scenario: Scenario) -> Outcome:
    return run_scenario(scenario, engines=ToyEngines(scenario.nodes))


def test_a_run_without_trouble_delivers_everything_and_comes_to_rest() -> None:
    outcome = run(plain_scenario(seed=3, messages=100, nodes=4))
    assert outcome.is_quiet
    assert outcome.stats.submitted == 104  # four of them are the probe
    assert outcome.stats.delivered == 4 * 104
    assert outcome.stats.datagrams == {"request": 78, "ordered": 104}
    assert outcome.stats.views == 1
    assert 0 < outcome.stats.latency_p50_ns <= outcome.stats.latency_p99_ns
    assert not [text for text in outcome.failures if not text.startswith("vacuous")]


def test_one_seed_gives_one_trace() -> None:
    scenario = plain_scenario(seed=11, messages=60, nodes=4, duplicate=0.1, reorder=0.1)
    assert run(scenario).digest == run(scenario).digest
    assert run(scenario).digest != run(replace(scenario, seed=12)).digest


def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST_PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


def test_a_run_that_does_not_come_to_rest_fails_and_says_who() -> None:
    outcome = run(plain_scenario(seed=3, messages=100, nodes=3, loss=0.2))
    assert not outcome.held
    assert outcome.failures[0].startswith("not at rest at")
    assert "b/0: group 'sim': the engine is not at rest" in outcome.failures[0]


def test_an_exception_in_an_engine_is_a_failure_of_the_run() -> None:
    broken = Bug("broken", "ToyEngine.room", "(8_000, 1_000)", "1 / 0", "An engine raises.", 1)
    scenario = plain_scenario(seed=3, messages=10, nodes=2)
    outcome = run_scenario(scenario, partial(planted, broken), engines=ToyEngines(scenario.nodes))
    assert "ZeroDivisionError" in outcome.failures[0]
    assert "ZeroDivisionError" not in str(run(scenario).failures)  # the bug was taken out


def test_a_planted_bug_is_caught_by_the_checkers() -> None:
    disordered = Bug(
        "disordered",
        "ToyEngine._deliver",
        "self._early[seq] = (origin, number, block)",
        "self._due, self._early[seq] = seq, (origin, number, block)",
        "Members deliver blocks as they come in, whatever their sequence number.",
        1,
    )
    scenario = plain_scenario(seed=5, messages=200, nodes=4, reorder=0.3)
    assert not run_scenario(scenario, partial(planted, disordered), engines=ToyEngines(scenario.nodes)).held


def test_a_livelock_is_a_failure() -> None:
    scenario = replace(plain_scenario(seed=3, messages=100), event_limit=500)
    assert run(scenario).failures[0].startswith("livelock: more than 500 events")


def test_a_member_that_takes_late_gets_everything() -> None:
    scenario = replace(plain_scenario(seed=3, messages=50, nodes=3), take_delays_ns=(0, 200_000_000, 0))
    assert run(scenario).is_quiet


def test_a_stalled_application_takes_nothing_until_it_is_healed() -> None:
    seen: list[Cluster] = []
    scenario = Scenario(
        nodes=("a", "b"),
        loads=(Load("a", 10, interval_ns=1_000_000),),
        faults=(Fault(0, "stall", ("b",), for_ns=500_000_000),),
    )
    taken: list[int] = []

    def watch(cluster: Cluster) -> None:
        seen.append(cluster)
        cluster.world.at(499_000_000, lambda _: taken.append(cluster.members["b"].delivered))

    assert run_scenario(scenario, engines=ToyEngines("ab"), watch=watch).is_quiet
    assert taken == [0]
    assert seen[0].members["b"].delivered == 12


def test_every_random_scenario_survives_being_written_down() -> None:
    for seed in range(200):
        scenario = random_scenario(seed)
        assert scenario_from_json(scenario_to_json(scenario)) == scenario
        assert random_scenario(seed) == scenario


def test_random_scenarios_differ_and_cover_what_can_happen() -> None:
    scenarios = [random_scenario(seed) for seed in range(300)]
    kinds = {fault.kind for scenario in scenarios for fault in scenario.faults}
    assert kinds >= {"crash", "restart", "pause", "partition", "cut", "slow", "stall", "leave", "rejoin", "join"}
    services = {load.service for scenario in scenarios for load in scenario.loads}
    assert services >= {"RELIABLE", "FIFO", "AGREED", "RESILIENT(1)", "SAFE"}
    assert {len(scenario.nodes) for scenario in scenarios} == {2, 3, 4, 5, 6, 7}
    assert {scenario.recovery for scenario in scenarios} == {"automatic", "manual"}
    assert max(load.size for scenario in scenarios for load in scenario.loads) > 65_536


def test_scenarios_of_the_token_have_locks_calls_and_members_without_multicast() -> None:
    scenarios = [random_scenario(seed, "token") for seed in range(120)]
    assert all(scenario_from_json(scenario_to_json(scenario)) == scenario for scenario in scenarios)
    services = {load.service.partition("(")[0] for scenario in scenarios for load in scenario.loads}
    assert services == set(SERVICES["token"])
    calls = [call for scenario in scenarios for call in scenario.calls]
    assert {call.service.partition("(")[0] for call in calls} == set(SERVICES["token"])
    assert {(call.handler >= 0, call.wants_ack) for call in calls} == {(True, True), (False, True), (False, False)}
    assert any(call.wants_again for call in calls)
    assert any(call.to for call in calls)
    assert any(call.node in scenario.nodes for scenario in scenarios for call in scenario.calls)
    locks = {use.lock for scenario in scenarios for use in scenario.locks}
    assert {"x", "2"} <= locks
    assert any(0 < len(scenario.without_multicast) < len(scenario.nodes) for scenario in scenarios)
    assert any(len(set(scenario.rules)) > 1 for scenario in scenarios)
    assert {scenario.flow for scenario in scenarios} == {"slow-start", "open"}


def test_scenarios_of_other_orderers_have_none_of_that() -> None:
    for seed in range(50):
        scenario = random_scenario(seed, "sequencer")
        assert (scenario.callers, scenario.calls, scenario.locks, scenario.without_multicast, scenario.rules) == (
            (),
        ) * 5


def test_scenarios_of_timestamps_are_the_same_with_and_without_anticipation() -> None:
    for seed in range(40):
        tompa, abcast = (random_scenario(seed, "timestamp", anticipate) for anticipate in (True, False))
        assert (tompa.anticipate, abcast.anticipate) == (True, False)
        assert replace(abcast, anticipate=True, command=tompa.command) == tompa
        assert scenario_from_json(scenario_to_json(abcast)) == abcast


def test_scenarios_of_timestamps_have_all_but_locks_and_calls() -> None:
    scenarios = [random_scenario(seed, "timestamp") for seed in range(120)]
    services = {load.service.partition("(")[0] for scenario in scenarios for load in scenario.loads}
    assert services == set(SERVICES["timestamp"])
    assert not any(scenario.callers or scenario.calls or scenario.locks for scenario in scenarios)
    assert any(0 < len(scenario.without_multicast) < len(scenario.nodes) for scenario in scenarios)
    assert any(len(set(scenario.rules)) > 1 for scenario in scenarios)
    assert {scenario.flow for scenario in scenarios} == {"slow-start", "open"}
    partitions = [fault for scenario in scenarios for fault in scenario.faults if fault.kind == "partition"]
    assert max(fault.for_ns for fault in partitions) > 6_000 * MS


def test_the_seeds_of_the_sequencer_stay_what_they_are() -> None:
    """What was fuzzed once can be replayed: new ingredients are drawn from streams of their own."""
    told = hashlib.sha256()
    for seed in range(20):
        values = json.loads(scenario_to_json(random_scenario(seed, "sequencer")))
        told.update(json.dumps([values[name] for name in OLD_FIELDS], sort_keys=True).encode())
    assert told.hexdigest()[:16] == "550ba495b0c22f60"


def test_the_seeds_of_the_token_stay_what_they_are() -> None:
    told = hashlib.sha256()
    for seed in range(20):
        values = json.loads(scenario_to_json(random_scenario(seed, "token")))
        del values["anticipate"]
        assert values.pop("bootstrap") == 1, "it came later"
        values["deaf"] = values.pop("without_multicast")  # its name when these seeds were first drawn
        assert (values.pop("slow"), values.pop("patience_ns")) == ("evict", 10 * SECOND), "they came later"
        for call in values["calls"]:
            assert call.pop("patience_ns") == PATIENCE_NS, "it came later"
        told.update(json.dumps(values, sort_keys=True).encode())
    assert told.hexdigest()[:16] == "7e469e44b1060395"


def test_a_scenario_that_was_saved_by_an_earlier_release_is_still_read() -> None:
    scenario = replace(plain_scenario(nodes=3), without_multicast=("b",))
    values = json.loads(scenario_to_json(scenario))
    values["deaf"] = values.pop("without_multicast")
    assert scenario_from_json(json.dumps(values)) == scenario


def test_a_run_names_the_command_that_replays_it() -> None:
    assert random_scenario(17).command == "ordercast sim --scenario-seed 17 --orderer sequencer"
    command = plain_scenario(seed=7, loss=0.05, service="RESILIENT(2)", crash=1).command
    assert command == "ordercast sim --seed 7 --orderer sequencer --service 'RESILIENT(2)' --loss 0.05 --crash 1"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[]", "a scenario is a JSON object"),
        ("{", "this is no scenario"),
        ('{"colour": 1}', "a scenario has no colour"),
        ('{"loss": 2}', "loss is a probability"),
        ('{"network": "moon"}', "there is no network 'moon'"),
        ('{"nodes": ["a", "b"], "rules": ["all"]}', "one for each of the 2 nodes"),
        ('{"nodes": ["a"], "callers": ["a"]}', "no two nodes or callers"),
        ('{"nodes": ["a"], "locks": [{"node": "z", "lock": "x", "at_ns": 0, "hold_ns": 0}]}', "there is no node z"),
        ('{"calls": [{"node": "a", "colour": 1}]}', "this is no scenario"),
    ],
)
def test_what_is_no_scenario_is_refused_with_a_reason(text: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        scenario_from_json(text)


@pytest.mark.parametrize("size", [0, 1, 8, 39, 40, 100, 70_000])
def test_a_payload_tells_whether_it_is_whole(size: int) -> None:
    data = payload("node/0", 12, size)
    assert len(data) == size
    assert is_intact(data, "node/0")
    if size >= 40:
        assert not is_intact(data, "other/0")
        assert not is_intact(data[:-1] + b"\0", "node/0")
        assert not is_intact(data + b"x", "node/0")


def test_members_of_a_cluster_deliver_in_one_order() -> None:
    cluster = Cluster(1, IDEAL, engines=ToyEngines("abc"))
    for name in "abc":
        cluster.add(name)
        cluster.world.start(name)
    for member in cluster.members.values():
        member.send(20, "AGREED", 10, is_confirmed=True)
    assert cluster.run_to_rest(10_000_000_000) == []
    logs = [member.seen.log for member in cluster.members.values()]
    assert logs[0] == logs[1] == logs[2]
    assert [member.seen.confirmed for member in cluster.members.values()] == [20, 20, 20]
    assert cluster.corruptions() == []


def test_members_of_one_world_may_be_in_different_groups() -> None:
    cluster = Cluster(2, IDEAL)
    for name, group in (("a", None), ("b", None), ("c", "other"), ("d", "other")):
        cluster.add(name, group=group)
        cluster.world.start(name)
    assert cluster.run_to_rest(20_000_000_000) == []
    for member in cluster.members.values():
        member.send(10, "AGREED", 50)
    assert cluster.run_to_rest(40_000_000_000) == []
    assert [sorted(map(str, view.members)) for view in cluster.views("sim")] == [["a/0", "b/0"]]
    assert len(cluster.views()) == 2
    for group, names in (("sim", "ab"), ("other", "cd")):
        seen = [cluster.members[name].seen for name in names]
        assert seen[0].log == seen[1].log
        assert seen[0].delivered_by == {f"{name}/0": 10 for name in names}
        assert {row.underlay for row in cluster.world.rows() if row.node in names and row.kind == "deliver"} == {group}
    assert check_all(cluster.world.rows(), clock="virtual", quiet=True).held


def test_the_name_of_a_group_is_a_parameter_of_the_cluster() -> None:
    cluster = Cluster(2, IDEAL, Terms(group="floor"))
    for name in "ab":
        cluster.add(name)
        cluster.world.start(name)
    assert cluster.run_to_rest(20_000_000_000) == []
    assert {row.underlay for row in cluster.world.rows() if row.kind == "view"} == {"floor"}


def test_a_directory_puts_the_groups_of_a_cluster_on_one_underlay() -> None:
    cluster = Cluster(3, IDEAL, Terms(directory=SharedDirectory("floor", "left", "right")))
    for name, group in (("a", "left"), ("b", "left"), ("c", "right"), ("d", "right")):
        cluster.add(name, group=group)
        cluster.world.start(name)
    assert cluster.run_to_rest(20_000_000_000) == []
    assert sorted(sorted(map(str, view.members)) for view in cluster.views()) == [["a/0", "b/0"], ["c/0", "d/0"]]
    underlay = [row for row in cluster.world.rows() if row.kind == "view" and row.group is None]
    assert sorted(underlay[-1].members or ()) == ["a/0", "b/0", "c/0", "d/0"]
    for member in cluster.members.values():
        member.send(10, "AGREED", 50)
    assert cluster.run_to_rest(40_000_000_000) == []
    assert cluster.members["a"].seen.log == cluster.members["b"].seen.log
    assert cluster.members["a"].seen.delivered_by == {"a/0": 10, "b/0": 10}
    assert {row.underlay for row in cluster.world.rows() if row.kind == "deliver"} == {"floor"}
