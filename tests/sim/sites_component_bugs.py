"""Bugs of components in runs of the whole engine: cuts, classes, remainders, binding, ballots. Each is one mutation.

`tests/components/bugs.py` plants bugs into the same policy where it runs alone. Where the model has a switch for the
same rule, `tests/model/evs/rules.py` names it.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug
from tests.sim.sites_bug import dense_bug, sites_bug

SITES_COMPONENT_BUGS: Final[tuple[Bug, ...]] = (
    # Classes
    dense_bug(
        "S is of the sites that are present",
        "Coverage.__init__",
        "range(len(self._sites))",
        "[at for at, site in enumerate(self._sites) if site in {cut.site for cut in cuts}]",
        "SAFE: what a lost site lacks counts as held by all.",
        16,
    ),
    dense_bug(
        "the signal does not stand before SAFE blocks",
        "signal_index",
        "block.lts > horizon or (block.rank >= SAFE_RANK and block.lts > stable)",
        "block.lts > horizon",
        "SAFE: what only a class holds is delivered as if all held it.",
        16,
    ),
    dense_bug(
        "beyond the horizon blocks of all origins are delivered",
        "Coverage.due",
        "block.lts <= horizon or block.origin in origins",
        "block.lts >= 0",
        "A message is delivered without those that it follows.",
        16,
    ),
    dense_bug(
        "beyond the horizon nothing is delivered",
        "Coverage.due",
        "block.lts <= horizon or block.origin in origins",
        "block.lts <= horizon",
        "A sender does not get its own message.",
        16,
        is_slow=True,
    ),
    dense_bug(
        "a remainder begins where its furthest member is",
        "_result",
        "delivered = min([cut.delivered for cut in part])",
        "delivered = max([cut.delivered for cut in part])",
        "The others do not get what they lack.",
        16,
    ),
    dense_bug(
        "a remainder has blocks of the own site only",
        "Coverage.due",
        "block.mask & mask",
        "block.mask & mask & 1 << stream.site",
        "Messages that a class holds are lost.",
        16,
    ),
    # The next view
    sites_bug(
        "the next view begins above what was delivered",
        "first_lts",
        "_highest(cut)",
        "cut.delivered",
        "Positions of the new view are below those of the remainder.",
        16,
    ),
    sites_bug(
        "the counter is that of the coordinator's view plus one",
        "Round._conclude",
        "counter = max(outcome.counter, 1 + max([told.counter for told in chosen]))",
        "counter = 1 + self._cuts[local.index].view.counter",
        "Counters of other components do not rise.",
        16,
    ),
    sites_bug(
        "all members of a view have come together",
        "transition",
        "proposal.classes[proposal.own].members",
        "range(len(members))",
        "came_with has daemons of other components.",
        16,
    ),
    # Rounds
    dense_bug(
        "a view stands when all but one have accepted",
        "Round.on_accepted",
        "len(self._accepted) < len(proposal.members)",
        "len(self._accepted) < len(proposal.members) - 1",
        "The last one may go another way.",
        16,
    ),
    sites_bug(
        "silence is not noticed",
        "SiteWatch.silent",
        "self.detector.suspects(now_ns)",
        "self.detector.suspects(now_ns)[:0]",
        "A view with a dead daemon stays.",
        16,
    ),
)
