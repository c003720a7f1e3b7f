"""Runs written by hand: what random runs find too rarely. Each breaks without the rule that it is named after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.model.evs.blocks import AGREED, Join, Leave, Send
from tests.model.evs.daemon import EVERYTHING
from tests.model.evs.judge import judge
from tests.model.evs.quiet import come_to_rest, recover
from tests.model.evs.rules import Rules
from tests.model.evs.world import World

SEND: Final = Send(AGREED, (0,))


def arrive(world: World, sender: int, receiver: int, source: int) -> None:
    """Everything of a source that one daemon has arrives at another."""
    world.transfer(sender, receiver, source, world.items(sender, receiver, source))
    world.update(sender, receiver, source)


def finish(world: World) -> None:
    come_to_rest(world)
    judge(world.facts, is_at_rest=True)


def clock_of_an_update(rules: Rules) -> None:
    """Site 0 hears an UPDATE beyond a gap. Were its clock not to rise, its JOIN would stand before a block that was
    stamped without knowing of it."""
    world = World(rules, (0, 1), {})
    world.form({0: frozenset([(1, 0)])})
    world.wish(0, Join(0, (0, 0)))
    world.wish(1, SEND)
    world.wish(1, SEND)
    world.visit(1, EVERYTHING)
    world.visit(0, EVERYTHING)  # INTEREST
    arrive(world, 0, 1, 0)
    world.visit(1, EVERYTHING)  # its ARU has the INTEREST
    first = world.daemons[1].known.passing[1][1]
    world.transfer(1, 0, 1, [first.as_skip()])  # and the second one is on its way
    world.update(1, 0, 1)
    world.visit(0, EVERYTHING)
    world.visit(0, EVERYTHING)  # JOIN
    finish(world)


def early_interest(rules: Rules) -> None:
    """Daemon 1 gets an INTEREST while it still waits for a roster. It must send what it stamps after the JOIN."""
    world = World(rules, (0, 1), {})
    recover(world)
    for _ in range(2):
        for name in (0, 1):
            world.visit(name, EVERYTHING)
            arrive(world, 1 - name, name, 1 - name)
    world.pump(0, EVERYTHING)
    world.wish(0, Join(0, (0, 0)))
    world.visit(0, EVERYTHING)  # INTEREST
    arrive(world, 0, 1, 0)
    world.pump(1, EVERYTHING)  # the end of the exchange
    for _ in range(3):
        world.visit(1, EVERYTHING)
        arrive(world, 1, 0, 1)
        world.visit(0, EVERYTHING)  # JOIN, as soon as the INTEREST is stable
        arrive(world, 0, 1, 0)
    world.wish(1, SEND)
    world.visit(1, EVERYTHING)
    finish(world)


def slow_receiver(rules: Rules) -> None:
    """Daemon 2 delivers nothing for a while, so it forgets nothing. It must not let the sender go on forever."""
    world = World(rules, (0, 1, 2), {}, window=2)
    world.form({0: frozenset([(0, 0), (1, 0), (2, 0)])})
    for _ in range(9):
        world.wish(0, SEND)
        world.wish(0, SEND)
        world.visit(0, EVERYTHING)
        arrive(world, 0, 1, 0)
        arrive(world, 0, 2, 0)
        world.visit(1, 0)
        arrive(world, 1, 2, 1)  # a clock with an old ARU
        world.visit(2, 0)
        arrive(world, 2, 0, 2)
        arrive(world, 2, 1, 2)
        arrive(world, 1, 0, 1)
        world.visit(0, 0)
        arrive(world, 0, 1, 0)
        world.visit(1, 0)
        arrive(world, 1, 0, 1)
        for name in (0, 1):
            world.pump(name, EVERYTHING)
            world.release(name)
    world.crash(1)
    finish(world)


def ghost_in_a_roster(rules: Rules) -> None:
    """Daemon 1 is cut off, and its session leaves. The other daemon has not noticed when they meet again."""
    world = World(rules, (0, 1), {})
    world.form({0: frozenset([(0, 0), (1, 0)])})
    world.components = [0, 1]
    index = world.start(1)
    world.conclude(index)
    world.accept(index, 1)
    world.confirm(index, 1)
    world.commit(index)
    world.wish(1, Leave(0, (1, 0)))
    world.visit(1, EVERYTHING)
    world.pump(1, EVERYTHING)
    world.components = [0, 0]
    finish(world)


SCRIPTS: Final[dict[str, Callable[[Rules], None]]] = {
    "raise_clock": clock_of_an_update,
    "keep_interest": early_interest,
    "cap_report": slow_receiver,
    "own_roster": ghost_in_a_roster,
}
