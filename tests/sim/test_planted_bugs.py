"""The harness is only worth what it catches: every planted bug, within a stated number of seeds."""

from __future__ import annotations

import pytest
from tests.sim.bug import Bug
from tests.sim.planted import BUGS, UNSEEN, caught, planted

from ordercast.parts.log import Log


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "-") for bug in BUGS])
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    assert caught(bug) is not None, f"{bug.name}: not caught by {bug.bound} seeds, though it breaks this: {bug.breaks}"


@pytest.mark.parametrize("bug", UNSEEN, ids=[bug.name.replace(" ", "-") for bug in UNSEEN])
def test_a_bug_that_nobody_sees_can_still_be_planted(bug: Bug) -> None:
    with planted(bug):
        pass


def test_a_planted_bug_is_gone_afterwards() -> None:
    bug = next(bug for bug in BUGS if bug.name == "positions count blocks")
    before = Log.advance.__code__
    with planted(bug):
        assert Log.advance.__code__ != before
    assert Log.advance.__code__ is before


def test_a_bug_whose_line_is_gone_is_refused() -> None:
    bug = Bug("stale", BUGS[0].module, "no such line", "", "nothing", 1)
    with pytest.raises(LookupError, match="0 times, not once"), planted(bug):
        pass
    twice = Bug("ambiguous", BUGS[0].module, "        return\n", "        pass\n", "nothing", 1)
    with pytest.raises(LookupError, match="times, not once"), planted(twice):
        pass
    comment = Bug("idle", BUGS[0].module, "class Timer(IntEnum):", "class Timer(IntEnum):  # now", "nothing", 1)
    with pytest.raises(LookupError, match="any different"), planted(comment):
        pass
