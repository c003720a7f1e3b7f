"""Many groups on one underlay, with real engines, under failures (docs/design/roster.md)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ordercast.cli.main import main
from ordercast.config import MS
from ordercast.errors import UsageError
from ordercast.groups.events import Message
from ordercast.service import AGREED, FIFO, RELIABLE
from ordercast.sim.fuzz import fuzz, run_seed
from ordercast.sim.many_groups import MANY_GROUPS, MAX_GROUPS, ActKind, GroupAct, drawn_groups, plain_groups
from ordercast.sim.many_run import run_groups
from ordercast.sim.many_session import EventOrder
from ordercast.sim.plain import plain_scenario
from ordercast.sim.scenario import SERVICES
from ordercast.view import Member, Reason, View

ORDERERS = tuple(SERVICES)


@pytest.mark.parametrize("seed", [10_500_003, 10_500_008])
@pytest.mark.parametrize("orderer", ORDERERS)
def test_random_programs_agree_on_many_groups_under_failures(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile=MANY_GROUPS)
    assert result.held, "\n".join((result.command, *result.failures))
    assert result.delivered > 10


SEEDS = (
    ("sequencer", 10_500_168),  # a join that was given up had taken the name of a group that was sent to from outside
    ("sequencer", 10_510_484),  # a program that took late was judged by what it did when it had come back
    ("timestamp", 10_530_222),  # chance lost four heartbeats in a row, and nothing may fail there
)


@pytest.mark.parametrize(("orderer", "seed"), SEEDS)
def test_a_seed_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile=MANY_GROUPS)
    assert result.held, "\n".join((result.command, *result.failures))


def test_a_seed_gives_the_same_run_each_time_and_another_for_each_orderer() -> None:
    plans = [drawn_groups(7, orderer) for orderer in ORDERERS]
    assert len({plan.acts for plan in plans}) == len(ORDERERS)
    assert drawn_groups(7, "timestamp", anticipate=False).acts == plans[-1].acts
    assert run_groups(plans[0]).digest == run_groups(drawn_groups(7, ORDERERS[0])).digest


def test_random_scenarios_have_everything() -> None:
    plans = [drawn_groups(seed, "token") for seed in range(60)]
    kinds = {act.kind for plan in plans for act in plan.acts}
    assert kinds == set(ActKind) - {ActKind.OPEN, ActKind.CLOSE}  # sessions come with later seeds
    assert {fault.kind for plan in plans for fault in plan.scenario.faults} >= {
        "crash", "restart", "join", "leave", "rejoin", "partition", "pause", "cut", "stall"
    }  # fmt: skip
    assert any(len(act.groups) > 5 for plan in plans for act in plan.acts if act.kind == ActKind.JOIN)
    assert max(len(plan.groups) for plan in plans) >= 200
    assert any(plan.fed for plan in plans)
    assert {plan.scenario.min_members for plan in plans} == {1, 2, "majority"}


def test_the_fuzzer_says_how_to_replay_a_seed() -> None:
    found = fuzz("sequencer", 10_500_010, 2, profile=MANY_GROUPS)
    assert [result.command for result in found.results] == [
        f"ordercast sim --many-groups --scenario-seed {seed} --orderer sequencer" for seed in (10_500_010, 10_500_011)
    ]
    assert found.as_json()["profile"] == MANY_GROUPS


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_demonstration_sends_to_groups_of_one_underlay(orderer: str) -> None:
    plan = plain_groups(plain_scenario(orderer=orderer, nodes=3, messages=60, crash=1), 7)
    outcome = run_groups(plan)
    assert outcome.held, outcome.failures
    assert outcome.command.endswith("--groups 7")
    named = {row.group for row in outcome.rows if row.kind == "view" and row.group is not None}
    assert named == set(plan.groups)
    assert any(row.groups for row in outcome.rows if row.kind == "deliver"), "messages to several groups"


def test_a_demonstration_has_as_many_groups_as_are_asked_for() -> None:
    for count, nodes in ((1, 1), (1, 4), (2, 2), (5, 3)):
        plan = plain_groups(plain_scenario(nodes=nodes, messages=4), count)
        assert len(plan.groups) == count
        assert all(plan.homes)
        assert set().union(*plan.homes) == set(plan.groups)
    with pytest.raises(UsageError, match=f"between 1 and {MAX_GROUPS} groups"):
        plain_groups(plain_scenario(), MAX_GROUPS + 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sim --groups 0", "from 1 to 10,000"),
        ("sim --groups many", "--groups"),
        ("sim --groups 3 --recovery manual", "recovers by itself"),
        ("sim --groups 3 --scenario-seed 1", "give one of them"),
        ("sim --groups 3 --save x.json", "leave out --save"),
        ("sim --many-groups", "--scenario-seed"),
        ("sim --many-groups --scenario-seed 1 --nodes 3", "without other parameters"),
        ("sim --many-groups --scenario-seed 1 --profile patience", "--profile patience"),
        ("sim --ladder --groups 3", "takes no --groups"),
        ("fuzz --many-groups --profile membership", "--profile membership"),
        ("fuzz --many-groups --orderer token --no-anticipate", "choice of timestamp only"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words.split())
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert told in capsys.readouterr().err


def test_a_demonstration_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--groups", "4", "--nodes", "3", "--messages", "30", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["held"]
    assert found["groups"] == 4
    assert main(["sim", "--groups", "4", "--nodes", "3", "--messages", "30"]) == 0
    assert "4 groups on one underlay, 30 messages" in capsys.readouterr().out


# What programs judge by themselves. ----------------------------------------------------------------------------------


def _message(number: int, position: int, service: object = AGREED) -> Message:
    return Message(b"", "a/0", number, position, service, 0, "g", "1@a/0")  # type: ignore[arg-type]


def _view(count: int, position: int, *names: str, group: str = "g") -> View:
    members = tuple(Member(at, name, 0, ("", at)) for at, name in enumerate(names))
    return View(count, "a/0", 1, 1, 0, position, members, {}, Reason.JOIN, "", group=group)


def test_a_queue_of_events_has_one_order() -> None:
    order = EventOrder()
    assert not order.on_view(_view(1, 3, "a"))
    assert not order.on_message(_message(0, 3))
    assert not order.on_message(_message(2, -1, FIFO))
    assert not order.on_message(_message(1, -1, RELIABLE)), "it may come at any time"
    assert "after 2" in order.on_message(_message(1, 4))
    assert not order.on_message(_message(3, 4))
    assert "position 4 came after 4" in order.on_message(_message(5, 4))
    assert not order.on_view(_view(2, 9, "a", "b", group="h"))
    assert "stands at 9" in order.on_message(_message(6, 8))
    assert "stands at 5" in order.on_view(_view(3, 5, "a", "b"))
    assert "the one before" in order.on_view(_view(4, 10, "a", "b"))
    assert not order.on_view(_view(4, 10, "a", "b")), "it shows other locks"
    order.on_left("g")
    assert not order.on_view(_view(5, 10, "a", "b"))


def test_acts_of_a_node_that_is_down_do_nothing() -> None:
    plan = plain_groups(plain_scenario(nodes=2, messages=0, crash=1, min_members=1), 2)
    (crash,) = plan.scenario.faults
    acts = tuple(GroupAct(crash.at_ns + step, crash.nodes[0], ActKind.SEND_TO, plan.groups) for step in (-MS, 1))
    outcome = run_groups(replace(plan, acts=acts))
    assert outcome.held, outcome.failures
    submits = [row.at_ns for row in outcome.rows if row.kind == "submit" and row.node == crash.nodes[0]]
    assert len(submits) == 1, "the first act happens, the second does not"
    assert submits[0] < crash.at_ns
