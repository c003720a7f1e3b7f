"""What a node keeps over a restart is enough for its vote, and all of it is needed."""

from __future__ import annotations

from typing import Final

import pytest
from tests.model.explore import INTERLEAVED, Search
from tests.model.restarts import EVERYTHING, PROMISE, PROPOSAL, RING, VIEW, with_restarts
from tests.model.rule import ENGINES, Rules
from tests.model.world import Limits

LEAVE_OF_TWO: Final = Limits(2, 0, messages=0, leaves=1, ballots=2)
THREE: Final = Limits(3, 0, messages=0, ballots=2)
LEAVE_OF_THREE: Final = Limits(3, 0, messages=0, leaves=1, ballots=1)


@pytest.mark.parametrize("rules", [Rules(), ENGINES], ids=["written", "engines"])
def test_a_restart_that_keeps_everything_is_no_step(rules: Rules) -> None:
    """The worlds are the same with and without restarts, state by state."""
    plain = Search(rules, LEAVE_OF_TWO, liveness=False).exhaust(INTERLEAVED)
    restarts = Search(rules, LEAVE_OF_TWO, liveness=False).exhaust(with_restarts(EVERYTHING))
    assert not restarts.failure
    assert restarts.is_complete
    assert (restarts.states, restarts.ends) == (plain.states, plain.ends)


@pytest.mark.parametrize(
    ("forgotten", "limits", "rules"),
    [
        (VIEW, LEAVE_OF_TWO, Rules()),
        (PROMISE, THREE, Rules()),
        (PROPOSAL, THREE, Rules()),
        (RING, THREE, ENGINES),
    ],
    ids=[VIEW, PROMISE, PROPOSAL, RING],
)
def test_whatever_a_node_forgets_lets_two_parts_go_on(forgotten: str, limits: Limits, rules: Rules) -> None:
    search = Search(rules, limits, liveness=False, seconds=60)
    result = search.exhaust(with_restarts(EVERYTHING - {forgotten}))
    assert "two successors" in result.failure or "not in the chain" in result.failure, f"{forgotten}: {result}"
