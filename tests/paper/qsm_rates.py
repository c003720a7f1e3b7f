"""A sender, a region and its hiccups, second by second: what the rate control of QSM section 2.4 comes to.

The sender's machine sends at most 10,000 datagrams a second. In 2 % of its seconds a node has a hiccup, and loses a
uniform share of what comes. What is lost is repaired after two or three seconds, and counts then: members measure "new,
previously unseen packets". (Without repairs no region of ten nodes could hold any rate: the mean falls by more than
lambda brings back.)

    python -m tests.paper.qsm_rates 2400        # 2,400 seconds for each size and lambda
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from statistics import fmean, pstdev
from typing import Final, NamedTuple

from ordercast.config import SECOND
from ordercast.parts.rate import GROWTH, MIN_RATE, RateMeter, SendingRate, fair_share, policy_of

CAPACITY: Final = 10_000.0  # what the sender's machine reaches
HICCUPS: Final = 0.02
LEAST_REPAIR_S, MOST_REPAIR_S = 2, 3  # 2.5 rounds of a second (section 3.9)
WARM_S: Final = 200
PAPER: Final = {1: 9_850, 40: 8_646, 71: 6_500}  # figure 9, and section 3.2


class Found(NamedTuple):
    mean: float
    deviation: float
    least: float
    most: float


def always(second: int) -> float:  # noqa: ARG001
    return CAPACITY


def simulate(
    nodes: int,
    seconds: int,
    policy: str = "qsm",
    growth: float = GROWTH,
    demand: Callable[[int], float] = always,
    first: float = MIN_RATE,
    seed: int = 1,
) -> Found:
    """Rates of each second, after a time to warm up. `demand`: what the sender has to send in a second."""
    rng = random.Random(f"hiccups/{seed}/{nodes}")
    sending = SendingRate(0, policy_of(policy, growth), first)
    meters = [RateMeter(0) for _ in range(nodes)]
    rates: list[float] = []
    owed = [[0] * nodes for _ in range(MOST_REPAIR_S + 1)]  # what comes in the next seconds by repair
    for second in range(seconds):
        now_ns = second * SECOND + SECOND // 2
        sent = int(min(CAPACITY, sending.rate, demand(second)))
        sending.take(now_ns, sent)
        repaired = owed.pop(0)
        owed.append([0] * nodes)
        for node, meter in enumerate(meters):
            lost = round(sent * rng.random()) if rng.random() < HICCUPS else 0
            meter.add(now_ns, sent - lost + repaired[node])
            owed[rng.randint(LEAST_REPAIR_S, MOST_REPAIR_S) - 1][node] += lost
        for meter in meters:
            meter.roll((second + 1) * SECOND)
        sending.report((second + 1) * SECOND, fair_share(min(meter.mean() for meter in meters), 1))
        rates.append(float(sent))
    kept = rates[WARM_S:]
    return Found(fmean(kept), pstdev(kept), min(kept), max(kept))


def main(arguments: list[str]) -> None:
    seconds = int(arguments[0]) if arguments else 2_400
    for growth in (0.05, 0.07, GROWTH):
        for nodes in (1, 10, 25, 40, 71):
            slow, fast = [simulate(nodes, seconds, "qsm", growth, first=first) for first in (MIN_RATE, CAPACITY)]
            words = (
                f"from the least rate {slow.mean:,.0f} (deviation {slow.deviation:,.0f}), from full {fast.mean:,.0f}"
            )
            print(f"lambda {growth}, {nodes} nodes: {words}; the paper {PAPER.get(nodes, '-')}")


if __name__ == "__main__":
    main(sys.argv[1:])
