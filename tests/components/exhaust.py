"""Small cases, exhausted: one fault at every datagram of a merge and of a recovery.

`python -m tests.components.exhaust` prints how many cases there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Final

from tests.components.judge import Violation
from tests.components.runs import HEAL_NS
from tests.components.world import World

from ordercast.config import MS

SEED: Final = 7
Fault = Callable[[World], bool]


def base(size: int) -> World:
    """Daemons that have just begun to merge, with traffic."""
    return World(SEED, [index % 2 for index in range(size)])


def play(world: World, at: int, event: Fault) -> None:
    """The fault happens when datagram `at` is sent. Afterwards the network is whole again."""
    world.at_datagram[at] = lambda: event(world)
    world.run_for(600 * MS)
    world.crash(world.nodes[-1].index)
    world.run_for(1_500 * MS)
    world.heal()
    for node in list(world.nodes):
        if not node.is_alive:
            world.restart(node.index)
    world.until_one(HEAL_NS)
    world.is_busy = False
    world.run_for(200 * MS)
    world.judge.end(world.nodes)
    if world.malformed:
        raise Violation("our own datagrams are malformed")


def faults(size: int) -> Iterator[tuple[str, Fault]]:
    def lose(_: World) -> bool:
        return True

    yield "lost", lose
    for index in range(size):

        def crash(world: World, index: int = index) -> bool:
            world.crash(index)
            return False

        def restart(world: World, index: int = index) -> bool:
            world.at(world.now_ns, lambda: world.restart(index))
            return False

        yield f"crash of {index}", crash
        yield f"restart of {index}", restart
    for count in range(1, size // 2 + 1):
        for part in combinations(range(size), count):

            def cut(world: World, part: tuple[int, ...] = part) -> bool:
                world.partition(list(part), [each for each in range(size) if each not in part])
                return False

            yield f"cut around {part}", cut
    for pair in [(a, b) for a in range(size) for b in range(size) if a != b]:

        def deafen(world: World, pair: tuple[int, int] = pair) -> bool:
            world.cuts.add(pair)
            return False

        yield f"one-way cut {pair}", deafen


def datagrams(size: int) -> int:
    """How many are sent until there is one view, it has lost a daemon, and has recovered."""
    world = base(size)
    world.run_for(600 * MS)
    world.crash(size - 1)
    world.run_for(1_000 * MS)
    return world.sent


def cases(size: int, step: int = 1) -> Iterator[tuple[int, str, Fault]]:
    for at in range(1, datagrams(size) + 1, step):
        for name, event in faults(size):
            yield at, name, event


def check(size: int, step: int = 1) -> int:
    """How many cases there are. Raises Violation with the case that is bad."""
    count = 0
    for at, name, event in cases(size, step):
        world = base(size)
        try:
            play(world, at, event)
        except Violation as violation:
            raise Violation(f"{size} daemons, {name} at datagram {at}: {violation}") from violation
        count += 1
    return count


def main() -> None:
    for size in (2, 3):
        print(f"{size} daemons: {datagrams(size)} datagrams, {check(size)} cases", flush=True)


if __name__ == "__main__":
    main()
