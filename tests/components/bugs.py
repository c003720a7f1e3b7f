"""Planted bugs of the components policy: each is one mutation, and a run that notices it.

`python -m tests.components.bugs` looks for the first seed that catches each.
"""

from __future__ import annotations

import sys
from typing import Final

from tests.components.judge import Violation
from tests.components.runs import draw, one_way, restarted, steady
from tests.sim.bug import Bug
from tests.sim.planting import planted

from ordercast.errors import OrdercastError

# In the place of an orderer: which runs catch it.
RUN, STEADY, ONE_WAY, RESTARTED = "components", "steady", "one-way", "restarted"
RUNS: Final = {RUN: draw, STEADY: steady, ONE_WAY: one_way, RESTARTED: restarted}


def caught(bug: Bug, seed: int) -> str:
    """What the judges say to a run with the bug; empty: nothing."""
    with planted(bug):
        try:
            RUNS[bug.orderer](seed)
        except (Violation, OrdercastError) as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _bug(name: str, function: str, old: str, new: str, breaks: str, seed: int, run: str = RUN) -> Bug:
    return Bug(name, function, old, new, breaks, seed, run)


COMPONENT_BUGS: Final[tuple[Bug, ...]] = (
    _bug(
        "a daemon is bound by a proposal, not by holding its remainder",
        "TakingPart.on_proposal",
        "self.state = ComponentState.ACCEPTING",
        "self.state = ComponentState.ACCEPTING\nself.bound = result",
        "It is bound to blocks that it may never get.",
        0,
    ),
    _bug(
        "a daemon is not bound any more when it promises again",
        "TakingPart.promise",
        "self.proposal = self.result = self.fetching = None",
        "self.proposal = self.result = self.fetching = self.bound = None",
        "Others have installed the view, and count on what it accepted.",
        0,
    ),
    _bug(
        "a daemon accepts although blocks are missing",
        "TakingPart.progress",
        "lacking = self.lacking()",
        "lacking = self.lacking()[:0]",
        "It cannot deliver its remainder.",
        0,
    ),
    _bug(
        "a view stands when all but one have accepted",
        "Round.on_accepted",
        "len(self._accepted) < len(proposal.members)",
        "len(self._accepted) < len(proposal.members) - 1",
        "The last one may go another way.",
        0,
    ),
    _bug(
        "a late INSTALL counts in a higher round",
        "_on_install",
        "vote.ballot == part.promised and part.state is ComponentState.ACCEPTED and not part.is_coordinating",
        "part.state is ComponentState.ACCEPTED and not part.is_coordinating",
        "A view is installed that not all have accepted.",
        4,
    ),
    _bug(
        "a new view begins at LTS 1",
        "_conclude",
        "outcome.first_lts",
        "1",
        "Positions fall.",
        0,
    ),
    _bug(
        "the counter is that of the coordinator's view plus one",
        "_conclude",
        "counter = max(outcome.counter, 1 + max([told.counter for told in chosen]))",
        "counter = 1 + self._cuts[local.index].view.counter",
        "Counters of other components do not rise.",
        0,
    ),
    _bug(
        "lineage follows the view although its rosters were not in sync",
        "TakingPart.begin",
        "was_synced and self._left is not None",
        "self._left is not None",
        "Daemons with different rosters are one roster group.",
        1,
    ),
    _bug(
        "cuts of bound daemons do not say so",
        "TakingPart.promise",
        "self.bound",
        "None",
        "A class is divided anew although one of it may have installed.",
        0,
    ),
    _bug(
        "nobody watches the coordinator",
        "TakingPart.expire",
        "silent_ns >= timing.recovery_wait_ns",
        "silent_ns < 0",
        "A coordinator that dies leaves the others frozen.",
        6,
    ),
    _bug(
        "the classes of a proposal are those of the first member",
        "_make_bodies",
        "common._replace(own=own, stable=each.result.stable, remainder=each.result.remainder, holders=runs)",
        "common._replace(own=0, stable=each.result.stable, remainder=each.result.remainder, holders=runs)",
        "Members of other classes cannot accept.",
        0,
    ),
    _bug(
        "daemons that avoid each other are put into one view",
        "_choose",
        "not avoids >> index & 1 and not told.avoids & mask",
        "told is not None",
        "The view breaks at once, again and again.",
        1,
        ONE_WAY,
    ),
    _bug(
        "components merge when some of their daemons hear each other",
        "mergeable",
        "common & ours == ours and not mask & ours",
        "not mask & ours",
        "A one-way cut breaks the view that they merge into.",
        3,
        ONE_WAY,
    ),
    _bug(
        "nobody backs off",
        "Backoff.failed",
        "self._away[index] = _Away(failures + 1, now_ns + wait_ns + self._rng.randrange(wait_ns // 4))",
        "self._away[index] = _Away(failures + 1, now_ns)",
        "What looks sound and is not merges again and again.",
        0,
        STEADY,
    ),
    _bug(
        "the wait before a merge does not grow",
        "Backoff.failed",
        "FIRST_NS << min(failures, 16)",
        "FIRST_NS",
        "What looks sound and is not merges twice a second.",
        0,
        STEADY,
    ),
    _bug(
        "everybody that hears a daemon counts as linked",
        "_linked",
        "self._heard[index].hello.hears >> self._local.index & 1",
        "self._heard[index].hello.counter >= 0",
        "A one-way cut is not seen before the merge.",
        5,
        ONE_WAY,
    ),
    _bug(
        "a restarted daemon is not noticed",
        "_knows",
        "self._on_new_life(now_ns, life, out)",
        "pass",
        "What was known of its former life still counts.",
        0,
        RESTARTED,
    ),
)


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    for bug in COMPONENT_BUGS:
        if wanted in bug.name:
            for seed in range(most):
                text = caught(bug, seed)
                if text:
                    print(f"{seed:4} {bug.name}: {text[:150]}", flush=True)
                    break
            else:
                print(f"  -- {bug.name}: not caught in {most}", flush=True)


if __name__ == "__main__":
    main()
