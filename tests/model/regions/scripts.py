"""Runs written by hand, for rules that chance hardly ever needs: each holds with its rule, and breaks without it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tests.model.regions import rounds
from tests.model.regions.judge import judge
from tests.model.regions.quiet import come_to_rest
from tests.model.regions.rules import Rules
from tests.model.regions.state import ViewId
from tests.model.regions.world import LATE, NEVER, NOW, World


class Script:
    """One region and one sender. `fates`: what becomes of the blocks that are sent next; all others arrive."""

    def __init__(self, rules: Rules, nodes: int, r: int) -> None:
        self.fates: deque[str] = deque()
        self.world = World(rules, lambda: self.fates.popleft() if self.fates else NOW, nodes, 1, r, 1)
        self.view = ViewId(0, 0)

    def round(self, starter: int) -> None:
        rounds.run(self.world, rounds.start(self.world, self.view, starter))

    def end(self) -> None:
        come_to_rest(self.world)
        judge(self.world)


def original_partitions(rules: Rules) -> None:
    """Block 1 is stable at its cacher, node 1, and the sender has dropped it. Node 0 is excluded. If partitions were
    made anew, node 2 would be the cacher of block 1, which it lacks, and node 1 would drop it."""
    script = Script(rules, nodes=3, r=1)
    script.fates.extend([NOW, NOW, NOW, NOW, NOW, NEVER])
    script.world.send(script.world.senders[0])
    script.round(0)
    script.fates.append(NEVER)  # what node 2 pulls from node 1
    script.round(0)
    script.world.exclude(0)
    script.end()


def lost_opening(rules: Rules) -> None:
    """Nobody has block 1 of the old view, and nobody the OPEN that tells of it; its sender is dead. In the new view
    OPEN is lost. A copy of block 1 is still on its way. Who does not finish the old view first, or takes it for
    finished by what is known there, delivers the sender's messages in the wrong order."""
    script = Script(rules, nodes=3, r=1)
    world, sender = script.world, script.world.senders[0]
    script.fates.extend([NOW, NOW, NOW, NEVER, LATE, NEVER])
    world.send(sender)
    world.exclude(2)
    _install(world)
    world.install(sender, 0)
    script.fates.extend([NEVER, NEVER, NOW, NOW])
    world.send(sender)
    sender.is_alive = False
    world.declare_dead(0)
    _install(world)
    script.view = ViewId(0, 1)
    for _ in range(4):
        script.round(0)
    world.take(*world.late.pop())
    script.end()


def told_of_a_block(rules: Rules) -> None:
    """Nobody has block 1 of the old view, its sender is dead, and OPEN of the new view tells that there is one."""
    script = Script(rules, nodes=3, r=1)
    world, sender = script.world, script.world.senders[0]
    script.fates.extend([NOW, NOW, NOW, NEVER, NEVER, NEVER])
    world.send(sender)
    world.exclude(2)
    _install(world)
    world.install(sender, 0)
    world.send(sender)
    sender.is_alive = False
    script.end()


def late_copy(rules: Rules) -> None:
    """Block 1 of a dead sender is nowhere but on its way to node 1. It arrives there just after the token has asked who
    keeps it. A verdict at the end of that round would be wrong; node 0, which has refused it, has to take it later."""
    script = Script(rules, nodes=3, r=3)
    world, sender = script.world, script.world.senders[0]
    script.fates.extend([NOW, NOW, NOW, NEVER, NEVER, NOW])
    world.send(sender)
    world.send(sender)
    sender.is_alive = False
    world.declare_dead(0)
    _install(world)
    script.fates.append(LATE)
    world.give(2, 1, script.view, 0, 1)
    world.exclude(2)
    _install(world)
    script.round(0)
    script.round(0)
    token = rounds.start(world, script.view, 0)
    rounds.visit(world, token)
    rounds.visit(world, token)
    world.take(*world.late.pop())
    rounds.run(world, token)
    script.fates.append(NEVER)  # what node 1 pushes in the next round
    script.round(0)
    script.end()


def delivered_and_kept_by_nobody(rules: Rules) -> None:
    """Node 1, the only cacher of block 1, is excluded; node 0 has delivered the block and dropped it, node 2 lacks it,
    the sender has an ACK for it. Nobody will ever have it to give."""
    script = Script(rules, nodes=3, r=1)
    script.fates.extend([NOW, NOW, NOW, NOW, NOW, NEVER])
    script.world.send(script.world.senders[0])
    script.round(0)
    script.fates.append(NEVER)
    script.round(0)
    script.world.exclude(1)
    script.end()


def _install(world: World) -> None:
    for node in world.nodes:
        node.epoch = world.last


SCRIPTS: Final[dict[str, Callable[[Rules], None]]] = {
    "original_partitions": original_partitions,
    "lost_open_waits": lost_opening,
    "final_count": lost_opening,
    "open_raises_cutoff": told_of_a_block,
    "refuse": late_copy,
    "refusals_end": late_copy,
    "kept_not_delivered": delivered_and_kept_by_nobody,
}
