"""The harness is only worth what it catches: planted bugs, each within a stated number of seeds."""

from __future__ import annotations

import pytest
from tests.sim.bug import Bug
from tests.sim.membership_bugs import MEMBERSHIP_BUGS
from tests.sim.planted import BUGS, SAMPLE, SECTIONS, UNSEEN, caught, sample, section_of
from tests.sim.planting import planted

from ordercast.explore.deviations import FAMILIES
from ordercast.explore.scenarios import MAX_MEMBERS, MIN_MEMBERS, find_scenario
from ordercast.parts.log import Log

CHOSEN = sample()


@pytest.mark.parametrize("bug", CHOSEN, ids=[f"{bug.orderer}: {bug.name}".replace(" ", "-") for bug in CHOSEN])
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    assert caught(bug) is not None, f"{bug.name}: {bug.bound} seeds did not catch it. {bug.breaks}"


def test_every_bug_can_be_planted() -> None:
    """Also those that are not in the sample, and those that nobody sees."""
    stale = []
    for bug in (*BUGS, *UNSEEN, *(each.bug for each in MEMBERSHIP_BUGS)):
        try:
            with planted(bug):
                pass
        except LookupError as error:
            stale.append(str(error))
    assert not stale, "\n".join(stale)


def test_the_sample_has_bugs_of_each_section_and_is_always_the_same() -> None:
    assert [bug.name for bug in sample()] == [bug.name for bug in CHOSEN]
    for section in SECTIONS:
        there = sum(section_of(bug) == section and not bug.is_slow for bug in BUGS)
        assert sum(section_of(bug) == section for bug in CHOSEN) == min(SAMPLE, there)


def test_a_planted_bug_is_gone_afterwards() -> None:
    bug = next(bug for bug in BUGS if bug.name == "positions count blocks")
    before = Log.advance.__code__
    with planted(bug):
        assert Log.advance.__code__ != before
    assert Log.advance.__code__ is before


@pytest.mark.parametrize(
    ("function", "old", "new", "told"),
    [
        ("advance", "no_such_code()", "", "0 times, not once"),
        ("no_such_function", "self.position += count", "", "0 times, not once"),
        ("Log.__init__", "self.position += count", "", "0 times, not once"),
        ("__init__", "0", "1", "times, not once"),
        ("advance", "self.position += count", "self.position += count  # now", "is any different"),
        ("advance", ("self.position += count", "no_such_code()"), ("pass", "pass"), "0 times, not once"),
    ],
    ids=["gone", "no-function", "another-function", "ambiguous", "idle", "half-gone"],
)
def test_a_bug_whose_code_is_not_there_exactly_once_is_refused(
    function: str, old: str | tuple[str, ...], new: str | tuple[str, ...], told: str
) -> None:
    with pytest.raises(LookupError, match=told), planted(Bug("stale", function, old, new, "nothing", 1)):
        pass


def test_layout_and_comments_do_not_matter() -> None:
    old = """
        self.position += (   # counted
            count
        )
    """
    with planted(Bug("wrapped", "Log.advance", old, "self.position += 1", "nothing", 1)):
        pass


def test_each_bug_of_the_membership_names_a_scenario_that_there_is() -> None:
    assert len({each.bug.name for each in MEMBERSHIP_BUGS}) == len(MEMBERSHIP_BUGS) >= 25
    for bug, shown_by, members, faults in MEMBERSHIP_BUGS:
        assert set(faults) <= FAMILIES.keys()
        assert find_scenario(shown_by, bug.orderer).summary
        assert MIN_MEMBERS <= members <= MAX_MEMBERS
