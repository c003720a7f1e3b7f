"""Mutations of groups on regions that no random run has objected to so far, each with the reason."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.regions.plan import REGIONS

REGIONS_UNSEEN: Final[tuple[Bug, ...]] = (
    Bug(
        "a message to a group that is being left does not ask for it",
        "RegionRequests._stays_in",
        "name in joined.numbers and name not in joined.leaving and name not in self.leaves",
        "name in joined.numbers",
        "Rare since joins take milliseconds: the message waits forever only while a leave is under way. None of 60 "
        "seeds caught it.",
        0,
        REGIONS,
    ),
)
