"""What the order over sites costs for each block: `python benches/sites_order.py [--blocks N] [--sites N]`; one JSON
document."""

from __future__ import annotations

import argparse
import json
import sys
from time import process_time

from ordercast.orderers.sites.horizon import Horizon
from ordercast.orderers.sites.stream import Held
from ordercast.service import AGREED_RANK

BATCH = 32  # blocks of each site between two passes


def order(blocks: int, sites: int) -> int:
    """Take so many blocks of so many sites, deliver them and forget them; returns how many were delivered."""
    every = (1 << sites) - 1
    horizon = Horizon(0, range(sites), 1)
    seq = done = 0
    while seq * sites < blocks:
        for _ in range(BATCH):
            seq += 1
            for site in range(sites):
                horizon.add(Held(site, seq, seq + 1, AGREED_RANK, site, every))
        done += len(horizon.take(blocks))
        for site in range(sites):
            horizon.update(site, seq, seq + 1, seq + 1)
        horizon.release()
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=300_000)
    parser.add_argument("--sites", type=int, default=3)
    arguments = parser.parse_args()
    begin_s = process_time()
    done = order(arguments.blocks, arguments.sites)
    taken_s = process_time() - begin_s
    json.dump({"blocks": done, "sites": arguments.sites, "us_per_block": round(1e6 * taken_s / done, 2)}, sys.stdout)


if __name__ == "__main__":
    main()
