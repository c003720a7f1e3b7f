"""Planted bugs of the engine of regions: how many seeds it takes to catch each.

python -m tests.regions.planted            # all, within their bounds
python -m tests.regions.planted 300 tail   # those whose name has this word, with so many seeds
"""

from __future__ import annotations

import sys

from tests.regions.chance import run
from tests.sim.bug import Bug
from tests.sim.planting import planted
from tests.sim.regions_bugs import REGIONS_BUGS


def caught(bug: Bug, most: int = 0) -> tuple[int, str] | None:
    """The first seed whose run is bad with the bug, and what the judge says."""
    with planted(bug):
        for seed in range(bug.first_seed, bug.first_seed + (most or bug.bound)):
            try:
                text, _ = run(seed)
            except (ArithmeticError, LookupError) as error:
                text = f"raised: {error!r}"
            if text:
                return seed, text
    return None


def main(arguments: list[str]) -> int:
    most = int(arguments[0]) if arguments else 0
    is_bad = False
    for bug in REGIONS_BUGS:
        if any(word not in bug.name for word in arguments[1:]):
            continue
        found = caught(bug, most)
        is_bad |= found is None
        print(f"{bug.name}: {f'{found[0]} {found[1][:90]}' if found else 'NOT CAUGHT'}", flush=True)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
