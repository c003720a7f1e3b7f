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
    Bug(
        "a token that an excluded node has passed on tells of its blocks",
        "MemberView.finish",
        "entry._replace(maximum=0) if entry.sender in out_since else entry",
        "entry",
        "Blocks that nobody has ever taken are reported lost. A storm between namespaces showed it once. Since then a "
        "leader starts its token anew when somebody is excluded, and the script of that holds without this rule.",
        0,
        REGIONS,
    ),
)
