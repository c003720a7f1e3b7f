"""Several sessions of one node on a shared underlay, with real engines, under failures (docs/design/roster.md)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from ordercast.config import MS
from ordercast.sim.fuzz import run_seed
from ordercast.sim.many_groups import (
    MANY_GROUPS,
    SESSIONS_FROM,
    ActKind,
    GroupAct,
    ManyGroups,
    drawn_groups,
    plain_groups,
)
from ordercast.sim.many_run import run_groups
from ordercast.sim.plain import plain_scenario
from ordercast.sim.scenario import SERVICES

ORDERERS = tuple(SERVICES)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_random_sessions_agree_under_failures(orderer: str) -> None:
    result = run_seed(orderer, SESSIONS_FROM + 4, profile=MANY_GROUPS)
    assert result.held, "\n".join((result.command, *result.failures))


SEEDS = (
    # A recovery brought a join to a group before it took the dead out of it, and a judge asked the dead for a message.
    ("sequencer", 500_000_023),
)


@pytest.mark.parametrize(("orderer", "seed"), SEEDS)
def test_a_seed_that_failed_once_holds(orderer: str, seed: int) -> None:
    result = run_seed(orderer, seed, profile=MANY_GROUPS)
    assert result.held, "\n".join((result.command, *result.failures))


def test_random_scenarios_have_sessions_that_come_and_go() -> None:
    plans = [drawn_groups(SESSIONS_FROM + at, "token") for at in range(40)]
    kinds = {act.kind for plan in plans for act in plan.acts if act.session}
    assert kinds == {ActKind.OPEN, ActKind.CLOSE, ActKind.JOIN, ActKind.LEAVE, ActKind.SEND, ActKind.SEND_TO}
    with_sessions = sum(bool(plan.labels) for plan in plans)
    assert 20 < with_sessions < 40, "some have none"
    assert any(plan.fed_labels for plan in plans)
    assert all(plan.acts == tuple(sorted(plan.acts, key=lambda act: act.at_ns)) for plan in plans if plan.labels)


def test_earlier_seeds_have_the_scenarios_that_they_always_had() -> None:
    plans = [drawn_groups(seed, orderer) for orderer in ORDERERS for seed in (0, 7, SESSIONS_FROM - 1)]
    assert not any(plan.labels or any(act.session for act in plan.acts) for plan in plans)


def scripted(orderer: str, *acts: GroupAct) -> ManyGroups:
    plan = plain_groups(plain_scenario(orderer=orderer, nodes=2, messages=0), 2)
    return replace(plan, acts=acts, labels=("s0", "s1"), fed_labels=("s1",))


@pytest.mark.parametrize("orderer", ORDERERS)
def test_sessions_of_two_nodes_see_one_order_and_one_that_comes_back_goes_on_counting(orderer: str) -> None:
    acts: list[GroupAct] = []
    start = 1_500 * MS
    for node in "ab":
        acts += [GroupAct(start, node, ActKind.OPEN, ("g0", "g1"), session=label) for label in ("s0", "s1")]
    for turn in range(12):
        node, label = "ab"[turn % 2], ("s0", "s1", "")[turn % 3]
        at_ns = start + (200 + turn) * MS
        acts.append(GroupAct(at_ns, node, ActKind.SEND, ("g0", "g1"), 3, session=label))
        acts.append(GroupAct(at_ns, node, ActKind.SEND_TO, ("g1", "g0"), 1, session=label))
    acts.append(GroupAct(start + 500 * MS, "a", ActKind.CLOSE, (), session="s0"))
    acts.append(GroupAct(start + 900 * MS, "a", ActKind.OPEN, ("g0",), session="s0"))
    acts.append(GroupAct(start + 1_200 * MS, "a", ActKind.SEND, ("g0",), 2, session="s0"))
    outcome = run_groups(scripted(orderer, *acts))
    assert outcome.held, outcome.failures
    rows = outcome.rows
    assert {row.node for row in rows} == {"a", "b", "s0@a", "s1@a", "s0@b", "s1@b"}
    submits = [(row.first, row.count) for row in rows if row.node == "s0@a" and row.kind == "submit"]
    assert submits[0][0] == 0
    assert all(left[0] + left[1] == right[0] for left, right in itertools.pairwise(submits))  # type: ignore[operator]
    orders = {
        node: [(row.position, row.sender, row.first) for row in rows if row.node == node and row.kind == "deliver"]
        for node in ("a", "s1@a", "s0@b", "s1@b")
    }
    to_both = {
        node: [
            (row.position, row.sender, row.first)
            for row in rows
            if row.node == node and row.kind == "deliver" and row.groups is not None
        ]
        for node in orders
    }
    assert len(to_both["s1@a"]) >= 12
    assert to_both["s1@a"] == to_both["s0@b"] == to_both["s1@b"]
    last = [row for row in rows if row.kind == "view" and row.group == "g0"][-1]
    assert set(last.members or ()) >= {"s0@a/0", "s1@a/0", "s0@b/0", "s1@b/0"}


def test_sessions_are_gone_with_their_node_and_come_with_its_next_life() -> None:
    plan = plain_groups(plain_scenario(nodes=3, messages=0, crash=1, restart=1, min_members=1), 2)
    crash = plan.scenario.faults[0]
    victim = crash.nodes[0]
    other = next(node for node in plan.scenario.nodes if node != victim)
    end_ns = plan.scenario.faults[-1].at_ns
    acts = (
        GroupAct(crash.at_ns - 300 * MS, victim, ActKind.OPEN, ("g0",), session="s0"),
        GroupAct(crash.at_ns - 300 * MS, other, ActKind.OPEN, ("g0",), session="s0"),
        GroupAct(crash.at_ns - 100 * MS, victim, ActKind.SEND, ("g0",), 3, session="s0"),
        GroupAct(end_ns + 3_000 * MS, victim, ActKind.OPEN, ("g0",), session="s0"),
        GroupAct(end_ns + 3_500 * MS, victim, ActKind.SEND, ("g0",), 2, session="s0"),
    )
    outcome = run_groups(replace(plan, acts=acts, labels=("s0",)))
    assert outcome.held, outcome.failures
    rows = outcome.rows
    mine = [row for row in rows if row.node == f"s0@{victim}" and row.kind in ("submit", "crash")]
    assert [(row.life, row.kind, row.first) for row in mine if row.kind == "crash"] == [(0, "crash", None)]
    assert next(row.first for row in mine if row.life == 1) == 0, "another life counts anew"
    last = [row for row in rows if row.node == f"s0@{other}" and row.kind == "view"][-1]
    assert f"s0@{victim}/1" in (last.members or ())
    assert f"s0@{victim}/0" not in (last.members or ())
