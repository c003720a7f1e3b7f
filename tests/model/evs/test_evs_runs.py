"""The model of order and recovery on sites: random runs and small worlds hold, and not without any of the rules."""

from __future__ import annotations

from typing import Final

import pytest
from tests.model.evs.chance import measure, run
from tests.model.evs.explore import WORLDS, explore
from tests.model.evs.history import Fact
from tests.model.evs.judge import Violation
from tests.model.evs.rules import SWITCHES, Rules
from tests.model.evs.scripts import SCRIPTS

FIRST_SEED: Final = 1
RUNS: Final = 600  # `make model` has thousands
STATES: Final = 150  # of each small world; `make model` goes on

# For each switch a seed whose run breaks without the rule, and the judge that objects.
CAUGHT: Final[dict[str, tuple[int, str]]] = {
    "view_ids": (36, "once"),
    "justified": (28, "causal"),
    "one_aru": (23, "safe"),
    "skipped_safe": (402, "same set"),
    "keep_unstable": (233, "safe"),
    "interest_of_daemon": (1448, "causal"),
    "stable_interest": (23, "same set"),
    "leaving_is_gone": (1448, "causal"),
    "leave_ends_earlier": (609, "hole"),
    "begin_again": (17, "safe"),
    "keep_weak": (171, "hole"),
    "cover": (122, "fifo"),
    "masked": (122, "fifo"),
    "split": (102, "same set"),
    "all_sites": (72, "safe"),
    "safe_signal": (34, "safe"),
    "own_beyond": (28, "causal"),
    "late_changes": (1344, "names"),
    "above_all": (362, "order"),
    "counter_of_all": (1, "names"),
    "bind_when_held": (34, "rest"),
    "stay_bound": (278, "safe"),
    "promise_voids": (2909, "names"),
    "commit_by_all": (228, "safe"),
    "lineage": (47, "groups"),
    "changed_groups": (16, "names"),
    "group_view_id": (2427, "names"),
}
# What no judge needs: see README.md.
UNSEEN: Final = ("accept_clock",)


def test_random_runs_hold() -> None:
    total = sum([measure(_holds(seed)) for seed in range(FIRST_SEED, FIRST_SEED + RUNS)], start=measure([]))
    assert total["together"] > RUNS, "hardly any daemon came to a view with others"
    assert total["given after the signal"] > RUNS // 4
    assert total["crashed"] > RUNS // 4


def _holds(seed: int) -> list[Fact]:
    text, world = run(Rules(), seed)
    assert not text, f"{text}\nreplay: python -m tests.model.evs.chance show {seed} 100"
    return world.facts


def test_a_seed_gives_one_run() -> None:
    assert run(Rules(), 5)[1].facts == run(Rules(), 5)[1].facts


@pytest.mark.parametrize("name", sorted(CAUGHT))
def test_without_a_rule_a_judge_objects(name: str) -> None:
    seed, judge = CAUGHT[name]
    assert run(Rules(), seed)[0] == ""
    assert run(Rules().without(name), seed)[0].partition(":")[0] == judge


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_scripts_hold_with_the_rule_and_break_without_it(name: str) -> None:
    SCRIPTS[name](Rules())
    with pytest.raises(Violation):
        SCRIPTS[name](Rules().without(name))


def test_every_rule_is_accounted_for() -> None:
    assert sorted({*CAUGHT, *SCRIPTS, *UNSEEN}) == sorted(SWITCHES)


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_small_worlds_hold(name: str) -> None:
    found = explore(WORLDS[name], Rules(), 60, STATES)
    assert not found.failure, f"{found}: {found.path}"
    assert found.states > STATES or found.is_complete


@pytest.mark.parametrize(("name", "rule"), [("safe", "safe_signal"), ("safe", "all_sites"), ("moves", "begin_again")])
def test_small_worlds_show_what_a_rule_is_for(name: str, rule: str) -> None:
    assert explore(WORLDS[name], Rules().without(rule), 60, 1_000).failure


def test_a_clone_of_a_world_goes_its_own_way() -> None:
    world = WORLDS["safe"].world(Rules())
    copy = world.clone()
    assert copy.key() == world.key()
    copy.visit(0, 9)
    assert copy.key() != world.key()
    assert len(copy.facts) > len(world.facts)
