"""The judges notice every planted bug. The seed of each is one that is known to show it."""

from __future__ import annotations

import pytest
from tests.components.bugs import COMPONENT_BUGS, caught
from tests.sim.bug import Bug


@pytest.mark.parametrize("bug", COMPONENT_BUGS, ids=[bug.name for bug in COMPONENT_BUGS])
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    """`bound` is the seed. When the world's chances have changed, `python -m tests.components.bugs` finds new ones."""
    assert caught(bug, bug.bound)
