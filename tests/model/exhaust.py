"""Exhaust the model: `make model`, or `python -m tests.model.exhaust [--seconds N] [name ...]`.

Each world is gone through to its last state, in canonical order (`explore.py`), under the rule as it is written and
under the rule as the engines have it (V1 to V5). The table says how many states that are, how often the judge of
liveness asked for somebody to go on, and how long it took.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final, NamedTuple

from tests.model.explore import CANONICAL, INTERLEAVED, Search, Steps
from tests.model.rule import ENGINES, Rules
from tests.model.world import Limits


class Plan(NamedTuple):
    """One world to exhaust."""

    rules: Rules
    limits: Limits
    successors: Steps = CANONICAL


WRITTEN: Final = Rules()
BINDING: Final = ENGINES.without("rule_out_fresh")  # V1 to V4: with V5 there are more ballots that lead to nothing

PLANS: Final[dict[str, Plan]] = {
    # every interleaving
    "two-leave-interleaved": Plan(WRITTEN, Limits(2, 0, messages=1, leaves=1, ballots=2), INTERLEAVED),
    "two-leave-interleaved-engines": Plan(ENGINES, Limits(2, 0, messages=1, leaves=1, ballots=2), INTERLEAVED),
    "one-join-interleaved-engines": Plan(ENGINES, Limits(1, 1, messages=1, ballots=2), INTERLEAVED),
    "two-join-interleaved-engines": Plan(ENGINES, Limits(2, 1, messages=0, ballots=1), INTERLEAVED),
    # three members and a joiner, two ballots
    "three-join": Plan(WRITTEN, Limits(3, 1, messages=0)),
    "three-join-engines": Plan(ENGINES, Limits(3, 1, messages=0)),
    # leaves, two ballots
    "three-leave": Plan(WRITTEN, Limits(3, 0, messages=1, leaves=1)),
    "three-leave-engines": Plan(ENGINES, Limits(3, 0, messages=1, leaves=1)),
    # chains of four views: joins, leaves and recoveries in every order
    "chain": Plan(WRITTEN, Limits(2, 1, messages=0, leaves=2, ballots=1, rings=4, views=4)),
    "chain-engines": Plan(ENGINES, Limits(2, 1, messages=0, leaves=2, ballots=1, rings=4, views=4)),
    # what else the rule speaks of
    "cancelled-join": Plan(WRITTEN, Limits(2, 1, messages=0, cancelled=0b100)),
    "cancelled-join-engines": Plan(ENGINES, Limits(2, 1, messages=0, cancelled=0b100)),
    "two-crashes-engines": Plan(ENGINES, Limits(3, 1, messages=0, ballots=1, crashes=2)),
    "three-ballots-engines": Plan(ENGINES, Limits(3, 0, messages=0, ballots=3, crashes=2)),
    # the longest ones: minutes each
    "four-leave-engines": Plan(ENGINES, Limits(4, 0, messages=0, leaves=1, ballots=1)),
    "chain-three-engines": Plan(ENGINES, Limits(3, 1, messages=0, leaves=1, ballots=1, rings=4, views=4)),
    "three-join-message-binding": Plan(BINDING, Limits(3, 1, messages=1)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"worlds: {', '.join(PLANS)}; all by default")
    parser.add_argument("--seconds", type=float, default=3600, help="give up a world after so long")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in PLANS]
    if unknown:
        parser.error(f"no such world: {', '.join(unknown)}")
    is_good = True
    for name in given.names or PLANS:
        plan = PLANS[name]
        result = Search(plan.rules, plan.limits, seconds=given.seconds).exhaust(plan.successors)
        print(f"{name}: {result}", flush=True)
        for text in result.path:
            print(f"    {text}")
        is_good = is_good and result.is_complete and not result.failure
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
