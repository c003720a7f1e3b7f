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
from tests.model.regions.world import NEVER, NOW, World


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


SCRIPTS: Final[dict[str, Callable[[Rules], None]]] = {"original_partitions": original_partitions}
