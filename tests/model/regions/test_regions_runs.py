"""The model of the region protocol: random runs and small worlds hold, and not without any of the rules."""

from __future__ import annotations

from typing import Final

import pytest
from tests.model.regions.chance import measure, run
from tests.model.regions.explore import WORLDS, explore
from tests.model.regions.rules import MARKED, SAVINGS, SWITCHES, Rules

FIRST_SEED: Final = 1
RUNS: Final = 600  # `make model` has thousands
PATHS: Final = 300  # of each small world; `make model` goes on

# For each switch a seed whose run breaks without the rule, and the judge that objects.
CAUGHT: Final[dict[str, tuple[int, str]]] = {}
# What no run has needed: see README.md.
UNSEEN: Final[tuple[str, ...]] = SAVINGS


def test_random_runs_hold() -> None:
    total = measure(run(Rules(), FIRST_SEED)[1])
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        text, world = run(Rules(), seed)
        assert not text, f"{text}\nreplay: python -m tests.model.regions.chance show {seed} 100"
        total += measure(world)
    assert total["views"] > 2 * RUNS
    assert total["forget"] > RUNS
    assert total["verdicts"] > RUNS // 10
    assert total["deliver"] > 5 * RUNS


def test_a_seed_gives_one_run() -> None:
    assert run(Rules(), 5)[1].log == run(Rules(), 5)[1].log


@pytest.mark.parametrize("name", sorted(CAUGHT))
def test_without_a_rule_a_judge_objects(name: str) -> None:
    seed, judge = CAUGHT[name]
    assert run(Rules(), seed)[0] == ""
    assert run(Rules().without(name), seed)[0].partition(":")[0] == judge


def test_every_rule_is_accounted_for_and_those_that_the_note_marks_are_caught() -> None:
    assert sorted([*CAUGHT, *UNSEEN]) == sorted(SWITCHES)
    assert set(MARKED) <= set(CAUGHT)


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_small_worlds_hold(name: str) -> None:
    found = explore(WORLDS[name], Rules(), 60, PATHS)
    assert not found.failure, f"{found}\n" + "\n".join(map(str, found.log))
    assert found.runs == PATHS or found.is_complete


@pytest.mark.parametrize(("name", "rule"), [("dead", "lost_counts_as_had"), ("late", "repeat_tail")])
def test_small_worlds_show_what_a_rule_is_for(name: str, rule: str) -> None:
    assert explore(WORLDS[name], Rules().without(rule), 60, 2_000).failure
