"""A quiet network: faults end, nothing is lost any more, and rounds go on until there is nothing left to do."""

from __future__ import annotations

from typing import Final

from tests.model.regions import rounds
from tests.model.regions.world import NOW, World

ROUNDS: Final = 20  # a verdict takes four, a dead sender's final count three, and views drain one after the other


def come_to_rest(world: World) -> None:
    world.fate = lambda: NOW
    world.suspects = lambda _: frozenset()
    world.tokens.clear()
    for late in list(world.late):
        world.take(*late)
    world.late.clear()
    for sender in world.senders:
        if not sender.is_alive and sender.id not in world.dead[-1]:
            world.declare_dead(sender.id)
    for node in world.nodes:
        if not node.is_alive and node.id not in world.excluded[-1]:
            world.exclude(node.id)
    for sender in world.senders:
        sender.epochs = [world.last] * len(world.regions)
    for node in world.nodes:
        if world.is_up(node.id):
            node.epoch = world.last
            world.deliver(node)
    for _ in range(ROUNDS):
        _go_round(world)


def _go_round(world: World) -> None:
    for sender in world.senders:
        for view, lane in sender.lanes.items() if sender.is_alive else ():
            if lane.ack < lane.count:
                world.repeat_tail(sender, view)
            if world.is_closing(sender, view):
                for member in world.views[view].members:
                    world.say_close(sender, view, member)
    for view in list(world.views):
        members = [each for each in world.views[view].members if world.is_up(each)]
        here = [each for each in members if view not in world.nodes[each].forgotten]
        for starter in here:
            if rounds.leads(world, starter, view) or world.rules.anybody_starts:
                rounds.run(world, rounds.start(world, view, starter))
                break
    for node in world.nodes:
        if world.is_up(node.id):
            for view in list(world.views):
                if node.id in world.views[view].members:
                    world.forget(node, view)
