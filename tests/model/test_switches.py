"""Every sentence of the rule is needed: without it an exhaustive search of a small world finds what it prevents."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest
from tests.model.explore import CANONICAL, INTERLEAVED, Search, Steps
from tests.model.rule import ENGINES, SWITCHES, Rules
from tests.model.world import Limits

PLAIN: Final = Rules(learner_first=False, join_when_stable=True, welcome_by_any=True)  # V1 and V4 alone


class Small(NamedTuple):
    """A world that is small enough to be exhausted in about a second."""

    limits: Limits
    successors: Steps = CANONICAL
    rules: Rules = Rules()


LEAVE_OF_TWO: Final = Small(Limits(2, 0, messages=0, leaves=1))
MESSAGE_OF_TWO: Final = Small(Limits(2, 0, messages=1, leaves=1, ballots=1), INTERLEAVED)
JOIN_TO_ONE: Final = Small(Limits(1, 1, messages=1, ballots=1))
JOIN_TO_TWO: Final = Small(Limits(2, 1, messages=1, ballots=1))
JOIN_WITHOUT_LEARNING: Final = Small(Limits(2, 1, messages=1, ballots=1, rings=2), INTERLEAVED, PLAIN)
CRASH_OF_THREE: Final = Small(Limits(3, 0, messages=1))
TWO_LEAVES_OF_THREE: Final = Small(Limits(3, 0, messages=0, leaves=2, ballots=1))
LAGGING_LEAVER: Final = Small(Limits(2, 1, messages=0, leaves=2, ballots=1, rings=1), rules=ENGINES)
CANCELLED_JOIN: Final = Small(Limits(2, 1, messages=0, ballots=1, cancelled=0b100))

# switch -> the world that shows why it is there, and what happens
WHY: Final[dict[str, tuple[Small, str]]] = {
    "tie_needs_first": (LEAVE_OF_TWO, "two successors"),
    "one_at_a_time": (CANCELLED_JOIN, "was decided, and is not in the chain"),
    "decided_by_quorum": (LEAVE_OF_TWO, "was decided, and is not in the chain"),
    "hold_back": (LEAVE_OF_TWO, "was shown a view that is not in the chain"),
    "confirm_decided": (JOIN_TO_TWO, "was confirmed, and is lost"),
    "freeze": (MESSAGE_OF_TWO, "delivered more than its ring had at its end"),
    "ballots_per_ring": (LEAVE_OF_TWO, "stuck"),
    "ask_before": (LEAVE_OF_TWO, "two successors"),
    "ask_after": (JOIN_TO_TWO, "was confirmed, and is lost"),
    "departed_do_not_count": (LEAVE_OF_TWO, "two successors"),
    "repeat_accepted": (LEAVE_OF_TWO, "two successors"),
    "keep_ring_id": (LEAVE_OF_TWO, "two successors"),
    "longest_log": (LEAVE_OF_TWO, "was decided, and is not in the chain"),
    "keep_change": (LEAVE_OF_TWO, "was decided, and is not in the chain"),
    "accept_with_log": (LEAVE_OF_TWO, "stuck"),
    "commit_by_old": (LEAVE_OF_TWO, "two successors"),
    "commit_by_new": (CRASH_OF_THREE, "stuck"),
    "leaver_stays": (LEAVE_OF_TWO, "stuck"),
    "leaver_knows_last": (TWO_LEAVES_OF_THREE, "stuck"),
    "learner_first": (JOIN_TO_TWO, "stuck"),
    "cancelled_stays": (CANCELLED_JOIN, "a needless recovery"),
    "answer_old": (LEAVE_OF_TWO, "stuck"),
    "answer_leavers": (LAGGING_LEAVER, "a needless recovery"),
    "keep_log": (JOIN_TO_ONE, "stuck"),
    "stable_means_installed": (JOIN_WITHOUT_LEARNING, "stuck"),
}


def test_every_switch_has_its_world() -> None:
    assert set(WHY) == set(SWITCHES)


@pytest.mark.parametrize("switch", SWITCHES)
def test_without_one_sentence_of_the_rule_something_breaks(switch: str) -> None:
    small, what = WHY[switch]
    result = Search(small.rules.without(switch), small.limits).exhaust(small.successors)
    assert what in result.failure, f"{switch}: {result}"


@pytest.mark.parametrize(
    "small", [LEAVE_OF_TWO, JOIN_TO_ONE, CRASH_OF_THREE, CANCELLED_JOIN], ids=lambda small: str(small.limits)
)
def test_with_all_sentences_the_same_worlds_hold(small: Small) -> None:
    """The larger ones of these worlds are exhausted by `make model`."""
    result = Search(small.rules, small.limits).exhaust(small.successors)
    assert not result.failure, "\n".join([result.failure, *result.path])
    assert result.is_complete
