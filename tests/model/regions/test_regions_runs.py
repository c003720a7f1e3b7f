"""The model of the region protocol: random runs and small worlds hold, and not without any of the rules."""

from __future__ import annotations

from typing import Final

import pytest
from tests.model.regions.chance import measure, run
from tests.model.regions.explore import WORLDS, explore
from tests.model.regions.rules import MARKED, SAVINGS, SWITCHES, Rules
from tests.model.regions.scripts import SCRIPTS
from tests.model.regions.world import Violation

FIRST_SEED: Final = 1
RUNS: Final = 600  # `make model` has thousands
PATHS: Final = 300  # of each small world; `make model` goes on

# For each switch a seed whose run breaks without the rule, and the judge that objects.
CAUGHT: Final[dict[str, tuple[int, str]]] = {
    "seen_from_start": (36, "complete"),
    "complete_rounds": (8, "complete"),
    "skip_excluded_only": (7, "complete"),
    "movers_stay": (5, "regional"),
    "anybody_starts": (1, "rest"),
    "orphans": (24, "complete"),
    "keep_until_ack": (129, "lost"),
    "help_cachers": (129, "regional"),
    "naks": (4, "complete"),
    "all_regions_at_once": (65, "complete"),
    "close": (37, "complete"),
    "repeat_tail": (6, "complete"),
    "open_names_all": (80, "fifo"),
    "lost_counts_as_had": (20, "rest"),
}
# What no run has needed: see README.md.
UNSEEN: Final = (*SAVINGS, "excluded_starter", "take_again", "push", "pull")


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


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_scripts_hold_with_the_rule_and_break_without_it(name: str) -> None:
    SCRIPTS[name](Rules())
    with pytest.raises(Violation):
        SCRIPTS[name](Rules().without(name))


def test_members_need_push_or_pull() -> None:
    """Either alone repairs everything, if more slowly."""
    assert run(Rules().without("push", "pull"), 1)[0].startswith("complete")


def test_every_rule_is_accounted_for_and_those_that_the_note_marks_are_caught() -> None:
    assert sorted([*CAUGHT, *SCRIPTS, *UNSEEN]) == sorted(SWITCHES)
    assert set(MARKED) <= {*CAUGHT, *SCRIPTS}


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_small_worlds_hold(name: str) -> None:
    found = explore(WORLDS[name], Rules(), 60, PATHS)
    assert not found.failure, f"{found}\n" + "\n".join(map(str, found.log))
    assert found.runs == PATHS or found.is_complete


@pytest.mark.parametrize(("name", "rule"), [("dead", "lost_counts_as_had"), ("late", "repeat_tail")])
def test_small_worlds_show_what_a_rule_is_for(name: str, rule: str) -> None:
    assert explore(WORLDS[name], Rules().without(rule), 60, 2_000).failure
