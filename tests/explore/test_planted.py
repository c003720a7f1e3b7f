"""Bugs of the membership, planted into the real engines: the search shows them, each within its bound.

`tests/sim/membership_bugs.py` has more of them. Those that take a search of minutes are not tried here.
"""

from __future__ import annotations

from typing import Final

import pytest
from tests.sim.membership_bugs import MEMBERSHIP_BUGS
from tests.sim.planting import planted

from ordercast.explore.path import Exploration
from ordercast.explore.scenarios import NAMES, find_scenario
from ordercast.explore.search import explore

STEPS: Final = 30
# bug -> orderer, scenario, members, faults (none: the scenario's own), deviations, finding
SHOWN: Final = {
    "any half is a quorum": ("sequencer", "silent", 4, (), 1, "minority"),
    "a change is decided by the view that it makes": ("token", "leave-first", 2, (), 1, "fork"),
    "a newcomer takes its join for decided": ("sequencer", "join", 3, ("split",), 1, "fork"),
    "what stands behind a change is delivered before it is decided": ("token", "leave-first", 2, (), 1, "fork"),
    "a member that knows a decision keeps it to itself": ("sequencer", "join", 3, (), 1, "stuck"),
    "a leaver does not wait until others know": ("token", "leave-first", 2, ("cut", "split", "crash"), 1, "stuck"),
    "the token site orders the next change before the last is decided": ("token", "leave-two", 4, (), 1, "fork"),
    "a change in doubt needs a quorum of the new view only": ("token", "leave", 4, (), 1, "fork"),
    "a coordinator does not welcome a newcomer": ("sequencer", "join", 3, (), 2, "stuck"),
    "an accepted proposal does not bind": ("sequencer", "silent", 5, ("cut", "isolate"), 1, "fork"),
    "others that are present count": ("sequencer", "join", 3, ("split",), 1, "fork"),
    "a change is decided as soon as one member holds it": ("token", "leave-first", 2, (), 1, "fork"),
    "a change that is received counts as decided": ("sequencer", "leave", 4, (), 1, "fork"),
    "nobody asks again whether a change is decided": ("sequencer", "join", 3, (), 2, "stuck"),
    "votes are not counted": ("sequencer", "leave", 5, (), 0, "stuck"),
    "the sequencer orders the next change before the last is decided": ("sequencer", "leave-two", 4, (), 1, "fork"),
    "the sequencer lets a newcomer in while members lack something": ("sequencer", "join-behind", 2, (), 2, "stuck"),
    "no quorum of the last view is needed": ("sequencer", "silent", 3, (), 0, "fork"),
    "a change in doubt needs a quorum of the view before only": (
        "token",
        "leave-first",
        3,
        ("split", "cut"),
        2,
        "minority",
    ),
    "a promise does not show what was accepted": ("sequencer", "silent", 5, ("cut", "isolate"), 1, "fork"),
    "a leaver takes no part in a recovery": ("token", "leave-first", 2, ("cut", "split"), 1, "stuck"),
    "a proposal that is made again counts as fresh": ("sequencer", "silent", 5, ("isolate", "crash"), 1, "fork"),
    "a proposal is committed as soon as it is made": ("sequencer", "silent", 5, ("cut", "isolate"), 1, "fork"),
}
BUGS: Final = {each.bug.name: each.bug for each in MEMBERSHIP_BUGS}


@pytest.mark.parametrize("name", SHOWN)
def test_a_planted_bug_of_the_membership_is_found(name: str) -> None:
    orderer, scenario, members, faults, deviations, finding = SHOWN[name]
    small = find_scenario(scenario, orderer)
    newcomers = NAMES[members : members + small.newcomers]
    what = Exploration(scenario, orderer, NAMES[:members], newcomers, faults or small.families, STEPS, 1)
    with planted(BUGS[name]):
        result = explore(what, deviations)
    assert [failure.findings[0].kind for failure in result.failures][:1] == [finding]
