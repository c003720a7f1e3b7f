"""Check many runs of the real engines against the model: `python -m tests.model.traces token 12000000 300`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.model.conformance import check

from ordercast.sim.chance import random_scenario
from ordercast.sim.run import run_scenario


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("orderer", choices=("token", "sequencer", "timestamp"))
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("runs", type=int)
    given = parser.parse_args()
    views = bad = 0
    kinds: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.runs):
        scenario = random_scenario(seed, given.orderer)
        outcome = run_scenario(scenario)
        views += len({row.view for row in outcome.rows if row.kind == "view"})
        found = check(outcome.rows, scenario.rule_of, by_hand=scenario.recovery == "manual")
        kinds.update({each.check for each in found})
        bad += bool(found)
        for each in found:
            print(f"{scenario.command}\n  {each}")
    texts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())) or "none"
    print(f"{given.orderer}: {given.runs} runs, {views} views, {bad} runs with deviations: {texts}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
