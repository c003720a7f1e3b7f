"""Every interleaving of a small world. Each state is brought to rest on a quiet network, and judged.

    python -m tests.model.evs.explore 60                       # all worlds, at most 60 s each
    python -m tests.model.evs.explore 60 pruned -skipped_safe  # one of them, without a rule

Steps are those of `world.py`, a little larger: what arrives over a link arrives whole, with the UPDATE or without it,
and a daemon that hears an invitation answers at once. Faults happen in the order in which a world lists them, at any
time. States are told apart by what the daemons know and not by how they got there: where two histories lead to one
state, the first one is judged.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.model.evs.blocks import AGREED, SAFE, Join, Leave, Send, Wish
from tests.model.evs.daemon import ACCEPTED, ACCEPTING, EVERYTHING, GATHERING, WORKING
from tests.model.evs.judge import Violation, judge
from tests.model.evs.quiet import come_to_rest
from tests.model.evs.rules import Rules
from tests.model.evs.world import World

from ordercast.errors import InvariantViolation

Step = tuple[object, ...]


class Fault(NamedTuple):
    """One of: a crash, a restart, the parts of the network, a way that is cut."""

    crash: int = -1
    restart: int = -1
    parts: tuple[int, ...] = ()
    cut: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Small:
    """A world that is small enough."""

    sites: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]  # the daemons in each
    wishes: dict[int, tuple[Wish, ...]]
    faults: tuple[Fault, ...]
    rounds: int = 2
    weights: dict[tuple[int, int], int] = field(default_factory=dict)
    window: int = 8

    def world(self, rules: Rules) -> World:
        world = World(rules, self.sites, self.weights, self.window)
        world.form({group: frozenset((daemon, 0) for daemon in all_) for group, all_ in enumerate(self.groups)})
        for daemon, wishes in self.wishes.items():
            for wish in wishes:
                world.wish(daemon, wish)
        return world


AGREED_0: Final = Send(AGREED, (0,))
SAFE_0: Final = Send(SAFE, (0,))
WORLDS: Final[dict[str, Small]] = {
    # Two sites that part while a SAFE and an AGREED message are on their way.
    "safe": Small((0, 1), ((0, 1),), {0: (SAFE_0,), 1: (AGREED_0,)}, (Fault(parts=(0, 1)),), 2),
    # The same inside one site, and they meet again: both halves stamp alike.
    "halves": Small((0, 0), ((0, 1),), {0: (SAFE_0,), 1: (AGREED_0,)}, (Fault(parts=(0, 1)), Fault(parts=(0, 0))), 3),
    # The sender crashes; site 0 gets a SKIP for its first message.
    "pruned": Small((0, 1, 2), ((0, 1), (1,)), {2: (Send(SAFE, (1,)), AGREED_0)}, (Fault(crash=2),), 1),
    # The same over two hops: site 1 passes on to site 0.
    "hops": Small((0, 1, 2), ((0,), (1,)), {2: (Send(SAFE, (1,)), AGREED_0)}, (Fault(crash=2),), 1, {(0, 2): 5}),
    # A crash, and a partition in the recovery from it.
    "cascade": Small((0, 1, 2), ((0, 1, 2),), {2: (SAFE_0,)}, (Fault(crash=2), Fault(parts=(0, 1, 1))), 2),
    # Joins and leaves over a partition that heals.
    "moves": Small(
        (0, 1), ((1,),), {0: (Join(0, (0, 0)),), 1: (AGREED_0, Leave(0, (1, 0)), Join(0, (1, 1)))},
        (Fault(parts=(0, 1)), Fault(parts=(0, 0))), 2,
    ),
    # A daemon comes back with a new life while the other still takes it for a member.
    "restart": Small((0, 1), ((0, 1),), {0: (SAFE_0,)}, (Fault(crash=1), Fault(restart=1)), 2),
    # One way is cut: invitations get through, and answers do not.
    "one way": Small((0, 1), ((0, 1),), {0: (SAFE_0,)}, (Fault(cut=(1, 0)),), 2),
}  # fmt: skip


@dataclass(slots=True)
class Found:
    states: int = 0
    transitions: int = 0
    seconds: float = 0.0
    is_complete: bool = True
    failure: str = ""
    path: tuple[Step, ...] = ()

    def __str__(self) -> str:
        end = "complete" if self.is_complete else "cut off"
        text = f"{self.states} states, {self.transitions} transitions, {self.seconds:.1f} s, {end}"
        return f"{text}: {self.failure or 'holds'}"


def explore(small: Small, rules: Rules, seconds: float, most: int = 1 << 40) -> Found:
    """Breadth first, until everything was seen, something is wrong, or a bound is met."""
    found = Found()
    begin = time.process_time()
    world = small.world(rules)
    seen = {(world.key(), 0)}
    queue: deque[tuple[World, int, tuple[Step, ...]]] = deque([(world, 0, ())])
    while queue:
        world, faults, path = queue.popleft()
        found.states += 1
        found.seconds = time.process_time() - begin
        if found.seconds > seconds or found.states > most:
            found.is_complete = False
            break
        try:
            _judge(world)
            for step in _steps(small, world, faults):
                found.transitions += 1
                after = world.clone()
                path_after = (*path, step)
                count = faults + (step[0] == "fault")
                _take(small, after, step, faults)
                key = (after.key(), count)
                if key not in seen:
                    seen.add(key)
                    queue.append((after, count, path_after))
        except (Violation, InvariantViolation) as error:
            found.failure, found.path = str(error), path
            break
    return found


def _judge(world: World) -> None:
    copy = world.clone()
    come_to_rest(copy)
    judge(copy.facts, is_at_rest=True)


def _steps(small: Small, world: World, faults: int) -> Iterator[Step]:
    for daemon in world.alive:
        name = daemon.id
        if daemon.state == WORKING:
            if world.tokens[daemon.view.id, daemon.site].holder == name:
                yield ("visit", name)
            yield ("pump", name)
            for source in daemon.view.sites:
                for supplier in world.suppliers(name, source):
                    yield ("arrive", supplier, name, source)
                    yield ("update", supplier, name, source)
        if len(world.rounds) < small.rounds and world.is_off(name):
            yield ("start", name)
    if faults < len(small.faults):
        yield ("fault",)
    for index, each in enumerate(world.rounds):
        yield from _round_steps(world, index, each.ballot.coordinator)


def _round_steps(world: World, index: int, leader: int) -> Iterator[Step]:
    each = world.rounds[index]
    if world.leads(index) and each.outcome is None:
        waiting = [d.id for d in world.alive if d.promised < each.ballot and world.reaches(leader, d.id)]
        if waiting:
            yield ("ask", index, waiting[0])
        yield ("conclude", index)
    for daemon in world.alive:
        if daemon.round == index and each.view is not None and daemon.id in each.view.members:
            if daemon.state == GATHERING:
                yield ("accept", index, daemon.id)
            elif daemon.state == ACCEPTING:
                for other in each.view.members:
                    yield ("fetch", index, daemon.id, other)
            elif daemon.state == ACCEPTED:
                yield ("install" if each.is_committed else "confirm", index, daemon.id)
    if world.can_commit(index):
        yield ("commit", index)


def _take(small: Small, world: World, step: Step, faults: int) -> None:
    name, *values = step
    match name:
        case "visit" | "pump":
            getattr(world, str(name))(*values, EVERYTHING)
        case "arrive":
            sender, receiver, source = values
            world.transfer(sender, receiver, source, world.items(sender, receiver, source))  # type: ignore[arg-type]
        case "ask":
            world.invite(*values)  # type: ignore[arg-type]
            world.answer(*values)  # type: ignore[arg-type]
        case "fault":
            _strike(world, small.faults[faults])
        case _:
            call: Callable[..., object] = getattr(world, str(name))
            call(*values)


def _strike(world: World, fault: Fault) -> None:
    if fault.crash >= 0:
        world.crash(fault.crash)
    if fault.restart >= 0:
        world.restart(fault.restart)
    if fault.parts:
        world.components = list(fault.parts)
    if fault.cut is not None:
        world.cut_ways |= {fault.cut}


def main(arguments: list[str]) -> int:
    rules = Rules().without(*[each[1:] for each in arguments if each.startswith("-")])
    seconds, *names = [each for each in arguments if not each.startswith("-")] or ["60"]
    is_bad = False
    for name in names or WORLDS:
        found = explore(WORLDS[name], rules, float(seconds))
        print(f"{name}: {found}", flush=True)
        for step in found.path:
            print("   ", *step)
        is_bad |= bool(found.failure)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
