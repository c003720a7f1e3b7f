"""The canonical order leaves nothing out, and the rule holds in small worlds, with and without the variants."""

from __future__ import annotations

from typing import Final

import pytest
from tests.model.explore import CANONICAL, INTERLEAVED, Result, Search
from tests.model.rule import ENGINES, SWITCHES, Rules
from tests.model.world import Limits

NEEDED_BY_THE_ORDER: Final = {"freeze", "ballots_per_ring", "stable_means_installed"}
"""What the argument for the canonical order rests on (`explore.py`): without these it does not hold."""

LEAVE: Final = Limits(2, 0, messages=1, leaves=1, ballots=1)
JOIN: Final = Limits(1, 1, messages=1, ballots=1)
TWO_BALLOTS: Final = Limits(2, 0, messages=0, leaves=1, ballots=2)
RULES: Final = {"written": Rules(), "engines": ENGINES}


def holds(result: Result) -> bool:
    assert result.is_complete
    return not result.failure


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("limits", [LEAVE, JOIN, TWO_BALLOTS], ids=str)
def test_canonical_order_reaches_every_end_that_interleavings_reach(name: str, limits: Limits) -> None:
    sorted_runs = Search(RULES[name], limits).exhaust(CANONICAL)
    all_runs = Search(RULES[name], limits).exhaust(INTERLEAVED)
    assert holds(sorted_runs)
    assert holds(all_runs)
    assert sorted_runs.ends == all_runs.ends
    assert sorted_runs.states < all_runs.states


@pytest.mark.parametrize("switch", sorted(set(SWITCHES) - NEEDED_BY_THE_ORDER))
def test_canonical_order_finds_what_interleavings_find(switch: str) -> None:
    rules = Rules().without(switch)
    for limits in (LEAVE, JOIN):
        found = [Search(rules, limits).exhaust(successors) for successors in (CANONICAL, INTERLEAVED)]
        assert holds(found[0]) == holds(found[1]), f"{switch}: {found[0]}; {found[1]}"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", RULES)
def test_random_runs_of_larger_worlds_hold(name: str, seed: int) -> None:
    limits = Limits(4, 2, messages=2, leaves=2, ballots=3, rings=4, crashes=2)
    result = Search(RULES[name], limits).wander(12, seed)
    assert not result.failure, "\n".join([result.failure, *result.path])
    assert result.states > 100


@pytest.mark.parametrize(
    ("switch", "what"),
    [
        ("join_when_stable", "a newcomer without the log before its join cannot help a member that lacks it"),
        ("welcome_by_any", "the member that ordered the join is down, and nobody else welcomes the newcomer"),
    ],
)
def test_the_engines_need_the_variants_that_replace_learning(switch: str, what: str) -> None:
    """Without V1 or V4, newcomers that do not learn first can leave the group stuck."""
    result = Search(ENGINES.without(switch), Limits(2, 1, messages=1, ballots=1)).exhaust(CANONICAL)
    assert result.failure.startswith("stuck"), what


@pytest.mark.parametrize("variant", ["coordinator_first", "fresh_by_all"])
def test_v2_and_v3_are_a_choice(variant: str) -> None:
    """They may be there or not, with newcomers that learn first and without."""
    for rules in (Rules(), ENGINES.without("rule_out_fresh")):
        assert holds(Search(rules.without(variant), Limits(2, 1, messages=0, ballots=1)).exhaust(CANONICAL))


def test_only_a_proposal_that_needs_all_of_its_members_can_be_ruled_out() -> None:
    """V5 rests on V3: a member that has not accepted proves nothing where quorums are enough."""
    limits = Limits(3, 0, messages=0, ballots=2)
    assert holds(Search(ENGINES, limits).exhaust(CANONICAL))
    assert "two successors" in Search(ENGINES.without("fresh_by_all"), limits).exhaust(CANONICAL).failure


def test_a_cancelled_join_never_causes_a_recovery() -> None:
    """Rule 9; the judge fails a recovery while nobody is down."""
    assert holds(Search(ENGINES, Limits(2, 1, messages=0, ballots=1, cancelled=0b100)).exhaust(CANONICAL))


@pytest.mark.parametrize("min_members", [2, 3])
def test_numbers_whose_quorums_meet_hold(min_members: int) -> None:
    rules = Rules(min_members=min_members)
    assert holds(Search(rules, Limits(3, 0, messages=0, leaves=1, ballots=1)).exhaust(CANONICAL))
