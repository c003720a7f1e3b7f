"""Every choice of a few free steps, and every pattern of losses, in small worlds. Each run is brought to rest, and
judged.

    python -m tests.model.regions.explore 60                   # all worlds, at most 60 s each
    python -m tests.model.regions.explore 60 move -close       # one of them, without a rule

A run is repeated from its beginning for each path of choices: worlds are small, and nothing has to be copied. Rounds
are whole or do not happen: `chance.py` interrupts them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tests.model.regions import rounds
from tests.model.regions.chance import Step, take
from tests.model.regions.judge import judge
from tests.model.regions.quiet import come_to_rest
from tests.model.regions.rules import Rules
from tests.model.regions.world import NEVER, NOW, Violation, World

T = TypeVar("T")


class Paths:
    """All paths through a tree of choices, depth first."""

    def __init__(self) -> None:
        self._path: list[int] = []
        self._widths: list[int] = []
        self._at = 0

    def choose(self, options: Sequence[T]) -> T:
        at = self._at
        self._at += 1
        if at == len(self._path):
            self._path.append(0)
            self._widths.append(len(options))
        return options[self._path[at]]

    def next(self) -> bool:
        """The next path; False after the last."""
        del self._path[self._at :], self._widths[self._at :]
        self._at = 0
        while self._path and self._path[-1] + 1 == self._widths[-1]:
            self._path.pop()
            self._widths.pop()
        if not self._path:
            return False
        self._path[-1] += 1
        return True


@dataclass(frozen=True, slots=True)
class Small:
    """A world that is small enough: what happens first, and how many free steps follow."""

    nodes: int
    regions: int
    r: int
    begin: tuple[Step, ...]
    depth: int
    messages: int = 0  # that may still be sent
    faults: int = 1


SEND: Final = ("send", 0)
WORLDS: Final[dict[str, Small]] = {
    # One block to two cachers of one partition.
    "pair": Small(2, 1, 2, (SEND,), 2),
    # Two partitions of one member each: a crash makes one an orphan.
    "orphan": Small(2, 1, 1, (SEND,), 3),
    # The sender dies after its first message.
    "dead": Small(2, 1, 1, (SEND, ("sender dies", 0)), 3),
    # A member moves between two messages; the sender has installed the epoch.
    "move": Small(3, 2, 1, (SEND, ("move", 0, 1), ("install", 0, 0), SEND), 2, faults=0),
    # A sender that has said nothing yet, in a view that ends.
    "late": Small(2, 2, 1, (("move", 0, 1),), 3, messages=1, faults=0),
}


@dataclass(slots=True)
class Found:
    runs: int = 0
    seconds: float = 0.0
    is_complete: bool = True
    failure: str = ""
    log: tuple[tuple[object, ...], ...] = ()

    def __str__(self) -> str:
        end = "complete" if self.is_complete else "cut off"
        return f"{self.runs} runs, {self.seconds:.1f} s, {end}: {self.failure or 'holds'}"


def explore(small: Small, rules: Rules, seconds: float, most: int = 1 << 40) -> Found:
    """Until every path was taken, something is wrong, or a bound is met."""
    found, paths, begin = Found(), Paths(), time.process_time()
    while True:
        found.runs += 1
        world = World(rules, lambda: paths.choose((NOW, NEVER)), small.nodes, small.regions, small.r, 1)
        try:
            _run(small, world, paths)
        except Violation as error:
            found.failure, found.log = str(error), tuple(world.log)
            break
        if not paths.next():
            break
        found.seconds = time.process_time() - begin
        if found.seconds > seconds or found.runs >= most:
            found.is_complete = False
            break
    return found


def _run(small: Small, world: World, paths: Paths) -> None:
    messages, faults = small.messages, small.faults
    for step in small.begin:
        take(world, step)
    for _ in range(small.depth):
        steps = _steps(world, messages, faults)
        if not steps:
            break
        step = paths.choose(steps)
        messages -= step[0] == "send"
        faults -= step[0] in ("sender dies", "crash", "exclude", "move")
        if step[0] == "round":
            _, view, node = step
            rounds.run(world, rounds.start(world, view, node))  # type: ignore[arg-type]
        else:
            take(world, step)
    come_to_rest(world)
    judge(world)


def _steps(world: World, messages: int, faults: int) -> list[Step]:
    steps: list[Step] = []
    (sender,) = world.senders
    if sender.is_alive:
        steps += [SEND] * (messages > 0) + [("sender dies", 0)] * (faults > 0)
        steps += [("install", 0, each) for each in world.regions if sender.epochs[each] < world.last][:1]
        for view, lane in sender.lanes.items():
            steps += [("tail", 0, view)] * (lane.ack < lane.count)
            if world.is_closing(sender, view):
                steps += [("close", 0, view, each) for each in world.views[view].members if world.is_up(each)]
    elif not world.dead[-1]:
        steps.append(("declare dead", 0))
    for node in world.nodes:
        if not world.is_up(node.id):
            steps += [("exclude", node.id)] * (node.id not in world.excluded[-1])
            continue
        steps += [("node installs", node.id)] * (node.epoch < world.last)
        for view, each in world.views.items():
            if node.id in each.members and view.epoch <= node.epoch and view not in node.forgotten:
                steps += [("round", view, node.id)] * rounds.leads(world, node.id, view)
                steps += [("forget", node.id, view)] * (world.tiles[node.epoch][view.region] != view)
        is_alone = len(world.views[world.tiles[-1][world.region_of(node.id)]].members) == 1
        if faults > 0 and not is_alone and all(other.is_alive for other in world.nodes):
            steps.append(("crash", node.id))
    return steps


def main(arguments: list[str]) -> int:
    rules = Rules().without(*[each[1:] for each in arguments if each.startswith("-")])
    seconds, *names = [each for each in arguments if not each.startswith("-")] or ["60"]
    is_bad = False
    for name in names or WORLDS:
        found = explore(WORLDS[name], rules, float(seconds))
        print(f"{name}: {found}", flush=True)
        for line in found.log:
            print("   ", *line)
        is_bad |= bool(found.failure)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
