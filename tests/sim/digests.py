"""Digests of random scenarios: whether a change of the code changed what happens in them.

`digests.txt` has, for each of the first seeds and each orderer, the beginning of the digest of the whole trace of
`ordercast sim --scenario-seed SEED --orderer ORDERER`. A change that only moves code leaves all of them as they are;
`make digests` says which differ.

They are written anew (`python -m tests.sim.digests --write`) by a change that is meant to change what members do: other
datagrams, timers or orders of events, another cost of the simulated network, other scenarios for the same seeds. Such a
change says in its message why they differ. A difference that nobody meant is a bug of the change.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from ordercast.sim.fuzz import fuzz, run_seed

FILE: Final = Path(__file__).with_name("digests.txt")
ORDERERS: Final = ("token", "sequencer", "timestamp")
SEEDS: Final = 300
DIGITS: Final = 16  # of each digest
JOBS: Final = 2


def kept() -> dict[str, list[str]]:
    """Orderer -> the digest of each seed."""
    header, *rows = [line.split() for line in FILE.read_text(encoding="utf-8").splitlines()]
    return {orderer: [row[column] for row in rows] for column, orderer in enumerate(header[1:], start=1)}


def digest_of(orderer: str, seed: int) -> str:
    """Of a run that must hold."""
    result = run_seed(orderer, seed)
    assert result.held, "\n".join((result.command, *result.failures))
    return result.digest[:DIGITS]


def measured(orderer: str, runs: int) -> list[str]:
    return [result.digest[:DIGITS] for result in fuzz(orderer, 0, runs, JOBS).results]


def write(found: dict[str, list[str]]) -> None:
    lines = ["seed " + " ".join(orderer.ljust(DIGITS) for orderer in ORDERERS).rstrip()]
    lines += [f"{seed:4} " + " ".join(found[orderer][seed] for orderer in ORDERERS) for seed in range(SEEDS)]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the seeds of digests.txt and say whose trace has changed.")
    parser.add_argument("--write", action="store_true", help="write digests.txt anew")
    parser.add_argument("--runs", type=int, default=SEEDS, help=f"compare only so many seeds ({SEEDS})")
    args = parser.parse_args()
    found = {orderer: measured(orderer, SEEDS if args.write else args.runs) for orderer in ORDERERS}
    if args.write:
        write(found)
        return
    differ = 0
    for orderer in ORDERERS:
        changed = [seed for seed, digest in enumerate(found[orderer]) if digest != kept()[orderer][seed]]
        differ += len(changed)
        print(f"{orderer}: {len(found[orderer])} seeds, different: {len(changed)} {changed[:20] or ''}".rstrip())
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
