"""Random runs of the components policy: `python -m tests.components.runs FIRST COUNT [steady|one-way|restarted]`."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Final

from tests.components.judge import Violation
from tests.components.world import SUSPECT_NS, World

from ordercast.config import MS, SECOND
from ordercast.errors import InvariantViolation
from ordercast.membership.components.backoff import MOST_NS
from ordercast.membership.components.taking_part import ComponentState

REPORT: Final = 100  # runs between two lines
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
    world.late = rng.choice((0.0, 0.0, 0.1, 0.4))
    if rng.random() < 0.7:
        world.run_for(rng.randint(500, 3_000) * MS)
    for _ in range(rng.randint(1, 6)):
        fault(world, rng)
        world.run_for(rng.choice((rng.randint(1, 60), rng.randint(1, 800), rng.randint(500, 4_000))) * MS)
    world.trap = None
    world.heal()
    world.loss = world.large_loss = world.late = 0.0
    for index, node in enumerate(world.nodes):
        if not node.is_alive and rng.random() < 0.5:
            world.restart(index)
    world.until_one(HEAL_NS)
    world.is_busy = False
    world.run_for(SECOND)  # a silence that began before the heal may still be noticed
    world.until_one(HEAL_NS)
    world.run_for(SECOND)
    if not world.is_one():
        raise Violation("the component does not last")
    world.judge.end(world.nodes)
    if any(node.membership.tally["contradictions"] for node in world.nodes):
        raise Violation("cuts contradict one another")
    if world.malformed:
        raise Violation(f"{world.malformed} datagrams of our own were malformed")
    return world


def steady(seed: int) -> World:
    """One-way cuts that stay. Whoever cannot be together parts, and nobody tries again and again: raises Violation
    where views come and go. A link on which only heartbeats are lost looks sound to the membership: it merges, fails,
    and backs off for longer each time."""
    rng = random.Random(f"steady {seed}")
    count = rng.choice((2, 3, 4, 5))
    world = World(seed, [index % 3 for index in range(count)])
    world.until_one(HEAL_NS)
    pairs = {(a, b) for a in range(count) for b in range(count) if a != b}
    chosen = set(rng.sample(sorted(pairs), rng.randint(1, 3 if count > 2 else 1)))
    is_deaf = rng.random() < 0.4
    world.is_busy = False
    if is_deaf:
        world.deaf |= chosen
    else:
        world.cuts |= chosen
    world.run_for(40 * SECOND if is_deaf else 10 * SECOND)
    before = world.judge.counts["views"]
    world.run_for(30 * SECOND)
    views = world.judge.counts["views"] - before
    most = 8 * count * len(chosen) if is_deaf else 0
    if views > most:
        raise Violation(f"{views} views in 30 s, with {'heartbeats' if is_deaf else 'datagrams'} lost on {chosen}")
    for node in world.nodes:
        if not is_deaf and not node.is_working:
            raise Violation(f"{node} is {node.membership.state.name} for good")
    return world


def one_way(seed: int) -> World:
    """Three daemons, and one of the six directions between them cut for good."""
    pair = [(a, b) for a in range(3) for b in range(3) if a != b][seed % 6]
    world = World(seed, [0, 1, 2])
    world.until_one(HEAL_NS)
    world.is_busy = False
    world.cuts.add(pair)
    world.run_for(6 * SECOND)
    before = world.judge.counts["views"]
    world.run_for(20 * SECOND)
    if world.judge.counts["views"] > before or not all(node.is_working for node in world.nodes):
        raise Violation(f"{world.judge.counts['views'] - before} views in 20 s, with {pair} cut")
    return world


def restarted(seed: int) -> World:
    """A daemon is restarted in a view that works: its new life is in the next view before anybody suspects the old."""
    world = World(seed, [0, 0, 1, 2])
    world.until_one(HEAL_NS)
    world.run_for(500 * MS)
    world.restart(seed % 4)
    world.until_one(SUSPECT_NS // 2)
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
    run = {"steady": steady, "one-way": one_way, "restarted": restarted}.get(sys.argv[-1], draw)
    for seed in range(first, first + count):
        try:
            world = run(seed)
            counts.update(world.judge.counts)
            counts["rounds"] += sum(node.membership.tally["rounds"] for node in world.nodes)
        except (Violation, InvariantViolation) as error:
            bad += 1
            if bad <= 5:
                print(f"seed {seed}: {error}"[:600])
        done = seed + 1 - first
        if done == count or done % REPORT == 0:
            took = time.monotonic() - begin
            print(f"{done} runs from seed {first}, {bad} bad, {took:.0f} s, {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
