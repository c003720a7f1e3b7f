"""Restarts with and without a folder, as an application sees them. docs/design/restarts.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ordercast.config import MS
from ordercast.groups.events import Uncertain
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.member import SimMember
from ordercast.sim.restarts import restarts_scenario
from ordercast.sim.run import run_scenario
from ordercast.sim.scenario import Load, LockUse, Scenario
from ordercast.sim.scenario_json import scenario_from_json, scenario_to_json
from ordercast.view import Reason, View

ORDERERS = ("token", "sequencer", "timestamp")
NAMES = ("a", "b", "c")


def three(*faults: Fault, orderer: str = "token", folders: tuple[str, ...] = NAMES) -> Scenario:
    return Scenario(
        orderer=orderer,
        nodes=NAMES,
        starts_ns=(0, 20 * MS, 40 * MS),
        folders=folders,
        loads=tuple(Load(name, 100, start_ns=700 * MS, interval_ns=10 * MS) for name in NAMES),
        faults=faults,
    )


def crash(at_ms: int, *names: str) -> Fault:
    return Fault(at_ms * MS, FaultKind.CRASH, names)


def restart(at_ms: int, *names: str) -> Fault:
    return Fault(at_ms * MS, FaultKind.RESTART, names)


@pytest.mark.parametrize("orderer", ORDERERS)
@pytest.mark.parametrize("victims", [("b",), ("a", "b"), NAMES], ids=lambda names: "".join(names))
def test_members_that_are_restarted_with_their_folders_come_back(orderer: str, victims: tuple[str, ...]) -> None:
    outcome = run_scenario(three(crash(1_000, *victims), restart(2_000, *victims), orderer=orderer))
    assert outcome.held, outcome.failures
    assert outcome.is_quiet
    views = [row for row in outcome.rows if row.kind == "view" and row.detail == "restart"]
    assert {row.node for row in views} == set(NAMES)
    assert max(row.at_ns for row in views) < 3_000 * MS, "nobody is missing, so nobody is waited for"


def test_a_majority_of_the_last_view_forms_the_group_again_after_the_wait() -> None:
    outcome = run_scenario(three(crash(1_000, *NAMES), restart(2_000, "a", "b")))
    assert outcome.is_quiet, outcome.failures
    first_ns = min(row.at_ns for row in outcome.rows if row.kind == "view" and row.detail == "restart")
    assert 5_000 * MS <= first_ns < 6_000 * MS


def test_one_of_three_waits_for_the_others() -> None:
    outcome = run_scenario(three(crash(1_000, *NAMES), restart(2_000, "a")))
    assert outcome.held, outcome.failures
    assert outcome.is_stuck_legally


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_member_that_did_not_hear_of_a_join_does_not_send_the_restarted_newcomer_away(orderer: str) -> None:
    """b does not hear a, and knows nothing of the join of c. It is gone when c's vote is needed."""
    cut = Fault(1_190 * MS, FaultKind.CUT, ("a",), ("b",), for_ns=2_000 * MS)
    scenario = three(cut, crash(1_400, "c"), restart(1_500, "c"), crash(2_000, "b"), orderer=orderer)
    outcome = run_scenario(replace(scenario, starts_ns=(0, 800 * MS, 1_200 * MS), loads=()))
    assert outcome.is_quiet, outcome.failures


def test_without_a_folder_two_of_three_do_not_bring_the_group_back() -> None:
    """The survivor cannot know whether the two have gone on: as before, and the log says why."""
    outcome = run_scenario(three(crash(1_000, "a", "b"), restart(2_000, "a", "b"), folders=("c",)))
    assert outcome.held, outcome.failures
    assert outcome.is_stuck_legally


def test_a_survivor_is_told_that_messages_may_be_lost_and_others_are_not() -> None:
    cluster = Cluster("uncertain", terms=Terms())
    seen: dict[str, list[Any]] = {}

    def note(member: SimMember, event: Any) -> None:
        if isinstance(event, Uncertain) or (isinstance(event, View) and event.reason == Reason.RESTART):
            seen.setdefault(str(member), []).append(event)

    for name in NAMES:
        cluster.add(name, has_folder=True).on_event = note
        cluster.world.start(name)
    assert not cluster.run_to_rest(20_000 * MS)
    for name in "ab":
        cluster.world.crash(name)
        cluster.world.start(name)
    assert not cluster.run_to_rest(cluster.world.now_ns + 20_000 * MS)
    kinds = {member: [type(event).__name__ for event in events] for member, events in seen.items()}
    assert kinds == {"c/0": ["View", "Uncertain"], "a/1": ["View"], "b/1": ["View"]}
    told = seen["c/0"][1]
    assert told.count == 0
    assert "a/1" in told.text
    assert "b/1" in told.text


def test_a_member_that_comes_back_without_its_folder_is_named_in_the_log() -> None:
    cluster = Cluster("forgetful")
    for name in NAMES:
        cluster.add(name)
        cluster.world.start(name)
    assert not cluster.run_to_rest(20_000 * MS)
    for name in "ab":
        cluster.world.crash(name)
    cluster.world.run_until(cluster.world.now_ns + 8_000 * MS)
    cluster.world.start("b")
    cluster.world.run_until(cluster.world.now_ns + 3_000 * MS)
    host = cluster.members["c"].host
    assert host is not None
    texts = [line.text for _, line in host.take_log() if "without its folder" in line.text]
    assert len(texts) == 1
    assert texts[0].startswith("b/1 came back without its folder (data_dir): b/0 counts as gone")


@pytest.mark.parametrize("sender", ["a", "c"])
def test_what_only_a_restarted_member_has_ordered_is_sent_again(sender: str) -> None:
    """b orders a message and a lock, stores the view with the lock, and crashes before anybody hears of it. The
    view counts, and the message is lost: its sender goes on where the log ends, in the proposal and the next ring."""
    outcome = run_scenario(
        Scenario(
            orderer="token",
            network="ideal",
            nodes=NAMES,
            starts_ns=(0, 20 * MS, 40 * MS),
            folders=NAMES,
            min_members="all",
            loads=(Load(sender, 3, start_ns=800 * MS, interval_ns=200 * MS),),
            locks=(LockUse("a", "x", 1_000 * MS, 100 * MS),),
            faults=(Fault(999 * MS, FaultKind.CRASH_STORING, ("b",), for_ns=50 * MS), restart(2_000, "b")),
        )
    )
    assert outcome.held, outcome.failures
    assert outcome.is_quiet
    [crashed_ns] = [row.at_ns for row in outcome.rows if row.kind == "crash"]
    assert crashed_ns < 1_040 * MS, "it stored the view with the lock"


def test_a_scenario_with_folders_can_be_written_down() -> None:
    scenario = restarts_scenario(7, "token")
    assert scenario_from_json(scenario_to_json(scenario)) == scenario


@pytest.mark.parametrize(
    ("orderer", "seed"),
    [
        ("sequencer", 1),  # a member that has left is the only one that knows the last view
        ("sequencer", 51),  # a survivor and a restarted member wait for the others, and then go on
        ("sequencer", 66),  # what survivors submit for members that are gone has a sender
        ("timestamp", 346),  # a join that only the crashed member had delivered
        ("token", 1_002),  # a newcomer whose join only a restarted member knows
        ("token", 1_017),  # the same, while a survivor coordinates
        ("token", 1_311),  # and it is not left behind
    ],
)
def test_seeds_that_showed_something_hold(orderer: str, seed: int) -> None:
    outcome = run_scenario(restarts_scenario(seed, orderer))
    assert outcome.held, outcome.failures
