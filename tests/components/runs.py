"""Random runs of the components policy: `python -m tests.components.runs FIRST COUNT`."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Final

from tests.components.judge import Violation
from tests.components.world import World

from ordercast.config import MS, SECOND
from ordercast.errors import InvariantViolation
from ordercast.membership.components.backoff import MOST_NS
from ordercast.membership.components.taking_part import ComponentState

HEAL_NS: Final = 2 * MOST_NS + 20 * SECOND  # within which one component must stand after all faults have ended


def draw(seed: int) -> World:
    """A whole run, judged. Raises Violation."""
    rng = random.Random(f"run {seed}")
    count = rng.choice((2, 3, 3, 4, 4, 5, 6))
    sites = [index if index < 2 else rng.randrange(3) for index in range(count)]
    if rng.random() < 0.2:
        sites = [0] * count
    world = World(seed, sites)
    world.loss = rng.choice((0.0, 0.0, 0.05, 0.2))
    if rng.random() < 0.7:
        world.run_for(rng.randint(500, 3_000) * MS)
    for _ in range(rng.randint(1, 6)):
        fault(world, rng)
        world.run_for(rng.choice((rng.randint(1, 60), rng.randint(1, 800), rng.randint(500, 4_000))) * MS)
    world.trap = None
    world.heal()
    world.loss = world.large_loss = 0.0
    for index, node in enumerate(world.nodes):
        if not node.is_alive and rng.random() < 0.5:
            world.restart(index)
    world.until_one(HEAL_NS)
    world.is_busy = False
    world.run_for(SECOND)
    if not world.is_one():
        raise Violation("the component does not last")
    world.judge.end(world.nodes)
    if world.malformed:
        raise Violation(f"{world.malformed} datagrams of our own were malformed")
    return world


def fault(world: World, rng: random.Random) -> None:
    everyone = list(range(len(world.nodes)))
    kind = rng.random()
    index = rng.choice(everyone)
    if kind < 0.15:
        live = [node for node in world.nodes if node.is_alive]
        if len(live) > 1:
            world.crash(index)
    elif kind < 0.3:
        world.restart(index)
    elif kind < 0.4:
        world.trap = rng.choice((ComponentState.GATHERING, ComponentState.ACCEPTING, ComponentState.ACCEPTED))
    elif kind < 0.45:
        a, b = rng.sample(everyone, 2)
        world.deaf.add((a, b))
    elif kind < 0.6:
        part = [each for each in everyone if rng.random() < 0.5]
        world.partition(part, [each for each in everyone if each not in part])
    elif kind < 0.7:
        for _ in range(rng.randint(1, 3)):
            a, b = rng.sample(everyone, 2)
            world.cuts.add((a, b))
    elif kind < 0.85:
        world.heal()
    elif kind < 0.92:
        world.loss = rng.choice((0.0, 0.1, 0.4))
    else:
        world.large_loss = rng.choice((0.0, 0.5, 1.0))


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    counts: Counter[str] = Counter()
    bad = 0
    begin = time.monotonic()
    for seed in range(first, first + count):
        try:
            world = draw(seed)
            counts.update(world.judge.counts)
            counts["rounds"] += sum(node.membership.counters["rounds"] for node in world.nodes)
        except (Violation, InvariantViolation) as error:
            bad += 1
            if bad <= 5:
                print(f"seed {seed}: {error}"[:600])
    print(f"{count} runs from seed {first}, {bad} bad, {time.monotonic() - begin:.0f} s, {dict(counts)}")


if __name__ == "__main__":
    main()
